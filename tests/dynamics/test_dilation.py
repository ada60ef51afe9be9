"""Mean dilatation over groups of points: derivatives, patch test, invariance, and beams that do not lock."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.dilation import AveragedElasticity, grouped
from splatanim.dynamics.newton import minimise
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.regions import rotation_about, translation
from splatanim.dynamics.terms import Elasticity, gravity
from tests.dynamics.models import affine, box_model, end_pin, random_state, rest_step

NEARLY = Material("m", 3e4, 0.45, 700.0)
YOUNG, DENSITY, LENGTH, LIGHT = 1e6, 1000.0, 1.0, 0.01


def _pair(material: Material = NEARLY) -> tuple[ReducedModel, Elasticity, AveragedElasticity]:
    """A block, its plain term and the averaged one, stiffness varying from point to point."""
    model = box_model((7, 5, 4), handles=3, material=material)
    scale = np.random.default_rng(3).uniform(0.5, 2.0, len(model.rest))
    terms = Elasticity(model, scale), AveragedElasticity(model, scale)
    for term in terms:
        term.begin_step(rest_step(model))
    return model, *terms


def _scaled(model: ReducedModel, x: float, y: float, z: float) -> np.ndarray:
    return affine(model, np.concatenate([np.diag([x, y, z]) - np.eye(3), np.zeros((3, 1))], axis=1))


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (0.6, 0.7, 0.9), (1.4, 1.2, 1.1), (-0.8, 1.2, 0.9)])
def test_derivatives_match_finite_differences(scales: tuple[float, float, float]) -> None:
    model, _, term = _pair()
    y, step = random_state(model, 0.2) + _scaled(model, *scales), 1e-5
    moves = step * np.eye(model.dof)
    gradient, hessian = term.gradient(y), term.hessian(y, psd=False)
    slopes = np.array([(term.energy(y + e) - term.energy(y - e)) / (2 * step) for e in moves])
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=2e-6 * np.abs(gradient).max())
    curves = np.array([(term.gradient(y + e) - term.gradient(y - e)) / (2 * step) for e in moves])
    np.testing.assert_allclose(hessian, curves, rtol=0, atol=2e-6 * np.abs(hessian).max())
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-12 * np.abs(hessian).max())
    projected = term.hessian(y)
    assert np.linalg.eigvalsh(projected).min() >= -1e-12 * np.abs(projected).max()
    assert np.linalg.eigvalsh(projected - hessian).min() >= -1e-9 * np.abs(projected).max()  # it bounds it from above


def test_homogeneous_strain_is_what_it_was() -> None:
    model, plain, averaged = _pair()
    z = np.random.default_rng(1).normal(scale=0.2, size=(3, 4))
    y = affine(model, z)
    found = model.deformation_gradients(y, np.zeros((3, 0)))
    np.testing.assert_allclose(found, np.broadcast_to(np.eye(3) + z[:, :3], found.shape), atol=1e-9)
    assert averaged.energy(y) == pytest.approx(plain.energy(y), rel=1e-10)
    some = affine(model, np.random.default_rng(2).normal(size=(3, 4)))  # and its work along any homogeneous strain
    assert averaged.gradient(y) @ some == pytest.approx(plain.gradient(y) @ some, rel=1e-9)


def test_rotations_cost_nothing_and_change_nothing() -> None:
    model, _, term = _pair()
    turn = rotation_about(np.array([0.6, 0.0, 0.8]), 2.3, np.zeros(3))
    size = term.energy(random_state(model, 0.2))
    assert abs(term.energy(affine(model, turn + translation(np.ones(3))))) < 1e-20 * size + 1e-18
    y = random_state(model, 0.2)
    r = turn[:, :3] + np.eye(3)
    turned = (r @ y.reshape(3, -1)).ravel() + affine(model, turn)
    assert term.energy(turned) == pytest.approx(term.energy(y), rel=1e-10)
    np.testing.assert_allclose(term.gradient(turned), (r @ term.gradient(y).reshape(3, -1)).ravel(), atol=1e-8 * size)


def test_never_stiffer_than_the_plain_law_at_rest_and_no_new_free_motion() -> None:
    model, plain, averaged = _pair()
    rest = np.zeros(model.dof)
    stiff, soft = plain.hessian(rest, psd=False), averaged.hessian(rest, psd=False)
    assert np.linalg.eigvalsh(stiff - soft).min() >= -1e-10 * np.abs(stiff).max()
    levels = np.linalg.eigvalsh(soft)
    assert (levels < 1e-9 * levels[-1]).sum() == 6
    assert levels[6] > 0.3 * np.linalg.eigvalsh(stiff)[6]


@pytest.mark.parametrize("material", [Material("m", 3e4, 0.3, 700.0, model="corotated"), Material("m", 3e4, 0.0, 1.0)])
def test_other_laws_and_materials_without_poisson_are_left_alone(material: Material) -> None:
    model, plain, averaged = _pair(material)
    y = random_state(model, 0.2)
    assert averaged.energy(y) == plain.energy(y)
    np.testing.assert_array_equal(averaged.gradient(y), plain.gradient(y))
    np.testing.assert_array_equal(averaged.hessian(y), plain.hessian(y))


def test_groups_are_compact_and_all_used() -> None:
    points = np.random.default_rng(0).uniform(size=(500, 3))
    points = points[np.argsort(points[:, 0])]
    owner = grouped(points, np.ones(500), 20)
    count = owner.max() + 1
    assert set(owner) == set(range(count)) and 15 <= count <= 20
    middle = np.stack([points[owner == group].mean(axis=0) for group in range(count)])
    away = np.linalg.norm(points - middle[owner], axis=1)
    assert away.max() < 0.6 and away.mean() < 0.25  # of a box of side 1 in 20 pieces of side 0.37


@functools.cache
def _bar(poisson: float) -> ReducedModel:
    material = Material("bar", YOUNG, poisson, DENSITY)
    return box_model(
        (60, 6, 6),
        handles=16,
        material=material,
        regions=(end_pin(-0.4 * LENGTH, 0.03),),
        kind="eigenmodes",
        count=1024,
    )


def _sag(term: Elasticity, model: ReducedModel) -> float:
    load = gravity(model, np.array([0.0, 0.0, -LIGHT]))
    for each in (term, load):
        each.begin_step(rest_step(model))
    y, report = minimise([term, load], np.zeros(model.dof), tolerance=1e-6, unit=1 / (model.mass**0.5 * LIGHT))
    assert report.converged
    moved = model.contact_positions(y, np.zeros((3, 4))) - model.contact_rest
    return -float(moved[np.isclose(model.contact_rest[:, 0], 0.5 * LENGTH), 2].mean())


@pytest.mark.parametrize(("poisson", "locked", "off"), [(0.3, 0.96, 0.015), (0.45, 0.87, 0.035)])
def test_a_thin_bar_does_not_lock(poisson: float, locked: float, off: float) -> None:
    """Against Timoshenko's beam, free length 0.9 m, 0.1 m thick; the plain law sags by less than ``locked`` of it."""
    free, height = 0.9 * LENGTH, 0.1 * LENGTH
    line, inertia, shear = DENSITY * height**2 * LIGHT, height**4 / 12, YOUNG / (2 * (1 + poisson))
    kappa = 10 * (1 + poisson) / (12 + 11 * poisson)
    expected = line * free**4 / (8 * YOUNG * inertia) + line * free**2 / (2 * kappa * shear * height**2)
    model = _bar(poisson)
    assert _sag(Elasticity(model), model) < locked * expected
    assert _sag(AveragedElasticity(model), model) == pytest.approx(expected, rel=off)
