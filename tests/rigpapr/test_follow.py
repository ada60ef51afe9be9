"""Points that follow a moving mesh, against closed forms and a brute-force search."""

from __future__ import annotations

import numpy as np
import pytest

from rigpapr.follow import attach, carried, closest_in_triangles, vertex_maps
from splatanim.data import Mesh
from splatanim.errors import InputError
from tests.helpers import random_rotation


def sphere(subdivisions: int = 2) -> Mesh:
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions)
    return Mesh(np.asarray(ball.vertices, np.float64), np.asarray(ball.faces, np.int64))


def test_closest_places_match_a_dense_search() -> None:
    rng = np.random.default_rng(0)
    points, corners = rng.normal(size=(40, 3)), rng.normal(size=(40, 5, 3, 3))
    corners[0, 0, 2] = corners[0, 0, 1]  # no area: an edge
    corners[1, 1] = corners[1, 1, :1]  # a point
    weights, distance = closest_in_triangles(points, corners)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-12)
    places = np.einsum("nkj,nkjd->nkd", weights, corners)
    np.testing.assert_allclose(np.linalg.norm(places - points[:, None], axis=-1), distance, atol=1e-12)
    steps = np.linspace(0, 1, 81)
    grid = np.array([(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-12])
    for k in range(corners.shape[1]):
        tried = np.einsum("gj,njd->ngd", grid, corners[:, k])
        least = np.linalg.norm(tried - points[:, None], axis=-1).min(axis=1)
        assert (distance[:, k] <= least + 1e-12).all() and (least - distance[:, k] < 0.05).all()


def test_points_inside_a_body_attach_to_the_closest_triangle_of_all() -> None:
    rng = np.random.default_rng(1)
    mesh = sphere()
    points = rng.normal(size=(200, 3))
    points *= rng.uniform(0.5, 1.3, (200, 1)) / np.linalg.norm(points, axis=1, keepdims=True)
    attached = attach(points, mesh)
    corners = np.broadcast_to(mesh.vertices[mesh.faces], (len(points), len(mesh.faces), 3, 3))
    least = closest_in_triangles(points, corners)[1].min(axis=1)
    inside = np.linalg.norm(points, axis=1) < 0.94
    np.testing.assert_allclose(attached.distance[inside], least[inside], atol=1e-9)
    assert (attached.distance >= least - 1e-9).all() and (attached.distance - least).max() < 0.06


def test_where_bodies_touch_points_stay_with_the_one_they_are_in() -> None:
    """Two balls a hundredth apart: a point below the one's surface can be nearer to the other's."""
    one = sphere(3)
    mesh = Mesh(
        np.concatenate([one.vertices, one.vertices + np.array([2.01, 0, 0])]),
        np.concatenate([one.faces, one.faces + 642]),
    )
    points = np.array([[0.96, 0, 0], [1.05, 0, 0], [1.002, 0, 0], [1.004, 0.0, 0.0]])
    attached = attach(points, mesh)
    assert (attached.faces[:, 0] < len(one.faces)).tolist() == [True, False, True, True]
    followed = attached.weights.sum(-1) > 1e-12
    assert ((attached.faces < len(one.faces)) == (attached.faces[:, :1] < len(one.faces)))[followed].all()


def test_a_point_deep_in_a_limb_follows_both_sides_of_it() -> None:
    """In a bar that is pressed flat a point on the axis stays on it, and one near a side stays inside."""
    import trimesh

    bar = trimesh.creation.box((0.4, 0.4, 0.8)).subdivide()
    mesh = Mesh(np.asarray(bar.vertices, np.float64), np.asarray(bar.faces, np.int64))
    points = np.stack([np.full(41, 0.01), np.linspace(0, 0.18, 41), np.full(41, 0.02)], axis=1)
    attached = attach(points, mesh)
    np.testing.assert_allclose(attached.weights.sum((1, 2)), 1, atol=1e-12)
    moved, _ = carried(attached, mesh, mesh.vertices * [1.0, 0.25, 1.0])
    assert abs(moved[0, 1]) < 0.03 and np.abs(moved[:, 1]).max() < 0.05 and moved[-1, 1] > 0.02


def test_rigid_motion_and_stretching_are_followed_exactly() -> None:
    rng = np.random.default_rng(2)
    mesh, rotation = sphere(), random_rotation(rng)
    points = mesh.vertices[:60] * rng.uniform(0.8, 1.2, (60, 1))
    attached = attach(points, mesh)
    moved, turned = carried(attached, mesh, mesh.vertices @ rotation.T + [1.0, 2.0, 3.0])
    np.testing.assert_allclose(moved, points @ rotation.T + [1.0, 2.0, 3.0], atol=1e-9)
    np.testing.assert_allclose(turned, np.broadcast_to(rotation, turned.shape), atol=1e-9)
    # Uniform scaling turns nothing, and offsets keep their length.
    moved, turned = carried(attached, mesh, 2 * mesh.vertices)
    np.testing.assert_allclose(turned, np.broadcast_to(np.eye(3), turned.shape), atol=1e-9)
    np.testing.assert_allclose(moved, 2 * (points - attached.offset) + attached.offset, atol=1e-9)


def test_rotations_are_blended_across_a_fold_and_a_seam() -> None:
    """Two triangles hinged along y, their vertices doubled at the seam, one of them turned by 60 degrees."""
    mesh = Mesh(
        np.array([[0, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]], np.float64),
        np.array([[0, 1, 2], [4, 3, 5]], np.int64),
    )
    angle = np.pi / 3
    posed = mesh.vertices.copy()
    posed[5] = [np.cos(angle), 0, -np.sin(angle)]
    maps = vertex_maps(mesh, posed)
    np.testing.assert_allclose(maps[0], maps[3], atol=1e-12)
    _, turned = carried(attach(np.array([[-0.9, 0.05, 0], [0, 0.5, 0], [0.9, 0.05, 0.0]]), mesh), mesh, posed)
    turns = np.degrees(np.arccos((np.trace(turned, axis1=1, axis2=2) - 1) / 2))
    assert turns[0] < 5 and abs(turns[1] - 30) < 1 and turns[2] > 55


def test_degenerate_triangles_and_loose_vertices_do_no_harm() -> None:
    mesh = sphere(1)
    vertices = np.concatenate([mesh.vertices, [[5.0, 5, 5]]])
    faces = np.concatenate([mesh.faces, [[0, 0, 1]]])
    maps = vertex_maps(Mesh(vertices, faces), vertices + 1)
    np.testing.assert_allclose(maps, np.broadcast_to(np.eye(3), maps.shape), atol=1e-9)


def test_a_mesh_without_faces_is_refused() -> None:
    with pytest.raises(InputError, match="no faces"):
        attach(np.zeros((1, 3)), Mesh(np.zeros((3, 3)), np.empty((0, 3), np.int64)))
