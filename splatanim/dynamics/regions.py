"""Regions with a prescribed displacement: the Dirichlet mask d(X) and the motion g(X, t) of eq. 12.

The paper's d is an indicator, 0 on the region and 1 elsewhere, which tears whatever crosses the border. Here d rises
smoothly over a width, d = 1 - (1 - s/w)^2 with s the distance to the region, and the prescribed motion fades out by
the same function: x = X + (1 - d) Z(t) [X; 1] + d sum_i W_i Z_i [X; 1]. On the region itself (d = 0) the prescribed
displacement still holds exactly, whatever the reduced coordinates (short of another region that lies within a width).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError

Motion = Callable[[float], np.ndarray]
"""t [s] -> the affine displacement Z (3, 4) of a region: X moves to X + Z [X; 1]."""


def hold_still(_time: float) -> Float64[np.ndarray, "3 4"]:
    return np.zeros((3, 4))


@dataclass(frozen=True)
class Region:
    """An axis-aligned box (``lo``, ``hi``; infinite bounds give slabs and half-spaces) that follows ``motion``."""

    lo: tuple[float, float, float]
    hi: tuple[float, float, float]
    width: float
    motion: Motion = hold_still

    def __post_init__(self) -> None:
        if not all(a < b for a, b in zip(self.lo, self.hi, strict=True)):
            raise InputError(f"Pinned box: the low corner {self.lo} must lie below the high corner {self.hi}.")
        if not self.width > 0:
            raise InputError(f"Pinned box: the transition width {self.width} must be positive.")

    def mask(self, points: Float64[np.ndarray, "n 3"]) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        """d(X) in [0, 1] and its gradient [1/m]."""
        below = np.maximum(np.asarray(self.lo) - points, 0.0)
        above = np.maximum(points - np.asarray(self.hi), 0.0)
        outward = above - below
        distance = np.linalg.norm(outward, axis=1)
        slack = np.maximum(1.0 - distance / self.width, 0.0)
        direction = outward / np.maximum(distance, 1e-300)[:, None]
        return 1.0 - slack**2, (2.0 * slack / self.width)[:, None] * direction

    def contains(self, points: Float64[np.ndarray, "n 3"]) -> np.ndarray:
        return np.all((points >= np.asarray(self.lo)) & (points <= np.asarray(self.hi)), axis=1)


def rotation_about(
    axis: Float64[np.ndarray, " 3"], angle: float, centre: Float64[np.ndarray, " 3"]
) -> Float64[np.ndarray, "3 4"]:
    """The affine displacement of a rotation by ``angle`` [rad] about ``axis`` through ``centre``."""
    from scipy.spatial.transform import Rotation

    linear = Rotation.from_rotvec(np.asarray(axis) * angle).as_matrix() - np.eye(3)
    return np.concatenate([linear, -(linear @ centre)[:, None]], axis=1)


def translation(offset: Sequence[float] | Float64[np.ndarray, " 3"]) -> Float64[np.ndarray, "3 4"]:
    """The affine displacement of a translation [m]."""
    return np.concatenate([np.zeros((3, 3)), np.asarray(offset, np.float64)[:, None]], axis=1)
