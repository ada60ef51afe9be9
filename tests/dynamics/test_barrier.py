"""Contact between bodies: derivatives against finite differences, steps that close no gap, no missed pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from splatanim.data import Domain, Material
from splatanim.dynamics.balls import COVER, balls_on, balls_within
from splatanim.dynamics.barrier import BodyContact, ContactSettings, barrier, contact_between
from splatanim.dynamics.integrators import History, predict, step_data
from splatanim.dynamics.pairs import Group, Neighbours
from splatanim.dynamics.regions import Region, translation
from splatanim.dynamics.rigid import rigid_model
from splatanim.dynamics.surfaces import Surface
from splatanim.dynamics.terms import Step
from splatanim.dynamics.world import Actor, Obstacle
from splatanim.errors import InputError
from tests.dynamics.models import affine, box_model, random_state
from tests.helpers import box_cubature, branching_domain

MATERIAL = Material("m", 3e4, 0.35, 700.0, friction=0.6)


def test_the_barrier_is_smooth_where_it_begins_and_has_the_derivatives_it_says() -> None:
    u = np.array([0.02, 0.3, 0.75, 0.999])
    e = 1e-6
    value, first, second = barrier(u)
    np.testing.assert_allclose(first, (barrier(u + e)[0] - barrier(u - e)[0]) / (2 * e), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(second, (barrier(u + e)[1] - barrier(u - e)[1]) / (2 * e), rtol=1e-5, atol=1e-8)
    assert (value > 0).all() and (first < 0).all() and (second > 0).all()
    ends = barrier(np.array([1.0, 2.0, 0.0, -1.0]))
    np.testing.assert_array_equal(ends[0], [0.0, 0.0, np.inf, np.inf])
    np.testing.assert_array_equal(ends[1][:2], 0.0)
    np.testing.assert_array_equal(ends[2][:2], 0.0)


# --- balls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["cube", "plate", "branches"])
def test_no_ball_of_its_kind_finds_a_way_into_a_body(shape: str) -> None:
    """The places that a ball of the least radius can reach from outside, by flood fill: none is within the body."""
    cells = {"cube": (16, 16, 16), "plate": (20, 20, 2)}
    domain = branching_domain() if shape == "branches" else box_cubature(cells[shape], 1 / max(cells[shape])).domain
    balls = balls_within(domain)
    other = balls.radii.min()
    pad, step = 4 * other + domain.spacing, min(domain.spacing, other) / 2
    low, high = domain.centres.min(axis=0) - pad, domain.centres.max(axis=0) + pad
    axes = [np.arange(a, b, step) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    blocked = np.zeros(grid.shape[:3], bool)
    for centre, radius in zip(balls.centres, balls.radii + other, strict=True):
        part = tuple(
            slice(*np.searchsorted(axis, [c - radius, c + radius])) for axis, c in zip(axes, centre, strict=True)
        )
        blocked[part] |= ((grid[part] - centre) ** 2).sum(axis=-1) < radius**2
    free, _ = ndimage.label(~blocked)
    at = np.round((domain.centres - low) / step).astype(int)
    inner = ndimage.distance_transform_edt(np.pad(_filled(domain), 1))[1:-1, 1:-1, 1:-1]
    deep = inner[tuple((domain.cells - domain.cells.min(axis=0)).T)] >= (1 if shape == "plate" else 2)
    assert deep.any()
    assert not (free[tuple(at[deep].T)] == free[0, 0, 0]).any()
    assert (balls.radii >= COVER * balls.cover - 1e-12).all()


def _filled(domain: Domain) -> np.ndarray:
    low = domain.cells.min(axis=0)
    full = np.zeros(domain.cells.max(axis=0) - low + 1, bool)
    full[tuple((domain.cells - low).T)] = True
    return full


def test_balls_touch_the_surface_from_within() -> None:
    balls = balls_within(box_cubature((24, 24, 24), 1 / 24).domain)
    reach = np.abs(balls.centres).max(axis=1) + balls.radii
    assert reach.max() < 0.5 + 2e-3
    flat = np.abs(np.sort(np.abs(balls.surface), axis=1)[:, 1]) < 0.3  # away from the edges
    assert np.quantile(np.abs(reach[flat] - 0.5), 0.9) < 2e-3
    assert (balls.radii[flat] > 1.5 * balls.cover[flat]).all()


def test_balls_are_closer_where_a_small_body_asks_for_it() -> None:
    domain = box_cubature((24, 24, 24), 1 / 24).domain
    assert len(balls_within(domain, 0.05)) > 3 * len(balls_within(domain))
    loose = balls_on(box_cubature((4, 4, 4), 0.25).surface)
    assert (loose.at_least(1e-4).radii > loose.radii).all()


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_no_pair_is_missed_however_things_move() -> None:
    """Three swarms on random walks, some steps small, some across everything: lists against all pairs."""
    rng = np.random.default_rng(0)
    starts = np.array([0, 40, 100, 130])
    radii = rng.uniform(0.01, 0.05, 130)
    groups = [Group(0, 1, 0.02, 1.0), Group(0, 2, 0.03, 1.0), Group(1, 2, 0.01, 0.5)]
    neighbours = Neighbours(groups, starts, radii)
    x = rng.uniform(-0.5, 0.5, (130, 3)) + np.repeat([[0, 0, 0], [1, 0, 0], [0, 1.2, 0]], np.diff(starts), axis=0)
    for index in range(60):
        scale = [0.002, 0.05, 0.6][index % 3]
        moved = rng.normal(size=(130, 3)) * 0.2 * scale + np.repeat(rng.normal(size=(3, 3)), np.diff(starts), 0) * scale
        near = neighbours.at(x, moved)
        known = set(zip(near.first.tolist(), near.second.tolist(), strict=True))
        for share in (0.0, 0.4, 1.0):
            at = x + share * moved
            for group in groups:
                a, b = (np.arange(starts[k], starts[k + 1]) for k in (group.first, group.second))
                gap = np.linalg.norm(at[a][:, None] - at[b][None], axis=2) - radii[a][:, None] - radii[b][None]
                expected = {(int(a[i]), int(b[j])) for i, j in np.argwhere(gap < group.reach)}
                assert expected <= known
        x = x + 0.7 * moved


# --- the term --------------------------------------------------------------------------------------------------------


def _scene():
    """Two soft boxes, one of them held at an end that moves, a rigid one and an obstacle, all within reach."""
    left = Region((-np.inf,) * 3, (-0.4, np.inf, np.inf), 0.5, lambda t: translation(np.array([0.0, 0.02 * t, 0.0])))
    one = box_model((7, 5, 4), handles=2, material=MATERIAL, regions=(left,))
    two = box_model((6, 4, 5), handles=2, material=MATERIAL)
    three, orthogonality = rigid_model(box_cubature((5, 5, 5), 1 / 6), MATERIAL)
    wall = np.stack(np.meshgrid(np.linspace(-1, 1, 30), np.linspace(-1, 1, 30), [0.0]), -1).reshape(-1, 3)
    apart = 2e-3
    depth = 2 / 7 + np.median(balls_on(wall).radii) + apart
    obstacle = Obstacle("wall", wall - [0, 0, depth], lambda t: translation(np.array([0.0, 0.0, 0.001 * t])))
    actors = (Actor("one", one), Actor("two", two), Actor("three", three, orthogonality))
    contact = contact_between(actors, (obstacle,), ContactSettings())
    places = [np.zeros(3), np.array([0.0, 0.0, 2 / 7 + 5 / 12 + apart])]
    places.append(np.array([0.0, -(5 / 14 + 5 / 12 + apart), 5 / 12 - 2 / 7]))
    return actors, contact, places


def _prepared(seed: int = 0):
    """A contact term in its step, and coordinates at which many pairs of every group interact and slip."""
    actors, contact, places = _scene()
    steps, ys = [], []
    rng = np.random.default_rng(seed)
    for actor, place in zip(actors, places, strict=True):
        model = actor.model
        y = affine(model, translation(place)) if not model.handles.regions else np.zeros(model.dof)
        y = y + random_state(model, 5e-4, seed)
        held = model.held_coordinates(0.3).ravel()
        history = History(np.concatenate([y, held]), np.zeros(len(y) + len(held)))
        steps.append(step_data(model, history, predict(history, 0.02, "euler"), 0.3, 0.02))
        ys.append(y + 5e-5 * np.sqrt(model.mass / model.dof) * rng.normal(size=model.dof))
    offsets = np.concatenate([[0], np.cumsum([actor.model.dof for actor in actors])]).tolist()
    contact.attach(offsets)
    return contact, steps, np.concatenate([step.y for step in steps]), np.concatenate(ys)


def _central(function, y: np.ndarray, step: float) -> np.ndarray:
    return np.array([(function(y + step * e) - function(y - step * e)) / (2 * step) for e in np.eye(len(y))])


def test_gradient_and_hessian_match_finite_differences() -> None:
    contact, steps, start, y = _prepared()
    contact.begin_step(steps)
    contact.set_fraction(1.0)
    pairs = contact._active(y)
    assert set(pairs.group.tolist()) == {0, 1, 2, 5}  # one with two, three and the wall; three with the wall
    contact._friction.load(contact._active(start), contact._pull(start))
    assert contact._friction.energy(y) > 0
    difference = 1e-7
    gradient = contact.gradient(y)
    expected = _central(contact.energy, y, difference)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=3e-6 * np.abs(gradient).max())
    exact = contact.hessian(y, psd=False).dense()
    expected = _central(contact.gradient, y, difference)
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-5 * np.abs(exact).max())
    projected = contact.hessian(y).dense()
    assert np.linalg.eigvalsh(projected).min() > -1e-9 * np.abs(projected).max()
    assert np.linalg.eigvalsh(exact).min() < 0  # the tangential part of a barrier is not convex


def test_forces_are_equal_and_opposite() -> None:
    """Without the wall's and the pin's part: moving all free bodies together meets no resistance."""
    contact, steps, _, _ = _prepared()
    contact.begin_step(steps)
    surfaces = contact._surfaces
    force = np.random.default_rng(0).normal(size=(4, 3))
    first, second = surfaces.starts[1] + np.arange(4), surfaces.starts[2] + np.arange(4)
    gradient = surfaces.gather(first, second, force)
    models = [actor.model for actor in _scene()[0]]
    for axis in range(3):
        push = np.concatenate([affine(model, translation(np.eye(3)[axis])) for model in models])
        assert gradient @ push == pytest.approx(0.0, abs=1e-9)


def _two_balls(distance: float = 1.0, radius: float = 0.1) -> BodyContact:
    """Two bodies of one ball each, that can only be shifted (the coordinates are positions)."""

    def surface(name: str, at: float) -> Surface:
        balls = replace(balls_on(np.array([[at, 0.0, 0.0]])), radii=np.array([radius]))
        one, none = np.ones((1, 1)), np.zeros((1, 0))
        return Surface(name, balls, one, none, one, none, 1.0, 1.0, 0.5)

    contact = BodyContact([surface("a", 0.0), surface("b", distance)], ContactSettings())
    contact.attach([0, 3, 6])
    y = np.zeros(3)
    held = np.zeros((3, 0))
    contact.begin_step([Step(0.0, 0.01, y, y, held, held, held)] * 2)
    return contact


def test_max_step_is_where_a_tenth_of_the_gap_is_left() -> None:
    contact, rest = _two_balls(0.25), np.zeros(6)  # a gap of 0.05
    step = np.array([0.1, 0.0, 0.0, -0.1, 0.0, 0.0])
    assert contact.max_step(rest, step) == pytest.approx(0.9 * 0.05 / 0.2, rel=1e-12)
    assert contact.max_step(rest, -step) == 1.0
    assert contact.max_step(rest, 0.2 * step) == 1.0
    assert contact.max_step(rest, np.array([0.0, 5.0, 0.0, 0.0, 5.0, 0.0])) == 1.0
    grazing = np.array([0.2, 0.15, 0.0, 0.0, 0.0, 0.0])
    share = contact.max_step(rest, grazing)
    assert 0 < share < 1
    assert np.linalg.norm(np.array([0.25, 0.0]) - share * grazing[:2]) == pytest.approx(0.2 + 0.1 * 0.05, rel=1e-9)
    assert contact.max_step(rest, np.array([0.1, 0.25, 0.0, 0.0, 0.0, 0.0])) == 1.0  # passes by
    # from afar a step goes at most until contact begins, and near bodies no further than a third of their size
    assert _two_balls(1.0).max_step(rest, 100 * step) * 20.0 == pytest.approx(0.8 - 5e-3)
    assert contact.max_step(rest, -100 * step) * 20.0 == pytest.approx(0.3)


def test_random_steps_never_close_a_gap() -> None:
    contact, steps, _, y = _prepared()
    contact.begin_step(steps)
    contact.set_fraction(1.0)
    rng = np.random.default_rng(1)
    for _ in range(30):
        step = rng.normal(size=len(y)) * 10.0 ** rng.uniform(-3, 1)
        share = contact.max_step(y, step)
        for part in (0.5, 1.0):
            assert np.isfinite(contact.energy(y + part * share * step))
        assert contact.smallest_gap(y + share * step) > 0


def test_what_overlaps_at_the_start_is_named_and_pushed_no_deeper() -> None:
    contact = _two_balls(distance=0.15)
    assert len(contact.notes) == 1
    assert "a and b overlap at the start, by 5.0 % of the smaller one's size" in contact.notes[0]
    assert np.isfinite(contact.energy(np.zeros(6))) and contact.gradient(np.zeros(6))[0] > 0
    inwards = np.array([0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert contact.max_step(np.zeros(6), inwards) < 0.1
    assert contact.smallest_gap(np.zeros(6)) < 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"friction": -0.1}, r"Contact: friction is -0\.1; it must not be negative\."),
        ({"gravity": 0.0}, r"Contact: gravity is 0\.0; the barrier's stiffness needs a positive one\."),
    ],
)
def test_impossible_settings_are_refused(change: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ContactSettings(**change)
