"""The viewer in a real browser, on something without physics: seen, clicked, dragged, left and joined again."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from splatanim.errors import InputError
from tests.helpers import until
from tests.viewers.browser import Page, needs_browser, open_browser, pixel, settled_camera
from tests.viewers.fakes import FakeSimulation

until = functools.partial(until, seconds=60.0)

pytestmark = pytest.mark.slow
END = np.array([0.42, 0.0, 0.05])


@dataclass
class Seen:
    """A viewer, what it shows, and a tab that looks at it."""

    viewer: object
    moving: FakeSimulation
    page: Page
    look: object

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.viewer.port}"


@pytest.fixture(scope="module")
def look() -> Iterator[object]:
    needs_browser()
    with open_browser(900, 640) as opened:
        yield opened


@pytest.fixture
def seen(look, tmp_path) -> Iterator[Seen]:
    from viewers.app import Viewer, ViewOptions

    moving = FakeSimulation()
    viewer = Viewer(moving, ViewOptions(port=0, output=tmp_path / "kept"))
    try:
        page = look(f"http://127.0.0.1:{viewer.port}")
        page.wait_for_splats()
        yield Seen(viewer, moving, page, look)
        page.page.close()
    finally:
        viewer.close()


def reddish(picture: np.ndarray) -> np.ndarray:
    return (picture[..., 0] > 0.6) & (picture[..., 1] < 0.35) & (picture[..., 2] < 0.35)


def blueish(picture: np.ndarray) -> np.ndarray:
    return (picture[..., 2] > 0.6) & (picture[..., 0] < 0.35) & (picture[..., 1] < 0.35)


def held_end(seen: Seen, camera, point: np.ndarray = END) -> tuple[int, tuple[float, float]]:
    """Click on the bar's end; the grab's number and where its ball is in the picture."""
    seen.page.page.mouse.click(*pixel(camera, point))
    key = until(lambda: next(iter(seen.moving.held), None))
    until(lambda: key in seen.viewer.panels["touch"]._grabs)
    seen.page.page.wait_for_timeout(1500)  # the ball has to reach the browser before it can be hit
    return key, pixel(camera, seen.moving.held[key][1])


def test_splats_are_seen_where_they_are(seen: Seen) -> None:
    camera = settled_camera(seen.viewer, seen.page)

    def share(end: float, colour) -> float:
        x, y = pixel(camera, np.array([end, 0.0, 0.0]))
        return colour(seen.page.picture()[int(y) - 6 : int(y) + 6, int(x) - 6 : int(x) + 6]).mean()

    until(lambda: share(0.35, reddish) > 0.9)  # the client fades new splats in
    until(lambda: share(-0.35, blueish) > 0.9)
    corner = seen.page.picture()[-40:, :40]  # no splat where nothing is but the floor's grey lines
    assert not reddish(corner).any() and not blueish(corner).any()


def test_a_drag_moves_the_dragged_end_and_not_the_far_one(seen: Seen) -> None:
    camera = settled_camera(seen.viewer, seen.page)
    until(lambda: blueish(seen.page.picture()).sum() > 500)
    before = seen.page.picture()
    _, (x, y) = held_end(seen, camera)
    uploads = seen.page.uploads
    seen.page.drag((x, y), (x + 30.0, y - 90.0))
    until(lambda: not seen.moving.held)  # let go with the mouse button
    shift = np.linalg.norm(seen.moving.moved - seen.moving.rest, axis=1)
    near, far = shift[seen.moving.rest[:, 0] > 0.35], shift[seen.moving.rest[:, 0] < -0.35]
    assert near.mean() > 0.1 and far.max() < 0.02 * near.mean()
    seen.page.page.wait_for_function(f"window.__uploads > {uploads}", timeout=60_000)
    seen.page.page.wait_for_timeout(1000)
    after = seen.page.picture()
    changed = reddish(before) ^ reddish(after)
    still = blueish(before) ^ blueish(after)
    assert changed.sum() > 20 * max(still.sum(), 10)


def test_a_gizmo_drags_along_an_axis(seen: Seen) -> None:
    seen.viewer.panels["touch"].handle.value = "gizmo"
    camera = settled_camera(seen.viewer, seen.page)
    key, _ = held_end(seen, camera)
    start = seen.moving.held[key][1]
    on_arrow = pixel(camera, start + np.array([0.0, 0.12, 0.0]))
    seen.page.page.mouse.move(*on_arrow)
    seen.page.page.wait_for_timeout(500)
    seen.page.drag(on_arrow, (on_arrow[0], on_arrow[1] - 60.0))
    moves = until(lambda: [entry[2] for entry in seen.moving.log if entry[0] == "move"])
    pull = moves[-1] - start
    assert pull[1] > 0.05 and np.abs(pull[[0, 2]]).max() < 1e-3


def test_a_browser_that_closes_in_mid_drag_lets_go_and_others_go_on(seen: Seen) -> None:
    camera = settled_camera(seen.viewer, seen.page)
    other = seen.look(seen.url)
    other.wait_for_splats()
    key, (x, y) = held_end(seen, camera)
    mouse = seen.page.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 20, y - 40, steps=4)
    until(lambda: any(entry[0] == "move" for entry in seen.moving.log))
    seen.page.page.close()
    until(lambda: ("release", key) in seen.moving.log)
    assert not seen.viewer.panels["touch"]._grabs
    uploads = other.uploads
    seen.moving.moved = seen.moving.rest.copy()
    seen.moving.touch()
    other.page.wait_for_function(f"window.__uploads > {uploads}", timeout=60_000)
    other.page.close()


def test_a_browser_that_was_cut_off_comes_back(seen: Seen) -> None:
    seen.page.page.bring_to_front()
    first = until(lambda: list(seen.viewer.server.get_clients()))
    uploads = seen.page.uploads
    seen.viewer.server._websock_server.disconnect_all_clients()
    until(lambda: [c for c in seen.viewer.server.get_clients() if c not in first])
    seen.page.page.wait_for_function(f"window.__uploads > {uploads}", timeout=60_000)
    until(lambda: reddish(seen.page.picture()).sum() > 500)


def test_a_slider_changes_the_material_and_a_preset_moves_the_sliders(seen: Seen) -> None:
    field = seen.page.page.get_by_label("E, log10 Pa").first
    boxes = seen.page.page.locator("input").all()
    box = next(b for b in boxes if b.is_visible() and b.input_value() == "4.48")
    box.fill("5.5")
    box.press("Enter")
    until(lambda: any(entry[0] == "material" for entry in seen.moving.log))
    assert seen.moving.bodies[0].material.young == pytest.approx(10**5.5)
    seen.page.wait_for_text("E = 316 kPa")
    assert seen.viewer.panels["material"].preset.value == "(own numbers)"
    assert field is not None


def test_play_pause_and_pins_reach_the_engine(seen: Seen) -> None:
    camera = settled_camera(seen.viewer, seen.page)
    seen.page.press("Play")
    until(lambda: seen.moving.playing)
    seen.page.press("Pause")
    until(lambda: not seen.moving.playing)
    seen.viewer.panels["touch"].mode.value = "pin"
    seen.page.page.mouse.click(*pixel(camera, END))
    until(lambda: seen.moving.fixed and seen.viewer.panels["touch"]._pins)
    seen.page.press("pins")
    until(lambda: not seen.moving.fixed)


def test_what_is_kept_is_written(seen: Seen, tmp_path) -> None:
    settled_camera(seen.viewer, seen.page)
    seen.page.tab("Keep")
    seen.page.press("Add camera keyframe")
    seen.page.wait_for_text("1 keyframe.")
    seen.page.press("Write camera_path.json")
    path = tmp_path / "kept" / "camera_path_000.json"
    until(path.exists)
    data = json.loads(path.read_text())
    assert len(data["camera_path"]) == 120
    place = np.array(data["camera_path"][0]["camera_to_world"]).reshape(4, 4)[:3, 3]
    expected = seen.moving.file_frame.to_file(seen.viewer.server.initial_camera.position[None])[0]
    np.testing.assert_allclose(place, expected, atol=1e-3)
    seen.page.press("Still of this camera")
    still = tmp_path / "kept" / "still_000.png"
    until(still.exists)
    from PIL import Image

    picture = np.asarray(Image.open(still), float) / 255.0
    assert reddish(picture).sum() > 1000 and blueish(picture).sum() > 1000
    seen.page.press("Record")
    seen.page.press("Stop recording")
    seen.page.press("Write MP4")
    until((tmp_path / "kept" / "recording_000.mp4").exists)


def test_errors_are_told_to_the_browser_that_asked(seen: Seen) -> None:
    camera = settled_camera(seen.viewer, seen.page)

    def refuse(*_arguments):
        raise InputError("the jelly does not want to be touched")

    seen.moving.pick = refuse
    seen.page.page.mouse.click(*pixel(camera, END))
    seen.page.wait_for_text("the jelly does not want to be touched")


def test_nothing_is_sent_while_nothing_changes(seen: Seen) -> None:
    settled_camera(seen.viewer, seen.page)
    buffer = seen.viewer.server._websock_server._broadcast_buffer
    before, posed = buffer.message_counter, seen.moving.posed
    time.sleep(1.5)
    assert buffer.message_counter == before and seen.moving.posed == posed
    seen.moving.touch()
    until(lambda: seen.moving.posed == posed + 1)
