"""The loops over candidate pairs of contact balls, in Numba: most candidates are not in contact and leave no trace."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def touching(x, first, second, radius, reach):
    """The pairs nearer than radius + reach: their rows, distances, and unit normals (second to first).

    x (s, 3), the others (p,); returns (a,), (a,), (a, 3).
    """
    n = 0
    rows = np.empty(len(first), np.int64)
    distance = np.empty(len(first))
    for p in range(len(first)):
        i, j = first[p], second[p]
        a, b, c = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
        squared = a * a + b * b + c * c
        limit = radius[p] + reach[p]
        if squared < limit * limit:
            rows[n] = p
            distance[n] = np.sqrt(squared)
            n += 1
    normal = np.empty((n, 3))
    for k in range(n):
        i, j = first[rows[k]], second[rows[k]]
        scale = 1.0 / max(distance[k], 1e-300)
        for c in range(3):
            normal[k, c] = (x[i, c] - x[j, c]) * scale
    return rows[:n].copy(), distance[:n].copy(), normal


@njit(cache=True)
def free_share(x, moved, first, second, radius, keep):
    """The largest t in [0, 1] with |p + t v| >= R + keep (|p| - R) for every pair up to it, written without
    cancellation: p and v a pair's distance and relative motion, R its radius."""
    share = 1.0
    for k in range(len(first)):
        i, j = first[k], second[k]
        vv = pv = pp = 0.0
        for c in range(3):
            p = x[i, c] - x[j, c]
            v = moved[i, c] - moved[j, c]
            pp += p * p
            pv += p * v
            vv += v * v
        if pv >= 0.0:
            continue
        distance = np.sqrt(pp)
        stop = radius[k] + keep * (distance - radius[k])
        inside = (distance - stop) * (distance + stop)
        root = pv * pv - vv * inside
        if root >= 0.0:
            share = min(share, max(inside / (np.sqrt(root) - pv), 0.0))
    return share
