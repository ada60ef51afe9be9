"""A potted plant: a terracotta pot with a rim, soil, and curved leaves with veins on arching stems."""

from __future__ import annotations

import numpy as np

from splatanim.data import Splats
from splatanim.samples import surfels as sf
from splatanim.samples.shapes import Points, Values, noise, smooth_max, smooth_min, tubes, unit

SPACING = 0.0085
LEAF = 0.0058  # spacing on leaves
CLAYS = np.array([[0.78, 0.40, 0.25], [0.86, 0.84, 0.80], [0.30, 0.48, 0.58], [0.72, 0.50, 0.34]])
GREENS = np.array([[0.20, 0.50, 0.16], [0.12, 0.42, 0.24], [0.36, 0.55, 0.14]])
RIM, SOIL = 0.34, 0.305  # heights of the pot's rim and of the soil

Rows = tuple[Points, np.ndarray, Points, Points, Values, np.ndarray]


def make(seed: int) -> Splats:
    """The plant; see :func:`splatanim.samples.make_sample`."""
    rng = np.random.default_rng([seed, 3])
    leaves, stems = [], []
    count = int(rng.integers(11, 15))
    green = np.clip(GREENS[seed % len(GREENS)] + 0.02 * rng.normal(size=3), 0, 1)
    turn = rng.uniform(0, 2 * np.pi)
    for k in range(count):
        young = k / (count - 1)  # old leaves hang low and wide, young ones stand in the middle
        around = turn + k * np.pi * (3 - 5**0.5) + rng.normal(0, 0.12)
        stem, leaf = _leaf(around, young, green, rng)
        stems.append(stem)
        leaves.append(leaf)
    pot = _pot(CLAYS[seed % len(CLAYS)], stems, green, rng)
    return sf.to_splats(*(np.concatenate(columns) for columns in zip(pot, *leaves)))


def _leaf(around: float, young: float, green: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Rows]:
    """The path of a stem (12, 3), and the leaf at its end."""
    out = np.array([np.cos(around), 0.0, np.sin(around)])
    rise = np.radians(18 + 62 * young + rng.normal(0, 4))
    reach = 0.27 + 0.10 * young + rng.normal(0, 0.02)
    t = np.linspace(0, 1, 12)[:, None]
    tip = reach * (np.cos(rise) * out + np.sin(rise) * np.array([0, 1.0, 0]))
    lift = np.array([0, 0.10 + 0.14 * young, 0])
    stem = np.array([0, SOIL - 0.01, 0]) + 0.03 * out + t * tip + (1 - (1 - t) ** 2) * lift
    heading = unit((stem[-1] - stem[-3])[None])[0]
    length = rng.uniform(0.30, 0.38) * (1.0 - 0.28 * young)
    width = length * rng.uniform(0.34, 0.42)
    droop = rng.uniform(1.0, 1.5) * (1 - 0.45 * young)

    n = int(2.6 * length * width * 1.3 / LEAF**2)
    u, v = rng.random(n), rng.uniform(-1, 1, n)
    half = width * _outline(u)
    keep = rng.random(n) < half / half.max()
    u, v = u[keep], v[keep]
    edge = np.linspace(0.004, 0.996, int(2 * length / LEAF))
    u = np.concatenate([edge, edge, edge, u])  # the rims and the midrib first, for a clean outline
    v = np.concatenate([np.ones_like(edge), -np.ones_like(edge), np.zeros_like(edge), v])
    flat = sf.thin_out(np.stack([u * length, v * width * _outline(u), np.zeros(len(u))], axis=1), LEAF)
    u = flat[:, 0] / length
    v = np.clip(flat[:, 1] / np.maximum(width * _outline(u), 1e-9), -1, 1)
    wave, curl = rng.uniform(0, 2 * np.pi), rng.uniform(0.25, 0.45)

    def surface(u: Values, v: Values) -> Points:
        angle = -droop * u**1.3  # the midrib bends down along the leaf
        rib = stem[-1] + _arc(u, heading, droop, length)
        side = unit(np.cross([0, 1.0, 0], out)[None])[0]
        level = out * np.hypot(heading[0], heading[2]) + np.array([0, heading[1], 0])
        normal_up = unit(np.cross(level, side)[None])[0]
        normal_up = normal_up * np.sign(normal_up[1] + 1e-9)
        up = np.cos(angle)[:, None] * normal_up - np.sin(angle)[:, None] * level * -1.0
        half = (width * _outline(u) * v)[:, None]
        ruffle = 0.010 * np.sin(17 * u + wave) * v**2 + curl * np.abs(v) ** 1.7 * width * _outline(u)
        return rib + half * side + ruffle[:, None] * up

    points = surface(u, v)
    du = surface(u + 1e-4, v) - points
    dv = surface(u, v + 1e-3) - points
    normals = unit(np.cross(du, dv))
    normals *= np.sign(normals[:, 1:2] + 1e-9)
    return stem, _leaf_rows(points, normals, du, u, v, green, young, rng)


def _outline(u: Values) -> Values:
    """Half the width of a leaf along it, at most 1: round near the stem, a drawn-out tip."""
    return np.clip(2.05 * np.clip(u, 1e-6, 1) ** 0.62 * np.clip(1 - u, 0, 1) ** 0.85, 0, 1.2) / 1.03


