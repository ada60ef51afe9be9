"""Block matrices of coupled bodies: a dense block for each body, and one for each pair of bodies that touch.

Bodies that are not in contact share nothing, so the Hessian of ten of them is mostly empty. Cholesky's method runs
over its blocks instead (each block by LAPACK), with the bodies of fewest contacts first (minimum degree), and takes
groups of bodies that do not touch as the separate systems they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cho_factor, cho_solve

Vector = Float64[np.ndarray, " n"]


class BlockMatrix:
    """A symmetric matrix of ``blocks`` {(i, j): (n_i, n_j)} with i >= j; what is absent is zero.

    ``offsets`` (bodies + 1,) are where each body's coordinates begin.
    """

    def __init__(self, offsets: Sequence[int], blocks: dict[tuple[int, int], np.ndarray]) -> None:
        self.offsets = tuple(offsets)
        self.blocks = blocks

    def __len__(self) -> int:
        return self.offsets[-1]

    def part(self, body: int) -> slice:
        return slice(self.offsets[body], self.offsets[body + 1])

    def __add__(self, other: BlockMatrix) -> BlockMatrix:
        blocks = dict(self.blocks)
        for key, block in other.blocks.items():
            blocks[key] = blocks[key] + block if key in blocks else block
        return BlockMatrix(self.offsets, blocks)

    def __matmul__(self, vector: Vector) -> Vector:
        out = np.zeros_like(vector)
        for (i, j), block in self.blocks.items():
            out[self.part(i)] += block @ vector[self.part(j)]
            if i != j:
                out[self.part(j)] += block.T @ vector[self.part(i)]
        return out

    def diagonal(self) -> Vector:
        out = np.zeros(len(self))
        for body in range(len(self.offsets) - 1):
            if (body, body) in self.blocks:
                out[self.part(body)] = np.diagonal(self.blocks[body, body])
        return out

    def shifted(self, amount: float) -> BlockMatrix:
        """This matrix plus ``amount`` times the identity."""
        sizes = [int(n) for n in np.diff(self.offsets)]
        identity = {(body, body): amount * np.eye(n) for body, n in enumerate(sizes)}
        return self + BlockMatrix(self.offsets, identity)

    def dense(self) -> Float64[np.ndarray, "n n"]:
        out = np.zeros((len(self), len(self)))
        for (i, j), block in self.blocks.items():
            out[self.part(i), self.part(j)] = block
            out[self.part(j), self.part(i)] = block.T
        return out


@dataclass(frozen=True)
class Cholesky:
    """The block factor L of P H P^T: ``order`` the bodies as eliminated, ``pivots`` their own factors, ``below`` the
    blocks under them, (n_i, n_j) for the pair (i, j) with j eliminated first."""

    matrix: BlockMatrix
    order: tuple[int, ...]
    pivots: dict[int, tuple[np.ndarray, bool]]
    below: dict[int, dict[int, np.ndarray]]

    def solve(self, right: Vector) -> Vector:
        x = np.array(right)
        part = self.matrix.part
        for j in self.order:
            x[part(j)] = cho_solve(self.pivots[j], x[part(j)], check_finite=False)
            for i, block in self.below[j].items():
                x[part(i)] -= block @ x[part(j)]
        for j in reversed(self.order):
            pull = sum((block.T @ x[part(i)] for i, block in self.below[j].items()), np.zeros(len(x[part(j)])))
            x[part(j)] -= cho_solve(self.pivots[j], pull, check_finite=False)
        return x


def cholesky(matrix: BlockMatrix) -> Cholesky:
    """Factor a positive definite block matrix; raises ``scipy.linalg.LinAlgError`` where it is not.

    (As L D L^T over blocks: the pivots are Schur complements, each factored by LAPACK.)
    """
    count = len(matrix.offsets) - 1
    rows: dict[int, dict[int, np.ndarray]] = {i: {} for i in range(count)}  # rows[j][i] is the block (i, j)
    pivots = {i: matrix.blocks[i, i] for i in range(count)}
    for (i, j), block in matrix.blocks.items():
        if i != j:
            rows[j][i], rows[i][j] = block, block.T
    left, order = set(range(count)), []
    factors: dict[int, tuple[np.ndarray, bool]] = {}
    below: dict[int, dict[int, np.ndarray]] = {}
    while left:
        j = min(left, key=lambda body: (len(rows[body]), body))
        left.remove(j)
        order.append(j)
        factors[j] = cho_factor(pivots[j], lower=True, check_finite=False)
        below[j] = rows.pop(j)
        neighbours = sorted(below[j])
        for at, i in enumerate(neighbours):
            del rows[i][j]
            carried = cho_solve(factors[j], below[j][i].T, check_finite=False)
            pivots[i] = pivots[i] - below[j][i] @ carried
            for k in neighbours[at + 1 :]:
                update = below[j][k] @ carried
                rows[i][k] = rows[i][k] - update if k in rows[i] else -update
                rows[k][i] = rows[i][k].T
    return Cholesky(matrix, tuple(order), factors, below)


class Lifted:
    """A body's own term as a term of all bodies' coordinates: it sees its slice."""

    def __init__(self, term, body: int, offsets: Sequence[int]) -> None:
        self._term, self._body, self._offsets = term, body, tuple(offsets)
        self._slice = slice(offsets[body], offsets[body + 1])

    def energy(self, y: Vector) -> float:
        return self._term.energy(y[self._slice])

    def gradient(self, y: Vector) -> Vector:
        out = np.zeros_like(y)
        out[self._slice] = self._term.gradient(y[self._slice])
        return out

    def hessian(self, y: Vector, psd: bool = True) -> BlockMatrix:
        block = self._term.hessian(y[self._slice], psd)
        return BlockMatrix(self._offsets, {(self._body, self._body): block})


class LiftedBound(Lifted):
    """A lifted term that bounds steps (see :class:`~splatanim.dynamics.newton.Term`)."""

    def max_step(self, y: Vector, direction: Vector) -> float:
        return self._term.max_step(y[self._slice], direction[self._slice])


def lift(term, body: int, offsets: Sequence[int]) -> Lifted:
    """``term`` of body number ``body`` as a term of all coordinates, which begin at ``offsets``."""
    return (LiftedBound if hasattr(term, "max_step") else Lifted)(term, body, offsets)
