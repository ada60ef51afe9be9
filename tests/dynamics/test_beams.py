"""Pinned bars against beam theory: deflection, first frequencies, stretch under self-weight. No FEM involved."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.newton import minimise
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Elasticity, gravity
from tests.dynamics.models import box_model, elastic_hessian, end_pin, rest_step

CELLS = (48, 12, 12)  # a bar 1 m long, 0.25 m high and wide
YOUNG, DENSITY, LENGTH, HEIGHT = 1e6, 1000.0, 1.0, 0.25
AREA, INERTIA = HEIGHT**2, HEIGHT**4 / 12
LIGHT = 0.01  # m/s^2: deflections stay small
# kind of field: what its deflection may be off by
FIELDS = {"eigenmodes": 0.05, "gaussians": 0.07}


@functools.cache
def _bar(kind: str, poisson: float, handles: int = 16, model: str = "neohookean") -> ReducedModel:
    material = Material("bar", YOUNG, poisson, DENSITY, model=model)
    return box_model(
        CELLS, handles=handles, material=material, regions=(end_pin(-0.5 * LENGTH, 0.1),), kind=kind, count=1024
    )


def _tip(model: ReducedModel, acceleration: np.ndarray) -> np.ndarray:
    """The free end's mean displacement at equilibrium."""
    terms = [Elasticity(model), gravity(model, acceleration)]
    for term in terms:
        term.begin_step(rest_step(model))
    y, report = minimise(terms, np.zeros(model.dof), tolerance=1e-6, unit=1 / (model.mass**0.5 * LIGHT))
    assert report.converged
    moved = model.contact_positions(y, np.zeros((3, 4))) - model.contact_rest
    return moved[np.isclose(model.contact_rest[:, 0], 0.5 * LENGTH)].mean(axis=0)


def _timoshenko(poisson: float) -> float:
    """Cantilever under its own weight: q L^4 / 8 E I + q L^2 / 2 kappa G A (Cowper's kappa for rectangles)."""
    q, shear = DENSITY * AREA * LIGHT, YOUNG / (2 * (1 + poisson))
    kappa = 10 * (1 + poisson) / (12 + 11 * poisson)
    return q * LENGTH**4 / (8 * YOUNG * INERTIA) + q * LENGTH**2 / (2 * kappa * shear * AREA)


@pytest.mark.parametrize("poisson", [0.0, 0.3])
@pytest.mark.parametrize("kind", FIELDS)
def test_deflection_of_a_cantilever(kind: str, poisson: float) -> None:
    for axis in (1, 2):
        load = -LIGHT * np.eye(3)[axis]
        tip = _tip(_bar(kind, poisson), load)
        assert -tip[axis] == pytest.approx(_timoshenko(poisson), rel=FIELDS[kind])
        assert abs(tip[3 - axis]) < 0.01 * abs(tip[axis])


@pytest.mark.parametrize("model", ["corotated", "linear"])
def test_every_material_model_bends_alike_under_small_loads(model: str) -> None:
    down = np.array([0.0, 0.0, -LIGHT])
    expected = _tip(_bar("gaussians", 0.3), down)[2]
    assert _tip(_bar("gaussians", 0.3, model=model), down)[2] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("kind", FIELDS)
def test_first_frequencies_of_a_cantilever(kind: str) -> None:
    """Two bending directions at 3.516 sqrt(EI / rho A L^4), which shear lowers by 4 % here; the third well above."""
    euler = 3.516 * np.sqrt(YOUNG * INERTIA / (DENSITY * AREA * LENGTH**4))
    frequencies = np.sqrt(np.linalg.eigvalsh(elastic_hessian(_bar(kind, 0.3)))[:3])
    np.testing.assert_allclose(frequencies[:2], euler, rtol=0.10)
    np.testing.assert_allclose(frequencies[:2], 0.965 * euler, rtol=0.04)
    assert frequencies[0] == pytest.approx(frequencies[1], rel=0.01)
    assert frequencies[2] > 3 * euler


@pytest.mark.parametrize("kind", FIELDS)
def test_a_hanging_bar_stretches_by_half_its_weight(kind: str) -> None:
    """Without Poisson's effect: the end moves by rho g L^2 / 2 E."""
    tip = _tip(_bar(kind, 0.0), np.array([LIGHT, 0.0, 0.0]))
    assert tip[0] == pytest.approx(DENSITY * LIGHT * LENGTH**2 / (2 * YOUNG), rel=0.015)
    assert np.abs(tip[1:]).max() < 0.015 * tip[0]


@pytest.mark.slow
def test_more_handles_do_not_make_the_bar_softer_than_theory() -> None:
    """An under-integrated subspace would: its spare functions would find modes that no cubature point sees."""
    for kind in FIELDS:
        for handles in (8, 24):
            tip = _tip(_bar(kind, 0.0, handles), np.array([0.0, 0.0, -LIGHT]))
            assert 0.95 < -tip[2] / _timoshenko(0.0) < 1.06
