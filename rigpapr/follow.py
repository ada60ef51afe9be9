"""Points that follow a moving mesh: each is attached to its closest place on the surface at rest.

Where surfaces touch, a point stays with the one that it lies below. It follows the mean of the places around it on
that surface, nearer ones counting more, and keeps its offset from there, turned by the surface's rotation. So a point
deep in a limb follows both of its sides, and stays inside where a joint folds the limb up. Rotations are blended over
places and corners, so that neighbouring points turn alike where the surface bends, and offsets do not tear at the edges
between triangles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from splatanim.data import Mesh
from splatanim.errors import InputError

_SAMPLES_A_FACE = 6  # of the first search, for triangles of mean size; every triangle has at least one
_SPARSE = 512  # samples of a second search, which reaches the other sides of a limb
_CANDIDATES = 64  # samples of each whose triangles are tried exactly
_OUTSIDE = 4.0  # how much farther a place counts that the point does not lie straight below
_AROUND = 16  # places that a point follows at most
_NEAR = 16.0  # [median distances of points from the surface] along the surface within which these places lie
_SOFT = 0.2  # [the same] added to a place's distance, so that a point on the surface follows that place
_CHUNK = 2048  # points at a time: some 40 MB
_TABLE = 1 << 23  # entries of the distances along the surface held at a time: 64 MB


@dataclass(frozen=True)
class Attachment:
    """What N points follow, at rest: ``faces`` (N, M), the closest place's first; ``weights`` (N, M, 3) of their
    corners, summing to 1 over both; ``offset`` (N, 3) = point - weighted mean; ``distance`` (N,) to the closest place.
    """

    faces: Int64[np.ndarray, "n m"]
    weights: Float64[np.ndarray, "n m 3"]
    offset: Float64[np.ndarray, "n 3"]
    distance: Float64[np.ndarray, " n"]


def attach(points: Float[np.ndarray, "n 3"], mesh: Mesh, seed: int = 0) -> Attachment:
    """Attach points to the closest places on a mesh at rest, as seen from inside.

    Points fitted to pictures lie a little below the surface that they draw, so a place counts as farther by up to
    four times the less straight below it a point lies: where limbs touch, each point stays with the limb it is in. The
    triangles of the nearest surface samples are tried exactly; samples are dense where triangles are large. Of these a
    point follows those that lie near the closest place along the surface, by the inverse square of their distance.
    Raises InputError for a mesh without faces.
    """
    from scipy.spatial import cKDTree

    if not len(mesh.faces):
        raise InputError("attach: the mesh has no faces. Points need a surface to follow.")
    points = np.asarray(points, np.float64)
    corners = mesh.vertices[mesh.faces]
    frames, area = _triangle_frames(mesh.vertices, mesh.faces)
    rng = np.random.default_rng(seed)
    count = _SAMPLES_A_FACE * max(len(area), 2048)
    home = np.concatenate([np.arange(len(area)), rng.choice(len(area), count, p=area / area.sum())])
    samples = np.einsum("sk,skd->sd", rng.dirichlet(np.ones(3), len(home)), corners[home])
    tried = home[cKDTree(samples).query(points, min(_CANDIDATES, len(samples)))[1]]
    sparse = np.concatenate([np.arange(len(area)), rng.choice(len(home), _SPARSE)])
    tried = np.concatenate([tried, home[sparse][cKDTree(samples[sparse]).query(points, _CANDIDATES)[1]]], axis=1)
    parts = []
    for first in range(0, len(points), _CHUNK):
        part = slice(first, first + _CHUNK)
        parts.append(_choose(points[part], np.sort(tried[part], axis=1), corners, frames[:, :, 2]))
    faces, weights, cost, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
    depth = float(np.median(distance))
    size = float(np.ptp(mesh.vertices, axis=0).max())
    share = _connected(mesh, corners, faces, _NEAR * depth) / (cost + _SOFT * depth + 1e-9 * size) ** 2
    weights *= (share / share.sum(axis=1, keepdims=True))[..., None]
    middle = np.einsum("nmk,nmkd->nd", weights, corners[faces])
    return Attachment(faces, weights, points - middle, distance)


def _choose(
    points: np.ndarray, tried: np.ndarray, corners: np.ndarray, normals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The places of least cost among the triangles ``tried`` (n, k; sorted) of each point: faces, barycentric weights
    and costs, best first, and the first one's distance; a triangle tried twice costs infinity the second time."""
    weights, distance = closest_in_triangles(points, corners[tried])
    offset = points[:, None] - np.einsum("nkj,nkjd->nkd", weights, corners[tried])
    below = (-_dot(offset, normals[tried])).clip(0)
    cost = _OUTSIDE * distance - (_OUTSIDE - 1) * below
    cost[:, 1:][tried[:, 1:] == tried[:, :-1]] = np.inf
    rows, best = np.arange(len(points))[:, None], np.argsort(cost, axis=1, kind="stable")[:, :_AROUND]
    return tried[rows, best], weights[rows, best], cost[rows, best], distance[rows[:, 0], best[:, 0]]


