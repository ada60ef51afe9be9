"""The steps of the auto-rigger against closed forms and brute force."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from scipy import sparse

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.rig.auto_curves import arclength, find_tips, laplacian, resampled, smoothed
from splatanim.rig.auto_grid import voxel_graph
from splatanim.rig.auto_joints import _split
from splatanim.rig.auto_rig import auto_rig
from splatanim.rig.auto_symmetry import find_mirror, paired_tips
from splatanim.rig.auto_weights import _solved, owning_samples
from tests.helpers import branching_domain, random_rotation
from tests.rig.auto_shapes import CREATURE, UNIT, capsule_domain, surface_points


def box(*sides: int) -> np.ndarray:
    return np.stack(np.meshgrid(*map(np.arange, sides), indexing="ij"), axis=-1).reshape(-1, 3)


def test_edges_against_brute_force() -> None:
    """Every pair of neighbours that a way over faces joins, with its length; nothing else."""
    rng = np.random.default_rng(0)
    cells = np.argwhere(rng.random((5, 6, 4)) < 0.75)
    graph = voxel_graph(Domain(cells, np.zeros(3), 0.5))
    filled = {tuple(c) for c in graph.cells}
    wanted = {}
    for i, a in enumerate(graph.cells):
        for j, b in enumerate(graph.cells[:i]):
            step = b - a
            if np.abs(step).max() > 1:
                continue
            axes = np.flatnonzero(step)
            ways = [
                all(
                    tuple(a + np.where(np.isin(np.arange(3), order[: k + 1]), step, 0)) in filled
                    for k in range(len(order))
                )
                for order in itertools.permutations(axes)
            ]
            if any(ways):
                wanted[frozenset((i, j))] = 0.5 * np.linalg.norm(step)
    found = {frozenset(edge): length for edge, length in zip(graph.edges.tolist(), graph.lengths)}
    assert found.keys() == wanted.keys() and len(graph.edges) == len(found)
    assert all(abs(found[edge] - wanted[edge]) < 1e-12 for edge in wanted)


def test_cells_that_touch_at_an_edge_are_no_neighbours() -> None:
    """A U of cells whose arms meet at an edge of the grid: the way from arm to arm is the long one."""
    cells = np.array([[0, 0, k] for k in range(8)] + [[0, 1, 0], [1, 1, 0]] + [[1, 1, k] for k in range(1, 8)])
    graph = voxel_graph(Domain(cells, np.zeros(3), 1.0))
    row = {tuple(c - graph.cells.min(axis=0)): k for k, c in enumerate(graph.cells)}
    assert graph.distances(row[0, 0, 7])[row[1, 1, 7]] > 14


def test_depth_of_a_slab() -> None:
    graph = voxel_graph(Domain(box(21, 21, 7), np.zeros(3), 0.1))
    middle = (graph.cells - graph.cells.min(axis=0) == [10, 10, 3]).all(axis=1)
    np.testing.assert_allclose(graph.depth[middle], 0.35)
    np.testing.assert_allclose(graph.depth.min(), 0.05)


def test_tips_stick_out_by_the_length_of_their_limbs() -> None:
    """A cross of bars: from its centre each arm sticks out by its own length, less what the hub takes."""
    arms = {0: 30, 1: 20, 2: 12}
    cells = {tuple(c) for axis, n in arms.items() for k in range(-n, n + 1) for c in [np.eye(3, dtype=int)[axis] * k]}
    graph = voxel_graph(Domain(np.array(sorted(cells)), np.zeros(3), 0.01))
    root = int(np.argmin(np.linalg.norm(graph.centres - 0.005, axis=1)))
    tips = find_tips(graph, graph.distances(root), least=0.05)
    assert len(tips.cells) == 6
    np.testing.assert_allclose(np.sort(tips.lengths), [0.12, 0.12, 0.2, 0.2, 0.3, 0.3], atol=0.011)
    assert len(find_tips(graph, graph.distances(root), least=0.15).cells) == 4


def test_smoothing_keeps_ends_and_straight_lines() -> None:
    rng = np.random.default_rng(0)
    line = np.linspace(0, 1, 40)[:, None] * [1.0, 2.0, -1.0]
    np.testing.assert_allclose(smoothed(line, 4.0), line, atol=1e-12)
    rough = line + 0.05 * rng.normal(size=line.shape)
    smooth = smoothed(rough, 4.0)
    np.testing.assert_allclose(smooth[[0, -1]], rough[[0, -1]])
    assert arclength(smooth)[-1] < 0.5 * arclength(rough)[-1]
    assert smoothed(rough[:2], 4.0) is rough[:2] or np.array_equal(smoothed(rough[:2], 4.0), rough[:2])


def test_resampling_is_even() -> None:
    points = np.array([[0.0, 0, 0], [1, 0, 0], [1, 3, 0]])
    even = resampled(points, 9)
    np.testing.assert_allclose(np.linalg.norm(np.diff(even, axis=0), axis=1), 0.5)


def test_joints_stand_at_bends() -> None:
    """A zigzag of three straight pieces of unequal length is split at its corners."""
    corners = np.array([[0, 0, 0], [0.35, 0, 0], [0.5, 0.25, 0], [0.9, 0.25, 0]], float)
    points = resampled(corners, 100)
    radii = np.full(100, 0.03)
    found = points[_split(points, radii, 3)]
    assert np.linalg.norm(found - corners[1:], axis=1).max() < 0.02
    straight = resampled(corners[:2], 61)
    np.testing.assert_allclose(
        straight[_split(straight, np.full(61, 0.1), 3)][:, 0], [0.35 / 3, 0.7 / 3, 0.35], atol=0.01
    )
    assert _split(straight, np.full(61, 0.1), 1) == [60] and _split(straight[:2], np.ones(2), 5) == [1]


def test_mirror_plane_is_found_however_it_lies() -> None:
    rng = np.random.default_rng(2)
    points = surface_points(CREATURE)
    points = np.concatenate([points, points * [-1, 1, 1]])
    turn, shift = random_rotation(rng), np.array([0.1, -0.3, 0.2])
    plane = find_mirror(points @ turn.T + shift)
    assert plane is not None and plane.error < 1e-3
    normal = turn[:, 0] * np.sign(turn[np.abs(turn[:, 0]).argmax(), 0])
    np.testing.assert_allclose(plane.normal, normal, atol=2e-3)
    assert abs(plane.offset - normal @ shift) < 2e-3
    some = rng.normal(size=(5, 3))
    np.testing.assert_allclose(plane.mirrored(plane.mirrored(some)), some, atol=1e-12)
    np.testing.assert_allclose(plane.side(plane.onto(some)), 0.0, atol=1e-12)


def test_no_plane_where_nothing_mirrors() -> None:
    lopsided = [CREATURE[0], CREATURE[1], CREATURE[3], ((0, 0.1, -0.1), (-0.4, 0.3, -0.3), 0.05)]
    assert find_mirror(surface_points(lopsided)) is None


def test_tips_pair_across_the_plane() -> None:
    plane = find_mirror(np.concatenate([surface_points(CREATURE), surface_points(CREATURE) * [-1, 1, 1]]))
    tips = np.array(
        [[0.3, 0, 0], [-0.31, 0.02, 0], [0.0, 0.5, 0], [0.4, -0.4, 0.3], [0.02, 0, -0.4], [-0.03, 0, -0.38]]
    )
    blunt, lengths = np.full(6, 0.01), np.ones(6)
    assert paired_tips(tips, blunt, lengths, plane).tolist() == [1, 0, 2, -1, 5, 4]
    assert paired_tips(tips, blunt, lengths, None).tolist() == [-1] * 6
    one = np.array([[0.08, 0, 0.4]])
    assert paired_tips(one, np.array([0.1]), np.ones(1), plane).tolist() == [0]  # a blunt end
    assert paired_tips(one, np.array([0.03]), np.ones(1), plane).tolist() == [-1]  # a leg beside the plane


def test_legs_in_mid_stride_are_left_and_right() -> None:
    """Feet 0.2 apart along the body are no mirror images, but pair where their legs are as long."""
    plane = find_mirror(np.concatenate([surface_points(CREATURE), surface_points(CREATURE) * [-1, 1, 1]]))
    tips = np.array([[0.06, -0.3, 0.3], [-0.06, -0.3, 0.1], [0.06, -0.3, -0.35], [-0.06, -0.3, -0.15]])
    blunt = np.zeros(4)
    assert paired_tips(tips, blunt, np.array([0.5, 0.52, 0.6, 0.58]), plane).tolist() == [1, 0, 3, 2]
    assert paired_tips(tips[:2], blunt[:2], np.array([0.5, 0.8]), plane).tolist() == [-1, -1]


def test_heat_against_a_direct_solution() -> None:
    graph = voxel_graph(branching_domain())
    rng = np.random.default_rng(0)
    heat = laplacian(graph, rng.uniform(0.0, 5.0, len(graph.edges)))
    assert abs(heat - heat.T).max() < 1e-12 and np.abs(heat.sum(axis=1)).max() < 1e-9
    start = np.eye(4)[rng.integers(0, 4, len(graph))]
    exact = sparse.linalg.spsolve((sparse.identity(len(graph)) + heat).tocsc(), start)
    assert np.abs(_solved(heat, start, 1e-8) - exact).max() < 1e-6
    loose = _solved(heat, start)
    assert np.abs(loose - exact).max() < 2e-3 and np.abs(loose.sum(axis=1) - 1.0).max() < 1e-2


def test_prongs_of_a_fork_share_nothing() -> None:
    """Two prongs closer together than they are thick, far apart inside the object."""
    fork = [((0, 0, -0.4), (0, 0, -0.1), 0.06), ((-0.06, 0, -0.1), (0.06, 0, -0.1), 0.05)]
    fork += [((s * 0.065, 0, -0.1), (s * 0.065, 0, 0.45), 0.045) for s in (1, -1)]
    rig = auto_rig(capsule_domain(fork, 1 / 80), UNIT)
    left, right = rig.weights(np.array([[0.025, 0, 0.3], [-0.025, 0, 0.3]])).dense()
    assert (left * right).sum() == 0.0
    sample = owning_samples(rig.graph, rig.tree)
    tips = rig.graph.centres[:, 2] > 0.1
    assert (np.sign(rig.graph.centres[tips, 0]) == np.sign(rig.tree.samples[sample[tips], 0])).all()


def test_surface_heat_agrees_with_volume_heat() -> None:
    pytest.importorskip("robust_laplacian")
    rig = auto_rig(capsule_domain(CREATURE), UNIT)
    points = surface_points(CREATURE, 4000)
    volume, surface = rig.weights(points), rig.weights(points, how="surface")
    np.testing.assert_allclose(surface.weights.sum(axis=1), 1.0)
    assert np.abs(volume.dense() - surface.dense()).sum(axis=1).mean() < 0.25
    few = rig.weights(points[:5], how="surface")
    np.testing.assert_allclose(few.dense(), rig.weights(points[:5]).dense(), atol=1e-9)
    doubled = rig.weights(np.concatenate([points, points[:10]]), how="surface").dense()
    np.testing.assert_allclose(doubled[-10:], doubled[:10])


def test_surface_heat_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robust_laplacian", None)
    rig = auto_rig(capsule_domain(CREATURE, 1 / 30), UNIT)
    with pytest.raises(InputError, match=r'pip install "splatanim\[rig\]"'):
        rig.weights(np.zeros((40, 3)), how="surface")
