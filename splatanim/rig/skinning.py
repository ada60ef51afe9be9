"""Points and splats that follow a skeleton: linear blending, and dual quaternions, of the joints' transforms.

Linear: x = sum_j w_j T_j [X; 1], T_j = G_j B_j. Dual quaternions (Kavan et al. 2008) keep volume where a joint twists:
each T_j is split into R_j U_j (polar: a rotation and a symmetric stretch), the stretches are blended linearly first,
then the rigid parts as unit dual quaternions,

    x = R(q) (sum_j w_j U_j) X + t(q),    q = sum_j w_j q_j / |sum_j w_j q_j|.

Splats take the linear part A of the blended map at their centre: mean to x, covariance to A Sigma A^T exactly, and
harmonics turned by A's polar rotation. The weights count as constant over a splat, as in linear blend skinning of a
rigid bone's surface; their gradient is not known for weights that come with a mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.rig.affine import matrix_quaternions, polar_rotations, quaternion_matrices
from splatanim.rig.weights import SkinWeights

Method = Literal["linear", "dual"]


def blend_maps(
    points: Float[np.ndarray, "n 3"],
    skin: SkinWeights,
    transforms: Float[np.ndarray, "j 4 4"],
    method: Method = "linear",
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3 3"]]:
    """Posed points, and the linear parts A of the blended maps there."""
    if len(points) != len(skin):
        raise InputError(f"Skinning: {len(points)} points but weights for {len(skin)}.")
    if len(transforms) != skin.joint_count:
        raise InputError(f"Skinning: {len(transforms)} joint transforms, but the weights know {skin.joint_count}.")
    if method == "dual":
        return _dual_maps(np.asarray(points, np.float64), skin, np.asarray(transforms, np.float64))
    if method != "linear":
        raise InputError(f"Skinning: unknown method {method!r}; choose linear or dual.")
    from splatanim.rig._kernels import blend_kernel

    points = np.ascontiguousarray(points)
    out, linear = np.empty((len(points), 3)), np.empty((len(points), 3, 3))
    joints, weights = np.ascontiguousarray(skin.joints), np.ascontiguousarray(skin.weights)
    blend_kernel(joints, weights, np.ascontiguousarray(transforms[:, :3], np.float64), points, out, linear)
    return out, linear


def blend_points(
    points: Float[np.ndarray, "n 3"],
    skin: SkinWeights,
    transforms: Float[np.ndarray, "j 4 4"],
    method: Method = "linear",
) -> Float64[np.ndarray, "n 3"]:
    """Posed points alone."""
    return blend_maps(points, skin, transforms, method)[0]


def _dual_maps(
    points: np.ndarray, skin: SkinWeights, transforms: np.ndarray
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3 3"]]:
    rotations = polar_rotations(transforms[:, :3, :3])
    stretches = np.swapaxes(rotations, 1, 2) @ transforms[:, :3, :3]
    real = matrix_quaternions(rotations)
    dual = 0.5 * multiply(np.pad(transforms[:, :3, 3], ((0, 0), (1, 0))), real)
    weights = skin.weights.copy()
    pivot = real[np.take_along_axis(skin.joints, weights.argmax(axis=1)[:, None], axis=1)[:, 0]]
    own = real[skin.joints]
    signed = weights * np.where(np.einsum("nkd,nd->nk", own, pivot) < 0, -1.0, 1.0)  # q and -q turn alike
    q = np.einsum("nk,nkd->nd", signed, own)
    d = np.einsum("nk,nkd->nd", signed, dual[skin.joints])
    length = np.linalg.norm(q, axis=1, keepdims=True)
    q, d = q / length, d / length
    shift = 2.0 * multiply(d, q * [1.0, -1.0, -1.0, -1.0])[:, 1:]
    linear = quaternion_matrices(q) @ np.einsum("nk,nkab->nab", weights, stretches[skin.joints])
    return np.einsum("nab,nb->na", linear, points) + shift, linear


def multiply(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n 4"]:
    """Products of wxyz quaternions, row by row."""
    w = a[:, :1] * b[:, :1] - (a[:, 1:] * b[:, 1:]).sum(axis=1, keepdims=True)
    return np.concatenate([w, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + np.cross(a[:, 1:], b[:, 1:])], axis=1)


@dataclass(frozen=True)
class RiggedSplats:
    """Splats in the bind pose with their skinning weights: all that posing needs."""

    splats: Splats
    skin: SkinWeights
    method: Method = "linear"

    def __post_init__(self) -> None:
        if len(self.splats) != len(self.skin):
            raise InputError(f"RiggedSplats: {len(self.splats)} splats but weights for {len(self.skin)}.")

    def local(self, transforms: Float[np.ndarray, "j 4 4"]) -> Float64[np.ndarray, "j 4 4"]:
        """Transforms of file coordinates in those of ``Splats.means``, which lack ``offset``."""
        out = np.array(transforms, np.float64)
        offset = np.asarray(self.splats.offset)
        out[:, :3, 3] += out[:, :3, :3] @ offset - offset
        return out


def pose_splats(rigged: RiggedSplats, transforms: Float[np.ndarray, "j 4 4"]) -> Splats:
    """One frame: splats under the joints' skinning transforms G_j B_j (of file coordinates)."""
    from splatanim.transforms import push_forward

    means, linear = blend_maps(rigged.splats.means, rigged.skin, rigged.local(transforms), rigged.method)
    return push_forward(rigged.splats, linear, means)
