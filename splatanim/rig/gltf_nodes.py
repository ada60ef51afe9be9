"""glTF nodes to a skeleton: which nodes become joints, and what stands still between them.

Joints are the joints of all skins, every node that a clip moves and that has a mesh or a joint below it, and the nodes
of meshes that hang on none of these. All other nodes on the way are still, so their product goes into the prefix of
the joint below. The bind pose is put where the scene shows the model: for each skin an affine map S takes its mesh
space to the world, X = S v, and B_j S^-1 takes the place of B_j: the posed vertex G_j B_j v stays the same. S is what
most joints agree on: the most frequent of the G_j B_j in the rest pose, with the mesh node's own transform (which does
not move a skinned mesh, but mostly says how it was bound) as one more candidate, first among equals. Skins that share a
joint share its bind matrix; where a file binds one joint in two ways, the second becomes a joint of its own below the
first.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from splatanim.errors import InputError
from splatanim.rig.affine import compose, decompose
from splatanim.rig.gltf_file import GltfFile, checked_number
from splatanim.rig.skeleton import Pose, Skeleton

_SAME = 1e-6  # bind matrices that differ by less (relative to their size) are one


@dataclass(frozen=True)
class Node:
    """A node's local transform: ``fixed`` times T R S. ``fixed`` is the identity unless the file has a matrix that
    no T R S can express."""

    name: str
    parent: int
    translation: np.ndarray
    rotation: np.ndarray
    scale: np.ndarray
    fixed: np.ndarray

    @property
    def local(self) -> np.ndarray:
        return self.fixed @ compose(self.translation, self.rotation, self.scale)


@dataclass(frozen=True)
class SkinBinding:
    """How a skin's joint slots lie in the skeleton, and the map from its mesh space to the bind pose in the world."""

    joints: np.ndarray
    to_world: np.ndarray


@dataclass(frozen=True)
class Armature:
    """The skeleton of a file; ``joint_of_node`` for every joint node, ``skins`` in file order."""

    nodes: list[Node]
    skeleton: Skeleton
    joint_of_node: dict[int, int]
    skins: list[SkinBinding]
    meshes: list[int]

    def rigid(self, node: int) -> tuple[int, np.ndarray]:
        """The joint that a node without skin hangs on, and the map from its mesh space to the bind pose."""
        local = np.eye(4)
        while node not in self.joint_of_node:
            local = self.nodes[node].local @ local
            node = self.nodes[node].parent
        joint = self.joint_of_node[node]
        return joint, self.skeleton.bind_globals[joint] @ local


def read_nodes(file: GltfFile) -> list[Node]:
    """All nodes with their parents.

    Raises :class:`InputError` for cycles, nodes with two parents, and numbers that are none.
    """
    entries = file.entries("nodes")
    parents = [-1] * len(entries)
    for k, entry in enumerate(entries):
        for child in entry.get("children", []):
            file.item("nodes", child)
            if parents[child] >= 0:
                raise file.broken(f"node {child} has two parents, {parents[child]} and {k}")
            parents[child] = k
    for k in range(len(entries)):
        at, steps = k, 0
        while at >= 0:
            at, steps = parents[at], steps + 1
            if steps > len(entries):
                raise file.broken(f"the node hierarchy has a cycle through node {k}")
    return [_node(file, entry, k, parents[k]) for k, entry in enumerate(entries)]


def _node(file: GltfFile, entry: dict[str, Any], index: int, parent: int) -> Node:
    name = str(entry.get("name") or f"node{index}")
    where = f"nodes[{index}]"
    fixed = np.eye(4)
    if "matrix" in entry:
        matrix = checked_number(file, entry["matrix"], 16, f"{where}.matrix").reshape(4, 4).T
        parts = decompose(matrix)
        if parts is not None:
            return Node(name, parent, *parts, fixed)
        return Node(name, parent, np.zeros(3), np.array([1.0, 0, 0, 0]), np.ones(3), matrix)
    translation = checked_number(file, entry.get("translation", [0, 0, 0]), 3, f"{where}.translation")
    xyzw = checked_number(file, entry.get("rotation", [0, 0, 0, 1]), 4, f"{where}.rotation")
    scale = checked_number(file, entry.get("scale", [1, 1, 1]), 3, f"{where}.scale")
    length = float(np.linalg.norm(xyzw))
    if not length > 0:
        raise file.broken(f"{where}.rotation is zero")
    return Node(name, parent, translation, np.roll(xyzw, 1) / length, scale, fixed)


