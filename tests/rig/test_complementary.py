"""Complementary dynamics: the exact projection, its inertia against brute force, beams on bones, splats, bad input."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from splatanim.data import Cubature, Frame, Material
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.newton import minimise
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.simulate import Settings
from splatanim.dynamics.terms import Drag, Step, gaussian_kernel
from splatanim.errors import InputError
from splatanim.field.eigenmodes import bind_eigenmodes
from splatanim.rig.bone_field import bone_field, depth_in
from splatanim.rig.complementary import (
    BoneHandles,
    bone_displacements,
    complement,
    complementarity,
    complementary_model,
    elastic_functions,
    rig_share,
)
from splatanim.rig.elastic import (
    RigInertia,
    bind_elastic,
    equilibrium,
    flesh_stiffness,
    pose_elastic,
    simulate_on_rig,
)
from splatanim.rig.skinning import RiggedSplats, pose_splats
from splatanim.rig.weights import SkinWeights, sparse_weights
from splatanim.sampling.quadrature import spread
from tests.dynamics.models import elastic_hessian
from tests.helpers import box_cubature, random_rotation, random_splats

CELLS = (40, 8, 8)  # a bar 1 m long and 0.2 m thick
YOUNG, DENSITY = 1e5, 1000.0
MATERIAL = Material("bar", YOUNG, 0.0, DENSITY)


@functools.cache
def _bar() -> Cubature:
    full = box_cubature(CELLS, 1 / CELLS[0])
    points, volumes = spread(full.domain, 700)
    return dataclasses.replace(full, points=points, volumes=volumes)


@functools.cache
def _field(modes: int = 24):
    return bind_eigenmodes(_bar().domain, modes)


@functools.cache
def _skin(bones: int) -> tuple[np.ndarray, SkinWeights]:
    """Surface points with weights that blend along x from bone to bone."""
    points = _bar().surface
    if bones == 1:
        return points, SkinWeights(np.zeros((len(points), 1), np.int32), np.ones((len(points), 1)), 1)
    middles = np.linspace(points[:, 0].min(), points[:, 0].max(), bones)
    width = 0.5 / (bones - 1)
    logits = -((points[:, [0]] - middles) ** 2) / (2 * (0.6 * width) ** 2)
    return points, sparse_weights(np.exp(logits - logits.max(axis=1, keepdims=True)))


def _model(bones: int, motion=None, *, material: Material = MATERIAL, count: int = 24, modes: int = 24) -> ReducedModel:
    weights, kept = bone_field(_bar().domain, *_skin(bones))
    assert len(kept) == bones
    still = motion or (lambda _time: np.zeros((bones, 3, 4)))
    return complementary_model(_bar(), BoneHandles(_field(modes), bones=weights, motion=still), material, count=count)


def _turn(angle: float, about: np.ndarray, axis: int = 2) -> np.ndarray:
    """The affine displacement (3, 4) of a rotation about a point."""
    matrix = Rotation.from_rotvec(angle * np.eye(3)[axis]).as_matrix()
    return np.concatenate([matrix - np.eye(3), (about - matrix @ about)[:, None]], axis=1)


@pytest.mark.parametrize("bones", [1, 2, 5])
def test_the_projection_is_exact(bones: int) -> None:
    model = _model(bones)
    assert complementarity(model) < 1e-12
    gram = model.shape.T @ (model.masses[:, None] * model.shape)
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert rig_share(model, rng.normal(size=model.dof)) < 1e-10
    # Functions on other points, and their gradients, are those of the model.
    values, slopes = elastic_functions(model, model.rest)
    np.testing.assert_allclose(values, model.shape, atol=1e-9)
    np.testing.assert_allclose(slopes, model.slope, atol=1e-7)


def test_the_most_compliant_directions_of_the_complement_are_kept() -> None:
    """They hold more of the response to random forces than any others: the trace of the inverse stiffness in them."""
    rng = np.random.default_rng(1)
    masses, raw, rig = rng.uniform(1, 2, 60), rng.normal(size=(60, 14)), rng.normal(size=(60, 4))
    slopes = rng.normal(size=(180, 14)) * np.linspace(0.2, 3.0, 14)
    every = complement(raw, slopes, rig, masses, 14)
    assert every.shape == (14, 10)
    root = np.sqrt(masses)[:, None]
    assert np.abs((root * rig).T @ (root * raw) @ every).max() < 1e-11 * np.linalg.norm(root * rig)
    # Brute force: the strain energy of y (3, 10) point by point, as a quadratic form (mu = 1, lambda = 1.5).
    unit = np.eye(30).reshape(30, 3, 10)
    gradients = np.einsum("nrk,vck->nvrc", unit, (slopes @ every).reshape(60, 3, 10))
    strains = 0.5 * (gradients + np.swapaxes(gradients, 2, 3))
    traces = np.trace(strains, axis1=2, axis2=3)
    stiffness = 2 * np.einsum("nvrc,mvrc->nm", strains, strains) + 1.5 * traces @ traces.T
    compliance = np.linalg.inv(stiffness).reshape(3, 10, 3, 10)
    carried = np.einsum("rkrl->kl", compliance)
    few = complement(raw, slopes, rig, masses, 4)
    inside = np.linalg.qr((root * raw @ every).T @ (root * raw @ few))[0]
    best = np.linalg.eigvalsh(carried)[-4:].sum()
    assert np.trace(inside.T @ carried @ inside) == pytest.approx(best, rel=1e-6)


def test_raw_functions_of_a_rig_leave_nothing() -> None:
    rng = np.random.default_rng(2)
    raw = rng.normal(size=(50, 6))
    with pytest.raises(InputError, match="leave nothing to the 6 of the skinning field: raise"):
        complement(raw, rng.normal(size=(150, 6)), raw @ rng.normal(size=(6, 6)), np.ones(50), 3)


def test_prescribed_inertia_against_a_constrained_brute_force() -> None:
    """M u'' + M J p'' = M D J l with J^T M u'' = 0, solved as one dense system, is what the term drives y with."""
    model = _model(3)
    term = RigInertia(model, 0.7)
    rng = np.random.default_rng(3)
    p = model.held_shape.shape[1]
    held = [rng.normal(size=(3, p)) for _ in range(3)]
    h, zero = 0.01, np.zeros(model.dof)
    term.begin_step(Step(0.0, h, zero, zero, held[2], held[1], held[0]))
    acceleration = (held[2] - 2 * held[1] + held[0]) / h**2  # finite differences of the bones' coordinates
    m, j = model.masses, model.held_shape
    d = 1.0 - 0.7 * (1.0 - np.maximum(depth_in(model.domain, model.rest), 0.02))
    # Only what the functions of the model can do: u = N y + the rig's own directions, whose share must vanish.
    n = model.shape
    basis = np.concatenate([n, j], axis=1)
    k, c = n.shape[1], basis.shape[1]
    rows = np.zeros((c + p, c + p))
    rows[:c, :c] = basis.T @ (m[:, None] * basis)
    rows[:c, c:] = -basis.T @ ((m * d)[:, None] * j)
    rows[c:, :c] = j.T @ (m[:, None] * basis)
    right = np.concatenate([-basis.T @ (m[:, None] * j) @ acceleration.T, np.zeros((p, 3))])
    solved = np.linalg.lstsq(rows, right, rcond=1e-13)[0]
    expected = solved[:k].T.ravel()
    assert np.abs(expected).max() > 1e-4 * np.abs(acceleration).max()
    np.testing.assert_allclose(-term.gradient(zero), expected, atol=1e-5 * np.abs(expected).max())
    # It is linear in y, and bones that carry everything shake nothing.
    y, direction = rng.normal(size=(2, model.dof))
    slope = (term.energy(y + 1e-3 * direction) - term.energy(y - 1e-3 * direction)) / 2e-3
    assert slope == pytest.approx(term.gradient(y) @ direction, rel=1e-6)
    stiff = RigInertia(model, 0.0)
    stiff.begin_step(Step(0.0, h, zero, zero, held[2], held[1], held[0]))
    assert np.abs(stiff.gradient(zero)).max() < 1e-8 * np.abs(expected).max()


def _free_bar_frequency() -> float:
    """First bending of a free bar, 22.37 sqrt(E I / rho A L^4) rad/s; shear and rotary inertia lower it by a tenth."""
    side = CELLS[1] / CELLS[0]
    return 22.37 * np.sqrt(YOUNG * side**2 / 12 / DENSITY)


def test_what_one_bone_leaves_rings_as_a_free_bar() -> None:
    """The free-free mode has no product with affine motion anyway: it is the first of the complement."""
    model = _model(1)
    frequencies = np.sqrt(np.linalg.eigvalsh(elastic_hessian(model)))
    assert frequencies[0] == pytest.approx(0.9 * _free_bar_frequency(), rel=0.06)
    assert frequencies[1] == pytest.approx(frequencies[0], rel=0.02)  # the other direction
    # Plucked and let go, it rings with that frequency.
    fps, frames = 100.0, 260
    drag = Drag(model, gaussian_kernel(model.rest, (0.0, 0.0, 0.0), 0.1), 300.0, _pluck)
    moved = simulate_on_rig(model, Settings(frames, fps, 1, integrator="bdf2"), [drag])
    assert moved.converged_fraction == 1.0
    middle = elastic_functions(model, np.zeros((1, 3)))[0]
    heights = (moved.coordinates.reshape(frames, 3, -1) @ middle[0])[:, 1]
    rest = heights[30:] - heights[30:].mean()
    rises = np.flatnonzero((rest[:-1] < 0) & (rest[1:] >= 0))
    times = rises - rest[rises] / (rest[rises + 1] - rest[rises])
    assert len(times) >= 3
    rung = 2 * np.pi * fps / np.diff(times).mean()
    assert rung == pytest.approx(frequencies[0], rel=0.05)


def _pluck(time: float) -> np.ndarray | None:
    return np.concatenate([np.zeros((3, 3)), [[0.0], [0.02], [0.0]]], axis=1) if time < 0.2 else None


def test_a_shaken_bone_makes_soft_flesh_lag_and_stiff_flesh_follow() -> None:
    def shaken(time: float) -> np.ndarray:
        z = np.zeros((1, 3, 4))
        z[0, 1, 3] = 0.1 * np.sin(20.0 * time)
        return z

    sizes = []
    for young in (1e4, 1e6, 1e8):
        model = _model(1, shaken, material=Material("m", young, 0.3, DENSITY))
        moved = simulate_on_rig(model, Settings(40, 60.0, 1, integrator="bdf2"), [RigInertia(model, 1.0)])
        assert moved.converged_fraction == 1.0
        sizes.append(np.abs(model.shape @ moved.coordinates.reshape(40, 3, -1)[:, 1].T).max())
    assert sizes[0] > 1e-3
    assert sizes[1] < 0.15 * sizes[0] and sizes[2] < 0.02 * sizes[1]


def test_a_rigid_motion_of_the_rig_moves_stiff_flesh_as_it_is() -> None:
    """All bones turn together by a full turn a second: u stays (nearly) zero, and in a strained pose it turns along."""

    def turning(time: float) -> np.ndarray:
        return np.tile(_turn(2 * np.pi * time, np.array([0.3, 0.1, 0.0])), (3, 1, 1))

    model = _model(3, turning, material=Material("m", 1e9, 0.3, DENSITY))
    moved = simulate_on_rig(model, Settings(31, 60.0, 1, integrator="bdf2"), [RigInertia(model, 1.0)])
    u = np.einsum("qk,trk->tqr", model.shape, moved.coordinates.reshape(31, 3, -1))
    assert np.abs(u).max() < 1e-5
    assert moved.converged_fraction == 1.0


def test_equilibrium_turns_with_the_rig() -> None:
    """Bend the bones, then turn the whole: the elastic displacement is the turned one (the span is invariant)."""
    bent = np.stack([_turn(angle, np.array([x, 0.0, 0.0])) for angle, x in ((-0.3, -0.2), (0.0, 0.0), (0.4, 0.2))])
    rotation = random_rotation(np.random.default_rng(4))

    def pose(time: float) -> np.ndarray:
        full = np.concatenate([bent[:, :, :3] + np.eye(3), bent[:, :, 3:]], axis=2)
        return (rotation @ full if time > 0.5 else full) - np.eye(3, 4)

    model = _model(3, pose, material=Material("m", 1e5, 0.3, DENSITY))
    (a, first), (b, second) = equilibrium(model, 0.0), equilibrium(model, 1.0)
    assert first.converged and second.converged
    turned = rotation @ a.reshape(3, -1)
    assert np.abs(a).max() > 1e-3
    np.testing.assert_allclose(b.reshape(3, -1), turned, atol=1e-4 * np.abs(a).max())
    # It lowers the energy that the rig's own pose has.
    term = AveragedElasticity(model)
    held, zero = model.held_coordinates(0.0), np.zeros(model.dof)
    term.begin_step(Step(0.0, 1.0, zero, zero, held, held, held))
    assert term.energy(a) < 0.9 * term.energy(zero)
    again, _ = minimise([term], a, tolerance=1e-9)
    np.testing.assert_allclose(again, a, atol=1e-4 * np.abs(a).max())


def test_flesh_is_softened_where_the_rig_tears_only() -> None:
    rigid = _model(3, lambda _t: np.tile(_turn(1.0, np.zeros(3)), (3, 1, 1)))
    np.testing.assert_allclose(flesh_stiffness(rigid, np.array([0.0])), 1.0, atol=1e-9)

    def folded(_time: float) -> np.ndarray:
        return np.stack([_turn(0.0, np.zeros(3)), _turn(0.0, np.zeros(3)), _turn(2.5, np.array([0.1, 0.0, 0.0]))])

    factors = flesh_stiffness(_model(3, folded), np.array([0.0]))
    assert factors.min() < 0.6 and factors.max() == 1.0
    joint = _bar().points[factors < 0.9]
    assert (joint[:, 0] > 0.0).all()


def test_bones_inside_sum_to_one_and_keep_to_their_end() -> None:
    points, skin = _skin(5)
    field, kept = bone_field(_bar().domain, points, skin)
    inside = _bar().points
    weights, slopes = field.evaluate(inside)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(slopes.sum(axis=1), 0.0, atol=1e-7)
    assert weights[inside[:, 0] < -0.45, 0].min() > 0.9 and weights[inside[:, 0] > 0.45, 0].max() < 0.01
    step = 1e-5 * np.array([1.0, -0.4, 0.3])
    numeric = (field.weights(inside + step) - field.weights(inside - step)) / 2
    np.testing.assert_allclose(numeric, slopes @ step, atol=1e-8)
    depth = depth_in(_bar().domain, inside)
    assert depth.min() >= 0 and depth.max() == 1.0
    assert depth[np.abs(inside[:, 1:]).max(axis=1) < 0.02].mean() > 3 * depth[np.abs(inside[:, 1]) > 0.085].mean()
    # A joint that moves nothing is left out.
    more = SkinWeights(skin.joints, skin.weights, skin.joint_count + 2)
    assert list(bone_field(_bar().domain, points, more)[1]) == list(kept)


def test_displacements_of_bones_in_the_simulators_units() -> None:
    rng = np.random.default_rng(5)
    transforms = np.tile(np.eye(4), (4, 1, 1))
    transforms[:, :3] = rng.normal(size=(4, 3, 4))
    frame = Frame((1.0, -2.0, 0.5), 0.3, (0.0, 1.0, 0.0))
    x = rng.normal(size=(6, 3))
    z = bone_displacements(transforms, np.asarray(frame.centre), frame.scale)
    for j in range(4):
        moved = frame.to_sim(x @ transforms[j, :3, :3].T + transforms[j, :3, 3])
        local = frame.to_sim(x)
        np.testing.assert_allclose(local + local @ z[j, :, :3].T + z[j, :, 3], moved, atol=1e-12)


def test_splats_show_the_rigs_motion_exactly_and_the_elastic_one_with_its_gradient() -> None:
    rng = np.random.default_rng(6)
    model = _model(3)
    splats = random_splats(60, degree=1, seed=7)
    means = rng.uniform([-0.4, -0.08, -0.08], [0.4, 0.08, 0.08], (60, 3)).astype(np.float32)
    skin = sparse_weights(rng.random((60, 3)) + 0.01)
    scale, centre = 0.25, np.array([2.0, 1.0, -1.0])
    splats = splats.replace(means=(means / scale + centre).astype(np.float32))
    frame = Frame(tuple(centre.tolist()), scale, (0.0, 1.0, 0.0))
    rigged = RiggedSplats(splats, skin)
    bound = bind_elastic(rigged, frame, model)
    transforms = np.tile(np.eye(4), (3, 1, 1))
    for j in range(3):
        transforms[j, :3, :3], transforms[j, :3, 3] = random_rotation(rng), rng.normal(size=3)
    alone = pose_splats(rigged, transforms)
    same = pose_elastic(bound, transforms, np.zeros(model.dof))
    for name in ("means", "quaternions", "log_scales", "sh"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(same, name))
    y = 0.05 * rng.normal(size=model.dof)
    moved = pose_elastic(bound, transforms, y)
    u = elastic_functions(model, frame.to_sim(splats.means))[0] @ y.reshape(3, -1).T
    np.testing.assert_allclose(moved.means - alone.means, u / scale, atol=1e-4)
    # Covariances: those of the differential of x + u(x), by finite differences.
    step = 1e-4
    for axis in range(3):
        shift = step * np.eye(3)[axis]
        ahead = elastic_functions(model, frame.to_sim(splats.means + shift))[0] @ y.reshape(3, -1).T
        behind = elastic_functions(model, frame.to_sim(splats.means - shift))[0] @ y.reshape(3, -1).T
        column = (ahead - behind) / (2 * step) / scale
        slope = (bound.slope @ y.reshape(3, -1).T.astype(np.float32)).reshape(-1, 3, 3)[:, axis]
        np.testing.assert_allclose(slope, column, atol=2e-3 * np.abs(slope).max())
    assert np.abs(moved.log_scales - alone.log_scales).max() > 1e-3


def test_what_does_not_fit() -> None:
    weights, _ = bone_field(_bar().domain, *_skin(1))
    with pytest.raises(InputError, match="give the bones' weights and their motion"):
        BoneHandles(_field())
    with pytest.raises(InputError, match="--leak 2: a number from 0"):
        RigInertia(_model(1), 2.0)
    with pytest.raises(InputError, match="points but weights for"):
        bone_field(_bar().domain, np.zeros((3, 3)), _skin(1)[1])
    handles = BoneHandles(_field(), bones=weights, motion=lambda _t: np.zeros((1, 3, 4)))
    assert len(handles) == handles.free + 1
