"""The benchmark of dynamics: its problems are the same for all engines, its tables say what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import trimesh

from pipelines.dynamics_cantilever import cantilever
from pipelines.dynamics_engines import Gauge, Run
from pipelines.dynamics_shapes import particles, refined, tetrahedra
from pipelines.evaluate_dynamics import EvaluateDynamicsConfig, agreement, evaluate_dynamics
from splatanim.data import Mesh
from splatanim.errors import InputError
from tests.sampling.shapes import box_mesh

BAR = box_mesh((1.0, 0.3, 0.2))


def _write(mesh: Mesh, path: Path) -> Path:
    trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).export(path)
    return path


@pytest.mark.parametrize("count", [9, 100, 1234])
def test_refining_hits_the_count_and_keeps_the_shape(count: int) -> None:
    fine = refined(BAR, count)
    assert len(fine.vertices) == count and len(fine.faces) == 2 * count - 4  # Euler: a sphere
    solid = trimesh.Trimesh(fine.vertices, fine.faces, process=False)
    assert solid.is_watertight and solid.is_winding_consistent
    assert solid.volume == pytest.approx(0.06) and solid.area == pytest.approx(2 * (0.3 + 0.2 + 0.06))
    np.testing.assert_array_equal(fine.vertices[: len(BAR.vertices)], BAR.vertices)
    if count > 1000:
        assert solid.edges_unique_length.max() < 3.0 * np.median(solid.edges_unique_length)


def test_refining_cannot_take_vertices_away() -> None:
    with pytest.raises(InputError, match="8 vertices, more than the 5 asked for"):
        refined(BAR, 5)


def test_particles_fill_the_mesh_evenly() -> None:
    points, volume, spacing = particles(BAR, 2000)
    assert abs(len(points) / 2000 - 1) < 0.15 and volume == pytest.approx(0.06)  # a small lattice comes in jumps
    assert spacing**3 * len(points) == pytest.approx(volume, rel=0.15)
    assert (np.abs(points) <= np.array([0.5, 0.15, 0.1]) + 1e-9).all()
    np.testing.assert_allclose(np.abs(points).max(axis=0), [0.5, 0.15, 0.1], atol=spacing)
    with pytest.raises(InputError, match="the mesh is not closed"):
        particles(Mesh(BAR.vertices, BAR.faces[:-1]), 2000)


def test_tetrahedra_keep_the_surface_and_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("tetgen")
    fine = refined(BAR, 300)
    kept = tmp_path / "tetrahedra" / "bar.npz"
    solid = tetrahedra(fine, kept)
    np.testing.assert_array_equal(solid.nodes[:300], fine.vertices)
    assert solid.weights.sum() == pytest.approx(0.06) and len(solid.elements) > 500
    with np.load(kept) as data:
        np.savez(kept, **{**data, "elements": data["elements"][:-1]})
    assert len(tetrahedra(fine, kept).elements) == len(solid.elements) - 1  # it was the file that was read
    other = tetrahedra(refined(BAR, 200), kept)  # another mesh under the same name is not taken
    np.testing.assert_array_equal(other.nodes[:200], refined(BAR, 200).vertices)
    assert other.weights.sum() == pytest.approx(0.06)
    with pytest.raises(InputError, match="TetGen could not fill the mesh"):
        tetrahedra(Mesh(BAR.vertices, BAR.faces[:4]))


def _run(name: str, reach: float, steps: int) -> Run:
    curve = [np.array([[0.0, 0, 0.5 * reach * k], [0.0, 0, reach * k]]) for k in range(1, steps + 1)]
    return Run(name, "nodes", 1, 0.0, {}, [1, 2] * (steps // 2), [10.0 * k for k in range(steps)], curve=curve)


def test_agreement_is_over_common_steps_and_relative_to_the_reach() -> None:
    found = agreement(_run("ours", 1.1, 10), _run("fem", 1.0, 6))
    assert found["against"] == "fem" and found["steps"] == 6
    assert found["centre"] == pytest.approx(0.1) and found["tip"] == pytest.approx(0.1)
    assert found["reach"] == pytest.approx(1.1)


def test_medians_leave_the_warm_up_out() -> None:
    run = _run("fem", 1.0, 8)
    assert run.median(1) == 40.0 and run.median(2) == 50.0 and run.measured(1) == 3
    assert _run("fem", 1.0, 2).median(1) is None


def test_a_gauge_weighs_by_mass() -> None:
    gauge = Gauge(np.array([1.0, 3.0]), np.array([False, True]))
    np.testing.assert_allclose(gauge.read(np.array([[1.0, 0, 0], [2.0, 0, 0]])), [[1.75, 0, 0], [2, 0, 0]])


@pytest.mark.slow
def test_all_engines_on_a_bar_agree_and_are_told(tmp_path: Path) -> None:
    pytest.importorskip("tetgen")
    _write(BAR, tmp_path / "bar.ply")
    _write(Mesh(BAR.vertices, BAR.faces[:-2]), tmp_path / "open.ply")
    config = EvaluateDynamicsConfig(
        tmp_path,
        tmp_path / "out",
        sizes=(600, 400),
        shapes=("bar.ply", "open.ply"),
        steps=12,
        same="bar.ply",
        cantilever=False,
    )
    text = evaluate_dynamics(config)
    results = json.loads((tmp_path / "out" / "dynamics.json").read_text())
    bar = results["objects"][0]
    assert bar["vertices"] == 600 and set(bar["engines"]) == {"ours", "fem", "mpm"}
    assert all(len(engine["tip_displacement_m"]) == 12 for engine in bar["engines"].values())
    assert bar["engines"]["ours"]["agreement"]["tip"] < 0.1
    assert bar["engines"]["fem"]["agreement"] is None and bar["engines"]["fem"]["unconverged_steps"] == 0
    assert bar["engines"]["ours"]["times_ours"]["1"] == 1.0
    assert any("open.ply" in line or "on open" in line for line in results["failures"])
    assert [row["vertices"] for row in results["same_shape"]] == [600, 400]
    assert "## Vertices alone: bar at every size, ours" in text
    assert "| bar | 600 | fem |" in text and text.strip() == (tmp_path / "out" / "dynamics.md").read_text().strip()
    assert results["machine"]["versions"]["numba"] and results["settings"]["steps"] == 12


def test_wrong_settings_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--steps 2 --h 0\.01: at least 4 steps"):
        evaluate_dynamics(EvaluateDynamicsConfig(tmp_path, tmp_path, steps=2, h=0.01))
    with pytest.raises(InputError, match="need at least one entry each"):
        evaluate_dynamics(EvaluateDynamicsConfig(tmp_path, tmp_path, sizes=()))
    with pytest.raises(InputError, match=r"no object could be prepared\.\n.*absent\.ply"):
        evaluate_dynamics(
            EvaluateDynamicsConfig(tmp_path, tmp_path, sizes=(100,), shapes=("absent.ply",), same="", cantilever=False)
        )


def test_the_reduced_cantilever_sags_and_rings_as_full_fem_does() -> None:
    rows = cantilever(16)["rows"]
    assert isinstance(rows, dict)
    beam = rows.pop("Euler-Bernoulli")
    assert beam["tip"] == pytest.approx(1.0, abs=0.03) and beam["frequency"] == pytest.approx(1.0, abs=0.03)
    for name, row in rows.items():
        assert row["frequency"] == pytest.approx(1.0, abs=0.05), name
        assert row["tip"] == pytest.approx(1.0, abs=0.08), name
        assert row["tip"] < 1.0 < row["frequency"], f"{name}: a subspace cannot be softer than the full space"
