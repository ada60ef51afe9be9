"""The second half of ``animate``: pose, render, encode and export, one frame at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from pipelines.cameras import cameras_for, parse_colour, parse_size
from pipelines.film_posing import BoundCapture, DrawnCapture, drawn_capture, posed_whole
from pipelines.progress import Progress
from splatanim.data import Frame, Splats
from splatanim.dynamics.contact import Plane
from splatanim.dynamics.motions import Direction
from splatanim.dynamics.scene import View
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.render.stage import StagePlane, draw_stage

if TYPE_CHECKING:
    from pipelines.animate import AnimateConfig, Look, Story, Subject, Timings
    from pipelines.scene_select import Part

Export = Callable[[int, Splats], None]
TRANSPARENT = "transparent"  # the background that leaves nothing behind the splats
SEQUENCES = ("ply", "splat", "spz", "glb")  # what a sequence of splats can be exported as
_CASTING = 200_000  # splats whose shadows are summed
_POSES = 16  # of a film, that long splats are held against


def film(
    config: AnimateConfig,
    output: Path,
    subject: Subject,
    bound: BoundCapture,
    story: Story,
    timings: Timings,
    progress: Progress,
    look: Look | None = None,
) -> list[str]:
    """Write the film and the exports; returns notes for the summary."""
    from splatanim.render.film import open_film

    trajectory = story.trajectory
    frames = len(trajectory.handles)
    boxes = swept_boxes(story, subject.frame)
    view = View(config.camera, azimuth=35.0 if config.camera == "fixed" else 25.0)
    size = parse_size(config.size)
    cameras, notes = cameras_for(view, size, subject.frame.up, boxes, config.seconds, offset=subject.splats.offset)
    background = parse_background(config.background)
    planes = stage_planes(config, story.direction, subject.frame)
    extent = 1.0 / subject.frame.scale * config.object_size
    exports = _exports(config, subject, story.part)
    with timings.stage("pose"):
        drawn, note = drawable(bound, story)
    seen = _seen(subject, story.part, cut=drawn.cut > 0)
    with (
        open_film(output, fps=config.fps, alpha=background is None) as video,
        progress.bar("rendering", frames) as tick,
    ):
        for k in range(frames):
            with timings.stage("pose"):
                eye = cameras[k].position if story.part is None else None
                splats = seen(drawn.at(trajectory.handles[k], eye))
            with timings.stage("render"):
                stage = [] if background is None else planes(trajectory.times[k])
                image, alpha = drawn_frame(splats, cameras[k], stage, extent, background, config.backend)
            with timings.stage("encode"):
                video.write(image, alpha)
                if exports:  # the capture's own splats, uncut: their number is the file's
                    moved = posed_whole(bound, trajectory.handles[k])
                for export in exports:
                    export(k, moved)
            if look is not None:
                look(k, image)
            del splats  # before the next frame's are made
            tick()
        with timings.stage("encode"):
            _export_npz(config, subject, bound, story)
    return [*notes, *([note] if note else []), *([video.note] if video.note else [])]


def drawable(bound: BoundCapture, story: Story) -> tuple[DrawnCapture, str]:
    """The splats to draw, with those cut that could not follow the motion in one piece, and a note on how many."""
    frames = story.trajectory.handles
    drawn = drawn_capture(bound, story.handles, frames[:: max(1, len(frames) // _POSES)])
    if not drawn.cut:
        return drawn, ""
    return drawn, (
        f"{drawn.cut} long splats are drawn in pieces, so that they bend with the object (exports keep them whole)."
    )


def parse_background(text: str) -> tuple[float, float, float] | None:
    """``1,1,1`` -> (1.0, 1.0, 1.0); ``transparent`` -> None."""
    return None if text == TRANSPARENT else parse_colour(text)


def drawn_frame(
    splats: Splats,
    camera: Camera,
    planes: Sequence[StagePlane],
    size: float,
    background: tuple[float, float, float] | None,
    backend: str,
) -> tuple[Float32[np.ndarray, "h w 3"], Float32[np.ndarray, "h w"] | None]:
    """One frame as films take it: the picture, and without a background its alpha (over black; no planes then)."""
    from splatanim.render.rasterize import rasterize

    if background is not None:
        return picture(splats, camera, planes, size, background, backend), None
    drawing = rasterize(splats, camera, background=(0.0, 0.0, 0.0), backend=backend)
    return drawing.rgb, drawing.alpha


def picture(
    splats: Splats,
    camera: Camera,
    planes: Sequence[StagePlane],
    size: float,
    background: tuple[float, float, float],
    backend: str,
) -> Float32[np.ndarray, "h w 3"]:
    """One frame: the splats, and the stage's planes with their shadows where there are any.

    ``size`` is that of what is on the stage, in the splats' units: shadows and the fading of floors go by it.
    """
    from splatanim.render.rasterize import rasterize

    if not planes:
        return rasterize(splats, camera, background=background, backend=backend).rgb
    rendering = rasterize(splats, camera, background=(0.0, 0.0, 0.0), backend=backend, depth=True)
    return draw_stage(rendering, camera, planes, _casting(splats), size, background)


def _casting(splats: Splats) -> Splats:
    """What casts shadows: of very many splats every so manieth, with its neighbours' area, as shadows are soft."""
    every = len(splats) // _CASTING
    if every < 2:
        return splats
    rows = slice(0, None, every)
    return Splats(
        splats.means[rows],
        splats.quaternions[rows],
        splats.log_scales[rows] + np.float32(0.5 * np.log(every)),
        splats.raw_opacities[rows],
        splats.sh[rows, :1],
    )


