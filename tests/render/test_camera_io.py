from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from splatanim.errors import InputError, OutputError
from splatanim.render.camera import Camera, orbit
from splatanim.render.camera_io import read_cameras, write_camera_path
from tests.helpers import data_file

# OpenGL camera-to-world: at (1, 2, 3), turned by 90 degrees about y: it looks along -x, its right is -z.
POSE = [[0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 2.0], [-1.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0]]


def save(folder: Path, data: Any) -> Path:
    path = folder / "cameras.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def nerfstudio(**changes: Any) -> dict[str, Any]:
    entry = {"camera_to_world": list(np.ravel(POSE)), "fov": 60.0, "aspect": 2.0}
    return {"camera_path": [entry, entry], "render_width": 200, "render_height": 100, "fps": 24, **changes}


def project(camera: Camera, point: list[float]) -> list[float]:
    p = camera.T_camera_world[:3, :3] @ np.array(point) + camera.T_camera_world[:3, 3]
    q = camera.intrinsics @ p
    return [q[0] / q[2], q[1] / q[2], p[2]]


def test_nerfstudio_path_in_known_pixels(tmp_path: Path) -> None:
    path = read_cameras(save(tmp_path, nerfstudio()))
    assert len(path.cameras) == 2 and path.fps == 24 and path.note == ""
    camera = path.cameras[0]
    np.testing.assert_allclose(camera.position, [1, 2, 3], atol=1e-12)
    focal = 50 / np.tan(np.radians(30))
    assert camera.fx == pytest.approx(focal) and (camera.width, camera.height) == (200, 100)
    # 2 ahead (-x), 0.5 to the right (-z), 0.25 up
    np.testing.assert_allclose(
        project(camera, [-1, 2.25, 2.5]), [100 + focal * 0.25, 50 - focal * 0.125, 2.0], atol=1e-9
    )
    resized = read_cameras(save(tmp_path, nerfstudio()), size=(80, 60)).cameras[0]
    assert resized.fy == pytest.approx(30 / np.tan(np.radians(30))) and resized.cx == 40


def test_round_trip(tmp_path: Path) -> None:
    cameras = orbit((1, -2, 0.5), 3.0, (0, 0, 1), count=7, width=320, height=180, fov_y_degrees=47)
    write_camera_path(tmp_path / "path.json", cameras, 25.0)
    back = read_cameras(tmp_path / "path.json")
    assert back.fps == 25.0 and len(back.cameras) == 7
    for one, two in zip(cameras, back.cameras):
        np.testing.assert_allclose(one.T_camera_world, two.T_camera_world, atol=1e-12)
        np.testing.assert_allclose(one.intrinsics, two.intrinsics, rtol=1e-12)
        assert (one.width, one.height) == (two.width, two.height)
    raw = json.loads((tmp_path / "path.json").read_text())
    assert raw["seconds"] == pytest.approx(0.28) and raw["camera_path"][0]["fov"] == pytest.approx(47)
    assert len(raw["camera_path"][0]["camera_to_world"]) == 16


def test_transforms_json(tmp_path: Path) -> None:
    frame = {"file_path": "./train/r_0", "transform_matrix": POSE}
    data = {"camera_angle_x": 2 * np.arctan(0.5), "frames": [frame]}
    (tmp_path / "train").mkdir()
    Image.new("RGB", (40, 30)).save(tmp_path / "train" / "r_0.png")
    camera = read_cameras(save(tmp_path, data)).cameras[0]
    assert (camera.width, camera.height) == (40, 30) and camera.fx == camera.fy == pytest.approx(40)
    half = read_cameras(save(tmp_path, data), size=(20, 15)).cameras[0]
    assert half.fx == pytest.approx(20) and half.cx == 10 and half.height == 15
    own = {**frame, "fl_x": 50, "fl_y": 60, "cx": 19, "cy": 14, "w": 40, "h": 30}
    camera = read_cameras(save(tmp_path, {**data, "frames": [own], "k1": 0.1})).cameras[0]
    assert (camera.fx, camera.fy, camera.cx, camera.cy) == (50, 60, 19, 14)
    assert "k1" in read_cameras(save(tmp_path, {**data, "frames": [own], "k1": 0.1})).note
    (tmp_path / "train" / "r_0.png").unlink()
    assert read_cameras(save(tmp_path, data), size=(20, 15)).cameras[0].fx == pytest.approx(20)
    with pytest.raises(InputError, match=r"frames\[0\]: the image size is unknown.*Give a size"):
        read_cameras(save(tmp_path, data))


def test_a_fixed_camera_is_repeated_for_every_frame() -> None:
    path = read_cameras(data_file("multiview/fox/video.json"))
    assert len(path.cameras) == 24 and path.fps == pytest.approx(33.88, abs=0.01)
    assert (path.cameras[0].width, path.cameras[0].fx) == (256, pytest.approx(355.5555, abs=1e-3))
    assert len(read_cameras(data_file("multiview/fox/novel.json")).cameras) == 4
    assert len(read_cameras(data_file("multiview/fox/transforms_train.json")).cameras) == 32


