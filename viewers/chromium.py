"""A headless Chromium with software WebGL that looks at a viewer: for pictures, figures and the tests."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from splatanim.errors import InputError, require

if TYPE_CHECKING:
    from splatanim.render.camera import Camera
    from viewers.app import Viewer

FLAGS = (
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--no-sandbox",
)
PATIENCE = 90_000  # ms; software WebGL on a busy machine is slow, and nothing here depends on how slow

# Splats reach the GPU as a texture of whole numbers; nothing else in the client does.
_COUNTERS = """
window.__uploads = 0; window.__draws = 0;
const gl = WebGL2RenderingContext.prototype;
for (const name of ['texImage2D', 'texSubImage2D']) {
  const plain = gl[name];
  gl[name] = function (...a) { if (a.includes(this.RGBA_INTEGER)) window.__uploads++; return plain.apply(this, a); };
}
const draw = gl.drawElementsInstanced;
gl.drawElementsInstanced = function (...a) { window.__draws++; return draw.apply(this, a); };
"""


def chromium() -> str | None:
    """Where Chromium is, or None."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One tab that looks at a viewer. Waits are for conditions, never for times."""

    def __init__(self, page: Any) -> None:
        self.page = page

    @property
    def uploads(self) -> int:
        """How often splats have reached the GPU."""
        return int(self.page.evaluate("window.__uploads"))

    def wait_for_splats(self, more: int = 1) -> None:
        """Until splats have been drawn, ``more`` times uploaded from now on."""
        wanted = self.uploads + more if more > 1 else more
        self.page.wait_for_function(f"window.__draws > 1 && window.__uploads >= {wanted}", timeout=PATIENCE)

    def picture(self) -> np.ndarray:
        """What the tab shows, (h, w, 3), 0 to 1."""
        shot = Image.open(io.BytesIO(self.page.screenshot(timeout=PATIENCE))).convert("RGB")
        return np.asarray(shot, np.float64) / 255.0

    def wait_for_text(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for(timeout=PATIENCE)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click(timeout=PATIENCE)

    def press(self, label: str) -> None:
        self.page.get_by_role("button", name=label, exact=True).first.click(timeout=PATIENCE)

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 6) -> None:
        """A drag with the left button, in pixels."""
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        for k in range(1, steps + 1):
            mouse.move(*(a + (b - a) * k / steps for a, b in zip(start, end, strict=True)))
            self.page.wait_for_timeout(120)  # the client sends drags 20 times a second at most
        mouse.up()


@contextmanager
def open_browser(width: int = 640, height: int = 400, executable: str | None = None) -> Iterator[Callable[[str], Page]]:
    """``look(url) -> Page``; every tab is closed at the end.

    Raises InputError where playwright or Chromium is missing.
    """
    playwright = require("playwright.sync_api", extra="test")
    path = executable or chromium()
    if path is None or not os.path.exists(path):
        raise InputError(f"There is no Chromium at {path or 'chromium'}. Install it (apt-get install chromium).")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        try:

            def look(url: str) -> Page:
                page = browser.new_page(viewport={"width": width, "height": height})
                page.add_init_script(_COUNTERS)
                page.goto(url, timeout=PATIENCE)
                return Page(page)

            yield look
        finally:
            browser.close()


def settled_camera(viewer: Viewer, page: Page) -> Camera:
    """The camera of the one browser that looks, once the client has taken the viewer's first view and its layout."""
    from viewers.camera_path import Keyframe

    start, last = viewer.server.initial_camera.position, None
    for _ in range(PATIENCE // 250):
        clients = list(viewer.server.get_clients().values())
        if clients:
            camera = clients[-1].camera
            now = (camera.image_width, camera.image_height, tuple(np.round(camera.position, 6)))
            if now == last and np.allclose(camera.position, start, atol=1e-3):
                return Keyframe.of(camera).camera(camera.image_width, camera.image_height)
            last = now
        page.page.wait_for_timeout(250)
    raise TimeoutError("the browser never took the first view")


def pixel(camera: Camera, point: np.ndarray) -> tuple[float, float]:
    """Where a point (viewer coordinates) is in the picture."""
    x, y, z = camera.T_camera_world[:3, :3] @ point + camera.T_camera_world[:3, 3]
    return float(camera.fx * x / z + camera.cx), float(camera.fy * y / z + camera.cy)
