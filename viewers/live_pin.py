"""Pins: regions that stay where they are, as springs so stiff that nothing in the scene moves them visibly.

A prescribed handle would need another field and splats bound anew; springs come and go between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.binding import shape_functions
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Matrix, Step, Vector
from viewers.live_body import LiveBody

_PULL = 100.0  # m/s^2 on the whole body ...
_GIVE = 2e-6  # of its size: ... move a pin by so much
_ELASTIC = 1e4  # times E L, what the body's own elasticity answers with
_POINTS = 256  # a pin at most
_FEWEST = 8


@dataclass(frozen=True)
class Pin:
    """A pinned region: ``points`` of a body at rest with all handles' shape functions there, and where they stay.

    ``weights`` (h,) are the handles' at its ``centre``.
    """

    body: int
    centre: Float64[np.ndarray, " 3"]
    weights: Float64[np.ndarray, " h"]
    points: Float64[np.ndarray, "n 3"]
    shape: Float64[np.ndarray, "n h4"]
    target: Float64[np.ndarray, "n 3"]

    def place(self, handles: Float64[np.ndarray, "h 3 4"]) -> Float64[np.ndarray, " 3"]:
        """Where the centre is under the handles' displacements."""
        return self.centre + np.einsum("h,hrc,c->r", self.weights, handles, np.append(self.centre, 1.0))

    def term(self, model: ReducedModel) -> PinSprings:
        """What holds it, for the body's present model."""
        free = 4 * model.handles.free
        return PinSprings(model, self.shape[:, :free] @ model.to_handles, self.shape[:, free:], self.rests())

    def rests(self) -> Float64[np.ndarray, "n 3"]:
        """The displacements that are kept."""
        return self.target - self.points


def pin_of(bodies: list[LiveBody], body: int, point: Float64[np.ndarray, " 3"], radius: float) -> Pin:
    """A pin of the splats within ``radius`` [m] of a point at rest of a body, where they are now."""
    live = bodies[body]
    rest = live.bound.rest.astype(np.float64)
    distance = np.linalg.norm(rest - point, axis=1)
    rows = np.flatnonzero(distance < radius)
    if len(rows) < _FEWEST:
        rows = np.argsort(distance, kind="stable")[:_FEWEST]
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(_POINTS, len(rows))).astype(int))]
    weights, slopes = live.bound.weights[rows].astype(np.float64), live.bound.slopes[rows].astype(np.float64)
    shape, _ = shape_functions(rest[rows], weights, slopes)
    z = live.handles(live.history).transpose(1, 0, 2).reshape(3, -1)
    at_centre, _ = live.model.handles.evaluate(point[None])
    return Pin(body, point, at_centre[0], rest[rows], shape, rest[rows] + shape @ z.T)


class PinSprings:
    """1/2 k/n sum_p |u_p - w_p|^2 of the displacements u of n points and the wanted w.

    k is such that 100 m/s^2 on the whole body would move the region by 2e-6 of the body's size, its own elasticity by
    1e-4 of a strain: leverage, and what the points leave free, make it more.
    """

    def __init__(
        self,
        model: ReducedModel,
        shape: Float64[np.ndarray, "n k"],
        held: Float64[np.ndarray, "n p"],
        wanted: Float64[np.ndarray, "n 3"],
    ) -> None:
        firm = max(_PULL * model.mass / (_GIVE * model.size), _ELASTIC * model.material.young * model.size)
        self._stiffness = firm / len(shape)
        self._shape, self._held, self._wanted = shape, held, wanted
        self._block = self._stiffness * shape.T @ shape
        self._target = wanted

    def begin_step(self, step: Step) -> None:
        """Take what is prescribed at the step's end."""
        self._target = self._wanted - self._held @ step.held_next.T

    def energy(self, y: Vector) -> float:
        """The springs' energy [J]."""
        return 0.5 * self._stiffness * float(np.sum(self._error(y) ** 2))

    def gradient(self, y: Vector) -> Vector:
        """Its derivative by the coordinates."""
        return np.ascontiguousarray((self._stiffness * self._shape.T @ self._error(y)).T).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        """Its second derivative, which is constant."""
        return np.kron(np.eye(3), self._block)

    def _error(self, y: Vector) -> np.ndarray:
        return self._shape @ y.reshape(3, -1).T - self._target
