"""How much memory ``animate`` takes at its peak, over the data of one frame.

Run it with ``python -m pipelines.bench_memory --splats 2000000``. The capture is made of a seed: a cube full of splats.
One frame's data are the splats' own numbers: 59 floats each at degree 3. The run is a process of its own; what the
interpreter and its libraries take before anything is read is taken off, the rest counts, grids and pictures included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatanim.data import Splats
from splatanim.formats import write_splats

_BLOCK = 100_000


@dataclass(frozen=True)
class Peak:
    """Peak memory [bytes] of animating so many splats, that of the process before, and the data of one frame."""

    splats: int
    bytes: int
    base: int
    frame: int

    @property
    def frames(self) -> float:
        return (self.bytes - self.base) / self.frame

    def __str__(self) -> str:
        return (
            f"{self.splats} splats, one frame {self.frame / 1e6:.0f} MB: peak {self.bytes / 1e6:.0f} MB, of which "
            f"{self.base / 1e6:.0f} MB interpreter and libraries; the rest is {self.frames:.2f} frames"
        )


def full_cube(count: int, degree: int = 3, seed: int = 0) -> Splats:
    """Splats uniform in [-1, 1]^3, of opacity 0.9 and radius 0.03 (of fewer where there are more), turned at random."""
    rng = np.random.default_rng(seed)
    sh = np.empty((count, (degree + 1) ** 2, 3), np.float32)
    for start in range(0, count, _BLOCK):
        block = sh[start : start + _BLOCK]
        block[:] = 0.2 * rng.standard_normal(block.shape, np.float32)
    q = rng.standard_normal((count, 4), np.float32)
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    radius = 0.03 * min(1.0, (1e5 / count) ** (1 / 3))
    return Splats(
        (2 * rng.random((count, 3), np.float32) - 1),
        q,
        np.full((count, 3), np.log(radius), np.float32),
        np.full(count, 2.2, np.float32),
        sh,
    )


def measure(count: int, *, degree: int = 3, frames: int = 24, options: tuple[str, ...] = ()) -> Peak:
    """Animate ``count`` splats in a process of their own, with further options of ``animate``."""
    with tempfile.TemporaryDirectory(prefix="splatanim-memory-") as folder:
        scene = Path(folder, "cube.ply")
        write_splats(scene, full_cube(count, degree), up="+y")
        base, peak = _peak(scene, frames, options)
    return Peak(count, peak, base, count * 4 * (11 + 3 * (degree + 1) ** 2))


def _peak(scene: Path, frames: int, options: tuple[str, ...]) -> tuple[int, int]:
    """Resident memory [bytes] of a process that animates, before and at the peak; ffmpeg is a process of its own."""
    arguments = ["animate", str(scene), "-o", str(scene.with_suffix(".mp4")), "--seconds", str(frames / 24)]
    arguments += ["--fps", "24", *options]
    code = (
        "import sys\nfrom pipelines.bench_memory import most_memory as most\nfrom pipelines.cli import main\n"
        "import splatanim._pushforward, splatanim.render.cpu, splatanim.render._stage, splatanim.field.grid\n"
        "before = most()\ncode = main(sys.argv[1:])\nprint(before, most())\nsys.exit(code)"
    )
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"animate ended with code {run.returncode}: {run.stderr.strip()}")
    before, peak = (int(word) for word in run.stdout.split()[-2:])
    return before, peak


def most_memory() -> int:
    """The most resident memory that this process has had [bytes]."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would begin with what the parent had when it started this process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main(arguments: list[str] | None = None) -> int:
    """Print the peak; 0 where it is under ``--most`` frames, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splats", type=int, default=2_000_000)
    parser.add_argument("--degree", type=int, default=3)
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--most", type=float, default=3.0)
    given, rest = parser.parse_known_args(arguments)
    peak = measure(given.splats, degree=given.degree, frames=given.frames, options=tuple(rest))
    print(peak)
    return 0 if peak.frames < given.most else 1


if __name__ == "__main__":
    sys.exit(main())
