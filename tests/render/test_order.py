from __future__ import annotations

import numpy as np

from splatanim.render.order import morton_order


def test_a_permutation_that_brings_neighbours_together() -> None:
    points = np.random.default_rng(0).uniform(-3, 5, (4000, 3))
    order = morton_order(points)
    assert np.array_equal(np.sort(order), np.arange(4000))
    before = np.linalg.norm(np.diff(points, axis=0), axis=1).mean()
    after = np.linalg.norm(np.diff(points[order], axis=0), axis=1).mean()
    assert after < 0.15 * before


def test_the_z_curve_on_a_small_grid() -> None:
    grid = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], float)
    shuffled = np.random.default_rng(1).permutation(8)
    assert np.array_equal(shuffled[morton_order(grid[shuffled])], np.arange(8))


def test_bad_rows_come_last_and_nothing_breaks() -> None:
    points = np.random.default_rng(2).normal(size=(10, 3))
    points[3, 1], points[7, 0] = np.nan, np.inf
    assert set(morton_order(points)[-2:]) == {3, 7}
    assert np.array_equal(morton_order(np.full((3, 3), np.nan)), np.arange(3))
    assert np.array_equal(morton_order(np.ones((4, 3))), np.arange(4))
    assert len(morton_order(np.empty((0, 3)))) == 0
