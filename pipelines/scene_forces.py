"""What acts on a scene's object: weight, wind, drags, planes, and the stiffness of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipelines.scene_regions import extent_words, region_of
from splatanim.dynamics.newton import Term
from splatanim.dynamics.paths import path_of
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.scene import Drag as DragSpec
from splatanim.dynamics.scene import Scene, SceneError, SceneObject
from splatanim.dynamics.tilting import CarriedContact, CarriedPlane

if TYPE_CHECKING:
    from pipelines.scene_build import PlacedThing

_RADIUS = 0.15  # of the size, a drag's grip unless it says otherwise


def terms_of(
    item: SceneObject,
    scene: Scene,
    thing: PlacedThing,
    model: ReducedModel,
    up: np.ndarray,
    planes: tuple[CarriedPlane, ...],
) -> tuple[Term, ...]:
    """What acts on one object from outside."""
    from splatanim.dynamics.terms import gravity
    from splatanim.dynamics.winds import WindDrag, air_field, surface_area

    terms: list[Term] = []
    if scene.gravity and not item.weightless:
        terms.append(gravity(model, -scene.gravity * up))
    if scene.winds:
        area = surface_area(thing.source.cubature.domain) * thing.placement.scale**2
        for k, wind in enumerate(scene.winds):
            terms.append(WindDrag(model, air_field(wind, scene.seed + k), area, wind.drag, wind.air))
    terms += [_drag(drag, thing, model, f"drags.{k}") for k, drag in enumerate(item.drags)]
    for spec, carried in zip(scene.planes, planes, strict=True):
        friction = model.material.friction if spec.friction is None else spec.friction
        terms.append(CarriedContact(model, carried, friction, max(scene.gravity, 1.0)))
    return tuple(terms)


def stiff_parts(item: SceneObject, thing: PlacedThing, model: ReducedModel) -> tuple[Term, ...]:
    """The elastic energy of an object with stiffer or softer parts; none where it is the same everywhere.

    A part's border is half a voxel wide. Where parts overlap, the last one holds.
    """
    from splatanim.dynamics.dilation import AveragedElasticity

    if not item.stiffness:
        return ()
    factors = np.ones(len(model.rest))
    up = np.asarray(thing.placement.rotation @ thing.source.frame.up)
    for k, part in enumerate(item.stiffness):
        region = region_of(part, item, thing, up, 0.5 * thing.cubature.domain.spacing, f"stiffness.{k}")
        share = 1.0 - region.mask(model.rest)[0]
        factors = factors * (1.0 - share) + part.factor * share
    return (AveragedElasticity(model, factors),)


def _drag(spec: DragSpec, thing: PlacedThing, model: ReducedModel, key: str) -> Term:
    from splatanim.dynamics.motions import grip
    from splatanim.dynamics.terms import Drag, gaussian_kernel

    point = np.asarray(spec.point, np.float64)
    if spec.space == "file":
        point = thing.placement.to_world(thing.source.to_local(point[None]))[0]
    away = np.linalg.norm(model.rest - point, axis=1)
    if away.min() > 0.25 * thing.size:
        filled = extent_words(thing, spec.space)
        raise SceneError(f"{key}.point", f"the point lies {away.min():.3g} m from the object, which fills {filled}.")
    nearest = model.rest[np.argmin(away)]
    path = path_of(spec.motion, nearest)
    kernel = gaussian_kernel(model.rest, nearest, spec.radius or _RADIUS * thing.size)
    stiffness = grip(model) if spec.stiffness is None else spec.stiffness
    return Drag(model, kernel, stiffness, lambda time: path(time) if time < spec.until else None)
