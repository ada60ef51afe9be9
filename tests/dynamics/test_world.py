"""Worlds of several bodies: each alone as before, together by contact; obstacles push; what goes wrong is said."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.barrier import ContactSettings
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.regions import rotation_about, translation
from splatanim.dynamics.rigid import rigid_model
from splatanim.dynamics.simulate import Settings, State, placed_state, simulate
from splatanim.dynamics.terms import gravity
from splatanim.dynamics.world import Actor, Obstacle, World, WorldTrajectory, simulate_world
from splatanim.errors import InputError
from tests.dynamics.models import box_model, centre_of_mass, random_state
from tests.helpers import box_cubature

DOWN = np.array([0.0, 0.0, -9.81])
STILL = np.zeros((3, 4))
CELLS = (8, 8, 8)
SOFT = Material("soft", 2e5, 0.4, 1000.0, friction=0.5)


def _block(name: str, place: np.ndarray, velocity=(0.0, 0.0, 0.0), h: float = 1 / 120, terms=None, **material) -> Actor:
    stuff = Material("m", **({"young": 2e5, "poisson": 0.4, "density": 1000.0} | material))
    model = box_model(CELLS, handles=2, count=64, material=stuff)
    state = placed_state(model, translation(place), translation(velocity), h)
    return Actor(name, model, tuple(make(model) for make in terms or ()), state)


def _paths(world: World, run: WorldTrajectory) -> np.ndarray:
    """Centres of mass (bodies, T, 3)."""
    return np.array(
        [[centre_of_mass(a.model, z) for z in t.handles] for a, t in zip(world.actors, run.trajectories, strict=True)]
    )


def _weight(model):
    return gravity(model, DOWN)


@pytest.mark.parametrize("integrator", ["euler", "bdf2"])
def test_bodies_that_never_meet_move_as_they_do_alone(integrator: str) -> None:
    one, two = box_model((6, 5, 4), handles=2), box_model((5, 4, 4), handles=3)
    y = random_state(two, 0.2)
    states = State(np.zeros(one.dof), random_state(one, 0.01)), State(y, y)
    far = placed_state(two, translation([50.0, 0, 0]), STILL, 1 / 60)
    states = states[0], State(states[1].y + far.y, states[1].y_before + far.y)
    settings = Settings(8, 30.0, 2, integrator=integrator)
    actors = (Actor("one", one, (gravity(one, DOWN),), states[0]), Actor("two", two, (), states[1]))
    run = simulate_world(World(actors), settings)
    for actor, mine in zip(actors, run.trajectories, strict=True):
        alone = simulate(actor.model, actor.terms, settings, actor.state)
        np.testing.assert_allclose(mine.handles, alone.handles, atol=1e-6)
    assert run.smallest_gap == np.inf and run.converged_fraction == 1.0 and not run.notes
    assert set(run.substeps) == {1} and len(run.gaps) == len(run.reports) == 14
    assert run.elastic[0, 0] == 0 and run.elastic[0, 1] > 0 and run.kinetic[0, 0] > 0


@pytest.mark.parametrize("integrator", ["euler", "bdf2"])
def test_a_collision_keeps_momentum_and_every_gap_open(integrator: str) -> None:
    settings = Settings(16, 30.0, 3, integrator=integrator)
    left = _block("left", np.array([-0.6, 0.0, 0.0]), (2.0, 0.0, 0.2), settings.h)
    right = _block("right", np.array([0.6, 0.25, 0.1]), (-1.0, 0.0, 0.0), settings.h, density=3000.0)
    world = World((left, right))
    run = simulate_world(world, settings)
    velocity = np.diff(_paths(world, run), axis=1) * 30
    momentum = np.einsum("a,atc->tc", [left.model.mass, right.model.mass], velocity)
    scale = left.model.mass * 2.0
    assert np.linalg.norm(momentum - momentum[0], axis=1).max() < 1e-4 * scale
    assert np.linalg.norm(velocity[0, -1] - velocity[0, 0]) > 1.0  # they did meet
    assert 0 < run.smallest_gap < 1 and run.converged_fraction == 1.0
    assert (np.diff(run.kinetic.sum(axis=1) + run.elastic.sum(axis=1)) < 0.02 * run.kinetic[0].sum()).all()


def test_without_contact_they_pass_through_each_other() -> None:
    settings = Settings(16, 30.0, 2)
    actors = (
        _block("left", np.array([-0.6, 0.0, 0.0]), (3.0, 0.0, 0.0), settings.h),
        _block("right", np.array([0.6, 0.0, 0.0]), (-3.0, 0.0, 0.0), settings.h),
    )
    world = World(actors, contact=None)
    paths = _paths(world, simulate_world(world, settings))
    assert paths[0, -1, 0] > 0.8 and paths[1, -1, 0] < -0.8
    paths = _paths(world, simulate_world(World(actors), settings))
    assert paths[0, :, 0].max() < -0.3


def _plate(half: float, count: int, height: float) -> np.ndarray:
    side = np.linspace(-half, half, count)
    return np.stack(np.meshgrid(side, side, [height]), -1).reshape(-1, 3)


def test_an_obstacle_carries_a_block_and_a_rising_one_lifts_it() -> None:
    block = _block("block", np.array([0.0, 0.0, 0.57]), terms=(_weight,))
    plate = Obstacle("plate", _plate(0.9, 30, 0.0), lambda t: translation([0.0, 0.0, 0.4 * max(0.0, t - 0.5)]))
    world = World((block,), (plate,))
    run = simulate_world(world, Settings(37, 30.0, 4))
    height = _paths(world, run)[0, :, 2]
    assert run.converged_fraction == 1.0 and run.smallest_gap > 0
    assert height[-1] - height[15] == pytest.approx(0.4 * 0.7, abs=0.02)


def test_a_fast_obstacle_pushes_what_stands_in_its_way() -> None:
    """By a quarter of the block's size a step: far more than any gap; the block is pushed, not run through."""
    block = _block("block", np.array([0.0, 0.0, 0.0]))
    wall = _plate(0.7, 24, -0.62)
    hammer = Obstacle("hammer", wall, lambda t: translation([0.0, 0.0, 15.0 * min(t, 0.1)]))
    world = World((block,), (hammer,))
    run = simulate_world(world, Settings(7, 30.0, 2))
    path = _paths(world, run)[0, :, 2]
    assert path[-1] - (-0.62 + 1.5) > 0.35  # still ahead of the wall
    assert run.smallest_gap > 0


