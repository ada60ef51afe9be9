"""Points move exactly as the rig's mesh does: against skinned vertices, finite differences, torch, and files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Float64

from rigpapr.binding import FitRig, rig_in_pose, weight_logits
from rigpapr.coarse_kinematics import JointPose, exp_rotations, jacobian, rest_pose, skinned, transforms
from rigpapr.fitted import FittedAsset, deform, read_fitted, write_fitted
from rigpapr.follow import attach
from rigpapr.skin import Skin, plain_skin, rig_mesh
from splatanim.data import Mesh
from splatanim.errors import InputError
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Pose, bind_pose, forward_kinematics, skeleton_from_positions
from splatanim.rig.skinning import blend_points
from splatanim.rig.weights import sparse_weights
from tests.rigpapr.test_posing import asset_of

MATRIX = np.diag([2.0, 2.0, 2.0, 1.0])  # from the rig's file to the scene
MATRIX[:3, 3] = (0.5, -1.0, 3.0)


def prism() -> RiggedModel:
    """A three-sided bar along x on two bones with a joint in its middle: rings at x = -1, 0, 1 and nothing between, so
    that triangles are as long as the bones. Weights go from bone to bone at the middle ring."""
    ring = 0.3 * np.array([[0.0, np.cos(a), np.sin(a)] for a in 2 * np.pi * np.arange(3) / 3])
    vertices = np.concatenate([ring + np.array([x, 0, 0]) for x in (-1.0, 0.0, 1.0)])
    faces = [[0, 2, 1], [6, 7, 8]]
    for low in (0, 3):
        for k in range(3):
            a, b = low + k, low + (k + 1) % 3
            faces += [[a, b, b + 3], [a, b + 3, a + 3]]
    weights = np.repeat([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], 3, axis=0)
    skeleton = skeleton_from_positions(("low", "high"), np.array([-1, 0]), np.array([[-1.0, 0, 0], [0.0, 0, 0]]))
    return RiggedModel(vertices, np.array(faces), skeleton, sparse_weights(weights, 2))


def bent(model: RiggedModel, angle: float) -> Pose:
    """The second bone turned about z, the first one a little about x."""
    rest = bind_pose(model.skeleton)
    turns = np.array([[np.cos(0.1), np.sin(0.1), 0, 0], [np.cos(angle / 2), 0, 0, np.sin(angle / 2)]])
    return dataclasses.replace(rest, rotations=turns)


def some_pose(joints: int, seed: int) -> JointPose:
    rng = np.random.default_rng(seed)
    return JointPose(exp_rotations(0.6 * rng.normal(size=(joints, 3))), 0.2 * rng.normal(size=(joints, 3)))


def on_faces(faces: np.ndarray, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Corners (n, 3) and barycentric places (n, 3) well inside the long triangles."""
    rng = np.random.default_rng(seed)
    return faces[rng.integers(2, len(faces), count)], 0.1 + 0.7 * rng.dirichlet(np.ones(3), count)


def rig_of(angle: float = 0.7) -> FitRig:
    model = prism()
    return rig_in_pose(model, bent(model, angle), MATRIX)


def vertices_under(rig: FitRig, model: RiggedModel, first: Pose, pose: JointPose) -> Float64[np.ndarray, "v 3"]:
    """Skinned vertices, by splatanim alone: T_b G_b(first frame) G_b(bind)^-1."""
    steps = np.tile(np.eye(4), (len(rig), 1, 1))
    steps[:, :3] = transforms(rig, pose)
    globals_ = MATRIX @ forward_kinematics(model.skeleton, first)
    return blend_points(model.vertices, model.skin, steps @ globals_ @ model.skeleton.inverse_bind)


