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

from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Matrix, Step, Vector
from splatanim.errors import InputError

_MARGIN = 2.5e-3  # of the object's size
STICK_SPEED = 1.6e-3  # of sqrt(gravity x size): below it (5 mm/s for 1 m on Earth) friction is a viscous stick
_LAG = 0.25  # of the normal load: a change by more than that within a step has the step solved again


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


class PlaneContact:
    """Penalty and friction of a model's contact points against one plane.

    Energy: sum_j k/2 max(0, margin - d_j)^2 + sum_j mu lambda_j f0(|u_j|), with d_j the height over the plane, u_j the
    slip along it since the step began (relative to the plane's own motion), lambda_j the normal force at the start
    of the step (lagged) and f0 the C^1 smoothing of |u| below the stick distance (Li et al. 2020, IPC, eq. 13-14).
    A point under a finite rectangle by more than ``thickness`` belongs to the far side and is left alone.
    """

    def __init__(self, model: ReducedModel, plane: Plane, friction: float, gravity: float) -> None:
        self._model = model
        self._plane = plane
        self._friction = friction
        self.margin = _MARGIN * model.size
        speed = np.sqrt(2.0 * max(gravity, 1.0) * model.size)
        self.stiffness = model.mass * (speed / self.margin) ** 2  # one point alone stops the fall within the margin
        self._finite = bool(np.isfinite(plane.half_extents).any())
        # a half-space has no far side: whatever fell through it in one long step is pushed back
        self._thickness = 0.25 * model.size if self._finite else np.inf
        self._stick = STICK_SPEED * np.sqrt(max(gravity, 1.0) * model.size)
        n = len(model.contact_rest)
        self._steepest = float(np.linalg.norm(model.contact_shape, axis=1).max())
        self._held_part = np.zeros((n, 3))  # what y does not move, and the anchors, both in the plane's frame
        self._start = np.zeros((n, 3))
        self._cached: tuple[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None
        self._clear = np.zeros(model.dof), 0.0
        self._loaded = np.zeros(0, np.int64)
        self._centre = plane.point
        self._frame = plane.frame()
        self._load = np.zeros(n)
        self._epsilon = 1.0

    def begin_step(self, step: Step) -> None:
        model, frame = self._model, self._frame
        self._centre = self._plane.centre(step.target_time)
        self._held_part = (model.contact_rest + model.contact_held @ step.held_next.T - self._centre) @ frame.T
        self._start = (model.contact_positions(*step.anchors()) + self._travel(step) - self._centre) @ frame.T
        self._epsilon = self._stick * step.span
        self._cached = None
        height = self._held_part[:, 2] + model.contact_shape @ (frame[2] @ step.y.reshape(3, -1))
        self._clear = step.y, (float(height.min()) - self.margin) / self._steepest
        self._load, self._loaded = np.zeros(len(height)), np.zeros(0, np.int64)
        if not self._apart(step.y):
            self._take(self.stiffness * self._active(step.y)[1])

    def _take(self, load: np.ndarray) -> None:
        self._load = load
        self._loaded = np.flatnonzero(load) if self._friction > 0 else np.zeros(0, np.int64)

    def _apart(self, y: Vector) -> bool:
        """Whether all contact points are surely over the margin, from how far y is from where the step began."""
        start, free = self._clear
        return free > 0 and float(np.linalg.norm(y - start)) < free

    def relag(self, y: Vector) -> bool:
        """Take the loads at ``y`` for friction; whether they differ so much that the step should be solved again.

        Lagged loads miss the step of a first touch, and act once more after the last one. (Where they hardly change,
        as of bodies at rest, they stay lagged.)
        """
        load = self.stiffness * self._active(y)[1]
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
        """Signed heights of the contact points over the plane [m], infinite beside a finite one."""
        local = (self._model.contact_positions(y, held) - self._plane.centre(time)) @ self._frame.T
        inside = (np.abs(local[:, :2]) <= self._plane.half_extents).all(axis=1) & (local[:, 2] > -self._thickness)
        return np.where(inside, local[:, 2], np.inf)

    def _active(self, y: Vector) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions in the plane's frame (s, 3), depth below the margin (zero where inactive), and the active rows."""
        key = y.tobytes()
        if self._cached is None or self._cached[0] != key:
            local = self._held_part + self._model.contact_shape @ (self._frame @ y.reshape(3, -1)).T
            depth = np.maximum(self.margin - local[:, 2], 0.0)
            rows = np.flatnonzero(depth)
            if len(rows) and self._finite:
                beside = (np.abs(local[rows, :2]) > self._plane.half_extents).any(axis=1)
                depth[rows[beside | (local[rows, 2] <= -self._thickness)]] = 0.0
                rows = np.flatnonzero(depth)
            self._cached = key, (local, depth, rows)
        return self._cached[1]

    def _slip(self, local: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slip = local[self._loaded, :2] - self._start[self._loaded, :2]
        return slip, np.sqrt(slip[:, 0] ** 2 + slip[:, 1] ** 2)

    def energy(self, y: Vector) -> float:
        if not len(self._loaded) and self._apart(y):
            return 0.0
        local, depth, rows = self._active(y)
        total = 0.5 * self.stiffness * float(depth[rows] @ depth[rows])
        if len(self._loaded):
            _, u = self._slip(local)
            total += self._friction * float(self._load[self._loaded] @ coulomb(u, self._epsilon)[0])
        return total

    def gradient(self, y: Vector) -> Vector:
        if not len(self._loaded) and self._apart(y):
            return np.zeros_like(y)
        local, depth, rows = self._active(y)
        shape = self._model.contact_shape
        force = np.zeros((3, shape.shape[1]))  # in the plane's frame
        force[2] = -self.stiffness * (depth[rows] @ shape[rows])
        if len(self._loaded):
            slip, u = self._slip(local)
            pull = self._friction * self._load[self._loaded] * coulomb(u, self._epsilon)[1]
            force[:2] = (pull[:, None] * slip).T @ shape[self._loaded]
        return (self._frame.T @ force).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        k = self._model.contact_shape.shape[1]
        if not len(self._loaded) and self._apart(y):
            return np.zeros((3 * k, 3 * k))
        local, _, rows = self._active(y)
        blocks = np.zeros((3, 3, k, k))  # in the plane's frame
        shape = self._model.contact_shape[rows]
        blocks[2, 2] = self.stiffness * (shape.T @ shape)
        if len(self._loaded):
            slip, u = self._slip(local)
            _, ratio, curve = coulomb(u, self._epsilon)
            direction = slip / np.maximum(u, 1e-300)[:, None]
            load = self._friction * self._load[self._loaded]
            shape = self._model.contact_shape[self._loaded]
            for a, b in ((0, 0), (0, 1), (1, 1)):
                w = load * ((curve - ratio) * direction[:, a] * direction[:, b] + (ratio if a == b else 0.0))
                blocks[a, b] = shape.T @ (w[:, None] * shape)
            blocks[1, 0] = blocks[0, 1]
        turned = np.tensordot(self._frame, np.tensordot(self._frame, blocks, (0, 1)), (0, 1))
        return np.ascontiguousarray(turned.transpose(0, 2, 1, 3)).reshape(3 * k, 3 * k)


def coulomb(
    slip: Float64[np.ndarray, " p"], stick: float | Float64[np.ndarray, " p"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f0 (|u|, but rounded below the ``stick`` distance), f0' / |u| (finite at 0) and f0'' of slips |u| [m]."""
    below = slip < stick
    f0 = np.where(below, -(slip**3) / (3 * stick * stick) + slip * slip / stick + stick / 3, slip)
    ratio = np.where(below, -slip / (stick * stick) + 2.0 / stick, 1.0 / np.maximum(slip, stick))
    return f0, ratio, np.where(below, -2.0 * slip / (stick * stick) + 2.0 / stick, 0.0)


def load_changed(before: float, after: float) -> bool:
    """Whether normal loads [N] differ so much that friction should be solved for again."""
    return abs(after - before) > _LAG * max(before, after)
