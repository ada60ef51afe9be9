"""The viewer's parts that need neither an engine nor a browser: packing, camera paths, outputs, addresses."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from splatanim.data import Frame
from splatanim.errors import InputError, OutputError
from splatanim.render.camera import look_at
from splatanim.render.camera_io import read_cameras
from splatanim.rotations import quaternions_to_matrices
from viewers.camera_path import CameraKeys, Keyframe, browser_pose, interpolated, to_file, to_viewer
from viewers.moving import Cloud
from viewers.outputs import OutputFolder
from viewers.packing import Packer
from viewers.stage import facing


def random_cloud(count: int, size: float, seed: int = 0) -> Cloud:
    rng = np.random.default_rng(seed)
    spread = rng.normal(size=(count, 3, 3)) * np.exp(rng.uniform(np.log(1e-3 * size), np.log(size), (count, 1, 1)))
    return Cloud(
        rng.normal(size=(count, 3)).astype(np.float32),
        (spread @ spread.transpose(0, 2, 1)).astype(np.float32),
        rng.uniform(0, 1, (count, 3)).astype(np.float32),
        rng.uniform(0, 1, count).astype(np.float32),
    )


def unpacked(words: np.ndarray, unit: float) -> Cloud:
    """What the browser makes of the words: the inverse by the published layout."""
    upper = np.ascontiguousarray(words[:, 4:7]).view(np.float16).astype(np.float64) / unit**2
    covariances = upper[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3)
    rgba = np.ascontiguousarray(words[:, 7:]).view(np.uint8) / 255.0
    means = np.ascontiguousarray(words[:, :3]).view(np.float32) / unit
    return Cloud(means, covariances.astype(np.float32), rgba[:, :3], rgba[:, 3])


@pytest.mark.parametrize("size", [1e-3, 0.05, 30.0])
def test_packed_splats_keep_their_shapes_over_a_thousandfold_range_of_sizes(size: float) -> None:
    cloud = random_cloud(500, size)
    packer = Packer(cloud)
    back = unpacked(packer.pack(cloud), packer.unit)
    np.testing.assert_allclose(back.means, cloud.means, atol=1e-6)
    scale = np.trace(cloud.covariances, axis1=1, axis2=2)[:, None, None]
    assert float(np.abs((back.covariances - cloud.covariances) / scale).max()) < 1e-3  # eleven bits
    np.testing.assert_allclose(back.rgbs, cloud.rgbs, atol=0.5 / 255 + 1e-6)
    np.testing.assert_allclose(back.opacities, cloud.opacities, atol=0.5 / 255 + 1e-6)


def test_packing_takes_new_colours_and_survives_poison() -> None:
    cloud = random_cloud(4, 0.1)
    packer = Packer(cloud)
    before = packer.pack(cloud).copy()
    recoloured = Cloud(cloud.means, cloud.covariances, cloud.rgbs[::-1].copy(), cloud.opacities)
    after = packer.pack(recoloured).copy()
    np.testing.assert_array_equal(before[:, :7], after[:, :7])
    assert (before[:, 7] != after[:, 7]).any()
    wild = cloud.covariances.copy()
    wild[0] = 1e12
    with np.errstate(all="raise"):
        words = packer.pack(Cloud(cloud.means, wild, cloud.rgbs, cloud.opacities))
    assert np.isfinite(unpacked(words, packer.unit).covariances).all()


def test_a_cloud_of_points_without_extent_packs() -> None:
    cloud = random_cloud(3, 0.1)
    flat = Cloud(cloud.means, np.zeros_like(cloud.covariances), cloud.rgbs, cloud.opacities)
    assert Packer(flat).unit == 1.0
    assert Packer(flat).pack(flat).shape == (3, 8)


def keyframe(eye: tuple[float, float, float], fov: float = 0.8) -> Keyframe:
    wxyz, position, _, _ = browser_pose(look_at(eye, (0, 0, 0), (0, 1, 0), width=4, height=3))
    return Keyframe(position, np.asarray(wxyz, np.float64), fov)


def test_a_browser_pose_and_a_camera_are_each_others_inverse() -> None:
    camera = look_at((1.0, 2.0, 3.0), (0.1, 0.2, 0.0), (0, 1, 0), width=640, height=480, fov_y_degrees=50.0)
    wxyz, position, fov, aspect = browser_pose(camera)
    again = Keyframe(position, np.asarray(wxyz, np.float64), fov).camera(640, 480)
    np.testing.assert_allclose(again.T_camera_world, camera.T_camera_world, atol=1e-12)
    assert again.fy == pytest.approx(camera.fy) and aspect == pytest.approx(4 / 3)


def test_cameras_go_to_file_coordinates_and_back_and_see_the_same() -> None:
    frame = Frame((10.0, -4.0, 2.0), 0.25, (0.0, 1.0, 0.0))
    camera = look_at((1.0, 2.0, 3.0), (0, 0, 0), (0, 1, 0), width=64, height=48)
    points = np.random.default_rng(0).normal(size=(20, 3))

    def seen(c, x):
        local = x @ c.T_camera_world[:3, :3].T + c.T_camera_world[:3, 3]
        return local[:, :2] / local[:, 2:]

    there = to_file(camera, frame)
    np.testing.assert_allclose(seen(there, frame.to_file(points)), seen(camera, points), atol=1e-12)
    back = to_viewer(there, frame)
    np.testing.assert_allclose(back.T_camera_world, camera.T_camera_world, atol=1e-12)
    assert there.near == pytest.approx(4 * camera.near) and back.near == pytest.approx(camera.near)


def test_a_path_passes_its_keyframes_at_even_times() -> None:
    keys = [keyframe((1, 1, 2)), keyframe((2, 1, 0), 0.6), keyframe((0.5, 2, -2), 1.0)]
    path = interpolated(keys, 9)
    for k, key in zip((0, 4, 8), keys, strict=True):
        np.testing.assert_allclose(path[k].position, key.position, atol=1e-12)
        assert path[k].fov == pytest.approx(key.fov)
        ours, theirs = quaternions_to_matrices(np.stack([path[k].wxyz, key.wxyz]))
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    fovs = [key.fov for key in path]
    assert min(fovs) >= 0.6 - 1e-12 and max(fovs) <= 1.0 + 1e-12  # the cubic does not overshoot
    assert len(interpolated(keys[:1], 5)) == 5


def test_the_written_camera_path_is_nerfstudios_in_file_coordinates(tmp_path) -> None:
    frame = Frame((1.0, 2.0, 3.0), 0.5, (0.0, 1.0, 0.0))
    keys = CameraKeys()
    with pytest.raises(InputError, match="No camera keyframe is set"):
        keys.write(tmp_path / "none.json", 1.0, 10.0, (96, 72), frame)
    keys.add(keyframe((1, 1, 2)))
    keys.add(keyframe((-1, 1, 2)))
    words = keys.write(tmp_path / "path.json", 2.0, 10.0, (96, 72), frame)
    assert "20 cameras through 2 keyframes" in words
    read = read_cameras(tmp_path / "path.json")
    assert len(read.cameras) == 20 and read.fps == 10.0
    np.testing.assert_allclose(read.cameras[0].position, frame.to_file(np.array([[1.0, 1, 2]]))[0], atol=1e-9)
    assert (read.cameras[0].width, read.cameras[0].height) == (96, 72)


def test_output_names_count_up_and_the_folder_is_made_late(tmp_path) -> None:
    folder = OutputFolder(tmp_path / "view")
    assert not folder.path.exists()
    first = folder.new("still", ".png")
    first.write_bytes(b"")
    (tmp_path / "view" / "still_001").mkdir()
    assert first.name == "still_000.png" and folder.new("still", ".png").name == "still_002.png"
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="cannot be made"):
        OutputFolder(tmp_path / "file").new("still")


@pytest.mark.parametrize("normal", [(0, 0, 1), (0, 0, -1), (0, 1, 0), (0.3, -0.5, 0.2)])
def test_the_grid_faces_the_normal(normal) -> None:
    turned = quaternions_to_matrices(facing(np.array(normal, float))[None])[0] @ [0, 0, 1]
    np.testing.assert_allclose(turned, np.array(normal) / np.linalg.norm(normal), atol=1e-12)


def test_a_port_in_use_is_said_with_one_that_is_free() -> None:
    from viewers.server import check_address

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"--port {port}: is in use on 127.0.0.1.*take another: --port \d+"):
            check_address("127.0.0.1", port)
    check_address("127.0.0.1", 0)


def test_hosts_and_ports_that_do_not_exist_are_said() -> None:
    from viewers.server import check_address

    with pytest.raises(InputError, match="between 0 and 65535"):
        check_address("127.0.0.1", 70000)
    with pytest.raises(InputError, match=r"--host 203.0.113.7: cannot listen .* an address of this machine"):
        check_address("203.0.113.7", 8080)


def test_opening_to_the_network_is_said() -> None:
    from viewers.server import address_lines

    assert "this machine alone" in address_lines("127.0.0.1", 8080)
    assert "open to everybody" in address_lines("0.0.0.0", 8080)
