"""The CPU rasteriser: project, list per tile, sort and blend, each on all threads (sources: 3DGS, gsplat "classic")."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from splatanim.data import Splats
from splatanim.render._blend import Canvas, blend_tiles
from splatanim.render._project import PACKED_COLUMNS, TILE, SplatArrays, View, project, scatter
from splatanim.render.camera import Camera
from splatanim.render.rasterize import Rendering
from splatanim.threads import numba_threads

# Images are done in bands of tile rows with at most this many (splat, tile) pairs: 256 MB, whatever the scene.
PAIR_LIMIT = 1 << 25


class CpuRasterizer:
    """Renders splats; keeps its buffers between frames, so that a video allocates only its images.

    One object serves one calling thread at a time. ``threads``: how many to use; default: as many as
    ``numba.get_num_threads()`` says at each call.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pool_key = (0, 0)  # size, process: a pool does not survive a fork
        self._packed = np.empty((0, PACKED_COLUMNS), np.float32)
        self._rectangles = np.empty((0, 4), np.int16)
        self._pairs = np.empty(0, np.uint64)

    def render(
        self,
        splats: Splats,
        camera: Camera,
        *,
        background: tuple[float, float, float] = (1.0, 1.0, 1.0),
        depth: bool = False,
    ) -> Rendering:
        """See :func:`splatanim.render.rasterize.rasterize`."""
        threads = self._threads or numba_threads()
        size = (camera.height, camera.width)
        canvas = Canvas(
            np.empty((*size, 3), np.float32),
            np.empty(size, np.float32),
            np.empty(size if depth else (1, 1), np.float32),
            np.asarray(background, np.float32),
        )
        begins = [len(splats) * t // threads for t in range(threads + 1)]
        counts = np.empty((threads, -(-camera.height // TILE), -(-camera.width // TILE)), np.int64)
        visible = self._project(splats, camera, begins, counts)
        for first, last in _bands(counts.sum(axis=(0, 2))):
            starts = _layout(counts[:, first:last])
            self._reserve_pairs(int(starts[-1]))
            common = (first, last, self._packed, self._rectangles)
            self._run(scatter, [(begins[t], visible[t], *common, counts[t], self._pairs) for t in range(threads)])
            turn = np.zeros(1, np.int64)
            self._run(blend_tiles, [(turn, first, starts, self._pairs, self._packed, canvas, depth)] * threads)
        return Rendering(canvas.rgb, canvas.alpha, canvas.depth if depth else None)

    def _project(self, splats: Splats, camera: Camera, begins: list[int], counts: np.ndarray) -> list[int]:
        """Fill the packed rows, the rectangles and ``counts``; returns the number of visible splats per thread."""
        if len(self._packed) < len(splats):
            self._packed = np.empty((len(splats), PACKED_COLUMNS), np.float32)
            self._rectangles = np.empty((len(splats), 4), np.int16)
        arrays = SplatArrays(
            *(
                np.ascontiguousarray(array, np.float32)
                for array in (splats.means, splats.quaternions, splats.log_scales, splats.raw_opacities, splats.sh)
            )
        )
        common = (arrays, _view(camera), self._packed, self._rectangles)
        return self._run(project, [(begins[t], begins[t + 1], *common, counts[t]) for t in range(len(counts))])

    def _reserve_pairs(self, count: int) -> None:
        if len(self._pairs) < count:
            self._pairs = np.empty(count + count // 4, np.uint64)

    def _run(self, kernel: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
        """Call ``kernel`` once per item of ``arguments``, all at the same time; the first in the calling thread."""
        if len(arguments) == 1:
            return [kernel(*arguments[0])]
        key = (len(arguments) - 1, os.getpid())
        if self._pool is None or self._pool_key != key:
            self._pool, self._pool_key = ThreadPoolExecutor(key[0], thread_name_prefix="rasterize"), key
        others = [self._pool.submit(kernel, *item) for item in arguments[1:]]
        return [kernel(*arguments[0]), *(other.result() for other in others)]


def _view(camera: Camera) -> View:
    pose = np.ascontiguousarray(camera.T_camera_world[:3], np.float32)
    f32 = np.float32
    return View(
        pose,
        camera.position.astype(f32),
        f32(camera.fx),
        f32(camera.fy),
        f32(camera.cx),
        f32(camera.cy),
        f32(camera.near),
        camera.width,
        camera.height,
    )


def _bands(pairs_per_row: np.ndarray) -> Iterator[tuple[int, int]]:
    """Split the tile rows into ranges of at most ``PAIR_LIMIT`` pairs, but at least one row each."""
    first, total = 0, 0
    for row, pairs in enumerate(pairs_per_row):
        if row > first and total + pairs > PAIR_LIMIT:
            yield first, row
            first, total = row, 0
        total += int(pairs)
    yield first, len(pairs_per_row)


def _layout(counts: np.ndarray) -> np.ndarray:
    """Turn ``counts`` (threads, rows, columns) into each thread's first position per tile, in place.

    Returns the tiles' bounds (rows * columns + 1,). Within a tile the threads' shares follow each other in order.
    """
    per_tile = counts.reshape(len(counts), -1).T  # a copy where the band is not the whole image
    ends = np.cumsum(per_tile.ravel()).reshape(per_tile.shape)
    starts = np.append(0, ends[:, -1])
    counts[:] = (ends - per_tile).T.reshape(counts.shape)
    return starts
