"""Optional pre-training of the shape encoder: telling inside from outside, from the latents alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from splatanim.field.dataset import Shape
from splatanim.field.encoder import Attention, Fourier
from splatanim.field.neural_model import FieldModel, ModelConfig
from splatanim.field.neural_surface import anchored
from splatanim.field.train_batch import random_turn

_SURFACE = 512  # points that the encoder is shown


class OccupancyHead(nn.Module):
    """logit(X) = MLP(CrossAttn(gamma(X), F_s)); thrown away after pre-training."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.fourier = Fourier(config.octaves)
        self.ask = nn.Linear(self.fourier.width, config.width)
        self.norm_ask, self.norm_memory = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.heads)
        self.out = nn.Sequential(nn.Linear(config.width, config.width), nn.ELU(), nn.Linear(config.width, 1))

    def forward(self, latents: Float[Tensor, "b m d"], points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b n"]:
        asked = self.ask(self.fourier(points))
        seen = asked + self.attention(self.norm_ask(asked), self.norm_memory(latents))
        return self.out(seen)[..., 0]


def pretrain(
    model: FieldModel,
    shapes: Sequence[Shape],
    *,
    seconds: float = 120.0,
    steps: int = 0,
    seed: int = 0,
    batch: int = 4,
    points: int = 1024,
    rate: float = 1e-3,
    clock: Callable[[], float] = time.monotonic,
) -> list[float]:
    """Train ``model.encoder`` in place by binary cross entropy; returns the loss of every step.

    Ends after ``steps``, or after ``seconds`` of the clock where steps is 0.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = OccupancyHead(model.config)
    trained = [*model.encoder.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(trained, rate, betas=(0.9, 0.98), weight_decay=1e-4)
    surface = max(_SURFACE, model.config.latents)
    losses: list[float] = []
    began = clock()
    while (progress := len(losses) / steps if steps else (clock() - began) / seconds) < 1.0:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (len(losses) + 1) / 50) * (1.0 - 0.9 * progress)
        rng = np.random.default_rng([seed, 7, len(losses)])
        drawn = [_draw(shapes[i], rng, points, surface, model.config) for i in rng.integers(len(shapes), size=batch)]
        seen, normals, query, inside = (torch.from_numpy(np.stack(c).astype(np.float32)) for c in zip(*drawn))
        loss = functional.binary_cross_entropy_with_logits(head(model.encoder(seen, normals), query), inside)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def _draw(
    shape: Shape, rng: np.random.Generator, points: int, surface: int, config: ModelConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Surface, normals, query points and whether they are inside: half in the box, half near the surface."""
    seen = anchored(shape.surface, rng, surface, 0 if config.michelangelo else config.latents)
    near = seen.points[rng.integers(surface, size=points // 2)] + rng.normal(scale=0.06, size=(points // 2, 3))
    query = np.concatenate([near, rng.uniform(-1.05, 1.05, (points - points // 2, 3))])
    inside = occupied(shape, query)
    turn = random_turn(rng)
    turned = seen.points @ turn.T
    low, high = turned.min(axis=0), turned.max(axis=0)
    scale, centre = 2.0 / float((high - low).max()), (low + high) / 2
    return (turned - centre) * scale, seen.normals @ turn.T, (query @ turn.T - centre) * scale, inside


def occupied(shape: Shape, points: Float[np.ndarray, "n 3"]) -> np.ndarray:
    """Whether points lie in a filled voxel."""
    cells = shape.domain.cells
    size = cells.max(axis=0) + 1
    grid = np.zeros(size, bool)
    grid[tuple(cells.T)] = True
    index = np.floor((points - shape.domain.origin) / shape.domain.spacing).astype(np.int64)
    within = ((index >= 0) & (index < size)).all(axis=1)
    found = np.zeros(len(points), bool)
    found[within] = grid[tuple(index[within].T)]
    return found
