"""The inside of closed meshes on a voxel grid, by winding numbers along grid columns."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy import sparse

from splatanim.data import Mesh


def closed(mesh: Mesh) -> Mesh | None:
    """The mesh with coinciding vertices merged, every shell oriented outward; None when it is not closed.

    Closed means: each edge has two faces, wound consistently (trimesh's watertight test).
    """
    import trimesh

    solid = trimesh.Trimesh(mesh.vertices, mesh.faces, process=True, validate=False)
    if not len(solid.faces) or not (solid.is_watertight and solid.is_winding_consistent):
        return None
    vertices, faces = np.asarray(solid.vertices, np.float64), np.array(solid.faces, np.int64)
    ends = (faces[:, :2].T.ravel(), faces[:, 1:].T.ravel())  # two edges a face: all three corners are in one shell
    joined = sparse.coo_matrix((np.ones(2 * len(faces)), ends), (len(vertices),) * 2)
    _, shell = sparse.csgraph.connected_components(joined, directed=False)
    corners = vertices[faces] - vertices.mean(axis=0)
    signed = np.einsum("nd,nd->n", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))
    inverted = np.bincount(shell[faces[:, 0]], signed)[shell[faces[:, 0]]] < 0
    faces[inverted] = faces[inverted][:, ::-1]
    return Mesh(vertices, faces)


def inside_cells(
    mesh: Mesh, shape: tuple[int, ...], origin: Float64[np.ndarray, " 3"], spacing: float
) -> Bool[np.ndarray, "x y z"]:
    """The cells whose centre has a positive winding number, i.e. lies in the union of the mesh's closed shells.

    Rays run along the third axis through the centres of the columns; each crossing adds its sign to all cells above.
    """
    # Off the exact centre by a hair, so that a ray hardly ever meets an edge or a vertex.
    corners = (mesh.vertices[mesh.faces] - origin) / spacing - 0.5 + np.array([1.37e-5, 2.11e-5, 0])
    flat = corners[:, :, :2]
    low = np.maximum(np.ceil(flat.min(axis=1)), 0).astype(np.int64)
    high = np.minimum(np.floor(flat.max(axis=1)), np.array(shape[:2]) - 1).astype(np.int64)
    spans = np.maximum(high - low + 1, 0)
    face, column = _columns(low, spans)
    a, b, c = (flat[face, k] - column for k in range(3))
    weights = np.stack([_cross(b, c), _cross(c, a), _cross(a, b)], axis=1)
    hit = (weights > 0).all(axis=1) | (weights < 0).all(axis=1)
    face, column, weights = face[hit], column[hit], weights[hit]
    height = (weights * corners[face, :, 2]).sum(axis=1) / weights.sum(axis=1)
    level = np.clip(np.ceil(height), 0, shape[2] - 1).astype(np.int64)
    winding = np.zeros(shape, np.int32)
    np.add.at(winding, (column[:, 0], column[:, 1], level), -np.sign(weights[:, 0]).astype(np.int32))
    return winding.cumsum(axis=2) > 0


def _columns(low: Int[np.ndarray, "f 2"], spans: Int[np.ndarray, "f 2"]) -> tuple[np.ndarray, np.ndarray]:
    """All (face, column) pairs of faces whose bounding boxes start at ``low`` and span ``spans`` columns."""
    count = spans.prod(axis=1)
    face = np.repeat(np.arange(len(count)), count)
    k = np.arange(len(face)) - np.repeat(np.cumsum(count) - count, count)
    width = spans[face, 1]
    return face, low[face] + np.stack([k // width, k % width], axis=1)


def _cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
