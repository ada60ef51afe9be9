"""Attention heads: gradients against finite differences, weights that sum to one, and what the parts mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rigpapr.attention import KernelHead, PaperHead, Relation, positional_encoding, relate


def make(head: str, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    """A small head and random inputs: 3 rays, 5 points each, the last ray with one missing."""
    torch.manual_seed(0)
    net: torch.nn.Module = KernelHead(0.4) if head == "kernel" else PaperHead(6, 8, 3, 3, 2)
    net = net.to(dtype)
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=dtype)

    directions = random(3, 3)
    size = 16 if head == "kernel" else 6
    inputs = {
        "positions": random(3, 5, 3, scale=0.3),
        "features": random(3, 5, size, scale=0.4),
        "influence": 1 + random(3, 5, scale=0.2),
        "origins": torch.tensor([[0.0, 0.0, -3.0]], dtype=dtype) + random(3, 3, scale=0.1),
        "directions": torch.nn.functional.normalize(directions * 0.1 + torch.tensor([0, 0, 1.0], dtype=dtype), dim=1),
    }
    return net, inputs


def run(net: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    present = torch.ones(3, 5, dtype=torch.bool)
    present[2, 4] = False
    relation = relate(inputs["positions"], inputs["origins"], inputs["directions"], present)
    return net(relation, inputs["features"], inputs["influence"])


@pytest.mark.parametrize("head", ["kernel", "paper"])
@pytest.mark.parametrize("what", ["positions", "features", "influence", "head"])
def test_gradients_equal_finite_differences(head: str, what: str) -> None:
    net, inputs = make(head)
    probe = torch.randn(3, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    colour_probe = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def value() -> Tensor:
        if head == "paper" and what == "positions":  # the key sees detached positions: hold them fixed in both
            present = torch.ones(3, 5, dtype=torch.bool)
            relation = relate(inputs["positions"], inputs["origins"], inputs["directions"], present)
            relation = Relation(anchor, relation.directions, relation.along, relation.across, present)
            weights, colours = net(relation, inputs["features"], inputs["influence"])
        else:
            weights, colours = run(net, inputs)
        return (weights * probe).sum() + (colours * colour_probe).sum()

    anchor = inputs["positions"].clone()
    targets = list(net.parameters()) if what == "head" else [inputs[what]]
    for target in targets:
        target.requires_grad_(True)
    gradients = torch.autograd.grad(value(), targets)
    assert all(gradient.abs().max() > 1e-6 for gradient in gradients)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for target, gradient in zip(targets, gradients, strict=True):
            flat = target.view(-1)
            for k in rng.choice(flat.numel(), min(8, flat.numel()), replace=False):
                middle, step = flat[k].item(), 1e-6
                flat[k] = middle + step
                high = value().item()
                flat[k] = middle - step
                low = value().item()
                flat[k] = middle
                assert (high - low) / (2 * step) == pytest.approx(gradient.reshape(-1)[k].item(), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("head", ["kernel", "paper"])
def test_weights_sum_to_one_and_missing_points_have_none(head: str) -> None:
    net, inputs = make(head)
    weights, colours = run(net, inputs)
    torch.testing.assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))
    assert (weights >= 0).all() and weights[2, 4] == 0
    assert ((colours >= 0) & (colours <= 1)).all()


@pytest.mark.parametrize("head", ["kernel", "paper"])
def test_a_ray_without_points_sees_background_alone(head: str) -> None:
    net, inputs = make(head)
    absent = torch.zeros(3, 5, dtype=torch.bool)
    relation = relate(inputs["positions"], inputs["origins"], inputs["directions"], absent)
    weights, colours = net(relation, inputs["features"], inputs["influence"])
    torch.testing.assert_close(weights[:, -1], torch.ones(3, dtype=torch.float64))
    assert torch.isfinite(colours).all()


@pytest.mark.parametrize("head", ["kernel", "paper"])
def test_the_order_of_the_points_does_not_matter(head: str) -> None:
    net, inputs = make(head)
    order = torch.tensor([3, 1, 4, 0, 2])
    present = torch.ones(3, 5, dtype=torch.bool)
    base = net(
        relate(inputs["positions"], inputs["origins"], inputs["directions"], present),
        inputs["features"],
        inputs["influence"],
    )
    moved = relate(inputs["positions"][:, order], inputs["origins"], inputs["directions"], present)
    other = net(moved, inputs["features"][:, order], inputs["influence"][:, order])
    torch.testing.assert_close(other.weights[:, :-1], base.weights[:, :-1][:, order])
    torch.testing.assert_close(other.colours, base.colours[:, order])


def _kernel_line(depths: list[float], offsets: list[float]) -> Relation:
    """Points at given depths along and offsets across one ray."""
    k = len(depths)
    across = torch.zeros(1, k, 3)
    across[0, :, 0] = torch.tensor(offsets)
    along = torch.tensor([depths])
    return Relation(across, torch.tensor([[0.0, 0.0, 1.0]]), along, across, torch.ones(1, k, dtype=torch.bool))


def test_what_lies_in_front_hides_what_lies_behind() -> None:
    head = KernelHead(0.1)
    features = head.initial_features(2, torch.Generator())[None]
    influence = torch.full((1, 2), 3.0)
    weights = head(_kernel_line([5.0, 7.0], [0.0, 0.0]), features, influence).weights[0]
    assert weights[0] > 0.99 and weights[1] < 1e-3
    swapped = head(_kernel_line([7.0, 5.0], [0.0, 0.0]), features, influence).weights[0]
    assert swapped[1] > 0.99


def test_attention_falls_with_distance_from_the_ray() -> None:
    head = KernelHead(0.1)
    features = head.initial_features(1, torch.Generator())[None]
    alphas = [
        1 - head(_kernel_line([5.0], [offset]), features, torch.full((1, 1), 2.0)).weights[0, -1].item()
        for offset in (0.0, 0.05, 0.1, 0.2, 0.4)
    ]
    assert alphas == sorted(alphas, reverse=True) and alphas[0] > 0.99 and alphas[-1] < 1e-6


def test_positional_encoding() -> None:
    x = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    encoded = positional_encoding(x, 2)[0]
    expected = [0.3, -1.2, *np.sin([0.3, 0.6, -1.2, -2.4]), *np.cos([0.3, 0.6, -1.2, -2.4])]
    np.testing.assert_allclose(encoded.numpy(), expected)


def test_the_papers_head_has_the_official_sizes() -> None:
    head = PaperHead()
    shapes = [
        [tuple(layer.weight.shape) for layer in net if hasattr(layer, "weight")]
        for net in (head.key, head.query, head.value)
    ]
    assert shapes[0][0] == (256, 117) and len(shapes[0]) == 5 and shapes[0][-1] == (256, 256)
    assert shapes[1][0] == (256, 39) and len(shapes[1]) == 5
    assert shapes[2][0] == (256, 142) and len(shapes[2]) == 8 and shapes[2][-1] == (3, 256)
    assert head.background.item() == 5.0
