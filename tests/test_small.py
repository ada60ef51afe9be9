"""The 3x3 kernels against numpy, on the matrices that break such code."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim._small import orthogonalise_columns, project_psd, signed_svd
from tests.helpers import random_rotation


def _svd(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    u, s, v = np.empty((3, 3)), np.empty(3), np.empty((3, 3))
    signed_svd(np.ascontiguousarray(f), u, s, v)
    return u, s, v


def _degenerate() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b, r = rng.normal(size=3), rng.normal(size=3), random_rotation(rng)
    return {
        "zero": np.zeros((3, 3)),
        "rank 1": np.outer(a, b),
        "rank 1, x": np.diag([2.0, 0.0, 0.0]),
        "rank 1, y": np.diag([0.0, 2.0, 0.0]),
        "rank 1, z": np.diag([0.0, 0.0, 2.0]),
        "rank 1, x and a trace": np.diag([2.0, 1e-16, 0.0]) + 1e-17,
        "rank 2, no x": np.diag([0.0, 2.0, 3.0]),
        "rank 2, no y": np.diag([2.0, 0.0, 3.0]),
        "rank 1, equal columns": np.outer(a, np.ones(3)),
        "rank 2": np.outer(a, b) + np.outer(b, a),
        "rank 2, zero column": rng.normal(size=(3, 3)) * [1.0, 0.0, 1.0],
        "rank 2, last column is a sum": rng.normal(size=(3, 2)) @ np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]),
        "identity": np.eye(3),
        "minus identity": -np.eye(3),
        "rotation": r,
        "reflection": r @ np.diag([1.0, -1.0, 1.0]),
        "mirror in x": np.diag([-1.0, 1.0, 1.0]),
        "two equal": r @ np.diag([2.0, 2.0, 0.5]) @ random_rotation(rng),
        "two small equal": r @ np.diag([2.0, 0.5, 0.5]) @ random_rotation(rng),
        "inverted, equal": r @ np.diag([1.0, 1.0, -1.0]) @ random_rotation(rng),
        "needle": r @ np.diag([1e6, 1.0, 1e-6]) @ random_rotation(rng),
        "nearly flat": r @ np.diag([1.0, 1.0, 1e-15]) @ random_rotation(rng),
        "tiny": 1e-30 * rng.normal(size=(3, 3)),
        "huge": 1e30 * rng.normal(size=(3, 3)),
        "shear": np.array([[1.0, 1e5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    }


@pytest.mark.parametrize("name", _degenerate())
def test_signed_svd_of_degenerate_matrices(name: str) -> None:
    _check_svd(_degenerate()[name])


def test_signed_svd_of_random_matrices() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        _check_svd(rng.normal(size=(3, 3)))


def _check_svd(f: np.ndarray) -> None:
    u, s, v = _svd(f)
    largest = np.abs(f).max()
    np.testing.assert_allclose((u * s) @ v.T, f, rtol=0, atol=1e-13 * largest)
    for rotation in (u, v):
        np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-13)
        assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(np.sort(np.abs(s))[::-1], np.linalg.svd(f)[1], rtol=1e-12, atol=1e-13 * largest)
    assert s[0] >= 0 and s[1] >= 0 and abs(s[2]) <= min(s[0], s[1]) * (1 + 1e-12) + 1e-13 * largest
    if abs(np.linalg.det(f)) > 1e-9 * largest**3:
        assert np.sign(s[2]) == np.sign(np.linalg.det(f))


def test_signed_svd_leaves_its_argument_alone() -> None:
    f = np.random.default_rng(2).normal(size=(3, 3))
    before = f.copy()
    _svd(f)
    np.testing.assert_array_equal(f, before)


def test_orthogonalise_keeps_small_singular_values_accurate() -> None:
    """Relative accuracy of each column's norm, where an eigendecomposition of B^T B would keep seven digits."""
    rng = np.random.default_rng(3)
    graded = random_rotation(rng) @ np.diag([1.0, 1e-5, 1e-10])
    b, v = graded @ random_rotation(rng).T, np.eye(3)
    exact = np.array([1.0, 1e-5, 1e-10])
    # columns scaled instead of mixed, so that the small singular values are determined to full relative accuracy
    b = random_rotation(rng)[:, ::-1] * exact + 1e-3 * exact * rng.normal(size=(3, 3))
    expected = _exact_singular_values(b)
    orthogonalise_columns(b, v, 1e-28)
    np.testing.assert_allclose(np.sort(np.linalg.norm(b, axis=0))[::-1], expected, rtol=1e-12)


def _exact_singular_values(b: np.ndarray) -> np.ndarray:
    """In 60 digits: the square roots of the eigenvalues of B^T B by bisection-free Newton on its cubic."""
    from fractions import Fraction

    exact = [[Fraction(float(x)) for x in row] for row in b]
    g = [[sum(exact[k][i] * exact[k][j] for k in range(3)) for j in range(3)] for i in range(3)]
    trace = g[0][0] + g[1][1] + g[2][2]
    minors = sum(g[i][i] * g[j][j] - g[i][j] ** 2 for i, j in ((0, 1), (0, 2), (1, 2)))
    det = (
        g[0][0] * (g[1][1] * g[2][2] - g[1][2] ** 2)
        - g[0][1] * (g[0][1] * g[2][2] - g[1][2] * g[0][2])
        + g[0][2] * (g[0][1] * g[1][2] - g[1][1] * g[0][2])
    )
    roots = []
    for guess in (trace, minors / trace, det / minors):  # well separated: Newton converges from these
        x = guess
        for _ in range(8):
            x = x - (((x - trace) * x + minors) * x - det) / ((3 * x - 2 * trace) * x + minors)
            x = x.limit_denominator(10**80)
        roots.append(float(x) ** 0.5)
    return np.array(roots)


def test_project_psd_is_eigenvalue_clamping() -> None:
    rng = np.random.default_rng(4)
    w, v = np.empty((3, 3)), np.empty((3, 3))
    matrices = [0.5 * (a + a.T) for a in rng.normal(size=(300, 3, 3))]
    matrices += [np.zeros((3, 3)), -np.eye(3), np.diag([1.0, -1.0, 0.0]), np.ones((3, 3)), -np.ones((3, 3))]
    matrices += [1e20 * matrices[0], 1e-20 * matrices[1]]
    changed = 0
    for matrix in matrices:
        values, vectors = np.linalg.eigh(matrix)
        expected = (vectors * np.maximum(values, 0.0)) @ vectors.T
        projected = matrix.copy()
        project_psd(projected, w, v)
        np.testing.assert_allclose(projected, expected, rtol=0, atol=1e-13 * np.abs(matrix).max())
        changed += not np.array_equal(projected, matrix)
        if values[0] > 1e-9:
            np.testing.assert_array_equal(projected, matrix)
    assert 200 < changed < len(matrices)
