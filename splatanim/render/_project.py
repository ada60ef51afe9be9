"""Projection of splats to the image: culling, activations, 2D covariance, colour (EWA splatting as in 3DGS).

Everything happens in one pass over the raw values of a splat. Conventions are those of gsplat's "classic" mode:
the Jacobian is clamped 30 % outside the image, the 2D covariance is dilated by 0.3 px^2, and splats nearer than the
near plane are dropped, and so are splats with a NaN or a projection that overflows float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from splatanim.render._numba import LOG2_E, bits_of, exp2, inlined, jit, log2

# Compiled with _numba.py ec45d506ba1a.

TILE = 32  # pixels
DILATION = np.float32(0.3)  # px^2, makes every splat at least about a pixel wide

# One row of ``packed`` per visible splat.
X, Y, P, Q, R, LOG_OPACITY, RED, GREEN, BLUE, DEPTH, EXTENT_X, EXTENT_Y = range(12)
PACKED_COLUMNS = 12

_LOG2_255 = np.float32(7.994353436858858)
_RAW_OPACITY_CUT = np.float32(-5.541263545158426)  # logit(1/255): fainter splats are invisible
_ONE, _HALF, _ZERO = np.float32(1), np.float32(0.5), np.float32(0)
_LARGE = np.float32(1e30)
_Y0, _Y1 = np.float32(0.28209479177387814), np.float32(0.4886025119029199)
_Y2A, _Y2B, _Y2C = np.float32(1.0925484305920792), np.float32(0.31539156525252005), np.float32(0.5462742152960396)
_Y3A, _Y3B, _Y3C = np.float32(0.5900435899266435), np.float32(2.890611442640554), np.float32(0.4570457994644658)
_Y3D, _Y3E = np.float32(0.3731763325901154), np.float32(1.445305721320277)


class View(NamedTuple):
    """A camera as the kernels want it: ``pose`` (3, 4) float32 world-to-camera, the rest in pixels."""

    pose: np.ndarray
    position: np.ndarray
    fx: np.float32
    fy: np.float32
    cx: np.float32
    cy: np.float32
    near: np.float32
    width: int
    height: int


class SplatArrays(NamedTuple):
    """The raw arrays of :class:`splatanim.data.Splats`, contiguous float32."""

    means: np.ndarray
    quaternions: np.ndarray
    log_scales: np.ndarray
    raw_opacities: np.ndarray
    sh: np.ndarray


@inlined
def _colour(sh, i, degree, x, y, z):
    """1/2 + sum_k Y_k(x, y, z) sh_ik of splat i, unclamped; ``sh`` (N, K, 3), (x, y, z) unit length.

    Written out, since a loop over coefficients would need a basis array on the heap for every splat.
    """
    red, green, blue = _HALF + _Y0 * sh[i, 0, 0], _HALF + _Y0 * sh[i, 0, 1], _HALF + _Y0 * sh[i, 0, 2]
    if degree > 0:
        b1, b2, b3 = -_Y1 * y, _Y1 * z, -_Y1 * x
        red += b1 * sh[i, 1, 0] + b2 * sh[i, 2, 0] + b3 * sh[i, 3, 0]
        green += b1 * sh[i, 1, 1] + b2 * sh[i, 2, 1] + b3 * sh[i, 3, 1]
        blue += b1 * sh[i, 1, 2] + b2 * sh[i, 2, 2] + b3 * sh[i, 3, 2]
    if degree > 1:
        b4, b5, b6 = _Y2A * x * y, -_Y2A * y * z, _Y2B * (z * z + z * z - x * x - y * y)
        b7, b8 = -_Y2A * x * z, _Y2C * (x * x - y * y)
        red += b4 * sh[i, 4, 0] + b5 * sh[i, 5, 0] + b6 * sh[i, 6, 0] + b7 * sh[i, 7, 0] + b8 * sh[i, 8, 0]
        green += b4 * sh[i, 4, 1] + b5 * sh[i, 5, 1] + b6 * sh[i, 6, 1] + b7 * sh[i, 7, 1] + b8 * sh[i, 8, 1]
        blue += b4 * sh[i, 4, 2] + b5 * sh[i, 5, 2] + b6 * sh[i, 6, 2] + b7 * sh[i, 7, 2] + b8 * sh[i, 8, 2]
    if degree > 2:
        cubic_red, cubic_green, cubic_blue = _cubic_colour(sh, i, x, y, z)
        red, green, blue = red + cubic_red, green + cubic_green, blue + cubic_blue
    return red, green, blue


@inlined
def _cubic_colour(sh, i, x, y, z):
    """The degree-3 terms of :func:`_colour`."""
    xx, yy, zz, three = x * x, y * y, z * z, np.float32(3)
    four_zz = np.float32(4) * zz - xx - yy
    b9, b15 = -_Y3A * y * (three * xx - yy), -_Y3A * x * (xx - three * yy)
    b10, b14 = _Y3B * x * y * z, _Y3E * z * (xx - yy)
    b11, b13 = -_Y3C * y * four_zz, -_Y3C * x * four_zz
    b12 = _Y3D * z * (zz + zz - three * (xx + yy))
    red = b9 * sh[i, 9, 0] + b10 * sh[i, 10, 0] + b11 * sh[i, 11, 0] + b12 * sh[i, 12, 0]
    green = b9 * sh[i, 9, 1] + b10 * sh[i, 10, 1] + b11 * sh[i, 11, 1] + b12 * sh[i, 12, 1]
    blue = b9 * sh[i, 9, 2] + b10 * sh[i, 10, 2] + b11 * sh[i, 11, 2] + b12 * sh[i, 12, 2]
    red += b13 * sh[i, 13, 0] + b14 * sh[i, 14, 0] + b15 * sh[i, 15, 0]
    green += b13 * sh[i, 13, 1] + b14 * sh[i, 14, 1] + b15 * sh[i, 15, 1]
    blue += b13 * sh[i, 13, 2] + b14 * sh[i, 14, 2] + b15 * sh[i, 15, 2]
    return red, green, blue


@inlined
def _image_covariance(view, splats, i, u, v, depth):
    """(xx, xy, yy, determinant) of J W R S S^T R^T W^T J^T + 0.3 I; (u, v) = (x/z, y/z) of splat i's centre."""
    quaternions, log_scales = splats.quaternions, splats.log_scales
    pose = view.pose
    margin_x = np.float32(0.15) * np.float32(view.width)
    margin_y = np.float32(0.15) * np.float32(view.height)
    uc = min((np.float32(view.width) - view.cx + margin_x) / view.fx, max(-(view.cx + margin_x) / view.fx, u))
    vc = min((np.float32(view.height) - view.cy + margin_y) / view.fy, max(-(view.cy + margin_y) / view.fy, v))
    jx, jy = view.fx / depth, view.fy / depth
    a0, b0 = jx * (pose[0, 0] - uc * pose[2, 0]), jy * (pose[1, 0] - vc * pose[2, 0])
    a1, b1 = jx * (pose[0, 1] - uc * pose[2, 1]), jy * (pose[1, 1] - vc * pose[2, 1])
    a2, b2 = jx * (pose[0, 2] - uc * pose[2, 2]), jy * (pose[1, 2] - vc * pose[2, 2])
    w, x, y, z = quaternions[i, 0], quaternions[i, 1], quaternions[i, 2], quaternions[i, 3]
    two = np.float32(2) / (w * w + x * x + y * y + z * z)  # normalises, too
    xs, ys, zs = two * x, two * y, two * z
    s0, s1, s2 = (
        exp2(LOG2_E * log_scales[i, 0]),
        exp2(LOG2_E * log_scales[i, 1]),
        exp2(LOG2_E * log_scales[i, 2]),
    )
    r00, r01, r02 = _ONE - ys * y - zs * z, xs * y - zs * w, xs * z + ys * w
    r10, r11, r12 = xs * y + zs * w, _ONE - xs * x - zs * z, ys * z - xs * w
    r20, r21, r22 = xs * z - ys * w, ys * z + xs * w, _ONE - xs * x - ys * y
    m0, n0 = s0 * (a0 * r00 + a1 * r10 + a2 * r20), s0 * (b0 * r00 + b1 * r10 + b2 * r20)
    m1, n1 = s1 * (a0 * r01 + a1 * r11 + a2 * r21), s1 * (b0 * r01 + b1 * r11 + b2 * r21)
    m2, n2 = s2 * (a0 * r02 + a1 * r12 + a2 * r22), s2 * (b0 * r02 + b1 * r12 + b2 * r22)
    xx, xy, yy = m0 * m0 + m1 * m1 + m2 * m2, m0 * n0 + m1 * n1 + m2 * n2, n0 * n0 + n1 * n1 + n2 * n2
    c0, c1, c2 = m1 * n2 - m2 * n1, m2 * n0 - m0 * n2, m0 * n1 - m1 * n0
    # |m x n|^2 = xx yy - xy^2 (Lagrange), without the cancellation that float32 would suffer for long thin splats.
    determinant = c0 * c0 + c1 * c1 + c2 * c2 + DILATION * (xx + yy) + DILATION * DILATION
    return xx + DILATION, xy, yy + DILATION, determinant


