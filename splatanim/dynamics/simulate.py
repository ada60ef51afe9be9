"""Time stepping: implicit Euler over a list of terms, frame by frame (eq. 10, 11)."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.contact import PlaneContact
from splatanim.dynamics.newton import NewtonReport, Term, minimise
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Elasticity, Inertia, Step

_TOLERANCE = 1e-6  # of the object's size: the displacement that the leftover force would cause in one step


@dataclass(frozen=True)
class Settings:
    """How time is cut: ``frames`` at ``fps``, each of ``substeps`` implicit steps."""

    frames: int
    fps: float = 30.0
    substeps: int = 4
    max_iterations: int = 50

    @property
    def h(self) -> float:
        return 1.0 / (self.fps * self.substeps)


@dataclass(frozen=True)
class Trajectory:
    """The motion: ``handles`` (T, h, 3, 4), affine displacements a frame (the first is the start), and how it went.

    ``penetration`` is the deepest that a contact point was under a plane at the end of any step, as a fraction of
    the object's size.
    """

    handles: Float64[np.ndarray, "t h 3 4"]
    times: Float64[np.ndarray, " t"]
    reports: tuple[NewtonReport, ...]
    milliseconds: Float64[np.ndarray, " steps"]
    penetration: float

    @property
    def converged_fraction(self) -> float:
        return float(np.mean([r.converged for r in self.reports])) if self.reports else 1.0


@dataclass(frozen=True)
class State:
    """Coordinates now and a step ago; at rest both are zero. Velocity is (y - y_before) / h."""

    y: Float64[np.ndarray, " n"]
    y_before: Float64[np.ndarray, " n"]


def rest_state(model: ReducedModel) -> State:
    return State(np.zeros(model.dof), np.zeros(model.dof))


def placed_state(model: ReducedModel, displacement, velocity, h: float) -> State:
    """The rest shape under an affine ``displacement`` Z (3, 4) with the velocity field V [X; 1], V (3, 4) [1/s, m/s].

    Affine fields lie in the span of an unpinned model; otherwise this is their mass-weighted projection.
    """
    one = np.concatenate([model.rest, np.ones((len(model.rest), 1))], axis=1)
    project = (model.shape * model.masses[:, None]).T @ one  # (K, 4)
    y = (np.asarray(displacement, np.float64) @ project.T).ravel()
    v = (np.asarray(velocity, np.float64) @ project.T).ravel()
    return State(y, y - h * v)


def simulate(
    model: ReducedModel,
    terms: Sequence[Term],
    settings: Settings,
    state: State | None = None,
    *,
    on_frame: Callable[[int], None] | None = None,
) -> Trajectory:
    """Run ``settings.frames`` frames from ``state`` (rest by default) under inertia, elasticity and ``terms``."""
    from threadpoolctl import threadpool_limits

    # The matrices are small: waking a second thread costs more than it does.
    with threadpool_limits(1, user_api="blas"):
        return _run(model, terms, settings, state or rest_state(model), on_frame)


def _run(
    model: ReducedModel,
    terms: Sequence[Term],
    settings: Settings,
    state: State,
    on_frame: Callable[[int], None] | None,
) -> Trajectory:
    contacts = [term for term in terms if isinstance(term, PlaneContact)]
    everything: list[Term] = [Inertia(model), Elasticity(model)]
    everything += [term for term in terms if not isinstance(term, PlaneContact)]
    frames = [model.all_handles(state.y, model.held_coordinates(0.0))]
    reports: list[NewtonReport] = []
    milliseconds: list[float] = []
    deepest = 0.0
    for frame in range(1, settings.frames):
        for substep in range(settings.substeps):
            start = clock.perf_counter()
            step = _step_data(model, state, (frame - 1) * settings.substeps + substep, settings.h)
            y, report = _advance(model, everything, contacts, step, settings.max_iterations)
            milliseconds.append(1e3 * (clock.perf_counter() - start))
            reports.append(report)
            for contact in contacts:
                heights = contact.heights(y, step.held_next, step.target_time)
                deepest = max(deepest, float(-heights.min()))
            state = State(y, state.y)
        frames.append(model.all_handles(state.y, step.held_next))
        if on_frame is not None:
            on_frame(frame)
    times = np.arange(settings.frames) / settings.fps
    return Trajectory(np.stack(frames), times, tuple(reports), np.array(milliseconds), deepest / model.size)


def _step_data(model: ReducedModel, state: State, index: int, h: float) -> Step:
    time = index * h
    before, now, after = (model.held_coordinates(t) for t in (max(time - h, 0.0), time, time + h))
    return Step(time, h, state.y, state.y_before, after, now, before)


def _advance(
    model: ReducedModel, terms: Sequence[Term], contacts: Sequence[Term], step: Step, max_iterations: int
) -> tuple[np.ndarray, NewtonReport]:
    """One implicit step, from the inertial guess."""
    for term in (*terms, *contacts):
        begin = getattr(term, "begin_step", None)
        if begin is not None:
            begin(step)
    return minimise(
        terms,
        2.0 * step.y - step.y_before,
        tolerance=_TOLERANCE * model.size,
        unit=step.h**2 / np.sqrt(model.mass),
        max_iterations=max_iterations,
        sharp=contacts,
        min_iterations=1,
    )
