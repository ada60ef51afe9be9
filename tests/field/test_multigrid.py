"""The multigrid eigensolver: against dense solutions and closed forms, on dust, near-loose pieces and many modes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from splatanim.data import Domain
from splatanim.field.multigrid import aggregates, hierarchy, joined, laplacian, lowest_modes
from tests.field.shapes import comb, two_blocks
from tests.helpers import box_cubature


def _dense(domain: Domain, count: int) -> np.ndarray:
    return np.linalg.eigvalsh(laplacian(domain).toarray())[:count]


@pytest.mark.parametrize("name", ["bridge", "loose", "comb"])
@pytest.mark.parametrize("count", [2, 17, 40])
def test_modes_are_those_of_the_dense_matrix(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from splatanim.field import multigrid

    monkeypatch.setattr(multigrid, "_COARSEST", 50)  # so that small shapes have levels
    monkeypatch.setattr(multigrid, "_COARSEST_PER_MODE", 9)
    domain = {"bridge": two_blocks(3, bridge=True), "loose": two_blocks(1), "comb": comb()}[name]
    values, modes = lowest_modes(domain, count, 1e-12)
    np.testing.assert_allclose(values, _dense(domain, count), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(modes.T @ modes, np.eye(count), atol=1e-9)
    left = laplacian(domain) @ modes - modes * values
    assert np.abs(left).max() < 1e-4


def test_a_box_of_many_voxels_in_closed_form() -> None:
    shape = (40, 26, 18)
    values, _ = lowest_modes(box_cubature(shape, 1.0).domain, 30, 1e-12)
    one = [(2 * np.sin(0.5 * np.pi * np.arange(n) / n)) ** 2 for n in shape]
    every = np.sort((one[0][:, None, None] + one[1][:, None] + one[2]).ravel())
    np.testing.assert_allclose(values, every[:30], rtol=1e-9, atol=1e-12)


def test_less_accuracy_is_what_it_says() -> None:
    domain = box_cubature((40, 26, 18), 1.0).domain
    exact, rough = (lowest_modes(domain, 17, accuracy)[0].sum() for accuracy in (1e-12, 1e-3))
    assert exact <= rough * (1 + 1e-12) and rough < (1 + 3e-4) * exact


def test_aggregates_do_not_join_what_their_box_does_not() -> None:
    """Two plates one voxel apart, in the same boxes, share no aggregate; nor do voxels that meet at an edge."""
    plates = np.argwhere(np.ones((6, 6, 1), bool))
    domain = Domain(np.concatenate([plates, plates + np.array([0, 0, 2])]), np.zeros(3), 1.0)
    label, cells = aggregates(laplacian(domain), domain.cells)
    assert not set(label[:36]) & set(label[36:]) and len(cells) == 18
    edge = Domain(np.array([[0, 0, 0], [1, 1, 0]]), np.zeros(3), 1.0)
    assert len(aggregates(laplacian(edge), edge.cells)[1]) == 2


def test_the_graph_of_aggregates_counts_faces() -> None:
    domain = box_cubature((4, 2, 2), 1.0).domain
    graph = laplacian(domain)
    coarse = joined(graph, aggregates(graph, domain.cells - domain.cells.min(axis=0))[0]).toarray()
    np.testing.assert_allclose(coarse, [[4, -4], [-4, 4]])  # two aggregates, four faces between them


def test_levels_shrink_and_keep_the_constant() -> None:
    domain = box_cubature((24, 20, 16), 1.0).domain
    found = hierarchy(laplacian(domain), domain.cells - domain.cells.min(axis=0), 1e-3, 200)
    sizes = [level.matrix.shape[0] for level in found.levels]
    assert sizes[0] == len(domain.cells) and len(found.mass) <= 200
    assert all(b < 0.2 * a for a, b in itertools.pairwise(sizes))
    # The mass of the constant is the number of voxels on every level.
    one = np.ones(len(found.mass))
    assert one @ found.mass @ one == pytest.approx(sizes[0], rel=5e-3)


def test_dust_is_gathered_all_the_same() -> None:
    """Loose single voxels: every function has zero energy, and the coarsest problem stays small."""
    dust = Domain(2 * np.argwhere(np.ones((12, 12, 12), bool)), np.zeros(3), 1.0)
    values, modes = lowest_modes(dust, 10, 1e-12)
    np.testing.assert_allclose(values, 0.0, atol=1e-9)
    np.testing.assert_allclose(modes.T @ modes, np.eye(10), atol=1e-9)


def test_the_same_every_time() -> None:
    first, second = (lowest_modes(comb(12, 30), 10, 1e-4)[1] for _ in range(2))
    np.testing.assert_array_equal(first, second)
