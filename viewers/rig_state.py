"""Small things of a live rig: its state at a moment, and turns as quaternions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64

from splatanim.rig.affine import polar_rotations, slerp
from splatanim.rig.skeleton import Pose, Skeleton, forward_kinematics
from splatanim.rig.skinning import multiply

_STANDS = 1e-6  # rad, and of the skeleton's extent: less than that is no change
_ARRIVED = 1e-4  # rad


@dataclass(frozen=True)
class RigBody:
    """What the panels call a body: the one that is rigged."""

    name: str
    size: float
    rigid: bool = False


@dataclass(frozen=True)
class RigState:
    """A moment: skinning transforms (j, 4, 4) and joint frames (j, 4, 4) in file coordinates, elastic y or None."""

    time: float
    transforms: Float64[np.ndarray, "j 4 4"]
    joints: Float64[np.ndarray, "j 4 4"]
    y: Float64[np.ndarray, " n"] | None


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two turns one after the other: of ``wxyz`` quaternions."""
    return multiply(a[None], b[None])[0]


def apart(a: np.ndarray | None, b: np.ndarray) -> float:
    """The angle between two turns [rad]; None is no turn."""
    a = np.array([1.0, 0.0, 0.0, 0.0]) if a is None else a
    return 2.0 * float(np.arccos(min(1.0, abs(float(a @ b)))))


@dataclass
class Turns:
    """Turns of joints by hand, and the roots' shift (file units): as they are, and as they are wanted."""

    now: dict[int, np.ndarray] = field(default_factory=dict)
    wanted: dict[int, np.ndarray] = field(default_factory=dict)
    shift: Float64[np.ndarray, " 3"] = field(default_factory=lambda: np.zeros(3))
    shift_wanted: Float64[np.ndarray, " 3"] = field(default_factory=lambda: np.zeros(3))

    def clear(self) -> None:
        """None, at once."""
        self.now.clear()
        self.wanted.clear()
        self.shift, self.shift_wanted = np.zeros(3), np.zeros(3)

    def arrive(self) -> None:
        """All as wanted, at once."""
        self.now.update(self.wanted)
        self.shift = self.shift_wanted

    def follow(self, share: float) -> None:
        """A share of the way to where they are wanted."""
        for joint, wanted in self.wanted.items():
            now = self.now.get(joint, np.array([1.0, 0.0, 0.0, 0.0]))
            self.now[joint] = slerp(now[None], wanted[None], np.array([[share]]))[0]
        self.shift = self.shift + share * (self.shift_wanted - self.shift)

    def moving(self, size: float) -> bool:
        """Whether they are on their way; ``size`` is the object's in the units of the shift."""
        turning = any(apart(self.now.get(joint), turn) > _ARRIVED for joint, turn in self.wanted.items())
        return turning or float(np.linalg.norm(self.shift - self.shift_wanted)) > _ARRIVED * size

    def on(self, pose: Pose, skeleton: Skeleton, without: int = -1) -> Pose:
        """A pose with all turns but one, and its roots shifted."""
        translations, rotations = pose.translations.copy(), pose.rotations.copy()
        for joint, turn in list(self.now.items()):
            if joint != without:
                rotations[joint] = product(rotations[joint], turn)
        roots = np.flatnonzero(np.asarray(skeleton.parents) < 0)
        translations[roots] += np.linalg.solve(skeleton.prefix[roots, :3, :3], self.shift)
        return Pose(translations, rotations, pose.scales)


def pose_file(skeleton: Skeleton, pose: Pose) -> dict[str, Any]:
    """A pose as ``splatanim render --pose`` reads it, of the joints that do not stand as at rest.

    With B the joint frames at rest and L a joint's local transform, ``turn`` is the rotation of B_parent L B^-1 as a
    vector [degrees], about the axes that the world has at rest, and ``shift`` is B_parent L's place less B's. (Scales
    of joints have no place in such a file.)
    """
    from scipy.spatial.transform import Rotation

    rest = np.linalg.inv(skeleton.inverse_bind)
    joints, extent = {}, float(np.ptp(rest[:, :3, 3], axis=0).max())
    local = local_frames(skeleton, pose)
    for k, name in enumerate(skeleton.names):
        parent = int(skeleton.parents[k])
        moved = local[k] if parent < 0 else rest[parent] @ local[k]
        now, before = polar_rotations(np.stack([moved, rest[k]])[:, :3, :3])
        turn = Rotation.from_matrix(now @ before.T).as_rotvec()
        shift = moved[:3, 3] - rest[k, :3, 3]
        change = {}
        if np.linalg.norm(turn) > _STANDS:
            change["turn"] = np.degrees(turn).round(6).tolist()
        if np.linalg.norm(shift) > _STANDS * extent:
            change["shift"] = shift.tolist()
        if change:
            joints[name] = change
    return {"joints": joints}


def local_frames(skeleton: Skeleton, pose: Pose) -> Float64[np.ndarray, "j 4 4"]:
    """Every joint's frame in its parent's (a root's in the world)."""
    whole = forward_kinematics(skeleton, pose)
    parents = np.asarray(skeleton.parents)
    out = whole.copy()
    below = parents >= 0
    out[below] = np.linalg.solve(whole[parents[below]], whole[below])
    return out
