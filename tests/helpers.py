"""Seeded scenes and closed forms that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from splatanim.data import Cubature, Domain, Splats

DATA = Path(os.environ.get("SPLATANIM_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))


def data_file(name: str) -> Path:
    """A file of the data folder; the test is skipped where it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here (set SPLATANIM_DATA to the data folder)")
    return path


def box_cubature(cells: tuple[int, int, int], spacing: float, stride: int = 1) -> Cubature:
    """A box of voxels centred at the origin; every voxel (or block of stride^3) is a cubature point."""
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in cells), indexing="ij"), axis=-1).reshape(-1, 3)
    origin = -0.5 * spacing * np.array(cells, float)
    domain = Domain(grid, origin, spacing)
    coarse = [np.arange(n // stride) for n in cells]
    blocks = np.stack(np.meshgrid(*coarse, indexing="ij"), axis=-1).reshape(-1, 3)
    points = origin + (blocks + 0.5) * stride * spacing
    volumes = np.full(len(points), (stride * spacing) ** 3)
    low, high = origin, -origin
    ends = np.stack(np.meshgrid(*([a, 0.5 * (a + b), b] for a, b in zip(low, high, strict=True)), indexing="ij"), -1)
    surface = ends.reshape(-1, 3)
    surface = surface[(np.abs(surface) > 1e-12).any(axis=1)]
    return Cubature(points, volumes, surface, domain, "box")


def random_splats(count: int, degree: int = 3, seed: int = 0) -> Splats:
    """Random splats in [-1, 1]^3 with unit quaternions."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(count, 4))
    return Splats(
        rng.uniform(-1, 1, (count, 3)).astype(np.float32),
        (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(np.float32),
        (np.log(0.05) + 0.5 * rng.normal(size=(count, 3))).astype(np.float32),
        rng.normal(1.0, 1.5, count).astype(np.float32),
        (0.3 * rng.normal(size=(count, (degree + 1) ** 2, 3))).astype(np.float32),
    )


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.sign(np.linalg.det(q))


def branching_domain(seed: int = 0, spacing: float = 1 / 40) -> Domain:
    """A trunk with eight seeded branches of capsules, voxelised: thin parts and forks, as plants and figures have."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.arange(48),) * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    points = (grid + 0.5) * spacing - 0.6
    ends = [(np.array([0.0, 0.0, -0.5]), np.array([0.0, 0.0, 0.3]), 0.10)]
    for height in np.linspace(-0.3, 0.3, 8):
        way = rng.normal(size=3) * [1.0, 1.0, 0.4] + [0.0, 0.0, 0.3]
        foot = np.array([0.0, 0.0, height])
        ends.append((foot, foot + 0.4 * way / np.linalg.norm(way), rng.uniform(0.04, 0.06)))
    inside = np.zeros(len(points), bool)
    for a, b, radius in ends:
        along = np.clip((points - a) @ (b - a) / ((b - a) @ (b - a)), 0.0, 1.0)
        inside |= np.linalg.norm(points - a - along[:, None] * (b - a), axis=1) < radius
    return Domain(grid[inside], np.full(3, -0.6), spacing)


def hears_interrupts() -> None:
    """For ``preexec_fn``: a child of a shell's background job would ignore Ctrl-C."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition, seconds: float):
    """Wait for a condition to come true, ``seconds`` at most, and return it."""
    import time

    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)
    return found
