"""The mesh rasteriser against a brute force in float64, closed forms of coverage, light and transparency."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at
from splatanim.render.mesh import Light, Pattern, Surface, render_mesh, trace
from splatanim.rig.appearance import Appearance, Paint, decode_srgb, encode_srgb

FRONT = Camera(np.eye(4), 20.0, 20.0, 10.0, 10.0, 20, 20)  # at the origin, sees +z: 1 unit is 20 / z pixels


def quad(z: float, half: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """A square across the line of sight."""
    vertices = np.array([[-half, -half, z], [half, -half, z], [half, half, z], [-half, half, z]])
    return vertices, np.array([[0, 1, 2], [0, 2, 3]])


def brute_force(vertices: np.ndarray, faces: np.ndarray, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Nearest face and depth by solving each ray against each triangle."""
    seen = vertices @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    corners = seen[faces]
    face = np.full((camera.height, camera.width), -1)
    depth = np.full(face.shape, np.inf)
    for row in range(camera.height):
        for column in range(camera.width):
            ray = np.array([(column + 0.5 - camera.cx) / camera.fx, (row + 0.5 - camera.cy) / camera.fy, 1.0])
            for f, (a, b, c) in enumerate(corners):
                system = np.stack([b - a, c - a, -ray], axis=1)
                if abs(np.linalg.det(system)) < 1e-14:
                    continue
                u, v, z = np.linalg.solve(system, -a)
                if u >= 0 and v >= 0 and u + v <= 1 and camera.near < z < depth[row, column]:
                    face[row, column], depth[row, column] = f, z
    return face, depth


def test_visibility_is_that_of_a_brute_force_with_faces_through_and_behind_the_camera() -> None:
    rng = np.random.default_rng(3)
    vertices = rng.normal(size=(60, 3)) * [1.5, 1.5, 2.0] + [0, 0, 1.0]
    faces = rng.integers(0, 60, (50, 3))
    faces[7] = [4, 4, 9]  # no area
    camera = Camera(np.eye(4), 14.0, 17.0, 11.3, 8.2, 22, 18, near=0.05)
    behind = (vertices[faces][..., 2] < 0).any(axis=1)
    assert behind.sum() > 10
    face, depth = brute_force(vertices, faces, camera)
    hits = trace(vertices, faces, camera)
    np.testing.assert_array_equal(hits.face, face)
    np.testing.assert_allclose(hits.depth, depth, rtol=1e-9)
    assert (face >= 0).mean() > 0.5
    ok = face >= 0
    places = np.einsum("nk,nkd->nd", hits.barycentric[ok], vertices[faces[face[ok]]])
    rays = places[:, :2] / places[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy]
    rows, columns = np.nonzero(ok)
    np.testing.assert_allclose(rays, np.stack([columns, rows], axis=1) + 0.5, atol=1e-7)


def test_edges_through_pixel_centres_leave_no_gaps() -> None:
    """A sheet whose triangles meet at every pixel centre, turned in space."""
    camera = look_at((0.3, -0.2, -5.0), (0, 0, 0), (0, 1, 0), width=40, height=40)
    pixels = np.stack(np.meshgrid(np.arange(-1, 42), np.arange(-1, 42)), axis=-1).reshape(-1, 2) + 0.5
    rays = np.column_stack([(pixels - 20.0) / camera.fx, np.ones(len(pixels))])
    rays *= (4.0 + 0.7 * np.sin(np.arange(len(rays)) * 1.7))[:, None]
    world = (rays - camera.T_camera_world[:3, 3]) @ camera.T_camera_world[:3, :3]
    k = np.arange(42 * 43).reshape(42, 43)[:, :-1].ravel()
    faces = np.concatenate([np.stack([k, k + 1, k + 43], 1), np.stack([k + 1, k + 44, k + 43], 1)])
    assert (trace(world, faces, camera).face >= 0).all()


