"""Touching: click on an object and drag it by a ball or a gizmo; pin regions where they are."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from viewers.controls import attempt, on_click

if TYPE_CHECKING:
    import viser

    from viewers.stage import Stage

MODES = ("drag", "pin", "nothing")
BALL, GIZMO = "ball", "gizmo"
_RADIUS = 0.12  # of what is touched, in the size of what is seen
_BALL = 0.03
_GIZMO = 0.16
_ORANGE, _RED = (255, 150, 0), (220, 30, 30)


@dataclass
class Grab:
    """One region that a browser holds: the ball or gizmo that pulls it, and where to."""

    client: int
    handle: viser.IcosphereHandle | viser.TransformControlsHandle
    target: Float64[np.ndarray, " 3"]
    grip: Float64[np.ndarray, " 3"]  # the target against the pointer, while the ball is dragged


class TouchPanel:
    """Clicks, grabs and pins. What a browser holds is let go when it leaves."""

    def __init__(self, gui: viser.GuiApi, moving: Any, stage: Stage) -> None:
        self._moving, self._stage, self._server = moving, stage, stage.server
        self._grabs: dict[int, Grab] = {}
        self._pins: dict[int, viser.IcosphereHandle] = {}
        self._lines: viser.LineSegmentsHandle | None = None
        self._drawing = threading.Lock()
        self.mode = gui.add_dropdown("Click to", MODES, hint="What a click on an object does")
        self.handle = gui.add_dropdown("Drag by", (BALL, GIZMO), hint="In the plane of the picture, or along axes")
        self.radius = gui.add_slider("Region", 0.02, 0.5, 0.01, _RADIUS, hint="Radius, in the object's size")
        self.keep = gui.add_checkbox("Hold on after a drag", False, hint="Off: it is let go with the mouse button")
        self.release = gui.add_button_group("Let go", ("drags", "pins"))
        on_click(self.release, lambda _client: self._release_all(self.release.value))
        stage.overlays.append(self._follow)
        stage.server.scene.on_click()(self._clicked)

    def refresh(self) -> None:
        """Marks follow with the drawing."""

    def client_left(self, client: int) -> None:
        for key in [k for k, grab in self._grabs.items() if grab.client == client]:
            self._let_go(key)

    def _clicked(self, event: viser.SceneClickEvent) -> None:
        if self.mode.value == "nothing":
            return
        attempt(lambda: self._touch(event), event.client)

    def _touch(self, event: viser.SceneClickEvent) -> None:
        origin = np.asarray(event.ray_origin, np.float64)
        pick = self._moving.pick(origin, np.asarray(event.ray_direction, np.float64))
        if pick is None:
            return
        radius = self.radius.value * self._stage.size
        if self.mode.value == "pin":
            key = self._moving.pin(pick, radius)
            self._pins[key] = self._pin_mark(key, np.asarray(pick.point))
            return
        for held in [k for k, grab in self._grabs.items() if grab.client == event.client_id]:
            if not self.keep.value:  # one hand: the earlier grip opens
                self._let_go(held)
        key = self._moving.grab(pick, radius)
        point = np.asarray(pick.point, np.float64)
        made = self._ball if self.handle.value == BALL else self._gizmo
        self._grabs[key] = Grab(event.client_id, made(key, point), point, np.zeros(3))

    def _ball(self, key: int, point: np.ndarray) -> viser.IcosphereHandle:
        """A ball that is dragged in the plane of the picture."""
        ball = self._server.scene.add_icosphere(
            f"/grabs/{key}", _BALL * self._stage.size, _ORANGE, subdivisions=2, opacity=0.8, position=point
        )

        @ball.on_drag("left")
        async def _(event: viser.SceneNodeDragEvent) -> None:
            grab = self._grabs.get(key)
            if grab is None:
                return
            if event.phase == "start":
                grab.grip = grab.target - np.asarray(event.start_position)
            if event.phase != "end":
                self._pull(key, grab.grip + np.asarray(event.end_position))
            elif not self.keep.value:
                self._let_go(key)

        return ball

    def _gizmo(self, key: int, point: np.ndarray) -> viser.TransformControlsHandle:
        """Arrows and planes along the axes."""
        gizmo = self._server.scene.add_transform_controls(
            f"/grabs/{key}", _GIZMO * self._stage.size, disable_rotations=True, depth_test=False, position=point
        )

        @gizmo.on_update
        async def _(event: viser.TransformControlsEvent) -> None:
            if event.phase == "update":
                self._pull(key, np.array(gizmo.position, np.float64))
            elif event.phase == "end" and not self.keep.value:
                self._let_go(key)

        return gizmo

    def _pull(self, key: int, target: np.ndarray) -> None:
        grab = self._grabs.get(key)
        if grab is None:
            return
        grab.target = target
        attempt(lambda: self._moving.move(key, target), None)
        if not np.allclose(grab.handle.position, target):
            grab.handle.position = target

    def _let_go(self, key: int) -> None:
        grab = self._grabs.pop(key, None)
        if grab is None:
            return
        attempt(lambda: self._moving.release(key), None)
        grab.handle.remove()
        self._draw_lines()

    def _pin_mark(self, key: int, point: np.ndarray) -> viser.IcosphereHandle:
        mark = self._server.scene.add_icosphere(
            f"/pins/{key}", _BALL * self._stage.size, _RED, subdivisions=2, position=point
        )

        @mark.on_click
        async def _(_event: Any) -> None:
            self._unpin(key)

        return mark

    def _unpin(self, key: int) -> None:
        mark = self._pins.pop(key, None)
        if mark is not None:
            attempt(lambda: self._moving.unpin(key), None)
            mark.remove()

    def _release_all(self, what: str) -> None:
        for key in list(self._grabs) if what == "drags" else []:
            self._let_go(key)
        for key in list(self._pins) if what == "pins" else []:
            self._unpin(key)

    def _follow(self) -> None:
        """With every drawing: a line from each gizmo to what it pulls, and pins where they hold."""
        self._draw_lines()
        places = self._moving.pins() if self._pins else {}
        for key, mark in list(self._pins.items()):
            if key in places:
                mark.position = places[key]
            else:  # a reset took it back
                self._pins.pop(key, None)
                mark.remove()

    def _draw_lines(self) -> None:
        with self._drawing:  # by the drawing thread, and by whoever lets go
            self._draw_lines_alone()

    def _draw_lines_alone(self) -> None:
        places = self._moving.grabs() if self._grabs else {}
        held = [(np.asarray(places[k]), grab.target) for k, grab in list(self._grabs.items()) if k in places]
        if not held:
            if self._lines is not None:
                self._lines.remove()
                self._lines = None
            return
        points = np.asarray(held, np.float32)
        if self._lines is None or self._lines.points.shape != points.shape:
            self._lines = self._server.scene.add_line_segments(
                "/pulls", points, _ORANGE, thickness=3.0, thickness_units="screen"
            )
        else:
            self._lines.points = points
