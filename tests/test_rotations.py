"""Quaternions against roma, and the rotation of harmonics against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.rotations import (
    SH_C0,
    matrices_to_quaternions,
    quaternions_to_matrices,
    rotate_sh,
    sh_basis,
    sh_probes,
    sh_rotation,
)
from tests.helpers import random_rotation


def _rotations(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([random_rotation(rng) for _ in range(count)])


def _directions(count: int = 200) -> np.ndarray:
    d = np.random.default_rng(9).normal(size=(count, 3))
    return d / np.linalg.norm(d, axis=1, keepdims=True)


def test_quaternions_agree_with_roma_both_ways() -> None:
    import roma
    import torch

    q = np.random.default_rng(0).normal(size=(500, 4))
    q[:3] = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.6, 0.8]]  # rest and half turns
    theirs = roma.unitquat_to_rotmat(torch.nn.functional.normalize(roma.quat_wxyz_to_xyzw(torch.tensor(q)))).numpy()
    ours = quaternions_to_matrices(q)  # of any length
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    back = roma.quat_xyzw_to_wxyz(roma.rotmat_to_unitquat(torch.tensor(ours))).numpy()
    again = matrices_to_quaternions(ours)
    np.testing.assert_allclose(np.abs((back * again).sum(axis=1)), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1.0, atol=1e-12)
    assert (again[:, 0] >= 0).all()


def test_round_trip_is_exact_up_to_sign() -> None:
    r = _rotations(300)
    np.testing.assert_allclose(quaternions_to_matrices(matrices_to_quaternions(r)), r, atol=1e-12)


def test_the_basis_is_orthonormal_on_the_sphere_and_has_the_signs_of_3dgs() -> None:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    phi = np.arange(16) * np.pi / 8
    z, p = np.repeat(nodes, 16), np.tile(phi, 8)
    r = np.sqrt(1 - z**2)
    y = sh_basis(np.stack([r * np.cos(p), r * np.sin(p), z], axis=1), 3)
    w = np.repeat(weights, 16) * np.pi / 8
    np.testing.assert_allclose(y.T @ (w[:, None] * y), np.eye(16), atol=1e-12)
    along = sh_basis(np.eye(3), 1)  # rows: x, y, z
    np.testing.assert_allclose(along[:, 0], SH_C0)
    np.testing.assert_allclose(along[:, 1:], -0.4886025119029199 * np.array([[0, 0, 1], [1, 0, 0], [0, -1, 0]]))
    assert sh_basis(np.array([[1.0, 1.0, 0.0]]) / 2**0.5, 2)[0, 4] > 0  # + x y
    assert sh_basis(np.array([[0.0, 1.0, 1.0]]) / 2**0.5, 2)[0, 5] < 0  # - y z


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_rotated_harmonics_give_the_old_colour_at_the_turned_back_direction(degree: int) -> None:
    """c'(d) = c(R^T d), by the matrix and by the kernel, against direct evaluation."""
    rng = np.random.default_rng(degree)
    d, rotations = _directions(), _rotations(20)
    sh = rng.normal(size=(20, (degree + 1) ** 2, 3))
    kernel = rotate_sh(sh.astype(np.float32), rotations)
    assert kernel.dtype == np.float32
    for k, r in enumerate(rotations):
        expected = sh_basis(d @ r, degree) @ sh[k]
        np.testing.assert_allclose(sh_basis(d, degree) @ sh_rotation(r, degree) @ sh[k], expected, atol=1e-12)
        np.testing.assert_allclose(sh_basis(d, degree) @ kernel[k], expected, atol=5e-6)


def test_harmonics_compose_and_keep_their_length() -> None:
    a, b = _rotations(2, seed=4)
    da, db = sh_rotation(a, 3), sh_rotation(b, 3)
    np.testing.assert_allclose(sh_rotation(a @ b, 3), da @ db, atol=1e-12)
    np.testing.assert_allclose(da @ da.T, np.eye(16), atol=1e-12)
    np.testing.assert_allclose(sh_rotation(np.eye(3), 3), np.eye(16), atol=1e-12)


def test_rotate_sh_leaves_its_argument_alone() -> None:
    sh = np.random.default_rng(1).normal(size=(5, 16, 3)).astype(np.float32)
    before = sh.copy()
    rotate_sh(sh, _rotations(5))
    np.testing.assert_array_equal(sh, before)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_probe_directions_determine_their_degree_well(degree: int) -> None:
    d, inverse = sh_probes(degree)
    np.testing.assert_allclose(np.linalg.norm(d, axis=1), 1.0, atol=1e-12)
    assert np.linalg.cond(inverse) < 4.0
