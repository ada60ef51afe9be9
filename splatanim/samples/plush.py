"""A sitting teddy bear with fur, a lighter belly and muzzle, and a bow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from splatanim.data import Splats
from splatanim.samples import surfels as sf
from splatanim.samples.shapes import Points, Values, cone, ellipsoid, noise, ring, smooth_max, unit

SPACING = 0.009
FURS = np.array([[0.78, 0.50, 0.27], [0.66, 0.44, 0.30], [0.86, 0.66, 0.44], [0.62, 0.58, 0.56], [0.90, 0.62, 0.60]])
BOWS = np.array([[0.80, 0.13, 0.16], [0.13, 0.33, 0.70], [0.10, 0.52, 0.42], [0.55, 0.22, 0.62], [0.95, 0.62, 0.15]])
CREAM = np.array([0.97, 0.86, 0.70])


def make(seed: int) -> Splats:
    """The bear; see :func:`splatanim.samples.make_sample`."""
    rng = np.random.default_rng([seed, 1])
    parts, furry = _parts(rng, seed)
    skin = sf.surfels(parts, SPACING, rng)
    sdf = sf.union(parts)
    lighting = sf.light(skin.normals, *sf.baked(skin, sdf))
    soft = furry[skin.part]
    tone = 0.07 * noise(skin.points, rng, 0.10) + 0.06 * rng.normal(size=len(soft))
    colour = skin.colour * lighting * (1 + tone * soft)[:, None]
    base = _splat_rows(skin, colour, soft)
    hair = _fur(skin, skin.colour * lighting, soft, rng)
    points, frames, scales, colours, normals = (np.concatenate(pair) for pair in zip(base, hair))
    gloss = np.array([p.gloss for p in parts])[skin.part]
    strength = np.concatenate([gloss, np.zeros(len(hair[0]))])
    rim = np.concatenate([0.10 * soft, np.full(len(hair[0]), 0.10)])
    mirror = unit(2 * (normals @ sf.KEY)[:, None] * normals - sf.KEY)
    extra = sf.glow(-mirror, strength, lambda t: np.clip(t, 0, 1) ** 6)
    extra = extra + sf.glow(normals, rim, lambda t: (1 - np.abs(t)) ** 3)
    opacity = np.concatenate([np.full(len(soft), 0.97), np.full(len(hair[0]), 0.75)])
    return sf.to_splats(points, frames, scales, colours, opacity, extra)


def _splat_rows(skin: sf.Surfels, colour: Points, soft: np.ndarray) -> tuple[np.ndarray, ...]:
    frames = sf.tangent_frames(skin.normals, np.tile([0.0, -1.0, 0.1], (len(soft), 1)))
    scales = np.array([0.98, 0.98, 0.12]) * skin.spacing[:, None]
    inset = np.where(soft, 0.45 * SPACING, 0.0)[:, None]
    return skin.points - inset * skin.normals, frames, scales, colour * np.where(soft, 0.88, 1)[:, None], skin.normals


def _fur(skin: sf.Surfels, colour: Points, soft: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Short tufts, combed downward and outward, lighter toward the tips."""
    rows = np.repeat(np.flatnonzero(soft), 2)
    n = len(rows)
    normals = skin.normals[rows]
    down = np.array([0.0, -1.0, 0.15]) + 0.55 * rng.normal(size=(n, 3))
    flat = sf.tangent_frames(normals, down)
    lift = rng.uniform(0.25, 0.8, (n, 1))
    along = unit(flat[:, :, 0] + lift * normals)
    side = flat[:, :, 1]
    frames = np.stack([along, side, np.cross(along, side)], axis=2)
    length = SPACING * rng.uniform(0.7, 1.15, n)
    scales = np.stack([length, np.full(n, 0.26 * SPACING), np.full(n, 0.2 * SPACING)], axis=1)
    jitter = (flat[:, :, 0] * rng.normal(size=(n, 1)) + side * rng.normal(size=(n, 1))) * 0.45 * SPACING
    points = skin.points[rows] + jitter + normals * (0.15 + 0.35 * rng.random((n, 1))) * SPACING
    tint = 1 + 0.10 * rng.normal(size=(n, 1)) + np.array([0.02, 0.0, -0.02]) * rng.normal(size=(n, 1))
    return points, frames, scales, colour[rows] * 1.06 * tint, normals


