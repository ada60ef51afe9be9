"""Signed distance functions, vectorised: negative inside, about one unit of value per unit of length near zero.

Every function takes points (n, 3) in the model frame (y up, front towards +z) and gives values (n,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.spatial import cKDTree

Points = Float64[np.ndarray, "_ 3"]
Values = Float64[np.ndarray, " n"]
Vector = Sequence[float] | Float64[np.ndarray, " 3"]


def ellipsoid(points: Points, centre: Vector, radii: Vector, axes: Float64[np.ndarray, "3 3"] | None = None) -> Values:
    """An ellipsoid, first-order distance; ``axes`` holds its principal axes as columns (default: the coordinates)."""
    local = points - np.asarray(centre)
    if axes is not None:
        local = local @ axes
    scaled = local / np.asarray(radii)
    inner = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))
    scaled = scaled / np.asarray(radii)
    outer = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))
    return inner * (inner - 1) / np.maximum(outer, 1e-12)


def cone(points: Points, start: Vector, end: Vector, start_radius: float, end_radius: float) -> Values:
    """A capsule whose radius runs linearly from one end to the other."""
    along = np.asarray(end) - np.asarray(start)
    local = points - np.asarray(start)
    t = np.clip(local @ along / (along @ along), 0, 1)
    x, y, z = (local - t[:, None] * along).T
    return np.sqrt(x * x + y * y + z * z) - (start_radius + (end_radius - start_radius) * t)


def tubes(paths: Sequence[Float64[np.ndarray, "k 3"]], radii: Values, far: float = 0.15) -> Callable[[Points], Values]:
    """Capsules along polylines with a radius at each of their points; the value is at most ``far``.

    The polyline segment to measure from is found by the nearest of many points on the polylines; its neighbours
    count too, so that the joints are right.
    """
    start, end = np.concatenate([p[:-1] for p in paths]), np.concatenate([p[1:] for p in paths])
    r0, r1 = np.tile(radii[:-1], len(paths)), np.tile(radii[1:], len(paths))
    share = (np.arange(3) + 0.5)[:, None] / 3
    tree = cKDTree((start[:, None] + share * (end - start)[:, None]).reshape(-1, 3))
    each = len(radii) - 1

    def sdf(points: Points) -> Values:
        value = np.full(len(points), far)
        distance, nearest = tree.query(points, distance_upper_bound=far + radii.max())
        rows = np.flatnonzero(distance < np.inf)
        segment = nearest[rows] // 3
        for step in (-1, 0, 1):
            s = np.clip(segment + step, segment // each * each, segment // each * each + each - 1)
            along = end[s] - start[s]
            local = points[rows] - start[s]
            t = np.einsum("nd,nd->n", local, along) / np.einsum("nd,nd->n", along, along)
            t = np.clip(t, 0, 1)
            local = local - t[:, None] * along
            near = np.sqrt(np.einsum("nd,nd->n", local, local)) - (r0[s] + (r1[s] - r0[s]) * t)
            value[rows] = np.minimum(value[rows], near)
        return value

    return sdf


def ring(points: Points, centre: Vector, major: float, minor: float) -> Values:
    """A torus about the vertical through ``centre``."""
    x, y, z = (points - np.asarray(centre)).T
    return np.hypot(np.hypot(x, z) - major, y) - minor


def smooth_min(a: Values, b: Values, width: float) -> Values:
    """The union of two shapes with a fillet of about ``width`` (polynomial smooth minimum)."""
    if width <= 0:
        return np.minimum(a, b)
    h = np.maximum(width - np.abs(a - b), 0) / width
    return np.minimum(a, b) - 0.25 * width * h * h


def smooth_max(a: Values, b: Values, width: float) -> Values:
    """The intersection of two shapes with a rounded edge."""
    return -smooth_min(-a, -b, width)


def gradient(sdf: Callable[[Points], Values], points: Points, step: float = 1e-4) -> Points:
    """Central differences of a distance function."""
    columns = []
    for axis in range(3):
        move = np.zeros(3)
        move[axis] = step
        columns.append((sdf(points + move) - sdf(points - move)) / (2 * step))
    return np.stack(columns, axis=1)


def unit(vectors: Points) -> Points:
    """Rows scaled to length one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def noise(points: Points, rng: np.random.Generator, scale: float, waves: int = 6) -> Values:
    """Smooth noise in about [-1, 1] with features of size ``scale``: a few plane waves in random directions."""
    directions = unit(rng.normal(size=(waves, 3))) * rng.uniform(0.6, 1.6, (waves, 1)) * (2 * np.pi / scale)
    phases = rng.uniform(0, 2 * np.pi, waves)
    return np.sin(points @ directions.T + phases).sum(axis=1) / waves**0.5 / 1.2
