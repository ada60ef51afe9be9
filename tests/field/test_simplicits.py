"""Simplicits: exact gradients, the closed-form expectation, orthonormality once bound, and what training achieves."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.field import simplicits
from splatanim.field.eigenmodes import neumann_modes
from splatanim.field.ritz import subspace_ratio
from splatanim.field.simplicits import SimplicitsField, bind_simplicits
from splatanim.field.subspace import raw_functions
from splatanim.metrics import skinning_metrics
from tests.helpers import box_cubature

HANDLES = 6


@functools.cache
def _box():
    return box_cubature((20, 8, 6), 1 / 20).domain


@functools.cache
def _field(steps: int = 100) -> SimplicitsField:
    return bind_simplicits(_box(), HANDLES, steps=steps)


def test_gradients_are_those_of_the_weights() -> None:
    field = _field()
    points = np.random.default_rng(0).uniform(-0.7, 0.7, (300, 3))
    exact = field.gradients(points)
    h = 1e-6
    numeric = [(field.weights(points + h * e) - field.weights(points - h * e)) / (2 * h) for e in np.eye(3)]
    assert np.linalg.norm(exact, axis=2).max(axis=0).min() > 0.1
    np.testing.assert_allclose(exact, np.stack(numeric, axis=2), atol=1e-6 * np.abs(exact).max())


def test_the_bound_field_is_orthonormal_and_independent_of_the_query() -> None:
    field = _field()
    assert field.kind == "simplicits" and field.handles == HANDLES
    w = field.weights(_box().centres)
    np.testing.assert_allclose(w.T @ w / len(w), np.eye(HANDLES), atol=1e-9)
    assert np.abs(w.mean(axis=0)).max() < 1e-9
    assert skinning_metrics(w).omega_orth < 1e-10
    some = np.random.default_rng(1).permutation(len(w))[:40]
    np.testing.assert_allclose(field.weights(_box().centres[some]), w[some], atol=1e-9)


def test_the_same_seed_gives_the_same_field_and_another_a_different_one() -> None:
    domain = box_cubature((8, 4, 3), 1 / 8).domain
    first, again, other = (bind_simplicits(domain, 3, steps=5, seed=seed).weights(domain.centres) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_torch_and_numpy_evaluate_the_same_network() -> None:
    import torch

    field = _field()
    points = np.random.default_rng(2).uniform(-1, 1, (50, 3))
    layers = [(torch.from_numpy(m), torch.from_numpy(b)) for m, b in field.layers]
    w, slope = simplicits._forward(layers, torch.from_numpy(points))
    raw = SimplicitsField(field.layers, np.zeros(3), 1.0, np.eye(HANDLES), np.zeros(HANDLES))
    np.testing.assert_allclose(raw.weights(points), w.numpy(), atol=1e-12)
    np.testing.assert_allclose(raw.gradients(points), slope.numpy().transpose(0, 2, 1), atol=1e-12)


def test_the_expected_linear_energy_agrees_with_sampling() -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    g = torch.randn(5, 3, 8, generator=generator, dtype=torch.float64)
    z = simplicits._SPREAD * torch.randn(40_000, 3, 8, generator=generator, dtype=torch.float64)
    h = torch.einsum("brk,nck->bnrc", z, g)
    strain = 0.5 * (h + h.transpose(-1, -2))
    trace = torch.einsum("bnrr->bn", h)
    energy = (simplicits._MU * (strain**2).sum((-1, -2)) + 0.5 * simplicits._LAMBDA * trace**2).mean(dim=1)
    error = float(energy.std()) / len(z) ** 0.5
    assert abs(float(energy.mean()) - float(simplicits._linear_expectation(g))) < 4 * error
    assert error < 0.02 * float(energy.mean())


def test_training_lowers_the_energy_and_the_overlap() -> None:
    exact, _ = neumann_modes(_box(), HANDLES + 1)
    ratio, overlap = [], []
    for steps in (1, 100):
        field = _field(steps)
        ratio.append(subspace_ratio(field.weights(_box().centres), _box(), exact, HANDLES + 1))
        overlap.append(skinning_metrics(raw_functions(field, _box())).omega_orth)
    assert 1.0 <= ratio[1] < min(ratio[0], 2.5)
    assert overlap[1] < 0.25 * overlap[0]


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="fills only 8 voxels, too few for 16 handles"):
        bind_simplicits(box_cubature((2, 2, 2), 0.1).domain, 16)
    with pytest.raises(InputError, match="0 training steps"):
        bind_simplicits(_box(), 4, steps=0)


def test_importing_the_module_does_not_load_torch() -> None:
    code = "import sys, splatanim.field.simplicits, splatanim.field.subspace; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
