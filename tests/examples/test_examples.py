"""Every example runs as it stands, in an empty folder, and leaves what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: What each leaves, and what it prints.
LEAVES = {
    "01_scene": (["scene.mp4"], r"scene.mp4: 100 % of steps converged"),
    "02_sample": (["jelly.mp4"], r"all steps converged"),
    "03_motion_as_a_file": (
        ["at_0.35.ply", "drop.mp4", "drop.npz"],
        r"15 frames of \d+ splats; at 0.35 s they are 0\.[1-9]",
    ),
    "04_convert": (["plant.ply", "plant.spz", "small.splat", "turned.glb"], r"small.splat: splat, 2000 splats"),
    "05_fields": ([], r"eigenmodes: 16 handles, 1\.0\d\d times"),
    "06_own_physics": ([], r"0.00 s: the tip is +0.00 mm[\s\S]*0.17 s: the tip is +-\d"),
    "07_rig": (["octopus.ply", "rig.glb", "rig.png"], r"<- \(root\)"),
    "08_batch": (["films", "objects"], r"2 of 3 objects animated \(2 of them before\)"),
    "09_cameras": (["plush.ply", "plush.png", "sparse", "transforms.json"], r"gsplat \(8, 4, 4\) \(8, 3, 3\)"),
    "10_papr": (["plush.papr.safetensors", "seen.png", "views"], r"held out: PSNR"),
}
SLOW = {"01_scene", "02_sample", "03_motion_as_a_file", "07_rig", "08_batch", "10_papr"}


def test_they_are_numbered_short_and_all_tried() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(LEAVES)
    assert [int(path.stem[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 40 and text.startswith('"""'), path


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.slow if p.stem in SLOW else (), id=p.stem) for p in EXAMPLES]
)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    leaves, said = LEAVES[path.stem]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == leaves
    assert re.search(said, run.stdout), run.stdout
