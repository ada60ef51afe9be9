"""From a scene to a world: things are placed, bound and reduced, their forces and planes made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.scene_forces import stiff_parts, terms_of
from pipelines.scene_load import Source, bound_field, load
from pipelines.scene_regions import regions_of
from splatanim.binding import Handles
from splatanim.data import Cubature, Material
from splatanim.dynamics.contact import Plane
from splatanim.dynamics.newton import Term
from splatanim.dynamics.paths import path_of
from splatanim.dynamics.placement import PlacedField, Placement, place_cubature
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.regions import Motion, rotation_about
from splatanim.dynamics.scene import Scene, SceneError, SceneObject, Scenery
from splatanim.dynamics.simulate import Settings, State, placed_state
from splatanim.dynamics.tilting import CarriedPlane
from splatanim.dynamics.world import Actor, Obstacle, World
from splatanim.errors import InputError

HOVER = 0.004  # of a thing's size: how far above its place its base is put, so that nothing touches at the start
LONGEST_STEP = 1.0 / 120.0  # s


@dataclass(frozen=True)
class PlacedThing:
    """A thing in the world, at rest: ``cubature`` in world coordinates, ``size`` its longest side [m]."""

    name: str
    source: Source
    placement: Placement
    cubature: Cubature
    size: float


@dataclass(frozen=True)
class BuiltObject:
    """An object ready for the solver, and how it came about."""

    thing: PlacedThing
    model: ReducedModel
    actor: Actor
    material: Material
    rigid: bool
    field_choice: str


@dataclass(frozen=True)
class Prop:
    """Scenery, ready to be drawn and touched."""

    thing: PlacedThing
    motion: Motion
    moves: bool


@dataclass(frozen=True)
class BuiltScene:
    """Everything that simulating and filming a scene need."""

    scene: Scene
    up: np.ndarray
    objects: tuple[BuiltObject, ...]
    props: tuple[Prop, ...]
    planes: tuple[CarriedPlane, ...]
    world: World
    settings: Settings


def build_scene(scene: Scene, *, on_part: Callable[[str], None] = lambda _name: None) -> BuiltScene:
    """Load, place and bind all that a scene names; ``on_part`` is told what is at hand.

    Raises :class:`SceneError`, its ``key`` the dotted path of the value at fault, and :class:`InputError` from files.
    """
    from pipelines.scene_check import check_overlaps

    up = up_of(scene)
    settings = settings_of(scene)
    planes = tuple(_plane(plane, up) for plane in scene.planes)
    props, objects = [], []
    for k, part in enumerate(scene.scenery):
        on_part(part.name)
        with _under(f"scenery.{k}"):
            thing = place(part, up, scene.seed)
            centre = thing.cubature.surface.mean(axis=0)
            props.append(Prop(thing, path_of(part.motion, centre), part.motion != type(part.motion)()))
    for k, item in enumerate(scene.objects):
        on_part(item.name)
        with _under(f"objects.{k}"):
            objects.append(_object(item, scene, up, planes, settings))
    world = _world(scene, objects, props)
    built = BuiltScene(scene, up, tuple(objects), tuple(props), planes, world, settings)
    check_overlaps(built)
    return built


class _under:
    """Prefixes the keys of :class:`SceneError`, and makes one of any other :class:`InputError`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind, error, _trace) -> None:
        if isinstance(error, SceneError):
            raise SceneError(f"{self._prefix}.{error.key}" if error.key else self._prefix, error.message) from error
        if isinstance(error, InputError):
            raise SceneError(self._prefix, str(error)) from error


def up_of(scene: Scene) -> np.ndarray:
    """The scene's up axis as a unit vector."""
    from splatanim.inspect import up_vector

    try:
        return np.asarray(up_vector(scene.up))
    except InputError as error:
        raise SceneError("up", str(error)) from None


def settings_of(scene: Scene) -> Settings:
    """How time is cut."""
    substeps = scene.substeps or max(1, int(np.ceil(1.0 / (scene.fps * LONGEST_STEP) - 1e-9)))
    return Settings(scene.frames, scene.fps, substeps, integrator=scene.integrator)


