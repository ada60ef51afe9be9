"""What keeps the photometric fit from trading depth for colour: one view hardly shows how far off a point is.

A limb that comes nearer looks larger and brighter, and a renderer trained under another light asks for just that. So
points stay at the depths where the given motion has them, up to a weight, and a frame's new pose is taken only as far
as it lowers the picture's loss over the whole subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rigpapr.two_phase_batch import near_subject, project_torch

if TYPE_CHECKING:
    from rigpapr.two_phase import Fit

_SHARES = (1.0, 0.5)  # of a frame's step that are tried against none


def depths(fit: Fit, moved: Float[Tensor, "n 3"]) -> Float[Tensor, " n"]:
    """The points' z-depths [cloud units]."""
    return fit.unit * project_torch(fit.clip.camera, moved)[1]


def depth_hold(fit: Fit, moved: Float[Tensor, "n 3"], held: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Mean squared way along the line of sight from ``held``, and ten times the square of the mean way."""
    apart = depths(fit, moved) - held
    return (apart**2).mean() + 10 * apart.mean() ** 2


def accepted(
    fit: Fit, frame: int, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]
) -> tuple[tuple[Tensor, Tensor], float]:
    """The turns and shifts between ``old`` and ``new`` whose picture is nearest to the frame, and its mean absolute
    difference over the pixels near the subject; ``old`` where no share of the step is better."""
    kept, best = old, picture_error(fit, frame, *old)
    for share in _SHARES:
        tried = (torch.lerp(old[0], new[0], share), torch.lerp(old[1], new[1], share))
        error = picture_error(fit, frame, *tried)
        if error < best:
            kept, best = tried, error
    return kept, best


def picture_error(fit: Fit, frame: int, vectors: Float[Tensor, "j 3"], shifts: Float[Tensor, "j 3"]) -> float:
    """Absolute difference of drawing and frame, summed near the subject, for every pixel of the mask."""
    from rigpapr.renderer import render_rays

    with torch.no_grad():
        posed = fit.posed(vectors, shifts, fit.logits.detach())
        pool = near_subject(fit.clip, frame, posed[0].numpy().astype(np.float64), fit.config.reach)
        pixels = pool.astype(np.float64) + 0.5
        rays = render_rays(fit.cloud, fit.clip.camera, pixels, positions=posed[0], rotations=posed[1])
        truth = fit.clip.rgb[frame][pool[:, 1], pool[:, 0]].astype(np.float32) / 255
        # Over the mask and wherever this pose is, a sum: what sticks out of the mask counts as well.
        total = (rays.rgb - torch.from_numpy(truth)).abs().mean(dim=1).sum()
    return float(total) / max(int(fit.clip.masks[frame].sum()), 1)


def keep_what_helps(fit: Fit, logits: Float[Tensor, "n j"]) -> str:
    """After phase 2: its corrections with its weights, its corrections with the weights (``logits``) from before, or
    neither, whichever has the pictures nearest to the frames; which it was.

    Both phases minimise many terms beside the picture; what makes the picture worse over the clip is no refinement.
    """
    with torch.no_grad():
        corrected = fit.vectors + fit.net() * fit.turning
    found = fit.logits.detach()
    choices = {"both": (corrected, found), "corrections": (corrected, logits), "neither": (fit.vectors, logits)}
    errors = {}
    for name, (vectors, weights) in choices.items():
        fit.logits = weights
        errors[name] = sum(picture_error(fit, k, vectors[k], fit.shifts[k]) for k in range(1, len(fit.clip)))
    kept = min(errors, key=lambda name: errors[name])
    fit.logits = choices[kept][1]
    if kept == "neither":
        fit.net.forget()
    return kept
