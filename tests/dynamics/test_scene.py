"""Scenes' parts: placements, prescribed motions, winds and carried planes, against closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from splatanim.binding import Handles
from splatanim.data import Material
from splatanim.dynamics.contact import Plane as ContactPlane
from splatanim.dynamics.contact import PlaneContact
from splatanim.dynamics.paths import path_of
from splatanim.dynamics.placement import PlacedField, Placement, place_cubature, place_domain
from splatanim.dynamics.reduced import reduce
from splatanim.dynamics.regions import hold_still, placed, rotation_about
from splatanim.dynamics.scene import Motion, Pin, Plane, Scene, SceneError, SceneObject, View, Wind
from splatanim.dynamics.simulate import Settings, placed_state, simulate
from splatanim.dynamics.terms import Elasticity, gravity
from splatanim.dynamics.tilting import CarriedContact, CarriedPlane
from splatanim.dynamics.winds import WindDrag, air_field, surface_area
from tests.dynamics.models import SOFT, bound_field, box_model, end_pin, random_state, rest_step
from tests.helpers import box_cubature, random_rotation

CELLS = (8, 6, 5)


def _placement(seed: int = 0, scale: float = 1.7) -> Placement:
    rng = np.random.default_rng(seed)
    return Placement(random_rotation(rng), rng.normal(size=3), scale)


def test_a_placement_and_back_is_the_identity() -> None:
    placement = _placement()
    points = np.random.default_rng(1).normal(size=(20, 3))
    np.testing.assert_allclose(placement.to_local(placement.to_world(points)), points, atol=1e-12)
    with pytest.raises(ValueError, match="the scale 0 must be positive"):
        Placement(np.eye(3), np.zeros(3), 0)


def test_local_handles_say_the_same_motion_in_the_objects_own_coordinates() -> None:
    placement = _placement()
    rng = np.random.default_rng(2)
    z, x = rng.normal(size=(5, 3, 4)), rng.normal(size=(1, 3))
    world = placement.to_world(x)
    local = placement.local_handles(z)
    for k in range(5):
        moved = world + world @ z[k, :, :3].T + z[k, :, 3]
        np.testing.assert_allclose(x + x @ local[k, :, :3].T + local[k, :, 3], placement.to_local(moved), atol=1e-12)


def test_a_placed_field_has_exact_gradients() -> None:
    field = PlacedField(bound_field(CELLS, 1 / 8, 4), _placement())
    points = field.placement.to_world(np.random.default_rng(3).uniform(-0.3, 0.3, (30, 3)))
    h = 1e-6
    numeric = np.stack(
        [(field.weights(points + h * e) - field.weights(points - h * e)) / (2 * h) for e in np.eye(3)], 2
    )
    np.testing.assert_allclose(field.gradients(points), numeric, atol=1e-6)
    assert field.kind == "gaussians" and field.handles == 4


@pytest.mark.parametrize("model", ["neohookean", "linear"])
def test_a_placed_object_has_the_same_energy_and_frequencies(model: str) -> None:
    """Turning and shifting an object changes nothing; doubling its size scales energy by 8."""
    material = dataclasses.replace(SOFT, model=model)
    cubature, field = box_cubature(CELLS, 1 / 8), bound_field(CELLS, 1 / 8, 4)
    region = end_pin(-0.3, 0.3)
    own = reduce(cubature, Handles(field, (region,)), material)
    placement = _placement(4, 2.0)
    there = reduce(
        place_cubature(cubature, placement),
        Handles(PlacedField(field, placement), (placed(dataclasses.replace(region, width=0.6), placement),)),
        material,
    )
    assert there.mass == pytest.approx(8 * own.mass) and there.dof == own.dof
    spectra = []
    for found in (own, there):
        term = Elasticity(found)
        term.begin_step(rest_step(found))
        spectra.append(np.linalg.eigvalsh(term.hessian(np.zeros(found.dof), psd=False)))
    np.testing.assert_allclose(spectra[1], spectra[0] / 4, rtol=1e-6)  # frequencies go by 1 / size


def test_placed_voxels_are_the_same_ones_at_right_angles_and_cover_at_others() -> None:
    domain = box_cubature(CELLS, 1 / 8).domain
    quarter = Placement(Rotation.from_euler("z", 90, degrees=True).as_matrix(), np.array([1.0, 2, 3]), 2.0)
    turned = place_domain(domain, quarter)
    assert turned.volume == pytest.approx(8 * domain.volume)
    assert {tuple(p) for p in turned.centres.round(9)} == {tuple(p) for p in quarter.to_world(domain.centres).round(9)}
    placement = _placement(5)
    covered = place_domain(domain, placement)
    cells = np.floor((placement.to_world(domain.centres) - covered.origin) / covered.spacing)
    assert {tuple(c) for c in cells.astype(int)} <= {tuple(c) for c in covered.cells}
    assert 1.0 <= covered.volume / (domain.volume * placement.scale**3) < 1.6


def test_keyframes_pass_through_their_keys_and_rest_before_and_after() -> None:
    motion = Motion(
        times=(1.0, 2.0, 4.0), move=((0, 0, 0), (1, 2, 3), (0, 0, 1)), turn=((0, 0, 0), (0, 0, 90), (0, 0, 360))
    )
    path = path_of(motion, np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(path(0.0), 0.0)
    np.testing.assert_allclose(path(9.0)[:, 3], [0, 0, 1], atol=1e-12)  # a whole turn is none
    z = path(2.0)
    np.testing.assert_allclose(np.array([2.0, 0, 0]) + z @ [2, 0, 0, 1], [2, 3, 3], atol=1e-12)
    np.testing.assert_allclose(path(1.5)[:, 3] + path(1.5)[:, :3] @ [1, 0, 0], [0.5, 1, 1.5], atol=1e-12)
    linear = path_of(dataclasses.replace(motion, ease="linear", turn=()), np.zeros(3))
    np.testing.assert_allclose(linear(1.25)[:, 3], [0.25, 0.5, 0.75])


def test_spin_and_sway_begin_and_end_on_time() -> None:
    path = path_of(Motion(spin=(0, 90.0, 0), start=1.0, stop=2.0, centre=(0, 0, 1)), np.zeros(3))
    np.testing.assert_allclose(path(1.0), 0.0, atol=1e-12)
    np.testing.assert_allclose(
        path(5.0), rotation_about(np.array([0, 1.0, 0]), np.pi / 2, np.array([0, 0, 1.0])), atol=1e-12
    )
    sway = path_of(Motion(sway=(0.2, 0, 0), frequency=2.0, stop=3.0), np.zeros(3))
    assert sway(1.125)[0, 3] == pytest.approx(0.2) and sway(0.0)[0, 3] == 0.0 and sway(3.1)[0, 3] == 0.0
    assert abs(sway(2.875)[0, 3]) == pytest.approx(0.2 * 0.25)  # a quarter period before the end


def test_a_rocking_motion_is_rigid() -> None:
    path = path_of(Motion(rock=(10, 20, 30), spin=(5, 0, 0), turn=((0, 9, 0),), times=(0.0,)), np.ones(3))
    for time in (0.3, 1.7):
        r = np.eye(3) + path(time)[:, :3]
        np.testing.assert_allclose(r @ r.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(path(time) @ [1, 1, 1, 1], 0.0, atol=1e-12)


def test_wind_drag_has_exact_derivatives() -> None:
    model = box_model(regions=(end_pin(-0.3, 0.3),))
    term = WindDrag(model, air_field(Wind(kind="turbulence", speed=3.0, velocity=(1, 0, 0)), 1), 4.0, 1.0, 1.2)
    y = random_state(model)
    term.begin_step(rest_step(model, y=0.5 * y, y_before=0.4 * y))
    gradient, hessian = term.gradient(y), term.hessian(y)
    assert np.abs(gradient).max() > 0
    h = 1e-6
    for k in range(0, model.dof, 7):
        e = h * np.eye(model.dof)[k]
        assert gradient[k] == pytest.approx((term.energy(y + e) - term.energy(y - e)) / (2 * h), rel=1e-5, abs=1e-7)
        np.testing.assert_allclose(hessian[k], (term.gradient(y + e) - term.gradient(y - e)) / (2 * h), atol=1e-5)


def test_a_light_body_falls_at_the_terminal_speed_of_its_mean_area() -> None:
    """m g = 1/2 rho C (S/4) v^2, S the surface; still air."""
    model = box_model((4, 4, 4), material=Material("light", 5e4, 0.3, 5.0))
    area = surface_area(box_cubature((4, 4, 4), 0.25).domain)
    drag = WindDrag(model, air_field(Wind()), area, 1.0, 1.2)
    trajectory = simulate(model, [gravity(model, np.array([0, 0, -9.81])), drag], Settings(121, 30.0, 2))
    z = trajectory.handles[:, -1, 2, 3]
    speed = 30.0 * (z[-2] - z[-1])
    assert speed == pytest.approx(np.sqrt(2 * model.mass * 9.81 / (1.2 * area / 4)), rel=0.02)


def test_voxel_surfaces_are_those_of_bodies_on_average() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(41)] * 3, indexing="ij"), -1).reshape(-1, 3)
    ball = grid[np.linalg.norm(grid - 20, axis=1) <= 20]
    domain = dataclasses.replace(box_cubature((1, 1, 1), 0.025).domain, cells=ball)
    assert surface_area(domain) == pytest.approx(4 * np.pi * 0.5**2, rel=0.06)


def test_air_is_seeded_and_as_fast_as_asked_and_not_made_from_nothing() -> None:
    points = np.random.default_rng(0).uniform(-3, 3, (4000, 3))
    wind = Wind(kind="turbulence", speed=2.0, length=0.7)
    air = air_field(wind, 3)
    np.testing.assert_array_equal(air(points, 0.4), air_field(wind, 3)(points, 0.4))
    assert np.abs(air(points, 0.4) - air_field(wind, 4)(points, 0.4)).max() > 0.5
    assert np.sqrt(np.mean(np.sum(air(points, 0.4) ** 2, axis=1))) == pytest.approx(2.0, rel=0.15)
    h = 1e-5
    slopes = [(air(points + h * e, 0.4) - air(points - h * e, 0.4))[:, k] / (2 * h) for k, e in enumerate(np.eye(3))]
    assert np.abs(sum(slopes)).max() < 1e-6 < np.abs(slopes[0]).max()
    whirl = air_field(Wind(kind="vortex", speed=3.0, length=0.5, axis=(0, 0, 2.0)))
    np.testing.assert_allclose(whirl(np.array([[0.5, 0, 7.0], [0, 0, 1.0]]), 0.0), [[0, 3, 0], [0, 0, 0]], atol=1e-12)
    gusty = air_field(Wind(velocity=(4, 0, 0), gusts=0.5), 1)
    speeds = np.array([gusty(points[:1], t)[0, 0] for t in np.linspace(0, 9, 300)])
    assert 2.0 <= speeds.min() < 3.0 and 5.0 < speeds.max() <= 6.0


def _lying(half=(np.inf, np.inf)) -> ContactPlane:
    return ContactPlane(np.zeros(3), np.array([0, 0, 1.0]), np.array([1.0, 0, 0]), half)


def test_a_carried_plane_that_stands_is_a_plane() -> None:
    model = box_model()
    here = CarriedContact(model, CarriedPlane(_lying(), hold_still), 0.5, 9.81)
    plain = PlaneContact(model, _lying(), 0.5, 9.81)
    y = random_state(model)
    for term in (here, plain):
        term.begin_step(rest_step(model, y=0.9 * y))
    assert plain.energy(y) > 0 and here.energy(y) == pytest.approx(plain.energy(y))
    np.testing.assert_allclose(here.gradient(y), plain.gradient(y))


def test_a_turntable_takes_along_what_lies_on_it() -> None:
    """A block at the rim of a slowly turning plane goes round with it, by friction alone."""
    model = box_model(material=dataclasses.replace(SOFT, young=2e5, friction=0.9))
    start = np.zeros((3, 4))
    start[:, 3] = [0.0, 0.8, 5 / 16 + 0.003]
    path = path_of(Motion(spin=(0, 0, 30.0)), np.zeros(3))
    contact = CarriedContact(model, CarriedPlane(_lying(), path), 0.9, 9.81)
    settings = Settings(61, 30.0, 4)
    state = placed_state(model, start, np.zeros((3, 4)), settings.h)
    trajectory = simulate(model, [gravity(model, np.array([0, 0, -9.81])), contact], settings, state)
    assert trajectory.converged_fraction == 1.0
    x, y, _ = trajectory.handles[-1, -1, :, 3]
    assert np.degrees(np.arctan2(-x, y)) == pytest.approx(60.0, abs=4.0) and np.hypot(x, y) == pytest.approx(
        0.8, abs=0.03
    )


def test_a_tilting_plane_lets_go_at_the_angle_of_friction() -> None:
    for degrees, slides in ((12.0, False), (40.0, True)):
        model = box_model(material=dataclasses.replace(SOFT, young=2e5, friction=0.45))
        motion = Motion(times=(0.0, 0.8), turn=((0, 0, 0), (0, degrees, 0)))
        carried = CarriedPlane(_lying(), path_of(motion, np.zeros(3)))
        contact = CarriedContact(model, carried, 0.45, 9.81)
        settings = Settings(46, 30.0, 4)
        start = np.zeros((3, 4))
        start[2, 3] = 5 / 16 + 0.002
        state = placed_state(model, start, np.zeros((3, 4)), settings.h)
        trajectory = simulate(model, [gravity(model, np.array([0, 0, -9.81])), contact], settings, state)
        end = (np.linalg.inv(np.eye(3) + carried.motion(9.0)[:, :3]) @ trajectory.handles[-1, -1, :, 3])[0]
        assert (end > 0.2) if slides else (abs(end) < 0.05)


@pytest.mark.parametrize(
    ("make", "key", "said"),
    [
        (lambda: SceneObject("a", shape="box", size=0.0), "size", "size is 0.0; it must be positive"),
        (lambda: SceneObject("a", shape="box", size=1.0, scale=2.0), "scale", "size and scale are both given"),
        (lambda: SceneObject("a"), "", "one of file, sample, shape is needed"),
        (lambda: SceneObject("a b", shape="box"), "name", "letters, digits, - and _ are possible"),
        (lambda: SceneObject("a", shape="box", young=float("nan")), "young", "young is nan"),
        (lambda: SceneObject("a", shape="box", rigid=True, pins=(Pin(end="top"),)), "pins", "no part to pin"),
        (lambda: SceneObject("a", shape="box", pins=(Pin(label=2),)), "labels", "labels names no file"),
        (lambda: Pin(), "", "one of box, sphere, end, label is needed"),
        (lambda: Motion(times=(0.0, 2.0, 1.0)), "times", "times 2 and 1 are out of order"),
        (lambda: Motion(times=(0.0, 1.0), move=((0, 0, 0),)), "move", "move has 1 keyframes, but there are 2 times"),
        (lambda: Motion(start=2.0, stop=1.0), "stop", "stop 1 s must come after start 2 s"),
        (lambda: Plane(size=(1.0, 0.0)), "size", "both sides must be positive"),
        (lambda: Wind(kind="vortex", axis=(0, 0, 0)), "axis", "a vortex needs a direction"),
        (lambda: View(elevation=100.0), "elevation", "between -89 and 89"),
        (lambda: Scene(), "objects", "there is no object"),
        (lambda: Scene(objects=(SceneObject("a", shape="box"),) * 2), "objects.1.name", "the name is taken"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(make, key: str, said: str) -> None:
    with pytest.raises(SceneError) as caught:
        make()
    assert caught.value.key == key and said in str(caught.value)
