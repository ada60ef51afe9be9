"""New motions for a fitted asset: its own, one pose from a file, or a clip of another file.

A motion is the skinning transforms T_b of every joint over time. A clip of the character that the rig came from plays
exactly: with G_b(t) the clip's joint frames, P the similarity from the rig's file to the scene and F_b = P G_b(first
frame) as the asset keeps it,

    T_b(t) = P G_b(t) F_b^-1,

whatever pose the asset was captured in. Motion of another skeleton is retargeted by joint names
(:mod:`splatanim.rig.retarget`).
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rigpapr.binding import joint_transforms
from rigpapr.fitted import FittedAsset
from splatanim.errors import InputError
from splatanim.rig.skeleton import forward_kinematics, skin_transforms

if TYPE_CHECKING:
    from splatanim.rig.animation import Animation
    from splatanim.rig.files import Motion as FileMotion

_SAME_CHARACTER = 0.8  # share of the asset's joints that a file must have by name
_SAME_BONES = 0.05  # median relative difference of bone lengths up to which it is the same character


@dataclass(frozen=True)
class PosedMotion:
    """Skinning transforms over time for one asset, and what is to be said about where they come from."""

    maps: Float[Tensor, "t j 4 4"]
    fps: float
    name: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.maps)


def fitted_motion(asset: FittedAsset) -> PosedMotion:
    """The motion that was found in the video."""
    return PosedMotion(asset.maps(), asset.fps, "fit")


def read_pose(path: str | os.PathLike[str], asset: FittedAsset) -> PosedMotion:
    """One pose from a JSON file::

        {"frame": 3, "joints": {"Head": {"turn": [0, 30, 0]}, "Root": {"shift": [0, 0.1, 0]}}}

    ``turn`` is a rotation vector in degrees and ``shift`` a way in world units, both about the axes that the world has
    in the first frame, carried along by the joint's parent. ``frame`` is the frame of the fitted motion to change;
    without it all other joints stand as in the first frame. Raises InputError for unknown joints and damaged files.
    """
    path = Path(path)
    data = _json(path)
    frame = data.get("frame")
    if frame is not None and not (isinstance(frame, int) and 0 <= frame < len(asset)):
        raise InputError(f"{path}: frame {frame!r} is none of the fitted motion's, 0 to {len(asset) - 1}.")
    joints = data.get("joints", {})
    if not isinstance(joints, dict):
        raise InputError(f'{path}: "joints" must be an object: joint names with "turn" and "shift".')
    turns = torch.eye(3).repeat(len(asset.names), 1, 1) if frame is None else asset.rotations[frame].clone()
    shifts = torch.zeros(len(asset.names), 3) if frame is None else asset.translations[frame].clone()
    for name, change in joints.items():
        if name not in asset.names:
            raise InputError(f"{path}: the rig has no joint {name!r}. Its joints: {', '.join(asset.names)}.")
        if not isinstance(change, dict) or not set(change) <= {"turn", "shift"}:
            raise InputError(f'{path}: joint {name!r} takes "turn" (degrees) and "shift", three numbers each.')
        k = asset.names.index(name)
        turn = np.radians(_three(path, name, change.get("turn", (0, 0, 0))))
        turns[k] = torch.from_numpy(_rotation(turn)).float() @ turns[k]
        shifts[k] += torch.from_numpy(_three(path, name, change.get("shift", (0, 0, 0)))).float()
    maps = joint_transforms(asset.parents.tolist(), asset.joints, turns, shifts)
    return PosedMotion(maps[None], asset.fps, path.stem)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such file. Check the spelling.")
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path}: is no JSON ({error}).") from error
    if not isinstance(data, dict):
        raise InputError(f'{path}: a pose is an object such as {{"joints": {{"Head": {{"turn": [0, 30, 0]}}}}}}.')
    unknown = sorted(set(data) - {"frame", "joints"})
    if unknown:
        raise InputError(f'{path}: does not know {", ".join(unknown)}; a pose has "joints" and perhaps "frame".')
    return data


def _three(path: Path, joint: str, values: object) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (3,) or not np.isfinite(array).all():
        raise InputError(f"{path}: joint {joint!r}: {values!r} are not three numbers.")
    return array


def _rotation(vector: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_rotvec(vector).as_matrix()


def read_clip_for(
    asset: FittedAsset,
    path: str | os.PathLike[str],
    *,
    clip: str = "",
    names: str | os.PathLike[str] | None = None,
    fps: float = 30.0,
    up: tuple[float, float, float] = (0.0, 1.0, 0.0),
) -> PosedMotion:
    """A clip of a .bvh or .glb for the asset's rig at ``fps``: exactly where the file is of the same character, else
    retargeted by joint names or by the map in the .toml ``names``.

    Raises InputError for files without a clip, clips that are not there, and joints that have no partner.
    """
    from splatanim.rig.files import read_motion

    motion = read_motion(path)
    chosen = _chosen(Path(path), motion, clip)
    if names is None and same_character(asset, motion):
        maps = exact_maps(asset, motion, chosen, fps)
        note = f"{path}: is of the same character; clip {chosen.name} plays as it is."
        return PosedMotion(maps, fps, chosen.name, (note,))
    from splatanim.rig.names import describe_map, match_names, read_name_map
    from splatanim.rig.retarget import retarget

    ours = asset.skeleton()
    pairs = match_names(motion.skeleton, ours) if names is None else read_name_map(names, motion.skeleton, ours)
    moved = retarget(chosen, motion.skeleton, ours, pairs, fps=fps, up=up)
    count = max(1, round(moved.duration * fps))
    poses = moved.sample(moved.start + np.arange(count) / fps)
    note = "retargeted by joint names:\n" + describe_map(pairs, motion.skeleton, ours)
    return PosedMotion(torch.from_numpy(skin_transforms(ours, poses)), fps, chosen.name, (note,))


def _chosen(path: Path, motion: FileMotion, name: str) -> Animation:
    clips = motion.clips
    if not name and len(clips) == 1:
        return next(iter(clips.values()))
    wanted = name.lower()
    for key in (str.lower, lambda text: text.lower().rsplit("|", 1)[-1]):
        found = [clip for text, clip in clips.items() if key(text) == wanted]
        if len(found) == 1:
            return found[0]
    asked = f"has no clip {name!r}" if name else f"holds {len(clips)} clips"
    raise InputError(f"{path}: {asked}. Name one with --clip-name: {', '.join(clips)}.")


def same_character(asset: FittedAsset, motion: FileMotion) -> bool:
    """Whether a file's skeleton is the one that the asset's rig came from: most joints by name, bones as long."""
    known = motion.skeleton.names
    shared = [name for name in asset.names if name in known]
    if asset.frames is None or asset.place is None or len(shared) < _SAME_CHARACTER * len(asset.names):
        return False
    place = asset.place.double().numpy()
    theirs = motion.skeleton.joint_positions @ place[:3, :3].T + place[:3, 3]
    ours, apart = asset.joints.double().numpy(), []
    for k, name in enumerate(asset.names):
        parent = int(asset.parents[k])
        if parent >= 0 and name in known and asset.names[parent] in known and not bool(asset.loose[k]):
            there = theirs[known.index(name)] - theirs[known.index(asset.names[parent])]
            here = np.linalg.norm(ours[k] - ours[parent])
            apart.append(abs(np.linalg.norm(there) - here) / max(float(here), 1e-9))
    return bool(apart) and float(np.median(apart)) < _SAME_BONES


def exact_maps(asset: FittedAsset, motion: FileMotion, clip: Animation, fps: float) -> Float[Tensor, "t j 4 4"]:
    """T_b of the module's formula; joints that the file lacks go with their parents."""
    assert asset.frames is not None and asset.place is not None
    count = max(1, round(clip.duration * fps))
    times = clip.start + np.arange(count) / fps
    globals_ = asset.place.double().numpy() @ forward_kinematics(motion.skeleton, clip.sample(times))
    back = np.linalg.inv(asset.frames.double().numpy())
    maps = np.tile(np.eye(4), (count, len(asset.names), 1, 1))
    for k, name in enumerate(asset.names):
        if name in motion.skeleton.names:
            maps[:, k] = globals_[:, motion.skeleton.index(name)] @ back[k]
        elif int(asset.parents[k]) >= 0:
            maps[:, k] = maps[:, int(asset.parents[k])]
    return torch.from_numpy(maps)


def with_rig_file(asset: FittedAsset, frames: np.ndarray | None, place: np.ndarray | None) -> FittedAsset:
    """The asset with the file's joint frames (J, 4, 4) in the first frame and the similarity (4, 4) into the scene."""
    if frames is None or place is None:
        return asset
    return dataclasses.replace(
        asset, frames=torch.from_numpy(frames).float(), place=torch.from_numpy(np.asarray(place, np.float64)).float()
    )
