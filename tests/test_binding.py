"""Handles and shape functions: the map of eq. 1 and 12, its gradients, and affine exactness."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.binding import Handles, shape_functions
from splatanim.dynamics.regions import Region, translation
from tests.dynamics.models import bound_field

PIN = Region((-np.inf,) * 3, (-0.35, np.inf, np.inf), 0.4, lambda time: translation(np.array([time, 0.0, 0.0])))


def _handles(*regions: Region) -> Handles:
    return Handles(bound_field((8, 6, 5), 1 / 8, 4), regions)


def _points(count: int = 200) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.5, 0.5, (count, 3)) * [1.0, 0.75, 0.6]


@pytest.mark.parametrize("regions", [(), (PIN,)])
def test_shape_functions_and_their_gradients(regions: tuple[Region, ...]) -> None:
    handles, points = _handles(*regions), _points()

    def values(x: np.ndarray) -> np.ndarray:
        return shape_functions(x, *handles.evaluate(x))[0]

    exact = shape_functions(points, *handles.evaluate(points))[1]
    h = 1e-6
    numeric = np.stack([(values(points + h * e) - values(points - h * e)) / (2 * h) for e in np.eye(3)], axis=2)
    rows = np.abs(points[:, 0] + 0.35) > 2e-6  # the mask has a kink on the region's border
    np.testing.assert_allclose(exact[rows], numeric[rows], atol=1e-6 * np.abs(exact).max())
    assert exact.shape == (200, 4 * len(handles), 3)


def test_shape_functions_are_the_weights_times_position_handle_by_handle() -> None:
    handles, points = _handles(), _points(5)
    w, dw = handles.evaluate(points)
    values, _ = shape_functions(points, w, dw)
    one = np.concatenate([points, np.ones((5, 1))], axis=1)
    np.testing.assert_allclose(values.reshape(5, 5, 4), w[:, :, None] * one[:, None, :])


def test_the_constant_handle_comes_last_of_the_free_ones() -> None:
    handles = _handles()
    w, dw = handles.evaluate(_points())
    assert handles.free == len(handles) == 5
    np.testing.assert_array_equal(w[:, 4], 1.0)
    assert not dw[:, 4].any()


def test_every_free_handle_is_masked_and_regions_take_over() -> None:
    w, _ = _handles().evaluate(_points())
    masked, _ = _handles(PIN).evaluate(_points())
    d, _ = PIN.mask(_points())
    np.testing.assert_allclose(masked[:, :5], w * d[:, None], atol=1e-12)
    np.testing.assert_allclose(masked[:, 5], 1 - d, atol=1e-12)
    np.testing.assert_allclose(masked[:, 4] + masked[:, 5], 1.0, atol=1e-12)  # rigid motion of all stays possible


def test_two_regions_multiply_their_masks() -> None:
    right = Region((0.35, -np.inf, -np.inf), (np.inf,) * 3, 0.4)
    w, _ = _handles(PIN, right).evaluate(_points())
    np.testing.assert_allclose(w[:, 4], PIN.mask(_points())[0] * right.mask(_points())[0], atol=1e-12)


def test_prescribed_displacements_follow_time() -> None:
    np.testing.assert_allclose(_handles(PIN).prescribed(0.5), translation(np.array([0.5, 0.0, 0.0]))[None])
    assert _handles().prescribed(0.5).shape == (0, 3, 4)


def test_float32_points_are_as_good() -> None:
    points = _points().astype(np.float32)
    w, dw = _handles(PIN).evaluate(points)
    again, slopes = _handles(PIN).evaluate(points.astype(np.float64))
    assert w.dtype == dw.dtype == np.float64
    np.testing.assert_allclose(w, again, atol=1e-9)
    np.testing.assert_allclose(dw, slopes, atol=1e-8)
