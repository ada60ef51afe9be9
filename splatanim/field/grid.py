"""Functions given at an object's voxels, evaluated anywhere by splines that do not reach across gaps.

Quadratic B-splines over 3^3 cells are C^1, but where two pieces lie closer than three voxels each would feel the
other's weights. So each cell's stencil is made of its own piece only. Every cell of a box around the object belongs to
its nearest voxel (which continues the Neumann condition outward); two cells that share a face are *linked* when their
voxels are one or near each other along the object. The cells around a node fall into groups of linked cells, and each
group has its own value there: the voxel's, for the group that the node's own cell is in, else that of the group's
nearest cells. Cells that are linked share the nodes on both sides of their face, so the functions are C^1 wherever
there is object, and jump in the middle of a gap only.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int32
from scipy import ndimage

from splatanim.data import Domain
from splatanim.field import chunks
from splatanim.field.multigrid import aggregates, joined, laplacian
from splatanim.field.ritz import ritz

_CHUNK = 32768
_BORDER = 3  # cells of continuation around the object's bounding box
_HOPS = 3  # voxels are near each other when their aggregates (2^3 voxels at most) are so many steps apart
_REACH = 4.0  # cells from the object within which gaps are looked for
_SHARPENING = 4  # rounds; the error left is (1 - b)^5, b the share of a wave that the spline passes on
_OFFSETS = np.array(list(itertools.product((-1, 0, 1), repeat=3)))
_MIDDLE = 13  # of the offsets
_PAIRS = [
    (a, b, axis)
    for a, b in itertools.product(range(27), repeat=2)
    for axis in range(3)
    if (_OFFSETS[b] - _OFFSETS[a] == np.eye(3, dtype=int)[axis]).all()
]  # faces between the 27 cells around a node


@dataclass(frozen=True)
class Lattice:
    """Where a point's 27 spline coefficients are found, among the voxels' and the ghosts' that follow them.

    ``rows`` (x, y, z): the voxel that each cell belongs to, cell (0, 0, 0) centred at ``origin``. The cells whose flat
    indices are in ``special`` (ascending) have ``stencils`` of their own. Ghost values are ``ghosts @ voxel values``.
    """

    rows: Int32[np.ndarray, "x y z"]
    origin: Float64[np.ndarray, " 3"]
    spacing: float
    special: Int[np.ndarray, " s"]
    stencils: Int32[np.ndarray, "s 27"]
    ghosts: Any

    def stencil(self, points: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows (n, 27), position in the cell (n, 3) in cells from its middle, and where that follows the point.

        Outside the lattice functions are constant along the axes that a point is outside on.
        """
        position = (np.asarray(points, np.float64) - self.origin) / self.spacing
        top = np.array(self.rows.shape) - 2.0
        inside = np.clip(position, 1.0, top)
        base = np.round(inside).astype(np.int64)
        _, ny, nz = self.rows.shape
        flat = (base[:, 0] * ny + base[:, 1]) * nz + base[:, 2]
        rows = self.rows.ravel()[flat[:, None] + (_OFFSETS @ [ny * nz, nz, 1])]
        if len(self.special):
            at = np.minimum(np.searchsorted(self.special, flat), len(self.special) - 1)
            own = self.special[at] == flat
            rows[own] = self.stencils[at[own]]
        return rows, inside - base, position == inside

    def coefficients(self, values: Float64[np.ndarray, "v k"]) -> Float64[np.ndarray, "r k"]:
        """Values at the voxels with the ghosts' behind them."""
        return np.concatenate([values, self.ghosts @ values])


@dataclass(frozen=True)
class GridField:
    """W(X) = B(X) @ values @ coefficients + constants, B(X) the 27 quadratic B-splines around X."""

    lattice: Lattice
    values: Float64[np.ndarray, "r k"]
    coefficients: Float64[np.ndarray, "k m"]
    constants: Float64[np.ndarray, " m"]
    kind: str = "eigenmodes"

    @property
    def handles(self) -> int:
        return self.coefficients.shape[1]

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        return self._evaluate(points, slopes=False)[0]

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return self._evaluate(points, slopes=True)[1]

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        return self._evaluate(points, slopes=True)

    def _evaluate(self, points: np.ndarray, *, slopes: bool) -> tuple[np.ndarray, np.ndarray]:
        n, m = len(points), self.handles
        w, dw = np.empty((n, m)), np.empty((n if slopes else 0, m, 3))
        for rows in chunks(n, _CHUNK):
            stencil, t, free = self.lattice.stencil(points[rows])
            w[rows] = _combine(stencil, _splines(t), self.values) @ self.coefficients + self.constants
            if slopes:
                for axis in range(3):
                    slope = _splines(t, axis) * (free[:, [axis]] / self.lattice.spacing)
                    dw[rows, :, axis] = _combine(stencil, slope, self.values) @ self.coefficients
        return w, dw


