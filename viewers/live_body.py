"""One body of a live simulation: its model and state, what acts on it, and its splats."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from pipelines.scene_build import PlacedThing
from pipelines.scene_film import world_splats
from pipelines.scene_load import bound_field, load
from splatanim.binding import Handles
from splatanim.data import Frame, Material
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.integrators import History
from splatanim.dynamics.newton import Term
from splatanim.dynamics.placement import PlacedField, Placement, place_cubature
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.scene import SceneObject
from splatanim.dynamics.simulate import State, rest_state
from splatanim.dynamics.soundness import check_cubature
from splatanim.rotations import quaternions_to_matrices
from splatanim.transforms import BoundSplats, bind_splats, deform
from viewers.moving import Cloud
from viewers.playback import covariances, flat_colours

Others = Callable[[ReducedModel], Sequence[Term]]


@dataclass
class LiveBody:
    """A body while it moves. ``history`` is its state, ``start`` what a reset goes back to.

    ``stiffness`` (q,) scales its elasticity point by point (None: 1); ``others`` builds further terms of its scene for
    a model; ``weight`` 0 lets gravity pass it by. A rigid body keeps its own elastic term among ``others``.
    """

    name: str
    thing: PlacedThing
    model: ReducedModel
    bound: BoundSplats
    history: History
    start: History
    stiffness: Float64[np.ndarray, " q"] | None = None
    others: Others = lambda _model: ()
    weight: float = 1.0
    rigid: bool = False

    @property
    def size(self) -> float:
        return self.model.size

    @property
    def material(self) -> Material:
        return self.model.material

    @property
    def elastic(self) -> list[Term]:
        """Its elastic energy, unless :attr:`others` bring one."""
        return [] if self.rigid else [AveragedElasticity(self.model, self.stiffness)]

    def split(self, history: History) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates y and those of prescribed handles (3, p)."""
        n = self.model.dof
        return history.now[:n], history.now[n:].reshape(3, -1)

    def handles(self, history: History) -> Float64[np.ndarray, "h 3 4"]:
        """What poses its splats in a state."""
        return self.model.all_handles(*self.split(history))

    def local_map(self, point: np.ndarray) -> Float64[np.ndarray, "3 4"]:
        """The present displacement around a point at rest, to first order: Z with x = X + Z [X; 1]."""
        z = self.handles(self.history)
        weights, slopes = self.model.handles.evaluate(point[None])
        moved = np.einsum("h,hrc,c->r", weights[0], z, np.append(point, 1.0))
        linear = np.einsum("h,hrc->rc", weights[0], z[:, :, :3])
        linear += np.einsum("hrc,c,hd->rd", z, np.append(point, 1.0), slopes[0])
        return np.concatenate([linear, (moved - linear @ point)[:, None]], axis=1)

    def set_material(self, material: Material) -> None:
        """Change the material; the motion goes on as it is.

        Another density scales the mass-orthonormal coordinates: y sqrt(rho'/rho), shape functions by the inverse.
        """
        share = material.density / self.material.density
        root = float(np.sqrt(share))
        model = self.model
        if share == 1.0:  # the very arrays stay, and with them what others have made of them
            self.model = dataclasses.replace(model, material=material)
            return
        self.model = dataclasses.replace(
            model,
            material=material,
            masses=model.masses * share,
            shape=model.shape / root,
            slope=model.slope / root,
            contact_shape=model.contact_shape / root,
            to_handles=model.to_handles / root,
        )
        self.history = _scaled(self.history, model.dof, root)
        self.start = _scaled(self.start, model.dof, root)


def _scaled(history: History, dof: int, root: float) -> History:
    def scale(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else np.concatenate([root * values[:dof], values[dof:]])

    now, velocity = scale(history.now), scale(history.velocity)
    assert now is not None and velocity is not None
    return History(now, velocity, scale(history.before), scale(history.velocity_before), history.h)


class BodyPainter:
    """Poses a body's splats as the viewer draws them: centres and full covariances."""

    def __init__(self, body: LiveBody) -> None:
        splats = body.bound.splats
        spread = quaternions_to_matrices(splats.quaternions) * splats.scales.astype(np.float64)[:, None]
        self._rest = covariances(spread)
        self._bound, self._rgbs, self._opacities = body.bound, flat_colours(splats), splats.opacities

    def cloud(self, handles: Float64[np.ndarray, "h 3 4"]) -> Cloud:
        """The splats under the handles' displacements."""
        from viewers._posing import pushed

        means, gradients = deform(self._bound, handles)
        spread = np.empty((len(means), 3, 3), np.float32)
        pushed(self._rest, gradients, spread)
        return Cloud(means.astype(np.float32), spread, self._rgbs, self._opacities)


def history_of(model: ReducedModel, state: State | None, h: float) -> History:
    """A state as the stepper takes it; prescribed handles start from standing."""
    state = state or rest_state(model)
    held = model.held_coordinates(0.0).ravel()
    velocity = np.concatenate([(state.y - state.y_before) / h, np.zeros(len(held))])
    return History(np.concatenate([state.y, held]), velocity)


def bound_to(thing: PlacedThing, model: ReducedModel, up: np.ndarray) -> BoundSplats:
    """A thing's splats in the world, bound to its handles."""
    frame = Frame((0.0, 0.0, 0.0), 1.0, (float(up[0]), float(up[1]), float(up[2])))
    return bind_splats(world_splats(thing), frame, model.handles)


def free_body(
    item: SceneObject, material: Material, *, seed: int, size: float, at: np.ndarray | None, up: np.ndarray | None
) -> LiveBody:
    """A capture, mesh or sample as a free body, ``size`` [m] long.

    Without ``at`` it keeps its own axes and stands at the origin of its frame; with it, its middle is put there and
    its own up is turned to ``up``. Raises :class:`splatanim.errors.InputError` where the file holds no object.
    """
    from pipelines.scene_build import upright

    source = load(item, seed)
    placement = Placement(np.eye(3), np.zeros(3), size)
    if at is not None and up is not None:
        rotation = upright(source.frame.up, up)
        surface = Placement(rotation, np.zeros(3), size).to_world(source.cubature.surface)
        middle = 0.5 * (surface.min(axis=0) + surface.max(axis=0))
        placement = Placement(rotation, np.asarray(at, np.float64) - middle, size)
    thing = PlacedThing(item.name, source, placement, place_cubature(source.cubature, placement), size)
    field, _ = bound_field(item, source, seed)
    model = reduce(thing.cubature, Handles(PlacedField(field, placement)), material)
    check_cubature(item.name, model)
    world_up = np.asarray(source.frame.up if up is None else up, np.float64)
    history = history_of(model, None, 1.0)
    return LiveBody(item.name, thing, model, bound_to(thing, model, world_up), history, history)


def item_of(path: Path | str | None, *, up: str = "auto", handles: int = 16, field: str = "auto") -> SceneObject:
    """The scene's entry of a file, or of a bundled sample by its name (None: the jelly)."""
    from splatanim.samples import sample_names

    shared = {"handles": handles, "field": field}
    if path is None or (str(path) in sample_names() and not Path(path).exists()):
        name = "jelly" if path is None else str(path)
        return SceneObject(name=name, sample=name, **shared)  # type: ignore[arg-type]
    name = "".join(c if c.isalnum() or c in "_-" else "_" for c in Path(path).stem) or "object"
    return SceneObject(name=name, file=str(path), up=up, **shared)  # type: ignore[arg-type]
