"""Shells of a mesh are what its faces connect, whatever order each face names its corners in."""

from __future__ import annotations

import numpy as np

from splatanim.data import Mesh
from splatanim.sampling.inside import closed


def torus(around: int = 24, across: int = 12, inverted: bool = False) -> Mesh:
    """A torus whose faces all name a corner pair along the ring first: those pairs alone join circles of latitude."""
    u, v = np.meshgrid(np.arange(around), np.arange(across), indexing="ij")
    phi, theta = 2 * np.pi * u / around, 2 * np.pi * v / across
    ring = 1.0 + 0.4 * np.cos(theta)
    vertices = np.stack([ring * np.cos(phi), ring * np.sin(phi), 0.4 * np.sin(theta)], axis=-1).reshape(-1, 3)

    def at(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return (i % around) * across + j % across

    a, b, c, d = at(u, v), at(u + 1, v), at(u + 1, v + 1), at(u, v + 1)
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([c, d, a], -1).reshape(-1, 3)])
    return Mesh(vertices, faces[:, ::-1] if inverted else faces)


def volume(mesh: Mesh) -> float:
    corners = mesh.vertices[mesh.faces]
    return float(np.einsum("nd,nd->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))) / 6


def test_one_shell_is_turned_as_a_whole() -> None:
    """The inner side of a ring faces its middle; taken by itself it would be turned inside out."""
    wanted = volume(torus())
    assert wanted > 2.5  # 2 pi^2 R r^2 = 3.16, less what the facets cut off
    for inverted in (False, True):
        found = closed(torus(inverted=inverted))
        assert found is not None
        np.testing.assert_allclose(volume(found), wanted, rtol=1e-9)
