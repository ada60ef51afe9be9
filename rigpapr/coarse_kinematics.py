"""Poses of a rig in NumPy, and how skinned points move with them: the derivatives that Gauss-Newton needs.

A step turns joint k by exp(omega_k) on the left of R_k and shifts it by tau_k, both in its parent's turned axes. With
S_k the descendants of k, y_j = T_j x the point as joint j carries it, R_j M_j its turned moment (:mod:`rigpapr.skin`),
and c_k' where joint k is now,

    dx'/d omega_k = [ sum_{j in S_k} w_j (c_k' - y_j) - R_j M_j ]_x  A_k,     dx'/d tau_k = ( sum_{j in S_k} w_j ) A_k

A_k being the parent's turned axes and [v]_x the matrix of the cross product v x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from rigpapr.binding import FitRig
from rigpapr.skin import Skin


@dataclass(frozen=True)
class JointPose:
    """Rotations (J, 3, 3) and translations (J, 3) of the joints, against the first frame (:mod:`rigpapr.binding`)."""

    rotations: Float64[np.ndarray, "j 3 3"]
    translations: Float64[np.ndarray, "j 3"]

    def stepped(self, step: Float64[np.ndarray, " p"], limit: float = 0.35) -> JointPose:
        """After a step of (omega, tau), 6 J numbers; turns are cut at ``limit`` radians."""
        j = len(self.rotations)
        turn, shift = step[: 3 * j].reshape(j, 3), step[3 * j :].reshape(j, 3)
        size = np.linalg.norm(turn, axis=1, keepdims=True)
        turn = turn * np.minimum(1.0, limit / np.maximum(size, 1e-12))
        return JointPose(exp_rotations(turn) @ self.rotations, self.translations + shift)


def rest_pose(joints: int) -> JointPose:
    """Nothing turned, nothing shifted."""
    return JointPose(np.tile(np.eye(3), (joints, 1, 1)), np.zeros((joints, 3)))


def exp_rotations(vectors: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3 3"]:
    """Rotation matrices of rotation vectors."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_rotvec(vectors).as_matrix()


def log_rotations(rotations: Float64[np.ndarray, "n 3 3"]) -> Float64[np.ndarray, "n 3"]:
    """Rotation vectors of rotation matrices."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(rotations).as_rotvec()


def transforms(rig: FitRig, pose: JointPose) -> Float64[np.ndarray, "j 3 4"]:
    """T_b of every joint."""
    out = np.empty((len(rig), 3, 4))
    for k, parent in enumerate(rig.parents):
        turn = pose.rotations[k]
        shift = rig.joints[k] - turn @ rig.joints[k] + pose.translations[k]
        if parent < 0:
            out[k, :, :3], out[k, :, 3] = turn, shift
        else:
            out[k, :, :3] = out[parent, :, :3] @ turn
            out[k, :, 3] = out[parent, :, :3] @ shift + out[parent, :, 3]
    return out


def skinned(
    points: Float64[np.ndarray, "n 3"], skin: Skin, maps: Float64[np.ndarray, "j 3 4"]
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3 3"]]:
    """Points as their joints move them, and the linear part of each one's blended map."""
    blended = (skin.weights @ maps.reshape(len(maps), 12)).reshape(-1, 3, 4)
    turned = skin.moments.reshape(len(points), -1) @ maps[:, :, :3].transpose(0, 2, 1).reshape(-1, 3)
    return np.einsum("nab,nb->na", blended[:, :, :3], points) + blended[:, :, 3] + turned, blended[:, :, :3]


def jacobian(
    rig: FitRig,
    below: Float64[np.ndarray, "j j"],
    points: Float64[np.ndarray, "n 3"],
    skin: Skin,
    maps: Float64[np.ndarray, "j 3 4"],
) -> Float64[np.ndarray, "n 3 p"]:
    """dx'/d(omega, tau) of skinned points, (N, 3, 6 J); ``below`` is :meth:`FitRig.descendants`."""
    n, j = len(points), len(rig)
    carried = np.einsum("jab,nb->nja", maps[:, :, :3], points, optimize=True) + maps[None, :, :, 3]
    lever = skin.weights[..., None] * carried + np.einsum("jab,njb->nja", maps[:, :, :3], skin.moments, optimize=True)
    share = skin.weights @ below.T
    now = np.einsum("jab,jb->ja", maps[:, :, :3], rig.joints) + maps[:, :, 3]
    arm = np.einsum("kj,nja->nka", below, lever, optimize=True) - share[..., None] * now
    axes = np.stack([np.eye(3) if p < 0 else maps[p, :, :3] for p in rig.parents])
    # -[arm]_x A = columns of (axis x arm)
    turned = np.cross(axes.transpose(0, 2, 1)[None], arm[:, :, None, :])  # (N, J, axis, 3)
    shifted = share[:, :, None, None] * axes.transpose(0, 2, 1)[None]
    both = np.stack([turned, shifted])  # (2, N, J, axis, 3)
    return both.transpose(1, 4, 0, 2, 3).reshape(n, 3, 6 * j)
