"""Numba kernels of the splat push-forward: mean, covariance and harmonics under a local affine map, one pass.

Splats go through in batches of ``LANES``: what costs most (Jacobi's sweeps, Newton's, the harmonics) runs on arrays
with the lane as the last index, a loop without branches that the compiler turns into vector instructions.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from splatanim._harmonics import LANES, rotate_lanes
from splatanim._small import determinant, signed_svd

# Compiled with _small.py dbf3935a6d73.
# Compiled with _harmonics.py 39653a2c653c.

_BLOCK = 64 * LANES  # splats a thread takes at once


@njit(cache=True, error_model="numpy", inline="always")
def _apart(a0, a1, a2, b0, b1, b2):
    """Turn two columns in their plane, by the smaller angle, until they are orthogonal; 1 if they were not yet.

    1e-17 bounds the squared cosine that counts as none: beyond what float32 holds.
    """
    aa, bb, ab = a0 * a0 + a1 * a1 + a2 * a2, b0 * b0 + b1 * b1 + b2 * b2, a0 * b0 + a1 * b1 + a2 * b2
    turns = ab * ab > 1e-17 * aa * bb
    d = 0.5 * (bb - aa)
    reach = np.sqrt(d * d + ab * ab) + abs(d)
    t = (ab if d >= 0.0 else -ab) / (reach if reach > 0.0 else 1.0)
    t = t if turns else 0.0
    c = 1.0 / np.sqrt(1.0 + t * t)
    s = c * t
    p0, p1, p2 = c * a0 - s * b0, c * a1 - s * b1, c * a2 - s * b2
    return p0, p1, p2, s * a0 + c * b0, s * a1 + c * b1, s * a2 + c * b2, 1.0 if turns else 0.0


@njit(cache=True, error_model="numpy", fastmath={"reassoc"})
def _jacobi_sweep(g):
    """One sweep over the three pairs of columns of every lane's G; how many pairs were not orthogonal."""
    turned = 0.0
    for k in range(LANES):
        a0, a1, a2 = g[k], g[LANES + k], g[2 * LANES + k]
        b0, b1, b2 = g[3 * LANES + k], g[4 * LANES + k], g[5 * LANES + k]
        c0, c1, c2 = g[6 * LANES + k], g[7 * LANES + k], g[8 * LANES + k]
        a0, a1, a2, b0, b1, b2, ab = _apart(a0, a1, a2, b0, b1, b2)
        a0, a1, a2, c0, c1, c2, ac = _apart(a0, a1, a2, c0, c1, c2)
        b0, b1, b2, c0, c1, c2, bc = _apart(b0, b1, b2, c0, c1, c2)
        g[k], g[LANES + k], g[2 * LANES + k] = a0, a1, a2
        g[3 * LANES + k], g[4 * LANES + k], g[5 * LANES + k] = b0, b1, b2
        g[6 * LANES + k], g[7 * LANES + k], g[8 * LANES + k] = c0, c1, c2
        turned += ab + ac + bc
    return turned


@njit(cache=True, error_model="numpy")
def _columns(gradients, quaternions, log_scales, start, count, g):
    """Lane by lane the columns of G = F R S; spare lanes repeat the last splat."""
    for k in range(LANES):
        i = start + min(k, count - 1)
        w, x, y, z = quaternions[i, 0], quaternions[i, 1], quaternions[i, 2], quaternions[i, 3]
        w, x, y, z = np.float64(w), np.float64(x), np.float64(y), np.float64(z)
        h = 2.0 / (w * w + x * x + y * y + z * z)
        f0, f1, f2 = gradients[i, 0, 0], gradients[i, 0, 1], gradients[i, 0, 2]
        f3, f4, f5 = gradients[i, 1, 0], gradients[i, 1, 1], gradients[i, 1, 2]
        f6, f7, f8 = gradients[i, 2, 0], gradients[i, 2, 1], gradients[i, 2, 2]
        s = np.exp(np.float64(log_scales[i, 0]))
        r0, r1, r2 = s * (1 - h * (y * y + z * z)), s * h * (x * y + w * z), s * h * (x * z - w * y)
        g[k], g[LANES + k] = f0 * r0 + f1 * r1 + f2 * r2, f3 * r0 + f4 * r1 + f5 * r2
        g[2 * LANES + k] = f6 * r0 + f7 * r1 + f8 * r2
        s = np.exp(np.float64(log_scales[i, 1]))
        r0, r1, r2 = s * h * (x * y - w * z), s * (1 - h * (x * x + z * z)), s * h * (y * z + w * x)
        g[3 * LANES + k], g[4 * LANES + k] = f0 * r0 + f1 * r1 + f2 * r2, f3 * r0 + f4 * r1 + f5 * r2
        g[5 * LANES + k] = f6 * r0 + f7 * r1 + f8 * r2
        s = np.exp(np.float64(log_scales[i, 2]))
        r0, r1, r2 = s * h * (x * z + w * y), s * h * (y * z - w * x), s * (1 - h * (x * x + y * y))
        g[6 * LANES + k], g[7 * LANES + k] = f0 * r0 + f1 * r1 + f2 * r2, f3 * r0 + f4 * r1 + f5 * r2
        g[8 * LANES + k] = f6 * r0 + f7 * r1 + f8 * r2


