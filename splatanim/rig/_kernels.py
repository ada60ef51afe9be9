"""The Numba kernel of linear blend skinning: blended affine maps at points, one pass over sparse weights."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(parallel=True, cache=True)
def blend_kernel(joints, weights, transforms, points, out, linear):
    """out = sum_k w_k T_k [x; 1] and linear = sum_k w_k T_k[:, :3] at points (N, 3); T are (J, 3, 4)."""
    n, k = joints.shape
    for block in prange((n + 1023) // 1024):
        t = np.empty((3, 4))
        for i in range(block * 1024, min(n, (block + 1) * 1024)):
            for r in range(3):
                for c in range(4):
                    t[r, c] = 0.0
            for s in range(k):
                w = np.float64(weights[i, s])
                if w == 0.0:
                    continue
                j = joints[i, s]
                for r in range(3):
                    for c in range(4):
                        t[r, c] += w * transforms[j, r, c]
            x, y, z = np.float64(points[i, 0]), np.float64(points[i, 1]), np.float64(points[i, 2])
            for r in range(3):
                out[i, r] = t[r, 0] * x + t[r, 1] * y + t[r, 2] * z + t[r, 3]
                for c in range(3):
                    linear[i, r, c] = t[r, c]
