"""Rigid bodies: derivatives, mass and moments, shape kept while spinning and rolling."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.binding import Handles
from splatanim.data import Material
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.reduced import reduce
from splatanim.dynamics.regions import translation
from splatanim.dynamics.rigid import NoField, Orthogonality, rigid_model
from splatanim.dynamics.simulate import Settings, placed_state
from splatanim.dynamics.terms import gravity
from splatanim.dynamics.world import Actor, World, simulate_world
from splatanim.errors import InputError
from splatanim.field import SkinningField
from splatanim.sampling.cubature import cubature_from_mesh
from tests.dynamics.models import box_model, random_state
from tests.helpers import box_cubature
from tests.sampling.shapes import UNIT, ball_mesh

STONE = Material("stone", 1e9, 0.3, 2000.0, friction=0.5)
DOWN = np.array([0.0, 0.0, -9.81])


def _central(function, y: np.ndarray, step: float) -> np.ndarray:
    return np.array([(function(y + step * e) - function(y - step * e)) / (2 * step) for e in np.eye(len(y))])


def test_gradient_and_hessian_match_finite_differences() -> None:
    model, (term,) = rigid_model(box_cubature((7, 5, 4), 1 / 7), STONE)
    assert isinstance(NoField(), SkinningField) and model.dof == 12
    y = random_state(model, 0.3)
    gradient, exact, projected = term.gradient(y), term.hessian(y, psd=False), term.hessian(y)
    e = 1e-5 * np.sqrt(model.mass)
    np.testing.assert_allclose(gradient, _central(term.energy, y, e), rtol=0, atol=1e-6 * np.abs(gradient).max())
    np.testing.assert_allclose(exact, _central(term.gradient, y, e), rtol=0, atol=1e-6 * np.abs(exact).max())
    assert np.linalg.eigvalsh(projected).min() > -1e-12 * np.abs(projected).max()
    squashed = -0.3 * np.sqrt(model.mass) * y / np.linalg.norm(y)
    values = np.linalg.eigvalsh(term.hessian(squashed, psd=False))
    assert np.linalg.eigvalsh(term.hessian(squashed)).min() >= min(values.min(), 0.0)


def test_eight_points_have_the_mass_centre_and_moments_of_all() -> None:
    cubature = box_cubature((9, 6, 3), 1 / 9)
    model, _ = rigid_model(cubature, STONE)
    full = reduce(cubature, Handles(NoField()), STONE)
    assert len(model.rest) == 8 and model.mass == pytest.approx(full.mass)
    np.testing.assert_allclose(model.masses @ model.rest, full.masses @ full.rest, atol=1e-9)
    sides = np.array([1.0, 6 / 9, 3 / 9])
    second = (model.rest * model.masses[:, None]).T @ model.rest
    np.testing.assert_allclose(second, model.mass * np.diag(sides**2) / 12, atol=1e-9 * model.mass)


@pytest.mark.parametrize("integrator", ["euler", "bdf2"])
def test_a_thrown_tumbling_box_keeps_its_shape_and_angular_momentum(integrator: str) -> None:
    model, terms = rigid_model(box_cubature((8, 5, 3), 1 / 8), STONE)
    settings = Settings(31, 30.0, 8, integrator=integrator)
    spin = np.array([0.3, 2.0, 6.0])
    cross = np.array([[0, -spin[2], spin[1]], [spin[2], 0, -spin[0]], [-spin[1], spin[0], 0]])
    velocity = np.concatenate([cross, [[1.0], [0.0], [3.0]]], axis=1)
    state = placed_state(model, np.zeros((3, 4)), velocity, settings.h)
    world = simulate_world(World((Actor("box", model, (*terms, gravity(model, DOWN)), state),)), settings)
    assert world.converged_fraction == 1.0
    z = world.trajectories[0].handles[:, 0]
    linear = np.eye(3) + z[..., :3]
    assert np.abs(np.linalg.svd(linear, compute_uv=False) - 1).max() < 1e-3
    one = np.concatenate([model.rest, np.ones((8, 1))], axis=1)
    x = model.rest + np.einsum("trk,qk->tqr", z, one)
    moment = []
    for now, later in ((x[1], x[2]), (x[-2], x[-1])):
        middle = 0.5 * (now + later)
        moment.append(model.masses @ np.cross(middle - middle.mean(axis=0), (later - now) * 30))
    kept = np.linalg.norm(moment[1]) / np.linalg.norm(moment[0])
    assert kept > {"euler": 0.4, "bdf2": 0.97}[integrator]
    way = moment[1] @ moment[0] / np.linalg.norm(moment[0]) / np.linalg.norm(moment[1])
    assert way > 0.999


def test_a_sliding_ball_comes_to_roll_at_five_sevenths_of_its_speed() -> None:
    """Friction spins a solid ball up until it rolls; it keeps its shape to 1e-3."""
    model, terms = rigid_model(cubature_from_mesh(ball_mesh(0.5), UNIT), STONE)
    settings = Settings(16, 30.0, 4)
    floor = PlaneContact(
        model, Plane(np.array([0.0, 0, -0.5]), np.array([0.0, 0, 1]), np.array([1.0, 0, 0])), 0.5, 9.81
    )
    state = placed_state(model, np.zeros((3, 4)), translation([2.0, 0.0, 0.0]), settings.h)
    world = simulate_world(World((Actor("ball", model, (*terms, gravity(model, DOWN), floor), state),)), settings)
    z = world.trajectories[0].handles[:, 0]
    linear = np.eye(3) + z[..., :3]
    assert np.abs(np.linalg.svd(linear, compute_uv=False) - 1).max() < 1e-3
    speed = np.diff(z[:, 0, 3]) * 30
    turning = np.diff(np.unwrap(np.arctan2(linear[:, 0, 2], linear[:, 0, 0]))) * 30
    assert speed[5] == pytest.approx(2.0 * 5 / 7, rel=0.03)
    assert 0.5 * turning[5] == pytest.approx(speed[5], rel=0.03)
    assert 1.2 < speed[-1] < speed[5]  # it rolls over contact points, not a perfect sphere


def test_a_body_with_a_field_is_not_rigid() -> None:
    with pytest.raises(InputError, match=r"A rigid body has the constant handle alone, and nothing of it is pinned\."):
        Orthogonality(box_model(), 1e9)
