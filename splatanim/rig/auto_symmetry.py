"""Bilateral symmetry: the plane that an object mirrors itself in, and which limb is the mirror image of which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64
from scipy.spatial import cKDTree

_SAMPLES = 3000
_STEPS = 12
_STRIDE = 0.3  # the farthest that a limb's image lies from its partner


@dataclass(frozen=True)
class MirrorPlane:
    """{x : n.x = offset} with unit ``normal`` n, whose largest component is positive; that side counts as left.

    ``error`` is the mean distance from the mirrored object to the object (simulator units).
    """

    normal: Float64[np.ndarray, " 3"]
    offset: float
    error: float

    def mirrored(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """Mirror images: x - 2 (n.x - offset) n."""
        return points - 2 * self.side(points)[:, None] * self.normal

    def side(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, " n"]:
        """Signed distances."""
        return points @ self.normal - self.offset

    def onto(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """The nearest points of the plane."""
        return points - self.side(points)[:, None] * self.normal


def find_mirror(points: Float64[np.ndarray, "n 3"], most: float = 0.012, *, seed: int = 0) -> MirrorPlane | None:
    """The plane in which the points (simulator units, evenly spread) mirror themselves to ``most``; None without one.

    Starts from the principal and the coordinate axes, and moves each plane to fit mirrored points to their nearest
    neighbours (an ICP of reflections). Of planes that are about as good, one across the x axis, then across z, is
    taken: objects mostly stand so in files.
    """
    rows = np.random.default_rng(seed).permutation(len(points))[:_SAMPLES]
    sample, tree = points[rows], cKDTree(points)
    axes = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)[2]
    best: tuple[float, MirrorPlane] | None = None
    for start in (*np.eye(3), *axes):
        plane = _fitted(sample, points, tree, start)
        upright = 0.002 * np.abs(plane.normal) @ [0.0, 2.0, 1.0]
        if best is None or plane.error + upright < best[0]:
            best = plane.error + upright, plane
    assert best is not None
    return best[1] if best[1].error <= most else None


def _fitted(sample: np.ndarray, points: np.ndarray, tree: cKDTree, normal: np.ndarray) -> MirrorPlane:
    offset = float(points.mean(axis=0) @ normal)
    plane = MirrorPlane(normal, offset, np.inf)
    for _ in range(_STEPS):
        gap, near = tree.query(plane.mirrored(sample))
        error = float(gap.mean())
        if error > 0.98 * plane.error:
            plane = MirrorPlane(plane.normal, plane.offset, min(error, plane.error))
            break
        other = points[near]
        middle = 0.5 * (sample.mean(axis=0) + other.mean(axis=0))
        # sum |mirrored(x) - y|^2 is least for the eigenvector of the smallest eigenvalue of sum x y^T, symmetrised.
        moment = (sample - middle).T @ (other - middle)
        normal = np.linalg.eigh(moment + moment.T)[1][:, 0]
        plane = MirrorPlane(normal, float(middle @ normal), error)
    sign = 1.0 if plane.normal[np.abs(plane.normal).argmax()] > 0 else -1.0
    return MirrorPlane(sign * plane.normal, sign * plane.offset, plane.error)


def paired_tips(
    tips: Float64[np.ndarray, "t 3"],
    blunt: Float64[np.ndarray, " t"],
    lengths: Float64[np.ndarray, " t"],
    plane: MirrorPlane | None,
    reach: float = 0.12,
) -> Int64[np.ndarray, " t"]:
    """For every tip the one that is its mirror image: itself on the plane, -1 where there is none.

    ``blunt`` (t,) is how far off the plane a tip may lie and still be on it, ``lengths`` (t,) are those of the limbs.
    Images are looked for within ``reach``. What is left is paired across the plane where lengths are alike: legs
    in mid-stride are no mirror images of each other, but still a left one and a right one.
    """
    n = len(tips)
    out = np.full(n, -1, np.int64)
    if plane is None:
        return out
    gaps = np.linalg.norm(plane.mirrored(tips)[:, None] - tips[None], axis=2)
    side = plane.side(tips)
    off = np.abs(side) > blunt
    gaps[off, off] = np.inf
    # Feet next to the plane: each is nearer to its own image than to the other foot.
    across = (side[:, None] * side[None] < 0) & (np.abs(side)[:, None] > 0.005) & (gaps < 0.08)
    beside = across.any(axis=1)
    gaps[beside, beside] = np.inf
    nearest = gaps.argmin(axis=1)
    own = nearest == np.arange(n)
    close = np.where(own, ~off & ~beside, gaps[np.arange(n), nearest] < reach)
    mutual = (nearest[nearest] == np.arange(n)) & close
    out[mutual] = nearest[mutual]
    ratio = lengths[:, None] / lengths[None]
    rest = (side[:, None] * side[None] < 0) & (ratio < 1.5) & (ratio > 1 / 1.5) & (gaps < _STRIDE)
    for i, j in sorted(np.argwhere(rest).tolist(), key=lambda pair: float(gaps[pair[0], pair[1]])):
        if out[i] < 0 and out[j] < 0 and off[i] and off[j]:
            out[i], out[j] = j, i
    return out
