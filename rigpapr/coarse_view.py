"""The coloured surface that the coarse tracker draws and matches, seen from one camera."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, UInt8

from rigpapr.skin import Skin
from rigpapr.supervision_tracks import sample
from splatanim.errors import InputError, require
from splatanim.render.camera import Camera

_GREY = 128
_GRAZING, _FACING = 0.15, 0.4  # cosines to the line of sight from and to which a picture's colours are taken over
_BEHIND = 0.011  # of the surface's size: how far behind the nearest point a point still counts as seen


@dataclass(frozen=True)
class Surface:
    """Dense points of the first frame: places, unit normals, colours 0..255, and how they hang on the joints."""

    points: Float64[np.ndarray, "n 3"]
    normals: Float64[np.ndarray, "n 3"]
    colours: Float64[np.ndarray, "n 3"]
    skin: Skin

    def __post_init__(self) -> None:
        if len(self.points) < 100:
            raise InputError(f"coarse tracker: {len(self.points)} surface points are too few; thousands are needed.")

    @property
    def size(self) -> float:
        """The longest side."""
        return float(np.ptp(self.points, axis=0).max())


@dataclass(frozen=True)
class Seen:
    """Projected points: pixels (N, 2), depth (N,), which are not hidden, their pixel's flat index, nearest depth."""

    pixels: Float64[np.ndarray, "n 2"]
    z: Float64[np.ndarray, " n"]
    visible: Bool[np.ndarray, " n"]
    flat: Int64[np.ndarray, " n"]
    nearest: Float64[np.ndarray, "h w"]


def project(camera: Camera, points: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 2) and z-depth (N,)."""
    local = points @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    z = np.where(np.abs(local[:, 2]) < 1e-9, 1e-9, local[:, 2])
    x, y = camera.fx * local[:, 0] / z + camera.cx, camera.fy * local[:, 1] / z + camera.cy
    return np.stack([x, y], axis=1), local[:, 2]


def project_jacobian(camera: Camera, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3 3"]:
    """d(pixel x, pixel y, z) / d(world point)."""
    local = points @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    z = np.where(np.abs(local[:, 2]) < 1e-9, 1e-9, local[:, 2])
    out = np.zeros((len(points), 3, 3))
    out[:, 0, 0], out[:, 1, 1], out[:, 2, 2] = camera.fx / z, camera.fy / z, 1.0
    out[:, 0, 2], out[:, 1, 2] = -camera.fx * local[:, 0] / z**2, -camera.fy * local[:, 1] / z**2
    return out @ camera.T_camera_world[:3, :3]


def lift(camera: Camera, pixels: Float[np.ndarray, "n 2"], z: Float[np.ndarray, " n"]) -> Float64[np.ndarray, "n 3"]:
    """World points at pixels and depths."""
    x = (pixels[:, 0] - camera.cx) / camera.fx * z
    y = (pixels[:, 1] - camera.cy) / camera.fy * z
    return (np.stack([x, y, z], axis=1) - camera.T_camera_world[:3, 3]) @ camera.T_camera_world[:3, :3]


def see(camera: Camera, points: Float64[np.ndarray, "n 3"], size: float) -> Seen:
    """Project, and find what is not hidden behind nearer points (within a pixel)."""
    from scipy.ndimage import minimum_filter

    pixels, z = project(camera, points)
    cell = np.floor(np.clip(pixels, -1, 1e6)).astype(np.int64)
    inside = (cell >= 0).all(axis=1) & (cell[:, 0] < camera.width) & (cell[:, 1] < camera.height) & (z > 0)
    flat = np.where(inside, cell[:, 1] * camera.width + cell[:, 0], 0)
    buffer = np.full(camera.width * camera.height, np.inf)
    np.minimum.at(buffer, flat[inside], z[inside])
    nearest = buffer.reshape(camera.height, camera.width)
    front = minimum_filter(nearest, 3)
    return Seen(pixels, z, inside & (z < front.ravel()[flat] + _BEHIND * size), flat, nearest)


def recoloured(
    surface: Surface, camera: Camera, picture: UInt8[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"]
) -> Surface:
    """The surface in the colours of a picture of it at rest, where that shows it.

    The asset's colours come from other views and lights; against them flow is off by up to 0.4 px on average.
    """
    from scipy.ndimage import distance_transform_edt

    seen = see(camera, surface.points, surface.size)
    sight = surface.points - camera.position
    facing = np.abs((surface.normals * sight).sum(axis=1)) / np.maximum(np.linalg.norm(sight, axis=1), 1e-12)
    inner = sample(distance_transform_edt(mask).astype(np.float32)[..., None], seen.pixels)[:, 0]
    share = np.clip((facing - _GRAZING) / (_FACING - _GRAZING), 0, 1) * np.clip(inner - 0.5, 0, 1) * seen.visible
    shown = sample(picture.astype(np.float32), seen.pixels).astype(np.float64)
    return replace(surface, colours=surface.colours + share[:, None] * (shown - surface.colours))


def draw(surface: Surface, camera: Camera, seen: Seen) -> tuple[UInt8[np.ndarray, "h w 3"], Bool[np.ndarray, "h w"]]:
    """The visible points' colours, one a pixel, gaps closed, over grey; and the covered pixels."""
    cv2: Any = require("cv2", extra="captures")
    rows = np.flatnonzero(seen.visible)
    count = camera.width * camera.height
    hits = np.bincount(seen.flat[rows], minlength=count)
    image = np.full((count, 3), float(_GREY))
    full = hits > 0
    for channel in range(3):
        total = np.bincount(seen.flat[rows], surface.colours[rows, channel], count)
        image[full, channel] = total[full] / hits[full]
    shape = (camera.height, camera.width)
    covered = full.reshape(shape).astype(np.uint8)
    closed = cv2.morphologyEx(covered, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
    picture = image.reshape(*shape, 3).astype(np.uint8)
    gaps = (closed > 0) & (covered == 0)
    if gaps.any():
        picture = cv2.inpaint(picture, gaps.astype(np.uint8), 2, cv2.INPAINT_TELEA)
    return picture, closed > 0
