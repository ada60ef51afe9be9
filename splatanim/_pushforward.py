"""Numba kernels of the splat push-forward: mean, covariance and harmonics under a local affine map, one pass."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from splatanim._small import determinant, orthogonalise_columns, signed_svd

# Compiled with _small.py dbf3935a6d73.

_A2, _B2, _D2 = 1.0925484305920792, 0.31539156525252005, 0.5462742152960396
_A3, _B3, _C3 = 0.5900435899266435, 2.890611442640554, 0.4570457994644658
_D3, _E3 = 0.3731763325901154, 1.445305721320277


@njit(cache=True, inline="always")
def _basis2(x, y, z, out):
    out[0], out[1], out[2] = _A2 * x * y, -_A2 * y * z, _B2 * (2 * z * z - x * x - y * y)
    out[3], out[4] = -_A2 * x * z, _D2 * (x * x - y * y)


@njit(cache=True, inline="always")
def _basis3(x, y, z, out):
    xx, yy, zz = x * x, y * y, z * z
    out[0], out[1], out[2] = -_A3 * y * (3 * xx - yy), _B3 * x * y * z, -_C3 * y * (4 * zz - xx - yy)
    out[3], out[4] = _D3 * z * (2 * zz - 3 * xx - 3 * yy), -_C3 * x * (4 * zz - xx - yy)
    out[5], out[6] = _E3 * z * (xx - yy), -_A3 * x * (xx - 3 * yy)


@njit(cache=True)
def _rotate_block(sh, first, r, probes, inverse, values, basis):
    """One degree (2 or 3): evaluate the old radiance at R^T of the probes, solve for the new coefficients."""
    n = len(probes)
    for j in range(n):
        dx, dy, dz = probes[j, 0], probes[j, 1], probes[j, 2]
        x = r[0, 0] * dx + r[1, 0] * dy + r[2, 0] * dz
        y = r[0, 1] * dx + r[1, 1] * dy + r[2, 1] * dz
        z = r[0, 2] * dx + r[1, 2] * dy + r[2, 2] * dz
        if n == 5:
            _basis2(x, y, z, basis)
        else:
            _basis3(x, y, z, basis)
        for c in range(3):
            total = 0.0
            for k in range(n):
                total += basis[k] * sh[first + k, c]
            values[j, c] = total
    for k in range(n):
        for c in range(3):
            total = 0.0
            for j in range(n):
                total += inverse[k, j] * values[j, c]
            sh[first + k, c] = total


@njit(cache=True)
def _rotate_one(sh, r, d2, i2, d3, i3, values, basis):
    """Rotate one splat's coefficients (K, 3) in place."""
    k = len(sh)
    if k > 1:
        for c in range(3):  # degree 1 is the vector (-y, z, -x)
            y, z, x = -sh[1, c], sh[2, c], -sh[3, c]
            sh[1, c] = -(r[1, 0] * x + r[1, 1] * y + r[1, 2] * z)
            sh[2, c] = r[2, 0] * x + r[2, 1] * y + r[2, 2] * z
            sh[3, c] = -(r[0, 0] * x + r[0, 1] * y + r[0, 2] * z)
    if k > 4:
        _rotate_block(sh, 4, r, d2, i2, values, basis)
    if k > 9:
        _rotate_block(sh, 9, r, d3, i3, values, basis)


