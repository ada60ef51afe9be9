"""Curve skeletons of voxel graphs: tips of limbs, and centrelines from them to the middle of the body.

Tips are maxima of the geodesic distance D from the body's centre. The sets {D >= d}, for falling d, grow components
at the maxima; where two of them meet, the one with the lower maximum ends, and what it rose above that level, its
persistence, is how far the limb sticks out. Centrelines are cheapest paths to the centre where a step costs its length
over the squared depth below the surface, so that they keep to the middle of whatever they run through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy import ndimage, sparse
from scipy.sparse import csgraph

from splatanim.rig.auto_grid import VoxelGraph


@dataclass(frozen=True)
class Tips:
    """``cells`` (t,): cells at the ends of limbs; ``lengths`` (t,): how far each sticks out; ``radii``: the largest
    depth in the limb."""

    cells: Int64[np.ndarray, " t"]
    lengths: Float64[np.ndarray, " t"]
    radii: Float64[np.ndarray, " t"]


def centre_cell(graph: VoxelGraph) -> int:
    """The root's cell: near the centroid and deep inside.

    Half of the largest depth is as good as all of it nearly, or the root of a figure with a large head would be there.
    """
    middle = graph.centres.mean(axis=0)
    away = np.linalg.norm(graph.centres - middle, axis=1)
    depth = graph.depth / graph.depth.max()
    return int((np.minimum(depth, 0.5) + 0.2 * depth - 1.5 * away).argmax())


def find_tips(graph: VoxelGraph, distance: Float64[np.ndarray, " v"], *, least: float = 0.04) -> Tips:
    """Maxima of ``distance`` that stick out by at least ``least``, and by 1.6 times the limb's radius.

    For parts about as thick as the body, such as heads, once their radius is enough.
    """
    level = np.minimum(distance[graph.edges[:, 0]], distance[graph.edges[:, 1]])
    # The order in which components meet is that of a spanning tree over edges by falling level.
    top = float(distance.max())
    tree = csgraph.minimum_spanning_tree(graph.matrix(1.0 + top - level)).tocoo()
    order = np.argsort(tree.data, kind="stable")
    rows, columns = tree.row[order].tolist(), tree.col[order].tolist()
    levels = (1.0 + top - tree.data[order]).tolist()
    parent = list(range(len(graph)))
    peak, deep = distance.tolist(), graph.depth.tolist()
    summit = list(range(len(graph)))
    thickest = float(graph.depth.max())
    found = []

    def find(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for i, j, at in zip(rows, columns, levels):
        a, b = find(i), find(j)
        if peak[a] < peak[b]:
            a, b = b, a
        rise = peak[b] - at
        if rise >= least and rise > (1.0 if deep[b] > 0.5 * thickest else 1.6) * deep[b]:
            found.append((summit[b], rise, deep[b]))
        parent[b] = a
        deep[a] = max(deep[a], deep[b])
    last = find(0)
    found.append((summit[last], peak[last], deep[last]))
    cells, lengths, radii = (np.array(column) for column in zip(*found))
    return Tips(cells.astype(np.int64), lengths, radii)


def medial_tree(graph: VoxelGraph, root: int) -> Int64[np.ndarray, " v"]:
    """For every cell the next one on its cheapest path to the root (-9999 at the root)."""
    pace = graph.depth + 0.5 * graph.spacing
    cost = graph.lengths / (0.5 * (pace[graph.edges[:, 0]] + pace[graph.edges[:, 1]])) ** 2
    _, towards = csgraph.dijkstra(graph.matrix(cost), directed=False, indices=root, return_predecessors=True)
    return towards.astype(np.int64)


def path_to_root(towards: Int64[np.ndarray, " v"], cell: int) -> Int64[np.ndarray, " m"]:
    """The cells from the root to ``cell``."""
    path = [cell]
    while towards[path[-1]] >= 0:
        path.append(int(towards[path[-1]]))
    return np.array(path[::-1], np.int64)


def smoothed(points: Float64[np.ndarray, "m 3"], window: float) -> Float64[np.ndarray, "m 3"]:
    """A polyline without the staircase of its grid: a Gaussian over ``window`` samples, ends kept in place."""
    if len(points) < 3:
        return points
    # Reflecting through the ends (2 p_0 - p_k) keeps them fixed.
    return np.stack([_odd_filter(column, window) for column in points.T], axis=1)


def _odd_filter(values: np.ndarray, window: float) -> np.ndarray:
    n = min(len(values) - 1, int(4 * window) + 1)
    before = 2 * values[0] - values[n:0:-1]
    after = 2 * values[-1] - values[-2 : -n - 2 : -1]
    smooth = ndimage.gaussian_filter1d(np.concatenate([before, values, after]), window, mode="nearest")
    return smooth[n : n + len(values)]


def arclength(points: Float64[np.ndarray, "m 3"]) -> Float64[np.ndarray, " m"]:
    """Length along a polyline up to each point."""
    return np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])


def resampled(points: Float64[np.ndarray, "m d"], count: int) -> Float64[np.ndarray, "c d"]:
    """``count`` rows evenly along the polyline of the first three columns."""
    along = arclength(points[:, :3])
    wanted = np.linspace(0.0, along[-1], count)
    return np.stack([np.interp(wanted, along, column) for column in points.T], axis=1)


def laplacian(graph: VoxelGraph, conductance: Float64[np.ndarray, " e"]) -> sparse.csr_matrix:
    """The positive semi-definite graph Laplacian for a conductance an edge."""
    weights = graph.matrix(conductance)
    return (sparse.diags(np.asarray(weights.sum(axis=1)).ravel()) - weights).tocsr()
