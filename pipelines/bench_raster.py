"""How fast the CPU rasteriser is, and how exact: medians and ratios on seeded scenes."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.render.camera import Camera, look_at
from splatanim.render.order import morton_order

PEER = "splat_best"
_C0 = 0.28209479177387814  # the constant spherical harmonic


@dataclass(frozen=True)
class BenchRaster:
    """Time the CPU rasteriser on seeded scenes and hold a small image against the float64 brute force."""

    splats: tuple[int, ...] = (100_000, 500_000)
    """Numbers of splats."""
    degrees: tuple[int, ...] = (0, 3)
    """Spherical harmonics degrees."""
    sizes: tuple[int, ...] = (512, 1024)
    """Image sizes in pixels (square)."""
    threads: tuple[int, ...] = (1, 2)
    """Numbers of threads."""
    repeats: int = 9
    """Timed frames per case; medians are printed."""
    against: Path | None = None
    """A folder with splat_best.py, run in turns with ours in the same process."""
    json: Path | None = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class Row:
    """One case: medians in milliseconds per frame; the peer's are None where there is none."""

    splats: int
    degree: int
    size: int
    threads: int
    cpu_ms: float
    wall_ms: float
    peer_cpu_ms: float | None = None
    peer_wall_ms: float | None = None
    peer_psnr_db: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's: CPU time on one thread, wall time on several; below 1 ours is faster."""
        if self.peer_cpu_ms is None or self.peer_wall_ms is None:
            return None
        return self.cpu_ms / self.peer_cpu_ms if self.threads == 1 else self.wall_ms / self.peer_wall_ms


