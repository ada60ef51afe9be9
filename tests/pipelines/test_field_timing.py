"""The timing of fields: every kind gets its row, and what cannot be timed is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines import field_timing
from pipelines.evaluate_fields import EvaluateFieldsConfig
from pipelines.progress import Progress
from splatanim.errors import InputError
from tests.sampling.shapes import box_mesh


def test_every_field_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import trimesh

    mesh = box_mesh((1.0, 0.3, 0.2))
    trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).export(tmp_path / "bar.ply")
    monkeypatch.setattr(field_timing, "SPLATS", 4000)
    config = EvaluateFieldsConfig(tmp_path, tmp_path, family_file="bar.ply", handles=4, simplicits_steps=1)
    rows, text = field_timing.timing_study(config, Progress())
    assert [row["field"] for row in rows] == ["auto", "neural", "gaussians", "eigenmodes", "simplicits"]
    assert all(row[stage] > 0 for row in rows for stage in field_timing.STAGES)
    assert "## From 4,000 splats" in text and "| auto | " in text


def test_a_point_cloud_is_refused(tmp_path: Path) -> None:
    import trimesh

    trimesh.PointCloud(np.random.default_rng(0).uniform(size=(500, 3))).export(tmp_path / "cloud.ply")
    with pytest.raises(InputError, match=r"cloud\.ply: the timing needs a mesh"):
        field_timing.timing_study(EvaluateFieldsConfig(tmp_path, tmp_path, family_file="cloud.ply"), Progress())
