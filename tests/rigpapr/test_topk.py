"""The K nearest points of a ray, against brute force in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rigpapr.topk import camera_rays, nearest_points, nearest_points_torch
from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at


def camera(width: int = 48, height: int = 32, **changes: object) -> Camera:
    shot = look_at((0.3, 0.4, 3.0), (0, 0, 0), (0, 1, 0), width=width, height=height, focal=60.0)
    return dataclasses.replace(shot, **changes)


def pixels(shot: Camera, count: int = 200, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    size = np.array([shot.width, shot.height])
    return size / 2 + spread * (rng.uniform(0, 1, (count, 2)) - 0.5) * size


def brute_force(points: np.ndarray, shot: Camera, xy: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    centre, directions = camera_rays(shot, xy)
    p = points.astype(np.float64)
    local = p @ shot.T_camera_world[:3, :3].T + shot.T_camera_world[:3, 3]
    distance = np.linalg.norm(np.cross(p[None] - centre, directions[:, None]), axis=-1)
    distance[:, ~(local[:, 2] >= shot.near)] = np.inf
    order = np.argsort(distance, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(distance, order, axis=1)
    pad = k - best.shape[1]
    best = np.pad(best, ((0, 0), (0, max(pad, 0))), constant_values=np.inf)
    order = np.pad(order, ((0, 0), (0, max(pad, 0))), constant_values=-1)
    return np.where(np.isfinite(best), order, -1), best


def clouds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    ball = rng.normal(size=(1500, 3))
    sphere = 0.6 * ball / np.linalg.norm(ball, axis=1, keepdims=True)
    floater = np.concatenate([sphere, [[0.3, 0.4, 2.95], [0.28, 0.41, 2.9], [0, 0, 1e4]]])
    return {
        "ball": 0.5 * ball,
        "sphere": sphere,
        "all around the camera": rng.uniform(-6, 6, (2000, 3)),
        "behind the camera": rng.uniform(-1, 1, (300, 3)) + np.array([0, 0, 8]),
        "half behind": rng.uniform(-1, 1, (500, 3)) * [1, 1, 6],
        "duplicates": np.repeat(rng.uniform(-0.5, 0.5, (40, 3)), 12, axis=0),
        "one place": np.zeros((30, 3)),
        "a line": np.linspace(0, 1, 400)[:, None] * [1.0, 0.2, 0.0],
        "along the optical axis": np.linspace(-1, 1, 200)[:, None] * [0.3, 0.4, 3.0],
        "a corner, most tiles empty": rng.uniform(0, 0.02, (600, 3)) + np.array([0.5, 0.4, 0]),
        "floaters before the lens": floater,
        "many before the lens": np.concatenate(
            [sphere, rng.normal(scale=0.02, size=(100, 3)) + np.array([0.3, 0.4, 2.8])]
        ),
        "fewer than K": rng.uniform(-0.5, 0.5, (5, 3)),
        "one point": np.array([[0.1, 0.0, 0.0]]),
    }


@pytest.mark.parametrize("name", clouds())
@pytest.mark.parametrize("k", [1, 9])
def test_equals_brute_force(name: str, k: int) -> None:
    points = clouds()[name].astype(np.float32)
    shot = camera(near=0.05)
    xy = pixels(shot, spread=1.6)  # some rays outside the picture
    rows, distances = nearest_points(points, shot, xy, k)
    expected, truth = brute_force(points, shot, xy, k)
    np.testing.assert_allclose(distances, truth, rtol=1e-6, atol=1e-7)
    far = np.abs(points).max() > 100  # float32 of the distance alone decides nothing; rows must agree up to ties
    same = rows == expected
    tied = np.isclose(distances, truth, rtol=1e-12, atol=1e-9 if not far else 1e-6)
    assert (same | tied).all() and same.mean() > 0.999


def test_ties_go_to_the_lower_row() -> None:
    points = np.repeat(np.array([[0.0, 0.0, 0.0], [0.2, 0.0, 0.0]], np.float32), 6, axis=0)
    shot = camera()
    rows, _ = nearest_points(points, shot, np.array([[shot.cx, shot.cy]]), 8)
    assert rows[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_lenses_with_two_focal_lengths_and_a_shifted_centre() -> None:
    points = clouds()["sphere"].astype(np.float32)
    shot = camera(fx=90.0, fy=35.0, cx=10.0, cy=29.0)
    xy = pixels(shot)
    np.testing.assert_array_equal(nearest_points(points, shot, xy, 12)[0], brute_force(points, shot, xy, 12)[0])


def test_the_order_of_rays_and_their_number_do_not_matter() -> None:
    points, shot = clouds()["ball"].astype(np.float32), camera()
    xy = pixels(shot, 9000)
    whole, _ = nearest_points(points, shot, xy, 6)
    shuffled = np.random.default_rng(0).permutation(len(xy))
    np.testing.assert_array_equal(whole[shuffled], nearest_points(points, shot, xy[shuffled], 6)[0])
    np.testing.assert_array_equal(whole[:7], nearest_points(points, shot, xy[:7], 6)[0])


def test_nan_points_are_never_neighbours() -> None:
    points = clouds()["ball"].astype(np.float32)[:50]
    points[7] = np.nan
    shot = camera()
    rows, _ = nearest_points(points, shot, pixels(shot), 49)
    assert not (rows == 7).any() and (rows >= 0).all()


def test_nothing_in_front_gives_no_neighbours() -> None:
    shot = camera()
    rows, distances = nearest_points(clouds()["behind the camera"].astype(np.float32), shot, pixels(shot, 5), 3)
    assert (rows == -1).all() and np.isinf(distances).all()
    assert nearest_points(np.zeros((4, 3), np.float32), shot, np.zeros((0, 2)), 3)[0].shape == (0, 3)


@pytest.mark.parametrize("name", clouds())
def test_the_torch_search_agrees(name: str) -> None:
    points, shot, k = clouds()[name].astype(np.float32), camera(near=0.05), 9
    xy = pixels(shot)
    centre, directions = camera_rays(shot, xy)
    forward = torch.from_numpy(shot.T_camera_world[2, :3]).expand(len(xy), 3)
    rows, distances = nearest_points_torch(
        torch.from_numpy(points),
        torch.from_numpy(centre).expand(len(xy), 3),
        torch.from_numpy(directions),
        k,
        forward=forward,
        near=0.05,
    )
    expected, truth = brute_force(points, shot, xy, k)
    np.testing.assert_allclose(distances.numpy(), truth, rtol=1e-5, atol=1e-6)
    tied = np.isclose(distances.numpy(), truth, rtol=1e-12, atol=1e-6)
    assert ((rows.numpy() == expected) | tied).all()


def test_k_below_one_is_refused() -> None:
    shot = camera()
    with pytest.raises(InputError, match="k is 0; it must be at least 1"):
        nearest_points(np.zeros((4, 3), np.float32), shot, pixels(shot), 0)
    with pytest.raises(InputError, match="k is 0"):
        nearest_points_torch(torch.zeros(4, 3), torch.zeros(1, 3), torch.ones(1, 3), 0)
