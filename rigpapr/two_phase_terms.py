"""What both phases minimise: the picture of patches, and delta-depth of points, in one frame of a fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rigpapr.losses import calibrated_depth, delta_depth, rgb_loss
from rigpapr.two_phase_batch import draw_patches, map_values, patch_pixels, project_torch

if TYPE_CHECKING:
    from rigpapr.two_phase import Fit


def cosine(first: float, last: float, done: float) -> float:
    """A rate annealed from ``first`` to ``last``; ``done`` goes from 0 to 1."""
    return last + 0.5 * (first - last) * (1 + math.cos(math.pi * done))


def picture_loss(fit: Fit, frame: int, posed: tuple[Tensor, Tensor], pool: np.ndarray, rng) -> Tensor:
    """Absolute differences and SSIM (:func:`rigpapr.losses.rgb_loss`) on random patches near the subject."""
    c = fit.config
    centres = pool[rng.integers(0, len(pool), c.patches)]
    pixels = patch_pixels(centres, c.side, fit.clip.camera)
    drawn, truth = draw_patches(fit.cloud, fit.clip, frame, posed, pixels, c.side)
    return rgb_loss(drawn, truth)


def depth_loss(fit: Fit, frame: int, moved: Tensor, rng) -> Tensor:
    """Delta-depth of a sample of points seen in both frames (cloud units)."""
    if fit.depth is None or fit.reference is None:
        return moved.sum() * 0.0
    now = moved.detach().numpy().astype(np.float64)
    _, values, known = map_values(now, fit.clip.camera, fit.depth[frame], fit.clip.masks[frame])
    rows = np.flatnonzero(known & fit.reference.known)
    if len(rows) < 30:
        return moved.sum() * 0.0
    if len(rows) > fit.config.samples:
        rows = rng.choice(rows, fit.config.samples, replace=False)
    index = torch.from_numpy(rows)
    _, z = project_torch(fit.clip.camera, moved[index])
    first, z = fit.reference.z[index], fit.unit * z
    later, before = torch.from_numpy(values[rows]).to(z), torch.from_numpy(fit.reference.values[rows]).to(z)
    if fit.config.one_scale:
        return delta_depth(z - first, later - before, cut=0.5)[0]
    return calibrated_depth(z, first, later, before, cut=0.5)[0]
