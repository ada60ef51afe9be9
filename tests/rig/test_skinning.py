"""Linear and dual-quaternion skinning: brute force, rigid motion, volume under twist, splats, and the torch twins."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from splatanim.errors import InputError
from splatanim.rig import differentiable as dif
from splatanim.rig.skeleton import Pose, skin_transforms
from splatanim.rig.skinning import RiggedSplats, blend_maps, blend_points, pose_splats
from splatanim.rotations import quaternions_to_matrices, sh_basis
from tests.helpers import random_splats
from tests.rig.rigs import PARENTS, chain, random_pose, random_skeleton, random_weights


def covariances(splats) -> np.ndarray:
    turned = quaternions_to_matrices(splats.quaternions) * np.exp(splats.log_scales.astype(float))[:, None, :]
    return turned @ turned.swapaxes(1, 2)


def rigid_transforms(rng: np.random.Generator, count: int) -> np.ndarray:
    out = np.tile(np.eye(4), (count, 1, 1))
    out[:, :3, :3] = Rotation.random(count, random_state=rng).as_matrix()
    out[:, :3, 3] = rng.normal(size=(count, 3))
    return out


def test_linear_blending_equals_the_sum_over_joints() -> None:
    rng = np.random.default_rng(0)
    skin, points = random_weights(rng, 300, 8), rng.normal(size=(300, 3))
    transforms = skin_transforms(random_skeleton(), random_pose(rng, 8))
    dense = skin.dense()
    wanted = np.array([sum(w * (t @ [*x, 1.0]) for w, t in zip(row, transforms))[:3] for row, x in zip(dense, points)])
    got, linear = blend_maps(points, skin, transforms)
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    np.testing.assert_allclose(linear, np.einsum("nj,jab->nab", dense, transforms[:, :3, :3]), atol=1e-12)


@pytest.mark.parametrize("method", ["linear", "dual"])
def test_one_transform_for_all_joints_moves_everything_by_it(method) -> None:
    rng = np.random.default_rng(1)
    skin, points = random_weights(rng, 50, 5), rng.normal(size=(50, 3))
    one = rigid_transforms(rng, 1)[0]
    one[:3, :3] *= 1.7
    got, linear = blend_maps(points, skin, np.tile(one, (5, 1, 1)), method)
    np.testing.assert_allclose(got, points @ one[:3, :3].T + one[:3, 3], atol=1e-12)
    np.testing.assert_allclose(linear, np.broadcast_to(one[:3, :3], linear.shape), atol=1e-12)


def test_dual_quaternions_keep_the_radius_where_linear_blending_collapses() -> None:
    """A half turn about the bone between two joints: linear blending at weights 1/2 maps a ring onto the axis."""
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    ring = np.stack([np.cos(angle), np.full(16, 1.5), np.sin(angle)], axis=1)
    skeleton = chain(2)
    rotations = skeleton.rest.rotations.copy()
    rotations[1] = Rotation.from_rotvec([0, np.pi * 0.999, 0]).as_quat(scalar_first=True)
    transforms = skin_transforms(skeleton, Pose(skeleton.rest.translations, rotations, skeleton.rest.scales))
    half = dataclasses.replace(random_weights(np.random.default_rng(0), 16, 2, 2), weights=np.full((16, 2), 0.5))
    radius = {m: np.linalg.norm(blend_points(ring, half, transforms, m)[:, [0, 2]], axis=1) for m in ("linear", "dual")}
    assert radius["linear"].max() < 0.01
    np.testing.assert_allclose(radius["dual"], 1.0, atol=1e-9)


def test_torch_and_numpy_agree_in_batches() -> None:
    rng = np.random.default_rng(2)
    skeleton, pose = random_skeleton(), random_pose(rng, 2, 3, 8)
    skin, points = random_weights(rng, 40, 8), rng.normal(size=(40, 3))
    turns = dif.quaternions_to_rotations(torch.tensor(pose.rotations))
    moved = dif.skeleton_transforms(skeleton, torch.tensor(pose.translations), turns, torch.tensor(pose.scales))
    wanted = skin_transforms(skeleton, pose)
    np.testing.assert_allclose(moved.numpy(), wanted, atol=1e-12)
    weights = torch.tensor(skin.dense())
    linear = dif.linear_blend(torch.tensor(points), weights, moved).numpy()
    dual = dif.dual_quaternion_blend(torch.tensor(points), weights, moved).numpy()
    assert linear.shape == dual.shape == (2, 3, 40, 3)
    for a in range(2):
        for b in range(3):
            np.testing.assert_allclose(linear[a, b], blend_points(points, skin, wanted[a, b]), atol=1e-10)
            np.testing.assert_allclose(dual[a, b], blend_points(points, skin, wanted[a, b], "dual"), atol=1e-9)


def test_turns_about_joints_are_the_documented_products() -> None:
    """G_b = G_parent [R_b | c_b - c_parent], T_b = G_b Trans(-c_b), then the root's translation."""
    rng = np.random.default_rng(3)
    centres, shift = rng.normal(size=(8, 3)), rng.normal(size=(2, 3))
    turns = Rotation.random(16, random_state=4).as_matrix().reshape(2, 8, 3, 3)
    got = dif.transforms_about_joints(
        PARENTS.tolist(), torch.tensor(centres), torch.tensor(turns), torch.tensor(shift)
    ).numpy()
    for t in range(2):
        for j in range(8):
            total, at = np.eye(4), j
            while at >= 0:
                step = np.eye(4)
                step[:3, :3] = turns[t, at]
                step[:3, 3] = centres[at] - (centres[PARENTS[at]] if PARENTS[at] >= 0 else 0.0)
                total, at = step @ total, PARENTS[at]
            back = np.eye(4)
            back[:3, 3] = -centres[j]
            wanted = total @ back
            wanted[:3, 3] += shift[t]
            np.testing.assert_allclose(got[t, j], wanted, atol=1e-12)
    still = dif.transforms_about_joints(PARENTS.tolist(), torch.tensor(centres), torch.eye(3).double().expand(8, 3, 3))
    np.testing.assert_allclose(still.numpy(), np.broadcast_to(np.eye(4), (8, 4, 4)), atol=1e-12)


