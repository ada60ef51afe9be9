"""Regions with a prescribed displacement: the Dirichlet mask d(X) and the motion g(X, t) of eq. 12.

The paper's d is an indicator, 0 on the region and 1 elsewhere, which tears whatever crosses the border. Here d rises
smoothly over a width, d = 1 - (1 - s/w)^2 with s the distance to the region, and the prescribed motion fades out by
the same function: x = X + (1 - d) Z(t) [X; 1] + d sum_i W_i Z_i [X; 1]. On the region itself (d = 0) the prescribed
displacement still holds exactly, whatever the reduced coordinates (short of another region that lies within a width).

A region is a box, or any :class:`Shape`: a ball, the neighbourhood of labelled points, or one of these turned and
scaled with the object that it belongs to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.placement import Placement
from splatanim.errors import InputError

Motion = Callable[[float], np.ndarray]
"""t [s] -> the affine displacement Z (3, 4) of a region: X moves to X + Z [X; 1]."""

_SMOOTHED = 6  # neighbours whose distances are averaged, so that the mask of scattered points has no creases


def hold_still(_time: float) -> Float64[np.ndarray, "3 4"]:
    return np.zeros((3, 4))


@runtime_checkable
class Shape(Protocol):
    """A part of space, known by the distance to it."""

    def distance(
        self, points: Float64[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        """Distances [m], 0 inside, and their gradients (zero inside)."""
        ...


@dataclass(frozen=True)
class Ball:
    """All within ``radius`` [m] of ``centre``."""

    centre: tuple[float, float, float]
    radius: float

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise InputError(f"Sphere: the radius {self.radius} must be positive.")

    def distance(
        self, points: Float64[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        away = points - np.asarray(self.centre)
        length = np.linalg.norm(away, axis=1)
        outside = length > self.radius
        direction = np.where(outside[:, None], away / np.maximum(length, 1e-300)[:, None], 0.0)
        return np.maximum(length - self.radius, 0.0), direction


@dataclass(frozen=True)
class Cloud:
    """All within ``reach`` [m] of given points (k, 3), such as the splats of one label.

    The distance is the mean of those to the nearest few points, less ``reach``: creases halfway between two points
    would show in the splats' deformation gradients.
    """

    points: Float64[np.ndarray, "k 3"]
    reach: float

    def __post_init__(self) -> None:
        if not len(self.points):
            raise InputError("The region holds no point: nothing has its label.")
        if not self.reach > 0:
            raise InputError(f"Region: its reach {self.reach} around labelled points must be positive.")

    @cached_property
    def _tree(self):
        from scipy.spatial import cKDTree

        return cKDTree(self.points)

    def distance(
        self, points: Float64[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        k = min(_SMOOTHED, len(self.points))
        _, rows = self._tree.query(points, k=[*range(1, k + 1)])
        away = points[:, None] - self.points[rows]
        length = np.linalg.norm(away, axis=2)
        mean = length.mean(axis=1)
        direction = (away / np.maximum(length, 1e-300)[:, :, None]).mean(axis=1)
        outside = mean > self.reach
        return np.maximum(mean - self.reach, 0.0), np.where(outside[:, None], direction, 0.0)


@dataclass(frozen=True)
class Placed:
    """A shape of an object's own coordinates in the world that the object was placed in."""

    shape: Shape
    placement: Placement

    def distance(
        self, points: Float64[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        distance, direction = self.shape.distance(self.placement.to_local(points))
        return distance * self.placement.scale, direction @ self.placement.rotation.T


@dataclass(frozen=True)
class Region:
    """What follows ``motion``: an axis-aligned box (``lo``, ``hi``; infinite bounds give slabs and half-spaces), or a
    ``shape`` instead of the box. ``width`` [m] is that of the transition around it."""

    lo: tuple[float, float, float]
    hi: tuple[float, float, float]
    width: float
    motion: Motion = hold_still
    shape: Shape | None = None

    def __post_init__(self) -> None:
        if not all(a < b for a, b in zip(self.lo, self.hi, strict=True)):
            raise InputError(f"Pinned box: the low corner {self.lo} must lie below the high corner {self.hi}.")
        if not self.width > 0:
            raise InputError(f"Pinned box: the transition width {self.width} must be positive.")

    def distance(
        self, points: Float64[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        """Distances to the region [m] and their gradients, both zero inside."""
        if self.shape is not None:
            return self.shape.distance(points)
        below = np.maximum(np.asarray(self.lo) - points, 0.0)
        above = np.maximum(points - np.asarray(self.hi), 0.0)
        outward = above - below
        distance = np.linalg.norm(outward, axis=1)
        return distance, outward / np.maximum(distance, 1e-300)[:, None]

    def mask(self, points: Float64[np.ndarray, "n 3"]) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 3"]]:
        """d(X) in [0, 1] and its gradient [1/m]."""
        distance, direction = self.distance(points)
        slack = np.maximum(1.0 - distance / self.width, 0.0)
        return 1.0 - slack**2, (2.0 * slack / self.width)[:, None] * direction

    def contains(self, points: Float64[np.ndarray, "n 3"]) -> np.ndarray:
        if self.shape is not None:
            return self.distance(points)[0] == 0.0
        return np.all((points >= np.asarray(self.lo)) & (points <= np.asarray(self.hi)), axis=1)


def shaped(shape: Shape, width: float, motion: Motion = hold_still) -> Region:
    """The region of any shape."""
    return Region((-np.inf,) * 3, (np.inf,) * 3, width, motion, shape)


def placed(region: Region, placement: Placement) -> Region:
    """A region of an object's own coordinates, in the world; its ``width`` and ``motion`` are the world's already."""
    return dataclasses.replace(shaped(Placed(region, placement), region.width), motion=region.motion)


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
