"""What must hold before a scene is simulated: nothing starts inside anything else."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from splatanim.dynamics.scene import SceneError
from splatanim.dynamics.tilting import CarriedPlane

if TYPE_CHECKING:
    from pipelines.scene_build import BuiltScene, PlacedThing

_TOLERATED = 1.5  # voxels: what a grid does not know
_UNDER = 0.01  # of its size, how far an object may start under a plane


def check_overlaps(built: BuiltScene) -> None:
    """Raise :class:`SceneError` where an object starts inside another, inside scenery or under a plane."""
    scene = built.scene
    things = [(f"objects.{k}", "object", item.thing) for k, item in enumerate(built.objects)]
    for spec, carried in zip(scene.planes, built.planes, strict=True):
        for key, _, thing in things:
            depth = under(thing, carried)
            if depth > _UNDER * thing.size:
                raise SceneError(
                    f"{key}.at", f"starts {_length(depth)} under plane {spec.name!r}; lift it by as much, or more."
                )
    if not scene.collide:
        return
    props = [
        (f"scenery.{k}", "scenery", prop.thing)
        for k, (part, prop) in enumerate(zip(scene.scenery, built.props, strict=True))
        if part.touch
    ]
    for (key_a, _, a), (_, kind_b, b) in combinations([*things, *props], 2):
        if key_a.startswith("scenery"):
            continue
        depth = max(overlap(a, b), overlap(b, a))
        if depth > 0:
            share = 100.0 * depth / min(a.size, b.size)
            raise SceneError(
                f"{key_a}.at",
                f"overlaps {kind_b} {b.name!r} by {_length(depth)} at the start ({share:.0f} % of the smaller); "
                "move one of them, or set collide = false.",
            )


def overlap(a: PlacedThing, b: PlacedThing) -> float:
    """How deep [m] contact points of ``a`` lie in the voxels of ``b``, 0 where none does beyond the grid's doubt."""
    from scipy.ndimage import distance_transform_edt

    low, high = b.cubature.surface.min(axis=0), b.cubature.surface.max(axis=0)
    near = ((a.cubature.surface >= low) & (a.cubature.surface <= high)).all(axis=1)
    if not near.any():
        return 0.0
    domain = b.source.cubature.domain
    first = domain.cells.min(axis=0)
    grid = np.zeros(domain.cells.max(axis=0) - first + 3, bool)
    grid[tuple((domain.cells - first + 1).T)] = True
    local = b.placement.to_local(a.cubature.surface[near])
    cell = np.floor((local - domain.origin) / domain.spacing).astype(np.int64) - first + 1
    inside = ((cell >= 0) & (cell < grid.shape)).all(axis=1)
    if not inside.any():
        return 0.0
    depth = float(distance_transform_edt(grid)[tuple(cell[inside].T)].max())
    return (depth - 0.5) * domain.spacing * b.placement.scale if depth > _TOLERATED else 0.0


def under(thing: PlacedThing, carried: CarriedPlane) -> float:
    """How far [m] a thing's contact points lie under a plane at the start, 0 where it is beside or over it."""
    plane = carried.at(0.0)
    local = (thing.cubature.surface - plane.point) @ plane.frame().T
    over = (np.abs(local[:, :2]) <= plane.half_extents).all(axis=1)
    if not np.isinf(plane.half_extents[0]) and local[over, 2].max(initial=-1.0) < 0:
        return 0.0  # wholly behind a finite plate
    return float(-local[over, 2].min(initial=0.0))


def _length(metres: float) -> str:
    return f"{metres:.3g} m" if metres >= 0.01 else f"{1e3 * metres:.3g} mm"
