"""Rays and pictures of a PAPR cloud, at rest or with its points moved, through the same frozen network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from rigpapr.cloud import PaprCloud
from rigpapr.topk import camera_rays, search
from splatanim.errors import InputError
from splatanim.render.camera import Camera

_CHUNK = 8192  # rays at a time: some 60 MB of intermediate values
_LARGEST_BAND = 512  # [px]: a wider reach takes every pixel


@dataclass(frozen=True)
class Rays:
    """What rays see. ``rgb`` over the background, ``alpha`` = 1 - the background's weight, ``depth`` the weighted mean
    distance along the ray in world units (0 where alpha is 0), ``weights`` (R, K + 1), the background's last."""

    rgb: Float[Tensor, "r 3"]
    alpha: Float[Tensor, " r"]
    depth: Float[Tensor, " r"]
    weights: Float[Tensor, "r k"]


@dataclass(frozen=True)
class PaprRendering:
    """A picture. ``depth`` is the expected camera-space z in world units, 0 where nothing is seen.

    ``indices`` (h, w, K) are the rows of the K points nearest to each pixel's ray, nearest first, -1 where a pixel is
    beyond the cloud's reach; ``weights`` their attention, what lacks to 1 being the background's.
    """

    rgb: Float32[np.ndarray, "h w 3"]
    alpha: Float32[np.ndarray, "h w"]
    depth: Float32[np.ndarray, "h w"]
    indices: Int32[np.ndarray, "h w k"]
    weights: Float32[np.ndarray, "h w k"]


def render_rays(
    cloud: PaprCloud,
    camera: Camera,
    pixels: Float[np.ndarray, "r 2"],
    *,
    positions: Float[Tensor, "n 3"] | None = None,
    rotations: Float[Tensor, "n 3 3"] | None = None,
    background: tuple[float, float, float] = (1.0, 1.0, 1.0),
    rows: np.ndarray | None = None,
) -> Rays:
    """Render rays differentiably: gradients reach positions, features, influence and the head.

    ``positions`` (N, 3, world) replace the cloud's own; ``rotations`` (N, 3, 3) say how the points' surroundings have
    turned since rest, so that what a point looks like turns along. The neighbours are searched anew at every call,
    without gradient, unless ``rows`` (R, K) gives them.
    """
    points = cloud.positions if positions is None else cloud.to_cloud(positions)
    if rows is None:
        rows = neighbours(cloud, camera, pixels, points)
    centre, directions = camera_rays(camera, pixels)
    device, dtype = points.device, points.dtype
    origin = cloud.to_cloud(torch.from_numpy(centre).to(device)).to(dtype)
    towards = torch.from_numpy(directions).to(device, dtype)
    index = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
    relation, attention = cloud.attend(origin.expand(len(pixels), 3), towards, index, points, rotations)
    seen = attention.weights[:, :-1]
    alpha = seen.sum(1)
    behind = torch.tensor(background, device=device, dtype=dtype)
    rgb = (seen[..., None] * attention.colours).sum(1) + attention.weights[:, -1:] * behind
    depth = (seen * relation.along).sum(1) / alpha.clamp(min=1e-8) / cloud.scale.to(dtype)
    return Rays(rgb, alpha, depth, attention.weights)


def neighbours(
    cloud: PaprCloud, camera: Camera, pixels: Float[np.ndarray, "r 2"], points: Float[Tensor, "n 3"]
) -> Int32[np.ndarray, "r k"]:
    """The rows of the K points (cloud units) nearest to each pixel's ray; the device of ``points`` does the search."""
    return search(points, camera_in_cloud(cloud, camera), pixels, cloud.config.neighbours)


def camera_in_cloud(cloud: PaprCloud, camera: Camera) -> Camera:
    """The same camera in cloud units."""
    scale, centre = float(cloud.scale), cloud.centre.cpu().numpy()
    pose = camera.T_camera_world.copy()
    pose[:3, 3] = scale * (pose[:3, 3] + pose[:3, :3] @ centre)
    return Camera(
        pose, camera.fx, camera.fy, camera.cx, camera.cy, camera.width, camera.height, max(camera.near * scale, 1e-9)
    )