def test_an_obstacle_that_cannot_be_evaded_is_reported() -> None:
    """Pressed through a block whose other side is held by a second one: no way out, and the run says so."""
    block = _block("block", np.array([0.0, 0.0, 0.0]), young=1e8)
    still = Obstacle("anvil", _plate(0.7, 24, -0.56), lambda t: STILL)
    press = Obstacle("press", _plate(0.7, 24, 0.56), lambda t: translation([0.0, 0.0, -8.0 * t]))
    run = simulate_world(World((block,), (still, press)), Settings(2, 30.0, 1, max_halvings=0, max_iterations=12))
    assert np.isfinite(run.trajectories[0].handles).all()
    assert run.converged_fraction < 1.0
    assert any("did not converge, even so" in note for note in run.notes)


def test_friction_between_bodies_holds_and_none_lets_slide() -> None:
    """A rigid block on an obstacle tilted by 15 degrees."""
    angle = np.radians(15.0)
    tilt = rotation_about(np.array([0.0, 1.0, 0.0]), angle, np.zeros(3))
    down = np.array([np.cos(angle), 0.0, -np.sin(angle)])
    normal = np.array([np.sin(angle), 0.0, np.cos(angle)])
    slid = {}
    for friction in (0.0, 0.8):
        model, terms = rigid_model(box_cubature(CELLS, 1 / 16), SOFT)
        start = tilt + translation(0.277 * normal)
        state = placed_state(model, start, STILL, 1 / 120)
        plate = Obstacle("slope", _plate(1.2, 120, 0.0), lambda t: tilt)
        block = Actor("block", model, (*terms, gravity(model, DOWN)), state)
        world = World((block,), (plate,), ContactSettings(friction=friction))
        run = simulate_world(world, Settings(22, 30.0, 4))
        assert run.converged_fraction == 1.0 and run.smallest_gap > 0
        slid[friction] = (_paths(world, run)[0, -1] - _paths(world, run)[0, 0]) @ down
    assert slid[0.0] > 0.3  # g sin(15 degrees) t^2 / 2 = 0.62, less what the points of the plate take
    assert abs(slid[0.8]) < 0.03


def test_a_stack_rests_on_the_floor() -> None:
    def rest(model):
        return PlaneContact(model, Plane(np.array([0, 0, -0.5]), -DOWN / 9.81, np.array([1.0, 0, 0])), 0.6, 9.81)

    actors = tuple(
        # (at 1e6 Pa three metres of it are three quarters of the height that buckles under its own weight: it sways)
        _block(f"b{k}", np.array([0.0, 0.0, 0.002 + 1.004 * k]), terms=(_weight, rest), young=1e7, friction=0.6)
        for k in range(3)
    )
    world = World(actors)
    run = simulate_world(world, Settings(31, 30.0, 4))
    paths = _paths(world, run)
    assert run.converged_fraction == 1.0 and run.smallest_gap > 0
    assert np.abs(paths[:, -1] - paths[:, 15]).max() < 5e-3
    assert all(t.penetration < 5e-3 for t in run.trajectories)


def test_bodies_that_start_in_each_other_are_named_and_stay_finite() -> None:
    world = World((_block("one", np.zeros(3)), _block("two", np.array([0.9, 0.0, 0.0]))))
    run = simulate_world(world, Settings(6, 30.0, 2))
    assert np.isfinite(run.trajectories[0].handles).all()
    assert "one and two overlap at the start, by 1" in run.notes[0] and run.smallest_gap < 0


def test_a_bodys_own_elasticity_replaces_the_default() -> None:
    model = box_model(CELLS, handles=2, count=64)
    y = random_state(model, 0.1)
    settings = Settings(4, 30.0, 2)
    twice = AveragedElasticity(model, np.full(len(model.rest), 2.0))
    run = simulate_world(World((Actor("a", model, (twice,), State(y, y)),)), settings)
    plain = simulate_world(World((Actor("a", model, (), State(y, y)),)), settings)
    assert run.elastic[0, 0] == pytest.approx(2 * plain.elastic[0, 0])


def test_impossible_worlds_are_refused() -> None:
    block = _block("block", np.zeros(3))
    with pytest.raises(InputError, match=r"The world has no body to simulate\. Add at least one that is not an obst"):
        World(())
    with pytest.raises(InputError, match=r"Two bodies of the world are called 'block'\. Give each a name of its own\."):
        World((block, block))
    with pytest.raises(InputError, match=r"Obstacle 'wall': its 0 points must be at least one and all finite\."):
        Obstacle("wall", np.zeros((0, 3)), lambda t: STILL)
    wrong = Actor("block", block.model, (), State(np.zeros(3), np.zeros(3)))
    with pytest.raises(InputError, match=r"Body 'block': its state has 3 coordinates, its model 36\."):
        simulate_world(World((wrong,)), Settings(2))
