"""Block matrices against the dense ones that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from splatanim.dynamics.blocks import BlockMatrix, cholesky, lift
from splatanim.dynamics.newton import minimise
from tests.dynamics.test_newton import Barrier, Quadratic

SIZES = (3, 5, 2, 4, 6)
OFFSETS = tuple(np.concatenate([[0], np.cumsum(SIZES)]).tolist())
TOUCHING = ((1, 0), (2, 1), (4, 1), (4, 2))  # body 3 touches nobody; 1, 2 and 4 form a ring


def _matrix(seed: int = 0, shift: float = 12.0) -> BlockMatrix:
    rng = np.random.default_rng(seed)
    blocks = {}
    for body, n in enumerate(SIZES):
        a = rng.normal(size=(n, n))
        blocks[body, body] = a @ a.T + shift * np.eye(n)
    for i, j in TOUCHING:
        blocks[i, j] = rng.normal(size=(SIZES[i], SIZES[j]))
    return BlockMatrix(OFFSETS, blocks)


def test_the_dense_matrix_is_symmetric_and_products_and_sums_are_its() -> None:
    one, two = _matrix(0), _matrix(1)
    v = np.random.default_rng(2).normal(size=len(one))
    np.testing.assert_array_equal(one.dense(), one.dense().T)
    np.testing.assert_allclose(one @ v, one.dense() @ v, atol=1e-12)
    np.testing.assert_allclose((one + two).dense(), one.dense() + two.dense(), atol=1e-12)
    np.testing.assert_array_equal(one.diagonal(), np.diagonal(one.dense()))
    np.testing.assert_allclose(one.shifted(0.5).dense(), one.dense() + 0.5 * np.eye(len(one)), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_block_cholesky_solves_as_the_dense_one_does(seed: int) -> None:
    matrix = _matrix(seed)
    right = np.random.default_rng(9).normal(size=len(matrix))
    factor = cholesky(matrix)
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(matrix.dense(), right), rtol=1e-10, atol=1e-12)
    assert sorted(factor.order) == list(range(len(SIZES)))
    assert factor.order[:2] == (3, 0)  # fewest contacts first


def test_what_is_not_positive_definite_is_refused() -> None:
    matrix = _matrix(shift=0.0)
    assert np.linalg.eigvalsh(matrix.dense()).min() < 0
    with pytest.raises(LinAlgError):
        cholesky(matrix)


def test_lifted_terms_see_their_slice_and_are_minimised_together() -> None:
    rng = np.random.default_rng(4)
    own, whole = [], []
    for body, n in enumerate(SIZES):
        a = rng.normal(size=(n, n))
        own.append(Quadratic(a @ a.T + np.eye(n), rng.normal(size=n)))
        whole.append(lift(own[-1], body, OFFSETS))
    y, report = minimise(whole, np.zeros(OFFSETS[-1]), tolerance=1e-9)
    assert report.converged and report.iterations == 1
    np.testing.assert_allclose(y, np.concatenate([term._c for term in own]), atol=1e-9)


def test_a_lifted_barrier_bounds_steps_and_an_unbounded_term_does_not() -> None:
    wall = lift(Barrier(), 1, OFFSETS)
    y, step = np.ones(OFFSETS[-1]), np.zeros(OFFSETS[-1])
    step[OFFSETS[1]] = -3.0
    assert wall.max_step(y, step) == pytest.approx(0.3)
    assert not hasattr(lift(Quadratic(np.eye(3), np.zeros(3)), 0, OFFSETS), "max_step")