def test_colours_are_interpolated_in_space_not_in_the_picture() -> None:
    """A plane that runs away from the camera, its linear colour growing with z."""
    vertices = np.array([[-5.0, 1, 1], [5, 1, 1], [5, 1, 21], [-5, 1, 21]])
    shade = (vertices[:, 2] - 1) / 20
    looks = Appearance(colours=np.stack([shade, shade, shade, np.ones(4)], axis=1))
    image = render_mesh(Surface(vertices, np.array([[0, 1, 2], [0, 2, 3]]), looks), FRONT, samples=1)
    for row in range(12, 20):
        z = 20.0 / (row + 0.5 - 10.0)  # the ray meets y = 1 there
        expected = 255 * encode_srgb(np.array((z - 1) / 20)) if z <= 21 else None
        if expected is not None and z >= 1:
            assert abs(float(image.rgba[row, 10, 0]) - expected) <= 0.51
            assert image.depth[row, 10] == pytest.approx(z, rel=1e-6)


@pytest.mark.parametrize("samples", [1, 2, 3, 4])
def test_alpha_is_the_covered_share(samples: int) -> None:
    """A square of 8 by 8 pixels, its right edge moved by half a pixel."""
    vertices, faces = quad(2.0, 0.4)
    vertices[1:3, 0] += 0.05
    image = render_mesh(Surface(vertices, faces, Appearance((Paint(base=(1, 0, 0, 1)),))), FRONT, samples=samples)
    exact = image.rgba[10, :, 3]
    assert (exact[6:14] == 255).all() and not exact[:6].any() and not exact[15:].any()
    half = {1: 255, 2: 128, 3: 170, 4: 128}[samples]  # a sample on the edge belongs to the square
    assert exact[14] == half
    assert (image.rgba[image.rgba[..., 3] > 0][:, :3] == [255, 0, 0]).all()  # straight, not premultiplied
    assert not image.rgba[image.rgba[..., 3] == 0].any()
    assert (image.depth[6:14, 6:14] == 2.0).all() and image.depth[0, 0] == 0


def test_light_follows_lamberts_law_in_linear_values_on_both_sides() -> None:
    light = Light((0.0, 0.0, -1.0), sky=0.2, lamp=0.6)
    tilt = np.radians(35.0)
    turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    vertices, faces = quad(0.0)
    vertices = vertices @ turn.T + [0, 0, 30]
    looks = Appearance((Paint(base=(0.5, 0.5, 0.5, 1.0)),))
    expected = round(255 * float(encode_srgb(np.array(0.5 * (0.2 + 0.6 * np.cos(tilt))))))
    for order in (faces, faces[:, ::-1]):
        image = render_mesh(Surface(vertices, order, looks), FRONT, light=light)
        assert image.rgba[10, 10].tolist() == [expected] * 3 + [255]
    away = render_mesh(Surface(vertices, faces, looks), FRONT, light=dataclasses.replace(light, towards=(0, 0, 1)))
    assert away.rgba[10, 10, 0] == round(255 * float(encode_srgb(np.array(0.1))))
    unlit = Appearance((dataclasses.replace(looks.paints[0], unlit=True),))
    assert render_mesh(Surface(vertices, faces, unlit), FRONT, light=light).rgba[10, 10, 0] == 188
    assert render_mesh(Surface(vertices, faces, looks), FRONT).rgba[10, 10, 0] == 188


