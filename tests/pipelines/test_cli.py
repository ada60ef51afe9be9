"""The command line as a user meets it: what it makes, what it says, and that it fails well."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipelines.cli import main
from splatanim.formats import read_splats, write_ply
from splatanim.samples import make_sample
from tests.helpers import hears_interrupts, random_splats

FAST = ["--seconds", "0.2", "--size", "64x48", "--fps", "15"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ball of 3,000 splats, y down."""
    rng = np.random.default_rng(3)
    splats = random_splats(3000, degree=1)
    direction = rng.normal(size=(3000, 3))
    means = 0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("scene") / "ball.ply"
    write_ply(path, splats.replace(means=means.astype(np.float32), raw_opacities=np.full(3000, 2.0, np.float32)))
    return path


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_animate_writes_the_film_the_report_and_the_exports(scene, tmp_path, capsys) -> None:
    report, film, npz, ply = (tmp_path / name for name in ("r.json", "a.mp4", "z.npz", "seq"))
    exports = ["--export", f"npz:{npz}", "--export", f"ply:{ply}"]
    code, out, _ = run(["animate", str(scene), "-o", str(film), "--report", str(report), *exports, *FAST], capsys)
    assert code == 0 and film.stat().st_size > 500 and "all steps converged" in out
    data = json.loads(report.read_text())
    assert set(data) >= {"frames", "splats", "field", "solver", "max_penetration_fraction", "timings", "warnings"}
    assert set(data["field"]) == {"kind", "handles", "omega_orth", "kappa_log", "h_spec"}
    assert set(data["solver"]) >= {"converged_fraction", "newton_mean", "newton_max", "ms_per_step_median"}
    assert set(data["timings"]) == {"load", "sample", "field", "simulate", "pose", "render", "encode"}
    assert data["frames"] == 3 and data["splats"] == 3000 and data["field"]["omega_orth"] < 1e-10
    assert sorted(p.name for p in ply.iterdir()) == [f"frame_{k:04d}.ply" for k in range(3)]


def test_exports_tell_the_same_story(scene, tmp_path, capsys) -> None:
    """The npz poses the splats to where the PLY sequence has them: x = X + sum_h w_h Z_h [X; 1]."""
    npz, ply = tmp_path / "z.npz", tmp_path / "seq"
    exports = ["--export", f"npz:{npz}", "--export", f"ply:{ply}", "-o", str(tmp_path / "a.mp4")]
    assert main(["animate", str(scene), "--motion", "poke", *exports, *FAST]) == 0
    data = np.load(npz)
    source = read_splats(scene).splats
    for k in range(3):
        frame = read_splats(ply / f"frame_{k:04d}.ply").splats
        one = np.concatenate([data["rest"], np.ones((len(source), 1), np.float32)], axis=1)
        moved = data["rest"] + np.einsum("nh,hrc,nc->nr", data["weights"], data["handles"][k], one)
        np.testing.assert_allclose(moved / data["scale"] + data["centre"], frame.means, atol=2e-5)
        np.testing.assert_array_equal(frame.raw_opacities, source.raw_opacities)  # the file's own order
    assert not np.allclose(frame.means, source.means, atol=1e-3)


def test_the_same_seed_gives_the_same_film(scene, tmp_path, capsys) -> None:
    reports = []
    for name in ("a", "b"):
        arguments = ["animate", str(scene), "-o", str(tmp_path / f"{name}.mp4"), "--motion", "drag", *FAST]
        assert main([*arguments, "--export", f"npz:{tmp_path / name}.npz"]) == 0
        reports.append(np.load(tmp_path / f"{name}.npz")["handles"])
    np.testing.assert_array_equal(*reports)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_outputs_keep_far_off_coordinates(scene, tmp_path, capsys) -> None:
    """A scene in geo-referenced doubles comes back where it was."""
    source = read_splats(scene).splats
    far = tmp_path / "far.ply"
    write_ply(far, source.replace(offset=(5e5, 4.5e6, 100.0)))
    folder = tmp_path / "seq"
    arguments = ["animate", str(far), "-o", str(tmp_path / "a.mp4"), "--motion", "sway", "--export", f"ply:{folder}"]
    assert main([*arguments, *FAST]) == 0
    first = read_splats(folder / "frame_0000.ply").splats
    moved = first.means + np.array(first.offset) - np.array([5e5, 4.5e6, 100.0])
    np.testing.assert_allclose(moved, source.means, atol=1e-4)


def test_floaters_are_left_out_and_counted(scene, tmp_path, capsys) -> None:
    source = read_splats(scene).splats
    means = source.means.copy()
    means[:10] *= 100.0
    path = tmp_path / "floaters.ply"
    write_ply(path, source.replace(means=means))
    report = tmp_path / "r.json"
    code, out, _ = run(["animate", str(path), "--report", str(report), *FAST], capsys)
    data = json.loads(report.read_text())
    assert code == 0 and data["dropped"] == {"floater": 10} and data["splats"] == 2990 and "10 floater" in out


def test_fewer_handles_than_asked_for_are_said(scene, tmp_path, capsys) -> None:
    code, out, _ = run(
        ["animate", str(scene), "-o", str(tmp_path / "a.mp4"), "--handles", "300", "--field", "gaussians", *FAST],
        capsys,
    )
    assert code == 0 and "300 handles were asked for" in out


