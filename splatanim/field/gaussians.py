"""The learning-free skinning field: Gaussians at farthest points of the object, combined by Rayleigh-Ritz."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.ritz import ritz

_CHUNK = 16384
_BINDING_VOXELS = 20000  # more than this adds time to the binding and nothing to the field


@dataclass(frozen=True)
class GaussianField:
    """W_i(X) = c_i + sum_k C_ki exp(-|X - X_k|^2 / (2 w^2)): smooth, global, with exact gradients."""

    centres: Float64[np.ndarray, "k 3"]
    width: float
    coefficients: Float64[np.ndarray, "k m"]
    constants: Float64[np.ndarray, " m"]
    kind: str = "gaussians"

    @property
    def handles(self) -> int:
        return self.coefficients.shape[1]

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        out = np.empty((len(points), self.handles))
        for rows in _chunks(len(points)):
            out[rows] = _kernel(points[rows], self.centres, self.width) @ self.coefficients + self.constants
        return out

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        """grad W_i = -1/w^2 sum_k C_ki phi_k (X - X_k)."""
        m = self.handles
        moments = np.concatenate([self.coefficients] + [self.centres[:, [a]] * self.coefficients for a in range(3)], 1)
        out = np.empty((len(points), m, 3))
        for rows in _chunks(len(points)):
            sums = _kernel(points[rows], self.centres, self.width) @ moments
            for axis in range(3):
                pulled = np.asarray(points[rows], np.float64)[:, [axis]] * sums[:, :m]
                out[rows, :, axis] = (sums[:, (axis + 1) * m : (axis + 2) * m] - pulled) / self.width**2
        return out


def bind_gaussians(domain: Domain, handles: int, *, raw: int = 192, seed: int = 0) -> GaussianField:
    """Bind ``handles`` fields on a domain, from ``raw`` Gaussians at farthest points of its voxels.

    Raises :class:`InputError` when the object has too few voxels to carry the fields.
    """
    from splatanim.sampling.surface import farthest_points

    points = domain.centres
    if len(points) < handles + 2:
        raise InputError(
            f"The object fills only {len(points)} voxels, too few for {handles} handles. "
            "Use fewer --handles, or check with `splatanim inspect` that the capture has an inside."
        )
    rng = np.random.default_rng(seed)
    pool = points if len(points) <= _BINDING_VOXELS else points[rng.choice(len(points), _BINDING_VOXELS, replace=False)]
    centres = pool[farthest_points(pool, min(raw, len(pool)))]
    width = _width(pool, centres, domain.spacing)
    coefficients, constants, _ = ritz(_kernel(points, centres, width), domain, handles)
    return GaussianField(centres, width, coefficients, constants)


def _width(points: np.ndarray, centres: np.ndarray, spacing: float) -> float:
    """Three times the mean distance of the object's points to their nearest centre.

    At least what it is when every voxel is a centre, where voxel centres alone would say zero: the mean distance of
    a voxel's points from its middle is 0.48 of its side.
    """
    from scipy.spatial import cKDTree

    return 3.0 * max(float(cKDTree(centres).query(points)[0].mean()), 0.48 * spacing)


def _kernel(points: np.ndarray, centres: np.ndarray, width: float) -> np.ndarray:
    points = np.asarray(points, np.float64)
    squared = (points**2).sum(1)[:, None] + (centres**2).sum(1)[None, :] - 2.0 * (points @ centres.T)
    exponent = np.maximum(squared, 0.0) * (-0.5 / width**2)
    # Far values are zero to every purpose, and products of them would be denormal numbers, which are slow.
    return np.where(exponent > -80.0, np.exp(np.maximum(exponent, -80.0)), 0.0)


def _chunks(n: int):
    return (slice(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK))
