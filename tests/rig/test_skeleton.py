"""Skeletons: what is refused, forward kinematics against products written out, and poses that must be the identity."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from splatanim.errors import InputError
from splatanim.rig.affine import compose, decompose, shortest_turn, slerp
from splatanim.rig.skeleton import (
    Pose,
    Skeleton,
    bind_pose,
    forward_kinematics,
    skeleton_from_positions,
    skin_transforms,
    still_pose,
)
from tests.rig.rigs import PARENTS, chain, random_pose, random_skeleton


def test_forward_kinematics_is_the_product_of_locals_up_to_the_root() -> None:
    skeleton = random_skeleton()
    pose = random_pose(np.random.default_rng(1), 4, len(skeleton))
    got = forward_kinematics(skeleton, pose)
    for t in range(4):
        for j in range(len(skeleton)):
            total, at = np.eye(4), j
            while at >= 0:
                scaled = Rotation.from_quat(pose.rotations[t, at], scalar_first=True).as_matrix()
                local = np.eye(4)
                local[:3, :3], local[:3, 3] = scaled * pose.scales[t, at], pose.translations[t, at]
                total, at = skeleton.prefix[at] @ local @ total, PARENTS[at]
            np.testing.assert_allclose(got[t, j], total, atol=1e-12)


def test_order_and_descendants_of_an_unordered_tree() -> None:
    skeleton = random_skeleton()
    place = {int(j): k for k, j in enumerate(skeleton.order)}
    assert sorted(place) == list(range(len(skeleton)))
    assert all(p < 0 or place[int(p)] < place[j] for j, p in enumerate(skeleton.parents))
    assert skeleton.descendant_counts().tolist() == [3, 1, 0, 6, 1, 0, 0, 0]
    assert skeleton.children(0).tolist() == [1, 6]


def test_a_bent_chain_moves_its_tip_on_a_circle() -> None:
    skeleton = chain()
    rotations = skeleton.rest.rotations.copy()
    rotations[1] = [np.cos(np.pi / 4), 0, 0, np.sin(np.pi / 4)]  # a quarter turn about z at height 1
    moved = skin_transforms(skeleton, Pose(skeleton.rest.translations, rotations, skeleton.rest.scales))
    np.testing.assert_allclose((moved[2] @ [0, 2, 0, 1])[:3], [-1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(moved[0], np.eye(4), atol=1e-12)


def test_bind_pose_makes_every_transform_the_identity() -> None:
    skeleton = skeleton_from_positions("abcd", np.array([1, -1, 1, 2]), np.random.default_rng(0).normal(size=(4, 3)))
    turn = np.eye(4)
    turn[:3, :3] = 3.0 * Rotation.from_rotvec([0.3, -0.8, 0.5]).as_matrix()
    turn[:3, 3] = [5, -2, 1]
    for one in (skeleton, skeleton.transformed(turn)):
        np.testing.assert_allclose(
            skin_transforms(one, bind_pose(one)), np.broadcast_to(np.eye(4), (4, 4, 4)), atol=1e-12
        )
    moved = skeleton.joint_positions @ turn[:3, :3].T + turn[:3, 3]
    np.testing.assert_allclose(skeleton.transformed(turn).joint_positions, moved, atol=1e-12)


def test_decompose_undoes_compose_and_refuses_shear() -> None:
    pose = random_pose(np.random.default_rng(3), 20)
    for t, q, s in zip(pose.translations, pose.rotations, pose.scales):
        for mirror in (1.0, -1.0):
            matrix = compose(t, q, s * [mirror, 1, 1])
            parts = decompose(matrix)
            assert parts is not None
            np.testing.assert_allclose(compose(*parts), matrix, atol=1e-12)
    sheared = np.eye(4)
    sheared[0, 1] = 0.5
    assert decompose(sheared) is None and decompose(np.zeros((4, 4))) is None


def test_shortest_turn_and_slerp_follow_their_definitions() -> None:
    rng = np.random.default_rng(4)
    for a, b in [(rng.normal(size=3), rng.normal(size=3)), (np.eye(3)[0], -np.eye(3)[0])]:
        turn = shortest_turn(a, b)
        np.testing.assert_allclose(turn @ a / np.linalg.norm(a), b / np.linalg.norm(b), atol=1e-12)
        assert np.isclose(np.linalg.det(turn), 1.0)
    np.testing.assert_array_equal(shortest_turn(np.zeros(3), np.eye(3)[0]), np.eye(3))
    ends = Rotation.from_rotvec([[0.2, 0.1, 0.4], [1.2, -0.7, 0.3]])
    a, b = ends.as_quat(scalar_first=True)
    relative = (ends[0].inv() * ends[1]).as_rotvec()
    middle = ends[0] * Rotation.from_rotvec(0.3 * relative)
    got = slerp(a, -b, np.array([0.3]))  # the far sign of the same rotation
    np.testing.assert_allclose(abs(got @ middle.as_quat(scalar_first=True)), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"parents": np.array([1, 2, 0])}, "the hierarchy has a cycle through joint 'bone0'"),
        ({"parents": np.array([-1, 0])}, "3 joint names but 2 parents"),
        ({"parents": np.array([-1, 0, 7])}, "has index 7, but there are 3 joints"),
        ({"names": ("a", "b", "a")}, "names occur twice, such as 'a'"),
        ({"rest": still_pose(np.zeros((2, 3)))}, "3 joint names but 2 rest pose"),
        ({"inverse_bind": np.full((3, 4, 4), np.nan)}, "an inverse bind matrix is NaN"),
    ],
)
def test_impossible_skeletons_are_refused(change: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        dataclasses.replace(chain(), **change)


def test_names_that_are_not_there_and_empty_skeletons() -> None:
    with pytest.raises(InputError, match=r"no joint 'tail'. Its joints: bone0, bone1, bone2"):
        chain().index("tail")
    nothing = np.empty((0, 4, 4))
    with pytest.raises(InputError, match="no joints"):
        Skeleton((), np.empty(0, np.int64), still_pose(np.empty((0, 3))), nothing, nothing)
    with pytest.raises(InputError, match="2 joint names, 1 parents and 2 positions"):
        skeleton_from_positions("ab", np.array([-1]), np.zeros((2, 3)))