def read_armature(file: GltfFile) -> Armature:
    """The skeleton of everything that the default scene shows (or that any skin or clip moves)."""
    nodes = read_nodes(file)
    meshes = _mesh_nodes(file, nodes)
    skins = file.entries("skins")
    joints = _joint_nodes(file, nodes, meshes)
    if not joints:
        raise InputError(f"{file.path}: holds neither a mesh nor a skeleton. Export it with the object selected.")
    of_node = {node: k for k, node in enumerate(joints)}
    skeleton, rest = _still_skeleton(nodes, joints, of_node)
    bind: list[np.ndarray | None] = [None] * len(joints)
    twins: list[tuple[int, np.ndarray]] = []
    own = _own_transforms(file, nodes, meshes)
    bindings = [_bind_skin(file, skin, own.get(k), of_node, (rest, bind, twins)) for k, skin in enumerate(skins)]
    inverse = np.stack([np.linalg.pinv(rest[k]) if b is None else b for k, b in enumerate(bind)])
    skeleton = _with_twins(dataclasses.replace(skeleton, inverse_bind=inverse), twins)
    return Armature(nodes, skeleton, of_node, bindings, meshes)


def _mesh_nodes(file: GltfFile, nodes: list[Node]) -> list[int]:
    """Nodes with a mesh in the default scene; all of them where the file has no scene."""
    scenes = file.entries("scenes")
    with_mesh = [k for k, entry in enumerate(file.entries("nodes")) if "mesh" in entry]
    if not scenes:
        return with_mesh
    roots = set(file.item("scenes", file.content.get("scene", 0)).get("nodes", []))

    def root(k: int) -> int:
        while nodes[k].parent >= 0:
            k = nodes[k].parent
        return k

    return [k for k in with_mesh if root(k) in roots]


def _joint_nodes(file: GltfFile, nodes: list[Node], meshes: list[int]) -> list[int]:
    """Skins' joints in their order, then nodes that clips move, then whatever meshes need to hang on."""
    joints: dict[int, None] = {}
    for skin in file.entries("skins"):
        listed = skin.get("joints", [])
        if not listed:
            raise file.broken("a skin has no joints")
        for node in listed:
            file.item("nodes", node)
            joints[node] = None
    carriers: set[int] = set()
    for k in [*joints, *meshes]:
        while k >= 0 and k not in carriers:
            carriers.add(k)
            k = nodes[k].parent
    for clip in file.entries("animations"):
        for channel in clip.get("channels", []):
            node = channel.get("target", {}).get("node")
            if node is not None:
                file.item("nodes", node)
                if node in carriers or not carriers:
                    joints[node] = None
    for k in meshes:
        if "skin" in file.entries("nodes")[k]:
            continue
        at = k
        while at >= 0 and at not in joints:
            at = nodes[at].parent
        if at < 0:
            joints[k] = None
    return list(joints)


def _still_skeleton(nodes: list[Node], joints: list[int], of_node: dict[int, int]) -> tuple[Skeleton, np.ndarray]:
    """The joints in the rest pose, bound there, and their global transforms."""
    from splatanim.rig.skeleton import forward_kinematics

    n = len(joints)
    parents, prefix = np.full(n, -1, np.int64), np.empty((n, 4, 4))
    for k, node in enumerate(joints):
        prefix[k] = nodes[node].fixed
        at = nodes[node].parent
        while at >= 0 and at not in of_node:
            prefix[k] = nodes[at].local @ prefix[k]
            at = nodes[at].parent
        parents[k] = of_node.get(at, -1)
    rest = Pose(
        np.stack([nodes[k].translation for k in joints]),
        np.stack([nodes[k].rotation for k in joints]),
        np.stack([nodes[k].scale for k in joints]),
    )
    names = _unique([nodes[k].name for k in joints])
    skeleton = Skeleton(names, parents, rest, np.tile(np.eye(4), (n, 1, 1)), prefix)
    return skeleton, forward_kinematics(skeleton, rest)


def _unique(names: list[str]) -> tuple[str, ...]:
    """Names that occur once; the second ``Bone`` becomes ``Bone#2``."""
    out: list[str] = []
    taken: set[str] = set()
    for name in names:
        fresh, k = name, 2
        while fresh in taken:
            fresh, k = f"{name}#{k}", k + 1
        taken.add(fresh)
        out.append(fresh)
    return tuple(out)


