"""What can be made visible beside the splats: weights, points, cameras, and energy over time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32

from splatanim.render.camera import Camera
from viewers.camera_path import browser_pose, to_viewer
from viewers.controls import on_change
from viewers.moving import Cloud

if TYPE_CHECKING:
    import viser

    from viewers.stage import Stage

CAPTURED, ALL_WEIGHTS, ONE_WEIGHT = "captured", "all handles", "one handle"
_KEPT_SECONDS = 10.0  # of wall time in the plot
_PLOT_EVERY = 0.5  # s
_FRUSTA = 200  # of a file that are drawn
_BLUE, _GREEN = (40, 90, 230), (20, 160, 60)


class SplatsPanel:
    """Whether and how densely the splats are drawn: bones and points are inside them."""

    def __init__(self, gui: viser.GuiApi, stage: Stage) -> None:
        self._stage = stage
        self.splats = gui.add_checkbox("Splats", True)
        self.opacity = gui.add_slider("Opacity", 0.05, 1.0, 0.05, 1.0, hint="Lower it to see what is inside")
        on_change(self.splats, lambda: stage.show_splats(self.splats.value))
        on_change(self.opacity, self._fade)

    def refresh(self) -> None:
        """Nothing changes but by hand."""

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _fade(self) -> None:
        self._stage.opacity = float(self.opacity.value)
        self._stage.draw(force=True)


class SeePanel:
    """Colours by handle weights, cubature and contact points of the bodies of a simulation."""

    def __init__(self, gui: viser.GuiApi, moving: Any, stage: Stage) -> None:
        self._moving, self._stage, self._scene = moving, stage, stage.server.scene
        self._weights: dict[int, np.ndarray] = {}
        self._colours: dict[int, np.ndarray] = {}
        self._clouds: dict[str, viser.PointCloudHandle] = {}
        self.colours = gui.add_dropdown("Colours", (CAPTURED, ALL_WEIGHTS, ONE_WEIGHT), hint="Handle weights as colour")
        self.handle = gui.add_number("Handle", 0, min=0, max=255, step=1, visible=False)
        self.cubature = gui.add_checkbox("Cubature points", False, hint="Where elastic energy is summed up")
        self.contacts = gui.add_checkbox("Contact points", False, hint="What touches the floor and other bodies")
        on_change(self.colours, self._recoloured)
        on_change(self.handle, self._recoloured)
        on_change(self.cubature, lambda: stage.draw(force=True))
        on_change(self.contacts, lambda: stage.draw(force=True))
        stage.recolour = self._recolour
        stage.overlays.append(self._draw)

    def refresh(self) -> None:
        """Everything follows with the drawing."""

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _recoloured(self) -> None:
        self.handle.visible = self.colours.value == ONE_WEIGHT
        self._colours.clear()
        self._stage.draw(force=True)

    def _recolour(self, body: int, cloud: Cloud) -> Float32[np.ndarray, "n 3"] | None:
        if self.colours.value == CAPTURED:
            return None
        colours = self._colours.get(body)
        if colours is None or len(colours) != len(cloud.means):
            weights = np.asarray(self._moving.weights(body))
            one = int(self.handle.value) if self.colours.value == ONE_WEIGHT else None
            colours = self._colours[body] = weight_colours(weights, one)
        return colours if len(colours) == len(cloud.means) else None

    def _draw(self) -> None:
        for name, wanted, points, colour in (
            ("cubature", self.cubature.value, self._moving.cubature, _BLUE),
            ("contacts", self.contacts.value, self._moving.contact_points, _GREEN),
        ):
            self._draw_points(name, wanted, points, colour)

    def _draw_points(
        self, name: str, wanted: bool, points: Callable[[int], np.ndarray], colour: tuple[int, int, int]
    ) -> None:
        node = self._clouds.get(name)
        if not wanted:
            if node is not None:
                self._clouds.pop(name).remove()
            return
        every = [np.asarray(points(body), np.float32) for body in range(len(self._moving.bodies))]
        places = np.concatenate(every) if every else np.empty((0, 3), np.float32)
        if node is not None and node.points.shape == places.shape:
            node.points = places
            return
        self._clouds[name] = self._scene.add_point_cloud(
            f"/{name}", places, colour, point_size=0.006 * self._stage.size, point_shape="circle", precision="float32"
        )


class EnergyPlot:
    """Kinetic and elastic energy over the last seconds, while it moves."""

    def __init__(self, gui: viser.GuiApi, moving: Any) -> None:
        from viser import uplot

        self._moving = moving
        self._rows: deque[tuple[float, float, float, float]] = deque()
        self._last = 0.0
        self.plot = gui.add_uplot(
            (np.zeros(1), np.zeros(1), np.zeros(1)),
            series=(
                uplot.Series(label="time, s"),
                uplot.Series(label="kinetic, J", stroke="#1f77b4", width=2),
                uplot.Series(label="elastic, J", stroke="#d62728", width=2),
            ),
            scales={"x": uplot.Scale(time=False, auto=True), "y": uplot.Scale(auto=True)},
            title="Energy",
            height=190,
        )

    def refresh(self) -> None:
        now = time.monotonic()
        readout = self._moving.readout()
        if self._rows and readout.time == self._rows[-1][1]:
            return
        if self._rows and readout.time < self._rows[-1][1]:  # it was reset
            self._rows.clear()
        self._rows.append((now, readout.time, readout.kinetic, readout.elastic))
        while now - self._rows[0][0] > _KEPT_SECONDS:
            self._rows.popleft()
        if now - self._last < _PLOT_EVERY or len(self._rows) < 2:
            return
        self._last = now
        values = np.array([row[1:] for row in self._rows])
        self.plot.data = tuple(np.ascontiguousarray(column) for column in values.T)

    def client_left(self, client: int) -> None:
        """Nothing is held."""


class CameraFrusta:
    """The cameras of a file as frusta in the scene; a click on one looks through it."""

    def __init__(self, gui: viser.GuiApi, moving: Any, stage: Stage, cameras: Sequence[Camera]) -> None:
        self._cameras = [to_viewer(camera, moving.file_frame) for camera in cameras]
        self._stage, self._nodes = stage, []
        self.shown = gui.add_checkbox(
            f"Cameras of the file ({len(cameras)})", True, hint="Click one to look through it"
        )
        on_change(self.shown, self._show)
        every = max(1, -(-len(cameras) // _FRUSTA))
        for k, camera in enumerate(self._cameras[::every]):
            wxyz, position, fov, aspect = browser_pose(camera)
            node = stage.server.scene.add_camera_frustum(
                f"/cameras/{k}", fov, aspect, scale=0.08 * stage.size, color=(90, 90, 160), wxyz=wxyz,
                position=position, thickness=1.5, thickness_units="screen", cast_shadow=False,
            )  # fmt: skip
            node.on_click(self._look_through(camera))
            self._nodes.append(node)

    def refresh(self) -> None:
        """They stand still."""

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _show(self) -> None:
        for node in self._nodes:
            node.visible = self.shown.value

    def _look_through(self, camera: Camera) -> Callable[[Any], None]:
        def look(event: viser.SceneNodePointerEvent) -> None:
            move_browser(event.client, camera, self._stage.size)

        return look


def move_browser(client: viser.ClientHandle, camera: Camera, distance: float) -> None:
    """Set a browser's camera to ``camera`` (viewer coordinates), orbiting about a point ``distance`` ahead."""
    _, position, fov, _ = browser_pose(camera)
    forward = camera.T_camera_world[2, :3]
    with client.atomic():
        client.camera.up_direction = -camera.T_camera_world[1, :3]
        client.camera.position = position
        client.camera.look_at = position + distance * forward
        client.camera.fov = fov


