"""What ``splatanim synth`` films: a model's clip, frame by frame, in scene coordinates.

Scene coordinates are (model - centre) * scale, the axes unturned, so that the subject fills the unit sphere: half the
diagonal of its bounding box over the clip is 1. A subject that roams (its box over the clip has a diagonal more than
:data:`ROAMS` times that of any single frame) is centred and scaled by the training pose and the largest frame instead,
so that its own size does not depend on how far it goes.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError

if TYPE_CHECKING:
    from splatanim.rig.animation import Animation
    from splatanim.rig.model import RiggedModel

ROAMS = 1.25
_STILL_FPS = 24.0  # of a clip without a length


@dataclass(frozen=True)
class Performance:
    """A model in scene coordinates and what it does.

    ``model`` is the bind pose, its skeleton along. ``train`` (j, 4, 4) and ``frames`` (t, j, 4, 4) are skinning
    transforms of the training pose and of the clip's frames, ``joints`` (t, j, 3) the joints' places; without a clip
    the last two have t = 0. ``times`` [s] are those of the clip.
    """

    model: RiggedModel
    centre: Float64[np.ndarray, " 3"]
    scale: float
    train: Float64[np.ndarray, "j 4 4"]
    frames: Float64[np.ndarray, "t j 4 4"]
    joints: Float64[np.ndarray, "t j 3"]
    times: Float64[np.ndarray, " t"]
    fps: float
    clip: str
    roams: bool

    def vertices(self) -> Float64[np.ndarray, "t v 3"]:
        """The vertices in every frame."""
        if not len(self.frames):
            return np.empty((0, len(self.model.vertices), 3))
        return np.stack([posed(self.model, transforms)[0] for transforms in self.frames])


def read_subject(source: Path, rig_mesh: Path | None = None, motion: Path | None = None) -> RiggedModel:
    """A rig or a mesh with faces; ``motion`` is another glTF of the same character, whose clips are added.

    Raises :class:`InputError` for files that no reader takes, and for those without faces.
    """
    from splatanim.rig.files import RIG_SUFFIXES, read_rig
    from splatanim.rig.mesh_files import MESH_SUFFIXES, read_mesh

    suffix = source.suffix.lower()
    if suffix in RIG_SUFFIXES:
        model = read_rig(source, rig_mesh)
    elif suffix in MESH_SUFFIXES:
        model = read_mesh(source)
    else:
        known = ", ".join((*RIG_SUFFIXES, *MESH_SUFFIXES))
        raise InputError(f"{source}: {suffix or 'no suffix'} is no rig or mesh known here. Readable: {known}.")
    if not len(model.faces):
        raise InputError(f"{source}: has no faces, so there is nothing to see. Give the file that holds the mesh.")
    if motion is not None:
        if motion.suffix.lower() not in (".glb", ".gltf"):
            raise InputError(f"--motion {motion}: clips are taken from .glb and .gltf of the same character.")
        model = model.with_clips_of(read_rig(motion))
    return model


def chosen_clip(model: RiggedModel, source: Path, name: str) -> Animation:
    """The clip of that name. Raises :class:`InputError` naming the file and the clips that it has."""
    if not model.animations:
        skin = "one rigid piece without a skin" if len(model.skeleton) == 1 else "a rig"
        raise InputError(
            f"{source}: is {skin} and has no animation, so there is no clip {name!r}. Name a file that has it with "
            "--motion, or leave --clip out: then only training views are made."
        )
    try:
        return model.clip(name)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def still(model: RiggedModel) -> Performance:
    """The bind pose alone."""
    none = np.empty((0, len(model.skeleton), 4, 4))
    here = np.tile(np.eye(4), (len(model.skeleton), 1, 1))
    return _placed(model, here, none, none, np.empty(0), 0.0, "")


def perform(
    model: RiggedModel,
    clip: Animation,
    count: int,
    *,
    up: tuple[float, float, float],
    travel: str = "clip",
    bind: bool = False,
) -> Performance:
    """``count`` frames evenly over the clip, its end left out (it is the start of the next round).

    ``travel``: ``clip`` keeps the way the clip goes, ``in-place`` takes the straight part of it out, a number replaces
    that part by so many body lengths along the model's front (the longest level side of the first frame's box is one).
    ``bind``: the training pose is the bind pose rather than the first frame.
    """
    from splatanim.rig.skeleton import forward_kinematics

    length = clip.duration
    times = clip.start + length * np.arange(count) / count
    globals_ = forward_kinematics(model.skeleton, clip.sample(np.append(times, clip.end)))
    globals_ = _moved(globals_, _detour(model, globals_, up, travel))
    skin = globals_ @ model.skeleton.inverse_bind
    here = np.tile(np.eye(4), (len(model.skeleton), 1, 1))
    fps = count / length if length > 0 else _STILL_FPS
    if length <= 0:
        times = clip.start + np.arange(count) / fps
    return _placed(model, here if bind else skin[0], skin[:-1], globals_[:-1], times, fps, clip.name)


def _detour(model: RiggedModel, globals_: np.ndarray, up: tuple[float, float, float], travel: str) -> np.ndarray:
    """What to add to every frame's place (t, 3); the last frame is the clip's end."""
    from splatanim.render.camera import view_direction

    if travel == "clip":
        return np.zeros((len(globals_), 3))
    places = [posed(model, globals_[k] @ model.skeleton.inverse_bind)[0] for k in (0, -1)]
    drift = places[1].mean(axis=0) - places[0].mean(axis=0)
    drift -= (drift @ np.asarray(up)) * np.asarray(up)
    way = -drift
    if travel != "in-place":
        lengths = _number(travel)
        level = np.abs(np.asarray(up)) < 0.5
        way = way - lengths * float(np.ptp(places[0], axis=0)[level].max()) * view_direction(up, 0.0, 0.0)
    return np.linspace(0.0, 1.0, len(globals_))[:, None] * way


def _number(travel: str) -> float:
    try:
        value = float(travel)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise InputError(f"--travel {travel}: give clip, in-place, or a number of body lengths such as 1.5.")
    return value


def _moved(transforms: np.ndarray, way: np.ndarray) -> np.ndarray:
    out = transforms.copy()
    out[..., :3, 3] += way[:, None]
    return out


def _placed(
    model: RiggedModel,
    train: np.ndarray,
    skin: np.ndarray,
    globals_: np.ndarray,
    times: np.ndarray,
    fps: float,
    clip: str,
) -> Performance:
    """Everything in scene coordinates."""
    boxes = np.array([_box(posed(model, transforms)[0]) for transforms in (train, *skin)])
    sizes = np.linalg.norm(boxes[:, 1] - boxes[:, 0], axis=1)
    low, high = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    size = float(np.linalg.norm(high - low))
    if not (np.isfinite(size) and size > 0):
        raise InputError("synth: the posed model has no extent, or one that is not finite. Check the rig and the clip.")
    roams = size > ROAMS * float(sizes.max())
    if roams:
        (low, high), size = boxes[0], float(sizes.max())
    centre, scale = 0.5 * (low + high), 2.0 / size
    place = np.diag([scale, scale, scale, 1.0])
    place[:3, 3] = -scale * centre
    back = np.linalg.inv(place)
    joints = (globals_[..., :3, 3] - centre) * scale
    return Performance(
        dataclasses.replace(model.transformed(place), animations=model.animations),
        centre,
        scale,
        place @ train @ back,
        place @ skin @ back,
        joints,
        times,
        fps,
        clip,
        roams,
    )


def _box(points: np.ndarray) -> np.ndarray:
    return np.stack([points.min(axis=0), points.max(axis=0)])


def posed(model: RiggedModel, transforms: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Vertices (v, 3) under joint transforms, and the normals where the model has them.

    Normals go by the cofactors of the blended map's linear part, which turn with areas whatever the map stretches.
    """
    from splatanim.rig.skinning import blend_maps

    vertices, linear = blend_maps(model.vertices, model.skin, transforms)
    if model.normals is None:
        return vertices, None
    rows = [np.cross(linear[:, k - 2], linear[:, k - 1]) for k in range(3)]  # k+1, k+2 modulo 3
    normals = np.stack([(row * model.normals).sum(axis=1) for row in rows], axis=1)
    normals *= np.where(np.linalg.det(linear) < 0, -1.0, 1.0)[:, None]
    return vertices, normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)


def short_name(path: Path) -> str:
    """The file with its folder: enough to find it again, without where on a disk that was."""
    return "/".join(Path(os.path.abspath(path)).parts[-2:]).lstrip("/")
