"""Both integrators against closed forms: order of convergence, what oscillations, spins and pendulums lose."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.integrators import History, advance, predict
from splatanim.dynamics.newton import minimise
from splatanim.dynamics.regions import Region, rotation_about, translation
from splatanim.dynamics.rigid import rigid_model
from splatanim.dynamics.simulate import Settings, State, placed_state, simulate
from splatanim.dynamics.terms import gravity
from splatanim.dynamics.world import Actor, World, simulate_world
from tests.dynamics.models import SOFT, box_model, elastic_hessian, end_pin, random_state, rest_step
from tests.helpers import box_cubature

DOWN = np.array([0.0, 0.0, -9.81])
STILL = np.zeros((3, 4))
ORDER = {"euler": 1, "bdf2": 2}


def _mode():
    """A pinned box of a linear material, its softest mode and that mode's angular frequency."""
    model = box_model(material=replace(SOFT, model="linear", stretch_limit=50.0), regions=(end_pin(-0.5, 0.3),))
    squared, modes = np.linalg.eigh(elastic_hessian(model))
    return model, np.sqrt(squared[0]), modes[:, 0]


def _swing(integrator: str, steps_a_period: int, periods: float = 2.0) -> np.ndarray:
    """The mode's amplitude after every step, from 0.1 at rest."""
    model, w, mode = _mode()
    h = 2 * np.pi / w / steps_a_period
    start = 0.1 * mode
    count = round(steps_a_period * periods)
    settings = Settings(count + 1, 1 / h, 1, integrator=integrator)
    trajectory = simulate(model, [], settings, State(start, start))
    z = trajectory.handles[:, : model.handles.free].transpose(0, 2, 1, 3).reshape(count + 1, 3, -1)
    return (z @ np.linalg.pinv(model.to_handles).T).reshape(count + 1, -1) @ mode / 0.1


