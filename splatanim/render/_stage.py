"""The Numba kernel behind :mod:`splatanim.render.stage`: rays against planes, layers sorted by depth."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

_MOST_LAYERS = 8


@njit(cache=True)
def _lookup(shadow, u, v):
    """Bilinear value at (u, v) in cells, zero outside."""
    n = shadow.shape[0]
    x, y = u - 0.5, v - 0.5
    i, j = int(np.floor(x)), int(np.floor(y))
    if i < 0 or j < 0 or i >= n - 1 or j >= n - 1:
        return 0.0
    fx, fy = x - i, y - j
    low = shadow[j, i] * (1 - fx) + shadow[j, i + 1] * fx
    high = shadow[j + 1, i] * (1 - fx) + shadow[j + 1, i + 1] * fx
    return low * (1 - fy) + high * fy


@njit(cache=True)
def _coverage(a, b, half, size, blur):
    """How opaque a plane is at its local point (a, b): soft rectangle edges, or a radial fade when infinite."""
    if np.isinf(half[0]):
        r = np.sqrt(a * a + b * b) / size
        return np.exp(-((r / 1.6) ** 2))
    edge_a = (half[0] - abs(a)) / blur + 0.5
    edge_b = (half[1] - abs(b)) / blur + 0.5
    return min(max(edge_a, 0.0), 1.0) * min(max(edge_b, 0.0), 1.0)


@njit(cache=True)
def _plane_layer(k, d, eye, lens_x, points, frames, halves, glass, shadows, look, layer):
    """Fill layer = (depth, alpha, brightness) of plane k along a ray; False when it is not seen."""
    n = frames[k, 2]
    facing = n[0] * d[0] + n[1] * d[1] + n[2] * d[2]
    if abs(facing) < 1e-9 or (facing > 0 and not glass[k]):
        return False
    p = points[k]
    t = (n[0] * (p[0] - eye[0]) + n[1] * (p[1] - eye[1]) + n[2] * (p[2] - eye[2])) / facing
    if t <= 0:
        return False
    a = b = 0.0
    for i in range(3):
        offset = eye[i] + t * d[i] - p[i]
        a += offset * frames[k, 0, i]
        b += offset * frames[k, 1, i]
    cover = _coverage(a, b, halves[k], look[0], t / lens_x)
    if cover <= 1e-4:
        return False
    layer[0] = t
    if glass[k]:
        layer[1], layer[2] = 0.22 * cover, 0.72
        return True
    n_cells = shadows.shape[1]
    u, v = (a / look[1] + 1.0) * (n_cells / 2), (b / look[1] + 1.0) * (n_cells / 2)
    tint = look[2] if np.isinf(halves[k, 0]) else 2.0 * look[2]
    layer[1], layer[2] = cover, (1.0 - tint) * (1.0 - look[3] * _lookup(shadows[k], u, v))
    return True


@njit(parallel=True, cache=True)
def compose_planes(
    rgb, alpha, depth, camera_axes, eye, lens, points, frames, halves, glass, shadows, look, background, out
):
    """Composite the splats (premultiplied, with expected depth) and the planes, front to back, over the background."""
    height, width = alpha.shape
    count = min(len(points), _MOST_LAYERS)
    for y in prange(height):
        layers = np.empty((_MOST_LAYERS, 3))
        used = np.empty(_MOST_LAYERS, np.bool_)
        d = np.empty(3)
        for x in range(width):
            cx, cy = (x + 0.5 - lens[2]) / lens[0], (y + 0.5 - lens[3]) / lens[1]
            for i in range(3):
                d[i] = camera_axes[i, 0] * cx + camera_axes[i, 1] * cy + camera_axes[i, 2]
            for k in range(count):
                used[k] = not _plane_layer(k, d, eye, lens[0], points, frames, halves, glass, shadows, look, layers[k])
            left, red, green, blue = 1.0, 0.0, 0.0, 0.0
            object_done = alpha[y, x] <= 0.0
            for _ in range(count + 1):
                nearest, z = -1, np.inf
                for k in range(count):
                    if not used[k] and layers[k, 0] < z:
                        nearest, z = k, layers[k, 0]
                if not object_done and (
                    nearest < 0 or depth[y, x] <= z + 0.02 * look[0] * (0 if glass[nearest] else 1)
                ):
                    red += left * rgb[y, x, 0]
                    green += left * rgb[y, x, 1]
                    blue += left * rgb[y, x, 2]
                    left *= 1.0 - alpha[y, x]
                    object_done = True
                elif nearest >= 0:
                    used[nearest] = True
                    weight = left * layers[nearest, 1]
                    red += weight * layers[nearest, 2] * background[0]
                    green += weight * layers[nearest, 2] * background[1]
                    blue += weight * layers[nearest, 2] * background[2]
                    left *= 1.0 - layers[nearest, 1]
            out[y, x, 0] = red + left * background[0]
            out[y, x, 1] = green + left * background[1]
            out[y, x, 2] = blue + left * background[2]
