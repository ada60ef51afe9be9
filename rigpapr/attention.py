"""Proximity attention: from the K points nearest to a ray to weights and colours.

Both heads take the relation of points to rays and return, per ray, K + 1 weights that sum to 1 (the last is the
background's) and K colours. Lengths are in the cloud's own units (:mod:`rigpapr.cloud`: the object is 20 long).

:class:`KernelHead` is made for CPUs: what a point looks like is read from its features directly, so that a ray costs
some hundred operations a point instead of some ten thousand, and little can be learned that holds for one view only.
:class:`PaperHead` is the head of the official PAPR without its U-Net (Zhang et al. 2023).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

KERNEL_FEATURES = 16  # width 1, slant 3, colour 3, slope 9
_LARGEST_LOGIT = 8.0  # of a kernel, where it is exponentiated: e^8 is opaque many times over


@dataclass(frozen=True)
class Relation:
    """How K points lie to each ray: ``v = p - o``, ``along = v.d``, ``across = v - along d``.

    ``present`` is False for the padding of rays that have fewer than K points. ``frames``, where points have turned
    since rest, are their rotations from rest; a head that knows directions looks at rays in the points' own frames.
    """

    positions: Float[Tensor, "r k 3"]
    directions: Float[Tensor, "r 3"]
    along: Float[Tensor, "r k"]
    across: Float[Tensor, "r k 3"]
    present: Bool[Tensor, "r k"]
    frames: Float[Tensor, "r k 3 3"] | None = None


class Attention(NamedTuple):
    """``weights`` (R, K + 1), the background's last, summing to 1; ``colours`` (R, K, 3) in [0, 1]."""

    weights: Tensor
    colours: Tensor


def relate(
    positions: Float[Tensor, "r k 3"],
    origins: Float[Tensor, "r 3"],
    directions: Float[Tensor, "r 3"],
    present: Bool[Tensor, "r k"],
    frames: Float[Tensor, "r k 3 3"] | None = None,
) -> Relation:
    """The relation of gathered points to rays with unit ``directions``."""
    v = positions - origins[:, None]
    along = (v * directions[:, None]).sum(-1)
    across = v - along[..., None] * directions[:, None]
    return Relation(positions, directions, along, across, present, frames)


def brightening(
    normals: Float[Tensor, "n 3"], lamp: Float[Tensor, " 3"], rotations: Float[Tensor, "n 3 3"]
) -> Float[Tensor, " n"]:
    """s(R n) / s(n) with s(n) = 1 + max(0, n . lamp) (:mod:`rigpapr.light`): how much brighter points look that have
    turned by R since rest. Has a gradient to ``rotations``; of other linear maps only the direction of R n counts."""
    turned = nn.functional.normalize((rotations @ normals[..., None])[..., 0], dim=-1)
    return (1 + (turned @ lamp).clamp(min=0)) / (1 + (normals @ lamp).clamp(min=0))


class KernelHead(nn.Module):
    """Distance-aware attention with transmittance.

    A point's proximity logit and its optical thickness to the ray are

        l_i = influence_i + slant_i . t_i / h - exp(width_i) |t_i|^2 / h^2,      e_i = exp(l_i)

    with t the offset across the ray and h the cloud's spacing. What lies in front of point i absorbs

        O_i = kappa sum_j e_j sigmoid((z_i - z_j - m) / s),

    z along the ray, and the weights are the softmax of ``l_i - O_i`` and of ``background - kappa sum_j e_j``: the
    background is a point behind all others. Nothing is sorted, so weights vary smoothly as points move. The colour is
    ``sigmoid(colour_i + slope_i r_i)`` at r_i, the offset in h (clipped to 2) from the point to where the ray is
    stopped on average: all views see the same texture there, and two points never disagree by more than their slopes.

    The network shared by all points: kappa, s, m and the background's logit. ``spacing`` is h.
    """

    feature_size = KERNEL_FEATURES

    def __init__(self, spacing: float) -> None:
        super().__init__()
        self.register_buffer("spacing", torch.tensor(float(spacing)))
        self.log_absorption = nn.Parameter(torch.tensor(0.0))
        self.log_softness = nn.Parameter(torch.tensor(math.log(0.3)))
        self.margin = nn.Parameter(torch.tensor(1.0))
        self.background = nn.Parameter(torch.tensor(0.0))
        self.spacing: Tensor

    def initial_features(self, count: int, generator: torch.Generator) -> Float[Tensor, "n f"]:
        """Grey points whose kernels fall to e^-2 at one spacing."""
        features = torch.zeros(count, KERNEL_FEATURES)
        features[:, 0] = math.log(2.0)
        return features

    def forward(
        self, relation: Relation, features: Float[Tensor, "r k f"], influence: Float[Tensor, "r k"]
    ) -> Attention:
        """See the class."""
        width, slant, colour, slope = features.split((1, 3, 3, 9), dim=-1)
        t = relation.across / self.spacing
        if relation.frames is not None:
            slant = (relation.frames @ slant[..., None])[..., 0]
        logits = influence + (slant * t).sum(-1) - width[..., 0].exp() * (t * t).sum(-1)
        logits = logits.masked_fill(~relation.present, -torch.inf)
        thickness = logits.clamp(max=_LARGEST_LOGIT).exp() * self.log_absorption.exp()
        z = relation.along / self.spacing
        behind = torch.sigmoid((z[:, :, None] - z[:, None, :] - self.margin) / self.log_softness.exp())
        absorbed = torch.bmm(behind, thickness[:, :, None])[..., 0]
        last = (self.background - thickness.sum(1))[:, None]
        weights = torch.softmax(torch.cat([logits - absorbed, last], dim=1), dim=1)
        seen = weights[:, :-1]
        stop = (seen * z).sum(1, keepdim=True) / (seen.sum(1, keepdim=True) + 1e-6)
        r = ((stop - z)[..., None] * relation.directions[:, None] - t).clamp(-2, 2)
        if relation.frames is not None:
            r = _turned_back(relation.frames, r)
        texture = (slope.unflatten(-1, (3, 3)) * r[..., None, :]).sum(-1)
        return Attention(weights, torch.sigmoid(colour + texture))


