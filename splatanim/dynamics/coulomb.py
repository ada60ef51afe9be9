"""Coulomb's law for implicit steps: friction as the energy load x f0(|slip|), smoothed where it sticks."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

STICK_SPEED = 1.6e-3  # of sqrt(gravity x size): below it (5 mm/s for 1 m on Earth) friction is a viscous stick
_LAG = 0.25  # of the normal load: a change by more than that within a step has the step solved again


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


class SlipHessians:
    """Second derivatives of f0(|u|), exact or with a memory (primal-dual; Chan, Golub & Mulet 1999).

    f0 is nearly a cone: along the slip it bends only at its tip, so Newton's steps overshoot it by far. With the
    force p = f0' u / |u| as an unknown of its own, the two conditions p = ratio u and equilibrium are linearised
    together. The Hessian left for u is ratio I + (f0'' - ratio) sym(q v^T), v = u / |u| and q = p / f0' cut to unit
    length: the paraboloid over the cone where the force is not known yet (p = 0), the exact Hessian once p = f0' v.
    It is positive semi-definite throughout.
    """

    def __init__(self, points: int, dimensions: int) -> None:
        self._force = np.zeros((points, dimensions))
        self._slip: np.ndarray | None = None

    def exact(
        self, slip: Float64[np.ndarray, "p d"], stick: float | Float64[np.ndarray, " p"]
    ) -> Float64[np.ndarray, "p d d"]:
        """The Hessians in the slips ``slip`` [m]."""
        way, _, ratio, bend = _parts(slip, stick)
        return _hessians(ratio, bend, way, way)

    def cautious(
        self, slip: Float64[np.ndarray, "p d"], stick: float | Float64[np.ndarray, " p"]
    ) -> Float64[np.ndarray, "p d d"]:
        """The Hessians with the forces that the slips of the calls so far lead to; call it once an iteration."""
        if self._slip is not None:
            way, length, ratio, bend = _parts(self._slip, stick)
            change = bend / (ratio * np.maximum(length, 1e-300))  # ratio' / ratio
            along = np.einsum("pc,pc->p", way, slip - self._slip)
            self._force = ratio[:, None] * slip + (change * along)[:, None] * self._force
            self._force /= np.maximum(np.linalg.norm(self._force, axis=1), 1.0)[:, None]
        self._slip = slip
        way, length, ratio, bend = _parts(slip, stick)
        most = np.maximum(ratio * length, np.linalg.norm(self._force, axis=1))
        share = self._force / np.maximum(most, 1e-300)[:, None]
        return _hessians(ratio, bend, share, way)


def _parts(slip: np.ndarray, stick: float | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """v = u / |u|, |u|, f0' / |u| and f0'' - f0' / |u|."""
    length = np.sqrt(np.einsum("pc,pc->p", slip, slip))
    _, ratio, curve = coulomb(length, stick)
    return slip / np.maximum(length, 1e-300)[:, None], length, ratio, curve - ratio


def _hessians(ratio: np.ndarray, bend: np.ndarray, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    outer = one[:, :, None] * two[:, None, :]
    return ratio[:, None, None] * np.eye(one.shape[1]) + (0.5 * bend)[:, None, None] * (
        outer + outer.transpose(0, 2, 1)
    )
