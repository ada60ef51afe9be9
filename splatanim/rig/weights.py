"""Skinning weights: which joints a point follows, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int, Int32

from splatanim.errors import InputError

MOST_INFLUENCES = 8  # joints a point: two sets of four, as glTF viewers read them


@dataclass(frozen=True)
class SkinWeights:
    """The k strongest influences of N points: ``joints`` (n, k) indices, ``weights`` (n, k) that sum to 1 in each row.

    Rows are padded with weight 0 on joint 0. ``joint_count`` is the skeleton's number of joints.
    """

    joints: Int32[np.ndarray, "n k"]
    weights: Float64[np.ndarray, "n k"]
    joint_count: int

    def __post_init__(self) -> None:
        if self.joints.shape != self.weights.shape:
            raise InputError(
                f"SkinWeights: joints {self.joints.shape} and weights {self.weights.shape} differ in shape."
            )
        if not len(self.joints):
            return
        if self.joints.min() < 0 or self.joints.max() >= self.joint_count:
            bad = int(self.joints.max() if self.joints.max() >= self.joint_count else self.joints.min())
            raise InputError(f"SkinWeights: a point follows joint {bad}, but there are {self.joint_count} joints.")
        if not np.isfinite(self.weights).all() or self.weights.min() < 0:
            raise InputError("SkinWeights: weights must be finite and not negative.")
        if np.abs(self.weights.sum(axis=1) - 1.0).max() > 1e-3:
            raise InputError("SkinWeights: the weights of every point must sum to 1.")

    def __len__(self) -> int:
        return len(self.joints)

    def dense(self) -> Float64[np.ndarray, "n j"]:
        """One column a joint."""
        out = np.zeros((len(self), self.joint_count))
        rows = np.repeat(np.arange(len(self)), self.joints.shape[1])
        np.add.at(out, (rows, self.joints.ravel()), self.weights.ravel())
        return out

    def select(self, rows: np.ndarray) -> SkinWeights:
        return SkinWeights(self.joints[rows], self.weights[rows], self.joint_count)


def sparse_weights(dense: Float[np.ndarray, "n j"], most: int = MOST_INFLUENCES) -> SkinWeights:
    """The strongest influences of each row, scaled to sum to 1.

    Raises :class:`InputError` where a row has no positive weight.
    """
    dense = np.where(np.asarray(dense, np.float64) > 0, dense, 0.0)
    k = min(most, dense.shape[1])
    joints = np.argsort(-dense, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(dense, joints, axis=1)
    total = weights.sum(axis=1, keepdims=True)
    if len(dense) and not total.min() > 0:
        row = int(total[:, 0].argmin())
        raise InputError(f"SkinWeights: point {row} follows no joint: all its weights are zero.")
    used = int((weights > 0).sum(axis=1).max(initial=1))
    weights, joints = (weights / total)[:, :used], joints[:, :used]
    return SkinWeights(np.where(weights > 0, joints, 0).astype(np.int32), np.ascontiguousarray(weights), dense.shape[1])


def repair_weights(
    joints: Int[np.ndarray, "n k"],
    weights: Float[np.ndarray, "n k"],
    points: Float[np.ndarray, "n 3"],
    joint_count: int,
    where: str,
) -> tuple[SkinWeights, tuple[str, ...]]:
    """Weights as a file has them, made whole: NaN, negative and zero rows mended and counted in notes.

    Entries that are NaN, infinite or negative become 0, each row is scaled to sum to 1, and a point that is left
    without any influence takes those of the nearest point that has some.

    Raises :class:`InputError` (with ``where`` in it) for joint indices out of range, and where no point has weights.
    """
    joints = np.asarray(joints, np.int64)
    weights = np.array(weights, np.float64)
    bad = ~np.isfinite(weights) | (weights < 0)
    weights[bad] = 0.0
    used = weights > 0
    if (joints[used] < 0).any() or (joints[used] >= joint_count).any():
        raise InputError(
            f"{where}: a vertex follows joint {joints[used].max()}, but the skin has {joint_count} joints. "
            "The file is damaged: export it again."
        )
    joints = np.where(used, joints, 0)
    total = weights.sum(axis=1)
    notes = []
    if bad.any():
        rows = int(bad.any(axis=1).sum())
        notes.append(f"{where}: {rows} vertices have skinning weights that are NaN or negative; mended.")
    empty = ~(total > 0)
    if len(empty) and empty.all():
        raise InputError(f"{where}: the skinning weights of all {len(empty)} vertices are zero. Export the rig again.")
    if empty.any():
        from scipy.spatial import cKDTree

        whole = np.flatnonzero(~empty)
        nearest = whole[cKDTree(points[whole]).query(points[empty])[1]]
        joints[empty], weights[empty] = joints[nearest], weights[nearest]
        notes.append(f"{where}: {int(empty.sum())} vertices follow no joint; they got the weights of their neighbours.")
        total = weights.sum(axis=1)
    off = int(((np.abs(total - 1.0) > 1e-2) & ~empty).sum())
    if off:
        notes.append(f"{where}: the skinning weights of {off} vertices do not sum to 1; scaled.")
    return SkinWeights(joints.astype(np.int32), weights / total[:, None], joint_count), tuple(notes)
