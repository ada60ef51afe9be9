"""The inner solve of proximal Newton steps: a quadratic model, plus terms with kinks as they are.

Stiff one-sided springs, barriers and friction are cheap to evaluate, but their Hessians change from one side of a
kink to the other. Newton's whole step then often leads uphill, onto the pieces from which the next one lands at the
minimum, while cutting it back until it descends crawls along the kinks. So a few whole steps in a row may go uphill
(the watchdog technique; Chamberlain et al. 1982); only where none of them has led below the best point so far, the
search returns to that one and goes downhill from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from splatanim.dynamics.descent import (
    Hessian,
    NewtonReport,
    Term,
    Vector,
    descends,
    energy_of,
    factored,
    gradient_of,
    hessian_of,
    line_search,
    longest,
    shifted,
    size_of,
)

NOT_CONVEX = "no Hessian was positive definite"  # a report's reason
MOST = 80  # iterations
_STRIKES = 6  # whole steps in a row that may lead no lower than the best point
_CALM = 2  # whole descending steps with cautious Hessians in a row, after which the exact one is tried


class Quadratic:
    """The second-order model of an expensive energy around ``centre``: what the inner solve sees of it."""

    def __init__(self, centre: Vector, gradient: Vector, hessian: Hessian) -> None:
        self._centre, self._gradient, self._hessian = centre, gradient, hessian
        self._cached: tuple[bytes, Vector, Vector] | None = None

    def _pull(self, y: Vector) -> tuple[Vector, Vector]:
        """y - centre and the Hessian times that, kept for the energy and the gradient of one y."""
        key = y.tobytes()
        if self._cached is None or self._cached[0] != key:
            d = y - self._centre
            self._cached = (key, d, self._hessian @ d)
        return self._cached[1:]

    def energy(self, y: Vector) -> float:
        d, pull = self._pull(y)
        return float(self._gradient @ d + 0.5 * (d @ pull))

    def gradient(self, y: Vector) -> Vector:
        return self._gradient + self._pull(y)[1]

    def hessian(self, y: Vector, psd: bool = True) -> Hessian:
        return self._hessian


@dataclass
class _Point:
    """Where the search is: the energy and gradient there, and the step that leads on with its slope, once known."""

    y: Vector
    value: float
    gradient: Vector
    step: Vector | None = None
    slope: float = 0.0


def solve(
    terms: Sequence[Term], start: Vector, tolerance: float, unit: float | Vector, *, convex: bool
) -> tuple[Vector, NewtonReport]:
    """Minimise ``terms`` (a model and what has kinks) from ``start``, by at least one step.

    With ``convex`` it gives up where no Hessian is positive definite; else that is shifted until it is.
    """
    point = best = _at(terms, np.array(start, np.float64))
    strikes = calm = 0
    for iteration in range(MOST + 1):
        residual = size_of(point.gradient, unit)
        if residual <= tolerance and iteration:
            return point.y, NewtonReport(True, iteration, residual, "converged")
        if iteration == MOST:
            break
        cautious = calm < _CALM
        solver = _solver(terms, point.y, cautious, convex)
        if solver is None:
            if cautious:
                return best.y, NewtonReport(False, iteration, residual, NOT_CONVEX)
            calm = 0
            continue
        step = -solver(point.gradient)
        share = longest(terms, point.y, step)
        point.step, point.slope = share * step, share * float(point.gradient @ step)
        ahead = _at(terms, point.y + point.step)
        down = descends(ahead.value, point.value, point.slope)
        calm = calm + 1 if down and share == 1.0 else 0
        if not (down or cautious):
            continue  # from the same point with a cautious Hessian
        strikes += 1
        if descends(ahead.value, best.value, 0.0):
            best, strikes = ahead, 0
        elif strikes > _STRIKES or not np.isfinite(ahead.value):
            length = 0.0
            if best.step is not None:
                length, _ = line_search(terms, best.y, best.step, best.value, best.slope)
            if best.step is None or length == 0.0:
                return best.y, NewtonReport(False, iteration, residual, "the line search found no descent")
            ahead = best = _at(terms, best.y + length * best.step)
            strikes = calm = 0
        point = ahead
    return best.y, NewtonReport(False, MOST, size_of(best.gradient, unit), f"stopped after {MOST} iterations")


def _at(terms: Sequence[Term], y: Vector) -> _Point:
    return _Point(y, energy_of(terms, y), gradient_of(terms, y))


def _solver(terms: Sequence[Term], y: Vector, cautious: bool, convex: bool) -> Callable[[Vector], Vector] | None:
    """What solves with the Hessian at ``y``; None where that is not positive definite and not shifted either."""
    hessian = hessian_of(terms, y, cautious)
    try:
        return factored(hessian)
    except LinAlgError:
        return None if convex or not cautious else shifted(hessian)[1]
