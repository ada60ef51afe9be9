"""Skinning weights: what is refused, how broken ones are mended, and how they are carried to other points."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.rig.gltf_export import influences
from splatanim.rig.transfer import diffused_weights, transfer_weights
from splatanim.rig.weights import SkinWeights, repair_weights, sparse_weights
from tests.rig.rigs import random_weights


def one_hot(joints: list[int], count: int) -> SkinWeights:
    return SkinWeights(np.array(joints, np.int32)[:, None], np.ones((len(joints), 1)), count)


def test_sparse_and_dense_are_the_same_weights() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((40, 6)) * (rng.random((40, 6)) < 0.5) + np.eye(6)[rng.integers(6, size=40)]
    dense /= dense.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sparse_weights(dense).dense(), dense, atol=1e-15)
    cut = sparse_weights(dense, 2)
    assert cut.joints.shape == (40, 2) and (cut.weights[:, 0] >= cut.weights[:, 1]).all()
    np.testing.assert_allclose(cut.weights.sum(axis=1), 1.0, atol=1e-15)


@pytest.mark.parametrize(
    ("joints", "weights", "text"),
    [
        ([[3]], [[1.0]], "a point follows joint 3, but there are 3 joints"),
        ([[-1]], [[1.0]], "a point follows joint -1"),
        ([[0]], [[0.5]], "must sum to 1"),
        ([[0, 1]], [[1.5, -0.5]], "finite and not negative"),
        ([[0, 1]], [[np.nan, 1.0]], "finite and not negative"),
    ],
)
def test_impossible_weights_are_refused(joints, weights, text: str) -> None:
    with pytest.raises(InputError, match=text):
        SkinWeights(np.array(joints, np.int32), np.array(weights), 3)
    with pytest.raises(InputError, match="point 1 follows no joint"):
        sparse_weights(np.array([[1.0, 0.0], [0.0, 0.0]]))


def test_broken_rows_are_mended_and_counted() -> None:
    joints = np.array([[0, 1], [1, 2], [2, 0], [9, 1], [1, 0]])
    weights = np.array([[1.0, 0], [np.nan, np.nan], [2.0, 2.0], [0.0, 1.0], [-1.0, 1.0]])
    points = np.array([[0.0, 0, 0], [0.9, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]])
    skin, notes = repair_weights(joints, weights, points, 3, "here")
    wanted = [[1, 0, 0], [0.5, 0, 0.5], [0.5, 0, 0.5], [0, 1, 0], [1, 0, 0]]  # row 1 as its neighbour, row 2
    np.testing.assert_allclose(skin.dense(), wanted, atol=1e-15)
    assert notes == (
        "here: 2 vertices have skinning weights that are NaN or negative; mended.",
        "here: 1 vertices follow no joint; they got the weights of their neighbours.",
        "here: the skinning weights of 1 vertices do not sum to 1; scaled.",
    )


def test_carried_weights_equal_the_formula() -> None:
    rng = np.random.default_rng(1)
    vertices, points = rng.normal(size=(60, 3)), rng.normal(size=(25, 3))
    skin = random_weights(rng, 60, 5)
    got = transfer_weights(points, vertices, skin, k=6).dense()
    for row, point in zip(got, points):
        distance = np.linalg.norm(vertices - point, axis=1)
        near = np.argsort(distance)[:6]
        share = 1 / distance[near]
        np.testing.assert_allclose(row, share / share.sum() @ skin.dense()[near], atol=1e-9)


def test_points_on_vertices_take_theirs_and_doubled_vertices_count_once() -> None:
    rng = np.random.default_rng(2)
    vertices, skin = rng.normal(size=(50, 3)), random_weights(rng, 50, 4)
    np.testing.assert_allclose(transfer_weights(vertices, vertices, skin).dense(), skin.dense(), atol=1e-6)
    many = np.tile(np.arange(50), 6)  # as along the seams of a flat-shaded mesh
    points = rng.normal(size=(30, 3))
    apart = transfer_weights(points, vertices, skin).dense()
    np.testing.assert_allclose(transfer_weights(points, vertices[many], skin.select(many)).dense(), apart, atol=1e-9)


def test_nothing_to_carry_from() -> None:
    empty = SkinWeights(np.empty((0, 1), np.int32), np.empty((0, 1)), 2)
    with pytest.raises(InputError, match="0 vertices with weights for 0"):
        transfer_weights(np.zeros((2, 3)), np.empty((0, 3)), empty)
    with pytest.raises(InputError, match="must be finite"):
        transfer_weights(np.full((2, 3), np.nan), np.zeros((1, 3)), one_hot([0], 2))


def strip(count: int) -> tuple[np.ndarray, np.ndarray, SkinWeights]:
    """Points on a flat strip along x; sources are its two ends alone, one joint each."""
    rng = np.random.default_rng(3)
    points = np.stack([rng.uniform(-1, 1, count), rng.uniform(-0.1, 0.1, count), np.zeros(count)], axis=1)
    sources = points[np.abs(points[:, 0]) > 0.05]
    return points, sources, one_hot((sources[:, 0] > 0).astype(int).tolist(), 2)


def test_heat_smooths_the_seam_and_stays_a_partition() -> None:
    pytest.importorskip("robust_laplacian", reason="needs the extra rig")
    points, sources, skin = strip(1500)
    sharp = transfer_weights(points, sources, skin).dense()
    soft = diffused_weights(points, sources, skin, radius=0.05)
    np.testing.assert_allclose(soft.weights.sum(axis=1), 1.0, atol=1e-12)
    right = soft.dense()[:, 1]
    assert right[points[:, 0] > 0.6].min() > 0.995 and right[points[:, 0] < -0.6].max() < 0.005
    middle = np.abs(points[:, 0]) < 0.08
    assert (np.abs(right[middle] - 0.5) < 0.3).all()  # a ramp where nearest vertices jump
    assert (np.abs(sharp[middle, 1] - 0.5) > 0.3).mean() > 0.3
    order = np.argsort(points[:, 0])
    bins = right[order].reshape(30, 50).mean(axis=1)
    assert (np.diff(bins) > -1e-3).all()


def test_written_influences_are_what_the_format_wants() -> None:
    """Joints listed twice are merged, at most eight are kept, sums are 1 to the last digit of float32."""
    twice = SkinWeights(np.array([[2, 2, 1]], np.int32), np.array([[0.25, 0.25, 0.5]]), 300)
    joints, weights = influences(twice)
    assert joints.dtype == np.uint16 and sorted(zip(joints[0].tolist(), weights[0].tolist()))[-2:] == [
        (1, 0.5),
        (2, 0.5),
    ]
    many = sparse_weights(np.random.default_rng(0).random((200, 12)), 12)
    joints, weights = influences(many)
    assert joints.shape == (200, 8) and joints.dtype == np.uint8
    assert np.abs(weights.astype(np.float64).sum(axis=1) - 1).max() < 1.2e-7
