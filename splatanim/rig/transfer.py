"""Skinning weights carried from a mesh to other points: splats, PAPR points, another mesh."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

from splatanim.errors import InputError, require
from splatanim.rig.weights import MOST_INFLUENCES, SkinWeights, sparse_weights

_CHUNK = 16384


def transfer_weights(
    points: Float[np.ndarray, "n 3"],
    vertices: Float[np.ndarray, "v 3"],
    weights: SkinWeights,
    k: int = 6,
    *,
    most: int = MOST_INFLUENCES,
) -> SkinWeights:
    """Each point's weights are the mean of its k nearest vertices', by inverse distance, in the rest pose.

    Vertices at one place (as files have them along seams) count as one, else all k could be the same. A point on a
    vertex gets that vertex's weights. The ``most`` strongest influences are kept and scaled to sum to 1.

    Raises :class:`InputError` where there are no vertices, or points or vertices are not finite.
    """
    from scipy.spatial import cKDTree

    if not len(vertices) or len(vertices) != len(weights):
        raise InputError(f"transfer_weights: {len(vertices)} vertices with weights for {len(weights)}.")
    if not (np.isfinite(points).all() and np.isfinite(vertices).all()):
        raise InputError("transfer_weights: points and vertices must be finite.")
    vertices, weights = _distinct(np.asarray(vertices, np.float64), weights)
    k = min(k, len(vertices))
    tree = cKDTree(vertices)
    width = weights.joints.shape[1]
    parts = []
    for start in range(0, max(len(points), 1), _CHUNK):
        distance, near = tree.query(points[start : start + _CHUNK], k=k)
        distance, near = distance.reshape(-1, k), near.reshape(-1, k)
        share = 1.0 / np.maximum(distance, 1e-9 * (distance[:, -1:] + 1e-30))
        share /= share.sum(axis=1, keepdims=True)
        dense = np.zeros((len(near), weights.joint_count))
        rows = np.repeat(np.arange(len(near)), k * width)
        values = (share[:, :, None] * weights.weights[near]).ravel()
        np.add.at(dense, (rows, weights.joints[near].ravel()), values)
        parts.append(sparse_weights(dense, most))
    return stacked_weights(parts)


def _distinct(vertices: np.ndarray, weights: SkinWeights) -> tuple[np.ndarray, SkinWeights]:
    """Vertices that lie at one place (to a millionth of the size) as one, with the mean of their weights."""
    size = float(np.ptp(vertices, axis=0).max()) or 1.0
    _, first, group = np.unique(np.round(vertices / size, 6), axis=0, return_index=True, return_inverse=True)
    if len(first) == len(vertices):
        return vertices, weights
    dense = np.zeros((len(first), weights.joint_count))
    np.add.at(
        dense, (np.repeat(group.ravel(), weights.joints.shape[1]), weights.joints.ravel()), weights.weights.ravel()
    )
    return vertices[first], sparse_weights(dense, weights.joint_count)


def stacked_weights(parts: list[SkinWeights]) -> SkinWeights:
    """Weights of several sets of points on one skeleton, one after the other."""
    width = max(part.joints.shape[1] for part in parts)

    def wide(values: np.ndarray) -> np.ndarray:
        return np.pad(values, ((0, 0), (0, width - values.shape[1])))

    return SkinWeights(
        np.concatenate([wide(part.joints) for part in parts]),
        np.concatenate([wide(part.weights) for part in parts]),
        parts[0].joint_count,
    )


def diffused_weights(
    points: Float[np.ndarray, "n 3"],
    vertices: Float[np.ndarray, "v 3"],
    weights: SkinWeights,
    *,
    radius: float = 0.02,
    k: int = 6,
    most: int = MOST_INFLUENCES,
) -> SkinWeights:
    """Weights carried by :func:`transfer_weights`, then spread along the points' own surface by heat.

    Solves (C M + r^2 L) W = C M W_0 with the Laplacian L and mass M of the point cloud (Sharp and Crane 2020) and
    confidences C that fall off with the distance to the nearest vertex: smooths the seams between the cells of nearest
    vertices, and points far from the mesh take the weights of their neighbours instead of guesses. ``radius`` r is a
    fraction of the points' size. Needs the extra ``rig``.
    """
    from scipy.sparse import diags
    from scipy.sparse.linalg import splu
    from scipy.spatial import cKDTree

    robust = require("robust_laplacian", extra="rig")
    start = transfer_weights(points, vertices, weights, k, most=weights.joint_count).dense()
    points = np.asarray(points, np.float64)
    size = float(np.ptp(points, axis=0).max()) or 1.0
    unit, back = np.unique(np.round(points / size, 9), axis=0, return_inverse=True)  # doubles have no cell of their own
    back = back.ravel()
    if len(unit) < 32:
        return sparse_weights(start, most)
    count = np.bincount(back, minlength=len(unit))[:, None]
    merged = np.stack([np.bincount(back, column, len(unit)) for column in start.T], axis=1) / count
    laplacian, mass = robust.point_cloud_laplacian(unit)
    distance = cKDTree(np.asarray(vertices, np.float64) / size).query(unit)[0]
    confidence = np.exp(-((distance / 0.03) ** 2)) + 1e-4
    trust: Float64[np.ndarray, " n"] = confidence * mass.diagonal()
    solved = splu((diags(trust) + radius**2 * laplacian).tocsc()).solve(trust[:, None] * merged)
    return sparse_weights(np.maximum(solved, 0.0)[back], most)
