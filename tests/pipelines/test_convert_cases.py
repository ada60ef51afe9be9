"""Files as people have them, through the command line: each read right, or refused in a sentence with code 2.

Base: splats uniform in [-1, 1]^3, opacity 2.2, log-scale ln 0.03, random rotations, by their own writer.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.cli import main
from splatanim.data import Splats
from splatanim.formats import read_splats, write_ply, write_sequence_frame, write_splats
from splatanim.inspect import up_vector
from splatanim.render.camera import frame_object
from splatanim.render.rasterize import rasterize

sys.path.insert(0, str(Path(__file__).parent.parent / "formats"))  # the makers of files lie beside the readers' tests
from ply_files import columns, ply_bytes, save

ROOT = Path(__file__).parent.parent.parent
COLOURS = {name: np.full(1000, 128, "u1") for name in ("red", "green", "blue")}


def inspected(path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["inspect", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rows_that_are_not_finite_are_dropped_and_counted(tmp_path, capsys) -> None:
    table = columns(1000)
    table["y"][100:116], table["opacity"][7] = np.nan, np.nan
    found = inspected(save(tmp_path, table), capsys)
    assert found["splats"] == 1000 and found["kept"] == 983
    assert found["dropped"] == {"nan_position": 16, "nan_opacity": 1}


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "ascii"},
        {"encoding": "binary_big_endian"},
        {"face_before": True},
        {"newline": "\r\n", "comments": ("one", "two", "")},
        {"double": True},
        {"rgb": True},
    ],
    ids=lambda o: next(iter(o)),
)
def test_what_is_read(tmp_path, capsys, options) -> None:
    table = columns(1000, degree=1)
    if options.pop("double", False):
        table = {name: column.astype("f8") for name, column in table.items()}
    if options.pop("rgb", False):
        table = {name: c for name, c in table.items() if not name.startswith("f_dc")} | COLOURS
    found = inspected(save(tmp_path, table, **options), capsys)
    assert found["kept"] == 1000
    np.testing.assert_allclose(found["bounds"], [[-1] * 3, [1] * 3], atol=0.02)


def refused() -> dict[str, tuple[bytes, str]]:
    table = columns(1000, degree=0)
    activated = {name: np.exp(c) if name.startswith("scale") else c for name, c in table.items()}
    activated["opacity"] = np.full(1000, 0.9, "f4")
    xyz = {name: table[name] for name in "xyz"}
    anchors = table | {"f_offset_0": table["x"], "f_anchor_feat_0": table["x"]}
    whole = ply_bytes(table)
    return {
        "activated": (ply_bytes(activated), "write log(scale)"),
        "xyz only": (ply_bytes(xyz), "opacity, scale_0..2 and rot_0..3 are missing"),
        "a mesh": (ply_bytes(xyz, face_after=True), "a mesh (5 faces)"),
        "scaffold": (ply_bytes(anchors), "Scaffold-GS"),
        "no splats": (ply_bytes(columns(0)), "zero splats"),
        "cut short": (whole[:-1000], "is cut off: its header promises 1000 rows"),
    }


@pytest.mark.parametrize("case", refused())
@pytest.mark.parametrize("verb", ["inspect", "animate", "render", "convert"])
def test_what_is_refused(tmp_path, capsys, case, verb) -> None:
    data, message = refused()[case]
    if verb == "convert" and case == "a mesh":
        pytest.skip("convert makes splats of meshes")
    (tmp_path / "a.ply").write_bytes(data)
    outputs = {
        "inspect": [],
        "animate": [],
        "render": ["-o", str(tmp_path / "b.png")],
        "convert": [str(tmp_path / "b.ply")],
    }
    assert main([verb, str(tmp_path / "a.ply"), *outputs[verb]]) == 2
    said = capsys.readouterr()
    assert message in said.err and "a.ply" in said.err and "Traceback" not in said.err + said.out
    assert [p.name for p in tmp_path.iterdir()] == ["a.ply"]


TRIAD = np.float32([[2.0, -2.0, -2.0], [-2.0, 2.0, -2.0], [-2.0, -2.0, 2.0]])  # red, green, blue as f_dc


def triad() -> Splats:
    """Rods along +x (red), +y (green) and +z (blue)."""
    along = np.repeat(np.linspace(0.05, 1.0, 40), 3)
    means = np.zeros((120, 3), np.float32)
    means[np.arange(120), np.arange(120) % 3] = along
    quaternions = np.tile(np.float32([1, 0, 0, 0]), (120, 1))
    scales = np.full((120, 3), np.log(0.02), np.float32)
    return Splats(means, quaternions, scales, np.full(120, 4.0, np.float32), np.tile(TRIAD, (40, 1))[:, None])


@pytest.mark.parametrize("suffix", [".ply", ".splat", ".spz", ".glb"])
@pytest.mark.parametrize("up", ["-y", "+z", "+y"])
def test_right_way_up_and_never_mirrored(tmp_path, suffix, up) -> None:
    """A right-handed triad stays one in the file's axes and in the picture, and what is up is up there."""
    if suffix in (".splat", ".spz") and up != "-y":
        pytest.skip("the format states no up axis")
    path = tmp_path / f"a{suffix}"
    write_splats(path, triad(), up=up)
    result = read_splats(path)
    axes = result.splats.means[[117, 118, 119]]
    assert np.linalg.det(axes) > 0.9
    direction = np.asarray(up_vector(result.up or "-y"))
    seen = 0
    for azimuth in (20.0, 110.0, 200.0, 290.0):
        camera = frame_object(
            result.splats.means, tuple(direction), width=96, height=96, azimuth_degrees=azimuth, elevation_degrees=25.0
        )
        picture = rasterize(result.splats, camera, background=(0.0, 0.0, 0.0), backend="cpu").rgb
        spots = rods(picture)
        if len(spots) < 3:  # one is hidden behind another
            continue
        seen += 1
        side = -1 if up[0] == "+" else 1  # rows grow downwards
        others = [spots[name][1] for name in "xyz" if name != up[-1]]
        assert side * (spots[up[-1]][1] - np.mean(others)) > 3
        # The rods turn in the picture as (y - x) x (z - x) does along the view, which for a right-handed triad is the
        # view's part along x + y + z.
        turn = np.linalg.det(np.stack([spots["y"] - spots["x"], spots["z"] - spots["x"]]))
        assert turn * (camera.T_camera_world[2, :3] @ axes.sum(axis=0)) > 0
    assert seen >= 2