@pytest.mark.parametrize("integrator", ORDER)
def test_halving_the_step_shrinks_the_error_by_the_order(integrator: str) -> None:
    errors = [abs(_swing(integrator, n, 1.125)[-1] - np.cos(2 * np.pi * 1.125)) for n in (48, 96, 192)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders[-1] == pytest.approx(ORDER[integrator], abs=0.15)
    assert errors[-1] < {"euler": 0.2, "bdf2": 3e-3}[integrator]


@pytest.mark.parametrize("steps", [20, 40])
def test_an_oscillation_loses_what_each_method_makes_it_lose(steps: int) -> None:
    """A period's share: (1 + h^2 w^2)^(-n/2) of Euler, about exp(-n h^4 w^4 / 4) of BDF2."""
    for integrator, left in (
        ("euler", 0.5 * np.log1p((2 * np.pi / steps) ** 2)),
        ("bdf2", (2 * np.pi / steps) ** 4 / 4),
    ):
        y = _swing(integrator, steps, 4.0)
        peaks = [np.abs(y[k * steps : (k + 1) * steps]).max() for k in range(1, 4)]
        loss = -np.log(peaks[2] / peaks[1]) / steps
        assert loss == pytest.approx(left, rel=0.4)


def test_a_rigid_spin_is_kept_by_bdf2() -> None:
    """One turn a second at 120 steps a second: Euler loses 22 % of the speed in a second, BDF2 under 1 %."""
    kept = {}
    for integrator in ORDER:
        model, terms = rigid_model(box_cubature((6, 6, 3), 1 / 6), SOFT)
        settings = Settings(31, 30.0, 4, integrator=integrator)
        spin = np.array([[0.0, -2 * np.pi, 0.0, 0.0], [2 * np.pi, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
        trajectory = simulate(model, terms, settings, placed_state(model, STILL, spin, settings.h))
        turned = np.eye(3) + trajectory.handles[:, 0, :, :3]
        angle = np.unwrap(np.arctan2(turned[:, 1, 0], turned[:, 0, 0]))
        kept[integrator] = (angle[-1] - angle[-2]) * 30 / (2 * np.pi)
        assert np.abs(np.linalg.svd(turned, compute_uv=False) - 1).max() < 1e-3
    assert kept["euler"] == pytest.approx(0.78, abs=0.02)
    assert kept["bdf2"] == pytest.approx(1.0, abs=0.01)


def test_a_pendulum_swings_on_with_bdf2() -> None:
    """A bar hung up by its end, let go from where a sidewards pull holds it: what is left two swings later."""
    region = Region((-np.inf, -np.inf, 0.42), (np.inf,) * 3, 0.05)
    model = box_model((2, 2, 12), handles=6, material=Material("bar", 2e5, 0.3, 1000.0), regions=(region,))
    pulled: list = [AveragedElasticity(model), gravity(model, np.array([3.0, 0.0, -9.81]))]
    for term in pulled:
        term.begin_step(rest_step(model))
    y, report = minimise(pulled, np.zeros(model.dof), tolerance=1e-6, max_iterations=100)
    assert report.converged
    fastest = {}
    for integrator in ORDER:
        actor = Actor("bar", model, (gravity(model, DOWN),), State(y, y))
        world = simulate_world(World((actor,)), Settings(101, 30.0, 2, integrator=integrator))
        assert world.converged_fraction == 1.0
        fastest[integrator] = world.kinetic[:50, 0].max(), world.kinetic[50:, 0].max()
    kept = {name: after / before for name, (before, after) in fastest.items()}
    assert kept["euler"] < 0.85 and kept["bdf2"] > 0.93


def test_free_fall_is_exact_with_bdf2_but_for_the_first_step() -> None:
    """y = g t^2 / 2 after an Euler step that falls h^2 g / 2 too far, which stays an offset."""
    model = box_model()
    h = 1 / 60
    trajectory = simulate(model, [gravity(model, DOWN)], Settings(21, 1 / h, 1, integrator="bdf2"))
    w, _ = model.handles.evaluate(np.zeros((1, 3)))
    fallen = np.einsum("h,th->t", w[0], trajectory.handles[:, :, 2, 3])
    t = trajectory.times
    assert np.abs(fallen + 0.5 * 9.81 * t**2).max() < 0.8 * 9.81 * h**2


@pytest.mark.parametrize("integrator", ORDER)
def test_prescribed_motion_is_met_at_its_exact_times(integrator: str) -> None:
    """A held end that swings: every frame shows it where its motion says, however the steps were cut."""

    def motion(t: float) -> np.ndarray:
        return rotation_about(np.array([0.0, 0.0, 1.0]), 0.6 * np.sin(7 * t), np.zeros(3)) + translation(
            [0.1 * t, 0, 0]
        )

    region = Region((-np.inf,) * 3, (-0.4, np.inf, np.inf), 0.3, motion)
    model = box_model(regions=(region,))
    settings = Settings(16, 30.0, 2, integrator=integrator)
    whole = simulate(model, [], settings)
    cut = simulate(model, [], dataclasses.replace(settings, max_iterations=1))
    for trajectory in (whole, cut):
        for time, z in zip(trajectory.times, trajectory.handles[:, -1], strict=True):
            np.testing.assert_allclose(z, motion(time), atol=1e-12)
    assert np.abs(whole.handles - cut.handles).max() > 0  # it was cut
    assert cut.converged_fraction == 1.0
    np.testing.assert_allclose(cut.handles, whole.handles, atol=0.15)


@pytest.mark.parametrize("pattern", [(1.0, 0.5), (1.0, 2.0, 0.7), (0.5, 0.5, 1.0, 1.0)])
def test_bdf2_stays_of_second_order_where_steps_change_their_length(pattern: tuple[float, ...]) -> None:
    """q'' = -q, the prediction solved in closed form: q (1 + reach^2) = target."""
    errors = []
    for count in (200, 400):
        history, time, k = History(np.ones(1), np.zeros(1)), 0.0, 0
        while time < 6.0:
            h = pattern[k % len(pattern)] * 8.0 / count
            prediction = predict(history, h, "bdf2")
            assert k == 0 or prediction.reach < h
            history = advance(history, prediction, prediction.target / (1.0 + prediction.reach**2), h)
            time, k = time + h, k + 1
        errors.append(float(np.hypot(history.now[0] - np.cos(time), history.velocity[0] + np.sin(time))))
    assert errors[1] < 2e-3 and np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.35)


@pytest.mark.parametrize("integrator", ORDER)
def test_the_energy_of_a_free_oscillation_falls_in_every_step(integrator: str) -> None:
    """No ripple, of one mode or of all at once, small or large."""
    model, w, mode = _mode()
    stiff = box_model(regions=(end_pin(-0.5, 0.3),))
    for body, y in ((model, 0.02 * mode), (stiff, random_state(stiff, 0.1))):
        settings = Settings(61, 30.0 * w / np.pi, 1, integrator=integrator)
        world = simulate_world(World((Actor("a", body, (), State(y, y)),)), settings)
        assert (np.diff((world.kinetic + world.elastic)[:, 0]) < 0).all()


def test_a_much_shorter_step_starts_bdf2_again() -> None:
    history = History(np.zeros(3), np.ones(3))
    first = predict(history, 0.1, "bdf2")
    assert first.reach == 0.1
    history = advance(history, first, np.full(3, 0.1), 0.1)
    assert predict(history, 0.1, "bdf2").reach == pytest.approx(0.2 / 3)
    assert predict(history, 0.05, "bdf2").reach == pytest.approx(0.05 * 1.5 / 2.0)
    assert predict(history, 0.2, "bdf2").reach == pytest.approx(0.2 * 3.0 / 5.0)
    assert predict(history, 0.25, "bdf2").reach == 0.25
    assert predict(history, 0.1, "euler").reach == 0.1


def _bounces(integrator: str) -> tuple[np.ndarray, np.ndarray]:
    """A ball's energies per fall height, and its heights over the floor, in each frame of a second and a half."""
    model = box_model((6, 6, 6), handles=2, count=64, material=Material("ball", 2e5, 0.3, 1000.0, friction=0.0))
    settings = Settings(46, 30.0, 4, integrator=integrator)
    floor = Plane(np.array([0.0, 0.0, -0.8]), -DOWN / 9.81, np.array([1.0, 0.0, 0.0]))
    terms = (gravity(model, DOWN), PlaneContact(model, floor, 0.0, 9.81))
    world = simulate_world(World((Actor("ball", model, terms),)), settings)
    assert world.converged_fraction == 1.0
    w, _ = model.handles.evaluate(np.zeros((1, 3)))
    height = np.einsum("h,th->t", w[0], world.trajectories[0].handles[:, :, 2, 3]) + 0.3
    total = world.kinetic[:, 0] + world.elastic[:, 0] + model.mass * 9.81 * height
    return total / (model.mass * 9.81 * 0.3), height


def test_a_bouncing_ball_never_gains_energy_and_keeps_more_with_bdf2() -> None:
    left = {}
    for integrator in ORDER:
        total, height = _bounces(integrator)
        flights = [run for run in np.split(np.arange(46), np.flatnonzero(height < 0.05)) if len(run) > 4]
        assert len(flights) >= 2
        means = [total[run[1:]].mean() for run in flights]
        assert (np.diff(means) < 0).all()  # less after every bounce
        left[integrator] = means[1]
        if integrator == "euler":
            clear = np.flatnonzero(height > 0.05)  # the floor's penalty holds energy too
            assert (np.diff(total[clear]) < 1e-3).all()
    assert left["bdf2"] > left["euler"] + 0.05
