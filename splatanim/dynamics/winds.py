"""Moving air: velocity fields, and their drag on an object's surface points.

The force on a surface point with share A of the surface is 1/2 rho C (A/4) |u| u, u the air's velocity past it: a
quarter of a convex body's surface is its mean projected area (Cauchy), so a body that the wind sees from all sides
feels 1/2 rho C A_projected u^2. |u| is taken at the start of a step and u at its end, which makes the drag a quadratic
energy: implicit, so that light objects stay stable in strong wind, and damping as air is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from splatanim.data import Domain
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.scene_parts import Wind
from splatanim.dynamics.terms import Matrix, Step, Vector

AirField = Callable[[np.ndarray, float], np.ndarray]
"""(points (n, 3) [m], time [s]) -> the air's velocity (n, 3) [m/s]."""

_WAVES = 24  # of a turbulence, enough that no pattern shows


class WindDrag:
    """sum_j c_j h/2 |v_j - w_j|^2 with v_j = (x_j - x_j^t)/h, w_j the air's velocity and c_j = rho C A_j |u_j| / 8.

    (h and x^t are the step's span and anchor where the integrator is of second order.)

    ``area`` is the object's whole surface [m^2], shared evenly by its contact points.
    """

    def __init__(self, model: ReducedModel, air: AirField, area: float, coefficient: float, density: float) -> None:
        self._model = model
        self._air = air
        self._factor = 0.125 * density * coefficient * area / len(model.contact_rest)
        self._weight = np.zeros(len(model.contact_rest))
        self._target = np.zeros((len(model.contact_rest), 3))
        self._block: np.ndarray | None = None

    def begin_step(self, step: Step) -> None:
        model = self._model
        now = model.contact_positions(step.y, step.held)
        before = model.contact_positions(step.y_before, step.held_before)
        air = self._air(now, step.target_time)
        past = np.linalg.norm(air - (now - before) / step.h, axis=1)
        self._weight = self._factor * past / step.span
        held = model.contact_rest + model.contact_held @ step.held_next.T
        self._target = model.contact_positions(*step.anchors()) + step.span * air - held
        self._block = None

    def _pull(self, y: Vector) -> np.ndarray:
        return self._model.contact_shape @ y.reshape(3, -1).T - self._target

    def energy(self, y: Vector) -> float:
        return 0.5 * float(self._weight @ np.sum(self._pull(y) ** 2, axis=1))

    def gradient(self, y: Vector) -> Vector:
        force = self._weight[:, None] * self._pull(y)
        return np.ascontiguousarray((self._model.contact_shape.T @ force).T).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        if self._block is None:
            shape = self._model.contact_shape
            self._block = np.kron(np.eye(3), shape.T @ (self._weight[:, None] * shape))
        return self._block


def air_field(wind: Wind, seed: int = 0) -> AirField:
    """The velocity field of a wind; the same seed gives the same gusts and eddies."""
    return {"uniform": _uniform, "vortex": _vortex, "turbulence": _turbulence}[wind.kind](wind, seed)


def surface_area(domain: Domain) -> float:
    """The area of a domain's surface [m^2]: its voxels' open faces, times 2/3 (what a grid overstates on average).

    A plane of unit normal n has |n_x| + |n_y| + |n_z| = 3/2 on average over directions times its area in open faces.
    """
    from splatanim.field.ritz import neighbours

    return 2.0 * float((neighbours(domain) < 0).sum()) * domain.spacing**2 / 1.5  # as many faces look back


def _uniform(wind: Wind, seed: int) -> AirField:
    """The mean wind times 1 + gusts * noise(t), noise a seeded sum of sines between -1 and 1."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.5, 2.0, 5) / wind.period
    phases = rng.uniform(0.0, 2.0 * np.pi, 5)
    mean = np.asarray(wind.velocity, np.float64)

    def air(points: np.ndarray, time: float) -> np.ndarray:
        noise = float(np.sin(2.0 * np.pi * rates * time + phases).mean()) * 2.0
        return np.tile(mean * (1.0 + wind.gusts * np.clip(noise, -1.0, 1.0)), (len(points), 1))

    return air


def _vortex(wind: Wind, _seed: int) -> AirField:
    """A Rankine-like whirl (Kaufmann's): speed 2 s q / (1 + q^2) at q lengths from the axis, s fastest at q = 1."""
    axis = np.asarray(wind.axis, np.float64) / np.linalg.norm(wind.axis)

    def air(points: np.ndarray, _time: float) -> np.ndarray:
        away = points - np.asarray(wind.at)
        away = away - (away @ axis)[:, None] * axis
        q2 = np.sum(away**2, axis=1) / wind.length**2
        return np.cross(axis, away) * (2.0 * wind.speed / wind.length / (1.0 + q2))[:, None] + wind.velocity

    return air


def _turbulence(wind: Wind, seed: int) -> AirField:
    """Seeded plane waves a_k cos(k.x + w t), a_k across k, so that no air is made or lost; rms speed as asked for."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(_WAVES, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    waves = direction * (2.0 * np.pi / wind.length * rng.uniform(0.5, 1.5, (_WAVES, 1)))
    across = np.cross(direction, rng.normal(size=(_WAVES, 3)))
    across *= wind.speed * np.sqrt(2.0 / _WAVES) / np.linalg.norm(across, axis=1, keepdims=True)
    rates = 2.0 * np.pi / wind.period * rng.uniform(0.5, 1.5, _WAVES)
    phases = rng.uniform(0.0, 2.0 * np.pi, _WAVES)

    def air(points: np.ndarray, time: float) -> np.ndarray:
        return np.cos(points @ waves.T + rates * time + phases) @ across + np.asarray(wind.velocity)

    return air
