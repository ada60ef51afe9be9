"""Handles evaluated at points: what a deformation map is once an object's fields are known (eq. 1, 12, 18).

Every source of motion is a *handle*: a scalar weight function and an affine displacement Z (3, 4),

    x(X) = X + sum_h w_h(X) Z_h [X; 1].

Free handles are the skinning field and the constant, multiplied by the Dirichlet mask d(X); prescribed handles are
the pinned regions (weight 1 - d). The same weights serve cubature points, contact points, vertices and splat centres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.dynamics.regions import Region
from splatanim.field import SkinningField


@dataclass(frozen=True)
class Handles:
    """A skinning field under Dirichlet conditions: m fields, the constant handle, then one handle a region."""

    field: SkinningField
    regions: tuple[Region, ...] = ()

    @property
    def free(self) -> int:
        """The number of handles that the solver moves (m + 1)."""
        return self.field.handles + 1

    def __len__(self) -> int:
        return self.free + len(self.regions)

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n h"], Float64[np.ndarray, "n h 3"]]:
        """Weights and their spatial gradients of all handles at rest points (simulator units)."""
        points = np.asarray(points, np.float64)
        n = len(points)
        weights, slopes = self.field.evaluate(points)
        w = np.concatenate([weights, np.ones((n, 1))], axis=1)
        dw = np.concatenate([slopes, np.zeros((n, 1, 3))], axis=1)
        if not self.regions:
            return w, dw
        mask, slope = np.ones(n), np.zeros((n, 3))
        held, held_slope = [], []
        for region in self.regions:
            d, g = region.mask(points)
            slope = slope * d[:, None] + mask[:, None] * g
            mask = mask * d
            held.append(1.0 - d)
            held_slope.append(-g)
        p, dp = _share(np.stack(held, axis=1), np.stack(held_slope, axis=1))
        dw = dw * mask[:, None, None] + w[:, :, None] * slope[:, None, :]
        return np.concatenate([w * mask[:, None], p], axis=1), np.concatenate([dw, dp], axis=1)

    def prescribed(self, time: float) -> Float64[np.ndarray, "p 3 4"]:
        """The affine displacements of the regions at ``time`` [s]."""
        return np.array([region.motion(time) for region in self.regions], np.float64).reshape(-1, 3, 4)


def _share(w: np.ndarray, dw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where regions overlap, their weights are scaled to sum to 1 (quotient rule for the gradients)."""
    total = w.sum(axis=1, keepdims=True)
    over = total[:, 0] > 1.0
    if over.any():
        t, dt = total[over][:, :, None], dw[over].sum(axis=1, keepdims=True)
        dw[over] = dw[over] / t - w[over][:, :, None] * dt / t**2
        w[over] = w[over] / total[over]
    return w, dw


def shape_functions(
    points: Float64[np.ndarray, "n 3"], weights: Float64[np.ndarray, "n h"], gradients: Float64[np.ndarray, "n h 3"]
) -> tuple[Float64[np.ndarray, "n k"], Float64[np.ndarray, "n k 3"]]:
    """The scalar shape functions w_h [X; 1] (k = 4 h, handle-major) and their gradients d(w_h [X; 1])/dX.

    These are the columns of B_lbs before the Kronecker product with I_3 (eq. 20), and the G of F = I + Z G.
    """
    one = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    values = weights[:, :, None] * one[:, None, :]
    slopes = one[:, None, :, None] * gradients[:, :, None, :]
    for axis in range(3):
        slopes[:, :, axis, axis] += weights
    n, h = weights.shape
    return values.reshape(n, 4 * h), slopes.reshape(n, 4 * h, 3)
