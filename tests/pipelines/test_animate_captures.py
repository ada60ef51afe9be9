"""The main job on real captures: finite, in frame, the right way up, in one piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.animate import AnimateConfig, animate
from tests.helpers import data_file


@pytest.mark.slow
@pytest.mark.parametrize("name", ["playbot_31k_sh2.ply", "guitar_91k_sh0.ply"])
@pytest.mark.parametrize("motion", ["drop", "sway"])
def test_captures_move_as_solid_bodies(name: str, motion: str, tmp_path: Path) -> None:
    path = data_file(f"splats/{name}")
    config = AnimateConfig(path, tmp_path / "out.mp4", motion=motion, seconds=1.0, size="160x160")
    result = animate(config)
    assert result.trajectory.converged_fraction == 1.0
    assert result.trajectory.penetration < 0.005
    assert result.subject.inspection.up == "-y"
    assert np.isfinite(result.trajectory.handles).all()
    z = result.trajectory.handles[-1, -1 if motion == "drop" else -2]  # the constant handle: the body as a whole
    assert np.linalg.svd(z[:, :3] + np.eye(3), compute_uv=False).max() < 2.0
