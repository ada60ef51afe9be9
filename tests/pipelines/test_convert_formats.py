"""Every format through every verb: inspect, animate, render, convert."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.cli import main
from splatanim.data import Splats
from splatanim.formats import read_splats, write_splats
from tests.helpers import random_splats

sys.path.insert(0, str(Path(__file__).parent.parent / "formats"))  # the makers of files lie beside the readers' tests
from made import compressed_ply_bytes, ksplat_bytes, sog_bytes, sog_files, spz_bytes

FAST = ["--seconds", "0.14", "--size", "48x48", "--fps", "15"]


def shell() -> Splats:
    """A ball, white with a red cap at the top (y down): upright, the cap is in the upper half of the picture."""
    rng = np.random.default_rng(3)
    splats = random_splats(1200, degree=1)
    direction = rng.normal(size=(1200, 3))
    means = 0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    colour = np.where((means[:, 1] < -0.15)[:, None], [1.5, -1.5, -1.5], [1.5, 1.5, 1.5])
    sh = np.concatenate([colour[:, None], 0.01 * splats.sh[:, 1:]], axis=1)
    return splats.replace(
        means=means.astype(np.float32),
        sh=sh.astype(np.float32),
        raw_opacities=np.full(1200, 3.0, np.float32),
        log_scales=np.full((1200, 3), np.log(0.03), np.float32),
    )


NAMES = ("a.ply", "a.compressed.ply", "a.splat", "a.ksplat", "a.spz", "a.sog", "folder", "a.glb")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, splats = tmp_path_factory.mktemp("files"), shell()
    for name in ("a.ply", "a.splat", "a.glb"):
        write_splats(folder / name, splats)
    (folder / "a.compressed.ply").write_bytes(compressed_ply_bytes(splats))
    (folder / "a.ksplat").write_bytes(ksplat_bytes(splats, 1, bucket=256))
    (folder / "a.spz").write_bytes(spz_bytes(splats, 3))
    (folder / "a.sog").write_bytes(sog_bytes(splats))
    (folder / "folder").mkdir()
    for name, data in sog_files(splats).items():
        (folder / "folder" / name).write_bytes(data)
    return folder


def reds(picture: np.ndarray) -> tuple[float, float]:
    """Redness of the upper and lower half of a picture on white: what is red and not green."""
    excess = picture[..., 0].astype(float) - picture[..., 1]
    half = len(picture) // 2
    return float(excess[:half].mean()), float(excess[half:].mean())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_inspected_rendered_and_converted(files: Path, tmp_path: Path, name: str, capsys) -> None:
    path = str(files / name)
    assert main(["inspect", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kept"] == 1200 and found["up"] == ("+y" if name == "a.glb" else "-y")
    np.testing.assert_allclose(found["bounds"], [[-0.5] * 3, [0.5] * 3], atol=0.06)
    assert main(["render", path, "-o", str(tmp_path / "a.png"), "--size", "48x48"]) == 0
    upper, lower = reds(np.asarray(Image.open(tmp_path / "a.png")))
    assert upper > 5 * max(lower, 1.0), "the red cap is on top, in every format"
    assert main(["convert", path, str(tmp_path / "b.ply"), "--scale", "2"]) == 0
    splats = read_splats(tmp_path / "b.ply").splats
    np.testing.assert_allclose(np.linalg.norm(splats.means, axis=1), 1.0, atol=0.01)
    if name in ("a.ply", "a.splat", "a.spz"):
        np.testing.assert_allclose(splats.means, 2 * shell().means, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_animated(files: Path, tmp_path: Path, name: str) -> None:
    assert main(["animate", str(files / name), "-o", str(tmp_path / "a.mp4"), *FAST]) == 0
    assert (tmp_path / "a.mp4").stat().st_size > 300


def test_an_animation_without_a_named_output_lies_beside_the_scene(files: Path, capsys) -> None:
    assert main(["animate", str(files / "folder"), *FAST]) == 0
    assert (files / "folder.mp4").stat().st_size > 300


def test_what_cannot_be_read_ends_with_code_2(tmp_path: Path, capsys) -> None:
    for name, data in (("a.spz", b"NGSP"), ("a.splat", bytes(31)), ("a.sog", b"PK\x03\x04"), ("a.glb", b"glTF")):
        (tmp_path / name).write_bytes(data)
        for verb in ("inspect", "convert", "animate"):
            more = [str(tmp_path / "out.ply")] if verb == "convert" else []
            assert main([verb, str(tmp_path / name), *more]) == 2
            said = capsys.readouterr().err
            assert name in said and "Traceback" not in said
    assert not (tmp_path / "out.ply").exists()
