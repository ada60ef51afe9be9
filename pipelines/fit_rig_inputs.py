"""What ``splatanim fit`` reads before it fits: the camera file, the rig in the first frame's pose, depth and tracks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rigpapr.asset import read_asset
from rigpapr.binding import FitRig, rig_in_pose
from rigpapr.cloud import PaprCloud
from rigpapr.renderer import PaprRendering, render
from rigpapr.supervision import Clip, read_clip
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


def read_fit_rig(path: Path, camera: CameraFile, *, mesh: Path | None = None, clip: str = "") -> FitRig:
    """A rig file in the first frame's pose: its clip's (``clip``, else the camera file's) at the first time, else its
    bind pose; placed by the camera file's normalisation."""
    from splatanim.rig.skeleton import bind_pose

    model = read_rig(path, mesh)
    name = clip or (camera.clip if camera.clip in model.animations else "")
    pose = model.clip(name).sample(camera.time) if name else bind_pose(model.skeleton)
    return rig_in_pose(model, pose, camera.matrix)


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
    """All that a fit works on, and ``notes``: what was found while reading."""

    cloud: PaprCloud
    rig: FitRig
    clip: Clip
    depth: np.ndarray | None
    tracks: Tracks | None
    notes: list[str]


def read_inputs(config: FitConfig) -> FitInputs:
    """Read and check everything, before the first step of a fit. See :class:`pipelines.fit_rig.FitConfig`."""
    camera = read_camera_file(config.camera)
    part = parse_part(config.frames)
    clip = read_clip(config.video, camera.camera, masks=config.masks, fps=camera.fps, part=part)
    cloud = read_asset(config.asset)
    points = cloud.world_positions.detach().numpy().astype(np.float64)
    if config.rig == "auto":
        rig = rig_of_points(points)
    else:
        rig = read_fit_rig(Path(config.rig), camera, mesh=config.rig_mesh, clip=config.rig_clip)
        check_placed(rig, points, config.rig)
    first = render(cloud, clip.camera)
    notes = [*clip.notes, *rig.notes, *overlap_note(first, clip)]
    depth = None
    if config.depth == "none":
        notes.append("depth: none was given; how far limbs are from the camera is then largely guessed.")
    else:
        depth = read_depth(config.depth, clip.masks.shape, part=part)
        notes.append(check_depth(depth[0], np.where(first.alpha > 0.5, first.depth, 0), clip.masks[0], config.depth))
    return FitInputs(cloud, rig, clip, depth, _tracks(config, cloud, clip, first), notes)


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


def overlap_note(first: PaprRendering, clip: Clip) -> list[str]:
    """A warning where the asset as it is does not cover the first frame's subject.

    Raises InputError where they hardly meet.
    """
    drawn, mask = first.alpha > 0.5, clip.masks[0]
    overlap = float((drawn & mask).sum() / max((drawn | mask).sum(), 1))
    if overlap < 0.2:
        raise InputError(
            f"The asset and the first frame's subject overlap by {100 * overlap:.0f} % of their area. Is it the camera "
            "of this video, and the asset in the video's coordinates?"
        )
    if overlap < _LEAST_OVERLAP:
        return [
            f"first frame: it overlaps the asset by {100 * overlap:.0f} % of their area only, so it may not show the "
            "pose that the asset was captured in. Start the clip where it does (--frames)."
        ]
    return []


def _tracks(config: FitConfig, cloud: PaprCloud, clip: Clip, first: PaprRendering) -> Tracks | None:
    from rigpapr.coarse_view import see

    if config.tracks == "none":
        return None
    points = cloud.world_positions.detach().numpy().astype(np.float64)
    seen = see(clip.camera, points, float(np.ptp(points, axis=0).max()))
    how, _, checkpoint = config.tracks.partition(":")
    if how not in ("flow", "cotracker"):
        return read_tracks(config.tracks, len(clip), seen.pixels, seen.visible)
    rows = seeds(first, clip.masks[0], seed=config.seed)
    if how == "flow":
        return FlowTracker().track(rows, seen.pixels[rows], clip.rgb, clip.masks)
    return track_with_cotracker(load_cotracker(checkpoint), rows, seen.pixels[rows], clip.rgb)
