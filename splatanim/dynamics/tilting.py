"""Contact with planes that move and turn: the plane of :mod:`splatanim.dynamics.contact`, carried by a motion."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.regions import Motion
from splatanim.dynamics.terms import Step


@dataclasses.dataclass(frozen=True)
class CarriedPlane:
    """``plane`` as it lies at rest, and the rigid ``motion``, t [s] -> affine displacement (3, 4), that carries it."""

    plane: Plane
    motion: Motion

    def at(self, time: float) -> Plane:
        """The plane as it lies at a time."""
        z = np.asarray(self.motion(time), np.float64)
        linear = np.eye(3) + z[:, :3]
        tangent, _, normal = self.plane.frame() @ linear.T
        point = self.plane.point + z[:, :3] @ self.plane.point + z[:, 3]
        return dataclasses.replace(self.plane, point=point, normal=normal, tangent=tangent)


class CarriedContact(PlaneContact):
    """Penalty and friction against a :class:`CarriedPlane`; what lies on it is taken along by friction, turns too."""

    def __init__(self, model: ReducedModel, carried: CarriedPlane, friction: float, gravity: float) -> None:
        self._carried = carried

        def shift(time: float) -> Float64[np.ndarray, " 3"]:
            return carried.at(time).point - carried.plane.point

        super().__init__(model, dataclasses.replace(carried.plane, shift=shift), friction, gravity)

    def _pose(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        plane = self._carried.at(time)
        return plane.point, plane.frame()

    def _travel(self, step: Step) -> np.ndarray:
        """The plane's own displacement at each contact point, over the seconds that the velocity is taken over."""
        before = np.asarray(self._carried.motion(step.time), np.float64)
        after = np.asarray(self._carried.motion(step.time + step.h), np.float64)
        x = self._model.contact_positions(step.y, step.held)
        rest = np.linalg.solve(np.eye(3) + before[:, :3], (x - before[:, 3]).T).T  # of the plane, where x touches it
        change = after - before
        return (rest @ change[:, :3].T + change[:, 3]) * (step.span / step.h)
