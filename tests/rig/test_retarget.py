"""Retargeting: names, a skeleton onto itself and onto a turned, scaled and renamed copy, and real motion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from splatanim.errors import InputError
from splatanim.rig.animation import animation_from_poses
from splatanim.rig.bvh import read_bvh
from splatanim.rig.gltf import read_gltf
from splatanim.rig.names import describe_map, match_names, read_name_map, side_of
from splatanim.rig.retarget import retarget
from splatanim.rig.skeleton import Pose, Skeleton, bind_pose, forward_kinematics, skeleton_from_positions
from tests.helpers import data_file

FIGURE = {
    "hips": (-1, [0, 1, 0]), "spine": (0, [0, 1.3, 0]), "head": (1, [0, 1.7, 0]),
    "thigh.L": (0, [0.1, 0.95, 0]), "shin.L": (3, [0.1, 0.5, 0]), "foot.L": (4, [0.1, 0.05, 0]),
    "thigh.R": (0, [-0.1, 0.95, 0]), "shin.R": (6, [-0.1, 0.5, 0]), "foot.R": (7, [-0.1, 0.05, 0]),
    "upperarm.L": (1, [0.2, 1.5, 0]), "forearm.L": (9, [0.5, 1.5, 0]), "hand.L": (10, [0.75, 1.5, 0]),
}  # fmt: skip


def figure(names: list[str] | None = None) -> Skeleton:
    parents, places = zip(*FIGURE.values())
    return skeleton_from_positions(names or list(FIGURE), np.array(parents), np.array(places, float))


def waving(skeleton: Skeleton, frames: int = 5):
    """A clip of random turns with a path of the root."""
    rng = np.random.default_rng(0)
    turns = Rotation.from_rotvec(0.6 * rng.normal(size=(frames * len(skeleton), 3))).as_quat(scalar_first=True)
    still = bind_pose(skeleton)
    translations = np.repeat(still.translations[None], frames, axis=0)
    translations[:, 0] += np.linspace(0, 1, frames)[:, None] * [0.5, 0.1, 1.0]
    pose = Pose(translations, turns.reshape(frames, len(skeleton), 4), np.ones((frames, len(skeleton), 3)))
    return animation_from_poses("wave", skeleton.rest, np.arange(frames) / 30, pose)


def rotated(skeleton: Skeleton, seed: int = 1) -> Skeleton:
    """The same places with other axes at every joint, as other tools give them."""
    n = len(skeleton)
    world = np.tile(np.eye(4), (n, 1, 1))
    world[:, :3, :3] = Rotation.random(n, random_state=seed).as_matrix()
    world[:, :3, 3] = skeleton.joint_positions
    up = np.array([np.eye(4) if p < 0 else world[p] for p in skeleton.parents])
    local = np.linalg.inv(up) @ world
    quaternions = Rotation.from_matrix(local[:, :3, :3]).as_quat(scalar_first=True)
    rest = Pose(local[:, :3, 3].copy(), quaternions, np.ones((n, 3)))
    return Skeleton(skeleton.names, skeleton.parents, rest, np.linalg.inv(world), skeleton.prefix)


def positions(skeleton: Skeleton, clip, times: np.ndarray) -> np.ndarray:
    return forward_kinematics(skeleton, clip.sample(times))[..., :3, 3]


def test_a_skeleton_with_other_axes_moves_alike() -> None:
    source = figure()
    target, clip = rotated(source), waving(source)
    names = {name: name for name in source.names}
    moved = retarget(clip, source, target, names)
    times = np.arange(5) / 30
    wanted, got = positions(source, clip, times), positions(target, moved, times)
    np.testing.assert_allclose(got - got[:, :1], wanted - wanted[:, :1], atol=1e-9)
    drift = (got[:, 0] - got[0, 0]) - (wanted[:, 0] - wanted[0, 0])
    np.testing.assert_allclose(drift[:, [0, 2]], 0.0, atol=1e-9)
    rise = got[..., 1].min(axis=1) - wanted[..., 1].min(axis=1)
    np.testing.assert_allclose(rise, rise[0], atol=1e-9)  # the floor is where the lowest joint of the clip is
    assert np.isclose(got[..., 1].min(), 0.05)  # and the target stands on its own feet


def test_a_turned_and_larger_copy_moves_alike_in_its_own_size() -> None:
    """It faces elsewhere (by its left and right limbs) and is twice as tall."""
    source = figure()
    turn = np.eye(4)
    facing = Rotation.from_rotvec([0, 2.1, 0]).as_matrix()
    turn[:3, :3] = 2.0 * facing
    target, clip = source.transformed(turn), waving(source)
    moved = retarget(clip, source, target, {name: name for name in source.names})
    times = np.arange(5) / 30
    wanted, got = positions(source, clip, times), positions(target, moved, times)
    np.testing.assert_allclose(got - got[:, :1], 2.0 * (wanted - wanted[:, :1]) @ facing.T, atol=1e-9)
    path = 2.0 * (wanted[:, 0] - wanted[0, 0]) @ facing.T
    np.testing.assert_allclose((got[:, 0] - got[0, 0])[:, [0, 2]], path[:, [0, 2]], atol=1e-9)


def test_rest_poses_are_aligned() -> None:
    """A T-pose and a pose with hanging arms: at the source's rest the target's arm points where the source's does."""
    source = figure()
    places = source.joint_positions.copy()
    places[10], places[11] = [0.2, 1.2, 0], [0.2, 0.95, 0]
    target = skeleton_from_positions(source.names, source.parents, places)
    pose = bind_pose(source)
    still = animation_from_poses(
        "rest", source.rest, np.array([0.0, 1.0]), Pose(*(np.stack([v, v]) for v in vars(pose).values()))
    )
    moved = retarget(still, source, target, {name: name for name in source.names})
    got = positions(target, moved, np.array([0.0]))[0]
    for a, b in ((9, 10), (10, 11)):
        bone = got[b] - got[a]
        np.testing.assert_allclose(bone / np.linalg.norm(bone), [1, 0, 0], atol=1e-9)


