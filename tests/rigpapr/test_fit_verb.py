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
from pipelines.fit_rig import FitConfig, checkpoint_of
from pipelines.fit_rig_films import ring, up_axis
from pipelines.fit_rig_inputs import check_placed, overlap_note, parse_part, read_camera_file, size_of
from pipelines.fit_rig_preview import Preview
from pipelines.fit_tables import coarse_table
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
from tests.rigpapr.test_posing import asset_of
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
    return ["fit", str(folder / "video"), "--camera", str(camera), *flat]


@pytest.mark.slow
def test_from_files_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    small = dataclasses.replace(rigpapr.two_phase.PRESETS["cpu"], steps_one=2, steps_two=2, patches=2)
    monkeypatch.setitem(rigpapr.two_phase.PRESETS, "cpu", small)
    assert main([*written(tmp_path), "--preview", str(tmp_path / "pre")]) == 0
    said = capsys.readouterr().out
    assert "3 frames" in said and "PSNR" in said and "correlation 1.00" in said
    films = {"fit_fit.mp4", "fit_orbit.mp4", "fit_around.mp4"}
    assert films | {"fit.papr.safetensors", "fit.json"} <= {p.name for p in tmp_path.iterdir()}
    assert not list(tmp_path.glob("*.fit.safetensors")) and not (tmp_path / "fit_preview.png").exists()
    assert list((tmp_path / "pre").glob("*.png"))
    asset = read_fitted(tmp_path / "fit.papr.safetensors")
    assert len(asset) == 3 and asset.fps == 12.0
    report = json.loads((tmp_path / "fit.json").read_text())
    assert len(report["train_psnr"]) == 3 and set(report["seconds"]) == {"coarse", "one", "two"}
    assert report["train"]["psnr"] == pytest.approx(np.mean(report["train_psnr"][1:])) and report["preset"] == "cpu"
    assert 0.8 < report["first_frame_overlap"] <= 1 and report["train"]["lpips"] is None
    assert asset.view is not None and asset.frames is None  # the auto-rig has no file


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    small = dataclasses.replace(rigpapr.two_phase.PRESETS["cpu"], steps_one=2, steps_two=2, patches=2)
    monkeypatch.setitem(rigpapr.two_phase.PRESETS, "cpu", small)
    given = [*written(tmp_path), "--no-orbit"]

    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(rigpapr.two_phase, "phase_two", interrupt)
        assert main(given) == 130
    assert (tmp_path / "fit.fit.safetensors").is_file() and not (tmp_path / "fit.papr.safetensors").exists()
    monkeypatch.setattr("rigpapr.coarse_tracker.tracker_of", interrupt)  # is not run again
    assert main([*given, "--resume"]) == 0
    assert len(read_fitted(tmp_path / "fit.papr.safetensors")) == 3
    assert not (tmp_path / "fit.fit.safetensors").exists()


@pytest.mark.slow
def test_the_camera_can_be_found(tmp_path: Path, capsys) -> None:
    given = written(tmp_path)
    given[given.index("--camera") + 1] = "find:+z"
    assert main([*given, "--no-orbit", "--phases", "coarse", "--fov", "36"]) == 0
    assert "camera: found from +z, outlines" in capsys.readouterr().out
    found = read_camera_file(tmp_path / "fit_camera.json").camera
    assert (found.width, found.height) == (64, 64) and found.fx == pytest.approx(creatures.camera(64).fx)
    given[given.index("--camera") + 1] = "find:top"
    assert main(given) == 2
    assert "name the side that the camera stands on" in capsys.readouterr().err


def test_sizes_of_videos(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such video or folder"):
        size_of(tmp_path / "v.mp4")
    with pytest.raises(InputError, match="no frame was found"):
        size_of(tmp_path)
    (tmp_path / "v.mp4").write_bytes(b"no video")
    with pytest.raises(InputError, match="ffmpeg cannot read it"):
        size_of(tmp_path / "v.mp4")
    Image.new("RGB", (7, 5)).save(tmp_path / "f_2.png")
    assert size_of(tmp_path) == (7, 5)


def test_previews_come_every_so_often(tmp_path: Path) -> None:
    asset, now = asset_of(4, 300), [0.0]
    cloud, rig = cloud_of(600)
    clip, _ = clip_of(cloud, creatures.motion(4, 0.1), rig)
    latest = Preview(clip, tmp_path / "latest.png", clock=lambda: now[0])
    assert latest.show("one_0001", 1, lambda: asset) == tmp_path / "latest.png"
    now[0] = 19.0
    assert latest.show("one_0002", 2, lambda: asset) is None
    now[0] = 21.0
    assert latest.show("one_0003", 3, lambda: asset) is not None
    assert Image.open(tmp_path / "latest.png").size == (3 * 64, 64)
    latest.close()
    assert not (tmp_path / "latest.png").exists()
    kept = Preview(clip, tmp_path / "latest.png", tmp_path / "all", clock=lambda: now[0])
    kept.show("two_000200", 1, lambda: asset)
    kept.close()
    assert [p.name for p in (tmp_path / "all").iterdir()] == ["two_000200.png"]


def test_cameras_around_start_at_the_videos_own_azimuth() -> None:
    asset, view = asset_of(4, 300), creatures.camera(64)
    cameras = ring(asset, view, 4)
    assert up_axis(view) == (0.0, 1.0, 0.0)
    centre = np.concatenate([asset.posed(k)[0].numpy() for k in range(4)])
    centre = (centre.min(axis=0) + centre.max(axis=0)) / 2
    away = [np.array([c.position[0], c.position[2]]) - centre[[0, 2]] for c in (view, *cameras)]
    angles = np.degrees([np.arctan2(*a) for a in away])
    assert angles[1] == pytest.approx(angles[0], abs=1e-3)
    np.testing.assert_allclose(np.diff(np.unwrap(np.radians(angles[1:]))), np.pi / 2, atol=1e-6)
    for k in range(4):
        for camera in cameras:
            local = asset.posed(k)[0].numpy() @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
            pixels = camera.fx * local[:, :2] / local[:, 2:] + 32
            assert local[:, 2].min() > 0 and pixels.min() > 0 and pixels.max() < 64


def test_outputs_are_refused_before_any_work(tmp_path: Path) -> None:
    config = FitConfig(Path("v"), Path("a.papr.safetensors"), "c.json", tmp_path / "f.papr.safetensors")
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
