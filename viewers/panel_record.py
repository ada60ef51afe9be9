"""Keeping what is seen: stills, recordings as film and splats, and camera paths."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from pipelines.cameras import parse_size
from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.rotations import SH_C0, matrices_to_quaternions
from viewers.camera_path import CameraKeys, Keyframe
from viewers.controls import notify, on_click
from viewers.moving import Cloud, Moving
from viewers.outputs import OutputFolder
from viewers.panel_see import move_browser

if TYPE_CHECKING:
    import viser

    from viewers.stage import Stage

SIZES = ("320x240", "640x480", "960x720", "1280x960")
_MOST_SENT = 64e6  # bytes of a file that are also offered to the browser
NEED_BROWSER = "There is no browser whose camera could be taken."


class StillPanel:
    """A picture by the project's own renderer (the rasteriser, or a PAPR asset's network) from where one stands."""

    def __init__(self, gui: viser.GuiApi, moving: Moving, output: OutputFolder, backend: str = "auto") -> None:
        self._gui, self._moving, self._output, self._backend = gui, moving, output, backend
        self.size = gui.add_dropdown("Picture", SIZES, initial_value=SIZES[1])
        self.button = gui.add_button("Still of this camera", hint="Rendered, shown here, and written as a PNG")
        self.image: Any = None
        on_click(self.button, self._take)

    def refresh(self) -> None:
        """Nothing changes but by hand."""

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _take(self, client: viser.ClientHandle | None) -> None:
        from splatanim.render.video import write_png

        camera = camera_of(client, parse_size(self.size.value))
        picture = still(self._moving, camera, self._backend)
        path = self._output.new("still", ".png")
        write_png(path, picture)
        shown = (255.0 * picture.clip(0, 1)).astype(np.uint8)
        if self.image is None:
            self.image = self._gui.add_image(shown, label="Still", format="jpeg")
        else:
            self.image.image = shown
        offer(client, path)


class RecordPanel:
    """A simulation's states as they are stepped, written as film and splats when the recording ends."""

    def __init__(self, gui: viser.GuiApi, moving: Any, keys: CameraKeys, output: OutputFolder) -> None:
        self._moving, self._keys, self._output = moving, keys, output
        self._busy = threading.Lock()
        self.recording: Any = None
        self.running = False
        self.start = gui.add_button("Record", color="red", hint="From here on; press again to stop")
        self.size = gui.add_dropdown("Film", SIZES, initial_value=SIZES[1])
        self.camera = gui.add_dropdown("Seen from", ("this camera", "the camera path"))
        self.film = gui.add_button("Write MP4", disabled=True)
        self.plys = gui.add_button("Write PLY sequence", disabled=True)
        self.state = gui.add_markdown("Nothing recorded yet.")
        on_click(self.start, lambda _client: self.toggle())
        on_click(self.film, self._write_film)
        on_click(self.plys, self._write_plys)

    def refresh(self) -> None:
        label = "Stop recording" if self.running else "Record"
        if self.start.label != label:
            self.start.label = label

    def client_left(self, client: int) -> None:
        """A recording goes on without the browser that began it."""

    def toggle(self) -> None:
        """Start a recording, or stop the one that runs."""
        with self._busy:
            if self.running:
                self.recording = self._moving.stop_recording()
                self.running = False
                self.state.content = f"{self.recording.frames} frames recorded."
                self.film.disabled = self.plys.disabled = self.recording.frames == 0
            else:
                self._moving.start_recording()
                self.running = True
                self.film.disabled = self.plys.disabled = True
                self.state.content = "Recording ..."
        self.refresh()

    def write_all(self, camera: Camera) -> list[str]:
        """Stop the recording that runs and write it as film and splats; what was written, in words."""
        if self.running:
            self.toggle()
        if self.recording is None or not self.recording.frames:
            return ["nothing was recorded."]
        film, folder = self._output.new("recording", ".mp4"), self._output.new("recording_ply")
        self.recording.film(film, camera)
        self.recording.plys(folder)
        return [f"{film} and {folder}: {self.recording.frames} frames"]

    def _write_film(self, client: viser.ClientHandle | None) -> None:
        size = parse_size(self.size.value)
        path = self._output.new("recording", ".mp4")
        recording = self._recorded()
        if self.camera.value == "the camera path":
            camera: Any = self._keys.cameras(recording.frames, size)
        else:
            camera = camera_of(client, size)
        with self._busy:
            self._working(f"Rendering {recording.frames} frames ...", True)
            try:
                recording.film(path, camera)
            finally:
                self._working(f"{recording.frames} frames recorded.", False)
        offer(client, path)

    def _write_plys(self, client: viser.ClientHandle | None) -> None:
        folder = self._output.new("recording_ply")
        recording = self._recorded()
        with self._busy:
            self._working(f"Writing {recording.frames} files ...", True)
            try:
                recording.plys(folder)
            finally:
                self._working(f"{recording.frames} frames recorded.", False)
        notify(client, "Written", f"{folder}: {recording.frames} files", "green")

    def _recorded(self) -> Any:
        if self.recording is None or not self.recording.frames:
            raise InputError("Nothing is recorded yet. Press Record, let it play, and stop.")
        return self.recording

    def _working(self, text: str, busy: bool) -> None:
        self.state.content = text
        self.film.disabled = self.plys.disabled = busy


