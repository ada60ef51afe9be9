"""Pinned regions: the prescribed displacement holds exactly there, masks are smooth, slow motion is rigid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from splatanim.binding import Handles
from splatanim.dynamics.placement import Placement
from splatanim.dynamics.regions import Ball, Cloud, Region, placed, rotation_about, shaped, translation
from splatanim.dynamics.simulate import Settings, simulate
from splatanim.errors import InputError
from tests.dynamics.models import SOFT, bound_field, box_model, random_state

LEFT = ((-np.inf,) * 3, (-0.3, np.inf, np.inf))
BOX = ((-0.1, -0.2, -0.3), (0.2, 0.1, np.inf))


def _swing(time: float) -> np.ndarray:
    return rotation_about(np.array([0.0, 0.6, 0.8]), 2.0 * time, np.zeros(3)) + translation(
        np.array([0.1, 0, 0]) * time
    )


@pytest.mark.parametrize("bounds", [LEFT, BOX])
def test_the_prescribed_displacement_is_exact_on_the_region_whatever_the_coordinates(bounds) -> None:
    region = Region(*bounds, 0.3, _swing)
    model = box_model(regions=(region,))
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.5, 0.5, (4000, 3))
    points = points[region.contains(points)]
    assert len(points) > 50
    held = model.held_coordinates(0.7)
    z = model.all_handles(50.0 * random_state(model), held)
    w, _ = model.handles.evaluate(points)
    one = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    moved = np.einsum("qh,hrk,qk->qr", w, z, one)
    np.testing.assert_allclose(moved, one @ _swing(0.7).T, atol=1e-12)


@pytest.mark.parametrize("bounds", [LEFT, BOX])
def test_the_mask_rises_smoothly_with_the_right_slope(bounds) -> None:
    region = Region(*bounds, 0.3)
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (500, 3))
    d, slope = region.mask(points)
    assert d.min() == 0.0 and d.max() == 1.0 and ((d > 0.05) & (d < 0.95)).sum() > 30
    h = 1e-6
    numeric = np.stack([(region.mask(points + h * e)[0] - region.mask(points - h * e)[0]) / (2 * h) for e in np.eye(3)])
    np.testing.assert_allclose(slope, numeric.T, atol=1e-5)
    assert (d[region.contains(points)] == 0).all() and (d[~region.contains(points)] > 0).all()


def test_weights_of_overlapping_regions_share_and_their_gradients_are_exact() -> None:
    regions = (Region(*LEFT, 0.4), Region((-0.25, -0.4, -0.4), (0.1, 0.0, 0.4), 0.5), Region(*BOX, 0.3))
    handles = Handles(bound_field((8, 6, 5), 1 / 8, 4), regions)
    points = np.random.default_rng(2).uniform(-0.5, 0.5, (300, 3))
    w, dw = handles.evaluate(points)
    assert w.shape == (300, 8) and handles.free == 5 and len(handles) == 8
    held = w[:, 5:]
    assert held.sum(axis=1).max() <= 1 + 1e-12 and (held.sum(axis=1) > 0.99).sum() > 20
    h = 1e-6
    numeric = np.stack(
        [(handles.evaluate(points + h * e)[0] - handles.evaluate(points - h * e)[0]) / (2 * h) for e in np.eye(3)],
        axis=2,
    )
    close = np.abs(numeric - dw).max(axis=(1, 2)) < 1e-5 * np.abs(dw).max()
    assert close.mean() > 0.99  # but for the few points with a border of a region between x - h and x + h


def test_a_slowly_moved_pin_carries_the_whole_body_rigidly() -> None:
    def slow(time: float) -> np.ndarray:
        t = min(time / 2.0, 1.0)
        return translation(np.array([0.0, 0.2, 0.1]) * t * t * (3 - 2 * t))

    model = box_model(
        material=replace(SOFT, young=2e6), regions=(Region((-np.inf,) * 3, (-0.4, np.inf, np.inf), 0.3, slow),)
    )
    trajectory = simulate(model, [], Settings(80, 30.0, 1))
    assert trajectory.converged_fraction == 1.0
    w, _ = model.handles.evaluate(model.rest)
    one = np.concatenate([model.rest, np.ones((len(model.rest), 1))], axis=1)
    moved = np.einsum("qh,hrk,qk->qr", w, trajectory.handles[-1], one)
    np.testing.assert_allclose(moved, np.tile([0.0, 0.2, 0.1], (len(one), 1)), atol=1e-3)


def test_a_suddenly_moved_pin_leaves_the_body_behind() -> None:
    jump = Region(
        (-np.inf,) * 3, (-0.4, np.inf, np.inf), 0.3, lambda t: translation(np.array([0.0, 0.1 * (t > 0), 0.0]))
    )
    model = box_model(regions=(jump,))
    trajectory = simulate(model, [], Settings(2, 120.0, 1))
    w, _ = model.handles.evaluate(np.array([[0.45, 0.0, 0.0]]))
    moved = np.einsum("h,hrk,k->r", w[0], trajectory.handles[-1], [0.45, 0.0, 0.0, 1.0])
    assert 0.0 < abs(moved[1]) < 0.08


def test_rotation_about_turns_about_its_centre() -> None:
    centre = np.array([1.0, 2.0, 3.0])
    z = rotation_about(np.array([0.0, 0.0, 1.0]), np.pi / 2, centre)
    point = np.array([2.0, 2.0, 3.0, 1.0])
    np.testing.assert_allclose(point[:3] + z @ point, [1.0, 3.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(centre + z @ [*centre, 1.0], centre, atol=1e-12)


def test_impossible_boxes_are_refused() -> None:
    with pytest.raises(InputError, match=r"Pinned box: the low corner \(0, 0, 1\) must lie below the high corner"):
        Region((0, 0, 1), (1, 1, 1), 0.1)
    with pytest.raises(InputError, match=r"the transition width 0\.0 must be positive"):
        Region((0, 0, 0), (1, 1, 1), 0.0)


def _labelled() -> np.ndarray:
    rng = np.random.default_rng(5)
    return rng.uniform([-0.5, -0.4, -0.3], [-0.2, 0.4, 0.3], (400, 3))


def _turned() -> Region:
    placement = Placement(
        rotation_about(np.array([0.0, 0.6, 0.8]), 0.7, np.zeros(3))[:, :3] + np.eye(3), np.ones(3), 1.5
    )
    return placed(Region(*BOX, 0.3), placement)


@pytest.mark.parametrize(
    "region",
    [shaped(Ball((0.1, 0.0, -0.1), 0.2), 0.3), shaped(Cloud(_labelled(), 0.15), 0.3), _turned()],
    ids=["ball", "labels", "turned box"],
)
def test_any_shape_has_a_smooth_mask_that_is_zero_on_it(region: Region) -> None:
    points = np.random.default_rng(1).uniform(-1.0, 2.5, (30000, 3))
    d, slope = region.mask(points)
    assert d.min() == 0.0 and d.max() == 1.0 and ((d > 0.05) & (d < 0.95)).sum() > 20
    assert (region.contains(points) == (d == 0.0)).all()
    h = 1e-7
    numeric = np.stack([(region.mask(points + h * e)[0] - region.mask(points - h * e)[0]) / (2 * h) for e in np.eye(3)])
    close = np.abs(slope - numeric.T).max(axis=1) < 1e-4
    assert close.mean() > 0.999  # but where a neighbour changes, or the region begins, within 1e-7


def test_labelled_points_lie_on_their_region() -> None:
    points = _labelled()
    region = shaped(Cloud(points, 0.15), 0.3)
    assert region.contains(points).all() and not region.contains(points + np.array([0.6, 0, 0])).any()


def test_a_placed_region_holds_where_the_object_is() -> None:
    placement = Placement(np.eye(3), np.array([3.0, 0, 0]), 2.0)
    region = placed(Region((0, 0, 0), (1, 1, 1), 0.5, _swing), placement)
    assert region.contains(np.array([[3.1, 0.1, 0.1], [4.9, 1.9, 1.9], [5.1, 0.1, 0.1]])).tolist() == [
        True,
        True,
        False,
    ]
    np.testing.assert_allclose(region.mask(np.array([[5.25, 1, 1]]))[0], 0.75)  # half the width, in the world's metres
    assert region.motion is _swing


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"Sphere: the radius 0\.0 must be positive"):
        Ball((0, 0, 0), 0.0)
    with pytest.raises(InputError, match="nothing has its label"):
        Cloud(np.zeros((0, 3)), 0.1)
    with pytest.raises(InputError, match=r"its reach 0\.0 around labelled points must be positive"):
        Cloud(np.zeros((1, 3)), 0.0)
