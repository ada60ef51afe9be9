"""Motion against closed forms: free fall, momentum, rest, vibration, energy, units; and what hostile scenes report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.regions import Region, rotation_about, translation
from splatanim.dynamics.simulate import Settings, State, placed_state, rest_state, simulate
from splatanim.dynamics.terms import Elasticity, gravity
from splatanim.errors import InputError
from tests.dynamics.models import (
    SOFT,
    affine,
    box_model,
    centre_of_mass,
    elastic_hessian,
    end_pin,
    random_state,
    rest_step,
)

DOWN = np.array([0.0, 0.0, -9.81])
STILL = np.zeros((3, 4))


def every_step(model: ReducedModel, terms: list, steps: int, h: float, state: State, **settings) -> np.ndarray:
    """Coordinates after every step (steps + 1, n): one implicit step a frame."""
    trajectory = simulate(model, terms, Settings(steps + 1, 1 / h, 1, **settings), state)
    assert trajectory.converged_fraction == 1.0
    z = trajectory.handles[:, : model.handles.free].transpose(0, 2, 1, 3).reshape(steps + 1, 3, -1)
    return (z @ np.linalg.pinv(model.to_handles).T).reshape(steps + 1, -1)


@pytest.mark.parametrize("h", [1 / 30, 1 / 120, 1 / 5000])
@pytest.mark.parametrize("model_name", ["neohookean", "corotated", "linear"])
def test_free_fall_is_the_implicit_euler_parabola_and_deforms_nothing(h: float, model_name: str) -> None:
    model = box_model(material=replace(SOFT, model=model_name))
    trajectory = simulate(model, [gravity(model, DOWN)], Settings(31, 1 / h, 1))
    n = np.arange(31)
    expected = 0.5 * DOWN[:, None] * h**2 * n * (n + 1)
    one = np.array([0.3, -0.2, 0.1, 1.0])
    w, _ = model.handles.evaluate(one[None, :3])
    moved = np.einsum("h,thrk,k->tr", w[0], trajectory.handles, one)
    np.testing.assert_allclose(moved, expected.T, atol=1e-9)
    assert np.abs(_gradients(model, trajectory.handles[-1]) - np.eye(3)).max() < 1e-9


def _gradients(model: ReducedModel, handles: np.ndarray) -> np.ndarray:
    from splatanim.binding import shape_functions

    _, slopes = shape_functions(model.rest, *model.handles.evaluate(model.rest))
    return np.eye(3) + np.einsum("rk,qkc->qrc", handles.transpose(1, 0, 2).reshape(3, -1), slopes)


def test_a_thrown_spinning_body_keeps_linear_momentum() -> None:
    model = box_model()
    h = 1 / 60
    y = random_state(model, 0.25)
    thrown = affine(model, translation(np.array([1.0, -2.0, 0.5])))
    state = State(y, y - h * (thrown + random_state(model, 0.8, seed=1)))
    steps = every_step(model, [], 40, h, state)
    velocity = np.diff(np.concatenate([state.y_before[None], steps]), axis=0) / h
    pushes = np.stack([affine(model, translation(e)) for e in np.eye(3)])  # momentum is p . v, as M is the identity
    momentum = velocity @ pushes.T
    assert np.linalg.norm(momentum[0]) > 0.01 * model.mass
    np.testing.assert_allclose(momentum, np.tile(momentum[0], (41, 1)), atol=1e-7 * np.abs(momentum).max())


def test_a_rigid_spin_slows_as_implicit_euler_makes_it() -> None:
    """Of a stiff body each step turns by d' with tan d' = sin d / (2 - cos d): 22 % less after a turn of 120 steps.

    (The rotation that minimises |R - 2 R_t + R_{t-1}|_M for a constant axis.) A known cost of the method.
    """
    model = box_model(material=replace(SOFT, young=1e9))
    h, spin = 1 / 120, 2 * np.pi
    before = rotation_about(np.array([0.0, 0.0, 1.0]), -h * spin, np.zeros(3))
    steps = every_step(model, [], 120, h, State(np.zeros(model.dof), affine(model, before)))
    held = np.zeros((3, 0))
    tip = int(np.argmax(model.rest[:, 0]))
    where = np.array([model.positions(row, held)[tip] for row in steps])
    turned = np.diff(np.unwrap(np.arctan2(where[:, 1], where[:, 0])))
    expected = [h * spin]
    for _ in range(120):
        expected.append(np.arctan2(np.sin(expected[-1]), 2 - np.cos(expected[-1])))
    np.testing.assert_allclose(turned, expected[1:], rtol=2e-3)
    assert 0.75 < expected[-1] / expected[0] < 0.80


def test_rest_stays_rest_exactly() -> None:
    for regions in ((), (end_pin(-0.4, 0.3),)):
        model = box_model(regions=regions)
        trajectory = simulate(model, [], Settings(10))
        assert not trajectory.handles.any()
        assert all(report.converged and report.iterations == 0 for report in trajectory.reports)


@pytest.mark.parametrize("model_name", ["neohookean", "corotated", "linear"])
def test_energy_never_grows_without_forces(model_name: str) -> None:
    model = box_model(material=replace(SOFT, model=model_name))
    h = 1 / 120
    y = random_state(model, 0.4)
    steps = every_step(model, [], 60, h, State(y, y))
    elastic = Elasticity(model)
    elastic.begin_step(rest_step(model))
    kinetic = 0.5 * np.sum(np.diff(np.concatenate([y[None], steps]), axis=0) ** 2, axis=1) / h**2
    total = kinetic + [elastic.energy(row) for row in steps]
    assert kinetic.max() > 0.1 * total[0]  # it does move
    assert (np.diff(total) <= 1e-6 * total[0]).all()


@pytest.mark.parametrize("amplitude", [1.0, 1e-4])
@pytest.mark.parametrize("h", [1 / 30, 1 / 120, 1 / 1920])
def test_a_linear_mode_decays_and_turns_as_implicit_euler_does(amplitude: float, h: float) -> None:
    """y_n = Re(c r^n), r = 1 / (1 - i h w): amplitude 1 / sqrt(1 + h^2 w^2) and phase atan(h w) a step.

    Amplitudes down to 1e-4 of the size, and steps down to 1/1920 s: forces whose effect in one step is small still act.
    """
    model = box_model(material=replace(SOFT, model="linear", stretch_limit=50.0), regions=(end_pin(-0.5, 0.3),))
    squared, modes = np.linalg.eigh(elastic_hessian(model))
    w, mode = np.sqrt(squared[0]), modes[:, 0]
    start = amplitude * np.sqrt(model.mass) * mode
    count = 60
    steps = every_step(model, [], count, h, State(start, start))
    r = 1 / (1 - 1j * h * w)
    # Re(c r^0) = a and Re(c r^-1) = a, as it starts at rest
    a = np.array([[1.0, 0.0], [(1 / r).real, -(1 / r).imag]])
    c = complex(*np.linalg.solve(a, [1.0, 1.0]))
    expected = (c * r ** np.arange(count + 1)).real
    np.testing.assert_allclose(steps @ mode / (amplitude * np.sqrt(model.mass)), expected, atol=1e-6)
    assert abs(r) == pytest.approx(1 / np.sqrt(1 + (h * w) ** 2)) and np.angle(r) == pytest.approx(np.arctan(h * w))
    assert np.ptp(expected) > 1e-3


def test_the_clip_does_not_depend_on_how_frames_are_cut_into_steps() -> None:
    """30 frames a second in 4 steps each, or 120 in one: the same motion, and frame 0 is the start."""
    model = box_model(regions=(end_pin(-0.5, 0.3),))
    coarse = simulate(model, [gravity(model, DOWN)], Settings(6, 30.0, 4))
    fine = simulate(model, [gravity(model, DOWN)], Settings(21, 120.0, 1))
    np.testing.assert_allclose(coarse.handles, fine.handles[::4], atol=1e-12)
    np.testing.assert_allclose(coarse.times, fine.times[::4])
    assert len(coarse.reports) == len(coarse.milliseconds) == 20 and not coarse.handles[0].any()


@pytest.mark.parametrize("size", [2.0**-10, 2.0**10])  # powers of two: farthest points break their ties alike
def test_the_same_motion_at_every_scale(size: float) -> None:
    """1 mm and 1 km: with E ~ rho g L and time ~ sqrt(L / g) everything is the same motion (Froude and Cauchy).

    But for friction, whose stick speed is a share of the size a second.
    """

    def motion(length: float, g: float) -> np.ndarray:
        material = Material("m", SOFT.young / 9.81 * g * length, 0.3, SOFT.density)
        region = Region((-np.inf,) * 3, (-0.4 * length, np.inf, np.inf), 0.3 * length)
        model = box_model(size=length, material=material, regions=(region,))
        floor = Plane(np.array([0.0, 0.0, -0.42 * length]), np.array([0.0, 0, 1]), np.array([1.0, 0, 0]))
        terms = [gravity(model, np.array([0.0, 0.0, -g])), PlaneContact(model, floor, 0.0, g)]
        fps = 30.0 * np.sqrt(g / 9.81 / length)
        trajectory = simulate(model, terms, Settings(16, fps, 4))
        assert trajectory.converged_fraction == 1.0
        points = np.linspace(-0.5, 0.5, 7)[:, None] * length * np.array([1.0, 0.6, 0.4])
        w, _ = model.handles.evaluate(points)
        one = np.concatenate([points, np.ones((7, 1))], axis=1)
        return np.einsum("qh,thrk,qk->tqr", w, trajectory.handles, one) / length

    unit = motion(1.0, 9.81)
    assert np.abs(unit).max() > 0.05
    np.testing.assert_allclose(motion(size, 9.81 * 10), unit, atol=2e-6)


def test_the_rank_cut_does_not_depend_on_the_unit_of_length() -> None:
    pinned = (end_pin(-0.4, 0.3),)
    expected = box_model(handles=16, regions=pinned).dof
    for size in (2.0**-12, 2.0**12):
        region = Region((-np.inf,) * 3, (-0.4 * size, np.inf, np.inf), 0.3 * size)
        assert box_model(size=size, handles=16, regions=(region,)).dof == expected


def test_a_placed_state_is_the_affine_map_and_velocity_asked_for() -> None:
    model = box_model()
    turn = rotation_about(np.array([0.0, 0.6, 0.8]), 0.7, np.array([0.1, 0.2, 0.3]))
    velocity = np.random.default_rng(0).normal(size=(3, 4))
    state = placed_state(model, turn, velocity, 0.01)
    one = np.concatenate([model.rest, np.ones((len(model.rest), 1))], axis=1)
    held = np.zeros((3, 0))
    np.testing.assert_allclose(model.positions(state.y, held), model.rest + one @ turn.T, atol=1e-10)
    speed = (model.positions(state.y, held) - model.positions(state.y_before, held)) / 0.01
    np.testing.assert_allclose(speed, one @ velocity.T, atol=1e-8)


def test_coordinates_are_mass_orthonormal_and_handles_give_the_same_map() -> None:
    model = box_model(
        regions=(Region((-np.inf,) * 3, (-0.4, np.inf, np.inf), 0.5, lambda t: translation(np.array([t, 0.0, 0.0]))),)
    )
    np.testing.assert_allclose(model.shape.T @ (model.masses[:, None] * model.shape), np.eye(model.dof // 3), atol=1e-9)
    y, held = random_state(model), model.held_coordinates(0.3)
    z = model.all_handles(y, held)
    w, _ = model.handles.evaluate(model.rest)
    one = np.concatenate([model.rest, np.ones((len(model.rest), 1))], axis=1)
    np.testing.assert_allclose(model.positions(y, held), model.rest + np.einsum("qh,hrk,qk->qr", w, z, one), atol=1e-9)
    np.testing.assert_allclose(model.deformation_gradients(y, held), _gradients(model, z), atol=1e-8)


def test_pinning_everything_is_refused() -> None:
    from splatanim.binding import Handles
    from tests.dynamics.models import bound_field
    from tests.helpers import box_cubature

    region = Region((-9.0,) * 3, (9.0,) * 3, 0.1)
    with pytest.raises(InputError, match=r"pinned region covers the whole object: nothing is left to move\. Use a sm"):
        reduce(box_cubature((8, 6, 5), 1 / 8), Handles(bound_field((8, 6, 5), 1 / 8, 4), (region,)), SOFT)


HOSTILE = {
    "soft and heavy, 15 steps a second": (Material("m", 1e3, 0.45, 5000.0), Settings(31, 15.0, 1)),
    "stiff as bone, 30 steps a second": (Material("m", 1e9, 0.3, 1500.0), Settings(31, 30.0, 1)),
    "nearly incompressible": (Material("m", 3e4, 0.495, 1000.0), Settings(31, 30.0, 1)),
    "light as air": (Material("m", 6e3, 0.0, 1.2), Settings(31, 30.0, 4)),
    "corotated, soft and heavy": (Material("m", 1e3, 0.3, 5000.0, model="corotated"), Settings(31, 30.0, 2)),
}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scenes_stay_finite_and_say_how_it_went(name: str, pinned: bool) -> None:
    material, settings = HOSTILE[name]
    model = box_model(material=material, regions=(end_pin(-0.4, 0.2),) if pinned else ())
    floor = Plane(np.array([0.0, 0.0, -0.4]), np.array([0.1, 0.0, 1.0]), np.array([1.0, 0.0, 0.0]))
    trajectory = simulate(model, [gravity(model, DOWN), PlaneContact(model, floor, 0.5, 9.81)], settings)
    assert np.isfinite(trajectory.handles).all()
    assert all(
        report.reason == "converged"
        if report.converged
        else "iterations" in report.reason or "descent" in report.reason
        for report in trajectory.reports
    )
    if name != "soft and heavy, 15 steps a second":  # friction at such steps needs more than 30 iterations now and then
        assert trajectory.converged_fraction > 0.95 and trajectory.penetration < 5e-3
    assert np.abs(trajectory.handles).max() < 1e3


def test_impossible_forces_end_in_a_report_rather_than_an_exception() -> None:
    model = box_model()
    trajectory = simulate(model, [gravity(model, np.array([0.0, 0.0, np.nan]))], Settings(2, 30.0, 1))
    assert trajectory.converged_fraction == 0.0 and trajectory.reports[0].reason == "the energy is not finite"


def test_too_few_iterations_are_reported() -> None:
    model = box_model(material=replace(SOFT, young=1e3), regions=(end_pin(-0.4, 0.2),))
    trajectory = simulate(model, [gravity(model, 5 * DOWN)], Settings(10, 15.0, 1, max_iterations=1, max_halvings=0))
    assert trajectory.converged_fraction < 1.0
    assert any(report.reason == "stopped after 1 iterations" for report in trajectory.reports)


def test_a_symmetric_drop_stays_symmetric() -> None:
    model = box_model((8, 6, 6), handles=6, kind="eigenmodes")
    floor = Plane(np.array([0.0, 0.0, -0.5]), np.array([0.0, 0, 1]), np.array([1.0, 0, 0]))
    terms = [gravity(model, DOWN), PlaneContact(model, floor, 0.5, 9.81)]
    trajectory = simulate(model, terms, Settings(25))
    assert np.abs(_gradients(model, trajectory.handles[-1]) - np.eye(3)).max() > 0.01
    for z in trajectory.handles:
        assert np.abs(centre_of_mass(model, z)[:2]).max() < 1e-3  # the law's groups of points are not symmetric


def test_frames_are_announced_and_the_start_can_be_anything() -> None:
    model = box_model()
    seen: list[int] = []
    simulate(model, [], Settings(4, 30.0, 1), rest_state(model), on_frame=seen.append)
    assert seen == [1, 2, 3]
