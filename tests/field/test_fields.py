"""Skinning fields: exact gradients, orthonormality on the object, box modes in closed form, and how near to them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.eigenmodes import bind_eigenmodes, neumann_modes
from splatanim.field.gaussians import bind_gaussians
from splatanim.field.ritz import dirichlet, neighbours, ritz, subspace_ratio
from splatanim.metrics import skinning_metrics
from tests.helpers import box_cubature, branching_domain

BIND = {"gaussians": bind_gaussians, "eigenmodes": bind_eigenmodes}
BOX = (24, 12, 9)
HANDLES = 15


@functools.cache
def _domain(name: str) -> Domain:
    if name == "box":
        return box_cubature(BOX, 1 / BOX[0]).domain
    if name == "few voxels":  # fewer than there are Gaussians to place
        return box_cubature((7, 5, 4), 1 / 7).domain
    return branching_domain()


@functools.cache
def _field(kind: str, name: str, handles: int = HANDLES):
    return BIND[kind](_domain(name), handles)


@pytest.mark.parametrize("name", ["box", "few voxels", "branching"])
@pytest.mark.parametrize("kind", BIND)
def test_gradients_are_those_of_the_weights(kind: str, name: str) -> None:
    field, domain = _field(kind, name), _domain(name)
    rng = np.random.default_rng(0)
    points = domain.centres[rng.integers(0, len(domain.cells), 200)] + rng.uniform(-0.6, 0.6, (200, 3)) * domain.spacing
    points = np.concatenate([points, rng.uniform(-0.9, 0.9, (50, 3))])  # some far outside
    exact = field.gradients(points)
    h = 1e-6 * domain.spacing * 24
    numeric = [(field.weights(points + h * e) - field.weights(points - h * e)) / (2 * h) for e in np.eye(3)]
    assert np.linalg.norm(exact, axis=2).max(axis=0).min() > 0.1
    np.testing.assert_allclose(exact, np.stack(numeric, axis=2), atol=3e-5 * np.abs(exact).max())


@pytest.mark.parametrize("name", ["box", "few voxels", "branching"])
@pytest.mark.parametrize("kind", BIND)
def test_fields_are_orthonormal_on_the_object(kind: str, name: str) -> None:
    field, domain = _field(kind, name), _domain(name)
    w = field.weights(domain.centres)
    assert w.shape == (len(domain.cells), HANDLES) and field.handles == HANDLES and field.kind == kind
    np.testing.assert_allclose(w.T @ w / len(w), np.eye(HANDLES), atol=1e-9)
    assert np.abs(w.mean(axis=0)).max() < 1e-9  # orthogonal to the constant that is always appended
    metrics = skinning_metrics(w)
    assert metrics.omega_orth < 1e-10
    assert metrics.kappa_log == pytest.approx(1.0, abs=1e-6) and metrics.h_spec == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kind", BIND)
def test_a_weight_does_not_depend_on_the_points_it_is_asked_with(kind: str) -> None:
    field = _field(kind, "box")
    points = np.random.default_rng(1).uniform(-0.5, 0.5, (40_000, 3))
    everything, some = field.weights(points), np.random.default_rng(2).permutation(40_000)[:70]
    np.testing.assert_allclose(field.weights(points[some]), everything[some], atol=1e-9)
    np.testing.assert_allclose(field.weights(points[some[:1]]), everything[some[:1]], atol=1e-9)
    np.testing.assert_allclose(field.gradients(points[some[:3]]), field.gradients(points)[some[:3]], atol=1e-7)
    single = points[some].astype(np.float32)
    np.testing.assert_allclose(field.weights(single), field.weights(single.astype(np.float64)), atol=1e-9)


@pytest.mark.parametrize("kind", BIND)
def test_binding_is_deterministic_and_follows_the_object(kind: str) -> None:
    """The same domain twice, and moved and scaled: the weights go along with the points (up to sign)."""
    domain = box_cubature((10, 7, 5), 1 / 8).domain
    points = np.random.default_rng(1).uniform(-0.5, 0.5, (50, 3)) * [1.2, 0.8, 0.6]
    first = BIND[kind](domain, 6).weights(points)
    np.testing.assert_array_equal(first, BIND[kind](domain, 6).weights(points))
    shift = np.array([0.25, -0.5, 1.0])
    moved = Domain(domain.cells + 3, 2 * domain.origin + shift - 6 * domain.spacing, 2 * domain.spacing)
    again = BIND[kind](moved, 6).weights(2 * points + shift)
    np.testing.assert_allclose(np.abs(again), np.abs(first), atol=1e-6)


def _box_eigenvalues(count: int, discrete: bool) -> np.ndarray:
    """Neumann eigenvalues of the box: sums of (pi n / L)^2, or of their counterparts on cells of side s."""
    s = 1 / BOX[0]
    values = []
    for modes in np.ndindex(BOX):
        terms = [
            (2 / s * np.sin(0.5 * np.pi * n / cells)) ** 2 if discrete else (np.pi * n / (cells * s)) ** 2
            for n, cells in zip(modes, BOX)
        ]
        values.append(sum(terms))
    return np.sort(values)[:count]


def test_eigenvalues_of_a_box_in_closed_form() -> None:
    values, modes = neumann_modes(_domain("box"), 20)
    np.testing.assert_allclose(values, _box_eigenvalues(20, discrete=True), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(values[1:], _box_eigenvalues(20, discrete=False)[1:], rtol=0.03)
    np.testing.assert_allclose(modes.T @ modes / len(modes), np.eye(20), atol=1e-7)
    first = np.cos(np.pi * (_domain("box").centres[:, 0] + 0.5)) * np.sqrt(2)
    assert abs(np.mean(first * modes[:, 1])) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize(("cells", "count"), [(8, 11), (8, 17), (10, 11), (10, 17), (10, 25), (12, 33)])
def test_repeated_eigenvalues_of_a_cube_are_all_found(cells: int, count: int) -> None:
    values, _ = neumann_modes(box_cubature((cells,) * 3, 1 / cells).domain, count)
    one = (2 * cells * np.sin(0.5 * np.pi * np.arange(cells) / cells)) ** 2
    every = np.sort((one[:, None, None] + one[:, None] + one).ravel())
    np.testing.assert_allclose(values, every[:count], rtol=1e-6, atol=1e-6)


def test_the_dirichlet_energy_of_a_linear_function() -> None:
    domain = _domain("box")
    f = domain.centres @ np.array([[2.0], [0.0], [0.0]])
    energy = dirichlet(f, neighbours(domain), domain.spacing)
    assert energy[0, 0] == pytest.approx(4.0 * (BOX[0] - 1) / BOX[0])  # one face fewer than cells


def test_ritz_finds_the_best_combinations() -> None:
    """Of twelve exact modes, scrambled and with a copy among them, the lowest five come back with their eigenvalues."""
    domain = _domain("box")
    values, modes = neumann_modes(domain, 13)
    rng = np.random.default_rng(0)
    raw = modes[:, 1:] @ rng.normal(size=(12, 12)) + 3.0
    raw = np.concatenate([raw, raw[:, :1]], axis=1)
    coefficients, constants, levels = ritz(raw, domain, 5)
    np.testing.assert_allclose(levels, values[1:6], rtol=1e-5)
    w = raw @ coefficients + constants
    np.testing.assert_allclose(w.T @ w / len(w), np.eye(5), atol=1e-10)


def test_the_subspace_ratio_is_one_for_exact_modes_and_more_for_others() -> None:
    domain = _domain("box")
    values, modes = neumann_modes(domain, 16)
    assert subspace_ratio(modes[:, 1:], domain, values) == pytest.approx(1.0, abs=1e-6)
    spoilt = modes[:, 1:] + 0.3 * np.random.default_rng(0).normal(size=modes[:, 1:].shape)
    assert subspace_ratio(spoilt, domain, values) > 1.5
    assert subspace_ratio(modes[:, 1:10], domain, values) == float("inf")  # too few


@pytest.mark.parametrize(("name", "most"), [("box", 1.05), ("branching", 1.3)])
@pytest.mark.parametrize("kind", BIND)
def test_how_near_the_fields_come_to_the_optimum(kind: str, name: str, most: float) -> None:
    domain = _domain(name)
    ratio = subspace_ratio(_field(kind, name).weights(domain.centres), domain, neumann_modes(domain, 16)[0])
    assert 1 - 1e-6 <= ratio < (most if kind == "gaussians" else 1.1)


@pytest.mark.parametrize("kind", BIND)
def test_two_separate_parts(kind: str) -> None:
    """The lowest field is then constant on each part, and its gradient vanishes inside both."""
    one = box_cubature((8, 6, 6), 1 / 20).domain
    both = Domain(np.concatenate([one.cells, one.cells + np.array([12, 0, 0])]), one.origin, one.spacing)
    values, _ = neumann_modes(both, 4)
    np.testing.assert_allclose(values[:2], 0.0, atol=1e-6)
    assert values[2] > 1.0
    field = BIND[kind](both, 6)
    w = field.weights(both.centres)
    left, right = w[: len(one.cells), 0], w[len(one.cells) :, 0]
    spread = 0.02 if kind == "eigenmodes" else 0.2
    assert max(np.std(left), np.std(right)) < spread and abs(left.mean() - right.mean()) == pytest.approx(2.0, abs=0.05)


def test_smooth_gaussians_even_where_every_voxel_is_a_centre() -> None:
    """With fewer voxels than Gaussians their width must not shrink to nothing, or weights would be spikes."""
    field, domain = _field("gaussians", "few voxels"), _domain("few voxels")
    middle = domain.centres + 0.5 * domain.spacing * np.array([1.0, 0.0, 0.0])
    inside = np.abs(middle[:, 0]) < 0.4
    here, there = field.weights(middle[inside]), field.weights(domain.centres[inside])
    assert np.abs(here[:, 0] - there[:, 0]).max() < 0.5  # a change of one voxel out of seven


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("gaussians", r"fills only 12 voxels, too few for 15 handles\. Use fewer --handles, or check with `splatanim"),
        ("eigenmodes", r"fills only 12 voxels, too few for 16 eigenmodes\. Use fewer --handles\."),
    ],
)
def test_too_few_voxels(kind: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        BIND[kind](box_cubature((3, 2, 2), 0.1).domain, 15)
