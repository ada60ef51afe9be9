"""What every descent on a sum of energy terms needs: the terms' protocol, sums, factors, and the line search."""

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
ARMIJO = 1e-4  # of the descent that the slope promises is asked for
_ROUNDING = 1e-13  # of an energy's value, to which it is known
_SHORTEST = 1e-12  # of a step that is tried


@runtime_checkable
class Term(Protocol):
    """An energy [J] of the reduced coordinates y (n,), with exact gradient and Hessian.

    ``hessian(y, psd=True)`` is positive semi-definite: projected, or (friction) made so that steps do not overshoot a
    kink. With ``psd=False`` it is exact. It is dense, or a :class:`BlockMatrix` in the coordinates of several bodies.
    A contact term may add ``max_step(y, direction)``: the longest step in [0, 1] that keeps every gap open.
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


def energy_of(terms: Sequence[Term], y: Vector) -> float:
    return float(sum(term.energy(y) for term in terms))


def gradient_of(terms: Sequence[Term], y: Vector) -> Vector:
    return np.add.reduce([term.gradient(y) for term in terms])


def hessian_of(terms: Sequence[Term], y: Vector, psd: bool) -> Hessian:
    return functools.reduce(operator.add, [term.hessian(y, psd) for term in terms])


def size_of(gradient: Vector, unit: float | Vector) -> float:
    """The residual: the gradient's norm in the caller's units."""
    return float(np.linalg.norm(gradient * unit))


def factored(hessian: Hessian) -> Callable[[Vector], Vector]:
    """Cholesky's factor, as what solves with it; raises ``LinAlgError`` for what is not positive definite."""
    if isinstance(hessian, BlockMatrix):
        return cholesky(hessian).solve
    factor = cho_factor(hessian, lower=True, check_finite=False)
    return lambda right: cho_solve(factor, right, check_finite=False)


def shift(hessian: Hessian, amount: float) -> Hessian:
    """A Hessian plus ``amount`` times the identity."""
    if isinstance(hessian, BlockMatrix):
        return hessian.shifted(amount)
    return hessian + amount * np.eye(len(hessian))


def shifted(hessian: Hessian) -> tuple[Hessian, Callable[[Vector], Vector]]:
    """The smallest diagonal shift (by decades) that lets Cholesky through where rounding has spoilt the projection."""
    scale = max(float(np.abs(hessian.diagonal()).max()), 1e-300)
    for power in range(-12, 4):
        try:
            moved = shift(hessian, 10.0**power * scale)
            return moved, factored(moved)
        except LinAlgError:
            continue
    identity = scale * np.eye(len(hessian))
    return identity, lambda right: right / scale


def longest(terms: Sequence[Term], y: Vector, step: Vector) -> float:
    """The share of a step that every term admits."""
    bounds = [term.max_step(y, step) for term in terms if hasattr(term, "max_step")]
    return min([1.0, *bounds])


def descends(trial: float, value: float, slope: float) -> bool:
    """Whether an energy has fallen as much as ``slope`` (negative) lets expect, to rounding."""
    return bool(trial <= value + ARMIJO * slope + _ROUNDING * abs(value))


def line_search(
    terms: Sequence[Term], y: Vector, step: Vector, value: float, slope: float, tries: int = 40
) -> tuple[float, float]:
    """Armijo backtracking from the whole step; returns (length, energy there), length 0 if none.

    Each trial goes to the minimum of the parabola through the last one and the start, or a half where that is nearer.
    """
    length = 1.0
    for _ in range(tries):
        if length < _SHORTEST:
            break
        trial = energy_of(terms, y + length * step)
        if descends(trial, value, length * slope):
            return length, trial
        bend = trial - value - length * slope
        shorter = -0.5 * length * slope / bend if np.isfinite(bend) and slope < 0 else 0.5
        length *= min(max(shorter, 0.1), 0.5)
    return 0.0, value