def on_grid(values: Float64[np.ndarray, "v m"], domain: Domain, kind: str) -> GridField:
    """A field that takes given values at the voxels of a domain, to a few parts in ten thousand for smooth ones.

    A spline with these coefficients would smooth them; they are sharpened until it does not. A last Ritz pass makes
    the functions orthonormal and sorts them.
    """
    found = interpolated(values, domain, lattice_of(domain), kind)
    coefficients, constants, _ = ritz(found.weights(domain.centres), domain, values.shape[1])
    return GridField(found.lattice, found.values, coefficients, constants, kind)


def interpolated(values: Float64[np.ndarray, "v m"], cells: Domain, lattice: Lattice, kind: str) -> GridField:
    """The functions that take given values at a lattice's cells."""
    stencil, t, _ = lattice.stencil(cells.centres)
    weight = _splines(t)
    sharp = values
    for _ in range(_SHARPENING):
        sharp = sharp + values - _combine(stencil, weight, lattice.coefficients(sharp))
    m = values.shape[1]
    return GridField(lattice, lattice.coefficients(sharp), np.eye(m), np.zeros(m), kind)


def _splines(t: np.ndarray, derivative: int | None = None) -> Float64[np.ndarray, "n 27"]:
    """The 27 products of one-dimensional quadratic B-splines, or their derivative along an axis (per cell)."""
    parts = []
    for axis in range(3):
        x = t[:, axis]
        if axis == derivative:
            parts.append(np.stack([x - 0.5, -2.0 * x, x + 0.5], axis=1))
        else:
            parts.append(np.stack([0.5 * (0.5 - x) ** 2, 0.75 - x**2, 0.5 * (0.5 + x) ** 2], axis=1))
    first = parts[0][:, :, None] * parts[1][:, None, :]
    return (first[:, :, :, None] * parts[2][:, None, None, :]).reshape(len(t), 27)


def _combine(rows: np.ndarray, weight: np.ndarray, table: np.ndarray) -> Float64[np.ndarray, "n m"]:
    from scipy import sparse

    starts = np.arange(0, rows.size + 1, 27)
    return sparse.csr_matrix((weight.ravel(), rows.ravel(), starts), (len(rows), len(table))) @ table


def grown(domain: Domain, cells: int) -> Domain:
    """A domain with, behind its own, all cells within some cells of it along every axis."""
    low = domain.cells.min(axis=0) - cells
    filled = np.zeros(domain.cells.max(axis=0) + 1 + cells - low, bool)
    filled[tuple((domain.cells - low).T)] = True
    around = ndimage.binary_dilation(filled, np.ones((3, 3, 3), bool), iterations=cells) & ~filled
    return Domain(np.concatenate([domain.cells, np.argwhere(around) + low]), domain.origin, domain.spacing)


def lattice_of(domain: Domain, *, gaps: bool = True) -> Lattice:
    """The cells around a domain, each with its nearest voxel, and (``gaps``) stencils of their own beside gaps."""
    from scipy import sparse

    low = domain.cells.min(axis=0) - _BORDER
    cells = domain.cells - low
    shape = tuple((cells.max(axis=0) + 1 + _BORDER).tolist())
    empty = np.ones(shape, bool)
    empty[tuple(cells.T)] = False
    voxel = np.zeros(shape, np.int32)
    voxel[tuple(cells.T)] = np.arange(len(cells))
    away, nearest = ndimage.distance_transform_edt(empty, return_indices=True)
    rows = voxel[tuple(nearest)]
    origin = domain.origin + (low + 0.5) * domain.spacing
    if not gaps:
        nothing = np.empty(0, np.int64), np.empty((0, 27), np.int32), sparse.csr_matrix((0, len(cells)))
        return Lattice(rows, origin, domain.spacing, *nothing)
    special, stencils, ghosts = _beside_gaps(rows, away <= _REACH, _links(rows, domain))
    return Lattice(rows, origin, domain.spacing, special, stencils, ghosts)


