"""The finite elements that serve as truth: patch tests, derivatives, and a cantilever against Timoshenko."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.deflection import coarsened, deflect, reference
from pipelines.fem import Solid, _System, solve_static, tetrahedral_solid, tetrahedralise, voxel_solid
from splatanim.data import Cubature, Domain, Material
from splatanim.errors import InputError
from splatanim.field.eigenmodes import bind_eigenmodes
from tests.helpers import box_cubature
from tests.sampling.shapes import box_mesh

SOFT = Material("soft", 1e5, 0.3, 1000.0, stretch_limit=4.0)
AFFINE = np.array([[0.02, 0.03, -0.01], [0.01, -0.04, 0.02], [-0.02, 0.01, 0.03]])


def _material(model: str) -> Material:
    return Material("soft", 1e5, 0.3, 1000.0, stretch_limit=4.0, model=model)


def _tetrahedra(seed: int = 0) -> Solid:
    """A box of tetrahedra with its inner nodes moved at random: no two elements are alike."""
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*(np.linspace(0, 1, 5),) * 3, indexing="ij"), -1).reshape(-1, 3)
    inner = ((grid > 0.01) & (grid < 0.99)).all(axis=1)
    grid[inner] += rng.uniform(-0.06, 0.06, (int(inner.sum()), 3))
    cells = Delaunay(grid + rng.uniform(-1e-4, 1e-4, grid.shape)).simplices
    volumes = np.abs(np.linalg.det(grid[cells[:, 1:]] - grid[cells[:, :1]])) / 6
    return tetrahedral_solid(grid, cells[volumes > 1e-6].astype(np.int64))


def _l_shape() -> Solid:
    """Voxels with a re-entrant edge."""
    cells = np.argwhere(np.ones((5, 4, 3), bool))
    return voxel_solid(Domain(cells[~((cells[:, 0] > 2) & (cells[:, 1] > 1))], np.zeros(3), 0.2))


SOLIDS = {"tetrahedra": _tetrahedra, "voxels": _l_shape}


@pytest.mark.parametrize("model", ["linear", "neohookean"])
@pytest.mark.parametrize("kind", SOLIDS)
def test_constant_strain_is_reproduced_exactly(kind: str, model: str) -> None:
    solid = SOLIDS[kind]()
    low, high = solid.nodes.min(axis=0), solid.nodes.max(axis=0)
    held = ((solid.nodes < low + 1e-9) | (solid.nodes > high - 1e-9)).any(axis=1)
    used = np.bincount(solid.elements.ravel(), minlength=len(solid.nodes))
    held |= used < (8 if kind == "voxels" else 1)  # a voxel node inside has eight neighbours
    wanted = solid.nodes @ AFFINE.T
    assert 3 < (~held).sum()
    found = solve_static(solid, _material(model), held, np.zeros(3), prescribed=wanted, tolerance=1e-9)
    assert found.converged
    np.testing.assert_allclose(found.displacements, wanted, atol=1e-8)


@pytest.mark.parametrize("kind", SOLIDS)
def test_forces_and_stiffness_are_derivatives_of_the_energy(kind: str) -> None:
    solid = SOLIDS[kind]()
    rng = np.random.default_rng(1)
    held = solid.nodes[:, 0] < solid.nodes[:, 0].min() + 1e-9
    system = _System(solid, SOFT, held)
    u, way = 0.01 * rng.normal(size=(2, *solid.nodes.shape))
    way[held] = 0.0
    h = 1e-4
    slope = (system.energy(u + h * way) - system.energy(u - h * way)) / (2 * h)
    assert slope == pytest.approx(float(np.sum(system.forces(u) * way)), rel=1e-6) and abs(slope) > 1e-3
    stiffness = system.stiffness(np.zeros_like(u))  # at rest the projection changes nothing
    numeric = (system.forces(h * way) - system.forces(-h * way))[~held].ravel() / (2 * h)
    np.testing.assert_allclose(stiffness @ way[~held].ravel(), numeric, atol=1e-6 * np.abs(numeric).max())


def test_the_load_is_the_weight() -> None:
    for make in SOLIDS.values():
        solid = make()
        load = _System(solid, SOFT, solid.nodes[:, 0] < 0.1).load(np.array([0.0, 0.0, -9.81]))
        volume = float(solid.weights.sum())
        np.testing.assert_allclose(load.sum(axis=0), [0, 0, -9.81 * 1000.0 * volume], atol=1e-8)
    assert volume == pytest.approx(0.2**3 * len(solid.elements))


@pytest.mark.parametrize("poisson", [0.0, 0.3])
def test_a_cantilever_sags_as_beam_theory_says(poisson: float) -> None:
    solid = voxel_solid(box_cubature((40, 8, 8), 1 / 40).domain)
    height, light = 0.2, 0.01
    material = Material("bar", 1e6, poisson, 1000.0)
    found = solve_static(solid, material, solid.nodes[:, 0] < -0.499, np.array([0.0, 0.0, -light]))
    assert found.converged
    tip = -found.displacements[np.isclose(solid.nodes[:, 0], 0.5), 2].mean()
    load, shear = 1000.0 * height**2 * light, 1e6 / (2 * (1 + poisson))
    kappa = 10 * (1 + poisson) / (12 + 11 * poisson)
    beam = load / (8 * 1e6 * height**4 / 12) + load / (2 * kappa * shear * height**2)
    assert tip == pytest.approx(beam, rel=0.04)  # the held face cannot contract, which beam theory leaves out


def test_a_bar_that_hangs_under_its_weight_stretches_by_the_closed_form() -> None:
    """nu = 0, linear: u(x) = rho g / E (L x - x^2 / 2), exact at the nodes of trilinear elements."""
    solid = voxel_solid(box_cubature((10, 3, 3), 0.1).domain)
    found = solve_static(
        solid,
        Material("bar", 1e6, 0.0, 1000.0, model="linear"),
        solid.nodes[:, 0] < -0.499,
        np.array([9.81, 0, 0]),
        tolerance=1e-8,
    )
    x = solid.nodes[:, 0] + 0.5
    np.testing.assert_allclose(found.displacements[:, 0], 1000 * 9.81 / 1e6 * (x - x**2 / 2), atol=1e-9)


def test_tetgen_fills_a_box() -> None:
    pytest.importorskip("tetgen")
    solid = tetrahedralise(box_mesh((1.0, 0.3, 0.3)), 0.1)
    assert float(solid.weights.sum()) == pytest.approx(0.09, rel=1e-6)
    found = solve_static(solid, SOFT, solid.nodes[:, 0] < -0.499, np.array([0.0, 0.0, -0.1]))
    assert found.converged and found.displacements[:, 2].min() < 0


def test_bad_solids_are_refused_in_words() -> None:
    flat = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    with pytest.raises(InputError, match=r"are flat\. Remesh"):
        tetrahedral_solid(flat, np.array([[0, 1, 2, 3]]))
    solid = _l_shape()
    with pytest.raises(InputError, match=f"{len(solid.nodes)} of {len(solid.nodes)} nodes are held"):
        solve_static(solid, SOFT, np.ones(len(solid.nodes), bool), np.zeros(3))


def test_a_coarser_grid_keeps_the_volume_and_the_largest_part() -> None:
    cells = np.argwhere(np.ones((30, 16, 14), bool))
    stray = np.array([[40, 0, 0], [41, 0, 0]])
    domain = Domain(np.concatenate([cells, stray]), np.zeros(3), 0.02)
    coarse = coarsened(domain, 900).domain
    assert 600 < len(coarse.cells) < 1200
    assert coarse.volume == pytest.approx(30 * 16 * 14 * 0.02**3, rel=0.15)
    assert coarse.centres[:, 0].max() < 0.62
    same = coarsened(domain, 10**6).domain
    assert len(same.cells) == len(cells) and same.spacing == domain.spacing


def test_a_reduced_bar_sags_as_the_full_space_does() -> None:
    box = box_cubature((32, 8, 8), 1 / 32)
    cubature = Cubature(
        box.domain.centres, np.full(len(box.domain.cells), box.domain.spacing**3), box.surface, box.domain, "box"
    )
    truth = reference(cubature)
    assert np.linalg.norm(truth.moved[truth.tip]) == pytest.approx(0.1, rel=0.2)
    found = deflect(truth, bind_eigenmodes(cubature.domain, 16))
    assert found.converged and found.tip == pytest.approx(1.0, abs=0.1) and found.l2 < 0.1


def test_serendipity_bricks_hold_every_quadratic() -> None:
    """Values and slopes at the Gauss points of any quadratic that the nodes take, and volumes."""
    solid = voxel_solid(Domain(np.array([[2, 1, 0]]), np.array([0.1, 0.2, 0.3]), 0.5), order=2)
    assert solid.shapes.shape == (27, 20)
    np.testing.assert_allclose(solid.shapes.sum(axis=1), 1.0)
    assert float(solid.weights.sum()) == pytest.approx(0.5**3)
    at = solid.shapes @ solid.nodes[solid.elements[0]]
    rng = np.random.default_rng(0)
    curve, slope = rng.normal(size=(3, 3)), rng.normal(size=3)
    curve = curve + curve.T
    values = 0.5 * np.einsum("ni,ij,nj->n", solid.nodes, curve, solid.nodes) + solid.nodes @ slope
    exact = 0.5 * np.einsum("ni,ij,nj->n", at, curve, at) + at @ slope
    np.testing.assert_allclose(solid.shapes @ values[solid.elements[0]], exact, atol=1e-12)
    gradients = np.einsum("gkc,k->gc", solid.gradients[0], values[solid.elements[0]])
    np.testing.assert_allclose(gradients, at @ curve + slope, atol=1e-11)


def test_quadratic_voxels_hold_constant_strain_and_their_stiffness_is_a_derivative() -> None:
    solid = voxel_solid(box_cubature((3, 3, 2), 0.2).domain, order=2)
    low, high = solid.nodes.min(axis=0), solid.nodes.max(axis=0)
    held = ((solid.nodes < low + 1e-9) | (solid.nodes > high - 1e-9)).any(axis=1)
    wanted = solid.nodes @ AFFINE.T
    found = solve_static(solid, SOFT, held, np.zeros(3), prescribed=wanted, tolerance=1e-9)
    assert found.converged and 3 < (~held).sum()
    np.testing.assert_allclose(found.displacements, wanted, atol=1e-8)


def test_one_quadratic_voxel_across_bends_as_beam_theory_says() -> None:
    """A bar 24 times as long as thick; trilinear voxels lock in shear, which makes them no reference for thin parts."""
    domain = box_cubature((24, 1, 1), 1 / 24).domain
    height, light, young = 1 / 24, 1e-4, 1e6
    beam = 1000.0 * light / (8 * young * height**2 / 12)
    for order, low, high in ((1, 0.5, 0.85), (2, 0.97, 1.03)):
        solid = voxel_solid(domain, order)
        pinned = solid.nodes[:, 0] < -0.499
        bar = Material("bar", young, 0.0, 1000.0, model="linear")
        found = solve_static(solid, bar, pinned, np.array([0.0, 0.0, -light]), tolerance=1e-8)
        tip = -found.displacements[np.isclose(solid.nodes[:, 0], 0.5), 2].mean()
        assert low < tip / beam < high
