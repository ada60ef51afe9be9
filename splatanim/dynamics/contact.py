"""Contact with planes: a one-sided penalty (eq. 14) with lagged Coulomb friction, on finite, moving rectangles.

The penalty's stiffness and offset follow from mass and size, not from the user: it starts at ``margin`` above the
plane and is stiff enough that a body that falls its own height is stopped within it, so resting bodies hover inside
the margin (a quarter of a percent of their size) instead of sinking in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.coulomb import STICK_SPEED, SlipHessians, coulomb, load_changed
from splatanim.dynamics.plates import from_below, plate_distance
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Matrix, Step, Vector
from splatanim.errors import InputError

_MARGIN = 2.5e-3  # of the object's size
_THICKNESS = 0.25  # of it: what lies deeper than that in a finite plane as a step begins is under it


@dataclass(frozen=True)
class Plane:
    """A rectangle: ``point`` its centre, unit ``normal`` its solid side's outward direction, ``half_extents`` [m].

    ``tangent`` is the direction of the first half extent (made orthogonal to the normal); infinite extents make a
    half-space. ``shift(time)`` displaces it [m].
    """

    point: Float64[np.ndarray, " 3"]
    normal: Float64[np.ndarray, " 3"]
    tangent: Float64[np.ndarray, " 3"]
    half_extents: tuple[float, float] = (np.inf, np.inf)
    shift: Callable[[float], np.ndarray] | None = None

    def __post_init__(self) -> None:
        if not np.linalg.norm(self.normal) > 0:
            raise InputError("Plane: its normal is zero.")
        if np.linalg.norm(np.cross(self.normal, self.tangent)) < 1e-9:
            raise InputError("Plane: its tangent must not be parallel to its normal.")

    def frame(self) -> Float64[np.ndarray, "3 3"]:
        """Rows: first tangent, second tangent, normal; right-handed and orthonormal."""
        n = self.normal / np.linalg.norm(self.normal)
        a = self.tangent - (self.tangent @ n) * n
        a = a / np.linalg.norm(a)
        return np.stack([a, np.cross(n, a), n])

    def centre(self, time: float) -> Float64[np.ndarray, " 3"]:
        return self.point if self.shift is None else self.point + self.shift(time)


@dataclass(frozen=True)
class _Touch:
    """Contact points at some y: where all are in the plane's frame (s, 3), which ``rows`` are within the margin, how
    deep, and the distance's gradients and second derivatives there (None over a half-space: up, and none)."""

    local: np.ndarray
    rows: np.ndarray
    depth: np.ndarray
    normal: np.ndarray | None = None
    bend: np.ndarray | None = None

    def loads(self, stiffness: float) -> np.ndarray:
        """The forces across the plane on all points (s,) [N]."""
        out = np.zeros(len(self.local))
        out[self.rows] = stiffness * self.depth * (1.0 if self.normal is None else np.maximum(self.normal[:, 2], 0.0))
        return out


