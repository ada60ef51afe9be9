"""Farthest-point sampling and surface samples."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Mesh
from splatanim.errors import InputError
from splatanim.sampling.surface import directions, farthest_points, sample_surface, support_extremes
from tests.sampling.shapes import ball_mesh, box_mesh, sphere_surface


def test_farthest_points_agree_with_the_definition() -> None:
    points = np.random.default_rng(0).normal(size=(200, 3))
    chosen = farthest_points(points, 40, start=7)
    assert chosen[0] == 7
    for k in range(1, 40):
        distance = np.linalg.norm(points[:, None] - points[chosen[:k]], axis=2).min(axis=1)
        assert distance[chosen[k]] == pytest.approx(distance.max())


def test_farthest_points_take_given_starts_and_never_repeat() -> None:
    points = np.repeat(np.random.default_rng(0).normal(size=(10, 3)), 5, axis=0)
    chosen = farthest_points(points, 50, start=np.array([3, 17, 3]))
    assert chosen[:2].tolist() == [3, 17]
    assert sorted(chosen.tolist()) == list(range(50))
    assert len(np.unique(points[chosen[:11]], axis=0)) == 10  # distinct places first (3 and 17 differ)
    assert len(farthest_points(points, 1000)) == 50
    assert len(farthest_points(points[:0], 5)) == 0


def test_farthest_points_on_a_sphere_are_evenly_spread() -> None:
    points, _ = sphere_surface(1.0, 20_000)
    chosen = points[farthest_points(points, 256)]
    apart = np.linalg.norm(chosen[:, None] - chosen[None], axis=2) + 9 * np.eye(256)
    assert apart.min(axis=1).min() > 0.7 * np.sqrt(4 * np.pi / 256)


def test_support_extremes_find_the_corners_of_a_box() -> None:
    points = np.concatenate([np.random.default_rng(0).uniform(-1, 1, (500, 3)), box_mesh((2.2, 2.2, 2.2)).vertices])
    assert set(range(500, 508)) <= set(support_extremes(points, (0, 0, 1)).tolist())
    assert np.allclose(np.linalg.norm(directions((0, -1, 0)), axis=1), 1)
    assert len(directions((0, -1, 0))) >= 26


def test_surface_samples_are_uniform_and_lie_on_the_mesh() -> None:
    points, normals = sample_surface(box_mesh((2, 1, 1)), 40_000, seed=1, sharp_fraction=0.0)
    half = np.array([1, 0.5, 0.5])
    on = np.abs(np.abs(points) - half) < 1e-12
    assert on.any(axis=1).all()
    share = np.mean(np.abs(points[:, 0]) > 1 - 1e-12)
    assert share == pytest.approx(2 / 10, abs=0.01)  # two of 1 x 1, four of 2 x 1
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1)
    assert ((points * normals).sum(axis=1) > 0.49).all()


def test_sharp_edges_get_their_share_and_smooth_ones_none() -> None:
    points, normals = sample_surface(box_mesh((1, 1, 1)), 1000, seed=0, sharp_fraction=0.3)
    edge = (np.abs(np.abs(points) - 0.5) < 1e-9).sum(axis=1) >= 2
    assert edge.sum() == 300
    np.testing.assert_allclose(np.abs(normals[edge]).max(axis=1), np.sqrt(0.5), atol=1e-9)
    flat = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0]])
    points, _ = sample_surface(Mesh(flat, np.array([[0, 1, 2], [0, 2, 3]])), 500, seed=0, sharp_fraction=0.3)
    assert (np.abs(points[:, 0] - points[:, 1]) > 1e-9).all()  # none on the diagonal of the square
    points, _ = sample_surface(ball_mesh(0.5), 500, seed=0, sharp_fraction=0.5)
    assert len(points) == 500


def test_same_seed_same_samples() -> None:
    first, second, other = (sample_surface(ball_mesh(0.5), 300, seed=s)[0] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-3


def test_no_area_is_an_error() -> None:
    with pytest.raises(InputError, match="none of its 1 triangles has an area"):
        sample_surface(Mesh(np.zeros((3, 3)), np.array([[0, 1, 2]])), 10)
