"""Conjugate gradients on block matrices of solids, with an additive two-level preconditioner.

z = D^-1 r + P (P^T K P)^-1 P^T r: the inverse diagonal blocks, and the rigid motions of runs of nodes (Nicolaides 1987;
smoothed aggregation without the smoothing). Nodes come in Morton order, so a run of them is a compact piece. The coarse
matrix is factored anew only when the iterations have grown since it was.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numba import njit, prange

PIECES = 700  # runs of nodes at most; their six motions each make the coarse matrix
SHORTEST = 48  # nodes in a run at least
MOST = 2000  # iterations
GROWTH = 1.4  # of the iterations a digit, from which the coarse matrix is factored anew


class Coarse:
    """The coarse half of the preconditioner at positions ``x`` (n, 3) of nodes in Morton order."""

    def __init__(
        self, rows: tuple[np.ndarray, np.ndarray], blocks: np.ndarray, x: np.ndarray, free: np.ndarray
    ) -> None:
        from scipy import sparse
        from scipy.sparse.linalg import splu

        n = len(x)
        self.size = max(SHORTEST, -(-n // PIECES))
        pieces = -(-n // self.size)
        starts, columns = rows
        owner = np.arange(n) // self.size
        key = np.repeat(owner, np.diff(starts)) * pieces + owner[columns]
        pairs, slots = np.unique(key, return_inverse=True)
        self.motions = _motions(x, free, self.size, pieces)
        data = _project(starts, columns, blocks, self.motions, slots.astype(np.int32), len(pairs), self.size, pieces)
        shape = (6 * pieces, 6 * pieces)
        pointers = np.searchsorted(pairs // pieces, np.arange(pieces + 1))
        matrix = sparse.bsr_matrix((data, pairs % pieces, pointers), shape=shape).tocsc()
        diagonal = matrix.diagonal()
        largest = float(diagonal.max()) or 1.0  # motions of held pieces have no stiffness: any will do
        shift = np.where(diagonal > 1e-9 * largest, 1e-10 * diagonal, largest)
        factor = splu(
            (matrix + sparse.diags(shift)).tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
        )
        self._solve, self._pieces, self._usual = factor.solve, pieces, 0.0

    def add(self, residual: Float64[np.ndarray, "n 3"], z: Float64[np.ndarray, "n 3"]) -> float:
        """Adds the coarse correction to ``z``; returns residual . z."""
        motion = self._solve(_restrict(self.motions, residual, self.size, self._pieces).ravel())
        return float(_prolong(self.motions, motion.reshape(-1, 6), self.size, residual, z))

    def grew(self, iterations: int, forcing: float) -> bool:
        """Whether iterations a digit have grown since the first solve with this factor, which sets the mark."""
        rate = iterations / max(-np.log10(forcing), 0.1)
        self._usual = self._usual or rate
        return rate > GROWTH * self._usual + 5


def conjugate_gradients(
    rows: tuple[np.ndarray, np.ndarray],
    blocks: np.ndarray,
    inverse: np.ndarray,
    coarse: Coarse,
    free: np.ndarray,
    right: Float64[np.ndarray, "n 3"],
    tolerance: float,
) -> tuple[Float64[np.ndarray, "n 3"], int]:
    """Solve K x = right, zero on held nodes, until r . z has fallen by tolerance^2; stops at negative curvature.

    ``rows`` is (row starts, columns), ``blocks`` (k, 3, 3) float32, ``inverse`` (n, 3, 3) of the diagonal blocks.
    Returns (x, iterations).
    """
    x, residual = np.zeros_like(right), right.copy()
    z, product, p = np.empty_like(right), np.zeros_like(right), np.zeros_like(right)
    _descend(inverse, 0.0, p, product, x, residual, z)
    rho = coarse.add(residual, z)
    target = tolerance * tolerance * rho
    p[:] = z
    for iteration in range(MOST):
        if not rho > target:
            return x, iteration
        curvature = _multiply(*rows, blocks, free, p, product)
        if not curvature > 0.0:
            return (x if iteration else p), iteration
        _descend(inverse, rho / curvature, p, product, x, residual, z)
        ahead = coarse.add(residual, z)
        _turn(ahead / rho, z, p)
        rho = ahead
    return x, MOST


@njit(cache=True)
def _motions(x, free, size, pieces):
    """Displacements (n, 3, 6) of the nodes under their piece's six rigid motions; zero on held nodes."""
    out = np.zeros((len(x), 3, 6))
    for piece in range(pieces):
        first, last = piece * size, min((piece + 1) * size, len(x))
        centre = np.zeros(3)
        for i in range(first, last):
            centre += x[i] / (last - first)
        reach = 1e-300
        for i in range(first, last):
            for r in range(3):
                reach = max(reach, abs(x[i, r] - centre[r]))
        for i in range(first, last):
            if not free[i]:
                continue
            for r in range(3):
                out[i, r, r] = 1.0
                s, t = (r + 1) % 3, (r + 2) % 3  # motion 3 + r turns about axis r
                out[i, s, 3 + r] = -(x[i, t] - centre[t]) / reach
                out[i, t, 3 + r] = (x[i, s] - centre[s]) / reach
    return out


