"""A cuddly octopus: a round head with large eyes and a smile, and eight arms that curl on the floor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.spatial import cKDTree

from splatanim.data import Splats
from splatanim.samples import surfels as sf
from splatanim.samples.shapes import Points, Values, ellipsoid, noise, tubes, unit

SPACING = 0.0072
SKINS = np.array([[0.93, 0.42, 0.30], [0.52, 0.36, 0.78], [0.18, 0.60, 0.66], [0.95, 0.55, 0.62], [0.95, 0.66, 0.22]])
UNDER = np.array([1.0, 0.86, 0.74])


def make(seed: int) -> Splats:
    """The octopus; see :func:`splatanim.samples.make_sample`."""
    rng = np.random.default_rng([seed, 4])
    tone = np.clip(SKINS[seed % len(SKINS)] + 0.02 * rng.normal(size=3), 0, 1)
    paths = _arm_paths(rng)
    parts = _parts(paths, tone, rng)
    skin = sf.surfels(parts, SPACING, rng)
    sdf = sf.union(parts)
    open_sky, direct = sf.baked(skin, sdf)
    lit = sf.light(skin.normals, open_sky, direct)
    colour = skin.colour * lit
    bounce = np.clip(-skin.normals[:, 1], 0, 1) * open_sky
    colour = colour + 0.12 * bounce[:, None] * skin.colour
    n = len(colour)
    frames = sf.tangent_frames(skin.normals, np.tile([0.0, 1.0, 0.0], (n, 1)))
    scales = np.array([0.98, 0.98, 0.12]) * skin.spacing[:, None]
    gloss = np.array([p.gloss for p in parts])[skin.part]
    mirror = unit(2 * (skin.normals @ sf.KEY)[:, None] * skin.normals - sf.KEY)
    extra = sf.glow(-mirror, gloss, lambda t: np.clip(t, 0, 1) ** 8)
    extra = extra + sf.glow(skin.normals, np.full(n, 0.14), lambda t: (1 - np.abs(t)) ** 3)
    return sf.to_splats(skin.points, frames, scales, colour, np.full(n, 0.97), extra)


def _arm_paths(rng: np.random.Generator) -> list[np.ndarray]:
    """Eight centre lines (12, 3) that come down from the head, run outward, and curl up at their tips."""
    paths = []
    for k in range(8):
        around = (k + 0.5) * np.pi / 4 + rng.normal(0, 0.05)
        bend = rng.choice([-1, 1]) * rng.uniform(0.5, 1.1)
        lift = rng.uniform(0.10, 0.22)
        t = np.linspace(0, 1, 12)
        reach = 0.13 + 0.44 * t - 0.07 * t**4
        angle = around + bend * t**2 * 0.6
        height = 0.062 + 0.20 * (1 - t) ** 3.2 - 0.020 * t + lift * np.clip(t - 0.62, 0, 1) ** 2 / 0.144 * 0.6
        paths.append(np.stack([reach * np.cos(angle), height, reach * np.sin(angle)], axis=1))
    return paths


def _parts(paths: list[np.ndarray], tone: np.ndarray, rng: np.random.Generator) -> list[sf.Part]:
    radii = 0.018 + 0.052 * (1 - np.linspace(0, 1, 12)) ** 0.8
    lines = cKDTree(np.concatenate(paths))

    spots = unit(rng.normal(size=(40, 3)) + np.array([0, 0.7, -0.3]))
    sizes = np.linspace(0.05, 0.15, len(spots))

    def skin(points: Points, normals: Points) -> Points:
        soft = 1 + 0.04 * noise(points, np.random.default_rng(5), 0.18)[:, None]
        high = np.clip((points[:, 1:2] - 0.1) / 0.75, 0, 1)
        colour = tone * (0.92 + 0.14 * high) * soft
        angle = np.arccos(np.clip(unit(points - [0, 0.58, 0]) @ spots.T, -1, 1)) / sizes
        face = (points[:, 2] > 0.08) & (points[:, 1] < 0.74)
        spot = np.clip((1 - angle.min(axis=1)) / 0.15, 0, 1) * (points[:, 1] > 0.42) * ~face
        colour = colour + (UNDER - colour) * 0.42 * spot[:, None]
        for side in (-1, 1):  # cheeks
            blush = np.exp(-((points - [side * 0.165, 0.485, 0.19]) ** 2).sum(axis=1) / 0.0016)[:, None]
            colour = colour + (np.array([1.0, 0.45, 0.48]) - colour) * 0.7 * blush
        return colour

    def arm_skin(points: Points, normals: Points) -> Points:
        colour = skin(points, normals)
        gap = lines.query(points)[1] % 12
        below = np.clip((-normals[:, 1] - 0.15) / 0.25, 0, 1)[:, None]
        pale = UNDER * np.where(gap % 2 == 0, 1.0, 0.9)[:, None]
        return colour + (pale - colour) * below

    parts = [
        sf.Part(partial(ellipsoid, centre=(0, 0.60, -0.01), radii=(0.265, 0.275, 0.25)), skin, gloss=0.22),
        sf.Part(partial(ellipsoid, centre=(0, 0.33, 0), radii=(0.20, 0.17, 0.19)), skin, blend=0.10, gloss=0.2),
        sf.Part(tubes(paths, radii, 0.3), arm_skin, blend=0.07, gloss=0.18),
    ]
    for side in (-1, 1):
        centre = np.array([side * 0.098, 0.575, 0.205])
        ball = partial(ellipsoid, centre=centre, radii=(0.062, 0.07, 0.045))
        parts.append(sf.Part(ball, _eye(centre), gloss=0.1, detail=4))
    lips = tubes([_smile(sf.union(parts[:2]))], np.array([4, 6, 7, 7, 7, 7, 7, 6, 4]) * 1e-3)
    parts.append(sf.Part(lips, lambda points, normals: np.tile([0.33, 0.07, 0.10], (len(points), 1)), detail=3))
    return parts


def _smile(face: Callable[[Points], Values]) -> Points:
    """The mouth's line (9, 3) on the face, by bisection along the view."""
    x = np.linspace(-0.062, 0.062, 9)
    near, far = np.full(9, 0.6), np.zeros(9)
    for _ in range(30):
        middle = (near + far) / 2
        inside = face(np.stack([x, 0.458 + 6.5 * x**2, middle], axis=1)) < 0
        near, far = np.where(inside, near, middle), np.where(inside, middle, far)
    return np.stack([x, 0.458 + 6.5 * x**2, near], axis=1)


def _eye(centre: np.ndarray):
    def colour(points: Points, normals: Points) -> Points:
        local = points - centre
        pupil = np.hypot(local[:, 0] + 0.10 * centre[0], local[:, 1] - 0.003) < 0.036
        glint = np.hypot(local[:, 0] + 0.016, local[:, 1] - 0.018) < 0.0125
        small = np.hypot(local[:, 0] - 0.014, local[:, 1] + 0.016) < 0.006
        white = np.where(pupil[:, None], [0.06, 0.04, 0.07], [0.99, 0.98, 0.96])
        return np.where((glint | small)[:, None], 1.0, white)

    return colour
