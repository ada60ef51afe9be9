"""A rig for an object that has none: joints, hierarchy and skinning weights from its inside alone, with no network.

domain -> voxel graph -> tips of limbs -> centrelines -> joints -> weights
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain, Frame
from splatanim.errors import InputError
from splatanim.rig.auto_branches import Branch, grow_branches
from splatanim.rig.auto_curves import centre_cell, find_tips
from splatanim.rig.auto_grid import VoxelGraph, domain_of_points, voxel_graph
from splatanim.rig.auto_joints import BONE_SHARE, JointTree, place_joints
from splatanim.rig.auto_symmetry import MirrorPlane, find_mirror
from splatanim.rig.auto_weights import MOST, cell_weights, weights_at
from splatanim.rig.skeleton import Skeleton, skeleton_from_positions
from splatanim.rig.weights import SkinWeights


@dataclass(frozen=True)
class AutoRig:
    """A skeleton in file coordinates, and what weights at any point come from.

    ``limbs`` are the names of chains with their mirror images, pairs ``(left, right)`` or ``(name,)`` alone.
    """

    skeleton: Skeleton
    tree: JointTree
    branches: tuple[Branch, ...]
    limbs: tuple[tuple[str, ...], ...]
    plane: MirrorPlane | None
    graph: VoxelGraph
    frame: Frame
    cells: Float64[np.ndarray, "v j"]

    def weights(
        self, points: Float[np.ndarray, "n 3"], *, most: int = MOST, how: Literal["volume", "surface"] = "volume"
    ) -> SkinWeights:
        """Skinning weights at points in file coordinates, ``most`` joints a point.

        ``volume``: heat inside the object; ``surface``: heat on the points' own surface (extra ``rig``). Raises
        :class:`InputError` for points that are not finite.
        """
        local = self.frame.to_sim(points)
        if not np.isfinite(local).all():
            bad = int((~np.isfinite(local)).any(axis=1).sum())
            raise InputError(f"auto_rig: weights were asked for at {bad} points that are NaN or infinite.")
        if how == "surface":
            from splatanim.rig.auto_surface import surface_weights

            return surface_weights(self.graph, self.tree, local, most=most)
        return weights_at(self.graph, self.cells, local, most=most)


def auto_rig(domain: Domain, frame: Frame, *, symmetric: bool = True, bone: float = BONE_SHARE) -> AutoRig:
    """The rig of an object whose inside is ``domain`` (simulator units; ``frame`` leads there from file coordinates).

    ``symmetric`` looks for a plane of symmetry and makes limbs mirror images of each other. ``bone`` is the length of
    a bone as a share of the longest way through the skeleton. Raises :class:`InputError` where it is not in
    [0.01, 1].
    """
    if not 0.01 <= bone <= 1.0:
        raise InputError(f"auto_rig: bones of {bone:g} of the longest way; use 0.01 to 1, such as {BONE_SHARE}.")
    graph = voxel_graph(domain)
    plane = find_mirror(graph.centres) if symmetric else None
    root = centre_cell(graph)
    tips = find_tips(graph, graph.distances(root))
    branches = grow_branches(graph, root, tips, plane)
    names, limbs = name_branches(branches, plane)
    tree = place_joints(branches, names, share=bone)
    skeleton = skeleton_from_positions(tree.names, tree.parents, frame.to_file(tree.positions))
    return AutoRig(skeleton, tree, tuple(branches), limbs, plane, graph, frame, cell_weights(graph, tree))


def auto_rig_points(points: Float[np.ndarray, "n 3"], *, symmetric: bool = True, seed: int = 0) -> AutoRig:
    """The rig of a cloud of surface points, such as the positions of a PAPR cloud."""
    domain, frame = domain_of_points(points, seed=seed)
    return auto_rig(domain, frame, symmetric=symmetric)


def name_branches(branches: list[Branch], plane: MirrorPlane | None) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    """``trunk_K`` for branches on the plane, ``limb_K_l`` and ``limb_K_r`` for pairs, ``limb_K`` for others."""
    names = [""] * len(branches)
    limbs: list[tuple[str, ...]] = []
    counts = {"trunk": 0, "limb": 0}
    for k, branch in enumerate(branches):
        if names[k]:
            continue
        kind = "trunk" if branch.mirror == k else "limb"
        counts[kind] += 1
        stem = f"{kind}_{counts[kind]}"
        if branch.mirror in (k, -1) or plane is None:
            names[k] = stem
            limbs.append((stem,))
            continue
        left = plane.side(branch.points[-1:])[0] > 0
        names[k], names[branch.mirror] = (f"{stem}_l", f"{stem}_r") if left else (f"{stem}_r", f"{stem}_l")
        limbs.append((f"{stem}_l", f"{stem}_r"))
    return names, tuple(limbs)