class PlaneContact:
    """Penalty and friction of a model's contact points against one plane.

    Energy: sum_j k/2 max(0, margin - d_j)^2 + sum_j mu lambda_j f0(|u_j|), with d_j the distance from the plane
    (:mod:`splatanim.dynamics.plates` for a finite one), u_j the slip along it since the step began (relative to the
    plane's own motion), lambda_j the force across it as the step begins (lagged) and f0 the C^1 smoothing of |u| below
    the stick distance (Li et al. 2020, IPC, eq. 13-14).
    What gets under a finite plane, past its edge or through it by more than a quarter of the size, is left alone until
    it comes up again; that is decided as each step begins, so that the energy of a step is continuous.
    """

    sharp = True  # (see Body of the stepper)

    def __init__(self, model: ReducedModel, plane: Plane, friction: float, gravity: float) -> None:
        self._model = model
        self._plane = plane
        self._friction = friction
        self.margin = _MARGIN * model.size
        speed = np.sqrt(2.0 * max(gravity, 1.0) * model.size)
        self.stiffness = model.mass * (speed / self.margin) ** 2  # one point alone stops the fall within the margin
        self._finite = bool(np.isfinite(plane.half_extents).any())
        self._stick = STICK_SPEED * np.sqrt(max(gravity, 1.0) * model.size)
        n = len(model.contact_rest)
        self._steepest = float(np.linalg.norm(model.contact_shape, axis=1).max())
        self._held_part = np.zeros((n, 3))  # what y does not move, and the anchors, both in the plane's frame
        self._start = np.zeros((n, 3))
        self._under: np.ndarray | None = None  # of a finite plane (a half-space has no far side)
        self._cached: tuple[bytes, _Touch] | None = None
        self._clear = np.zeros(model.dof), 0.0
        self._loaded = np.zeros(0, np.int64)
        self._frame = plane.frame()
        self._load = np.zeros(n)
        self._epsilon = 1.0
        self._slips = SlipHessians(0, 2)

    def _pose(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """The plane's centre and frame at a time."""
        return self._plane.centre(time), self._plane.frame()

    def begin_step(self, step: Step) -> None:
        model = self._model
        before, turned = self._pose(step.time)
        now = (model.contact_positions(step.y, step.held) - before) @ turned.T
        if self._finite:
            self._under = from_below(now, self._plane.half_extents, _THICKNESS * model.size, self.margin, self._under)
        centre, self._frame = self._pose(step.target_time)
        self._held_part = (model.contact_rest + model.contact_held @ step.held_next.T - centre) @ self._frame.T
        self._start = (model.contact_positions(*step.anchors()) + self._travel(step) - centre) @ self._frame.T
        self._epsilon = self._stick * step.span
        self._cached = None
        ahead = self._held_part + model.contact_shape @ (self._frame @ step.y.reshape(3, -1)).T
        self._clear = step.y, (float(self._distances(ahead).min()) - self.margin) / self._steepest
        self._take(self._touch(now).loads(self.stiffness))

    def _take(self, load: np.ndarray) -> None:
        self._load = load
        self._loaded = np.flatnonzero(load) if self._friction > 0 else np.zeros(0, np.int64)
        self._slips = SlipHessians(len(self._loaded), 2)

    def _apart(self, y: Vector) -> bool:
        """Whether all contact points are surely over the margin, from how far y is from where the step began."""
        start, free = self._clear
        return free > 0 and float(np.linalg.norm(y - start)) < free

    def relag(self, y: Vector) -> bool:
        """Take the loads at ``y`` for friction; whether they differ so much that the step should be solved again.

        Lagged loads miss the step of a first touch, and act once more after the last one. (Where they hardly change,
        as of bodies at rest, they stay lagged.)
        """
        load = self._active(y).loads(self.stiffness)
        if self._friction == 0 or not load_changed(float(self._load.sum()), float(load.sum())):
            return False
        self._take(load)
        return True

    def _travel(self, step: Step) -> np.ndarray:
        """How far the plane's own motion carries a point in the seconds that the velocity is taken over."""
        centre, h = self._plane.centre, step.h
        velocity = (centre(step.time + h) - centre(step.time)) / h
        return velocity * step.span

    def heights(self, y: Vector, held: np.ndarray, time: float) -> Float64[np.ndarray, " s"]:
        """Signed distances of the contact points from the plane [m]; infinite for those under a finite one."""
        centre, frame = self._pose(time)
        return self._distances((self._model.contact_positions(y, held) - centre) @ frame.T)

    def _distances(self, local: np.ndarray) -> np.ndarray:
        if not self._finite:
            return local[:, 2]
        value = plate_distance(local, self._plane.half_extents).value
        return value if self._under is None else np.where(self._under, np.inf, value)

    def _touch(self, local: np.ndarray) -> _Touch:
        """What is within the margin, of points at ``local`` in the plane's frame."""
        near = local[:, 2] < self.margin
        if not self._finite:
            rows = np.flatnonzero(near)
            return _Touch(local, rows, self.margin - local[rows, 2])
        rows = np.flatnonzero(near if self._under is None else near & ~self._under)
        found = plate_distance(local[rows], self._plane.half_extents)
        on = found.value < self.margin
        return _Touch(local, rows[on], self.margin - found.value[on], found.normal[on], found.bend[on])

    def _active(self, y: Vector) -> _Touch:
        key = y.tobytes()
        if self._cached is None or self._cached[0] != key:
            local = self._held_part + self._model.contact_shape @ (self._frame @ y.reshape(3, -1)).T
            self._cached = key, self._touch(local)
        return self._cached[1]

    def _slip(self, local: np.ndarray) -> np.ndarray:
        return local[self._loaded, :2] - self._start[self._loaded, :2]

    def energy(self, y: Vector) -> float:
        if not len(self._loaded) and self._apart(y):
            return 0.0
        touch = self._active(y)
        total = 0.5 * self.stiffness * float(touch.depth @ touch.depth)
        if len(self._loaded):
            length = np.linalg.norm(self._slip(touch.local), axis=1)
            total += self._friction * float(self._load[self._loaded] @ coulomb(length, self._epsilon)[0])
        return total

    def gradient(self, y: Vector) -> Vector:
        if not len(self._loaded) and self._apart(y):
            return np.zeros_like(y)
        touch = self._active(y)
        shape = self._model.contact_shape
        force = np.zeros((3, shape.shape[1]))  # in the plane's frame
        push = -self.stiffness * touch.depth
        if touch.normal is None:
            force[2] = push @ shape[touch.rows]
        else:
            force[:] = (push[:, None] * touch.normal).T @ shape[touch.rows]
        if len(self._loaded):
            slip = self._slip(touch.local)
            length = np.linalg.norm(slip, axis=1)
            pull = self._friction * self._load[self._loaded] * coulomb(length, self._epsilon)[1]
            force[:2] += (pull[:, None] * slip).T @ shape[self._loaded]
        return (self._frame.T @ force).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        k = self._model.contact_shape.shape[1]
        if not len(self._loaded) and self._apart(y):
            return np.zeros((3 * k, 3 * k))
        touch = self._active(y)
        blocks = np.zeros((3, 3, k, k))  # in the plane's frame
        shape = self._model.contact_shape[touch.rows]
        if touch.normal is None or touch.bend is None:
            blocks[2, 2] = self.stiffness * (shape.T @ shape)
        else:
            weight = touch.normal[:, :, None] * touch.normal[:, None, :]
            weight = weight if psd else weight - touch.depth[:, None, None] * touch.bend
            _add(blocks, shape, self.stiffness * weight, 3)
        if len(self._loaded):
            bend = (self._slips.cautious if psd else self._slips.exact)(self._slip(touch.local), self._epsilon)
            bend *= (self._friction * self._load[self._loaded])[:, None, None]
            _add(blocks, self._model.contact_shape[self._loaded], bend, 2)
        turned = np.tensordot(self._frame, np.tensordot(self._frame, blocks, (0, 1)), (0, 1))
        return np.ascontiguousarray(turned.transpose(0, 2, 1, 3)).reshape(3 * k, 3 * k)


def _add(blocks: np.ndarray, shape: np.ndarray, weight: np.ndarray, dimensions: int) -> None:
    """Add sum_p W_p[a, b] shape_p shape_p^T to the first ``dimensions`` rows and columns of blocks; W symmetric."""
    for a in range(dimensions):
        for b in range(a, dimensions):
            block = shape.T @ (weight[:, a, b, None] * shape)
            blocks[a, b] += block
            if a != b:
                blocks[b, a] += block
