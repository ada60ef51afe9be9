"""``splatanim render`` and ``splatanim sample``: a picture of a capture as it is, and the sample scenes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from pipelines.animate import FILMS, prepare
from pipelines.cameras import parse_size, shifted
from pipelines.film import drawn_frame, parse_background
from pipelines.progress import Progress
from splatanim.errors import InputError
from splatanim.render.camera import Camera


@dataclass(frozen=True)
class RenderConfig:
    """Render a capture from given cameras: one picture, or a film along the whole camera path.

    Args:
        scene: The .ply to render, or a PAPR asset (*.papr.safetensors); a fitted one shows its motion.
        output: A .png (one frame), or all frames of the camera file as .mp4, .webm, .mov or a folder of PNGs (no
            suffix); of a PAPR asset a .png, .mp4, folder or .ply (its points with colours), of a fitted one a .glb
            (with its rig).
        camera: A nerfstudio camera_path.json or transforms.json, or a COLMAP model's folder; without it, a
            three-quarter view of the object, or of a fitted asset the view of its video.
        frame: Which camera of the file a PNG is taken from; of a fitted asset which frame of the motion it shows.
        background: Red, green and blue, 0 to 1; of splats also transparent, not in an .mp4.
        size: WIDTHxHEIGHT in pixels, instead of the camera file's.
        fps: Frames per second of a film where the file does not say.
        up: Which way is up for the view without a camera file.
        backend: Rasteriser: auto, cpu or cuda.
        orbit: Fitted assets: film from a camera that goes round once, in whole plays of the motion.
        pose: Fitted assets: a .json that turns joints, {"joints": {"Head": {"turn": [0, 30, 0]}}} in degrees.
        clip: Fitted assets: play a clip of this .glb or .bvh; retargeted where it is of another skeleton.
        clip_name: Which clip of that file.
        map: A .toml with lines "SourceName" = "TargetName" for the retargeting, instead of matching names.
        export: Fitted assets: glb:FILE for points with rig and clip, ply:DIR for the moved points; repeatable.
        elastic: Fitted assets: add the elastic motion that the rig cannot make.
        material: With --elastic: auto (flesh) or a preset, as of ``animate``.
        object_size: With --elastic: the longest side in metres.
        functions: With --elastic: how many elastic functions the flesh has.
        leak: With --elastic: how much of the mass the bones do not carry directly, 0 to 1.
    """

    scene: Positional[Path]
    output: Annotated[Path, arg(aliases=["-o"])]
    camera: Path | None = None
    frame: int = 0
    background: str = "1,1,1"
    size: str | None = None
    fps: float = 30.0
    up: str = "auto"
    backend: Literal["auto", "cpu", "cuda"] = "auto"
    orbit: bool = False
    pose: Path | None = None
    clip: Path | None = None
    clip_name: str = ""
    map: Path | None = None
    export: UseAppendAction[tuple[str, ...]] = ()
    elastic: bool = False
    material: str = "auto"
    object_size: float = 1.0
    functions: int = 48
    leak: float = 1.0


@dataclass(frozen=True)
class SampleConfig:
    """Write one of the sample scenes as a .ply, the same for the same seed.

    Args:
        name: The scene; --list names them all.
        output: The .ply to write; by default NAME.ply.
        seed: Varies shape and colours.
        list: Print the names and stop.
    """

    name: Positional[str] = ""
    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    seed: int = 0
    list: bool = False


def render_still(config: RenderConfig, progress: Progress) -> str:
    """Render, write, and say what was written."""
    if config.scene.name.lower().endswith(".papr.safetensors"):
        from pipelines.render_papr import render_asset

        return render_asset(config, progress)
    refuse_motion(config, "it is a capture without a rig; animate moves those")
    from splatanim.formats import read_splats
    from splatanim.render.film import open_film
    from splatanim.render.order import morton_order
    from splatanim.render.video import write_png

    background = parse_background(config.background)
    if config.output.suffix.lower() not in (".png", *FILMS):
        raise InputError(
            f"{config.output}: write a .png (one frame), or the whole path as .mp4, .webm, .mov or a folder of PNGs."
        )
    if background is None and config.output.suffix.lower() == ".mp4":
        raise InputError(f"{config.output}: an .mp4 holds no alpha. Write {config.output.with_suffix('.webm')}.")
    result = read_splats(config.scene)
    cameras, fps = _cameras(config, result)
    splats = result.splats.select(morton_order(result.splats.means))
    if config.output.suffix.lower() == ".png":
        if not 0 <= config.frame < len(cameras):
            raise InputError(f"--frame {config.frame}: {config.camera} has frames 0 to {len(cameras) - 1}.")
        image, alpha = drawn_frame(splats, cameras[config.frame], (), 1.0, background, config.backend)
        write_png(config.output, image, alpha)
        return f"{config.output}: {len(splats)} splats, {image.shape[1]}x{image.shape[0]}"
    with (
        open_film(config.output, fps=fps, alpha=background is None) as video,
        progress.bar("rendering", len(cameras)) as tick,
    ):
        for camera in cameras:
            video.write(*drawn_frame(splats, camera, (), 1.0, background, config.backend))
            tick()
    return f"{config.output}: {len(cameras)} frames of {len(splats)} splats{'; ' + video.note if video.note else ''}"


def refuse_motion(config: RenderConfig, why: str) -> None:
    """Raise InputError where an option for fitted assets is given for something else."""
    for name in ("orbit", "pose", "clip", "clip_name", "map", "export", "elastic"):
        if getattr(config, name):
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for assets with a rig and a motion; {config.scene}: {why}.")


def _cameras(config: RenderConfig, result) -> tuple[list[Camera], float]:
    from splatanim.render.camera import frame_object
    from splatanim.render.camera_io import read_cameras

    size = parse_size(config.size) if config.size else None
    if config.camera is not None:
        path = read_cameras(config.camera, size=size)
        return [shifted(camera, result.splats.offset) for camera in path.cameras], path.fps or config.fps
    subject = prepare(result, config.up, 1.0, config.scene)
    width, height = size or (640, 640)
    return [frame_object(subject.splats.means, subject.frame.up, width=width, height=height)], config.fps


def write_sample(config: SampleConfig) -> str:
    """Make the scene and write it with its up axis in the header."""
    from splatanim.formats import write_ply
    from splatanim.samples import make_sample, sample_names

    if config.list:
        return "\n".join(sample_names())
    if not config.name:
        raise InputError(f"sample: name a scene: {', '.join(sample_names())}.")
    splats = make_sample(config.name, seed=config.seed)
    path = config.output or Path(f"{config.name}.ply")
    write_ply(path, splats, comments=(f"splatanim sample {config.name}, seed {config.seed}", "Vertical Axis: -y"))
    return f"{path}: {len(splats)} splats"
