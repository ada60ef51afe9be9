"""Splats on a fitted motion: rigid motion is exact, scales stay, and both forms agree where one joint moves all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rigpapr.baselines import (
    MeshSplats,
    SkinnedSplats,
    bind_to_mesh,
    carried_weights,
    photometric_only,
    quaternion_blend,
    skin_splats,
)
from rigpapr.binding import rig_in_pose, weight_logits
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.coarse_kinematics import transforms
from rigpapr.fitted import FittedAsset
from rigpapr.skin import plain_skin
from rigpapr.two_phase import TwoPhaseConfig
from splatanim.data import Mesh, Splats
from splatanim.errors import InputError
from splatanim.rotations import quaternions_to_matrices
from tests.helpers import random_rotation
from tests.rigpapr import creatures
from tests.rigpapr.test_posing import asset_of
from tests.rigpapr.test_skin import MATRIX, bent, prism, rig_of, some_pose, vertices_under
from tests.rigpapr.test_two_phase import clip_of, cloud_of


def covariances(splats: Splats) -> np.ndarray:
    r = quaternions_to_matrices(splats.quaternions.astype(np.float64))
    s = np.exp(splats.log_scales.astype(np.float64))
    return np.einsum("nab,nb,ncb->nac", r, s**2, r)


def splats_at(points: np.ndarray, seed: int = 0) -> Splats:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(len(points), 4))
    return Splats(
        points.astype(np.float32),
        (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(np.float32),
        rng.normal(-4, 0.5, (len(points), 3)).astype(np.float32),
        np.ones(len(points), np.float32),
        rng.normal(size=(len(points), 1, 3)).astype(np.float32),
    )


def rigid(seed: int = 0) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3] = random_rotation(np.random.default_rng(seed))
    out[:3, 3] = (0.3, -0.2, 0.5)
    return out


def check_rigid(before: Splats, after: Splats, move: np.ndarray) -> None:
    np.testing.assert_allclose(after.means, before.means @ move[:3, :3].T + move[:3, 3], atol=1e-5)
    wanted = np.einsum("ab,nbc,dc->nad", move[:3, :3], covariances(before), move[:3, :3])
    np.testing.assert_allclose(covariances(after), wanted, rtol=1e-4, atol=1e-9)


def test_one_rigid_motion_of_all_joints_is_exact_for_both() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(40, 3))
    splats, move = splats_at(points), rigid()
    weights = rng.dirichlet(np.ones(3), 40)
    maps = np.tile(move, (3, 1, 1))
    check_rigid(splats, SkinnedSplats(splats, weights).posed(maps), move)
    mesh = Mesh(rng.normal(size=(12, 3)), rng.permutation(12).reshape(4, 3))
    face, places = rng.integers(0, 4, 40), rng.dirichlet(np.ones(3), 40)
    bound = MeshSplats(splats, mesh, face, places, plain_skin(rng.dirichlet(np.ones(3), 12)))
    check_rigid(splats, bound.posed(maps), move)


def test_bending_keeps_scales_and_blends_turns() -> None:
    points = np.linspace([-1.0, 0, 0], [1.0, 0, 0], 21)
    splats = splats_at(points)
    share = (points[:, 0] + 1) / 2
    weights = np.stack([1 - share, share], axis=1)
    maps = np.tile(np.eye(4), (2, 1, 1))
    maps[1, :3, :3] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]  # a quarter turn about z
    posed = SkinnedSplats(splats, weights).posed(maps)
    np.testing.assert_allclose(np.sort(posed.log_scales, axis=1), np.sort(splats.log_scales, axis=1), atol=1e-4)
    blended = np.einsum("nj,jab,nb->na", weights, maps[:, :3, :3], points)
    np.testing.assert_allclose(posed.means, blended, atol=1e-6)
    turns = quaternion_blend(maps, weights)
    half = turns[10]
    np.testing.assert_allclose(half[:2, :2], [[np.sqrt(0.5), -np.sqrt(0.5)], [np.sqrt(0.5), np.sqrt(0.5)]], atol=1e-9)
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), np.tile(np.eye(3), (21, 1, 1)), atol=1e-9)


def test_quaternions_of_opposite_sign_blend_the_short_way() -> None:
    angle = np.radians(170.0)
    maps = np.tile(np.eye(4), (2, 1, 1))
    for k, a in enumerate((angle, -angle)):  # 20 degrees apart over the back
        maps[k, :2, :2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    middle = quaternion_blend(maps, np.array([[0.5, 0.5]]))[0]
    np.testing.assert_allclose(middle, np.diag([-1.0, -1.0, 1.0]), atol=1e-9)


def test_a_mesh_splat_turns_with_its_triangle_and_keeps_its_scale() -> None:
    mesh = Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]]))
    splats = splats_at(np.array([[0.25, 0.25, 0.1]]))
    maps = np.tile(np.eye(4), (2, 1, 1))
    maps[1] = np.diag([2.0, 2.0, 2.0, 1.0])  # stretches the triangle, not the splat
    skin = plain_skin(np.tile([0.0, 1.0], (3, 1)))
    bound = MeshSplats(splats, mesh, np.array([0]), np.array([[0.5, 0.25, 0.25]]), skin)
    posed = bound.posed(maps)
    np.testing.assert_allclose(posed.means, [[0.5, 0.5, 0.1]], atol=1e-6)
    np.testing.assert_allclose(covariances(posed), covariances(splats), rtol=1e-4)


def test_weights_are_carried_and_mistakes_told() -> None:
    asset = asset_of()
    points = asset.cloud.world_positions.detach().double().numpy()
    carried = carried_weights(asset, points)
    np.testing.assert_allclose(carried, asset.weights.double().numpy(), atol=1e-5)
    bound = skin_splats(splats_at(points), asset)
    for k in range(len(asset)):
        posed = bound.posed(asset.maps()[k].double().numpy())
        np.testing.assert_allclose(posed.means, asset.posed(k)[0].numpy(), atol=1e-4)
    mesh = Mesh(points[:3], np.array([[0, 1, 2]]))
    few = splats_at(points[:2])
    places = np.full((2, 3), 1 / 3)
    assert len(bind_to_mesh(few, mesh, np.zeros(2, np.int64), places, asset).skin) == 3
    with pytest.raises(InputError, match=r"the rig has joints low, high, the asset root, middle, arm, top\."):
        bind_to_mesh(few, mesh, np.zeros(2, np.int64), places, asset, rig_of())
    with pytest.raises(InputError, match=r"MeshSplats: 2 splats, faces \(1,\)"):
        bind_to_mesh(few, mesh, np.zeros(1, np.int64), places, asset)
    with pytest.raises(InputError, match="MeshSplats: 3 vertices, weights for 2"):
        MeshSplats(few, mesh, np.zeros(2, np.int64), places, plain_skin(np.ones((2, 1))))


def test_vertices_follow_the_rigs_own_mesh_exactly() -> None:
    model = prism()
    first = bent(model, 0.7)
    rig = rig_in_pose(model, first, MATRIX)
    assert rig.mesh is not None
    vertices, faces = rig.mesh.vertices(), model.faces
    mesh = Mesh(vertices, faces)
    points = torch.from_numpy(vertices[faces].mean(axis=1)).float()
    asset = FittedAsset(
        PaprCloud(CloudConfig(neighbours=4), points),
        rig.names,
        torch.tensor(rig.parents),
        torch.from_numpy(rig.joints).float(),
        torch.zeros(2, dtype=torch.bool),
        weight_logits(rig.skin(points.numpy()).weights),
        torch.eye(3).repeat(1, 2, 1, 1),
        torch.zeros(1, 2, 3),
    )
    corners, middle = np.arange(len(faces)), np.full((len(faces), 3), 1 / 3)
    pose = some_pose(2, 4)
    maps = np.pad(transforms(rig, pose), ((0, 0), (0, 1), (0, 0)))
    wanted = vertices_under(rig, model, first, pose)[faces].mean(axis=1)
    splats = splats_at(points.numpy())
    exact = bind_to_mesh(splats, mesh, corners, middle, asset, rig).posed(maps)
    np.testing.assert_allclose(exact.means, wanted, atol=1e-5)
    blurred = bind_to_mesh(splats, mesh, corners, middle, asset, dataclasses.replace(rig, mesh=None)).posed(maps)
    assert np.abs(blurred.means - wanted).max() > 0.05  # by the weights of points between


def test_photometric_only_uses_neither_depth_nor_a_start() -> None:
    cloud, rig = cloud_of(600)
    clip, _ = clip_of(cloud, creatures.motion(3, 0.1), rig)
    plan = dataclasses.replace(TwoPhaseConfig(), steps_one=2, patches=2)
    said: list[int] = []
    asset = photometric_only(cloud, rig, clip, config=plan, on_frame=lambda done, total, loss: said.append(done))
    assert len(asset) == 3 and said == [1, 2]
    torch.testing.assert_close(asset.rotations[0], torch.eye(3).expand(4, 3, 3))
    assert not torch.allclose(asset.rotations[1], asset.rotations[0])
