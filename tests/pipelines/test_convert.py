"""``splatanim convert`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from pipelines.cli import main
from pipelines.convert import ConvertConfig, convert
from pipelines.convert_splats import moved_splats, placement_of
from splatanim.errors import InputError
from splatanim.formats import read_splats, write_ply
from splatanim.rig.gltf import read_gltf
from splatanim.rotations import quaternions_to_matrices
from tests.helpers import random_splats
from tests.rig.gltf_check import check_glb
from tests.rig.rigs import add_bow, bar


@pytest.fixture()
def mesh(tmp_path: Path) -> Path:
    made = bar()
    add_bow(made)
    return made.write(tmp_path / "bar.glb")


@pytest.fixture()
def splats(tmp_path: Path) -> Path:
    write_ply(tmp_path / "cloud.ply", random_splats(300, degree=1))
    return tmp_path / "cloud.ply"


def test_a_mesh_becomes_splats_with_its_up_axis_stated(mesh: Path, tmp_path: Path, capsys) -> None:
    assert main(["convert", str(mesh), str(tmp_path / "a.ply"), "--count", "500"]) == 0
    assert "a.ply: " in capsys.readouterr().out
    result = read_splats(tmp_path / "a.ply")
    assert result.up == "+y" and abs(len(result.splats) - 500) < 75
    assert main(["convert", str(mesh), str(tmp_path / "b.ply"), "--count", "100", "--rotate", "90,0,0"]) == 0
    assert read_splats(tmp_path / "b.ply").up == "+z"


def test_splats_become_points_on_a_rig_with_its_clips(mesh: Path, tmp_path: Path) -> None:
    convert(ConvertConfig(mesh, tmp_path / "a.ply", count=300))
    said = convert(ConvertConfig(tmp_path / "a.ply", tmp_path / "a.glb", rig=mesh))
    assert "2 joints, 1 clips" in said
    check_glb(tmp_path / "a.glb")
    model = read_gltf(tmp_path / "a.glb")
    assert not len(model.faces) and list(model.animations) == ["bow"]
    moved = model.posed(model.animations["bow"].sample(1.0))
    assert moved[:, 0].min() < -0.9 and model.vertices[:, 0].min() > -0.1


def test_splats_stand_upright_in_gltf(splats: Path, tmp_path: Path) -> None:
    """A capture with y down is turned by a node; coordinates in the file stay, and other readers see its points."""
    said = convert(ConvertConfig(splats, tmp_path / "a.glb"))
    assert "turns the points from -y to +y" in said
    data = (tmp_path / "a.glb").read_bytes()
    content = json.loads(data[20 : 20 + int.from_bytes(data[12:16], "little")])
    stored = content["accessors"][content["meshes"][0]["primitives"][0]["attributes"]["POSITION"]]
    source = read_splats(splats).splats.means
    np.testing.assert_allclose(stored["min"], source.min(axis=0), atol=1e-6)
    shown = read_gltf(tmp_path / "a.glb").vertices
    np.testing.assert_allclose(shown[:, 1], -source[:, 1], atol=1e-5)
    back = read_splats(tmp_path / "a.glb")
    assert back.up == "+y" and back.splats.sh_degree == 1
    np.testing.assert_allclose(back.splats.means[:, 1], -source[:, 1], atol=1e-6)


@pytest.mark.parametrize("suffix", [".splat", ".spz", ".glb", ".ply"])
def test_any_format_to_any_other(splats: Path, tmp_path: Path, suffix: str) -> None:
    first = tmp_path / f"a{suffix}"
    said = convert(ConvertConfig(splats, first))
    assert ("no view-dependent colour: SH degree 1 became 0" in said) == (suffix == ".splat")
    assert f"{first}: 300 splats" in said
    convert(ConvertConfig(first, tmp_path / "b.ply", rotate="180,0,0" if suffix == ".glb" else "0,0,0"))
    before, after = read_splats(splats).splats, read_splats(tmp_path / "b.ply").splats
    np.testing.assert_allclose(after.means, before.means, atol=2e-5)
    np.testing.assert_allclose(after.opacities, before.opacities, atol=0.6 / 255)


def test_cleaning(tmp_path: Path, capsys) -> None:
    source = random_splats(1000, 0).replace(log_scales=np.full((1000, 3), np.log(0.03), np.float32))
    means, log_scales = source.means.copy(), source.log_scales.copy()
    means[:10] *= 100.0
    log_scales[20:25, 1] = np.log(0.9)
    means[30:46, 1] = np.nan
    write_ply(tmp_path / "a.ply", source.replace(means=means, log_scales=log_scales))
    out = tmp_path / "b.ply"
    said = convert(ConvertConfig(tmp_path / "a.ply", out, drop_floaters=True, cap_needles=True))
    assert "16 of 1000 splats were left out (nan_position: 16)." in said
    assert "10 floaters were left out." in said and "5 needles were shortened." in said
    after = read_splats(out).splats
    assert len(after) == 974
    assert "0 needles" in convert(ConvertConfig(out, tmp_path / "c.ply", cap_needles=True))
    limit = max(0.05 * np.ptp(after.means, axis=0).max(), 0.3)
    np.testing.assert_allclose(after.scales.max(), limit, rtol=0.02)
    np.testing.assert_array_equal(np.sort(after.log_scales, axis=1)[:, :2], np.float32(np.log(0.03)))
    assert main(["convert", str(tmp_path / "a.ply"), str(tmp_path / "d.ply"), "--no-filter-nan"]) == 2
    assert "16 of 1000 splats are not usable (nan_position: 16). --filter-nan leaves" in capsys.readouterr().err
    assert not (tmp_path / "d.ply").exists()


def test_a_mesh_goes_into_a_glb_with_its_skin_or_another_rig(mesh: Path, tmp_path: Path) -> None:
    convert(ConvertConfig(mesh, tmp_path / "a.glb", scale=2.0, translate="0,0,5"))
    moved, model = read_gltf(tmp_path / "a.glb"), read_gltf(mesh)
    clip, again = model.animations["bow"].sample(0.7), moved.animations["bow"].sample(0.7)
    wanted = 2.0 * model.posed(clip)[model.faces] + [0, 0, 5]
    np.testing.assert_allclose(moved.posed(again)[moved.faces], wanted, atol=1e-5)
    convert(ConvertConfig(mesh, tmp_path / "b.glb", rig=mesh))
    np.testing.assert_allclose(read_gltf(tmp_path / "b.glb").skin.dense(), model.skin.dense(), atol=1e-6)


def test_moves_come_in_the_stated_order(splats: Path, tmp_path: Path) -> None:
    matrix = "1,0,0,1, 0,0,1,0, 0,1,0,0"
    config = ConvertConfig(
        splats, tmp_path / "a.ply", transform=matrix, scale=3.0, rotate="20,-30,70", translate="1,2,3"
    )
    convert(config)
    before, after = read_splats(splats).splats, read_splats(tmp_path / "a.ply").splats
    turn = Rotation.from_euler("xyz", [20, -30, 70], degrees=True).as_matrix()
    first = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    wanted = 3.0 * (before.means @ first.T + [1, 0, 0]) @ turn.T + [1, 2, 3]
    np.testing.assert_allclose(after.means, wanted, atol=1e-5)
    np.testing.assert_allclose(np.sort(after.scales, axis=1), 3.0 * np.sort(before.scales, axis=1), rtol=1e-4)
    axes = [
        quaternions_to_matrices(s.quaternions)[np.arange(300), :, s.log_scales.argmax(axis=1)] for s in (before, after)
    ]
    np.testing.assert_allclose(np.abs(np.einsum("nd,nd->n", axes[0] @ (turn @ first).T, axes[1])), 1.0, atol=1e-3)
    (tmp_path / "m.txt").write_text("1 0 0 1\n0 0 1 0\n0 1 0 0\n0 0 0 1\n")
    named = placement_of(str(tmp_path / "m.txt"), 1.0, "0,0,0", "0,0,0")
    np.testing.assert_array_equal(named[:3, 3], [1, 0, 0])


def test_far_away_captures_keep_their_digits() -> None:
    far = random_splats(100, 0).replace(offset=(4e6, 0.0, -7e6))
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_rotvec([0, 0.5, 0]).as_matrix()
    moved = moved_splats(far, turn)
    wanted = (far.means.astype(float) + far.offset) @ turn[:3, :3].T
    np.testing.assert_allclose(moved.means.astype(float) + moved.offset, wanted, atol=1e-6)
    home = np.eye(4)
    home[:3, 3] = [-4e6, 0, 7e6]
    np.testing.assert_allclose(moved_splats(far, home).means, far.means, atol=1e-5)
    assert moved_splats(far, home).offset == (0.0, 0.0, 0.0)


def test_crop_and_count(splats: Path, tmp_path: Path) -> None:
    convert(ConvertConfig(splats, tmp_path / "a.ply", crop="-1,-1,-1,0,1,1"))
    half = read_splats(tmp_path / "a.ply").splats
    before = read_splats(splats).splats
    np.testing.assert_array_equal(half.means, before.means[before.means[:, 0] <= 0])
    convert(ConvertConfig(splats, tmp_path / "b.ply", count=40))
    few = read_splats(tmp_path / "b.ply").splats
    cover = before.opacities * np.exp(np.sort(before.log_scales, axis=1)[:, 1:].sum(axis=1))
    np.testing.assert_array_equal(few.means, before.means[np.sort(np.argsort(-cover)[:40])])
    convert(ConvertConfig(splats, tmp_path / "c.ply", count=4000))
    assert len(read_splats(tmp_path / "c.ply").splats) == 300


def test_bad_input_is_said_and_ends_with_code_2(mesh: Path, splats: Path, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "x.ply")
    cases = [
        ([str(splats), str(tmp_path / "x.obj")], ".obj cannot be written. Write .ply, .splat, .spz, .glb."),
        ([str(tmp_path / "gone.glb"), out], "no such file"),
        ([str(splats), out, "--count", "0"], "--count 0: give a positive number"),
        ([str(splats), out, "--crop", "0,0,0,1,1"], "--crop '0,0,0,1,1': 6 numbers with commas"),
        ([str(splats), out, "--crop", "5,5,5,6,6,6"], "no splat has its centre in this box; they fill"),
        ([str(splats), out, "--rotate", "90"], "--rotate '90': 3 numbers"),
        ([str(splats), out, "--translate", "1,2,inf"], "--translate"),
        ([str(splats), out, "--scale", "-1"], "--scale -1.0: a positive number"),
        ([str(splats), out, "--transform", "1,2,3"], "--transform '1,2,3': 12 numbers"),
        ([str(splats), out, "--transform", ",".join("0" * 12)], "the matrix flattens space"),
        ([str(splats), out, "--transform", ",".join("1" * 16)], "the last row must be 0 0 0 1"),
        ([str(splats), out, "--rig", str(mesh)], "--rig goes into a .glb"),
        ([str(splats), out, "--up", "north"], "Up axis 'north' is unknown"),
        ([str(mesh), str(tmp_path / "x.glb"), "--count", "5"], "a mesh goes into a .glb whole"),
        ([str(mesh), str(tmp_path / "no" / "x.ply"), "--count", "50"], "does not exist. Create it"),
    ]
    for arguments, text in cases:
        assert main(["convert", *arguments]) == 2, arguments
        said = capsys.readouterr().err
        assert text in said and "Traceback" not in said
    assert not list(tmp_path.glob("x.*"))


def test_a_rig_elsewhere_is_refused(mesh: Path, splats: Path, tmp_path: Path) -> None:
    convert(ConvertConfig(splats, tmp_path / "far.ply", translate="50,0,0"))
    with pytest.raises(InputError, match="does not lie on the splats: its bind pose fills 0 0 0 to 1 2 0, they fill"):
        convert(ConvertConfig(tmp_path / "far.ply", tmp_path / "a.glb", rig=mesh))