@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_points_on_the_mesh_move_exactly_as_it_does(angle: float) -> None:
    model = prism()
    first = bent(model, angle)
    rig = rig_in_pose(model, first, MATRIX)
    assert rig.mesh is not None
    np.testing.assert_allclose(rig.mesh.vertices(), vertices_under(rig, model, first, rest_pose(2)), atol=1e-9)
    corners, places = on_faces(model.faces, 200)
    places /= places.sum(axis=1, keepdims=True)
    points = np.einsum("nk,nkd->nd", places, rig.mesh.vertices()[corners])
    skin = rig.skin(points)
    off = 0.0
    for seed in range(3):
        pose = some_pose(2, seed)
        wanted = np.einsum("nk,nkd->nd", places, vertices_under(rig, model, first, pose)[corners])
        np.testing.assert_allclose(skinned(points, skin, transforms(rig, pose))[0], wanted, atol=1e-9)
        plain = skinned(points, plain_skin(skin.weights), transforms(rig, pose))[0]
        off = max(off, float(np.linalg.norm(plain - wanted, axis=1).max()))
    assert off > 0.1  # linear blending of the points themselves does not: bones are 2 long here


def test_moments_sum_to_nothing_and_rigid_motions_stay_rigid() -> None:
    rig = rig_of()
    assert rig.mesh is not None
    rng = np.random.default_rng(1)
    corners, places = on_faces(rig.mesh.faces, 60)
    places /= places.sum(axis=1, keepdims=True)
    points = np.einsum("nk,nkd->nd", places, rig.mesh.vertices()[corners]) + 0.05 * rng.normal(size=(60, 3))
    skin = rig.skin(points)
    np.testing.assert_allclose(skin.weights.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(skin.moments.sum(axis=1), 0, atol=1e-9)
    assert np.abs(skin.moments).max() > 0.1
    np.testing.assert_allclose(skinned(points, skin, transforms(rig, rest_pose(2)))[0], points, atol=1e-9)
    move = np.column_stack([exp_rotations(np.array([[0.3, -1.0, 0.4]]))[0], [0.2, 0.5, -0.7]])
    moved, turned = skinned(points, skin, np.tile(move, (2, 1, 1)))
    np.testing.assert_allclose(moved, points @ move[:, :3].T + move[:, 3], atol=1e-9)
    np.testing.assert_allclose(turned, np.tile(move[:, :3], (60, 1, 1)), atol=1e-9)
    part = skin[np.array([4, 7])]
    assert len(part) == 2
    np.testing.assert_array_equal(part.moments, skin.moments[[4, 7]])


def test_offsets_turn_with_the_blended_rotation() -> None:
    rig = rig_of()
    assert rig.mesh is not None
    corners, places = on_faces(rig.mesh.faces, 40)
    places /= places.sum(axis=1, keepdims=True)
    points = np.einsum("nk,nkd->nd", places, rig.mesh.vertices()[corners])
    points = points + 0.1 * (rig.mesh.vertices().mean(axis=0) - points)  # inside
    skin, pose = rig.skin(points), transforms(rig, some_pose(2, 5))
    found = attach(points, Mesh(rig.mesh.vertices(), rig.mesh.faces))
    assert np.linalg.norm(found.offset, axis=1).max() > 0.02
    at_first = np.einsum("jab,vb->vja", rig.mesh.first[:, :, :3], rig.mesh.bind) + rig.mesh.first[:, :, 3]
    parts = np.einsum("jab,vjb->vja", pose[:, :, :3], at_first) + pose[:, :, 3]
    vertices = np.einsum("vj,vja->va", rig.mesh.weights, parts)
    middle = np.einsum("nmk,nmkd->nd", found.weights, vertices[rig.mesh.faces[found.faces]])
    moved, blended = skinned(points, skin, pose)
    np.testing.assert_allclose(moved, middle + np.einsum("nab,nb->na", blended, found.offset), atol=1e-9)


def test_the_jacobian_with_moments_by_finite_differences() -> None:
    rig = rig_of()
    assert rig.mesh is not None
    points = rig.mesh.vertices()[rig.mesh.faces[2:]].mean(axis=1)
    skin, pose, step = rig.skin(points), some_pose(2, 3), 1e-6
    exact = jacobian(rig, rig.descendants(), points, skin, transforms(rig, pose))
    for unknown in range(12):
        change = np.zeros(12)
        change[unknown] = step
        ahead = skinned(points, skin, transforms(rig, pose.stepped(change)))[0]
        back = skinned(points, skin, transforms(rig, pose.stepped(-change)))[0]
        np.testing.assert_allclose(exact[:, :, unknown], (ahead - back) / (2 * step), atol=1e-7)
    plain = jacobian(rig, rig.descendants(), points, plain_skin(skin.weights), transforms(rig, pose))
    assert np.abs(exact - plain).max() > 0.05


def random_skin(points: int, joints: int, seed: int = 0) -> Skin:
    rng = np.random.default_rng(seed)
    moments = rng.normal(size=(points, joints, 3))
    return Skin(rng.dirichlet(np.ones(joints), points), moments - moments.mean(axis=1, keepdims=True))


def test_torch_moves_points_as_numpy_does() -> None:
    rig, points = rig_of(), np.random.default_rng(0).normal(size=(30, 3))
    skin, maps = random_skin(30, 2), transforms(rig, some_pose(2, 2))
    moved, blended = skinned(points, skin, maps)
    whole = np.pad(maps, ((0, 0), (0, 1), (0, 0)))
    tensors = [torch.from_numpy(v) for v in (points, skin.weights, whole, skin.moments)]
    both = deform(*tensors)
    np.testing.assert_allclose(both[0].numpy(), moved, atol=1e-12)
    np.testing.assert_allclose(both[1].numpy(), blended, atol=1e-12)
    plain = deform(*tensors[:3])[0].numpy()
    np.testing.assert_allclose(plain, skinned(points, plain_skin(skin.weights), maps)[0], atol=1e-12)


def with_moments() -> FittedAsset:
    asset = asset_of(3, 120)
    skin = random_skin(120, 4)
    moments = torch.from_numpy(0.02 * skin.moments).float()
    return dataclasses.replace(asset, moments=moments, logits=weight_logits(skin.weights))


def test_moments_come_back_from_the_file(tmp_path: Path) -> None:
    asset, plain = with_moments(), asset_of(3, 120)
    for name, one in (("moments", asset), ("plain", plain)):
        write_fitted(tmp_path / f"{name}.papr.safetensors", one)
    again = read_fitted(tmp_path / "moments.papr.safetensors")
    assert again.moments is not None and asset.moments is not None and torch.equal(again.moments, asset.moments)
    torch.testing.assert_close(again.posed(2)[0], asset.posed(2)[0], rtol=0, atol=0)
    without = dataclasses.replace(asset, moments=None).posed(2)[0]
    assert float((asset.posed(2)[0] - without).abs().max()) > 1e-3
    assert read_fitted(tmp_path / "plain.papr.safetensors").moments is None
    with pytest.raises(InputError, match=r"rig\.moments is \(120, 3, 3\), not \(120, 4, 3\)"):
        dataclasses.replace(asset, moments=asset.moments[:, :3])
    broken = asset.moments.clone()
    broken[3, 1, 0] = torch.nan
    with pytest.raises(InputError, match=r"rig\.moments has NaN or infinite values"):
        write_fitted(tmp_path / "c.papr.safetensors", dataclasses.replace(asset, moments=broken))


def test_only_triangles_with_weights_and_area_count() -> None:
    bind = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [2, 0, 0]])
    faces, first = np.array([[0, 1, 2], [1, 3, 2], [0, 1, 3]]), np.tile(np.eye(3, 4), (2, 1, 1))
    weights = np.array([[2.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.0, 0.0]])
    found = rig_mesh(bind, faces, weights, first)
    assert found is not None
    np.testing.assert_array_equal(found.faces, [[0, 1, 2]])  # vertex 3 has no weight
    np.testing.assert_allclose(found.weights, [[1, 0], [0.5, 0.5], [0, 1], [0, 0]])
    np.testing.assert_allclose(found.skin(np.array([[0.25, 0.25, 0.0]])).weights, [[0.625, 0.375]], atol=1e-9)
    weights[3] = (1.0, 0.0)
    whole = rig_mesh(bind, faces, weights, first)
    assert whole is not None and len(whole.faces) == 2  # the last one is flat
    assert rig_mesh(bind, faces[2:], weights, first) is None
    assert rig_mesh(bind, faces[:0], weights, first) is None
    assert rig_mesh(bind, faces, np.zeros((4, 2)), first) is None
    rig = dataclasses.replace(rig_of(), mesh=None)
    assert np.abs(rig.skin(rig.sources).moments).max() == 0
    np.testing.assert_array_equal(rig.skin(rig.sources).weights, rig.weights(rig.sources))