@jit
def _shape(raw_opacity, xx, xy, yy, determinant):
    """(p, q, r, log2(opacity), extent x, extent y); the extents are NaN or infinite for a degenerate splat.

    log2(alpha) at an offset (dx, dy) is log2(opacity) - (p dx + q dy)^2 - (r dy)^2: the Cholesky factor of the
    inverse covariance, which unlike the inverse itself stays accurate in float32 for long thin splats. The extents
    enclose alpha >= 1/255 (not 3 sigma).
    """
    per_yy = _ONE / yy
    r = np.sqrt(_HALF * LOG2_E * per_yy)
    p = np.sqrt(_HALF * LOG2_E * yy / determinant)
    log_opacity = -log2(_ONE + exp2(-LOG2_E * raw_opacity))
    reach = np.float32(2) / LOG2_E * max(_ZERO, log_opacity + _LOG2_255)
    return p, -p * xy * per_yy, r, log_opacity, np.sqrt(reach * xx), np.sqrt(reach * yy)


@jit
def _tile_range(centre, extent, count):
    """The half-open range of the tiles along one axis, clamped as floats so that no integer overflows; may be empty."""
    low, high = (centre - extent) * (_ONE / np.float32(TILE)), (centre + extent) * (_ONE / np.float32(TILE))
    if not (high > _ZERO and low < np.float32(count)):
        return 0, 0
    return int(max(_ZERO, low)), min(count, int(min(np.float32(count), high)) + 1)


