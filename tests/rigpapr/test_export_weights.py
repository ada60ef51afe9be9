"""Weights for files without moments: plain ones come back, the best ones are found, and a .glb follows its asset."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from rigpapr.binding import weight_logits
from rigpapr.coarse_kinematics import rest_pose, skinned, transforms
from rigpapr.export_weights import _on_simplex, blend_weights
from rigpapr.skin import Skin, plain_skin
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.weights import MOST_INFLUENCES, sparse_weights
from tests.rigpapr import creatures
from tests.rigpapr.test_posing import asset_of
from tests.rigpapr.test_skin import on_faces, rig_of, some_pose

PARENTS = (-1, 0, 1, 1)


def moved(points: np.ndarray, skin: Skin, maps: np.ndarray) -> np.ndarray:
    return np.stack([skinned(points, skin, frame)[0] for frame in maps])


def creature_maps(frames: int = 6) -> np.ndarray:
    rig, _ = creatures.creature(200)
    return np.stack([transforms(rig, some_pose(4, k) if k else rest_pose(4)) for k in range(frames)])


def test_the_simplex_projection_is_the_nearest_point() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 6))
    found = _on_simplex(values)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    others = rng.dirichlet(np.ones(6), (50, 200))
    least = np.linalg.norm(found - values, axis=1)
    assert (np.linalg.norm(others - values[:, None], axis=2) >= least[:, None] - 1e-12).all()
    # the nearest point of a convex set: no other lies ahead of it
    assert (np.einsum("nk,nmk->nm", values - found, others - found[:, None]) <= 1e-12).all()
    np.testing.assert_allclose(_on_simplex(others[0]), others[0], atol=1e-12)


def test_without_moments_the_weights_come_back() -> None:
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(40, 3)), rng.dirichlet(np.ones(4), 40)
    found = blend_weights(points, plain_skin(weights), creature_maps(), PARENTS)
    np.testing.assert_allclose(found, weights, atol=1e-6)


def test_weights_that_explain_the_motion_are_found() -> None:
    rng = np.random.default_rng(2)
    points, true = 0.4 * rng.normal(size=(40, 3)), rng.dirichlet(np.ones(4), 40)
    maps = creature_maps(1)
    maps = np.concatenate([maps, maps])
    maps[1, :, :2, 3] = rng.normal(size=(4, 2))
    start = rng.dirichlet(np.ones(4), 40)
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    maps[1, 1, :, :3] = turn
    # joint 1 alone turns, about z: its moment m moves points in frame 1 by (turn - 1) m, so as the true weights do
    wanted = moved(points, plain_skin(true), maps)[1] - moved(points, plain_skin(start), maps)[1]
    moments = np.zeros((40, 4, 3))
    moments[:, 1, :2] = np.linalg.solve((turn - np.eye(3))[:2, :2], wanted[:, :2].T).T
    moments[:, 0] = -moments[:, 1]
    skin = Skin(start, moments)
    target = moved(points, skin, maps)
    before = np.linalg.norm(moved(points, plain_skin(start), maps) - target, axis=2).mean()
    found = blend_weights(points, skin, maps, PARENTS)
    after = np.linalg.norm(moved(points, plain_skin(found), maps) - target, axis=2).mean()
    assert after < 0.05 * before
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)


def test_a_bent_bar_is_followed_more_closely_than_by_plain_weights() -> None:
    rig = rig_of()
    assert rig.mesh is not None
    corners, places = on_faces(rig.mesh.faces, 80)
    places /= places.sum(axis=1, keepdims=True)
    points = np.einsum("nk,nkd->nd", places, rig.mesh.vertices()[corners])
    skin = rig.skin(points)
    maps = np.stack([transforms(rig, some_pose(2, k)) for k in range(4)])
    target = moved(points, skin, maps)
    plain = np.linalg.norm(moved(points, plain_skin(skin.weights), maps) - target, axis=2)
    found = blend_weights(points, skin, maps, rig.parents)
    solved = np.linalg.norm(moved(points, plain_skin(found), maps) - target, axis=2)
    assert (solved**2).mean() < 0.95 * (plain**2).mean()
    assert ((solved**2).sum(axis=0) <= (plain**2).sum(axis=0) * 1.001 + 1e-9).all()  # for no point worse
    grid = np.linspace(0, 1, 201)  # two joints: by brute force
    tried = np.stack([moved(points, plain_skin(np.tile([g, 1 - g], (80, 1))), maps) for g in grid])
    best = ((tried - target) ** 2).sum(axis=(1, 3)).argmin(axis=0)
    np.testing.assert_allclose(found[:, 0], grid[best], atol=6e-3)


def test_at_most_eight_joints() -> None:
    rng = np.random.default_rng(3)
    joints = 12
    maps = np.concatenate([np.tile(np.eye(3), (3, joints, 1, 1)), rng.normal(size=(3, joints, 3, 1))], axis=3)
    weights = rng.dirichlet(np.ones(joints), 30)
    found = blend_weights(rng.normal(size=(30, 3)), plain_skin(weights), maps, [k - 1 for k in range(joints)])
    assert (found > 0).sum(axis=1).max() <= MOST_INFLUENCES
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)


def test_a_glb_follows_an_asset_with_moments(tmp_path: Path) -> None:
    plain = asset_of(4, 120)
    weights = plain.weights.double().numpy()
    rng = np.random.default_rng(4)
    moments = 0.03 * rng.normal(size=(120, 4, 3))
    moments -= moments.mean(axis=1, keepdims=True)
    asset = dataclasses.replace(plain, moments=torch.from_numpy(moments).float(), logits=weight_logits(weights))
    write_glb(tmp_path / "a.glb", asset.model())
    back = read_gltf(tmp_path / "a.glb")
    clip = next(iter(back.animations.values()))
    strongest = sparse_weights(weights).dense()
    ours, theirs = [], []
    for k in range(len(asset)):
        wanted = asset.posed(k)[0].double().numpy()
        ours.append(np.linalg.norm(back.posed(clip.sample(k / asset.fps)) - wanted, axis=1))
        points = asset.cloud.world_positions.detach().double().numpy()
        maps = asset.maps()[k, :, :3].double().numpy()
        theirs.append(np.linalg.norm(skinned(points, plain_skin(strongest), maps)[0] - wanted, axis=1))
    assert np.mean(ours) < 0.9 * np.mean(theirs)
    np.testing.assert_allclose(ours[0], 0, atol=1e-5)  # at rest nothing is off
    still = asset.model({})  # without clips, for the fitted motion
    np.testing.assert_allclose(still.skin.dense(), asset.model().skin.dense(), atol=1e-9)
