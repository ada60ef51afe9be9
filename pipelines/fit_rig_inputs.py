"""What ``splatanim fit`` reads before it fits: the camera file, the rig in the first frame's pose, depth and tracks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.progress import Progress
from rigpapr.asset import read_asset
from rigpapr.binding import FitRig, rig_in_pose
from rigpapr.cloud import PaprCloud
from rigpapr.renderer import PaprRendering, render
from rigpapr.supervision import Clip, numbered, read_clip, read_picture
from rigpapr.supervision_depth import check_depth, read_depth
from rigpapr.supervision_tracks import (
    FlowTracker,
    Tracks,
    load_cotracker,
    read_tracks,
    seeds,
    track_with_cotracker,
)
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.render.camera_io import read_cameras
from splatanim.rig.files import read_rig
from splatanim.rig.model import RiggedModel

if TYPE_CHECKING:
    from pipelines.fit_rig import FitConfig

_LEAST_OVERLAP = 0.8  # of the first frame's mask and the asset as it is


@dataclass(frozen=True)
class CameraFile:
    """One camera, and what else its file may say: frames a second, the clip and time at which the rig stands in the
    first frame, and the similarity (4, 4) from the rig's file to the scene."""

    camera: Camera
    fps: float | None = None
    clip: str = ""
    time: float = 0.0
    matrix: np.ndarray | None = None


def read_camera_file(path: Path) -> CameraFile:
    """A transforms.json with one camera, or a fixed-camera clip's ``video.json``.

    Raises InputError where the file has several cameras.
    """
    found = read_cameras(path)
    first = found.cameras[0]
    if any(not np.allclose(c.T_camera_world, first.T_camera_world, atol=1e-6) for c in found.cameras):
        raise InputError(f"{path}: holds {len(found.cameras)} different cameras; a fixed viewpoint has one.")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
    matrix = None
    if isinstance(data.get("normalisation"), dict):
        centre, scale = np.asarray(data["normalisation"]["center"], float), float(data["normalisation"]["scale"])
        matrix = np.diag([scale, scale, scale, 1.0])
        matrix[:3, 3] = -scale * centre
    times = data.get("times") or [0.0]
    return CameraFile(first, found.fps, str(data.get("animation", "")), float(times[0]), matrix)


def found_camera(config: FitConfig, points: np.ndarray, side: str, part: slice) -> tuple[CameraFile, str]:
    """The camera by the first frame's outline, written as ``NAME_camera.json`` beside the output, and what to say.

    Raises InputError as :func:`rigpapr.align.find_camera` does.
    """
    from pipelines.fit_rig import sibling
    from pipelines.synth_files import lens, matrix
    from rigpapr.align import find_camera

    if not 5 <= config.fov <= 120:
        raise InputError(f"--fov {config.fov:g}: give degrees from 5 to 120.")
    width, height = size_of(config.video)
    any_camera = Camera(np.eye(4), 1.0, 1.0, 0.5 * width, 0.5 * height, width, height)
    two = slice(part.start or 0, (part.start or 0) + 2 * (part.step or 1), part.step)
    mask = read_clip(config.video, any_camera, masks=config.masks, part=two).masks[0]
    made = find_camera(points, mask, side, fov_y_degrees=config.fov, seed=config.seed)
    path = sibling(config.output, "_camera.json")
    path.write_text(json.dumps({**lens(made.camera), "transform_matrix": matrix(made.camera)}), encoding="utf-8")
    note = f"camera: found from {side}, outlines {made.distance:.1f} px apart on average; written to {path}."
    return CameraFile(made.camera), note


def size_of(video: Path) -> tuple[int, int]:
    """Width and height of a video or of a folder's first picture. Raises InputError where neither can be read."""
    import imageio_ffmpeg

    if video.is_dir():
        pictures = numbered(video, (".png", ".jpg", ".jpeg", ".webp", ".bmp"))
        if not pictures:
            raise InputError(f"{video}: no frame was found.")
        height, width = read_picture(pictures[0]).shape[:2]
        return width, height
    if not video.is_file():
        raise InputError(f"{video}: no such video or folder. Check the spelling.")
    try:
        reader = imageio_ffmpeg.read_frames(str(video))
        width, height = next(reader)["size"]
        reader.close()
    except (OSError, RuntimeError, StopIteration, KeyError) as error:
        raise InputError(f"{video}: ffmpeg cannot read it ({str(error)[-200:]}). Re-encode the video.") from error
    return int(width), int(height)


