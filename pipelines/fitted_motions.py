"""Which motion a fitted asset shows, from where, for ``splatanim render``: options to maps of joints and cameras."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from splatanim.errors import InputError
from splatanim.render.camera import Camera

if TYPE_CHECKING:
    from pipelines.still import RenderConfig
    from rigpapr.fitted import FittedAsset
    from rigpapr.posing import PosedMotion

_LEAST_ORBIT = 48


def chosen_motion(config: RenderConfig, asset: FittedAsset) -> PosedMotion:
    """The fitted motion, one pose (``--pose``), or a clip of another file (``--clip``).

    Raises InputError where both are given, or a map without a clip.
    """
    from rigpapr.posing import fitted_motion, read_clip_for, read_pose

    if config.pose is not None and config.clip is not None:
        raise InputError("--pose and --clip are two motions: give one of them.")
    if config.clip is None and (config.map is not None or config.clip_name):
        raise InputError("--map and --clip-name are for a clip of another file: give it with --clip.")
    if config.pose is not None:
        return read_pose(config.pose, asset)
    if config.clip is not None:
        up = up_of(config, asset)
        return read_clip_for(asset, config.clip, clip=config.clip_name, names=config.map, fps=config.fps, up=up)
    return fitted_motion(asset)


def up_of(config: RenderConfig, asset: FittedAsset) -> tuple[float, float, float]:
    """``--up``, else the axis that points up in the fitted video, else +y."""
    from pipelines.fit_rig_films import up_axis
    from splatanim.inspect import up_vector

    if config.up != "auto":
        return up_vector(config.up)
    return (0.0, 1.0, 0.0) if asset.view is None else up_axis(asset.view)


def chosen_cameras(config: RenderConfig, asset: FittedAsset, motion: PosedMotion) -> tuple[list[Camera], float | None]:
    """The film's cameras, one for all frames or one a frame, and frames a second where a camera file says them.

    A file's (``--camera``), a ring (``--orbit``), or that of the fitted video.
    """
    from pipelines.cameras import parse_size
    from splatanim.render.camera_io import read_cameras

    size = parse_size(config.size) if config.size else None
    if config.camera is not None:
        if config.orbit:
            raise InputError("--orbit and --camera are two sets of cameras: give one of them.")
        path = read_cameras(config.camera, size=size)
        return path.cameras, path.fps
    view = _standing(config, asset, size or (640, 640))
    if config.size and asset.view is not None:
        view = resized(view, size or (view.width, view.height))
    if not config.orbit:
        return [view], None
    from pipelines.fit_rig_films import ring

    count = len(motion) * -(-_LEAST_ORBIT // len(motion))
    return ring(asset, view, count), None


def _standing(config: RenderConfig, asset: FittedAsset, size: tuple[int, int]) -> Camera:
    from splatanim.render.camera import frame_object

    if asset.view is not None:
        return asset.view
    points = asset.cloud.world_positions.detach().numpy().astype(np.float64)
    return frame_object(points, up_of(config, asset), width=size[0], height=size[1])


def resized(camera: Camera, size: tuple[int, int]) -> Camera:
    """The same view in another size of picture: what was in the picture stays in it."""
    width, height = size
    scale = min(width / camera.width, height / camera.height)
    cx = 0.5 * width + scale * (camera.cx - 0.5 * camera.width)
    cy = 0.5 * height + scale * (camera.cy - 0.5 * camera.height)
    return dataclasses.replace(
        camera, fx=camera.fx * scale, fy=camera.fy * scale, cx=cx, cy=cy, width=width, height=height
    )


def parse_exports(exports: tuple[str, ...]) -> list[tuple[str, Path]]:
    """``ply:DIR`` and ``glb:FILE`` -> (kind, path)."""
    out = []
    for text in exports:
        kind, _, path = text.partition(":")
        if kind not in ("ply", "glb") or not path:
            raise InputError(
                f"--export {text!r} is neither ply:DIR (a sequence of points) nor glb:FILE (rig and clip)."
            )
        if kind == "glb" and Path(path).suffix.lower() != ".glb":
            raise InputError(f"--export {text!r}: the file must end in .glb.")
        out.append((kind, Path(path)))
    return out
