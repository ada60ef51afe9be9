"""How much a capture's Gaussians cover: weighted sample points over the extent of each."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64
from scipy.spatial import cKDTree

from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.rotations import quaternions_to_matrices

REACH = 1.5  # standard deviations that count as the body of a Gaussian
FAINTEST = 0.02  # opacities below it are ignored
MOST_SAMPLES = 1_500_000
GOLDEN = np.pi * (3 - 5**0.5)


class Ellipsoids:
    """Gaussians in the simulator's frame with their axes ordered from the longest to the shortest."""

    def __init__(self, splats: Splats, frame: Frame, keep: np.ndarray | None):
        rows = usable(splats, keep)
        self.rows = np.flatnonzero(rows)
        self.means: Float64[np.ndarray, "n 3"] = frame.to_sim(splats.means[rows])
        sigma = np.exp(splats.log_scales[rows].astype(np.float64)) * frame.scale
        order = np.argsort(-sigma, axis=1, kind="stable")
        self.sigma = np.take_along_axis(sigma, order, axis=1)
        self.axes = np.take_along_axis(quaternions_to_matrices(splats.quaternions[rows]), order[:, None, :], axis=2)
        self.opacity = splats.opacities[rows].astype(np.float64)
        self.sigma = np.maximum(self.sigma, _least_sigma(self.means, self.sigma[:, 0]))

    @property
    def half_extent(self) -> Float64[np.ndarray, "n 3"]:
        """Half the size of the bounding box of each Gaussian's body, per coordinate."""
        return REACH * np.sqrt(((self.axes * self.sigma[:, None, :]) ** 2).sum(axis=2))


def usable(splats: Splats, keep: np.ndarray | None) -> Bool[np.ndarray, " n"]:
    """Which splats can define the object: kept by the caller, finite, and not all but transparent.

    Raises :class:`InputError` that says which of these left nothing.
    """
    if keep is None:
        keep = np.ones(len(splats), bool)
    if len(keep) != len(splats):
        raise InputError(f"The keep mask has {len(keep)} entries for {len(splats)} splats.")
    finite = np.isfinite(splats.means).all(axis=1) & np.isfinite(splats.log_scales).all(axis=1)
    finite &= np.isfinite(splats.quaternions).all(axis=1) & (np.abs(splats.quaternions).max(axis=1, initial=0) > 0)
    with np.errstate(over="ignore"):
        opaque = splats.opacities >= FAINTEST
    rows = np.asarray(keep, bool) & finite & opaque
    if not rows.any():
        raise InputError(
            f"No splat is left to define the object: of {len(splats)}, {int((~np.asarray(keep, bool)).sum())} are "
            f"masked out (floaters, crop), {int((~finite).sum())} are not finite, {int((~opaque).sum())} have an "
            f"opacity below {FAINTEST}. Loosen the crop or the floater filter, or check the file's opacities."
        )
    return rows


def box(bodies: Ellipsoids) -> tuple[Float64[np.ndarray, " 3"], Float64[np.ndarray, " 3"]]:
    """Low and high corner of the Gaussians' bodies, without far strays.

    Strays lie beyond the range of the inner 98 % of the centres widened by half on both sides; single Gaussians
    larger than that range count by their centre only.
    """
    means, half = bodies.means, bodies.half_extent
    if len(means) < 50:
        return (means - half).min(axis=0), (means + half).max(axis=0)
    low, high = np.percentile(means, [1, 99], axis=0)
    room = np.maximum(high - low, 0.1 * (high - low).max())
    near = ((means > low - 0.5 * room) & (means < high + 0.5 * room)).all(axis=1)
    half = np.where(half > 0.25 * (high - low).max(), 0, half)
    return (means - half)[near].min(axis=0), (means + half)[near].max(axis=0)


def body_samples(bodies: Ellipsoids, spacing: float) -> tuple[Float64[np.ndarray, "k 3"], Float64[np.ndarray, " k"]]:
    """Points (k, 3) over each Gaussian out to 1.5 sigma, at most about half a voxel apart, and their weights (k,).

    The weights are opacity times the area that a point stands for (over the two long axes), in units of a voxel
    face: a voxel that an opaque surface crosses sums to about one, however many splats make up that surface.
    Points lie on golden-angle spirals: even, and the same on every run.
    """
    s1, s2, s3 = (REACH * bodies.sigma / spacing).T
    wanted = np.maximum.reduce([4 * np.pi * s1 * s2, 4 * s1, 1.33 * np.pi * s1 * s2 * s3 / 0.3, np.ones(len(s1))])
    count = np.minimum(np.ceil(wanted), 100_000).astype(np.int64)
    if count.sum() > MOST_SAMPLES:
        count = np.maximum((count * (MOST_SAMPLES / count.sum())).astype(np.int64), 1)
    owner = np.repeat(np.arange(len(count)), count)
    k = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    n = count[owner]
    radius = np.where(n > 1, np.sqrt((k + 0.5) / n), 0.0)
    depth = np.where(n > 1, 2 * ((k * 0.7548776662466927) % 1.0) - 1, 0.0) * np.sqrt(1 - radius**2)
    angle = k * GOLDEN
    local = np.stack([radius * np.cos(angle), radius * np.sin(angle), depth], axis=1) * (REACH * bodies.sigma[owner])
    points = bodies.means[owner] + np.einsum("nij,nj->ni", bodies.axes[owner], local)
    fall = np.where(n > 1, np.exp(-0.5 * REACH**2 * (radius**2 + depth**2)), 0.6)
    weights = bodies.opacity[owner] * fall * (np.pi * s1 * s2)[owner] / n
    return points, weights + 1e-12


def _least_sigma(means: np.ndarray, longest: np.ndarray) -> float:
    """A floor for the standard deviations of point-like Gaussians, so that they overlap; 0 where they do anyway.

    The yardstick is the median distance to the fourth neighbour, from a strided sample of 2,000 points.
    """
    if len(means) < 8:
        return 0.0
    asked = means[:: max(len(means) // 2000, 1)]
    distance = float(np.median(cKDTree(means).query(asked, k=5)[0][:, 4]))
    return 0.75 * distance / REACH if REACH * np.median(longest) < 0.35 * distance else 0.0
