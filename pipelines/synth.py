"""``splatanim synth``: evaluation sets from a rigged mesh. Posed training views of one pose, a fixed-camera clip,
held-out novel views, masks, depth, true joints and vertices: the layout of the project's multi-view data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg

from pipelines.progress import Progress
from pipelines.synth_cameras import FOV, Up, clip_camera, ring_cameras, training_camera
from pipelines.synth_files import (
    MARK,
    lens,
    matrix,
    monocular,
    readme,
    whole_folder,
    write_json,
    write_picture,
)
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.synth_look import Painter
    from pipelines.synth_motion import Performance
    from splatanim.render.camera import Camera
    from splatanim.rig.model import RiggedModel

_TURNS = (0.0, 8.0, 30.0)  # tried where a view shows nothing: a flat mesh seen edge on


@dataclass(frozen=True)
class SynthConfig:
    """Make an evaluation set (images, masks, depth, true motion) from a rigged mesh.

    Args:
        source: The character: .glb, .gltf, UniRig .npz, RigNet .txt (with --rig-mesh), or a mesh (.obj, .ply ...).
        output: The folder to make.
        clip: The clip to film, such as Walk. Without one only training views are made, of the bind pose.
        frames: How many frames of the clip.
        views: How many training views.
        novel: How many held-out cameras film the clip too.
        size: Width and height of the pictures in pixels.
        fov: Field of view in degrees; the cameras stand so that the subject keeps its share of the picture.
        pose: What the training views show: the clip's first frame, or the bind pose.
        travel: clip (go where the clip goes), in-place, or a number of body lengths to walk over the clip, such as 1.5.
        samples: Points a pixel is averaged from, along each side: 1 to 8.
        unlit: Plain colours, without light.
        ambient: The share of light that comes from everywhere, 0 to 1; the rest comes from one lamp.
        light: Where the lamp stands, fixed in the world: azimuth from the subject's front and elevation, in degrees.
        pattern: Paint blotches that can be tracked: auto does so where the mesh has neither texture nor vertex colours.
        motion: Another .glb of the same character, for its clips.
        rig_mesh: The mesh that a .txt rig numbers.
        up: Which way is up: +y, -y, +z, -z, +x or -x.
        seed: Seed of the pattern, of the depth's errors and of where the spiral of training views starts.
        overwrite: Replace a set that is there already.
    """

    source: Positional[Path]
    output: Annotated[Path, arg(aliases=["-o"])]
    clip: str = ""
    frames: int = 24
    views: int = 100
    novel: int = 4
    size: int = 256
    fov: float = FOV
    pose: Literal["first", "bind"] = "first"
    travel: str = "clip"
    samples: int = 3
    unlit: bool = False
    ambient: float = 0.28
    light: tuple[float, float] = (41.2, 58.0)
    pattern: Literal["auto", "on", "off"] = "auto"
    motion: Path | None = None
    rig_mesh: Path | None = None
    up: str = "+y"
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class SynthResult:
    """What was made; ``notes`` are what is to be said about the source."""

    output: Path
    views: int
    frames: int
    novel: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.views} training views"]
        if self.frames:
            parts += [f"a clip of {self.frames} frames", f"{self.novel} held-out cameras"]
        return "\n".join([f"{self.output}: {', '.join(parts)}", *(f"  note: {note}" for note in self.notes)])


def synth(config: SynthConfig, progress: Progress | None = None) -> SynthResult:
    """The whole job; the folder appears when it is complete.

    Raises :class:`InputError` for options out of range, sources without faces, unknown clips and a folder that is
    there already; ``OutputError`` where it cannot be written.
    """
    from pipelines.synth_look import Look, Painter
    from pipelines.synth_motion import read_subject
    from splatanim.inspect import up_vector

    progress = progress or Progress()
    check(config)
    up = up_vector(config.up)
    with progress.spinner("reading the model"):
        model = read_subject(config.source, config.rig_mesh, config.motion)
        made, notes = _performance(config, model, up)
    light = None if config.unlit else (config.ambient, *config.light)
    painter = Painter(made.model, up, Look(light, config.pattern, config.samples, config.seed))
    with whole_folder(config.output, overwrite=config.overwrite) as folder:
        films = _films(config, made, up)
        pictures = config.views + len(made.frames) * len(films)
        with progress.bar("rendering", pictures) as tick:
            _write_training(config, made, up, folder, painter, tick)
            if films:
                _write_films(config, made, films, folder, painter, tick)
        _write_truth(config, made, folder)
    return SynthResult(config.output, config.views, len(made.frames), max(0, len(films) - 1), (*model.notes, *notes))


def check(config: SynthConfig) -> None:
    """Raise :class:`InputError` for options out of range."""
    whole = (("frames", 1, 10_000), ("views", 1, 10_000), ("novel", 0, 1000), ("size", 16, 8192), ("samples", 1, 8))
    for name, low, high in whole:
        if not low <= getattr(config, name) <= high:
            raise InputError(f"--{name} {getattr(config, name)}: a whole number from {low} to {high} is needed.")
    if not 5 <= config.fov <= 120:
        raise InputError(f"--fov {config.fov:g}: give degrees from 5 to 120.")
    if not 0 <= config.ambient <= 1:
        raise InputError(f"--ambient {config.ambient:g}: a share from 0 to 1 is needed.")
    if not (np.isfinite(config.light).all() and abs(config.light[1]) <= 90):
        raise InputError(f"--light {config.light}: azimuth and elevation in degrees, the latter from -90 to 90.")
    if config.seed < 0:
        raise InputError(f"--seed {config.seed}: must not be negative.")


def _performance(config: SynthConfig, model: RiggedModel, up: Up) -> tuple[Performance, list[str]]:
    from pipelines.synth_motion import chosen_clip, perform, still

    if config.clip:
        clip = chosen_clip(model, config.source, config.clip)
        bind = config.pose == "bind"
        made = perform(model, clip, config.frames, up=up, travel=config.travel, bind=bind)
        if made.roams:
            said = (
                "over the clip the subject needs more room than in any frame: it is scaled by its largest frame, and "
            )
            return made, [said + "the clip's cameras stand so far off that all of it is seen."]
        return made, []
    if config.motion is not None or config.travel != "clip":
        raise InputError("--motion and --travel are for a clip: name one with --clip.")
    clips = ", ".join(model.animations)
    return still(model), [f"no --clip, so training views of the bind pose alone; clips: {clips}."] if clips else []


def _films(config: SynthConfig, made: Performance, up: Up) -> dict[str, Camera]:
    """The clip's camera, named ``video``, and the held-out ones; none without a clip."""
    from splatanim.render.camera import box_corners

    if not len(made.frames):
        return {}
    points = None
    if made.roams:
        vertices = made.vertices()
        points = box_corners(vertices.min(axis=1), vertices.max(axis=1))
    given: dict[str, Any] = {"size": config.size, "fov": config.fov, "points": points}
    return {"video": clip_camera(up, **given), **(ring_cameras(config.novel, up, **given) if config.novel else {})}