def test_unmapped_joints_keep_their_place_on_their_parents() -> None:
    source = figure()
    clip = waving(source)
    names = {name: name for name in source.names if name not in ("forearm.L", "head")}
    moved = retarget(clip, source, source, names)
    turned = moved.sample(np.array([0.1])).rotations[0]
    for joint in ("forearm.L", "head"):
        np.testing.assert_allclose(np.abs(turned[source.index(joint)]), [1, 0, 0, 0], atol=1e-9)


def test_names_of_common_rigs_are_matched() -> None:
    mixamo = [
        "mixamorig:Hips", "mixamorig:Spine", "mixamorig:Head", "mixamorig:LeftUpLeg", "mixamorig:LeftLeg",
        "mixamorig:LeftFoot", "mixamorig:RightUpLeg", "mixamorig:RightLeg", "mixamorig:RightFoot",
        "mixamorig:LeftArm", "mixamorig:LeftForeArm", "mixamorig:LeftHand",
    ]  # fmt: skip
    names = match_names(figure(mixamo), figure())
    assert list(names.values()) == list(FIGURE) and list(names) == mixamo
    assert [side_of(n) for n in ("LHipJoint", "arm_R", "Left arm", "b_RightHand_09", "Leela", "roll")] == [
        1,
        -1,
        1,
        -1,
        0,
        0,
    ]
    told = describe_map({"a": "hips"}, figure([*"abcdefghijkl"]), figure())
    assert told.splitlines()[0] == "  a -> hips" and "without a partner (they keep their rest): spine" in told
    with pytest.raises(InputError, match=r"no joint of the motion \(a, b, .* has a partner"):
        retarget(waving(figure()), figure([*"abcdefghijkl"]), figure(), {})


def test_name_maps_from_files(tmp_path: Path) -> None:
    path = tmp_path / "names.toml"
    path.write_text('[joints]\n"hips" = "a"\n"head" = ""\n')
    other = figure([*"abcdefghijkl"])
    assert read_name_map(path, figure(), other) == {"hips": "a"}
    for text, message in (
        ('"hips" = "z"', "the rig has no joint 'z'. It has: a, b"),
        ('"hip" = "a"', "the motion has no joint 'hip'"),
        ("hips -> a", "is no TOML"),
        ("hips = 3", "every line must be"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_name_map(path, figure(), other)


def test_real_motion_on_a_figure_of_other_proportions() -> None:
    """A CMU walk on the mannequin: upright, feet near the floor in every frame, left and right not exchanged."""
    motion = read_bvh(data_file("motion/cmu_02_01_walk.bvh"))
    body = read_gltf(data_file("rigged/kaykit_mannequin/manny_med_mod.gltf"))
    names = match_names(motion.skeleton, body.skeleton)
    assert len(names) == 18 and names["LeftForeArm"] == "lowerarm.l"
    clip = retarget(motion.animation(), motion.skeleton, body.skeleton, names)
    times = np.linspace(0, clip.end, 40)
    got = positions(body.skeleton, clip, times)
    index = body.skeleton.index
    height = float(np.ptp(body.vertices[:, 1]))
    assert (got[:, index("head"), 1] - got[:, index("hips"), 1]).min() > 0.15 * height
    lowest = got[:, [index("foot.l"), index("foot.r"), index("toes.l"), index("toes.r")], 1].min(axis=1)
    assert np.ptp(lowest) < 0.05 * height
    apart = got[:, index("foot.l"), 0] - got[:, index("foot.r"), 0]
    ours = motion.skeleton
    real = forward_kinematics(ours, motion.animation().sample(times))[..., :3, 3]
    true = real[:, ours.index("LeftFoot"), 0] - real[:, ours.index("RightFoot"), 0]
    assert np.corrcoef(apart, true)[0, 1] > 0.7
    strides = got[:, index("foot.l"), 2] - got[:, index("foot.r"), 2]
    true = real[:, ours.index("LeftFoot"), 2] - real[:, ours.index("RightFoot"), 2]
    assert np.corrcoef(strides, true)[0, 1] > 0.95
