"""The learning-free skinning field: Gaussians at farthest points of the object, combined by Rayleigh-Ritz."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field import chunks
from splatanim.field.neural_parts import Parts, parts_of
from splatanim.field.ritz import ritz

_CHUNK = 16384
_BINDING_VOXELS = 20000  # more than this adds time to the binding and nothing to the field


@dataclass(frozen=True)
class GaussianField:
    """W_i(X) = c_pi + sum_k C_ki exp(-|X - X_k|^2 / (2 w^2)): smooth, global, with exact gradients.

    The sum is over the centres of X's own part p of the object, so that what is not joined does not move together;
    ``owner`` is the part of each centre. An object in one piece has one part.
    """

    centres: Float64[np.ndarray, "k 3"]
    width: float
    parts: Parts
    owner: Int[np.ndarray, " k"]
    coefficients: Float64[np.ndarray, "k m"]
    constants: Float64[np.ndarray, "p m"]
    kind: str = "gaussians"

    @property
    def handles(self) -> int:
        return self.coefficients.shape[1]

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        out = np.empty((len(points), self.handles))
        for rows in chunks(len(points), _CHUNK):
            phi, part = self.raw(points[rows])
            out[rows] = phi @ self.coefficients + self.constants[part]
        return out

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return self.evaluate(points)[1]

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        """grad W_i = -1/w^2 sum_k C_ki phi_k (X - X_k)."""
        m, near = self.handles, self.centres[0]  # an origin at the object, however far away that lies
        local = self.centres - near
        moments = np.concatenate([self.coefficients] + [local[:, [a]] * self.coefficients for a in range(3)], 1)
        w, dw = np.empty((len(points), m)), np.empty((len(points), m, 3))
        for rows in chunks(len(points), _CHUNK):
            phi, part = self.raw(points[rows])
            sums = phi @ moments
            w[rows] = sums[:, :m] + self.constants[part]
            position = np.asarray(points[rows], np.float64) - near
            for axis in range(3):
                pulled = position[:, [axis]] * sums[:, :m]
                dw[rows, :, axis] = (sums[:, (axis + 1) * m : (axis + 2) * m] - pulled) / self.width**2
        return w, dw

    def raw(self, points: Float[np.ndarray, "n 3"]) -> tuple[Float64[np.ndarray, "n k"], Int[np.ndarray, " n"]]:
        """The Gaussians at points, zero on other parts than their own; and the points' parts."""
        phi, part = _kernel(points, self.centres, self.width), self.parts.of(points)
        if self.parts.count > 1:
            phi *= part[:, None] == self.owner
        return phi, part


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
    rows = np.arange(len(points))
    if len(points) > _BINDING_VOXELS:
        rows = rng.choice(len(points), _BINDING_VOXELS, replace=False)
    pool = points[rows]
    # Chosen by cells: ties are then broken alike wherever the object lies.
    centres = pool[farthest_points(domain.cells[rows].astype(np.float64), min(raw, len(pool)))]
    width = _width(pool, centres, domain.spacing)
    parts = parts_of(domain)
    k, p = len(centres), parts.count
    plain = GaussianField(centres, width, parts, parts.of(centres), np.eye(k), np.zeros((p, k)))
    phi, part = plain.raw(points)
    indicators = (part[:, None] == np.arange(1, p)).astype(np.float64)
    coefficients, constants, _ = ritz(np.concatenate([phi, indicators], axis=1), domain, handles)
    levels = np.concatenate([np.zeros((1, coefficients.shape[1])), coefficients[k:]]) + constants
    return GaussianField(centres, width, parts, plain.owner, coefficients[:k], levels)


def _width(points: np.ndarray, centres: np.ndarray, spacing: float) -> float:
    """Three times the mean distance of the object's points to their nearest centre.

    At least what it is when every voxel is a centre, where voxel centres alone would say zero: the mean distance of
    a voxel's points from its middle is 0.48 of its side.
    """
    from scipy.spatial import cKDTree

    return 3.0 * max(float(cKDTree(centres).query(points)[0].mean()), 0.48 * spacing)


def _kernel(points: np.ndarray, centres: np.ndarray, width: float) -> np.ndarray:
    points, centres = np.asarray(points, np.float64) - centres[0], centres - centres[0]
    squared = (points**2).sum(1)[:, None] + (centres**2).sum(1)[None, :] - 2.0 * (points @ centres.T)
    exponent = np.maximum(squared, 0.0) * (-0.5 / width**2)
    # Far values are zero to every purpose, and products of them would be denormal numbers, which are slow.
    return np.where(exponent > -80.0, np.exp(np.maximum(exponent, -80.0)), 0.0)
