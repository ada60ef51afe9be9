"""The measures of rigs against closed forms, and the study on a made character and on the data folder's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluate_rigs import EvaluateRigsConfig, evaluate_rigs, load_characters, measure
from pipelines.rig_metrics import (
    bones_of,
    bound_joints,
    fitted_motion,
    reposing_errors,
    rigid_motion,
    skeleton_distances,
    weight_difference,
)
from splatanim.errors import InputError
from splatanim.rig.affine import quaternion_matrices
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.skeleton import skeleton_from_positions
from splatanim.rig.skinning import blend_points
from splatanim.rig.weights import SkinWeights, sparse_weights
from tests.helpers import data_file, random_rotation
from tests.rig.rigs import add_bow, bar, chain, unit_quaternions


def test_distances_between_shifted_chains() -> None:
    """Chains of unit bones along y, one to the side by 0.3: every joint and bone point is 0.3 away."""
    ours = chain(4)
    theirs = skeleton_from_positions(ours.names, ours.parents, ours.joint_positions + np.array([0.3, 0, 0]))
    found = skeleton_distances(bones_of(ours), bones_of(theirs), 2.0)
    assert found == pytest.approx({"j2j": 0.15, "j2b": 0.15, "b2b": 0.15})
    assert skeleton_distances(bones_of(ours), bones_of(ours), 1.0) == pytest.approx({"j2j": 0, "j2b": 0, "b2b": 0})


def test_more_joints_on_the_same_line_change_joints_alone() -> None:
    halves = np.array([[0, 0, 0], [0, 0.5, 0], [0, 1, 0]])
    coarse, fine = chain(2), skeleton_from_positions("abc", np.array([-1, 0, 1]), halves)
    found = skeleton_distances(bones_of(fine), bones_of(coarse), 1.0)
    assert found["j2b"] == pytest.approx(0) and found["b2b"] == pytest.approx(0)
    assert found["j2j"] == pytest.approx(0.5 * (0.5 / 3))


def test_unused_joints_do_not_count() -> None:
    ours = bones_of(chain(4), np.array([True, False, True, True]))
    assert len(ours.joints) == 3
    np.testing.assert_allclose(ours.bones[:, :, 1], [[0, 2], [2, 3]])


def test_rigid_motion_is_recovered() -> None:
    rng = np.random.default_rng(0)
    points, turn = rng.normal(size=(20, 3)), random_rotation(rng)
    motion = rigid_motion(points, points @ turn.T + [1, 2, 3])
    np.testing.assert_allclose(motion[:3, :3], turn, atol=1e-12)
    np.testing.assert_allclose(motion[:3, 3], [1, 2, 3], atol=1e-12)
    mirrored = rigid_motion(points, points * [-1, 1, 1])
    assert np.linalg.det(mirrored[:3, :3]) == pytest.approx(1.0)


def test_reposing_with_the_true_weights_is_exact() -> None:
    """Rigid bones that the weights know: the fit finds the motion, whatever it is."""
    rng = np.random.default_rng(1)
    skeleton = chain(3)
    rest = rng.normal(size=(90, 3))
    skin = sparse_weights(np.eye(3)[np.repeat(np.arange(3), 30)])
    motion = np.tile(np.eye(4), (3, 1, 1))
    motion[:, :3, :3] = quaternion_matrices(unit_quaternions(rng, 3))
    motion[:, :3, 3] = rng.normal(size=(3, 3))
    moved = blend_points(rest, skin, motion)
    assert reposing_errors(rest, moved, skeleton, skin).max() < 1e-12
    few = SkinWeights(np.where(np.arange(90)[:, None] < 88, 0, 2).astype(np.int32), np.ones((90, 1)), 3)
    fitted = fitted_motion(rest, moved, skeleton, few)
    np.testing.assert_allclose(fitted[2], fitted[1])  # two vertices say nothing: the parent's motion


def test_weight_difference_counts_bones_for_their_true_joint() -> None:
    true = sparse_weights(np.eye(2)[np.repeat([0, 1], 10)])
    finer = sparse_weights(np.eye(4)[np.repeat([0, 1, 2, 3], 5)])
    assert weight_difference(finer, true) == 0.0
    assert weight_difference(sparse_weights(np.ones((20, 1))), true) == pytest.approx(1.0)


def test_small_and_broken_files_are_left_out_and_said(tmp_path: Path) -> None:
    made = bar()
    add_bow(made)
    made.write(tmp_path / "bar.glb")
    (tmp_path / "broken.glb").write_bytes(b"glTF nonsense")
    text = evaluate_rigs(EvaluateRigsConfig(tmp_path, tmp_path / "out", pictures=False))
    assert "bar: 6 vertices and 4 faces are too few" in text and "left out: broken.glb" in text
    assert json.loads((tmp_path / "out" / "rigs.json").read_text()) == {"auto": []}


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        evaluate_rigs(EvaluateRigsConfig(tmp_path / "none", tmp_path / "out"))
    with pytest.raises(InputError, match="There are: none"):
        evaluate_rigs(EvaluateRigsConfig(tmp_path, tmp_path / "out"))
    with pytest.raises(InputError, match="--frames 0: at least one moment"):
        evaluate_rigs(EvaluateRigsConfig(tmp_path, tmp_path / "out", frames=0))


def test_clips_beside_a_mesh_are_its_own(tmp_path: Path) -> None:
    data_file("rigged/kaykit_mannequin/manny_med_mod.gltf")
    config = EvaluateRigsConfig(data_file("rigged/kaykit_mannequin"), tmp_path)
    models, left_out = load_characters(config)
    assert list(models) == ["manny_med_mod"] and not left_out
    assert models["manny_med_mod"].clip("Walking_A").duration > 0


@pytest.mark.parametrize("name", ["fox_textured", "horse", "spider"])
def test_auto_rig_moves_like_the_true_one(name: str, tmp_path: Path) -> None:
    model = read_gltf(data_file(f"rigged/{name}.glb"))
    row = measure(name, model, EvaluateRigsConfig(tmp_path, tmp_path, frames=3, pictures=False))
    numbers = {key: value for key, value in row.items() if isinstance(value, float)}
    assert numbers["reposed_mean"] < 0.01 and numbers["reposed_mean"] < 0.3 * numbers["rigid_mean"]
    assert numbers["artist_mean"] < numbers["reposed_mean"]
    assert numbers["b2b"] < 0.05 and numbers["j2b"] < 0.05 and numbers["outside"] < 0.12
    assert isinstance(row["pairs"], int) and row["pairs"] >= (6 if name == "spider" else 2)


def test_study_of_one_character_is_written(tmp_path: Path) -> None:
    source = data_file("rigged/snake.glb")
    model = read_gltf(source)
    (tmp_path / "in").mkdir()
    write_glb(tmp_path / "in" / "snake.glb", model)
    text = evaluate_rigs(EvaluateRigsConfig(tmp_path / "in", tmp_path / "out", frames=2))
    assert "| snake |" in text and (tmp_path / "out" / "rig_snake.png").stat().st_size > 10_000
    row = json.loads((tmp_path / "out" / "rigs.json").read_text())["auto"][0]
    assert row["reposed_mean"] < 0.02 and row["frames"] == 2 * row["clips"]
    assert row["true_joints"] == int(bound_joints(model).sum())
