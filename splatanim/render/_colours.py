"""The kernel behind :mod:`splatanim.render.colours`: harmonics in the directions that splats are seen from."""

from __future__ import annotations

import numpy as np

from splatanim.render._numba import inlined, jit
from splatanim.render._project import _colour

# Compiled with _numba.py ec45d506ba1a.
# Compiled with _project.py 091d63dd5ab5.

_Y0 = np.float32(0.28209479177387814)


@inlined
def _polar_step(x, y):
    """Higham's iteration Y = (X + X^-T) / 2; the largest change, infinite where X cannot be inverted."""
    y[0, 0] = x[1, 1] * x[2, 2] - x[1, 2] * x[2, 1]
    y[0, 1] = x[1, 2] * x[2, 0] - x[1, 0] * x[2, 2]
    y[0, 2] = x[1, 0] * x[2, 1] - x[1, 1] * x[2, 0]
    y[1, 0] = x[2, 1] * x[0, 2] - x[2, 2] * x[0, 1]
    y[1, 1] = x[2, 2] * x[0, 0] - x[2, 0] * x[0, 2]
    y[1, 2] = x[2, 0] * x[0, 1] - x[2, 1] * x[0, 0]
    y[2, 0] = x[0, 1] * x[1, 2] - x[0, 2] * x[1, 1]
    y[2, 1] = x[0, 2] * x[1, 0] - x[0, 0] * x[1, 2]
    y[2, 2] = x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]
    h = 0.5 / (x[0, 0] * y[0, 0] + x[0, 1] * y[0, 1] + x[0, 2] * y[0, 2])
    change = 0.0
    for r in range(3):
        for c in range(3):
            new = 0.5 * x[r, c] + h * y[r, c]
            change = max(change, abs(new - x[r, c]))
            x[r, c] = new
    return change


@jit
def turned_colours(gradients, means, sh, eye, out, hard):
    """Constant harmonics ``out`` (N, 1, 3) that show what ``sh`` (N, K, 3), turned by the rotation nearest to F, shows
    from ``eye``: instead of the harmonics the direction is turned, d -> R^T d.

    ``hard`` (N,) is set where F is (nearly) singular or turns space over: those splats are left to the caller.
    """
    degree = int(np.sqrt(sh.shape[1])) - 1
    x, y = np.empty((3, 3)), np.empty((3, 3))
    for i in range(len(means)):
        square = 0.0
        for r in range(3):
            for c in range(3):
                x[r, c] = gradients[i, r, c]
                square += x[r, c] * x[r, c]
        volume = x[0, 0] * (x[1, 1] * x[2, 2] - x[1, 2] * x[2, 1]) - x[0, 1] * (x[1, 0] * x[2, 2] - x[1, 2] * x[2, 0])
        volume += x[0, 2] * (x[1, 0] * x[2, 1] - x[1, 1] * x[2, 0])
        hard[i] = not volume > 1e-3 * (square / 3.0) ** 1.5
        if hard[i]:
            continue
        for _ in range(20):
            if _polar_step(x, y) < 1e-4:
                break
        dx, dy, dz = means[i, 0] - eye[0], means[i, 1] - eye[1], means[i, 2] - eye[2]
        scale = 1.0 / np.sqrt(dx * dx + dy * dy + dz * dz)
        u = np.float32(scale * (x[0, 0] * dx + x[1, 0] * dy + x[2, 0] * dz))
        v = np.float32(scale * (x[0, 1] * dx + x[1, 1] * dy + x[2, 1] * dz))
        w = np.float32(scale * (x[0, 2] * dx + x[1, 2] * dy + x[2, 2] * dz))
        red, green, blue = _colour(sh, i, degree, u, v, w)
        out[i, 0, 0] = (red - np.float32(0.5)) / _Y0
        out[i, 0, 1] = (green - np.float32(0.5)) / _Y0
        out[i, 0, 2] = (blue - np.float32(0.5)) / _Y0
