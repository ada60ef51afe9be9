"""Seeded splats on the surfaces (or through the volume) of simple shapes, for the sampling tests."""

from __future__ import annotations

import numpy as np

from splatanim.data import Frame, Mesh, Splats

UNIT = Frame((0.0, 0.0, 0.0), 1.0, (0.0, 0.0, 1.0))


def flat_splats(points: np.ndarray, normals: np.ndarray, sigma: float, opacity: float = 0.95) -> Splats:
    """Round flat Gaussians of size ``sigma`` lying in the surface."""
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    # The shortest rotation that takes z to the normal.
    q = np.stack([1 + normals[:, 2], -normals[:, 1], normals[:, 0], np.zeros(len(points))], axis=1)
    q[normals[:, 2] < -0.999999] = [0, 1, 0, 0]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    scales = np.log(np.tile([sigma, sigma, 0.05 * sigma], (len(points), 1)))
    return _splats(points, q, scales, opacity)


def round_splats(points: np.ndarray, sigma: float, opacity: float = 0.9) -> Splats:
    q = np.tile([1.0, 0, 0, 0], (len(points), 1))
    return _splats(points, q, np.full((len(points), 3), np.log(sigma)), opacity)


def _splats(points: np.ndarray, q: np.ndarray, log_scales: np.ndarray, opacity: float) -> Splats:
    n = len(points)
    logit = np.full(n, np.log(opacity / (1 - opacity)), np.float32)
    as32 = np.float32
    return Splats(points.astype(as32), q.astype(as32), log_scales.astype(as32), logit, np.zeros((n, 1, 3), as32))


def box_surface(size: tuple[float, float, float], n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points and normals, uniform in area, on a box about the origin."""
    rng = np.random.default_rng(seed)
    half = np.array(size) / 2
    area = np.array([size[1] * size[2], size[0] * size[2], size[0] * size[1]])
    axis = rng.choice(3, n, p=area / area.sum())
    side = rng.choice([-1.0, 1.0], n)
    points = rng.uniform(-1, 1, (n, 3)) * half
    points[np.arange(n), axis] = side * half[axis]
    normals = np.zeros((n, 3))
    normals[np.arange(n), axis] = side
    return points, normals


def sphere_surface(radius: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    normals = np.random.default_rng(seed).normal(size=(n, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return radius * normals, normals


def torus_surface(major: float, minor: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    u = rng.uniform(0, 2 * np.pi, 4 * n)
    v = rng.uniform(0, 2 * np.pi, 4 * n)
    keep = rng.random(4 * n) < (major + minor * np.cos(v)) / (major + minor)
    u, v = u[keep][:n], v[keep][:n]
    normals = np.stack([np.cos(u) * np.cos(v), np.sin(u) * np.cos(v), np.sin(v)], axis=1)
    ring = np.stack([np.cos(u), np.sin(u), np.zeros_like(u)], axis=1) * major
    return ring + minor * normals, normals


def box_mesh(size: tuple[float, float, float], centre: tuple[float, float, float] = (0, 0, 0)) -> Mesh:
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * np.array(size) / 2 + centre
    faces = [(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1)]
    faces += [(2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3)]
    return Mesh(corners.astype(np.float64), np.array(faces))


def join(*meshes: Mesh) -> Mesh:
    offsets = np.cumsum([0] + [len(m.vertices) for m in meshes[:-1]])
    faces = [m.faces + offset for m, offset in zip(meshes, offsets)]
    return Mesh(np.concatenate([m.vertices for m in meshes]), np.concatenate(faces))


def ball_mesh(radius: float, rings: int = 24) -> Mesh:
    """A closed UV sphere."""
    theta = np.linspace(0, np.pi, rings + 1)[1:-1]
    phi = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    t, p = np.meshgrid(theta, phi, indexing="ij")
    body = np.stack([np.sin(t) * np.cos(p), np.sin(t) * np.sin(p), np.cos(t)], axis=-1).reshape(-1, 3)
    vertices = radius * np.concatenate([[[0, 0, 1.0]], body, [[0, 0, -1.0]]])
    m, last = len(phi), len(vertices) - 1
    faces = [(0, 1 + k, 1 + (k + 1) % m) for k in range(m)]
    for i in range(len(theta) - 1):
        for k in range(m):
            a, b = 1 + i * m + k, 1 + i * m + (k + 1) % m
            faces += [(a, a + m, b + m), (a, b + m, b)]
    foot = 1 + (len(theta) - 1) * m
    faces += [(last, foot + (k + 1) % m, foot + k) for k in range(m)]
    return Mesh(vertices, np.array(faces))
