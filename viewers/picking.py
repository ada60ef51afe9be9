"""Which splat a ray meets: the first one at which the clouds become opaque along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from viewers.moving import Cloud

_REACH = 3.0  # standard deviations
_OPAQUE = 0.5  # how much of the light must be taken away


@dataclass(frozen=True)
class Pick:
    """What a ray met: the ``body``, the ``row`` of its splat, the world ``point`` on it, and how far along the ray."""

    body: int
    row: int
    point: Float64[np.ndarray, " 3"]
    depth: float


def pick(clouds: Sequence[Cloud], origin: Float[np.ndarray, " 3"], direction: Float[np.ndarray, " 3"]) -> Pick | None:
    """The splat at which half of the light of a ray is gone, front to back; None where that never happens.

    A splat's share at its place of greatest density along the ray, t = d.S^-1.(mu - o) / d.S^-1.d, is its opacity
    times exp(-1/2 |x - mu|^2_{S^-1}).
    """
    d = np.asarray(direction, np.float64) / np.linalg.norm(direction)
    o = np.asarray(origin, np.float64)
    body, row, depth, alpha = _near(clouds, o, d)
    order = np.argsort(depth)
    through = np.cumprod(1.0 - alpha[order])
    hit = np.flatnonzero(through < 1.0 - _OPAQUE)
    if not len(hit):
        return None
    k = int(order[hit[0]])
    return Pick(int(body[k]), int(row[k]), o + depth[k] * d, float(depth[k]))


def _near(
    clouds: Sequence[Cloud], o: np.ndarray, d: np.ndarray
) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"], Float64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
    """Body, row, depth and share of all splats that the ray passes within their reach."""
    found = []
    for body, cloud in enumerate(clouds):
        away = cloud.means.astype(np.float64) - o
        along = away @ d
        apart2 = np.einsum("nc,nc->n", away, away) - along**2
        spread2 = np.einsum("nii->n", cloud.covariances)
        rows = np.flatnonzero((along > 0) & (apart2 < _REACH**2 * spread2))
        sigma = cloud.covariances[rows].astype(np.float64)
        sigma += 1e-6 * spread2[rows, None, None] * np.eye(3) + 1e-18 * np.eye(3)
        inverse_d = np.linalg.solve(sigma, np.broadcast_to(d, (len(rows), 3))[..., None])[..., 0]
        depth = np.einsum("nc,nc->n", inverse_d, away[rows]) / np.maximum(inverse_d @ d, 1e-30)
        off = depth[:, None] * d - away[rows]
        distance2 = np.einsum("nc,nc->n", off, np.linalg.solve(sigma, off[..., None])[..., 0])
        alpha = np.minimum(cloud.opacities[rows] * np.exp(-0.5 * distance2), 0.999)
        keep = (depth > 0) & (alpha > 1 / 255)
        count = int(keep.sum())
        found.append((np.full(count, body), rows[keep], depth[keep], alpha[keep].astype(np.float64)))
    return tuple(np.concatenate(part) for part in zip(*found))  # type: ignore[return-value]
