"""Fitted assets: a PAPR cloud with its rig and the motion found in a video, in one .papr.safetensors.

They are PAPR assets (readers of those draw the first frame) with further tensors: ``rig.joints`` (J, 3) in world
units, ``rig.parents``, ``rig.loose``, ``rig.logits`` (N, J), ``rig.moments`` (N, J, 3; older files lack it),
``motion.rotations`` (T, J, 3, 3), ``motion.translations`` (T, J, 3), and where the rig came from a file ``rig.frames``
(J, 4, 4) and ``rig.place`` (4, 4); in the header's ``papr`` entry ``rig``: joint names, frames a second, and the camera
of the video.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from rigpapr.asset import VERSION, build_cloud, cloud_tensors, is_asset, load_tensors, save_tensors
from rigpapr.binding import joint_transforms
from rigpapr.cloud import PaprCloud
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.rig.animation import Animation, animation_from_poses
from splatanim.rig.skeleton import Pose, Skeleton, skeleton_from_positions

if TYPE_CHECKING:
    from splatanim.rig.model import RiggedModel

SUFFIX = ".papr.safetensors"


@dataclass(frozen=True)
class FittedAsset:
    """A cloud that follows a rig. ``joints`` (J, 3) world, ``parents`` (-1 at the root, parents first), ``loose`` (J,)
    joints that may shift, ``logits`` (N, J) of the weights, and the motion against the first frame.

    ``frames`` (J, 4, 4) are the file's own joint axes in the first frame, in world units, ``place`` (4, 4) the
    similarity from the rig's file to the world: what plays other clips of the same character exactly. ``view`` is the
    video's camera, ``moments`` (N, J, 3) bind points to the rig's mesh (:mod:`rigpapr.skin`). All four may lack."""

    cloud: PaprCloud
    names: tuple[str, ...]
    parents: Int64[Tensor, " j"]
    joints: Float[Tensor, "j 3"]
    loose: Tensor
    logits: Float[Tensor, "n j"]
    rotations: Float[Tensor, "t j 3 3"]
    translations: Float[Tensor, "t j 3"]
    fps: float = 24.0
    frames: Float[Tensor, "j 4 4"] | None = None
    place: Float[Tensor, "4 4"] | None = None
    view: Camera | None = None
    moments: Float[Tensor, "n j 3"] | None = None

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
        if self.frames is not None or self.place is not None:
            wanted |= {"rig.frames": (self.frames, (j, 4, 4)), "rig.place": (self.place, (4, 4))}
        if self.moments is not None:
            wanted["rig.moments"] = (self.moments, (n, j, 3))
        for name, (value, shape) in wanted.items():
            if value is None:
                raise InputError("FittedAsset: rig.frames and rig.place go together. Fit or export it again.")
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
        return self.posed_under(joint_transforms(self.parents.tolist(), self.joints, rotations, translations))

    def posed_under(self, maps: Float[Tensor, "j 4 4"]) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3 3"]]:
        """World positions and rotations of the points under the joints' skinning transforms."""
        points = self.cloud.world_positions.detach()
        return deform(points, self.weights, maps.to(self.joints.dtype), self.moments)

    def maps(self) -> Float[Tensor, "t j 4 4"]:
        """The joints' skinning transforms in every frame of the fitted motion."""
        return joint_transforms(self.parents.tolist(), self.joints, self.rotations, self.translations)

    def skeleton(self) -> Skeleton:
        """The rig with the first frame as its bind pose."""
        return skeleton_from_positions(self.names, self.parents.numpy(), self.joints.double().numpy())

    def animation(self, name: str = "fit") -> Animation:
        """The motion as a clip for :meth:`skeleton`."""
        return self.clip_of(self.maps(), self.fps, name)

    def clip_of(self, maps: Float[Tensor, "t j 4 4"], fps: float, name: str) -> Animation:
        """Skinning transforms over time as a clip for :meth:`skeleton`: L_b = G_parent^-1 G_b, G_b = T_b Trans(c_b)."""
        from splatanim.rig.affine import matrix_quaternions, polar_rotations

        skeleton, parents = self.skeleton(), self.parents.numpy()
        bind = np.tile(np.eye(4), (len(self.names), 1, 1))
        bind[:, :3, 3] = self.joints.double().numpy()
        moved = maps.double().numpy() @ bind
        above = np.where((parents < 0)[:, None, None], np.eye(4), moved[:, np.maximum(parents, 0)])
        local = np.linalg.solve(above, moved)
        places = local[..., :3, 3].copy()
        poses = Pose(places, matrix_quaternions(polar_rotations(local[..., :3, :3])), np.ones(places.shape))
        return animation_from_poses(name, skeleton.rest, np.arange(len(maps)) / fps, poses)

    def model(self, animations: dict[str, Animation] | None = None) -> RiggedModel:
        """The points as a rigged model without faces, coloured, with eight weights each: what goes into a .glb.

        ``animations`` are clips of :meth:`skeleton`, by default the fitted motion. The weights are the strongest ones;
        where the asset has moments, for which a model has no room, those that come nearest to its points over the clips
        (:mod:`rigpapr.export_weights`), over the fitted motion where there are none.
        """
        from splatanim.rig.appearance import Appearance, decode_srgb
        from splatanim.rig.model import RiggedModel
        from splatanim.rig.weights import sparse_weights

        points = self.cloud.world_positions.detach().double().numpy()
        colours = decode_srgb(self.cloud.colours().astype(np.float64).clip(0, 1))
        colours = np.concatenate([colours, np.ones((len(colours), 1))], axis=1)
        clips = {"fit": self.animation()} if animations is None else animations
        skin = sparse_weights(self._blended(points, list(clips.values()) or [self.animation()]))
        looks = Appearance(colours=colours)
        return RiggedModel(
            points, np.empty((0, 3), np.int64), self.skeleton(), skin, appearance=looks, animations=clips
        )

    def _blended(self, points: np.ndarray, clips: list[Animation]) -> np.ndarray:
        """Weights (N, J) that need no moments, for the frames of clips."""
        from rigpapr.export_weights import blend_weights
        from rigpapr.skin import Skin
        from splatanim.rig.skeleton import skin_transforms

        weights = self.weights.double().numpy()
        if self.moments is None or not bool(self.moments.any()):
            return weights
        skeleton, poses = self.skeleton(), []
        for clip in clips:
            keys = np.unique(np.concatenate([np.zeros(1), *(channel.times for channel in clip.channels)]))
            poses.append(skin_transforms(skeleton, clip.sample(keys))[:, :, :3])
        skin = Skin(weights, self.moments.double().numpy())
        return blend_weights(points, skin, np.concatenate(poses), self.parents.tolist())


