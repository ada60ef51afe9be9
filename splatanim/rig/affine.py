"""Small transforms in batches: wxyz quaternions, T R S matrices and back (NumPy, float64, any leading shape)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64


def quaternion_matrices(q: Float[np.ndarray, "... 4"]) -> Float64[np.ndarray, "... 3 3"]:
    """Rotation matrices of wxyz quaternions, which need not be unit."""
    q = np.asarray(q, np.float64)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return np.stack(rows, axis=-1).reshape(*q.shape[:-1], 3, 3)


def matrix_quaternions(r: Float[np.ndarray, "... 3 3"]) -> Float64[np.ndarray, "... 4"]:
    """Unit wxyz quaternions of rotation matrices, w >= 0."""
    from splatanim.rotations import matrices_to_quaternions

    return matrices_to_quaternions(np.asarray(r, np.float64).reshape(-1, 3, 3)).reshape(*r.shape[:-2], 4)


def compose(
    translations: Float[np.ndarray, "... 3"], rotations: Float[np.ndarray, "... 4"], scales: Float[np.ndarray, "... 3"]
) -> Float64[np.ndarray, "... 4 4"]:
    """T R S as matrices."""
    out = np.zeros((*translations.shape[:-1], 4, 4))
    out[..., :3, :3] = quaternion_matrices(rotations) * np.asarray(scales, np.float64)[..., None, :]
    out[..., :3, 3] = translations
    out[..., 3, 3] = 1.0
    return out


def decompose(
    matrix: Float[np.ndarray, "4 4"],
) -> tuple[Float64[np.ndarray, " 3"], Float64[np.ndarray, " 4"], Float64[np.ndarray, " 3"]] | None:
    """Translation, rotation and scale with T R S = matrix; None where it shears or flattens.

    A mirror image goes into the sign of the first scale.
    """
    linear = np.asarray(matrix, np.float64)[:3, :3]
    scale = np.linalg.norm(linear, axis=0)
    if not scale.min() > 1e-12 * max(scale.max(), 1e-300):
        return None
    if np.linalg.det(linear) < 0:
        scale = scale * [-1.0, 1.0, 1.0]
    rotation = linear / scale
    if np.abs(rotation.T @ rotation - np.eye(3)).max() > 1e-6:
        return None
    return np.asarray(matrix, np.float64)[:3, 3].copy(), matrix_quaternions(rotation), scale


def polar_rotations(linear: Float[np.ndarray, "... 3 3"]) -> Float64[np.ndarray, "... 3 3"]:
    """The rotation nearest to each matrix (determinant +1)."""
    u, _, vt = np.linalg.svd(np.asarray(linear, np.float64))
    u[..., :, 2] *= np.sign(np.linalg.det(u @ vt))[..., None]
    return u @ vt


def shortest_turn(source: Float[np.ndarray, " 3"], target: Float[np.ndarray, " 3"]) -> Float64[np.ndarray, "3 3"]:
    """The rotation by the smallest angle that takes one direction to another; the identity where either is zero."""
    from scipy.spatial.transform import Rotation

    lengths = float(np.linalg.norm(source)), float(np.linalg.norm(target))
    if min(lengths) < 1e-12:
        return np.eye(3)
    a, b = np.asarray(source, np.float64) / lengths[0], np.asarray(target, np.float64) / lengths[1]
    axis = np.cross(a, b)
    sine, cosine = float(np.linalg.norm(axis)), float(a @ b)
    if sine < 1e-12:
        if cosine > 0:
            return np.eye(3)
        axis = np.cross(a, np.eye(3)[int(np.argmin(np.abs(a)))])
        return Rotation.from_rotvec(np.pi * axis / np.linalg.norm(axis)).as_matrix()
    return Rotation.from_rotvec(np.arctan2(sine, cosine) * axis / sine).as_matrix()


def slerp(
    a: Float[np.ndarray, "... 4"], b: Float[np.ndarray, "... 4"], s: Float[np.ndarray, "... 1"]
) -> Float64[np.ndarray, "... 4"]:
    """Spherical interpolation from a (s = 0) to b (s = 1) the short way round; linear where they nearly coincide."""
    dot = (a * b).sum(axis=-1, keepdims=True)
    b = np.where(dot < 0, -b, b)
    angle = np.arccos(np.clip(np.abs(dot), 0.0, 1.0))
    sine = np.sin(angle)
    near = sine < 1e-6
    safe = np.where(near, 1.0, sine)
    left = np.where(near, 1.0 - s, np.sin((1.0 - s) * angle) / safe)
    right = np.where(near, s, np.sin(s * angle) / safe)
    out = left * a + right * b
    return out / np.linalg.norm(out, axis=-1, keepdims=True)
