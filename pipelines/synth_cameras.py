"""The cameras of ``splatanim synth``: all around for training, one fixed for the clip, a ring for held-out views.

Directions, distances and lens are those of the project's multi-view data: training views on a Fibonacci spiral over the
heights sin(e) in [-0.25, 0.9], azimuths the golden angle apart; the clip's camera at the front left, a little above;
the ring half a step beside it. A subject in the unit sphere takes the same share of the picture at every field of view.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from splatanim.render.camera import Camera, focal_from_fov, frame_object, look_at, view_direction

FOV = math.degrees(0.6911112)  # NeRF-synthetic's, 39.6 degrees
_DISTANCE = 3.1  # at that field of view
_GOLDEN_ANGLE = 180.0 * (3.0 - math.sqrt(5.0))
_LOWEST, _HEIGHTS = -0.25, 1.15
_CLIP_SIDE = (0.75, 0.3, 0.59)  # side, up, front
_RING = (0.94, 0.34)  # level, up: not quite a unit vector, as in the data
_TURN = 0.6180339887  # of a circle, by which each further seed turns the spiral
Up = tuple[float, float, float]


def training_camera(
    k: int,
    count: int,
    up: Up,
    *,
    size: int,
    fov: float,
    seed: int = 0,
    turn: float = 0.0,
    centre: np.ndarray | None = None,
    reach: float = 1.0,
) -> Camera:
    """Number ``k`` of ``count`` cameras around ``centre``, ``turn`` degrees further than the spiral has it.

    ``reach`` is the radius of what they must see.
    """
    target = np.zeros(3) if centre is None else np.asarray(centre, np.float64)
    first = 360.0 * math.fmod(_TURN * seed, 1.0)
    elevation = math.degrees(math.asin(_LOWEST + _HEIGHTS * (k + 0.5) / count))
    azimuth = 90.0 - first - k * _GOLDEN_ANGLE - turn
    return _aimed(target, up, azimuth, elevation, reach * _distance(fov), size, fov)


def clip_camera(up: Up, *, size: int, fov: float, points: Float64[np.ndarray, "n 3"] | None = None) -> Camera:
    """The fixed camera of the clip: around the origin, or as near as all ``points`` fit."""
    return _placed(up, _clip_azimuth(), _elevation(_CLIP_SIDE[1], math.hypot(*_CLIP_SIDE[::2])), 1.0, size, fov, points)


def ring_cameras(
    count: int, up: Up, *, size: int, fov: float, points: Float64[np.ndarray, "n 3"] | None = None
) -> dict[str, Camera]:
    """``ring0`` and so on, evenly around the subject, the clip's camera between two of them."""
    level, height = _RING
    stretch = math.hypot(level, height)
    return {
        f"ring{k}": _placed(
            up,
            _clip_azimuth() - 180.0 / count - 360.0 * k / count,
            _elevation(height, level),
            stretch,
            size,
            fov,
            points,
        )
        for k in range(count)
    }


def _clip_azimuth() -> float:
    return math.degrees(math.atan2(_CLIP_SIDE[0], _CLIP_SIDE[2]))


def _elevation(height: float, level: float) -> float:
    return math.degrees(math.atan2(height, level))


def _distance(fov: float) -> float:
    return _DISTANCE * math.sin(math.radians(FOV) / 2) / math.sin(math.radians(fov) / 2)


def _placed(
    up: Up, azimuth: float, elevation: float, stretch: float, size: int, fov: float, points: np.ndarray | None
) -> Camera:
    if points is None:
        return _aimed(np.zeros(3), up, azimuth, elevation, stretch * _distance(fov), size, fov)
    return frame_object(
        points,
        up,
        width=size,
        height=size,
        fov_y_degrees=fov,
        azimuth_degrees=azimuth,
        elevation_degrees=elevation,
        margin=0.08,
    )


def _aimed(
    target: np.ndarray, up: Up, azimuth: float, elevation: float, distance: float, size: int, fov: float
) -> Camera:
    eye = target - distance * view_direction(up, azimuth, elevation)
    return look_at(eye, target, up, width=size, height=size, focal=focal_from_fov(fov, size))
