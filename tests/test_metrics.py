"""The skinning metrics (eq. 29-31) on matrices whose answers are known, and PSNR."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.metrics import psnr, skinning_metrics


def test_orthogonal_columns_of_any_length_are_perfect() -> None:
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 6)))
    m = skinning_metrics(q * [1.0, 5.0, 1e-3, 2.0, 1e3, 7.0])  # columns are normalised first
    assert m.omega_orth == pytest.approx(0.0, abs=1e-28)
    assert m.kappa_log == pytest.approx(1.0) and m.h_spec == pytest.approx(1.0)


def test_identical_columns_are_the_worst() -> None:
    m = skinning_metrics(np.ones((9, 4)) * [1.0, 2.0, 3.0, 4.0])
    assert m.omega_orth == pytest.approx(1.0)  # its upper bound
    assert m.kappa_log > 40 and m.h_spec == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.9, -0.5])
def test_two_columns_at_an_angle(cosine: float) -> None:
    """Gram [[1, c], [c, 1]]: Omega = 2 c^2 / 2, eigenvalues 1 +- c."""
    m = skinning_metrics(np.array([[1.0, cosine], [0.0, np.sqrt(1 - cosine**2)], [0.0, 0.0]]))
    low, high = 1 - abs(cosine), 1 + abs(cosine)
    assert m.omega_orth == pytest.approx(cosine**2)
    assert m.kappa_log == pytest.approx(np.log2(1 + high / low))
    p = np.array([low, high]) / 2
    assert m.h_spec == pytest.approx(-(p * np.log(p)).sum() / np.log(2))


def test_three_equally_tilted_columns() -> None:
    """Gram with c off the diagonal: Omega = 6 c^2 / 6, eigenvalues 1 + 2c, 1 - c, 1 - c."""
    c = 0.25
    gram = np.full((3, 3), c) + (1 - c) * np.eye(3)
    m = skinning_metrics(np.linalg.cholesky(gram).T)
    assert m.omega_orth == pytest.approx(c**2)
    assert m.kappa_log == pytest.approx(np.log2(1 + (1 + 2 * c) / (1 - c)))
    p = np.array([1 + 2 * c, 1 - c, 1 - c]) / 3
    assert m.h_spec == pytest.approx(-(p * np.log(p)).sum() / np.log(3))


def test_linearly_dependent_and_empty_columns() -> None:
    m = skinning_metrics(np.array([[1.0, 0.0], [0.0, 0.0]]))  # a handle that moves nothing
    assert m.kappa_log == float("inf")
    assert skinning_metrics(np.array([[3.0], [4.0]])).omega_orth == 0.0


def test_psnr_in_closed_form() -> None:
    image = np.full((4, 5, 3), 0.5)
    assert psnr(image, image) == float("inf")
    assert psnr(image, image + 0.1) == pytest.approx(20.0)
    assert psnr(image.astype(np.float32), image + 0.01) == pytest.approx(40.0, abs=1e-3)