def _links(rows: np.ndarray, domain: Domain) -> list[Bool[np.ndarray, "..."]]:
    """Per axis, whether each cell but the last is linked with the next."""
    from scipy import sparse

    graph = laplacian(domain)
    label, cells = aggregates(graph, domain.cells - domain.cells.min(axis=0))
    count = len(cells)
    step = (abs(joined(graph, label)) + sparse.identity(count)).tocsr()
    near = step
    for _ in range(_HOPS - 1):
        near = near @ step
    near = near.tocoo()
    known = np.sort(near.row.astype(np.int64) * count + near.col)
    links = []
    for axis in range(3):
        here = np.take(rows, np.arange(rows.shape[axis] - 1), axis=axis)
        there = np.take(rows, np.arange(1, rows.shape[axis]), axis=axis)
        a, b = label[here], label[there]
        linked = a == b
        other = np.nonzero(~linked)
        key = a[other] * count + b[other]
        linked[other] = known[np.minimum(np.searchsorted(known, key), len(known) - 1)] == key
        links.append(linked)
    return links


def _beside_gaps(rows: np.ndarray, close: np.ndarray, links: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, Any]:
    """Special cells (flat, ascending), their stencils, and the ghosts as combinations of voxels."""
    from scipy import sparse

    voxels = int(rows.max()) + 1
    nodes = _divided(close, links)
    index = np.ravel_multi_index(tuple(nodes.T), rows.shape) if len(nodes) else np.empty(0, np.int64)
    steps = _OFFSETS @ [rows.shape[1] * rows.shape[2], rows.shape[2], 1]
    group = _groups(nodes, links)  # (27, nodes)
    # Every (node, group) but the node's own becomes a ghost.
    apart = group != group[_MIDDLE]
    position, node = np.nonzero(apart)
    key = node * 27 + group[position, node]
    ghost, number = np.unique(key, return_inverse=True)
    member = group[:, ghost // 27] == ghost % 27  # (27, ghosts)
    distance = np.where(member, (_OFFSETS**2).sum(axis=1)[:, None], 9)
    place, which = np.nonzero(distance == distance.min(axis=0))
    voxel = rows.ravel()[index[ghost[which] // 27] + steps[place]]
    share = 1.0 / np.bincount(which, minlength=len(ghost))[which]
    ghosts = sparse.csr_matrix((share, (which, voxel)), (len(ghost), voxels))
    # The cells that meet a ghost: the node is seen from them in the opposite direction.
    cell = index[node] + steps[position]
    special, at = np.unique(cell, return_inverse=True)
    inner = np.ones(len(special), bool)
    stencils = np.empty((len(special), 27), np.int32)
    x, y, z = np.unravel_index(special, rows.shape)
    for axis, place_on_axis in enumerate((x, y, z)):
        inner &= (place_on_axis > 0) & (place_on_axis < rows.shape[axis] - 1)
    stencils[inner] = rows.ravel()[special[inner][:, None] + steps]
    stencils[at, 26 - position] = voxels + number
    return special[inner], stencils[inner], ghosts


def _divided(close: np.ndarray, links: list[np.ndarray]) -> Int[np.ndarray, "d 3"]:
    """The nodes, one cell off the border at least, with unlinked neighbours among the 27 cells around them."""
    cut = np.zeros(close.shape, bool)
    for axis, linked in enumerate(links):
        front, back = ([slice(None)] * 3 for _ in range(2))
        front[axis], back[axis] = slice(None, -1), slice(1, None)
        cut[tuple(front)] |= ~linked
        cut[tuple(back)] |= ~linked
    near = ndimage.binary_dilation(cut, np.ones((3, 3, 3), bool)) & close
    return np.argwhere(near[1:-1, 1:-1, 1:-1]) + 1


def _groups(nodes: np.ndarray, links: list[np.ndarray]) -> Int[np.ndarray, "27 d"]:
    """For the 27 cells around each node the number of their group: the lowest position in it."""
    group = np.tile(np.arange(27, dtype=np.int8)[:, None], (1, len(nodes)))
    passable = [links[axis][tuple((nodes + _OFFSETS[a]).T)] for a, _, axis in _PAIRS]
    while True:
        before = group.copy()
        for (a, b, _), open_ in zip(_PAIRS, passable, strict=True):
            lower = np.minimum(group[a], group[b])
            group[a] = np.where(open_, lower, group[a])
            group[b] = np.where(open_, lower, group[b])
        if (group == before).all():
            return group.astype(np.int64)
