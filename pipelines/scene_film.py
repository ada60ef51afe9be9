"""A simulated scene to files: all objects in one picture a frame, and each one's own exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from pipelines.cameras import cameras_for, parse_size
from pipelines.film import drawn_frame
from pipelines.progress import Progress
from pipelines.scene_build import BuiltObject, BuiltScene, PlacedThing, Prop
from splatanim.data import Frame, Splats
from splatanim.dynamics.scene import SceneError
from splatanim.dynamics.tilting import CarriedPlane
from splatanim.dynamics.world import WorldTrajectory
from splatanim.errors import InputError
from splatanim.render.stage import StagePlane
from splatanim.transforms import BoundSplats, bind_splats, merge, pose, transform

if TYPE_CHECKING:
    from pipelines.animate import Timings

_PAD = 0.02  # of an object's size, around what the camera must see


@dataclass(frozen=True)
class Drawn:
    """Something in the picture: its splats in the world at frame ``k`` and time ``t``."""

    at: Callable[[int, float], Splats]


def film_scene(
    built: BuiltScene,
    trajectory: WorldTrajectory,
    film: Path,
    backend: str,
    timings: Timings,
    progress: Progress,
) -> list[str]:
    """Write the film and the exports; returns notes for the summary."""
    from pipelines.scene_export import exports_of
    from splatanim.render.film import open_film

    scene, output = built.scene, built.scene.output
    frames = len(trajectory.times)
    bound = [bind_object(item, built.up) for item in built.objects]
    props = [drawn_prop(prop) for prop in built.props]
    boxes = swept_boxes(built, trajectory)
    up = (float(built.up[0]), float(built.up[1]), float(built.up[2]))
    cameras, notes = cameras_for(scene.camera, parse_size(output.size), up, boxes, scene.seconds)
    size = stage_size(built, boxes)
    export = exports_of(built, trajectory, bound)
    background = None if output.transparent else output.background
    with open_film(film, fps=scene.fps, alpha=output.transparent) as video, progress.bar("rendering", frames) as tick:
        for k in range(frames):
            time = float(trajectory.times[k])
            with timings.stage("pose"):
                posed = [pose(b, t.handles[k]) for b, t in zip(bound, trajectory.trajectories, strict=True)]
                everything = merge(*posed, *(prop.at(k, time) for prop in props))
            with timings.stage("render"):
                planes = stage_planes(built, time, boxes) if output.stage and not output.transparent else []
                image, alpha = drawn_frame(everything, cameras[k], planes, size, background, backend)
            with timings.stage("encode"):
                video.write(image, alpha)
                export(k)
            tick()
    return [*notes, *([video.note] if video.note else [])]


def world_splats(thing: PlacedThing) -> Splats:
    """A thing's splats placed in the world, at rest; their ``offset`` is zero."""
    source, placement = thing.source, thing.placement
    shift = np.asarray(source.splats.offset) - np.asarray(source.offset)  # means to what the frame starts from
    linear = source.frame.scale * placement.scale * placement.rotation
    start = placement.to_world(source.frame.to_sim(shift[None]))[0]
    moved = transform(source.splats, np.concatenate([linear, start[:, None]], axis=1))
    return moved.replace(offset=(0.0, 0.0, 0.0), extras={})


def bind_object(item: BuiltObject, up: np.ndarray) -> BoundSplats:
    """An object's splats in the world, bound to its handles."""
    frame = Frame((0.0, 0.0, 0.0), 1.0, (float(up[0]), float(up[1]), float(up[2])))
    return bind_splats(world_splats(item.thing), frame, item.model.handles)


def drawn_prop(prop: Prop) -> Drawn:
    """Scenery in the picture, still or carried by its motion."""
    still = world_splats(prop.thing)
    if not prop.moves:
        return Drawn(lambda _k, _time: still)

    def carried(_k: int, time: float) -> Splats:
        matrix = np.array(prop.motion(time), np.float64)
        matrix[:, :3] += np.eye(3)
        return transform(still, matrix)

    return Drawn(carried)


def swept_boxes(
    built: BuiltScene, trajectory: WorldTrajectory
) -> tuple[Float64[np.ndarray, "t 3"], Float64[np.ndarray, "t 3"]]:
    """The box of all that must be seen, in every frame: objects, scenery and finite planes."""
    low = np.full((len(trajectory.times), 3), np.inf)
    high = -low

    def widen(k: int, points: np.ndarray, pad: float) -> None:
        low[k] = np.minimum(low[k], points.min(axis=0) - pad)
        high[k] = np.maximum(high[k], points.max(axis=0) + pad)

    for item, motion in zip(built.objects, trajectory.trajectories, strict=True):
        rest = item.model.contact_rest
        weights, _ = item.model.handles.evaluate(rest)
        one = np.concatenate([rest, np.ones((len(rest), 1))], axis=1)
        for k, z in enumerate(motion.handles):
            widen(k, rest + np.einsum("nh,hrc,nc->nr", weights, z, one, optimize=True), _PAD * item.thing.size)
    for k, time in enumerate(trajectory.times):
        for prop in built.props:
            z = np.asarray(prop.motion(float(time)))
            points = prop.thing.cubature.surface
            widen(k, points + points @ z[:, :3].T + z[:, 3], _PAD * prop.thing.size)
        for carried in built.planes:
            if np.isfinite(carried.plane.half_extents).all():
                widen(k, corners(carried, float(time)), 0.0)
    return low, high


def corners(carried: CarriedPlane, time: float) -> Float64[np.ndarray, "4 3"]:
    """The corners of a finite plane at a time."""
    plane = carried.at(time)
    a, b, _ = plane.frame()
    signs = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]], np.float64) * plane.half_extents
    return plane.point + signs @ np.stack([a, b])


def stage_size(built: BuiltScene, boxes: tuple[np.ndarray, np.ndarray]) -> float:
    """What shadows and floors go by: the largest object, or half of all that is seen where that is more."""
    extent = float((boxes[1].max(axis=0) - boxes[0].min(axis=0)).max())
    return max(max(item.thing.size for item in built.objects), 0.5 * extent)


def stage_planes(built: BuiltScene, time: float, boxes: tuple[np.ndarray, np.ndarray]) -> list[StagePlane]:
    """The planes as the stage draws them; an endless one is centred under what is seen."""
    middle = 0.5 * (boxes[0].min(axis=0) + boxes[1].max(axis=0))
    out = []
    for spec, carried in zip(built.scene.planes, built.planes, strict=True):
        plane = carried.at(time)
        frame = plane.frame()
        point = plane.point
        if not np.isfinite(plane.half_extents).all():
            point = middle - ((middle - point) @ frame[2]) * frame[2]
        out.append(StagePlane(point, frame, plane.half_extents, spec.glass))
    return out


def check_output(built_size: str) -> tuple[int, int]:
    """``output.size`` as pixels; :class:`SceneError` where it is none."""
    try:
        return parse_size(built_size)
    except InputError as error:
        raise SceneError("output.size", str(error).removeprefix("--")) from None
