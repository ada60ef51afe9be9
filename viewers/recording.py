"""What a live simulation did, kept as handles frame by frame, and written as a film or as a sequence of splats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from pipelines.scene_build import Prop
from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.transforms import BoundSplats, merge, pose

if TYPE_CHECKING:
    from splatanim.render.stage import StagePlane

Floor = tuple[np.ndarray, np.ndarray] | None
_SOON = 1e-9  # s
_UNSEEN = -30.0  # raw opacity


@dataclass
class Recorder:
    """Takes the state at every 1/``fps`` seconds of the simulation's time from ``start`` on."""

    fps: float
    start: float
    times: list[float] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)

    def note(self, time: float, state: Any, floor: Floor) -> None:
        """Keep the state if the next frame is due; after a reset of the simulation it goes on from the beginning."""
        if self.times and time < self.times[-1] - _SOON:
            self.start = time - len(self.times) / self.fps
        if time + _SOON < self.start + len(self.times) / self.fps:
            return
        self.times.append(time)
        self.states.append(state)
        self.floors.append(floor)


@dataclass(frozen=True)
class Recording:
    """A finished recording. ``splats_of`` makes the splats of a state in the viewer's coordinates; ``order`` says which
    rows of the file they are, None where they are not of one file."""

    taken: Recorder
    splats_of: Callable[[Any], Splats]
    file_frame: Frame
    size: float
    order: np.ndarray | None = None
    backend: str = "auto"

    @property
    def frames(self) -> int:
        return len(self.taken.times)

    def film(
        self, path: Path, camera: Camera | Sequence[Camera], *, on_frame: Callable[[int], None] = lambda _k: None
    ) -> None:
        """Write an MP4 as ``animate`` draws it, seen by one camera or one a frame (viewer coordinates).

        Raises InputError where nothing was recorded or the cameras are not as many as the frames, OutputError where
        the file cannot be written.
        """
        from pipelines.film import picture
        from splatanim.render.video import VideoWriter

        self._check()
        cameras = [camera] * self.frames if isinstance(camera, Camera) else list(camera)
        if len(cameras) != self.frames:
            raise InputError(f"film: {len(cameras)} cameras for {self.frames} frames; one, or one a frame, are needed.")
        with VideoWriter(path, fps=self.taken.fps) as video:
            for k, view in enumerate(cameras):
                planes = stage_planes(self.taken.floors[k])
                video.write(picture(self.splats(k), view, planes, self.size, (1.0, 1.0, 1.0), self.backend))
                on_frame(k)

    def plys(self, folder: Path) -> None:
        """Write frame_0000.ply ... in the file's coordinates: one object in the order of its file, several one after
        the other. Raises as :meth:`film`."""
        from splatanim.formats import write_sequence_frame

        self._check()
        up = _up_name(np.asarray(self.file_frame.up))
        back = None if self.order is None else np.argsort(self.order, kind="stable")
        for k in range(self.frames):
            splats = to_file(self.splats(k), self.file_frame)
            if back is not None and len(back) == len(splats):
                splats = splats.select(back)
            write_sequence_frame(folder, k, splats, up=up)

    def splats(self, frame: int) -> Splats:
        """All that is seen in a frame, in the viewer's coordinates."""
        return self.splats_of(self.taken.states[frame])

    def _check(self) -> None:
        if not self.frames:
            raise InputError("Nothing was recorded. Start a recording, let it play, and stop it.")


def stage_planes(floor: Floor) -> list[StagePlane]:
    """The floor as films draw it."""
    from splatanim.dynamics.contact import Plane
    from splatanim.render.stage import StagePlane

    if floor is None:
        return []
    point, normal = floor
    side = np.eye(3)[int(np.argmin(np.abs(normal)))]
    return [StagePlane(point, Plane(point, normal, side).frame(), (np.inf, np.inf))]


def bodies_at(
    state: tuple[float, Sequence[np.ndarray]],
    bound: Sequence[BoundSplats],
    last: Sequence[np.ndarray],
    props: Sequence[Prop],
) -> Splats:
    """All bodies and scenery at a time and under handles, a pair; bodies that came later are there, but not seen (so
    that every frame has as many splats), where ``last`` has them."""
    time, handles = state
    every = posed(bound, [*handles, *last[len(handles) :]], props, time)
    if len(handles) == len(bound):
        return every
    ends = np.cumsum([0, *(len(b.splats) for b in bound)])
    opacities = every.raw_opacities.copy()
    opacities[ends[len(handles)] : ends[-1]] = _UNSEEN
    return every.replace(raw_opacities=opacities)


def posed(
    bound: Sequence[BoundSplats], handles: Sequence[Float64[np.ndarray, "h 3 4"]], props: Sequence[Prop], time: float
) -> Splats:
    """All bodies and scenery as one set of splats in the viewer's coordinates."""
    from pipelines.scene_film import drawn_prop

    moved = [pose(b, z) for b, z in zip(bound, handles, strict=True)]
    return merge(*moved, *(drawn_prop(prop).at(0, time) for prop in props))


def to_file(splats: Splats, frame: Frame) -> Splats:
    """Splats of the viewer's coordinates in those of the file."""
    means = frame.to_file(splats.means)
    centre = means.mean(axis=0) if np.abs(means).max(initial=0.0) > 1e4 else np.zeros(3)
    x, y, z = (float(v) for v in np.round(centre))
    return splats.replace(
        means=(means - (x, y, z)).astype(np.float32),
        log_scales=(splats.log_scales - np.float32(np.log(frame.scale))).astype(np.float32),
        offset=(x, y, z),
        extras={},
    )


def _up_name(up: np.ndarray) -> str:
    axis = int(np.argmax(np.abs(up)))
    return ("+" if up[axis] > 0 else "-") + "xyz"[axis]
