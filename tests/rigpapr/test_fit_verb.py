"""``splatanim fit`` from files to files on a made-up creature, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rigpapr.two_phase
from pipelines.cli import main
from pipelines.evaluate_rigpapr import coarse_table
from pipelines.fit_rig import FitConfig, checkpoint_of
from pipelines.fit_rig_inputs import check_placed, overlap_note, parse_part, read_camera_file
from rigpapr.asset import write_asset
from rigpapr.binding import rig_in_pose
from rigpapr.fitted import read_fitted
from splatanim.errors import InputError
from splatanim.rig.gltf import read_gltf
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import bind_pose, skeleton_from_positions
from splatanim.rig.weights import sparse_weights
from tests.helpers import data_file
from tests.rigpapr import creatures
from tests.rigpapr.test_two_phase import clip_of, cloud_of

FLIP = np.diag([1.0, -1.0, -1.0, 1.0])


def camera_file(path: Path, size: int) -> Path:
    shot = creatures.camera(size)
    pose = np.linalg.inv(shot.T_camera_world) @ FLIP
    data = {"fl_x": shot.fx, "fl_y": shot.fy, "cx": shot.cx, "cy": shot.cy, "w": size, "h": size}
    path.write_text(json.dumps({**data, "transform_matrix": pose.tolist(), "fps": 12.0}))
    return path


def written(folder: Path) -> list[str]:
    """A clip, depth and an asset; the command's arguments."""
    cloud, rig = cloud_of(600)
    clip, depth = clip_of(cloud, creatures.motion(3, 0.1), rig)
    (folder / "video").mkdir()
    for k in range(3):
        alpha = (255 * clip.masks[k]).astype(np.uint8)
        Image.fromarray(np.dstack([clip.rgb[k], alpha])).save(folder / "video" / f"{k}.png")
    np.savez(folder / "depth.npz", depth=0.5 * depth)
    write_asset(folder / "a.papr.safetensors", cloud)
    camera = camera_file(folder / "camera.json", 64)
    given = {"--asset": "a.papr.safetensors", "--depth": "depth.npz", "-o": "fit.papr.safetensors"}
    flat = [text for key, name in given.items() for text in (key, str(folder / name))]
    return ["fit", str(folder / "video"), "--camera", str(camera), *flat, "--no-orbit"]


@pytest.mark.slow
def test_from_files_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    small = dataclasses.replace(rigpapr.two_phase.PRESETS["cpu"], steps_one=2, steps_two=2, patches=2)
    monkeypatch.setitem(rigpapr.two_phase.PRESETS, "cpu", small)
    assert main(written(tmp_path)) == 0
    said = capsys.readouterr().out
    assert "3 frames" in said and "PSNR" in said and "correlation 1.00" in said
    assert {"fit.papr.safetensors", "fit_fit.mp4", "fit.json"} <= {p.name for p in tmp_path.iterdir()}
    assert not list(tmp_path.glob("*.fit.safetensors"))
    asset = read_fitted(tmp_path / "fit.papr.safetensors")
    assert len(asset) == 3 and asset.fps == 12.0
    assert len(json.loads((tmp_path / "fit.json").read_text())["train_psnr"]) == 3


def test_outputs_are_refused_before_any_work(tmp_path: Path) -> None:
    config = FitConfig(Path("v"), Path("a.papr.safetensors"), Path("c.json"), tmp_path / "f.papr.safetensors")
    assert checkpoint_of(config) == tmp_path / "f.fit.safetensors"
    wrong = {
        r"f.bin: a fitted asset is named": {"output": tmp_path / "f.bin"},
        r"does not exist. Create it first": {"output": tmp_path / "no" / "f.papr.safetensors"},
        r"is the asset itself": {"output": Path("a.papr.safetensors")},
        r"--resume: there is no checkpoint at": {"resume": True},
        r"--phases coarse needs the coarse tracker": {"coarse": False, "phases": "coarse"},
    }
    for text, change in wrong.items():
        with pytest.raises(InputError, match=text):
            checkpoint_of(dataclasses.replace(config, **change))


def test_parts_of_clips() -> None:
    assert (
        parse_part("") == slice(None) and parse_part("2:9") == slice(2, 9) and parse_part("::3") == slice(None, None, 3)
    )
    for text in ("5", "a:b", "1:2:0", "-3:", "1:2:3:4"):
        with pytest.raises(InputError, match=f"--frames {text}: give START:STOP"):
            parse_part(text)


