"""The viewer in the browser: one server, one thing that moves, one drawing thread, and the panels that fit it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatanim.render.camera import Camera
from viewers.camera_path import CameraKeys
from viewers.controls import Panel
from viewers.moving import Moving
from viewers.outputs import OutputFolder
from viewers.panel_play import PlayPanel
from viewers.server import close_server, open_server
from viewers.stage import Stage

if TYPE_CHECKING:
    import viser

_WAIT = 0.5  # s; how long the drawing thread sleeps where nothing changes
_REFRESH = 0.25  # s between readouts


@dataclass(frozen=True)
class ViewOptions:
    """How a :class:`Viewer` is set up. ``rate``: drawings a second at most; ``drop``: choices beside the samples."""

    host: str = "127.0.0.1"
    port: int = 8080
    rate: float = 30.0
    output: Path = field(default_factory=lambda: Path("view"))
    cameras: Sequence[Camera] = ()
    drop: Sequence[Path] = ()
    backend: str = "auto"


class Viewer:
    """Shows a :class:`Moving` to any number of browsers until it is closed.

    The engine steps in its own thread; a drawing thread here waits for changes and sends them, never faster than
    ``rate`` and not at all while nothing changes or nobody looks. Raises InputError as
    :func:`viewers.server.open_server` does.
    """

    def __init__(self, moving: Moving, options: ViewOptions | None = None) -> None:
        self.moving, self.options = moving, options or ViewOptions()
        self.server = open_server(self.options.host, self.options.port, f"splatanim: {', '.join(moving.names)}")
        self.port = self.server.get_port()
        self.stage = Stage(self.server, moving)
        self.keys = CameraKeys()
        self.output = OutputFolder(self.options.output)
        self.panels: dict[str, Panel] = self._build_panels()
        self._clients: set[int] = set()
        self._awake = threading.Event()
        self._closing = threading.Event()
        self.server.on_client_connect(self._joined)
        self.server.on_client_disconnect(self._left)
        self.stage.draw()
        self._thread = threading.Thread(target=self._run, name="drawing", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Sleep until :meth:`close` or Ctrl-C (which is raised on as KeyboardInterrupt)."""
        while not self._closing.wait(3600.0):
            pass

    def close(self) -> None:
        """Stop drawing, the engine and the server, in that order; more than once is harmless."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._awake.set()
        self._thread.join(timeout=5.0)
        self.moving.close()
        close_server(self.server)

    def record(self) -> None:
        """Begin a recording, as the button does."""
        from viewers.panel_record import RecordPanel

        panel = self.panels["record"]
        assert isinstance(panel, RecordPanel)
        if not panel.running:
            panel.toggle()

    def write_recording(self) -> list[str]:
        """Stop the recording and write it as film and splats, seen from the first view; what was written, in words."""
        from viewers.panel_record import RecordPanel

        panel = self.panels["record"]
        assert isinstance(panel, RecordPanel)
        self.moving.pause()
        return panel.write_all(self.stage.camera)

    def _build_panels(self) -> dict[str, Panel]:
        gui, moving, options = self.server.gui, self.moving, self.options
        gui.configure_theme(show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()
        panels: dict[str, Panel] = {"play": PlayPanel(gui, moving, self.stage)}
        tabs = gui.add_tab_group()
        if getattr(moving, "touchable", hasattr(moving, "grab")):
            panels |= self._touch_tabs(tabs)
        if hasattr(moving, "skeleton"):
            from viewers.panel_pose import PosePanel

            with tabs.add_tab("Pose"):
                panels["pose"] = PosePanel(gui, moving, self.stage, self.output)
        panels |= self._see_tab(tabs)
        with tabs.add_tab("Keep"):
            panels |= self._keep_tab(gui, moving, options)
        return panels

    def _touch_tabs(self, tabs: viser.GuiTabGroupHandle) -> dict[str, Panel]:
        from splatanim.samples import sample_names
        from viewers.panel_touch import TouchPanel
        from viewers.panel_world import DropPanel, MaterialPanel, WorldPanel

        gui, moving = self.server.gui, self.moving
        panels: dict[str, Panel] = {}
        with tabs.add_tab("Touch"):
            panels["touch"] = TouchPanel(gui, moving, self.stage)
            with gui.add_folder("Material"):
                panels["material"] = MaterialPanel(gui, moving)
            if hasattr(moving, "drop"):
                with gui.add_folder("Drop in"):
                    choices = (*sample_names(), *map(str, self.options.drop))
                    panels["drop"] = DropPanel(gui, moving, choices)
        with tabs.add_tab("World"):
            panels["world"] = WorldPanel(gui, moving)
        return panels

    def _see_tab(self, tabs: viser.GuiTabGroupHandle) -> dict[str, Panel]:
        from viewers.panel_see import CameraFrusta, EnergyPlot, SeePanel, SplatsPanel

        gui, moving = self.server.gui, self.moving
        panels: dict[str, Panel] = {}
        with tabs.add_tab("See"):
            if not hasattr(moving, "points"):
                panels["splats"] = SplatsPanel(gui, self.stage)
            if hasattr(moving, "cubature"):
                panels["see"] = SeePanel(gui, moving, self.stage)
                panels["energy"] = EnergyPlot(gui, moving)
            if self.options.cameras:
                panels["cameras"] = CameraFrusta(gui, moving, self.stage, self.options.cameras)
        return panels

    def _keep_tab(self, gui: viser.GuiApi, moving: Any, options: ViewOptions) -> dict[str, Panel]:
        from viewers.panel_record import PathPanel, RecordPanel, StillPanel

        panels: dict[str, Panel] = {}
        if hasattr(moving, "start_recording"):
            with gui.add_folder("Recording"):
                panels["record"] = RecordPanel(gui, moving, self.keys, self.output)
        with gui.add_folder("Camera path"):
            panels["path"] = PathPanel(gui, moving, self.stage, self.keys, self.output)
        with gui.add_folder("Still"):
            panels["still"] = StillPanel(gui, moving, self.output, options.backend)
        return panels

    async def _joined(self, client: viser.ClientHandle) -> None:
        self._clients.add(client.client_id)
        self._awake.set()

    async def _left(self, client: viser.ClientHandle) -> None:
        self._clients.discard(client.client_id)
        for panel in self.panels.values():
            panel.client_left(client.client_id)

    def _run(self) -> None:
        """Draw what is new, at the drawing rate; sleep where nothing is."""
        shown, refreshed = -1, 0.0
        while not self._closing.is_set():
            if not self._clients:
                self._awake.wait(_WAIT)
                self._awake.clear()
                continue
            changed = self.moving.wait_changed(shown, _WAIT)
            start = time.monotonic()
            try:
                if changed:
                    shown = self.moving.version
                    self.stage.draw()
                if start - refreshed >= _REFRESH:
                    refreshed = start
                    self.refresh()
            except Exception:  # one bad frame must not end the viewer; the engine's own errors are in the readout
                traceback.print_exc(file=sys.stderr)
                self._closing.wait(_WAIT)
            if changed:
                self._closing.wait(max(0.0, 1.0 / self.options.rate - (time.monotonic() - start)))

    def refresh(self) -> None:
        """Bring every panel up to date."""
        for panel in self.panels.values():
            panel.refresh()
