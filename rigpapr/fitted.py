"""Fitted assets: a PAPR cloud with its rig and the motion found in a video, in one .papr.safetensors.

They are PAPR assets (readers of those draw the first frame) with further tensors: ``rig.joints`` (J, 3) in world
units, ``rig.parents``, ``rig.loose``, ``rig.logits`` (N, J), ``motion.rotations`` (T, J, 3, 3),
``motion.translations`` (T, J, 3); and in the header's ``papr`` entry ``rig``: joint names and frames a second.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from rigpapr.asset import VERSION, build_cloud, cloud_tensors, is_asset, load_tensors, save_tensors
from rigpapr.binding import joint_transforms
from rigpapr.cloud import PaprCloud
from splatanim.errors import InputError
from splatanim.rig.animation import Animation, animation_from_poses
from splatanim.rig.skeleton import Pose, Skeleton, skeleton_from_positions

SUFFIX = ".papr.safetensors"


@dataclass(frozen=True)
class FittedAsset:
    """A cloud that follows a rig. ``joints`` (J, 3) world, ``parents`` (-1 at the root, parents first), ``loose`` (J,)
    joints that may shift, ``logits`` (N, J), and the motion against the first frame."""

    cloud: PaprCloud
    names: tuple[str, ...]
    parents: Int64[Tensor, " j"]
    joints: Float[Tensor, "j 3"]
    loose: Tensor
    logits: Float[Tensor, "n j"]
    rotations: Float[Tensor, "t j 3 3"]
    translations: Float[Tensor, "t j 3"]
    fps: float = 24.0

    def __post_init__(self) -> None:
        n, j, t = len(self.cloud), len(self.names), len(self.rotations)
        wanted: dict[str, tuple[Any, tuple[int, ...]]] = {
            "rig.joints": (self.joints, (j, 3)),
            "rig.parents": (self.parents, (j,)),
            "rig.loose": (self.loose, (j,)),
            "rig.logits": (self.logits, (n, j)),
            "motion.rotations": (self.rotations, (t, j, 3, 3)),
            "motion.translations": (self.translations, (t, j, 3)),
        }
        for name, (value, shape) in wanted.items():
            if tuple(value.shape) != shape:
                raise InputError(f"FittedAsset: {name} is {tuple(value.shape)}, not {shape}. Fit or export it again.")
        if any(int(p) >= k or int(p) < -1 for k, p in enumerate(self.parents)):
            raise InputError("FittedAsset: rig.parents must name joints before their children, -1 at roots.")

    def __len__(self) -> int:
        return len(self.rotations)

    @property
    def weights(self) -> Float[Tensor, "n j"]:
        """Skinning weights."""
        return torch.softmax(self.logits, dim=1)

    def posed(self, frame: int) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3 3"]]:
        """World positions and rotations of the points in one frame of the fitted motion."""
        if not -len(self) <= frame < len(self):
            raise InputError(f"frame {frame}: the fitted motion has frames 0 to {len(self) - 1}.")
        return self.posed_by(self.rotations[frame], self.translations[frame])

    def posed_by(
        self, rotations: Float[Tensor, "j 3 3"], translations: Float[Tensor, "j 3"]
    ) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3 3"]]:
        """World positions and rotations of the points under given turns and shifts (:mod:`rigpapr.binding`)."""
        maps = joint_transforms(self.parents.tolist(), self.joints, rotations, translations)
        return deform(self.cloud.world_positions.detach(), self.weights, maps)

    def skeleton(self) -> Skeleton:
        """The rig with the first frame as its bind pose."""
        return skeleton_from_positions(self.names, self.parents.numpy(), self.joints.double().numpy())

    def animation(self, name: str = "fit") -> Animation:
        """The motion as a clip for :meth:`skeleton`."""
        from splatanim.rig.affine import matrix_quaternions

        skeleton = self.skeleton()
        rotations = matrix_quaternions(self.rotations.double().numpy())
        places = skeleton.rest.translations + self.translations.double().numpy()
        poses = Pose(places, rotations, np.ones(places.shape))
        return animation_from_poses(name, skeleton.rest, np.arange(len(self)) / self.fps, poses)


def deform(
    points: Float[Tensor, "n 3"], weights: Float[Tensor, "n j"], maps: Float[Tensor, "j 4 4"]
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3 3"]]:
    """Linear blend skinning: moved points, and the blended linear maps as how their surroundings have turned."""
    blended = (weights @ maps[:, :3].flatten(1)).view(-1, 3, 4)
    return (blended[..., :3] @ points[..., None])[..., 0] + blended[..., 3], blended[..., :3]


def write_fitted(path: str | os.PathLike[str], asset: FittedAsset, *, notes: dict[str, Any] | None = None) -> None:
    """Write a fitted asset, whole or not at all. Raises InputError for another suffix or values that are not finite."""
    if not is_asset(path):
        raise InputError(f"{path}: a fitted asset is named *{SUFFIX}.")
    rig = {
        "rig.joints": asset.joints,
        "rig.parents": asset.parents,
        "rig.loose": asset.loose,
        "rig.logits": asset.logits,
        "motion.rotations": asset.rotations,
        "motion.translations": asset.translations,
    }
    for name, value in rig.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{path}: {name} has NaN or infinite values: the fit diverged. Fit with a lower rate.")
    tensors = {**cloud_tensors(asset.cloud), **{k: v.detach().cpu().contiguous().clone() for k, v in rig.items()}}
    header = {
        "version": VERSION,
        "config": asset.cloud.config.to_json(),
        "notes": notes or {},
        "rig": {"names": list(asset.names), "fps": asset.fps},
    }
    save_tensors(path, tensors, "papr", header)


def is_fitted(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a PAPR asset with a rig and a motion."""
    return is_asset(path) and "rig" in load_tensors(path, "papr")[1]


def read_fitted(path: str | os.PathLike[str]) -> FittedAsset:
    """Read a fitted asset. Raises InputError, naming the file, for plain assets and damaged ones."""
    tensors, header = load_tensors(path, "papr")
    rig = header.get("rig")
    if not isinstance(rig, dict):
        raise InputError(f"{path}: holds a cloud without a rig. Fit it to a video first: splatanim fit.")
    cloud = build_cloud(Path(path), tensors, header)
    try:
        return FittedAsset(
            cloud,
            tuple(map(str, rig["names"])),
            tensors["rig.parents"],
            tensors["rig.joints"],
            tensors["rig.loose"],
            tensors["rig.logits"],
            tensors["motion.rotations"],
            tensors["motion.translations"],
            float(rig["fps"]),
        )
    except KeyError as error:
        raise InputError(f"{path}: its rig lacks {error}. Fit or export it again.") from None