def _arc(u: Values, heading: np.ndarray, droop: float, length: float) -> Points:
    """The midrib: starts along the heading and turns downward by ``droop`` radians in all."""
    level = unit(np.array([[heading[0], 0, heading[2]]]))[0]
    rise = np.arctan2(heading[1], np.hypot(heading[0], heading[2]))
    s = np.linspace(0, 1.05, 80)
    angle = rise - droop * s**1.3
    steps = length * (s[1] - s[0]) * (np.cos(angle)[:, None] * level + np.sin(angle)[:, None] * np.array([0, 1.0, 0]))
    path = np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)])[:-1]
    return np.stack([np.interp(u, s, path[:, axis]) for axis in range(3)], axis=1)


def _leaf_rows(
    points: Points, normals: Points, du: Points, u: Values, v: Values, green: np.ndarray, young: float, rng
) -> Rows:
    """Colours with a pale midrib and side veins, lit from above, as rows of splats."""
    n = len(points)
    rib = np.exp(-((v / 0.05) ** 2)) * (1 - 0.5 * u)
    phase = (u * 8.5 - 1.5 * np.abs(v)) % 1.0
    vein = np.exp(-(((phase - 0.5) / 0.09) ** 2)) * (np.abs(v) < 0.93) * (1 - 0.4 * u)
    pale = 0.45 * green + 0.55 * np.array([0.75, 0.86, 0.45])
    base = green * (0.88 + 0.28 * young) + np.array([0.10, 0.07, 0.0]) * (u**3)[:, None]
    base = base * (1 + 0.06 * noise(points, rng, 0.08)[:, None] - 0.10 * (np.abs(v) ** 4)[:, None])
    mix = np.clip(0.75 * rib + 0.36 * vein, 0, 1)[:, None]
    core = np.exp(-((np.hypot(points[:, 0], points[:, 2]) / 0.16) ** 2 + ((points[:, 1] - 0.35) / 0.25) ** 2))
    lit = sf.light(normals, 1 - 0.65 * core, np.full(n, 0.95))
    colour = (base + (pale - base) * mix) * lit * 1.12
    frames = sf.tangent_frames(normals, du)
    scales = np.tile(np.array([0.85, 0.80, 0.10]) * LEAF, (n, 1))
    mirror = unit(2 * (normals @ sf.KEY)[:, None] * normals - sf.KEY)
    extra = sf.glow(-mirror, np.full(n, 0.13), lambda t: np.clip(t, 0, 1) ** 6)
    return points, frames, scales, colour, np.full(n, 0.96), extra


def _pot(clay: np.ndarray, stems: list[np.ndarray], green: np.ndarray, rng: np.random.Generator) -> Rows:
    grain = np.random.default_rng(rng.integers(2**32))
    waves = rng.normal(0, 40, (12, 3)), rng.uniform(0, 6.28, 12)

    def pot(points: Points) -> Values:
        radius, y = np.hypot(points[:, 0], points[:, 2]), points[:, 1]
        body = smooth_max(0.96 * (radius - 0.155 - 0.19 * y), np.maximum(y - RIM, -y), 0.02)
        rim = smooth_max(np.abs(radius - 0.215) - 0.027, np.abs(y - 0.305) - 0.042, 0.022)
        return smooth_max(smooth_min(body, rim, 0.012), -np.maximum(radius - 0.196, SOIL - 0.02 - y), 0.012)

    def soil(points: Points) -> Values:
        radius, y = np.hypot(points[:, 0], points[:, 2]), points[:, 1]
        bumps = 0.004 * np.sin(points @ waves[0].T + waves[1]).sum(axis=1) / 3
        heap = np.maximum(0.8 * (y - SOIL - bumps - 0.02 * np.cos(radius * 8)), SOIL - 0.03 - y)
        return smooth_max(heap, radius - 0.20, 0.01)

    def pot_colour(points: Points, normals: Points) -> Points:
        speck = 1 + 0.05 * noise(points, grain, 0.13) + 0.035 * grain.normal(size=len(points))
        band = 1 - 0.10 * np.exp(-(((points[:, 1] - 0.258) / 0.008) ** 2)) - 0.18 * np.exp(-points[:, 1] / 0.03)
        return clay * (speck * band)[:, None]

    def soil_colour(points: Points, normals: Points) -> Points:
        crumbs = 1 + 0.22 * grain.normal(size=(len(points), 1))
        return np.clip(np.array([0.25, 0.165, 0.11]) * crumbs, 0.02, 1)

    def stem_colour(points: Points, normals: Points) -> Points:
        high = np.clip((points[:, 1:2] - SOIL) / 0.25, 0, 1)
        return (0.6 * green + 0.4 * np.array([0.62, 0.62, 0.28])) * (1.0 + 0.35 * high)

    stalks = tubes(stems, np.linspace(0.0105, 0.006, len(stems[0])))
    parts = [sf.Part(pot, pot_colour), sf.Part(soil, soil_colour), sf.Part(stalks, stem_colour, detail=2)]
    skin = sf.surfels(parts, SPACING, rng, 1.0)
    sdf = sf.union(parts)
    open_sky, direct = sf.baked(skin, sdf)
    shade = np.where((skin.part == 1) | (skin.points[:, 1] > SOIL), 0.75, 1.0)  # under the leaves
    lit = sf.light(skin.normals, open_sky * shade, direct * shade)
    n = len(lit)
    frames = sf.tangent_frames(skin.normals, np.tile([0.0, 1.0, 0.0], (n, 1)))
    scales = np.array([0.98, 0.98, 0.12]) * skin.spacing[:, None]
    return skin.points, frames, scales, skin.colour * lit, np.full(n, 0.97), np.zeros((n, 9, 1))
