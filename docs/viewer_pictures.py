"""Make the pictures of the live viewer: ``python docs/viewer_pictures.py [NAME ...]`` (from the repository's root).

They are taken from a real browser (Chromium, software WebGL) that looks at a simulation.
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

from pipelines.animate import AnimateConfig
from viewers.app import Viewer, ViewOptions
from viewers.chromium import Page, open_browser, settled_camera
from viewers.simulation import Simulation

WIDTH, HEIGHT = 900, 560
_COLOURS = 128


def drag_picture(page: Page, viewer: Viewer, simulation: Any) -> None:
    """The jelly, pulled at by its cherry."""
    camera = settled_camera(viewer, page)
    panel: Any = viewer.panels["touch"]
    panel.keep.value = True
    points = simulation.clouds()[0].means
    heights = points @ simulation.up
    top = points[heights > np.quantile(heights, 0.97)].mean(axis=0).astype(np.float64)
    client = next(iter(viewer.server.get_clients().values()))
    click = SimpleNamespace(
        ray_origin=camera.position, ray_direction=top - camera.position, client=client, client_id=client.client_id
    )
    panel._touch(click)
    simulation.play()
    key = next(iter(panel._grabs))
    right = camera.T_camera_world[0, :3]
    start = panel._grabs[key].target.copy()
    for share in np.linspace(0.1, 1.0, 10):
        panel._pull(key, start + share * (0.32 * right + 0.1 * simulation.up))
        time.sleep(0.1)
    began = simulation.readout().time
    wait_for(lambda: simulation.readout().time > began + 0.7)
    simulation.pause()


def weights_picture(page: Page, viewer: Viewer, simulation: Any) -> None:
    """The jelly in the colours of its handles' weights, with cubature points and the energy's plot."""
    settled_camera(viewer, page)
    panel: Any = viewer.panels["see"]
    page.tab("See")
    simulation.set_gravity(-25.0 * simulation.up)
    simulation.play()
    wait_for(lambda: simulation.readout().time > 0.6)
    panel.colours.value = "all handles"
    panel._recoloured()
    wait_for(lambda: simulation.readout().time > 1.2)
    simulation.pause()


PICTURES = {
    "viewer_drag.png": ("jelly", "jelly", drag_picture),
    "viewer_see.png": ("jelly", "jelly", weights_picture),
}


def wait_for(condition: Any, seconds: float = 180.0) -> None:
    """Until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what the picture is to show did not come about")
        time.sleep(0.05)


def take(scene: str, material: str, act: Any) -> Image.Image:
    """A picture of the browser's tab after ``act``."""
    simulation = Simulation.open(scene, AnimateConfig(material=material))
    viewer = Viewer(simulation, ViewOptions(port=0))
    try:
        with open_browser(WIDTH, HEIGHT) as look:
            page = look(f"http://127.0.0.1:{viewer.port}")
            page.wait_for_splats()
            act(page, viewer, simulation)
            viewer.refresh()
            close = page.page.locator(".mantine-Notification-closeButton")
            if close.count():
                close.first.click(timeout=120_000)
            uploads = page.uploads
            viewer.stage.draw(force=True)
            page.page.wait_for_timeout(6000 if uploads else 9000)  # for the last state, and the client's sharp redraw
            return Image.open(io.BytesIO(page.page.screenshot(timeout=120_000))).convert("RGB")
    finally:
        viewer.close()


def main() -> int:
    """Make all pictures, or those named."""
    folder = Path(__file__).parent
    for name, recipe in PICTURES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        picture = take(*recipe).quantize(_COLOURS, dither=Image.Dither.NONE)
        picture.save(folder / name, optimize=True)
        print(folder / name, (folder / name).stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
