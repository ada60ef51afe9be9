"""The shape encoder (eq. 2): surface points with normals to a set of latents, by cross- and self-attention."""

from __future__ import annotations

import math

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Fourier(nn.Module):
    """gamma(x) = (x, sin 2^k c x, cos 2^k c x), k < octaves, per coordinate; c is pi / 2, or 1 for ``plain``."""

    def __init__(self, octaves: int, *, plain: bool = False) -> None:
        super().__init__()
        scale = 1.0 if plain else math.pi / 2
        self.register_buffer("frequencies", 2.0 ** torch.arange(octaves) * scale, persistent=False)
        self.width = 3 + 6 * octaves

    def forward(self, x: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n width"]:
        phases = (x[..., None] * self.frequencies.to(x.dtype)).flatten(-2)  # type: ignore[operator]
        return torch.cat([x, phases.sin(), phases.cos()], dim=-1)


class Attention(nn.Module):
    """Multi-head attention of queries on a memory.

    ``explicit``: written out instead of by the fused kernel, which has no forward-mode derivative.
    """

    def __init__(self, width: int, heads: int, *, bias: bool = True, explicit: bool = False) -> None:
        super().__init__()
        self.heads, self.explicit = heads, explicit
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b n d"], memory: Float[Tensor, "b k d"]) -> Float[Tensor, "b n d"]:
        q, k, v = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        if self.explicit:
            mixed = torch.softmax((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5, dim=-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(rearrange(mixed, "b h n d -> b n (h d)"))

    def _split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b n (h d) -> b h n d", h=self.heads)


class Block(nn.Module):
    """A pre-norm transformer block: attention, then an MLP, each added to its input. ``cross`` norms a memory too."""

    def __init__(self, width: int, heads: int, *, cross: bool, expansion: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.attention = Attention(width, heads, bias=bias)
        self.norm = nn.LayerNorm(width)
        self.norm_memory = nn.LayerNorm(width) if cross else None
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width))

    def forward(self, x: Float[Tensor, "b n d"], memory: Float[Tensor, "b k d"] | None = None) -> Tensor:
        inner = self.norm(x)
        seen = inner if self.norm_memory is None else self.norm_memory(memory)
        x = x + self.attention(inner, seen)
        return x + self.mlp(self.norm_mlp(x))


class ShapeEncoder(nn.Module):
    """F_s = SelfAttn^(1:L)(CrossAttn(Q_s, gamma(P))), eq. 2.

    The queries Q_s are learnable tokens; with ``anchored`` each is added to the embedding of one of the first
    ``latents`` surface points (which the caller spreads over the surface), so that latents know where they are.
    """

    def __init__(
        self,
        width: int,
        latents: int,
        layers: int,
        heads: int,
        *,
        octaves: int,
        expansion: int = 2,
        michelangelo: bool = False,
    ) -> None:
        super().__init__()
        self.anchored = not michelangelo
        self.latents = latents
        self.fourier = Fourier(octaves, plain=michelangelo)
        self.embed = nn.Linear(self.fourier.width + 3, width)
        self.tokens = nn.Parameter(torch.randn(latents, width) * 0.3)
        options = {"expansion": expansion, "bias": not michelangelo}
        self.cross = Block(width, heads, cross=True, **options)  # type: ignore[arg-type]
        self.layers = nn.ModuleList(
            Block(width, heads, cross=False, **options)  # type: ignore[arg-type]
            for _ in range(layers)
        )
        self.norm_out = nn.LayerNorm(width) if michelangelo else nn.Identity()

    def forward(self, points: Float[Tensor, "b s 3"], normals: Float[Tensor, "b s 3"]) -> Float[Tensor, "b m d"]:
        memory = self.embed(torch.cat([self.fourier(points), normals], dim=-1))
        tokens = self.tokens.to(memory.dtype).expand(len(points), -1, -1)
        latents = self.cross(tokens + memory[:, : self.latents] if self.anchored else tokens, memory)
        for layer in self.layers:
            latents = layer(latents)
        return self.norm_out(latents)