def _connected(mesh: Mesh, corners: np.ndarray, faces: np.ndarray, reach: float) -> np.ndarray:
    """Which triangles of each row (n, m) lie within ``reach`` of its first one, along the surface."""
    from scipy.sparse.csgraph import dijkstra

    graph, near = _neighbours(mesh, corners), np.zeros(faces.shape, bool)
    step = max(1, min(_CHUNK, _TABLE // len(corners)))
    for first in range(0, len(faces), step):
        part = faces[first : first + step]
        starts, which = np.unique(part[:, 0], return_inverse=True)
        away = dijkstra(graph, directed=False, indices=starts, limit=reach)[which.reshape(-1)]
        near[first : first + step] = np.take_along_axis(away, part, axis=1) <= reach
    return near


def _neighbours(mesh: Mesh, corners: np.ndarray):
    """The graph (F, F) of triangles that share an edge, with the distances of their middles."""
    from scipy.sparse import csr_matrix

    faces = _shared_places(mesh)[mesh.faces]
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    owner = np.tile(np.arange(len(faces)), 3)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    same = (edges[order[1:]] == edges[order[:-1]]).all(axis=1)
    one, two = owner[order[1:][same]], owner[order[:-1][same]]
    middle = corners.mean(axis=1)
    length = np.linalg.norm(middle[one] - middle[two], axis=1) + np.finfo(np.float64).tiny  # zero is no edge
    return csr_matrix((length, (one, two)), shape=(len(faces), len(faces)))


def _shared_places(mesh: Mesh) -> np.ndarray:
    """(V,) which place a vertex lies at: meshes are cut where texture or shading has a seam."""
    size = float(np.ptp(mesh.vertices, axis=0).max())
    return np.unique(np.round(mesh.vertices / (1e-6 * size)), axis=0, return_inverse=True)[1].reshape(-1)


def closest_in_triangles(
    points: Float64[np.ndarray, "n 3"], corners: Float64[np.ndarray, "n k 3 3"]
) -> tuple[Float64[np.ndarray, "n k 3"], Float64[np.ndarray, "n k"]]:
    """Barycentric coordinates of the place in each of K triangles closest to each point, and its distance.

    The foot of the perpendicular where it falls inside, else the closest place on the three edges; triangles without
    area are their edges.
    """
    first, second, third = corners[:, :, 0], corners[:, :, 1], corners[:, :, 2]
    u, v, w = second - first, third - first, points[:, None] - first
    uu, uv, vv, uw, vw = (_dot(*pair) for pair in ((u, u), (u, v), (v, v), (u, w), (v, w)))
    area = uu * vv - uv * uv
    flat = area <= 1e-12 * uu * vv
    safe = np.where(flat, 1.0, area)
    b, c = (vv * uw - uv * vw) / safe, (uu * vw - uv * uw) / safe
    best = np.stack([1 - b - c, b, c], axis=-1)
    inside = (best >= 0).all(axis=-1) & ~flat
    squared = np.where(inside, _squared(points, best, corners), np.inf)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        edge = corners[:, :, j] - corners[:, :, i]
        length = np.maximum(_dot(edge, edge), np.finfo(np.float64).tiny)
        t = (_dot(points[:, None] - corners[:, :, i], edge) / length).clip(0, 1)
        place = np.zeros_like(best)
        place[:, :, i], place[:, :, j] = 1 - t, t
        distance = _squared(points, place, corners)
        nearer = distance < squared
        best = np.where(nearer[..., None], place, best)
        squared = np.where(nearer, distance, squared)
    return best, np.sqrt(squared)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=-1)


def _squared(points: np.ndarray, weights: np.ndarray, corners: np.ndarray) -> np.ndarray:
    apart = np.einsum("nkj,nkjd->nkd", weights, corners) - points[:, None]
    return _dot(apart, apart)


def carried(
    attachment: Attachment, mesh: Mesh, posed: Float[np.ndarray, "v 3"]
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3 3"]]:
    """The attached points where the mesh's vertices have moved to ``posed``: positions and rotations (N, 3, 3)."""
    from splatanim.rig.affine import polar_rotations

    corner = mesh.faces[attachment.faces]
    maps = vertex_maps(mesh, posed)
    rotations = polar_rotations(np.einsum("nmk,nmkij->nij", attachment.weights, maps[corner], optimize=True))
    places = np.einsum("nmk,nmkd->nd", attachment.weights, np.asarray(posed, np.float64)[corner], optimize=True)
    return places + (rotations @ attachment.offset[..., None])[..., 0], rotations


def vertex_maps(mesh: Mesh, posed: Float[np.ndarray, "v 3"]) -> Float64[np.ndarray, "v 3 3"]:
    """How the surface around each vertex has turned and stretched: the mean of its triangles' maps, by area at rest.

    A triangle's map takes its two edges and unit normal at rest to those in the pose. Vertices at the same place at
    rest share one map.
    """
    rest, area = _triangle_frames(mesh.vertices, mesh.faces)
    moved, _ = _triangle_frames(np.asarray(posed, np.float64), mesh.faces)
    usable = area > 1e-12 * area.max()
    faces, area = mesh.faces[usable], area[usable]
    maps = moved[usable] @ np.linalg.inv(rest[usable])
    shared = _shared_places(mesh)
    total, weight = np.zeros((shared.max() + 1, 3, 3)), np.zeros(shared.max() + 1)
    for k in range(3):
        np.add.at(total, shared[faces[:, k]], area[:, None, None] * maps)
        np.add.at(weight, shared[faces[:, k]], area)
    total[weight == 0] = np.eye(3)
    weight[weight == 0] = 1.0
    return (total / weight[:, None, None])[shared]


def _triangle_frames(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(F, 3, 3) with edges and unit normal as columns, and (F,) twice the areas."""
    one, two = (vertices[faces[:, k]] - vertices[faces[:, 0]] for k in (1, 2))
    normal = np.cross(one, two)
    size = np.linalg.norm(normal, axis=1)
    normal = normal / np.maximum(size, np.finfo(np.float64).tiny)[:, None]
    return np.stack([one, two, normal], axis=-1), size