def test_smooth_normals_shade_smoothly_whatever_the_winding() -> None:
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions=2)
    camera = look_at((0, 0, 4), (0, 0, 0), (0, 1, 0), width=48, height=48)
    looks = Appearance((Paint(base=(0.8, 0.8, 0.8, 1.0)),))
    faces = np.asarray(ball.faces, np.int64)
    vertices = np.asarray(ball.vertices, np.float64)
    surface = Surface(vertices, faces, looks, vertices)
    light = Light((0.3, 0.5, 1.0), sky=0.1, lamp=0.8)
    image = render_mesh(surface, camera, light=light, samples=1)
    flipped = render_mesh(dataclasses.replace(surface, faces=faces[:, ::-1].copy()), camera, light=light, samples=1)
    np.testing.assert_array_equal(image.rgba, flipped.rgba)
    seen = image.depth > 0
    rows, columns = np.nonzero(seen)
    z = image.depth[seen].astype(float)
    x, y = (columns + 0.5 - 24) / camera.fx * z, (rows + 0.5 - 24) / camera.fy * z
    normals = np.stack([x, -y, 4 - z], axis=1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    brightness = light.on(normals)
    assert np.abs(decode_srgb(image.rgba[seen][:, 0] / 255) - 0.8 * brightness).max() < 0.04


def test_transparent_layers_are_composited_and_holes_looked_through() -> None:
    """Half a veil, a sheet with a hole punched by its texture, and a wall, in any order in the file."""
    veil, wall = quad(2.0)[0], quad(6.0)[0]
    hole = quad(4.0)[0]
    vertices = np.concatenate([wall, veil, hole])
    texture = np.full((1, 2, 4), 255, np.uint8)
    texture[0, 0, 3] = 0
    uv = np.concatenate([np.zeros((8, 2)), [[0.0, 0.5], [1, 0.5], [1, 0.5], [0, 0.5]]])
    paints = (
        Paint(base=(0.0, 1.0, 0.0, 1.0)),
        Paint(base=(1.0, 0.0, 0.0, 0.25), cutoff=0.0),
        Paint(base=(0.0, 0.0, 1.0, 1.0), texture=texture, wrap=("clamp", "clamp"), cutoff=0.5),
    )
    two = quad(0.0)[1]
    faces = np.concatenate([two, two + 4, two + 8])
    looks = Appearance(paints, np.array([0, 0, 1, 1, 2, 2]), uv)
    for samples in (2, 3):
        image = render_mesh(Surface(vertices, faces, looks), FRONT, samples=samples)
        assert image.rgba[10, 2].tolist() == [64, 191, 0, 255]
        assert image.rgba[10, 17].tolist() == [64, 0, 191, 255]
        assert image.depth[10, 2] == 6.0 and image.depth[10, 17] == 4.0
    alone = render_mesh(Surface(veil, two, Appearance(paints[1:2])), FRONT)
    assert alone.rgba[10, 10].tolist() == [255, 0, 0, 64] and alone.depth[10, 10] == 0


def test_depth_is_that_of_the_pixels_centre_for_any_number_of_samples() -> None:
    vertices, faces = np.array([[-3.0, -2, 2], [4, -1, 3], [0, 3, 7]]), np.array([[0, 1, 2]])
    expected = trace(vertices, faces, FRONT).depth
    expected = np.where(np.isfinite(expected), expected, 0)
    for samples in (1, 2, 3, 4, 5):
        image = render_mesh(Surface(vertices, faces, Appearance()), FRONT, samples=samples)
        np.testing.assert_allclose(image.depth, expected, rtol=1e-6)


def test_a_pattern_goes_with_the_surface() -> None:
    rng = np.random.default_rng(0)
    vertices, faces = quad(3.0, 1.2)
    pattern = Pattern(vertices, 9.0 * rng.normal(size=(8, 3)), rng.uniform(0, 6, 8))
    looks = Appearance((Paint(base=(0.2, 0.2, 0.2, 1.0)),))
    image = render_mesh(Surface(vertices, faces, looks, pattern=pattern), FRONT)
    assert image.rgba[5:15, 5:15, 0].std() > 5
    aside = vertices + np.array([0.6, 0, 0])  # four pixels
    moved = render_mesh(Surface(aside, faces, looks, pattern=pattern), FRONT)
    difference = moved.rgba[4:16, 8:18].astype(int) - image.rgba[4:16, 4:14]
    assert np.abs(difference).max() <= 1


def test_nothing_to_see_is_a_clear_picture() -> None:
    empty = Surface(np.zeros((0, 3)), np.empty((0, 3), np.int64), Appearance())
    image = render_mesh(empty, FRONT, light=Light())
    assert not image.rgba.any() and not image.depth.any()
    behind = render_mesh(Surface(*quad(-3.0), Appearance()), FRONT)
    assert not behind.rgba.any()


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="0 samples a pixel; at least 1 is needed"):
        render_mesh(Surface(*quad(2.0), Appearance()), FRONT, samples=0)
    with pytest.raises(InputError, match="must be finite and not zero"):
        Light((0.0, 0.0, 0.0))
    with pytest.raises(InputError, match="must not be negative"):
        Light(sky=-0.1)
