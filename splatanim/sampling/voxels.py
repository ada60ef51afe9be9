"""Occupancy grids and how their inside is found: rasterise, seal and flood-fill, trim, thicken, keep the large parts.

A grid here is a boolean array with ``MARGIN`` empty cells on every side; cell ``(i, j, k)`` covers
``origin + spacing * [i, i+1] x [j, j+1] x [k, k+1]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy import ndimage
from scipy.spatial import cKDTree

MARGIN = 6  # cells; more than the largest closing radius, so that the outside stays connected around the object
CLOSING_RADII = (0, 1, 2, 4)  # voxels
EVERY_NEIGHBOUR = np.ones((3, 3, 3), bool)


@dataclass(frozen=True)
class Raster:
    """Weighted points on a grid: ``weight`` per cell, and ``anchor``, the weighted mean of the points in a cell."""

    weight: Float64[np.ndarray, "x y z"]
    anchor: Float64[np.ndarray, "x y z 3"]
    origin: Float64[np.ndarray, " 3"]
    spacing: float

    @property
    def centres(self) -> Float64[np.ndarray, "x y z 3"]:
        indices = np.moveaxis(np.indices(self.weight.shape), 0, -1)
        return self.origin + (indices + 0.5) * self.spacing


@dataclass(frozen=True)
class Sealed:
    """The outcome of :func:`seal`: the filled grid, the largest closing radius that found a cavity (voxels, -1 for
    none), and whether an open base had to be closed."""

    filled: Bool[np.ndarray, "x y z"]
    radius: int
    base_closed: bool


Samples = Iterable[tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, " n"]]]


def rasterise(
    samples: Samples,
    low: Float64[np.ndarray, " 3"],
    high: Float64[np.ndarray, " 3"],
    spacing: float,
) -> Raster:
    """Sum weighted points, which come in blocks, into cells of size ``spacing`` over the box ``low .. high``; points
    outside are ignored."""
    cells = np.maximum(np.ceil((high - low) / spacing - 1e-9).astype(int), 1)
    origin = (low + high) / 2 - (cells / 2 + MARGIN) * spacing
    shape = tuple(int(c) for c in cells + 2 * MARGIN)
    size = int(np.prod(shape))
    total, anchor = np.zeros(size), np.zeros((size, 3))
    for points, weights in samples:
        index = np.floor((points - origin) / spacing).astype(np.int64)
        inside = ((index >= MARGIN - 1) & (index <= np.array(shape) - MARGIN)).all(axis=1)
        flat = np.ravel_multi_index(tuple(index[inside].T), shape)
        weights, points = weights[inside], points[inside]
        total += np.bincount(flat, weights, minlength=size)
        for axis in range(3):
            anchor[:, axis] += np.bincount(flat, weights * points[:, axis], minlength=size)
    anchor /= np.where(total > 0, total, 1.0)[:, None]
    return Raster(total.reshape(shape), anchor.reshape(*shape, 3), origin, spacing)


def reach_from_outside(free: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    """The free cells that are connected, through cell faces, with a free cell on the border of the grid."""
    labels, found = ndimage.label(free)
    reached = np.zeros(found + 1, bool)
    for axis in range(3):
        reached[np.take(labels, [0, -1], axis=axis)] = True
    reached[0] = False
    return reached[labels]


def seal(occupied: Bool[np.ndarray, "x y z"], ground: Bool[np.ndarray, "x y z"] | None = None) -> Sealed:
    """Add to the occupied cells the cavities behind them.

    A ball of radius r voxels rolls in from the border. Where it cannot come although it would fit there is a cavity
    (its core: cells farther than r from any occupied one, not connected with the border); the core grown by r is
    filled. This closes gaps narrower than 2 r in the wall of a cavity, but bridges no gap between neighbouring limbs
    and closes no wide opening. A core must be wider than the gap: at least (2 r)^3 cells.

    ``ground`` marks the half space below the support: captures seldom see the underside of an object. When closing
    it uncovers at least a quarter more volume, the object was open at its base, and that volume is filled too.
    """
    filled = occupied
    used = -1
    for radius in CLOSING_RADII:
        grown = filled | _cavity(filled, radius)
        if (grown != filled).any():
            filled, used = grown, radius
    filled = _without_speckle(filled)
    if ground is None:
        return Sealed(filled, used, False)
    for radius in (1, 2):
        grown = filled | (_cavity(filled | ground, radius) & ~ground)
        if grown.sum() > 1.25 * filled.sum():
            return Sealed(grown, max(used, radius), True)
    return Sealed(filled, used, False)


def _without_speckle(filled: np.ndarray) -> np.ndarray:
    """Fill small pockets: empty cells with 19 of 26 neighbours filled (a slit between two plates has only 18)."""
    for _ in range(3):
        around = ndimage.uniform_filter(filled.astype(np.float32), 3, mode="constant") * 27
        filled = filled | (around > 18.5)
    return filled


def _cavity(filled: np.ndarray, radius: int) -> np.ndarray:
    """Cells within ``radius`` of the places that a ball of that radius fits in but cannot roll to from the border."""
    free = ndimage.distance_transform_edt(~filled) > radius if radius else ~filled
    core = free & ~reach_from_outside(free)
    if radius == 0 or not core.any():
        return core
    labels, _ = ndimage.label(core)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    core = (sizes >= (2 * radius) ** 3)[labels]
    return ndimage.distance_transform_edt(~core) <= radius if core.any() else core


def trim(filled: Bool[np.ndarray, "x y z"], occupied: Bool[np.ndarray, "x y z"], raster: Raster) -> np.ndarray:
    """Drop boundary cells whose centre lies outside the surface through their anchor; parts under 5 cells stay.

    Without this an object would be half a voxel too thick all around. Outward is where the smoothed filling falls.
    """
    core = ndimage.binary_erosion(filled)
    thick = ndimage.binary_dilation(ndimage.binary_erosion(core), EVERY_NEIGHBOUR, iterations=2)
    cells = np.nonzero(occupied & ~core & thick)
    smooth = ndimage.gaussian_filter(filled.astype(np.float32), 1.0)
    slope = np.stack([np.roll(smooth, -1, axis)[cells] - np.roll(smooth, 1, axis)[cells] for axis in range(3)], axis=1)
    centre = raster.origin + (np.stack(cells, axis=1) + 0.5) * raster.spacing
    beyond = ((centre - raster.anchor[cells]) * slope).sum(axis=1) < 0
    kept = filled.copy()
    kept[tuple(c[beyond] for c in cells)] = False
    return kept


def thicken(occupied: Bool[np.ndarray, "x y z"], raster: Raster) -> Bool[np.ndarray, "x y z"]:
    """The cells whose centre lies within 1.1 voxels of an anchor: a shell two voxels thick, however it is placed."""
    cells = np.argwhere(occupied)
    anchors = raster.anchor[occupied]
    shell = occupied.copy()
    for offset in np.argwhere(EVERY_NEIGHBOUR) - 1:
        neighbour = cells + offset
        centre = raster.origin + (neighbour + 0.5) * raster.spacing
        near = np.linalg.norm(centre - anchors, axis=1) <= 1.1 * raster.spacing
        shell[tuple(neighbour[near].T)] = True
    return shell


def large_parts(filled: Bool[np.ndarray, "x y z"], share: float = 0.01) -> tuple[Bool[np.ndarray, "x y z"], int]:
    """Keep the connected parts (26 neighbours) that hold at least ``share`` of the cells; how many there are."""
    labels, found = ndimage.label(filled, EVERY_NEIGHBOUR)
    if found <= 1:
        return filled, found
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    keep = sizes >= max(min(share * sizes.sum(), sizes.max()), 1)
    return keep[labels], int(keep.sum())


def without_crumbs(filled: Bool[np.ndarray, "x y z"], share: float = 0.01) -> Bool[np.ndarray, "x y z"]:
    """Drop small pieces that hang on by an edge or a corner only: artefacts of the grid.

    Elasticity acts through faces, so each would be a body of its own and cost a handle. Where the object as a whole
    hangs together by edges (more than 5 % would go), it is left as it is.
    """
    labels, _ = ndimage.label(filled)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    keep = sizes >= max(min(share * sizes.sum(), sizes.max()), 1)
    return keep[labels] if sizes[keep].sum() >= 0.95 * sizes.sum() else filled


def tie_parts(filled: Bool[np.ndarray, "x y z"], most: int = 32) -> tuple[Bool[np.ndarray, "x y z"], int]:
    """Join loose parts by struts three voxels wide between their nearest cells; how many struts it took.

    A capture's parts belong together even where nothing visible joins them, such as a figure's floating hands; left
    loose, each would be a body of its own. More than ``most`` parts are a cloud rather than an object and stay as
    they are.
    """
    labels, count = ndimage.label(filled)
    if not 1 < count <= most:
        return filled, 0
    cells = [np.argwhere(labels == part + 1) for part in range(count)]
    cells.sort(key=len, reverse=True)
    joined, loose = cells[0], cells[1:]
    struts = np.zeros_like(filled)
    while loose:
        tree = cKDTree(joined)
        reaches = [tree.query(part) for part in loose]
        nearest = int(np.argmin([distances.min() for distances, _ in reaches]))
        distances, rows = reaches[nearest]
        end = int(distances.argmin())
        a, b = joined[rows[end]], loose[nearest][end]
        along = np.linspace(0.0, 1.0, 2 * int(np.abs(b - a).max()) + 1)[:, None]
        struts[tuple(np.round(a + along * (b - a)).astype(np.int64).T)] = True
        joined = np.concatenate([joined, loose.pop(nearest)])
    return filled | ndimage.binary_dilation(struts), count - 1


def outer_shell(filled: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    """The filled cells with a neighbour (of 26) outside."""
    return filled & ndimage.binary_dilation(~filled, EVERY_NEIGHBOUR)


def hangs_together(occupied: Bool[np.ndarray, "x y z"]) -> bool:
    """Whether parts of at least 1 % hold 70 % of the occupied cells; otherwise the grid is finer than the data."""
    together, _ = large_parts(occupied)
    return int(together.sum()) >= 0.7 * max(int(occupied.sum()), 1)


def cells_of(filled: Bool[np.ndarray, "x y z"]) -> Int[np.ndarray, "v 3"]:
    """Indices of the filled cells."""
    return np.argwhere(filled)