def weight_colours(weights: Float[np.ndarray, "n h"], one: int | None = None) -> Float32[np.ndarray, "n 3"]:
    """Weights as colours: of one handle from blue (least) through white (none) to red (most); of all, each splat in a
    mixture of the handles' hues by the sizes of its weights against their typical size."""
    if one is not None:
        column = weights[:, min(one, weights.shape[1] - 1)]
        share = np.clip(column / max(float(np.abs(column).max()), 1e-12), -1.0, 1.0)[:, None]
        red, blue = np.array([0.84, 0.1, 0.1]), np.array([0.1, 0.25, 0.85])
        return (1.0 - np.abs(share) * (1.0 - np.where(share > 0, red, blue))).astype(np.float32)
    sizes = np.abs(weights) / np.maximum(np.sqrt((weights**2).mean(axis=0)), 1e-12)
    share = sizes**4 / np.maximum((sizes**4).sum(axis=1, keepdims=True), 1e-12)
    return (share @ hues(weights.shape[1])).astype(np.float32)


def hues(count: int) -> Float[np.ndarray, "k 3"]:
    """``count`` well-separated colours, by the golden angle around the colour circle."""
    import colorsys

    return np.array([colorsys.hsv_to_rgb((0.618034 * k) % 1.0, 0.75, 0.95) for k in range(count)])
