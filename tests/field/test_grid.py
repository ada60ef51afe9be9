"""Splines over voxels: exactness, smoothness wherever there is object, and no leak across gaps."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Domain
from splatanim.field.grid import GridField, grown, interpolated, lattice_of, on_grid
from tests.field.shapes import BLOCK, comb, two_blocks
from tests.helpers import box_cubature, branching_domain


def _given(values: np.ndarray, domain: Domain) -> GridField:
    return interpolated(values, domain, lattice_of(domain), "eigenmodes")


@pytest.mark.parametrize("gap", [1, 2, 3])
def test_nothing_leaks_across_a_gap(gap: int) -> None:
    """Constants 0 and 1 on two blocks: exactly these, with no slope, everywhere in and half a voxel around each."""
    domain = two_blocks(gap)
    half = len(domain.cells) // 2
    values = np.repeat([0.0, 1.0], half)[:, None]
    field = _given(values, domain)
    rng = np.random.default_rng(0)
    points = domain.centres + rng.uniform(-0.5, 0.5, domain.cells.shape) * domain.spacing
    w, dw = field.evaluate(points)
    np.testing.assert_allclose(w, values, atol=1e-12)
    np.testing.assert_allclose(dw, 0.0, atol=1e-10)
    outside = points[half:] - np.array([0.49 * domain.spacing * (gap > 1), 0.0, 0.0])
    np.testing.assert_allclose(field.weights(outside), 1.0, atol=1e-12)


@pytest.mark.parametrize("direction", [(1, 1, 0), (1, 1, 1)])
def test_nothing_leaks_over_an_edge_or_a_corner(direction: tuple[int, int, int]) -> None:
    cells = box_cubature((5, 5, 5), 0.1).domain.cells
    cells = np.concatenate([cells, cells + 5 * np.array(direction)])
    domain = Domain(cells, np.zeros(3), 0.1)
    values = np.repeat([0.0, 1.0], 125)[:, None]
    rng = np.random.default_rng(0)
    w = _given(values, domain).weights(domain.centres + rng.uniform(-0.5, 0.5, cells.shape) * domain.spacing)
    np.testing.assert_allclose(w, values, atol=1e-12)


def test_teeth_of_a_comb_keep_their_values_away_from_its_back() -> None:
    domain = comb(height=20)
    tooth = (domain.cells[:, 0] // 4).astype(np.float64)[:, None]
    field = _given(tooth, domain)
    tips = domain.cells[:, 1] >= 16
    rng = np.random.default_rng(0)
    points = domain.centres[tips] + rng.uniform(-0.5, 0.5, (tips.sum(), 3)) * domain.spacing
    np.testing.assert_allclose(field.weights(points), tooth[tips], atol=1e-12)


@pytest.mark.parametrize(
    "domain", [two_blocks(2, bridge=True), comb(), branching_domain()], ids=["bridge", "comb", "y"]
)
def test_functions_are_smooth_wherever_there_is_object(domain: Domain) -> None:
    """Values and slopes agree on both sides of every face between two voxels."""
    rng = np.random.default_rng(1)
    field = _given(rng.normal(size=(len(domain.cells), 2)), domain)
    there = {tuple(c) for c in domain.cells}
    for axis in range(3):
        step = np.eye(3, dtype=int)[axis]
        cells = np.array([c for c in domain.cells if tuple(c + step) in there])
        face = (
            domain.origin
            + (cells + 0.5 + 0.5 * step + rng.uniform(-0.5, 0.5, cells.shape) * (1 - step)) * domain.spacing
        )
        left, right = (field.evaluate(face + side * 1e-9 * domain.spacing * step) for side in (-1, 1))
        np.testing.assert_allclose(left[0], right[0], atol=1e-7)
        np.testing.assert_allclose(left[1], right[1], atol=1e-6 * np.abs(left[1]).max())


def test_a_smooth_function_is_met_in_value_and_slope() -> None:
    domain = box_cubature((30, 20, 16), 1 / 30).domain
    low, extent = domain.centres.min(axis=0) - 0.5 * domain.spacing, np.array([30, 20, 16]) / 30

    def wave(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        phase = np.pi * (x - low) / extent * [2, 1, 1]
        c, s = np.cos(phase), np.sin(phase)
        slopes = [
            -s[:, a] * np.prod(np.delete(c, a, axis=1), axis=1) * (np.pi * [2, 1, 1][a] / extent[a]) for a in range(3)
        ]
        return np.prod(c, axis=1)[:, None], np.stack(slopes, axis=1)[:, None, :]

    points = low + np.random.default_rng(0).uniform(0, 1, (2000, 3)) * extent
    w, dw = _given(wave(domain.centres)[0], domain).evaluate(points)
    value, slope = wave(points)
    assert np.abs(w - value).max() < 2e-3
    assert np.abs(dw - slope).max() < 0.02 * np.abs(slope).max()


@pytest.mark.parametrize("domain", [comb(), branching_domain()], ids=["comb", "y"])
def test_slopes_are_those_of_the_values(domain: Domain) -> None:
    field = on_grid(np.random.default_rng(0).normal(size=(len(domain.cells), 3)), domain, "eigenmodes")
    rng = np.random.default_rng(2)
    points = domain.centres[rng.integers(len(domain.cells), size=300)]
    points = points + rng.uniform(-0.45, 0.45, points.shape) * domain.spacing  # a difference must not cross a gap
    exact, h = field.gradients(points), 1e-5 * domain.spacing
    numeric = [(field.weights(points + h * e) - field.weights(points - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(exact, np.stack(numeric, axis=2), atol=1e-5 * np.abs(exact).max())
    w, dw = field.evaluate(points)
    np.testing.assert_array_equal(w, field.weights(points))
    np.testing.assert_array_equal(dw, exact)


def test_far_away_it_is_constant_and_far_from_zero_it_is_as_exact() -> None:
    domain = branching_domain()
    values = np.random.default_rng(0).normal(size=(len(domain.cells), 2))
    shift = np.array([3e5, -2e6, 1e4])
    moved = Domain(domain.cells, domain.origin + shift, domain.spacing)
    here, there = on_grid(values, domain, "eigenmodes"), on_grid(values, moved, "eigenmodes")
    points = domain.centres[::7] + 0.2 * domain.spacing
    np.testing.assert_allclose(there.weights(points + shift), here.weights(points), atol=1e-6)
    far = np.array([[1e6, 0.0, 0.0], [2e6, 0.0, 0.0]])
    w, dw = here.evaluate(far)
    np.testing.assert_allclose(w[0], w[1])
    assert np.isfinite(w).all() and not dw[:, :, 0].any()


def test_no_points_and_single_points() -> None:
    domain = two_blocks(1)
    field = on_grid(np.random.default_rng(0).normal(size=(len(domain.cells), 3)), domain, "eigenmodes")
    w, dw = field.evaluate(np.empty((0, 3)))
    assert w.shape == (0, 3) and dw.shape == (0, 3, 3)
    everything = field.weights(domain.centres)
    single = np.concatenate([field.weights(p[None]) for p in domain.centres[:20]])
    np.testing.assert_allclose(single, everything[:20], atol=1e-12)


def test_a_grown_domain_keeps_its_own_cells_first() -> None:
    domain = two_blocks(4)
    around = grown(domain, 2)
    np.testing.assert_array_equal(around.cells[: len(domain.cells)], domain.cells)
    assert (
        len(around.cells)
        == len(np.unique(around.cells, axis=0))
        == np.prod([2 * BLOCK[0] + 8, BLOCK[1] + 4, BLOCK[2] + 4])
    )
