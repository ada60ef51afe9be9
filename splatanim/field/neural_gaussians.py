"""What training combines: fields times affine functions, and Gaussians with learned warp and width."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def farthest(points: Float[Tensor, "b n 3"], count: int) -> Int[Tensor, "b k"]:
    """Rows of ``count`` points of every batch entry, each the farthest from those before it."""
    batch = torch.arange(len(points))
    chosen = [(points - points.mean(dim=1, keepdim=True)).pow(2).sum(dim=-1).argmax(dim=1)]
    nearest = torch.full(points.shape[:2], float("inf"))
    for _ in range(count - 1):
        last = points[batch, chosen[-1]][:, None]
        nearest = torch.minimum(nearest, (points - last).pow(2).sum(dim=-1))
        chosen.append(nearest.argmax(dim=1))
    return torch.stack(chosen, dim=1)


def nearest_distance(points: Float[Tensor, "b n 3"], centres: Float[Tensor, "b k 3"]) -> Float[Tensor, "b 1 1"]:
    """Mean distance of the points to their nearest centre: the unit that widths are learned in."""
    return torch.cdist(points, centres).amin(dim=2).mean(dim=1).clamp_min(1e-2)[:, None, None]


def warped_gaussians(
    points: Float[Tensor, "b n 3"],
    embedding: Float[Tensor, "b n e"],
    centres: Float[Tensor, "b k 3"],
    centre_embedding: Float[Tensor, "b k e"],
    log_width: Float[Tensor, "b k"],
    unit: Float[Tensor, "b 1 1"],
) -> Float[Tensor, "b n k"]:
    """exp(-(|X - X_k|^2 + |e(X) - e(X_k)|^2) / (2 w_k^2)) with w_k = unit exp(log_width_k)."""
    here, there = torch.cat([points, embedding], dim=-1), torch.cat([centres, centre_embedding], dim=-1)
    squared = here.pow(2).sum(-1)[:, :, None] + there.pow(2).sum(-1)[:, None, :] - 2.0 * here @ there.transpose(1, 2)
    return torch.exp(-0.5 * squared.clamp_min(0.0) / (unit * log_width.exp()[:, None, :]) ** 2)


def times_affine(fields: Float[Tensor, "b n m"], points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b n k"]:
    """Every field times 1, X, Y and Z (k = 4m): fields that divide a shape into regions become linear in each."""
    return torch.cat([fields, *(fields * points[..., axis, None] for axis in range(3))], dim=-1)
