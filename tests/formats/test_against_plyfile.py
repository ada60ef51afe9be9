"""Reader and writer against an independent implementation of PLY."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from splatanim.formats import read_splats, write_ply
from tests.helpers import random_splats

plyfile = pytest.importorskip("plyfile")


def test_plyfile_reads_what_is_written(tmp_path: Path) -> None:
    splats = random_splats(50, degree=2, seed=4)
    write_ply(tmp_path / "a.ply", splats, comments=("Vertical Axis: z",))
    data = plyfile.PlyData.read(tmp_path / "a.ply")
    vertex = data["vertex"]
    np.testing.assert_array_equal(np.stack([vertex[a] for a in "xyz"], 1), splats.means)
    np.testing.assert_array_equal(vertex["f_rest_8"], splats.sh[:, 1, 1])  # channel-major: green of coefficient 1
    np.testing.assert_array_equal(vertex["opacity"], splats.raw_opacities)
    assert "Vertical Axis: z" in data.comments


@pytest.mark.parametrize(("text", "order"), [(False, "<"), (False, ">"), (True, "=")])
def test_what_plyfile_writes_is_read(tmp_path: Path, text: bool, order: str) -> None:
    splats = random_splats(50, degree=1, seed=5)
    write_ply(tmp_path / "a.ply", splats)
    rows = plyfile.PlyData.read(tmp_path / "a.ply")["vertex"].data
    element = plyfile.PlyElement.describe(rows, "vertex")
    plyfile.PlyData([element], text=text, byte_order=order).write(str(tmp_path / "b.ply"))
    again = read_splats(tmp_path / "b.ply").splats
    for name in ("means", "log_scales", "raw_opacities", "sh"):
        np.testing.assert_allclose(getattr(again, name), getattr(splats, name), rtol=1e-6, atol=1e-7)
