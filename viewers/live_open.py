"""From a file to the world of a live simulation, by the builders of ``animate``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pipelines.animate import AnimateConfig, chosen_material
from pipelines.scene_build import BuiltObject, BuiltScene, Prop, build_scene
from splatanim.data import Frame
from splatanim.dynamics.contact import Plane
from splatanim.dynamics.newton import Term
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.scene import Scene
from splatanim.errors import InputError
from viewers.live_body import LiveBody, bound_to, free_body, history_of, item_of
from viewers.live_floor import LiveFloor
from viewers.live_world import EARTH, LiveWorld
from viewers.moving import Cloud

_STEP = 1.0 / 60.0  # s
_BELOW = 5e-4  # of the size: how far below an object its floor begins, so that nothing touches at the start


def open_world(path: Path | str | None, config: AnimateConfig) -> tuple[LiveWorld, Frame]:
    """The world of a capture, a mesh, a sample by its name (None: the jelly) or a scene.toml, and the map from the
    file's coordinates to the world's. Raises InputError as ``animate`` does."""
    if path is not None and Path(path).suffix.lower() == ".toml":
        return _scene_world(Path(path), config)
    return _single_world(path, config)


def _single_world(path: Path | str | None, config: AnimateConfig) -> tuple[LiveWorld, Frame]:
    """One object on a floor, in the axes of its file."""
    if not config.object_size > 0:
        raise InputError(f"--object-size {config.object_size} must be positive (metres).")
    item = item_of(path, up=config.up, handles=config.handles, field=config.field)
    material = chosen_material(dataclasses.replace(config, scene=Path(item.file) if item.file else None))
    body = free_body(item, material, seed=config.seed, size=config.object_size, at=None, up=None)
    source = body.thing.source
    up = np.asarray(source.frame.up, np.float64)
    if item.file and config.material == "auto" and config.young is None:
        from splatanim.dynamics.standing import standing_stiffness

        body.stiffness = standing_stiffness(body.model, up)
    floor = LiveFloor(_ground(body.model, up), up, body.size)
    world = LiveWorld([body], up, floor, _STEP, gravity=-EARTH * up)
    body.history = body.start = history_of(body.model, None, _STEP)
    x, y, z = (float(v) for v in np.asarray(source.frame.centre) + source.offset)
    return world, Frame((x, y, z), source.frame.scale * config.object_size, source.frame.up)


def _ground(model: ReducedModel, up: np.ndarray) -> Plane:
    """A half-space right below an object."""
    from viewers.panel_world import across

    heights = model.contact_rest @ up
    middle = 0.5 * (model.contact_rest.min(axis=0) + model.contact_rest.max(axis=0))
    lowest = float(heights.min()) - _BELOW * model.size
    return Plane(middle + (lowest - middle @ up) * up, up, across(up)[1])


def _scene_world(path: Path, config: AnimateConfig) -> tuple[LiveWorld, Frame]:
    """All objects of a scene; its first plane without an end is the floor that the panel moves."""
    from pipelines.scene_parse import read_scene

    scene = read_scene(path).scene
    built = build_scene(scene)
    first = next((k for k, plane in enumerate(built.planes) if _is_floor(plane.plane, built.up)), None)
    floor = None
    if first is not None and scene.planes[first].motion == type(scene.planes[first].motion)():
        size = max(item.thing.size for item in built.objects)
        floor = LiveFloor(built.planes[first].plane, built.up, size)
    h = built.settings.h
    bodies = [_scene_body(item, built, first if floor is not None else None) for item in built.objects]
    touched = built.world.obstacles
    world = LiveWorld(
        bodies, built.up, floor, h, built.props, touched, scene.collide, gravity=-scene.gravity * built.up
    )
    up = (float(built.up[0]), float(built.up[1]), float(built.up[2]))
    return world, Frame((0.0, 0.0, 0.0), 1.0, up)


def _is_floor(plane: Plane, up: np.ndarray) -> bool:
    level = float(plane.normal @ up) > 0.9 * float(np.linalg.norm(plane.normal))
    return level and not bool(np.isfinite(plane.half_extents).any())


def _scene_body(item: BuiltObject, built: BuiltScene, floor: int | None) -> LiveBody:
    """A scene's object with whatever acts on it there, save weight and floor, which the viewer sets."""
    from pipelines.scene_forces import stiff_parts, terms_of
    from splatanim.dynamics.rigid import Orthogonality

    scene: Scene = built.scene
    spec = next(entry for entry in scene.objects if entry.name == item.thing.name)
    kept = [k for k in range(len(built.planes)) if k != floor]
    rest = dataclasses.replace(scene, planes=tuple(scene.planes[k] for k in kept))
    carried = tuple(built.planes[k] for k in kept)
    own = [term for term in item.actor.terms if isinstance(term, Orthogonality)]

    def others(model: ReducedModel) -> Sequence[Term]:
        weightless = dataclasses.replace(spec, weightless=True)
        acting = terms_of(weightless, rest, item.thing, model, built.up, carried)
        return [*own, *stiff_parts(spec, item.thing, model), *acting]

    history = history_of(item.model, item.actor.state, built.settings.h)
    bound = bound_to(item.thing, item.model, built.up)
    return LiveBody(
        spec.name,
        item.thing,
        item.model,
        bound,
        history,
        history,
        others=others,
        weight=0.0 if spec.weightless else 1.0,
        rigid=item.rigid or bool(spec.stiffness),
    )


def dropped_body(
    what: str | Path, size: float, at: np.ndarray, up: np.ndarray, names: Sequence[str], config: AnimateConfig
) -> LiveBody:
    """A further object of ``size`` [m] with its middle at ``at``, under a name that none of ``names`` is."""
    item = item_of(what, handles=config.handles, field=config.field)
    free = (f"{item.name}{suffix}" for suffix in itertools.chain([""], (f"_{k}" for k in itertools.count(2))))
    item = dataclasses.replace(item, name=next(name for name in free if name not in names))
    plain = dataclasses.replace(config, young=None, poisson=None, density=None, material="auto")
    material = chosen_material(dataclasses.replace(plain, scene=Path(item.file) if item.file else None))
    body = free_body(item, material, seed=config.seed, size=size, at=at, up=up)
    body.history = body.start = history_of(body.model, None, _STEP)
    return body


def scenery_clouds(props: Sequence[Prop]) -> list[Callable[[float], Cloud]]:
    """What draws each piece of scenery at a time [s]."""
    from pipelines.scene_film import drawn_prop
    from viewers.playback import cloud_of

    world = Frame((0.0, 0.0, 0.0), 1.0, (0.0, 0.0, 1.0))

    def draw(prop: Prop) -> Callable[[float], Cloud]:
        drawn = drawn_prop(prop)
        still = cloud_of(drawn.at(0, 0.0), world)
        return (lambda time: cloud_of(drawn.at(0, time), world)) if prop.moves else (lambda _time: still)

    return [draw(prop) for prop in props]