@njit(cache=True)
def _factor(g, start, count, u, quaternions, log_scales):
    """Sigma' = G G^T = U diag(s'^2) U^T: of G's orthogonal columns the lengths s' and, as a rotation, directions U."""
    for k in range(count):
        i = start + k
        a0, a1, a2 = g[k], g[LANES + k], g[2 * LANES + k]
        b0, b1, b2 = g[3 * LANES + k], g[4 * LANES + k], g[5 * LANES + k]
        c0, c1, c2 = g[6 * LANES + k], g[7 * LANES + k], g[8 * LANES + k]
        aa, bb, cc = a0 * a0 + a1 * a1 + a2 * a2, b0 * b0 + b1 * b1 + b2 * b2, c0 * c0 + c1 * c1 + c2 * c2
        log_scales[i, 0] = 0.5 * np.log(max(aa, 1e-60))
        log_scales[i, 1] = 0.5 * np.log(max(bb, 1e-60))
        log_scales[i, 2] = 0.5 * np.log(max(cc, 1e-60))
        # The shortest column, which may be nothing but rounding or point the wrong way, is what the others leave.
        if cc <= aa and cc <= bb:
            _frame(u, 0, 1, 2, a0, a1, a2, aa, b0, b1, b2, bb)
        elif bb <= aa:
            _frame(u, 2, 0, 1, c0, c1, c2, cc, a0, a1, a2, aa)
        else:
            _frame(u, 1, 2, 0, b0, b1, b2, bb, c0, c1, c2, cc)
        _to_quaternion(u, quaternions, i)


@njit(cache=True, inline="always")
def _frame(u, i, j, k, x0, x1, x2, xx, y0, y1, y2, yy):
    """The rotation U whose columns i and j point along x and y, of squared lengths xx and yy; (i, j, k) is cyclic."""
    if xx >= yy:
        x0, x1, x2, y0, y1, y2 = _pair(x0, x1, x2, xx, y0, y1, y2, yy)
    else:
        y0, y1, y2, x0, x1, x2 = _pair(y0, y1, y2, yy, x0, x1, x2, xx)
    u[0, i], u[1, i], u[2, i] = x0, x1, x2
    u[0, j], u[1, j], u[2, j] = y0, y1, y2
    u[0, k], u[1, k], u[2, k] = x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0


@njit(cache=True, inline="always")
def _pair(x0, x1, x2, xx, y0, y1, y2, yy):
    """Unit vectors at right angles along x and y, x the longer: any will do for what has no length."""
    if xx > 0.0:
        h = 1.0 / np.sqrt(xx)
        x0, x1, x2 = h * x0, h * x1, h * x2
    else:
        x0, x1, x2 = 1.0, 0.0, 0.0
    if yy <= 1e-28 * xx or yy == 0.0:
        y0, y1, y2 = (1.0, 0.0, 0.0) if abs(x0) < 0.7 else (0.0, 1.0, 0.0)
    d = x0 * y0 + x1 * y1 + x2 * y2
    y0, y1, y2 = y0 - d * x0, y1 - d * x1, y2 - d * x2
    h = 1.0 / np.sqrt(y0 * y0 + y1 * y1 + y2 * y2)
    return x0, x1, x2, h * y0, h * y1, h * y2


@njit(cache=True, inline="always")
def _to_quaternion(r, q, i):
    """Row i of wxyz quaternions by Shepperd's method: divide by the largest of the four components."""
    t = r[0, 0] + r[1, 1] + r[2, 2]
    a, b, c = r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]
    if t > 0:
        s = 2.0 * np.sqrt(t + 1.0)
        w, x, y, z = 0.25 * s, a / s, b / s, c / s
    elif r[0, 0] > r[1, 1] and r[0, 0] > r[2, 2]:
        s = 2.0 * np.sqrt(1.0 + r[0, 0] - r[1, 1] - r[2, 2])
        w, x, y, z = a / s, 0.25 * s, (r[0, 1] + r[1, 0]) / s, (r[0, 2] + r[2, 0]) / s
    elif r[1, 1] > r[2, 2]:
        s = 2.0 * np.sqrt(1.0 + r[1, 1] - r[0, 0] - r[2, 2])
        w, x, y, z = b / s, (r[0, 1] + r[1, 0]) / s, 0.25 * s, (r[1, 2] + r[2, 1]) / s
    else:
        s = 2.0 * np.sqrt(1.0 + r[2, 2] - r[0, 0] - r[1, 1])
        w, x, y, z = c / s, (r[0, 2] + r[2, 0]) / s, (r[1, 2] + r[2, 1]) / s, 0.25 * s
    q[i, 0], q[i, 1], q[i, 2], q[i, 3] = w, x, y, z


