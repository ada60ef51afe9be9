"""``splatanim reconstruct``, and PAPR assets in ``render`` and ``inspect``, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipelines.cli import main
from pipelines.papr_reposing import surface_splats
from rigpapr.asset import asset_notes, read_asset
from splatanim.render.camera_io import write_camera_path
from tests.rigpapr import scenes

QUICK = ["--steps", "30", "--points", "300", "--holdout", "8"]


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scenes.write_transforms(tmp_path_factory.mktemp("data") / "nerf", count=16, size=32)


@pytest.fixture(scope="module")
def asset(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asset") / "a.papr.safetensors"
    assert main(["reconstruct", str(dataset), "-o", str(path), *QUICK]) == 0
    return path


def test_reconstruct_writes_an_asset_and_says_how_good_it_is(asset: Path, dataset: Path, capsys) -> None:
    path = asset.with_name("b.papr.safetensors")
    code, out, _ = run(["reconstruct", str(dataset), "-o", str(path), *QUICK], capsys)
    assert code == 0 and "from 14 views, 30 steps" in out and "2 views held out: PSNR" in out
    notes = asset_notes(path)
    assert notes["steps"] == 30 and notes["views"] == 14 and set(notes["held_out"]) >= {"psnr", "ssim", "foreground"}
    assert not list(path.parent.glob("*.checkpoint.safetensors"))
    for name, value in read_asset(asset).state_dict().items():
        torch.testing.assert_close(read_asset(path).state_dict()[name], value)


def test_render_draws_a_picture_a_film_a_folder_and_points(asset: Path, tmp_path: Path, capsys) -> None:
    camera = tmp_path / "cams.json"
    write_camera_path(camera, scenes.cameras(6, 48), 10)
    common = ["render", str(asset), "--camera", str(camera)]
    code, out, _ = run([*common, "-o", str(tmp_path / "a.png"), "--background", "0,1,0"], capsys)
    assert code == 0 and "48x48" in out
    pixels = np.asarray(Image.open(tmp_path / "a.png"))
    assert pixels[0, 0].tolist() == [0, 255, 0] and (pixels[24, 24] != [0, 255, 0]).any()
    assert run([*common, "-o", str(tmp_path / "a.mp4")], capsys)[0] == 0
    assert (tmp_path / "a.mp4").stat().st_size > 500
    assert run([*common, "-o", str(tmp_path / "all")], capsys)[0] == 0
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [f"frame_{k:04d}.png" for k in range(6)]
    assert run(["render", str(asset), "-o", str(tmp_path / "p.ply")], capsys)[0] == 0
    assert (tmp_path / "p.ply").read_bytes().startswith(b"ply")
    assert run(["convert", str(asset), str(tmp_path / "q.ply")], capsys)[0] == 0
    assert (tmp_path / "q.ply").read_bytes() == (tmp_path / "p.ply").read_bytes()
    assert run(["render", str(asset), "-o", str(tmp_path / "free.png"), "--size", "40x30"], capsys)[0] == 0


def test_inspect_says_what_an_asset_holds(asset: Path, capsys) -> None:
    code, out, _ = run(["inspect", str(asset)], capsys)
    assert code == 0 and "PAPR neural points" in out and "12 neighbours a ray" in out
    data = json.loads(run(["inspect", str(asset), "--json"], capsys)[1])
    assert data["format"] == "papr" and data["head"] == "kernel" and data["notes"]["views"] == 14


def test_a_mesh_can_start_a_reconstruction(dataset: Path, tmp_path: Path, capsys) -> None:
    import trimesh

    trimesh.creation.icosphere(3, 0.4).export(tmp_path / "m.ply")
    path = tmp_path / "m.papr.safetensors"
    arguments = ["reconstruct", str(dataset), "-o", str(path), *QUICK, "--init", str(tmp_path / "m.ply")]
    assert run(arguments, capsys)[0] == 0
    assert len(read_asset(path)) <= 300


def test_an_interrupted_run_resumes(dataset: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    import rigpapr.train

    path = tmp_path / "r.papr.safetensors"
    arguments = ["reconstruct", str(dataset), "-o", str(path), *QUICK]
    step = rigpapr.train._step

    def interrupted(training, *rest):
        if training.step == 7:
            raise KeyboardInterrupt
        return step(training, *rest)

    monkeypatch.setattr(rigpapr.train, "_step", interrupted)
    assert run(arguments, capsys)[0] == 130
    assert (tmp_path / "r.checkpoint.safetensors").is_file() and not path.exists()
    monkeypatch.setattr(rigpapr.train, "_step", step)
    code, out, _ = run([*arguments, "--resume"], capsys)
    assert code == 0 and "30 steps" in out and [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-o", "a.safetensors"], "a PAPR asset is named *.papr.safetensors"),
        (["-o", "/nowhere/a.papr.safetensors"], "the folder /nowhere does not exist"),
        (["-o", "OUT", "--resume"], "--resume: there is no checkpoint at"),
        (["-o", "OUT", "--holdout", "1"], "--holdout 1 leaves none of 16 views"),
        (["-o", "OUT", "--holdout", "-2"], "--holdout -2: give 0"),
        (["-o", "OUT", "--init", "x.ply"], "no such file. Give points, splats"),
        (["-o", "OUT", "--background", "red"], "red"),
    ],
)
def test_bad_requests_end_at_once_and_leave_nothing(arguments, text, dataset: Path, tmp_path: Path, capsys) -> None:
    arguments = [str(tmp_path / "a.papr.safetensors") if a == "OUT" else a for a in arguments]
    code, _, error = run(["reconstruct", str(dataset), *arguments], capsys)
    assert code == 2 and text in error and not list(tmp_path.iterdir())


def test_bad_pictures_are_refused(asset: Path, tmp_path: Path, capsys) -> None:
    code, _, error = run(["render", str(asset), "-o", str(tmp_path / "a.gif")], capsys)
    assert code == 2 and "a folder (all cameras) or a .ply" in error
    (tmp_path / "file").write_text("")
    code, _, error = run(["render", str(asset), "-o", str(tmp_path / "file")], capsys)
    assert code == 2 and "is a file" in error
    code, _, error = run(["render", str(tmp_path / "x.papr.safetensors"), "-o", str(tmp_path / "a.png")], capsys)
    assert code == 2 and "no such file" in error


@pytest.mark.slow
def test_splats_of_a_subject_look_like_it() -> None:
    from pipelines.papr_reposing import measure, posed_splats, read_motion
    from rigpapr.dataset import read_dataset
    from tests.helpers import data_file

    folder = data_file("multiview/fox")
    motion = read_motion(folder)
    splats = surface_splats(motion, read_dataset(folder)[::4])
    assert measure(posed_splats(splats, motion, 0), motion, 0).quality.psnr > 22