@njit(parallel=True, cache=True)
def rotate_sh_kernel(sh, rotations, d2, i2, d3, i3):
    for block in prange((len(sh) + 4095) // 4096):
        values, basis = np.empty((7, 3)), np.empty(7)
        for i in range(block * 4096, min(len(sh), (block + 1) * 4096)):
            _rotate_one(sh[i], rotations[i], d2, i2, d3, i3, values, basis)


@njit(cache=True)
def _polar_rotation(f, r, u, s, v):
    """The rotation nearest to F: Higham's Newton iteration X <- (X + X^-T) / 2; SVD when F is (nearly) singular."""
    x00, x01, x02 = f[0, 0], f[0, 1], f[0, 2]
    x10, x11, x12 = f[1, 0], f[1, 1], f[1, 2]
    x20, x21, x22 = f[2, 0], f[2, 1], f[2, 2]
    scale = x00 * x00 + x01 * x01 + x02 * x02 + x10 * x10 + x11 * x11 + x12 * x12 + x20 * x20 + x21 * x21 + x22 * x22
    change = 1.0
    if determinant(f) > 1e-3 * (scale / 3.0) ** 1.5:
        for _ in range(20):
            c00, c01, c02 = x11 * x22 - x12 * x21, x12 * x20 - x10 * x22, x10 * x21 - x11 * x20
            c10, c11, c12 = x21 * x02 - x22 * x01, x22 * x00 - x20 * x02, x20 * x01 - x21 * x00
            c20, c21, c22 = x01 * x12 - x02 * x11, x02 * x10 - x00 * x12, x00 * x11 - x01 * x10
            h = 0.5 / (x00 * c00 + x01 * c01 + x02 * c02)
            y00, y01, y02 = 0.5 * x00 + h * c00, 0.5 * x01 + h * c01, 0.5 * x02 + h * c02
            y10, y11, y12 = 0.5 * x10 + h * c10, 0.5 * x11 + h * c11, 0.5 * x12 + h * c12
            y20, y21, y22 = 0.5 * x20 + h * c20, 0.5 * x21 + h * c21, 0.5 * x22 + h * c22
            change = abs(y00 - x00) + abs(y01 - x01) + abs(y02 - x02) + abs(y10 - x10) + abs(y11 - x11)
            change += abs(y12 - x12) + abs(y20 - x20) + abs(y21 - x21) + abs(y22 - x22)
            x00, x01, x02, x10, x11, x12, x20, x21, x22 = y00, y01, y02, y10, y11, y12, y20, y21, y22
            if change < 1e-4:  # convergence is quadratic: what is left is below 1e-8
                r[0, 0], r[0, 1], r[0, 2] = x00, x01, x02
                r[1, 0], r[1, 1], r[1, 2] = x10, x11, x12
                r[2, 0], r[2, 1], r[2, 2] = x20, x21, x22
                return
    signed_svd(f, u, s, v)
    for i in range(3):
        for j in range(3):
            r[i, j] = u[i, 0] * v[j, 0] + u[i, 1] * v[j, 1] + u[i, 2] * v[j, 2]


@njit(cache=True, inline="always")
def _to_matrix(q, r):
    w, x, y, z = np.float64(q[0]), np.float64(q[1]), np.float64(q[2]), np.float64(q[3])
    s = 2.0 / (w * w + x * x + y * y + z * z)
    r[0, 0], r[0, 1], r[0, 2] = 1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)
    r[1, 0], r[1, 1], r[1, 2] = s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)
    r[2, 0], r[2, 1], r[2, 2] = s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)


@njit(cache=True, inline="always")
def _to_quaternion(r, q):
    """Shepperd's method: divide by the largest of the four components."""
    t = r[0, 0] + r[1, 1] + r[2, 2]
    if t > 0:
        s = np.sqrt(t + 1.0) * 2.0
        q[0], q[1], q[2], q[3] = 0.25 * s, (r[2, 1] - r[1, 2]) / s, (r[0, 2] - r[2, 0]) / s, (r[1, 0] - r[0, 1]) / s
    elif r[0, 0] > r[1, 1] and r[0, 0] > r[2, 2]:
        s = np.sqrt(1.0 + r[0, 0] - r[1, 1] - r[2, 2]) * 2.0
        q[0], q[1], q[2], q[3] = (r[2, 1] - r[1, 2]) / s, 0.25 * s, (r[0, 1] + r[1, 0]) / s, (r[0, 2] + r[2, 0]) / s
    elif r[1, 1] > r[2, 2]:
        s = np.sqrt(1.0 + r[1, 1] - r[0, 0] - r[2, 2]) * 2.0
        q[0], q[1], q[2], q[3] = (r[0, 2] - r[2, 0]) / s, (r[0, 1] + r[1, 0]) / s, 0.25 * s, (r[1, 2] + r[2, 1]) / s
    else:
        s = np.sqrt(1.0 + r[2, 2] - r[0, 0] - r[1, 1]) * 2.0
        q[0], q[1], q[2], q[3] = (r[1, 0] - r[0, 1]) / s, (r[0, 2] + r[2, 0]) / s, (r[1, 2] + r[2, 1]) / s, 0.25 * s


