"""The second half of ``animate``: pose, render, encode and export, one frame at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.cameras import cameras_for, parse_colour
from pipelines.progress import Progress
from splatanim.binding import Handles
from splatanim.data import Cubature, Frame, Splats
from splatanim.dynamics.contact import Plane
from splatanim.dynamics.motions import Direction
from splatanim.dynamics.simulate import Trajectory
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.render.stage import StagePlane, draw_stage
from splatanim.transforms import BoundSplats

if TYPE_CHECKING:
    from pipelines.animate import AnimateConfig, Subject, Timings

Export = Callable[[int, Splats], None]


def film(
    config: AnimateConfig,
    output: Path,
    subject: Subject,
    bound: BoundSplats,
    story: tuple[Trajectory, Direction, Cubature, Handles],
    timings: Timings,
    progress: Progress,
) -> list[str]:
    """Write the MP4 and the exports; returns notes for the summary."""
    from splatanim.render.video import VideoWriter
    from splatanim.transforms import pose

    trajectory, direction, cubature, handles = story
    frames = len(trajectory.handles)
    boxes = swept_boxes(cubature, handles, trajectory, subject.frame)
    cameras, notes = cameras_for(config, subject, boxes, frames)
    background = parse_colour(config.background)
    planes = stage_planes(config, direction, subject.frame)
    size = 1.0 / subject.frame.scale * config.object_size
    exports = _exports(config, subject)
    with VideoWriter(output, fps=config.fps) as video, progress.bar("rendering", frames) as tick:
        for k in range(frames):
            with timings.stage("pose"):
                splats = pose(bound, trajectory.handles[k])
            with timings.stage("render"):
                image = _picture(splats, cameras[k], planes(trajectory.times[k]), size, background, config.backend)
            with timings.stage("encode"):
                video.write(image)
                for export in exports:
                    export(k, splats)
            tick()
        with timings.stage("encode"):
            _export_npz(config, subject, bound, trajectory)
    return [*notes, *([video.note] if video.note else [])]


def _picture(
    splats: Splats,
    camera: Camera,
    planes: Sequence[StagePlane],
    size: float,
    background: tuple[float, float, float],
    backend,
) -> np.ndarray:
    from splatanim.render.rasterize import rasterize

    if not planes:
        return rasterize(splats, camera, background=background, backend=backend).rgb
    rendering = rasterize(splats, camera, background=(0.0, 0.0, 0.0), backend=backend, depth=True)
    return draw_stage(rendering, camera, planes, splats, size, background)


def swept_boxes(
    cubature: Cubature, handles: Handles, trajectory: Trajectory, frame: Frame
) -> tuple[np.ndarray, np.ndarray]:
    """The object's bounding box in every frame (file units), from its contact points, a little widened."""
    rest = cubature.surface
    weights, _ = handles.evaluate(rest)
    one = np.concatenate([rest, np.ones((len(rest), 1))], axis=1)
    low, high = [], []
    for z in trajectory.handles:
        x = rest + np.einsum("nh,hrc,nc->nr", weights, z, one, optimize=True)
        low.append(frame.to_file(x.min(axis=0)[None])[0])
        high.append(frame.to_file(x.max(axis=0)[None])[0])
    pad = 0.02 * float((high[0] - low[0]).max())
    return np.stack(low) - pad, np.stack(high) + pad


def stage_planes(config: AnimateConfig, direction: Direction, frame: Frame) -> Callable[[float], list[StagePlane]]:
    """The motion's scenery in file units, as a function of time."""
    if not config.stage:
        return lambda _time: []
    up = np.asarray(frame.up)

    def place(plane: Plane, time: float) -> StagePlane:
        half = (plane.half_extents[0] / frame.scale, plane.half_extents[1] / frame.scale)
        glass = float(plane.normal @ up) < 0
        if glass:
            half = (0.7 * config.object_size / frame.scale,) * 2
        return StagePlane(frame.to_file(plane.centre(time)[None])[0], plane.frame(), half, glass)

    return lambda time: [place(plane, time) for plane in direction.scenery]


def parse_exports(exports: Sequence[str]) -> list[tuple[str, Path]]:
    """``ply:DIR`` and ``npz:FILE`` -> (kind, path)."""
    out = []
    for text in exports:
        kind, _, path = text.partition(":")
        if kind not in ("ply", "npz") or not path:
            raise InputError(f"--export {text!r} is neither ply:DIR (a splat sequence) nor npz:FILE (handles).")
        out.append((kind, Path(path)))
    return out


def _exports(config: AnimateConfig, subject: Subject) -> list[Export]:
    """Writers of the PLY sequences; rows go back to the order of the file."""
    from splatanim.formats import write_sequence_frame

    back = np.argsort(subject.order)

    def sequence(folder: Path) -> Export:
        def write(k: int, splats: Splats) -> None:
            write_sequence_frame(folder, k, splats.select(back))

        return write

    return [sequence(path) for kind, path in parse_exports(config.export) if kind == "ply"]


def _export_npz(config: AnimateConfig, subject: Subject, bound: BoundSplats, trajectory: Trajectory) -> None:
    """Everything needed to pose the capture elsewhere: x = X + sum_h w_h Z_h [X; 1] in simulator units."""
    from splatanim.formats.atomic import atomic_path

    back = np.argsort(subject.order)
    for kind, path in parse_exports(config.export):
        if kind != "npz":
            continue
        with atomic_path(path) as temporary:
            np.savez_compressed(
                temporary,
                handles=trajectory.handles.astype(np.float32),
                times=trajectory.times,
                rest=bound.rest[back],
                weights=bound.weights[back],
                weight_gradients=bound.slopes[back],
                rows=np.sort(subject.order),
                centre=np.asarray(subject.frame.centre) + subject.splats.offset,
                scale=subject.frame.scale,
                up=np.asarray(subject.frame.up),
            )
