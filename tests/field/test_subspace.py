"""Which field an object gets, and what every kind of field has in common."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field import SkinningField, subspace
from splatanim.field.eigenmodes import bind_eigenmodes, neumann_modes
from splatanim.field.gaussians import bind_gaussians
from splatanim.field.neural import bind_model
from splatanim.field.neural_model import ModelConfig, seeded_model
from splatanim.field.ritz import dirichlet, neighbours
from splatanim.field.simplicits import bind_simplicits
from splatanim.field.subspace import bind, choose, parts, raw_functions, rayleigh
from tests.field.shapes import two_blocks
from tests.helpers import box_cubature, branching_domain

HANDLES = 6
TINY = ModelConfig(width=16, latents=8, layers=1, heads=2, fields=6, octaves=2, depth=1, surface_points=64, warp=3)
BIND = {
    "gaussians": lambda d: bind_gaussians(d, HANDLES, raw=40),
    "eigenmodes": lambda d: bind_eigenmodes(d, HANDLES),
    "simplicits": lambda d: bind_simplicits(d, HANDLES, steps=20),
    "neural": lambda d: bind_model(seeded_model(TINY, 0).eval().requires_grad_(False), d, HANDLES, gaussians=24),
}


@functools.cache
def _box() -> Domain:
    return box_cubature((20, 8, 6), 1 / 20).domain


@functools.cache
def _field(kind: str, loose: bool = False) -> SkinningField:
    return BIND[kind](two_blocks(1) if loose else _box())


@pytest.mark.parametrize("loose", [False, True], ids=["box", "loose blocks"])
@pytest.mark.parametrize("kind", BIND)
def test_weights_and_gradients_together(kind: str, loose: bool) -> None:
    field, domain = _field(kind, loose), two_blocks(1) if loose else _box()
    points = domain.centres[::3] + np.random.default_rng(0).uniform(-0.4, 0.4, domain.cells[::3].shape) * domain.spacing
    assert isinstance(field, SkinningField)
    w, dw = field.evaluate(points)
    np.testing.assert_allclose(w, field.weights(points), atol=1e-12)
    np.testing.assert_allclose(dw, field.gradients(points), atol=1e-12)
    h = 1e-6
    numeric = [(field.weights(points + h * e) - field.weights(points - h * e)) / (2 * h) for e in np.eye(3)]
    assert np.abs(dw).max() > 0.1
    np.testing.assert_allclose(dw, np.stack(numeric, axis=2), atol=1e-5 * np.abs(dw).max())
    assert field.evaluate(points[:0])[1].shape == (0, HANDLES, 3)


@pytest.mark.parametrize("kind", ["gaussians", "eigenmodes", "neural"])
def test_loose_blocks_do_not_feel_each_other(kind: str) -> None:
    """The lowest field tells the blocks apart and is constant on each, although they are one voxel apart."""
    domain, field = two_blocks(1), _field(kind, True)
    first = field.weights(domain.centres)[:, 0]
    half = len(first) // 2
    assert np.ptp(first[:half]) < 1e-6 and np.ptp(first[half:]) < 1e-6
    assert abs(first[0] - first[-1]) == pytest.approx(2.0, abs=1e-6)
    assert np.abs(field.gradients(domain.centres)[:, 0]).max() < 1e-4


@pytest.mark.parametrize("kind", BIND)
def test_far_from_zero_fields_are_the_same(kind: str) -> None:
    shift = np.array([4096.0, -8192.0, 1024.0])
    moved = Domain(_box().cells, _box().origin + shift, _box().spacing)
    points = _box().centres[::11] + 0.25 * _box().spacing
    here, there = _field(kind).weights(points), BIND[kind](moved).weights(points + shift)
    np.testing.assert_allclose(np.abs(there), np.abs(here), atol=2e-2 if kind == "simplicits" else 1e-4)


def test_rayleigh_is_the_energy_of_each_field() -> None:
    field = _field("gaussians")
    w = field.weights(_box().centres)
    energy = np.diagonal(dirichlet(w, neighbours(_box()), _box().spacing))
    np.testing.assert_allclose(rayleigh(field, _box()), energy)
    assert (np.diff(energy) > -1e-9).all() and energy[0] > 0


@pytest.mark.parametrize("kind", ["gaussians", "eigenmodes", "simplicits"])
def test_raw_functions_span_the_bound_field(kind: str) -> None:
    raw, bound = raw_functions(_field(kind), _box()), _field(kind).weights(_box().centres)
    basis = np.concatenate([raw, np.ones((len(raw), 1))], axis=1)
    left = bound - basis @ np.linalg.lstsq(basis, bound, rcond=None)[0]
    assert np.abs(left).max() < 1e-6


def test_parts_are_joined_by_faces_only() -> None:
    box = np.argwhere(np.ones((6, 6, 6), bool))
    crumb = np.array([[6, 6, 6]])  # touches the box by a corner
    other = box + np.array([10, 0, 0])
    count, labels = parts(Domain(np.concatenate([box, crumb, other]), np.zeros(3), 0.1))
    assert count == 3 and len(np.unique(labels[:216])) == 1 and labels[0] != labels[216] != labels[-1]


@pytest.mark.parametrize("domain", [_box(), branching_domain(), two_blocks(1), two_blocks(2, bridge=True)])
def test_the_choice_comes_with_its_evidence(domain: Domain) -> None:
    field, sentence = choose(domain, HANDLES)
    levels, _ = neumann_modes(domain, HANDLES + 1)
    excess = rayleigh(field, domain).sum() / levels[1:].sum() - 1
    assert field.kind == "eigenmodes" and -1e-9 < excess < 0.01
    assert sentence == f"eigenmodes ({100 * max(excess, 0.0):.1f} % above the softest possible here)"


def test_more_loose_parts_than_handles() -> None:
    block = np.argwhere(np.ones((3, 3, 3), bool))
    cells = np.concatenate([block + np.array([4 * k, 0, 0]) for k in range(HANDLES + 3)])
    field, sentence = choose(Domain(cells, np.zeros(3), 0.1), HANDLES)
    assert sentence.startswith("eigenmodes (0.0 %") and np.abs(field.gradients(cells * 0.1 + 0.05)).max() < 1e-5


def test_a_softer_rival_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where eigenmodes come out stiff, the kinds are held against each other, and those that fail are named."""
    domain = branching_domain()
    _, least = subspace.softest(domain, HANDLES)

    def stiff(_domain: Domain, handles: int) -> tuple[SkinningField, np.ndarray]:
        return bind_gaussians(domain, handles, raw=12), least

    original = subspace._binder

    def binder(kind: str):
        if kind == "neural":
            raise ImportError("no torch here")
        return original(kind)

    monkeypatch.setattr(subspace, "softest", stiff)
    monkeypatch.setattr(subspace, "_binder", binder)
    field, sentence = choose(domain, HANDLES)
    assert len(field.centres) > 12
    assert "% softer than those of gaussians; neural could not be bound: no torch here)" in sentence


def test_an_object_too_small_is_refused() -> None:
    with pytest.raises(InputError, match="fills only 8 voxels, too few for 17 eigenmodes"):
        choose(box_cubature((2, 2, 2), 0.1).domain, 16)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(InputError, match="no skinning field 'fourier'"):
        bind("fourier", _box(), 4)
    with pytest.raises(InputError, match="--handles 0"):
        bind("gaussians", _box(), 0)
