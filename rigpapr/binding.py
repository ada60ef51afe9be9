"""The rig as fitting needs it: joints in the pose of the first frame, parents first, and weights at any point.

A motion turns every joint about its place at rest, in its parent's turned axes, and may shift it:

    G_b = G_parent [R_b | c_b - c_parent + t_b],    T_b = G_b Trans(-c_b),    x' = sum_b w_b(x) T_b x

t_b is the root's translation, and a small shift of the joints marked ``loose``: helpers that a rig's author moved
freely (feet driven by inverse kinematics), which no turn of their parents explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from rigpapr.skin import RigMesh, Skin, plain_skin, rig_mesh
from splatanim.errors import InputError
from splatanim.rig.differentiable import forward_kinematics, local_matrices
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Pose, skeleton_from_positions
from splatanim.rig.skeleton import forward_kinematics as skeleton_globals
from splatanim.rig.surface_splats import weight_sources
from splatanim.rig.transfer import transfer_weights
from splatanim.rig.weights import SkinWeights, sparse_weights

WEIGHT_FLOOR = 1e-5  # under the logarithm of weights: ten times that, and fifty joints move points by 0.002 of the size
_SKINNED = 0.5  # vertices' worth of weight from which a joint counts as having skin
_SMALL_PART = 0.3  # of all skin: larger parts on an unskinned parent are bodies, not helpers


@dataclass(frozen=True)
class FitRig:
    """J joints, parents before children, the first one the root.

    ``joints`` (J, 3) are their places in the first frame; ``loose`` may also shift; ``still`` never turn (helpers that
    only repeat their one child). ``sources`` and ``source_weights`` say what weights to carry to points; ``mesh`` is
    what the rig skins, where its file has faces.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    joints: Float64[np.ndarray, "j 3"]
    loose: Bool[np.ndarray, " j"]
    still: Bool[np.ndarray, " j"]
    sources: Float64[np.ndarray, "s 3"]
    source_weights: SkinWeights
    notes: tuple[str, ...] = ()
    mesh: RigMesh | None = None

    def __len__(self) -> int:
        return len(self.names)

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n j"]:
        """Dense weights at points by k = 6 inverse distances from the sources (RigPAPR 3.3)."""
        return transfer_weights(points, self.sources, self.source_weights, 6, most=len(self)).dense()

    def skin(self, points: Float[np.ndarray, "n 3"]) -> Skin:
        """How points of the first frame follow the joints: with the mesh's triangles where it is known
        (:mod:`rigpapr.skin`), else by :meth:`weights`."""
        return plain_skin(self.weights(points)) if self.mesh is None else self.mesh.skin(points)

    def descendants(self) -> Float64[np.ndarray, "j j"]:
        """(J, J) with 1 where the column's joint hangs below the row's, or is it."""
        below = np.eye(len(self))
        for j in range(len(self) - 1, 0, -1):
            below[self.parents[j]] += below[j]
        return below


def weight_logits(weights: Float[np.ndarray, "n j"]) -> Float[Tensor, "n j"]:
    """Logits whose softmax gives the weights back, up to the floor."""
    return torch.from_numpy(np.log(np.maximum(weights, WEIGHT_FLOOR))).float()


def joint_transforms(
    parents: Sequence[int],
    joints: Float[Tensor, "j 3"],
    rotations: Float[Tensor, "*b j 3 3"],
    translations: Float[Tensor, "*b j 3"],
) -> Float[Tensor, "*b j 4 4"]:
    """T_b of the module's formula, in torch and differentiable."""
    up = torch.as_tensor([max(p, 0) for p in parents], device=joints.device)
    root = torch.as_tensor([p < 0 for p in parents], device=joints.device)
    bone = torch.where(root[:, None], joints, joints - joints[up])
    moved = forward_kinematics(list(parents), local_matrices(bone + translations, rotations, None))
    shift = moved[..., :3, 3] - (moved[..., :3, :3] @ joints[..., None])[..., 0]
    return torch.cat([torch.cat([moved[..., :3, :3], shift[..., None]], -1), moved[..., 3:, :]], -2)


