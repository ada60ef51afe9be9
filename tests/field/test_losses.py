"""Training losses: closed form against Monte Carlo, derivatives against finite differences, invariances."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from splatanim.data import Material
from splatanim.errors import InputError
from splatanim.field import losses

MU, LAM, DEVIATION = 0.7, 1.3, 0.2


def _batch(points: int = 30, fields: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return draw(2, points, 3), draw(2, points, fields), draw(2, points, fields, 3), draw(2, points).abs()


def test_expected_linear_energy_is_the_mean_over_samples() -> None:
    points, weights, gradients, volumes = _batch()
    g = losses.deformation_map(points, weights, gradients)
    exact = losses.expected_linear_energy(g, volumes, MU, LAM, DEVIATION)
    rng = np.random.default_rng(1)
    z = torch.from_numpy(rng.normal(scale=DEVIATION, size=(40_000, 3, g.shape[2])))
    h = torch.einsum("srk,bnkc->bsnrc", z[:4000], g)
    samples = [(losses.linear_energy(h, MU, LAM) * volumes[:, None]).sum(dim=2)]
    for start in range(4000, 40_000, 4000):
        h = torch.einsum("srk,bnkc->bsnrc", z[start : start + 4000], g)
        samples.append((losses.linear_energy(h, MU, LAM) * volumes[:, None]).sum(dim=2))
    energies = torch.cat(samples, dim=1)
    error = energies.std(dim=1) / energies.shape[1] ** 0.5
    assert (error < 0.01 * exact).all()
    assert ((energies.mean(dim=1) - exact).abs() < 3 * error).all()


def test_deformation_map_is_the_derivative_of_the_deformation() -> None:
    """F = I + Z G against finite differences of phi(X) = X + sum_i W_i(X) Z_i [X; 1] for polynomial W."""
    rng = np.random.default_rng(2)
    a, z, x = rng.normal(size=(4, 3)), rng.normal(size=(3, 16)), rng.normal(size=3)

    def fields(at: np.ndarray) -> np.ndarray:
        return (a @ at) ** 2

    def phi(at: np.ndarray) -> np.ndarray:
        return at + z @ np.kron(fields(at), np.append(at, 1.0))

    slopes = 2 * (a @ x)[:, None] * a
    g = losses.deformation_map(
        torch.from_numpy(x)[None, None], torch.from_numpy(fields(x))[None, None], torch.from_numpy(slopes)[None, None]
    )[0, 0].numpy()
    h = 1e-6
    numeric = np.stack([(phi(x + h * e) - phi(x - h * e)) / (2 * h) for e in np.eye(3)], axis=1)
    np.testing.assert_allclose(np.eye(3) + z @ g, numeric, atol=1e-6 * np.abs(numeric).max())


def test_neohookean_energy_is_the_simulators() -> None:
    from splatanim.dynamics.materials import MODELS  # noqa: F401  (the model's text is the definition)

    f = torch.eye(3, dtype=torch.float64) + 0.4 * torch.randn(
        50, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    material = Material("m", 2.0, 0.3, 1.0)
    mu, lam = material.lame
    j = torch.linalg.det(f)
    expected = 0.5 * mu * (f.pow(2).sum(dim=(1, 2)) - 3) - mu * (j - 1) + 0.5 * (lam + mu) * (j - 1) ** 2
    torch.testing.assert_close(losses.neohookean_energy(f - torch.eye(3), mu, lam), expected)


def test_neohookean_energy_linearises_to_linear_elasticity() -> None:
    h = torch.randn(20, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    small = 1e-4
    ratio = losses.neohookean_energy(small * h, MU, LAM) / losses.linear_energy(small * h, MU, LAM)
    assert ((ratio - 1).abs() < 2e-3).all()
    assert losses.neohookean_energy(torch.zeros(3, 3), MU, LAM) == 0


def test_sampled_energy_approaches_the_linear_one_for_small_z() -> None:
    points, weights, gradients, volumes = _batch()
    g = losses.deformation_map(points, weights, gradients)
    z = torch.from_numpy(np.random.default_rng(5).normal(scale=1e-3, size=(20_000, 3, g.shape[2])))
    sampled = losses.sampled_neohookean_energy(g[:, :4], volumes[:, :4], z, MU, LAM)
    linear = losses.expected_linear_energy(g[:, :4], volumes[:, :4], MU, LAM, 1e-3)
    assert ((sampled / linear - 1).abs() < 0.05).all()


def test_expected_neohookean_energy_is_the_mean_over_samples() -> None:
    """With z large enough for the determinant's higher powers to count."""
    points, weights, gradients, volumes = (t[:, :4] for t in _batch())
    g = losses.deformation_map(points, weights, gradients)
    exact = losses.expected_neohookean_energy(g, volumes, MU, LAM, DEVIATION)
    linear = losses.expected_linear_energy(g, volumes, MU, LAM, DEVIATION)
    assert (exact > 1.2 * linear).all()
    rng = np.random.default_rng(11)
    energies = []
    for _ in range(40):
        z = torch.from_numpy(rng.normal(scale=DEVIATION, size=(10_000, 3, g.shape[2])))
        h = torch.einsum("srk,bnkc->bsnrc", z, g)
        energies.append((losses.neohookean_energy(h, MU, LAM) * volumes[:, None]).sum(dim=2))
    sampled = torch.cat(energies, dim=1)
    error = sampled.std(dim=1) / sampled.shape[1] ** 0.5
    assert (error < 0.03 * exact).all()
    assert ((sampled.mean(dim=1) - exact).abs() < 3 * error).all()
    small = losses.expected_neohookean_energy(g, volumes, MU, LAM, 1e-4)
    torch.testing.assert_close(small, losses.expected_linear_energy(g, volumes, MU, LAM, 1e-4), rtol=1e-4, atol=0)


