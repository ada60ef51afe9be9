"""``splatanim render`` and ``splatanim sample``: a picture of a capture as it is, and the sample scenes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from pipelines.animate import prepare
from pipelines.cameras import parse_colour, parse_size, shifted
from pipelines.progress import Progress
from splatanim.errors import InputError
from splatanim.render.camera import Camera


@dataclass(frozen=True)
class RenderConfig:
    """Render a capture from given cameras: one PNG, or an MP4 of the whole camera path.

    Args:
        scene: The .ply to render, or a PAPR asset (*.papr.safetensors).
        output: A .png (one frame) or an .mp4 (all frames of the camera file); of a PAPR asset also a folder (all
            cameras of the file as PNGs) or a .ply (its points with colours).
        camera: A nerfstudio camera_path.json or transforms.json; without it, a three-quarter view of the object.
        frame: Which camera of the file a PNG is taken from.
        background: Red, green and blue, 0 to 1.
        size: WIDTHxHEIGHT in pixels, instead of the camera file's.
        fps: Frames per second of an MP4 where the file does not say.
        up: Which way is up for the view without a camera file.
        backend: Rasteriser: auto, cpu or cuda.
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
    from splatanim.formats import read_splats
    from splatanim.render.order import morton_order
    from splatanim.render.rasterize import rasterize
    from splatanim.render.video import VideoWriter, write_png

    background = parse_colour(config.background)
    if config.output.suffix.lower() not in (".png", ".mp4"):
        raise InputError(f"{config.output}: write a .png (one frame) or an .mp4 (the whole path).")
    result = read_splats(config.scene)
    cameras, fps = _cameras(config, result)
    splats = result.splats.select(morton_order(result.splats.means))
    if config.output.suffix.lower() == ".png":
        if not 0 <= config.frame < len(cameras):
            raise InputError(f"--frame {config.frame}: {config.camera} has frames 0 to {len(cameras) - 1}.")
        image = rasterize(splats, cameras[config.frame], background=background, backend=config.backend)
        write_png(config.output, image.rgb)
        return f"{config.output}: {len(splats)} splats, {image.rgb.shape[1]}x{image.rgb.shape[0]}"
    with VideoWriter(config.output, fps=fps) as video, progress.bar("rendering", len(cameras)) as tick:
        for camera in cameras:
            video.write(rasterize(splats, camera, background=background, backend=config.backend).rgb)
            tick()
    return f"{config.output}: {len(cameras)} frames of {len(splats)} splats{'; ' + video.note if video.note else ''}"


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
