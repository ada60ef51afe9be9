"""Compiled part of the mesh rasteriser: every triangle onto every sample of an image, nearest first.

Triangles are not projected but held against rays (homogeneous rasterisation, Olano and Greer 1997). With camera-space
corners v_0, v_1, v_2 and the ray r = ((x - cx) / fx, (y - cy) / fy, 1) of a sample,

    e_0 = r . (v_1 x v_2),  e_1 = r . (v_2 x v_0),  e_2 = r . (v_0 x v_1)

all have one sign where the ray's line meets the triangle, e_i / (e_0 + e_1 + e_2) are the barycentric coordinates *on
the triangle* (perspective is in them), and the z-depth is det(v_0, v_1, v_2) / (e_0 + e_1 + e_2). Nothing needs to be
clipped: a part behind the camera just gets a negative depth.

Two triangles at one edge compute the same e with opposite signs, to the last bit, as long as the compiler neither
reorders nor fuses; so no fast-math here, and a sample on an edge belongs to both: no gaps. At a common corner the signs
of several edges are all rounding, so triangles reach 1e-10 of their own size beyond their edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled in strict IEEE arithmetic, cached on disk where a folder can be written."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba finds no writable cache folder: compile in every process instead
        return njit(nogil=True)(function)


_REACH = 1e-10


@_jit
def _span(low, high, count):
    """First and one past the last of ``count`` samples whose centres (at k + 1/2) may lie in [low, high].

    One sample wider on each side than the exact answer: the edge functions decide.
    """
    first = max(0.0, np.floor(low - 1.5))
    last = min(float(count), np.ceil(high + 1.5))
    if not first < last:
        return 0, 0
    return int(first), int(last)


@_jit
def raster_triangles(corners, lens, near, beyond, face, barycentric, depth):
    """Keep the nearest hit of every sample.

    ``corners`` (f, 3, 3) in camera axes; ``lens`` fx, fy, cx, cy in samples; hits nearer than ``near``, or not farther
    than ``beyond`` (h, w), do not count. ``face`` (h, w) comes filled with -1 and ``depth`` with infinity. Of two
    triangles at one depth the first stays.
    """
    height, width = face.shape
    fx, fy, cx, cy = lens
    for f in range(len(corners)):
        a, b, c = corners[f, 0], corners[f, 1], corners[f, 2]
        nearest, farthest = min(a[2], b[2], c[2]), max(a[2], b[2], c[2])
        if not farthest > near:
            continue
        left, right, top, bottom = 0, width, 0, height
        if nearest > near:  # else it may reach anywhere
            xa, xb, xc = fx * a[0] / a[2] + cx, fx * b[0] / b[2] + cx, fx * c[0] / c[2] + cx
            ya, yb, yc = fy * a[1] / a[2] + cy, fy * b[1] / b[2] + cy, fy * c[1] / c[2] + cy
            left, right = _span(min(xa, xb, xc), max(xa, xb, xc), width)
            top, bottom = _span(min(ya, yb, yc), max(ya, yb, yc), height)
        bcx, bcy, bcz = b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]
        cax, cay, caz = c[1] * a[2] - c[2] * a[1], c[2] * a[0] - c[0] * a[2], c[0] * a[1] - c[1] * a[0]
        abx, aby, abz = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
        volume = a[0] * bcx + a[1] * bcy + a[2] * bcz
        for row in range(top, bottom):
            y = (row + 0.5 - cy) / fy
            for column in range(left, right):
                x = (column + 0.5 - cx) / fx
                e0 = x * bcx + y * bcy + bcz
                e1 = x * cax + y * cay + caz
                e2 = x * abx + y * aby + abz
                total = e0 + e1 + e2
                if total > 0:
                    outside = min(e0, e1, e2) < -_REACH * total
                else:
                    outside = max(e0, e1, e2) > -_REACH * total or total == 0.0
                if outside:
                    continue
                z = volume / total
                if near < z < depth[row, column] and z > beyond[row, column]:
                    depth[row, column] = z
                    face[row, column] = f
                    barycentric[row, column, 0] = e0 / total
                    barycentric[row, column, 1] = e1 / total
                    barycentric[row, column, 2] = e2 / total