@dataclass(frozen=True)
class PlacedRig:
    """A rig in the first frame; ``frames`` (J, 4, 4) its file's joint axes there and ``place`` (4, 4) the similarity
    from the file to the scene, None for rigs that have no file."""

    rig: FitRig
    frames: np.ndarray | None = None
    place: np.ndarray | None = None


def read_fit_rig(path: Path, camera: CameraFile, *, mesh: Path | None = None, clip: str = "") -> FitRig:
    """A rig file in the first frame's pose: its clip's (``clip``, else the camera file's) at the first time, else its
    bind pose; placed by the camera file's normalisation."""
    return read_placed_rig(path, camera, mesh=mesh, clip=clip).rig


def read_placed_rig(path: Path, camera: CameraFile, *, mesh: Path | None = None, clip: str = "") -> PlacedRig:
    """:func:`read_fit_rig`, with what other clips of the file need."""
    from splatanim.rig.skeleton import bind_pose, forward_kinematics

    model = read_rig(path, mesh)
    name = clip or (camera.clip if camera.clip in model.animations else "")
    pose = model.clip(name).sample(camera.time) if name else bind_pose(model.skeleton)
    rig = rig_in_pose(model, pose, camera.matrix)
    place = np.eye(4) if camera.matrix is None else camera.matrix
    frames = place @ forward_kinematics(model.skeleton, pose)
    return PlacedRig(rig, frames[[model.skeleton.index(joint) for joint in rig.names]], place)


def rig_of_points(points: np.ndarray) -> FitRig:
    """Our auto-rigger's rig for a cloud."""
    from splatanim.rig.auto_rig import auto_rig_points

    made = auto_rig_points(points)
    skeleton = made.skeleton
    empty = np.empty((0, 3), np.int64)
    model = RiggedModel(points, empty, skeleton, made.weights(points))
    return rig_in_pose(model, skeleton.rest)