@torch.no_grad()
def render(
    cloud: PaprCloud,
    camera: Camera,
    *,
    positions: Float[Tensor, "n 3"] | None = None,
    rotations: Float[Tensor, "n 3 3"] | None = None,
    background: tuple[float, float, float] = (1.0, 1.0, 1.0),
    chunk: int = _CHUNK,
) -> PaprRendering:
    """Render a picture without gradients, ``chunk`` rays at a time; the result does not depend on ``chunk``.

    ``positions`` (N, 3) in world units move the points, ``rotations`` (N, 3, 3) turn what they look like. Raises
    InputError where the positions are not one row a point, or not finite.
    """
    if positions is not None:
        if positions.shape != cloud.positions.shape:
            raise InputError(f"render: positions are {tuple(positions.shape)}; the cloud has {len(cloud)} points.")
        if not bool(torch.isfinite(positions).all()):
            raise InputError("render: a moved point is NaN or infinite.")
    points = cloud.positions if positions is None else cloud.to_cloud(positions)
    height, width, k = camera.height, camera.width, cloud.config.neighbours
    size = height * width
    rgb = np.broadcast_to(np.asarray(background, np.float32), (size, 3)).copy()
    alpha, depth = np.zeros(size, np.float32), np.zeros(size, np.float32)
    indices, weights = np.full((size, k), -1, np.int32), np.zeros((size, k), np.float32)
    flat = np.flatnonzero(within_reach(cloud, camera, points))
    pixels = np.stack([flat % width + 0.5, flat // width + 0.5], axis=1)
    indices[flat] = neighbours(cloud, camera, pixels, points)
    forward = camera.T_camera_world[2, :3]
    for first in range(0, len(flat), chunk):
        part = slice(first, first + chunk)
        rows = indices[flat[part]]
        rays = render_rays(
            cloud, camera, pixels[part], positions=positions, rotations=rotations, background=background, rows=rows
        )
        rgb[flat[part]] = rays.rgb.cpu().numpy()
        alpha[flat[part]] = rays.alpha.cpu().numpy()
        weights[flat[part]] = rays.weights[:, :-1].cpu().numpy()
        depth[flat[part]] = rays.depth.cpu().numpy() * (camera_rays(camera, pixels[part])[1] @ forward)
    shape = (height, width)
    return PaprRendering(
        rgb.reshape(*shape, 3),
        alpha.reshape(shape),
        depth.reshape(shape),
        indices.reshape(*shape, k),
        weights.reshape(*shape, k),
    )


def within_reach(cloud: PaprCloud, camera: Camera, points: Float[Tensor, "n 3"]) -> np.ndarray:
    """(h, w) bool: pixels whose ray may pass a point (cloud units) within the cloud's reach; the others see nothing."""
    from scipy.ndimage import distance_transform_cdt

    everything = np.ones((camera.height, camera.width), bool)
    reach = float(cloud.reach)
    if not np.isfinite(reach):
        return everything
    pose = camera_in_cloud(cloud, camera).T_camera_world
    local = points.detach().cpu().numpy().astype(np.float64) @ pose[:3, :3].T + pose[:3, 3]
    z = local[:, 2]
    if not (z > 0).any():
        return ~everything
    # A ray that passes a point at distance r meets the point's depth within r / cos^2 of it.
    corner = (max(camera.cx, camera.width - camera.cx), max(camera.cy, camera.height - camera.cy))
    slant = 1 + (corner[0] / camera.fx) ** 2 + (corner[1] / camera.fy) ** 2
    band = reach * slant * max(camera.fx, camera.fy) / z[z > 0].min()
    if band > _LARGEST_BAND:
        return everything
    band = int(np.ceil(band)) + 1
    local = local[z > 0]
    x = np.floor(camera.fx * local[:, 0] / local[:, 2] + camera.cx) + band
    y = np.floor(camera.fy * local[:, 1] / local[:, 2] + camera.cy) + band
    inside = (x >= 0) & (x < camera.width + 2 * band) & (y >= 0) & (y < camera.height + 2 * band)
    empty = np.ones((camera.height + 2 * band, camera.width + 2 * band), bool)
    empty[y[inside].astype(int), x[inside].astype(int)] = False
    near = distance_transform_cdt(empty, "chessboard") <= band if not empty.all() else ~empty
    return near[band : band + camera.height, band : band + camera.width]