@pytest.mark.parametrize("blend", [dif.linear_blend, dif.dual_quaternion_blend])
def test_gradients_are_those_of_finite_differences(blend) -> None:
    rng = np.random.default_rng(5)
    points = torch.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    weights = torch.tensor(random_weights(rng, 4, 8).dense() + 0.01, requires_grad=True)
    vectors = torch.tensor(0.4 * rng.normal(size=(2, 8, 3)), requires_grad=True)
    centres = torch.tensor(rng.normal(size=(8, 3)), requires_grad=True)
    root = torch.tensor(rng.normal(size=(2, 3)), requires_grad=True)

    def moved(vectors, centres, root, weights, points):
        turns = dif.rotation_vectors_to_rotations(vectors)
        return blend(points, weights, dif.transforms_about_joints(PARENTS.tolist(), centres, turns, root))

    inputs = (vectors, centres, root, weights, points)
    gradients = torch.autograd.grad((moved(*inputs) ** 2).sum(), inputs)
    assert all(float(g.abs().max()) > 1e-6 for g in gradients)
    assert torch.autograd.gradcheck(moved, inputs, atol=1e-6)


def test_rotation_vectors_have_finite_gradients_at_zero() -> None:
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(dif.rotation_vectors_to_rotations(zero)[0, 1, 0], zero)
    np.testing.assert_allclose(gradient.numpy(), [[0, 0, 1]], atol=1e-9)


@pytest.mark.parametrize("method", ["linear", "dual"])
def test_splats_follow_the_blended_map_exactly(method) -> None:
    rng = np.random.default_rng(6)
    splats = random_splats(200, degree=2, seed=1)
    skin = random_weights(rng, 200, 8)
    transforms = skin_transforms(random_skeleton(2), random_pose(rng, 8))
    _, linear = blend_maps(splats.means.astype(float), skin, transforms, method)
    posed = pose_splats(RiggedSplats(splats, skin, method), transforms)
    wanted = linear @ covariances(splats) @ linear.swapaxes(1, 2)
    size = np.abs(wanted).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(covariances(posed) / size, wanted / size, atol=2e-5)
    np.testing.assert_array_equal(posed.raw_opacities, splats.raw_opacities)


def test_harmonics_turn_with_a_rigid_bone() -> None:
    """The radiance toward a turned direction is the old radiance toward the old one."""
    splats = random_splats(30, degree=3, seed=2)
    one = rigid_transforms(np.random.default_rng(7), 1)
    skin = random_weights(np.random.default_rng(0), 30, 1, 1)
    posed = pose_splats(RiggedSplats(splats, skin), one)
    directions = Rotation.random(20, random_state=1).as_matrix()[:, :, 0]
    old = sh_basis(directions, 3) @ splats.sh
    new = sh_basis(directions @ one[0, :3, :3].T, 3) @ posed.sh
    np.testing.assert_allclose(new, old, atol=1e-5)


def test_an_offset_does_not_change_the_motion() -> None:
    """Transforms are of file coordinates: far from the origin they act on means + offset."""
    rng = np.random.default_rng(8)
    splats, skin, transforms = random_splats(40, 0), random_weights(rng, 40, 3), rigid_transforms(rng, 3)
    far = splats.replace(offset=(1e6, -2e6, 3e6))
    posed = pose_splats(RiggedSplats(far, skin), transforms)
    wanted = blend_points(far.means.astype(float) + far.offset, skin, transforms)
    np.testing.assert_allclose(posed.means - (wanted - far.offset), 0, atol=0.3)  # float32 at 1e6


def test_mismatched_inputs_are_refused() -> None:
    rng = np.random.default_rng(9)
    skin = random_weights(rng, 5, 3)
    with pytest.raises(InputError, match="4 points but weights for 5"):
        blend_points(np.zeros((4, 3)), skin, np.zeros((3, 4, 4)))
    with pytest.raises(InputError, match="2 joint transforms, but the weights know 3"):
        blend_points(np.zeros((5, 3)), skin, np.zeros((2, 4, 4)))
    with pytest.raises(InputError, match="RiggedSplats: 6 splats but weights for 5"):
        RiggedSplats(random_splats(6, 0), skin)