def _bind_skin(
    file: GltfFile,
    skin: dict[str, Any],
    own: np.ndarray | None,
    of_node: dict[int, int],
    state: tuple[np.ndarray, list[np.ndarray | None], list[tuple[int, np.ndarray]]],
) -> SkinBinding:
    """Settle a skin's bind matrices: fill ``bind``, and ``twins`` where a joint has another one already."""
    rest, bind, twins = state
    slots = [of_node[node] for node in skin["joints"]]
    if "inverseBindMatrices" in skin:
        inverse = file.accessor(skin["inverseBindMatrices"], (4, 4))
    else:
        inverse = np.tile(np.eye(4), (len(slots), 1, 1))
    if len(inverse) < len(slots):
        raise file.broken(f"a skin of {len(slots)} joints has {len(inverse)} inverse bind matrices")
    if not np.isfinite(inverse).all():
        raise file.broken("an inverse bind matrix is NaN or infinite")
    to_world = _mesh_to_world(file, slots, inverse, rest[slots] @ inverse[: len(slots)], (own, bind))
    back = np.linalg.inv(to_world)
    joints = np.empty(len(slots), np.int64)
    for slot, joint in enumerate(slots):
        matrix = inverse[slot] @ back
        known = bind[joint]
        if known is None:
            bind[joint] = matrix
            joints[slot] = joint
        elif np.abs(matrix - known).max() <= _SAME * np.abs(known).max():
            joints[slot] = joint
        else:
            joints[slot] = len(bind) + _twin(twins, joint, matrix)
    return SkinBinding(joints, to_world)


def _twin(twins: list[tuple[int, np.ndarray]], joint: int, matrix: np.ndarray) -> int:
    """Which of the twins has this matrix; a new one where none has."""
    for k, (other, known) in enumerate(twins):
        if other == joint and np.abs(matrix - known).max() <= _SAME * np.abs(known).max():
            return k
    twins.append((joint, matrix))
    return len(twins) - 1


def _mesh_to_world(
    file: GltfFile,
    slots: list[int],
    inverse: np.ndarray,
    shown: np.ndarray,
    state: tuple[np.ndarray | None, list[np.ndarray | None]],
) -> np.ndarray:
    """By a joint that an earlier skin has bound, else by what most joints do to the mesh in the rest pose."""
    own, bind = state
    for slot, joint in enumerate(slots):
        known = bind[joint]
        if known is not None and np.linalg.cond(known) < 1e12 and np.linalg.cond(inverse[slot]) < 1e12:
            return np.linalg.inv(known) @ inverse[slot]
    candidates = shown if own is None else np.concatenate([own[None], shown])
    sound = candidates[[bool(np.linalg.cond(c) < 1e12) for c in candidates]]
    if not len(sound):
        raise file.broken("all joints of a skin have transforms that cannot be inverted (scale 0)")
    size = np.abs(sound).max(axis=(1, 2))
    agreeing = [(np.abs(shown - c).max(axis=(1, 2)) < 1e-3 * s).sum() for c, s in zip(sound, size)]
    return sound[int(np.argmax(agreeing))]


def _own_transforms(file: GltfFile, nodes: list[Node], meshes: list[int]) -> dict[int, np.ndarray]:
    """The global transform of the first mesh node of each skin."""
    out: dict[int, np.ndarray] = {}
    for k in meshes:
        skin = file.entries("nodes")[k].get("skin")
        if isinstance(skin, int) and skin not in out:
            at, total = k, np.eye(4)
            while at >= 0:
                at, total = nodes[at].parent, nodes[at].local @ total
            out[skin] = total
    return out


def _with_twins(skeleton: Skeleton, twins: list[tuple[int, np.ndarray]]) -> Skeleton:
    """Joints at the place of others, with bind matrices of their own."""
    if not twins:
        return skeleton
    n = len(twins)
    rest = skeleton.rest
    return Skeleton(
        _unique([*skeleton.names, *(skeleton.names[joint] for joint, _ in twins)]),
        np.concatenate([skeleton.parents, [joint for joint, _ in twins]]).astype(np.int64),
        Pose(
            np.concatenate([rest.translations, np.zeros((n, 3))]),
            np.concatenate([rest.rotations, np.tile([1.0, 0, 0, 0], (n, 1))]),
            np.concatenate([rest.scales, np.ones((n, 3))]),
        ),
        np.concatenate([skeleton.inverse_bind, np.stack([matrix for _, matrix in twins])]),
        np.concatenate([skeleton.prefix, np.tile(np.eye(4), (n, 1, 1))]),
    )
