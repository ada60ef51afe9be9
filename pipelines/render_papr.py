"""PAPR assets in ``splatanim render``, ``inspect`` and ``convert``: pictures, films, and points for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.cameras import parse_colour, parse_size
from pipelines.progress import Progress
from splatanim.errors import InputError
from splatanim.render.camera import Camera

if TYPE_CHECKING:
    from pipelines.still import RenderConfig
    from rigpapr.cloud import PaprCloud


def render_asset(config: RenderConfig, progress: Progress) -> str:
    """One picture (.png), the whole camera path (.mp4), every camera into a folder of PNGs, or the points (.ply).

    A fitted asset shows its motion: :mod:`pipelines.fitted_render`.
    """
    from pipelines.still import refuse_motion
    from rigpapr.asset import read_asset
    from rigpapr.fitted import is_fitted
    from rigpapr.renderer import render
    from splatanim.render.video import VideoWriter, write_png

    background = parse_colour(config.background)
    suffix = config.output.suffix.lower()
    if suffix == ".ply":
        return asset_to_points(config.scene, config.output)
    if is_fitted(config.scene):
        from pipelines.fitted_render import render_fitted

        return render_fitted(config, progress)
    refuse_motion(config, "it is a cloud without a rig; fit it to a video first")
    if suffix not in (".png", ".mp4", ""):
        raise InputError(
            f"{config.output}: write a .png, an .mp4 (the whole path), a folder (all cameras) or a .ply (the points)."
        )
    cloud = read_asset(config.scene)
    cameras, fps = _cameras(config, cloud)

    def draw(camera: Camera) -> np.ndarray:
        return render(cloud, camera, background=background).rgb

    if suffix == ".png":
        if not 0 <= config.frame < len(cameras):
            raise InputError(f"--frame {config.frame}: {config.camera} has frames 0 to {len(cameras) - 1}.")
        camera = cameras[config.frame]
        write_png(config.output, draw(camera))
        return f"{config.output}: {len(cloud)} points, {camera.width}x{camera.height}"
    if suffix == ".mp4":
        with VideoWriter(config.output, fps=fps) as video, progress.bar("rendering", len(cameras)) as tick:
            for camera in cameras:
                video.write(draw(camera))
                tick()
        return f"{config.output}: {len(cameras)} frames of {len(cloud)} points"
    if config.output.exists() and not config.output.is_dir():
        raise InputError(f"{config.output}: is a file. Give a folder, a .png or an .mp4.")
    config.output.mkdir(parents=True, exist_ok=True)
    digits = max(4, len(str(len(cameras) - 1)))
    with progress.bar("rendering", len(cameras)) as tick:
        for k, camera in enumerate(cameras):
            write_png(config.output / f"frame_{k:0{digits}d}.png", draw(camera))
            tick()
    return f"{config.output}: {len(cameras)} pictures of {len(cloud)} points"


def _cameras(config: RenderConfig, cloud: PaprCloud) -> tuple[list[Camera], float]:
    from splatanim.inspect import up_vector
    from splatanim.render.camera import frame_object
    from splatanim.render.camera_io import read_cameras

    size = parse_size(config.size) if config.size else None
    if config.camera is not None:
        path = read_cameras(config.camera, size=size)
        return path.cameras, path.fps or config.fps
    width, height = size or (640, 640)
    points = cloud.world_positions.detach().cpu().numpy().astype(np.float64)
    # Assets do not say which way is up; posed images mostly have y up.
    up = (0.0, 1.0, 0.0) if config.up == "auto" else up_vector(config.up)
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    inside = ((points >= low) & (points <= high)).all(axis=1)
    return [frame_object(points[inside], up, width=width, height=height)], config.fps


def inspect_asset(path: Path, *, as_json: bool) -> str:
    """What an asset holds, as text or JSON."""
    from rigpapr.asset import asset_notes, read_asset
    from rigpapr.fitted import is_fitted

    cloud = read_asset(path)
    points = cloud.world_positions.detach().cpu().numpy()
    low, high = points.min(axis=0), points.max(axis=0)
    found: dict[str, Any] = {
        "file": str(path),
        "format": "papr",
        "points": len(cloud),
        "head": cloud.config.head,
        "neighbours": cloud.config.neighbours,
        "parameters": sum(parameter.numel() for parameter in cloud.parameters()),
        "bounds": [low.tolist(), high.tolist()],
        "size": float((high - low).max()),
        "notes": asset_notes(path),
    }
    motion = motion_of(path) if is_fitted(path) else None
    if motion is not None:
        found["motion"] = motion
    if as_json:
        return json.dumps(found, indent=2)
    lines = [
        f"{path}: PAPR neural points",
        f"  points    {found['points']}, {found['neighbours']} neighbours a ray",
        f"  head      {found['head']}, {found['parameters']} parameters in all",
        f"  bounds    {_triple(low)} to {_triple(high)}, longest side {found['size']:.4g}",
    ]
    if motion is not None:
        lines += [
            f"  rig       {motion['joints']} joints, root {motion['root']}, {motion['loose']} that may shift; "
            f"{motion['source']}",
            f"  motion    {motion['frames']} frames at {motion['fps']:g} a second, {motion['seconds']:.2f} s; "
            f"points move by up to {motion['largest_shift']:.3g}",
        ]
    return "\n".join([*lines, *(f"  {key:<9} {value}" for key, value in asset_notes(path).items())])


def motion_of(path: Path) -> dict[str, Any]:
    """What a fitted asset's rig and motion are."""
    from rigpapr.fitted import read_fitted

    asset = read_fitted(path)
    rest = asset.cloud.world_positions.detach()
    shift = max(float((asset.posed(k)[0] - rest).norm(dim=1).max()) for k in range(len(asset)))
    return {
        "joints": len(asset.names),
        "names": list(asset.names),
        "root": asset.names[0],
        "loose": int(asset.loose.sum()),
        "source": "from a file, whose other clips play exactly" if asset.frames is not None else "without a file",
        "frames": len(asset),
        "fps": asset.fps,
        "seconds": len(asset) / asset.fps,
        "largest_shift": shift,
    }


def _triple(values: np.ndarray) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def asset_to_points(path: Path, output: Path) -> str:
    """The asset's points as a .ply with colours."""
    from rigpapr.asset import read_asset, write_points

    cloud = read_asset(path)
    write_points(output, cloud)
    return f"{output}: {len(cloud)} points with colours"
