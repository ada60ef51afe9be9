"""Skinning weights for a skeleton inside a voxel graph: every cell to its bone, then spread by heat.

A cell belongs to the bone sample s with the least geodesic distance less the bone's radius there, so that thick parts
keep what is theirs where a thin limb joins. The indicator functions w0 of the joints then diffuse inside the object,

    (I + a^2 L_r) w = w0,    L_r the Laplacian with conductance r^2 (r the radius of the bone nearby),

over a share ``a`` of the local radius: joints blend over a length that suits the thickness there, and limbs that lie
close together but are far apart inside the object share nothing. Rows of w are non-negative and sum to 1.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int64
from scipy import sparse
from scipy.sparse import csgraph

from splatanim.rig.auto_curves import laplacian
from splatanim.rig.auto_grid import VoxelGraph, nearest_cells
from splatanim.rig.auto_joints import JointTree
from splatanim.rig.weights import SkinWeights, sparse_weights

SPREAD = 0.4  # of the local radius
MOST = 4
_FAINT = 0.01  # smaller weights are dropped


def owning_samples(graph: VoxelGraph, tree: JointTree) -> Int64[np.ndarray, " v"]:
    """The sample of the skeleton that each cell belongs to."""
    n, s = len(graph), len(tree.samples)
    _, at = nearest_cells(graph, tree.samples)
    start = tree.radii.max() - tree.radii + 1e-9
    i, j = graph.edges.T
    rows = np.concatenate([i, j, n + np.arange(s)])
    columns = np.concatenate([j, i, at[:, 0]])
    values = np.concatenate([graph.lengths, graph.lengths, start])
    ways = sparse.csr_matrix((values, (rows, columns)), (n + s, n + s))
    _, _, source = csgraph.dijkstra(
        ways, directed=True, indices=n + np.arange(s), return_predecessors=True, min_only=True
    )
    return (source[:n] - n).astype(np.int64)


def cell_weights(graph: VoxelGraph, tree: JointTree, *, spread: float = SPREAD) -> Float64[np.ndarray, "v j"]:
    """Weights of all cells, one column a joint."""
    sample = owning_samples(graph, tree)
    joints = len(tree.parents)
    start = np.zeros((len(graph), joints))
    start[np.arange(len(graph)), tree.owners[sample]] = 1.0
    radius = np.maximum(tree.radii[sample], graph.spacing)
    pace = 0.5 * (radius[graph.edges[:, 0]] + radius[graph.edges[:, 1]])
    straight = graph.lengths < 1.01 * graph.spacing
    heat = laplacian(graph, np.where(straight, (spread * pace / graph.spacing) ** 2, 0.0))
    used = np.flatnonzero(start.any(axis=0))
    out = start.copy()
    out[:, used] = _solved(heat, start[:, used])
    out = np.maximum(out, 0.0)
    return out / out.sum(axis=1, keepdims=True)


def _solved(heat: sparse.csr_matrix, start: np.ndarray, tolerance: float = 1e-4, most: int = 200) -> np.ndarray:
    """(I + heat) w = start for all columns at once, by conjugate gradients with the diagonal as preconditioner."""
    system = sparse.identity(heat.shape[0], format="csr") + heat
    inverse = 1.0 / system.diagonal()[:, None]
    w = start.copy()
    residual = start - system @ w
    z = inverse * residual
    direction = z.copy()
    rho = (residual * z).sum(axis=0)
    goal = tolerance * np.sqrt((start**2).sum(axis=0)) + 1e-12
    for _ in range(most):
        if (np.sqrt((residual**2).sum(axis=0)) <= goal).all():
            break
        image = system @ direction
        step = rho / np.maximum((direction * image).sum(axis=0), 1e-300)
        w += step * direction
        residual -= step * image
        z = inverse * residual
        new = (residual * z).sum(axis=0)
        direction = z + (new / np.maximum(rho, 1e-300)) * direction
        rho = new
    return w


def weights_at(
    graph: VoxelGraph, cells: Float64[np.ndarray, "v j"], points: Float[np.ndarray, "n 3"], *, most: int = MOST
) -> SkinWeights:
    """Weights at points on or near the object (simulator units), from the four nearest cells by inverse distance."""
    distance, near = nearest_cells(graph, points, 4)
    share = 1.0 / np.maximum(distance, 0.05 * graph.spacing)
    share /= share.sum(axis=1, keepdims=True)
    dense = np.einsum("nk,nkj->nj", share, cells[near])
    dense = np.where(dense < _FAINT, 0.0, dense)
    return sparse_weights(dense, most)
