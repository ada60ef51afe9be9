"""A rigged model: the surface (or points) in its bind pose, the skeleton it follows, and clips for that skeleton."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float64, Int64

from splatanim.errors import InputError
from splatanim.rig.animation import Animation
from splatanim.rig.appearance import Appearance
from splatanim.rig.skeleton import Pose, Skeleton, skin_transforms
from splatanim.rig.skinning import blend_points
from splatanim.rig.weights import SkinWeights


@dataclass(frozen=True)
class RiggedModel:
    """``vertices`` (v, 3) in the bind pose, in the file's world coordinates; ``faces`` (f, 3), none for points.

    ``normals`` (v, 3) where the file has them. ``notes`` say what was mended or left out while reading.
    """

    vertices: Float64[np.ndarray, "v 3"]
    faces: Int64[np.ndarray, "f 3"]
    skeleton: Skeleton
    skin: SkinWeights
    normals: Float64[np.ndarray, "v 3"] | None = None
    appearance: Appearance = field(default_factory=Appearance)
    animations: dict[str, Animation] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        v = len(self.vertices)
        if len(self.skin) != v:
            raise InputError(f"RiggedModel: {v} vertices but skinning weights for {len(self.skin)}.")
        if self.skin.joint_count != len(self.skeleton):
            raise InputError(
                f"RiggedModel: the weights are for {self.skin.joint_count} joints, the skeleton has "
                f"{len(self.skeleton)}. They come from different rigs."
            )
        if not np.isfinite(self.vertices).all():
            bad = int((~np.isfinite(self.vertices)).any(axis=1).sum())
            raise InputError(f"RiggedModel: {bad} vertices are NaN or infinite.")
        if len(self.faces) and (self.faces.min() < 0 or self.faces.max() >= v):
            raise InputError(f"RiggedModel: a face refers to vertex {self.faces.max()} of {v}.")

    @property
    def size(self) -> float:
        """The longest side of the bind pose's bounding box."""
        return float(np.ptp(self.vertices, axis=0).max()) if len(self.vertices) else 0.0

    def posed(self, pose: Pose) -> Float64[np.ndarray, "v 3"]:
        """Vertices in a pose, by linear blend skinning."""
        return blend_points(self.vertices, self.skin, skin_transforms(self.skeleton, pose))

    def clip(self, name: str) -> Animation:
        """The clip of that name; the part after a ``|`` will do, and case does not matter where that is unambiguous.

        Raises :class:`InputError` naming the clips there are.
        """
        if name in self.animations:
            return self.animations[name]
        wanted = name.lower()
        for key in (str.lower, lambda text: text.lower().rsplit("|", 1)[-1]):
            found = [clip for text, clip in self.animations.items() if key(text) == wanted]
            if len(found) == 1:
                return found[0]
        there = ", ".join(self.animations) or "none"
        raise InputError(f"There is no clip {name!r} in this rig. Its clips: {there}.")

    def with_clips_of(self, other: RiggedModel) -> RiggedModel:
        """Clips of another file of the same character, matched by joint name (channels of unknown joints are dropped).

        Raises :class:`InputError` where no joint name is shared.
        """
        known = {name: k for k, name in enumerate(self.skeleton.names)}
        if not known.keys() & set(other.skeleton.names):
            raise InputError(
                f"The two rigs share no joint name ({self.skeleton.names[0]!r} ... against "
                f"{other.skeleton.names[0]!r} ...). Retarget the motion with a name map."
            )
        clips = dict(self.animations)
        for name, clip in other.animations.items():
            named = [(other.skeleton.names[c.joint], c) for c in clip.channels]
            channels = tuple(dataclasses.replace(c, joint=known[joint]) for joint, c in named if joint in known)
            clips[name] = Animation(name, self.skeleton.rest, channels)
        return dataclasses.replace(self, animations=clips)

    def transformed(self, matrix: Float[np.ndarray, "4 4"]) -> RiggedModel:
        """The model after an affine map of its world; clips stay as they are."""
        matrix = np.asarray(matrix, np.float64)
        normals = self.normals
        if normals is not None:
            normals = normals @ np.linalg.inv(matrix[:3, :3])
            normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)
        vertices = self.vertices @ matrix[:3, :3].T + matrix[:3, 3]
        return dataclasses.replace(self, vertices=vertices, normals=normals, skeleton=self.skeleton.transformed(matrix))
