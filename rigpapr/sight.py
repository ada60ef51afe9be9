"""How much the training views say about each point, and what follows for points of which they say little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from rigpapr.attention import KernelHead
from rigpapr.cloud import PaprCloud
from rigpapr.dataset import View
from rigpapr.renderer import render

_NEIGHBOURS = 8
_ROUNDS = 3
_NOTHING = 1e-3  # [pixels] of attention that a point without any counts with


class Sight(NamedTuple):
    """``attention`` (N,) [pixels]: each point's, summed over all pixels of the views; ``towards`` (N, 3): the mean unit
    direction [world] to the cameras that see it, weighted by attention; zero for points that none sees."""

    attention: np.ndarray
    towards: np.ndarray


def sight(cloud: PaprCloud, views: Sequence[View]) -> Sight:
    """Render every view once and add up each point's attention."""
    positions = cloud.world_positions.detach().cpu().numpy().astype(np.float64)
    total, towards = np.zeros(len(cloud)), np.zeros((len(cloud), 3))
    for view in views:
        picture = render(cloud, view.camera)
        seen = picture.weights > 1e-3
        here = np.bincount(picture.indices[seen], picture.weights[seen], minlength=len(cloud))
        way = view.camera.position - positions
        towards += here[:, None] * way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-12)
        total += here
    length = np.linalg.norm(towards, axis=1, keepdims=True)
    return Sight(total, np.divide(towards, length, out=np.zeros_like(towards), where=length > 0))


def borrow_colours(cloud: PaprCloud, attention: Float[np.ndarray, " n"], pixels: float) -> None:
    """Let points that few pixels have shaped borrow their neighbours' colour. Other than kernel heads are left alone.

    With a_i the attention, e_i = a_i at first, and w_ij = exp(-|p_i - p_j|^2 / 2 h^2) for the eight nearest points,

        m_i = sum_j w_ij e_j c_j / sum_j w_ij e_j,      c_i <- (a_i c_i + pixels m_i) / (a_i + pixels),

    thrice, with e_i = a_i + half of what the neighbours have, but no more than ``pixels`` / 2, so that what is known
    reaches points that have no well seen neighbour. Slopes of colour shrink by a_i / (a_i + pixels). Adam takes
    steps of one size however faint the gradient, so that without this the colours of such points are noise.
    """
    from scipy.spatial import cKDTree

    if not isinstance(cloud.head, KernelHead) or len(cloud) < 2:
        return
    points = cloud.positions.detach().cpu().numpy().astype(np.float64)
    features = cloud.features.detach().cpu().numpy().astype(np.float64)
    distance, near = cKDTree(points).query(points, min(_NEIGHBOURS + 1, len(points)))
    spacing = cloud.head.spacing.item()
    weight = np.exp(-((distance[:, 1:] / spacing) ** 2) / 2) + 1e-12
    near = near[:, 1:]
    own, known = features[:, 4:7].copy(), attention + _NOTHING
    colour = own
    for _ in range(_ROUNDS):
        share = weight * known[near]
        mean = (share[..., None] * colour[near]).sum(1) / share.sum(1, keepdims=True)
        colour = (attention[:, None] * own + pixels * mean) / (attention + pixels)[:, None]
        known = attention + _NOTHING + np.minimum(pixels, share.sum(1) / weight.sum(1)) / 2
    features[:, 4:7] = colour
    features[:, 7:16] *= (attention / (attention + pixels))[:, None]
    with torch.no_grad():
        cloud.features.copy_(torch.from_numpy(features))
