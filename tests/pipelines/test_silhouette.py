"""The bar of the silhouette comparison: closed forms of its deformations, and the comparison itself, small."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines import silhouette
from pipelines.silhouette import EXTENT, MOTIONS, bar_surface, compare, covered, main, splat_bar
from splatanim.render.camera import look_at


def _axis(count: int = 2001) -> np.ndarray:
    return np.stack([np.linspace(-0.5, 0.5, count), np.zeros(count), np.zeros(count)], axis=1)


def test_the_bend_is_a_quarter_circle_of_the_bars_length() -> None:
    moved = silhouette.bend(_axis())
    steps = np.linalg.norm(np.diff(moved, axis=0), axis=1)
    assert steps.sum() == pytest.approx(EXTENT[0], rel=1e-6) and np.ptp(steps) < 1e-9
    first, last = moved[1] - moved[0], moved[-1] - moved[-2]
    assert first @ last == pytest.approx(0.0, abs=1e-6)
    section = np.array([[0.3, y, z] for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    sides = np.linalg.norm(silhouette.bend(section)[:, None] - silhouette.bend(section)[None], axis=2)
    np.testing.assert_allclose(sides, np.linalg.norm(section[:, None] - section[None], axis=2), atol=1e-12)


def test_the_stretch_is_threefold_and_keeps_the_volume() -> None:
    assert np.ptp(silhouette.stretch(_axis())[:, 0]) == pytest.approx(3.0 * EXTENT[0], rel=1e-6)
    h = 1e-6
    for x in (-0.37, 0.0, 0.21):
        at = np.array([x, 0.03, -0.07])
        ends = np.concatenate([at + h * np.eye(3), at - h * np.eye(3)])
        moved = silhouette.stretch(ends)
        assert np.linalg.det((moved[:3] - moved[3:]) / (2 * h)) == pytest.approx(1.0, rel=1e-6)


def test_the_twist_turns_one_end_against_the_other_by_half_a_turn() -> None:
    ends = np.array([[-0.5, 0.1, 0.0], [0.5, 0.1, 0.0]])
    moved = silhouette.twist(ends)[:, 1:]
    np.testing.assert_allclose(moved[0], -moved[1], atol=1e-12)
    np.testing.assert_array_equal(MOTIONS["rest"](ends), ends)


def test_the_bar_has_needles_and_stays_within_itself() -> None:
    bar = splat_bar(5000, 0)
    scales = np.sort(bar.scales, axis=1)
    aspect = scales[:, 2] / scales[:, 1]
    assert 0.04 < (aspect > 7.9).mean() < 0.1 and 10 < aspect.max() < 41
    from splatanim.rotations import quaternions_to_matrices

    reach = np.abs(quaternions_to_matrices(bar.quaternions)[:, :, 0]) * 2.0 * bar.scales[:, :1]
    assert (np.abs(bar.means) + reach < 0.5 * EXTENT + 0.01).all()
    points, normal = bar_surface(1000, np.random.default_rng(0))
    np.testing.assert_allclose(np.abs(points[np.arange(1000), normal]), 0.5 * EXTENT[normal])
    np.testing.assert_array_equal(bar.means, splat_bar(5000, 0).means)


def test_an_outline_counts_what_lies_outside_of_it() -> None:
    points, _ = bar_surface(200_000, np.random.default_rng(0))
    camera = look_at((0.0, -4.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0), width=128, height=128)
    true = covered(points, camera)
    assert 0.9 < true.sum() / (camera.fx**2 * EXTENT[0] * EXTENT[2] / 3.9**2) < 1.15
    bar = splat_bar(4000, 0)
    figures, pictures = compare(bar, points, [camera], 2)
    assert figures[0][0] < 0.01 and figures[0][1] < 0.01 and pictures[0].shape == (256, 128, 3)
    half = points[points[:, 0] < 0]
    assert compare(bar, half, [camera], 2)[0][0][0] == pytest.approx(0.5, abs=0.06)
    assert compare(bar.select(bar.means[:, 0] < -0.1), points, [camera], 2)[0][0][1] > 0.3


@pytest.mark.slow
def test_split_splats_keep_to_the_outline(tmp_path, capsys) -> None:
    assert main(["--splats", "6000", "--size", "160", "--dilation", "1", "--output", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert "split for the pose" in table and (tmp_path / "bend.png").is_file()
    import json

    rows = {(r["way"], r["motion"]): r for r in json.loads((tmp_path / "silhouette.json").read_text())}
    for motion in ("bend", "twist", "stretch"):
        before, after = rows["as bound", motion], rows["split for the pose", motion]
        assert after["outside"] <= 0.5 * before["outside"] and after["splats"] > before["splats"]
    assert rows["as bound", "stretch"]["outside"] > 0.002  # there is something to improve
