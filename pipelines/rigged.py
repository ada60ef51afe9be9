"""A rig-driven film: splats (or a mesh made splats) that follow a skeleton's clip, from files to an MP4.

The steps stand alone, so that something else can move the splats in between: :func:`load_actor` (splats, weights,
skeleton), :func:`choose_clip` (a clip of the rig, or another file's motion, retargeted), :func:`joint_transforms` (the
skeleton in every frame), :func:`film_actor` (the pictures).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float64, Int64

from pipelines.progress import Progress
from pipelines.rigged_export import parse_exports, sequence_writer, write_models
from pipelines.rigged_ground import ground_plane, swept_boxes
from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path

if TYPE_CHECKING:
    from splatanim.rig.animation import Animation
    from splatanim.rig.model import RiggedModel
    from splatanim.rig.skinning import RiggedSplats

_SAME_CHARACTER = 0.8  # share of a motion's joints that the rig must have by name to play it as it is


@dataclass(frozen=True)
class RiggedConfig:
    """Animate a capture by a rig's clip, elastic motion on top of it where asked for, and write an MP4.

    Args:
        scene: Splats (.ply ...) in the rig's bind pose, or a mesh; the rigged mesh itself may be named.
        rig: The rig: .glb, .gltf, UniRig .npz, or RigNet .txt (then name --rig-mesh too). Without one, the scene is it.
        clip: The clip to play, such as Walk. Not needed where there is only one.
        output: The .mp4 to write.
        retarget: Motion of another skeleton: a .bvh or .glb.
        map: A .toml with lines "SourceName" = "TargetName" for the retargeting, instead of matching names.
        rig_mesh: The mesh that a .txt rig numbers.
        weights: How weights are carried to splats: nearest or heat.
        skinning: linear, or dual (dual quaternions: no collapse where a joint twists).
        count: How many splats a mesh becomes.
        seconds: Length of the film; the clip repeats. By default the clip's own length.
        fps: Frames per second.
        size: Size of the picture in pixels, WIDTHxHEIGHT.
        camera: fixed, orbit, or a .json file of cameras.
        background: Red, green and blue of the background, 0 to 1.
        stage: Draw the ground with a soft shadow.
        up: Which way is up: auto, +y, -y, +z, -z, +x or -x.
        elastic: Add the elastic motion that the rig cannot make.
        material: auto (flesh) or a preset, as of ``animate``; young, poisson and density override its numbers.
        object_size: The longest side in metres.
        functions: How many elastic functions (of three coordinates each) the flesh has.
        leak: How much of the mass the bones do not carry directly: 0 (none: accelerations shake nothing) to 1.
        export: ply:DIR for a splat sequence, glb:FILE for points with skeleton and clip; repeatable.
        report: Write what happened as JSON.
        seed: Seed of the places of splats on a mesh.
    """

    scene: Path
    rig: Path | None = None
    clip: str = ""
    output: Path = Path("rigged.mp4")
    retarget: Path | None = None
    map: Path | None = None
    rig_mesh: Path | None = None
    weights: Literal["nearest", "heat"] = "nearest"
    skinning: Literal["linear", "dual"] = "linear"
    count: int = 60_000
    seconds: float | None = None
    fps: float = 30.0
    size: str = "640x640"
    camera: str = "fixed"
    background: str = "1,1,1"
    stage: bool = True
    up: str = "auto"
    elastic: bool = False
    material: str = "auto"
    young: float | None = None
    poisson: float | None = None
    density: float | None = None
    object_size: float = 1.0
    functions: int = 48
    leak: float = 1.0
    export: tuple[str, ...] = ()
    report: Path | None = None
    seed: int = 0
    backend: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class Actor:
    """Splats bound to a skeleton, the rig they follow, their up axis, and what is to be said about them.

    ``order`` are the rows that the splats have in what they come from.
    """

    rigged: RiggedSplats
    model: RiggedModel
    up: tuple[float, float, float]
    notes: tuple[str, ...] = ()
    order: Int64[np.ndarray, " n"] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class RiggedResult:
    """What was filmed: frames, splats, joints, the clip's name, and notes (a retargeting's name map among them).

    ``elastic`` are the figures of the elastic motion, None without any.
    """

    output: Path
    frames: int
    splats: int
    joints: int
    clip: str
    notes: tuple[str, ...]
    elastic: dict[str, Any] | None = None

    def __str__(self) -> str:
        head = f"{self.output}: {self.frames} frames of {self.splats} splats on {self.joints} joints, clip {self.clip}"
        return "\n".join([head, *(f"  note: {note}" for note in self.notes)])


Mover = Callable[[int, Float64[np.ndarray, "j 4 4"]], Splats]


def animate_rigged(config: RiggedConfig, progress: Progress | None = None) -> RiggedResult:
    """The whole job. Raises :class:`InputError` or ``OutputError`` with a message for the user."""
    progress = progress or Progress()
    _check(config)
    with progress.spinner("reading the rig"):
        actor = load_actor(config)
        clip, more = choose_clip(config, actor)
    times = frame_times(clip, config.fps, config.seconds)
    transforms = joint_transforms(actor, clip, times)
    move, found, elastic_notes = _elastic(config, actor, clip, len(times), progress)
    notes = film_actor(config, actor, transforms, progress, move)
    written = write_models(config.export, actor, clip, config.scene.stem)
    said = tuple(dict.fromkeys((*actor.notes, *more, *elastic_notes, *notes, *written)))
    splats, joints = len(actor.rigged.splats), len(actor.model.skeleton)
    result = RiggedResult(config.output, len(times), splats, joints, clip.name, said, found)
    if config.report is not None:
        with atomic_path(config.report) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(result), indent=2, default=str) + "\n", encoding="utf-8")
    return result


def _elastic(
    config: RiggedConfig, actor: Actor, clip: Animation, frames: int, progress: Progress
) -> tuple[Mover | None, dict[str, Any] | None, tuple[str, ...]]:
    """With --elastic what moves the splats, the figures of it, and what to say."""
    from pipelines.rigged_elastic import figures, in_words, simulate_actor

    if not config.elastic:
        return None, None, ()
    with progress.spinner(f"simulating {frames} frames"):
        elastic = simulate_actor(config, actor, clip, frames)
    found = figures(elastic)
    glb = any(kind == "glb" for kind, _ in parse_exports(config.export))
    more = ("the .glb holds the rig's motion; for the elastic motion export ply:DIR.",) if glb else ()
    return elastic.move, found, (in_words(found), *elastic.notes, *more)


def _check(config: RiggedConfig) -> None:
    from pipelines.cameras import parse_colour, parse_size
    from pipelines.rigged_elastic import check_elastic

    parse_size(config.size)
    parse_colour(config.background)
    parse_exports(config.export)
    if config.elastic:
        check_elastic(config)
    if config.output.suffix.lower() != ".mp4":
        raise InputError(f"{config.output}: only .mp4 can be written. Give a name such as walk.mp4.")
    for option, value in (("--fps", config.fps), ("--seconds", 1.0 if config.seconds is None else config.seconds)):
        if not 0 < value < 1e6:
            raise InputError(f"{option} {value:g}: a positive number is needed.")


def load_actor(config: RiggedConfig) -> Actor:
    """Splats with the rig's weights: from the rigged mesh itself exactly, else carried over in the bind pose."""
    from pipelines.convert import carried_weights, holds_mesh, read_model
    from splatanim.inspect import up_vector
    from splatanim.rig.files import read_rig
    from splatanim.rig.skinning import RiggedSplats
    from splatanim.rig.surface_splats import rigged_splats, splats_of_mesh

    is_mesh = holds_mesh(config.scene)
    if config.rig is None and not is_mesh:
        raise InputError(f"{config.scene}: holds splats and no skeleton. Name a rig: --rig rig.glb.")
    up = up_vector("+y" if config.up == "auto" else config.up)
    if config.rig is None or config.rig.resolve() == config.scene.resolve():
        model = read_model(config.scene)
        rigged = rigged_splats(model, count=config.count, up=up, seed=config.seed)
        return _actor(dataclasses.replace(rigged, method=config.skinning), model, up, model.notes)
    model = read_rig(config.rig, config.rig_mesh)
    if is_mesh:
        shape = read_model(config.scene)
        splats, _ = splats_of_mesh(
            shape.vertices,
            shape.faces,
            shape.appearance,
            count=config.count,
            normals=shape.normals,
            up=up,
            seed=config.seed,
        )
        notes = (*shape.notes, *model.notes)
    else:
        splats, up, more = _capture(config)
        notes = (*model.notes, *more)
    points = splats.means.astype(np.float64) + splats.offset
    skin = carried_weights(points, model, config.weights)
    return _actor(RiggedSplats(splats, skin, config.skinning), model, up, notes)


