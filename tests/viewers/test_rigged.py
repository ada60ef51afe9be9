"""The live rig: its splats follow clip and turns as those of ``animate``, and its flesh answers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from pipelines.animate import AnimateConfig
from splatanim.errors import InputError
from splatanim.rig.skeleton import forward_kinematics, skin_transforms
from splatanim.rig.skinning import pose_splats
from tests.helpers import data_file, until
from viewers.playback import cloud_of
from viewers.rigged import RigSimulation

until = functools.partial(until, seconds=90.0)

TURN = Rotation.from_rotvec([0.0, 0.0, 0.7]).as_matrix()


@pytest.fixture(scope="module")
def opened() -> Iterator[RigSimulation]:
    path = data_file("rigged/fox_textured.glb")
    made = RigSimulation.open(path, AnimateConfig(scene=path, functions=8))
    yield made
    made.close()


@pytest.fixture
def rig(opened) -> RigSimulation:
    opened.pause()
    opened.elastic = False
    opened.play_clip("Walk")
    opened.reset()
    return opened


def expected(rig: RigSimulation, transforms: np.ndarray):
    return cloud_of(pose_splats(rig._actor.rigged, transforms), rig._frame_of_means)


def test_the_clip_plays_as_animate_plays_it(rig) -> None:
    for _ in range(20):
        rig.step()
    assert rig.clip == "Walk" and rig.clip_time == pytest.approx(20 / 60)
    clip = rig._clips["Walk"]
    transforms = skin_transforms(rig.skeleton, clip.sample(clip.start + 20 / 60))
    cloud, true = rig.clouds()[0], expected(rig, transforms)
    np.testing.assert_allclose(cloud.means, true.means, atol=1e-5)
    np.testing.assert_allclose(cloud.covariances, true.covariances, rtol=2e-3, atol=1e-9)


def test_a_turn_is_in_the_joints_own_frame_and_carries_what_hangs_on_it(rig) -> None:
    parents = rig.skeleton.parents
    joint = int(np.argmax([np.count_nonzero(parents == j) for j in range(len(parents))]))
    before = rig.joints()
    rig.set_turn(joint, TURN)
    until(lambda: not np.allclose(rig.joints()[joint], before[joint]))
    after, still = rig.joints(), rig.untwisted(joint)
    np.testing.assert_allclose(still, before[joint], atol=1e-9)
    np.testing.assert_allclose(after[joint, :3, :3], still[:3, :3] @ TURN, atol=1e-9)
    child = int(np.flatnonzero(parents == joint)[0])
    assert not np.allclose(after[child, :3, 3], before[child, :3, 3])
    above = int(parents[joint])
    if above >= 0:
        np.testing.assert_allclose(after[above], before[above])
    rig.clear_turns()
    until(lambda: np.allclose(rig.joints(), before))
    with pytest.raises(InputError, match="turned by a rotation"):
        rig.set_turn(joint, 2.0 * np.eye(3))


def test_while_it_plays_a_turn_is_approached_not_jumped_to(rig) -> None:
    rig.play_clip(None)
    rig.reset()
    rig.playing = True  # as for set_turn; steps are taken by hand below
    rig._turns.wanted[1] = np.array([np.cos(0.35), 0.0, 0.0, np.sin(0.35)])
    rig.playing = False
    angles = []
    for _ in range(25):
        rig.step()
        angles.append(2 * np.arccos(abs(rig._turns.now[1][0])))
    assert 0.0 < angles[0] < 0.3 and angles[-1] == pytest.approx(0.7, abs=0.01)
    assert (np.diff(angles) >= -1e-12).all()


@pytest.mark.slow
def test_the_flesh_answers_and_stays_beside_what_the_rig_can_do(rig) -> None:
    rig.elastic = True
    rig.step()
    assert rig.error == "" and len(rig.cubature(0)) > 100
    for _ in range(12):
        rig.step()
    state = rig._state
    assert state.y is not None and np.abs(state.y).max() > 0
    both, alone = rig.clouds()[0].means, expected(rig, state.transforms).means
    apart = np.linalg.norm(both - alone, axis=1)
    assert 1e-6 < apart.max() < 0.1
    assert rig.readout().elastic > 0
    splats = rig.splats()
    np.testing.assert_allclose(splats.means, both, atol=1e-5)


def test_a_root_below_a_turned_node_is_carried_the_same_way(rig) -> None:
    from viewers.rig_state import Turns

    root = int(np.flatnonzero(rig.skeleton.parents < 0)[0])
    prefix = rig.skeleton.prefix.copy()
    prefix[root, :3, :3] = 2.0 * TURN
    skeleton = dataclasses.replace(rig.skeleton, prefix=prefix)
    carried = Turns(shift=np.array([1.0, 2.0, 3.0])).on(skeleton.rest, skeleton)
    before, after = (forward_kinematics(skeleton, pose) for pose in (skeleton.rest, carried))
    np.testing.assert_allclose(after[:, :3, 3] - before[:, :3, 3], np.tile([1.0, 2.0, 3.0], (len(before), 1)))


def test_clips_are_sought_and_refused(rig) -> None:
    rig.clip_time = 0.25
    until(lambda: rig.clip_time == pytest.approx(0.25))
    with pytest.raises(InputError, match=r"There is no clip 'Fly'\. Clips: .*Walk"):
        rig.play_clip("Fly")


def test_the_written_pose_is_what_fitted_assets_read(rig) -> None:
    import torch

    from rigpapr.binding import joint_transforms
    from splatanim.rig.skeleton import Pose
    from viewers.rig_state import pose_file

    rig.set_turn(5, TURN)
    rig.set_root_shift(np.array([0.1, 0.0, 0.2]))
    for _ in range(40):
        rig.step()
    skeleton = rig.skeleton
    rest = np.linalg.inv(skeleton.inverse_bind)
    assert np.allclose(np.linalg.norm(rest[:, :3, :3], axis=1), 1.0, atol=1e-4)  # no scales in this file
    written = rig.pose_json()["joints"]
    assert all(set(change) <= {"turn", "shift"} for change in written.values())
    turns, shifts = np.tile(np.eye(3), (len(rest), 1, 1)), np.zeros((len(rest), 3))
    for name, change in written.items():
        k = skeleton.names.index(name)
        turns[k] = Rotation.from_rotvec(np.radians(change.get("turn", (0, 0, 0)))).as_matrix()
        shifts[k] = change.get("shift", (0, 0, 0))
    maps = joint_transforms(
        skeleton.parents.tolist(), *(torch.from_numpy(values) for values in (rest[:, :3, 3], turns, shifts))
    )
    extent = np.ptp(rest[:, :3, 3], axis=0).max()
    np.testing.assert_allclose(maps.numpy()[:, :3, :3], rig._state.transforms[:, :3, :3], atol=1e-5)
    np.testing.assert_allclose(maps.numpy()[:, :3, 3], rig._state.transforms[:, :3, 3], atol=1e-5 * extent)
    still = Pose(skeleton.rest.translations, skeleton.rest.rotations, skeleton.rest.scales)
    bound = np.allclose(skin_transforms(skeleton, still), np.eye(4), atol=1e-4)
    assert not bound or pose_file(skeleton, still) == {"joints": {}}


def test_the_root_is_carried_in_the_viewers_metres(rig) -> None:
    before = rig.clouds()[0].means.copy()
    rig.set_root_shift(np.array([0.0, 0.25, 0.0]))
    until(lambda: np.abs(rig.clouds()[0].means - before).max() > 0)
    np.testing.assert_allclose(rig.clouds()[0].means - before, np.tile([0.0, 0.25, 0.0], (len(before), 1)), atol=1e-5)
    with pytest.raises(InputError, match="three numbers"):
        rig.set_root_shift(np.array([0.0, np.nan, 0.0]))
    rig.clear_turns()
    until(lambda: np.allclose(rig.clouds()[0].means, before))


def test_a_recording_of_it_is_in_the_files_coordinates(rig, tmp_path) -> None:
    from splatanim.formats import read_splats

    rig.start_recording()
    for _ in range(4):
        rig.step()
    recording = rig.stop_recording()
    assert recording.frames == 3
    recording.plys(tmp_path / "plys")
    last = read_splats(tmp_path / "plys" / "frame_0002.ply").splats
    moved = pose_splats(rig._actor.rigged, rig._state.transforms)
    back = np.argsort(rig._actor.order, kind="stable")
    size = float(np.ptp(moved.means, axis=0).max())
    np.testing.assert_allclose(last.means + last.offset, moved.select(back).means, atol=1e-4 * size)
