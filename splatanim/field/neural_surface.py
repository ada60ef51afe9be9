"""What the shape encoder sees of an object: surface points and normals of its voxels, in [-1, 1]^3.

They come from the filled voxels and not from the splats or triangles that the voxels were made of, so that captures,
meshes and point clouds all look alike to the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64
from scipy import ndimage

from splatanim.data import Domain
from splatanim.sampling.surface import farthest_points
from splatanim.sampling.voxels import outer_shell

_MARGIN = 4  # voxels, so that the blur below sees the outside on every side
_BLUR = 1.5  # voxels


@dataclass(frozen=True)
class Surface:
    """Points and outward unit normals (zero where the surface has no side, as on sheets one voxel thick)."""

    points: Float64[np.ndarray, "s 3"]
    normals: Float64[np.ndarray, "s 3"]


@dataclass(frozen=True)
class Box:
    """The similarity that puts an object's voxels into [-1, 1]^3: ``(X - centre) / half``."""

    centre: Float64[np.ndarray, " 3"]
    half: float

    def normalise(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return (np.asarray(points, np.float64) - self.centre) / self.half


def box_of(domain: Domain) -> Box:
    low, high = domain.cells.min(axis=0), domain.cells.max(axis=0) + 1
    centre = domain.origin + (low + high) / 2 * domain.spacing
    return Box(centre, float((high - low).max()) * domain.spacing / 2)


def surface_of(domain: Domain) -> Surface:
    """The outermost voxels, moved half a voxel outward along the gradient of the blurred filling (domain's units)."""
    low = domain.cells.min(axis=0) - _MARGIN
    cells = domain.cells - low
    filled = np.zeros(cells.max(axis=0) + 1 + _MARGIN, bool)
    filled[tuple(cells.T)] = True
    shell = np.argwhere(outer_shell(filled))
    blurred = ndimage.gaussian_filter(filled.astype(np.float32), _BLUR, truncate=2.0)
    step = np.eye(3, dtype=np.int64)
    slope = np.stack([blurred[tuple((shell + e).T)] - blurred[tuple((shell - e).T)] for e in step], axis=1)
    length = np.linalg.norm(slope, axis=1, keepdims=True)
    normals = np.where(length > 1e-3, -slope / np.maximum(length, 1e-9), 0.0).astype(np.float64)
    points = domain.origin + (shell + low + 0.5) * domain.spacing + 0.5 * domain.spacing * normals
    return Surface(points, normals)


def anchored(surface: Surface, rng: np.random.Generator, count: int, anchors: int) -> Surface:
    """``count`` random surface points, the first ``anchors`` of them farthest from each other."""
    rows = rng.choice(len(surface.points), count, replace=count > len(surface.points))
    first = farthest_points(surface.points[rows], anchors)
    rest = np.setdiff1d(np.arange(count), first)
    rows = rows[np.concatenate([first, rest])]
    return Surface(surface.points[rows], surface.normals[rows])