def rods(picture: np.ndarray) -> dict[str, np.ndarray]:
    """Where in the picture (column, row) the red, green and blue rod have their middle, as far as they are seen."""
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
    out = {}
    for k, name in enumerate("xyz"):
        weight = np.clip(picture[..., k] - picture.max(axis=-1, initial=0, where=np.arange(3) != k), 0, None)
        if weight.sum() > 5:
            out[name] = np.array([(weight * x).sum(), (weight * y).sum()]) / weight.sum()
    return out


def test_twelve_frames_keep_their_columns(tmp_path) -> None:
    table = columns(50, degree=1) | {"label": np.arange(50, dtype="u1")}
    splats = read_splats(save(tmp_path, table)).splats
    for k in range(12):
        write_sequence_frame(tmp_path / "seq", k, splats.replace(means=splats.means + np.float32(k)))
    frames = sorted((tmp_path / "seq").iterdir())
    assert [p.name for p in frames] == [f"frame_{k:04d}.ply" for k in range(12)]
    for k, path in enumerate(frames):
        frame = read_splats(path).splats
        assert len(frame) == 50 and list(frame.extras) == ["nx", "ny", "nz", "label"]
        np.testing.assert_array_equal(frame.means, splats.means + np.float32(k))
        assert path.read_bytes().split(b"end_header")[0] == frames[0].read_bytes().split(b"end_header")[0]


@pytest.mark.parametrize("suffix", [".ply", ".splat", ".spz", ".glb"])
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, suffix) -> None:
    """The system refuses what is beyond 20 kB, as it does on a full disk."""
    write_ply(tmp_path / "a.ply", read_splats(save(tmp_path, columns(2000))).splats)
    (tmp_path / "splats.ply").unlink()
    out = tmp_path / f"b{suffix}"
    out.write_bytes(b"older")
    command = [sys.executable, "-m", "pipelines.cli", "convert", str(tmp_path / "a.ply"), str(out)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert run.returncode == 2 and f"b{suffix}: cannot be written" in run.stderr and "Traceback" not in run.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ply", f"b{suffix}"] and out.read_bytes() == b"older"
