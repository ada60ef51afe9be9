"""New motions for a fitted asset: poses from files, clips of the same character exactly, others retargeted."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rigpapr.binding import rig_in_pose, weight_logits
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.fitted import FittedAsset, read_fitted, write_fitted
from rigpapr.posing import fitted_motion, read_clip_for, read_pose, same_character, with_rig_file
from splatanim.errors import InputError
from splatanim.rig.files import read_motion
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import forward_kinematics, skin_transforms
from tests.helpers import data_file
from tests.rigpapr import creatures

NAMES = ("root", "middle", "arm", "top")


def asset_of(frames: int = 4, points: int = 200) -> FittedAsset:
    rig, _ = creatures.creature(max(points, 120))
    poses = creatures.motion(frames, 0.2)
    cloud = PaprCloud(CloudConfig(neighbours=4), torch.from_numpy(rig.sources[:points]).float())
    turns = torch.from_numpy(np.stack([pose.rotations for pose in poses])).float()
    return FittedAsset(
        cloud,
        rig.names,
        torch.tensor(rig.parents),
        torch.from_numpy(rig.joints).float(),
        torch.zeros(4, dtype=torch.bool),
        weight_logits(rig.weights(rig.sources[:points])),
        turns,
        torch.zeros(frames, 4, 3),
        12.0,
        view=creatures.camera(64),
    )


def test_what_is_new_survives_the_file(tmp_path: Path) -> None:
    asset = with_rig_file(asset_of(), np.tile(np.diag([2.0, 2, 2, 1]), (4, 1, 1)), np.diag([3.0, 3, 3, 1]))
    write_fitted(tmp_path / "a.papr.safetensors", asset)
    back = read_fitted(tmp_path / "a.papr.safetensors")
    assert back.frames is not None and back.place is not None and back.view is not None
    torch.testing.assert_close(back.frames, asset.frames)
    torch.testing.assert_close(back.place, asset.place)
    assert back.view.fx == asset.view.fx and np.array_equal(back.view.T_camera_world, asset.view.T_camera_world)
    plain = asset_of()
    write_fitted(tmp_path / "b.papr.safetensors", dataclasses.replace(plain, view=None))
    back = read_fitted(tmp_path / "b.papr.safetensors")
    assert back.frames is None and back.place is None and back.view is None
    with pytest.raises(InputError, match=r"rig\.frames and rig\.place go together"):
        dataclasses.replace(asset, place=None)


def test_maps_clip_and_model_are_the_same_motion() -> None:
    asset = asset_of()
    clip, skeleton = asset.animation(), asset.skeleton()
    for k in range(len(asset)):
        wanted = asset.posed(k)[0]
        torch.testing.assert_close(asset.posed_under(asset.maps()[k])[0], wanted)
        pose = clip.sample(np.array([k / asset.fps]))[0]
        maps = skin_transforms(skeleton, pose)
        torch.testing.assert_close(asset.posed_under(torch.from_numpy(maps))[0], wanted, atol=1e-5, rtol=0)
        np.testing.assert_allclose(asset.model().posed(pose), wanted.numpy(), atol=1e-4)


def test_a_glb_comes_back_equal(tmp_path: Path) -> None:
    asset = asset_of()
    write_glb(tmp_path / "a.glb", asset.model())
    back = read_gltf(tmp_path / "a.glb")
    assert back.skeleton.names[: len(NAMES)] == NAMES or set(NAMES) <= set(back.skeleton.names)
    for k in range(len(asset)):
        posed = back.posed(back.animations["fit"].sample(np.array([k / asset.fps]))[0])
        np.testing.assert_allclose(posed, asset.posed(k)[0].numpy(), atol=1e-4)
    wanted = asset.cloud.colours()
    from splatanim.rig.appearance import encode_srgb

    np.testing.assert_allclose(encode_srgb(back.appearance.colours[:, :3]), wanted, atol=2e-4)


def test_a_pose_turns_one_joint_about_its_place(tmp_path: Path) -> None:
    asset = asset_of()
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"joints": {"arm": {"turn": [0, 0, 90]}, "root": {"shift": [0, 1, 0]}}}))
    maps = read_pose(path, asset).maps
    assert maps.shape == (1, 4, 4, 4)
    c = asset.joints[2]
    moved = maps[0, 2, :3, :3] @ (c + torch.tensor([1.0, 0, 0])) + maps[0, 2, :3, 3]
    torch.testing.assert_close(moved, c + torch.tensor([0.0, 2, 0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(maps[0, 3, :3, 3], torch.tensor([0.0, 1, 0]))
    path.write_text(json.dumps({"frame": 2}))
    torch.testing.assert_close(read_pose(path, asset).maps[0], fitted_motion(asset).maps[2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[1]", "a pose is an object such as"),
        ('{"joints": {"leg": {"turn": [0, 0, 1]}}}', r"the rig has no joint 'leg'. Its joints: root, middle, arm, top"),
        ('{"joints": {"arm": [0, 0, 1]}}', r"joint 'arm' takes \"turn\" \(degrees\)"),
        ('{"joints": {"arm": {"turn": [0, 1]}}}', r"joint 'arm': \[0, 1\] are not three numbers"),
        ('{"joints": {"arm": {"turn": [0, 1, NaN]}}}', "are not three numbers"),
        ('{"frame": 9}', "frame 9 is none of the fitted motion's, 0 to 3"),
        ('{"turn": 1}', "does not know turn"),
        ('{"joints": 3}', "must be an object"),
    ],
)
def test_poses_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_pose(tmp_path / "p.json", asset_of())


def test_another_clip_of_the_same_character_is_exact() -> None:
    path = data_file("rigged/fox_textured.glb")
    model = read_gltf(path)
    place = np.diag([0.01, 0.01, 0.01, 1.0])
    place[:3, 3] = (0.1, -0.4, 0.2)
    pose = model.clip("Walk").sample(0.3)
    rig = rig_in_pose(model, pose, place)
    frames = (place @ forward_kinematics(model.skeleton, pose))[[model.skeleton.index(n) for n in rig.names]]
    rest = model.posed(pose) @ place[:3, :3].T + place[:3, 3]
    whole = model.skin.dense().max(axis=1) > 0.9999  # blends of the first frame's blends are others' blends
    rows = np.flatnonzero(whole)[::5]
    assert len(rows) > 60
    dense = model.skin.dense()[rows][:, [model.skeleton.index(n) for n in rig.names]]
    cloud = PaprCloud(CloudConfig(neighbours=4), torch.from_numpy(rest[rows]).float())
    asset = FittedAsset(
        cloud,
        rig.names,
        torch.tensor(rig.parents),
        torch.from_numpy(rig.joints).float(),
        torch.from_numpy(rig.loose),
        torch.log(torch.from_numpy(dense).float().clamp(min=1e-9)),
        torch.eye(3).repeat(2, len(rig), 1, 1),
        torch.zeros(2, len(rig), 3),
    )
    asset = with_rig_file(asset, frames, place)
    motion = read_clip_for(asset, path, clip="run", fps=10.0)
    assert motion.name == "Run" and "same character" in motion.notes[0]
    run = model.clip("Run")
    for k in (0, 3, len(motion) - 1):
        wanted = model.posed(run.sample(run.start + k / 10.0))[rows] @ place[:3, :3].T + place[:3, 3]
        np.testing.assert_allclose(asset.posed_under(motion.maps[k])[0].numpy(), wanted, atol=3e-4)
    assert not same_character(dataclasses.replace(asset, frames=None, place=None), read_motion(path))
    stretched = dataclasses.replace(asset, joints=asset.joints * torch.tensor([1.0, 1.0, 2.0]))
    assert not same_character(stretched, read_motion(path))


def test_a_stranger_is_retargeted_by_names_or_a_map(tmp_path: Path) -> None:
    asset = asset_of()
    other = RiggedModel(
        asset.model().vertices, asset.model().faces, asset.skeleton(), asset.model().skin,
        animations={"wave": asset.animation("wave"), "still": asset.animation("still")},
    )  # fmt: skip
    write_glb(tmp_path / "o.glb", other)
    with pytest.raises(InputError, match=r"o.glb: holds 2 clips. Name one with --clip-name: wave, still"):
        read_clip_for(asset, tmp_path / "o.glb")
    with pytest.raises(InputError, match="has no clip 'run'"):
        read_clip_for(asset, tmp_path / "o.glb", clip="run")
    motion = read_clip_for(asset, tmp_path / "o.glb", clip="wave", fps=12.0)
    assert "retargeted by joint names" in motion.notes[0]
    for k in range(len(motion)):
        torch.testing.assert_close(motion.maps[k].float(), asset.maps()[k], atol=2e-3, rtol=0)
    (tmp_path / "m.toml").write_text('"arm" = "leg"\n')
    with pytest.raises(InputError, match="the rig has no joint 'leg'"):
        read_clip_for(asset, tmp_path / "o.glb", clip="wave", names=tmp_path / "m.toml")
