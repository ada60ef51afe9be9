"""Materials: rest, linearisation, invariances, closed forms, inversion, the projection, and the stretch limit."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Material
from splatanim.dynamics.materials import MODELS, PRESETS, energies, preset, stresses_and_tangents
from splatanim.dynamics.simulate import Settings, simulate
from splatanim.dynamics.terms import gravity
from splatanim.errors import InputError
from tests.dynamics.models import box_model, end_pin
from tests.helpers import random_rotation

MU, LAM = Material("m", 3.0e4, 0.3, 1.0).lame
FAR = 1e9  # a stretch limit that is never reached
INVARIANT = ("neohookean", "corotated")


def energy(model: str, f: np.ndarray, limit: float = FAR, mu: float = MU, lam: float = LAM) -> float:
    """Psi [J/m^3] of one deformation gradient."""
    return energies(MODELS[model], np.array(f, float)[None], np.ones(1), np.array([mu]), np.array([lam]), limit)


def derivatives(model: str, f: np.ndarray, limit: float = FAR, project: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """P (3, 3) and dP/dF (9, 9) of one deformation gradient."""
    p, c = stresses_and_tangents(
        MODELS[model], np.array(f, float)[None], np.ones(1), np.array([MU]), np.array([LAM]), limit, project
    )
    return p[0], c[0].reshape(9, 9)


def _states() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    r, q = random_rotation(rng), random_rotation(rng)
    return {
        "near rest": np.eye(3) + 0.02 * rng.normal(size=(3, 3)),
        "rotated": r @ (np.eye(3) + 0.1 * rng.normal(size=(3, 3))),
        "stretched": r @ np.diag([2.7, 1.1, 0.6]) @ q.T,
        "compressed": r @ np.diag([0.5, 0.3, 0.2]) @ q.T,
        "inverted": r @ np.diag([1.3, 0.8, -0.5]) @ q.T,
        "inverted strongly": r @ np.diag([1.3, 1.1, -0.9]) @ q.T,
        "two equal stretches": r @ np.diag([1.4, 1.4, 0.7]) @ q.T,
        "all equal, inverted": r @ np.diag([0.8, 0.8, -0.4]) @ q.T,
        "flat": r @ np.diag([1.2, 0.9, 0.0]) @ q.T,
    }


@pytest.mark.parametrize("model", MODELS)
def test_rest_is_free_of_energy_and_stress(model: str) -> None:
    assert energy(model, np.eye(3)) == 0.0
    assert np.abs(derivatives(model, np.eye(3), limit=1.05)[0]).max() == 0.0


@pytest.mark.parametrize("model", MODELS)
def test_the_tangent_at_rest_is_that_of_linear_elasticity(model: str) -> None:
    i = np.eye(3)
    lame = MU * (np.einsum("rs,cd->rcsd", i, i) + np.einsum("rd,cs->rcsd", i, i)) + LAM * np.einsum("rc,sd->rcsd", i, i)
    np.testing.assert_allclose(derivatives(model, i, 1.5)[1], lame.reshape(9, 9), rtol=0, atol=1e-10 * MU)


@pytest.mark.parametrize("model", MODELS)
def test_small_strain_energy_is_accurate_to_rounding(model: str) -> None:
    """At strains of 1e-7 a difference of two large numbers would leave nothing of the energy."""
    e = np.random.default_rng(1).normal(size=(3, 3))
    small = 0.5 * 1e-7 * (e + e.T)
    expected = MU * (small**2).sum() + 0.5 * LAM * np.trace(small) ** 2
    assert energy(model, np.eye(3) + small) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("model", INVARIANT)
@pytest.mark.parametrize("state", _states())
def test_isotropy_and_frame_indifference(model: str, state: str) -> None:
    f, r = _states()[state], random_rotation(np.random.default_rng(5))
    psi = energy(model, f, 1.8)
    assert psi > 0
    assert energy(model, r @ f, 1.8) == pytest.approx(psi, rel=1e-11)
    assert energy(model, f @ r, 1.8) == pytest.approx(psi, rel=1e-11)


def test_linear_elasticity_is_not_rotation_invariant() -> None:
    assert energy("linear", random_rotation(np.random.default_rng(5))) > 1.0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("state", _states())
def test_stress_and_tangent_match_finite_differences(model: str, state: str) -> None:
    f = _states()[state]
    p, c = derivatives(model, f, 1.8)
    h, basis = 1e-5, np.eye(9).reshape(9, 3, 3)
    stress = [(energy(model, f + h * e, 1.8) - energy(model, f - h * e, 1.8)) / (2 * h) for e in basis]
    np.testing.assert_allclose(p.ravel(), stress, rtol=0, atol=1e-7 * np.abs(p).max() + 1e-7 * MU)
    moved = [(derivatives(model, f + h * e, 1.8)[0] - derivatives(model, f - h * e, 1.8)[0]) / (2 * h) for e in basis]
    np.testing.assert_allclose(c, np.reshape(moved, (9, 9)), rtol=0, atol=1e-6 * np.abs(c).max())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("state", _states())
@pytest.mark.parametrize("limit", [1.2, FAR])
def test_the_projected_tangent_is_the_nearest_positive_one(model: str, state: str, limit: float) -> None:
    exact, projected = (derivatives(model, _states()[state], limit, project)[1] for project in (False, True))
    values, vectors = np.linalg.eigh(exact)
    clamped = (vectors * np.maximum(values, 0.0)) @ vectors.T
    np.testing.assert_allclose(projected, clamped, rtol=0, atol=1e-11 * np.abs(exact).max())


def test_hydrostatic_stretch_in_closed_form() -> None:
    s = 1.3
    f, c = s * np.eye(3), (LAM + MU) * (s**3 - 1.0) - MU
    psi = 1.5 * MU * (s**2 - 1.0) - MU * (s**3 - 1.0) + 0.5 * (LAM + MU) * (s**3 - 1.0) ** 2
    assert energy("neohookean", f) == pytest.approx(psi, rel=1e-12)
    np.testing.assert_allclose(derivatives("neohookean", f)[0], (MU * s + c * s * s) * np.eye(3), atol=1e-8)
    assert energy("corotated", f) == pytest.approx((3.0 * MU + 4.5 * LAM) * (s - 1.0) ** 2, rel=1e-12)
    np.testing.assert_allclose(derivatives("corotated", f)[0], (2 * MU + 3 * LAM) * (s - 1.0) * np.eye(3), atol=1e-8)


def test_simple_shear_in_closed_form() -> None:
    f = np.eye(3)
    f[0, 1] = 0.4
    assert energy("neohookean", f) == pytest.approx(0.5 * MU * 0.4**2, rel=1e-12)  # isochoric
    assert energy("linear", f) == pytest.approx(0.5 * MU * 0.4**2, rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_uniaxial_tension_gives_back_young_and_poisson(model: str) -> None:
    """Stretch by a small amount with free sides: the stress is E eps, the sides shrink by nu eps."""
    eps, side = 1e-6, 1.0
    for _ in range(10):
        p, c = derivatives(model, np.diag([1.0 + eps, side, side]))
        side -= p[1, 1] / (c[4, 4] + c[4, 8])
    p, _ = derivatives(model, np.diag([1.0 + eps, side, side]))
    assert p[0, 0] / eps == pytest.approx(3.0e4, rel=1e-5)
    assert (1.0 - side) / eps == pytest.approx(0.3, rel=1e-5)


def test_the_stretch_limit_acts_beyond_it_alone_and_is_smooth_there() -> None:
    limit = 1.5
    below, above = (np.diag([s, s**-0.5, s**-0.5]) for s in (0.999 * limit, 1.2 * limit))
    assert energy("neohookean", below, limit) == energy("neohookean", below)
    assert energy("neohookean", above, limit) > 1.02 * energy("neohookean", above)
    i0, i1 = limit**2 + 2 / limit, float((above**2).sum())
    added = energy("neohookean", above, limit) - energy("neohookean", above)
    assert added == pytest.approx(MU * 6.0 * i0 / 3 * (i1 / i0 - 1.0) ** 3, rel=1e-9)


@pytest.mark.parametrize("case", ["softest preset", "ten times its modulus"])
def test_a_hanging_bar_stays_bounded(case: str) -> None:
    """40x6x6 voxels, one end pinned, one implicit step a frame at 30 fps: finite, and no stretch of 4 anywhere."""
    softest = min(PRESETS.values(), key=lambda material: material.young)
    if case != "softest preset":
        softest = Material("heavy", softest.young, softest.poisson, 10 * softest.young / 9.81, stretch_limit=2.0)
    model = box_model((40, 6, 6), handles=8, material=softest, regions=(end_pin(-0.46, 0.2),), count=400)
    trajectory = simulate(model, [gravity(model, np.array([9.81, 0.0, 0.0]))], Settings(60, 30.0, 1))
    assert np.isfinite(trajectory.handles).all() and trajectory.converged_fraction == 1.0
    stretch = np.array([_largest_stretch(model, z) for z in trajectory.handles])
    assert stretch.max() < 4.0
    assert stretch.max() > (1.5 if case != "softest preset" else 1.02)  # it does hang under its weight


def _largest_stretch(model, handles: np.ndarray) -> float:
    from splatanim.binding import shape_functions

    _, slopes = shape_functions(model.rest, *model.handles.evaluate(model.rest))
    z = handles.transpose(1, 0, 2).reshape(3, -1)
    return float(np.linalg.svd(np.eye(3) + np.einsum("rk,qkc->qrc", z, slopes), compute_uv=False).max())


def test_presets_are_found_by_name_and_near_names_are_suggested() -> None:
    assert all(preset(name).name == name for name in PRESETS)
    with pytest.raises(InputError, match=r"no material preset 'ruber'\. Did you mean rubber\? There are: jelly, slime"):
        preset("ruber")
    with pytest.raises(InputError, match=r"no material preset 'qqq'\. There are: jelly"):
        preset("qqq")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"young": 0.0}, "young is 0.0; it must be positive"),
        ({"density": -1.0}, "density is -1.0; it must be positive"),
        ({"stretch_limit": 0.0}, "stretch_limit is 0.0; it must be positive"),
        ({"young": float("nan")}, "young is nan; it must be positive"),
        ({"poisson": 0.5}, r"poisson is 0.5; it must lie between -1 and 0.5"),
        ({"friction": -0.1}, "friction is -0.1; it must not be negative"),
    ],
)
def test_impossible_materials_are_refused(change: dict[str, float], text: str) -> None:
    with pytest.raises(InputError, match=f"Material m: {text}"):
        Material(**({"name": "m", "young": 1e4, "poisson": 0.3, "density": 1e3} | change))  # type: ignore[arg-type]
