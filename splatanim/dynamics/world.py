"""Several bodies in one coupled solve (III-D, Contact-Aware Multi-Object Dynamics), stepped frame by frame.

The coordinates of all bodies are concatenated; each body's energies act on its slice, and contact couples them.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.barrier import BodyContact, ContactSettings, contact_between
from splatanim.dynamics.integrators import History
from splatanim.dynamics.newton import NewtonReport, Term
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.simulate import Settings, State, Trajectory, rest_state
from splatanim.dynamics.stepper import Body, Stepper
from splatanim.errors import InputError
from splatanim.threads import one_blas_thread

_DEFAULT = ContactSettings()


@dataclass(frozen=True)
class Actor:
    """One simulated body: its ``model``, the ``terms`` that act on it alone, and its ``state`` (rest by default).

    Terms are in the body's own coordinates: forces, drags, planes. An elastic one (``Elasticity`` with a stiffness of
    its own, or a rigid body's) replaces the default.
    """

    name: str
    model: ReducedModel
    terms: tuple[Term, ...] = ()
    state: State | None = None


@dataclass(frozen=True)
class Obstacle:
    """A rigid body whose motion is prescribed: surface ``points`` (s, 3) at rest [m] and ``motion``, t [s] -> the
    affine displacement (3, 4) as of regions. ``friction`` is Coulomb's coefficient against it."""

    name: str
    points: Float64[np.ndarray, "s 3"]
    motion: Callable[[float], np.ndarray]
    friction: float = 0.5

    def __post_init__(self) -> None:
        if not len(self.points) or not np.isfinite(self.points).all():
            raise InputError(
                f"Obstacle {self.name!r}: its {len(self.points)} points must be at least one and all finite."
            )

    def at(self, time: float) -> Float64[np.ndarray, "s 3"]:
        """Where its points are."""
        z = np.asarray(self.motion(time), np.float64)
        return self.points + self.points @ z[:, :3].T + z[:, 3]


@dataclass(frozen=True)
class World:
    """Bodies, obstacles, and how they touch; ``contact`` None lets them pass through each other."""

    actors: tuple[Actor, ...]
    obstacles: tuple[Obstacle, ...] = ()
    contact: ContactSettings | None = _DEFAULT

    def __post_init__(self) -> None:
        if not self.actors:
            raise InputError("The world has no body to simulate. Add at least one that is not an obstacle.")
        names = [*(actor.name for actor in self.actors), *(obstacle.name for obstacle in self.obstacles)]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"Two bodies of the world are called {name!r}. Give each a name of its own.")


@dataclass(frozen=True)
class WorldTrajectory:
    """The motions of all bodies and how the solve went.

    ``trajectories``: one per actor, in order. ``reports``, ``milliseconds``, ``gaps`` and ``substeps`` have one entry
    a step: what Newton's method did, the wall time, the smallest gap between bodies as a fraction of the distance at
    which contact begins (infinite while none is near), and the parts that the step was cut into (1 where it
    converged at once). ``kinetic`` and ``elastic`` are energies [J] per frame and actor. ``notes`` say in words what
    a user should know.
    """

    trajectories: tuple[Trajectory, ...]
    times: Float64[np.ndarray, " t"]
    reports: tuple[NewtonReport, ...]
    milliseconds: Float64[np.ndarray, " steps"]
    gaps: Float64[np.ndarray, " steps"]
    substeps: tuple[int, ...]
    kinetic: Float64[np.ndarray, "t a"]
    elastic: Float64[np.ndarray, "t a"]
    notes: tuple[str, ...]

    @property
    def converged_fraction(self) -> float:
        return float(np.mean([r.converged for r in self.reports])) if self.reports else 1.0

    @property
    def smallest_gap(self) -> float:
        """The smallest gap of all steps, as a fraction of the distance at which contact begins."""
        return float(self.gaps.min()) if len(self.gaps) else np.inf


