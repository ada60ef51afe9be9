"""How much faster two processes animate a folder than one does.

Run it with ``python -m pipelines.bench_batch --objects 64``. Objects are the bundled samples with other seeds, thinned.
Each number of processes is measured in the same run, on a fresh output folder, after one object to compile kernels.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pipelines.batch import BatchConfig, batch
from splatanim.formats import write_splats
from splatanim.samples import make_sample, sample_names

_SPLATS = 4000


def small_objects(folder: Path, count: int) -> None:
    """Write ``count`` objects of 4,000 splats, in a subfolder a kind."""
    names = sample_names()
    for k in range(count):
        whole = make_sample(names[k % len(names)], seed=k)
        rows = np.sort(np.random.default_rng(k).permutation(len(whole))[:_SPLATS])
        wider = np.float32(0.5 * np.log(len(whole) / len(rows)))
        kind = folder / names[k % len(names)]
        kind.mkdir(parents=True, exist_ok=True)
        splats = whole.select(rows).replace(log_scales=whole.log_scales[rows] + wider)
        write_splats(kind / f"{k:04d}.ply", splats, up="-y")


def seconds_of(folder: Path, workers: int, **options: object) -> float:
    """Wall seconds for all objects of a folder."""
    with tempfile.TemporaryDirectory(prefix="splatanim-batch-") as output:
        start = time.perf_counter()
        said = batch(BatchConfig(folder, Path(output), workers=workers, seconds=1.0, size="160x160", **options))  # type: ignore[arg-type]
        taken = time.perf_counter() - start
    if "failed" in said:
        raise RuntimeError(said)
    return taken


def main(arguments: list[str] | None = None) -> int:
    """Print a line a number of processes, and the ratio; 0 where it reaches ``--least``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--least", type=float, default=1.7)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="splatanim-objects-") as folder:
        small_objects(Path(folder), given.objects)
        seconds_of(Path(folder), 1, limit=1)
        taken = {}
        for workers in (1, given.workers):
            taken[workers] = seconds_of(Path(folder), workers)
            print(f"{given.objects} objects, {workers} at a time: {taken[workers]:.1f} s", flush=True)
    ratio = taken[1] / taken[given.workers]
    print(f"{ratio:.2f} times as fast")
    return 0 if ratio >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
