"""The neural field: exact gradients, no dependence on batches, orthonormality, loose parts, and refusals."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.neural import NeuralField, bind_model, bind_neural, raw_fields, raw_model
from splatanim.field.neural_basis import basis_of
from splatanim.field.neural_model import PRESETS, FieldModel, ModelConfig, load_model, save_model, seeded_model
from splatanim.field.neural_parts import parts_of
from splatanim.field.neural_surface import box_of, surface_of
from splatanim.metrics import skinning_metrics
from tests.helpers import box_cubature, branching_domain

TINY = ModelConfig(
    width=16, latents=8, layers=1, heads=2, fields=6, octaves=2, depth=1, surface_points=64, warp=3, affine=True
)
VARIANTS = {
    "affine and warped": TINY,
    "plain": dataclasses.replace(TINY, warp=0, affine=False),
    "orthogonal": dataclasses.replace(TINY, oni=True),
    "michelangelo": dataclasses.replace(TINY, michelangelo=True, octaves=8, expansion=4),
}


def _two_boxes() -> Domain:
    box = box_cubature((8, 6, 5), 0.1).domain
    return Domain(np.concatenate([box.cells, box.cells + np.array([10, 1, 0])]), box.origin, box.spacing)


@functools.cache
def _domain(name: str) -> Domain:
    if name == "box":
        return box_cubature((12, 7, 6), 1 / 12).domain
    return _two_boxes() if name == "two parts" else branching_domain()


@functools.cache
def _network(variant: str = "affine and warped") -> FieldModel:
    return seeded_model(VARIANTS[variant], 3).eval().requires_grad_(False)


@functools.cache
def _field(name: str, variant: str = "affine and warped") -> NeuralField:
    return bind_model(_network(variant), _domain(name), 8, gaussians=24)


def _points(domain: Domain, count: int = 60) -> np.ndarray:
    rng = np.random.default_rng(0)
    return domain.centres[rng.integers(len(domain.cells), size=count)] + 0.2 * domain.spacing * rng.normal(
        size=(count, 3)
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["box", "two parts"])
def test_gradients_are_those_of_the_weights(name: str, variant: str) -> None:
    field, points = _field(name, variant), _points(_domain(name))
    exact = field.gradients(points)
    h = 1e-5
    numeric = [(field.weights(points + h * e) - field.weights(points - h * e)) / (2 * h) for e in np.eye(3)]
    assert np.abs(exact).max(axis=(0, 2)).max() > 0.1
    np.testing.assert_allclose(exact, np.stack(numeric, axis=2), atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("name", ["box", "two parts"])
def test_weights_do_not_depend_on_the_batch(name: str) -> None:
    field, points = _field(name), _points(_domain(name), 33)
    together, apart = field.weights(points), np.concatenate([field.weights(p[None]) for p in points])
    np.testing.assert_allclose(together, apart, atol=1e-7 * np.abs(together).max())
    together, apart = field.gradients(points), np.concatenate([field.gradients(p[None]) for p in points])
    np.testing.assert_allclose(together, apart, atol=1e-7 * np.abs(together).max())
    assert field.weights(points[:0]).shape == (0, 8) and field.gradients(points[:0]).shape == (0, 8, 3)


@pytest.mark.parametrize("name", ["box", "two parts", "branching"])
def test_bound_fields_are_orthonormal_and_sorted(name: str) -> None:
    field, domain = _field(name), _domain(name)
    w = field.weights(domain.centres)
    assert field.kind == "neural" and field.handles == 8 and field.raw == 10 * 6 + 24
    np.testing.assert_allclose(w.T @ w / len(w), np.eye(8), atol=1e-8)
    assert np.abs(w.mean(axis=0)).max() < 1e-8
    assert skinning_metrics(np.c_[np.ones(len(w)), w]).omega_orth < 1e-10
    assert (np.diff(field.levels) > -1e-9).all()


def test_splines_follow_the_network_up_to_the_surface() -> None:
    """Between voxels too, weights and gradients are those of combinations of the network's raw functions."""
    domain = box_cubature((24, 14, 12), 1 / 24).domain
    network = seeded_model(TINY, 3).eval().requires_grad_(False).double()
    field, basis = bind_model(network, domain, 8, gaussians=24), basis_of(network, domain, 24, 2)
    rng = np.random.default_rng(0)
    points = domain.centres[rng.integers(len(domain.cells), size=1500)]
    points = points + rng.uniform(-0.5, 0.5, points.shape) * domain.spacing
    one = np.ones((len(points), 1))
    raw = np.concatenate([basis.values(points), one], axis=1)
    w, dw = field.evaluate(points)
    c = np.linalg.lstsq(raw, w, rcond=1e-12)[0]
    assert np.sqrt(np.mean((raw @ c - w) ** 2)) < 3e-3
    h = 1e-5
    slopes = [(basis.values(points + h * e) - basis.values(points - h * e)) @ c[:-1] / (2 * h) for e in np.eye(3)]
    exact = np.stack(slopes, axis=2)
    assert np.sqrt(np.mean((exact - dw) ** 2)) < 0.03 * np.sqrt(np.mean(exact**2))


