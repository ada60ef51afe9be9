"""Ordering of splats in memory."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

_BITS = 21  # per axis, 63 in all


def morton_order(means: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, " n"]:
    """The permutation that puts points along a Z-order curve: neighbours in space become neighbours in memory.

    Apply it once after loading (``splats.select(morton_order(splats.means))``); rendering then reads memory mostly in
    order. The permutation is stable; rows that are not finite come last.
    """
    means = np.asarray(means, np.float64)
    finite = np.isfinite(means).all(axis=1)
    if not finite.any():
        return np.arange(len(means))
    means = np.where(finite[:, None], means, 0.0)
    low, high = means[finite].min(axis=0), means[finite].max(axis=0)
    scale = (2**_BITS - 1) / (float((high - low).max()) or 1.0)
    cells = (np.maximum(means - low, 0.0) * scale).astype(np.uint64)
    code = _spread(cells[:, 0]) | _spread(cells[:, 1]) << np.uint64(1) | _spread(cells[:, 2]) << np.uint64(2)
    code[~finite] = np.iinfo(np.uint64).max
    return np.argsort(code, kind="stable")


def _spread(values: np.ndarray) -> np.ndarray:
    """Put two zero bits between neighbouring bits of 21-bit numbers."""
    for shift, mask in (
        (32, 0x1F00000000FFFF),
        (16, 0x1F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ):
        values = (values | values << np.uint64(shift)) & np.uint64(mask)
    return values
