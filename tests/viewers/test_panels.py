"""The panels and the stage against something without physics, on a real server without a browser."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np
import pytest

from splatanim.dynamics.materials import preset
from splatanim.errors import InputError
from tests.viewers.fakes import FakeRig, FakeSimulation
from viewers.panel_play import readout_text
from viewers.panel_see import hues, weight_colours
from viewers.panel_world import across, pressure, turned
from viewers.stage import facing

pytest.importorskip("viser", reason="viser is not installed (pip install splatanim[viewer])")


@pytest.fixture
def viewer(tmp_path) -> Iterator:
    from viewers.app import Viewer, ViewOptions

    made = Viewer(FakeSimulation(), ViewOptions(port=0, output=tmp_path / "kept"))
    yield made
    made.close()


def last(moving: FakeSimulation, kind: str) -> tuple:
    return next(entry for entry in reversed(moving.log) if entry[0] == kind)


def test_the_splats_of_the_node_are_those_of_the_cloud(viewer) -> None:
    moving = viewer.moving
    node = viewer.server.scene.get_handle_by_name("/bodies/0")
    moving.moved = moving.rest + np.float32([0.1, 0.2, 0.3])
    assert viewer.stage.draw(force=True)
    scale = node.scale if np.isscalar(node.scale) else node.scale[0]
    np.testing.assert_allclose(node.centers * scale, moving.moved, atol=1e-5)
    np.testing.assert_allclose(node.covariances * scale**2, moving.covariance, rtol=2e-3, atol=1e-8)
    np.testing.assert_allclose(node.rgbs / 255.0, moving.rgbs, atol=0.003)


def test_the_same_state_is_not_sent_twice(viewer) -> None:
    posed = viewer.moving.posed
    assert not viewer.stage.draw()
    assert viewer.moving.posed == posed
    viewer.moving.touch()
    assert viewer.stage.draw() and not viewer.stage.draw()


def test_the_grid_is_where_the_floor_is(viewer) -> None:
    grid = viewer.server.scene.get_handle_by_name("/ground")
    assert grid.visible
    np.testing.assert_allclose(grid.position, [0, -0.1, 0])
    np.testing.assert_allclose(grid.wxyz, facing(np.array([0.0, 1.0, 0.0])))
    viewer.moving.has_floor = False
    viewer.stage.draw(force=True)
    assert not grid.visible


def test_without_a_browser_nothing_is_posed(viewer) -> None:
    posed = viewer.moving.posed
    for _ in range(5):
        viewer.moving.touch()
        time.sleep(0.05)
    assert viewer.moving.posed == posed


def test_gravity_leans_and_has_the_strength_of_the_slider(viewer) -> None:
    panel = viewer.panels["world"]
    panel.strength.value = 2.0
    panel._set_gravity()
    np.testing.assert_allclose(last(viewer.moving, "gravity")[1], [0, -2.0, 0], atol=1e-12)
    panel.lean[0].value = 90
    panel._set_gravity()
    front = across(viewer.moving.up)[0]
    np.testing.assert_allclose(last(viewer.moving, "gravity")[1], -2.0 * front, atol=1e-12)


def test_wind_and_floor_reach_the_engine(viewer) -> None:
    panel = viewer.panels["world"]
    panel.wind.value = 3.0
    panel.heading.value = 90
    panel._set_wind()
    np.testing.assert_allclose(last(viewer.moving, "wind")[1], -3.0 * across(viewer.moving.up)[1], atol=1e-12)
    panel.height.value, panel.tilt[0].value = -0.25, 10.0
    panel._set_floor()
    assert last(viewer.moving, "floor") == ("floor", -0.25, (10.0, 0.0))


@pytest.mark.parametrize("up", [(0, 1, 0), (0, -1, 0), (0, 0, 1), (1, 0, 0)])
def test_directions_across_are_a_frame_with_up(up) -> None:
    up = np.array(up, float)
    axes = across(up)
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(axes @ up, 0, atol=1e-12)
    np.testing.assert_allclose(turned(axes, (90.0, 0.0)) @ up, axes[0], atol=1e-12)
    np.testing.assert_allclose(turned(axes, (0.0, 90.0)) @ up, axes[1], atol=1e-12)


def test_material_sliders_and_presets(viewer) -> None:
    panel, moving = viewer.panels["material"], viewer.moving
    assert panel.preset.value == "jelly" and panel.young.value == pytest.approx(np.log10(3e4), abs=0.01)
    panel._set(young=1e6)
    assert moving.bodies[0].material.young == 1e6 and panel.preset.value == "(own numbers)"
    assert panel.number.content == "E = 1 MPa"
    panel.preset.value = "wood"
    panel._set_preset()
    assert moving.bodies[0].material == preset("wood")
    assert panel.density.value == 600.0 and panel.poisson.value == pytest.approx(0.35)


def test_a_dropped_body_joins_the_list(viewer) -> None:
    panel, moving = viewer.panels["drop"], viewer.moving
    panel._drop(None)
    kind, what, place = last(moving, "drop")
    assert (kind, what) == ("drop", "jelly")
    np.testing.assert_allclose(place, [0.0, 0.1 + panel.height.value, 0.0])
    material = viewer.panels["material"]
    viewer.refresh()
    assert material.body.options == ("1 bar", "2 jelly") and material.body.visible


def test_touching_without_a_browser(viewer) -> None:
    """Grabs pull, follow, and are let go when their browser leaves; pins that a reset takes go from the scene."""
    panel, moving = viewer.panels["touch"], viewer.moving

    class Event:
        ray_origin, ray_direction, client, client_id = (0.4, 0.0, 5.0), (0.0, 0.0, -1.0), None, 7

    panel._touch(Event())
    key = next(iter(moving.held))
    panel._pull(key, np.array([0.4, 0.5, 0.0]))
    assert last(moving, "move")[1] == key
    viewer.stage.draw()
    assert viewer.server.scene.get_handle_by_name("/pulls") is not None
    panel.client_left(8)
    assert moving.held
    panel.client_left(7)
    assert not moving.held and viewer.server.scene.get_handle_by_name("/pulls") is None
    panel.mode.value = "pin"
    moving.reset()
    panel._touch(Event())
    assert moving.fixed and panel._pins
    moving.reset()
    viewer.stage.draw()
    assert not panel._pins
    Event.ray_direction = (0.0, 0.0, 1.0)
    panel._touch(Event())  # into the air
    assert not panel._pins


def test_one_hand_holds_one_region_unless_told_to_hold_on(viewer) -> None:
    panel, moving = viewer.panels["touch"], viewer.moving

    class Event:
        ray_origin, ray_direction, client, client_id = (0.4, 0.0, 5.0), (0.0, 0.0, -1.0), None, 7

    panel._touch(Event())
    panel._touch(Event())
    assert len(moving.held) == 1
    panel.keep.value = True
    panel._touch(Event())
    assert len(moving.held) == 2
    panel._release_all("drags")
    assert not moving.held


def test_what_can_be_seen(viewer) -> None:
    panel, stage, scene = viewer.panels["see"], viewer.stage, viewer.server.scene
    node = scene.get_handle_by_name("/bodies/0")
    captured = node.rgbs.copy()
    panel.colours.value = "all handles"
    panel._recoloured()
    assert (node.rgbs != captured).any()
    panel.colours.value = "captured"
    panel._recoloured()
    np.testing.assert_allclose(node.rgbs, captured, atol=1)  # viser itself cuts off where packing rounds
    panel.cubature.value = panel.contacts.value = True
    stage.draw(force=True)
    np.testing.assert_allclose(scene.get_handle_by_name("/cubature").points, viewer.moving.cubature(0), atol=1e-6)
    panel.contacts.value = False
    stage.draw(force=True)
    assert scene.get_handle_by_name("/contacts") is None
    splats = viewer.panels["splats"]
    full = node.opacities.copy()
    splats.opacity.value = 0.5
    splats._fade()
    np.testing.assert_allclose(node.opacities, full / 2.0, atol=1)


def test_energy_is_plotted_over_the_motions_time(viewer) -> None:
    plot, moving = viewer.panels["energy"], viewer.moving
    for k in range(4):
        moving.time = 0.1 * (k + 1)
        plot._last = 0.0
        plot.refresh()
    time_axis, kinetic, elastic = plot.plot.data
    np.testing.assert_allclose(time_axis[-3:], [0.2, 0.3, 0.4])
    assert (kinetic[-3:] == 0.25).all() and (elastic[-3:] == 0.5).all()
    moving.time = 0.0
    plot.refresh()
    assert len(plot._rows) == 1  # a reset starts anew


def test_recording_is_written_as_film_and_splats(viewer, tmp_path) -> None:
    panel = viewer.panels["record"]
    with pytest.raises(InputError, match="Nothing is recorded yet"):
        panel._write_plys(None)
    viewer.record()
    assert panel.running
    words = viewer.write_recording()
    assert words == [
        f"{tmp_path / 'kept' / 'recording_000.mp4'} and {tmp_path / 'kept' / 'recording_ply_000'}: 5 frames"
    ]
    assert [call[0] for call in panel.recording.calls] == ["film", "plys"]
    with pytest.raises(InputError, match="no browser whose camera"):
        panel._write_film(None)
    panel.camera.value = "the camera path"
    with pytest.raises(InputError, match="No camera keyframe is set"):
        panel._write_film(None)


def test_cameras_of_a_file_stand_as_frusta(tmp_path) -> None:
    from splatanim.render.camera import look_at
    from viewers.app import Viewer, ViewOptions

    camera = look_at((3.0, 4.0, 9.0), (1.0, 2.0, 3.0), (0, 1, 0), width=64, height=48)
    viewer = Viewer(FakeSimulation(), ViewOptions(port=0, cameras=[camera] * 3))
    try:
        node = viewer.server.scene.get_handle_by_name("/cameras/2")
        np.testing.assert_allclose(node.position, viewer.moving.file_frame.to_sim(camera.position[None])[0])
    finally:
        viewer.close()
    assert viewer.moving.closed
    viewer.close()  # twice is harmless


def test_weight_colours() -> None:
    weights = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]])
    one = weight_colours(weights, 0)
    assert one[0, 0] > one[0, 2] and one[1, 2] > one[1, 0]
    np.testing.assert_allclose(one[2], 1.0)
    everything = weight_colours(weights)
    np.testing.assert_allclose(everything[2], hues(2)[1], atol=1e-6)
    assert everything.min() >= 0 and everything.max() <= 1 and np.isfinite(weight_colours(np.zeros((2, 3)))).all()


def test_words() -> None:
    moving = FakeSimulation()
    text = readout_text(moving.readout(), 29.6, "", True)
    assert "step **1.5 ms**" in text and "Newton **3** iterations" in text and "drawn **30** a second" in text
    assert "stopped:" in readout_text(moving.readout(), 0.0, "it exploded", True)
    assert [pressure(v) for v in (500.0, 3e4, 2.5e6, 7e10)] == ["500 Pa", "30 kPa", "2.5 MPa", "70 GPa"]


def test_a_pose_is_drawn_turned_and_written(tmp_path) -> None:
    from viewers.app import Viewer, ViewOptions

    viewer = Viewer(FakeRig(), ViewOptions(port=0, output=tmp_path / "kept"))
    try:
        panel, moving = viewer.panels["pose"], viewer.moving
        panel._turn(1, np.array([np.cos(0.2), 0.0, 0.0, np.sin(0.2)]))
        joint, turn = last(moving, "turn")[1:]
        assert joint == 1
        expected = [[np.cos(0.4), -np.sin(0.4), 0], [np.sin(0.4), np.cos(0.4), 0], [0, 0, 1]]
        np.testing.assert_allclose(moving.untwisted(1)[:3, :3] @ turn, expected, atol=1e-12)
        viewer.stage.draw(force=True)
        bones = viewer.server.scene.get_handle_by_name("/bones")
        np.testing.assert_allclose(bones.points[0], moving.joints()[:2, :3, 3], atol=1e-6)
        assert set(panel._gizmos) == {0}
        panel.every.value = True
        panel._place_gizmos()
        assert set(panel._gizmos) == {0, 1}
        panel._export(None)
        assert json.loads((tmp_path / "kept" / "pose_000.json").read_text()) == {"joints": ["root", "tip"]}
        panel.show.value = False
        panel._shown()
        assert not panel._gizmos and viewer.server.scene.get_handle_by_name("/bones") is None
    finally:
        viewer.close()
