"""Simulating one body: settings, states and trajectories, and the one-body case of the world (eq. 10, 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.integrators import Integrator
from splatanim.dynamics.newton import NewtonReport, Term
from splatanim.dynamics.reduced import ReducedModel


@dataclass(frozen=True)
class Settings:
    """How time is cut: ``frames`` at ``fps``, each of ``substeps`` implicit steps of the ``integrator``.

    A step that Newton's method does not solve within ``max_iterations`` is retaken as two of half its length, and those
    again, up to ``max_halvings`` times.
    """

    frames: int
    fps: float = 30.0
    substeps: int = 4
    max_iterations: int = 50
    integrator: Integrator = "euler"
    max_halvings: int = 6

    @property
    def h(self) -> float:
        return 1.0 / (self.fps * self.substeps)


@dataclass(frozen=True)
class Trajectory:
    """The motion: ``handles`` (T, h, 3, 4), affine displacements a frame (the first is the start), and how it went.

    ``reports`` and ``milliseconds`` are those of each step, shared by all bodies of a world. ``penetration`` is the
    deepest that a contact point was under a plane at the end of any step, as a fraction of the object's size.
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
    """Run ``settings.frames`` frames from ``state`` (rest by default) under inertia, elasticity, the material's damping
    (:func:`~splatanim.dynamics.damping.material_damping`) and ``terms``.

    The one-body case of :func:`~splatanim.dynamics.world.simulate_world`, without energies.
    """
    from splatanim.dynamics.damping import material_damping
    from splatanim.dynamics.world import Actor, World, run

    actor = Actor("body", model, (*material_damping(model, terms), *terms), state)
    return run(World((actor,), contact=None), settings, on_frame, energies=False).trajectories[0]