def test_columns_are_normalised_whatever_the_number_of_points() -> None:
    _, weights, gradients, _ = _batch(points=50)
    normal, slopes = losses.normalise_columns(weights, gradients)
    torch.testing.assert_close(normal.pow(2).mean(dim=1) * losses.REFERENCE_POINTS, torch.ones(2, 3).double())
    twice, _ = losses.normalise_columns(torch.cat([weights, weights], dim=1), None)
    torch.testing.assert_close(twice[:, :50], normal)
    assert slopes is not None
    torch.testing.assert_close(slopes / gradients, (normal / weights)[..., None].expand_as(gradients))


def test_orthogonality_counts_off_diagonal_products_only() -> None:
    q, _ = torch.linalg.qr(torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(6)))
    assert losses.orthogonality(q[None]) < 1e-20
    both = torch.stack([q[:, 0], q[:, 0]], dim=1)[None] * (40 / losses.REFERENCE_POINTS) ** 0.5
    torch.testing.assert_close(losses.orthogonality(both), torch.tensor(2.0, dtype=torch.float64))


def _line(count: int = 40) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.linspace(0, torch.pi, count, dtype=torch.float64)
    modes = torch.stack([torch.ones_like(x), *(torch.cos(k * x) for k in range(1, 5))], dim=1)[None]
    edges = torch.stack([torch.arange(count - 1), torch.arange(1, count)], dim=1)[None]
    return modes, edges, torch.full((1, count - 1), (count - 1) / torch.pi, dtype=torch.float64)


def test_distillation_is_zero_for_the_modes_and_blind_to_recombination() -> None:
    modes, edges, weights = _line()
    mix = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    assert losses.distillation(modes[..., 1:], modes, edges, weights) < 1e-3
    some = modes[..., :3]
    whole = losses.distillation(some, modes, edges, weights, ridge=1e-9)
    mixed = losses.distillation(some @ mix[:3, :3], modes, edges, weights, ridge=1e-9)
    torch.testing.assert_close(whole, mixed, atol=1e-6, rtol=1e-4)
    # cos 3x and cos 4x are missing: 9 + 16 of the energy 1 + 4 + 9 + 16
    alone = losses.distillation(some, modes, edges, weights, mass=0.0, ridge=1e-9)
    assert abs(float(alone) - 25 / 30) < 0.02


def test_losses_have_derivatives() -> None:
    points, weights, gradients, volumes = (t[:1, :6] for t in _batch())
    modes, edges, edge_weights = (t[:, :6] for t in _line(7))
    z = torch.randn(3, 3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(8))

    def total(w: torch.Tensor, dw: torch.Tensor) -> torch.Tensor:
        w, normalised = losses.normalise_columns(w, dw)
        assert normalised is not None
        g = losses.deformation_map(points, w, normalised)
        energy = losses.sampled_neohookean_energy(30 * g, volumes, z, MU, LAM).sum()
        energy = energy + losses.expected_linear_energy(g, volumes, MU, LAM, 0.2).sum()
        energy = energy + losses.expected_neohookean_energy(30 * g, volumes, MU, LAM, 0.2).sum()
        return energy + losses.smoothness(normalised) + losses.orthogonality(w)

    assert torch.autograd.gradcheck(total, (weights.clone().requires_grad_(), gradients.clone().requires_grad_()))
    start = torch.randn(1, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(9)).requires_grad_()
    modes, edges, edge_weights = _line(7)
    assert torch.autograd.gradcheck(lambda f: losses.distillation(f, modes, edges, edge_weights), (start,))


def test_config_direction_agrees_with_every_loss() -> None:
    pytest.importorskip("conflictfree")
    gradients = torch.tensor([[1.0, 0.2, 0.0], [-0.6, 1.0, 0.1]])
    direction = losses.conflict_free(gradients)
    assert (gradients @ direction > 0).all()
    many = torch.randn(3, 500, generator=torch.Generator().manual_seed(10))
    from conflictfree.grad_operator import ConFIG_update

    torch.testing.assert_close(losses.conflict_free(many), ConFIG_update(many), atol=1e-4, rtol=1e-3)


def test_config_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "conflictfree.grad_operator", None)
    with pytest.raises(InputError, match=r'pip install "splatanim\[train\]"'):
        losses.conflict_free(torch.eye(2))
