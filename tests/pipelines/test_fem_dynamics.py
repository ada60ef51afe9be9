"""Full-space implicit dynamics: the law, its derivatives, the solver, free fall, momentum, energy, and statics."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from pipelines.fem import Solid, solve_static, voxel_solid
from pipelines.fem_dynamics import FemDynamics
from pipelines.fem_solver import Coarse, conjugate_gradients
from splatanim.data import Material
from splatanim.dynamics.materials import stresses_and_tangents
from splatanim.errors import InputError
from tests.helpers import box_cubature
from tests.pipelines.dynamics_bodies import box_of_tetrahedra

SOFT = Material("soft", 1e5, 0.3, 1000.0, stretch_limit=1.2)  # a limit that the random states below exceed
G = 9.81
H = 1 / 120


def _body(held: bool = False, material: Material = SOFT, **kwargs) -> FemDynamics:
    solid = box_of_tetrahedra((4, 3, 2), 0.1)
    pinned = solid.nodes[:, 0] < 1e-9 if held else np.zeros(len(solid.nodes), bool)
    return FemDynamics(solid, material, pinned, np.array([0.0, 0.0, -G]), H, **kwargs)


def _dense(body: FemDynamics, x: np.ndarray) -> np.ndarray:
    """The Hessian's blocks as a dense matrix of all nodes in the body's inner order."""
    body._evaluate(x, x)
    blocks, _ = body._matrix()
    starts, columns = body._graph.rows
    n = len(x)
    out = np.zeros((n, 3, n, 3))
    for i in range(n):
        for k in range(starts[i], starts[i + 1]):
            out[i, :, columns[k], :] = blocks[k]
    return out.reshape(3 * n, 3 * n)


def test_the_law_is_that_of_the_reduced_solver() -> None:
    body = _body()
    rng = np.random.default_rng(0)
    x = body._rest + 0.03 * rng.normal(size=body._rest.shape)
    body._evaluate(x, x)
    volumes = body._solid[2]
    mu, lam = (np.full(len(volumes), value) for value in SOFT.lame)
    expected, _ = stresses_and_tangents(0, body._deformation, volumes, mu, lam, SOFT.stretch_limit, False)
    assert (np.linalg.norm(body._deformation, axis=(1, 2)) ** 2 > 1.2**2 + 2 / 1.2).any()  # the limit is at work
    np.testing.assert_allclose(body._stress, expected, rtol=1e-9, atol=1e-9)


def test_gradient_and_hessian_are_derivatives_of_the_energy() -> None:
    body = _body(held=True)
    rng = np.random.default_rng(1)
    free = body._free[:, None]
    x = body._rest + 0.02 * rng.normal(size=body._rest.shape) * free
    target = body._rest + 0.01 * rng.normal(size=body._rest.shape)
    way = rng.normal(size=x.shape) * free
    _, gradient, _ = body._evaluate(x, target)
    step = 1e-6
    slope = (body._value(x + step * way, target) - body._value(x - step * way, target)) / (2 * step)
    assert abs(slope) > 1.0 and slope == pytest.approx(float(np.sum(gradient * way)), rel=1e-6)
    ahead, back = (body._evaluate(x + sign * step * way, target)[1] for sign in (1, -1))
    numeric = ((ahead - back) / (2 * step)).ravel()
    product = (_dense(body, x) @ way.ravel()) * np.repeat(body._free, 3)
    np.testing.assert_allclose(product, numeric, atol=3e-6 * np.abs(numeric).max())  # blocks are float32


def test_conjugate_gradients_solve_what_a_dense_solver_does() -> None:
    body = _body(held=True)
    x = body._rest.copy()
    matrix = _dense(body, x)
    blocks, inverse = body._matrix()
    coarse = Coarse(body._graph.rows, blocks, x, body._free)
    right = np.random.default_rng(2).normal(size=x.shape) * body._free[:, None]
    found, iterations = conjugate_gradients(body._graph.rows, blocks, inverse, coarse, body._free, right, 1e-7)
    mask = np.repeat(body._free, 3)
    expected = np.zeros(len(mask))
    expected[mask] = np.linalg.solve(matrix[np.ix_(mask, mask)], right.ravel()[mask])
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5 * np.abs(expected).max())
    assert 3 < iterations < 100


def test_the_coarse_space_saves_iterations() -> None:
    solid = box_of_tetrahedra((60, 3, 3), 1 / 60)
    stiff = Material("stiff", 1e8, 0.3, 1000.0)
    body = FemDynamics(solid, stiff, solid.nodes[:, 0] < 1e-9, np.array([0.0, 0.0, -G]), H)
    body._evaluate(body._rest, body._rest)
    blocks, inverse = body._matrix()
    right = body._weight * body._free[:, None]
    coarse = Coarse(body._graph.rows, blocks, body._rest, body._free)
    nothing = Coarse(body._graph.rows, blocks, body._rest, np.zeros_like(body._free))  # no motions: block Jacobi alone
    counts = [
        conjugate_gradients(body._graph.rows, blocks, inverse, c, body._free, right, 1e-4)[1] for c in (coarse, nothing)
    ]
    assert counts[0] < 0.5 * counts[1]


def test_free_fall_is_that_of_implicit_euler() -> None:
    body = _body(velocities=np.tile([0.3, 0.0, 1.0], (60, 1)))
    for _ in range(12):
        assert body.step().converged
    expected = 12 * H * np.array([0.3, 0.0, 1.0]) + np.array([0.0, 0.0, -G]) * H**2 * 12 * 13 / 2
    np.testing.assert_allclose(body.displacements, np.tile(expected, (60, 1)), atol=1e-5)  # Newton's tolerance
    assert body.elastic_energy() < 1e-4 * 24.0 * G * 0.05  # of the energy that the fall has set free


def test_momentum_is_kept_and_energy_never_grows() -> None:
    solid = box_of_tetrahedra((4, 3, 2), 0.1)
    rng = np.random.default_rng(3)
    velocities = np.cross([0.0, 0.0, 2.0], solid.nodes) + 0.5 * rng.normal(size=solid.nodes.shape)
    body = FemDynamics(solid, SOFT, np.zeros(60, bool), np.zeros(3), H, velocities=velocities)
    momentum = body.masses @ velocities
    energy = [0.5 * float(body.masses @ np.sum(velocities**2, axis=1))]
    for _ in range(20):
        assert body.step().converged
        energy.append(body.elastic_energy() + 0.5 * float(body.masses @ np.sum(body.velocities**2, axis=1)))
    np.testing.assert_allclose(body.masses @ body.velocities, momentum, atol=1e-3 * np.abs(momentum).max())
    assert (np.diff(energy) < 1e-6 * energy[0]).all() and energy[-1] > 0.2 * energy[0]


def test_long_steps_end_in_the_static_answer() -> None:
    solid = box_of_tetrahedra((10, 2, 2), 0.1)
    held = solid.nodes[:, 0] < 1e-9
    material = Material("soft", 1e6, 0.3, 1000.0, stretch_limit=4.0)
    body = FemDynamics(solid, material, held, np.array([0.0, 0.0, -1.0]), 3.0)
    for _ in range(8):
        report = body.step()
    expected = solve_static(solid, material, held, np.array([0.0, 0.0, -1.0]), tolerance=1e-8).displacements
    assert report.converged and np.abs(expected).max() > 0.01
    np.testing.assert_allclose(body.displacements, expected, atol=1e-3 * np.abs(expected).max())


def test_a_cantilever_approaches_beam_theory_as_elements_shrink() -> None:
    """Linear tetrahedra are too stiff in bending; halving them must close most of the gap to q L^4 / (8 E I)."""
    gaps = []
    for across in (2, 4):
        solid = box_of_tetrahedra((10 * across, across, across), 0.1 / across)
        material = Material("bar", 1e6, 0.0, 1000.0, stretch_limit=4.0)
        body = FemDynamics(solid, material, solid.nodes[:, 0] < 1e-9, np.array([0.0, 0.0, -0.05]), 3.0)
        for _ in range(8):
            body.step()
        tip = -body.displacements[np.isclose(solid.nodes[:, 0], 1.0), 2].mean()
        gaps.append(1.0 - tip / (1000 * 0.01 * 0.05 / (8 * 1e6 * 0.1**4 / 12)))
    assert 0.0 < gaps[1] < 0.5 * gaps[0] < 0.5


def test_threads_do_not_change_the_motion() -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread")
    before, moved = numba.get_num_threads(), []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            body = _body(held=True)
            for _ in range(3):
                body.step()
            moved.append(body.displacements)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-9)


def test_what_it_cannot_simulate_is_refused_in_words() -> None:
    zero = np.zeros(3)
    bricks = voxel_solid(box_cubature((2, 2, 2), 0.1).domain)
    with pytest.raises(InputError, match="elements have 8 nodes; linear tetrahedra have 4"):
        FemDynamics(bricks, SOFT, np.zeros(27, bool), zero, H)
    with pytest.raises(InputError, match="the model is linear; only neohookean"):
        _body(material=Material("soft", 1e5, 0.3, 1000.0, model="linear"))
    solid = box_of_tetrahedra((1, 1, 1), 0.1)
    stray = Solid(np.concatenate([solid.nodes, [[9.0, 9, 9]]]), solid.elements, *_tables(solid))
    with pytest.raises(InputError, match="1 nodes belong to no element"):
        FemDynamics(stray, SOFT, np.zeros(9, bool), zero, H)


def _tables(solid: Solid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return solid.shapes, solid.gradients, solid.volumes