@jit
def project(begin, end, splats, view, packed, rectangles, counts):
    """Project splats ``begin`` to ``end``; write the visible ones to the rows from ``begin`` on; return how many.

    ``packed`` (N, 12) float32 and ``rectangles`` (N, 4) int16 (tiles x0, y0, x1, y1, half open) receive a row each;
    ``counts`` (tile rows, tile columns) int64, this thread's own, the number of splats per tile.
    """
    pose, position = view.pose, view.position
    means, log_scales, raw_opacities, sh = splats.means, splats.log_scales, splats.raw_opacities, splats.sh
    degree = int(np.sqrt(sh.shape[1])) - 1
    tile_rows, tile_columns = counts.shape
    counts[:] = 0
    out = begin
    for i in range(begin, end):
        raw_opacity = raw_opacities[i]
        x, y, z = means[i, 0], means[i, 1], means[i, 2]
        depth = pose[2, 0] * x + pose[2, 1] * y + pose[2, 2] * z + pose[2, 3]
        if not (raw_opacity > _RAW_OPACITY_CUT and depth >= view.near and depth < _LARGE):
            continue
        if not log_scales[i, 0] + log_scales[i, 1] + log_scales[i, 2] < _LARGE:  # a NaN would be clamped away below
            continue
        u = (pose[0, 0] * x + pose[0, 1] * y + pose[0, 2] * z + pose[0, 3]) / depth
        v = (pose[1, 0] * x + pose[1, 1] * y + pose[1, 2] * z + pose[1, 3]) / depth
        xx, xy, yy, determinant = _image_covariance(view, splats, i, u, v, depth)
        p, q, r, log_opacity, extent_x, extent_y = _shape(raw_opacity, xx, xy, yy, determinant)
        if not (extent_x < _LARGE and extent_y < _LARGE):
            continue
        centre_x, centre_y = view.fx * u + view.cx, view.fy * v + view.cy
        x0, x1 = _tile_range(centre_x, extent_x, tile_columns)
        y0, y1 = _tile_range(centre_y, extent_y, tile_rows)
        if x0 >= x1 or y0 >= y1:
            continue
        dx, dy, dz = x - position[0], y - position[1], z - position[2]
        scale = _ONE / np.sqrt(dx * dx + dy * dy + dz * dz)
        red, green, blue = _colour(sh, i, degree, dx * scale, dy * scale, dz * scale)
        if not abs(red) + abs(green) + abs(blue) < _LARGE:
            continue
        packed[out, X], packed[out, Y], packed[out, DEPTH] = centre_x, centre_y, depth
        packed[out, P], packed[out, Q], packed[out, R], packed[out, LOG_OPACITY] = p, q, r, log_opacity
        packed[out, RED], packed[out, GREEN], packed[out, BLUE] = max(_ZERO, red), max(_ZERO, green), max(_ZERO, blue)
        packed[out, EXTENT_X], packed[out, EXTENT_Y] = extent_x, extent_y
        rectangles[out, 0], rectangles[out, 1], rectangles[out, 2], rectangles[out, 3] = x0, y0, x1, y1
        for tile_y in range(y0, y1):
            for tile_x in range(x0, x1):
                counts[tile_y, tile_x] += 1
        out += 1
    return out - begin


@jit
def scatter(begin, count, first_row, last_row, packed, rectangles, ends, pairs):
    """List the splats of rows ``begin`` to ``begin + count`` under each of their tiles in the tile rows given.

    ``ends`` (tile rows, tile columns) int64 holds this thread's write position per tile and is advanced. A pair is
    (bits of the depth) << 32 | row, so that sorting pairs sorts by depth and keeps the order of splats among equals.
    """
    for i in range(begin, begin + count):
        key = (np.uint64(bits_of(packed[i, DEPTH])) << np.uint64(32)) | np.uint64(i)
        for tile_y in range(max(first_row, rectangles[i, 1]), min(last_row, rectangles[i, 3])):
            for tile_x in range(rectangles[i, 0], rectangles[i, 2]):
                position = ends[tile_y, tile_x]
                ends[tile_y, tile_x] = position + 1
                pairs[position] = key
