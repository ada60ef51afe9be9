"""The skinning decoder (eq. 3-5): latents to handle tokens to continuous fields, and a warp for Gaussians."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from splatanim.field.encoder import Attention, Block, Fourier

if TYPE_CHECKING:
    from splatanim.field.neural_model import ModelConfig


def orthogonalise(raw: Float[Tensor, "m d"], iterations: int = 12) -> Float[Tensor, "m d"]:
    """Rows made orthonormal by Newton's iteration: B <- 3/2 B - 1/2 B^3 S converges to S^(-1/2), S = V V^T.

    Huang et al., "Controllable Orthogonalization in Training DNNs", CVPR 2020 (ONI): rows are centred and S bounded
    by its Frobenius norm, so that the iteration contracts.
    """
    centred = raw - raw.mean(dim=1, keepdim=True)
    gram = centred @ centred.T
    norm = gram.norm()
    gram = gram / norm
    eye = torch.eye(len(raw), dtype=raw.dtype, device=raw.device)
    root = eye
    for _ in range(iterations):
        root = 1.5 * root - 0.5 * (root @ root @ root) @ gram
    return root @ (centred / norm.sqrt())


def orthonormaliser(
    fields: Float[Tensor, "b n m"], iterations: int = 26, ridge: float = 1e-6
) -> Float[Tensor, "b m m"]:
    """R with fields @ R orthonormal over an object's points: mean square 1, mean products 0 (up to the ridge).

    Newton's iteration again, but in the metric of the object: R = D (D S D + ridge I)^(-1/2) with S the mean products
    of the fields and D = diag(S)^(-1/2). In the coupled form of Denman and Beavers, which stays stable where S is
    nearly singular, and in float64 for the same reason. Of all orthonormal combinations this one moves the fields
    least, so that handles keep their places.
    """
    exact = fields.double()
    products = exact.transpose(1, 2) @ exact / exact.shape[1]
    scale = products.diagonal(dim1=1, dim2=2).clamp_min(1e-12).rsqrt()
    eye = torch.eye(products.shape[1], dtype=products.dtype, device=products.device)
    gram = scale[:, :, None] * products * scale[:, None, :] + ridge * eye
    norm = gram.flatten(1).norm(dim=1)[:, None, None]
    root, inverse = gram / norm, eye.expand_as(gram)
    for _ in range(iterations):
        step = 0.5 * (3.0 * eye - inverse @ root)
        root, inverse = root @ step, step @ inverse
    return (scale[:, :, None] * inverse / norm.sqrt()).to(fields.dtype)


class OrthogonalLinear(nn.Module):
    """A linear layer whose rows are orthonormal (:func:`orthogonalise`), with one learned scale and a bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n m"]:
        # Always in float32 or better: in half precision the iteration would not converge to orthonormal rows.
        with torch.autocast(x.device.type, enabled=False):
            return functional.linear(x.to(self.weight.dtype), orthogonalise(self.weight), self.bias)


class SkinningDecoder(nn.Module):
    """W(X) = MLP(F_p + gamma(X)) with F_p = CrossAttn(gamma(X), F_h), F_h = CrossAttn(Q_h, SelfAttn(F_s)), eq. 3-5.

    ``config.warp`` > 0 adds what Gaussians are warped with: an embedding e(X) of that many dimensions, whose distances
    add to Euclidean ones, and a log width of the Gaussian centred at X. ``config.direct`` lets queries attend to the
    shape latents as well as to the handles.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.direct = config.direct
        self.fourier = Fourier(config.octaves)
        self.refine = Block(config.width, config.heads, cross=False, expansion=config.expansion)
        self.tokens = nn.Parameter(torch.randn(config.fields, config.width) * 0.3)
        self.gather = Block(config.width, config.heads, cross=True, expansion=config.expansion)
        self.ask = nn.Linear(self.fourier.width, config.width)
        self.norm_ask, self.norm_handles = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.heads, explicit=True)
        self.first = nn.Linear(config.width + self.fourier.width, config.width)
        self.mlp = nn.ModuleList(nn.Linear(config.width, config.width) for _ in range(config.depth))
        self.out: nn.Module = (
            OrthogonalLinear(config.width, config.fields) if config.oni else nn.Linear(config.width, config.fields)
        )
        self.warp = nn.Linear(config.width, config.warp, bias=False) if config.warp else None
        self.log_width = nn.Linear(config.width, 1) if config.warp else None
        if self.warp is not None and self.log_width is not None:
            nn.init.normal_(self.warp.weight, 0.0, 0.05 * config.width**-0.5)  # Gaussians start out Euclidean
            nn.init.zeros_(self.log_width.weight)
            nn.init.zeros_(self.log_width.bias)

    def handles(self, latents: Float[Tensor, "b m d"]) -> Float[Tensor, "b k d"]:
        """The handle latents F_h of a shape (eq. 3); with ``direct`` the refined shape latents follow them."""
        refined = self.refine(latents)
        found = self.gather(self.tokens.to(latents.dtype).expand(len(latents), -1, -1), refined)
        return torch.cat([found, refined], dim=1) if self.direct else found

    def log_widths(self, features: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
        """Log widths of Gaussians, in mean distances to the nearest centre: between 2 and 4.5.

        Wider ones would be nearly dependent, narrower ones have gaps; either would hold for one number of centres only.
        """
        if self.log_width is None:
            return torch.full(features.shape[:-1], math.log(3.0), dtype=features.dtype)
        return math.log(3.0) + 0.4 * torch.tanh(self.log_width(features)[..., 0])

    def features(self, handles: Float[Tensor, "b k d"], points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b n d"]:
        """What the last layers read off at query points (eq. 4, 5)."""
        encoded = self.fourier(points)
        asked = self.ask(encoded)
        seen = asked + self.attention(self.norm_ask(asked), self.norm_handles(handles))
        hidden = functional.elu(self.first(torch.cat([seen, encoded], dim=-1)))
        for layer in self.mlp:
            hidden = hidden + functional.elu(layer(hidden))
        return hidden
