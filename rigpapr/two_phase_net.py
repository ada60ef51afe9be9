"""The temporal correction of phase 2 (RigPAPR D.5)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class CorrectionNet(nn.Module):
    """f(t): axis-angle offsets (T, J, 3) from a positional encoding of t / T, 11 octaves, two layers of 128; zero at
    the start."""

    def __init__(self, frames: int, joints: int) -> None:
        super().__init__()
        t = torch.arange(frames, dtype=torch.float32)[:, None] / max(frames, 1)
        waves = t * 2.0 ** torch.arange(11)
        self.register_buffer("encoded", torch.cat([t, waves.sin(), waves.cos()], dim=1))
        self.encoded: Tensor
        self.layers = nn.Sequential(
            nn.Linear(23, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3 * joints)
        )
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self) -> Float[Tensor, "t j 3"]:
        """Offsets of all frames; the first frame, which is at rest, has none."""
        offsets = self.layers(self.encoded).unflatten(1, (-1, 3))
        return torch.cat([torch.zeros_like(offsets[:1]), offsets[1:]])
