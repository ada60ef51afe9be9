"""Weights for files that know linear blend skinning alone: what comes nearest to points that also have moments.

With T_tb what joint b does in frame t, x_t where point p is then (:mod:`rigpapr.skin`), and v the asset's weights,

    min_w  sum_t |sum_b w_b T_tb p - x_t|^2 + HOLD trace(Q) / K |w - v|^2,   w >= 0,  sum_b w_b = 1,

over the K joints that the point follows and their neighbours in the tree. As the weights sum to 1 the first term is
w^T Q w, Q_ab = sum_t (T_ta p - x_t) . (T_tb p - x_t). Accelerated projected gradients solve all points at once, and
once more among the eight largest, as many as glTF has room for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from rigpapr.coarse_kinematics import skinned
from rigpapr.skin import Skin
from splatanim.rig.weights import MOST_INFLUENCES

_FOLLOWED = 0.01  # of a point's weight: joints with less bring no neighbours
_CANDIDATES = 14  # joints of the first solution
_HOLD = 1e-4  # how firmly the asset's weights are held, so that poses beyond the clip stay plausible
_STEPS = 200
_CHUNK = 2048  # points at a time


def blend_weights(
    points: Float64[np.ndarray, "n 3"],
    skin: Skin,
    maps: Float64[np.ndarray, "t j 3 4"],
    parents: Sequence[int],
) -> Float64[np.ndarray, "n j"]:
    """Weights (N, J), at most eight a point: linear blending by them follows the skin best over the frames of ``maps``.

    ``parents`` has -1 at roots.
    """
    out = np.zeros_like(skin.weights)
    order = _candidates(skin.weights, parents)
    for first in range(0, len(points), _CHUNK):
        rows = slice(first, first + _CHUNK)
        part, near, at = skin[np.arange(len(points))[rows]], order[rows], points[rows]
        apart = np.empty((len(at), near.shape[1], len(maps), 3))
        for t, frame in enumerate(maps):
            carried = np.einsum("jab,nb->nja", frame[:, :, :3], at, optimize=True) + frame[:, :, 3]
            target, _ = skinned(at, part, frame)
            apart[:, :, t] = np.take_along_axis(carried, near[..., None], axis=1) - target[:, None]
        apart = apart.reshape(*near.shape, -1)
        gram = apart @ apart.transpose(0, 2, 1)
        start = np.take_along_axis(part.weights, near, axis=1)
        found = _solve(gram, start)
        best = np.argsort(-found, axis=1, kind="stable")[:, :MOST_INFLUENCES]
        few = np.take_along_axis(np.take_along_axis(gram, best[:, :, None], 1), best[:, None], 2)
        found = _solve(few, np.take_along_axis(start, best, axis=1))
        np.put_along_axis(out[rows], np.take_along_axis(near, best, axis=1), found, axis=1)
    return out


def _candidates(weights: np.ndarray, parents: Sequence[int]) -> Int64[np.ndarray, "n k"]:
    """Joints by weight, to which neighbours of those that count add a little of theirs."""
    joined = np.zeros((len(parents), len(parents)))
    for joint, parent in enumerate(parents):
        if parent >= 0:
            joined[joint, parent] = joined[parent, joint] = 1.0
    rank = weights + 0.1 * np.where(weights > _FOLLOWED, weights, 0.0) @ joined
    return np.argsort(-rank, axis=1, kind="stable")[:, :_CANDIDATES]


def _solve(gram: Float64[np.ndarray, "n k k"], start: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
    """The minimum over the simplex of w^T Q w + hold |w - start|^2, by accelerated projected gradients."""
    trace = np.trace(gram, axis1=1, axis2=2)
    hold = (_HOLD * trace / gram.shape[1] + np.finfo(np.float64).tiny)[:, None]
    rate = 1.0 / (np.linalg.eigvalsh(gram)[:, -1:].clip(0) + hold)
    now = ahead = _on_simplex(start)
    for step in range(_STEPS):
        slope = (gram @ ahead[..., None])[..., 0] + hold * (ahead - start)
        after = _on_simplex(ahead - rate * slope)
        ahead = after + step / (step + 3.0) * (after - now)
        now = after
    return now


def _on_simplex(values: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
    """The nearest weights that are not negative and sum to 1."""
    falling = -np.sort(-values, axis=1)
    level = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, values.shape[1] + 1)
    last = (falling > level).sum(axis=1) - 1
    return np.maximum(values - np.take_along_axis(level, last[:, None], axis=1), 0.0)
