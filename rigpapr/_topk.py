"""The compiled search of :mod:`rigpapr.topk`: points binned by projected position, read ring by ring around a pixel.

Everything is in float64: |v|^2 - (v.d)^2 in float32 picks other points on up to a tenth of the rays, and |v x d|^2 in
float64 costs no more here, where memory is what takes the time.
"""

from __future__ import annotations

import numpy as np

from splatanim.render._numba import jit

_SAFETY = 1e-6  # [px] by which borders count as nearer than they are, so that rounding cannot certify too much


@jit
def to_camera(points, pose, near, out, rows):
    """Camera-space coordinates of the points with z >= ``near``, and their rows. Returns how many they are."""
    count = 0
    for i in range(points.shape[0]):
        x, y, w = np.float64(points[i, 0]), np.float64(points[i, 1]), np.float64(points[i, 2])
        z = pose[2, 0] * x + pose[2, 1] * y + pose[2, 2] * w + pose[2, 3]
        if z >= near:  # false for NaN
            out[count, 0] = pose[0, 0] * x + pose[0, 1] * y + pose[0, 2] * w + pose[0, 3]
            out[count, 1] = pose[1, 0] * x + pose[1, 1] * y + pose[1, 2] * w + pose[1, 3]
            out[count, 2] = z
            rows[count] = i
            count += 1
    return count


@jit
def _cell_of(offset, cell, count):
    """The cell along one axis; the first and last reach to infinity."""
    return int(min(max(np.floor(offset / cell), 0.0), count - 1.0))


@jit
def fill_cells(x, y, low_x, low_y, cell, columns, rows, cells, starts):
    """Counting sort by cell: ``starts`` (cells + 1,) and, in ``cells``, the points in order of their cells."""
    count = x.shape[0]
    home = np.empty(count, np.int32)
    starts[:] = 0
    for i in range(count):
        ix = _cell_of(x[i] - low_x, cell, columns)
        iy = _cell_of(y[i] - low_y, cell, rows)
        home[i] = iy * columns + ix
        starts[home[i] + 1] += 1
    for c in range(columns * rows):
        starts[c + 1] += starts[c]
    place = starts[:-1].copy()
    for i in range(count):
        cells[place[home[i]]] = i
        place[home[i]] += 1


@jit
def _insert(squared, index, k, distances, chosen, found):
    """Put a point into the sorted list of at most k; ties by lower index. Returns the list's new length."""
    m = found if found < k else k - 1
    while m > 0 and (distances[m - 1] > squared or (distances[m - 1] == squared and chosen[m - 1] > index)):
        distances[m] = distances[m - 1]
        chosen[m] = chosen[m - 1]
        m -= 1
    distances[m] = squared
    chosen[m] = index
    return found + 1 if found < k else found


@jit
def _read(points, first, last, a, b, c, k, distances, chosen, found):
    """Offer rows [first, last) of ``points`` to the list of the k nearest to the ray (a, b, c): |v x d|^2."""
    worst = distances[k - 1] if found == k else np.inf
    for j in range(first, last):
        x, y, z = points[j, 0], points[j, 1], points[j, 2]
        s0 = y * c - z * b
        s1 = z * a - x * c
        s2 = x * b - y * a
        squared = s0 * s0 + s1 * s1 + s2 * s2
        if squared <= worst:
            index = np.int32(points[j, 3])
            if found < k or squared < worst or index < chosen[k - 1]:
                found = _insert(squared, index, k, distances, chosen, found)
                if found == k:
                    worst = distances[k - 1]
    return found


@jit
def search(first, last, pixels, lens, grid, shape, starts, sorted_points, close, k, out, out_distance):
    """The k nearest of every ray in [first, last): ``out`` (R, k) rows or -1, ``out_distance`` (R, k) or infinity.

    ``lens`` fx, fy, cx, cy; ``grid`` low x, low y, cell [px], least z of the binned points; ``shape`` columns, rows;
    ``sorted_points`` (n, 4): x, y, z and row, by cell; ``close`` (m, 4): points tried for every ray.
    """
    fx, fy, cx, cy = lens[0], lens[1], lens[2], lens[3]
    low_x, low_y, cell, nearest = grid[0], grid[1], grid[2], grid[3]
    columns, rows = shape[0], shape[1]
    most = max(columns, rows)
    distances = np.empty(k, np.float64)
    chosen = np.empty(k, np.int32)
    for r in range(first, last):
        u, v = np.float64(pixels[r, 0]), np.float64(pixels[r, 1])
        a, b, c = (u - cx) / fx, (v - cy) / fy, 1.0
        length = np.sqrt(a * a + b * b + 1.0)
        a, b, c = a / length, b / length, c / length
        found = 0
        found = _read(close, 0, close.shape[0], a, b, c, k, distances, chosen, found)
        ix = _cell_of(u - low_x, cell, columns)
        iy = _cell_of(v - low_y, cell, rows)
        for ring in range(most):
            # With x/z and y/z off by gx and gy, a point's distance from the ray is at least z max(|gx|, |gy|) / length:
            # once k are found, only points projected into a window around the pixel can be nearer.
            first_x, last_x, first_y, last_y = 0, columns - 1, 0, rows - 1
            if found == k:
                half = np.sqrt(distances[k - 1]) * length / nearest
                across, down = half * fx + _SAFETY, half * fy + _SAFETY
                first_x = _cell_of(u - across - low_x, cell, columns)
                last_x = _cell_of(u + across - low_x, cell, columns)
                first_y = _cell_of(v - down - low_y, cell, rows)
                last_y = _cell_of(v + down - low_y, cell, rows)
                if first_x > ix - ring and last_x < ix + ring and first_y > iy - ring and last_y < iy + ring:
                    break
            left, right, top, bottom = ix - ring, ix + ring, iy - ring, iy + ring
            for yy in range(max(top, first_y), min(bottom, last_y) + 1):
                row = yy * columns
                if yy == top or yy == bottom:  # the cells of a row lie one behind the other
                    begin, end = max(left, first_x), min(right, last_x) + 1
                    if begin < end:
                        begin, end = starts[row + begin], starts[row + end]
                        found = _read(sorted_points, begin, end, a, b, c, k, distances, chosen, found)
                    continue
                for xx in range(left, right + 1, 2 * ring):
                    if first_x <= xx <= last_x:
                        begin, end = starts[row + xx], starts[row + xx + 1]
                        found = _read(sorted_points, begin, end, a, b, c, k, distances, chosen, found)
        for m in range(k):
            out[r, m] = chosen[m] if m < found else -1
            out_distance[r, m] = np.sqrt(distances[m]) if m < found else np.inf
