"""``splatanim bench view``: what the viewer costs and how often it draws, from the outside, as a user meets it.

For its start and for what idling costs, ``splatanim view`` runs as a process of its own. For updates the viewer runs
here, with gravity leaning to and fro so that nothing comes to rest: a reader, which takes everything that is sent and
draws nothing, says what the server can do; a headless Chromium with software WebGL on the same machine says what
arrives on a screen there (a browser with a GPU, or on another machine, comes near the reader).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.view_config import BenchViewConfig, ViewConfig
from splatanim.errors import InputError, require
from viewers.panel_world import across

if TYPE_CHECKING:
    from viewers.app import Viewer

_ADDRESS = re.compile(rb"viewing at (http://\S+)")
_STARTING = 120.0  # s that a start may take
_SETTLE = 3.0  # s before anything is measured


class Served:
    """A running ``splatanim view``: its address, when it was started, and its CPU time."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, started: float) -> None:
        self.process, self.url, self.started = process, url, started

    def cpu(self) -> float:
        """CPU seconds that the process has used (Linux; elsewhere NaN)."""
        with suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return float("nan")


class Reader:
    """A client that takes all that is sent, as a browser would, and only counts the updates of splats."""

    def __init__(self, url: str) -> None:
        connect = require("websockets.sync.client", extra="viewer").connect
        viser = require("viser", extra="viewer")
        self.count, self.bytes = 0, 0
        self.first = threading.Event()
        self._largest = 0
        self._socket = connect(
            url.replace("http", "ws", 1), subprotocols=[f"viser-v{viser.__version__}"], max_size=None, compression=None
        )
        self._socket.send(_camera_message())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave."""
        self._socket.close()
        self._thread.join(timeout=5.0)

    def _read(self) -> None:
        with suppress(Exception):  # the connection's end
            for message in self._socket:
                self._largest = max(self._largest, len(message))
                if len(message) > 20_000 and 4 * len(message) > self._largest:  # the first holds more than one update
                    self.count += 1
                    self.first.set()
                self.bytes += len(message)


def bench_view(config: BenchViewConfig) -> str:
    """Measure, and return the rows as text. Raises InputError where the viewer does not start."""
    rows: list[tuple[str, str]] = []
    with serve(config, "--paused") as served:
        rows += _start_and_idle(config, served)
    with shaken(config) as viewer:
        rows += _updates(config, viewer)
        if config.browser != "none":
            rows += _in_the_browser(config, viewer)
    if config.browser != "none":
        rows += _first_picture(config)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


@contextmanager
def serve(config: BenchViewConfig, *options: str) -> Iterator[Served]:
    """``splatanim view`` of the scene in a process of its own, until the block ends; then Ctrl-C."""
    scene = [] if config.scene is None else [str(config.scene)]
    command = [sys.executable, "-m", "pipelines.cli", "view", *scene, "--port", "0", "--rate", f"{config.rate:g}"]
    started = time.monotonic()
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield Served(process, _address(process), started)
    finally:
        process.send_signal(2)  # SIGINT: it ends itself
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20.0)
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes]) -> str:
    """The address that the process prints, read by a thread that goes on to empty the pipe."""
    lines: Queue[bytes | None] = Queue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    said, end = b"", time.monotonic() + _STARTING
    while time.monotonic() < end:
        try:
            line = lines.get(timeout=1.0)
        except Empty:
            continue
        if line is None:
            break
        said += line
        found = _ADDRESS.search(line)
        if found:
            return found[1].decode()
    raise InputError(f"splatanim view did not start: {said.decode(errors='replace').strip() or 'it said nothing'}")


def _start_and_idle(config: BenchViewConfig, served: Served) -> list[tuple[str, str]]:
    listening, work = time.monotonic() - served.started, served.cpu()
    reader = Reader(served.url)
    if not reader.first.wait(_STARTING):
        raise InputError("splatanim view sent no splats.")
    first = time.monotonic() - served.started
    time.sleep(_SETTLE)
    share, sent = _share(served, config.seconds, lambda: reader.bytes)
    reader.close()
    return [
        ("from the command to the address", f"{listening:.2f} s ({work:.2f} s of CPU)"),
        ("from the command to the first splats sent", f"{first:.2f} s"),
        ("paused, one client: CPU of one core", f"{100 * share:.2f} %"),
        ("paused, one client: sent", f"{sent / config.seconds:.0f} bytes/s"),
    ]


@contextmanager
def shaken(config: BenchViewConfig) -> Iterator[Viewer]:
    """A viewer of the scene in this process that plays, under gravity that leans to and fro where there is any."""
    from viewers.app import Viewer, ViewOptions
    from viewers.verb import open_moving

    moving: Any = open_moving(ViewConfig(config.scene, rate=config.rate))
    viewer = Viewer(moving, ViewOptions(port=0, rate=config.rate))
    over = threading.Event()

    def shake() -> None:
        side, k = across(moving.up)[0], 0
        while not over.wait(0.25):
            k += 1
            moving.set_gravity(-9.81 * (moving.up + 0.3 * np.sin(1.7 * k) * side))

    shaker = threading.Thread(target=shake, daemon=True)
    if hasattr(moving, "set_gravity"):
        shaker.start()
    moving.play()
    try:
        yield viewer
    finally:
        over.set()
        viewer.close()


def _updates(config: BenchViewConfig, viewer: Viewer) -> list[tuple[str, str]]:
    reader = Reader(f"http://127.0.0.1:{viewer.port}")
    reader.first.wait(_STARTING)
    time.sleep(_SETTLE)
    before, sent, simulated, cpu = reader.count, reader.bytes, viewer.moving.readout().time, time.process_time()
    start = time.monotonic()
    time.sleep(config.seconds)
    seconds = time.monotonic() - start
    spent, readout = time.process_time() - cpu, viewer.moving.readout()
    rows = [
        ("playing, one reader: updates a second", f"{(reader.count - before) / seconds:.1f}"),
        ("playing, one reader: sent", f"{(reader.bytes - sent) / seconds / 1e6:.1f} MB/s"),
        ("playing, one reader: CPU of one core, with the reader", f"{100 * spent / seconds:.0f} %"),
        ("playing, one reader: CPU ms an update, steps and all", f"{1e3 * spent / max(reader.count - before, 1):.1f}"),
        ("playing, one reader: simulated seconds a second", f"{(readout.time - simulated) / seconds:.2f}"),
        ("playing, one reader: ms a step (wall)", f"{readout.ms_per_step:.1f}"),
    ]
    reader.close()
    return rows


def _in_the_browser(config: BenchViewConfig, viewer: Viewer) -> list[tuple[str, str]]:
    from viewers.chromium import open_browser

    with open_browser(640, 480, executable=config.browser) as look:
        page = look(f"http://127.0.0.1:{viewer.port}")
        page.wait_for_splats()
        page.page.wait_for_timeout(1000 * _SETTLE)
        before, drawn, start = page.uploads, viewer.stage.drawn, time.monotonic()
        page.page.wait_for_timeout(1000 * config.seconds)
        seconds = time.monotonic() - start
        arrived, sent = page.uploads - before, viewer.stage.drawn - drawn
    return [
        ("Chromium, software WebGL, same machine: updates sent a second", f"{sent / seconds:.1f}"),
        ("Chromium, software WebGL, same machine: of these drawn", f"{arrived / seconds:.1f}"),
    ]


def _first_picture(config: BenchViewConfig) -> list[tuple[str, str]]:
    from viewers.chromium import open_browser

    with open_browser(640, 480, executable=config.browser) as look, serve(config) as served:
        page = look(served.url)
        page.wait_for_splats()
        first = time.monotonic() - served.started
    return [("Chromium, software WebGL, same machine: from the command to the first picture", f"{first:.2f} s")]


def _share(served: Served, seconds: float, amount: Callable[[], int]) -> tuple[float, int]:
    """CPU seconds a second that the viewer takes over a while, and by how much ``amount`` grew."""
    cpu, size, start = served.cpu(), amount(), time.monotonic()
    time.sleep(seconds)
    return (served.cpu() - cpu) / (time.monotonic() - start), amount() - size


def _camera_message() -> bytes:
    """What a browser says first: where its camera is. Before that the server does not count it as a client."""
    import msgspec.msgpack
    from viser import _messages

    message: Any = _messages.ViewerCameraMessage(
        (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, -3.0), 0.6, 0.01, 100.0, 480, 640, (0.0, 0.0, 0.0), (0.0, -1.0, 0.0)
    )
    return msgspec.msgpack.encode(message.as_serializable_dict())