def test_inspect_prints_stable_keys(scene, capsys) -> None:
    code, out, _ = run(["inspect", str(scene), "--json"], capsys)
    data = json.loads(out)
    assert code == 0
    assert set(data) >= {"file", "format", "splats", "kept", "dropped", "sh_degree", "bounds", "up", "warnings"}
    assert data["splats"] == data["kept"] == 3000 and data["sh_degree"] == 1 and data["up"] == "-y"
    np.testing.assert_allclose(data["bounds"], [[-0.5] * 3, [0.5] * 3], atol=0.05)
    code, out, _ = run(["inspect", str(scene)], capsys)
    assert code == 0 and "3000 kept" in out and "animate" in out


def test_sample_round_trips(tmp_path, capsys) -> None:
    path = tmp_path / "j.ply"
    code, out, _ = run(["sample", "jelly", "-o", str(path), "--seed", "2"], capsys)
    assert code == 0 and str(path) in out
    result = read_splats(path)
    assert result.up == "-y"
    np.testing.assert_array_equal(result.splats.means, make_sample("jelly", seed=2).means)
    code, out, _ = run(["sample", "--list"], capsys)
    assert code == 0 and {"jelly", "plush", "plant"} <= set(out.split())


def test_render_from_a_camera_file(scene, tmp_path, capsys) -> None:
    from PIL import Image

    from splatanim.render.camera import look_at
    from splatanim.render.camera_io import write_camera_path

    cameras = [look_at((d, 0, 3), (0, 0, 0), (0, -1, 0), width=40, height=30) for d in (0.0, 1.0)]
    path = tmp_path / "cam.json"
    write_camera_path(path, cameras, 24.0)
    png, film = tmp_path / "o.png", tmp_path / "o.mp4"
    common = ["render", str(scene), "--camera", str(path), "--background", "0,0,0"]
    assert run([*common, "--frame", "1", "-o", str(png)], capsys)[0] == 0
    image = np.asarray(Image.open(png))
    assert image.shape == (30, 40, 3) and image[15, 20].max() > 20 and image[0, 0].max() == 0
    assert run([*common, "-o", str(film)], capsys)[0] == 0 and film.stat().st_size > 300
    code, _, err = run([*common, "--frame", "2", "-o", str(png)], capsys)
    assert code == 2 and "frames 0 to 1" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--motion", "drpo"], "Did you mean drop"),
        (["--material", "jely"], "Did you mean jelly"),
        (["--size", "640"], "WIDTHxHEIGHT"),
        (["--size", "0x4"], "WIDTHxHEIGHT"),
        (["--camera", "nowhere"], "neither orbit, fixed"),
        (["--camera", "nowhere.json"], "nowhere.json"),
        (["--up", "sideways"], "Up axis"),
        (["--pin", "left"], "--pin"),
        (["--pin", "-9,-9,-9,9,9,9"], "nothing is left to move"),
        (["--handles", "0"], "--handles"),
        (["--export", "obj:x"], "--export"),
        (["--background", "1,2"], "--background"),
        (["--object-size", "-1"], "--object-size"),
        (["--seconds", "-1"], "--seconds"),
        (["--fps", "0"], "--fps"),
        (["--young", "-5"], "young"),
        (["--poisson", "0.5"], "poisson"),
        (["--output", "film.avi"], ".mp4"),
        (["--output", "/nonexistent/film.mp4"], "/nonexistent"),
    ],
)
def test_bad_arguments_are_named(scene, tmp_path, capsys, monkeypatch, arguments, said) -> None:
    monkeypatch.chdir(tmp_path)
    output = [] if "--output" in arguments else ["-o", str(tmp_path / "out.mp4")]
    code, out, err = run(["animate", str(scene), *FAST, *output, *arguments], capsys)
    assert code == 2 and said in err and "Traceback" not in err + out
    assert not list(tmp_path.iterdir())


def test_missing_and_foreign_files(tmp_path, capsys) -> None:
    text = tmp_path / "notes.ply"
    text.write_text("not a ply")
    for path in (tmp_path / "absent.ply", text, tmp_path):
        code, out, err = run(["animate", str(path), *FAST], capsys)
        assert code == 2 and str(path) in err and "Traceback" not in err + out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.ply"]


def test_a_failing_ffmpeg_is_quoted(scene, tmp_path, capsys, monkeypatch) -> None:
    fake = tmp_path / "ffmpeg"
    fake.write_text("#!/bin/sh\necho 'the encoder is on holiday' >&2\nexit 1\n")
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(fake))
    code, _, err = run(["animate", str(scene), "-o", str(tmp_path / "a.mp4"), *FAST], capsys)
    assert code == 2 and "on holiday" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ffmpeg"]


def test_ctrl_c_leaves_nothing_behind(scene, tmp_path) -> None:
    command = [sys.executable, "-m", "pipelines.cli", "animate", str(scene), "-o", str(tmp_path / "a.mp4")]
    process = subprocess.Popen(
        [*command, "--seconds", "60", "--size", "640x640"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=hears_interrupts,
    )
    time.sleep(6.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and "interrupted" in err
    assert not list(tmp_path.iterdir())


def test_help_names_every_verb(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    verbs = ("animate", "inspect", "render", "sample", "fields", "train-fields", "bench")
    assert all(verb in out for verb in verbs)
