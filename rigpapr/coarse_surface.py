"""The surface of a PAPR cloud as dense points, by looking at it from all around.

PAPR's points lie a little below the surface and say nothing of normals; its pictures have both. Depth pictures from
cameras all around are lifted back, thinned evenly, and carry colours and normals.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from rigpapr.binding import FitRig
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_view import Surface, lift
from rigpapr.renderer import render
from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at

_OPAQUE = 0.9
_GRAZING = 0.25  # cosine to the line of sight below which a pixel is not taken


def surface_of_cloud(
    cloud: PaprCloud, rig: FitRig, *, count: int = 40_000, views: int = 24, pixels: int = 256, seed: int = 0
) -> Surface:
    """``count`` points of what ``views`` cameras see, with the rig's weights.

    Raises InputError where nothing opaque is seen: the asset was not trained, or not to the end.
    """
    parts = [_lifted(cloud, camera) for camera in cameras_around(cloud, views, pixels)]
    points, normals, colours = (np.concatenate(values) for values in zip(*parts, strict=True))
    if len(points) < 1000:
        raise InputError("The asset's cloud shows no opaque surface. Train it to the end with splatanim reconstruct.")
    rows = _evenly(points, count, np.random.default_rng(seed))
    weights = rig.weights(points[rows])
    return Surface(points[rows], normals[rows], 255 * colours[rows], weights)


def cameras_around(cloud: PaprCloud, count: int, pixels: int) -> list[Camera]:
    """Cameras on a sphere (a golden spiral) that have the whole cloud in the picture."""
    points = cloud.world_positions.detach().cpu().numpy().astype(np.float64)
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    radius = float(np.linalg.norm(points - centre, axis=1).max())
    cameras = []
    for k in range(count):
        height = 1 - (2 * k + 1) / count
        angle = k * np.pi * (3 - 5**0.5)
        side = (1 - height * height) ** 0.5
        direction = np.array([side * np.cos(angle), height, side * np.sin(angle)])
        up = (0.0, 1.0, 0.0) if abs(height) < 0.95 else (0.0, 0.0, 1.0)
        eye = centre + 3.2 * radius * direction
        cameras.append(look_at(eye, centre, up, width=pixels, height=pixels, fov_y_degrees=38.0, near=0.05 * radius))
    return cameras


def _lifted(cloud: PaprCloud, camera: Camera) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, normals towards the camera, and colours of the opaque pixels off the edges."""
    picture = render(cloud, camera)
    y, x = np.mgrid[: camera.height, : camera.width] + 0.5
    pixels = np.stack([x.ravel(), y.ravel()], axis=1)
    points = lift(camera, pixels, picture.depth.ravel().astype(np.float64)).reshape(camera.height, camera.width, 3)
    along = np.cross(np.gradient(points, axis=1), np.gradient(points, axis=0))
    normals = along / np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-12)
    sight = points - camera.position
    sight /= np.maximum(np.linalg.norm(sight, axis=-1, keepdims=True), 1e-12)
    facing = -(normals * sight).sum(axis=-1)
    normals = normals * np.sign(facing)[..., None]
    solid = picture.alpha > _OPAQUE
    inner = solid.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            inner &= np.roll(solid, step, axis)
    taken = inner & (np.abs(facing) > _GRAZING)
    return points[taken], normals[taken], picture.rgb[taken].astype(np.float64).clip(0, 1)


def _evenly(points: Float64[np.ndarray, "n 3"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of at most ``count`` points, one a cell of the finest grid that has no more filled cells than that."""
    order = rng.permutation(len(points))
    low, high = 1, 2048
    size = float(np.ptp(points, axis=0).max())
    best = order[:count]
    while high - low > 1:
        middle = (low + high) // 2
        cells = np.floor((points[order] - points.min(axis=0)) / size * middle).astype(np.int64)
        _, first = np.unique(cells @ np.array([1, 4096, 4096**2]), return_index=True)
        if len(first) <= count:
            low, best = middle, order[first]
        else:
            high = middle
    return np.sort(best)
