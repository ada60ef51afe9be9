"""Bodies that the tests of full-space dynamics share."""

from __future__ import annotations

import itertools

import numpy as np

from pipelines.fem import Solid, tetrahedral_solid


def box_of_tetrahedra(cells: tuple[int, int, int], spacing: float) -> Solid:
    """A box from the origin on, six tetrahedra a cube around its long diagonal (Kuhn)."""
    n = np.array(cells)
    number = np.arange(np.prod(n + 1)).reshape(n + 1)
    nodes = np.stack(np.meshgrid(*(np.arange(k + 1) for k in n), indexing="ij"), -1).reshape(-1, 3) * spacing
    corner = np.stack(
        [number[i : i + n[0], j : j + n[1], k : k + n[2]].ravel() for i, j, k in itertools.product((0, 1), repeat=3)],
        axis=1,
    )
    parts = [corner[:, [0, a, a + b, 7]] for a, b, _ in itertools.permutations((4, 2, 1))]
    return tetrahedral_solid(nodes, np.concatenate(parts))


def lattice(cells: tuple[int, int, int], spacing: float) -> np.ndarray:
    """Points in the middle of the cells of a box that starts at the origin."""
    grid = np.stack(np.meshgrid(*(np.arange(k) for k in cells), indexing="ij"), -1).reshape(-1, 3)
    return (grid + 0.5) * spacing
