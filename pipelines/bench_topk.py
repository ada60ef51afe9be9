"""The top-K search of :mod:`rigpapr.topk` beside the brute-force tensor forms, in one run on one thread."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatanim.render.camera import Camera

RAYS_SIDE, POINTS = 160, 30_000
_CHUNK = 512  # rays of the tensor forms at a time: 61 MB a [rays, points] table
_SHARE = 8  # the tensor forms do every 8th ray, their times are scaled: their cost is linear in rays
_CHECKED = 500  # rays against float64


def bench_topk(repeats: int = 3) -> tuple[list[dict[str, float]], str]:
    """For K = 8, 16 and 20: milliseconds, ratios, memory, and the share of rays equal to a float64 brute force.

    A quarter of the rays hit the cloud, an ellipsoid's surface, as in a picture of a subject. ``product`` is
    |v|^2 - (v.d)^2 by matrix products in float32, ``table`` the official implementation's [rays, points, 3] tensor,
    both in chunks of rays, timed on every 8th ray and scaled. All on one thread, each the best of ``repeats``.
    """
    from rigpapr.topk import nearest_points

    case = _case()
    with _one_thread():
        nearest_points(case.points, case.camera, case.pixels[:4], 8)  # compiles
        rows = [_measured(case, k, repeats) for k in (8, 16, 20)]
    return rows, _table_of(rows)


@dataclass(frozen=True)
class _Case:
    """An ellipsoid's surface before a camera, with the camera's rays."""

    points: np.ndarray
    camera: Camera
    pixels: np.ndarray
    centre: np.ndarray
    directions: np.ndarray


def _case() -> _Case:
    from rigpapr.topk import camera_rays
    from splatanim.render.camera import look_at

    points = np.random.default_rng(0).normal(size=(POINTS, 3))
    points = (points / np.linalg.norm(points, axis=1, keepdims=True) * [1.0, 0.5, 0.4]).astype(np.float32)
    camera = look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=RAYS_SIDE, height=RAYS_SIDE, focal=1.375 * RAYS_SIDE)
    y, x = np.mgrid[:RAYS_SIDE, :RAYS_SIDE] + 0.5
    pixels = np.stack([x.ravel(), y.ravel()], axis=1)
    return _Case(points, camera, pixels, *camera_rays(camera, pixels))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch and Numba on one thread inside, on as many as before after."""
    import numba
    import torch

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def _measured(case: _Case, k: int, repeats: int) -> dict[str, float]:
    """One row: what the search takes for K neighbours, beside the two tensor forms, and whether it is right."""
    from rigpapr.topk import nearest_points

    rays = case.centre, case.directions[::_SHARE]
    ours = min(_cpu_ms(nearest_points, case.points, case.camera, case.pixels, k) for _ in range(repeats))
    product = _SHARE * min(_cpu_ms(_product, case.points, *rays, k) for _ in range(repeats))
    table = _SHARE * min(_cpu_ms(_table, case.points, *rays, k) for _ in range(repeats))
    tracemalloc.start()
    found, _ = nearest_points(case.points, case.camera, case.pixels, k)
    memory = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    chosen = np.random.default_rng(k).permutation(len(case.pixels))[:_CHECKED]
    exact = _exact(case.points, case.centre, case.directions[chosen], k)
    return {
        "k": k,
        "ms": ours,
        "product_ms": product,
        "table_ms": table,
        "product_ratio": product / ours,
        "table_ratio": table / ours,
        "mb": memory,
        "equal": float((found[chosen] == exact).all(axis=1).mean()),
    }


def _table_of(rows: list[dict[str, float]]) -> str:
    lines = [
        f"\n## Top-K: {RAYS_SIDE**2} rays, {POINTS} points, one thread, CPU milliseconds\n",
        "| K | binned | products | ratio | table | ratio | MB | rays equal to float64 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['k']} | {row['ms']:.0f} | {row['product_ms']:.0f} | {row['product_ratio']:.0f} | "
            f"{row['table_ms']:.0f} | {row['table_ratio']:.0f} | {row['mb']:.1f} | {100 * row['equal']:.2f} % |"
        )
    return "\n".join(lines)


def _cpu_ms(work: Callable[..., object], *arguments: object) -> float:
    began = time.process_time()
    work(*arguments)
    return 1000 * (time.process_time() - began)


def _product(points: np.ndarray, centre: np.ndarray, directions: np.ndarray, k: int) -> None:
    import torch

    v = torch.from_numpy(points) - torch.from_numpy(centre).float()
    square = (v * v).sum(1)
    for part in torch.from_numpy(directions).float().split(_CHUNK):
        (square - (part @ v.T).square()).topk(k, dim=1, largest=False)


def _table(points: np.ndarray, centre: np.ndarray, directions: np.ndarray, k: int) -> None:
    import torch

    v = torch.from_numpy(points) - torch.from_numpy(centre).float()
    for part in torch.from_numpy(directions).float().split(_CHUNK // 4):
        along = (v[None] * part[:, None]).sum(-1)
        across = v[None] - along[..., None] * part[:, None]
        across.square().sum(-1).topk(k, dim=1, largest=False)


def _exact(points: np.ndarray, centre: np.ndarray, directions: np.ndarray, k: int) -> np.ndarray:
    v = points.astype(np.float64) - centre
    out = np.empty((len(directions), k), np.int32)
    for r, d in enumerate(directions):
        distance = np.square(np.cross(v, d)).sum(axis=1)
        nearest = np.argpartition(distance, k)[: k + 1]
        out[r] = nearest[np.lexsort((nearest, distance[nearest]))][:k]
    return out
