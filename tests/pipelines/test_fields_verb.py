"""``splatanim fields``: splats, meshes and points in; figures, pictures and coloured splats out; bad files named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import trimesh

from pipelines.field_pictures import diverging, scaled
from pipelines.fields import FieldsConfig, fields
from pipelines.objects import read_object, surface_of
from splatanim.errors import InputError
from splatanim.formats import read_splats, write_ply
from tests.sampling.shapes import ball_mesh, box_surface, flat_splats


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same box as splats, as meshes in three formats, as points; and files that hold nothing usable."""
    path = tmp_path_factory.mktemp("objects")
    points, normals = box_surface((2.0, 0.8, 0.6), 6000)
    write_ply(path / "splats.ply", flat_splats(points, normals, 0.03))
    box = trimesh.creation.box((2.0, 0.8, 0.6))
    for suffix in ("ply", "obj", "glb", "stl"):
        box.export(path / f"mesh.{suffix}")
    trimesh.PointCloud(points + np.array([100.0, 0, 0])).export(path / "points.ply")
    broken = box.copy()
    broken.vertices[0] = np.nan
    broken.export(path / "nan.ply")
    (path / "cut.glb").write_bytes((path / "mesh.glb").read_bytes()[:60])
    (path / "empty.obj").write_text("")
    trimesh.PointCloud(points[:5]).export(path / "few.ply")
    return path


def _run(folder: Path, *names: str, **options) -> list[dict]:
    config = FieldsConfig(tuple(folder / name for name in names), **{"field": "gaussians", "handles": 5} | options)
    return json.loads(fields(FieldsConfig(**vars(config) | {"json": True})))


def test_figures_of_every_kind_of_file(folder: Path) -> None:
    names = ["splats.ply", "mesh.ply", "mesh.glb", "points.ply"]
    rows = _run(folder, *names, ratio=False)
    assert [Path(row["file"]).name for row in rows] == names
    assert [row["form"] for row in rows] == ["splats", "mesh", "mesh", "points"]
    for row in rows:
        assert row["subspace_ratio"] is None and row["handles"] == 5 and row["seconds"] > 0
        assert row["bound"]["omega_orth"] < 1e-10
        assert row["bound"]["kappa_log"] == pytest.approx(1.0, abs=1e-6)
        assert row["bound"]["h_spec"] == pytest.approx(1.0, abs=1e-9)
        assert set(row["raw"]) == {"omega_orth", "kappa_log", "h_spec"} and row["raw"]["omega_orth"] > 0.01


@pytest.mark.parametrize("suffix", ["ply", "obj", "glb", "stl"])
def test_a_mesh_is_read_alike_in_every_format(folder: Path, suffix: str) -> None:
    found = read_object(folder / f"mesh.{suffix}")
    assert found.form == "mesh" and found.cubature.domain.volume == pytest.approx(0.4 * 0.3, rel=0.08)


def test_points_far_from_the_origin_keep_their_place(folder: Path) -> None:
    found = read_object(folder / "points.ply")
    surface = surface_of(found)
    np.testing.assert_allclose((surface.splats.means + surface.splats.offset).mean(axis=0), [100, 0, 0], atol=0.02)
    assert np.abs(surface.points).max() < 0.51
    assert found.cubature.domain.volume == pytest.approx(0.4 * 0.3, rel=0.15)


@pytest.mark.slow
def test_eigenmodes_have_ratio_one(folder: Path) -> None:
    (row,) = _run(folder, "mesh.ply", field="eigenmodes")
    assert row["subspace_ratio"] == pytest.approx(1.0, abs=0.01) and row["field"] == "eigenmodes"
    (row,) = _run(folder, "mesh.ply")
    assert 1.0 < row["subspace_ratio"] < 1.1


def test_bad_files_are_skipped_with_their_reasons(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = ["nan.ply", "cut.glb", "empty.obj", "few.ply", "missing.ply"]
    text = fields(
        FieldsConfig((folder / "mesh.stl", *(folder / n for n in bad)), field="gaussians", handles=5, ratio=False)
    )
    assert "skipped 5 of 6 files:" in text
    for name, reason in zip(bad, ["NaN", "cut off or damaged", "is empty", "5 usable points", "no such file"]):
        (line,) = [line for line in text.splitlines() if line.startswith("  ") and name in line]
        assert reason in line
    rows = _run(folder, "mesh.stl", "few.ply", ratio=False)
    assert len(rows) == 1 and "skipped 1 of 2 files" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"no file was usable; skipped 1 of 1 files:\n  .*few.ply"):
        _run(folder, "few.ply")


def test_options_that_make_no_sense_are_refused_before_any_work(folder: Path) -> None:
    for changes, text in (
        ({"handle": 9}, "there are handles 1 to 5"),
        ({"image": Path("x.jpg")}, "must end in .png"),
        ({"ply": Path("x.png")}, "must end in .ply"),
    ):
        with pytest.raises(InputError, match=text):
            _run(folder, "mesh.ply", **changes)
    with pytest.raises(InputError, match="name at least one file"):
        fields(FieldsConfig(()))


def test_the_picture_shows_every_handle_and_the_splats_their_colours(folder: Path, tmp_path: Path) -> None:
    from PIL import Image

    image, ply = tmp_path / "out.png", tmp_path / "out.ply"
    _run(folder, "mesh.ply", "splats.ply", image=image, ply=ply, handle=1, ratio=False)
    assert not image.exists()  # several files: each has its own
    for stem in ("mesh", "splats"):
        picture = np.asarray(Image.open(tmp_path / f"out-{stem}.png").convert("RGB")).astype(int)
        tile = picture[76 : 76 + 320, :320]
        red, blue = (tile[..., 0] - tile[..., 2] > 80).mean(), (tile[..., 2] - tile[..., 0] > 80).mean()
        assert red > 0.02 and blue > 0.02  # the first mode of a bar: one end red, one blue
        splats = read_splats(tmp_path / f"out-{stem}.ply").splats
        colour = 0.5 + 0.28209479 * splats.sh[:, 0]
        sides = np.sign(splats.means[:, 0]) * (colour[:, 0] - colour[:, 2])
        assert abs(np.sign(sides[np.abs(splats.means[:, 0]) > 0.5]).mean()) > 0.99
        low, high = splats.means.min(axis=0) + splats.offset, splats.means.max(axis=0) + splats.offset
        np.testing.assert_allclose([low, high], [[-1, -0.4, -0.3], [1, 0.4, 0.3]], atol=0.02)


def test_colours_diverge_from_grey() -> None:
    low, middle, high = diverging(np.array([-1.0, 0.0, 1.0]))
    assert low[2] > low[0] + 0.25 and high[0] > high[2] + 0.25 and np.ptp(middle) < 0.05
    w = np.linspace(-2.0, 4.0, 4001)[:, None]
    assert scaled(w).max() == 1.0 and scaled(w).min() == pytest.approx(-0.5, abs=0.01)
    assert scaled(np.zeros((10, 2))).max() == 0.0


def test_a_round_mesh_has_shade_on_it() -> None:
    from pipelines.objects import mesh_object

    surface = surface_of(mesh_object(ball_mesh(0.5), "ball"))
    assert surface.shade.min() >= 0.5 and surface.shade.max() <= 1.0 and np.ptp(surface.shade) > 0.3
