"""Large captures fit: reading and writing take little more memory than the splats themselves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from splatanim.formats import read_splats, write_splats
from tests.helpers import random_splats

COUNT = 150_000
FRAME = COUNT * 59 * 4  # bytes of one frame: 3 + 4 + 3 + 1 + 48 floats a splat


def peak_of(work: Callable[[], object]) -> float:
    """The highest memory in use while something runs, over one frame's bytes; what it returns counts."""
    tracemalloc.start()
    try:
        kept = work()
        assert kept is not None
        return tracemalloc.get_traced_memory()[1] / FRAME
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".ply", ".splat", ".spz", ".glb"])
def test_writing_and_reading(tmp_path: Path, suffix: str) -> None:
    splats = random_splats(COUNT)
    path = tmp_path / f"a{suffix}"
    assert peak_of(lambda: write_splats(path, splats)) < 0.8
    del splats
    # .glb comes through one array an attribute, in double; the whole file is in memory beside them.
    assert peak_of(lambda: read_splats(path)) < {".ply": 1.6, ".splat": 1.0, ".spz": 2.5, ".glb": 3.5}[suffix]
