"""Rayleigh-Ritz on an object's voxels: from any raw functions to orthonormal fields of low energy.

The energy is the Dirichlet energy. It is what elasticity reduces to here: for an isotropic material the linear-elastic
energy of the displacement W(X) e_r, summed over the three directions e_r, is (4 mu + lambda)/2 times |grad W|^2 (the
trace over translations of the elastic Hessian), so both rank scalar fields alike.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int

from splatanim.data import Domain

_RANK_CUT = 1e-10


def neighbours(domain: Domain) -> Int[np.ndarray, "v 3"]:
    """For every voxel the row of its +x, +y, +z neighbour, or -1 (Neumann conditions at the border)."""
    cells = domain.cells - domain.cells.min(axis=0)
    shape = cells.max(axis=0) + 2
    index = np.full(shape, -1, np.int64)
    index[tuple(cells.T)] = np.arange(len(cells))
    return np.stack([index[tuple((cells + np.eye(3, dtype=cells.dtype)[a]).T)] for a in range(3)], axis=1)


def dirichlet(
    functions: Float[np.ndarray, "v k"], adjacent: Int[np.ndarray, "v 3"], spacing: float
) -> Float64[np.ndarray, "k k"]:
    """Mean over the voxels of grad f_i . grad f_j by one-sided differences between neighbouring voxels."""
    energy = np.zeros((functions.shape[1],) * 2)
    for axis in range(3):
        here = np.flatnonzero(adjacent[:, axis] >= 0)
        slope = (functions[adjacent[here, axis]] - functions[here]) / spacing
        energy += slope.T @ slope
    return energy / len(functions)


def ritz(
    functions: Float[np.ndarray, "v k"], domain: Domain, count: int
) -> tuple[Float64[np.ndarray, "k m"], Float64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
    """Combine raw functions into at most ``count`` orthonormal fields of lowest energy, orthogonal to the constant.

    Returns (coefficients C (k, m), constants c (m,), Ritz values [1/m^2]): the fields are functions @ C + c, with
    mean 0 and mean square 1 over the voxels, mutually orthogonal, rank-deficient directions cut.
    """
    mean = functions.mean(axis=0)
    centred = functions - mean
    norms = np.maximum(np.sqrt(np.mean(centred**2, axis=0)), 1e-30)
    values, vectors = np.linalg.eigh((centred.T @ centred) / len(centred) / np.outer(norms, norms))
    keep = values > _RANK_CUT * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep]) / norms[:, None]
    orthonormal = centred @ basis
    levels, rotation = np.linalg.eigh(dirichlet(orthonormal, neighbours(domain), domain.spacing))
    coefficients = basis @ rotation[:, :count]
    # A second pass removes what rounding left of non-orthogonality (the Gram matrix squares the condition number).
    fields = centred @ coefficients
    _, r = np.linalg.qr(fields)
    correction = np.linalg.inv(r) * np.sqrt(len(fields)) * np.sign(np.diagonal(r))[None, :]
    coefficients = coefficients @ correction
    return coefficients, -(mean @ coefficients), levels[:count]


def subspace_ratio(
    functions: Float[np.ndarray, "v k"], domain: Domain, exact: Float64[np.ndarray, " n"], count: int = 16
) -> float:
    """Mean Rayleigh quotient of the best ``count`` functions in span[functions, 1] over that of the exact modes.

    ``exact`` are the lowest Neumann eigenvalues on the same voxels, the zero of the constant included. 1 is perfect.
    """
    levels = ritz(functions, domain, count - 1)[2]
    if len(levels) < count - 1:
        return float("inf")
    return float(levels.sum() / exact[1:count].sum())
