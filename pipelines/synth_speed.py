"""How long ``splatanim synth`` takes: ``python -m pipelines.synth_speed CHARACTER.glb ...``.

Prints CPU seconds of this process for 100 training views of 256 pixels, reading and writing included, the kernels being
compiled before.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from pipelines.synth import SynthConfig, synth


def seconds_of_views(source: Path, views: int = 100, size: int = 256) -> float:
    """CPU seconds for a set of training views of a model's bind pose."""
    with tempfile.TemporaryDirectory() as folder:
        synth(SynthConfig(source, Path(folder) / "first", views=1, size=size))
        start = time.process_time()
        synth(SynthConfig(source, Path(folder) / "timed", views=views, size=size))
        return time.process_time() - start


def main() -> None:
    """One line a model."""
    for name in sys.argv[1:]:
        print(f"{Path(name).name}: {seconds_of_views(Path(name)):.1f} s of CPU for 100 views of 256 px", flush=True)


if __name__ == "__main__":
    main()