def _write_training(
    config: SynthConfig, made: Performance, up: Up, folder: Path, painter: Painter, tick: Callable[[], None]
) -> None:
    surface = painter.pose(made.train)
    vertices = surface.vertices
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    centre, reach = (0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low))) if made.roams else (None, 1.0)
    given: dict[str, Any] = {"size": config.size, "fov": config.fov, "seed": config.seed}
    (folder / "train").mkdir()
    digits = max(3, len(str(config.views - 1)))
    frames = []
    for k in range(config.views):
        for turn in _TURNS:
            camera = training_camera(k, config.views, up, turn=turn, centre=centre, reach=reach, **given)
            rgba = painter.draw(surface, camera).rgba
            if (rgba[..., 3] >= 128).any():
                break
        else:
            raise InputError(
                f"{config.source}: view {k} shows nothing of the model at {config.size} pixels. It may be transparent "
                "or thinner than a pixel: check the materials' alpha, or give a larger --size."
            )
        name = f"./train/r_{k:0{digits}d}"
        write_picture(folder / f"{name}.png", rgba)
        frames.append({"file_path": name, "transform_matrix": matrix(camera)})
        tick()
    write_json(folder / MARK, {**lens(camera), "frames": frames})
    np.savez_compressed(
        folder / "train_vertices.npz", vertices=vertices.astype(np.float32), faces=made.model.faces.astype(np.int32)
    )


