"""The camera found from an outline: put back where it was, and refused where it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from rigpapr.align import find_camera
from rigpapr.coarse_view import project
from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at
from tests.rigpapr import creatures


def outline(camera: Camera, points: np.ndarray) -> np.ndarray:
    from scipy.ndimage import binary_closing

    pixels, _ = project(camera, points)
    mask = np.zeros((camera.height, camera.width), bool)
    x, y = np.floor(pixels).astype(int).T
    mask[y, x] = True
    return binary_closing(mask, np.ones((3, 3)))


def test_a_camera_is_found_again() -> None:
    rig, _ = creatures.creature(12_000)
    true = look_at((0.5, 0.3, 2.6), (0.05, 0.2, 0), (0.1, 1, 0), width=120, height=96, fov_y_degrees=36)
    found = find_camera(rig.sources, outline(true, rig.sources), "+z", fov_y_degrees=36)
    assert found.distance < 1.5
    here, _ = project(found.camera, rig.sources)
    there, _ = project(true, rig.sources)
    assert np.linalg.norm(here - there, axis=1).mean() < 2.5  # px, of an object 60 px long
    assert np.linalg.norm(found.camera.position - true.position) < 0.5  # outlines of thin parts hardly show tilts
    assert (found.camera.width, found.camera.height) == (120, 96)


def test_what_cannot_be_found_is_told() -> None:
    rig, _ = creatures.creature(2000)
    with pytest.raises(InputError, match="name the side that the camera stands on"):
        find_camera(rig.sources, np.ones((20, 20), bool), "front")
    with pytest.raises(InputError, match="the first frame shows no subject"):
        find_camera(rig.sources, np.zeros((20, 20), bool), "+z")
    frame = np.zeros((120, 120), bool)
    frame[10:110, 10:20] = frame[10:20, 10:110] = frame[100:110, 10:110] = frame[10:110, 100:110] = True
    with pytest.raises(InputError, match=r"stay \d+\.\d px apart. Is it the right side"):
        find_camera(rig.sources, frame, "+z")