def test_conventions_against_a_mask() -> None:
    """The fox's true joints project inside its silhouette, but for a pixel here and there."""
    where = data_file("multiview/fox/video.json")
    data = json.loads(where.read_text())
    camera = read_cameras(where).cameras[0]
    alpha = np.asarray(Image.open(where.parent / data["frames"][0]))[..., 3]
    joints = [project(camera, joint) for joint in data["joint_positions"][0][1:]]  # without the root, on the ground
    inside = [alpha[int(y), int(x)] > 0 for x, y, _ in joints if 0 <= x < 256 and 0 <= y < 256]
    assert np.mean(inside) > 0.8 and len(inside) == len(joints)


def changed(matrix: list[list[float]], row: int, column: int, value: Any) -> list[float]:
    flat = [list(r) for r in matrix]
    flat[row][column] = value
    return [v for r in flat for v in r]


def with_matrix(matrix: Any) -> dict[str, Any]:
    data = nerfstudio()
    data["camera_path"] = [data["camera_path"][0], {"camera_to_world": matrix, "fov": 60.0}]
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{not json", "is not JSON"),
        ("", "is not JSON"),
        ("[1, 2]", "top level is a list"),
        ({}, "no cameras in it.*found: nothing"),
        ({"points": [1]}, "no cameras in it.*found: points"),
        (nerfstudio(camera_path=[]), "camera_path is empty"),
        (nerfstudio(camera_path=[3]), r"camera_path\[0\] is not a JSON object"),
        (nerfstudio(camera_type="fisheye"), "camera_type is 'fisheye'"),
        (nerfstudio(fps=0), "fps is 0"),
        (nerfstudio(fps="fast"), "fps is 'fast'; a finite number"),
        (nerfstudio(render_width=None), "render_width is None"),
        (nerfstudio(render_width=0), "render_width is 0"),
        (nerfstudio(camera_path=[{"fov": 60}]), r"camera_path\[0\]: camera_to_world is missing"),
        (nerfstudio(camera_path=[{"camera_to_world": POSE}]), r"camera_path\[0\]: fov is missing"),
        (nerfstudio(camera_path=[{"camera_to_world": POSE, "fov": 200}]), "fov is 200.0"),
        (with_matrix([1.0] * 12), r"camera_path\[1\]: camera_to_world has shape \(12,\)"),
        (with_matrix(["a"] * 16), r"camera_path\[1\]: camera_to_world does not hold numbers"),
        (with_matrix([[1.0], [1.0, 2.0]]), "does not hold numbers in rows"),
        (with_matrix(changed(POSE, 0, 3, float("nan"))), r"camera_path\[1\]: camera_to_world has a NaN"),
        (with_matrix(changed(POSE, 0, 3, float("inf"))), "NaN or infinite"),
        (with_matrix(changed(POSE, 1, 1, 0.0)), "is singular"),
        (with_matrix(changed(POSE, 1, 1, -1.0)), "is mirrored"),
        (with_matrix(changed(POSE, 1, 1, 2.0)), "scale or a shear"),
        (with_matrix(changed(POSE, 3, 0, 2.0)), "Transposed"),
        ({"frames": [], "camera_angle_x": 1}, "frames is empty"),
        ({"frames": [{"file_path": "a"}], "w": 4, "h": 4}, r"frames\[0\]: transform_matrix is missing"),
        ({"frames": [{"transform_matrix": POSE}], "w": 4, "h": 4}, "neither fl_x nor camera_angle_x"),
        ({"frames": [{"transform_matrix": POSE}], "w": 4.5, "h": 4}, "w is 4.5; a whole number"),
        ({"frames": [{"transform_matrix": POSE}], "w": 4, "h": 4, "fl_x": -1}, "must be positive"),
        ({"transform_matrix": POSE, "frames": [], "w": 4, "h": 4, "fl_x": 5}, "frames is empty"),
    ],
)
def test_bad_files_are_refused_by_name_frame_and_key(tmp_path: Path, data: Any, message: str) -> None:
    path = save(tmp_path, data)
    with pytest.raises(InputError, match=message) as caught:
        read_cameras(path)
    assert str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_cameras(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="holds no COLMAP model"):
        read_cameras(tmp_path)
    with pytest.raises(OutputError, match="does not exist"):
        write_camera_path(tmp_path / "no" / "path.json", orbit((0, 0, 0), 1, (0, 1, 0), count=1, width=4, height=4), 24)


def test_what_the_layout_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "path.json"
    camera = Camera(np.eye(4), 10, 10, 5, 5, 10, 10)
    with pytest.raises(InputError, match="no camera"):
        write_camera_path(path, [], 24)
    with pytest.raises(InputError, match="camera 1 has size 20x10"):
        write_camera_path(path, [camera, Camera(np.eye(4), 10, 10, 10, 5, 20, 10)], 24)
    with pytest.raises(InputError, match="camera 1 has fx other than fy"):
        write_camera_path(path, [camera, Camera(np.eye(4), 10, 12, 5, 5, 10, 10)], 24)
    assert not list(tmp_path.iterdir())