@njit(parallel=True, cache=True)
def _project(starts, columns, blocks, motions, slots, pairs, size, pieces):
    """P^T K P as 6x6 blocks, one for each pair of pieces; each thread owns whole pieces."""
    out = np.zeros((pairs, 6, 6))
    n = len(motions)
    for piece in prange(pieces):
        half = np.empty((3, 6))
        for i in range(piece * size, min((piece + 1) * size, n)):
            for k in range(starts[i], starts[i + 1]):
                j = columns[k]
                for r in range(3):
                    for b in range(6):
                        half[r, b] = (
                            blocks[k, r, 0] * motions[j, 0, b]
                            + blocks[k, r, 1] * motions[j, 1, b]
                            + blocks[k, r, 2] * motions[j, 2, b]
                        )
                for a in range(6):
                    for b in range(6):
                        out[slots[k], a, b] += (
                            motions[i, 0, a] * half[0, b]
                            + motions[i, 1, a] * half[1, b]
                            + motions[i, 2, a] * half[2, b]
                        )
    return out


@njit(parallel=True, cache=True)
def _restrict(motions, residual, size, pieces):
    """P^T r, (pieces, 6)."""
    out = np.zeros((pieces, 6))
    for piece in prange(pieces):
        for i in range(piece * size, min((piece + 1) * size, len(residual))):
            for b in range(6):
                for r in range(3):
                    out[piece, b] += motions[i, r, b] * residual[i, r]
    return out


@njit(parallel=True, cache=True)
def _prolong(motions, coarse, size, residual, z):
    """z += P c; returns residual . z."""
    total = 0.0
    for i in prange(len(z)):
        c = coarse[i // size]
        for r in range(3):
            value = z[i, r]
            for b in range(6):
                value += motions[i, r, b] * c[b]
            z[i, r] = value
            total += residual[i, r] * value
    return total


@njit(parallel=True, cache=True)
def _multiply(starts, columns, blocks, free, p, out):
    """out = K p on free nodes (p is zero on the others); returns p . out."""
    total = 0.0
    for i in prange(len(starts) - 1):
        x = y = z = 0.0
        if free[i]:
            for k in range(starts[i], starts[i + 1]):
                j = columns[k]
                a, b, c = p[j, 0], p[j, 1], p[j, 2]
                x += blocks[k, 0, 0] * a + blocks[k, 0, 1] * b + blocks[k, 0, 2] * c
                y += blocks[k, 1, 0] * a + blocks[k, 1, 1] * b + blocks[k, 1, 2] * c
                z += blocks[k, 2, 0] * a + blocks[k, 2, 1] * b + blocks[k, 2, 2] * c
        out[i, 0], out[i, 1], out[i, 2] = x, y, z
        total += x * p[i, 0] + y * p[i, 1] + z * p[i, 2]
    return total


@njit(parallel=True, cache=True)
def _descend(inverse, alpha, p, product, x, residual, z):
    """x += alpha p, residual -= alpha K p, z = D^-1 residual."""
    for i in prange(len(x)):
        for r in range(3):
            x[i, r] += alpha * p[i, r]
            residual[i, r] -= alpha * product[i, r]
        a, b, c = residual[i, 0], residual[i, 1], residual[i, 2]
        for r in range(3):
            z[i, r] = inverse[i, r, 0] * a + inverse[i, r, 1] * b + inverse[i, r, 2] * c


@njit(parallel=True, cache=True)
def _turn(beta, z, p):
    """p = z + beta p."""
    for i in prange(len(p)):
        for r in range(3):
            p[i, r] = z[i, r] + beta * p[i, r]
