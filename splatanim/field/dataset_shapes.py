"""Generated training shapes as occupancy grids: trees of capsules, boxes and tori."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64


def occupancy(rng: np.random.Generator, grid: int) -> Bool[np.ndarray, "g g g"]:
    """A random shape on a ``grid``-cubed grid over [-1.1, 1.1]^3; half of them are trees of capsules."""
    axis = (np.arange(grid) + 0.5) * (2.2 / grid) - 1.1
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    kind = rng.choice(["tree", "tree", "box", "torus"])
    if kind == "box":
        return (np.abs(points) <= rng.uniform(0.12, 1.0, 3)).all(axis=-1)
    if kind == "torus":
        return _torus(points, rng.uniform(0.45, 0.75), rng.uniform(0.1, 0.3))
    return _tree(points, rng)


def _torus(points: Float64[np.ndarray, "g g g 3"], radius: float, thickness: float) -> np.ndarray:
    ring = np.hypot(points[..., 0], points[..., 1]) - radius
    return np.hypot(ring, points[..., 2]) <= thickness


def _tree(points: Float64[np.ndarray, "g g g 3"], rng: np.random.Generator) -> np.ndarray:
    """Capsules that each start on an earlier one, like trunk and limbs."""
    start, end = rng.uniform(-0.5, 0.5, (2, 3))
    bones = [(start, end, rng.uniform(0.12, 0.3))]
    for _ in range(rng.integers(2, 8)):
        a, b, radius = bones[rng.integers(len(bones))]
        root = a + rng.choice([0.0, 0.5, 1.0]) * (b - a)
        direction = rng.normal(size=3)
        tip = np.clip(root + rng.uniform(0.4, 1.1) * direction / np.linalg.norm(direction), -0.85, 0.85)
        bones.append((root, tip, max(radius * rng.uniform(0.5, 0.9), 0.07)))
    filled = np.zeros(points.shape[:3], bool)
    for a, b, radius in bones:
        along = b - a
        t = np.clip((points - a) @ along / max(float(along @ along), 1e-9), 0.0, 1.0)
        filled |= ((points - a - t[..., None] * along) ** 2).sum(axis=-1) <= radius**2
    return filled
