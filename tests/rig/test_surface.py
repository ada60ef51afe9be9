"""Colours of surfaces as viewers show them, and the disks that stand for a mesh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from splatanim.errors import InputError
from splatanim.rig.appearance import Appearance, Paint, decode_srgb, encode_srgb, sample_texture
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.mesh_files import read_mesh
from splatanim.rig.points_model import points_of_splats
from splatanim.rig.surface_splats import even_points, rigged_splats, splats_of_mesh, weight_sources
from splatanim.rotations import SH_C0, quaternions_to_matrices
from tests.helpers import data_file, random_splats
from tests.rig.rigs import bar

QUAD = np.array([[0.0, 0, 0], [2, 0, 0], [2, 0, 1], [0, 0, 1]])
FACES = np.array([[0, 2, 1], [0, 3, 2]])  # facing +y
IMAGE = np.array([[[255, 0, 0, 255], [0, 0, 255, 255]], [[0, 255, 0, 255], [255, 255, 255, 255]]], np.uint8)


def display(splats) -> np.ndarray:
    return 0.5 + SH_C0 * splats.sh[:, 0]


def test_srgb_is_the_standard_curve() -> None:
    np.testing.assert_allclose(decode_srgb(np.array([0.0, 0.04045, 0.5, 1.0])), [0, 0.0031308, 0.21404, 1], atol=1e-5)
    values = np.linspace(0, 1, 50)
    np.testing.assert_allclose(encode_srgb(decode_srgb(values)), values, atol=1e-6)


def test_textures_are_bilinear_in_linear_light_and_wrap() -> None:
    middle = sample_texture(IMAGE, np.array([[0.25, 0.25], [0.75, 0.75], [0.5, 0.25]]))
    np.testing.assert_allclose(middle[:2], [[1, 0, 0, 1], [1, 1, 1, 1]], atol=1e-12)
    np.testing.assert_allclose(middle[2], [0.5, 0, 0.5, 1], atol=1e-12)
    outside = np.array([[1.25, 0.25], [-0.25, 0.25], [1.75, 0.25]])
    first = {mode: sample_texture(IMAGE, outside, (mode, "repeat"))[:, 0] for mode in ("repeat", "mirror", "clamp")}
    np.testing.assert_allclose(first["repeat"], [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(first["mirror"], [0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(first["clamp"], [0, 1, 0], atol=1e-12)


def test_colour_is_factor_times_texture_times_vertex_colour() -> None:
    paint = Paint(base=(0.5, 1.0, 0.25, 1.0), texture=IMAGE)
    colours = np.tile([1.0, 0.5, 1.0, 1.0], (4, 1))
    uv = np.full((4, 2), 0.75)  # white
    looks = Appearance((paint,), np.zeros(2, np.int64), uv, colours)
    got = looks.sample(FACES, np.array([1]), np.array([[0.2, 0.3, 0.5]]))
    np.testing.assert_allclose(got[0], [*encode_srgb(np.array([0.5, 0.5, 0.25])), 1.0], atol=1e-12)


@pytest.mark.parametrize(("cutoff", "alpha"), [(None, 1.0), (0.5, 0.0), (0.2, 1.0), (0.0, 0.3)])
def test_alpha_is_opaque_masked_or_blended(cutoff: float | None, alpha: float) -> None:
    looks = Appearance((Paint(base=(1, 1, 1, 0.3), cutoff=cutoff),), np.zeros(2, np.int64))
    assert np.isclose(looks.sample(FACES, np.array([0]), np.ones((1, 3)) / 3)[0, 3], alpha)
    if alpha == 0:
        with pytest.raises(InputError, match="the whole mesh is transparent"):
            splats_of_mesh(QUAD, FACES, looks, count=50)


def test_even_points_are_apart_and_leave_no_gaps() -> None:
    places = even_points(QUAD, FACES, 2000)
    assert abs(len(places.face) - 2000) < 200
    points = np.einsum("nk,nkd->nd", places.barycentric, QUAD[FACES[places.face]])
    nearest = cKDTree(points).query(points, k=2)[0][:, 1]
    assert nearest.min() >= places.spacing
    grid = np.stack(np.meshgrid(np.linspace(0, 2, 90), [0.0], np.linspace(0, 1, 45)), -1).reshape(-1, 3)
    assert cKDTree(points).query(grid)[0].max() < 1.6 * places.spacing
    with pytest.raises(InputError, match="none of 1 triangles has an area"):
        even_points(QUAD, np.array([[0, 0, 1]]), 10)


def test_disks_lie_in_the_surface_and_are_the_same_for_the_same_seed() -> None:
    splats, places = splats_of_mesh(QUAD, FACES, Appearance(), count=500, up=None)
    normals = quaternions_to_matrices(splats.quaternions)[:, :, 2]
    np.testing.assert_allclose(normals, np.tile([0, 1.0, 0], (len(splats), 1)), atol=1e-6)
    assert splats.means[:, 1].max() == 0 and (splats.log_scales[:, 2] < splats.log_scales[:, 0] - 1).all()
    np.testing.assert_allclose(display(splats), 1.0, atol=1e-6)
    again = splats_of_mesh(QUAD, FACES, Appearance(), count=500, up=None)[0]
    np.testing.assert_array_equal(again.means, splats.means)
    assert len(places.face) == len(splats)


def test_light_falls_from_above_except_on_unlit_materials() -> None:
    both = np.concatenate([FACES, FACES[:, ::-1]])
    lit = splats_of_mesh(QUAD, both, Appearance((Paint(base=(0.5, 0.5, 0.5, 1)),)), count=400)[0]
    up = quaternions_to_matrices(lit.quaternions)[:, 1, 2] > 0
    brightness = display(lit)[:, 0]
    assert brightness[up].min() > 1.15 * brightness[~up].max()
    flat = splats_of_mesh(QUAD, both, Appearance((Paint(base=(0.5, 0.5, 0.5, 1), unlit=True),)), count=400)[0]
    np.testing.assert_allclose(display(flat), encode_srgb(np.array(0.5)), atol=1e-6)


def test_far_away_meshes_keep_their_digits() -> None:
    splats = splats_of_mesh(QUAD + np.array([5e6, 0, 0]), FACES, Appearance(), count=100)[0]
    assert np.abs(splats.means).max() < 2 and abs(splats.offset[0] - 5e6) < 3


def test_rigged_splats_carry_weights_of_their_place(tmp_path: Path) -> None:
    """On the bar, weights of the second joint rise with height: 0 at the foot, 1/2 at y = 1, 1 at y = 2."""
    model = read_gltf(bar().write(tmp_path / "a.glb"))
    rigged = rigged_splats(model, count=300)
    np.testing.assert_allclose(rigged.skin.dense()[:, 1], rigged.splats.means[:, 1] / 2, atol=1e-6)
    points, skin = weight_sources(model, 100)
    np.testing.assert_allclose(skin.dense()[:, 1], points[:, 1] / 2, atol=1e-6)


def test_a_real_texture_gives_the_colours_of_the_image() -> None:
    """The fox's splats: every colour is one that the image has nearby, and both of its main colours appear."""
    fox = read_gltf(data_file("rigged/fox_textured.glb"))
    splats, _ = splats_of_mesh(fox.vertices, fox.faces, fox.appearance, count=3000, up=None)
    image = fox.appearance.paints[0].texture
    assert image is not None
    seen = display(splats)
    distance = cKDTree(np.unique(image[..., :3].reshape(-1, 3), axis=0) / 255.0).query(seen)[0]
    assert np.quantile(distance, 0.95) < 0.05
    orange = (seen[:, 0] > 0.7) & (seen[:, 2] < 0.4)
    assert 0.3 < orange.mean() < 0.9


