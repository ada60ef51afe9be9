"""``splatanim render`` and ``inspect`` of a fitted asset, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.cli import main
from pipelines.fitted_motions import resized
from rigpapr.asset import write_asset
from rigpapr.fitted import write_fitted
from rigpapr.renderer import render
from splatanim.rig.gltf import read_gltf
from tests.rigpapr import creatures
from tests.rigpapr.test_posing import asset_of


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    write_fitted(tmp_path / "f.papr.safetensors", asset_of(4, 600))
    return tmp_path / "f.papr.safetensors"


def picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"), np.float32) / 255


def test_a_frame_is_the_renderers(scene: Path, tmp_path: Path, capsys) -> None:
    asset = asset_of(4, 600)
    assert main(["render", str(scene), "--frame", "3", "-o", str(tmp_path / "a.png")]) == 0
    assert "motion fit, 4 frames at 12 a second" in capsys.readouterr().out
    positions, rotations = asset.posed(3)
    wanted = render(asset.cloud, asset.view, positions=positions, rotations=rotations).rgb
    np.testing.assert_allclose(picture(tmp_path / "a.png"), wanted.clip(0, 1), atol=1 / 254)
    assert main(["render", str(scene), "--frame", "4", "-o", str(tmp_path / "a.png")]) == 2
    assert "--frame 4: there are frames 0 to 3" in capsys.readouterr().err


def test_films_folders_and_exports(scene: Path, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "o.mp4")
    extra = ["--export", f"glb:{tmp_path / 'm.glb'}", "--export", f"ply:{tmp_path / 'seq'}"]
    assert main(["render", str(scene), "--orbit", "--size", "32x32", "-o", out, *extra]) == 0
    said = capsys.readouterr().out
    assert "o.mp4: 48 frames" in said and "4 frames of 600 points" in said and "600 points on 4 joints" in said
    assert len(list((tmp_path / "seq").glob("frame_000?.ply"))) == 4
    rows = (tmp_path / "seq" / "frame_0002.ply").read_bytes().split(b"end_header\n")[1]
    kind = [(c, "<f4") for c in "xyz"] + [(c, "u1") for c in "rgb"] + [("i", "<f4")]
    points = np.frombuffer(rows, kind)
    wanted = asset_of(4, 600).posed(2)[0].numpy()
    np.testing.assert_allclose(np.stack([points[c] for c in "xyz"], axis=1), wanted, atol=1e-5)
    assert "fit" in read_gltf(tmp_path / "m.glb").animations
    assert main(["render", str(scene), "-o", str(tmp_path / "pictures"), "--size", "32x24"]) == 0
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == [f"frame_000{k}.png" for k in range(4)]
    assert picture(tmp_path / "pictures" / "frame_0000.png").shape == (24, 32, 3)
    assert main(["render", str(scene), "-o", str(tmp_path / "n.glb")]) == 0


def test_a_pose_and_a_clip(scene: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"joints": {"arm": {"turn": [0, 0, 60]}}}))
    small = ["--size", "48x48"]
    assert main(["render", str(scene), "-o", str(tmp_path / "r.png"), *small]) == 0
    assert main(["render", str(scene), "--pose", str(tmp_path / "p.json"), "-o", str(tmp_path / "p.png"), *small]) == 0
    assert np.abs(picture(tmp_path / "p.png") - picture(tmp_path / "r.png")).max() > 0.2
    assert main(["render", str(scene), "-o", str(tmp_path / "m.glb")]) == 0
    clip = ["--clip", str(tmp_path / "m.glb"), "--fps", "12"]
    assert main(["render", str(scene), *clip, "--frame", "2", "-o", str(tmp_path / "c.png"), *small]) == 0
    assert "retargeted by joint names" in capsys.readouterr().out
    assert main(["render", str(scene), "--frame", "2", "-o", str(tmp_path / "w.png"), *small]) == 0
    assert np.abs(picture(tmp_path / "c.png") - picture(tmp_path / "w.png")).mean() < 0.02


@pytest.mark.slow
def test_elastic_motion_on_the_cloud(scene: Path, tmp_path: Path, capsys) -> None:
    small = ["--size", "48x48", "--export", f"ply:{tmp_path / 'seq'}"]
    assert main(["render", str(scene), "--elastic", "--functions", "8", "-o", str(tmp_path / "e.mp4"), *small]) == 0
    said = capsys.readouterr().out
    assert "elastic (flesh): moves by up to" in said and "steps converged" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pose", "p.json", "--clip", "c.glb"], "--pose and --clip are two motions"),
        (["--map", "m.toml"], "--map and --clip-name are for a clip of another file"),
        (["--orbit", "--camera", "c.json"], "--orbit and --camera are two sets of cameras"),
        (["--export", "obj:x"], "neither ply:DIR"),
        (["--export", "glb:x.ply"], "must end in .glb"),
        (["--pose", "nowhere.json"], "nowhere.json: no such file"),
        (["--elastic", "--leak", "2"], "--leak 2: a number from 0 to 1"),
        (["--elastic", "--functions", "0"], "--functions 0: at least one"),
        (["--elastic", "--object-size", "0"], "--object-size 0: a positive number"),
    ],
)
def test_options_that_cannot_be(scene: Path, tmp_path: Path, options: list[str], said: str, capsys) -> None:
    assert main(["render", str(scene), "-o", str(tmp_path / "x.png"), *options]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "x.png").exists()


def test_a_plain_cloud_has_no_motion_to_show(tmp_path: Path, capsys) -> None:
    write_asset(tmp_path / "c.papr.safetensors", asset_of(2, 600).cloud)
    given = ["render", str(tmp_path / "c.papr.safetensors"), "-o", str(tmp_path / "x.png"), "--orbit"]
    assert main(given) == 2
    assert "--orbit is for assets with a rig and a motion" in capsys.readouterr().err


def test_elastic_needs_a_motion(scene: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "p.json").write_text("{}")
    pose = ["--pose", str(tmp_path / "p.json"), "--elastic"]
    assert main(["render", str(scene), "-o", str(tmp_path / "x.png"), *pose]) == 2
    assert "--elastic needs a motion" in capsys.readouterr().err


def test_inspect_says_rig_frames_and_clip(scene: Path, capsys) -> None:
    assert main(["inspect", str(scene)]) == 0
    said = capsys.readouterr().out
    assert "4 joints, root root" in said and "4 frames at 12 a second, 0.33 s" in said
    assert main(["inspect", str(scene), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["motion"]
    assert found["names"] == ["root", "middle", "arm", "top"] and found["largest_shift"] > 0.1


def test_a_view_in_another_size_keeps_what_it_shows() -> None:
    camera = creatures.camera(64)
    wide = resized(camera, (128, 64))
    assert wide.fx == camera.fx and wide.cx == camera.cx + 32 and (wide.width, wide.height) == (128, 64)
    half = resized(camera, (32, 32))
    assert half.fx == camera.fx / 2 and half.cx == camera.cx / 2
