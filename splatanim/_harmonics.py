"""Numba kernels that rotate spherical harmonics, many splats side by side (:mod:`splatanim.rotations` has the method).

``w`` holds a batch: coefficient m >= 1 of channel c of lane k is ``w[(3 (m - 1) + c) LANES + k]``, room for values at
probe directions behind. ``r`` holds rotations, entry (a, b) of lane k at ``r[(3 a + b) LANES + k]``.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

LANES = 32  # splats in a batch: what they need stays in the first cache
_VALUES = 45  # the first row of ``w`` behind the coefficients

_A2, _B2, _D2 = 1.0925484305920792, 0.31539156525252005, 0.5462742152960396
_A3, _B3, _C3 = 0.5900435899266435, 2.890611442640554, 0.4570457994644658
_D3, _E3 = 0.3731763325901154, 1.445305721320277


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _degree1(w, r):
    """Degree 1 is the vector (-y, z, -x)."""
    for c in range(3):
        for k in range(LANES):
            y, z, x = -w[c * LANES + k], w[(3 + c) * LANES + k], -w[(6 + c) * LANES + k]
            w[c * LANES + k] = -(r[3 * LANES + k] * x + r[4 * LANES + k] * y + r[5 * LANES + k] * z)
            w[(3 + c) * LANES + k] = r[6 * LANES + k] * x + r[7 * LANES + k] * y + r[8 * LANES + k] * z
            w[(6 + c) * LANES + k] = -(r[k] * x + r[LANES + k] * y + r[2 * LANES + k] * z)


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _degree2(w, r, probes, inverse):
    """Values of the old radiance at R^T of the probes, then the coefficients that have them."""
    for j in range(5):
        d0, d1, d2, o = probes[j, 0], probes[j, 1], probes[j, 2], (_VALUES + 3 * j) * LANES
        for k in range(LANES):
            x = r[k] * d0 + r[3 * LANES + k] * d1 + r[6 * LANES + k] * d2
            y = r[LANES + k] * d0 + r[4 * LANES + k] * d1 + r[7 * LANES + k] * d2
            z = r[2 * LANES + k] * d0 + r[5 * LANES + k] * d1 + r[8 * LANES + k] * d2
            b0, b1, b2 = _A2 * x * y, -_A2 * y * z, _B2 * (2 * z * z - x * x - y * y)
            b3, b4 = -_A2 * x * z, _D2 * (x * x - y * y)
            w[o + k] = (
                b0 * w[9 * LANES + k]
                + b1 * w[12 * LANES + k]
                + b2 * w[15 * LANES + k]
                + b3 * w[18 * LANES + k]
                + b4 * w[21 * LANES + k]
            )
            w[o + 1 * LANES + k] = (
                b0 * w[10 * LANES + k]
                + b1 * w[13 * LANES + k]
                + b2 * w[16 * LANES + k]
                + b3 * w[19 * LANES + k]
                + b4 * w[22 * LANES + k]
            )
            w[o + 2 * LANES + k] = (
                b0 * w[11 * LANES + k]
                + b1 * w[14 * LANES + k]
                + b2 * w[17 * LANES + k]
                + b3 * w[20 * LANES + k]
                + b4 * w[23 * LANES + k]
            )
    for i in range(5):
        m0, m1, m2, m3, m4 = inverse[i, 0], inverse[i, 1], inverse[i, 2], inverse[i, 3], inverse[i, 4]
        for c in range(3):
            o, v = (3 * (3 + i) + c) * LANES, (_VALUES + c) * LANES
            for k in range(LANES):
                w[o + k] = (
                    m0 * w[v + k]
                    + m1 * w[v + 3 * LANES + k]
                    + m2 * w[v + 6 * LANES + k]
                    + m3 * w[v + 9 * LANES + k]
                    + m4 * w[v + 12 * LANES + k]
                )


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _degree3(w, r, probes, inverse):
    """Values of the old radiance at R^T of the probes, then the coefficients that have them."""
    for j in range(7):
        d0, d1, d2, o = probes[j, 0], probes[j, 1], probes[j, 2], (_VALUES + 3 * j) * LANES
        for k in range(LANES):
            x = r[k] * d0 + r[3 * LANES + k] * d1 + r[6 * LANES + k] * d2
            y = r[LANES + k] * d0 + r[4 * LANES + k] * d1 + r[7 * LANES + k] * d2
            z = r[2 * LANES + k] * d0 + r[5 * LANES + k] * d1 + r[8 * LANES + k] * d2
            xx, yy, zz = x * x, y * y, z * z
            b0, b1, b2 = -_A3 * y * (3 * xx - yy), _B3 * x * y * z, -_C3 * y * (4 * zz - xx - yy)
            b3, b4 = _D3 * z * (2 * zz - 3 * xx - 3 * yy), -_C3 * x * (4 * zz - xx - yy)
            b5, b6 = _E3 * z * (xx - yy), -_A3 * x * (xx - 3 * yy)
            w[o + k] = (
                b0 * w[24 * LANES + k]
                + b1 * w[27 * LANES + k]
                + b2 * w[30 * LANES + k]
                + b3 * w[33 * LANES + k]
                + b4 * w[36 * LANES + k]
                + b5 * w[39 * LANES + k]
                + b6 * w[42 * LANES + k]
            )
            w[o + 1 * LANES + k] = (
                b0 * w[25 * LANES + k]
                + b1 * w[28 * LANES + k]
                + b2 * w[31 * LANES + k]
                + b3 * w[34 * LANES + k]
                + b4 * w[37 * LANES + k]
                + b5 * w[40 * LANES + k]
                + b6 * w[43 * LANES + k]
            )
            w[o + 2 * LANES + k] = (
                b0 * w[26 * LANES + k]
                + b1 * w[29 * LANES + k]
                + b2 * w[32 * LANES + k]
                + b3 * w[35 * LANES + k]
                + b4 * w[38 * LANES + k]
                + b5 * w[41 * LANES + k]
                + b6 * w[44 * LANES + k]
            )
    for i in range(7):
        m0, m1, m2, m3, m4, m5, m6 = (
            inverse[i, 0],
            inverse[i, 1],
            inverse[i, 2],
            inverse[i, 3],
            inverse[i, 4],
            inverse[i, 5],
            inverse[i, 6],
        )
        for c in range(3):
            o, v = (3 * (8 + i) + c) * LANES, (_VALUES + c) * LANES
            for k in range(LANES):
                w[o + k] = (
                    m0 * w[v + k]
                    + m1 * w[v + 3 * LANES + k]
                    + m2 * w[v + 6 * LANES + k]
                    + m3 * w[v + 9 * LANES + k]
                    + m4 * w[v + 12 * LANES + k]
                    + m5 * w[v + 15 * LANES + k]
                    + m6 * w[v + 18 * LANES + k]
                )


@njit(cache=True, inline="always")
def rotate_lanes(sh, start, count, r, tables, w):
    """Rotate the coefficients (N, K, 3) of splats ``start`` to ``start + count`` in place; ``w`` is 66 LANES long."""
    d2, i2, d3, i3 = tables
    rows = 3 * (sh.shape[1] - 1)
    for k in range(LANES):
        i = start + min(k, count - 1)
        for m in range(rows):
            w[m * LANES + k] = sh[i, 1 + m // 3, m % 3]
    if rows >= 9:
        _degree1(w, r)
    if rows >= 24:
        _degree2(w, r, d2, i2)
    if rows >= 45:
        _degree3(w, r, d3, i3)
    for k in range(count):
        for m in range(rows):
            sh[start + k, 1 + m // 3, m % 3] = w[m * LANES + k]


@njit(parallel=True, cache=True)
def rotate_sh_kernel(sh, rotations, d2, i2, d3, i3):
    """Rotate coefficients (N, K, 3) in place by rotations (N, 3, 3)."""
    n = len(sh)
    for block in prange((n + 4095) // 4096):
        r, w = np.empty(9 * LANES), np.empty(66 * LANES)
        for start in range(block * 4096, min(n, (block + 1) * 4096), LANES):
            count = min(LANES, n - start)
            for k in range(LANES):
                for a in range(9):
                    r[a * LANES + k] = rotations[start + min(k, count - 1), a // 3, a % 3]
            rotate_lanes(sh, start, count, r, (d2, i2, d3, i3), w)
