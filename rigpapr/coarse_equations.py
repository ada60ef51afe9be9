"""Weighted normal equations with nuisance unknowns that are eliminated: the depth maps' scale and smooth bias.

Residuals r(x, b) of the pose step x and of nuisances b give, with weights w,

    H = J^T W J,  g = -J^T W r,  and blocks C = J^T W B, D = B^T W B, h = -B^T W r for B = dr/db;

eliminating b leaves (H - C D^-1 C^T) x = g - C D^-1 h (Schur complement).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError


class NormalEquations:
    """Sums residual blocks over ``unknowns`` pose unknowns and ``prior`` (b, b), the nuisances' own precision."""

    def __init__(self, unknowns: int, prior: Float64[np.ndarray, "b b"]) -> None:
        b = len(prior)
        self.matrix, self.right = np.zeros((unknowns, unknowns)), np.zeros(unknowns)
        self.cross, self.inner, self.inner_right = np.zeros((unknowns, b)), prior.copy(), np.zeros(b)

    def add(
        self,
        jacobian: Float64[np.ndarray, "r p"],
        residual: Float64[np.ndarray, " r"],
        weight: Float64[np.ndarray, " r"],
        nuisance: Float64[np.ndarray, "r b"] | None = None,
    ) -> None:
        """Add rows; ``nuisance`` is dr/db."""
        weighted = jacobian * weight[:, None]
        self.matrix += weighted.T @ jacobian
        self.right -= weighted.T @ residual
        if nuisance is not None:
            self.cross += weighted.T @ nuisance
            self.inner += (nuisance * weight[:, None]).T @ nuisance
            self.inner_right -= (nuisance * weight[:, None]).T @ residual

    def hold(self, rows: np.ndarray, residual: Float64[np.ndarray, " k"], precision: float | np.ndarray) -> None:
        """Residuals that are single unknowns themselves."""
        self.matrix[rows, rows] += precision
        self.right[rows] -= precision * residual

    def reduced(self) -> tuple[Float64[np.ndarray, "p p"], Float64[np.ndarray, " p"]]:
        """Matrix and right side after the elimination."""
        solved = np.linalg.solve(self.inner, np.column_stack([self.cross.T, self.inner_right]))
        return self.matrix - self.cross @ solved[:, :-1], self.right - self.cross @ solved[:, -1]

    def solve(self, active: np.ndarray, damping: float) -> Float64[np.ndarray, " p"]:
        """The damped step in the active unknowns, 0 in the others."""
        from scipy.linalg import cho_factor, cho_solve

        matrix, right = self.reduced()
        matrix, right = matrix[np.ix_(active, active)], right[active]
        matrix[np.diag_indices_from(matrix)] += damping * np.diag(matrix) + 1.0
        step = np.zeros(len(active))
        try:
            step[active] = cho_solve(cho_factor(matrix), right)
        except (np.linalg.LinAlgError, ValueError) as error:
            raise InputError(
                f"coarse tracker: the normal equations cannot be solved ({error}). Check depth maps and masks."
            ) from error
        return step


def geman_mcclure(size: np.ndarray, scale: float) -> np.ndarray:
    """Weights of the robust Geman-McClure loss: 1 for small residuals, falling as the fourth power."""
    return 1.0 / (1.0 + (size / scale) ** 2) ** 2


def robust_amounts(
    basis: Float64[np.ndarray, "r b"],
    values: Float64[np.ndarray, " r"],
    cut: float,
    prior: Float64[np.ndarray, " b"],
    rounds: int = 1,
) -> Float64[np.ndarray, " b"]:
    """Amounts of a basis that leave least of ``values`` (Geman-McClure at ``cut``, reweighted ``rounds`` times), each
    held to zero by its precision in ``prior``, in units of one fully trusted row."""
    left = values
    for _ in range(rounds):
        weighted = basis * geman_mcclure(left, cut)[:, None]
        amounts = np.linalg.solve(weighted.T @ basis + np.diag(prior), weighted.T @ values)
        left = values - basis @ amounts
    return amounts