def bench_raster(config: BenchRaster) -> list[Row]:
    """Run all cases, print a table, write the JSON file if one is asked for."""
    from splatanim.render.cpu import CpuRasterizer

    peer = None if config.against is None else _load_peer(config.against)
    begin = time.perf_counter()
    psnr = accuracy()
    print(f"image against float64 brute force: {psnr:.1f} dB")
    print(f"first image, compiled or loaded from the cache: {time.perf_counter() - begin:.1f} s with the brute force")
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, medians of {config.repeats}, milliseconds a frame")
    print(
        f"{'scene':>14} {'size':>5} {'threads':>7} {'cpu':>8} {'wall':>8} {'peer cpu':>9} {'peer wall':>9} {'ratio':>6}"
    )
    rows = []
    for count in config.splats:
        for degree in config.degrees:
            scene = bumpy_sphere(count, degree)
            for size in config.sizes:
                for threads in config.threads:
                    rasterizer = CpuRasterizer(threads)
                    camera = bench_camera(size)
                    other = None if peer is None else _peer_frame(peer, scene, camera, threads)
                    row = _time_case(scene, camera, threads, rasterizer, other, config.repeats)
                    rows.append(row)
                    print(_line(row), flush=True)
    if config.json is not None:
        figures = {
            "machine": platform.machine(),
            "processor": platform.processor(),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "psnr_db": psnr,
            "rows": [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows],
        }
        with atomic_path(config.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return rows


def accuracy(count: int = 400, size: int = 128) -> float:
    """PSNR [dB] of the CPU rasteriser against the float64 brute force on a small scene."""
    from splatanim.render.cpu import CpuRasterizer
    from splatanim.render.reference import rasterize_reference

    scene, camera, background = bumpy_sphere(count, 3), bench_camera(size), (0.2, 0.4, 0.6)
    image = CpuRasterizer(1).render(scene, camera, background=background).rgb
    return image_psnr(image, rasterize_reference(scene, camera, background=background)[0])


def image_psnr(image: np.ndarray, other: np.ndarray) -> float:
    """Peak signal-to-noise ratio [dB] of images in [0, 1]."""
    error = float(np.mean((np.asarray(image, np.float64) - other) ** 2))
    return float("inf") if error == 0 else -10 * float(np.log10(error))


def bumpy_sphere(count: int, degree: int, seed: int = 0) -> Splats:
    """A closed bumpy surface of about unit radius, covered with thin Gaussians that lie in it, in Morton order.

    As in captures: log-normal sizes around the mean spacing, uneven axes, faint and solid splats mixed, quaternions
    not normalised.
    """
    rng = np.random.default_rng(seed)
    directions = _normalise(rng.normal(size=(count, 3)))
    points = directions * _bumpy_radius(directions)[:, None]
    normals = _surface_normals(points)
    size = 0.75 * np.sqrt(4 * np.pi / count) * np.exp(rng.normal(0, 0.55, count))
    stretch = np.exp(rng.normal(0, 0.25, count))
    thickness = 0.15 * np.exp(rng.normal(0, 0.3, count))
    colour = 0.5 + 0.35 * np.sin(points * [6, 7, 8] + [0, 1, 2]) + rng.normal(0, 0.05, (count, 3))
    sh = rng.normal(0, 0.06, (count, (degree + 1) ** 2, 3))
    sh[:, 0] = (np.clip(colour, 0, 1) - 0.5) / _C0
    splats = Splats(
        means=points.astype(np.float32),
        quaternions=(_normal_quaternions(normals, rng) * rng.uniform(0.5, 2, (count, 1))).astype(np.float32),
        log_scales=np.log(np.stack([size * stretch, size / stretch, size * thickness], axis=1)).astype(np.float32),
        raw_opacities=rng.normal(1, 2.2, count).astype(np.float32),
        sh=sh.astype(np.float32),
    )
    return splats.select(morton_order(splats.means))


def bench_camera(size: int) -> Camera:
    """A camera that sees :func:`bumpy_sphere` over about three quarters of a square image."""
    return look_at((1.4, 0.75, 2.5), (0, 0, 0), (0, 1, 0), width=size, height=size, fov_y_degrees=50)


def _bumpy_radius(directions: np.ndarray) -> np.ndarray:
    x, y, z = directions.T
    return 1 + 0.12 * np.sin(5 * x + 1) * np.cos(4 * y) + 0.08 * np.sin(9 * z + 2 * x) + 0.05 * np.sin(13 * y - 3 * z)


def _surface_normals(points: np.ndarray) -> np.ndarray:
    """The gradient of |x| - radius(x / |x|), by central differences."""
    gradient = np.empty_like(points)
    for axis in range(3):
        step = 1e-4 * np.eye(3)[axis]
        ahead, behind = (
            np.linalg.norm(p, axis=1) - _bumpy_radius(_normalise(p)) for p in (points + step, points - step)
        )
        gradient[:, axis] = ahead - behind
    return _normalise(gradient)


def _normal_quaternions(normals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """wxyz rotations that take z to the normals, with a random turn about them."""
    tilt = np.concatenate([1 + normals[:, 2:], -normals[:, 1:2], normals[:, :1], np.zeros((len(normals), 1))], axis=1)
    tilt = _normalise(np.where(tilt[:, :1] > 1e-9, tilt, [0, 1.0, 0, 0]))
    half = rng.uniform(0, np.pi, len(normals))
    c, s = np.cos(half), np.sin(half)
    w, x, y, _ = tilt.T
    return np.stack([w * c, x * c + y * s, y * c - x * s, w * s], axis=1)  # tilt * turn about z


def _normalise(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _load_peer(folder: Path) -> Any:
    if not (folder / f"{PEER}.py").is_file():
        raise InputError(f"{folder}: there is no {PEER}.py in this folder, so there is nothing to compare with.")
    sys.path.insert(0, str(folder.resolve()))
    try:
        return importlib.import_module(PEER)
    finally:
        sys.path.pop(0)


def _peer_frame(peer: Any, scene: Splats, camera: Camera, threads: int) -> Callable[[], np.ndarray]:
    """The peer wants activated values; activating them is not counted against it."""
    quaternions = _normalise(scene.quaternions.astype(np.float64)).astype(np.float32)
    values = (scene.means, quaternions, scene.scales, scene.opacities, scene.sh)
    pose, lens = camera.T_camera_world.astype(np.float32), camera.intrinsics.astype(np.float32)
    renderer = peer.Renderer(len(scene), 32, 0, 0, threads)
    black = np.zeros(3, np.float32)
    return lambda: renderer(*values, pose, lens, camera.width, camera.height, black)[0]


def _time_case(
    scene: Splats,
    camera: Camera,
    threads: int,
    rasterizer: Any,
    peer: Callable[[], np.ndarray] | None,
    repeats: int,
) -> Row:
    def ours() -> np.ndarray:
        return rasterizer.render(scene, camera, background=(0.0, 0.0, 0.0)).rgb

    image = ours()
    psnr = None if peer is None else image_psnr(image, peer())
    times: list[tuple[float, float]] = []
    peer_times: list[tuple[float, float]] = []
    for _ in range(repeats):
        times.append(_measure(ours))
        if peer is not None:
            peer_times.append(_measure(peer))
    cpu, wall = (statistics.median(column) for column in zip(*times))
    row = Row(len(scene), scene.sh_degree, camera.width, threads, cpu, wall)
    if not peer_times:
        return row
    peer_cpu, peer_wall = (statistics.median(column) for column in zip(*peer_times))
    return dataclasses.replace(row, peer_cpu_ms=peer_cpu, peer_wall_ms=peer_wall, peer_psnr_db=psnr)


def _measure(frame: Callable[[], np.ndarray]) -> tuple[float, float]:
    """CPU and wall time [ms] of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    frame()
    return 1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)


def _line(row: Row) -> str:
    def text(value: float | None, digits: int = 1) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    scene = f"{row.splats // 1000}k SH{row.degree}"
    return (
        f"{scene:>14} {row.size:>5} {row.threads:>7} {row.cpu_ms:>8.1f} {row.wall_ms:>8.1f} "
        f"{text(row.peer_cpu_ms):>9} {text(row.peer_wall_ms):>9} {text(row.ratio, 2):>6}"
    )


def main(argv: list[str] | None = None) -> None:
    import tyro

    bench_raster(tyro.cli(BenchRaster, args=argv))


if __name__ == "__main__":
    main()
