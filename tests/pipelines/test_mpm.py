"""The material point method against closed forms: free fall, momenta, waves, and its law against the reduced one."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from pipelines.mpm import Mpm, _kirchhoff
from splatanim.data import Material
from splatanim.dynamics.materials import stresses_and_tangents
from splatanim.dynamics.regions import Region
from splatanim.errors import InputError
from tests.pipelines.dynamics_bodies import lattice

SOFT = Material("soft", 1e5, 0.3, 1000.0, stretch_limit=4.0)
NONE = np.zeros(3)
H = 1 / 120


def _box(acceleration: np.ndarray, **kwargs) -> Mpm:
    points = lattice((8, 6, 4), 0.05)
    return Mpm(points, len(points) * 0.05**3, 0.1, SOFT, acceleration, H, **kwargs)


def test_the_stress_is_that_of_the_reduced_solver() -> None:
    rng = np.random.default_rng(0)
    f = np.eye(3) + 0.2 * rng.normal(size=(20, 3, 3))
    mu, lam = SOFT.lame
    stress, _ = stresses_and_tangents(0, f, np.ones(20), np.full(20, mu), np.full(20, lam), 4.0, False)
    for one, expected in zip(f, stress @ f.transpose(0, 2, 1)):
        tau = np.empty((3, 3))
        _kirchhoff(one, mu, lam, tau)
        np.testing.assert_allclose(tau, expected, rtol=1e-9, atol=1e-6)


def test_free_fall() -> None:
    acceleration, start = np.array([0.0, 0.0, -9.81]), np.array([0.4, 0.0, 1.0])
    points = lattice((8, 6, 4), 0.05)
    body = _box(acceleration, velocities=np.tile(start, (len(points), 1)))
    for _ in range(12):
        report = body.step()
    count, dt = 12 * report.substeps, report.dt
    np.testing.assert_allclose(body.velocities, np.tile(start + acceleration * 0.1, (len(points), 1)), atol=1e-8)
    fallen = start * 0.1 + acceleration * dt**2 * count * (count + 1) / 2
    np.testing.assert_allclose(body.positions - points, np.tile(fallen, (len(points), 1)), atol=1e-8)


def test_linear_and_angular_momentum_are_kept() -> None:
    points = lattice((8, 6, 4), 0.05)
    rng = np.random.default_rng(1)
    velocities = np.cross([0.5, -1.0, 2.0], points) + 0.3 * rng.normal(size=points.shape)
    body = _box(NONE, velocities=velocities)
    linear, angular = body.velocities.mean(axis=0), body.angular_momentum()
    for _ in range(20):
        body.step()
    np.testing.assert_allclose(body.velocities.mean(axis=0), linear, atol=1e-12)
    np.testing.assert_allclose(body.angular_momentum(), angular, atol=1e-9 * np.abs(angular).max())
    assert body.energy()[1] > 1e-3  # it does deform


def test_a_bar_rings_at_its_longitudinal_frequency_and_keeps_its_energy() -> None:
    """Free ends, nu = 0: v = cos(pi x / L) is the first mode, of period 2 L / sqrt(E / rho)."""
    material = Material("bar", 1e5, 0.0, 1000.0, stretch_limit=4.0)
    points = lattice((80, 4, 4), 1 / 80)
    mode = np.cos(np.pi * points[:, 0])
    velocities = np.zeros_like(points)
    velocities[:, 0] = 0.05 * mode
    body = Mpm(points, 0.05**2, 1 / 40, material, NONE, 1 / 200, velocities=velocities)
    amplitude, energy = [], [sum(body.energy())]
    for _ in range(60):
        body.step()
        amplitude.append(float(mode @ (body.positions - points)[:, 0]))
        energy.append(sum(body.energy()))
    a = np.array(amplitude)
    k = int(np.flatnonzero((a[:-1] > 0) & (a[1:] <= 0))[0])
    half = (k + 1 + a[k] / (a[k] - a[k + 1])) / 200
    assert half == pytest.approx(1.0 / np.sqrt(1e5 / 1000.0), rel=0.04)
    assert max(energy) < 1.04 * energy[0] and energy[-1] > 0.8 * energy[0]


def test_what_is_held_stays() -> None:
    points = lattice((8, 6, 4), 0.05)
    body = _box(np.array([0.0, 0.0, -9.81]), held=Region((-1.0, -1.0, -1.0), (0.201, 1.0, 1.0), 0.1))
    for _ in range(15):
        body.step()
    moved = np.abs(body.positions - points).max(axis=1)
    assert moved[points[:, 0] < 0.1].max() < 1e-9 < 1e-3 < moved[points[:, 0] > 0.3].min()


def test_threads_do_not_change_the_motion() -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread")
    before, ends = numba.get_num_threads(), []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            body = _box(np.array([0.0, 0.0, -9.81]), held=Region((-1.0, -1.0, -1.0), (0.101, 1.0, 1.0), 0.1))
            for _ in range(4):
                body.step()
            ends.append(body.positions)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-11)


def test_what_it_cannot_simulate_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="the model is corotated; only neohookean"):
        Mpm(lattice((2, 2, 2), 0.1), 0.008, 0.2, Material("x", 1e5, 0.3, 1e3, model="corotated"), NONE, H)
    wild = np.random.default_rng(0).normal(size=(192, 3)) * 1e3
    with pytest.raises(InputError, match="particles fly apart"):
        _box(NONE, velocities=wild).step()
    burst = _box(NONE)
    burst._f[:] = np.diag([1e-3, 1e-3, 30.0])  # an inner state whose release outruns the grid
    with pytest.raises(InputError, match="particles fly apart"):
        for _ in range(20):
            burst.step()
