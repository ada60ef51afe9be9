"""What RigPAPR is held against: splats on the same fitted motion, and fits that leave the rig's priors out.

:class:`SkinnedSplats` is RigGS's deformation without its pose-conditioned head: a splat's centre by linear blending of
the joints' transforms, its orientation by the blend of their quaternions, its scales unchanged (RigPAPR D.3). As there
its weights come by inverse distances, and no moments of the rig's mesh (:mod:`rigpapr.skin`) help it.
:class:`MeshSplats` is Mani-GS without adaptive scaling: each splat keeps its place in a triangle of a mesh that the rig
moves, turns with the triangle's own frame, and keeps its scales. Where the rig has a mesh, vertices move as it moves
them exactly. :func:`photometric_only` descends on colours alone,
from frame to frame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from rigpapr.binding import FitRig
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_kinematics import skinned
from rigpapr.fitted import FittedAsset
from rigpapr.phase_one import phase_one
from rigpapr.skin import Skin, plain_skin
from rigpapr.supervision import Clip
from rigpapr.two_phase import TwoPhaseConfig, start_fit
from splatanim.data import Mesh, Splats
from splatanim.errors import InputError
from splatanim.rig.affine import matrix_quaternions, polar_rotations, quaternion_matrices
from splatanim.rig.transfer import transfer_weights
from splatanim.rig.weights import sparse_weights
from splatanim.transforms import push_forward

Maps = Float[np.ndarray, "j 4 4"]


def carried_weights(asset: FittedAsset, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n j"]:
    """The asset's refined weights at other points: k = 6 inverse distances from its own."""
    sources = asset.cloud.world_positions.detach().double().numpy()
    joints = len(asset.names)
    skin = sparse_weights(asset.weights.double().numpy(), joints)
    return transfer_weights(points, sources, skin, 6, most=joints).dense()


@dataclass(frozen=True)
class SkinnedSplats:
    """Splats that follow a rig by themselves, by plain linear blending; ``weights`` (N, J)."""

    splats: Splats
    weights: Float64[np.ndarray, "n j"]

    def posed(self, maps: Maps) -> Splats:
        """The splats under the joints' skinning transforms."""
        blended = np.einsum("nj,jab->nab", self.weights, np.asarray(maps, np.float64)[:, :3])
        means = np.einsum("nab,nb->na", blended[:, :, :3], self.splats.means.astype(np.float64)) + blended[:, :, 3]
        return push_forward(self.splats, quaternion_blend(maps, self.weights), means)


def quaternion_blend(maps: Maps, weights: Float64[np.ndarray, "n j"]) -> Float64[np.ndarray, "n 3 3"]:
    """Rotations from the normalised weighted sum of the joints' quaternions, each on the side of the strongest."""
    quaternions = matrix_quaternions(polar_rotations(np.asarray(maps, np.float64)[:, :3, :3]))
    leading = quaternions[weights.argmax(axis=1)]
    signs = np.where(leading @ quaternions.T < 0, -1.0, 1.0)
    total = (weights * signs) @ quaternions
    return quaternion_matrices(total / np.linalg.norm(total, axis=1, keepdims=True))


def skin_splats(splats: Splats, asset: FittedAsset) -> SkinnedSplats:
    """Splats at rest with the asset's weights by inverse distances, as RigGS has them; its moments are left out."""
    return SkinnedSplats(splats, carried_weights(asset, splats.means.astype(np.float64)))


@dataclass(frozen=True)
class MeshSplats:
    """Splats on a mesh: ``face`` (N,), ``barycentric`` (N, 3) in it, ``skin`` of the mesh's V vertices."""

    splats: Splats
    mesh: Mesh
    face: Int64[np.ndarray, " n"]
    barycentric: Float64[np.ndarray, "n 3"]
    skin: Skin

    def __post_init__(self) -> None:
        n = len(self.splats)
        if self.face.shape != (n,) or self.barycentric.shape != (n, 3):
            raise InputError(f"MeshSplats: {n} splats, faces {self.face.shape}, places {self.barycentric.shape}.")
        if len(self.skin) != len(self.mesh.vertices):
            raise InputError(f"MeshSplats: {len(self.mesh.vertices)} vertices, weights for {len(self.skin)}.")

    def posed(self, maps: Maps) -> Splats:
        """The splats where the skinned mesh takes them."""
        vertices = np.asarray(self.mesh.vertices, np.float64)
        moved, _ = skinned(vertices, self.skin, np.asarray(maps, np.float64)[:, :3])
        before, after = self._frames(vertices), self._frames(moved)
        turn = after @ before.transpose(0, 2, 1)
        offset = self.splats.means.astype(np.float64) - self._places(vertices)
        return push_forward(self.splats, turn, self._places(moved) + np.einsum("nab,nb->na", turn, offset))

    def _places(self, vertices: np.ndarray) -> np.ndarray:
        return np.einsum("nk,nkd->nd", self.barycentric, vertices[self.mesh.faces[self.face]])

    def _frames(self, vertices: np.ndarray) -> np.ndarray:
        """(N, 3, 3): first edge, what is left of the second, and normal of each splat's triangle, as columns."""
        a, b, c = (vertices[self.mesh.faces[self.face, k]] for k in range(3))
        first = _unit(b - a)
        normal = _unit(np.cross(first, c - a))
        return np.stack([first, np.cross(normal, first), normal], axis=2)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def bind_to_mesh(
    splats: Splats,
    mesh: Mesh,
    face: Int64[np.ndarray, " n"],
    barycentric: Float64[np.ndarray, "n 3"],
    asset: FittedAsset,
    rig: FitRig | None = None,
) -> MeshSplats:
    """Splats bound to triangles of a mesh at rest.

    Its vertices follow the mesh of ``rig`` exactly where that is given and has one, else they take the asset's weights.
    Raises InputError for a rig whose joints are not the asset's.
    """
    vertices = np.asarray(mesh.vertices, np.float64)
    if rig is None or rig.mesh is None:
        return MeshSplats(splats, mesh, face, barycentric, plain_skin(carried_weights(asset, vertices)))
    if rig.names != asset.names:
        raise InputError(
            f"bind_to_mesh: the rig has joints {', '.join(rig.names)}, the asset {', '.join(asset.names)}. "
            "Give the rig that the asset was fitted with, or none."
        )
    return MeshSplats(splats, mesh, face, barycentric, rig.skin(vertices))


def photometric_only(
    cloud: PaprCloud,
    rig: FitRig,
    clip: Clip,
    *,
    config: TwoPhaseConfig | None = None,
    on_frame: Callable[[int, int, float], None] | None = None,
) -> FittedAsset:
    """Every frame from the one before by descent on the picture alone: no tracker, no depth, no held rotations."""
    plan = config or TwoPhaseConfig()
    alone = dataclasses.replace(plan.one, depth=0.0, rotation=0.0)
    fit = start_fit(
        cloud, rig, clip, motion=None, config=dataclasses.replace(plan, chain=True, direct=False, one=alone)
    )
    phase_one(fit, on_frame=on_frame)
    return fit.result()