class PathPanel:
    """Camera keyframes, the path through them, and nerfstudio's camera_path.json of it."""

    def __init__(self, gui: viser.GuiApi, moving: Moving, stage: Stage, keys: CameraKeys, output: OutputFolder) -> None:
        self._moving, self._stage, self._keys, self._output = moving, stage, keys, output
        self._nodes: list[Any] = []
        self.add = gui.add_button("Add camera keyframe")
        self.clear = gui.add_button("Clear keyframes")
        self.seconds = gui.add_number("Seconds", 4.0, min=0.1, max=600.0, step=0.1)
        self.fps = gui.add_number("Frames a second", 30, min=1, max=120, step=1)
        self.write = gui.add_button("Write camera_path.json", hint="For animate --camera, render --camera, nerfstudio")
        self.state = gui.add_markdown("No keyframe.")
        on_click(self.add, self._add)
        on_click(self.clear, lambda _client: self._clear())
        on_click(self.write, self._write)

    def refresh(self) -> None:
        """Nothing changes but by hand."""

    def client_left(self, client: int) -> None:
        """Keyframes stay."""

    def _add(self, client: viser.ClientHandle | None) -> None:
        if client is None:
            raise InputError(NEED_BROWSER)
        key = Keyframe.of(client.camera)
        count = self._keys.add(key)
        node = self._stage.server.scene.add_camera_frustum(
            f"/keyframes/{count}", key.fov, client.camera.aspect, scale=0.07 * self._stage.size, color=(200, 60, 160),
            wxyz=key.wxyz, position=key.position, thickness=1.5, thickness_units="screen", cast_shadow=False,
        )  # fmt: skip
        node.on_click(lambda event: move_browser(event.client, key.camera(64, 64), self._stage.size))
        self._nodes.append(node)
        self._say()

    def _clear(self) -> None:
        self._keys.clear()
        for node in self._nodes:
            node.remove()
        self._nodes.clear()
        self._say()

    def _say(self) -> None:
        count = len(self._keys.keys)
        self.state.content = f"{count} keyframe{'' if count == 1 else 's'}." if count else "No keyframe."

    def _write(self, client: viser.ClientHandle | None) -> None:
        path = self._output.new("camera_path", ".json")
        size = (960, 720)
        self._keys.write(path, float(self.seconds.value), float(self.fps.value), size, self._moving.file_frame)
        offer(client, path)


def camera_of(client: viser.ClientHandle | None, size: tuple[int, int]) -> Camera:
    """The camera of a browser, for a picture of ``size``; viewer coordinates."""
    if client is None:
        raise InputError(NEED_BROWSER)
    return Keyframe.of(client.camera).camera(*size)


def still(moving: Any, camera: Camera, backend: str = "auto") -> Float32[np.ndarray, "h w 3"]:
    """What ``camera`` (viewer coordinates) sees of the present state, by the renderer that suits it."""
    if hasattr(moving, "still"):
        return moving.still(camera)
    from splatanim.render.rasterize import rasterize

    splats = moving.splats() if hasattr(moving, "splats") else splats_of(moving.clouds())
    return rasterize(splats, camera, backend=backend).rgb


def splats_of(clouds: tuple[Cloud, ...]) -> Splats:
    """Clouds as splats of constant colour: covariances factored into rotations and scales."""
    means = np.concatenate([cloud.means for cloud in clouds])
    variances, axes = np.linalg.eigh(np.concatenate([cloud.covariances for cloud in clouds]).astype(np.float64))
    axes[np.linalg.det(axes) < 0, :, 0] *= -1
    opacities = np.clip(np.concatenate([cloud.opacities for cloud in clouds]), 1e-6, 1 - 1e-6)
    rgbs = np.concatenate([cloud.rgbs for cloud in clouds])
    return Splats(
        means.astype(np.float32),
        matrices_to_quaternions(axes).astype(np.float32),
        (0.5 * np.log(np.maximum(variances, 1e-18))).astype(np.float32),
        np.log(opacities / (1 - opacities)).astype(np.float32),
        ((rgbs[:, None] - 0.5) / SH_C0).astype(np.float32),
    )


def offer(client: viser.ClientHandle | None, path: Any) -> None:
    """Say where a file was written, and offer it to the browser that asked for it."""
    notify(client, "Written", str(path), "green")
    if client is not None and path.stat().st_size <= _MOST_SENT:
        client.send_file_download(path.name, path.read_bytes())