def _write_films(
    config: SynthConfig,
    made: Performance,
    films: dict[str, Camera],
    folder: Path,
    painter: Painter,
    tick: Callable[[], None],
) -> None:
    digits = max(3, len(str(len(made.frames) - 1)))
    for name in ("video", *(["novel"] if len(films) > 1 else [])):
        (folder / name).mkdir()
    depth = np.zeros((len(made.frames), config.size, config.size), np.float32)
    for t, transforms in enumerate(made.frames):
        surface = painter.pose(transforms)
        for name, camera in films.items():
            image = painter.draw(surface, camera)
            stem = "video/f" if name == "video" else f"novel/{name}"
            write_picture(folder / f"{stem}_{t:0{digits}d}.png", image.rgba)
            if name == "video":
                depth[t] = image.depth
            tick()
    np.savez_compressed(folder / "video_depth.npz", depth=depth, depth_mono=monocular(depth, config.seed))
    files = [f"./video/f_{t:0{digits}d}.png" for t in range(len(made.frames))]
    write_json(folder / "video.json", _video(config, made, films["video"], files))
    ring = [{"name": name, "transform_matrix": matrix(camera)} for name, camera in films.items() if name != "video"]
    if ring:
        pattern = f"./novel/{{name}}_{{frame:0{digits}d}}.png"
        data = {**lens(films["video"]), "cameras": ring, "frames": len(made.frames), "pattern": pattern}
        write_json(folder / "novel.json", data)


def _video(config: SynthConfig, made: Performance, camera: Camera, files: list[str]) -> dict[str, Any]:
    from pipelines.synth_motion import short_name

    skeleton = made.model.skeleton
    return {
        **lens(camera),
        "transform_matrix": matrix(camera),
        "fps": made.fps,
        "frames": files,
        "model": short_name(config.source),
        "animation": made.clip,
        "times": made.times.tolist(),
        "normalisation": {"center": made.centre.tolist(), "scale": made.scale},
        "joint_names": list(skeleton.names),
        "joint_parents": skeleton.parents.tolist(),
        "joint_positions": np.round(made.joints, 6).tolist(),
        "rig": "rig.glb",
        "travel": config.travel,
    }


def _write_truth(config: SynthConfig, made: Performance, folder: Path) -> None:
    """True vertices and joint transforms, the rig, and the README."""
    from pipelines.synth_motion import short_name
    from splatanim.rig.gltf import write_glb

    if len(made.frames):
        vertices, faces = made.vertices().astype(np.float32), made.model.faces.astype(np.int32)
        np.savez_compressed(folder / "video_vertices.npz", vertices=vertices, faces=faces)
        np.savez_compressed(folder / "video_rig.npz", skin_transforms=made.frames.astype(np.float32))
    write_glb(folder / "rig.glb", made.model, name=config.source.stem)
    azimuth, elevation = config.light
    lit = f"{config.ambient:.0%} even light, the rest from one lamp at {azimuth:g} degrees, {elevation:g} up"
    text = readme(
        {
            "name": config.source.stem,
            "model": short_name(config.source),
            "clip": f", clip {made.clip}" if made.clip else "",
            "seed": config.seed,
            "light": "without light" if config.unlit else lit,
            "size": config.size,
            "centre": " ".join(f"{v:.9g}" for v in made.centre),
            "scale": made.scale,
            "views": config.views,
            "pose": "first frame of the clip" if made.clip and config.pose == "first" else "bind pose",
            "frames": len(made.frames),
            "novel": config.novel,
            "travel": {"clip": "as in the clip", "in-place": "none"}.get(
                config.travel, f"{config.travel} body lengths"
            ),
        }
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
