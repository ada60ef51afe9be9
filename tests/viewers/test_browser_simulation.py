"""The whole of it: the jelly, simulated, in a real browser: played, dragged, made stiffer, recorded."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

from pipelines.animate import AnimateConfig
from tests.helpers import until
from tests.viewers.browser import needs_browser, open_browser, pixel, settled_camera

until = functools.partial(until, seconds=120.0)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Iterator[tuple]:
    needs_browser()
    from viewers.app import Viewer, ViewOptions
    from viewers.simulation import Simulation

    simulation = Simulation.open("jelly", AnimateConfig(handles=4, field="gaussians"))
    folder = tmp_path_factory.mktemp("kept")
    viewer = Viewer(simulation, ViewOptions(port=0, output=folder))
    try:
        with open_browser(760, 520) as look:
            page = look(f"http://127.0.0.1:{viewer.port}")
            page.wait_for_splats()
            camera = settled_camera(viewer, page)
            yield simulation, viewer, page, camera, folder
    finally:
        viewer.close()


def coloured(picture: np.ndarray) -> np.ndarray:
    """Pixels that are neither white nor grey: the jelly, left of the panel."""
    left = picture[:, : picture.shape[1] // 2]
    return left.max(axis=2) - left.min(axis=2) > 0.3


def test_playing_moves_it_on_the_screen(shown) -> None:
    simulation, _, page, _, _ = shown
    until(lambda: coloured(page.picture()).sum() > 2000)
    assert simulation.readout().time == 0.0
    simulation.set_gravity(-2.0 * 9.81 * simulation.up)
    before, uploads = page.picture(), page.uploads
    page.press("Play")
    until(lambda: simulation.readout().time > 0.3)
    page.press("Pause")
    page.page.wait_for_function(f"window.__uploads > {uploads + 1}", timeout=90_000)
    page.page.wait_for_timeout(1500)
    after = page.picture()
    assert (coloured(before) ^ coloured(after)).sum() > 200  # it sags
    simulation.set_gravity(-9.81 * simulation.up)
    simulation.reset()


def test_a_scripted_drag_moves_the_dragged_side_more_than_the_far_one(shown) -> None:
    simulation, viewer, page, camera, _ = shown
    rest = simulation.clouds()[0].means.copy()
    sight = camera.T_camera_world[2, :3]
    top = rest[rest @ simulation.up > np.quantile(rest @ simulation.up, 0.9)].mean(axis=0)
    page.page.mouse.click(*pixel(camera, top))
    until(lambda: simulation.grabs() and viewer.panels["touch"]._grabs)
    panel = viewer.panels["touch"]
    panel.keep.value = True
    key = next(iter(panel._grabs))
    page.page.wait_for_timeout(3000)  # the ball has to reach the browser before it can be hit
    start = panel._grabs[key].target.copy()
    x, y = pixel(camera, start)
    page.press("Play")
    page.drag((x, y), (x + 70.0, y), steps=8)
    until(lambda: np.linalg.norm(panel._grabs[key].target - start) > 0.1)
    pull = panel._grabs[key].target - start
    assert abs(pull @ sight) < 0.05 * np.linalg.norm(pull)  # in the plane of the picture
    until(lambda: np.linalg.norm(simulation.grabs()[key] - start) > 0.5 * np.linalg.norm(pull))
    moved = np.linalg.norm(simulation.clouds()[0].means - rest, axis=1)
    near = np.linalg.norm(rest - start, axis=1) < 0.15
    bottom = rest @ simulation.up < np.quantile(rest @ simulation.up, 0.1)
    assert moved[near].mean() > 2.0 * moved[bottom].mean()
    page.press("drags")
    until(lambda: not simulation.grabs())


def test_a_slider_makes_it_stiffer(shown) -> None:
    simulation, _, page, _, _ = shown
    box = next(b for b in page.page.locator("input").all() if b.is_visible() and b.input_value() == "4.48")
    box.fill("6")
    box.press("Enter")
    until(lambda: simulation.bodies[0].material.young == pytest.approx(1e6))
    page.wait_for_text("E = 1 MPa")


def test_a_recording_is_a_film_that_plays(shown) -> None:
    import imageio_ffmpeg

    simulation, viewer, page, _, folder = shown
    simulation.pause()
    simulation.reset()
    page.tab("Keep")
    page.press("Record")
    until(lambda: viewer.panels["record"].running)
    simulation.play()
    until(lambda: simulation.readout().time > 0.2)
    page.press("Stop recording")
    until(lambda: not viewer.panels["record"].running)
    simulation.pause()
    viewer.panels["record"].size.value = "320x240"
    page.press("Write MP4")
    until((folder / "recording_000.mp4").exists)
    reader = imageio_ffmpeg.read_frames(str(folder / "recording_000.mp4"))
    size = next(reader)["size"]
    pictures = [np.frombuffer(frame, np.uint8).reshape(size[1], size[0], 3) for frame in reader]
    assert size == (320, 240) and len(pictures) >= 6
    reds = [int(((p[..., 0] > 150) & (p[..., 1] < 120)).sum()) for p in pictures]
    assert min(reds) > 300
    page.press("Write PLY sequence")
    until(lambda: len(list(folder.glob("recording_ply_000/frame_*.ply"))) == len(pictures))
