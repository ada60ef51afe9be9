"""Rayleigh damping: its derivatives, what it does to modes, and that it leaves rigid motion alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.damping import RayleighDamping, material_damping
from splatanim.dynamics.materials import PRESETS
from splatanim.dynamics.regions import rotation_about, translation
from splatanim.dynamics.rigid import rigid_model
from splatanim.dynamics.simulate import Settings, State, simulate
from splatanim.dynamics.terms import Elasticity
from splatanim.dynamics.world import Actor, World, simulate_world
from splatanim.errors import InputError
from tests.dynamics.models import SOFT, affine, box_model, elastic_hessian, end_pin, random_state, rest_step
from tests.dynamics.test_terms import _model
from tests.helpers import box_cubature


def _central(function, y: np.ndarray, step: float) -> np.ndarray:
    return np.array([(function(y + step * e) - function(y - step * e)) / (2 * step) for e in np.eye(len(y))])


def test_gradient_and_hessian_match_finite_differences_under_moving_pins() -> None:
    model = _model(pinned=True)
    term = RayleighDamping(model, 0.7, 0.02, np.random.default_rng(3).uniform(0.5, 2.0, len(model.rest)))
    term.begin_step(rest_step(model, time=0.4, y=random_state(model, 0.2, 1)))
    y = random_state(model)
    gradient, hessian = term.gradient(y), term.hessian(y)
    np.testing.assert_allclose(gradient, _central(term.energy, y, 1e-4), rtol=0, atol=2e-6 * np.abs(gradient).max())
    np.testing.assert_allclose(hessian, _central(term.gradient, y, 1e-4), rtol=0, atol=2e-6 * np.abs(hessian).max())
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-12 * np.abs(hessian).max())
    assert np.linalg.eigvalsh(hessian).min() >= 0


def test_at_rest_it_is_alpha_m_plus_beta_k() -> None:
    model = box_model()
    term = RayleighDamping(model, 0.7, 0.02)
    h = 1 / 50
    term.begin_step(rest_step(model, h))
    expected = (0.7 * np.eye(model.dof) + 0.02 * elastic_hessian(model)) / h
    np.testing.assert_allclose(term.hessian(np.zeros(model.dof)), expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_rigid_motion_of_a_turned_and_bent_body_is_not_braked_by_beta() -> None:
    model = box_model()
    turned = affine(model, rotation_about(np.array([0.6, 0.0, 0.8]), 1.2, np.zeros(3)))
    bent = turned + random_state(model, 0.2)
    term = RayleighDamping(model, 0.0, 0.02)
    term.begin_step(rest_step(model, y=bent))
    x = model.positions(bent, np.zeros((3, 0)))
    spin = np.cross(np.array([0.3, -0.2, 0.5]), x) + np.array([1.0, 2.0, 3.0])
    rate = ((model.shape * model.masses[:, None]).T @ spin).T.ravel()
    speed = model.positions(rate, np.zeros((3, 0))) - model.rest
    assert np.abs(speed - spin).max() < 1e-8  # it lies in the span
    strained = random_state(model, 1.0, seed=4)
    strained *= np.linalg.norm(rate) / np.linalg.norm(strained)
    hessian = term.hessian(bent)
    assert rate @ hessian @ rate < 1e-12 * (strained @ hessian @ strained)


def test_a_mode_decays_by_the_damping_ratio_that_it_should() -> None:
    model = box_model(material=replace(SOFT, model="linear", stretch_limit=50.0), regions=(end_pin(-0.5, 0.3),))
    squared, modes = np.linalg.eigh(elastic_hessian(model))
    w, mode = np.sqrt(squared[0]), modes[:, 0]
    alpha, beta = 0.06 * w, 0.04 / w  # a ratio of (0.06 + 0.04) / 2
    h = 2 * np.pi / w / 60
    start = 0.01 * mode
    trajectory = simulate(
        model, [RayleighDamping(model, alpha, beta)], Settings(241, 1 / h, 1, integrator="bdf2"), State(start, start)
    )
    z = trajectory.handles[:, : model.handles.free].transpose(0, 2, 1, 3).reshape(241, 3, -1)
    y = (z @ np.linalg.pinv(model.to_handles).T).reshape(241, -1) @ mode
    peaks = [np.abs(y[60 * k - 8 : 60 * k + 8]).max() for k in (1, 3)]
    decrement = np.log(peaks[0] / peaks[1]) / 2
    assert decrement == pytest.approx(2 * np.pi * 0.05, rel=0.05)


def test_a_worlds_bodies_have_their_materials_damping_and_rigid_ones_no_beta() -> None:
    damped = box_model(material=replace(SOFT, damping_stiffness=0.01))
    assert [type(term) for term in material_damping(damped)] == [RayleighDamping]
    assert not material_damping(box_model()) and not material_damping(damped, (RayleighDamping(damped, 0.0, 0.0),))
    stiff, terms = rigid_model(box_cubature((4, 4, 4), 0.25), replace(SOFT, damping_stiffness=0.01))
    assert not material_damping(stiff, terms)
    y = random_state(damped, 0.2)
    settings = Settings(16, 30.0, 2, integrator="bdf2")
    world = simulate_world(World((Actor("a", damped, (), State(y, y)),)), settings)
    free = simulate(box_model(), [], settings, State(y, y))
    for terms in ((), material_damping(damped)):  # alone as well, and once
        same = simulate(damped, terms, settings, State(y, y))
        np.testing.assert_array_equal(world.trajectories[0].handles, same.handles)
    elastic = Elasticity(damped)
    elastic.begin_step(rest_step(damped))
    assert np.abs(world.trajectories[0].handles[-1]).max() < np.abs(free.handles).max()
    assert world.elastic[-1, 0] < 0.3 * elastic.energy(y)


def test_the_stiffness_is_turned_with_the_body_and_made_anew_where_its_shape_changes() -> None:
    model = box_model()
    term = RayleighDamping(model, 0.3, 0.02)
    bent = random_state(model, 0.2)
    turn = rotation_about(np.array([0.6, 0.0, 0.8]), 1.2, np.zeros(3))
    turned = affine(model, turn) + (np.kron(np.eye(3) + turn[:, :3], np.eye(model.dof // 3)) @ bent)
    for y, assemblies in ((bent, 1), (1.001 * bent, 1), (turned, 1), (2.0 * bent, 2), (np.zeros_like(bent), 3)):
        term.begin_step(rest_step(model, y=y))
        fresh = RayleighDamping(model, 0.3, 0.02)
        fresh.begin_step(rest_step(model, y=y))
        assert term.assemblies == assemblies
        difference = np.abs(term.hessian(y) - fresh.hessian(y)).max() / np.abs(fresh.hessian(y)).max()
        assert difference < (1e-12 if y is turned or assemblies > 1 else 0.01)


def test_a_materials_damping_decays_as_it_should_on_one_stiffness_matrix() -> None:
    """A swinging bar of the default material, through ``simulate``: the closed form, from small strains on."""
    bar = box_model(material=SOFT, regions=(end_pin(-0.5, 0.3),))
    squared, modes = np.linalg.eigh(elastic_hessian(bar))
    w, mode = np.sqrt(squared[0]), modes[:, 0]
    model = box_model(material=replace(SOFT, damping_stiffness=0.1 / w), regions=(end_pin(-0.5, 0.3),))
    h = 2 * np.pi / w / 60
    start = 0.01 * mode
    trajectory = simulate(model, [], Settings(241, 1 / h, 1, integrator="bdf2"), State(start, start))
    z = trajectory.handles[:, : model.handles.free].transpose(0, 2, 1, 3).reshape(241, 3, -1)
    y = (z @ np.linalg.pinv(model.to_handles).T).reshape(241, -1) @ mode
    peaks = [np.abs(y[60 * k - 8 : 60 * k + 8]).max() for k in (1, 3)]
    assert np.log(peaks[0] / peaks[1]) / 2 == pytest.approx(2 * np.pi * 0.05, rel=0.05)


def test_presets_are_damped_as_their_substances_are() -> None:
    for material in PRESETS.values():
        wave = 2 * np.sqrt(material.young / material.density)
        assert 5e-4 < material.damping_stiffness * wave < 0.4
    assert PRESETS["metal"].damping_stiffness < PRESETS["wood"].damping_stiffness < PRESETS["rubber"].damping_stiffness


def test_negative_damping_is_refused() -> None:
    with pytest.raises(InputError, match=r"Damping: alpha is -1\.0 and beta 0\.0; neither may be negative\."):
        RayleighDamping(box_model(), -1.0, 0.0)
    with pytest.raises(InputError, match=r"Material m: damping_stiffness is -0\.1; it must not be negative\."):
        Material("m", 1e4, 0.3, 1000.0, damping_stiffness=-0.1)


def test_translation_is_braked_by_alpha_alone() -> None:
    model = box_model()
    term = RayleighDamping(model, 0.5, 0.02)
    h = 0.01
    term.begin_step(rest_step(model, h))
    step = affine(model, translation([0.0, 0.0, 0.02]))
    np.testing.assert_allclose(term.gradient(step), 0.5 * step / h, atol=1e-8 * np.abs(step).max() / h)
