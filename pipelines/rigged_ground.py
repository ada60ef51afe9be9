"""Where a rig-driven film takes place: the room that the posed splats sweep, and the floor under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

if TYPE_CHECKING:
    from pipelines.rigged import Actor


def swept_boxes(
    actor: Actor, transforms: Float64[np.ndarray, "t j 4 4"]
) -> tuple[Float64[np.ndarray, "t 3"], Float64[np.ndarray, "t 3"]]:
    """The bounding box of the posed splats in every frame (coordinates of ``Splats.means``), from some
    thousands of them."""
    from splatanim.rig.skinning import blend_points

    rows = np.arange(0, len(actor.rigged.splats), max(1, len(actor.rigged.splats) // 4000))
    points, skin = actor.rigged.splats.means[rows].astype(np.float64), actor.rigged.skin.select(rows)
    posed = [blend_points(points, skin, actor.rigged.local(t), actor.rigged.method) for t in transforms]
    low, high = np.stack([p.min(axis=0) for p in posed]), np.stack([p.max(axis=0) for p in posed])
    return low, high


def ground_plane(up: tuple[float, float, float], low: np.ndarray, high: np.ndarray):
    """An infinite floor at the height that the lowest points stay above in nine frames of ten."""
    from splatanim.render.camera import box_corners
    from splatanim.render.stage import StagePlane

    normal = np.asarray(up, np.float64)
    corners = box_corners(low, high)
    lowest = (corners.reshape(len(low), 8, 3) @ normal).min(axis=1)
    height = float(np.quantile(lowest, 0.1))
    middle = 0.5 * (corners.min(axis=0) + corners.max(axis=0))
    first = np.eye(3)[int(np.argmin(np.abs(normal)))]
    frame = np.stack([first, np.cross(normal, first), normal])
    return StagePlane(middle - (middle @ normal - height) * normal, frame, (np.inf, np.inf))
