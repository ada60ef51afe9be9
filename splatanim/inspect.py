"""What a capture holds: which splats are the object, how large it is, which way is up.

A capture carries floaters: splats far outside the object, a few of them huge. They would wreck everything that goes
by a bounding box (scale, camera, voxel grids), so that all of those go by :func:`robust_bounds`.

Floaters are found on a voxel grid over the opacity-weighted middle of the splats: components of occupied voxels
(26-connected) that hold at least ``CORE_SHARE`` of the opacity are the object, however far apart they lie; splats of
smaller components are floaters where they are farther than ``NEAR`` of the object's size from it. So detached but
substantial parts stay, and so do specks close by.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.base import ReadResult

#: The least share of the whole opacity that makes a connected part belong to the object.
CORE_SHARE = 0.02
#: Smaller parts belong to it as well where they are at most this far away, over the object's longest side.
NEAR = 0.15
#: A splat is oversize where its largest standard deviation exceeds this share of the object's longest side.
OVERSIZE = 0.5
#: A needle is a splat this many times longer than it is broad (largest over middle scale) ...
NEEDLE_ASPECT = 10.0
#: ... and longer (one standard deviation) than this share of the object's longest side.
NEEDLE_LENGTH = 0.05
#: Splats below this opacity do not count for the bounds.
VISIBLE = 0.1
#: The up axis of a 3DGS .ply whose header is silent: such scenes are trained in COLMAP's axes, where y points down.
PLY_UP = "-y"

_CELL_LIMIT = 1 << 20  # voxel indices are packed into 21 bits an axis
_SAMPLE = 50_000  # about so many splats settle a median
_QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Inspection:
    """What :func:`analyse` found. ``bounds`` are robust and in file coordinates, so is ``size``, the longest side.

    ``splats`` counts the rows of the file, ``kept`` those that could be read; ``floaters`` and ``needles`` count
    among the kept, which are not removed here. The quantiles are the 5th, 50th and 95th percentile of opacity and of
    the largest scale. ``up`` is an axis name such as ``-y``; ``up_source`` says where it comes from.
    """

    file: str
    format: str
    splats: int
    kept: int
    dropped: dict[str, int]
    sh_degree: int
    bounds: tuple[tuple[float, float, float], tuple[float, float, float]]
    size: float
    up: str
    up_source: str
    floaters: int
    needles: int
    opacity_quantiles: tuple[float, float, float]
    scale_quantiles: tuple[float, float, float]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The fields under their own names, tuples as lists; ready for ``json.dumps``."""
        return {
            "file": self.file,
            "format": self.format,
            "splats": self.splats,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "sh_degree": self.sh_degree,
            "bounds": [list(corner) for corner in self.bounds],
            "size": self.size,
            "up": self.up,
            "up_source": self.up_source,
            "floaters": self.floaters,
            "needles": self.needles,
            "opacity_quantiles": list(self.opacity_quantiles),
            "scale_quantiles": list(self.scale_quantiles),
            "warnings": list(self.warnings),
        }


def analyse(
    result: ReadResult,
    *,
    file: str | os.PathLike[str] = "",
    up: str | None = None,
    floaters: Bool[np.ndarray, " n"] | None = None,
) -> Inspection:
    """Inspect splats as they were read from ``file``.

    ``up`` overrides the guess, which is the header's own statement, else the convention ``PLY_UP``. ``floaters`` is
    :func:`floater_mask` where the caller has it already.

    Raises InputError where ``up`` is no axis.
    """
    splats = result.splats
    floaters = floater_mask(splats) if floaters is None else floaters
    low, high = _visible_bounds(splats, ~floaters)
    size = float((high - low).max())
    needles = needle_mask(splats, size) & ~floaters
    if up is not None:
        source = "asked for"
    else:
        source = "header comment" if result.up else "convention of 3DGS .ply (COLMAP: y points down)"
    axis = up or result.up or PLY_UP
    up_vector(axis)
    notes = list(result.warnings)
    if result.dropped:
        counts = ", ".join(f"{reason}: {count}" for reason, count in result.dropped.items())
        notes.append(f"{sum(result.dropped.values())} of {result.total} splats were dropped ({counts}).")
    if floaters.any():
        notes.append(f"{floaters.sum()} splats are floaters: far outside the object, or larger than it.")
    if needles.any():
        notes.append(f"{needles.sum()} splats are long needles, which show where the object bends.")
    return Inspection(
        file=os.fspath(file),
        format=result.format,
        splats=result.total,
        kept=len(splats),
        dropped=dict(result.dropped),
        sh_degree=splats.sh_degree,
        bounds=(_triple(low + splats.offset), _triple(high + splats.offset)),
        size=size,
        up=axis,
        up_source=source,
        floaters=int(floaters.sum()),
        needles=int(needles.sum()),
        opacity_quantiles=_triple(np.quantile(_opacities(splats), _QUANTILES)),
        scale_quantiles=_triple(np.exp(np.quantile(_largest_log_scales(splats), _QUANTILES))),
        warnings=tuple(notes),
    )


def up_vector(up: str) -> tuple[float, float, float]:
    """The unit vector of an axis name: ``+z``, ``z``, ``-y`` ... Raises InputError for anything else."""
    sign, name = (up[0], up[1:]) if up[:1] in ("+", "-") else ("+", up)
    if name not in ("x", "y", "z"):
        raise InputError(f"Up axis {up!r} is unknown. Give one of +x, -x, +y, -y, +z, -z.")
    unit = np.zeros(3)
    unit["xyz".index(name)] = -1 if sign == "-" else 1
    return _triple(unit)


