"""A moulded fruit jelly: fluted, layered in colour, translucent, with fruit inside and a cherry on top."""

from __future__ import annotations

import numpy as np

from splatanim.data import Splats
from splatanim.samples import surfels as sf
from splatanim.samples.shapes import Points, Values, ellipsoid, gradient, ring, smooth_max, smooth_min, tubes, unit

SPACING = 0.0088
HEIGHT = 0.52
FLAVOURS = np.array(  # bottom, middle, top
    [
        [[0.86, 0.05, 0.16], [0.98, 0.32, 0.16], [1.00, 0.66, 0.16]],
        [[0.10, 0.50, 0.22], [0.48, 0.80, 0.16], [0.90, 0.93, 0.30]],
        [[0.42, 0.10, 0.55], [0.80, 0.18, 0.55], [1.00, 0.50, 0.62]],
        [[0.05, 0.34, 0.66], [0.10, 0.66, 0.78], [0.60, 0.90, 0.80]],
    ]
)


def make(seed: int) -> Splats:
    """The jelly; see :func:`splatanim.samples.make_sample`."""
    rng = np.random.default_rng([seed, 2])
    flavour = np.clip(FLAVOURS[seed % len(FLAVOURS)] + 0.02 * rng.normal(size=(3, 3)), 0, 1)
    flutes, depth, phase = int(rng.integers(9, 14)), rng.uniform(0.028, 0.042), rng.uniform(0, 2 * np.pi)

    def mould(points: Points) -> Values:
        return _mould(points, flutes, depth, phase)

    skin = _skin(mould, flavour, rng)
    core = _core(mould, flavour, rng)
    fruit = _fruit(mould, rng)
    cherry = _cherry(mould, rng)
    return sf.to_splats(*(np.concatenate(columns) for columns in zip(skin, core, fruit, cherry)))


def _mould(points: Points, flutes: int, depth: float, phase: float) -> Values:
    """A fluted frustum, wider at the foot, with a rounded shoulder, a domed crown and a dimple in it."""
    x, y, z = points.T
    radius, angle = np.hypot(x, z), np.arctan2(z, x)
    height = np.clip(y / HEIGHT, 0, 1)
    ripple = depth * (np.abs(np.cos(0.5 * flutes * angle + phase)) ** 0.8 - 0.5) * np.clip(radius / 0.2, 0, 1)
    wall = radius - (0.46 - 0.16 * height - 0.05 * height**3 + ripple)
    body = smooth_max(0.85 * wall, y - HEIGHT, 0.10)
    crown = ellipsoid(points, (0, HEIGHT - 0.02, 0), (0.19, 0.075, 0.19))
    dimple = ellipsoid(points, (0, HEIGHT + 0.085, 0), (0.075, 0.055, 0.075))
    foot = ring(points, (0, 0.035, 0), 0.44, 0.035)
    body = smooth_min(smooth_min(body, crown, 0.06), foot, 0.04)
    return smooth_max(smooth_max(body, -dimple, 0.03), -y, 0.03)


def _tint(points: Points, flavour: Points) -> Points:
    """Three layers with soft seams."""
    t = np.clip(points[:, 1:2] / HEIGHT, 0, 1)
    first = 1 / (1 + np.exp(-(t - 0.36) / 0.025))
    second = 1 / (1 + np.exp(-(t - 0.70) / 0.025))
    return flavour[0] + (flavour[1] - flavour[0]) * first + (flavour[2] - flavour[1]) * second


Rows = tuple[Points, np.ndarray, Points, Points, Values, np.ndarray]


def _skin(mould, flavour: Points, rng: np.random.Generator) -> Rows:
    points = sf.thin_out(sf.on_surface(mould, SPACING, rng, 0.75), SPACING)
    normals = unit(gradient(mould, points))
    n = len(points)
    facing = normals @ sf.KEY
    glow = 0.78 + 0.18 * np.clip(-normals[:, 2] * 0.3 + 0.7 * normals[:, 1], -1, 1) + 0.16 * np.clip(-facing, 0, 1)
    hollow = sf.occlusion(mould, points, normals, 0.12)
    colour = _tint(points, flavour) * (glow * (0.72 + 0.28 * hollow))[:, None]
    # Window reflections: two soft patches along each flute, where the normal points near a lamp.
    shine = np.zeros(n)
    for lamp, width, amount in ((sf.KEY, 0.10, 0.75), (unit(np.array([[0.75, 0.5, 0.4]]))[0], 0.06, 0.35)):
        middle = unit((lamp + np.array([0, 0.15, 0.75]))[None])[0]
        shine += amount * np.exp(-(1 - normals @ middle) / (0.35 * width))
    crown = np.exp(-((normals[:, 1] - 0.80) ** 2) / 0.006) * (points[:, 1] > 0.6 * HEIGHT)
    shine = np.clip(shine + 0.25 * crown * np.clip(facing, 0, 1), 0, 0.85)
    colour = colour + (1 - colour) * shine[:, None]
    frames = sf.tangent_frames(normals, np.tile([0.0, 1.0, 0.0], (n, 1)))
    scales = np.tile(np.array([0.95, 0.95, 0.10]) * SPACING, (n, 1))
    opacity = np.clip(0.42 + 0.5 * shine, 0, 0.9)
    mirror = unit(2 * facing[:, None] * normals - sf.KEY)
    extra = sf.glow(-mirror, np.full(n, 0.30), lambda t: np.clip(t, 0, 1) ** 8)
    extra = extra + sf.glow(normals, np.full(n, 0.14), lambda t: (1 - np.abs(t)) ** 3)
    return points, frames, scales, colour, opacity, extra


