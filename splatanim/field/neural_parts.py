"""Loose parts of an object: which one a point belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import ndimage

from splatanim.data import Domain

MOST = 32  # parts told apart


@dataclass(frozen=True)
class Parts:
    """The large connected parts of a domain; a point belongs to that of its nearest voxel.

    Piecewise constant, so its derivative is zero wherever there is object.
    """

    count: int
    labels: Int[np.ndarray, " v"]
    tree: Any  # scipy's cKDTree of the voxel centres, None where there is one part only

    def of(self, points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, " n"]:
        if self.tree is None:
            return np.zeros(len(points), np.int64)
        return self.labels[self.tree.query(np.asarray(points, np.float64))[1]]


def parts_of(domain: Domain, share: float = 0.005) -> Parts:
    """Parts connected through voxel faces that hold at least ``share`` of the voxels; crumbs join the nearest one.

    A crumb with modes of its own would take handles away from the object.
    """
    from scipy.spatial import cKDTree

    cells = domain.cells - domain.cells.min(axis=0)
    grid = np.zeros(cells.max(axis=0) + 1, bool)
    grid[tuple(cells.T)] = True
    labels = ndimage.label(grid)[0][tuple(cells.T)]
    sizes = np.bincount(labels)
    sizes[0] = 0
    large = np.flatnonzero(sizes >= max(share * len(cells), 1))
    large = large[np.argsort(-sizes[large], kind="stable")][:MOST]
    if len(large) <= 1:
        return Parts(1, np.zeros(len(cells), np.int64), None)
    number = np.full(len(sizes), -1)
    number[large] = np.arange(len(large))
    kept = number[labels] >= 0
    tree = cKDTree(domain.centres[kept])
    return Parts(len(large), number[labels[kept]], tree)