@njit(cache=True, error_model="numpy", fastmath={"reassoc"})
def _newton_sweep(x, change):
    """Higham's iteration X <- (X + X^-T) / 2 in every lane; how many still move. It is quadratic: below a change of
    1e-4 what is left is below 1e-8."""
    moving = 0.0
    for k in range(LANES):
        x0, x1, x2 = x[k], x[LANES + k], x[2 * LANES + k]
        x3, x4, x5 = x[3 * LANES + k], x[4 * LANES + k], x[5 * LANES + k]
        x6, x7, x8 = x[6 * LANES + k], x[7 * LANES + k], x[8 * LANES + k]
        c0, c1, c2 = x4 * x8 - x5 * x7, x5 * x6 - x3 * x8, x3 * x7 - x4 * x6
        c3, c4, c5 = x7 * x2 - x8 * x1, x8 * x0 - x6 * x2, x6 * x1 - x7 * x0
        c6, c7, c8 = x1 * x5 - x2 * x4, x2 * x3 - x0 * x5, x0 * x4 - x1 * x3
        h = 0.5 / (x0 * c0 + x1 * c1 + x2 * c2)
        d0, d1, d2 = h * c0 - 0.5 * x0, h * c1 - 0.5 * x1, h * c2 - 0.5 * x2
        d3, d4, d5 = h * c3 - 0.5 * x3, h * c4 - 0.5 * x4, h * c5 - 0.5 * x5
        d6, d7, d8 = h * c6 - 0.5 * x6, h * c7 - 0.5 * x7, h * c8 - 0.5 * x8
        x[k], x[LANES + k], x[2 * LANES + k] = x0 + d0, x1 + d1, x2 + d2
        x[3 * LANES + k], x[4 * LANES + k], x[5 * LANES + k] = x3 + d3, x4 + d4, x5 + d5
        x[6 * LANES + k], x[7 * LANES + k], x[8 * LANES + k] = x6 + d6, x7 + d7, x8 + d8
        size = abs(d0) + abs(d1) + abs(d2) + abs(d3) + abs(d4) + abs(d5) + abs(d6) + abs(d7) + abs(d8)
        change[k] = size
        moving += 0.0 if size < 1e-4 else 1.0
    return moving


@njit(cache=True)
def _polar_rotations(gradients, start, count, x, change, u, s, v):
    """Lane by lane the rotation nearest to F, row-major; by SVD where F is (nearly) singular or turns space over."""
    for k in range(LANES):
        f = gradients[start + min(k, count - 1)]
        square = 0.0
        for r in range(3):
            for c in range(3):
                square += f[r, c] * f[r, c]
        easy = determinant(f) > 1e-3 * (square / 3.0) ** 1.5
        for r in range(3):
            for c in range(3):
                x[(3 * r + c) * LANES + k] = f[r, c] if easy else (1.0 if r == c else 0.0)
        change[LANES + k] = 0.0 if easy else 1.0
    for _ in range(20):
        if _newton_sweep(x, change) == 0.0:
            break
    for k in range(count):
        if change[LANES + k] == 0.0 and change[k] < 1e-4:
            continue
        signed_svd(gradients[start + k], u, s, v)
        for r in range(3):
            for c in range(3):
                x[(3 * r + c) * LANES + k] = u[r, 0] * v[c, 0] + u[r, 1] * v[c, 1] + u[r, 2] * v[c, 2]


@njit(parallel=True, cache=True)
def push_forward_kernel(gradients, quaternions, log_scales, sh, tables, q_out, log_out):
    """Covariances and harmonics under the deformation gradients F (N, 3, 3); ``sh`` is rotated in place.

    One-sided Jacobi turns the columns of G = F R S until they are orthogonal. From this side the angles between them
    are those that F makes between the splat's axes, however flat it is, so that two or three sweeps do. At F = I
    nothing turns: axes and their order follow the rest pose continuously.
    """
    n = len(quaternions)
    for block in prange((n + _BLOCK - 1) // _BLOCK):
        g, change, work = np.empty(9 * LANES), np.empty(2 * LANES), np.empty(66 * LANES)
        u, v, s = np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
        for start in range(block * _BLOCK, min(n, (block + 1) * _BLOCK), LANES):
            count = min(LANES, n - start)
            _columns(gradients, quaternions, log_scales, start, count, g)
            for _ in range(30):
                if _jacobi_sweep(g) == 0.0:
                    break
            _factor(g, start, count, u, q_out, log_out)
            if sh.shape[1] > 1:
                _polar_rotations(gradients, start, count, g, change, u, s, v)
                rotate_lanes(sh, start, count, g, tables, work)


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
