"""From distance functions to lit, surface-aligned Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.spatial import cKDTree

from splatanim.data import Splats
from splatanim.rotations import SH_C0, matrices_to_quaternions, sh_basis
from splatanim.samples.shapes import Points, Values, gradient, smooth_min, unit

KEY = unit(np.array([[-0.55, 0.75, 0.65]]))[0]  # direction to the main light, model frame
SKY, GROUND, SUN = np.array([0.66, 0.69, 0.74]), np.array([0.44, 0.40, 0.37]), np.array([0.68, 0.63, 0.55])


@dataclass(frozen=True)
class Part:
    """A piece of a model: its shape, its colour as a function of (points, normals), and how it joins the rest.

    ``blend`` is the fillet's width to the parts before it; ``gloss`` the strength of the highlight; ``detail``
    divides the spacing on small parts.
    """

    sdf: Callable[[Points], Values]
    colour: Callable[[Points, Points], Points]
    blend: float = 0.0
    gloss: float = 0.0
    detail: int = 1


@dataclass(frozen=True)
class Surfels:
    """Points on a surface with unit normals, the part that each belongs to, base colours in [0, 1], and the spacing."""

    points: Points
    normals: Points
    part: np.ndarray
    colour: Points
    spacing: Values


def union(parts: list[Part]) -> Callable[[Points], Values]:
    """The distance function of all parts together."""

    def sdf(points: Points) -> Values:
        total = parts[0].sdf(points)
        for part in parts[1:]:
            total = smooth_min(total, part.sdf(points), part.blend)
        return total

    return sdf


def surfels(parts: list[Part], spacing: float, rng: np.random.Generator, size: float = 1.2) -> Surfels:
    """Evenly spread points on the union of the parts, about ``spacing`` apart; it must lie within +-size of zero."""
    sdf = union(parts)
    detail = np.array([p.detail > 1 for p in parts])
    pieces = [(sdf, spacing)] + [(p.sdf, spacing / p.detail) for p in parts if p.detail > 1]
    kept, steps = [], []
    for k, (shape, step) in enumerate(pieces):
        points = on_surface(shape, step, rng, size)
        part = np.argmin(np.stack([p.sdf(points) for p in parts]), axis=0)
        points = points[~detail[part] if k == 0 else np.abs(sdf(points)) < 1e-3]
        kept.append(thin_out(points, step))
        steps.append(np.full(len(kept[-1]), step))
    points = np.concatenate(kept)
    normals = unit(gradient(sdf, points))
    part = np.argmin(np.stack([p.sdf(points) for p in parts]), axis=0)
    colour = np.zeros((len(points), 3))
    for k, p in enumerate(parts):
        rows = part == k
        if rows.any():
            colour[rows] = p.colour(points[rows], normals[rows])
    return Surfels(points, normals, part, colour, np.concatenate(steps))


def on_surface(sdf: Callable[[Points], Values], spacing: float, rng: np.random.Generator, size: float) -> Points:
    """Points spread at random over the zero set, about four for each square of side ``spacing``.

    Cells of a grid that may hold the surface get random points, which Newton steps along the gradient then project.
    """
    cell = 2 * size / 80
    axis = -size + 2 * cell * (np.arange(40) + 0.5)
    coarse = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    coarse = coarse[np.abs(sdf(coarse)) < 3.5 * cell]  # generous: the distance functions are not exact
    eighths = cell * (np.stack(np.meshgrid([0, 1], [0, 1], [0, 1]), axis=-1).reshape(-1, 3) - 0.5)
    cells = (coarse[:, None] + eighths).reshape(-1, 3)
    band = cells[np.abs(sdf(cells)) < 0.9 * cell]
    area = len(band) * cell**2 / 1.8
    wanted = int(4.2 * area / spacing**2)
    points = band[rng.integers(len(band), size=wanted)] + rng.uniform(-0.5, 0.5, (wanted, 3)) * cell
    value = sdf(points)
    slope = np.stack([sdf(points + move) - value for move in 1e-4 * np.eye(3)], axis=1) / 1e-4
    squared = np.maximum(np.einsum("nd,nd->n", slope, slope), 0.05)
    for _ in range(3):  # the slope of the first step serves the others: they are short
        points = points - np.clip(value / squared, -0.05, 0.05)[:, None] * slope
        value = sdf(points)
    return points[np.abs(value) < 1e-3]


def thin_out(points: Points, spacing: float) -> Float64[np.ndarray, "kept 3"]:
    """A subset with no two points closer than ``spacing`` that no further point fits into (first come, first kept)."""
    pairs = cKDTree(points).query_pairs(spacing, output_type="ndarray")
    state = np.zeros(len(points), np.int8)  # 0 open, 1 kept, -1 gone
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    while True:
        blocked = np.zeros(len(points), bool)
        blocked[high] = True  # has an open neighbour that comes first
        kept = (state == 0) & ~blocked
        state[kept] = 1
        state[high[state[low] == 1]] = -1
        alive = (state[low] == 0) & (state[high] == 0)
        low, high = low[alive], high[alive]
        if not (state == 0).any():
            return points[state == 1]


def occlusion(sdf: Callable[[Points], Values], points: Points, normals: Points, reach: float = 0.25) -> Values:
    """Ambient light that arrives, in [0, 1]: how fast the distance grows along the normal; the floor counts too."""
    open_sky = np.ones(len(points))
    for share, weight in ((0.08, 0.3), (0.25, 0.35), (0.55, 0.3), (1.0, 0.25)):
        away = points + normals * (share * reach)
        distance = np.minimum(sdf(away), away[:, 1])
        open_sky -= weight * np.clip(1 - distance / (share * reach), 0, 1)
    return np.clip(open_sky, 0, 1)


def shadow(sdf: Callable[[Points], Values], points: Points, normals: Points) -> Values:
    """Key light that arrives, in [0, 1]: soft shadows from the closest pass of a ray toward the light."""
    lit = np.ones(len(points))
    start = points + 0.012 * normals
    for t in (0.02, 0.05, 0.09, 0.14, 0.21, 0.3, 0.42):
        lit = np.minimum(lit, 0.5 + 4.0 * sdf(start + t * KEY) / t)
    lit = np.clip(lit, 0, 1)
    return lit * lit * (3 - 2 * lit)


def steady(points: Points, part: np.ndarray, values: Values) -> Values:
    """The median over the nearest nine points of the same part: no specks where parts meet."""
    result = values.copy()
    for k in np.unique(part):
        rows = np.flatnonzero(part == k)
        near = cKDTree(points[rows]).query(points[rows], k=min(9, len(rows)))[1].reshape(len(rows), -1)
        result[rows] = np.median(values[rows][near], axis=1)
    return result


def baked(skin: Surfels, sdf: Callable[[Points], Values]) -> tuple[Values, Values]:
    """Sky light and key light that arrive at each point (:func:`occlusion`, :func:`shadow`), without specks."""
    open_sky = occlusion(sdf, skin.points, skin.normals)
    lit = shadow(sdf, skin.points, skin.normals)
    return steady(skin.points, skin.part, open_sky), steady(skin.points, skin.part, lit)


def light(normals: Points, open_sky: Values, lit: Values) -> Points:
    """Light per channel: a sky and ground hemisphere dimmed by occlusion, and a wrapped key light."""
    blend = 0.5 + 0.5 * normals[:, 1:2]
    ambient = (GROUND + (SKY - GROUND) * blend) * (0.25 + 0.75 * open_sky[:, None])
    facing = np.clip((normals @ KEY + 0.3) / 1.3, 0, 1)
    return 1.05 * ambient + SUN * (facing * lit * (0.4 + 0.6 * open_sky))[:, None]


def tangent_frames(normals: Points, along: Points) -> Float64[np.ndarray, "n 3 3"]:
    """Rotations whose columns are: ``along`` made orthogonal to the normal, the side, the normal."""
    first = along - (along * normals).sum(axis=1, keepdims=True) * normals
    short = np.linalg.norm(first, axis=1) < 1e-6
    first[short] = np.cross(normals[short], [0.6, 0.0, 0.8])
    first = unit(first)
    return np.stack([first, np.cross(normals, first), normals], axis=2)


def glow(directions: Points, strength: Values, profile: Callable[[Values], Values]) -> Float64[np.ndarray, "n 9 1"]:
    """SH coefficients (degree 2) of a white term ``strength * profile(cos angle)`` about each direction.

    The angle is between the direction and the one from the camera to the splat. The coefficients of a function of
    the angle alone are those of its Legendre series times the basis (Funk-Hecke).
    """
    t, weight = np.polynomial.legendre.leggauss(64)
    value = profile(t)
    legendre = (np.ones_like(t), t, 1.5 * t * t - 0.5)
    bands = [2 * np.pi * float((weight * value * p).sum()) for p in legendre]
    factors = np.repeat(bands, [1, 3, 5])
    return (sh_basis(directions, 2) * factors * strength[:, None])[:, :, None]


def to_splats(
    points: Points,
    frames: Float64[np.ndarray, "n 3 3"],
    scales: Points,
    colour: Points,
    opacity: Values,
    extra: Float64[np.ndarray, "n 9 1"] | None = None,
) -> Splats:
    """Splats in the file convention (y down, front along minus z, longest side 1, base at y = 0).

    ``frames`` holds the axes of the Gaussians as columns, model frame; ``scales`` their standard deviations; ``extra``
    a white view-dependent term whose directions are those of the model frame.
    """
    flip = np.diag([1.0, -1.0, -1.0])
    size = float(np.ptp(points, axis=0).max())
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    base = np.array([middle[0], points[:, 1].min(), middle[2]])
    sh = ((np.clip(colour, 0.01, 0.99) - 0.5) / SH_C0)[:, None, :]
    if extra is not None:
        signs = np.array([1, -1, -1, 1, -1, 1, 1, -1, 1.0])  # of the basis under the flip: y and z change sign
        rest = np.repeat(extra * signs[:, None], 3, axis=2)
        sh = np.concatenate([sh + rest[:, :1], rest[:, 1:]], axis=1)
    return Splats(
        ((points - base) @ flip / size).astype(np.float32),
        matrices_to_quaternions(flip @ frames).astype(np.float32),
        np.log(scales / size).astype(np.float32),
        np.log(opacity / (1 - opacity)).astype(np.float32),
        sh.astype(np.float32),
    )
