"""The Polyscope window, on its backend without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from splatanim.errors import InputError
from tests.viewers.fakes import FakeRig, FakeSimulation
from viewers.window import WindowScene, bones, show_window


@pytest.fixture(scope="module")
def polyscope() -> Iterator[Any]:
    ps = pytest.importorskip("polyscope", reason="polyscope is not installed (pip install splatanim[viewer])")
    assert show_window(FakeSimulation(), backend="openGL_mock", frames=2) == ""
    yield ps
    ps.remove_all_structures()


def test_structures_follow_the_motion(polyscope) -> None:
    moving = FakeSimulation()
    scene = WindowScene(polyscope, moving)
    for name, count in (("splats 1 bar", 600), ("cubature points 1", 30), ("contact points 1", 60)):
        assert polyscope.get_point_cloud(name).n_points() == count
    posed = moving.posed
    polyscope.set_user_callback(scene.tick)
    polyscope.frame_tick()
    assert moving.posed == posed  # nothing has changed
    moving.touch()
    polyscope.frame_tick()
    assert moving.posed == posed + 1
    polyscope.clear_user_callback()
    polyscope.remove_all_structures()


def test_bones_are_drawn(polyscope) -> None:
    moving = FakeRig()
    WindowScene(polyscope, moving)
    assert polyscope.get_curve_network("bones").n_nodes() == 2
    places, edges = bones(moving)
    np.testing.assert_array_equal(edges, [[0, 1]])
    np.testing.assert_allclose(places[1], [0.4, 0, 0])
    polyscope.remove_all_structures()


def test_without_a_screen_the_browser_is_named(monkeypatch) -> None:
    pytest.importorskip("polyscope", reason="polyscope is not installed (pip install splatanim[viewer])")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(InputError, match=r"neither DISPLAY nor WAYLAND_DISPLAY is set.*leave --window out"):
        show_window(FakeSimulation())