def floater_mask(splats: Splats) -> Bool[np.ndarray, " n"]:
    """True for the splats that are floaters (see the module's docstring), oversize ones included; never for all."""
    if len(splats) < 2:
        return np.zeros(len(splats), bool)
    opacity, log_scale = _opacities(splats), _largest_log_scales(splats)
    far = _far_mask(splats.means, opacity)
    low, high = _visible_bounds(splats, ~far)
    step = max(1, len(splats) // _SAMPLE)
    # Where there are few splats they overlap, and their scales say more than their centres.
    size = max(float((high - low).max()), 6 * float(np.exp(np.median(log_scale[~far][::step]), dtype=np.float64)))
    floaters = far | (log_scale > np.log(OVERSIZE * size))
    return far if floaters.all() else floaters


def robust_bounds(splats: Splats) -> tuple[Float64[np.ndarray, " 3"], Float64[np.ndarray, " 3"]]:
    """Corners of the axis-aligned box around the centres of all visible splats that are no floaters.

    In the coordinates of ``splats.means`` (add ``splats.offset`` for those of the file).
    """
    return _visible_bounds(splats, ~floater_mask(splats))


def needle_mask(splats: Splats, size: float) -> Bool[np.ndarray, " n"]:
    """True for the splats that are needles on an object whose longest side is ``size`` (file units)."""
    scales = np.sort(splats.log_scales, axis=1)
    long = scales[:, 2] > np.log(NEEDLE_LENGTH * max(size, 1e-30))
    return long & (scales[:, 2] - scales[:, 1] > np.log(NEEDLE_ASPECT))


def _far_mask(means: np.ndarray, opacity: np.ndarray) -> Bool[np.ndarray, " n"]:
    """True for splats in small components far from the object."""
    centre, size = _middle(means, opacity)
    if size < 1e-25:  # all in one place, as far as float32 can tell
        return np.zeros(len(means), bool)
    # A few splats a voxel on average, so that surfaces connect.
    resolution = float(np.clip(0.7 * np.count_nonzero(opacity >= VISIBLE) ** (1 / 3), 4, 48))
    voxel = size / resolution
    packed = np.zeros(len(means), np.int64)
    for axis in range(3):
        with np.errstate(over="ignore"):  # infinitely far is clipped as well
            cells = np.floor((means[:, axis] - np.float32(centre[axis])) / np.float32(voxel))
        packed = (packed << 21) | np.clip(cells + _CELL_LIMIT, 2, 2 * _CELL_LIMIT - 3).astype(np.int64)
    keys, inverse = np.unique(packed, return_inverse=True)
    mass = np.bincount(inverse, opacity)
    part = _components(keys)
    share = np.bincount(part, mass) / mass.sum()
    core = (share >= min(CORE_SHARE, share.max()))[part]
    if core.all():
        return np.zeros(len(means), bool)
    places = _unpack(keys).astype(np.float64)
    reach = max(2.0, NEAR * float(np.ptp(places[core], axis=0).max() + 1))
    distance, _ = cKDTree(places[core]).query(places[~core], distance_upper_bound=reach)
    far = np.zeros(len(keys), bool)
    far[~core] = np.isinf(distance)
    return far[inverse]


def _middle(means: np.ndarray, opacity: np.ndarray) -> tuple[Float64[np.ndarray, " 3"], float]:
    """Opacity-weighted median, and the longest side of the box that holds the middle nine tenths an axis."""
    step = max(1, len(means) // _SAMPLE)
    points, weights = means[::step].astype(np.float64), opacity[::step].astype(np.float64) + 1e-6
    low, centre, high = np.empty((3, 3))
    for axis in range(3):
        order = np.argsort(points[:, axis])
        share = np.cumsum(weights[order]) / weights.sum()
        rows = np.searchsorted(share, (0.05, 0.5, 0.95)).clip(max=len(order) - 1)
        low[axis], centre[axis], high[axis] = points[order[rows], axis]
    return centre, float((high - low).max()) / 0.9


def _unpack(keys: Int64[np.ndarray, " v"]) -> Int64[np.ndarray, "v 3"]:
    """Cells from their keys: 21 bits an axis, so that differences of cells are differences of keys."""
    return np.stack([keys >> 42, (keys >> 21) & 0x1FFFFF, keys & 0x1FFFFF], axis=1) - _CELL_LIMIT


def _components(keys: Int64[np.ndarray, " v"]) -> Int64[np.ndarray, " v"]:
    """Labels of the 26-connected components of sorted cells."""
    steps = [(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if (x, y, z) > (0, 0, 0)]
    pairs = []
    for x, y, z in steps:
        wanted = keys + ((x << 42) + (y << 21) + z)
        rows = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        found = np.flatnonzero(keys[rows] == wanted)
        pairs.append((found, rows[found]))
    left, right = (np.concatenate(side) for side in zip(*pairs))
    graph = coo_array((np.ones(len(left), bool), (left, right)), shape=(len(keys), len(keys)))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _visible_bounds(splats: Splats, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    visible = rows & (splats.raw_opacities > np.log(VISIBLE / (1 - VISIBLE)))
    chosen = visible if visible.any() else rows
    columns = [splats.means[:, axis][chosen].astype(np.float64) for axis in range(3)]
    return np.array([c.min() for c in columns]), np.array([c.max() for c in columns])


def _opacities(splats: Splats) -> np.ndarray:
    # Beyond +-30 a logit is 0 or 1 in float32 anyway, and exp would overflow.
    return 1 / (1 + np.exp(-np.clip(splats.raw_opacities, -30, 30)))


def _largest_log_scales(splats: Splats) -> np.ndarray:
    x, y, z = splats.log_scales.T  # several times faster than max(axis=1) over so short an axis
    return np.maximum(np.maximum(x, y), z)


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    x, y, z = (float(v) for v in values)
    return (x, y, z)
