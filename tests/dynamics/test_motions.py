"""Every ready-made motion runs on a small box, does what its name says, and refuses what it cannot do."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.dynamics.materials import PRESETS
from splatanim.dynamics.motions import MOTIONS, Body, Direction, body_of, direct, floor, pin_region
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.simulate import Settings, Trajectory, placed_state, simulate
from splatanim.errors import InputError
from splatanim.render.camera import view_direction
from tests.dynamics.models import box_model, coordinates

CELLS = (5, 5, 8)
HALF = np.array(CELLS) / 16
UP = np.array([0.0, 0.0, 1.0])


def _body(seconds: float = 1.0, up: np.ndarray = UP) -> Body:
    return body_of(-HALF, HALF, up, seconds)


def _run(motion: str, frames: int, seconds: float = 1.0, material: str = "jelly", pin: str | None = None, up=UP):
    body, preset = _body(seconds, up), PRESETS[material]
    direction = direct(motion, body, pin)
    model = box_model(CELLS, material=preset, regions=direction.regions)
    settings = Settings(frames)
    state = placed_state(model, direction.displacement, np.zeros((3, 4)), settings.h)
    return model, direction, simulate(model, direction.build(model), settings, state)


def _points(model: ReducedModel, z: np.ndarray) -> np.ndarray:
    w, _ = model.handles.evaluate(model.contact_rest)
    one = np.concatenate([model.contact_rest, np.ones((len(w), 1))], axis=1)
    return model.contact_rest + np.einsum("qh,hrk,qk->qr", w, z, one)


def _healthy(trajectory: Trajectory) -> None:
    assert np.isfinite(trajectory.handles).all()
    assert trajectory.converged_fraction == 1.0
    assert trajectory.penetration < 5e-3


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("material", ["jelly", "cloth"])
def test_every_motion_runs(motion: str, material: str) -> None:
    model, _, trajectory = _run(motion, 11, seconds=0.4, material=material)
    _healthy(trajectory)
    moved = max(np.abs(_points(model, z) - _points(model, trajectory.handles[0])).max() for z in trajectory.handles)
    assert moved > 0.02


@pytest.mark.parametrize("motion", MOTIONS)
def test_every_motion_works_with_any_up_axis(motion: str) -> None:
    _, _, trajectory = _run(motion, 6, seconds=0.4, up=np.array([0.0, -1.0, 0.0]))
    _healthy(trajectory)


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("pin", ["none", "top", "box:-9,-9,-9,9,9,-0.3"])
def test_every_motion_takes_every_pin(motion: str, pin: str) -> None:
    _, direction, trajectory = _run(motion, 4, seconds=0.4, pin=pin)
    assert np.isfinite(trajectory.handles).all()
    assert len(direction.regions) == (0 if pin == "none" else 1)


def test_drop_falls_and_lands_without_a_pin() -> None:
    model, direction, trajectory = _run("drop", 31)
    heights = np.array([_points(model, z)[:, 2].min() for z in trajectory.handles]) + HALF[2]
    assert heights[0] == pytest.approx(0.5, abs=1e-9) and heights.min() > -5e-3 and heights[-1] < 0.3
    assert direction.regions == ()


def test_ramp_starts_out_of_the_ground_and_moves_down() -> None:
    model, direction, trajectory = _run("ramp", 21)
    start = _points(model, trajectory.handles[0])
    for plane in direction.planes:
        local = (start - plane.point) @ plane.frame().T
        on_it = (np.abs(local[:, :2]) <= plane.half_extents).all(axis=1)
        assert local[on_it, 2].min(initial=1.0) > -5e-3, "the object starts inside a plane"
    assert _points(model, trajectory.handles[-1])[:, 2].mean() < start[:, 2].mean() - 0.05


def test_sway_returns_to_where_it_stood() -> None:
    model, direction, trajectory = _run("sway", 11, seconds=0.5)
    pinned = model.contact_rest[:, 2] < -HALF[2] + 1e-6
    offsets = [np.abs(_points(model, z) - model.contact_rest)[pinned].max() for z in trajectory.handles]
    assert max(offsets) > 0.05
    np.testing.assert_allclose(direction.regions[0].motion(0.31), 0.0, atol=1e-12)


def test_squash_presses_the_top_down_and_lets_go() -> None:
    model, _, trajectory = _run("squash", 61, seconds=2.0)
    tops = np.array([_points(model, z)[:, 2].max() for z in trajectory.handles]) + HALF[2]
    assert tops.min() == pytest.approx(0.65 * 2 * HALF[2], abs=0.06) and tops[-1] > 0.85 * 2 * HALF[2]
    _healthy(trajectory)


def test_twist_turns_the_top_about_the_up_axis() -> None:
    model, _, trajectory = _run("twist", 31, seconds=2.0)
    top = model.contact_rest[:, 2] > HALF[2] - 1e-6
    corner = np.flatnonzero(top)[np.argmax(model.contact_rest[top] @ [1.0, 1.0, 0.0])]
    x, y, _ = _points(model, trajectory.handles[20])[corner]
    assert 0.5 < np.arctan2(y, x) - np.pi / 4 < 2.2


def test_a_body_chooses_upright_horizontal_axes() -> None:
    body = body_of(np.array([-1.0, -2.0, -3.0]), np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 0.0]), 1.0)
    np.testing.assert_allclose(body.up, [0, 1, 0])
    np.testing.assert_allclose(body.front, -view_direction(body.up, 0.0, 0.0), atol=1e-12)  # what cameras see first
    frame = np.stack([body.side, body.up, body.front])
    np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(frame) == pytest.approx(1.0)
    assert body.size == 6.0 and body.height == 4.0
    np.testing.assert_allclose(body.at(1.0, -1.0), [0, 2, 0] - body.reach(body.side) * body.side)
    np.testing.assert_allclose(floor(body).point, [0, -2, 0])


def test_pins_name_what_they_hold() -> None:
    (bottom,), (top,) = pin_region("bottom", _body()), pin_region("top", _body())
    assert bottom.hi[2] == pytest.approx(-0.5 + 0.08) and top.lo[2] == pytest.approx(0.5 - 0.08)
    (box,) = pin_region("1,2,3,-1,0,0", _body())  # corners in any order
    assert box.lo == (-1, 0, 0) and box.hi == (1, 2, 3)
    assert pin_region("none", _body()) == ()


@pytest.mark.parametrize("pin", ["botom", "1,2,3", "1,2,3,4,5,x", "box:", ""])
def test_pins_that_mean_nothing_are_refused(pin: str) -> None:
    with pytest.raises(InputError, match=r"--pin '.*' is none of none, bottom, top or a box of six numbers x0,y0,z0"):
        pin_region(pin, _body())


def test_a_flat_box_is_refused() -> None:
    with pytest.raises(InputError, match="Pinned box: the low corner"):
        pin_region("0,0,0,1,1,0", _body())


def test_pinning_an_end_needs_an_axis() -> None:
    with pytest.raises(InputError, match=r"--pin top needs an up axis along x, y or z; give a box instead"):
        pin_region("top", _body(up=np.array([0.0, 1.0, 1.0])))


def test_unknown_motions_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"no motion 'pok'\. Did you mean poke\? There are: drop, poke, sway"):
        direct("pok", _body())
    with pytest.raises(InputError, match=r"no motion 'zzz'\. There are: drop"):
        direct("zzz", _body())


def test_a_direction_without_anything_leaves_the_object_alone() -> None:
    model = box_model(CELLS)
    assert Direction().build(model) == []
    assert not coordinates(model, np.zeros_like(model.rest)).any()


def _grown_on() -> Body:
    return body_of(-HALF, HALF, UP, 0.4, pin_region("bottom", _body()))


@pytest.mark.parametrize("motion", ["drop", "poke", "squash", "twist", "drag"])
def test_a_part_is_held_where_it_is_grown_on(motion: str) -> None:
    direction = direct(motion, _grown_on())
    assert direction.regions == _grown_on().held and not direction.displacement.any()
    assert len(direct(motion, _grown_on(), "top").regions) == 2
    assert all(plane.normal @ UP < 0 for plane in direction.planes)  # no floor through what it grows on


@pytest.mark.parametrize("motion", ["sway", "ramp"])
def test_what_stands_still_cannot_be_swayed(motion: str) -> None:
    with pytest.raises(InputError, match=f"--motion {motion} moves what an object stands on, but a selection is held"):
        direct(motion, _grown_on())