def deform(
    points: Float[Tensor, "n 3"],
    weights: Float[Tensor, "n j"],
    maps: Float[Tensor, "j 4 4"],
    moments: Float[Tensor, "n j 3"] | None = None,
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3 3"]]:
    """Moved points by linear blend skinning (RigPAPR eq. 1) and turned moments (:mod:`rigpapr.skin`), and the blended
    linear maps as how their surroundings have turned."""
    blended = (weights @ maps[:, :3].flatten(1)).view(-1, 3, 4)
    moved = (blended[..., :3] @ points[..., None])[..., 0] + blended[..., 3]
    if moments is not None:
        moved = moved + moments.flatten(1) @ maps[:, :3, :3].transpose(1, 2).reshape(-1, 3)
    return moved, blended[..., :3]


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
    if asset.moments is not None:
        rig["rig.moments"] = asset.moments
    if asset.frames is not None and asset.place is not None:
        rig |= {"rig.frames": asset.frames, "rig.place": asset.place}
    for name, value in rig.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{path}: {name} has NaN or infinite values: the fit diverged. Fit with a lower rate.")
    tensors = {**cloud_tensors(asset.cloud), **{k: v.detach().cpu().contiguous().clone() for k, v in rig.items()}}
    header = {
        "version": VERSION,
        "config": asset.cloud.config.to_json(),
        "notes": notes or {},
        "rig": {"names": list(asset.names), "fps": asset.fps, "view": camera_to_json(asset.view)},
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
            tensors.get("rig.frames"),
            tensors.get("rig.place"),
            camera_from_json(rig.get("view")),
            tensors.get("rig.moments"),
        )
    except KeyError as error:
        raise InputError(f"{path}: its rig lacks {error}. Fit or export it again.") from None


def camera_to_json(camera: Camera | None) -> dict[str, Any] | None:
    """A camera as plain values: world to camera (OpenCV axes) and lens."""
    if camera is None:
        return None
    lens = {key: getattr(camera, key) for key in ("fx", "fy", "cx", "cy", "width", "height", "near")}
    return {"T_camera_world": camera.T_camera_world.tolist(), **lens}


def camera_from_json(data: Any) -> Camera | None:
    """The camera of :func:`camera_to_json`; None where there is none. Raises KeyError where it lacks something."""
    if data is None:
        return None
    fx, fy, cx, cy = (float(data[key]) for key in ("fx", "fy", "cx", "cy"))
    pose = np.asarray(data["T_camera_world"], np.float64)
    return Camera(pose, fx, fy, cx, cy, int(data["width"]), int(data["height"]), float(data["near"]))