def _seen(subject: Subject, part: Part | None, cut: bool) -> Callable[[Splats], Splats]:
    """From the moved splats to all that is seen: the rest of the capture stands around a selected part."""
    from pipelines.scene_select import insert
    from splatanim.transforms import merge

    if part is None:
        return lambda moved: moved
    if not cut:
        return lambda moved: insert(subject.splats, part.rows, moved)
    still = np.ones(len(subject.splats), bool)
    still[part.rows] = False
    rest = subject.splats.select(still)
    return lambda moved: merge(rest, moved)


def swept_boxes(story: Story, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """The bounding box in every frame (file units), from contact points, a little widened; with what stands still."""
    rest = story.cubature.surface
    weights, _ = story.handles.evaluate(rest)
    one = np.concatenate([rest, np.ones((len(rest), 1))], axis=1)
    still = np.empty((0, 3)) if story.part is None else story.part.whole
    low, high = [], []
    for z in story.trajectory.handles:
        x = np.concatenate([rest + np.einsum("nh,hrc,nc->nr", weights, z, one, optimize=True), still])
        low.append(frame.to_file(x.min(axis=0)[None])[0])
        high.append(frame.to_file(x.max(axis=0)[None])[0])
    pad = 0.02 * float((high[0] - low[0]).max())
    return np.stack(low) - pad, np.stack(high) + pad


def stage_planes(config: AnimateConfig, direction: Direction, frame: Frame) -> Callable[[float], list[StagePlane]]:
    """The motion's scenery in file units, as a function of time."""
    if not config.stage or config.background == TRANSPARENT:
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
    """``ply:DIR`` (or splat, spz, glb) and ``npz:FILE`` -> (kind, path)."""
    out = []
    for text in exports:
        kind, _, path = text.partition(":")
        if kind not in (*SEQUENCES, "npz") or not path:
            raise InputError(
                f"--export {text!r} is neither a splat sequence (ply:DIR, splat:DIR, spz:DIR or glb:DIR) nor npz:FILE "
                "(one file for all frames)."
            )
        out.append((kind, Path(path)))
    return out


def _exports(config: AnimateConfig, subject: Subject, part: Part | None) -> list[Export]:
    """Writers of the splat sequences; rows go back to the order of the file.

    With a selection every splat of the file is written, and those that stand still as the file has them.
    """
    from pipelines.scene_select import insert, with_raw_rotations
    from splatanim.formats import write_sequence_frame

    folders = [(kind, path) for kind, path in parse_exports(config.export) if kind in SEQUENCES]
    if not folders:
        return []
    back = np.argsort(subject.order)
    whole = subject.everything
    if part is not None and config.scene is not None:
        whole = with_raw_rotations(whole, config.scene)

    def sequence(kind: str, folder: Path) -> Export:
        def write(k: int, moved: Splats) -> None:
            splats = moved.select(back) if part is None else insert(whole, subject.order[part.rows], moved)
            write_sequence_frame(folder, k, splats, suffix=f".{kind}", up=subject.inspection.up)

        return write

    return [sequence(kind, folder) for kind, folder in folders]


def _export_npz(config: AnimateConfig, subject: Subject, bound: BoundCapture, story: Story) -> None:
    """The animation as one file (:mod:`splatanim.formats.sequence4d`): constant splats and handles per frame."""
    from splatanim.formats.sequence4d import sequence_of, write_sequence4d

    rows = subject.order if story.part is None else subject.order[story.part.rows]
    whole = None if story.part is None else subject.everything
    for kind, path in parse_exports(config.export):
        if kind == "npz":
            trajectory = story.trajectory
            everything = sequence_of(bound.whole(), trajectory.handles, trajectory.times, rows=rows, whole=whole)
            write_sequence4d(path, everything)