def test_splats_as_points_keep_places_colours_and_opacity(tmp_path: Path) -> None:
    splats = random_splats(50, degree=0).replace(offset=(10.0, 0.0, 0.0))
    model = points_of_splats(splats)
    write_glb(tmp_path / "points.glb", model)
    again = read_gltf(tmp_path / "points.glb")
    assert not len(again.faces) and again.appearance.colours is not None
    np.testing.assert_allclose(again.vertices, splats.means + np.array([10, 0, 0]), atol=1e-5)
    shown = np.clip(0.5 + SH_C0 * splats.sh[:, 0], 0, 1)
    np.testing.assert_allclose(encode_srgb(again.appearance.colours[:, :3]), shown, atol=2e-4)
    np.testing.assert_allclose(again.appearance.colours[:, 3], splats.opacities, atol=1e-4)


def test_other_mesh_files_with_their_colours(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    Image.fromarray(IMAGE).save(tmp_path / "a.png")
    corners = "".join(f"v {x} {y} {z}\n" for x, y, z in QUAD)
    (tmp_path / "a.obj").write_text(f"mtllib a.mtl\n{corners}vt 0.25 0.75\nusemtl m\nf 1/1 3/1 2/1\nf 1/1 4/1 3/1\n")
    model = read_mesh(tmp_path / "a.obj")
    colour = model.appearance.sample(model.faces, np.array([0]), np.ones((1, 3)) / 3)
    np.testing.assert_allclose(colour[0, :3], [1, 0, 0], atol=1e-6)  # the image's top left
    rows = "\n".join(f"{x} {y} {z} 255 128 0" for x, y, z in QUAD)
    properties = "".join(
        f"property {t} {n}\n" for t, n in zip(["float"] * 3 + ["uchar"] * 3, ["x", "y", "z", "red", "green", "blue"])
    )
    (tmp_path / "a.ply").write_text(
        f"ply\nformat ascii 1.0\nelement vertex 4\n{properties}element face 2\n"
        f"property list uchar int vertex_indices\nend_header\n{rows}\n3 0 2 1\n3 0 3 2\n"
    )
    model = read_mesh(tmp_path / "a.ply")
    colour = model.appearance.sample(model.faces, np.array([0]), np.ones((1, 3)) / 3)
    np.testing.assert_allclose(colour[0, :3], [1, 128 / 255, 0], atol=1e-6)
    (tmp_path / "b.obj").write_text(corners)
    with pytest.raises(InputError, match=r"b.obj: (has no faces|cannot be read)"):
        read_mesh(tmp_path / "b.obj")
