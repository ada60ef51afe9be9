"""The bodies of a live simulation and all that acts on them: what one step needs, built anew when something changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from pipelines.scene_build import Prop
from splatanim.dynamics.barrier import BodyContact, ContactSettings, contact_between
from splatanim.dynamics.newton import NewtonReport, Term
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.scene import Wind
from splatanim.dynamics.simulate import Settings
from splatanim.dynamics.stepper import Body, Stepper
from splatanim.dynamics.tilting import CarriedContact
from splatanim.dynamics.world import Actor, Obstacle
from viewers.live_body import LiveBody
from viewers.live_floor import LiveFloor
from viewers.live_pin import Pin

EARTH = 9.81  # m/s^2
_STILL = 1e-3  # of the size a second: slower than that in the mean is rest
_ITERATIONS = 16  # of Newton's method a step
_STILL_STEPS = 30  # that many in a row


@dataclass
class Hold:
    """A region that is pulled: its centre at rest, radius, and the displacement it had when taken.

    ``weights`` (h,) are the handles' at the centre; ``start`` is where that was, ``target`` where it is wanted.
    """

    body: int
    centre: Float64[np.ndarray, " 3"]
    radius: float
    taken: Float64[np.ndarray, "3 4"]
    weights: Float64[np.ndarray, " h"]
    start: Float64[np.ndarray, " 3"]
    target: Float64[np.ndarray, " 3"]

    def wanted(self, _time: float) -> Float64[np.ndarray, "3 4"]:
        """The affine displacement that the region is pulled towards."""
        out = self.taken.copy()
        out[:, 3] += self.target - self.start
        return out

    def place(self, handles: Float64[np.ndarray, "h 3 4"]) -> Float64[np.ndarray, " 3"]:
        """Where the centre is under the handles' displacements."""
        return self.centre + np.einsum("h,hrc,c->r", self.weights, handles, np.append(self.centre, 1.0))


