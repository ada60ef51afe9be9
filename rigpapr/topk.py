"""The K points nearest to each ray, exactly.

A ray's neighbours are the points with the least distance |(p - o) x d| from its line, among those in front of the
camera (z >= ``camera.near``); ties go to the lower row. On the CPU the points are binned by projected position, and
the cells around a pixel are read ring by ring until the K-th distance is smaller than any that an unread point can
have: O(rays x candidates) instead of a [rays, N] table. On CUDA blocks of that table are searched in float32 and
checked by an error bound.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.threads import numba_threads

_MEAN_PER_CELL = 14.0  # points a cell: with fewer the rings of rays beside the object cross many empty cells
_CLOSE_LIMIT = 64  # so many points may be tried for every ray, so that a floater before the lens costs no rings
_RAYS_A_TASK = 4096
_SPARE = 16  # candidates beyond K that the float32 search keeps for the exact one


def nearest_points(
    points: Float32[np.ndarray, "n 3"], camera: Camera, pixels: Float[np.ndarray, "r 2"], k: int
) -> tuple[Int32[np.ndarray, "r k"], Float32[np.ndarray, "r k"]]:
    """Rows of the ``k`` points nearest to the rays through ``pixels`` (x, y; centres at .5), nearest first.

    ``points`` and the camera share their units. Where fewer than ``k`` points lie in front of the camera the rest is
    row -1 at distance infinity. Memory is a few times that of points and result; all of Numba's threads are used.

    Raises InputError where ``k`` is below 1.
    """
    from rigpapr._topk import search, to_camera

    if k < 1:
        raise InputError(f"nearest_points: k is {k}; it must be at least 1.")
    rows = np.empty(len(points), np.int32)
    local = np.empty((len(points), 3))
    near = max(camera.near, 1e-12)
    count = to_camera(np.ascontiguousarray(points), camera.T_camera_world, near, local, rows)
    local, rows = local[:count], rows[:count]
    out = np.full((len(pixels), k), -1, np.int32)
    distances = np.full((len(pixels), k), np.inf, np.float32)
    if not count or not len(pixels):
        return out, distances
    lens = np.array([camera.fx, camera.fy, camera.cx, camera.cy])
    common = (np.ascontiguousarray(pixels, np.float64), lens, *_bins(local, rows, camera), k, out, distances)
    tasks = list(itertools.pairwise([*range(0, len(pixels), _RAYS_A_TASK), len(pixels)]))
    threads = min(numba_threads(), len(tasks))
    if threads == 1:
        for first, last in tasks:
            search(first, last, *common)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda task: search(*task, *common), tasks))
    return out, distances


def search(
    points: Float[Tensor, "n 3"], camera: Camera, pixels: Float[np.ndarray, "r 2"], k: int
) -> Int32[np.ndarray, "r k"]:
    """Rows of the k nearest on the device where ``points`` lie, without gradient; -1 where there are too few."""
    with torch.no_grad():
        if points.device.type == "cpu":
            return nearest_points(points.detach().float().numpy(), camera, pixels, k)[0]
        centre, directions = camera_rays(camera, pixels)

        def place(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, device=points.device, dtype=torch.float64).expand(len(pixels), 3)

        forward = place(camera.T_camera_world[2, :3])
        rows, _ = nearest_points_torch(
            points.detach(), place(centre), place(directions), k, forward=forward, near=camera.near
        )
        return rows.to("cpu", torch.int32).numpy()


def camera_rays(
    camera: Camera, pixels: Float[np.ndarray, "r 2"]
) -> tuple[Float[np.ndarray, " 3"], Float[np.ndarray, "r 3"]]:
    """The camera's centre and unit directions (world) through ``pixels`` (x, y; centres at .5)."""
    local = np.empty((len(pixels), 3))
    local[:, 0] = (pixels[:, 0] - camera.cx) / camera.fx
    local[:, 1] = (pixels[:, 1] - camera.cy) / camera.fy
    local[:, 2] = 1.0
    local /= np.linalg.norm(local, axis=1, keepdims=True)
    return camera.position, local @ camera.T_camera_world[:3, :3]


