from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.render.camera import Camera, box_corners, frame_object, look_at, orbit, view_direction

UPS = [(0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1), (1, 0, 0), (0.3, -2.0, 0.5)]


def pixels(camera: Camera, points: np.ndarray) -> np.ndarray:
    """Pixel coordinates and depth, (N, 3)."""
    p = np.atleast_2d(points) @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    return np.concatenate([(p @ camera.intrinsics.T)[:, :2] / p[:, 2:], p[:, 2:]], axis=1)


def test_look_at_in_known_pixels() -> None:
    """From +z with y up: +x is right, +y is up in the image (smaller row), the target is in the middle."""
    camera = look_at((0, 0, 5), (0, 0, 0), (0, 1, 0), width=200, height=100, focal=50)
    np.testing.assert_allclose(pixels(camera, np.zeros(3)), [[100, 50, 5]], atol=1e-12)
    np.testing.assert_allclose(pixels(camera, np.array([1.0, 2.0, 0.0])), [[110, 30, 5]], atol=1e-12)
    np.testing.assert_allclose(pixels(camera, np.array([0.0, 0.0, 2.5])), [[100, 50, 2.5]], atol=1e-12)
    np.testing.assert_allclose(camera.position, [0, 0, 5], atol=1e-12)


def test_the_field_of_view_is_vertical() -> None:
    camera = look_at((0, 0, 1), (0, 0, 0), (0, 1, 0), width=500, height=100, fov_y_degrees=90)
    np.testing.assert_allclose(pixels(camera, np.array([0, 1.0, 0]))[0, 1], 0, atol=1e-9)


@pytest.mark.parametrize("up", UPS)
def test_up_is_up_from_every_orbit_camera(up: tuple[float, float, float]) -> None:
    centre = np.array([3.0, -1.0, 2.0])
    vertical = np.array(up) / np.linalg.norm(up)
    cameras = orbit(centre, 4.0, up, count=8, width=60, height=80)
    for camera in cameras:
        middle, above = pixels(camera, np.array([centre, centre + 0.1 * vertical]))
        np.testing.assert_allclose(middle, [30, 40, 4.0], atol=1e-9)
        np.testing.assert_allclose(above[0], 30, atol=1e-9)
        assert above[1] < 40
        assert (camera.position - centre) @ vertical > 0.5  # from above
    turns = [np.cross(a.position - centre, b.position - centre) @ vertical for a, b in pairwise(cameras)]
    assert min(turns) > 0  # anticlockwise seen from above


@pytest.mark.parametrize("up", UPS)
@pytest.mark.parametrize("size", [(640, 360), (360, 640), (100, 100)])
def test_framing_fits_exactly(up: tuple[float, float, float], size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    points = box_corners(rng.uniform(-5, 0, (4, 3)), rng.uniform(1, 9, (4, 3)))
    camera = frame_object(points, up, width=size[0], height=size[1], margin=0.1)
    p = pixels(camera, points)
    border = 0.1 * np.array(size)
    gaps = np.concatenate([p[:, :2].min(axis=0) - border, size - border - p[:, :2].max(axis=0)])
    assert gaps.min() > -1e-6 and p[:, 2].min() > camera.near > 0
    touching = np.abs(gaps) < 1e-6
    assert touching[[0, 2]].all() or touching[[1, 3]].all()  # both sides of one axis: it cannot be nearer
    forward = camera.T_camera_world[2, :3]
    assert forward @ np.array(up) < 0  # from slightly above


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
def test_framing_does_not_depend_on_units(scale: float) -> None:
    points = np.random.default_rng(1).normal(size=(20, 3))
    plain = frame_object(points, (0, 1, 0), width=64, height=48)
    scaled = frame_object(scale * points, (0, 1, 0), width=64, height=48)
    np.testing.assert_allclose(pixels(scaled, scale * points)[:, :2], pixels(plain, points)[:, :2], atol=1e-6)
    np.testing.assert_allclose(scaled.near, scale * plain.near)


def test_framing_degenerate_points() -> None:
    for points in (np.ones((1, 3)), np.ones((3, 3)), np.outer(np.arange(3.0), view_direction((0, 1, 0), 35, 15))):
        assert pixels(frame_object(points, (0, 1, 0), width=64, height=48), points)[:, 2].min() > 0
    one_bad = np.array([[0, 0, 0], [1, 1, 1], [np.nan, 0, 0]])
    assert np.isfinite(frame_object(one_bad, (0, 1, 0), width=64, height=48).T_camera_world).all()


def test_the_front_of_an_object() -> None:
    for up, towards in [((0, 1, 0), (0, 0, 1)), ((0, -1, 0), (0, 0, -1)), ((0, 0, 1), (0, -1, 0))]:
        np.testing.assert_allclose(view_direction(up, 0, 0), -np.array(towards), atol=1e-12)


def test_box_corners() -> None:
    corners = box_corners(np.array([0, 0, 0]), np.array([1, 2, 3]))
    assert {tuple(c) for c in corners} == {(x, y, z) for x in (0, 1) for y in (0, 2) for z in (0, 3)}


def test_refusals() -> None:
    where = dict(width=10, height=10)
    with pytest.raises(InputError, match="up is parallel to the line of sight"):
        look_at((0, 5, 0), (0, 0, 0), (0, 1, 0), **where)
    with pytest.raises(InputError, match="line of sight is"):
        look_at((1, 1, 1), (1, 1, 1), (0, 1, 0), **where)
    with pytest.raises(InputError, match="up is"):
        look_at((0, 0, 5), (0, 0, 0), (0, 0, 0), **where)
    with pytest.raises(InputError, match="not both"):
        look_at((0, 0, 5), (0, 0, 0), (0, 1, 0), **where, focal=10, fov_y_degrees=40)
    with pytest.raises(InputError, match="field of view of 180"):
        look_at((0, 0, 5), (0, 0, 0), (0, 1, 0), **where, fov_y_degrees=180)
    with pytest.raises(InputError, match="no finite point"):
        frame_object(np.full((4, 3), np.nan), (0, 1, 0), **where)
    with pytest.raises(InputError, match=r"margin is 0\.5"):
        frame_object(np.zeros((4, 3)), (0, 1, 0), **where, margin=0.5)
    with pytest.raises(InputError, match="must be positive"):
        orbit((0, 0, 0), 0.0, (0, 1, 0), count=3, **where)
    mirrored = np.diag([1.0, 1.0, -1.0, 1.0])
    with pytest.raises(InputError, match="not a rotation"):
        Camera(mirrored, 10, 10, 5, 5, 10, 10)
    with pytest.raises(InputError, match="empty"):
        Camera(np.eye(4), 10, 10, 5, 5, 0, 10)