@dataclass
class LiveWorld:
    """Bodies, obstacles, floor, air and holds. Only the stepping thread changes it; :meth:`renew` after changes."""

    bodies: list[LiveBody]
    up: Float64[np.ndarray, " 3"]
    floor: LiveFloor | None
    h: float
    props: Sequence[Prop] = ()
    obstacles: Sequence[Obstacle] = ()
    collide: bool = True
    gravity: Float64[np.ndarray, " 3"] = field(default_factory=lambda: np.zeros(3))
    wind: Float64[np.ndarray, " 3"] = field(default_factory=lambda: np.zeros(3))
    holds: dict[int, Hold] = field(default_factory=dict)
    pins: dict[int, Pin] = field(default_factory=dict)
    time: float = 0.0
    report: NewtonReport | None = None

    def __post_init__(self) -> None:
        self._stepper: Stepper | None = None
        self._ready: list[Body] = []
        self._contact: tuple[list[ReducedModel], BodyContact] | None = None
        self._still = 0

    def renew(self) -> None:
        """Terms are built anew before the next step, and what had come to rest moves again."""
        self._stepper = None
        self._still = 0

    def wake(self) -> None:
        """What had come to rest is stepped again."""
        self._still = 0

    @property
    def resting(self) -> bool:
        """Whether nothing moves, and nothing will by itself."""
        return self._still >= _STILL_STEPS

    def step(self) -> NewtonReport:
        """One step of ``h`` seconds."""
        if self._stepper is None:
            self._build()
        assert self._stepper is not None
        histories, report = self._stepper.step([body.history for body in self.bodies], self.time)
        for body, history in zip(self.bodies, histories, strict=True):
            body.history = history
        self.time += self.h
        self.report = report
        self._watch()
        return report

    def energies(self) -> tuple[float, float]:
        """Kinetic and elastic energy of all bodies [J]."""
        if self._stepper is None:
            self._build()
        pairs = [ready.energies(b.history, self.time) for ready, b in zip(self._ready, self.bodies, strict=True)]
        return float(sum(pair[0] for pair in pairs)), float(sum(pair[1] for pair in pairs))

    def restart(self) -> None:
        """Everything as it began; holds and pins are let go."""
        self.time = 0.0
        self.holds.clear()
        self.pins.clear()
        if self.floor is not None:
            self.floor.restart()
        for body in self.bodies:
            body.history = body.start
        self.renew()

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The corners of a box around everything at rest."""
        points = [body.model.contact_rest for body in self.bodies]
        every = np.concatenate([*points, *(prop.thing.cubature.surface for prop in self.props)])
        return every.min(axis=0), every.max(axis=0)

    def finite(self) -> bool:
        """Whether the state can be drawn."""
        return all(bool(np.isfinite(body.history.now).all()) for body in self.bodies)

    def _watch(self) -> None:
        """Count the steps at rest."""
        moved = bool(self.wind.any()) or any(prop.moves for prop in self.props)
        moved = moved or (self.floor is not None and self.floor.moving(self.time))
        for body in self.bodies:
            speed2 = float(np.sum(body.history.velocity[: body.model.dof] ** 2)) / body.model.mass
            moved = moved or speed2 > (_STILL * body.size) ** 2
        self._still = 0 if moved else self._still + 1

    def _build(self) -> None:
        from splatanim.dynamics.damping import material_damping

        self._ready = []
        for index, body in enumerate(self.bodies):
            terms = self._terms(index, body)
            self._ready.append(Body.of(body.model, [*material_damping(body.model, terms), *terms]))
        self._stepper = Stepper(self._ready, self._touching(), _settings(self.h))

    def _terms(self, index: int, body: LiveBody) -> list[Term]:
        from splatanim.dynamics.motions import grip
        from splatanim.dynamics.terms import Drag, Load, gaussian_kernel
        from splatanim.dynamics.winds import WindDrag, surface_area

        model = body.model
        terms: list[Term] = [*body.elastic, *body.others(model)]
        if body.weight:
            terms.append(Load(model, lambda _time: body.weight * model.masses[:, None] * self.gravity))
        if self.wind.any():
            air, thing = Wind(), body.thing
            area = surface_area(thing.source.cubature.domain) * thing.placement.scale**2
            blown = WindDrag(model, lambda x, _t: np.tile(self.wind, (len(x), 1)), area, air.drag, air.air)
            terms.append(blown)
        if self.floor is not None:
            terms.append(CarriedContact(model, self.floor.carried, model.material.friction, self._strength()))
        for hold in self.holds.values():
            if hold.body == index:
                kernel = gaussian_kernel(model.rest, hold.centre, hold.radius)
                terms.append(Drag(model, kernel, grip(model), hold.wanted))
        terms += [pin.term(model) for pin in self.pins.values() if pin.body == index]
        return terms

    def _strength(self) -> float:
        return max(float(np.linalg.norm(self.gravity)), EARTH)

    def _touching(self) -> BodyContact | None:
        """The contact between bodies, kept as long as they are the same."""
        if not self.collide or len(self.bodies) + len(self.obstacles) < 2:
            return None
        models = [body.model for body in self.bodies]
        if self._contact is None or not _touch_alike(self._contact[0], models):
            actors = [Actor(f"{k} {body.name}", body.model) for k, body in enumerate(self.bodies)]
            made = contact_between(actors, self.obstacles, ContactSettings(gravity=self._strength()))
            self._contact = (models, made)
        return self._contact[1]


def _touch_alike(some: Sequence[ReducedModel], others: Sequence[ReducedModel]) -> bool:
    """Whether contact made for some models serves others: the same shape functions and friction."""
    return len(some) == len(others) and all(
        a.contact_shape is b.contact_shape and a.material.friction == b.material.friction
        for a, b in zip(some, others, strict=True)
    )


def _settings(h: float) -> Settings:
    """A live step is bounded in cost: one that is not solved by then goes on from where it is, which the readout says.
    (Gaps between bodies stay open all the same: no iteration closes one.)"""
    return Settings(2, 1.0 / h, 1, max_iterations=_ITERATIONS, max_halvings=0)


def hold_of(world: LiveWorld, body: int, point: np.ndarray, radius: float) -> Hold:
    """A hold around a point at rest of a body, as it is displaced now."""
    live = world.bodies[body]
    taken = live.local_map(point)
    weights, _ = live.model.handles.evaluate(point[None])
    start = point + taken[:, :3] @ point + taken[:, 3]
    return Hold(body, point, radius, taken, weights[0], start, start.copy())
