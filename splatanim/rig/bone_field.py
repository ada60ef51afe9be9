"""A rig's weights as smooth functions inside an object: what its deformation gradient and its Jacobian need."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.grid import GridField, interpolated, lattice_of
from splatanim.rig.transfer import transfer_weights
from splatanim.rig.weights import SkinWeights

_SWEEPS = 40  # of averaging: about six voxels, which rounds the kinks between cells of nearest points


def bone_field(
    domain: Domain, points: Float[np.ndarray, "n 3"], skin: SkinWeights, *, sweeps: int = _SWEEPS
) -> tuple[GridField, np.ndarray]:
    """The joints' weights as splines on an object's voxels, from weights of surface points (simulator units).

    Voxels take the inverse-distance mean of their nearest points, then averages of their neighbours again and again,
    those that hold surface points held to their own value by half: weights run smoothly through the inside, along the
    object and not across gaps. They sum to 1. Joints that move nothing are left out.

    Returns the field (one function a joint that is kept) and the kept joints' indices.
    """
    if len(points) != len(skin):
        raise InputError(f"bone_field: {len(points)} points but weights for {len(skin)}.")
    centres = domain.centres
    first = transfer_weights(centres, points, skin, most=skin.joint_count).dense()
    kept = np.flatnonzero(first.max(axis=0) > 1e-3)
    values: Float64[np.ndarray, "v j"] = first[:, kept]
    values = values / values.sum(axis=1, keepdims=True)
    average, covered = _averaging(domain), _covered(domain, points)
    start = values
    for _ in range(sweeps):
        smooth = average @ values
        values = np.where(covered[:, None], 0.5 * (start + smooth), smooth)
    return interpolated(values, domain, lattice_of(domain), "bones"), kept


def _averaging(domain: Domain):
    """The mean of each voxel and its neighbours, as a sparse matrix whose rows sum to 1."""
    from scipy import sparse

    from splatanim.field.multigrid import laplacian

    graph = laplacian(domain)
    degree = graph.diagonal()
    return sparse.diags(1.0 / (degree + 1.0)) @ (sparse.diags(degree + 1.0) - graph)


def _covered(domain: Domain, points: np.ndarray) -> np.ndarray:
    """Which voxels hold a point."""
    cells = np.floor((np.asarray(points, np.float64) - domain.origin) / domain.spacing).astype(np.int64)
    low = domain.cells.min(axis=0)
    shape = domain.cells.max(axis=0) - low + 1
    inside = ((cells >= low) & (cells < low + shape)).all(axis=1)
    held = np.zeros(shape, bool)
    held[tuple((cells[inside] - low).T)] = True
    return held[tuple((domain.cells - low).T)]


def depth_in(domain: Domain, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, " n"]:
    """How deep points lie in an object, 0 on its surface and 1 at its deepest, by the nearest voxel."""
    from scipy import ndimage
    from scipy.spatial import cKDTree

    low = domain.cells.min(axis=0)
    filled = np.zeros(domain.cells.max(axis=0) - low + 3, bool)
    index = tuple((domain.cells - low + 1).T)
    filled[index] = True
    depth = ndimage.distance_transform_edt(filled)[index] - 0.5
    return (depth / depth.max())[cKDTree(domain.centres).query(points)[1]]
