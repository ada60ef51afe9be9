"""Clients that come, go and come back, spoken to over the wire without a browser."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from splatanim.errors import InputError
from tests.helpers import until
from tests.viewers.fakes import FakeSimulation

until = functools.partial(until, seconds=20.0)

pytest.importorskip("viser", reason="viser is not installed (pip install splatanim[viewer])")


@pytest.fixture
def viewer(tmp_path) -> Iterator:
    from viewers.app import Viewer, ViewOptions

    made = Viewer(FakeSimulation(), ViewOptions(port=0, output=tmp_path, rate=200.0))
    yield made
    made.close()


def reader(viewer):
    from viewers.bench import Reader

    made = Reader(f"http://127.0.0.1:{viewer.port}")
    until(lambda: viewer.server.get_clients())
    return made


def test_every_client_gets_what_is_new(viewer) -> None:
    viewer.moving.__init__(2000)  # large enough to be told from the panels' messages
    viewer.moving.touch()
    viewer.stage.draw()
    first, second = reader(viewer), reader(viewer)
    until(lambda: first.first.is_set() and second.first.is_set())
    for _ in range(3):
        counts = first.count, second.count
        viewer.moving.moved = viewer.moving.moved + np.float32(0.01)
        viewer.moving.touch()
        until(lambda c=counts: first.count > c[0] and second.count > c[1])
    first.close()
    until(lambda: len(viewer.server.get_clients()) == 1)
    counts = second.count
    viewer.moving.moved = viewer.moving.moved + np.float32(0.01)
    viewer.moving.touch()
    until(lambda: second.count > counts)
    second.close()


def test_a_client_that_leaves_lets_go_and_one_that_returns_sees_the_newest(viewer) -> None:
    moving, panel = viewer.moving, viewer.panels["touch"]
    one = reader(viewer)
    client = next(iter(viewer.server.get_clients()))

    class Event:
        ray_origin, ray_direction, client_id = (0.4, 0.0, 5.0), (0.0, 0.0, -1.0), client

    Event.client = viewer.server.get_clients()[client]
    panel._clicked(Event())
    assert moving.held
    one.close()
    until(lambda: not moving.held)
    assert moving.log[-1][0] == "release" and not moving.closed
    moving.moved = moving.rest + np.float32(0.3)
    moving.touch()
    posed = moving.posed
    again = reader(viewer)
    until(lambda: moving.posed > posed)
    node = viewer.server.scene.get_handle_by_name("/bodies/0")
    until(lambda: np.allclose(node.centers * np.mean(node.scale), moving.moved, atol=1e-5))
    again.close()


def test_a_frame_that_fails_does_not_end_the_viewer(viewer, capsys) -> None:
    moving = viewer.moving
    good = moving.clouds

    def bad():
        raise ValueError("a bad frame")

    one = reader(viewer)
    moving.clouds = bad
    moving.touch()
    until(lambda: "a bad frame" in capsys.readouterr().err)
    moving.clouds, posed = good, moving.posed
    moving.touch()
    until(lambda: moving.posed > posed)
    one.close()


def test_the_measuring_verb_says_why_a_viewer_did_not_start() -> None:
    from pipelines.view_config import BenchViewConfig
    from viewers.bench import serve

    with pytest.raises(InputError, match=r"did not start.*nowhere\.ply"):
        with serve(BenchViewConfig(Path("nowhere.ply"))):
            pass
