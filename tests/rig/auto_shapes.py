"""Bodies made of capsules, as voxels and as surface points, for the tests of the auto-rigger."""

from __future__ import annotations

import itertools

import numpy as np

from splatanim.data import Domain, Frame

UNIT = Frame((0.0, 0.0, 0.0), 1.0, (0.0, 1.0, 0.0))

#: A body along z with a neck, a tail and four legs, mirrored in x = 0: (end, end, radius) of each part.
CREATURE = [
    ((0, 0.1, -0.2), (0, 0.1, 0.2), 0.09),
    ((0, 0.1, 0.2), (0, 0.3, 0.45), 0.05),
    ((0, 0.1, -0.2), (0, 0.2, -0.48), 0.035),
    ((0.06, 0.06, 0.2), (0.08, -0.35, 0.22), 0.035),
    ((-0.06, 0.06, 0.2), (-0.08, -0.35, 0.22), 0.035),
    ((0.06, 0.06, -0.2), (0.08, -0.35, -0.22), 0.035),
    ((-0.06, 0.06, -0.2), (-0.08, -0.35, -0.22), 0.035),
]
SPACING = 1 / 60


def distance(points: np.ndarray, parts: list) -> np.ndarray:
    """Signed distance to the union of capsules."""
    out = np.full(len(points), np.inf)
    for a, b, radius in parts:
        a, b = np.array(a, float), np.array(b, float)
        share = np.clip((points - a) @ (b - a) / max(float((b - a) @ (b - a)), 1e-12), 0, 1)
        out = np.minimum(out, np.linalg.norm(points - a - share[:, None] * (b - a), axis=1) - radius)
    return out


def capsule_domain(parts: list, spacing: float = SPACING) -> Domain:
    """The cells with their centres in one of the parts; x = 0 lies between two layers of cells."""
    count = int(np.ceil(0.65 / spacing))
    cells = np.stack(np.meshgrid(*(np.arange(2 * count),) * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    origin = np.full(3, -count * spacing)
    return Domain(cells[distance(origin + (cells + 0.5) * spacing, parts) < 0], origin, spacing)


def tube_domain(curve: np.ndarray, radius: float, spacing: float = SPACING) -> Domain:
    """A tube around a polyline."""
    pieces = [(a, b, radius) for a, b in itertools.pairwise(curve)]
    return capsule_domain(pieces, spacing)


def surface_points(parts: list, count: int = 6000, seed: int = 0) -> np.ndarray:
    """Points on the surface of the union, about evenly."""
    rng = np.random.default_rng(seed)
    out = []
    for a, b, radius in parts:
        a, b = np.array(a, float), np.array(b, float)
        length = float(np.linalg.norm(b - a))
        n = int(40 * count * radius * (length + 2 * radius)) + 50
        way = rng.normal(size=(n, 3))
        way /= np.linalg.norm(way, axis=1, keepdims=True)
        axis = (b - a) / max(length, 1e-12)
        along = rng.uniform(-radius, length + radius, n)
        flat = way - (way @ axis)[:, None] * axis
        flat /= np.linalg.norm(flat, axis=1, keepdims=True)
        over = np.where(along < 0, along, np.maximum(along - length, 0))
        ring = np.sqrt(np.maximum(radius**2 - over**2, 0))[:, None]
        out.append(a + along[:, None] * axis + ring * flat)
    points = np.concatenate(out)
    points = points[np.abs(distance(points, parts)) < 1e-6]
    return points[rng.permutation(len(points))[:count]]
