from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.bench_raster import BenchRaster, accuracy, bench_raster, bumpy_sphere
from splatanim.errors import InputError

PEER = """
import numpy as np
class Renderer:
    def __init__(self, count, tile, rowexact, exact, threads):
        self.count = count
    def __call__(self, means, quats, scales, opacities, sh, pose, lens, width, height, background):
        assert len(means) == self.count and abs(np.linalg.norm(quats, axis=1) - 1).max() < 1e-5 and scales.min() > 0
        return np.zeros((height, width, 3), np.float32), None
"""


def test_the_scene_is_seeded_and_lies_in_its_surface() -> None:
    splats = bumpy_sphere(500, 3, seed=5)
    assert np.array_equal(splats.means, bumpy_sphere(500, 3, seed=5).means) and splats.sh.shape == (500, 16, 3)
    w, x, y, z = (splats.quaternions / np.linalg.norm(splats.quaternions, axis=1, keepdims=True)).T
    thin = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    outwards = splats.means / np.linalg.norm(splats.means, axis=1, keepdims=True)
    assert ((thin * outwards).sum(axis=1) > 0.4).all()  # the thin axis is the surface's normal


def test_accuracy_figure() -> None:
    assert accuracy(150, 64) > 110


def test_a_small_run_with_a_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "splat_best.py").write_text(PEER)
    config = BenchRaster(
        splats=(2000,), degrees=(0, 1), sizes=(64,), threads=(1,), repeats=2, against=tmp_path, json=tmp_path / "b.json"
    )
    rows = bench_raster(config)
    assert [(row.splats, row.degree, row.size, row.threads) for row in rows] == [(2000, 0, 64, 1), (2000, 1, 64, 1)]
    assert all(row.cpu_ms > 0 and row.ratio is not None for row in rows)
    figures = json.loads((tmp_path / "b.json").read_text())
    assert figures["psnr_db"] > 110 and len(figures["rows"]) == 2 and figures["cpus"]
    assert "2k SH1" in capsys.readouterr().out


def test_a_missing_peer_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no splat_best.py"):
        bench_raster(BenchRaster(against=tmp_path))
