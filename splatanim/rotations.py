"""Rotations: wxyz quaternions, the polar factor, and the rotation of spherical harmonics.

The spherical harmonics are those of 3DGS files (real basis, Condon-Shortley signs as in its shader). A splat that is
rotated by R keeps its look when its radiance is carried along, c'(d) = c(R^T d). Each degree l is a linear space, so
its coefficients transform by the matrix that maps values at 2l + 1 fixed directions to coefficients:
sh'_l = Y_l(D)^-1 Y_l(R^T D) sh_l. The directions D are chosen once; the inverse is a constant.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float, Float32, Float64

SH_C0 = 0.28209479177387814
_C1 = 0.4886025119029199
_C2 = (1.0925484305920792, 0.31539156525252005, 0.5462742152960396)
_C3 = (0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277)


def quaternions_to_matrices(q: Float[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n 3 3"]:
    """Rotation matrices of wxyz quaternions (need not be unit)."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_quat(np.asarray(q, np.float64), scalar_first=True).as_matrix()


def matrices_to_quaternions(r: Float[np.ndarray, "n 3 3"]) -> Float64[np.ndarray, "n 4"]:
    """Unit wxyz quaternions of rotation matrices, w >= 0."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(np.asarray(r, np.float64)).as_quat(canonical=True, scalar_first=True)


def sh_basis(directions: Float[np.ndarray, "n 3"], degree: int) -> Float64[np.ndarray, "n k"]:
    """The 3DGS basis Y_k at unit directions, k = 0 .. (degree + 1)^2 - 1."""
    x, y, z = np.asarray(directions, np.float64).T
    columns = [np.full(len(directions), SH_C0)]
    if degree > 0:
        columns += [-_C1 * y, _C1 * z, -_C1 * x]
    if degree > 1:
        a, b, c = _C2
        columns += [a * x * y, -a * y * z, b * (2 * z * z - x * x - y * y), -a * x * z, c * (x * x - y * y)]
    if degree > 2:
        a, b, c, d, e = _C3
        columns += [
            -a * y * (3 * x * x - y * y),
            b * x * y * z,
            -c * y * (4 * z * z - x * x - y * y),
            d * z * (2 * z * z - 3 * x * x - 3 * y * y),
            -c * x * (4 * z * z - x * x - y * y),
            e * z * (x * x - y * y),
            -a * x * (x * x - 3 * y * y),
        ]
    return np.stack(columns, axis=1)


@functools.cache
def sh_probes(degree: int) -> tuple[Float64[np.ndarray, "p 3"], Float64[np.ndarray, "p p"]]:
    """2l + 1 directions at which degree l is well determined, and the inverse of its basis there.

    The best-conditioned of a fixed, seeded set of candidates (condition number below 4).
    """
    rng = np.random.default_rng(7)
    best, best_condition = None, np.inf
    for _ in range(400):
        d = rng.normal(size=(2 * degree + 1, 3))
        d /= np.linalg.norm(d, axis=1, keepdims=True)
        matrix = sh_basis(d, degree)[:, degree**2 :]
        condition = np.linalg.cond(matrix)
        if condition < best_condition:
            best, best_condition = (d, np.linalg.inv(matrix)), condition
    assert best is not None
    return best


def sh_rotation(rotation: Float[np.ndarray, "3 3"], degree: int) -> Float64[np.ndarray, "k k"]:
    """The block-diagonal matrix D with sh' = D sh for a rotation R: c'(d) = c(R^T d)."""
    out = np.zeros(((degree + 1) ** 2,) * 2)
    out[0, 0] = 1.0
    for l in range(1, degree + 1):
        directions, inverse = sh_probes(l)
        block = slice(l * l, (l + 1) ** 2)
        out[block, block] = inverse @ sh_basis(directions @ np.asarray(rotation, np.float64), l)[:, block]
    return out


def rotate_sh(sh: Float32[np.ndarray, "n k 3"], rotations: Float[np.ndarray, "n 3 3"]) -> Float32[np.ndarray, "n k 3"]:
    """Rotate every splat's harmonics by its own rotation."""
    from splatanim._harmonics import rotate_sh_kernel

    out = np.array(sh, np.float32)
    rotate_sh_kernel(out, np.ascontiguousarray(rotations, np.float64), *sh_tables())
    return out


def sh_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Probe directions and inverses of degrees 2 and 3, as the kernels take them."""
    return (*sh_probes(2), *sh_probes(3))
