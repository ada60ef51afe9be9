"""Coulomb friction between bodies: smoothed, and lagged as in Li et al. 2020 (IPC, sec. 5).

For each pair in contact, mu lambda f0(|w|) with w the slip of the two *surface* points (not of the ball centres, whose
lever arm about a rolling body's axis is shorter) across the normal, since the step's anchor; lambda the barrier's
force and the normal are those of the last solve (lagged). f0 is |w| but for a C^1 rounding below the stick distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.blocks import BlockMatrix
from splatanim.dynamics.coulomb import STICK_SPEED, SlipHessians, coulomb, load_changed
from splatanim.dynamics.pairs import Group
from splatanim.dynamics.surfaces import Surfaces
from splatanim.dynamics.terms import Step, Vector

if TYPE_CHECKING:
    from splatanim.dynamics.barrier import Active


class PairFriction:
    """Friction of the pairs that :meth:`load` was last given, with the ``coefficients`` of their groups."""

    def __init__(self, surfaces: Surfaces, coefficients: np.ndarray, groups: Sequence[Group], gravity: float) -> None:
        self._surfaces = surfaces
        self._coefficients = coefficients
        self._stick = STICK_SPEED * np.sqrt(gravity * np.array([group.size for group in groups]))
        self._steps: Sequence[Step] = ()
        self._first = self._second = np.zeros(0, np.int64)
        self._limit = self._epsilon = np.zeros(0)  # mu lambda [N] and stick distance [m] of each pair
        self._normal = self._offset = np.zeros((0, 3))
        self._total = 0.0
        self._slips = SlipHessians(0, 3)

    def begin_step(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    def load(self, pairs: Active, pull: Float64[np.ndarray, " p"]) -> None:
        """Take the pairs in contact, dE/dg of each being ``pull`` [N] (negative)."""
        steps, surfaces = self._steps, self._surfaces
        self._first, self._second, self._normal = pairs.first, pairs.second, pairs.normal
        self._limit = -pull * self._coefficients[pairs.group]
        self._total = float(-pull.sum())
        self._slips = SlipHessians(len(pairs.first), 3)
        span = steps[0].span
        self._epsilon = self._stick[pairs.group] * span
        # slip = (x_1 - x_2) at y, less the same at the anchors: all that is not N y is the offset
        free, held = zip(*(step.anchors() for step in steps), strict=True)
        ends = [step.held_next for step in steps]
        anchor, zero = np.concatenate(free), np.zeros(sum(len(part) for part in free))
        time, end = steps[0].time, steps[0].target_time
        self._offset = np.zeros((len(pairs.first), 3))
        for points, sign in ((pairs.first, 1.0), (pairs.second, -1.0)):
            body = surfaces.body[points]
            base = surfaces.skin(points, zero, ends, end) - surfaces.skin(points, anchor, held, time)
            share = np.where(body < surfaces.bodies, 1.0, span / steps[0].h)  # an obstacle's mean speed times the span
            self._offset += sign * share[:, None] * base

    def relag(self, pairs: Active, pull: Float64[np.ndarray, " p"]) -> bool:
        """Take the loads that a solve has found; whether they differ so much that it should be repeated."""
        if not self._coefficients.any() or not load_changed(self._total, float(-pull.sum())):
            return False
        self.load(pairs, pull)
        return True

    def _slip(self, y: Vector) -> tuple[np.ndarray, np.ndarray]:
        surfaces = self._surfaces
        w = self._offset + surfaces.free_skin(self._first, y) - surfaces.free_skin(self._second, y)
        w = w - np.einsum("pc,pc->p", w, self._normal)[:, None] * self._normal
        return w, np.linalg.norm(w, axis=1)

    def energy(self, y: Vector) -> float:
        if not len(self._first):
            return 0.0
        _, length = self._slip(y)
        return float(self._limit @ coulomb(length, self._epsilon)[0])

    def gradient(self, y: Vector) -> Vector:
        if not len(self._first):
            return np.zeros_like(y)
        w, length = self._slip(y)
        force = (self._limit * coulomb(length, self._epsilon)[1])[:, None] * w
        return self._surfaces.gather(self._first, self._second, force, skin=True)

    def hessian(self, y: Vector, psd: bool = True) -> BlockMatrix:
        w, _ = self._slip(y)
        bend = (self._slips.cautious if psd else self._slips.exact)(w, self._epsilon)
        across = np.eye(3) - self._normal[:, :, None] * self._normal[:, None, :]
        weight = self._limit[:, None, None] * (across @ bend @ across)
        return self._surfaces.assemble(self._first, self._second, weight, skin=True)
