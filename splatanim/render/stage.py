"""A stage for the animated object: the planes it touches, with soft shadows, composited behind (or before) the splats.

The planes are drawn in image space by intersecting every pixel's ray, so exported splats stay the object alone. The
shadow is that of a large light along the plane's normal: splats are summed on a grid in the plane, those near it dark
and sharp, those high above faint and blurred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from splatanim.data import Splats
from splatanim.render.camera import Camera
from splatanim.render.rasterize import Rendering

_CELLS = 160  # of a shadow map, along each side
_REACH = 2.2  # half the side of a shadow map, in units of the stage's size
_TINT = 0.07  # how much darker than the background a plane is
_SHADOW = 0.6  # how much darker still in full shadow


@dataclass(frozen=True)
class StagePlane:
    """A plane in the camera's world: ``frame`` rows tangent, tangent, normal; infinite extents fade out instead.

    ``glass``: drawn faintly and from both sides, without shadow (a pressing plate).
    """

    point: Float64[np.ndarray, " 3"]
    frame: Float64[np.ndarray, "3 3"]
    half_extents: tuple[float, float]
    glass: bool = False


def draw_stage(
    rendering: Rendering,
    camera: Camera,
    planes: Sequence[StagePlane],
    splats: Splats,
    size: float,
    background: tuple[float, float, float],
) -> Float32[np.ndarray, "h w 3"]:
    """The final image: ``rendering`` (over black, with depth) together with the planes over a background.

    ``size`` is the object's, in world units; ``splats`` cast the shadows.
    """
    from splatanim.render._stage import compose_planes

    assert rendering.depth is not None
    count = len(planes)
    shadows = np.zeros((count, _CELLS, _CELLS), np.float32)
    for k, plane in enumerate(planes):
        if not plane.glass:
            shadows[k] = shadow_map(splats, plane, size)
    out = np.empty_like(rendering.rgb)
    compose_planes(
        np.ascontiguousarray(rendering.rgb),
        np.ascontiguousarray(rendering.alpha),
        np.ascontiguousarray(rendering.depth),
        np.ascontiguousarray(camera.T_camera_world[:3, :3].T),
        camera.position,
        np.array([camera.fx, camera.fy, camera.cx, camera.cy]),
        np.array([plane.point for plane in planes], float).reshape(count, 3),
        np.array([plane.frame for plane in planes], float).reshape(count, 3, 3),
        np.array([plane.half_extents for plane in planes], float).reshape(count, 2),
        np.array([plane.glass for plane in planes], bool),
        shadows,
        np.array([size, _REACH * size, _TINT, _SHADOW]),
        np.asarray(background, np.float64),
        out,
    )
    return out


def shadow_map(splats: Splats, plane: StagePlane, size: float) -> Float32[np.ndarray, "c c"]:
    """Darkness in [0, 1] on a grid in the plane, rows along the second tangent."""
    from scipy.ndimage import gaussian_filter

    local = (splats.means - plane.point.astype(np.float32)) @ plane.frame.T.astype(np.float32)
    height = local[:, 2] / size
    area = np.exp(2.0 * np.sort(splats.log_scales, axis=1)[:, 1:].mean(axis=1)) * (2.0 * np.pi) * splats.opacities
    cell = 2.0 * _REACH * size / _CELLS
    column, row = (np.floor((local[:, a] / (_REACH * size) + 1.0) * (_CELLS / 2)).astype(np.int64) for a in range(2))
    inside = (column >= 0) & (column < _CELLS) & (row >= 0) & (row < _CELLS) & (height > -0.05)
    bins = (row * _CELLS + column)[inside]
    dark = np.zeros((_CELLS, _CELLS))
    for reach, blur, strength in ((0.06, 1.0, 0.7), (0.35, 3.0, 0.5), (1.2, 8.0, 0.3)):
        weight = area[inside] * np.exp(-0.5 * (np.maximum(height[inside], 0.0) / reach) ** 2)
        amount = np.bincount(bins, weight, _CELLS * _CELLS).reshape(_CELLS, _CELLS) / cell**2
        layer = strength * gaussian_filter(1.0 - np.exp(-amount), blur)
        dark = dark + layer - dark * layer
    return dark.astype(np.float32)