def simulate_world(
    world: World, settings: Settings, *, on_frame: Callable[[int], None] | None = None
) -> WorldTrajectory:
    """Run ``settings.frames`` frames of all bodies under inertia, elasticity, their materials' damping, their terms
    and contact with each other. ``on_frame(k)`` is called after frame k = 1, 2, ..."""
    from splatanim.dynamics.damping import material_damping

    actors = tuple(
        Actor(a.name, a.model, (*material_damping(a.model, a.terms), *a.terms), a.state) for a in world.actors
    )
    return run(World(actors, world.obstacles, world.contact), settings, on_frame)


def run(
    world: World, settings: Settings, on_frame: Callable[[int], None] | None = None, *, energies: bool = True
) -> WorldTrajectory:
    """:func:`simulate_world` with the actors' terms as they are: no damping of their materials is added.

    Without ``energies`` those are left out (NaN), which saves their evaluation in every frame.
    """
    from splatanim.dynamics.soundness import check_cubature

    for actor in world.actors:
        check_cubature(actor.name, actor.model)
    with one_blas_thread():
        return _run(world, settings, on_frame, energies)


def _run(world: World, settings: Settings, on_frame: Callable[[int], None] | None, measured: bool) -> WorldTrajectory:
    bodies = [Body.of(actor.model, actor.terms) for actor in world.actors]
    contact = _contact(world)
    stepper = Stepper(bodies, contact, settings)
    histories = [_start(actor, settings.h) for actor in world.actors]
    frames, energies = [], []

    def record(time: float) -> None:
        pairs = list(zip(bodies, histories, strict=True))
        frames.append([body.handles(history) for body, history in pairs])
        energies.append([body.energies(history, time) if measured else (np.nan, np.nan) for body, history in pairs])

    record(0.0)
    reports: list[NewtonReport] = []
    milliseconds: list[float] = []
    for frame in range(1, settings.frames):
        for substep in range(settings.substeps):
            start = clock.perf_counter()
            time = ((frame - 1) * settings.substeps + substep) * settings.h
            histories, report = stepper.step(histories, time)
            milliseconds.append(1e3 * (clock.perf_counter() - start))
            reports.append(report)
        record(time + settings.h)
        if on_frame is not None:
            on_frame(frame)
    times = np.arange(settings.frames) / settings.fps
    per_step = (tuple(reports), np.array(milliseconds))
    trajectories = tuple(
        Trajectory(np.stack([row[index] for row in frames]), times, *per_step, body.deepest / body.model.size)
        for index, body in enumerate(bodies)
    )
    both = np.array(energies, np.float64).reshape(len(energies), len(bodies), 2)
    log = stepper.log
    notes = (*(contact.notes if contact else ()), *_notes(log.substeps, reports))
    return WorldTrajectory(
        trajectories, times, *per_step, np.array(log.gaps), tuple(log.substeps), both[..., 0], both[..., 1], notes
    )


def _start(actor: Actor, h: float) -> History:
    """Where an actor starts; its prescribed handles start from standing."""
    state = actor.state or rest_state(actor.model)
    if len(state.y) != actor.model.dof:
        raise InputError(
            f"Body {actor.name!r}: its state has {len(state.y)} coordinates, its model {actor.model.dof}. "
            "Make the state from the same model."
        )
    held = actor.model.held_coordinates(0.0).ravel()
    velocity = np.concatenate([(state.y - state.y_before) / h, np.zeros(len(held))])
    return History(np.concatenate([state.y, held]), velocity)


def _contact(world: World) -> BodyContact | None:
    """The contact between bodies, or None where there is nothing to touch."""
    if world.contact is None or len(world.actors) + len(world.obstacles) < 2:
        return None
    return contact_between(world.actors, world.obstacles, world.contact)


def _notes(substeps: Sequence[int], reports: Sequence[NewtonReport]) -> list[str]:
    notes = []
    cut = sum(count > 1 for count in substeps)
    if cut:
        notes.append(f"{cut} of {len(substeps)} steps were cut into shorter ones (at most {max(substeps)}).")
    failed = [report for report in reports if not report.converged]
    if failed:
        reasons = sorted({report.reason for report in failed})
        notes.append(f"{len(failed)} of {len(reports)} steps did not converge, even so: {'; '.join(reasons)}.")
    return notes
