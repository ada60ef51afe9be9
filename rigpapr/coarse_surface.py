"""The surface of a PAPR cloud as dense points, by looking at it from all around.

PAPR's points lie a little below the surface and say nothing of normals; its pictures have both. Depth pictures from
cameras all around are lifted back, thinned evenly, and carry colours and normals. Depth is a mean over points, so what
is lifted lies below the surface as well, by half a per cent of the object's size: a pose would make up for the smaller
outline by coming nearer. The pictures' outlines are sharp, so the surface is moved out towards them
(:func:`outward`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64

from rigpapr.binding import FitRig
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_view import Surface, lift, project
from rigpapr.renderer import PaprRendering, render
from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at

_HALF = 0.5
_GRAZING = 0.2  # cosine to the line of sight below which a pixel is not taken
_ALIKE = 12  # neighbours over which normals are averaged
_PATCH = 30  # neighbours over which the way out is averaged


def surface_of_cloud(
    cloud: PaprCloud, rig: FitRig, *, count: int = 40_000, views: int = 24, pixels: int = 384, seed: int = 0
) -> Surface:
    """``count`` points of what ``views`` cameras see, skinned as the rig's mesh.

    Raises InputError where nothing opaque is seen: the asset was not trained, or not to the end.
    """
    cameras = cameras_around(cloud, views, pixels)
    pictures = [render(cloud, camera) for camera in cameras]
    parts = [_lifted(picture, camera) for picture, camera in zip(pictures, cameras, strict=True)]
    points, normals, colours = (np.concatenate(values) for values in zip(*parts, strict=True))
    if len(points) < 1000:
        raise InputError("The asset's cloud shows no opaque surface. Train it to the end with splatanim reconstruct.")
    rows = _evenly(points, count, np.random.default_rng(seed))
    masks = [picture.alpha > _HALF for picture in pictures]
    places, facing = outward(points[rows], normals[rows], masks, cameras)
    return Surface(places, facing, 255 * colours[rows], rig.skin(places))


def outward(
    points: Float64[np.ndarray, "n 3"],
    normals: Float64[np.ndarray, "n 3"],
    masks: list[Bool[np.ndarray, "h w"]],
    cameras: list[Camera],
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3"]]:
    """Points moved out along smoothed normals to the surface that the outlines show; and those normals.

    A point's distance to the visual hull is the least, over the views, of its distance to the outline; where the
    surface is convex that is how far below it the point lies. Hollows have no such view: distances are cut at twice
    their median and averaged over neighbours.
    """
    from scipy.ndimage import distance_transform_edt
    from scipy.spatial import cKDTree

    tree = cKDTree(points)
    near = tree.query(points, _ALIKE + 1)[1]
    alike = (normals[near] * normals[:, None]).sum(axis=2, keepdims=True) > 0  # not the far side of something thin
    smooth = (normals[near] * alike).sum(axis=1)
    smooth /= np.maximum(np.linalg.norm(smooth, axis=1, keepdims=True), 1e-12)
    below = np.full(len(points), np.inf)
    for mask, camera in zip(masks, cameras, strict=True):
        pixels, z = project(camera, points)
        column, row = np.floor(pixels).astype(int).clip(0, [camera.width - 1, camera.height - 1]).T
        edge = np.maximum(distance_transform_edt(mask) - _HALF, 0.0)[row, column]
        below = np.minimum(below, edge * z / camera.fx)
    below = np.minimum(below, 2 * np.median(below))
    below = below[tree.query(points, _PATCH + 1)[1]].mean(axis=1)
    return points + below[:, None] * smooth, smooth


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


def _lifted(picture: PaprRendering, camera: Camera) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, normals towards the camera, and colours of the covered pixels up to the outline: what is but a few
    pixels wide is all outline."""
    y, x = np.mgrid[: camera.height, : camera.width] + 0.5
    pixels = np.stack([x.ravel(), y.ravel()], axis=1)
    points = lift(camera, pixels, picture.depth.ravel().astype(np.float64)).reshape(camera.height, camera.width, 3)
    solid = picture.alpha > _HALF
    (right, has_right), (down, has_down) = (_slope(points, solid, axis) for axis in (1, 0))
    along = np.cross(right, down)
    normals = along / np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-12)
    sight = points - camera.position
    sight /= np.maximum(np.linalg.norm(sight, axis=-1, keepdims=True), 1e-12)
    facing = -(normals * sight).sum(axis=-1)
    normals = normals * np.sign(facing)[..., None]
    taken = solid & has_right & has_down & (np.abs(facing) > _GRAZING)
    colours = picture.rgb - (1 - picture.alpha[..., None])  # without the white behind
    colours = colours / np.maximum(picture.alpha[..., None], _HALF)
    return points[taken], normals[taken], colours[taken].astype(np.float64).clip(0, 1)


def _slope(points: np.ndarray, solid: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Differences along an axis, to the next covered pixel or else from the one before; and where there is one."""
    ahead = np.roll(points, -1, axis) - points
    has_next, has_last = np.roll(solid, -1, axis), np.roll(solid, 1, axis)
    slope = np.where(has_next[..., None], ahead, np.roll(ahead, 1, axis))
    return slope, has_next | has_last


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
