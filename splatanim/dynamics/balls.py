"""Contact balls: a body's surface as overlapping balls just inside of it, for contact between bodies.

Points alone would let two surfaces slip through each other wherever the points of one fall between those of the
other. So every contact point is the centre of a ball, and two balls may come no nearer than the sum of their radii.

* The balls are *inset*: they touch the surface from within, so that bodies meet where they are seen to, and larger
  ones make a smoother surface (two rows of balls of radius r and spacing s mesh by s^2 / 16 r). Each is therefore as
  large as fits, up to three covering radii c (the farthest that any surface is from the nearest contact point).
* The balls *cover*: none is smaller than ``COVER`` c. A ball of another body, of at least that size too, then cannot
  pass between them: it would have to come within sqrt(r^2 + c^2) < 2 r of a centre. Where the body is thinner than
  that, the balls stand out by what is missing; where others' balls are smaller still, by more (``least``).

Sharp edges are rounded off by the smallest balls, which is 0.4 r at a right angle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy import ndimage
from scipy.spatial import cKDTree

from splatanim.data import Domain

COVER = 0.6  # of the covering radius: above 1 / sqrt(3), so that two such balls' surfaces have no holes for each other
_LARGEST = 3.0  # covering radii
_BALLS = 500  # of a body, unless a much smaller body is about
_MOST_BALLS = 3000
_SAMPLES = 6000  # of the surface, at least, that balls are spread over
_SAG = 0.5  # voxels by which a ball may fall short of the surface point it stands for, if large enough already


@dataclass(frozen=True)
class Balls:
    """Ball ``centres`` [m] and ``radii`` [m] at rest, and the ``surface`` points they stand for (friction acts there).

    ``cover``: for each, the farthest surface that it is the nearest ball to.
    """

    centres: Float64[np.ndarray, "s 3"]
    radii: Float64[np.ndarray, " s"]
    surface: Float64[np.ndarray, "s 3"]
    cover: Float64[np.ndarray, " s"]

    def __len__(self) -> int:
        return len(self.radii)

    def at_least(self, radius: float) -> Balls:
        """The balls with radii that let none of ``radius`` through either."""
        enough = 1.05 * self.cover - radius
        return Balls(self.centres, np.maximum(self.radii, enough), self.surface, self.cover)


def balls_within(domain: Domain, finest: float = np.inf) -> Balls:
    """Balls along the surface of a domain, spaced no wider than ``finest`` [m] as far as 3000 of them go."""
    from splatanim.sampling.surface import farthest_points

    faces, area = _faces(domain)
    count = int(np.clip(area / finest**2, _BALLS, _MOST_BALLS))
    points = faces[farthest_points(faces, min(count, len(faces)))]
    distance, nearest = cKDTree(points).query(faces)
    cover = np.zeros(len(points))
    np.maximum.at(cover, nearest, distance)
    cover = np.maximum(cover, 0.25 * np.sqrt(area / len(points)))
    centres, radii = _inset(domain, points, cover)
    return Balls(centres, radii, points, cover)


def balls_on(points: Float64[np.ndarray, "s 3"]) -> Balls:
    """Balls centred on surface points of unknown inside (obstacles): these stand out by their radius."""
    ring = min(6, len(points))
    distance = cKDTree(points).query(points, k=ring)[0].reshape(len(points), ring)
    cover = 0.75 * distance[:, -1]
    return Balls(points, COVER * cover, points, cover)


def _faces(domain: Domain) -> tuple[np.ndarray, float]:
    """Points over the outer faces of the voxels, a grid on each, and the faces' area.

    Steps of voxels count as surface, so the area of a curved or tilted one is up to 1.7 times too large.
    """
    low = domain.cells.min(axis=0) - 1
    full = np.zeros(domain.cells.max(axis=0) - low + 2, bool)
    cells = domain.cells - low
    full[tuple(cells.T)] = True
    outer = []
    for axis in range(3):
        for side in (-1, 1):
            step = side * np.eye(3, dtype=np.int64)[axis]
            bare = ~full[tuple((cells + step).T)]
            outer.append((domain.centres[bare], axis, 0.5 * side * domain.spacing))
    total = sum(len(centres) for centres, _, _ in outer)
    split = int(np.clip(np.ceil(np.sqrt(_SAMPLES / max(total, 1))), 1, 12))
    offsets = (np.arange(split) - 0.5 * (split - 1)) * (domain.spacing / split)
    points = []
    for centres, axis, out in outer:
        grid = np.zeros((split, split, 3))
        first, second = (other for other in range(3) if other != axis)
        grid[..., axis] = out
        grid[..., first] = offsets[:, None]
        grid[..., second] = offsets[None, :]
        points.append((centres[:, None] + grid.reshape(1, -1, 3)).reshape(-1, 3))
    return np.concatenate(points), total * domain.spacing**2


def _depths(domain: Domain):
    """The signed depth [m] under the surface as a function of points, from the voxels' distance transform."""
    pad = 2
    low = domain.cells.min(axis=0) - pad
    full = np.zeros(domain.cells.max(axis=0) - low + pad + 1, bool)
    full[tuple((domain.cells - low).T)] = True
    inside, outside = ndimage.distance_transform_edt(full), ndimage.distance_transform_edt(~full)
    field = np.where(full, inside - 0.5, 0.5 - outside) * domain.spacing

    def depth(points: np.ndarray) -> np.ndarray:
        at = (points - domain.origin) / domain.spacing - 0.5 - low
        return ndimage.map_coordinates(field, at.T, order=1, mode="nearest")

    return depth


def _inset(domain: Domain, points: np.ndarray, cover: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move every surface point inwards to the centre of the largest ball that touches it from within."""
    depth = _depths(domain)
    least, most, stride = COVER * cover, _LARGEST * cover, 0.5 * domain.spacing
    at, centres, radii = points.copy(), points.copy(), np.zeros(len(points))
    step = np.minimum(stride, most / 8)  # so that small balls are found under coarse voxels too
    probe = 0.6 * domain.spacing * np.eye(3)
    for _ in range(int(np.clip(np.ceil(1.5 * (most / step).max()), 8, 200))):
        slope = np.stack([depth(at + e) - depth(at - e) for e in probe], axis=1)
        inwards = slope / np.maximum(np.linalg.norm(slope, axis=1), 1e-12)[:, None]
        at = at + step[:, None] * inwards
        now = depth(at)
        back = np.maximum(now - most, 0.0)
        now = now - back
        centre = at - back[:, None] * inwards
        short = np.linalg.norm(centre - points, axis=1) - now
        better = (now > radii + 1e-3 * step) & ((short <= _SAG * domain.spacing) | (radii < least))
        centres[better], radii[better] = centre[better], now[better]
    return centres, np.maximum(radii, least)
