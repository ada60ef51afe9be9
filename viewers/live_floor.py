"""A floor that is raised and tilted while something stands on it: it goes to its new place at a bounded speed."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.contact import Plane
from splatanim.dynamics.tilting import CarriedPlane

_SPEED = 0.4  # of the size, a second
_TURN = 30.0  # degrees a second


class LiveFloor:
    """A plane with a height (against where it began) and two tilts, each on its way from a value to another.

    Tilts turn it about its own point, towards the two directions of :func:`viewers.panel_world.across`.
    """

    def __init__(self, plane: Plane, up: np.ndarray, size: float) -> None:
        from viewers.panel_world import across

        self._plane, self._up, self._size = plane, np.asarray(up, np.float64), size
        self._across = across(self._up)
        self._from = self._to = np.zeros(3)  # height [m], two tilts [degrees]
        self._start, self._length = 0.0, 1.0
        self.carried = CarriedPlane(plane, self.motion)

    def go(self, time: float, height: float, tilt: tuple[float, float]) -> None:
        """From where it is at ``time`` [s] to a height [m] and two tilts [degrees]."""
        self._from, self._to = self._values(time), np.array([height, *tilt], np.float64)
        change = np.abs(self._to - self._from)
        seconds = max(change[0] / (_SPEED * self._size), float(change[1:].max()) / _TURN)
        self._start, self._length = time, max(seconds, 1e-3)

    def restart(self) -> None:
        """At once at the values it is going to, as time starts anew."""
        self._from, self._start, self._length = self._to, 0.0, 1.0

    def moving(self, time: float) -> bool:
        """Whether it is on its way."""
        return bool((self._from != self._to).any()) and time < self._start + self._length

    def motion(self, time: float) -> Float64[np.ndarray, "3 4"]:
        """The affine displacement that carries the plane at a time."""
        from viewers.panel_world import turned

        height, first, second = self._values(time)
        linear = turned(self._across, (first, second)) - np.eye(3)
        return np.concatenate([linear, (height * self._up - linear @ self._plane.point)[:, None]], axis=1)

    def at(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Its point and unit normal at a time."""
        plane = self.carried.at(time)
        return plane.point, plane.normal / np.linalg.norm(plane.normal)

    def _values(self, time: float) -> np.ndarray:
        share = float(np.clip((time - self._start) / self._length, 0.0, 1.0))
        return self._from + share * (self._to - self._from)
