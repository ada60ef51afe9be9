"""Planes: resting, sliding and sticking against Coulomb's law, weight and depth; no tunnelling; moving planes."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Cubature, Domain, Material
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.regions import rotation_about, translation
from splatanim.dynamics.rigid import rigid_model
from splatanim.dynamics.simulate import Settings, Trajectory, placed_state, simulate
from splatanim.dynamics.terms import gravity
from splatanim.errors import InputError
from splatanim.sampling.cubature import spread
from tests.dynamics.models import affine, box_model, centre_of_mass, rest_step
from tests.helpers import box_cubature

G = 9.81
DOWN = np.array([0.0, 0.0, -G])
UP = -DOWN / G
ACROSS = np.array([1.0, 0.0, 0.0])
STILL = np.zeros((3, 4))
STONE = Material("stone", 1e6, 0.3, 1000.0)
SLAB = (8, 8, 3)


def _floor(height: float, **changes) -> Plane:
    return Plane(np.array([0.0, 0.0, height]), UP, ACROSS, **changes)


def _drop(model: ReducedModel, lift: float, seconds: float, substeps: int = 4, friction: float = 0.5):
    low = model.contact_rest[:, 2].min()
    contact = PlaneContact(model, _floor(low), friction, G)
    settings = Settings(round(30 * seconds) + 1, 30.0, substeps)
    state = placed_state(model, translation(np.array([0.0, 0.0, lift])), STILL, settings.h)
    return contact, simulate(model, [gravity(model, DOWN), contact], settings, state)


def _heights(model: ReducedModel, contact: PlaneContact, z: np.ndarray) -> np.ndarray:
    """Heights of the contact points in a frame."""
    y = z.transpose(1, 0, 2).reshape(3, -1) @ np.linalg.pinv(model.to_handles).T
    return contact.heights(y.ravel(), np.zeros((3, 0)), 0.0)


def _speeds(model: ReducedModel, trajectory: Trajectory) -> np.ndarray:
    centres = np.array([centre_of_mass(model, z) for z in trajectory.handles])
    return np.diff(centres, axis=0) * 30.0


@pytest.mark.parametrize(("young", "substeps"), [(2e4, 1), (2e4, 4), (1e6, 1)])
def test_a_dropped_block_comes_to_rest_and_carries_its_weight(young: float, substeps: int) -> None:
    model = box_model(SLAB, material=Material("m", young, 0.3, 1000.0))
    contact, trajectory = _drop(model, 0.3, 4.0, substeps)
    assert trajectory.converged_fraction == 1.0
    assert trajectory.penetration < 5e-3
    assert np.abs(_speeds(model, trajectory)[-5:]).max() < 0.02
    lowest = _heights(model, contact, trajectory.handles[-1]).min()
    assert 0.0 <= lowest <= contact.margin

    y = (trajectory.handles[-1].transpose(1, 0, 2).reshape(3, -1) @ np.linalg.pinv(model.to_handles).T).ravel()
    contact.begin_step(rest_step(model, trajectory.times[1] / substeps, y=y, y_before=y))
    push = -contact.gradient(y) @ affine(model, translation(UP))
    assert push == pytest.approx(model.mass * G, rel=0.05)


def test_the_first_touch_shows_in_penetration_only_as_far_as_points_go_under() -> None:
    model = box_model(SLAB, material=STONE)
    contact, trajectory = _drop(model, -0.02, 2 / 30)  # starts 2 % under
    assert 0.0 <= trajectory.penetration < 5e-3  # pushed out within the first step
    assert _heights(model, contact, trajectory.handles[-1]).min() > 0


@pytest.mark.parametrize(("size", "substeps"), [(3e-3, 4), (0.03, 1), (1.0, 1)])
def test_nothing_falls_through_the_floor_at_any_size_or_step(size: float, substeps: int) -> None:
    """Small objects cross many times their own size in a step, and still land."""
    material = Material("m", 2e4 * max(size, 1.0), 0.3, 500.0)
    model = box_model((6, 5, 4), size=size, material=material)
    contact, trajectory = _drop(model, 2 * size, 1.5, substeps)
    lowest = min(_heights(model, contact, z).min() for z in trajectory.handles)
    assert lowest > -5e-3 * size and trajectory.penetration < 5e-3
    assert _heights(model, contact, trajectory.handles[-1]).min() < 0.5 * size


def _slide(degrees: float, friction: float, substeps: int = 4, seconds: float = 1.5) -> np.ndarray:
    """Velocities of a flat stone's centre down a slope it was put on, one a frame (the first half second left out)."""
    model = box_model(SLAB, material=STONE)
    angle, foot = np.radians(degrees), np.array([0.0, 0.0, model.contact_rest[:, 2].min()])
    normal = np.array([np.sin(angle), 0.0, np.cos(angle)])
    down = np.array([np.cos(angle), 0.0, -np.sin(angle)])
    contact = PlaneContact(model, Plane(foot - 0.0026 * normal, normal, down), friction, G)
    settings = Settings(round(30 * seconds) + 1, 30.0, substeps)
    turned = placed_state(model, rotation_about(np.array([0.0, 1.0, 0.0]), angle, foot), STILL, settings.h)
    trajectory = simulate(model, [gravity(model, DOWN), contact], settings, turned)
    assert trajectory.converged_fraction == 1.0 and trajectory.penetration < 5e-3
    return (_speeds(model, trajectory) @ down)[15:]


