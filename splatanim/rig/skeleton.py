"""Skeletons and their poses: joints in a tree, rest transforms, inverse bind matrices, forward kinematics.

With prefix P_j and local transform L_j = T R S of joint j, its global transform is

    G_j = G_parent(j) P_j L_j          (G_parent is the identity at a root)

and a point X of the bind pose that follows the joint moves to G_j B_j X, where B_j is the inverse bind matrix. The
prefix is what stands still in a file between a joint and its parent (the node that turns an armature upright, say):
the identity in all formats but glTF. Everything here is NumPy in float64; :mod:`splatanim.rig.differentiable` has the
same in torch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int, Int64

from splatanim.errors import InputError
from splatanim.rig.affine import compose, polar_rotations


@dataclass(frozen=True)
class Pose:
    """Local transforms T R S of all joints, of one moment or of many (leading dimensions).

    ``translations`` (..., j, 3), ``rotations`` unit quaternions wxyz (..., j, 4), ``scales`` (..., j, 3).
    """

    translations: Float64[np.ndarray, "*t j 3"]
    rotations: Float64[np.ndarray, "*t j 4"]
    scales: Float64[np.ndarray, "*t j 3"]

    def __getitem__(self, index: int | slice | np.ndarray) -> Pose:
        """One moment, or some, of a pose over time."""
        return Pose(self.translations[index], self.rotations[index], self.scales[index])

    @property
    def matrices(self) -> Float64[np.ndarray, "*t j 4 4"]:
        return compose(self.translations, self.rotations, self.scales)


@dataclass(frozen=True)
class Skeleton:
    """J joints. ``parents`` is -1 at roots; joints stand in any order.

    ``rest`` is the pose that a file shows without a clip; ``inverse_bind`` (j, 4, 4) takes points of the bind pose to
    each joint's frame, so that ``inv(inverse_bind)`` are the joints' global transforms in the bind pose, the one that
    skinning weights and :attr:`RiggedModel.vertices` belong to.

    Raises :class:`InputError` for counts that differ, double names, parents that do not exist, cycles, and inverse
    bind matrices that are not finite.
    """

    names: tuple[str, ...]
    parents: Int64[np.ndarray, " j"]
    rest: Pose
    inverse_bind: Float64[np.ndarray, "b 4 4"]  # other letters than j: a wrong count gets the message below
    prefix: Float64[np.ndarray, "p 4 4"]

    def __post_init__(self) -> None:
        n = len(self.names)
        counts = {
            "parents": len(self.parents),
            "rest pose": len(self.rest.rotations),
            "inverse bind matrices": len(self.inverse_bind),
            "prefixes": len(self.prefix),
        }
        for what, count in counts.items():
            if count != n:
                raise InputError(f"Skeleton: {n} joint names but {count} {what}. One is needed for every joint.")
        if n == 0:
            raise InputError("Skeleton: no joints. Export the model with its armature.")
        double = sorted({name for name in self.names if self.names.count(name) > 1})
        if double:
            raise InputError(f"Skeleton: {len(double)} names occur twice, such as {double[0]!r}. Rename the joints.")
        if self.parents.min() < -1 or self.parents.max() >= n:
            raise InputError(f"Skeleton: a joint's parent has index {self.parents.max()}, but there are {n} joints.")
        if sum(map(len, self.levels)) < n:
            left = set(range(n)) - {int(j) for level in self.levels for j in level}
            raise InputError(
                f"Skeleton: the hierarchy has a cycle through joint {self.names[min(left)]!r}. "
                "A joint cannot be its own ancestor: mend the file's parents."
            )
        if not np.isfinite(self.inverse_bind).all():
            raise InputError("Skeleton: an inverse bind matrix is NaN or infinite. Export the rig again.")

    def __len__(self) -> int:
        return len(self.names)

    @functools.cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """Joint indices by depth: roots, their children, and so on (joints of a cycle are in none)."""
        levels = [np.flatnonzero(self.parents < 0)]
        while len(levels[-1]):
            levels.append(np.flatnonzero(np.isin(self.parents, levels[-1])))
        return tuple(levels[:-1])

    @property
    def order(self) -> Int64[np.ndarray, " j"]:
        """A topological order: every joint after its parent."""
        return np.concatenate(self.levels)

    @functools.cached_property
    def bind_globals(self) -> Float64[np.ndarray, "j 4 4"]:
        """Global transforms of the joints in the bind pose."""
        return np.linalg.inv(self.inverse_bind)

    @property
    def joint_positions(self) -> Float64[np.ndarray, "j 3"]:
        """Where the joints are in the bind pose."""
        return self.bind_globals[:, :3, 3]

    @property
    def bind_rotations(self) -> Float64[np.ndarray, "j 3 3"]:
        """The joints' axes in the bind pose, as rotations."""
        return polar_rotations(self.bind_globals[:, :3, :3])

    def index(self, name: str) -> int:
        """The joint of that name; :class:`InputError` names the joints there are."""
        if name not in self.names:
            raise InputError(f"Skeleton: there is no joint {name!r}. Its joints: {', '.join(self.names)}.")
        return self.names.index(name)

    def children(self, joint: int) -> Int64[np.ndarray, " c"]:
        return np.flatnonzero(self.parents == joint)

    def descendant_counts(self) -> Int64[np.ndarray, " j"]:
        """How many joints hang below each."""
        counts = np.zeros(len(self), np.int64)
        for j in self.order[::-1]:
            if self.parents[j] >= 0:
                counts[self.parents[j]] += counts[j] + 1
        return counts

    def transformed(self, matrix: Float[np.ndarray, "4 4"]) -> Skeleton:
        """The same skeleton after an affine map of the world; clips play on it unchanged."""
        prefix = self.prefix.copy()
        roots = self.parents < 0
        prefix[roots] = np.asarray(matrix, np.float64) @ prefix[roots]
        return dataclasses.replace(self, prefix=prefix, inverse_bind=self.inverse_bind @ np.linalg.inv(matrix))


