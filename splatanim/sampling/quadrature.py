"""Integration points inside a voxel domain whose sums are exact up to second moments.

Elastic energies of bending and twisting grow with the square of the distance from a part's middle. A point at the
centroid of a cluster of voxels sees none of that where a part is one cluster thick: wings, ears and blades would bend
for nothing. So every cluster gets four points, placed like the corners of a regular tetrahedron in the metric of its
covariance: equal weights then reproduce its volume, its centroid and all its second moments, with no more points.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int
from scipy.spatial import cKDTree

from splatanim.data import Domain

_CORNERS = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])  # mean 0, covariance 1
_TURNS = 24  # tetrahedra that are tried where a corner leaves the object
_INNER = 0.49  # voxels from a voxel's middle, how far towards its border a corner that had to move may lie
_LIGHTEST = 0.2  # of a quarter of the cluster, below which a weight is not made smaller to keep the centroid


def spread(domain: Domain, count: int) -> tuple[Float64[np.ndarray, "q 3"], Float64[np.ndarray, " q"]]:
    """At most ``count`` integration points over the domain's voxels, and their volumes, which sum to the domain's.

    Voxels are clustered by Lloyd's iteration from an even start along a space-filling curve, and each cluster gets
    four points (one, at its centroid, where ``count`` is below four). Sums over the points are exact for quadratic
    functions over every cluster, voxels taken as cubes, save where a cluster is so bent that no tetrahedron tried
    fits inside the object: corners outside then move to the nearest voxel, and weights keep the centroid if they can.
    """
    if count < 4:
        sites, size, owner = clusters(domain, count)
        corners = sites[:, None, :]
    else:
        sites, size, owner = clusters(domain, count // 4)
        corners = _tetrahedra(domain, sites, size, owner)
    points, moved = _moved_inside(domain, corners)
    weights = np.full(points.shape[:2], 1.0 / points.shape[1])
    if count >= 4:
        weights[moved] = _balanced(points[moved], sites[moved])
    volumes = (weights * size[:, None]).ravel() * domain.spacing**3
    return domain.origin + points.reshape(-1, 3) * domain.spacing, volumes


def clusters(
    domain: Domain, count: int
) -> tuple[Float64[np.ndarray, "c 3"], Int[np.ndarray, " c"], Int[np.ndarray, " v"]]:
    """At most ``count`` compact clusters of voxels: centroids [voxels], sizes, and the cluster of every voxel."""
    cells = domain.cells.astype(np.float64) + 0.5
    order = np.argsort(_morton(domain.cells), kind="stable")
    picks = order[np.linspace(0, len(cells) - 1, min(count, len(cells))).round().astype(np.int64)]
    sites = cells[np.unique(picks)]
    for _ in range(6):
        _, owner = np.unique(cKDTree(sites).query(cells)[1], return_inverse=True)
        size = np.bincount(owner)
        sites = np.stack([np.bincount(owner, column) for column in cells.T], axis=1) / size[:, None]
    return sites, size, owner


def _tetrahedra(domain: Domain, sites: np.ndarray, size: np.ndarray, owner: np.ndarray) -> Float64[np.ndarray, "c 4 3"]:
    """Corners [voxels] with each cluster's centroid and covariance; turned until they lie inside, if they can."""
    away = domain.cells + 0.5 - sites[owner]
    covariance = np.empty((len(sites), 3, 3))
    for i in range(3):
        for j in range(3):
            covariance[:, i, j] = np.bincount(owner, away[:, i] * away[:, j]) / size
    values, axes = np.linalg.eigh(covariance + np.eye(3) / 12.0)  # that of a voxel about its own middle included
    root = axes * np.sqrt(values)[:, None, :]
    best = sites[:, None, :] + _CORNERS @ root.transpose(0, 2, 1)
    lookup = _occupancy(domain)
    out = (~_inside(lookup, domain, best)).sum(axis=1)
    for turn in _turns():
        rows = np.flatnonzero(out)
        trial = sites[rows, None, :] + (_CORNERS @ turn.T) @ root[rows].transpose(0, 2, 1)
        left = (~_inside(lookup, domain, trial)).sum(axis=1)
        better = left < out[rows]
        best[rows[better]], out[rows[better]] = trial[better], left[better]
    return best


def _turns() -> Float64[np.ndarray, "t 3 3"]:
    """Reproducible rotations of a tetrahedron: the opposite one first, then evenly random ones."""
    from scipy.spatial.transform import Rotation

    return np.concatenate([-np.eye(3)[None], Rotation.random(_TURNS - 1, random_state=0).as_matrix()])


def _occupancy(domain: Domain) -> np.ndarray:
    """The domain as a boolean grid with an empty border, cell c at index c - min + 1."""
    cells = domain.cells - domain.cells.min(axis=0) + 1
    grid = np.zeros(cells.max(axis=0) + 2, bool)
    grid[tuple(cells.T)] = True
    return grid


def _inside(grid: np.ndarray, domain: Domain, points: np.ndarray) -> np.ndarray:
    """Which points [voxels] (..., 3) lie in a voxel of the domain."""
    index = np.floor(points).astype(np.int64) - domain.cells.min(axis=0) + 1
    return grid[tuple(np.moveaxis(np.clip(index, 0, np.array(grid.shape) - 1), -1, 0))]


def _moved_inside(domain: Domain, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (c, k, 3) with those outside moved into the voxel nearest to them; in which clusters that happened."""
    outside = ~_inside(_occupancy(domain), domain, points)
    if not outside.any():
        return points, np.zeros(len(points), bool)
    centres = domain.cells + 0.5
    nearest = centres[cKDTree(centres).query(points[outside])[1]]
    moved = points.copy()
    moved[outside] = nearest + np.clip(points[outside] - nearest, -_INNER, _INNER)
    return moved, np.asarray(outside.any(axis=1))


def _balanced(corners: Float64[np.ndarray, "c 4 3"], sites: Float64[np.ndarray, "c 3"]) -> Float64[np.ndarray, "c 4"]:
    """Weights, summing to 1, that put each cluster's centroid back where it was; even ones where some would vanish."""
    rows = np.concatenate([corners, np.ones((*corners.shape[:2], 1))], axis=2).transpose(0, 2, 1)
    right = np.concatenate([sites, np.ones((len(sites), 1))], axis=1)
    weights = np.full((len(sites), 4), 0.25)
    solvable = np.abs(np.linalg.det(rows)) > 1e-6
    found = np.linalg.solve(rows[solvable], right[solvable][:, :, None])[:, :, 0]
    good = found.min(axis=1, initial=1.0) >= 0.25 * _LIGHTEST
    weights[np.flatnonzero(solvable)[good]] = found[good]
    return weights


def _morton(cells: Int[np.ndarray, "v 3"]) -> Int[np.ndarray, " v"]:
    """Position along the Z-order curve."""
    code = np.zeros(len(cells), np.int64)
    shifted = (cells - cells.min(axis=0)).astype(np.int64)
    for bit in range(12):
        for axis in range(3):
            code |= ((shifted[:, axis] >> bit) & 1) << (3 * bit + axis)
    return code
