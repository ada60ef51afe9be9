"""What is played back: the clock, 4D sequences, folders of frames, and PAPR assets."""

from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from rigpapr.asset import write_asset
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.fitted import FittedAsset, read_fitted, write_fitted
from rigpapr.posing import read_pose
from rigpapr.renderer import render
from splatanim.data import Frame
from splatanim.errors import InputError
from splatanim.formats import write_ply
from splatanim.formats.sequence4d import write_sequence4d
from splatanim.render.camera import look_at
from splatanim.rotations import quaternions_to_matrices
from tests.formats.test_sequence4d import made
from tests.helpers import random_splats
from viewers.camera_path import to_file
from viewers.moving import Cloud
from viewers.papr import open_papr
from viewers.playback import FolderPlayback, SequencePlayback, cloud_of, frame_files, is_frames_folder
from viewers.player import Player


class Numbers(Player):
    """Frames that are nothing but numbers."""

    names = ("numbers",)

    def clouds(self) -> tuple[Cloud, ...]:
        return ()


def wait_for(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def test_the_player_plays_pauses_steps_and_loops() -> None:
    player = Numbers(3, 50.0)
    try:
        assert (player.frame, player.version, player.playing) == (0, 0, False)
        player.step()
        assert (player.frame, player.version) == (1, 1)
        player.frame = 5
        assert player.frame == 2
        player.play()
        seen = player.version
        wait_for(lambda: player.version > seen + 4)  # past the end and round
        player.step()
        assert not player.playing
        stopped = player.version
        assert not player.wait_changed(stopped, 0.05)
        player.reset()
        assert player.frame == 0 and player.wait_changed(stopped, 1.0)
    finally:
        player.close()


def test_speed_and_rates_are_bounded() -> None:
    with pytest.raises(InputError, match="--fps 0: frames a second must be a positive number"):
        Numbers(3, 0.0)
    player = Numbers(2, 10.0)
    try:
        player.speed = 1e9
        assert player.speed == 100.0
        assert player.readout().time == 0.0
    finally:
        player.close()


def test_a_4d_sequence_plays_as_it_was_written(tmp_path) -> None:
    written, _ = made(count=60, frames=4, part=True)
    write_sequence4d(tmp_path / "a.npz", written)
    player = SequencePlayback(tmp_path / "a.npz")
    try:
        assert player.frames == 4 and player.fps == pytest.approx(30.0)
        assert (player.up == [0, -1, 0]).all()
        player.frame = 3
        cloud, splats = player.clouds()[0], player.sequence.frame(3)
        world = splats.means.astype(np.float64) + splats.offset  # file coordinates, far from the origin
        np.testing.assert_allclose(cloud.means, player.file_frame.to_sim(world), atol=1e-3)
        rotations = quaternions_to_matrices(splats.quaternions)
        expected = (rotations * (splats.scales**2)[:, None]) @ rotations.transpose(0, 2, 1)
        np.testing.assert_allclose(cloud.covariances, 0.25 * expected, rtol=1e-3, atol=1e-6)
        assert (player.low < player.high).all()
    finally:
        player.close()


def asset(tmp_path, frames: int | None):
    """A PAPR asset of 60 points; with ``frames`` one that is fitted to a rig of two joints, which shifts by frame."""
    generator = torch.Generator().manual_seed(0)
    points = torch.rand((60, 3), generator=generator) * 10 - 5
    config = CloudConfig(neighbours=4)
    cloud = PaprCloud(config, points, centre=np.array([100.0, 2.0, 3.0]), scale=5.0, reach=3.0)
    path = tmp_path / "thing.papr.safetensors"
    if frames is None:
        write_asset(path, cloud)
        return path, cloud
    shifts = torch.zeros((frames, 2, 3))
    shifts[:, 0, 0] = 0.1 * torch.arange(frames)
    fitted = FittedAsset(
        cloud, ("root", "tip"), torch.tensor([-1, 0]), cloud.world_positions.detach()[:2], torch.tensor([True, False]),
        torch.zeros((60, 2)), torch.eye(3).expand(frames, 2, 3, 3).clone(), shifts, fps=12.0,
    )  # fmt: skip
    write_fitted(path, fitted)
    return path, cloud


def test_a_papr_asset_stands_in_colour_and_is_rendered_as_by_its_network(tmp_path) -> None:
    path, cloud = asset(tmp_path, None)
    player = open_papr(path)
    try:
        assert player.frames == 1 and player.clouds() == () and player.names == ("thing",)
        shown = player.points()
        world = cloud.world_positions.detach().numpy()
        np.testing.assert_allclose(player.file_frame.to_file(shown.positions), world, atol=1e-3)
        assert shown.size > 0 and (shown.rgbs == cloud.colours().clip(0, 1).astype(np.float32)).all()
        assert float((player.high - player.low).max()) == pytest.approx(1.0)
        camera = look_at((0, 0, 2.0), (0, 0, 0), (0, 1, 0), width=24, height=16)
        picture = player.still(camera)
        assert picture.shape == (16, 24, 3) and float(picture.std()) > 0.01
        np.testing.assert_allclose(picture, render(cloud, to_file(camera, player.file_frame)).rgb, atol=1e-5)
        player.play()
        assert not player.playing  # one frame: there is nothing to play
    finally:
        player.close()


def test_a_fitted_asset_plays_its_motion(tmp_path) -> None:
    path, _ = asset(tmp_path, 5)
    player = open_papr(path)
    try:
        assert (player.frames, player.fps) == (5, 12.0)
        first = player.points().positions
        player.frame = 4
        shift = player.points().positions - first
        np.testing.assert_allclose(shift, [[0.4 * player.file_frame.scale, 0, 0]] * 60, atol=1e-4)
        camera = look_at((0, 0, 2.0), (0, 0, 0), (0, 1, 0), width=24, height=16)
        moved = player.still(camera)
        player.frame = 0
        assert float(np.abs(player.still(camera) - moved).max()) > 0.01
    finally:
        player.close()


def test_a_turned_joint_turns_its_points_and_the_written_pose_says_the_same(tmp_path) -> None:
    path, _ = asset(tmp_path, 3)
    with_turns = read_fitted(path)
    rng = np.random.default_rng(3)
    twist = Rotation.from_rotvec(rng.normal(size=(3, 2, 3)).reshape(-1, 3)).as_matrix().reshape(3, 2, 3, 3)
    logits = torch.from_numpy(rng.normal(size=(60, 2))).float()
    changed = dataclasses.replace(with_turns, rotations=torch.from_numpy(twist).float(), logits=logits)
    write_fitted(path, changed)
    player = open_papr(path)
    try:
        player.frame = 2
        before = player.points().positions
        turn = Rotation.from_rotvec([0.3, -0.5, 0.2]).as_matrix()
        version = player.version
        player.set_turn(1, turn)
        assert player.version > version
        still, turned = player.untwisted(1), player.joints()[1]
        np.testing.assert_allclose(turned[:3, :3], still[:3, :3] @ turn, atol=1e-9)
        np.testing.assert_allclose(turned[:3, 3], still[:3, 3], atol=1e-9)
        after = player.points().positions
        assert float(np.abs(after - before).max()) > 0.01
        (tmp_path / "pose.json").write_text(json.dumps(player.pose_json()))
        maps = read_pose(tmp_path / "pose.json", changed).maps[0]
        world = changed.posed_under(maps)[0].detach().numpy()
        np.testing.assert_allclose(after, player.file_frame.to_sim(world), atol=1e-4)
        player.clear_turns()
        np.testing.assert_allclose(player.points().positions, before, atol=1e-6)
        with pytest.raises(InputError, match="turned by a rotation"):
            player.set_turn(0, 2 * np.eye(3))
    finally:
        player.close()


def folder_of_frames(tmp_path, count: int = 3):
    splats = random_splats(40, degree=1)
    folder = tmp_path / "frames"
    folder.mkdir()
    for k in range(count):
        moved = splats.replace(means=(splats.means + np.float32([0.1 * k, 0, 0])).astype(np.float32))
        write_ply(folder / f"frame_{k:04d}.ply", moved, comments=("Vertical Axis: y",))
    return splats, folder


def test_a_folder_of_frames_plays(tmp_path) -> None:
    splats, folder = folder_of_frames(tmp_path)
    assert is_frames_folder(folder)
    player = FolderPlayback(folder, 24.0)
    try:
        assert (player.frames, player.fps, player.names) == (3, 24.0, ("frames",))
        first = player.clouds()[0]
        player.frame = 2
        moved = player.clouds()[0]
        shift = 0.2 * player.file_frame.scale
        np.testing.assert_allclose(moved.means - first.means, [[shift, 0, 0]] * len(splats), atol=1e-5)
        np.testing.assert_allclose(first.means, player.file_frame.to_sim(splats.means), atol=1e-5)
        assert player.splats().sh.shape == splats.sh.shape
    finally:
        player.close()


def test_frames_must_be_of_one_sequence(tmp_path) -> None:
    _, folder = folder_of_frames(tmp_path)
    write_ply(folder / "frame_0001.ply", random_splats(7, degree=1))
    player = FolderPlayback(folder, 24.0)
    try:
        player.frame = 1
        with pytest.raises(InputError, match=r"frame_0001.ply: has 7 splats, the first frame 40"):
            player.clouds()
    finally:
        player.close()
    (folder / "other_1.ply").write_bytes(b"")
    with pytest.raises(InputError, match=r"several sequences \(frame_\*.ply, other_\*.ply\)"):
        frame_files(folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no numbered splat files"):
        frame_files(empty)


def test_covariances_are_those_of_the_splats() -> None:
    splats = random_splats(30)
    cloud = cloud_of(splats, Frame((0.0, 0.0, 0.0), 2.0, (0.0, 1.0, 0.0)))
    values = np.sqrt(np.linalg.eigvalsh(cloud.covariances.astype(np.float64)))
    np.testing.assert_allclose(values, np.sort(2.0 * splats.scales, axis=1), rtol=1e-3)
    assert cloud.rgbs.min() >= 0 and cloud.rgbs.max() <= 1