def skeleton_from_positions(
    names: Sequence[str], parents: Int[np.ndarray, " p"], positions: Float[np.ndarray, "j 3"]
) -> Skeleton:
    """A skeleton whose joints all have the world's axes at rest, which is also its bind pose."""
    positions = np.asarray(positions, np.float64)
    parents = np.asarray(parents, np.int64)
    n = len(names)
    if len(parents) != n or len(positions) != n:
        raise InputError(f"Skeleton: {n} joint names, {len(parents)} parents and {len(positions)} positions.")
    local = np.where(parents[:, None] < 0, positions, positions - positions[np.clip(parents, 0, n - 1)])
    inverse = np.tile(np.eye(4), (n, 1, 1))
    inverse[:, :3, 3] = -positions
    return Skeleton(tuple(names), parents, still_pose(local), inverse, np.tile(np.eye(4), (n, 1, 1)))


def still_pose(translations: Float64[np.ndarray, "*t j 3"]) -> Pose:
    """No rotation and unit scale at given local translations."""
    rotations = np.zeros((*translations.shape[:-1], 4))
    rotations[..., 0] = 1.0
    return Pose(translations, rotations, np.ones(translations.shape))


def forward_kinematics(skeleton: Skeleton, pose: Pose) -> Float64[np.ndarray, "*t j 4 4"]:
    """Global transforms G_j of all joints (``*t`` are the pose's leading dimensions)."""
    local = skeleton.prefix @ pose.matrices
    out = np.empty(local.shape)
    for depth, level in enumerate(skeleton.levels):
        if depth == 0:
            out[..., level, :, :] = local[..., level, :, :]
        else:
            out[..., level, :, :] = out[..., skeleton.parents[level], :, :] @ local[..., level, :, :]
    return out


def skin_transforms(skeleton: Skeleton, pose: Pose) -> Float64[np.ndarray, "*t j 4 4"]:
    """G_j B_j: what every joint does to points of the bind pose."""
    return forward_kinematics(skeleton, pose) @ skeleton.inverse_bind


def bind_pose(skeleton: Skeleton) -> Pose:
    """The pose whose skinning transforms are all the identity, as far as T R S can express it.

    Where the rest pose already is the bind pose this is it, to rounding.
    """
    from splatanim.rig.affine import matrix_quaternions

    bind = skeleton.bind_globals
    up = np.where(skeleton.parents[:, None, None] < 0, np.eye(4), bind[np.maximum(skeleton.parents, 0)])
    local = np.linalg.inv(up @ skeleton.prefix) @ bind
    rotations = polar_rotations(local[:, :3, :3])
    scales = np.einsum("jab,jab->jb", rotations, local[:, :3, :3])
    return Pose(local[:, :3, 3].copy(), matrix_quaternions(rotations), scales)
