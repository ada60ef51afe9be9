"""Framing: floaters and huge splats move neither bounds nor size, parts of the object stay."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats import ReadResult, read_splats
from splatanim.inspect import analyse, floater_mask, needle_mask, robust_bounds, up_vector

DATA = Path(os.environ.get("SPLATANIM_DATA", Path(__file__).parents[2] / "shared" / "data")) / "splats"
RNG_SEED = 6


def cloud(means: np.ndarray, scale: float | np.ndarray = 0.03, opacity: float | np.ndarray = 2.2) -> Splats:
    n = len(means)
    rng = np.random.default_rng(RNG_SEED)
    q = rng.normal(size=(n, 4))
    log_scales = np.broadcast_to(np.log(scale), (n,))[:, None].repeat(3, axis=1)
    return Splats(
        np.asarray(means, np.float32),
        (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(np.float32),
        log_scales.astype(np.float32),
        np.full(n, opacity, np.float32) if np.isscalar(opacity) else np.asarray(opacity, np.float32),
        rng.normal(size=(n, 1, 3)).astype(np.float32),
    )


def join(*parts: Splats) -> Splats:
    names = ("means", "quaternions", "log_scales", "raw_opacities", "sh")
    return Splats(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


def box(n: int = 1000, seed: int = 0, centre: tuple[float, float, float] = (0, 0, 0), half: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-half, half, (n, 3)) + centre


def shell(n: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [300, 1000, 20_000])
@pytest.mark.parametrize("make", [box, shell])
@pytest.mark.parametrize("distance", [3, 100, 1e6])
def test_ten_floaters_change_nothing(n, make, distance):
    points = make(n)
    floaters = cloud(shell(10, 1) * distance * np.random.default_rng(2).uniform(1, 2, (10, 1)), distance / 5, 5.0)
    splats = join(cloud(points), floaters)
    np.testing.assert_array_equal(floater_mask(splats), np.arange(n + 10) >= n)
    low, high = robust_bounds(splats)
    np.testing.assert_allclose([low, high], [points.min(0), points.max(0)], atol=1e-6)


def test_floaters_on_one_side_in_one_heap():
    splats = join(cloud(box()), cloud(box(15, 3, (80, 0, 0), 0.2)))
    np.testing.assert_array_equal(floater_mask(splats), np.arange(1015) >= 1000)


def test_oversize_splats_inside_the_object_are_floaters():
    splats = join(cloud(box()), cloud(box(3, 1, half=0.1), 5.0))
    np.testing.assert_array_equal(np.flatnonzero(floater_mask(splats)), [1000, 1001, 1002])


@pytest.mark.parametrize("count", [50, 400])
def test_detached_but_substantial_parts_stay(count):
    points = np.concatenate([box(), box(count, 3, (12, 0, 0), 0.4)])
    splats = cloud(points)
    assert not floater_mask(splats).any()
    np.testing.assert_allclose(robust_bounds(splats)[1], points.max(axis=0), atol=1e-6)


@pytest.mark.parametrize("n", [1000, 100_000])
def test_specks_close_by_stay(n):
    assert not floater_mask(join(cloud(box(n)), cloud(np.array([[1.15, 0, 0], [0, -1.2, 0]])))).any()


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((1, 3)),
        np.eye(3),
        np.zeros((5, 3)),
        np.linspace(0, 1, 50)[:, None] * [1, 0, 0],
        box(4) * 1e14,
        box(50) * 1e-28,
    ],
)
def test_few_or_degenerate_splats_are_no_floaters(points):
    splats = cloud(points, 1.0)
    assert not floater_mask(splats).any()
    np.testing.assert_allclose(robust_bounds(splats), [points.min(0), points.max(0)], rtol=1e-6)


def test_transparent_haze_does_not_widen_the_bounds():
    haze = cloud(box(200, 4, half=1.2), 0.03, -5.0)
    low, high = robust_bounds(join(cloud(box()), haze))
    assert np.abs([low, high]).max() <= 1
    low, high = robust_bounds(haze)  # where nothing is visible, everything counts
    assert high.max() > 1.1


def test_needles_are_long_and_thin():
    splats = cloud(box(5), 0.03)
    scales = np.log([[0.3, 0.02, 0.02], [0.3, 0.2, 0.001], [0.03, 0.001, 0.001], [0.02, 0.02, 0.3], [0.1, 0.02, 0.02]])
    splats = splats.replace(log_scales=scales.astype(np.float32))
    np.testing.assert_array_equal(needle_mask(splats, 2.0), [True, False, False, True, False])


def test_report_of_a_scene_with_everything():
    splats = join(cloud(box(983)), cloud(shell(4) * 100, 20.0)).replace(offset=(5e5, 4.5e6, 100.0))
    result = ReadResult(splats, "ply/3dgs", 1004, {"nan_position": 16, "nan_opacity": 1}, ("a note",))
    report = json.loads(json.dumps(analyse(result, file=Path("a.ply")).to_json()))
    assert list(report)[:10] == [
        *("file", "format", "splats", "kept", "dropped", "sh_degree", "bounds", "size", "up", "up_source"),
    ]
    assert (report["file"], report["format"], report["sh_degree"]) == ("a.ply", "ply/3dgs", 0)
    assert (report["splats"], report["kept"], report["floaters"], report["needles"]) == (1004, 987, 4, 0)
    assert report["dropped"] == {"nan_position": 16, "nan_opacity": 1}
    np.testing.assert_allclose(report["bounds"][0], [5e5 - 1, 4.5e6 - 1, 99], atol=0.02)
    np.testing.assert_allclose(report["bounds"][1], [5e5 + 1, 4.5e6 + 1, 101], atol=0.02)
    assert report["size"] == pytest.approx(2, abs=0.02)
    assert report["scale_quantiles"] == pytest.approx([0.03] * 3)
    assert report["opacity_quantiles"] == pytest.approx([0.90025] * 3, abs=1e-4)
    assert report["warnings"][0] == "a note"
    assert report["warnings"][1].startswith("17 of 1004 splats were dropped (nan_position: 16, nan_opacity: 1)")
    assert report["warnings"][2].startswith("4 splats are floaters")


@pytest.mark.parametrize(
    ("asked", "stated", "up", "source"),
    [(None, None, "-y", "convention"), (None, "+z", "+z", "header"), ("+x", "+z", "+x", "asked")],
)
def test_up_axis(asked, stated, up, source):
    result = ReadResult(cloud(box(50)), "ply/3dgs", 50, up=stated)
    report = analyse(result, up=asked)
    assert report.up == up and report.up_source.startswith(source)


def test_up_vector():
    assert [up_vector(u) for u in ("+z", "z", "-y", "-x")] == [(0, 0, 1), (0, 0, 1), (0, -1, 0), (-1, 0, 0)]
    for wrong in ("", "w", "+", "yy", "--y"):
        with pytest.raises(InputError, match=r"is unknown\. Give one of \+x, -x"):
            up_vector(wrong)
    with pytest.raises(InputError, match="Up axis 'up' is unknown"):
        analyse(ReadResult(cloud(box(50)), "ply/3dgs", 50), up="up")


@pytest.mark.skipif(not DATA.is_dir(), reason=f"captures not found in {DATA} (set SPLATANIM_DATA)")
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("playbot_8k_sh2", (-1.03, -1.08, -1.04), (1.03, 0.04, 1.04)),
        ("playbot_31k_sh2", (-1.03, -1.08, -1.04), (1.03, 0.04, 1.04)),
        ("guitar_91k_sh0", (-0.61, -4.29, -0.53), (0.81, 0.09, 0.91)),
    ],
)
@pytest.mark.parametrize("add_floaters", [False, True])
def test_captures_keep_every_splat_and_their_bounds(name, low, high, add_floaters):
    splats = read_splats(DATA / f"{name}.ply").splats
    n = len(splats)
    if add_floaters:
        flat = splats.replace(sh=splats.sh[:, :1], extras={})
        splats = join(flat, cloud(shell(10) * 200, 30.0, 6.0))
    np.testing.assert_array_equal(floater_mask(splats), np.arange(len(splats)) >= n)
    np.testing.assert_allclose(robust_bounds(splats), [low, high], atol=0.02)