def test_camera_files(tmp_path: Path) -> None:
    found = read_camera_file(camera_file(tmp_path / "c.json", 64))
    assert found.fps == 12.0 and found.matrix is None and found.clip == ""
    np.testing.assert_allclose(found.camera.T_camera_world, creatures.camera(64).T_camera_world, atol=1e-9)
    poses = [np.eye(4).tolist(), np.diag([-1.0, 1, -1, 1]).tolist()]
    frames = {"w": 8, "h": 8, "fl_x": 8.0, "frames": [{"transform_matrix": pose} for pose in poses]}
    (tmp_path / "two.json").write_text(json.dumps(frames))
    with pytest.raises(InputError, match="holds 2 different cameras; a fixed viewpoint has one"):
        read_camera_file(tmp_path / "two.json")


def test_what_does_not_belong_together_is_told() -> None:
    cloud, rig = cloud_of(600)
    points = cloud.world_positions.detach().double().numpy()
    check_placed(rig, points, "rig.glb")
    with pytest.raises(InputError, match=r"rig.glb: the rig does not stand in the asset: 0 % of it lie within"):
        check_placed(dataclasses.replace(rig, sources=rig.sources + 10), points, "rig.glb")
    from rigpapr.renderer import render

    clip, _ = clip_of(cloud, creatures.motion(2), rig)
    first = render(cloud, clip.camera)
    assert overlap_note(first, clip) == []
    shifted = dataclasses.replace(clip, masks=np.roll(clip.masks, 3, axis=1))
    assert "may not show the pose that the asset was captured in" in overlap_note(first, shifted)[0]
    away = dataclasses.replace(clip, masks=np.roll(clip.masks, 30, axis=1))
    with pytest.raises(InputError, match=r"the asset and the first frame's subject overlap by \d+ %|overlap by"):
        overlap_note(first, away)


def test_a_detached_foot_hangs_on_the_leg_it_shares_skin_with() -> None:
    places = np.array([[0.0, 0, 0], [0.0, 1, 0], [0.0, 2, 0], [0.0, 2, 0], [5.0, 5, 5]])
    parents = np.array([-1, 0, 1, -1, 0])
    names = ("hip", "knee", "ankle_end", "foot", "nothing")
    y = np.linspace(0, 2.5, 60)
    points = np.stack([0.1 * np.cos(9 * y), y, 0.1 * np.sin(9 * y)], axis=1)
    dense = np.zeros((60, 5))
    dense[:, 0], dense[:, 1], dense[:, 3] = np.maximum(1 - y, 0), np.maximum(1 - np.abs(y - 1), 0), np.maximum(y - 1, 0)
    model = RiggedModel(
        points, np.empty((0, 3), np.int64), skeleton_from_positions(names, parents, places), sparse_weights(dense)
    )
    rig = rig_in_pose(model, model.skeleton.rest, np.diag([2.0, 2, 2, 1]))
    assert rig.names == ("hip", "knee", "foot") and rig.parents == (-1, 0, 1)
    assert rig.loose.tolist() == [False, False, True] and "may shift: foot" in rig.notes[0]
    np.testing.assert_allclose(rig.joints[1], [0, 2, 0])
    np.testing.assert_allclose(rig.sources.max(axis=0)[1], 5.0)


def test_a_real_rig_comes_in_whole() -> None:
    model = read_gltf(data_file("rigged/fox_textured.glb"))
    rig = rig_in_pose(model, bind_pose(model.skeleton))
    assert len(rig) <= len(model.skeleton) and (np.array(rig.parents) < np.arange(len(rig))).all()
    np.testing.assert_allclose(rig.weights(model.vertices[:50]).sum(axis=1), 1)
    shown = [model.skeleton.index(name) for name in rig.names]
    np.testing.assert_allclose(rig.joints, model.skeleton.joint_positions[shown], atol=1e-4)


def test_the_table() -> None:
    row = {"subject": "fox", "mean": 0.0123, "p95": 0.03, "frames": [0.01, 0.02], "still": 0.09, "seconds": 1.234}
    assert coarse_table([row]).splitlines()[-1] == "| fox | 0.0123 | 0.0300 | 0.0200 | 0.0900 | 1.23 |"
