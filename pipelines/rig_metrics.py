"""How near one rig is to another: distances between skeletons, weights, and what re-posing with true motion leaves.

Distances between skeletons are those of RigNet (Xu et al. 2020), as shares of the object's size: Chamfer distances
from joints to joints, from joints to bones and from bones to bones, each the mean of both directions. Joints of the
true rig that nothing is bound to (controls, targets of inverse kinematics) do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Skeleton
from splatanim.rig.skinning import blend_points
from splatanim.rig.weights import SkinWeights

_FEWEST = 4  # vertices that a rigid motion is fitted to


@dataclass(frozen=True)
class Bones:
    """Joints (j, 3) and bones as pairs of points (b, 2, 3)."""

    joints: Float64[np.ndarray, "j 3"]
    bones: Float64[np.ndarray, "b 2 3"]


def bones_of(skeleton: Skeleton, used: np.ndarray | None = None, joints: np.ndarray | None = None) -> Bones:
    """The joints in the mask ``used`` and the bones from each to its nearest used ancestor; ``joints`` is a mask of
    those that count as joints, where only some do."""
    positions, n = skeleton.joint_positions, len(skeleton)
    used = np.ones(n, bool) if used is None else used
    pairs = []
    for j in np.flatnonzero(used):
        above = int(skeleton.parents[j])
        while above >= 0 and not used[above]:
            above = int(skeleton.parents[above])
        if above >= 0:
            pairs.append((positions[above], positions[j]))
    counted = used if joints is None else used & joints
    return Bones(positions[counted], np.array(pairs).reshape(-1, 2, 3))


def bound_joints(model: RiggedModel) -> np.ndarray:
    """Mask of the joints that some vertex follows."""
    used = np.zeros(len(model.skeleton), bool)
    used[np.unique(model.skin.joints[model.skin.weights > 0])] = True
    return used


def skeleton_distances(ours: Bones, theirs: Bones, size: float) -> dict[str, float]:
    """Chamfer distances over ``size``: ``j2j``, ``j2b``, ``b2b``."""
    between = {
        "j2j": 0.5 * (_to_points(ours.joints, theirs.joints) + _to_points(theirs.joints, ours.joints)),
        "j2b": 0.5 * (_to_bones(ours.joints, theirs) + _to_bones(theirs.joints, ours)),
        "b2b": 0.5 * (_to_bones(_along(ours), theirs) + _to_bones(_along(theirs), ours)),
    }
    return {name: value / size for name, value in between.items()}


def _to_points(points: np.ndarray, others: np.ndarray) -> float:
    return float(np.linalg.norm(points[:, None] - others[None], axis=2).min(axis=1).mean())


def _to_bones(points: np.ndarray, other: Bones) -> float:
    if not len(other.bones):
        return _to_points(points, other.joints)
    a, b = other.bones[:, 0], other.bones[:, 1]
    along = b - a
    share = np.einsum("nbd,bd->nb", points[:, None] - a, along) / np.maximum((along**2).sum(axis=1), 1e-30)
    nearest = a + np.clip(share, 0.0, 1.0)[..., None] * along
    return float(np.linalg.norm(points[:, None] - nearest, axis=2).min(axis=1).mean())


def _along(skeleton: Bones, count: int = 20) -> np.ndarray:
    """Points evenly on all bones, as many on each (as RigNet takes them)."""
    if not len(skeleton.bones):
        return skeleton.joints
    share = np.linspace(0.0, 1.0, count)[:, None, None]
    return (skeleton.bones[:, 0] * (1 - share) + skeleton.bones[:, 1] * share).reshape(-1, 3)


def weight_difference(ours: SkinWeights, theirs: SkinWeights) -> float:
    """Mean over vertices of sum_j |A_j - W_j| (0 to 2), each of our bones counting for the true joint whose weights it
    overlaps most."""
    a, w = ours.dense(), theirs.dense()
    partner = (a.T @ w).argmax(axis=1)
    gathered = np.zeros_like(w)
    np.add.at(gathered.T, partner, a.T)
    return float(np.abs(gathered - w).sum(axis=1).mean())


def owners(skin: SkinWeights) -> Int64[np.ndarray, " n"]:
    """The joint that every vertex follows most."""
    return skin.joints[np.arange(len(skin)), skin.weights.argmax(axis=1)].astype(np.int64)


def rigid_motion(source: Float[np.ndarray, "n 3"], target: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "4 4"]:
    """The rotation and translation that bring ``source`` nearest to ``target`` in the least squares sense (Kabsch)."""
    a, b = source.mean(axis=0), target.mean(axis=0)
    u, _, vt = np.linalg.svd((target - b).T @ (source - a))
    u[:, 2] *= np.sign(np.linalg.det(u @ vt))
    out = np.eye(4)
    out[:3, :3] = u @ vt
    out[:3, 3] = b - out[:3, :3] @ a
    return out


def fitted_motion(
    rest: Float64[np.ndarray, "v 3"], moved: Float64[np.ndarray, "v 3"], skeleton: Skeleton, skin: SkinWeights
) -> Float64[np.ndarray, "j 4 4"]:
    """For each joint the rigid motion that fits the vertices it owns best; with fewer than 4, its parent's."""
    owner = owners(skin)
    out = np.tile(rigid_motion(rest, moved), (len(skeleton), 1, 1))
    for j in skeleton.order:
        mine = owner == j
        if mine.sum() >= _FEWEST:
            out[j] = rigid_motion(rest[mine], moved[mine])
        elif skeleton.parents[j] >= 0:
            out[j] = out[skeleton.parents[j]]
    return out


def reposing_errors(
    rest: Float64[np.ndarray, "v 3"], moved: Float64[np.ndarray, "v 3"], skeleton: Skeleton, skin: SkinWeights
) -> Float64[np.ndarray, " v"]:
    """Distance of every vertex from the truth after linear blending of the fitted motions."""
    posed = blend_points(rest, skin, fitted_motion(rest, moved, skeleton, skin))
    return np.linalg.norm(posed - moved, axis=1)