@pytest.mark.parametrize(("degrees", "friction", "substeps"), [(20, 0, 1), (20, 0.3, 1), (20, 0.3, 4), (30, 0.5, 1)])
def test_a_steep_slope_lets_slide_with_coulombs_acceleration(degrees: float, friction: float, substeps: int) -> None:
    speeds = _slide(degrees, friction, substeps)
    expected = G * (np.sin(np.radians(degrees)) - friction * np.cos(np.radians(degrees)))
    measured = (speeds[-1] - speeds[0]) / ((len(speeds) - 1) / 30)
    assert measured == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("degrees", "friction", "substeps"), [(20, 0.4, 1), (20, 0.7, 1), (20, 0.4, 4), (30, 0.6, 1)])
def test_a_rough_slope_holds_but_for_a_creep_under_the_stick_speed(
    degrees: float, friction: float, substeps: int
) -> None:
    """The regularised friction gives way by at most 0.5 % of the size a second, and does not speed up.

    (Lagged, it misses the step of the touch: what that gave the stone has been braked away after a second.)
    """
    speeds = _slide(degrees, friction, substeps, seconds=2.5)[30:]
    assert np.abs(speeds).max() < 5e-3
    assert abs(speeds[-1] - speeds[0]) < 5e-4


def test_a_rising_plane_lifts_and_a_sideways_one_carries() -> None:
    model = box_model(SLAB, material=Material("m", 1e6, 0.3, 1000.0))
    low = model.contact_rest[:, 2].min()
    belt = _floor(low, shift=lambda t: np.array([0.2 * min(t, 1.0), 0.0, 0.1 * min(t, 1.0)]))
    contact = PlaneContact(model, belt, 0.8, G)
    trajectory = simulate(model, [gravity(model, DOWN), contact], Settings(60))
    moved = centre_of_mass(model, trajectory.handles[-1]) - centre_of_mass(model, trajectory.handles[0])
    assert moved[2] == pytest.approx(0.1, abs=5e-3)
    assert moved[0] == pytest.approx(0.2, abs=0.02)
    assert abs(moved[1]) < 1e-3


def test_a_finite_rectangle_is_fallen_past() -> None:
    model = box_model(SLAB, material=STONE)
    table = Plane(np.array([3.0, 0.0, -0.5]), UP, ACROSS, (1.0, 1.0))
    contact = PlaneContact(model, table, 0.5, G)
    trajectory = simulate(model, [gravity(model, DOWN), contact], Settings(20))
    assert centre_of_mass(model, trajectory.handles[-1])[2] < -1.5 and trajectory.penetration == 0.0


TABLE = Plane(np.array([0.1, 0.0, 0.0]), UP, ACROSS, (0.6, 0.4))


def test_a_finite_planes_energy_is_continuous_across_its_edges() -> None:
    """A rigid block carried over each edge and a corner, at heights from above the margin to deep inside."""
    model, _ = rigid_model(box_cubature((4, 4, 4), 0.05), STONE)
    for height in (0.1003, 0.0995, 0.09):
        for start, way in (([0.55, 0.1, height], [0.3, 0.0, 0.0]), ([0.55, 0.35, height], [0.3, 0.3, 0.0])):
            jumps = []
            for count in (2000, 8000):
                path = [
                    affine(model, translation(np.add(start, s * np.array(way)))) for s in np.linspace(0.0, 1.0, count)
                ]
                contact = PlaneContact(model, TABLE, 0.0, G)
                contact.begin_step(rest_step(model, y=path[0], y_before=path[0]))
                energy = np.array([contact.energy(y) for y in path])
                assert energy[0] > 0.0 and energy[-1] == 0.0
                jumps.append(np.abs(np.diff(energy)).max())
            assert jumps[1] < 0.35 * jumps[0]  # a jump would stay as it is, however short the steps


