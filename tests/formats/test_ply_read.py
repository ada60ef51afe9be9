"""Reading .ply: every dialect against the columns it was made from, and every row that must go."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from ply_files import columns, ply_bytes, save

from splatanim.errors import InputError
from splatanim.formats import read_splats
from splatanim.formats.ply import read_ply

DATA = Path(os.environ.get("SPLATANIM_DATA", Path(__file__).parents[3] / "shared" / "data")) / "splats"
C0 = 0.28209479177387814
ENCODINGS = ("ascii", "binary_little_endian", "binary_big_endian")


def stack(table, *names):
    return np.stack([table[n] for n in names], axis=1)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_every_encoding_in_any_column_order(tmp_path, encoding, newline, kind):
    table = columns(40)
    names = list(table)
    np.random.default_rng(1).shuffle(names)
    shuffled = {n: table[n].astype(kind) for n in names}
    path = save(
        tmp_path,
        shuffled,
        encoding=encoding,
        newline=newline,
        comments=("made by a test", "end_header"),
        face_before=True,
        face_after=True,
    )
    result = read_ply(path)
    s = result.splats
    assert (result.format, result.total, result.dropped, result.warnings) == ("ply/3dgs", 40, {}, ())
    np.testing.assert_array_equal(s.means, stack(table, "x", "y", "z"))
    np.testing.assert_array_equal(s.raw_opacities, table["opacity"])
    np.testing.assert_array_equal(s.log_scales, stack(table, "scale_0", "scale_1", "scale_2"))
    np.testing.assert_allclose(s.quaternions, stack(table, "rot_0", "rot_1", "rot_2", "rot_3"), atol=2e-7)
    np.testing.assert_array_equal(s.sh[:, 0], stack(table, "f_dc_0", "f_dc_1", "f_dc_2"))
    assert sorted(s.extras) == ["nx", "ny", "nz"] and s.offset == (0, 0, 0)
    assert all(a.dtype == np.float32 for a in (s.means, s.quaternions, s.log_scales, s.raw_opacities, s.sh))


def test_cr_header_before_data_that_begin_with_a_line_feed(tmp_path):
    table = columns(4, degree=0)
    table["x"][0] = np.frombuffer(b"\n\0\0\x3f", "<f4")[0]
    means = read_ply(save(tmp_path, table, newline="\r")).splats.means
    np.testing.assert_array_equal(means, stack(table, "x", "y", "z"))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_f_rest_is_channel_major(tmp_path, degree):
    table = columns(5, degree=degree)
    count = (degree + 1) ** 2 - 1
    for i in range(3 * count):
        table[f"f_rest_{i}"][:] = i
    sh = read_ply(save(tmp_path, table)).splats.sh
    assert sh.shape == (5, count + 1, 3)
    expected = [[channel * count + k for channel in range(3)] for k in range(count)]
    np.testing.assert_array_equal(sh[2, 1:], np.reshape(expected, (count, 3)))


def test_more_rows_than_a_chunk_keep_their_order(tmp_path):
    table = columns(20_000, degree=0) | {"label": np.arange(20_000, dtype="u4")}
    splats = read_ply(save(tmp_path, table)).splats
    np.testing.assert_array_equal(splats.extras["label"], np.arange(20_000))
    np.testing.assert_array_equal(splats.means[:, 1], table["y"])


def test_extras_keep_their_types_and_follow_the_rows(tmp_path):
    table = columns(10, degree=0) | {
        "label": np.arange(10, dtype="u1"),
        "time": np.linspace(0, 1e9, 10).astype("f8"),
        "red": np.full(10, 9, "u1"),  # not a colour, since f_dc is there
        "green": np.full(10, 9, "u1"),
        "blue": np.full(10, 9, "u1"),
    }
    table["x"][3] = np.nan
    extras = read_ply(save(tmp_path, table, encoding="binary_big_endian")).splats.extras
    assert {k: v.dtype.str for k, v in extras.items() if k[0] != "n"} == {
        "label": "|u1",
        "time": "<f8",
        "red": "|u1",
        "green": "|u1",
        "blue": "|u1",
    }
    np.testing.assert_array_equal(extras["label"], [0, 1, 2, 4, 5, 6, 7, 8, 9])
    np.testing.assert_array_equal(extras["time"], np.delete(table["time"], 3))


def test_mip_splatting_filter_is_folded_in(tmp_path):
    rng = np.random.default_rng(2)
    table = columns(50, degree=0)
    for name in ("scale_0", "scale_1", "scale_2"):
        table[name] = rng.normal(-3, 1, 50).astype("f4")
    table["opacity"] = rng.normal(0, 3, 50).astype("f4")
    table["filter_3D"] = rng.uniform(0, 0.1, 50).astype("f4")
    table["filter_3D"][:2] = 0
    result = read_ply(save(tmp_path, table))
    s = np.exp(stack(table, "scale_0", "scale_1", "scale_2").astype("f8"))
    folded = np.sqrt(s**2 + table["filter_3D"].astype("f8")[:, None] ** 2)
    alpha = 1 / (1 + np.exp(-table["opacity"].astype("f8"))) * np.sqrt((s**2).prod(1) / (folded**2).prod(1))
    assert np.median(alpha * (1 + np.exp(-table["opacity"]))) < 0.6  # the filter does something
    np.testing.assert_allclose(result.splats.scales, folded, rtol=1e-5)
    np.testing.assert_allclose(result.splats.opacities, alpha, rtol=1e-4)
    np.testing.assert_array_equal(result.splats.raw_opacities[:2], table["opacity"][:2])
    assert "filter_3D" not in result.splats.extras
    assert result.format == "ply/mip-splatting" and "folded" in result.warnings[0]


def test_2dgs_gets_a_thin_third_scale(tmp_path):
    table = columns(20, degree=1)
    del table["scale_2"]
    table["scale_1"][:] = np.log(0.06)
    result = read_ply(save(tmp_path, table))
    np.testing.assert_allclose(result.splats.scales, np.tile([0.03, 0.06, 0.0003], (20, 1)), rtol=1e-5)
    assert result.format == "ply/2dgs" and "scale_2 is missing" in result.warnings[0]


def test_rgb_becomes_the_constant_coefficient(tmp_path):
    table = columns(3, degree=0)
    for i, name in enumerate(("red", "green", "blue")):
        del table[f"f_dc_{i}"]
        table[name] = np.array([0, 51, 255], "u1")
    result = read_ply(save(tmp_path, table))
    expected = (np.array([0, 51, 255]) / 255 - 0.5) / C0
    np.testing.assert_allclose(result.splats.sh[:, 0, 1], expected, rtol=1e-6)
    assert result.format == "ply/rgb" and "red" not in result.splats.extras and "f_dc" in result.warnings[0]


def test_nan_rows_are_dropped_and_counted(tmp_path):
    table = columns(1000, degree=0)
    table["x"][:10], table["z"][5:16] = np.nan, np.nan
    table["opacity"][500] = np.nan
    result = read_ply(save(tmp_path, table))
    assert (len(result.splats), result.total) == (983, 1000)
    assert result.dropped == {"nan_position": 16, "nan_opacity": 1}
    np.testing.assert_array_equal(result.splats.means[:, 1], np.delete(table["y"], [*range(16), 500]))


def test_one_reason_a_row_and_all_reasons(tmp_path):
    table = columns(30, degree=1)
    for row, name in enumerate(["y", "scale_1", "rot_3", "opacity", "f_dc_2", "f_rest_8"]):
        table[name][row] = np.nan
        table["f_rest_0"][row] = np.inf
    table["x"][6], table["scale_0"][7], table["rot_0"][8] = -np.inf, 90, np.inf
    for i in range(4):
        table[f"rot_{i}"][9] = 0
    result = read_ply(save(tmp_path, table))
    assert result.dropped == {
        "nan_position": 2,
        "nan_scale": 2,
        "nan_rotation": 2,
        "nan_opacity": 1,
        "nan_sh": 2,
        "zero_quaternion": 1,
    }
    assert len(result.splats) == 20


def test_infinite_opacities_stay_as_finite_logits(tmp_path):
    table = columns(10)
    table["opacity"][:3] = [np.inf, -np.inf, 37]
    result = read_ply(save(tmp_path, table))
    np.testing.assert_array_equal(result.splats.raw_opacities[:4], np.float32([10, -10, 37, 2.2]))
    assert not result.dropped and result.warnings[0].startswith("2 infinite opacities")


def test_quaternions_are_normalised(tmp_path):
    table = columns(10)
    for i in range(4):
        table[f"rot_{i}"] *= np.float32(1e-6) * (1 + np.arange(10, dtype="f4"))
    q = read_ply(save(tmp_path, table)).splats.quaternions
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(q, stack(columns(10), "rot_0", "rot_1", "rot_2", "rot_3"), atol=1e-6)


def test_far_off_scene_is_recentred_in_double(tmp_path):
    shift = (5e5, 4.5e6, 100.0)
    near = columns(500, degree=0)
    table = near | {name: near[name].astype("f8") + s for name, s in zip("xyz", shift)}
    result = read_ply(save(tmp_path, table))
    splats = result.splats
    assert np.abs(splats.means).max() < 3 and "recentred" in result.warnings[0]
    exact = stack(table, "x", "y", "z")
    np.testing.assert_allclose(splats.means.astype("f8") + splats.offset, exact, rtol=0, atol=2e-7)


@pytest.mark.filterwarnings("error")
def test_degenerate_numbers_pass_without_a_warning(tmp_path):
    table = columns(3, degree=0)
    for name in "xyz":
        table[name][:] = 1234.5  # all in one place, without an extent
    for name in ("scale_0", "scale_1", "scale_2"):
        table[name][:] = -1e38
    table["rot_0"].view("u4")[0] = 0x7FA00000  # a signalling NaN
    result = read_ply(save(tmp_path, table))
    assert result.dropped == {"nan_rotation": 1}
    np.testing.assert_array_equal(result.splats.means + np.asarray(result.splats.offset), 1234.5)


@pytest.mark.parametrize(
    ("comment", "up"),
    [
        ("Vertical Axis: z", "+z"),
        ("vertical axis: Y", "+y"),
        ("Vertical Axis: -y", "-y"),
        ("Generated by Vertical Software", None),
    ],
)
def test_up_axis_comes_from_the_header(tmp_path, comment, up):
    assert read_ply(save(tmp_path, columns(3), comments=("first", comment))).up == up


def test_anti_aliased_training_is_reported(tmp_path):
    warnings = read_ply(save(tmp_path, columns(3), comments=("SplatRenderMode: mip",))).warnings
    assert "anti-aliased" in warnings[0]


@pytest.mark.parametrize("opacity", ["constant", "varied"])
def test_activated_values_are_refused(tmp_path, opacity):
    table = columns(1000)
    for name in ("scale_0", "scale_1", "scale_2"):
        table[name] = np.exp(table[name])
    table["opacity"][:] = 0.9 if opacity == "constant" else np.random.default_rng(3).uniform(0, 1, 1000)
    with pytest.raises(InputError, match=r"splats\.ply: .*activated already.*log\(scale\).*log\(opacity"):
        read_ply(save(tmp_path, table))


@pytest.mark.parametrize(
    ("scale", "opacity"), [(np.log(0.03), 0.5), (np.log(1.5), 2.2), (np.log(1.5), 0.5), (0.0, 1.0)]
)
def test_raw_values_are_not_taken_for_activated(tmp_path, scale, opacity):
    table = columns(200, degree=0)
    for name in "xyz":
        table[name] *= 100
    for name in ("scale_0", "scale_1", "scale_2"):
        table[name][:] = scale
    table["opacity"][:] = opacity
    assert len(read_ply(save(tmp_path, table)).splats) == 200


@pytest.mark.skipif(not DATA.is_dir(), reason=f"captures not found in {DATA} (set SPLATANIM_DATA)")
@pytest.mark.parametrize(
    ("name", "count", "degree"),
    [("playbot_8k_sh2", 8406, 2), ("playbot_31k_sh2", 31000, 2), ("guitar_91k_sh0", 90854, 0)],
)
def test_real_captures(name, count, degree):
    result = read_splats(DATA / f"{name}.ply")
    assert (result.total, len(result.splats), result.splats.sh_degree) == (count, count, degree)
    assert result.warnings == () and result.up is None
    np.testing.assert_allclose(np.linalg.norm(result.splats.quaternions, axis=1), 1, atol=1e-5)


def test_a_repeated_read_of_a_shorter_file_sees_the_new_rows(tmp_path):
    path = save(tmp_path, columns(50))
    first = read_ply(path).splats.means.copy()
    path.write_bytes(ply_bytes(columns(20, seed=9)))
    assert len(read_ply(path).splats) == 20 and len(first) == 50
