"""Points on surfaces: even subsets (farthest-point sampling) and samples of meshes that honour sharp edges."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int

from splatanim.data import Mesh
from splatanim.errors import InputError

_BLOCK = 1 << 16  # points at a time
SHARP_ANGLE = np.radians(30.0)  # dihedral angle from which an edge counts as sharp


def farthest_points(
    points: Float[np.ndarray, "n d"], count: int, *, start: np.ndarray | int | None = None
) -> np.ndarray:
    """Indices (k,) of ``min(count, n)`` points, each the farthest from those before it (Gonzalez 1985).

    ``start``: index or indices that are taken first; without it, the point farthest from the mean. Duplicate points
    are taken only once all distinct ones are. Ties go to the lowest index, so the result is deterministic.
    """
    n = len(points)
    count = min(count, n)
    if count == 0:
        return np.empty(0, np.int64)
    columns = np.ascontiguousarray(np.asarray(points, np.float64).T)
    if start is None:
        start = int(((columns - columns.mean(axis=1, keepdims=True)) ** 2).sum(axis=0).argmax())
    first = np.unique(np.atleast_1d(start).astype(np.int64))[:count]
    chosen = np.empty(count, np.int64)
    nearest = np.full(n, np.inf)
    candidate = 0
    for k in range(count):
        chosen[k] = first[k] if k < len(first) else candidate
        squared = (columns[0] - columns[0, chosen[k]]) ** 2
        for column in columns[1:]:
            squared += (column - column[chosen[k]]) ** 2
        np.minimum(nearest, squared, out=nearest)
        nearest[chosen[k]] = -1.0  # a chosen point is never taken again, not even among duplicates
        candidate = int(nearest.argmax())
    return chosen


def directions(up: tuple[float, float, float]) -> Float64[np.ndarray, "90 3"]:
    """Unit vectors all around: the 26 of a cube, plus and minus up, and 62 spread evenly (Fibonacci sphere)."""
    cube = np.array([(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if x or y or z], np.float64)
    k = np.arange(62) + 0.5
    height, angle = 1 - 2 * k / 62, k * np.pi * (3 - 5**0.5)
    ring = np.sqrt(1 - height**2)
    spread = np.stack([ring * np.cos(angle), ring * np.sin(angle), height], axis=1)
    every = np.concatenate([cube, [up, np.negative(up)], spread])
    return every / np.linalg.norm(every, axis=1, keepdims=True)


def support_extremes(points: Float[np.ndarray, "n 3"], up: tuple[float, float, float]) -> Int[np.ndarray, " k"]:
    """Indices of the points that lie farthest out in each of :func:`directions`: what a floor touches first."""
    ways = directions(up).T
    best, where = np.full(ways.shape[1], -np.inf), np.zeros(ways.shape[1], np.int64)
    for start in range(0, len(points), _BLOCK):
        reach = np.asarray(points[start : start + _BLOCK], np.float64) @ ways
        farthest = reach.argmax(axis=0)
        found = reach[farthest, np.arange(len(best))]
        where = np.where(found > best, start + farthest, where)
        best = np.maximum(best, found)
    return np.unique(where)


def sample_surface(
    mesh: Mesh, count: int, *, seed: int = 0, sharp_fraction: float = 0.25
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3"]]:
    """Points on a mesh with unit normals, ``(count, 3)`` each, in the mesh's coordinates.

    A share ``sharp_fraction`` lies on edges whose dihedral angle exceeds 30 degrees, uniform in length and with the
    mean of both normals; the rest is uniform in area. A mesh without such edges gets area samples only. (The
    sharp-edge sampling of Dora: Chen et al., "Dora: Sampling and Benchmarking for 3D Shape VAEs", CVPR 2025.)

    Raises :class:`InputError` when no triangle has an area.
    """
    rng = np.random.default_rng(seed)
    corners = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    doubled = np.linalg.norm(normals, axis=1)
    if not doubled.sum() > 0:
        raise InputError(
            f"Mesh: none of its {len(mesh.faces)} triangles has an area, so it has no surface to sample. "
            "Check that the file holds faces and not only points."
        )
    normals /= np.where(doubled > 0, doubled, 1)[:, None]
    edges, edge_normals = _sharp_edges(mesh, normals, doubled > 0)
    length = np.linalg.norm(edges[:, 1] - edges[:, 0], axis=1)
    on_edges = round(sharp_fraction * count) if length.sum() > 0 else 0

    face = rng.choice(len(doubled), count - on_edges, p=doubled / doubled.sum())
    root, along = np.sqrt(rng.random(count - on_edges)), rng.random(count - on_edges)
    barycentric = np.stack([1 - root, root * (1 - along), root * along], axis=1)
    points = np.einsum("nk,nkd->nd", barycentric, corners[face])
    if not on_edges:
        return points, normals[face]
    edge = rng.choice(len(length), on_edges, p=length / length.sum())
    along = rng.random((on_edges, 1))
    edge_points = edges[edge, 0] * (1 - along) + edges[edge, 1] * along
    return np.concatenate([points, edge_points]), np.concatenate([normals[face], edge_normals[edge]])


def _sharp_edges(mesh: Mesh, normals: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """End points (e, 2, 3) and mean unit normals (e, 3) of edges shared by two faces at more than 30 degrees."""
    faces = np.flatnonzero(valid)
    pairs = np.sort(mesh.faces[faces][:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2).astype(np.int64), axis=1)
    owner = np.repeat(faces, 3)
    key = pairs[:, 0] * len(mesh.vertices) + pairs[:, 1]
    order = np.argsort(key, kind="stable")
    key, owner, pairs = key[order], owner[order], pairs[order]
    same = np.flatnonzero(key[1:] == key[:-1])
    first, second = normals[owner[same]], normals[owner[same + 1]]
    sharp = (first * second).sum(axis=1) < np.cos(SHARP_ANGLE)
    mean = first[sharp] + second[sharp]
    size = np.linalg.norm(mean, axis=1, keepdims=True)
    mean = np.where(size > 1e-9, mean / np.where(size > 1e-9, size, 1), first[sharp])
    return mesh.vertices[pairs[same][sharp]], mean
