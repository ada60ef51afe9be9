"""The push-forward of splats against float64 numpy, its rotations against roma, and pixels against themselves."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from splatanim.binding import Handles
from splatanim.data import Frame, Splats
from splatanim.dynamics.regions import rotation_about
from splatanim.metrics import psnr
from splatanim.render.camera import Camera, look_at
from splatanim.render.rasterize import rasterize
from splatanim.rotations import quaternions_to_matrices, sh_basis
from splatanim.transforms import BoundSplats, bind_splats, deform, merge, pose, push_forward, transform
from tests.dynamics.models import bound_field
from tests.helpers import random_rotation, random_splats

FRAME = Frame((0.3, -0.2, 0.1), 0.25, (0.0, 0.0, 1.0))  # file units are four times smaller in the simulator
COUNT = 400


def covariances(splats: Splats) -> np.ndarray:
    r = quaternions_to_matrices(splats.quaternions)
    s = np.exp(splats.log_scales.astype(np.float64))
    return np.einsum("nij,nj,nkj->nik", r, s**2, r)


def _maps(kind: str, count: int = COUNT) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "rotation":
        return np.stack([random_rotation(rng) for _ in range(count)])
    if kind == "stretch":
        return np.stack([r @ np.diag(rng.uniform(0.3, 3.0, 3)) @ r.T for r in _maps("rotation", count)])
    if kind == "shear":
        return np.eye(3) + np.triu(rng.normal(size=(count, 3, 3)), 1)
    if kind == "any":
        return rng.normal(size=(count, 3, 3))
    if kind == "near rest":
        return np.eye(3) + 1e-3 * rng.normal(size=(count, 3, 3))
    turns = _maps("rotation", 2 * count)
    squeeze = {"near-singular": [1.0, 0.7, 1e-3], "reflection": [1.3, 0.8, -0.6], "huge": [1e3, 1.0, 1e-2]}[kind]
    return turns[:count] @ np.diag(squeeze) @ turns[count:]


KINDS = ("rotation", "stretch", "shear", "any", "near rest", "near-singular", "reflection", "huge")


@pytest.mark.parametrize("kind", KINDS)
def test_covariances_follow_exactly(kind: str) -> None:
    splats, a = random_splats(COUNT), _maps(kind)
    moved = push_forward(splats, a, splats.means + 1)
    expected = np.einsum("nij,njk,nlk->nil", a, covariances(splats), a)
    error = np.linalg.norm(covariances(moved) - expected, axis=(1, 2)) / np.linalg.norm(expected, axis=(1, 2))
    assert error.max() < 1e-5
    # each principal scale by itself too, however small it is beside the largest
    scales = np.sqrt(np.linalg.svd(a @ _roots(splats), compute_uv=False) ** 2)
    np.testing.assert_allclose(np.sort(moved.scales)[:, ::-1], scales, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(moved.quaternions, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.det(quaternions_to_matrices(moved.quaternions)), 1.0, atol=1e-6)
    np.testing.assert_array_equal(moved.means, splats.means + 1)
    np.testing.assert_array_equal(moved.raw_opacities, splats.raw_opacities)


def _roots(splats: Splats) -> np.ndarray:
    """R S, so that Sigma = (R S)(R S)^T."""
    return quaternions_to_matrices(splats.quaternions) * np.exp(splats.log_scales.astype(np.float64))[:, None, :]


def test_at_rest_nothing_changes_not_even_the_order_of_axes() -> None:
    splats = random_splats(COUNT)
    same = push_forward(splats, np.broadcast_to(np.eye(3), (COUNT, 3, 3)), splats.means)
    np.testing.assert_allclose(same.log_scales, splats.log_scales, atol=2e-6)
    sign = np.sign((same.quaternions * splats.quaternions).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(sign * same.quaternions, splats.quaternions, atol=1e-6)
    np.testing.assert_allclose(same.sh, splats.sh, atol=1e-6)


def test_axes_follow_small_deformations_continuously() -> None:
    splats = random_splats(COUNT)
    moved = push_forward(splats, _maps("near rest"), splats.means)
    assert np.abs(moved.log_scales - splats.log_scales).max() < 0.01  # no two axes swap places


def test_a_splat_pressed_flat_stays_finite() -> None:
    splats = random_splats(COUNT)
    for flat in (np.diag([1.0, 1.0, 0.0]), np.diag([1.0, 0.0, 0.0]), np.zeros((3, 3))):
        moved = push_forward(splats, np.broadcast_to(flat, (COUNT, 3, 3)), splats.means)
        for array in (moved.log_scales, moved.quaternions, moved.sh):
            assert np.isfinite(array).all()
        np.testing.assert_allclose(np.linalg.norm(moved.quaternions, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["rotation", "stretch", "any", "reflection"])
def test_harmonics_turn_with_the_polar_rotation(kind: str, degree: int) -> None:
    """c'(d) = c(R^T d) with R the rotation nearest to A (Procrustes, det +1), as roma finds it."""
    import roma
    import torch

    splats, a = random_splats(COUNT, degree), _maps(kind)
    moved = push_forward(splats, a, splats.means)
    r = roma.special_procrustes(torch.tensor(a)).numpy()
    d = np.random.default_rng(0).normal(size=(30, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    for k in range(0, COUNT, 10):
        expected = sh_basis(d @ r[k], degree) @ splats.sh[k]
        np.testing.assert_allclose(sh_basis(d, degree) @ moved.sh[k], expected, atol=2e-5)


def test_two_maps_in_turn_are_their_product() -> None:
    rng = np.random.default_rng(1)
    first = np.concatenate([random_rotation(rng), rng.normal(size=(3, 1))], axis=1)
    second = np.concatenate([rng.normal(size=(3, 3)), rng.normal(size=(3, 1))], axis=1)
    product = np.concatenate([second[:, :3] @ first[:, :3], second[:, :3] @ first[:, 3:] + second[:, 3:]], axis=1)
    splats = random_splats(COUNT)
    twice, once = transform(transform(splats, first), second), transform(splats, product)
    np.testing.assert_allclose(twice.means, once.means, atol=1e-5)
    np.testing.assert_allclose(covariances(twice), covariances(once), rtol=1e-4, atol=1e-5 * covariances(once).max())
    np.testing.assert_allclose(twice.sh, once.sh, atol=1e-5)  # the polar factor of A R is that of A times R


def test_transform_keeps_the_source_and_what_is_not_geometry() -> None:
    splats = random_splats(5).replace(offset=(1e6, 0.0, 0.0), extras={"label": np.arange(5)})
    before = splats.sh.copy()
    moved = transform(splats, np.concatenate([random_rotation(np.random.default_rng(0)), np.ones((3, 1))], axis=1))
    np.testing.assert_array_equal(splats.sh, before)
    assert moved.offset == splats.offset and np.array_equal(moved.extras["label"], np.arange(5))


@functools.cache
def _bound(weight_gradients: bool = True) -> BoundSplats:
    splats = random_splats(COUNT, seed=2)
    splats = splats.replace(means=(splats.means * [1.8, 1.3, 1.1] + FRAME.centre).astype(np.float32))
    return bind_splats(splats, FRAME, Handles(bound_field((8, 6, 5), 1 / 8, 4)), weight_gradients=weight_gradients)


def _handles(strength: float, seed: int = 0) -> np.ndarray:
    return strength * np.random.default_rng(seed).normal(size=(5, 3, 4))


def test_no_motion_leaves_the_splats_where_they_are() -> None:
    posed = pose(_bound(), np.zeros((5, 3, 4)))
    np.testing.assert_allclose(posed.means, _bound().splats.means, atol=1e-6)
    np.testing.assert_allclose(posed.log_scales, _bound().splats.log_scales, atol=2e-6)


def test_an_affine_handle_is_an_affine_transform() -> None:
    """The constant handle alone, in simulator units, against ``transform`` by the same map in file units."""
    z = np.zeros((5, 3, 4))
    z[4] = np.random.default_rng(0).normal(size=(3, 4)) * 0.5
    linear = np.eye(3) + z[4, :, :3]
    centre = np.array(FRAME.centre)
    matrix = np.concatenate([linear, (centre - linear @ centre + z[4, :, 3] / FRAME.scale)[:, None]], axis=1)
    posed, expected = pose(_bound(), z), transform(_bound().splats, matrix)
    np.testing.assert_allclose(posed.means, expected.means, atol=3e-6)
    np.testing.assert_allclose(posed.log_scales, expected.log_scales, atol=1e-5)
    np.testing.assert_allclose(posed.sh, expected.sh, atol=1e-5)
    np.testing.assert_allclose(covariances(posed), covariances(expected), atol=1e-5 * covariances(expected).max())


def test_the_deformation_gradient_is_the_jacobian_of_the_map() -> None:
    bound, z = _bound(), _handles(0.1)
    means, gradients = deform(bound, z)
    assert np.abs(gradients - np.eye(3)).max() > 0.3
    field, scale = Handles(bound_field((8, 6, 5), 1 / 8, 4)), FRAME.scale

    def moved(points: np.ndarray) -> np.ndarray:
        x = FRAME.to_sim(points)
        w, _ = field.evaluate(x)
        one = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        return FRAME.to_file(x + np.einsum("qh,hrk,qk->qr", w, z, one))

    rest = FRAME.to_file(bound.rest)
    np.testing.assert_allclose(means, moved(rest), atol=5e-6)
    h = 1e-5 / scale
    numeric = np.stack([(moved(rest + h * e) - moved(rest - h * e)) / (2 * h) for e in np.eye(3)], axis=2)
    np.testing.assert_allclose(gradients, numeric, atol=1e-5)


def test_without_weight_gradients_it_is_equation_27() -> None:
    """A_i = I + sum_h w_h Z_h[:, :3]: the blend of the handles' linear parts."""
    bound, z = _bound(weight_gradients=False), _handles(0.1)
    means, gradients = deform(bound, z)
    expected = np.eye(3) + np.einsum("nh,hrc->nrc", bound.weights.astype(float), z[:, :, :3])
    np.testing.assert_allclose(gradients, expected, atol=1e-12)
    np.testing.assert_array_equal(means, deform(_bound(), z)[0])  # centres are the same either way
    assert np.abs(gradients - deform(_bound(), z)[1]).max() > 0.1


def test_binding_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import splatanim.transforms as module

    whole = _bound()
    monkeypatch.setattr(module, "_CHUNK", 37)
    parts = bind_splats(whole.splats, FRAME, Handles(bound_field((8, 6, 5), 1 / 8, 4)))
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-6)
    np.testing.assert_allclose(parts.slopes, whole.slopes, atol=1e-5)


def test_frames_round_trip() -> None:
    points = np.random.default_rng(0).normal(size=(50, 3)) * 100
    np.testing.assert_allclose(FRAME.to_file(FRAME.to_sim(points)), points, atol=1e-12)
    np.testing.assert_allclose(FRAME.to_sim(np.array([FRAME.centre])), 0.0)
    assert np.linalg.norm(np.diff(FRAME.to_sim(np.array([[0, 0, 0], [4.0, 0, 0]])), axis=0)) == pytest.approx(1.0)


def test_merge_pads_harmonics_aligns_offsets_and_keeps_shared_extras() -> None:
    one = random_splats(4, 1).replace(offset=(10.0, 0.0, 0.0), extras={"a": np.arange(4), "b": np.ones(4)})
    two = random_splats(3, 3, seed=1).replace(offset=(12.0, 0.0, -1.0), extras={"a": np.arange(3)})
    both = merge(one, two)
    assert len(both) == 7 and both.sh.shape == (7, 16, 3) and both.offset == (10.0, 0.0, 0.0)
    np.testing.assert_array_equal(both.sh[:4, :4], one.sh)
    assert not both.sh[:4, 4:].any()
    np.testing.assert_array_equal(both.sh[4:], two.sh)
    np.testing.assert_allclose(both.means[4:], two.means + np.array([2.0, 0.0, -1.0]), atol=1e-6)
    assert list(both.extras) == ["a"] and both.means.dtype == np.float32
    np.testing.assert_array_equal(both.extras["a"], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(merge(one).means, one.means)


def _turned_camera(camera: Camera, rotation: np.ndarray) -> Camera:
    """The same camera after the world was turned: T_camera_world R^-1."""
    turn = np.eye(4)
    turn[:3, :3] = rotation.T
    return Camera(camera.T_camera_world @ turn, camera.fx, camera.fy, camera.cx, camera.cy, camera.width, camera.height)


@pytest.mark.parametrize("seed", [0, 1])
def test_turning_object_and_camera_together_changes_no_pixel(seed: int) -> None:
    """Rigid motion takes everything along: means, axes and harmonics of degree 3."""
    splats = random_splats(300, 3, seed=seed)
    camera = look_at((2.4, -1.2, 3.0), (0, 0, 0), (0, -1, 0), width=96, height=64)
    r = random_rotation(np.random.default_rng(seed + 5))
    turned = transform(splats, np.concatenate([r, np.zeros((3, 1))], axis=1))
    before = rasterize(splats, camera, backend="cpu").rgb
    after = rasterize(turned, _turned_camera(camera, r), backend="cpu").rgb
    assert psnr(after, before) > 80
    # and a rotation that leaves the harmonics behind does change them
    stale = rasterize(turned.replace(sh=splats.sh), _turned_camera(camera, r), backend="cpu").rgb
    assert psnr(stale, before) < 40


def test_a_bound_object_turned_by_its_handle_looks_as_before_to_a_turned_camera() -> None:
    bound = _bound()
    z = np.zeros((5, 3, 4))
    axis = np.array([0.0, 0.6, 0.8])
    z[4] = rotation_about(axis, 1.1, np.zeros(3))
    posed = pose(bound, z)
    rotation = z[4, :, :3] + np.eye(3)
    camera = look_at((6.0, -3.0, 5.0), FRAME.centre, (0, -1, 0), width=96, height=64)
    turn, centre = np.eye(4), np.array(FRAME.centre)
    turn[:3, :3], turn[:3, 3] = rotation.T, centre - rotation.T @ centre
    turned = Camera(camera.T_camera_world @ turn, camera.fx, camera.fy, camera.cx, camera.cy, 96, 64)
    before = rasterize(bound.splats, camera, backend="cpu").rgb
    assert before.std() > 0.01
    assert psnr(rasterize(posed, turned, backend="cpu").rgb, before) > 80
