"""Motion in BVH files (Biovision hierarchy): joints with offsets, channels in any order, one line of numbers a frame.

Rotations are applied in the order that a joint's channels stand in: ``Zrotation Yrotation Xrotation`` is Rz Ry Rx.
Position channels take the place of the joint's OFFSET, as the common tools have it. Lengths are in the file's own
unit; angles are degrees. An ``End Site`` is kept as the tip of its joint.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.formats.base import first_bytes
from splatanim.rig.animation import Animation, animation_from_poses
from splatanim.rig.skeleton import Pose, Skeleton, skeleton_from_positions

_AXES = {"X": 0, "Y": 1, "Z": 2}


@dataclass(frozen=True)
class Bvh:
    """A clip with its skeleton, whose rest and bind pose are all rotations zero.

    ``poses`` holds every frame (t, j, ...), ``frame_time`` seconds between them, ``tips`` the offset of the End Site
    of each joint that has one.
    """

    skeleton: Skeleton
    poses: Pose
    frame_time: float
    tips: dict[int, Float64[np.ndarray, " 3"]] = field(default_factory=dict)

    @property
    def frames(self) -> int:
        return len(self.poses.rotations)

    def animation(self, name: str = "motion") -> Animation:
        """The frames as a clip with a key at each."""
        times = np.arange(self.frames) * self.frame_time
        return animation_from_poses(name, self.skeleton.rest, times, self.poses)


@dataclass
class _Words:
    """The words of a file, read one after the other."""

    path: Path
    words: list[str]
    at: int = 0

    def next(self, expected: str | None = None) -> str:
        if self.at >= len(self.words):
            raise InputError(f"{self.path}: ends in the middle, where {expected or 'more'} is needed. It is cut off.")
        word = self.words[self.at]
        self.at += 1
        if expected is not None and word.lower() != expected.lower():
            raise InputError(f"{self.path}: has {word!r} where {expected!r} is needed; it is no valid BVH.")
        return word

    def number(self) -> float:
        word = self.next()
        try:
            value = float(word)
        except ValueError:
            raise InputError(f"{self.path}: has {word!r} where a number is needed; it is no valid BVH.") from None
        if not np.isfinite(value):
            raise InputError(f"{self.path}: holds {word}; numbers must be finite.")
        return value

    def offset(self) -> np.ndarray:
        self.next("OFFSET")
        return np.array([self.number() for _ in range(3)])


@dataclass
class _Tree:
    names: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    offsets: list[np.ndarray] = field(default_factory=list)
    channels: list[list[str]] = field(default_factory=list)
    tips: dict[int, np.ndarray] = field(default_factory=dict)


def read_bvh(path: str | os.PathLike[str]) -> Bvh:
    """Read a .bvh.

    Raises :class:`InputError` for files that are missing, cut off or of another format, and for frames that do not
    have as many numbers as there are channels.
    """
    path = Path(path)
    first_bytes(path, 1)
    words = _Words(path, path.read_text(encoding="utf-8", errors="replace").split())
    words.next("HIERARCHY")
    tree = _Tree()
    while (kind := words.next()).upper() == "ROOT":
        _joint(words, tree, -1)
    if kind.upper() != "MOTION" or not tree.names:
        raise InputError(f"{path}: has {kind!r} where ROOT or MOTION is needed; it is no valid BVH.")
    words.next("Frames:")
    count = int(words.number())
    words.next("Frame")
    words.next("Time:")
    frame_time = words.number()
    if count < 1 or not frame_time > 0:
        raise InputError(f"{path}: {count} frames, {frame_time:g} s apart: there is no motion in it.")
    columns = sum(map(len, tree.channels))
    rest = words.words[words.at :]
    if len(rest) < count * columns:
        raise InputError(f"{path}: {len(rest)} numbers for {count} frames of {columns} channels. It is cut off.")
    try:
        values = np.array(rest[: count * columns], np.float64).reshape(count, columns)
    except ValueError as error:
        raise InputError(f"{path}: a frame holds something that is no number ({error}).") from error
    if not np.isfinite(values).all():
        raise InputError(f"{path}: a frame holds NaN or infinite numbers. Export the motion again.")
    return _assembled(path, tree, values, frame_time)


def _joint(words: _Words, tree: _Tree, parent: int) -> None:
    """One root and everything below it, without recursion: a chain may be as deep as it likes."""
    stack = [_open(words, tree, parent)]
    while stack:
        word = words.next()
        if word == "}":
            stack.pop()
        elif word.upper() == "JOINT":
            stack.append(_open(words, tree, stack[-1]))
        elif word.upper() == "END":
            words.next("Site")
            words.next("{")
            tree.tips[stack[-1]] = words.offset()
            words.next("}")
        else:
            raise InputError(f"{words.path}: has {word!r} where JOINT, End Site or }} is needed; it is no valid BVH.")


def _open(words: _Words, tree: _Tree, parent: int) -> int:
    name = words.next()
    words.next("{")
    offset = words.offset()
    words.next("CHANNELS")
    channels = [words.next() for _ in range(int(words.number()))]
    for channel in channels:
        if channel[:1].upper() not in _AXES or channel[1:].lower() not in ("position", "rotation"):
            raise InputError(f"{words.path}: joint {name!r} has a channel {channel!r}, which BVH does not know.")
    fresh, k = name, 2
    while fresh in tree.names:
        fresh, k = f"{name}#{k}", k + 1
    tree.names.append(fresh)
    tree.parents.append(parent)
    tree.offsets.append(offset)
    tree.channels.append(channels)
    return len(tree.names) - 1


def _assembled(path: Path, tree: _Tree, values: np.ndarray, frame_time: float) -> Bvh:
    from scipy.spatial.transform import Rotation

    offsets = np.stack(tree.offsets)
    positions = offsets.copy()
    for j, parent in enumerate(tree.parents):
        if parent >= 0:
            positions[j] += positions[parent]  # parents come first in the file
    skeleton = skeleton_from_positions(tree.names, np.array(tree.parents), positions)
    frames = len(values)
    translations = np.repeat(offsets[None], frames, axis=0)
    rotations = np.zeros((frames, len(offsets), 4))
    rotations[..., 0] = 1.0
    column = 0
    for j, channels in enumerate(tree.channels):
        turns = ""
        angles = []
        for channel in channels:
            axis = channel[0].upper()
            if channel[1:].lower() == "position":
                translations[:, j, _AXES[axis]] = values[:, column]
            else:
                turns += axis
                angles.append(values[:, column])
            column += 1
        if turns:
            total = Rotation.identity(frames)
            for axis, angle in zip(turns, angles):
                total = total * Rotation.from_rotvec(np.radians(angle)[:, None] * np.eye(3)[_AXES[axis]])
            rotations[:, j] = total.as_quat(scalar_first=True)
    return Bvh(skeleton, Pose(translations, rotations, np.ones_like(translations)), frame_time, tree.tips)


def write_bvh(path: str | os.PathLike[str], bvh: Bvh) -> None:
    """Write a .bvh: channels ZYX, positions for roots and for joints that leave their offset.

    The skeleton's rest pose must have no rotations (as :func:`skeleton_from_positions` makes them); scales cannot be
    stored. Raises InputError for other skeletons, OutputError where the file cannot be written.
    """
    skeleton = bvh.skeleton
    turned = np.abs(np.abs(skeleton.rest.rotations[:, 0]) - 1.0).max() > 1e-9
    if turned or np.abs(skeleton.prefix - np.eye(4)).max() > 1e-9:
        raise InputError(f"{path}: BVH joints have the world's axes at rest; retarget to such a skeleton first.")
    moved = np.abs(bvh.poses.translations - skeleton.rest.translations).max(axis=(0, 2)) > 1e-9
    positioned = moved | (skeleton.parents < 0)
    lines = ["HIERARCHY"]
    order: list[int] = []
    for root in np.flatnonzero(skeleton.parents < 0):
        _write_joint(bvh, int(root), positioned, lines, order)
    lines += ["MOTION", f"Frames: {bvh.frames}", f"Frame Time: {bvh.frame_time:.8f}"]
    numbers = _columns(bvh, order, positioned)
    lines += [" ".join(f"{value:.8f}" for value in row) for row in numbers]
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_joint(bvh: Bvh, joint: int, positioned: np.ndarray, lines: list[str], order: list[int]) -> None:
    """Depth first, with an explicit stack: (joint, depth) to open, or (-1, depth) to close a bracket."""
    stack = [(joint, 0)]
    skeleton = bvh.skeleton
    while stack:
        j, depth = stack.pop()
        indent = "  " * depth
        if j < 0:
            lines.append(f"{indent}}}")
            continue
        order.append(j)
        x, y, z = skeleton.rest.translations[j]
        name = "_".join(skeleton.names[j].split())
        channels = ("6 Xposition Yposition Zposition" if positioned[j] else "3") + " Zrotation Yrotation Xrotation"
        lines += [f"{indent}{'JOINT' if depth else 'ROOT'} {name}", f"{indent}{{"]
        lines += [f"{indent}  OFFSET {x:.8f} {y:.8f} {z:.8f}", f"{indent}  CHANNELS {channels}"]
        children = skeleton.children(j)
        if j in bvh.tips or not len(children):
            a, b, c = bvh.tips.get(j, np.zeros(3))
            lines += [
                f"{indent}  End Site",
                f"{indent}  {{",
                f"{indent}    OFFSET {a:.8f} {b:.8f} {c:.8f}",
                f"{indent}  }}",
            ]
        stack.append((-1, depth))
        stack += [(int(c), depth + 1) for c in children[::-1]]


def _columns(bvh: Bvh, order: list[int], positioned: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    parts = []
    for j in order:
        if positioned[j]:
            parts.append(bvh.poses.translations[:, j])
        turns = Rotation.from_quat(bvh.poses.rotations[:, j], scalar_first=True)
        parts.append(turns.as_euler("ZYX", degrees=True))
    return np.concatenate(parts, axis=1)
