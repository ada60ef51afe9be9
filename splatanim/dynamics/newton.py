"""Newton's method on a sum of energy terms. It knows no physics: a term is an energy with derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from splatanim.dynamics import proximal
from splatanim.dynamics.descent import (
    Hessian,
    NewtonReport,
    Term,
    Vector,
    energy_of,
    factored,
    gradient_of,
    hessian_of,
    line_search,
    longest,
    shift,
    shifted,
    size_of,
)

_DAMPINGS = (0, 1, 2, 4, 6)  # decades of its smallest diagonal entry that a model with sharp terms is stiffened by

_TRIES = 40  # lengths of a step
_SHORTER = 6  # times that a projected proximal step is shortened on a line, before its model is stiffened instead

__all__ = ["NewtonReport", "Term", "minimise"]


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

    The exact Hessian is used wherever it is positive definite and its whole step lowers the energy as it promises,
    for quadratic convergence; elsewhere the projected one, whose steps do not overshoot; one that brought the end
    within a step or two is kept for those. ``sharp`` terms are cheap beside ``terms`` and have kinks that a quadratic
    misses (planes, barriers, friction): each iteration minimises the quadratic model of ``terms`` plus the sharp terms
    as they are (a proximal Newton step; Lee, Sun & Saunders 2014), so that the expensive Hessian is not spent on
    sorting out contacts.

    Converged means |gradient of the whole * unit| <= tolerance, at the point that is returned. ``unit`` makes the
    gradient comparable across scales (and, one a coordinate, across bodies): the simulator passes h^2 / sqrt(mass),
    which turns it into metres. With
    ``min_iterations`` a start that is good enough already is improved all the same: an inertial guess always is when
    steps are short, and taking it as it is would leave out the forces.
    """
    problem = _Problem(list(terms), list(sharp), tolerance, unit)
    return _descend(problem, np.array(start, np.float64), max_iterations, min_iterations)


@dataclass(frozen=True)
class _Problem:
    """What is minimised (see :func:`minimise`)."""

    terms: list[Term]
    sharp: list[Term]
    tolerance: float
    unit: float | Vector

    @property
    def every(self) -> list[Term]:
        return [*self.terms, *self.sharp]

    def slopes(self, y: Vector) -> tuple[Vector, Vector]:
        """The gradients of ``terms`` and of the whole."""
        smooth = gradient_of(self.terms, y)
        return smooth, smooth + gradient_of(self.sharp, y) if self.sharp else smooth


@dataclass
class _Curvature:
    """A Hessian, and what solves with it (where no sharp terms are added to it first).

    ``tries``: how many lengths of its step are tried. A ``damped`` one is stiffer than any that the energy has.
    ``used``: the steps taken with it.
    """

    hessian: Hessian
    solve: Callable[[Vector], Vector] | None
    exact: bool
    tries: int = 1
    damped: bool = False
    used: int = 0


@dataclass(frozen=True)
class _Move:
    """A step that was found, what share of the whole one it is, the energy at its end, and the Hessian behind it."""

    step: Vector
    length: float
    value: float
    curvature: _Curvature


def _descend(problem: _Problem, y: Vector, most: int, least: int) -> tuple[Vector, NewtonReport]:
    value = energy_of(problem.every, y)
    smooth, gradient = problem.slopes(y)
    kept, before, length = None, np.inf, 0.0
    for iteration in range(most + 1):
        residual = size_of(gradient, problem.unit)
        if not np.isfinite(residual):
            return y, NewtonReport(False, iteration, residual, "the energy is not finite")
        if residual <= problem.tolerance and (iteration >= least or residual == 0.0):
            return y, NewtonReport(True, iteration, residual, "converged")
        if iteration == most:
            break
        if kept is not None and (length < 1.0 or not _soon(before, residual, problem.tolerance, kept.used)):
            kept = None
        move = _move(problem, y, value, smooth, residual, kept)
        if move is None:
            if residual <= problem.tolerance:
                return y, NewtonReport(True, iteration, residual, "converged")
            return y, NewtonReport(False, iteration, residual, "the line search found no descent")
        before, kept, length = residual, move.curvature, move.length
        kept.used += 1
        y, value = y + move.step, move.value
        smooth, gradient = problem.slopes(y)
    return y, NewtonReport(False, most, residual, f"stopped after {most} iterations")


