"""Newton's method on a sum of energy terms. It knows no physics: a term is an energy with derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float64
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Vector = Float64[np.ndarray, " n"]


class Term(Protocol):
    """An energy [J] of the reduced coordinates y (n,), with exact gradient and Hessian.

    ``hessian(y, psd=True)`` is projected to be positive semi-definite; with ``psd=False`` it is exact. A contact term
    may add ``max_step(y, direction)``: the longest step in [0, 1] that keeps every gap open.
    """

    def energy(self, y: Vector) -> float: ...

    def gradient(self, y: Vector) -> Vector: ...

    def hessian(self, y: Vector, psd: bool = True) -> Float64[np.ndarray, "n n"]: ...


@dataclass(frozen=True)
class NewtonReport:
    """What the solve did. ``residual`` is the gradient norm in the caller's units (see ``minimise``)."""

    converged: bool
    iterations: int
    residual: float
    reason: str


def minimise(
    terms: Sequence[Term],
    start: Vector,
    *,
    tolerance: float,
    unit: float = 1.0,
    max_iterations: int = 30,
    min_iterations: int = 0,
) -> tuple[Vector, NewtonReport]:
    """Minimise the sum of ``terms`` from ``start`` by Newton's method with a backtracking line search.

    The exact Hessian is used wherever it is positive definite, for quadratic convergence, and the projected one
    elsewhere, for a descent direction. Converged means |gradient| * unit <= tolerance, at the point that is returned.
    ``unit`` makes the gradient comparable across scales: the simulator passes h^2 / sqrt(mass), which turns it into
    metres of displacement. With ``min_iterations`` a start that is good enough already is improved all the same: an
    inertial guess always is when steps are short, and taking it as it is would leave out the forces.
    """
    y = np.array(start, np.float64)
    value = sum(term.energy(y) for term in terms)
    gradient = np.add.reduce([term.gradient(y) for term in terms])
    for iteration in range(max_iterations + 1):
        residual = float(np.linalg.norm(gradient)) * unit
        if not np.isfinite(residual):
            return y, NewtonReport(False, iteration, residual, "the energy is not finite")
        if residual <= tolerance and (iteration >= min_iterations or residual == 0.0):
            return y, NewtonReport(True, iteration, residual, "converged")
        if iteration == max_iterations:
            break
        step = -_solve(terms, y, gradient)
        step *= _longest(terms, y, step)
        length, trial = _line_search(terms, y, step, value, float(gradient @ step))
        ahead = y + (length or 1.0) * step
        slope = np.add.reduce([term.gradient(ahead) for term in terms])
        if length == 0.0:
            # Energies agree to rounding before gradients do: a step that shrinks the gradient is still progress.
            if not np.linalg.norm(slope) < 0.5 * np.linalg.norm(gradient):
                if residual <= tolerance:
                    return y, NewtonReport(True, iteration, residual, "converged")
                return y, NewtonReport(False, iteration, residual, "the line search found no descent")
            trial = sum(term.energy(ahead) for term in terms)
        y, value, gradient = ahead, trial, slope
    return y, NewtonReport(False, max_iterations, residual, f"stopped after {max_iterations} iterations")


def _solve(terms: Sequence[Term], y: Vector, gradient: Vector) -> Vector:
    """H^-1 g by Cholesky: the exact Hessian, else the projected one, else that with a growing diagonal shift."""
    for psd in (False, True):
        hessian = np.add.reduce([term.hessian(y, psd) for term in terms])
        try:
            return cho_solve(cho_factor(hessian, lower=True, check_finite=False), gradient, check_finite=False)
        except LinAlgError:
            continue
    scale = float(np.abs(np.diagonal(hessian)).max())
    for power in range(-12, 4):
        try:
            shifted = hessian + 10.0**power * scale * np.eye(len(hessian))
            return cho_solve(cho_factor(shifted, lower=True, check_finite=False), gradient, check_finite=False)
        except LinAlgError:
            continue
    return gradient / max(scale, 1e-300)


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
        trial = sum(term.energy(y + length * step) for term in terms)
        if trial <= value + 1e-4 * length * slope + rounding:
            return length, trial
        length *= 0.5
    return 0.0, value