class PaperHead(nn.Module):
    """Official PAPR's attention without its U-Net, at its published sizes by default.

    With s = along d and t = across: key MLP of PE(p detached), PE(s), PE(t), query MLP of PE(d), value MLP of PE(s),
    PE(t) and the feature; logit_i = influence_i relu(q.k_i / sqrt(width)); the background has the constant logit 5.
    Values become colours by a sigmoid.
    """

    def __init__(
        self, feature_size: int = 64, width: int = 256, key_layers: int = 5, value_layers: int = 8, octaves: int = 6
    ) -> None:
        super().__init__()
        self.feature_size, self.octaves = feature_size, octaves
        encoded = 3 * (1 + 2 * octaves)
        self.key = _mlp(3 * encoded, width, width, key_layers)
        self.query = _mlp(encoded, width, width, key_layers)
        self.value = _mlp(2 * encoded + feature_size, width, 3, value_layers)
        self.register_buffer("background", torch.tensor(5.0))
        self.background: Tensor

    def initial_features(self, count: int, generator: torch.Generator) -> Float[Tensor, "n f"]:
        """Normal with deviation 0.1."""
        return 0.1 * torch.randn(count, self.feature_size, generator=generator)

    def forward(
        self, relation: Relation, features: Float[Tensor, "r k f"], influence: Float[Tensor, "r k"]
    ) -> Attention:
        """See the class."""
        parallel, across = relation.along[..., None] * relation.directions[:, None], relation.across
        if relation.frames is not None:
            parallel, across = _turned_back(relation.frames, parallel), _turned_back(relation.frames, across)
        s, t = positional_encoding(parallel, self.octaves), positional_encoding(across, self.octaves)
        p = positional_encoding(relation.positions.detach(), self.octaves)
        query = self.query(positional_encoding(relation.directions, self.octaves))
        key = self.key(torch.cat([p, s, t], dim=-1))
        score = torch.relu((key @ query[..., None])[..., 0] / math.sqrt(query.shape[-1]))
        logits = (score * influence).masked_fill(~relation.present, -torch.inf)
        last = self.background.to(logits).expand(len(logits), 1)
        weights = torch.softmax(torch.cat([logits, last], dim=1), dim=1)
        return Attention(weights, torch.sigmoid(self.value(torch.cat([s, t, features], dim=-1))))


def _turned_back(frames: Tensor, vectors: Tensor) -> Tensor:
    """R^T v, row by row."""
    return (frames.transpose(-1, -2) @ vectors[..., None])[..., 0]


def positional_encoding(x: Float[Tensor, "*b c"], octaves: int) -> Float[Tensor, "*b e"]:
    """x, and sin and cos of 2^k x for k < ``octaves`` (no factor pi)."""
    waves = (x[..., None] * 2.0 ** torch.arange(octaves, device=x.device, dtype=x.dtype)).flatten(-2)
    return torch.cat([x, waves.sin(), waves.cos()], dim=-1)


def _mlp(inputs: int, width: int, outputs: int, layers: int) -> nn.Sequential:
    sizes = [inputs, *[width] * (layers - 1), outputs]
    parts: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])
