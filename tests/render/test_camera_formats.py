"""Cameras through every convention and back; and one point lands on one pixel by each tool's own formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at
from splatanim.render.camera_colmap import is_colmap, read_colmap, write_colmap
from splatanim.render.camera_formats import (
    from_colmap,
    from_gsplat,
    from_nerfstudio,
    from_pytorch3d,
    to_colmap,
    to_gsplat,
    to_nerfstudio,
    to_pytorch3d,
)
from splatanim.render.camera_io import read_cameras, write_transforms
from tests.helpers import random_rotation


def cameras(count: int = 6, seed: int = 0, sizes: bool = True) -> list[Camera]:
    """Random poses and lenses: fx other than fy, the principal point off the centre."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(count):
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = random_rotation(rng), rng.normal(size=3)
        width, height = ((64, 48), (31, 57))[k % 2 if sizes else 0]
        fx, fy = rng.uniform(30, 90, 2)
        out.append(
            Camera(pose, float(fx), float(fy), float(rng.uniform(20, 40)), float(rng.uniform(20, 30)), width, height)
        )
    return out


def points_before(camera: Camera, count: int = 20, seed: int = 1) -> np.ndarray:
    """World points in front of a camera."""
    rng = np.random.default_rng(seed)
    local = np.concatenate([rng.normal(size=(count, 2)), rng.uniform(0.5, 4, (count, 1))], axis=1)
    return (local - camera.T_camera_world[:3, 3]) @ camera.T_camera_world[:3, :3]


def pixels(camera: Camera, points: np.ndarray) -> np.ndarray:
    x, y, z = (points @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]).T
    return np.stack([camera.fx * x / z + camera.cx, camera.fy * y / z + camera.cy], axis=1)