def _capture(config: RiggedConfig) -> tuple[Splats, tuple[float, float, float], tuple[str, ...]]:
    """Splats of a file without their floaters, and which way is up."""
    from splatanim.formats import read_splats
    from splatanim.inspect import analyse, floater_mask, up_vector

    result = read_splats(config.scene)
    floaters = floater_mask(result.splats)
    found = analyse(result, file=str(config.scene), up=None if config.up == "auto" else config.up, floaters=floaters)
    return result.splats.select(~floaters), up_vector(found.up), result.warnings


def _actor(rigged: RiggedSplats, model: RiggedModel, up: tuple[float, float, float], notes: tuple[str, ...]) -> Actor:
    """The splats in Morton order, which renders faster."""
    from splatanim.render.order import morton_order

    order = morton_order(rigged.splats.means)
    ordered = dataclasses.replace(rigged, splats=rigged.splats.select(order), skin=rigged.skin.select(order))
    return Actor(ordered, model, up, notes, order.astype(np.int64))


def choose_clip(config: RiggedConfig, actor: Actor) -> tuple[Animation, tuple[str, ...]]:
    """The clip to play on the actor's skeleton, and what to say about it."""
    model = actor.model
    if config.retarget is None:
        if not config.clip and len(model.animations) == 1:
            return next(iter(model.animations.values())), ()
        return model.clip(config.clip), ()
    from splatanim.rig.files import read_motion
    from splatanim.rig.names import describe_map, match_names, read_name_map
    from splatanim.rig.retarget import retarget

    motion = read_motion(config.retarget)
    donor = dataclasses.replace(model, animations=motion.clips)
    clip = donor.clip(config.clip) if config.clip or len(motion.clips) > 1 else next(iter(motion.clips.values()))
    if config.map is None and _same_character(motion.skeleton.names, model.skeleton.names):
        known = {name: k for k, name in enumerate(model.skeleton.names)}
        named = [(motion.skeleton.names[c.joint], c) for c in clip.channels]
        channels = tuple(dataclasses.replace(c, joint=known[name]) for name, c in named if name in known)
        played = dataclasses.replace(clip, rest=model.skeleton.rest, channels=channels)
        return played, (f"{config.retarget}: the joints have the rig's own names; the clip plays as it is.",)
    if config.map is None:
        names = match_names(motion.skeleton, model.skeleton)
    else:
        names = read_name_map(config.map, motion.skeleton, model.skeleton)
    moved = retarget(clip, motion.skeleton, model.skeleton, names, fps=max(30.0, config.fps), up=actor.up)
    return moved, ("retargeted by joint names:\n" + describe_map(names, motion.skeleton, model.skeleton),)