def place(part: SceneObject | Scenery, up: np.ndarray, seed: int) -> PlacedThing:
    """A thing where its ``at``, ``anchor``, ``rotate`` and ``size`` (or ``scale``) put it."""
    from scipy.spatial.transform import Rotation

    source = load(part, seed)
    scale = part.scale / source.frame.scale if part.scale is not None else (part.size or 1.0)
    rotation = Rotation.from_rotvec(np.radians(part.rotate)).as_matrix() @ upright(source.frame.up, up)
    turned = Placement(rotation, np.zeros(3), scale)
    surface = turned.to_world(source.cubature.surface)
    low, high = surface.min(axis=0), surface.max(axis=0)
    size = scale * float(np.ptp(source.cubature.surface, axis=0).max())
    middle = 0.5 * (low + high)
    if part.anchor == "origin":
        anchor = turned.to_world(source.to_local(np.zeros((1, 3))))[0]
    elif part.anchor == "centre":
        anchor = middle
    else:
        anchor = middle - (0.5 * np.abs(up) @ (high - low) + HOVER * size) * up
    placement = Placement(rotation, np.asarray(part.at) - anchor, scale)
    return PlacedThing(part.name, source, placement, place_cubature(source.cubature, placement), size)


def upright(up: tuple[float, float, float], world_up: np.ndarray) -> np.ndarray:
    """The rotation from an object's axes to the world's: up to up, front to front (what cameras see first)."""
    from splatanim.dynamics.motions import body_of

    def axes(vector) -> np.ndarray:
        body = body_of(np.zeros(3), np.ones(3), np.asarray(vector, np.float64), 1.0)
        return np.stack([body.side, body.up, body.front], axis=1)

    return axes(world_up) @ axes(up).T


def material_of(item: SceneObject) -> Material:
    """The preset, with whatever the scene overrides."""
    from splatanim.dynamics.materials import preset

    keys = ("young", "poisson", "density", "friction", "model")
    changes = {key: getattr(item, key) for key in keys if getattr(item, key) is not None}
    changes |= {"damping_stiffness": item.damping, "damping_mass": item.drag}
    try:
        base = preset(item.material)
    except InputError as error:
        raise SceneError("material", str(error)) from None
    try:
        return dataclasses.replace(base, **changes)
    except InputError as error:
        key = next((key for key in keys if key in str(error)), "material")
        raise SceneError(key, str(error)) from None


def _object(
    item: SceneObject, scene: Scene, up: np.ndarray, planes: tuple[CarriedPlane, ...], settings: Settings
) -> BuiltObject:
    material = material_of(item)
    thing = place(item, up, scene.seed)
    own: tuple[Term, ...] = ()
    if item.rigid:
        from splatanim.dynamics.rigid import rigid_model

        if item.stiffness:
            raise SceneError("stiffness", "a rigid object has no stiffness; leave rigid or stiffness out.")
        why = "one affine handle, kept rigid"
        model, own = rigid_model(thing.cubature, material, gravity=max(scene.gravity, 1.0))
    else:
        regions = regions_of(item, thing, up)
        field, why = bound_field(item, thing.source, scene.seed)
        handles = Handles(PlacedField(field, thing.placement), regions)
        model = reduce(thing.cubature, handles, material)
        own = stiff_parts(item, thing, model)
    terms = (*own, *terms_of(item, scene, thing, model, up, planes))
    state = _start(item, model, settings.h)
    return BuiltObject(thing, model, Actor(item.name, model, terms, state), material, item.rigid, why)


def _start(item: SceneObject, model: ReducedModel, h: float) -> State:
    spin = np.radians(item.spin)
    centre = (model.masses[:, None] * model.rest).sum(axis=0) / model.mass
    cross = np.cross(np.eye(3), spin).T  # the matrix of omega x
    velocity = np.concatenate([cross, (np.asarray(item.velocity) - cross @ centre)[:, None]], axis=1)
    return placed_state(model, np.zeros((3, 4)), velocity, h)


def _plane(plane, up: np.ndarray) -> CarriedPlane:
    side = upright((0.0, 1.0, 0.0), up)[:, 0]
    vector = np.asarray(plane.tilt, np.float64)
    angle = float(np.linalg.norm(vector))
    tilt = np.eye(3)
    if angle > 0:
        tilt = tilt + rotation_about(vector / angle, np.radians(angle), np.zeros(3))[:, :3]
    half = (np.inf, np.inf) if plane.size is None else (0.5 * plane.size[0], 0.5 * plane.size[1])
    lying = Plane(np.asarray(plane.at, np.float64), tilt @ up, tilt @ side, half)
    return CarriedPlane(lying, path_of(plane.motion, lying.point))


def _world(scene: Scene, objects: list[BuiltObject], props: list[Prop]) -> World:
    from splatanim.dynamics.barrier import ContactSettings

    touched = [(part, prop) for part, prop in zip(scene.scenery, props, strict=True) if part.touch]
    obstacles = tuple(
        Obstacle(
            part.name,
            prop.thing.cubature.surface,
            prop.motion,
            0.5 if part.friction is None else part.friction,
        )
        for part, prop in touched
    )
    contact = ContactSettings(gravity=max(scene.gravity, 1.0)) if scene.collide else None
    return World(tuple(built.actor for built in objects), obstacles, contact)
