"""How points hang on joints: by weights, and where the rig's mesh is known also by first moments.

Points on a mesh move as its triangles do, which is no linear blend of the point itself: with m_k the shares of the
corners v_k of the triangles that a point follows, w_kb their weights, A_b what took bone b's part of a vertex to the
first frame, and T_b = (R_b | t_b) the motion since, the point p = sum_k m_k v_k + o goes to

    x' = sum_k m_k sum_b w_kb T_b A_b v_k + sum_b W_b R_b o = sum_b (W_b T_b p + R_b M_b),
    W_b = sum_k m_k w_kb,    M_b = sum_k m_k w_kb (A_b v_k + o - p),    sum_b M_b = 0:

linear blend skinning with interpolated weights, and a turn of each joint's moment M_b, which lacks in RigPAPR (its
equation 1). Large triangles that bend at a joint make them differ by as much as the triangle is long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from rigpapr.follow import attach
from splatanim.data import Mesh


@dataclass(frozen=True)
class Skin:
    """``weights`` (N, J), and ``moments`` (N, J, 3) [scene units], zero where no mesh is known."""

    weights: Float64[np.ndarray, "n j"]
    moments: Float64[np.ndarray, "n j 3"]

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, rows: np.ndarray) -> Skin:
        """Some of the points."""
        return Skin(self.weights[rows], self.moments[rows])


def plain_skin(weights: Float64[np.ndarray, "n j"]) -> Skin:
    """Weights alone."""
    return Skin(weights, np.zeros((*weights.shape, 3)))


@dataclass(frozen=True)
class RigMesh:
    """The mesh that a rig file skins: ``bind`` (V, 3) in its bind pose, ``faces`` (F, 3), ``weights`` (V, J) that sum
    to 1, and ``first`` (J, 3, 4), what takes each joint's part of the bind pose to the first frame in the scene."""

    bind: Float64[np.ndarray, "v 3"]
    faces: Int64[np.ndarray, "f 3"]
    weights: Float64[np.ndarray, "v j"]
    first: Float64[np.ndarray, "j 3 4"]

    def vertices(self) -> Float64[np.ndarray, "v 3"]:
        """The vertices in the first frame."""
        blended = np.einsum("vj,jab->vab", self.weights, self.first, optimize=True)
        return np.einsum("vab,vb->va", blended[:, :, :3], self.bind) + blended[:, :, 3]

    def skin(self, points: Float[np.ndarray, "n 3"]) -> Skin:
        """Points of the first frame on or a little below the surface, as :func:`rigpapr.follow.attach` binds them."""
        from scipy.sparse import csr_matrix

        found = attach(points, Mesh(self.vertices(), self.faces))
        corners = self.faces[found.faces].reshape(len(points), -1)
        rows = np.repeat(np.arange(len(points)), corners.shape[1])
        share = csr_matrix((found.weights.ravel(), (rows, corners.ravel())), shape=(len(points), len(self.bind)))
        weights = share @ self.weights
        parts = np.stack([share @ (self.weights * self.bind[:, axis, None]) for axis in range(3)], axis=2)
        placed = np.einsum("jab,njb->nja", self.first[:, :, :3], parts, optimize=True)
        placed += weights[..., None] * self.first[:, :, 3]
        moments = placed + weights[..., None] * (found.offset - np.asarray(points, np.float64))[:, None]
        return Skin(weights, moments)


def rig_mesh(
    bind: Float64[np.ndarray, "v 3"],
    faces: Int64[np.ndarray, "f 3"],
    weights: Float64[np.ndarray, "v j"],
    first: Float64[np.ndarray, "j 3 4"],
) -> RigMesh | None:
    """The part of a mesh whose vertices have weights; None where that has no triangle with an area."""
    total = weights.sum(axis=1)
    kept = faces[(total[faces] > 1e-6).all(axis=1)] if len(faces) else faces
    corners = bind[kept]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    if not (area > 0).any():
        return None
    return RigMesh(bind, kept[area > 0], weights / np.maximum(total, 1e-6)[:, None], first)
