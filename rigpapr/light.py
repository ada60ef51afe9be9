"""The light that pictures of one pose have baked in, estimated from the cloud, so that posed points are lit anew.

What a point looks like at rest is taken as its own colour times a shading by even light and one lamp,

    s(n) = 1 + max(0, n . lamp),      n the surface's unit normal,

in the pictures' own values; a lamp of zero is even light alone. A point whose surroundings have turned by R since rest
is drawn s(R n) / s(n) times as bright. Neighbours mostly share their own colour, so what they differ by in brightness,
where their normals differ, tells the lamp; edges of colour count little because the fit is robust.

:func:`rigpapr.attention.brightening` is that ratio. None of this is in the PAPR papers, where points keep their colours
when they turn.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import cKDTree

from rigpapr.cloud import PaprCloud, median_spacing
from rigpapr.sight import Sight

_NEIGHBOURS = 16  # that a normal is fitted to
_FARTHEST = 4.0  # [spacings] between two points that are held against each other
_AROUND = 64  # nearest points that the other one of a pair is drawn from
_PAIRS = 12_000
_SEEN = 10.0  # [pixels] of attention that a point of a pair has at least
_DARKEST = 0.06  # of points whose brightness is held against another's: below, a ratio is noise
_ALIKE = 0.98  # cosine between two normals above which a pair says nothing about the light
_COLOUR_EDGE = 0.03  # [log of brightness] from where a difference counts as one of colour
_STARTS = 8
_ROUNDS = 30  # of each fit at most: points without any light to find have no clear minimum
_STRONGEST = 4.0  # lamp, against the even light


def surface_normals(positions: Float[np.ndarray, "n 3"], seen: Sight) -> Float[np.ndarray, "n 3"]:
    """Unit normals: the direction in which a point's neighbours spread least, on the side that cameras see it from.

    Neighbours count by attention and nearness, those that are seen from the other side not at all: in a thin part both
    sides lie near each other.
    """
    distance, near = cKDTree(positions).query(positions, min(_NEIGHBOURS, len(positions)))
    spacing = float(np.median(distance[:, min(4, distance.shape[1] - 1)]))
    same_side = (seen.towards[near] * seen.towards[:, None]).sum(-1) > 0
    weight = np.exp(-((distance / (1.5 * max(spacing, 1e-12))) ** 2)) * same_side * (seen.attention[near] + 0.1) + 1e-9
    middle = (weight[..., None] * positions[near]).sum(1) / weight.sum(1, keepdims=True)
    apart = positions[near] - middle[:, None]
    spread = np.einsum("nk,nki,nkj->nij", weight, apart, apart)
    normals = np.linalg.eigh(spread)[1][:, :, 0]
    return normals * np.where((normals * seen.towards).sum(1, keepdims=True) < 0, -1.0, 1.0)


def estimate_lamp(
    positions: Float[np.ndarray, "n 3"],
    normals: Float[np.ndarray, "n 3"],
    brightness: Float[np.ndarray, " n"],
    attention: Float[np.ndarray, " n"],
    *,
    seed: int = 0,
) -> Float[np.ndarray, " 3"]:
    """The lamp that best explains how brightness differs between neighbours.

    Minimises sum rho(log b_i - log b_j - log s(n_i) + log s(n_j)), rho Cauchy's, over pairs of well seen points up to
    four spacings apart. Half of the pairs are kept out of the fit: where the lamp does not explain those better than
    even light does, or where there are too few pairs, it is zero.
    """
    from scipy.optimize import least_squares

    rng = np.random.default_rng(seed)
    usable = np.flatnonzero((attention > _SEEN) & (brightness > _DARKEST))
    spacing = median_spacing(torch.from_numpy(positions))
    pairs = _pairs(positions[usable], _FARTHEST * spacing, rng)
    one, two = usable[pairs[:, 0]], usable[pairs[:, 1]]
    cosine = (normals[one] * normals[two]).sum(1)
    kept = np.flatnonzero((cosine < _ALIKE) & (cosine > -0.2))[: 2 * _PAIRS]
    if len(kept) < 200:
        return np.zeros(3)
    one, two = one[kept], two[kept]
    difference = np.log(brightness[one]) - np.log(brightness[two])
    fitted, checked = slice(0, None, 2), slice(1, None, 2)

    def residual(lamp: np.ndarray, part: slice) -> np.ndarray:
        first, second = (np.log1p(np.maximum(0.0, normals[rows[part]] @ lamp)) for rows in (one, two))
        return difference[part] - first + second

    def cost(lamp: np.ndarray, part: slice) -> float:
        return float(np.log1p((residual(lamp, part) / _COLOUR_EDGE) ** 2).sum())

    found = np.zeros(3)
    for first in rng.normal(size=(_STARTS, 3)):
        start = first / np.linalg.norm(first) / 2
        lamp = least_squares(residual, start, loss="cauchy", f_scale=_COLOUR_EDGE, args=(fitted,), max_nfev=_ROUNDS).x
        lamp *= min(1.0, _STRONGEST / max(float(np.linalg.norm(lamp)), 1e-12))
        if cost(lamp, fitted) < cost(found, fitted):
            found = lamp
    return found if cost(found, checked) < cost(np.zeros(3), checked) else np.zeros(3)


def _pairs(points: np.ndarray, radius: float, rng: np.random.Generator) -> np.ndarray:
    """(P, 2) pairs of points within ``radius``, in random order; about twice as many as are used."""
    if len(points) < 2:
        return np.empty((0, 2), np.int64)
    first = rng.integers(0, len(points), 4 * _PAIRS)
    distance, near = cKDTree(points).query(points[first], min(_AROUND, len(points)), distance_upper_bound=radius)
    found = np.isfinite(distance).sum(axis=1)  # the point itself among them
    second = near[np.arange(len(first)), rng.integers(0, found)]
    return np.stack([first, second], axis=1)[first != second]


def estimate_light(cloud: PaprCloud, seen: Sight, *, seed: int = 0) -> None:
    """Give the cloud its normals and its lamp."""
    positions = cloud.world_positions.detach().cpu().numpy().astype(np.float64)
    normals = surface_normals(positions, seen)
    brightness = cloud.colours().mean(axis=1).astype(np.float64)
    lamp = estimate_lamp(positions, normals, brightness, seen.attention, seed=seed)
    device = cloud.positions.device
    cloud.set_light(torch.from_numpy(normals).float().to(device), torch.from_numpy(lamp).float().to(device))
