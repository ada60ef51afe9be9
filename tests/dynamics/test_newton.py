"""Newton's method on functions whose minima are known, and every reason it may stop for."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.dynamics.newton import minimise


class Quadratic:
    """1/2 (y - c)^T H (y - c)."""

    def __init__(self, hessian: np.ndarray, centre: np.ndarray) -> None:
        self._h, self._c = hessian, centre

    def energy(self, y: np.ndarray) -> float:
        return float(0.5 * (y - self._c) @ self._h @ (y - self._c))

    def gradient(self, y: np.ndarray) -> np.ndarray:
        return self._h @ (y - self._c)

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        return self._h


class Rosenbrock:
    """(1 - a)^2 + 100 (b - a^2)^2, minimum at (1, 1); its Hessian is indefinite where b > a^2 + 1/200."""

    def __init__(self) -> None:
        self.projected = 0

    def energy(self, y: np.ndarray) -> float:
        return float((1 - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2)

    def gradient(self, y: np.ndarray) -> np.ndarray:
        a, b = y
        return np.array([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        a, b = y
        exact = np.array([[2 - 400 * (b - a * a) + 800 * a * a, -400 * a], [-400 * a, 200.0]])
        if not psd:
            return exact
        self.projected += 1
        values, vectors = np.linalg.eigh(exact)
        return (vectors * np.maximum(values, 0.0)) @ vectors.T


class Barrier:
    """-k log(y_0): infinite at y_0 <= 0, so a step may go only part of the way there."""

    def __init__(self, k: float = 1.0) -> None:
        self.k, self.asked = k, 0

    def energy(self, y: np.ndarray) -> float:
        assert y[0] > 0, "the line search left the domain"
        return -self.k * float(np.log(y[0]))

    def gradient(self, y: np.ndarray) -> np.ndarray:
        assert y[0] > 0, "a gradient was asked for outside of the domain"
        return np.concatenate([[-self.k / y[0]], np.zeros(len(y) - 1)])

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        return np.diag(np.concatenate([[self.k / y[0] ** 2], np.zeros(len(y) - 1)]))

    def max_step(self, y: np.ndarray, direction: np.ndarray) -> float:
        self.asked += 1
        return min(1.0, 0.9 * y[0] / -direction[0]) if direction[0] < 0 else 1.0


def _quadratic(seed: int = 0, n: int = 12) -> Quadratic:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    return Quadratic(a @ a.T + 0.1 * np.eye(n), rng.normal(size=n))


def test_a_quadratic_takes_one_step_however_many_terms_it_is_made_of() -> None:
    one, two = _quadratic(0), _quadratic(1)
    y, report = minimise([one, two], np.zeros(12), tolerance=1e-8)
    assert report.converged and report.iterations == 1 and report.reason == "converged"
    np.testing.assert_allclose(y, np.linalg.solve(one._h + two._h, one._h @ one._c + two._h @ two._c), atol=1e-9)


def test_at_the_minimum_nothing_moves() -> None:
    term = _quadratic()
    y, report = minimise([term], term._c, tolerance=1e-8)
    assert report.converged and report.iterations == 0
    np.testing.assert_array_equal(y, term._c)


def test_the_start_is_not_written_to() -> None:
    start = np.zeros(12)
    minimise([_quadratic()], start, tolerance=1e-8)
    assert not start.any()


def test_the_residual_is_the_gradient_in_the_callers_unit() -> None:
    term = _quadratic()
    y, report = minimise([term], np.zeros(12), tolerance=1e-30, unit=7.0, max_iterations=0)
    assert report.residual == pytest.approx(7.0 * np.linalg.norm(term.gradient(np.zeros(12))))
    assert not report.converged and report.reason == "stopped after 0 iterations"
    np.testing.assert_array_equal(y, np.zeros(12))


def test_rosenbrock_from_an_indefinite_start() -> None:
    term = Rosenbrock()
    start = np.array([0.0, 2.0])
    assert np.linalg.eigvalsh(term.hessian(start, psd=False)).min() < 0
    y, report = minimise([term], start, tolerance=1e-9, max_iterations=100)
    assert report.converged and term.projected > 0
    np.testing.assert_allclose(y, [1.0, 1.0], atol=1e-8)


def test_convergence_is_quadratic_near_the_minimum() -> None:
    _, report = minimise([Rosenbrock()], np.array([1.0 + 1e-4, 1.0 + 2e-4]), tolerance=1e-10)
    assert report.converged and report.iterations <= 3


def test_running_out_of_iterations_is_reported() -> None:
    _, report = minimise([Rosenbrock()], np.array([-1.2, 1.0]), tolerance=1e-9, max_iterations=3)
    assert not report.converged and report.iterations == 3 and report.reason == "stopped after 3 iterations"
    assert report.residual > 1e-9


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_start_that_is_not_finite_is_reported_and_returned(poison: float) -> None:
    with np.errstate(invalid="ignore"):
        y, report = minimise([_quadratic()], np.full(12, poison), tolerance=1e-8)
    assert not report.converged and report.reason == "the energy is not finite" and len(y) == 12


def test_a_wrong_gradient_ends_in_no_descent() -> None:
    term = _quadratic()
    wrong = Quadratic(term._h, term._c)
    wrong.gradient = lambda y: -term.gradient(y)  # type: ignore[method-assign]
    y, report = minimise([wrong], np.zeros(12), tolerance=1e-8)
    assert not report.converged and report.reason == "the line search found no descent"
    np.testing.assert_array_equal(y, np.zeros(12))


def test_max_step_is_respected() -> None:
    """Pulled far past the wall: without the bound the first step would leave the domain of the logarithm."""
    barrier = Barrier()
    pull = Quadratic(np.eye(3), np.array([-50.0, 1.0, 2.0]))
    y, report = minimise([pull, barrier], np.array([1.0, 0.0, 0.0]), tolerance=1e-9, max_iterations=50)
    assert report.converged and barrier.asked > 0
    assert y[0] == pytest.approx(-25.0 + np.sqrt(25.0**2 + 1.0), rel=1e-9)  # y + 50 = 1 / y


def test_max_step_is_respected_where_the_line_search_gives_up() -> None:
    """The last resort at rounding level, a step without descent in the energy, must stay in bounds as well."""

    class Flat(Barrier):
        def energy(self, y: np.ndarray) -> float:
            assert y[0] > 0, "the line search left the domain"
            return float(np.linalg.norm(y - 1.0))  # grows along every step

    term = Flat()
    pull = Quadratic(np.eye(1), np.array([-50.0]))
    pull.energy = lambda y: 0.0  # type: ignore[method-assign]
    y, report = minimise([pull, term], np.array([1.0]), tolerance=1e-9)
    assert y[0] > 0
    assert not report.converged


def test_a_singular_hessian_is_shifted() -> None:
    """A flat direction with a gradient in it: Cholesky fails on both Hessians, the shifted one still descends."""
    flat = Quadratic(np.diag([1.0, 0.0]), np.array([3.0, 0.0]))
    y, report = minimise([flat], np.zeros(2), tolerance=1e-6)
    assert report.converged
    np.testing.assert_allclose(y, [3.0, 0.0], atol=1e-5)


class Kinked(Quadratic):
    """A one-sided stiff spring, k/2 max(0, y_0 - wall)^2, as contact is."""

    def __init__(self, wall: float, k: float = 1e6) -> None:
        self.wall, self.k = wall, k

    def _depth(self, y: np.ndarray) -> float:
        return max(0.0, y[0] - self.wall)

    def energy(self, y: np.ndarray) -> float:
        return 0.5 * self.k * self._depth(y) ** 2

    def gradient(self, y: np.ndarray) -> np.ndarray:
        return self.k * self._depth(y) * np.eye(len(y))[0]

    def hessian(self, y: np.ndarray, psd: bool = True) -> np.ndarray:
        return self.k * (y[0] > self.wall) * np.diag(np.eye(len(y))[0])


def test_sharp_terms_are_minimised_with_the_others() -> None:
    term, wall = _quadratic(), Kinked(0.0)
    together, first = minimise([term, wall], term._c + 1.0, tolerance=1e-8)
    apart, second = minimise([term], term._c + 1.0, tolerance=1e-8, sharp=[wall])
    assert first.converged and second.converged and second.iterations <= 2
    np.testing.assert_allclose(apart, together, atol=1e-8)
    assert wall.gradient(apart)[0] > 0.01  # it does press


def test_sharp_terms_with_rosenbrock() -> None:
    y, report = minimise([Rosenbrock()], np.array([-1.2, 1.0]), tolerance=1e-8, max_iterations=50, sharp=[Kinked(0.5)])
    assert report.converged
    np.testing.assert_allclose(y, [0.5, 0.25], atol=1e-3)


@pytest.mark.parametrize("sharp", [False, True])
def test_a_start_within_the_tolerance_is_improved_all_the_same_if_asked(sharp: bool) -> None:
    term, idle = _quadratic(), Kinked(1e9)
    start = term._c + 1e-9
    kept, report = minimise([term], start, tolerance=1e-6, sharp=[idle] * sharp)
    assert report.iterations == 0 and np.array_equal(kept, start)
    better, report = minimise([term], start, tolerance=1e-6, min_iterations=1, sharp=[idle] * sharp)
    assert report.converged and report.iterations == 1
    assert np.abs(better - term._c).max() < 1e-13