def _core(mould, flavour: Points, rng: np.random.Generator) -> Rows:
    """Large soft blobs inside, brighter toward the side away from the light: it scatters through."""
    points = rng.uniform([-0.5, 0, -0.5], [0.5, HEIGHT, 0.5], (30_000, 3))
    points = points[mould(points) < -0.035]
    points = sf.thin_out(points, 0.036)
    n = len(points)
    through = np.clip(0.5 - points @ sf.KEY / 0.8, 0, 1)
    colour = _tint(points, flavour) * (0.78 + 0.30 * through)[:, None]
    frames = np.tile(np.eye(3), (n, 1, 1))
    return points, frames, np.full((n, 3), 0.017), colour, np.full(n, 0.10), np.zeros((n, 9, 1))


def _fruit(mould, rng: np.random.Generator) -> Rows:
    """Berries set into the jelly."""
    kinds = np.array([[0.80, 0.04, 0.10], [0.16, 0.14, 0.42], [0.98, 0.72, 0.16], [0.45, 0.70, 0.16]])
    places = rng.uniform([-0.36, 0.07, -0.36], [0.36, HEIGHT - 0.1, 0.36], (4000, 3))
    depth = -mould(places)
    places = sf.thin_out(places[(depth > 0.062) & (depth < 0.085)], 0.17)[:16]
    rows = []
    for place in places:
        radius = rng.uniform(0.042, 0.055)
        normals = unit(rng.normal(size=(3000, 3)))
        normals = sf.thin_out(normals, 0.011 / radius)
        lit = sf.light(normals, np.full(len(normals), 0.9), np.full(len(normals), 0.8))
        seeds = 1 - 0.22 * (np.sin(normals * 11).prod(axis=1) > 0.25)
        colour = kinds[rng.integers(len(kinds))] * lit * seeds[:, None]
        rows.append(_solid(place + radius * normals, normals, colour, 0.011, 0.25))
    return tuple(np.concatenate(column) for column in zip(*rows))  # type: ignore[return-value]


def _cherry(mould, rng: np.random.Generator) -> Rows:
    seat = np.array([0.0, HEIGHT + 0.115, 0.0])
    bend = rng.uniform(-0.06, 0.10)
    t = np.linspace(0, 1, 6)[:, None]
    path = seat + np.array([0, 0.07, 0]) + t * np.array([0.03, 0.20, 0.0]) + t**2 * np.array([bend, 0.0, 0.03])

    def berry(points: Points) -> Values:
        return smooth_max(
            ellipsoid(points, seat, (0.092, 0.085, 0.092)),
            -ellipsoid(points, seat + np.array([0, 0.10, 0]), (0.035, 0.03, 0.035)),
            0.03,
        )

    def red(points: Points, normals: Points) -> Points:
        glint = np.exp(-(1 - normals @ unit(np.array([[-0.38, 0.62, 0.68]]))[0]) / 0.02)[:, None]
        return np.array([0.86, 0.05, 0.09]) * (1 - glint) + 1.3 * glint

    def green(points: Points, normals: Points) -> Points:
        return np.tile([0.42, 0.50, 0.14], (len(points), 1))

    stalk = np.linspace(0.012, 0.009, 6)
    parts = [sf.Part(berry, red, gloss=0.3), sf.Part(tubes([path], stalk), green, detail=2)]
    skin = sf.surfels(parts, 0.010, rng, 0.9)
    lit = sf.light(skin.normals, sf.occlusion(mould, skin.points, skin.normals), np.ones(len(skin.points)))
    return _solid(skin.points, skin.normals, skin.colour * lit, skin.spacing, 0.30)


def _solid(points: Points, normals: Points, colour: Points, spacing: float | Values, gloss: float) -> Rows:
    """Rows of an opaque glossy surface."""
    n = len(points)
    frames = sf.tangent_frames(normals, np.tile([0.0, 1.0, 0.0], (n, 1)))
    scales = np.array([0.98, 0.98, 0.12]) * np.broadcast_to(spacing, n)[:, None]
    mirror = unit(2 * (normals @ sf.KEY)[:, None] * normals - sf.KEY)
    extra = sf.glow(-mirror, np.full(n, gloss), lambda t: np.clip(t, 0, 1) ** 8)
    return points, frames, scales, colour, np.full(n, 0.97), extra
