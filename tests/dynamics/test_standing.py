"""Stiffness that carries an object's own weight: what is strained too much is stiffened, what is not stays as it is."""

from __future__ import annotations

import dataclasses

import numpy as np

from splatanim.data import Material
from splatanim.dynamics.standing import standing_stiffness
from splatanim.dynamics.terms import Elasticity
from tests.dynamics.models import SOFT, G, box_model

UP = np.array([1.0, 0.0, 0.0])


def compressed(model, stiffness) -> np.ndarray:
    """Axial strains of a column that stands on its foot, of all points above the foot: -sigma / E by equilibrium."""
    height = model.rest @ UP
    rows = np.eye(3)[0]
    springs = np.where(height <= height.min() + 0.08 * np.ptp(height), 1e6 * model.masses, 0.0)
    hold = np.kron(np.eye(3), model.shape.T @ (springs[:, None] * model.shape))
    load = -G * np.kron(rows, model.shape.T @ model.masses)
    y = np.linalg.solve(Elasticity(model, stiffness).hessian(np.zeros(model.dof)) + hold, load)
    return model.deformation_gradients(y, np.zeros((3, 0)))[:, 0, 0] - 1.0


def test_what_is_stiff_enough_stays_as_it_is() -> None:
    model = box_model((10, 4, 4), material=dataclasses.replace(SOFT, young=1e8), kind="eigenmodes")
    np.testing.assert_array_equal(standing_stiffness(model, UP), 1.0)


def test_a_column_is_stiffened_below_where_its_weight_is() -> None:
    """A free-standing column of 1 m: the stress at height x is rho g (1 - x), so is what stiffness it needs."""
    material = Material("column", 5e4, 0.0, 1000.0)
    model = box_model((16, 4, 4), material=material, kind="eigenmodes", handles=8)
    limit = 0.02
    assert compressed(model, None).min() < -4 * limit  # rho g L / E = 0.196 without
    stiffness = standing_stiffness(model, UP, strain=limit, rounds=12)
    assert compressed(model, stiffness).min() > -1.5 * limit
    height = model.rest[:, 0] + 0.5
    wanted = np.maximum(1000.0 * G * (1.0 - height) / (limit * 5e4), 1.0)
    middle = (height > 0.2) & (height < 0.8)
    assert np.abs(stiffness[middle] / wanted[middle] - 1.0).max() < 0.35
    assert stiffness[height > 0.95].max() < 1.6


def test_the_size_and_the_way_up_do_not_matter() -> None:
    """Halving the size and the modulus leaves every strain the same."""
    large = box_model((10, 4, 4), kind="eigenmodes")
    small = box_model((10, 4, 4), size=0.5, material=dataclasses.replace(SOFT, young=1e4), kind="eigenmodes")
    a, b = (standing_stiffness(model, UP, strain=0.01) for model in (large, small))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    down = standing_stiffness(large, -UP, strain=0.01)
    assert down[large.rest[:, 0] > 0.3].mean() > 1.5 * down[large.rest[:, 0] < -0.3].mean()