def test_loose_parts_have_a_zero_mode_and_move_apart() -> None:
    field, domain = _field("two parts"), _domain("two parts")
    assert parts_of(domain).count == 2
    assert field.levels[0] < 1e-12 < field.levels[1]
    first = field.weights(domain.centres)[:, 0]
    assert len(np.unique(first.round(8))) == 2


def test_crumbs_join_the_nearest_part() -> None:
    box = _domain("box")
    crumb = Domain(np.concatenate([box.cells, [[20, 3, 3]]]), box.origin, box.spacing)
    parts = parts_of(crumb)
    assert parts.count == 1 and parts.of(crumb.centres).tolist() == [0] * len(crumb.cells)


def test_the_field_follows_the_object() -> None:
    """Moving and scaling an object moves and scales its field."""
    domain = _domain("branching")
    moved = Domain(domain.cells + 5, 3.0 * domain.origin + 1.0, 3.0 * domain.spacing)
    points = _points(domain, 20)
    there = 3.0 * points + 1.0 + 15 * domain.spacing
    w, v = _field("branching").weights(points), bind_model(_network(), moved, 8, gaussians=24).weights(there)
    np.testing.assert_allclose(np.abs(v), np.abs(w), atol=1e-3)


def test_same_seed_same_field() -> None:
    again = bind_model(_network(), _domain("box"), 8, gaussians=24)
    points = _points(_domain("box"))
    np.testing.assert_array_equal(again.weights(points), _field("box").weights(points))


def test_surface_lies_around_the_object_and_normals_point_out() -> None:
    domain = box_cubature((20, 20, 20), 0.1).domain
    surface = surface_of(domain)
    length = np.linalg.norm(surface.normals, axis=1)
    np.testing.assert_allclose(length, 1.0, atol=1e-6)
    assert ((surface.points * surface.normals).sum(axis=1) > 0.5).all()
    faces = np.abs(surface.points).max(axis=1)
    assert abs(np.median(faces) - 1.0) < 0.02
    box = box_of(domain)
    np.testing.assert_allclose(box.normalise(np.array([[1.0, -1.0, 0.0]])), [[1.0, -1.0, 0.0]], atol=1e-12)


def test_shipped_weights_bind_and_are_small() -> None:
    from splatanim.field.neural_model import SHIPPED

    if not SHIPPED.is_file():
        pytest.skip("no weights in the package yet")
    assert SHIPPED.stat().st_size <= 8e6
    domain = _domain("branching")
    field = bind_neural(domain, 12)
    assert field.handles == 12 and raw_fields(domain, domain.centres[:5]).shape == (5, load_model().config.fields)


def test_weights_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_model(_network().float(), path, {"note": "test"})
    domain, points = _domain("box"), _points(_domain("box"))
    np.testing.assert_array_equal(
        bind_neural(domain, 8, weights=path, gaussians=24).weights(points), _field("box").weights(points)
    )
    expected = raw_model(_network(), domain, points)
    np.testing.assert_array_equal(raw_fields(domain, points, path), expected)


def test_bad_weights_are_named(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(InputError, match=r"w\.safetensors: no such file.*pair"):
        load_model(path)
    save_model(_network().float(), path, {})
    text = path.with_suffix(".json").read_text()
    path.with_suffix(".json").write_text(text.replace('"fields": 6', '"fields": 7'))
    with pytest.raises(InputError, match=r"do not fit w\.json \(decoder\.out\.bias is 6, the config says 7, and"):
        load_model(path)
    path.with_suffix(".json").write_text("{}")
    with pytest.raises(InputError, match=r"w\.json: not a config of these weights"):
        load_model(path)
    path.with_suffix(".json").write_text(text)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match=r"not a readable \.safetensors file"):
        load_model(path)


def test_too_few_voxels_are_refused() -> None:
    with pytest.raises(InputError, match="fills only 8 voxels, too few for 8 handles"):
        bind_model(_network(), box_cubature((2, 2, 2), 0.5).domain, 8)


def test_impossible_configs_are_named() -> None:
    with pytest.raises(InputError, match="width 16 is not a multiple of heads 3"):
        dataclasses.replace(TINY, heads=3)
    with pytest.raises(InputError, match="fields is 0; it must be at least 1"):
        dataclasses.replace(TINY, fields=0)
    with pytest.raises(InputError, match="64 surface points are fewer than 65 latents"):
        dataclasses.replace(TINY, latents=65)


def test_the_paper_preset_has_the_papers_sizes() -> None:
    paper = PRESETS["paper"]
    assert (paper.latents, paper.width, paper.layers, paper.surface_points) == (256, 768, 8, 4096)


def test_importing_neural_loads_no_torch() -> None:
    code = "import sys, splatanim.field.neural; assert not {'torch', 'safetensors'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
