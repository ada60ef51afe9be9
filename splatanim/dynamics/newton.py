"""Newton's method on a sum of energy terms. It knows no physics: a term is an energy with derivatives."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from splatanim.dynamics.blocks import BlockMatrix, cholesky

Vector = Float64[np.ndarray, " n"]
Hessian = Float64[np.ndarray, "n n"] | BlockMatrix


@runtime_checkable
class Term(Protocol):
    """An energy [J] of the reduced coordinates y (n,), with exact gradient and Hessian.

    ``hessian(y, psd=True)`` is projected to be positive semi-definite; with ``psd=False`` it is exact. It is dense, or
    a :class:`BlockMatrix` in the coordinates of several bodies. A contact term may add ``max_step(y, direction)``: the
    longest step in [0, 1] that keeps every gap open.
    """

    def energy(self, y: Vector) -> float: ...

    def gradient(self, y: Vector) -> Vector: ...

    def hessian(self, y: Vector, psd: bool = True) -> Hessian: ...


@dataclass(frozen=True)
class NewtonReport:
    """What the solve did. ``residual`` is the gradient norm in the caller's units (see ``minimise``)."""

    converged: bool
    iterations: int
    residual: float
    reason: str


class _Quadratic:
    """The second-order model of an expensive energy around ``centre``: what the inner solve sees of it."""

    def __init__(self, centre: Vector, gradient: Vector, hessian: Hessian) -> None:
        self._centre, self._gradient, self._hessian = centre, gradient, hessian

    def energy(self, y: Vector) -> float:
        d = y - self._centre
        return float(self._gradient @ d + 0.5 * (d @ (self._hessian @ d)))

    def gradient(self, y: Vector) -> Vector:
        return self._gradient + self._hessian @ (y - self._centre)

    def hessian(self, y: Vector, psd: bool = True) -> Hessian:
        return self._hessian


def minimise(
    terms: Sequence[Term],
    start: Vector,
    *,
    tolerance: float,
    unit: float | Vector = 1.0,
    max_iterations: int = 30,
    min_iterations: int = 0,
    sharp: Sequence[Term] = (),
) -> tuple[Vector, NewtonReport]:
    """Minimise the sum of ``terms`` and ``sharp`` from ``start`` by Newton's method with a backtracking line search.

    The exact Hessian is used wherever it is positive definite, for quadratic convergence, and the projected one
    elsewhere, for a descent direction; one that brought the end within a step or two is kept for those. ``sharp``
    terms are cheap beside ``terms`` and have kinks that a quadratic misses (planes, friction): each iteration
    minimises the quadratic model of ``terms`` plus the sharp terms as they are (a proximal Newton step; Lee, Sun &
    Saunders 2014), so that the expensive Hessian is not spent on sorting out contacts.

    Converged means |gradient of the whole * unit| <= tolerance, at the point that is returned. ``unit`` makes the
    gradient comparable across scales (and, one a coordinate, across bodies): the simulator passes h^2 / sqrt(mass),
    which turns it into metres. With
    ``min_iterations`` a start that is good enough already is improved all the same: an inertial guess always is when
    steps are short, and taking it as it is would leave out the forces.
    """
    y = np.array(start, np.float64)
    every = [*terms, *sharp]
    value = _energy(every, y)
    smooth = _gradient(terms, y)
    gradient = smooth + _gradient(sharp, y) if sharp else smooth
    curvature, before, length = None, np.inf, 0.0
    for iteration in range(max_iterations + 1):
        residual = float(np.linalg.norm(gradient * unit))
        if not np.isfinite(residual):
            return y, NewtonReport(False, iteration, residual, "the energy is not finite")
        if residual <= tolerance and (iteration >= min_iterations or residual == 0.0):
            return y, NewtonReport(True, iteration, residual, "converged")
        if iteration == max_iterations:
            break
        if curvature is None or length < 1.0 or not _soon(before, residual, tolerance, curvature.used):
            curvature = _curvature(terms, y)
        before, curvature.used = residual, curvature.used + 1
        step = _step(curvature, sharp, y, smooth, 0.1 * tolerance, unit)
        share = _longest(every, y, step)
        step *= share
        expected = float(smooth @ step) + _energy(sharp, y + step) - _energy(sharp, y)
        length, trial = _line_search(every, y, step, value, min(expected, 0.0))
        ahead = y + (length or 1.0) * step
        smooth_ahead = _gradient(terms, ahead)
        slope = smooth_ahead + _gradient(sharp, ahead) if sharp else smooth_ahead
        if length == 0.0:
            # Energies agree to rounding before gradients do: a step that shrinks the gradient is still progress.
            if not np.linalg.norm(slope * unit) < 0.5 * residual:
                if residual <= tolerance:
                    return y, NewtonReport(True, iteration, residual, "converged")
                return y, NewtonReport(False, iteration, residual, "the line search found no descent")
            trial = _energy(every, ahead)
        length *= share
        y, value, smooth, gradient = ahead, trial, smooth_ahead, slope
    return y, NewtonReport(False, max_iterations, residual, f"stopped after {max_iterations} iterations")


