"""The inner solve on problems of many kinks; what friction's cautious Hessian is; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.dynamics import proximal
from splatanim.dynamics.coulomb import SlipHessians, coulomb
from splatanim.dynamics.damping import RayleighDamping
from splatanim.dynamics.newton import minimise
from splatanim.dynamics.simulate import Settings, simulate
from splatanim.dynamics.world import Actor, World, simulate_world
from splatanim.errors import InputError
from tests.dynamics.models import box_model


class Quadratic:
    def __init__(self, hessian: np.ndarray, centre: np.ndarray) -> None:
        self.h, self.c = hessian, centre

    def energy(self, y: np.ndarray) -> float:
        return float(0.5 * (y - self.c) @ self.h @ (y - self.c))

    def gradient(self, y: np.ndarray) -> np.ndarray:
        return self.h @ (y - self.c)

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        return self.h


class Springs:
    """k/2 max(0, b - A y)^2: one-sided, as many as there are rows."""

    def __init__(self, rows: np.ndarray, bounds: np.ndarray, k: float) -> None:
        self.a, self.b, self.k = rows, bounds, k

    def _depth(self, y: np.ndarray) -> np.ndarray:
        return np.maximum(self.b - self.a @ y, 0.0)

    def energy(self, y: np.ndarray) -> float:
        return float(0.5 * self.k * (self._depth(y) ** 2).sum())

    def gradient(self, y: np.ndarray) -> np.ndarray:
        return -self.k * self.a.T @ self._depth(y)

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        on = self.a[self._depth(y) > 0]
        return self.k * on.T @ on


class Cones:
    """sum of load f0(|B_j y - s_j|): friction of points that slip in two directions each."""

    def __init__(self, maps: np.ndarray, starts: np.ndarray, load: float, stick: float) -> None:
        self.b, self.s, self.load, self.stick = maps, starts, load, stick
        self.slips = SlipHessians(len(maps), 2)

    def _slip(self, y: np.ndarray) -> np.ndarray:
        return self.b @ y - self.s

    def energy(self, y: np.ndarray) -> float:
        return float(self.load * coulomb(np.linalg.norm(self._slip(y), axis=1), self.stick)[0].sum())

    def gradient(self, y: np.ndarray) -> np.ndarray:
        slip = self._slip(y)
        ratio = coulomb(np.linalg.norm(slip, axis=1), self.stick)[1]
        return self.load * np.einsum("pdk,pd,p->k", self.b, slip, ratio)

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        bend = (self.slips.cautious if psd else self.slips.exact)(self._slip(y), self.stick)
        return self.load * np.einsum("pdk,pde,pel->kl", self.b, bend, self.b)


def _soft(rng: np.random.Generator, n: int) -> Quadratic:
    a = rng.normal(size=(n, n))
    return Quadratic(a @ a.T / n + 0.05 * np.eye(n), rng.normal(size=n))


@pytest.mark.parametrize("seed", range(4))
def test_many_stiff_one_sided_springs_are_sorted_out_in_few_iterations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    soft = _soft(rng, 30)
    springs = Springs(rng.normal(size=(120, 30)), rng.normal(size=120), 1e4)
    y, report = proximal.solve([soft, springs], np.zeros(30), 1e-8, 1.0, convex=True)
    assert report.converged and report.iterations < 40
    whole = soft.gradient(y) + springs.gradient(y)  # convex: a stationary point is the minimum
    assert np.linalg.norm(whole) < 1e-8 and 0 < (springs._depth(y) > 0).sum() < 120


@pytest.mark.parametrize("seed", range(4))
def test_friction_that_sticks_here_and_slips_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    soft = _soft(rng, 24)
    maps = rng.normal(size=(9, 2, 24)) / 5.0
    cones = Cones(maps, maps @ soft.c + rng.normal(size=(9, 2)), 0.4, 1e-5)
    y, report = proximal.solve([soft, cones], soft.c, 1e-9, 1.0, convex=True)
    assert report.converged and report.iterations < 60
    assert np.linalg.norm(soft.gradient(y) + cones.gradient(y)) < 1e-9
    slip = np.linalg.norm(cones._slip(y), axis=1)
    assert (slip < 1e-5).any() and (slip > 1e-3).any()


def test_the_cautious_hessian_starts_over_the_cone_and_ends_exact() -> None:
    rng = np.random.default_rng(1)
    slip, stick = rng.normal(size=(50, 2)), 0.3
    memory = SlipHessians(50, 2)
    exact, first = memory.exact(slip, stick), memory.cautious(slip, stick)
    assert np.linalg.eigvalsh(first - exact).min() > -1e-12
    _, ratio, _ = coulomb(np.linalg.norm(slip, axis=1), stick)
    np.testing.assert_allclose(first, ratio[:, None, None] * np.eye(2), atol=1e-12)
    np.testing.assert_allclose(memory.cautious(slip, stick), exact, atol=1e-12)
    crossing = memory.cautious(-0.5 * slip, stick)  # through the tip: still positive
    assert np.linalg.eigvalsh(crossing).min() >= -1e-12
    assert np.isfinite(memory.cautious(np.zeros((50, 2)), stick)).all()


def test_a_model_that_is_not_convex_is_given_up_or_shifted() -> None:
    bowl = Quadratic(np.diag([1.0, -1.0]), np.array([1.0, 0.5]))
    _, report = proximal.solve([bowl], np.zeros(2), 1e-8, 1.0, convex=True)
    assert not report.converged and report.reason == proximal.NOT_CONVEX and report.iterations == 0
    wall = Springs(np.array([[0.0, 1.0], [0.0, -1.0]]), np.array([-1.0, -1.0]), 10.0)  # |y_1| <= 1, softly
    y, report = proximal.solve([bowl, wall], np.array([0.0, 0.1]), 1e-8, 1.0, convex=False)
    assert np.isfinite(y).all() and bowl.energy(y) + wall.energy(y) < bowl.energy(np.array([0.0, 0.1]))


def test_proximal_steps_agree_with_plain_ones_where_the_expensive_part_is_not_convex() -> None:
    class Wells:
        """(a^2 - 1)^2 + b^2: two minima, a saddle between."""

        def energy(self, y: np.ndarray) -> float:
            return float((y[0] ** 2 - 1) ** 2 + y[1] ** 2)

        def gradient(self, y: np.ndarray) -> np.ndarray:
            return np.array([4 * y[0] * (y[0] ** 2 - 1), 2 * y[1]])

        def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
            bend = 12 * y[0] ** 2 - 4
            return np.diag([max(bend, 0.0) if psd else bend, 2.0])

    springs = Springs(np.array([[1.0, 1.0]]), np.array([1.5]), 100.0)
    for start in ([0.1, 0.0], [0.5, 2.0], [2.0, -3.0]):
        y, report = minimise([Wells()], np.array(start), tolerance=1e-9, max_iterations=60, sharp=[springs])
        assert report.converged
        np.testing.assert_allclose(Wells().gradient(y) + springs.gradient(y), 0.0, atol=1e-8)


def test_a_body_whose_cubature_is_flat_is_refused_before_the_first_step() -> None:
    import dataclasses

    model = box_model((4, 4, 4), handles=1)
    flat = dataclasses.replace(model, rest=model.rest * np.array([1.0, 1.0, 0.0]))
    text = (
        rf"Body 'slab': its {len(flat.rest)} cubature points lie in a plane, so that its mass matrix is singular\. Sam"
    )
    with pytest.raises(InputError, match=text):
        simulate_world(World((Actor("slab", flat),)), Settings(2))
    line = dataclasses.replace(model, rest=model.rest * np.array([1.0, 0.0, 0.0]))
    with pytest.raises(InputError, match="lie on a line"):
        simulate(line, [RayleighDamping(line, 0.0, 0.0)], Settings(2))