def _same_character(theirs: tuple[str, ...], ours: tuple[str, ...]) -> bool:
    return len(set(theirs) & set(ours)) >= _SAME_CHARACTER * min(len(theirs), len(ours))


def frame_times(clip: Animation, fps: float, seconds: float | None) -> Float64[np.ndarray, " t"]:
    """Clip times of all frames; a film longer than the clip starts it again."""
    length = clip.duration
    count = max(1, round((length if seconds is None else seconds) * fps))
    times = np.arange(count) / fps
    return clip.start + (np.mod(times, length) if length > 0 else np.zeros(count))


def joint_transforms(actor: Actor, clip: Animation, times: Float64[np.ndarray, " t"]) -> Float64[np.ndarray, "t j 4 4"]:
    """Skinning transforms of every joint in every frame (file coordinates)."""
    from splatanim.rig.skeleton import skin_transforms

    return skin_transforms(actor.model.skeleton, clip.sample(times))


def film_actor(
    config: RiggedConfig,
    actor: Actor,
    transforms: Float64[np.ndarray, "t j 4 4"],
    progress: Progress,
    move: Mover | None = None,
) -> list[str]:
    """Pose, render and encode every frame; returns notes.

    ``move`` takes a frame's number and joint transforms to splats; without it they follow the skeleton alone.
    """
    from pipelines.cameras import cameras_for, parse_colour, parse_size
    from pipelines.film import picture
    from splatanim.dynamics.scene import View
    from splatanim.render.video import VideoWriter
    from splatanim.rig.skinning import pose_splats

    splats = actor.rigged.splats
    low, high = swept_boxes(actor, transforms)
    view = View(config.camera)
    width_height, seconds = parse_size(config.size), len(transforms) / config.fps
    cameras, notes = cameras_for(view, width_height, actor.up, (low, high), seconds, offset=splats.offset)
    background = parse_colour(config.background)
    planes = [ground_plane(actor.up, low, high)] if config.stage else []
    extent = float((high - low).max())
    move = move or (lambda _k, joints: pose_splats(actor.rigged, joints))
    export = sequence_writer(config.export, actor.order)
    with VideoWriter(config.output, fps=config.fps) as video, progress.bar("rendering", len(transforms)) as tick:
        for k, joints in enumerate(transforms):
            moved = move(k, joints)
            video.write(picture(moved, cameras[k], planes, extent, background, config.backend))
            export(k, moved)
            tick()
    return [*notes, *([video.note] if video.note else [])]
