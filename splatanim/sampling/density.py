"""How much a capture's Gaussians cover: weighted sample points over the extent of each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.spatial import cKDTree

from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.rotations import quaternions_to_matrices

REACH = 1.5  # standard deviations that count as the body of a Gaussian
FAINTEST = 0.02  # opacities below it are ignored
MOST_SAMPLES = 1_500_000
GOLDEN = np.pi * (3 - 5**0.5)
_BLOCK = 1 << 16  # Gaussians at a time
_SAMPLES = 1 << 17  # samples at a time


class Ellipsoids:
    """Gaussians in the simulator's frame with their axes ordered from the longest to the shortest.

    Of every Gaussian only what all need is kept; axes are made for a block of rows at a time (:meth:`axes`).
    """

    def __init__(self, splats: Splats, frame: Frame, keep: np.ndarray | None):
        self.rows = np.flatnonzero(usable(splats, keep))
        self.means: Float64[np.ndarray, "n 3"] = np.empty((len(self.rows), 3))
        self.sigma: Float64[np.ndarray, "n 3"] = np.empty((len(self.rows), 3))
        self.opacity: Float64[np.ndarray, " n"] = np.empty(len(self.rows))
        self._quaternions, self._log_scales = splats.quaternions, splats.log_scales
        for block in self.blocks():
            rows = self.rows[block]
            self.means[block] = frame.to_sim(splats.means[rows])
            sigma = np.exp(splats.log_scales[rows].astype(np.float64)) * frame.scale
            self.sigma[block] = np.take_along_axis(sigma, _longest_first(splats.log_scales[rows]), axis=1)
            self.opacity[block] = 1.0 / (1.0 + np.exp(-np.clip(splats.raw_opacities[rows], -30.0, 30.0)))
        np.maximum(self.sigma, _least_sigma(self.means, self.sigma[:, 0]), out=self.sigma)

    def blocks(self) -> Iterator[slice]:
        """Slices of the rows, small enough that what is made of one takes little memory."""
        count = len(self.rows)
        return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))

    def axes(self, block: slice) -> Float64[np.ndarray, "n 3 3"]:
        """Unit vectors along the axes of a block of rows, as columns."""
        rows = self.rows[block]
        order = _longest_first(self._log_scales[rows])
        return np.take_along_axis(quaternions_to_matrices(self._quaternions[rows]), order[:, None, :], axis=2)

    def half_extent(self, block: slice) -> Float64[np.ndarray, "n 3"]:
        """Half the size of the bounding box of each Gaussian's body, per coordinate, for a block of rows."""
        return REACH * np.sqrt(((self.axes(block) * self.sigma[block][:, None, :]) ** 2).sum(axis=2))


def _longest_first(log_scales: np.ndarray) -> np.ndarray:
    return np.argsort(-log_scales, axis=1, kind="stable")