@njit(cache=True)
def _factor(f, q, log_scale, q_out, log_out, b, r):
    """Sigma' = (F R S)(F R S)^T = U diag(s'^2) U^T, U a rotation: one-sided Jacobi on (F R S)^T, started at U = R.

    At F = I nothing turns, so axes and their order follow the rest pose continuously.
    """
    _to_matrix(q, r)
    s0, s1, s2 = np.exp(log_scale[0]), np.exp(log_scale[1]), np.exp(log_scale[2])
    # b = (F R S)^T R = S (R^T F^T R): columns are (F R S)^T times the columns of the initial U = R.
    fr = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            fr[i, j] = f[i, 0] * r[0, j] + f[i, 1] * r[1, j] + f[i, 2] * r[2, j]
    for j in range(3):
        b[0, j] = s0 * (fr[0, 0] * r[0, j] + fr[1, 0] * r[1, j] + fr[2, 0] * r[2, j])
        b[1, j] = s1 * (fr[0, 1] * r[0, j] + fr[1, 1] * r[1, j] + fr[2, 1] * r[2, j])
        b[2, j] = s2 * (fr[0, 2] * r[0, j] + fr[1, 2] * r[1, j] + fr[2, 2] * r[2, j])
    orthogonalise_columns(b, r, 1e-17)  # beyond what float32 holds
    for j in range(3):
        norm = b[0, j] * b[0, j] + b[1, j] * b[1, j] + b[2, j] * b[2, j]
        log_out[j] = 0.5 * np.log(max(norm, 1e-60))
    _to_quaternion(r, q_out)


@njit(parallel=True, cache=True)
def push_forward_kernel(gradients, quaternions, log_scales, sh, tables, q_out, log_out):
    """Covariances and harmonics under the deformation gradients (N, 3, 3); ``sh`` is rotated in place."""
    d2, i2, d3, i3 = tables
    n = len(quaternions)
    for block in prange((n + 2047) // 2048):
        u, v, r, s = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
        values, basis = np.empty((7, 3)), np.empty(7)
        for i in range(block * 2048, min(n, (block + 1) * 2048)):
            f = gradients[i]
            _factor(f, quaternions[i], log_scales[i], q_out[i], log_out[i], u, v)
            if sh.shape[1] > 1:
                _polar_rotation(f, r, u, s, v)
                _rotate_one(sh[i], r, d2, i2, d3, i3, values, basis)


@njit(parallel=True, cache=True)
def deform_kernel(rest, weights, slopes, handles, scale, with_slopes, means, gradients):
    """x = X + sum_h w_h Z_h [X; 1] and F = I + sum_h (w_h Z_h + Z_h [X; 1] grad w_h^T) at points (N, 3).

    Positions in simulator units are divided by ``scale`` on the way out (the caller adds the centre).
    """
    n, h = weights.shape
    for block in prange((n + 2047) // 2048):
        t = np.empty((3, 4))
        for i in range(block * 2048, min(n, (block + 1) * 2048)):
            x, y, z = rest[i, 0], rest[i, 1], rest[i, 2]
            for r in range(3):
                for c in range(4):
                    t[r, c] = 1.0 if r == c else 0.0
            for k in range(h):
                w = np.float64(weights[i, k])
                for r in range(3):
                    for c in range(4):
                        t[r, c] += w * handles[k, r, c]
            for r in range(3):
                means[i, r] = (t[r, 0] * x + t[r, 1] * y + t[r, 2] * z + t[r, 3]) / scale
            if with_slopes:
                for k in range(h):
                    for r in range(3):
                        m = handles[k, r, 0] * x + handles[k, r, 1] * y + handles[k, r, 2] * z + handles[k, r, 3]
                        t[r, 0] += m * slopes[i, k, 0]
                        t[r, 1] += m * slopes[i, k, 1]
                        t[r, 2] += m * slopes[i, k, 2]
            for r in range(3):
                for c in range(3):
                    gradients[i, r, c] = t[r, c]