def check_placed(rig: FitRig, points: np.ndarray, where: str) -> None:
    """Raises InputError where the rig does not stand in the asset: other coordinates, units or pose."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max())
    inside = np.all((rig.sources > low - 0.1 * size) & (rig.sources < high + 0.1 * size), axis=1).mean()
    rig_size = float(np.ptp(rig.sources, axis=0).max())
    if inside < 0.8 or not 0.5 < rig_size / size < 2.0:
        raise InputError(
            f"{where}: the rig does not stand in the asset: {100 * inside:.0f} % of it lie within its bounds, its "
            f"size is {rig_size:.3g} against {size:.3g}. Move it there, or give a camera file with its normalisation."
        )


@dataclass(frozen=True)
class FitInputs:
    """All that a fit works on, and ``notes``: what was found while reading. ``overlap`` is the share of the first
    frame's mask and the asset's silhouette, of what either covers, that both do."""

    cloud: PaprCloud
    placed: PlacedRig
    clip: Clip
    depth: np.ndarray | None
    tracks: Tracks | None
    notes: list[str]
    overlap: float

    @property
    def rig(self) -> FitRig:
        return self.placed.rig


def read_inputs(config: FitConfig, progress: Progress | None = None) -> FitInputs:
    """Read and check everything, before the first step of a fit. See :class:`pipelines.fit_rig.FitConfig`."""
    progress = progress or Progress()
    part = parse_part(config.frames)
    cloud = read_asset(config.asset)
    points = cloud.world_positions.detach().numpy().astype(np.float64)
    how, _, side = config.camera.partition(":")
    found: list[str] = []
    if how == "find":
        camera, note = found_camera(config, points, side, part)
        found = [note]
    else:
        camera = read_camera_file(Path(config.camera))
    clip = read_clip(config.video, camera.camera, masks=config.masks, fps=camera.fps, part=part)
    if config.rig == "auto":
        placed = PlacedRig(rig_of_points(points))
    else:
        placed = read_placed_rig(Path(config.rig), camera, mesh=config.rig_mesh, clip=config.rig_clip)
        check_placed(placed.rig, points, config.rig)
    first = render(cloud, clip.camera)
    notes = [*found, *clip.notes, *placed.rig.notes, *overlap_note(first, clip)]
    if config.rig == "auto":
        notes.append(f"rig: made from the asset, {len(placed.rig)} joints.")
    depth = _depth(config, clip, part, progress)
    if depth is None:
        notes.append("depth: none was given; how far limbs are from the camera is then largely guessed.")
    else:
        notes.append(check_depth(depth[0], np.where(first.alpha > 0.5, first.depth, 0), clip.masks[0], config.depth))
    tracks = find_tracks(config.tracks, cloud, clip, first, seed=config.seed)
    return FitInputs(cloud, placed, clip, depth, tracks, notes, overlap(first, clip))


def _depth(config: FitConfig, clip: Clip, part: slice, progress: Progress) -> np.ndarray | None:
    """Maps from files, or by Depth Anything 3; the latter are kept beside the output, so that a resumed fit has them.

    Raises InputError for what cannot be read.
    """
    if config.depth == "none":
        return None
    how, _, folder = config.depth.partition(":")
    if how != "da3":
        return read_depth(config.depth, clip.masks.shape, part=part)
    from pipelines.fit_rig import sibling
    from rigpapr.depth_anything import load_depth_anything, predict_depth
    from splatanim.formats.atomic import atomic_path

    kept = sibling(config.output, "_depth.npz")
    if config.resume and kept.is_file():
        return read_depth(kept, clip.masks.shape)
    model, metric = load_depth_anything(folder)
    with progress.bar("depth", len(clip)) as tick:
        depth = predict_depth(model, clip, metric=metric, on_frame=tick)
    with atomic_path(kept) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, depth=depth)
    return depth


def parse_part(text: str) -> slice:
    """``START:STOP:STEP`` with numbers from 0, each of which may lack."""
    if not text:
        return slice(None)
    try:
        numbers = [int(value) if value else None for value in text.split(":")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 3 or any(n is not None and n < 0 for n in numbers) or [*numbers, None][2] == 0:
        raise InputError(f"--frames {text}: give START:STOP or START:STOP:STEP, such as 0:48 or ::2.")
    return slice(*numbers)


def overlap(first: PaprRendering, clip: Clip) -> float:
    """Intersection over union of the asset's silhouette as it is and the first frame's mask."""
    drawn, mask = first.alpha > 0.5, clip.masks[0]
    return float((drawn & mask).sum() / max((drawn | mask).sum(), 1))


def overlap_note(first: PaprRendering, clip: Clip) -> list[str]:
    """A warning where the asset as it is does not cover the first frame's subject.

    Raises InputError where they hardly meet.
    """
    share = overlap(first, clip)
    if share < 0.2:
        raise InputError(
            f"The asset and the first frame's subject overlap by {100 * share:.0f} % of their area. Is it the camera "
            "of this video, and the asset in the video's coordinates?"
        )
    if share < _LEAST_OVERLAP:
        return [
            f"first frame: it overlaps the asset by {100 * share:.0f} % of their area only, so it may not show the "
            "pose that the asset was captured in. Start the clip where it does (--frames)."
        ]
    return []


def find_tracks(tracks: str, cloud: PaprCloud, clip: Clip, first: PaprRendering, *, seed: int = 0) -> Tracks | None:
    """``none``, ``flow``, ``cotracker:CHECKPOINT`` or a .npz, from the first frame's rendering of the asset."""
    from rigpapr.coarse_view import see

    if tracks == "none":
        return None
    points = cloud.world_positions.detach().numpy().astype(np.float64)
    seen = see(clip.camera, points, float(np.ptp(points, axis=0).max()))
    how, _, checkpoint = tracks.partition(":")
    if how not in ("flow", "cotracker"):
        return read_tracks(tracks, len(clip), seen.pixels, seen.visible)
    rows = seeds(first, clip.masks[0], seed=seed)
    if how == "flow":
        return FlowTracker().track(rows, seen.pixels[rows], clip.rgb, clip.masks)
    return track_with_cotracker(load_cotracker(checkpoint), rows, seen.pixels[rows], clip.rgb)
