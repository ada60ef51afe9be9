"""The live engine: its physics are those of ``simulate``, and whatever is done to it shows."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.animate import AnimateConfig
from splatanim.dynamics.reduced import reduce
from splatanim.errors import InputError
from splatanim.formats import read_splats
from splatanim.render.camera import frame_object
from tests.helpers import until
from tests.viewers.test_parts import random_cloud
from viewers.live_body import LiveBody, history_of
from viewers.live_floor import LiveFloor
from viewers.live_open import open_world
from viewers.live_pin import pin_of
from viewers.live_world import LiveWorld
from viewers.picking import pick
from viewers.recording import Recorder
from viewers.simulation import Simulation

until = functools.partial(until, seconds=60.0)

CONFIG = AnimateConfig(handles=4, field="gaussians")  # a small model: what is tested does not depend on it


@pytest.fixture(scope="module")
def opened():
    return open_world(None, CONFIG)


@pytest.fixture
def world(opened) -> LiveWorld:
    """The jelly on its floor, as new."""
    made, _ = opened
    body = dataclasses.replace(made.bodies[0])
    body.history = body.start
    floor = LiveFloor(made.floor.carried.plane, made.up, body.size)
    return LiveWorld([body], made.up, floor, made.h, gravity=made.gravity)


@pytest.fixture
def simulation(world, opened) -> Iterator[Simulation]:
    made = Simulation(world, opened[1], CONFIG)
    yield made
    made.close()


def height(body: LiveBody) -> float:
    return float((body.model.positions(*body.split(body.history)) @ -np.array([0.0, 1.0, 0.0])).mean())


def test_it_falls_as_bodies_do(world) -> None:
    world.floor = None
    start = height(world.bodies[0])
    for _ in range(30):
        world.step()
    n, h = 30, world.h  # implicit Euler: x_n = -g h^2 n (n + 1) / 2
    assert start - height(world.bodies[0]) == pytest.approx(9.81 * h**2 * n * (n + 1) / 2, rel=1e-6)


def test_it_stands_on_its_floor_and_comes_to_rest(world) -> None:
    for _ in range(240):
        world.step()
        if world.resting:
            break
    assert world.resting and world.finite()
    body = world.bodies[0]
    lowest = float((body.model.contact_positions(*body.split(body.history)) @ world.up).min())
    floor = float(world.floor.at(world.time)[0] @ world.up)
    assert -0.005 < (lowest - floor) / body.size < 0.02
    world.renew()
    assert not world.resting


def test_another_density_is_that_of_a_model_built_anew(world, opened) -> None:
    body = world.bodies[0]
    for _ in range(5):
        world.step()
    before = body.model.positions(*body.split(body.history))
    material = dataclasses.replace(body.material, density=250.0, young=1e5)
    body.set_material(material)
    np.testing.assert_allclose(body.model.positions(*body.split(body.history)), before, atol=1e-12)
    again = reduce(body.thing.cubature, body.model.handles, material)
    assert body.model.mass == pytest.approx(again.mass)
    gram = body.model.shape.T @ (body.model.masses[:, None] * body.model.shape)
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    np.testing.assert_allclose(body.model.shape @ body.model.shape.T, again.shape @ again.shape.T, rtol=1e-6, atol=1e-9)


def test_the_local_map_is_the_motion_to_first_order(world) -> None:
    body = world.bodies[0]
    rng = np.random.default_rng(0)
    body.history = dataclasses.replace(body.history, now=body.history.now + 0.3 * rng.normal(size=body.model.dof))
    point, step = body.model.rest[100], 1e-5
    z = body.local_map(point)
    handles = body.handles(body.history)

    def moved(x: np.ndarray) -> np.ndarray:
        weights, _ = body.model.handles.evaluate(x[None])
        return np.einsum("h,hrc,c->r", weights[0], handles, np.append(x, 1.0))

    np.testing.assert_allclose(z[:, :3] @ point + z[:, 3], moved(point), atol=1e-9)
    numeric = np.stack([(moved(point + step * e) - moved(point - step * e)) / (2 * step) for e in np.eye(3)], axis=1)
    np.testing.assert_allclose(z[:, :3], numeric, atol=2e-3 * np.abs(numeric).max())


def test_a_floor_goes_to_its_place_at_a_bounded_speed(world) -> None:
    floor = world.floor
    start = floor.at(0.0)[0] @ world.up
    floor.go(1.0, -0.4, (15.0, 0.0))
    assert floor.at(1.0)[0] @ world.up == pytest.approx(start)
    assert floor.moving(1.5) and not floor.moving(9.0)
    point, normal = floor.at(9.0)
    assert point @ world.up == pytest.approx(start - 0.4)
    assert np.degrees(np.arccos(normal @ world.up)) == pytest.approx(15.0)
    speed = abs(floor.at(1.51)[0] @ world.up - floor.at(1.5)[0] @ world.up) / 0.01
    assert speed <= 0.4 * world.bodies[0].size + 1e-6


def test_a_ray_meets_the_first_opaque_splat() -> None:
    cloud = random_cloud(3, 0.1)
    means = np.array([[0, 0, 5.0], [0, 0, 2.0], [0, 0, 1.0]], np.float32)
    spread = np.tile(np.eye(3, dtype=np.float32) * 0.01, (3, 1, 1))
    opacities = np.array([0.9, 0.9, 0.1], np.float32)  # the nearest is too thin to be met
    made = dataclasses.replace(cloud, means=means, covariances=spread, opacities=opacities)
    found = pick([made], np.zeros(3), np.array([0.0, 0.0, 2.0]))
    assert found is not None and found.row == 1 and found.depth == pytest.approx(2.0, abs=1e-6)
    assert pick([made], np.zeros(3), np.array([0.0, 1.0, 0.0])) is None
    needle = dataclasses.replace(made, covariances=np.tile(np.diag([1.0, 1e-8, 1e-8]).astype(np.float32), (3, 1, 1)))
    along = pick([needle], np.array([0.5, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    assert along is not None and along.depth == pytest.approx(2.0, abs=1e-3)


def test_a_drag_moves_the_near_side_more_than_the_far(simulation) -> None:
    simulation.step()
    rest = simulation.clouds()[0].means.copy()
    top = rest[np.argmax(rest @ simulation.up)]
    found = simulation.pick(top + 2.0 * simulation.up, -simulation.up)
    assert found is not None and found.body == 0
    key = simulation.grab(found, 0.12)
    np.testing.assert_allclose(simulation.grabs()[key], simulation.bodies[0].bound.rest[found.row], atol=0.02)
    simulation.move(key, found.point + np.array([0.25, 0.0, 0.0]))
    for _ in range(12):
        simulation.step()
    moved = np.linalg.norm(simulation.clouds()[0].means - rest, axis=1)
    near = np.linalg.norm(rest - found.point, axis=1) < 0.12
    far = np.linalg.norm(rest - found.point, axis=1) > 0.7
    assert moved[near].mean() > 0.1 and moved[near].mean() > 3.0 * moved[far].mean()
    assert simulation.grabs()[key][0] > found.point[0] + 0.1
    simulation.release(key)
    simulation.step()
    assert not simulation.grabs()


def test_a_pin_holds_where_it_was_set_and_lets_go(simulation) -> None:
    simulation.set_gravity(3.0 * 9.81 * simulation.up)  # upwards: off the floor it would go
    means = simulation.clouds()[0].means
    found = simulation.pick(means.mean(axis=0) + 3.0 * simulation.up, -simulation.up)
    key = simulation.pin(found, 0.12)
    rest = simulation.bodies[0].bound.rest
    held = np.linalg.norm(rest - rest[found.row], axis=1) < 0.12
    place = simulation.pins()[key]
    for _ in range(25):
        simulation.step()
    moved = np.linalg.norm(simulation.clouds()[0].means - means, axis=1)
    assert moved[held].max() < 1e-3 * simulation.bodies[0].size and held.sum() > 50
    assert np.linalg.norm(simulation.pins()[key] - place) < 1e-3
    assert moved.max() > 0.1  # the rest hangs from it, upwards
    simulation.unpin(key)
    for _ in range(10):
        simulation.step()
    assert not simulation.pins()
    assert np.linalg.norm(simulation.clouds()[0].means - means, axis=1)[held].min() > 0.05


def test_a_pins_springs_are_the_derivatives_of_their_energy(world) -> None:
    from splatanim.dynamics.terms import Step

    body = world.bodies[0]
    rng = np.random.default_rng(1)
    body.history = dataclasses.replace(body.history, now=0.2 * rng.normal(size=body.model.dof))
    pin = pin_of(world.bodies, 0, body.bound.rest[7].astype(np.float64), 1e-6)  # so small: the nearest eight
    assert len(pin.points) == 8
    springs = pin.term(body.model)
    y, held = body.split(body.history)
    springs.begin_step(Step(0.0, world.h, y, y, held, held, held))
    assert springs.energy(y) < 1e-20 * springs.energy(np.zeros_like(y))
    at, way = y + 0.1 * rng.normal(size=len(y)), rng.normal(size=len(y))
    slope = (springs.energy(at + 1e-4 * way) - springs.energy(at - 1e-4 * way)) / 2e-4
    assert springs.gradient(at) @ way == pytest.approx(slope, rel=1e-6)
    change = springs.gradient(at + way) - springs.gradient(at)
    np.testing.assert_allclose(springs.hessian(at) @ way, change, rtol=1e-7, atol=1e-9 * np.abs(change).max())
    world.pins[1] = pin
    world.restart()
    assert not world.pins


def test_on_a_tilted_floor_it_slides_down(simulation) -> None:
    simulation.set_material(0, young=1e5)
    for _ in range(10):
        simulation.step()
    start = simulation.clouds()[0].means.mean(axis=0)
    simulation.set_floor(0.0, (40.0, 0.0))
    for _ in range(92):  # it leans by 30 degrees a second
        simulation.step()
    _, normal = simulation.floor()
    down = normal - (normal @ simulation.up) * simulation.up
    moved = simulation.clouds()[0].means.mean(axis=0) - start
    assert moved @ (down / np.linalg.norm(down)) > 0.2
    assert moved @ simulation.up < -0.1


def test_softer_means_deeper(simulation) -> None:
    def sunk() -> float:
        simulation.reset()
        for _ in range(30):
            simulation.step()
        return float(np.ptp(simulation.clouds()[0].means @ simulation.up))

    stiff = sunk()
    simulation.set_material(0, young=4e3)
    assert sunk() < stiff - 0.01
    assert simulation.bodies[0].material.young == 4e3
    with pytest.raises(InputError, match=r"poisson is 0\.7"):
        simulation.set_material(0, poisson=0.7)
    simulation.set_material(0, preset="rubber")
    simulation.step()
    assert simulation.bodies[0].material.name == "rubber"


def test_wind_blows_it_away_and_reset_brings_it_back(simulation) -> None:
    start = simulation.clouds()[0].means.mean(axis=0)
    simulation.set_gravity(np.zeros(3))
    simulation.set_wind(np.array([60.0, 0.0, 0.0]))
    for _ in range(20):
        simulation.step()
    assert simulation.clouds()[0].means.mean(axis=0)[0] > start[0] + 0.01
    simulation.reset()
    np.testing.assert_allclose(simulation.clouds()[0].means.mean(axis=0), start, atol=1e-5)
    assert simulation.readout().time == 0.0


def test_a_second_object_lands_on_the_first_and_not_in_it(simulation) -> None:
    top = float((simulation.clouds()[0].means @ simulation.up).max())
    middle = simulation.clouds()[0].means.mean(axis=0)
    at = middle + (top + 0.3 - middle @ simulation.up) * simulation.up
    simulation.start_recording()
    assert simulation.drop("jelly", at) == 1
    assert simulation.names == ("jelly", "jelly_2")
    gaps, falling = [], []
    for _ in range(24):
        simulation.step()
        contact, bodies = simulation._world._contact[1], simulation.bodies
        gaps.append(contact.smallest_gap(np.concatenate([body.split(body.history)[0] for body in bodies])))
        falling.append(float((simulation.clouds()[1].means @ simulation.up).mean()))
    one, two = (cloud.means @ simulation.up for cloud in simulation.clouds())
    assert min(gaps) > 0 and np.isfinite(min(gaps))  # they touched, and no ball passed into another
    assert two.mean() > one.max() - 0.05 and two.mean() < falling[0] - 0.05
    assert not simulation.error
    simulation.set_material(0, young=3e4)
    simulation.step()
    assert simulation._world._contact[1] is contact  # made anew only where it must be: that takes long
    simulation.set_material(1, density=500.0)
    simulation.step()
    assert simulation._world._contact[1] is not contact
    recording = simulation.stop_recording()
    count = len(simulation.clouds()[0].means)
    before, after = recording.splats(0), recording.splats(recording.frames - 1)
    assert len(before) == len(after) == 2 * count
    assert before.opacities[count:].max() < 1e-9  # not there yet, and so not seen
    np.testing.assert_array_equal(before.opacities[:count], after.opacities[:count])
    simulation.reset()
    assert len(simulation.clouds()) == 2


def test_it_plays_in_its_thread_and_paused_it_stands(simulation) -> None:
    seen = simulation.version
    simulation.play()
    until(lambda: simulation.version > seen + 5)
    simulation.pause()
    simulation.step()  # when this is done, no step of the playing is left
    version, now, means = simulation.version, simulation.readout().time, simulation.clouds()[0].means
    used = time.process_time()
    assert not simulation.wait_changed(version, 0.3)
    assert time.process_time() - used < 0.1
    assert simulation.readout().time == now and simulation.clouds()[0].means is means


def test_closing_ends_the_thread_and_later_calls_are_harmless(world, opened) -> None:
    made = Simulation(world, opened[1], CONFIG)
    made.play()
    until(lambda: made.version > 2)
    made.close()
    assert not made._thread.is_alive()
    version = made.version
    made.step()
    made.set_gravity(np.zeros(3))
    made.close()
    assert made.version == version
    with pytest.raises(InputError, match="jelly cannot be dropped in: the simulation is closed"):
        made.drop("jelly", np.zeros(3))


def test_two_clients_pull_it_apart(simulation) -> None:
    means = simulation.clouds()[0].means
    side = np.array([1.0, 0.0, 0.0])
    picks = [simulation.pick(means.mean(axis=0) + sign * 3.0 * side, -sign * side) for sign in (1.0, -1.0)]
    width = np.ptp(means @ side)

    def pull(pick, sign: float) -> None:
        simulation.move(simulation.grab(pick, 0.15), pick.point + 0.2 * sign * side)

    hands = [threading.Thread(target=pull, args=pair) for pair in zip(picks, (1.0, -1.0), strict=True)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join(timeout=60)
    for _ in range(15):
        simulation.step()
    assert len(simulation.grabs()) == 2
    assert np.ptp(simulation.clouds()[0].means @ side) > width + 0.15
    simulation.reset()
    assert not simulation.grabs()


def test_many_hands_at_once_do_not_stop_it(simulation) -> None:
    simulation.play()
    found = simulation.pick(simulation.clouds()[0].means.mean(axis=0) + 3.0 * simulation.up, -simulation.up)

    def touch(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(4):
            key = simulation.grab(found, 0.1)
            simulation.move(key, found.point + 0.05 * rng.normal(size=3))
            simulation.set_gravity(-9.81 * simulation.up)
            simulation.clouds()
            simulation.release(key)

    hands = [threading.Thread(target=touch, args=(k,)) for k in range(4)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join(timeout=120)
    until(lambda: not simulation.grabs())
    assert simulation.playing and not simulation.error


def test_what_breaks_stops_the_playing_and_is_said(simulation, capsys) -> None:
    def broken():
        raise ZeroDivisionError("it broke")

    simulation._world.step = broken
    simulation.play()
    until(lambda: not simulation.playing)
    assert simulation.error == simulation.readout().error == "ZeroDivisionError: it broke"
    simulation.play()
    simulation.step()  # and so it is when whoever asked for a step goes on
    assert simulation.readout().error == "ZeroDivisionError: it broke" and not simulation.playing
    assert "ZeroDivisionError" in capsys.readouterr().err
    del simulation._world.step
    simulation.reset()
    assert simulation.readout().error == ""


def test_a_recording_is_the_states_that_were_seen(simulation) -> None:
    simulation.set_wind(np.array([20.0, 0.0, 0.0]))
    simulation.start_recording()
    seen = [simulation.clouds()[0].means]
    for _ in range(3):
        simulation.step()
        simulation.step()  # of 1/60 s; the film has 30 frames a second
        seen.append(simulation.clouds()[0].means)
    recording = simulation.stop_recording()
    assert recording.frames == 4
    for k, means in enumerate(seen):
        np.testing.assert_allclose(recording.splats(k).means, means, atol=1e-6)
    assert recording.taken.times == pytest.approx([0.0, 2 / 60, 4 / 60, 6 / 60])


def test_recordings_are_films_and_splats_in_the_files_order(simulation, tmp_path: Path) -> None:
    import imageio_ffmpeg

    simulation.start_recording()
    for _ in range(8):
        simulation.step()
    recording = simulation.stop_recording()
    assert recording.frames == 5  # 8 steps of 1/60 s at 30 a second, and the first
    camera = frame_object(simulation.clouds()[0].means.astype(np.float64), simulation.up, width=64, height=48)
    recording.film(tmp_path / "a.mp4", camera)
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "a.mp4"))
    next(reader)
    pictures = [np.frombuffer(frame, np.uint8) for frame in reader]
    assert len(pictures) == 5 and all(picture.std() > 20 for picture in pictures)
    recording.plys(tmp_path / "plys")
    files = sorted((tmp_path / "plys").iterdir())
    assert [path.name for path in files] == [f"frame_{k:04d}.ply" for k in range(5)]
    first = read_splats(files[0]).splats
    original = simulation.bodies[0].thing.source
    order = np.argsort(original.rows, kind="stable")
    np.testing.assert_allclose(first.means + first.offset, original.splats.select(order).means, atol=2e-4)
    with pytest.raises(InputError, match="2 cameras for 5 frames"):
        recording.film(tmp_path / "b.mp4", [camera, camera])
    with pytest.raises(InputError, match="Nothing was recorded"):
        dataclasses.replace(recording, taken=Recorder(30.0, 0.0)).plys(tmp_path / "none")


def test_a_scene_file_opens_with_all_its_objects(tmp_path: Path) -> None:
    (tmp_path / "scene.toml").write_text(
        'up = "+y"\n'
        '[[objects]]\nname = "ball"\nshape = "ball"\nat = [0.0, 0.3, 0.0]\nhandles = 2\nsize = 0.3\n'
        '[[objects]]\nname = "brick"\nshape = "box"\nrigid = true\nat = [1.0, 0.0, 0.0]\nsize = 0.3\n'
        '[[scenery]]\nname = "wall"\nshape = "box"\nat = [-1.0, 0.0, 0.0]\nsize = 0.5\n'
        "[[planes]]\n"
    )
    simulation = Simulation.open(tmp_path / "scene.toml", CONFIG)
    try:
        assert simulation.names == ("ball", "brick") and len(simulation.clouds()) == 3
        assert simulation.floor() is not None and simulation.bodies[1].rigid
        before = [cloud.means.mean(axis=0) for cloud in simulation.clouds()]
        for _ in range(10):
            simulation.step()
        after = [cloud.means.mean(axis=0) for cloud in simulation.clouds()]
        assert after[0][1] < before[0][1] - 0.02 and abs(after[1][1] - before[1][1]) < 0.01
        np.testing.assert_allclose(after[2], before[2])
        with pytest.raises(InputError, match="brick is rigid"):
            simulation.set_material(1, young=1e4)
    finally:
        simulation.close()


def test_the_start_is_from_standing(world) -> None:
    history = history_of(world.bodies[0].model, None, world.h)
    assert not history.velocity.any() and not history.now[: world.bodies[0].model.dof].any()