def _energy(terms: Sequence[Term], y: Vector) -> float:
    return float(sum(term.energy(y) for term in terms))


def _gradient(terms: Sequence[Term], y: Vector) -> Vector:
    return np.add.reduce([term.gradient(y) for term in terms])


@dataclass
class _Curvature:
    """A Hessian, what solves with it, and the number of steps taken with it."""

    hessian: Hessian
    solve: Callable[[Vector], Vector]
    used: int = 0


def _curvature(terms: Sequence[Term], y: Vector) -> _Curvature:
    """The Hessian at ``y``: exact where that is positive definite, projected elsewhere, shifted if need be."""
    for psd in (False, True):
        hessian = functools.reduce(operator.add, [term.hessian(y, psd) for term in terms])
        try:
            return _Curvature(hessian, _factor(hessian))
        except LinAlgError:
            continue
    return _Curvature(*_shifted(hessian))


def _soon(before: float, residual: float, tolerance: float, used: int) -> bool:
    """Whether one more step with the Hessian at hand should do, or two.

    A whole step took the residual from ``before`` to ``residual``. Where Newton's method converges quadratically, the
    next step with the old Hessian shrinks it by twice that ratio, any later one by as much as the last did.
    """
    ratio = residual / before * (2.0 if used == 1 else 1.0)
    return ratio < 0.5 and residual * ratio**2 <= tolerance


def _step(
    curvature: _Curvature,
    sharp: Sequence[Term],
    y: Vector,
    gradient: Vector,
    tolerance: float,
    unit: float | Vector,
) -> Vector:
    """The Newton step: -H^-1 g by Cholesky, or with sharp terms the minimiser of the model and them."""
    if not sharp:
        return -curvature.solve(gradient)
    model = _Quadratic(y, gradient, curvature.hessian)
    inner, _ = minimise([model, *sharp], y, tolerance=tolerance, unit=unit, max_iterations=60, min_iterations=1)
    return inner - y


def _factor(hessian: Hessian) -> Callable[[Vector], Vector]:
    """Cholesky's factor, as what solves with it; raises ``LinAlgError`` for what is not positive definite."""
    if isinstance(hessian, BlockMatrix):
        return cholesky(hessian).solve
    factor = cho_factor(hessian, lower=True, check_finite=False)
    return lambda right: cho_solve(factor, right, check_finite=False)


def _shifted(hessian: Hessian) -> tuple[Hessian, Callable[[Vector], Vector]]:
    """The smallest diagonal shift (by decades) that lets Cholesky through where rounding has spoilt the projection."""
    scale = max(float(np.abs(hessian.diagonal()).max()), 1e-300)
    shift = hessian.shifted if isinstance(hessian, BlockMatrix) else lambda by: hessian + by * np.eye(len(hessian))
    for power in range(-12, 4):
        try:
            shifted = shift(10.0**power * scale)
            return shifted, _factor(shifted)
        except LinAlgError:
            continue
    identity = scale * np.eye(len(hessian))
    return identity, lambda right: right / scale


def _longest(terms: Sequence[Term], y: Vector, step: Vector) -> float:
    """The share of a step that every term admits."""
    bounds = [term.max_step(y, step) for term in terms if hasattr(term, "max_step")]
    return min([1.0, *bounds])


def _line_search(
    terms: Sequence[Term], y: np.ndarray, step: np.ndarray, value: float, slope: float
) -> tuple[float, float]:
    """Armijo backtracking from the whole step; returns (length, energy there), length 0 if none."""
    length = 1.0
    rounding = 1e-13 * abs(value)
    for _ in range(40):
        trial = _energy(terms, y + length * step)
        if trial <= value + 1e-4 * length * slope + rounding:
            return length, trial
        length *= 0.5
    return 0.0, value