def same(a: Camera, b: Camera, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(a.T_camera_world, b.T_camera_world, atol=atol)
    np.testing.assert_allclose([a.fx, a.fy, a.cx, a.cy], [b.fx, b.fy, b.cx, b.cy], atol=max(atol, 1e-10))
    assert (a.width, a.height) == (b.width, b.height)


@pytest.mark.parametrize("camera", cameras(), ids=lambda c: f"{c.width}x{c.height}")
def test_projected_pixels_agree_in_all_conventions(camera: Camera) -> None:
    points = points_before(camera)
    wanted = pixels(camera, points)

    (viewmat,), (K,) = to_gsplat([camera])  # gsplat: K (R x + t), divided by depth
    seen = (points @ viewmat[:3, :3].T + viewmat[:3, 3]) @ K.T
    np.testing.assert_allclose(seen[:, :2] / seen[:, 2:], wanted, atol=1e-9)

    (w, x, y, z), t, (fx, fy, cx, cy) = to_colmap(camera)  # COLMAP: its own formula for R from the quaternion
    R = np.array(
        [
            [1 - 2 * y * y - 2 * z * z, 2 * x * y - 2 * z * w, 2 * z * x + 2 * y * w],
            [2 * x * y + 2 * z * w, 1 - 2 * x * x - 2 * z * z, 2 * y * z - 2 * x * w],
            [2 * z * x - 2 * y * w, 2 * y * z + 2 * x * w, 1 - 2 * x * x - 2 * y * y],
        ]
    )
    u, v, depth = (points @ R.T + t).T
    np.testing.assert_allclose(np.stack([fx * u / depth + cx, fy * v / depth + cy], 1), wanted, atol=1e-9)

    c2w = to_nerfstudio(camera)  # nerfstudio: the ray through the pixel meets the point
    rays = (
        np.stack([(wanted[:, 0] - cx) / fx, -(wanted[:, 1] - cy) / fy, -np.ones(len(wanted))], axis=1) @ c2w[:3, :3].T
    )
    to_points = points - c2w[:3, 3]
    np.testing.assert_allclose(np.cross(rays, to_points), 0, atol=1e-9)
    assert (np.einsum("ni,ni->n", rays, to_points) > 0).all()

    p3d = to_pytorch3d([camera])  # PyTorch3D: row vectors, NDC over the shorter side, x left and y up
    local = points @ p3d.R[0] + p3d.T[0]
    ndc = p3d.focal_length[0] * local[:, :2] / local[:, 2:] + p3d.principal_point[0]
    height, width = p3d.image_size[0]
    screen = np.array([width, height]) / 2 - min(width, height) / 2 * ndc
    assert (local[:, 2] > 0).all()
    np.testing.assert_allclose(screen, wanted, atol=1e-9)


def test_every_convention_gives_the_camera_back(tmp_path: Path) -> None:
    for camera in cameras():
        lens = (camera.fx, camera.fy, camera.cx, camera.cy)
        q, t, pinhole = to_colmap(camera)
        same(from_colmap(q, t, pinhole, camera.width, camera.height), camera)
        same(from_nerfstudio(to_nerfstudio(camera), lens, camera.width, camera.height), camera)
        same(from_nerfstudio(to_nerfstudio(camera)[:3], lens, camera.width, camera.height), camera)
    for camera, back in zip(cameras(), from_pytorch3d(to_pytorch3d(cameras())), strict=True):
        same(back, camera)
    one_size = cameras(sizes=False)
    viewmats, Ks = to_gsplat(one_size)
    for camera, back in zip(
        one_size, from_gsplat(viewmats.astype(np.float32), Ks.astype(np.float32), 64, 48), strict=True
    ):
        same(back, camera, atol=1e-5)  # through float32


def test_transforms_json_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "transforms.json"
    write_transforms(path, cameras(), names=[f"images/{k}.png" for k in range(6)])
    for camera, back in zip(cameras(), read_cameras(path).cameras, strict=True):
        same(back, camera, atol=1e-10)
    with pytest.raises(InputError, match="2 names for 6 cameras"):
        write_transforms(path, cameras(), names=["a", "b"])
    with pytest.raises(InputError, match="no camera was given"):
        write_transforms(path, [])


def test_colmap_models_round_trip_and_are_read_as_camera_files(tmp_path: Path) -> None:
    model = tmp_path / "sparse"
    names = [f"b {k}.png" if k else "z.png" for k in range(6)]  # names with spaces; out of order
    write_colmap(model, cameras(), names)
    assert is_colmap(model) and not is_colmap(tmp_path)
    found, found_names, note = read_colmap(model)
    assert found_names == sorted(names) and note == ""
    for name, back in zip(found_names, found, strict=True):
        same(back, cameras()[names.index(name)])
    assert len(read_cameras(model).cameras) == 6
    repeated = [cameras()[0]] * 3
    write_colmap(model, repeated)
    assert len((model / "cameras.txt").read_text().splitlines()) == 1  # one lens


def test_colmap_itself_reads_and_writes_the_same(tmp_path: Path) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    write_colmap(tmp_path, cameras(), [f"{k}.png" for k in range(6)])
    model = pycolmap.Reconstruction(str(tmp_path))
    for image in model.images.values():
        ours = cameras()[int(image.name[0])]
        placed = image.cam_from_world
        np.testing.assert_allclose(
            (placed() if callable(placed) else placed).matrix(), ours.T_camera_world[:3], atol=1e-12
        )
        np.testing.assert_allclose(model.cameras[image.camera_id].params, [ours.fx, ours.fy, ours.cx, ours.cy])
    binary = tmp_path / "binary"
    binary.mkdir()
    model.write_binary(str(binary))
    for camera, back in zip(cameras(), read_colmap(binary)[0], strict=True):
        same(back, camera)


def test_other_lens_models_and_distortion(tmp_path: Path) -> None:
    (tmp_path / "images.txt").write_text(
        "# a comment\n1 1 0 0 0 0.5 0 2 7 a.png\n1.0 2.0 -1\n2 1 0 0 0 0 0 0 8 b.png\n\n"
    )
    (tmp_path / "cameras.txt").write_text("7 SIMPLE_RADIAL 64 48 50 32 24 0.1\n8 OPENCV 64 48 50 60 32 24 0 0 0 0\n")
    found, names, note = read_colmap(tmp_path)
    assert names == ["a.png", "b.png"] and "distortion" in note
    assert (found[0].fx, found[0].fy, found[1].fy) == (50, 50, 60)
    np.testing.assert_allclose(found[0].T_camera_world[:3, 3], [0.5, 0, 2])
    assert "distortion" in read_cameras(tmp_path).note


@pytest.mark.parametrize(
    ("images", "lenses", "said"),
    [
        ("1 1 0 0 0 0 0 0 9 a.png\n\n", "7 PINHOLE 64 48 50 50 32 24\n", "has camera 9"),
        ("1 1 0 0 0 0 0 0 7 a.png\n\n", "7 FISHEYE 64 48 50 50 32 24\n", "camera model FISHEYE"),
        ("1 1 0 0 0 0 0 0 7 a.png\n\n", "7 PINHOLE 64 48 50\n", "PINHOLE camera has the parameters"),
        ("1 1 0 0 x 0 0 0 7 a.png\n\n", "7 PINHOLE 64 48 50 50 32 24\n", "should be numbers"),
        ("1 1 0 0 nan 0 0 0 7 a.png\n\n", "7 PINHOLE 64 48 50 50 32 24\n", "not finite"),
        ("1 0 0 0 0 0 0 0 7 a.png\n\n", "7 PINHOLE 64 48 50 50 32 24\n", "image a.png"),
        ("1 1 0 0\n\n", "7 PINHOLE 64 48 50 50 32 24\n", "has 4 words"),
        ("# nothing\n", "7 PINHOLE 64 48 50 50 32 24\n", "no image of this model"),
    ],
)
def test_damaged_models_are_named(tmp_path: Path, images: str, lenses: str, said: str) -> None:
    (tmp_path / "images.txt").write_text(images)
    (tmp_path / "cameras.txt").write_text(lenses)
    with pytest.raises(InputError, match=said) as error:
        read_colmap(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_cut_binary_models_are_named(tmp_path: Path) -> None:
    (tmp_path / "cameras.bin").write_bytes((1).to_bytes(8, "little") + b"\x01\x00\x00\x00\x01\x00")
    (tmp_path / "images.bin").write_bytes((1).to_bytes(8, "little"))
    with pytest.raises(InputError, match="ends too early"):
        read_colmap(tmp_path)
    with pytest.raises(InputError, match="no COLMAP model"):
        read_colmap(tmp_path / "none")


def test_what_is_no_pinhole_is_refused() -> None:
    camera = look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=64, height=48)
    viewmats, Ks = to_gsplat([camera])
    skewed = Ks.copy()
    skewed[0, 0, 1] = 2.0
    with pytest.raises(InputError, match="skew"):
        from_gsplat(viewmats, skewed, 64, 48)
    with pytest.raises(InputError, match="1 viewmats but 2 Ks"):
        from_gsplat(viewmats, np.repeat(Ks, 2, axis=0), 64, 48)
    mirrored = viewmats.copy()
    mirrored[0, 0] *= -1
    with pytest.raises(InputError, match="not a rotation"):
        from_gsplat(mirrored, Ks, 64, 48)
    with pytest.raises(InputError, match="one image size"):
        to_gsplat(cameras())


def test_a_picture_through_gsplats_matrices_is_the_same(tmp_path: Path) -> None:
    from splatanim.render.cpu import CpuRasterizer
    from tests.helpers import random_splats

    camera = look_at((0.3, 0.2, 3), (0, 0, 0), (0, 1, 0), width=64, height=48)
    splats = random_splats(50)
    (back,) = from_pytorch3d(to_pytorch3d(from_gsplat(*to_gsplat([camera]), 64, 48)))
    images = [CpuRasterizer().render(splats, c).rgb for c in (camera, back)]
    np.testing.assert_allclose(*images, atol=1e-4)


def test_our_rotations_are_those_of_pytorch3d() -> None:
    transforms = pytest.importorskip("pytorch3d.transforms", reason="the pure-Python part of easypytorch3d is not here")
    import torch

    from splatanim.rotations import matrices_to_quaternions, quaternions_to_matrices

    rng = np.random.default_rng(4)
    q = rng.normal(size=(200, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True) * np.where(q[:, :1] < 0, -1, 1)
    theirs = transforms.quaternion_to_matrix(torch.from_numpy(q)).numpy()
    np.testing.assert_allclose(quaternions_to_matrices(q), theirs, atol=1e-12)
    back = transforms.standardize_quaternion(transforms.matrix_to_quaternion(torch.from_numpy(theirs))).numpy()
    np.testing.assert_allclose(matrices_to_quaternions(theirs), back, atol=1e-7)
    turned = transforms.quaternion_apply(torch.from_numpy(q), torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64))
    np.testing.assert_allclose(quaternions_to_matrices(q) @ [0.3, -0.2, 0.9], turned.numpy(), atol=1e-12)
