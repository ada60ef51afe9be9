"""The inside of an object as a graph of voxels: what the auto-rigger measures distances in.

Lengths are in simulator units (the object's longest side is 1). Neighbouring cells share a face, an edge or a corner,
the latter two only where a path over faces leads from one to the other, so that limbs which touch at an edge of the
grid stay apart.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64
from scipy import ndimage, sparse
from scipy.sparse import csgraph

from splatanim.data import Cubature, Domain, Frame, Splats
from splatanim.errors import InputError
from splatanim.sampling.voxels import MARGIN, tie_parts

FEWEST_POINTS = 8

_OFFSETS = [o for o in itertools.product((-1, 0, 1), repeat=3) if o > (0, 0, 0)]  # one of each pair of opposite ones


@dataclass(frozen=True)
class VoxelGraph:
    """Occupied cells, all connected. ``depth`` (v,) is the distance from a cell's centre to the outside."""

    cells: Int64[np.ndarray, "v 3"]
    origin: Float64[np.ndarray, " 3"]
    spacing: float
    depth: Float64[np.ndarray, " v"]
    edges: Int64[np.ndarray, "e 2"]
    lengths: Float64[np.ndarray, " e"]

    def __len__(self) -> int:
        return len(self.cells)

    @functools.cached_property
    def centres(self) -> Float64[np.ndarray, "v 3"]:
        return self.origin + (self.cells + 0.5) * self.spacing

    def matrix(self, weights: Float64[np.ndarray, " e"]) -> sparse.csr_matrix:
        """The symmetric matrix with one weight an edge."""
        i, j = self.edges.T
        upper = sparse.coo_matrix((weights, (i, j)), (len(self),) * 2)
        return (upper + upper.T).tocsr()

    def distances(self, cell: int) -> Float64[np.ndarray, " v"]:
        """Geodesic distances from one cell, inside the object."""
        return csgraph.dijkstra(self.matrix(self.lengths), directed=False, indices=cell)


def voxel_graph(domain: Domain) -> VoxelGraph:
    """The graph of a domain. Loose parts are tied by struts; of a cloud of more than 32 parts the largest is taken."""
    low = domain.cells.min(axis=0) - MARGIN
    shape = tuple(domain.cells.max(axis=0) - low + 1 + MARGIN)
    filled = np.zeros(shape, bool)
    filled[tuple((domain.cells - low).T)] = True
    filled, _ = tie_parts(filled)
    labels, count = ndimage.label(filled)
    if count > 1:
        filled = labels == 1 + int(np.bincount(labels.ravel())[1:].argmax())
    depth = (ndimage.distance_transform_edt(filled) - 0.5) * domain.spacing
    cells = np.argwhere(filled)
    edges, steps = _edges(filled)
    origin = domain.origin + low * domain.spacing
    return VoxelGraph(cells, origin, domain.spacing, depth[filled], edges, steps * domain.spacing)


def _edges(filled: Bool[np.ndarray, "x y z"]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbours and their distances in cells; the grid's border is empty."""
    index = np.full(filled.shape, -1, np.int64)
    index[filled] = np.arange(int(filled.sum()))
    pairs, lengths = [], []
    for offset in _OFFSETS:
        both = filled & np.roll(filled, [-o for o in offset], (0, 1, 2))
        if np.count_nonzero(offset) > 1:
            both &= _passable(filled, offset)
        here = np.argwhere(both)
        pairs.append(np.stack([index[tuple(here.T)], index[tuple((here + offset).T)]], axis=1))
        lengths.append(np.full(len(here), float(np.linalg.norm(offset))))
    return np.concatenate(pairs), np.concatenate(lengths)


def _passable(filled: np.ndarray, offset: tuple[int, ...]) -> np.ndarray:
    """Where steps along single axes lead from a cell to its diagonal neighbour through filled cells."""
    axes = [k for k in range(3) if offset[k]]
    out = np.zeros_like(filled)
    for order in itertools.permutations(axes):
        way = np.ones_like(filled)
        at = [0, 0, 0]
        for axis in order[:-1]:
            at[axis] = offset[axis]
            way &= np.roll(filled, [-a for a in at], (0, 1, 2))
        out |= way
    return out


def domain_of_points(points: Float[np.ndarray, "n 3"], *, seed: int = 0) -> tuple[Domain, Frame]:
    """The inside of a cloud of surface points (any units), and the similarity to simulator units.

    Points count as small round splats, as large as half the distance to their neighbours. Raises :class:`InputError`
    for fewer than 8 points, points that are not finite, and points that all lie at one place.
    """
    from scipy.spatial import cKDTree

    from splatanim.sampling.cubature import cubature_from_splats

    points = np.asarray(points, np.float64)
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points)).any(axis=1).sum())
        raise InputError(f"auto_rig: {bad} of {len(points)} points are NaN or infinite. Leave them out.")
    if len(points) < FEWEST_POINTS:
        raise InputError(
            f"auto_rig: {len(points)} points say nothing about a shape; at least {FEWEST_POINTS} are needed, "
            "better some thousands."
        )
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max())
    if not size > 1e-9 * max(float(np.abs([low, high]).max()), 1e-30):
        raise InputError("auto_rig: all points lie at one place; there is nothing to put a bone into.")
    frame = Frame(tuple((0.5 * (low + high)).tolist()), 1.0 / size, (0.0, 1.0, 0.0))
    local = frame.to_sim(points)
    asked = local[:: max(len(local) // 2000, 1)]
    sigma = 0.5 * float(np.median(cKDTree(local).query(asked, k=5)[0][:, 4])) or 0.01
    n = len(local)
    still = np.tile(np.array([1, 0, 0, 0], np.float32), (n, 1))
    splats = Splats(
        local.astype(np.float32),
        still,
        np.full((n, 3), np.log(sigma), np.float32),
        np.full(n, 4.0, np.float32),
        np.zeros((n, 1, 3), np.float32),
    )
    unit = Frame((0.0, 0.0, 0.0), 1.0, frame.up)
    cubature: Cubature = cubature_from_splats(splats, unit, count=64, contact_count=64, seed=seed)
    return cubature.domain, frame


def nearest_cells(
    graph: VoxelGraph, points: Float[np.ndarray, "n 3"], count: int = 1
) -> tuple[Float64[np.ndarray, "n k"], Int[np.ndarray, "n k"]]:
    """Distances to, and indices of, the nearest cells of points in simulator units."""
    from scipy.spatial import cKDTree

    k = min(count, len(graph))
    distance, near = cKDTree(graph.centres).query(points, k=k)
    return distance.reshape(-1, k), near.reshape(-1, k)
