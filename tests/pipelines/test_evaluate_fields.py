"""The comparison of fields: subspace_ratio where the modes are known, the tables, and what is skipped."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluate_fields import EvaluateFieldsConfig, evaluate_fields
from pipelines.field_studies import deformation
from pipelines.field_training import ABLATIONS, own_output
from splatanim.errors import InputError
from splatanim.field.ritz import subspace_ratio
from tests.helpers import box_cubature
from tests.sampling.shapes import ball_mesh, box_mesh, join

BOX = (20, 12, 8)


def _cosines(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The lowest Neumann eigenvalues of the box's grid and their modes, products of cosines; the constant first."""
    domain = box_cubature(BOX, 1 / BOX[0]).domain
    s = domain.spacing
    found = []
    for wave in np.ndindex(6, 6, 6):
        level = sum((2 / s * np.sin(0.5 * np.pi * k / n)) ** 2 for k, n in zip(wave, BOX))
        found.append((level, wave))
    found.sort()
    cells = domain.cells + 0.5
    modes = [np.prod([np.cos(np.pi * k * cells[:, a] / BOX[a]) for a, k in enumerate(wave)], 0) for _, wave in found]
    return np.array([level for level, _ in found])[:count], np.stack(modes[:count], axis=1)


def test_the_ratio_of_known_modes_on_a_box() -> None:
    domain = box_cubature(BOX, 1 / BOX[0]).domain
    levels, modes = _cosines(24)
    assert subspace_ratio(modes[:, 1:16], domain, levels) == pytest.approx(1.0, abs=1e-9)
    # any basis of the same span, the constant mixed in, more functions than needed, other scales
    mix = np.random.default_rng(0).normal(size=(24, 24))
    assert subspace_ratio(3.0 * modes @ mix + 5.0, domain, levels) == pytest.approx(1.0, abs=1e-7)
    # one of the 15 replaced by the 21st: the mean is that much higher
    worse = np.concatenate([modes[:, 1:15], modes[:, [20]]], axis=1)
    expected = (levels[:15].sum() + levels[20]) / levels[:16].sum()
    assert subspace_ratio(worse, domain, levels) == pytest.approx(expected, abs=1e-9) and expected > 1.01
    assert subspace_ratio(modes[:, 1:10], domain, levels) == np.inf  # too few functions for the definition


@pytest.fixture(scope="module")
def meshes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import trimesh

    folder = tmp_path_factory.mktemp("meshes")
    shapes = {
        "bar.ply": box_mesh((1.0, 0.3, 0.2)),
        "two.ply": join(box_mesh((0.4, 0.3, 0.3)), box_mesh((0.4, 0.3, 0.3), (0.6, 0.0, 0.0))),
        "trained_on.ply": ball_mesh(0.5, 8),
    }
    for name, mesh in shapes.items():
        trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).export(folder / name)
    (folder / "broken.ply").write_bytes(b"ply\n")
    with open(folder / "index.csv", "w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow(["file", "split"])
        table.writerows([(name, "train" if name.startswith("train") else "val") for name in (*shapes, "broken.ply")])
    return folder


@pytest.mark.slow
def test_tables_of_a_small_split(meshes: Path, tmp_path: Path) -> None:
    config = EvaluateFieldsConfig(
        meshes, tmp_path, study=("subspace", "deflection"), simplicits=1, simplicits_steps=30, deflections=1
    )
    text = evaluate_fields(config)
    assert text == (tmp_path / "fields.md").read_text().rstrip("\n")
    assert "# Skinning fields on 2 unseen shapes" in text and "Skipped: " in text and "broken.ply" in text
    kept = json.loads((tmp_path / "fields.json").read_text())
    rows = kept["subspace"]
    ratio = {(row["method"], row["file"]): row["ratio"] for row in rows}
    assert {row["file"]: row["parts"] for row in rows} == {"bar.ply": 1, "two.ply": 2}
    assert ratio["256 Gaussians", "bar.ply"] < ratio["48 Gaussians", "bar.ply"] < 1.3
    assert ratio["eigenmodes at query points", "two.ply"] == pytest.approx(1.0, abs=0.02)
    assert all(row["bound"]["omega_orth"] < 1e-10 and row["ratio"] >= 1 - 1e-9 for row in rows)
    assert sum(row["method"] == "Simplicits" for row in rows) == 1
    tips = {row["field"]: row.get("tip") for row in kept["deflection"]}
    assert tips["eigenmodes"] == pytest.approx(1.0, abs=0.15)
    again = evaluate_fields(
        EvaluateFieldsConfig(meshes, tmp_path, study=("deflection",), simplicits_steps=30, deflections=1)
    )
    assert "## Static deflection" in again and "| within 15 % |" in again


def test_a_folder_without_an_index_or_a_usable_mesh_is_refused(meshes: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no index\.csv"):
        evaluate_fields(EvaluateFieldsConfig(tmp_path, tmp_path / "out"))
    with pytest.raises(InputError, match="no row has the split 'test'"):
        evaluate_fields(EvaluateFieldsConfig(meshes, tmp_path / "out", split="test"))
    with pytest.raises(InputError, match="more than --most-voxels 10"):
        evaluate_fields(EvaluateFieldsConfig(meshes, tmp_path / "out", most_voxels=10))


def test_deformations_are_smooth_and_start_at_rest() -> None:
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 3))
    np.testing.assert_allclose(deformation(0, 0)(points), points, atol=1e-12)
    for number in (1, 2, 3):
        bend, h = deformation(number, 0), 1e-5
        slopes = np.stack([(bend(points + h * e) - bend(points - h * e)) / (2 * h) for e in np.eye(3)], axis=2)
        assert np.abs(bend(points) - points).max() > 0.03
        assert np.linalg.det(slopes).min() > 0.1  # nothing is turned inside out
        np.testing.assert_array_equal(bend(points), deformation(number, 0)(points))