def _bins(local: np.ndarray, rows: np.ndarray, camera: Camera) -> tuple[np.ndarray, ...]:
    """``grid, shape, starts, sorted_points, close`` of :func:`rigpapr._topk.search`."""
    from rigpapr._topk import fill_cells

    close = local[:, 2] < 0.5 * np.median(local[:, 2])
    if close.sum() > _CLOSE_LIMIT or close.all():
        close[:] = False
    packed = np.column_stack([local, rows.astype(np.float64)])
    apart, packed = packed[close], packed[~close]
    x = camera.fx * packed[:, 0] / packed[:, 2] + camera.cx
    y = camera.fy * packed[:, 1] / packed[:, 2] + camera.cy
    # Points far outside the picture fall into the border cells, which reach to infinity.
    low = np.array([max(x.min(), -camera.width), max(y.min(), -camera.height)])
    high = np.array([min(x.max(), 2.0 * camera.width), min(y.max(), 2.0 * camera.height)])
    extent = np.maximum(high - low, 1e-3)
    cell = max(float(np.sqrt(extent.prod() * _MEAN_PER_CELL / len(x))), float(extent.max()) / 4096)
    columns, lines = (int(n) for n in np.ceil(extent / cell).clip(1))
    starts, order = np.empty(columns * lines + 1, np.int64), np.empty(len(x), np.int64)
    fill_cells(x, y, low[0], low[1], cell, columns, lines, order, starts)
    grid = np.array([low[0], low[1], cell, packed[:, 2].min()])
    return grid, np.array([columns, lines]), starts, packed[order], apart


def nearest_points_torch(
    points: Float[Tensor, "n 3"],
    origins: Float[Tensor, "r 3"],
    directions: Float[Tensor, "r 3"],
    k: int,
    *,
    forward: Float[Tensor, "r 3"] | None = None,
    near: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The same on any torch device: (R, k) rows (int64, -1 where none is left) and distances, nearest first.

    ``directions`` are unit vectors; ``forward``, each ray's optical axis, decides with ``near`` what lies in front of
    the camera (default: the ray itself). A float32 product |v|^2 - (v.d)^2 picks ``k`` + 16 candidates, |v x d|^2 in
    float64 orders them; rays on which the product's rounding could have hidden a neighbour are searched once more in
    float64 over all points. Memory: 64 MB a block, whatever the number of rays.
    """
    if k < 1:
        raise InputError(f"nearest_points_torch: k is {k}; it must be at least 1.")
    forward = directions if forward is None else forward
    rows = torch.full((len(directions), k), -1, dtype=torch.int64, device=points.device)
    distances = torch.full((len(directions), k), torch.inf, dtype=points.dtype, device=points.device)
    if not len(points):
        return rows, distances
    block = max(1, (1 << 22) // len(points))
    for first in range(0, len(directions), block):
        part = slice(first, first + block)
        rays = (origins[part].double(), directions[part].double(), forward[part].double())
        index, squared = _block(points.double(), rays, k, near)
        rows[part, : index.shape[1]] = index
        distances[part, : index.shape[1]] = squared.sqrt().to(points.dtype)
    return rows, distances


def _block(points: Tensor, rays: tuple[Tensor, Tensor, Tensor], k: int, near: float) -> tuple[Tensor, Tensor]:
    origins, directions, forward = rays
    count = min(len(points), k + _SPARE)
    # The product is taken about the cloud's centre, so that its rounding goes by the cloud's size, not the distance.
    centre = points.mean(dim=0)
    p, o = (points - centre).float(), origins - centre
    o = (o - (o * directions).sum(1, keepdim=True) * directions).float()  # the ray's point nearest to the centre
    d = directions.float()
    rough = (p * p).sum(1) - 2 * o @ p.T + (o * o).sum(1, keepdim=True) - (d @ p.T) ** 2
    depth = forward.float() @ p.T + ((centre - origins) * forward).sum(1, keepdim=True).float()
    rough.masked_fill_(depth < near - 1e-5 * depth.abs().amax(1, keepdim=True), torch.inf)
    best, index = rough.topk(count, dim=1, largest=False)
    chosen, squared = _exact(points, index, rays, k, near)
    if count < len(points):
        size = (p * p).sum(1).max() + (o * o).sum(1).max()
        certain = squared[:, -1] + 16 * torch.finfo(torch.float32).eps * size < best[:, -1]
        again = torch.nonzero(~certain)[:, 0]
        for few in again.split(max(1, (1 << 20) // len(points))):
            every = torch.arange(len(points), device=points.device).expand(len(few), -1)
            chosen[few], squared[few] = _exact(points, every, tuple(ray[few] for ray in rays), k, near)
    return chosen, squared


def _exact(points: Tensor, index: Tensor, rays: tuple[Tensor, ...], k: int, near: float) -> tuple[Tensor, Tensor]:
    """The k nearest among candidates ``index`` (R, c): rows and squared distances; ties go to the lower row."""
    origins, directions, forward = rays
    index = index.sort(dim=1).values
    v = points[index] - origins[:, None]
    squared = torch.linalg.cross(v, directions[:, None].expand_as(v)).square().sum(-1)
    squared = squared.masked_fill((v * forward[:, None]).sum(-1) < near, torch.inf)
    squared, order = squared.sort(dim=1, stable=True)
    squared, order = squared[:, :k], order[:, :k]
    rows = index.gather(1, order)
    return rows.masked_fill(torch.isinf(squared), -1), squared