def usable(splats: Splats, keep: np.ndarray | None) -> Bool[np.ndarray, " n"]:
    """Which splats can define the object: kept by the caller, finite, and not all but transparent.

    Raises :class:`InputError` that says which of these left nothing.
    """
    if keep is None:
        keep = np.ones(len(splats), bool)
    if len(keep) != len(splats):
        raise InputError(f"The keep mask has {len(keep)} entries for {len(splats)} splats.")
    finite = np.isfinite(splats.means).all(axis=1) & np.isfinite(splats.log_scales).all(axis=1)
    finite &= np.isfinite(splats.quaternions).all(axis=1) & (splats.quaternions != 0).any(axis=1)
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
    means, count = bodies.means, len(bodies.means)
    low, high = (np.full(3, -np.inf), np.full(3, np.inf)) if count < 50 else np.percentile(means, [1, 99], axis=0)
    size = (high - low).max()
    room = np.maximum(high - low, 0.1 * size)
    corners = []
    for block in bodies.blocks():
        near, half = means[block], bodies.half_extent(block)
        if count >= 50:
            kept = ((near > low - 0.5 * room) & (near < high + 0.5 * room)).all(axis=1)
            near, half = near[kept], np.where(half > 0.25 * size, 0, half)[kept]
        if len(near):
            corners.append(((near - half).min(axis=0), (near + half).max(axis=0)))
    lows, highs = zip(*corners)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def body_samples(
    bodies: Ellipsoids, spacing: float
) -> Iterator[tuple[Float64[np.ndarray, "k 3"], Float64[np.ndarray, " k"]]]:
    """Points (k, 3) over each Gaussian out to 1.5 sigma, at most about half a voxel apart, and their weights (k,); in
    blocks of Gaussians.

    The weights are opacity times the area that a point stands for (over the two long axes), in units of a voxel
    face: a voxel that an opaque surface crosses sums to about one, however many splats make up that surface.
    Points lie on golden-angle spirals: even, and the same on every run.
    """
    counts = np.concatenate([_count(bodies.sigma[block], spacing) for block in bodies.blocks()])
    if counts.sum() > MOST_SAMPLES:
        counts = np.maximum((counts * (MOST_SAMPLES / counts.sum())).astype(np.int64), 1)
    ends = np.cumsum(counts)
    for block in bodies.blocks():
        start = block.start
        while start < block.stop:  # Gaussians of many samples come in smaller blocks
            before = ends[start - 1] if start else 0
            stop = max(start + 1, min(block.stop, int(np.searchsorted(ends, before + _SAMPLES, side="right"))))
            yield _samples(bodies, slice(start, stop), counts[start:stop], spacing)
            start = stop


def _count(sigma: Float64[np.ndarray, "n 3"], spacing: float) -> Int64[np.ndarray, " n"]:
    """How many samples each Gaussian wants."""
    s1, s2, s3 = (REACH * sigma / spacing).T
    wanted = np.maximum.reduce([4 * np.pi * s1 * s2, 4 * s1, 1.33 * np.pi * s1 * s2 * s3 / 0.3, np.ones(len(s1))])
    return np.minimum(np.ceil(wanted), 100_000).astype(np.int64)


def _samples(
    bodies: Ellipsoids, block: slice, count: Int64[np.ndarray, " n"], spacing: float
) -> tuple[np.ndarray, np.ndarray]:
    sigma = bodies.sigma[block]
    owner = np.repeat(np.arange(len(count)), count)
    k = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    n = count[owner]
    radius = np.where(n > 1, np.sqrt((k + 0.5) / n), 0.0)
    depth = np.where(n > 1, 2 * ((k * 0.7548776662466927) % 1.0) - 1, 0.0) * np.sqrt(1 - radius**2)
    angle = k * GOLDEN
    local = np.stack([radius * np.cos(angle), radius * np.sin(angle), depth], axis=1) * (REACH * sigma[owner])
    points = bodies.means[block][owner] + np.einsum("nij,nj->ni", bodies.axes(block)[owner], local)
    fall = np.where(n > 1, np.exp(-0.5 * REACH**2 * (radius**2 + depth**2)), 0.6)
    area = np.pi * (REACH / spacing) ** 2 * sigma[:, 0] * sigma[:, 1]
    return points, bodies.opacity[block][owner] * fall * area[owner] / n + 1e-12


def _least_sigma(means: np.ndarray, longest: np.ndarray) -> float:
    """A floor for the standard deviations of point-like Gaussians, so that they overlap; 0 where they do anyway.

    The yardstick is the median distance to the fourth neighbour, from a strided sample of 2,000 points.
    """
    if len(means) < 8:
        return 0.0
    asked = means[:: max(len(means) // 2000, 1)]
    distance = float(np.median(cKDTree(means).query(asked, k=5)[0][:, 4]))
    return 0.75 * distance / REACH if REACH * np.median(longest) < 0.35 * distance else 0.0
