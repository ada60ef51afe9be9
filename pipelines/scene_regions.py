"""The regions of a scene's objects: pins as Dirichlet regions, and stiffer parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipelines.scene_load import Source, labels_of
from splatanim.dynamics.motions import PIN_WIDTH
from splatanim.dynamics.paths import path_of
from splatanim.dynamics.regions import Ball, Cloud, Region, Shape, placed, shaped
from splatanim.dynamics.scene import Pin, SceneError, SceneObject, Stiffness

if TYPE_CHECKING:
    from pipelines.scene_build import PlacedThing


_SPACES = {"world": "metres of the world", "file": "its file's coordinates"}
_END = 0.08  # of the height, what the pin of an end holds


def regions_of(item: SceneObject, thing: PlacedThing, up: np.ndarray) -> tuple[Region, ...]:
    """The pinned regions of an object, in the world. Raises :class:`SceneError` where one holds nothing of it."""
    regions = []
    for k, pin in enumerate(item.pins):
        width = PIN_WIDTH * thing.size if pin.width is None else pin.width
        region = region_of(pin, item, thing, up, width, f"pins.{k}")
        held = thing.cubature.surface[region.contains(thing.cubature.surface)]
        centre = held.mean(axis=0) if len(held) else thing.cubature.points.mean(axis=0)
        motion = path_of(pin.motion, centre)
        regions.append(Region(region.lo, region.hi, region.width, motion, region.shape))
    return tuple(regions)


def region_of(
    part: Pin | Stiffness, item: SceneObject, thing: PlacedThing, up: np.ndarray, width: float, key: str
) -> Region:
    """A part's box, sphere, end or label as a region of the world; ``key`` is its dotted path within the object."""
    if part.label is not None:
        labels = labels_of(item.labels, thing.source)
        if not (labels == part.label).any():
            counts = ", ".join(str(value) for value in np.unique(labels)[:12])
            raise SceneError(f"{key}.label", f"no splat of it has label {part.label}; there are {counts}.")
        local = label_shape(thing.source, labels == part.label)
        return placed(shaped(local, width), thing.placement)
    if part.box is not None:
        which, region = "box", _box(np.asarray(part.box), part.space, thing, width, f"{key}.box")
    elif part.sphere is not None:
        which, region = "sphere", _sphere(part, thing, width, f"{key}.sphere")
    else:
        which, region = "end", _end(part, thing, up, width)
    inside = np.concatenate([thing.cubature.points, thing.cubature.surface, thing.cubature.domain.centres])
    if not region.contains(inside).any():
        filled = extent_words(thing, part.space)
        raise SceneError(f"{key}.{which}", f"the {which} holds no part of the object, which fills {filled}.")
    return region


def label_shape(source: Source, chosen: np.ndarray) -> Cloud:
    """The neighbourhood of the chosen places (mask), in the object's own coordinates: twice their usual spacing."""
    return neighbourhood(source.places[chosen])


def neighbourhood(points: np.ndarray) -> Cloud:
    """What lies within twice the usual spacing of some points, or farther where that leaves out many of themselves."""
    from scipy.spatial import cKDTree

    k = min(6, len(points))
    asked = points[:: max(len(points) // 2000, 1)]
    spacing = cKDTree(points).query(asked, k=[*range(1, k + 1)])[0].mean(axis=1)
    return Cloud(points, max(2.0 * float(np.median(spacing)), float(np.quantile(spacing, 0.98)), 1e-3))


def bounds(thing: PlacedThing, space: str) -> tuple[np.ndarray, np.ndarray]:
    """The corners of what an object fills, in the coordinates that places on it are given in."""
    points = thing.cubature.surface if space == "world" else thing.source.to_file(thing.source.cubature.surface)
    return points.min(axis=0), points.max(axis=0)


def extent_words(thing: PlacedThing, space: str) -> str:
    """``(0, 0, 0) to (1, 1, 1) in its file's coordinates``, for messages."""
    words = " to ".join("(" + ", ".join(f"{v:.4g}" for v in corner) + ")" for corner in bounds(thing, space))
    return f"{words} in {_SPACES[space]}"


def _box(corners: np.ndarray, space: str, thing: PlacedThing, width: float, key: str) -> Region:
    both = corners.reshape(2, 3)
    if space == "file":
        both = thing.source.to_local(both)
    low, high = both.min(axis=0), both.max(axis=0)
    if not (low < high).all():
        raise SceneError(key, f"the box {corners.tolist()} is flat; its corners must differ along x, y and z.")
    if space == "world":
        return Region(tuple(low.tolist()), tuple(high.tolist()), width)
    local = Region(tuple(low.tolist()), tuple(high.tolist()), width)
    return placed(local, thing.placement)


def _sphere(part: Pin | Stiffness, thing: PlacedThing, width: float, key: str) -> Region:
    assert part.sphere is not None
    *centre, radius = part.sphere
    if not radius > 0:
        raise SceneError(key, f"the sphere's radius is {radius}; it must be positive.")
    shape: Shape
    if part.space == "world":
        return shaped(Ball((centre[0], centre[1], centre[2]), radius), width)
    local = thing.source.to_local(np.asarray([centre]))[0]
    shape = Ball((float(local[0]), float(local[1]), float(local[2])), radius * thing.source.frame.scale)
    return placed(shaped(shape, width), thing.placement)


def _end(part: Pin | Stiffness, thing: PlacedThing, up: np.ndarray, width: float) -> Region:
    """The half-space of the top or bottom end of an object as it stands."""
    axis = int(np.argmax(np.abs(up)))
    surface = thing.cubature.surface
    low, high = surface.min(axis=0)[axis], surface.max(axis=0)[axis]
    upper = (getattr(part, "end", "bottom") == "top") == bool(up[axis] > 0)
    lo, hi = np.full(3, -np.inf), np.full(3, np.inf)
    if upper:
        lo[axis] = high - _END * (high - low)
    else:
        hi[axis] = low + _END * (high - low)
    return Region(tuple(lo.tolist()), tuple(hi.tolist()), width)