@pytest.mark.parametrize(
    "offset", [(0.69, 0.1, 0.1), (0.8002, 0.1, 0.098), (0.65, 0.5002, 0.1001), (0.8002, 0.5001, 0.1002)]
)
def test_finite_differences_at_a_finite_planes_edge(offset: tuple[float, float, float]) -> None:
    """On the face, at the side, over the other edge and at a corner; the block turned, so that nothing coincides."""
    model, _ = rigid_model(box_cubature((4, 4, 4), 0.05), STONE)
    turn = rotation_about(np.array([0.3, 0.5, 1.0]) / np.sqrt(1.34), 5e-4, np.zeros(3))
    y = affine(model, turn + translation(offset))
    contact = PlaneContact(model, TABLE, 0.5, G)
    before = affine(model, turn + translation(np.asarray(offset) - np.array([2e-4, 1e-4, 0.0])))
    contact.begin_step(rest_step(model, y=before, y_before=before))
    gradient, exact, projected = contact.gradient(y), contact.hessian(y, psd=False), contact.hessian(y)
    step = 1e-8
    shifts = step * np.eye(len(y))
    slopes = np.array([(contact.energy(y + d) - contact.energy(y - d)) / (2 * step) for d in shifts])
    bends = np.array([(contact.gradient(y + d) - contact.gradient(y - d)) / (2 * step) for d in shifts])
    assert np.abs(gradient).max() > 1.0
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-5 * np.abs(gradient).max())
    np.testing.assert_allclose(exact, bends, rtol=0, atol=1e-4 * np.abs(exact).max())
    assert np.linalg.eigvalsh(projected).min() > -1e-9 * np.abs(projected).max()


def test_a_ball_rolls_off_an_edge_and_falls_beside_it() -> None:
    """It pivots over the edge: no jump of energy throws it up, and nothing pulls it back."""
    grid = np.stack(np.meshgrid(*(np.arange(9),) * 3, indexing="ij"), -1).reshape(-1, 3)
    ball = Domain(grid[np.linalg.norm(grid - 4.0, axis=1) <= 4.5], np.full(3, -0.1), 0.2 / 9)
    points, volumes = spread(ball, 64)
    rays = np.random.default_rng(0).normal(size=(400, 3))
    skin = 0.1 * rays / np.linalg.norm(rays, axis=1, keepdims=True)
    model, terms = rigid_model(Cubature(points, volumes, skin, ball, "ball"), STONE)
    contact = PlaneContact(model, TABLE, 0.5, G)
    settings = Settings(31, 30.0, 4)
    state = placed_state(model, translation([0.4, 0.0, 0.1]), translation([0.8, 0.0, 0.0]), settings.h)
    run = simulate(model, [*terms, gravity(model, DOWN), contact], settings, state)
    path = np.array([centre_of_mass(model, z) for z in run.handles])
    assert run.converged_fraction == 1.0 and run.penetration < 0.01
    assert path[:, 2].max() < 0.103 and path[-1, 2] < -0.3 and path[-1, 0] > 0.7
    speed = np.diff(path, axis=0) * 30.0
    energy = 0.5 * (speed**2).sum(axis=1) + G * 0.5 * (path[1:, 2] + path[:-1, 2])
    assert np.diff(energy).max() < 0.03 * G * 0.1  # [m^2/s^2]


def test_planes_without_a_direction_are_refused() -> None:
    with pytest.raises(InputError, match="Plane: its normal is zero"):
        Plane(np.zeros(3), np.zeros(3), ACROSS)
    with pytest.raises(InputError, match="Plane: its tangent must not be parallel to its normal"):
        Plane(np.zeros(3), UP, 2.0 * UP)


def test_a_planes_frame_is_right_handed_whatever_it_is_given() -> None:
    frame = Plane(np.zeros(3), np.array([0.0, 2.0, 1.0]), np.array([1.0, 1.0, 0.0])).frame()
    np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(frame) == pytest.approx(1.0)
    np.testing.assert_allclose(frame[2], np.array([0.0, 2.0, 1.0]) / np.sqrt(5))
