"""Every energy term against finite differences, in one parametrised test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.materials import energies
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.regions import Region, rotation_about, translation
from splatanim.dynamics.terms import Drag, Elasticity, Inertia, gaussian_kernel, gravity, poke
from tests.dynamics.models import affine, box_model, random_state, rest_step

CELLS = (7, 5, 4)
TILTED = np.array([0.2, -0.3, 0.9])
ACROSS = np.array([1.0, 0.4, 0.1])


def _swing(time: float) -> np.ndarray:
    return rotation_about(np.array([0.0, 0.6, 0.8]), 2.0 * time, np.zeros(3)) + translation(
        np.array([0.1 * time, 0.0, time**2])
    )


def _model(material: str = "neohookean", pinned: bool = False) -> ReducedModel:
    regions = ()
    if pinned:  # two moving regions whose transitions overlap
        left = Region((-np.inf,) * 3, (-0.4, np.inf, np.inf), 0.5, _swing)
        corner = Region(
            (0.3, 0.2, -np.inf), (np.inf,) * 3, 0.4, lambda time: translation(np.array([0.0, -time, 0.2 * time]))
        )
        regions = (left, corner)
    return box_model(CELLS, handles=3, material=Material("m", 3e4, 0.35, 700.0, model=material), regions=regions)


def _inertia(pinned: bool):
    def build():
        model = _model(pinned=pinned)
        step = rest_step(model, time=0.4, y=random_state(model, 0.1, 1), y_before=random_state(model, 0.1, 2))
        return Inertia(model), step, random_state(model)

    return build


def _elasticity(material: str, stretch: np.ndarray | None = None, pinned: bool = False, strain: float = 0.3):
    def build():
        model = _model(material, pinned)
        y = random_state(model, strain)
        if stretch is not None:
            y += affine(model, np.concatenate([np.diag(stretch) - np.eye(3), np.zeros((3, 1))], axis=1))
        step = rest_step(model, time=0.4)
        scale = np.random.default_rng(3).uniform(0.5, 2.0, len(model.rest))
        singular = np.linalg.svd(model.deformation_gradients(y, step.held_next), compute_uv=False)
        if stretch is not None and max(stretch) > 2:
            assert (singular.max(axis=1) > model.material.stretch_limit).all()
        if stretch is not None and min(stretch) < 0:
            assert (np.linalg.det(model.deformation_gradients(y, step.held_next)) < 0).mean() > 0.8
        return Elasticity(model, scale), step, y

    return build


def _load(make: Callable):
    def build():
        model = _model(pinned=True)
        return make(model), rest_step(model, time=0.4), random_state(model)

    return build


def _drag(model: ReducedModel) -> Drag:
    return Drag(model, gaussian_kernel(model.rest, [0.4, 0.1, 0.2], 0.3), 900.0, _swing)


def _contact(plane: Plane, *, pinned: bool = False, slip: float = 1.0):
    """The lowest points sunk into the plane since before the step, moved on along it by about the stick distance."""

    def build():
        model = _model(pinned=pinned)
        h = 1 / 15
        step = rest_step(model, h, 0.4)
        normal = plane.frame()[2]
        points = model.contact_positions(step.y, step.held_next)
        lowest = points[np.argmin(points @ normal)]
        term = PlaneContact(model, replace(plane, point=lowest + 0.2 * normal), 0.6, 9.81)
        stick = 5e-3 * h * model.size
        noise = np.random.default_rng(5).normal(size=model.dof) * np.sqrt(model.mass / model.dof)
        y = affine(model, translation(slip * stick * plane.frame()[0])) + 0.3 * stick * noise
        return term, step, y

    return build


FLOOR = Plane(np.zeros(3), TILTED, ACROSS)
RECTANGLE = Plane(np.zeros(3), TILTED, ACROSS, (0.3, 0.3))
MOVING = Plane(np.zeros(3), TILTED, ACROSS, shift=lambda t: np.array([0.002 * np.sin(t), 0.0, 0.001 * t]))

CASES = {
    "inertia": _inertia(False),
    "inertia, moving pins": _inertia(True),
    "neohookean": _elasticity("neohookean"),
    "neohookean, moving pins": _elasticity("neohookean", pinned=True),
    "neohookean, past the stretch limit": _elasticity("neohookean", (2.6, 0.7, 0.9), strain=0.1),
    "neohookean, compressed": _elasticity("neohookean", (0.25, 0.3, 0.4), strain=0.1),
    "neohookean, inverted": _elasticity("neohookean", (-0.8, 1.2, 0.9)),
    "corotated": _elasticity("corotated"),
    "corotated, past the stretch limit": _elasticity("corotated", (2.6, 0.7, 0.9), strain=0.1),
    "corotated, compressed": _elasticity("corotated", (0.25, 0.3, 0.4), strain=0.1),
    "corotated, inverted": _elasticity("corotated", (-0.5, 1.3, 0.95), strain=0.15),
    "linear": _elasticity("linear"),
    "linear, inverted": _elasticity("linear", (-0.8, 1.2, 0.9)),
    "gravity": _load(lambda model: gravity(model, np.array([0.3, -9.0, 1.0]))),
    "poke": _load(lambda model: poke(model, [0.3, 0.1, 0.2], 0.2, np.array([1.0, 2.0, -3.0]), 0.35, 0.2)),
    "drag": _load(_drag),
    "floor": _contact(FLOOR),
    "floor, sticking": _contact(FLOOR, slip=0.2),
    "floor, slipping": _contact(FLOOR, slip=5.0),
    "rectangle": _contact(RECTANGLE),
    "moving plane": _contact(MOVING),
    "floor, moving pins": _contact(FLOOR, pinned=True, slip=2.0),
}


def _central(function: Callable, y: np.ndarray, step: float) -> np.ndarray:
    """Central differences of a scalar or vector function, one row a coordinate."""
    return np.array([(function(y + step * e) - function(y - step * e)) / (2 * step) for e in np.eye(len(y))])


@pytest.mark.parametrize("name", CASES)
def test_gradient_and_hessian_match_finite_differences(name: str) -> None:
    term, step, y = CASES[name]()
    term.begin_step(step)
    gradient, exact, projected = term.gradient(y), term.hessian(y, psd=False), term.hessian(y)

    assert np.linalg.norm(gradient) > 1e-3
    difference = 1e-6 if isinstance(term, PlaneContact) else 1e-4
    # measured against the largest, since entries that cancel are only known to that
    expected = _central(term.energy, y, difference)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-6 * np.abs(gradient).max())
    expected = _central(term.gradient, y, difference)
    np.testing.assert_allclose(exact, expected, rtol=0, atol=2e-6 * max(np.abs(exact).max(), 1e-3))

    np.testing.assert_allclose(exact, exact.T, rtol=0, atol=1e-12 * max(np.abs(exact).max(), 1e-9))
    assert np.linalg.eigvalsh(projected).min() >= -1e-12 * max(np.abs(projected).max(), 1e-9)
    if isinstance(term, PlaneContact):  # friction's paraboloid lies above its cone; after that they agree
        assert np.linalg.eigvalsh(projected - exact).min() >= -1e-12 * np.abs(projected).max()
        for _ in range(3):
            again = term.hessian(y)
        np.testing.assert_allclose(again, exact, rtol=0, atol=1e-9 * np.abs(exact).max())
    elif not isinstance(term, Elasticity):
        assert np.abs(exact).max() > 0 or name in ("gravity", "poke")
        np.testing.assert_array_equal(projected, exact)  # all convex


@pytest.mark.parametrize("material", ["neohookean", "corotated", "linear"])
def test_projection_changes_nothing_where_the_hessian_is_positive_already(material: str) -> None:
    term, step, y = _elasticity(material, strain=0.02)()
    y += affine(term._model, np.concatenate([0.05 * np.eye(3), np.zeros((3, 1))], axis=1))  # under tension: convex
    term.begin_step(step)
    exact = term.hessian(y, psd=False)
    np.testing.assert_allclose(term.hessian(y), exact, rtol=0, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("material", ["neohookean", "corotated"])
def test_projection_is_needed_where_the_material_is_compressed(material: str) -> None:
    term, step, y = _elasticity(material, (0.25, 0.3, 0.4), strain=0.1)()
    term.begin_step(step)
    assert np.linalg.eigvalsh(term.hessian(y, psd=False)).min() < 0


def test_energies_are_the_sums_over_points_that_they_stand_for() -> None:
    """Under moving pins, at the end of the step: inertia and elasticity of the points themselves, up to a constant."""
    model = _model(pinned=True)
    y, other = random_state(model), random_state(model, 0.2, seed=9)
    step = rest_step(model, time=0.4, y=random_state(model, 0.1, 1), y_before=random_state(model, 0.1, 2))
    inertia, elasticity = Inertia(model), Elasticity(model)
    inertia.begin_step(step)
    elasticity.begin_step(step)

    def kinetic(z: np.ndarray) -> float:
        ahead, now = model.positions(z, step.held_next), model.positions(step.y, step.held)
        change = ahead - 2 * now + model.positions(step.y_before, step.held_before)
        return float(0.5 / step.h**2 * model.masses @ (change**2).sum(axis=1))

    expected = kinetic(y) - kinetic(other)
    assert inertia.energy(y) - inertia.energy(other) == pytest.approx(expected, rel=1e-9)
    mu, lam = (np.full(len(model.rest), value) for value in model.material.lame)
    f = model.deformation_gradients(y, step.held_next)
    limit = model.material.stretch_limit
    assert elasticity.energy(y) == pytest.approx(energies(0, f, model.volumes, mu, lam, limit), rel=1e-12)


def test_a_released_drag_pulls_no_more() -> None:
    model = _model()
    term = Drag(model, np.ones(len(model.rest)), 100.0, lambda time: None)
    term.begin_step(rest_step(model))
    y = random_state(model)
    assert term.energy(y) == 0 and not term.gradient(y).any() and not term.hessian(y).any()


def test_a_poke_delivers_its_impulse() -> None:
    model = _model()
    impulse = np.array([1.0, 2.0, -3.0])
    term = poke(model, [0.3, 0.1, 0.2], 0.2, impulse, 0.1, 0.12)
    h = 1 / 1000
    total = np.zeros(3)
    for index in range(400):
        term.begin_step(rest_step(model, h, index * h))
        total += h * np.array([-term.gradient(np.zeros(model.dof)) @ affine(model, translation(e)) for e in np.eye(3)])
    np.testing.assert_allclose(total, impulse, rtol=1e-4)


def test_gravity_weighs_the_whole_body() -> None:
    model = _model()
    term = gravity(model, np.array([0.0, 0.0, -9.81]))
    term.begin_step(rest_step(model))
    up = affine(model, translation(np.array([0.0, 0.0, 1.0])))
    assert term.gradient(up) @ up == pytest.approx(9.81 * 700.0 * 1.0 * 5 / 7 * 4 / 7, rel=1e-10)


def test_points_beside_or_far_behind_a_rectangle_are_left_alone() -> None:
    model = _model()
    aside = PlaneContact(model, Plane(np.array([5.0, 0.0, 0.0]), TILTED, ACROSS, (0.5, 0.5)), 0.5, 9.81)
    behind = PlaneContact(model, Plane(np.array([0.0, 0.0, 5.0]), TILTED, ACROSS, (9.0, 9.0)), 0.5, 9.81)
    for term in (aside, behind):
        step = rest_step(model)
        term.begin_step(step)
        assert term.energy(step.y) == 0 and not term.gradient(step.y).any()
        assert np.isinf(term.heights(step.y, step.held_next, 0.0)).all()
