"""The temporal correction of phase 2 (RigPAPR D.5), and its optimiser's state in checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from rigpapr.two_phase import Fit


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
        self.forget()

    def forget(self) -> None:
        """No corrections, as at the start."""
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self) -> Float[Tensor, "t j 3"]:
        """Offsets of all frames; the first frame, which is at rest, has none."""
        offsets = self.layers(self.encoded).unflatten(1, (-1, 3))
        return torch.cat([torch.zeros_like(offsets[:1]), offsets[1:]])


def keep_moments(fit: Fit, optimiser: torch.optim.Adam) -> None:
    """Adam's state into the fit, so that a checkpoint can hold it."""
    fit.adam = {}
    for k, parameter in enumerate(p for group in optimiser.param_groups for p in group["params"]):
        for name, value in optimiser.state[parameter].items():
            fit.adam[f"{k}.{name}"] = value.clone()


def restore_moments(fit: Fit, optimiser: torch.optim.Adam) -> None:
    """Adam's state from a resumed fit."""
    for k, parameter in enumerate(p for group in optimiser.param_groups for p in group["params"]):
        kept = {n.split(".", 1)[1]: v for n, v in fit.adam.items() if n.startswith(f"{k}.")}
        if kept:
            optimiser.state[parameter] = {name: value.clone() for name, value in kept.items()}
