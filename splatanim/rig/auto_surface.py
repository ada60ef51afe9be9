"""Skinning weights by heat on the surface alone: bones heat the points that they own, and the heat spreads over the
point cloud's Laplacian (the bone heat of Baran and Popovic 2007, on the Laplacian of Sharp and Crane 2020):

    (L + c M H) w = c M H w0,    H = diag(1 / r^2), r the radius of the bone that the point belongs to.

Against :mod:`splatanim.rig.auto_weights` nothing crosses the inside of the object, and points need no cells nearby.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from splatanim.errors import require
from splatanim.rig.auto_grid import VoxelGraph, nearest_cells
from splatanim.rig.auto_joints import JointTree
from splatanim.rig.auto_weights import MOST, SPREAD, cell_weights, owning_samples, weights_at
from splatanim.rig.weights import SkinWeights, sparse_weights

_FEWEST = 32  # distinct points; fewer have no Laplacian worth the name


def surface_weights(
    graph: VoxelGraph, tree: JointTree, points: Float[np.ndarray, "n 3"], *, most: int = MOST, spread: float = SPREAD
) -> SkinWeights:
    """Weights at points on the surface (simulator units). Needs the extra ``rig``.

    ``spread``: c = 1 / spread^2, so that heat reaches ``spread`` times the local radius. Fewer than 32 distinct points
    take the weights of the cells around them.
    """
    from scipy.sparse import diags
    from scipy.sparse.linalg import splu

    robust = require("robust_laplacian", extra="rig")
    points = np.asarray(points, np.float64)
    # Doubles (seams of textures) are one point of the surface.
    unit, back = np.unique(np.round(points, 7), axis=0, return_inverse=True)
    if len(unit) < _FEWEST:
        return weights_at(graph, cell_weights(graph, tree, spread=spread), points, most=most)
    laplacian, mass = robust.point_cloud_laplacian(unit)
    _, near = nearest_cells(graph, unit)
    sample = owning_samples(graph, tree)[near[:, 0]]
    start = np.zeros((len(unit), len(tree.parents)))
    start[np.arange(len(unit)), tree.owners[sample]] = 1.0
    heat = mass.diagonal() / (spread * np.maximum(tree.radii[sample], graph.spacing)) ** 2
    used = np.flatnonzero(start.any(axis=0))
    solved = splu((laplacian + diags(heat)).tocsc()).solve(heat[:, None] * start[:, used])
    dense = np.zeros_like(start)
    dense[:, used] = np.maximum(solved, 0.0)
    dense /= dense.sum(axis=1, keepdims=True)
    return sparse_weights(np.where(dense < 0.01, 0.0, dense)[back.ravel()], most)