def _move(
    problem: _Problem, y: Vector, value: float, smooth: Vector, residual: float, kept: _Curvature | None
) -> _Move | None:
    """The step of the first Hessian whose whole step descends, or what is left of the last one's; None if nothing."""
    every = problem.every
    for curvature in _curvatures(problem, y, kept):
        step, expected = _step(problem, curvature, y, smooth)
        if step is None:
            continue
        expected = min(expected, 0.0)
        # A proximal step ends where its own solve got to with all gaps open, perhaps not on a straight line.
        share = 1.0 if problem.sharp else longest(every, y, step)
        length, trial = line_search(every, y, share * step, value, share * expected, curvature.tries)
        if length == 0.0 and problem.sharp and not curvature.exact:
            share = longest(every, y, step)
            length, trial = line_search(every, y, share * step, value, share * expected, _SHORTER)
        step = share * step
        if length > 0.0:
            return _Move(length * step, 0.0 if curvature.damped else length * share, trial, curvature)
        # Energies agree to rounding before gradients do: a step that shrinks the gradient is still progress.
        rounding = curvature.tries > 1 or abs(expected) < 1e-9 * abs(value)
        if rounding and size_of(problem.slopes(y + step)[1], problem.unit) < 0.5 * residual:
            return _Move(step, share, energy_of(every, y + step), curvature)
    return None


def _curvatures(problem: _Problem, y: Vector, kept: _Curvature | None) -> Iterator[_Curvature]:
    """The Hessians to be tried in turn: the one at hand, the exact one, the projected one, and as the last resort
    parts of the step of the exact one, or of the projected one's once that is shifted."""
    if kept is not None:
        yield kept
    if problem.sharp:
        yield from _models(problem, y)
        return
    exact: _Curvature | None = None
    for psd in (False, True):
        hessian = hessian_of(problem.terms, y, psd)
        try:
            found = _Curvature(hessian, factored(hessian), not psd, tries=_TRIES if psd else 1)
        except LinAlgError:
            continue
        exact = exact if psd else found
        yield found
    yield dataclasses.replace(exact, tries=_TRIES) if exact else _Curvature(*shifted(hessian), False, tries=_TRIES)


def _models(problem: _Problem, y: Vector) -> Iterator[_Curvature]:
    """The same for proximal steps; in the end shorter and shorter ones, since a bound on a straight line would not
    lead round what is in the way."""
    yield _Curvature(hessian_of(problem.terms, y, False), None, True)
    hessian = hessian_of(problem.terms, y, True)
    yield _Curvature(hessian, None, False)
    diagonal = hessian.diagonal()
    least = max(float(diagonal.min()), 1e-6 * float(diagonal.max()))
    for power in _DAMPINGS:
        yield _Curvature(shift(hessian, 10.0**power * least), None, False, damped=True)


def _soon(before: float, residual: float, tolerance: float, used: int) -> bool:
    """Whether one more step with the Hessian at hand should do, or two.

    A whole step took the residual from ``before`` to ``residual``. Where Newton's method converges quadratically, the
    next step with the old Hessian shrinks it by twice that ratio, any later one by as much as the last did.
    """
    ratio = residual / before * (2.0 if used == 1 else 1.0)
    return ratio < 0.5 and residual * ratio**2 <= tolerance


def _step(problem: _Problem, curvature: _Curvature, y: Vector, gradient: Vector) -> tuple[Vector | None, float]:
    """The Newton step, -H^-1 g by Cholesky or with sharp terms the minimiser of the model and them, and by how much
    it should change the energy; None where an exact model turns out not to be convex."""
    if curvature.solve is not None:
        step = -curvature.solve(gradient)
        return step, float(gradient @ step)
    model = proximal.Quadratic(y, gradient, curvature.hessian)
    terms = [model, *problem.sharp]
    found, report = proximal.solve(terms, y, 0.1 * problem.tolerance, problem.unit, convex=curvature.exact)
    if report.reason == proximal.NOT_CONVEX:
        return None, 0.0
    change = energy_of(problem.sharp, found) - energy_of(problem.sharp, y)
    return found - y, float(gradient @ (found - y)) + change