@pytest.mark.slow
def test_the_shape_family(meshes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.field_studies.FAMILY", 1)
    config = EvaluateFieldsConfig(meshes, tmp_path, study=("family",), family_file="bar.ply", limit=1)
    text = evaluate_fields(config)
    rows = json.loads((tmp_path / "fields.json").read_text())["family"]
    names = ["neural", "gaussians", "eigenmodes", "network's output", "paper's objective"]
    assert [row["field"] for row in rows] == 2 * names and all(f"| {name} |" in text for name in names)
    for row in rows:
        if not row["deformation"]:
            assert row["consistency"] == pytest.approx(1.0) and row["span"] == pytest.approx(1.0)
        assert 0 <= row["consistency"] <= 1 + 1e-9 and 0 <= row["span"] <= 1 + 1e-9 and row["ratio"] >= 1 - 1e-3


def test_every_ablation_changes_one_thing() -> None:
    assert all(len(training) + len(model) == (name != "full") for name, (training, model) in ABLATIONS.items())


@pytest.mark.slow
def test_every_ablation_trains_and_is_measured(meshes: Path, tmp_path: Path) -> None:
    config = EvaluateFieldsConfig(
        meshes, tmp_path, study=("ablation", "pretraining"), ablation_seconds=0.5, cache=tmp_path / "kept"
    )
    text = evaluate_fields(config)
    kept = json.loads((tmp_path / "fields.json").read_text())
    rows = kept["ablation"]
    assert {row["ablation"] for row in rows} == set(ABLATIONS)
    assert all(row["steps"] > 0 and 0 <= row["omega_orth"] <= 1 for row in rows)
    assert all(f"| {name} |" in text for name in ABLATIONS)
    for row in rows:
        assert (row["output_omega_orth"] < 1e-3) == (row["ablation"] != "without the object's metric"), row
    assert [row["pretraining"] for row in kept["pretraining"]][::2] == ["none", "occupancy", "occupancy, then frozen"]
    assert "## Pre-training of the encoder" in text and any((tmp_path / "kept").iterdir())


@pytest.mark.slow
def test_the_comparison_in_the_papers_protocol(meshes: Path, tmp_path: Path) -> None:
    from pipelines.train_fields import TrainFieldsConfig, resolve
    from splatanim.field.neural_model import save_model, seeded_model

    model, _ = resolve(TrainFieldsConfig(meshes, objective="paper"))
    save_model(seeded_model(model, 0), tmp_path / "paper.safetensors", {})
    weights = tmp_path / "paper.safetensors"
    study = EvaluateFieldsConfig(
        meshes, tmp_path, study=("comparison",), paper_weights=weights, simplicits=1, simplicits_steps=30
    )
    text = evaluate_fields(study)
    rows = json.loads((tmp_path / "fields.json").read_text())["comparison"]
    figures = {(row["fields"], row["file"]): row for row in rows}
    for (name, _), row in figures.items():
        if name.startswith("bound"):
            assert row["omega_orth"] < 1e-10 and row["kappa_log"] == pytest.approx(1.0, abs=1e-4), name
    own = figures["network, paper's objective: its output", "bar.ply"]
    assert own["omega_orth"] < figures["network, paper's objective: last linear layer", "bar.ply"]["omega_orth"]
    assert own["kappa_log"] < 1.05 and own["h_spec"] > 0.9995
    assert figures["bound: eigenmodes", "bar.ply"]["ratio"] < figures["bound: Gaussians", "bar.ply"]["ratio"] + 1e-9
    assert "| bound: Simplicits | 1 |" in text and "## The network's own output in the paper's protocol" in text


def test_the_metric_layers_output_spans_what_the_linear_layer_does() -> None:
    from splatanim.field.neural_model import ModelConfig, seeded_model

    size = ModelConfig(
        width=16, latents=8, layers=1, heads=2, fields=5, depth=1, surface_points=64, warp=0, oni=True, metric=True
    )
    domain = box_cubature(BOX, 1 / BOX[0]).domain
    linear, output = own_output(seeded_model(size, 0).double(), domain)
    solved = np.linalg.lstsq(linear, output, rcond=None)[0]
    np.testing.assert_allclose(linear @ solved, output, atol=1e-4)
    gram = output.T @ output / len(output)
    assert np.abs(gram - np.eye(5)).max() < 0.1 * np.abs(linear.T @ linear / len(linear) - np.eye(5)).max()
    some = own_output(seeded_model(size, 0).double(), domain, domain.centres[::7])[1]
    np.testing.assert_allclose(some, output[::7], atol=1e-6)  # the constants are the object's, whatever is asked
