"""Integration points: volumes, first and second moments against voxels as cubes, and the energy of a subspace."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.binding import Handles, shape_functions
from splatanim.data import Domain
from splatanim.field.gaussians import bind_gaussians
from splatanim.sampling import quadrature
from splatanim.sampling.quadrature import clusters, spread
from tests.helpers import branching_domain


def _box(*cells: int, spacing: float = 0.05) -> Domain:
    return Domain(np.argwhere(np.ones(cells, bool)) - 3, np.array([0.1, -0.2, 0.3]), spacing)


def _ring() -> Domain:
    """A thin open ring, whose clusters are bent."""
    cells = np.argwhere(np.ones((40, 40, 2), bool))
    radius = np.hypot(cells[:, 0] - 19.5, cells[:, 1] - 19.5)
    return Domain(cells[(radius > 16) & (radius < 18.5)], np.zeros(3), 0.02)


DOMAINS = {"box": _box(12, 9, 7), "plate": _box(30, 30, 1), "branches": branching_domain(), "ring": _ring()}


def _second(points: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    return np.einsum("q,qi,qj->ij", volumes, points, points)


def _exact_second(domain: Domain) -> np.ndarray:
    """Voxels as cubes: each has spacing^2 / 12 of its own."""
    volume = domain.spacing**3
    own = len(domain.cells) * volume * domain.spacing**2 / 12.0 * np.eye(3)
    return _second(domain.centres, np.full(len(domain.cells), volume)) + own


def _inside(domain: Domain, points: np.ndarray) -> bool:
    cells = {tuple(cell) for cell in domain.cells.tolist()}
    return all(tuple(c) in cells for c in np.floor((points - domain.origin) / domain.spacing).astype(int).tolist())


@pytest.mark.parametrize("count", [4, 40, 1024])
@pytest.mark.parametrize("name", DOMAINS)
def test_moments_up_to_the_second_are_those_of_the_voxels(name: str, count: int) -> None:
    domain = DOMAINS[name]
    points, volumes = spread(domain, count)
    assert len(points) <= count and volumes.min() > 0
    assert volumes.sum() == pytest.approx(domain.volume, rel=1e-12)
    assert _inside(domain, points)
    if name in ("ring", "branches") and count < 1024:
        return  # pieces so bent that no tetrahedron fits: covered by the test of such pieces
    np.testing.assert_allclose(volumes @ points / volumes.sum(), domain.centres.mean(axis=0), atol=1e-12)
    exact = _exact_second(domain)
    np.testing.assert_allclose(_second(points, volumes), exact, atol=2e-4 * np.abs(exact).max())


def test_a_plate_one_voxel_thick_resists_bending() -> None:
    """int z^2 about its middle is V h^2 / 12; points at centroids of clusters see none of it."""
    domain = DOMAINS["plate"]
    points, volumes = spread(domain, 256)
    height = points[:, 2] - domain.centres[:, 2].mean()
    assert volumes @ height**2 == pytest.approx(domain.volume * domain.spacing**2 / 12.0, rel=1e-12)
    assert np.ptp(spread(domain, 3)[0][:, 2]) < 1e-12


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_points_for_a_tetrahedron_are_centroids(count: int) -> None:
    domain = DOMAINS["box"]
    points, volumes = spread(domain, count)
    assert len(points) == count
    np.testing.assert_allclose(volumes @ points / volumes.sum(), domain.centres.mean(axis=0), atol=1e-12)
    assert _inside(DOMAINS["ring"], spread(DOMAINS["ring"], count)[0])  # its centroid lies in the hole


def test_few_voxels_get_four_points_each() -> None:
    domain = _box(3, 1, 1)
    points, volumes = spread(domain, 1024)
    assert len(points) == 12
    np.testing.assert_allclose(volumes, domain.spacing**3 / 4)
    np.testing.assert_allclose(_second(points, volumes), _exact_second(domain), rtol=1e-12)


def test_bent_pieces_keep_their_points_inside_and_their_centroid_where_they_can() -> None:
    domain = DOMAINS["ring"]
    points, volumes = spread(domain, 12)
    _, size, _ = clusters(domain, 3)
    assert _inside(domain, points) and len(points) == 12
    np.testing.assert_allclose(volumes.reshape(3, 4).sum(axis=1), size * domain.spacing**3, rtol=1e-12)


def test_weights_put_a_moved_centroid_back() -> None:
    corners = np.array([[[0.0, 0, 0], [2, 0, 0], [0, 3, 0], [0, 0, 1]]] * 3)
    sites = np.array([[0.4, 0.5, 0.3], [5.0, 0, 0], [0.5, 0.75, 0.25]])
    corners[2, 3] = [1.0, 1.0, 0.0]  # flat
    weights = quadrature._balanced(corners, sites)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights[0] @ corners[0], sites[0], atol=1e-12)
    np.testing.assert_array_equal(weights[1:], 0.25)  # outside the tetrahedron; no tetrahedron


def test_the_subspaces_energy_is_that_of_every_voxel() -> None:
    """Generalised eigenvalues of sum V G^T G by 1024 points against 8 Gauss points in each voxel."""
    domain = DOMAINS["branches"]
    handles = Handles(bind_gaussians(domain, 12))
    gauss = (np.argwhere(np.ones((2, 2, 2), bool)) - 0.5) / np.sqrt(3.0)
    every = domain.origin + ((domain.cells[:, None] + 0.5 + gauss).reshape(-1, 3)) * domain.spacing

    def energy(points: np.ndarray, volumes: np.ndarray) -> np.ndarray:
        _, slopes = shape_functions(points, *handles.evaluate(points))
        rows = (slopes * np.sqrt(volumes)[:, None, None]).transpose(0, 2, 1).reshape(-1, slopes.shape[1])
        return rows.T @ rows

    exact = energy(every, np.full(len(every), domain.spacing**3 / 8))
    values, vectors = np.linalg.eigh(exact / np.sqrt(np.outer(*[np.diagonal(exact) + 1e-12] * 2)))
    keep = values > 1e-5 * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep]) / np.sqrt(np.diagonal(exact) + 1e-12)[:, None]
    points, volumes = spread(domain, 1024)
    ratios = np.linalg.eigvalsh(basis.T @ energy(points, volumes) @ basis)
    assert 0.85 < ratios[0] and ratios[-1] < 1.15
    sites, size, _ = clusters(domain, 1024)  # one point a cluster, for comparison
    middles = domain.origin + sites * domain.spacing
    single = np.linalg.eigvalsh(basis.T @ energy(middles, size * domain.spacing**3) @ basis)
    assert single[0] < ratios[0] - 0.1