def _parts(rng: np.random.Generator, seed: int) -> tuple[list[sf.Part], np.ndarray]:
    """The parts, and which of them are furry."""
    k = seed % len(FURS)
    fur = np.clip(FURS[k] + 0.02 * rng.normal(size=3), 0, 1)
    light = 0.25 * fur + 0.75 * CREAM
    bow = BOWS[(seed + seed // len(FURS)) % len(BOWS)]
    plump, ear = 1 + 0.06 * rng.uniform(-1, 1), 1 + 0.15 * rng.uniform(-1, 1)

    def flat(colour: np.ndarray):
        return lambda points, normals: np.tile(colour, (len(points), 1))

    def belly(points: Points, normals: Points) -> Points:
        inside = ((points[:, 0] / 0.135) ** 2 + ((points[:, 1] - 0.27) / 0.17) ** 2 < 1) & (normals[:, 2] > 0.1)
        return np.where(inside[:, None], light, fur)

    def ears(points: Points, normals: Points) -> Points:
        offset = np.hypot(np.abs(points[:, 0]) - 0.15 * ear, points[:, 1] - 0.885)
        return np.where(((offset < 0.046) & (normals[:, 2] > 0.55))[:, None], 0.3 * fur + 0.7 * CREAM, fur)

    def paws(points: Points, normals: Points) -> Points:
        offset = np.hypot(np.abs(points[:, 0]) - 0.215, points[:, 1] - 0.1)
        return np.where(((offset < 0.062) & (normals[:, 2] > 0.62))[:, None], light, fur)

    def eyes(points: Points, normals: Points) -> Points:
        glint = unit(normals)[:, None, :] @ unit(np.array([[-0.42, 0.48, 0.77]])).T
        return np.where(glint[:, 0] > 0.93, 0.99, np.array([0.05, 0.04, 0.04]))

    parts, furry = [], []

    def add(sdf, colour, fuzzy: bool = True, **options: Any) -> None:
        parts.append(sf.Part(sdf, colour, **options))
        furry.append(fuzzy)

    add(partial(ellipsoid, centre=(0, 0.27, 0), radii=(0.205 * plump, 0.25, 0.185 * plump)), belly)
    add(partial(ellipsoid, centre=(0, 0.675, 0.02), radii=(0.205, 0.185, 0.18)), flat(fur), blend=0.05)
    for side in (-1, 1):
        centre = (side * 0.15 * ear, 0.87, 0.0)
        add(partial(ellipsoid, centre=centre, radii=(0.075, 0.075, 0.042)), ears, blend=0.02)
        arm = ((side * 0.16, 0.45, 0.03), (side * 0.26, 0.25, 0.15), 0.07, 0.068)
        add(partial(cone, start=arm[0], end=arm[1], start_radius=arm[2], end_radius=arm[3]), flat(fur), blend=0.03)
        leg = ((side * 0.12, 0.11, 0.06), (side * 0.215, 0.098, 0.27))
        add(partial(cone, start=leg[0], end=leg[1], start_radius=0.10, end_radius=0.092), paws, blend=0.03)
    add(partial(ellipsoid, centre=(0, 0.628, 0.175), radii=(0.09, 0.07, 0.065)), flat(light), blend=0.015)
    dark = flat(np.array([0.17, 0.09, 0.07]))
    hard: dict[str, Any] = {"fuzzy": False, "detail": 2}
    add(partial(ellipsoid, centre=(0, 0.662, 0.236), radii=(0.033, 0.023, 0.02)), dark, gloss=0.35, **hard)
    for side in (-1, 1):
        eye = partial(ellipsoid, centre=(side * 0.078, 0.715, 0.178), radii=(0.026, 0.026, 0.026))
        add(eye, eyes, False, gloss=0.15, detail=4)
        loop = unit(np.array([[side, 0.28, 0], [-side * 0.28, 1, 0], [0, 0, 1.0]])).T
        wing = partial(ellipsoid, centre=(side * 0.08, 0.505, 0.195), radii=(0.068, 0.047, 0.026), axes=loop)
        add(partial(_notched, shape=wing, tip=side * 0.155), flat(bow), gloss=0.12, **hard)
        tail = partial(cone, start=(side * 0.01, 0.48, 0.2), end=(side * 0.06, 0.40, 0.205))
        add(partial(tail, start_radius=0.012, end_radius=0.022), flat(0.8 * bow), gloss=0.1, **hard)
    add(partial(ellipsoid, centre=(0, 0.497, 0.212), radii=(0.024, 0.028, 0.024)), flat(0.8 * bow), gloss=0.12, **hard)
    add(partial(ring, centre=(0, 0.51, 0.02), major=0.15, minor=0.018), flat(0.9 * bow), **hard)
    return parts, np.array(furry)


def _notched(points: Points, shape: Callable[[Points], Values], tip: float) -> Values:
    """A bow's loop: the shape with a dent at its outer end."""
    return smooth_max(shape(points), 0.03 - np.hypot(points[:, 0] - tip, points[:, 1] - 0.53), 0.02)
