"""The terms of the two-phase fit, each a short pure function (RigPAPR 3.4, D.5).

Lengths are in cloud units, where an object is about 20 long: the units of the published weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

_WINDOW = 11


@dataclass(frozen=True)
class LossWeights:
    """Weights of one phase; a ``decay`` of True lets depth and tracks fall linearly to zero over it."""

    depth: float = 1.0
    rotation: float = 0.1
    track: float = 0.0
    arap: float = 0.0
    correction: float = 0.0
    correction_smooth: float = 0.0
    weight_smooth: float = 0.0
    weight_sparse: float = 0.0
    decay: bool = False


PHASE_ONE = LossWeights()
PHASE_TWO = LossWeights(1.0, 0.01, 0.005, 500.0, 5e-4, 0.1, 0.03, 0.01, True)


def rgb_loss(
    drawn: Float[Tensor, "p s s 3"], truth: Float[Tensor, "p s s 3"], *, structural: float = 0.2
) -> Float[Tensor, ""]:
    """(1 - structural) L1 + structural (1 - SSIM) over square patches."""
    return (1 - structural) * (drawn - truth).abs().mean() + structural * (1 - patch_ssim(drawn, truth))


def patch_ssim(drawn: Float[Tensor, "p s s 3"], truth: Float[Tensor, "p s s 3"]) -> Float[Tensor, ""]:
    """Mean SSIM over the windows (Gaussian of 1.5 px, 11 px wide) that lie inside the patches, at least 11 px wide."""
    x, y = (values.permute(0, 3, 1, 2).flatten(0, 1)[:, None] for values in (drawn, truth))
    line = torch.exp(-0.5 * ((torch.arange(_WINDOW, device=x.device, dtype=x.dtype) - _WINDOW // 2) / 1.5) ** 2)
    line = line / line.sum()

    def blur(values: Tensor) -> Tensor:
        return torch.conv2d(torch.conv2d(values, line.view(1, 1, -1, 1)), line.view(1, 1, 1, -1))

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    a, b = 0.01**2, 0.03**2
    return (((2 * mx * my + a) * (2 * cov + b)) / ((mx * mx + my * my + a) * (vx + vy + b))).mean()


def delta_depth(
    dz: Float[Tensor, " n"], dm: Float[Tensor, " n"], cut: float = float("inf")
) -> tuple[Float[Tensor, ""], float]:
    """Mean of (dz - s dm)^2 with s = <dz, dm> / |dm|^2, the map's scale, held constant in the gradient; and s.

    ``dz``: how much farther the points themselves are than in the first frame; ``dm``: the same in the depth maps.
    Residuals beyond ``cut`` count with their absolute value (Huber).
    """
    if not len(dz):
        return dz.sum(), 0.0
    with torch.no_grad():
        scale = float((dz @ dm) / (dm @ dm).clamp(min=1e-12))
    return _huber(dz - scale * dm, cut), scale


def calibrated_depth(
    z: Float[Tensor, " n"],
    first: Float[Tensor, " n"],
    values: Float[Tensor, " n"],
    first_values: Float[Tensor, " n"],
    cut: float = float("inf"),
) -> tuple[Float[Tensor, ""], float]:
    """Mean of ((z - first) - (a values - b first_values))^2, for maps that each have a scale of their own.

    :func:`delta_depth` takes both maps to have one scale; where they differ by a per cent, that alone outweighs a
    limb's motion. Here a = <z, values> / |values|^2, and b the same in the first frame, are found in closed form on
    the sample and held constant in the gradient. Returns the loss and a.
    """
    if not len(z):
        return z.sum(), 0.0
    with torch.no_grad():
        now = (z @ values) / (values @ values).clamp(min=1e-12)
        then = (first @ first_values) / (first_values @ first_values).clamp(min=1e-12)
        target = first + now * values - then * first_values
    return _huber(z - target, cut), float(now)


def _huber(off: Tensor, cut: float) -> Tensor:
    """Mean of off^2 up to ``cut``, and linear beyond."""
    if not np.isfinite(cut):
        return (off**2).mean()
    size = off.abs()
    return torch.where(size < cut, size**2, 2 * cut * size - cut**2).mean()


def descendant_weights(below: Float[np.ndarray, "j j"]) -> Float[Tensor, " j"]:
    """(1 + descendants) / mean: turning a joint that carries much costs more."""
    count = torch.from_numpy(below.sum(axis=1)).float()
    return count / count.mean()


def rotation_loss(vectors: Float[Tensor, "*b j 3"], alpha: Float[Tensor, " j"]) -> Float[Tensor, ""]:
    """Mean of alpha_b |omega_b|^2 over joints (and frames)."""
    return (alpha * (vectors**2).sum(-1)).mean()


def neighbour_edges(points: Float[np.ndarray, "n 3"], k: int = 8) -> Int64[Tensor, "e 2"]:
    """Edges from every point to its k nearest others."""
    from scipy.spatial import cKDTree

    k = min(k, len(points) - 1)
    near = cKDTree(points).query(points, k + 1)[1][:, 1:]
    rows = np.repeat(np.arange(len(points)), k)
    return torch.from_numpy(np.stack([rows, near.ravel()], axis=1).astype(np.int64))


def arap_loss(
    moved: Float[Tensor, "n 3"], rest: Float[Tensor, "n 3"], edges: Int64[Tensor, "e 2"]
) -> Float[Tensor, ""]:
    """Mean squared change of the edges' lengths."""
    a, b = edges.T
    now = ((moved[a] - moved[b]) ** 2).sum(-1).clamp(min=1e-12).sqrt()
    return ((now - (rest[a] - rest[b]).norm(dim=-1)) ** 2).mean()


def weight_smoothness(weights: Float[Tensor, "n j"], edges: Int64[Tensor, "e 2"]) -> Float[Tensor, ""]:
    """Mean |w_i - w_j|, summed over joints, over the edges."""
    return (weights[edges[:, 0]] - weights[edges[:, 1]]).abs().sum(-1).mean()


def weight_sparsity(weights: Float[Tensor, "n j"]) -> Float[Tensor, ""]:
    """-mean[w log w + (1 - w) log(1 - w)]: least where every weight is 0 or 1."""
    w = weights.clamp(1e-7, 1 - 1e-7)
    return -(w * w.log() + (1 - w) * (1 - w).log()).mean()


def correction_losses(corrections: Float[Tensor, "t j 3"]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean squared size of the corrections, and of their changes from frame to frame."""
    size = (corrections**2).sum(-1).mean()
    if len(corrections) < 2:
        return size, torch.zeros_like(size)
    return size, ((corrections[1:] - corrections[:-1]) ** 2).sum(-1).mean()


def track_loss(
    pixels: Float[Tensor, "m 2"], tracked: Float[Tensor, "m 2"], seen: Bool[Tensor, " m"], cut: float = 20.0
) -> Float[Tensor, ""]:
    """Mean distance [px] between projected points and where they were tracked, cut at ``cut``; 0 where none is seen."""
    if not bool(seen.any()):
        return pixels.sum() * 0.0
    distance = ((pixels[seen] - tracked[seen]) ** 2).sum(-1).clamp(min=1e-12).sqrt()
    return distance.clamp(max=cut).mean()