def rig_in_pose(model: RiggedModel, pose: Pose, matrix: Float[np.ndarray, "4 4"] | None = None) -> FitRig:
    """A rig as it stands in the first frame: in ``pose``, after the similarity ``matrix`` from its file to the scene.

    Joints without skin below them are dropped; parts that hang apart from the body's tree (or on a far joint without
    skin) are hung on the joint with which they share most skin, and marked loose. Raises InputError without skin.
    """
    matrix = np.eye(4) if matrix is None else np.asarray(matrix, np.float64)
    globals_ = matrix @ skeleton_globals(model.skeleton, pose)
    dense = model.skin.dense()
    parents, loose, kept, notes = _tree(model, dense)
    order = _parents_first(parents, kept)
    place = {joint: k for k, joint in enumerate(order)}
    posed = _posed(model, pose)
    sources, skin = weight_sources(posed)
    carried = skin.dense()[:, order]
    whole = carried.sum(axis=1) > 1e-6
    sources = sources[whole] @ matrix[:3, :3].T + matrix[:3, 3]
    child_count = np.array([sum(parents[c] == j for c in kept) for j in order])
    first = (globals_ @ model.skeleton.inverse_bind)[order, :3]
    still = (dense.sum(axis=0)[order] < _SKINNED) & (child_count <= 1)
    return FitRig(
        tuple(model.skeleton.names[j] for j in order),
        tuple(place.get(parents[j], -1) for j in order),
        globals_[order, :3, 3].copy(),
        np.array([j in loose for j in order]),
        still,
        sources,
        sparse_weights(carried[whole], len(order)),
        tuple(notes),
        rig_mesh(np.asarray(model.vertices, np.float64), model.faces, dense[:, order], first),
    )


def _posed(model: RiggedModel, pose: Pose) -> RiggedModel:
    from dataclasses import replace

    return replace(model, vertices=model.posed(pose), normals=None)


def _tree(model: RiggedModel, dense: np.ndarray) -> tuple[list[int], set[int], list[int], list[str]]:
    """Parents after re-hanging, the loose joints, the joints kept, and what was done."""
    parents = model.skeleton.parents.tolist()
    below = {j: _below(parents, j) for j in range(len(parents))}
    skinned = dense.sum(axis=0) > _SKINNED
    if not skinned.any():
        raise InputError("rig: no joint has skin. Export the model with its weights.")
    kept = [j for j in range(len(parents)) if any(skinned[k] for k in below[j])]
    roots = [j for j in kept if parents[j] < 0]
    main = max(roots, key=lambda j: dense[:, list(below[j])].sum())
    shared = _shared_skin(model, dense)
    loose: set[int] = set()
    for root in roots:
        todo = [root] if root != main else []
        while todo:
            j = todo.pop()
            if skinned[j]:
                body = [q for q in below[main] if skinned[q]]
                parents[j] = max(body, key=lambda q: shared[j, q])
                loose.add(j)
            else:
                kept.remove(j)
                todo += [c for c in kept if parents[c] == j]
    total = dense.sum()
    for j in list(kept):
        part = _below(parents, j)
        hangs = j not in loose and skinned[j] and parents[j] >= 0 and shared[j, parents[j]] < 1e-6
        if not hangs or dense[:, list(part)].sum() > _SMALL_PART * total:
            continue
        others = [q for q in kept if skinned[q] and q not in part]
        best = max(others, key=lambda q: shared[j, q], default=parents[j])
        if shared[j, best] > 1e-6:
            parents[j] = best
            loose.add(j)
    names = ", ".join(model.skeleton.names[j] for j in sorted(loose))
    notes = [f"rig: {len(loose)} joints hang on what they share skin with, and may shift: {names}."] if loose else []
    return parents, loose, kept, notes


def _below(parents: list[int], joint: int) -> set[int]:
    found, todo = {joint}, [joint]
    while todo:
        j = todo.pop()
        new = [c for c, p in enumerate(parents) if p == j and c not in found]
        found.update(new)
        todo += new
    return found


def _shared_skin(model: RiggedModel, dense: np.ndarray) -> Float64[np.ndarray, "j j"]:
    """How much skin two joints share, at vertices and across edges; vertices at one place count as one."""
    size = max(model.size, 1e-12)
    _, group = np.unique(np.round(model.vertices / size, 5), axis=0, return_inverse=True)
    merged = np.zeros((group.max() + 1, dense.shape[1]))
    np.add.at(merged, group.ravel(), dense)
    shared = merged.T @ merged
    if len(model.faces):
        faces = group.ravel()[model.faces]
        edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
        across = merged[edges[:, 0]].T @ merged[edges[:, 1]]
        shared = shared + across + across.T
    return shared


def _parents_first(parents: list[int], kept: list[int]) -> list[int]:
    order: list[int] = []
    todo = [j for j in kept if parents[j] < 0 or parents[j] not in kept]
    if len(todo) != 1:
        raise InputError(f"rig: {len(todo)} separate skeletons are left. Join them under one root.")
    while todo:
        j = todo.pop()
        order.append(j)
        todo += [c for c in reversed(kept) if parents[c] == j]
    return order


def skeleton_of(rig: FitRig):
    """The rig as a skeleton whose bind pose is the first frame, all axes the world's."""
    return skeleton_from_positions(rig.names, np.array(rig.parents), rig.joints)
