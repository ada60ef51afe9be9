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
from splatanim.field.gaussians import bind_gaussians
from splatanim.field.ritz import dirichlet, neighbours, subspace_ratio
from splatanim.field.simplicits import SimplicitsField, bind_simplicits
from splatanim.field.subspace import bind, choose, parts, raw_functions, rayleigh, without_crumbs
from splatanim.metrics import skinning_metrics
from tests.helpers import box_cubature, branching_domain

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


# splatanim.field.subspace: which field an object gets


def test_rayleigh_is_the_energy_of_each_field() -> None:
    field = bind_gaussians(_box(), HANDLES)
    w = field.weights(_box().centres)
    energy = np.diagonal(dirichlet(w, neighbours(_box()), _box().spacing))
    np.testing.assert_allclose(rayleigh(field, _box()), energy)
    assert (np.diff(energy) > -1e-9).all() and energy[0] > 0


def test_raw_functions_span_the_bound_field() -> None:
    for field in (bind_gaussians(_box(), HANDLES, raw=30), bind("eigenmodes", _box(), HANDLES)[0], _field()):
        raw, bound = raw_functions(field, _box()), field.weights(_box().centres)
        basis = np.concatenate([raw, np.ones((len(raw), 1))], axis=1)
        left = bound - basis @ np.linalg.lstsq(basis, bound, rcond=None)[0]
        assert np.abs(left).max() < 1e-6


def test_parts_and_crumbs() -> None:
    from splatanim.data import Domain

    box = np.argwhere(np.ones((6, 6, 6), bool))
    crumb = np.array([[6, 6, 6]])  # touches the box by a corner
    other = box + np.array([10, 0, 0])
    domain = Domain(np.concatenate([box, crumb, other]), np.zeros(3), 0.1)
    count, labels = parts(domain)
    assert count == 3 and len(np.unique(labels[:216])) == 1 and labels[0] != labels[216] != labels[-1]
    clean = without_crumbs(domain)
    assert len(clean.cells) == 432 and parts(clean)[0] == 2
    assert without_crumbs(_box()) is _box()


def test_the_choice_takes_the_softer_field(monkeypatch: pytest.MonkeyPatch) -> None:
    from splatanim.field import subspace

    def binder(kind: str):
        raw = {"neural": 20, "gaussians": 60}[kind]

        def made(domain, handles, seed):
            field = bind_gaussians(domain, handles, raw=raw, seed=seed)
            object.__setattr__(field, "kind", kind)
            return field

        return made

    monkeypatch.setattr(subspace, "_binder", binder)
    domain = branching_domain()
    field, sentence = choose(domain, HANDLES)
    assert field.kind == "gaussians" and "% softer than those of neural" in sentence


def test_the_choice_needs_one_kind_that_can_be_bound() -> None:
    with pytest.raises(InputError, match="gaussians could not be bound: The object fills only 8 voxels"):
        choose(box_cubature((2, 2, 2), 0.1).domain, 16, kinds=("gaussians",))


def test_without_a_network_the_choice_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from splatanim.field import subspace

    original = subspace._binder

    def binder(kind: str):
        if kind == "neural":
            raise ImportError("no torch here")
        return original(kind)

    monkeypatch.setattr(subspace, "_binder", binder)
    field, sentence = choose(_box(), HANDLES)
    assert field.kind == "gaussians" and sentence == "gaussians (neural could not be bound: no torch here)"


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(InputError, match="no skinning field 'fourier'"):
        bind("fourier", _box(), 4)
    with pytest.raises(InputError, match="--handles 0"):
        bind("gaussians", _box(), 0)
