"""Cameras from and to JSON files: nerfstudio camera paths, NeRF ``transforms.json``, and fixed-camera clips.

All of them store camera-to-world matrices with OpenGL axes; they become world-to-camera with OpenCV axes here.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.render.camera import Camera, focal_from_fov

_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])  # OpenGL axes <-> OpenCV axes
_IMAGE_SUFFIXES = ("", ".png", ".jpg", ".jpeg")
_DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")


@dataclass(frozen=True)
class CameraPath:
    """Cameras in order, one per frame; ``fps`` where the file says it; ``note``: what was ignored, or empty."""

    cameras: list[Camera]
    fps: float | None = None
    note: str = ""


def read_cameras(path: str | os.PathLike[str], *, size: tuple[int, int] | None = None) -> CameraPath:
    """Read cameras from a JSON file, whose layout is told by its keys, or from the folder of a COLMAP model.

    * ``camera_path``: nerfstudio (``camera_to_world``, vertical ``fov`` in degrees, ``render_width``, ``fps``);
    * ``frames`` or ``cameras`` with a ``transform_matrix`` each: NeRF-synthetic and nerfstudio ``transforms.json``
      (``camera_angle_x`` [rad] or ``fl_x``, ``fl_y``, ``cx``, ``cy``; top level or per frame);
    * one ``transform_matrix`` at the top: a fixed camera, repeated for every entry of ``frames``.

    ``size`` (width, height) overrides the file's, lenses scaled along; without it and without ``w`` and ``h`` the
    images themselves are asked.

    Raises InputError, naming file, frame and key, for anything missing, odd or not finite.
    """
    path = Path(path)
    if path.is_dir():
        return _read_colmap(path, size)
    data = _load(path)
    if "camera_path" in data:
        return _read_nerfstudio(path, data, size)
    if isinstance(data.get("transform_matrix"), list):
        count = len(data["frames"]) if isinstance(data.get("frames"), list) else 1
        if count == 0:
            raise InputError(f"{path}: frames is empty; a camera path needs at least one frame.")
        camera = _read_frame(path, "the camera", data, {}, size)
        return CameraPath([camera] * count, _fps(path, data), _note(data))
    for key in ("frames", "cameras"):
        entries = data.get(key)
        if isinstance(entries, list):
            if not entries:
                raise InputError(f"{path}: {key} is empty; a camera path needs at least one frame.")
            cameras = [_read_frame(path, f"{key}[{k}]", entry, data, size) for k, entry in enumerate(entries)]
            return CameraPath(cameras, _fps(path, data), _note(data))
    raise InputError(
        f"{path}: no cameras in it: none of the keys camera_path, frames, cameras, transform_matrix is there "
        f"(found: {', '.join(sorted(data)) or 'nothing'}). Is it a camera file?"
    )


def write_camera_path(path: str | os.PathLike[str], cameras: list[Camera], fps: float) -> None:
    """Write nerfstudio's ``camera_path.json``, whole or not at all.

    Raises InputError for no camera, and for what the layout cannot hold: differing image sizes, a principal point off
    the centre, fx other than fy. Raises OutputError where the file cannot be written.
    """
    if not cameras:
        raise InputError(f"{path}: no camera was given.")
    width, height = cameras[0].width, cameras[0].height
    entries = []
    for k, camera in enumerate(cameras):
        if (camera.width, camera.height) != (width, height):
            raise InputError(
                f"{path}: camera {k} has size {camera.width}x{camera.height}, the first {width}x{height}; "
                "a nerfstudio camera path has one size."
            )
        if not np.allclose([camera.cx, camera.cy, camera.fx], [width / 2, height / 2, camera.fy], rtol=1e-6):
            raise InputError(
                f"{path}: camera {k} has fx other than fy, or its principal point off the image's centre; "
                "a nerfstudio camera path cannot say that."
            )
        camera_to_world = np.linalg.inv(camera.T_camera_world) @ _FLIP
        fov = 2 * np.degrees(np.arctan(height / (2 * camera.fy)))
        entries.append(
            {"camera_to_world": camera_to_world.ravel().tolist(), "fov": float(fov), "aspect": width / height}
        )
    data = {
        "camera_type": "perspective",
        "render_width": width,
        "render_height": height,
        "fps": fps,
        "seconds": len(cameras) / fps,
        "camera_path": entries,
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1), encoding="utf-8")


def write_transforms(path: str | os.PathLike[str], cameras: list[Camera], *, names: list[str] | None = None) -> None:
    """Write a nerfstudio ``transforms.json`` with every lens in its frame, whole or not at all.

    ``names`` are the images' (``file_path``; ``images/frame_0000.png`` ... by default). Raises InputError for no camera
    or names that do not fit, OutputError where the file cannot be written.
    """
    if not cameras:
        raise InputError(f"{path}: no camera was given.")
    names = [f"images/frame_{k:04d}.png" for k in range(len(cameras))] if names is None else names
    if len(names) != len(cameras):
        raise InputError(f"{path}: {len(names)} names for {len(cameras)} cameras; each image has one of its own.")
    frames = []
    for camera, name in zip(cameras, names, strict=True):
        lens = {"fl_x": camera.fx, "fl_y": camera.fy, "cx": camera.cx, "cy": camera.cy}
        matrix = (np.linalg.inv(camera.T_camera_world) @ _FLIP).tolist()
        frames.append({"file_path": name, "w": camera.width, "h": camera.height, **lens, "transform_matrix": matrix})
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps({"camera_model": "PINHOLE", "frames": frames}, indent=1), encoding="utf-8")


def _read_colmap(path: Path, size: tuple[int, int] | None) -> CameraPath:
    from splatanim.render.camera_colmap import read_colmap

    cameras, _, note = read_colmap(path)
    return CameraPath([_resized(camera, size) for camera in cameras], None, note)


def _resized(camera: Camera, size: tuple[int, int] | None) -> Camera:
    """A camera of another image size, its lens scaled along."""
    if size is None:
        return camera
    sx, sy = size[0] / camera.width, size[1] / camera.height
    lens = (camera.fx * sx, camera.fy * sy, camera.cx * sx, camera.cy * sy)
    return Camera(camera.T_camera_world, *lens, *size, camera.near)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Check the name and the folder.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON ({error}). A camera path is a JSON file.") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: the top level is a {type(data).__name__}; a JSON object was expected.")
    return data


def _read_nerfstudio(path: Path, data: dict[str, Any], size: tuple[int, int] | None) -> CameraPath:
    entries = data["camera_path"]
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{path}: camera_path is empty or not a list; it needs at least one frame.")
    if str(data.get("camera_type", "perspective")).lower() not in ("perspective", "pinhole"):
        raise InputError(f"{path}: camera_type is {data['camera_type']!r}; only perspective cameras can be rendered.")
    cameras = []
    for k, entry in enumerate(entries):
        where = f"camera_path[{k}]"
        if not isinstance(entry, dict):
            raise InputError(f"{path}: {where} is not a JSON object.")
        width, height = size or (
            _pixels(path, "the file", data, "render_width"),
            _pixels(path, "the file", data, "render_height"),
        )
        fov = _number(path, where, entry, "fov")
        if not 0 < fov < 180:
            raise InputError(f"{path}: {where}: fov is {fov}; it must lie between 0 and 180 degrees.")
        focal = focal_from_fov(fov, height)
        pose = _pose(path, where, entry, "camera_to_world")
        cameras.append(Camera(pose, focal, focal, width / 2, height / 2, width, height))
    return CameraPath(cameras, _fps(path, data))


def _read_frame(path: Path, where: str, frame: Any, shared: dict[str, Any], size: tuple[int, int] | None) -> Camera:
    """One entry of ``transforms.json``; keys of the frame win over those of the file."""
    if not isinstance(frame, dict):
        raise InputError(f"{path}: {where} is not a JSON object.")
    pose = _pose(path, where, frame, "transform_matrix")
    values = {**shared, **frame}
    width, height = _file_size(path, where, values, size)
    if "fl_x" in values:
        fx = _number(path, where, values, "fl_x")
    elif "camera_angle_x" in values:
        fx = focal_from_fov(np.degrees(_number(path, where, values, "camera_angle_x")), width)
    else:
        raise InputError(f"{path}: {where}: neither fl_x nor camera_angle_x is given, here or at the top of the file.")
    if "fl_y" in values:
        fy = _number(path, where, values, "fl_y")
    elif "camera_angle_y" in values:
        fy = focal_from_fov(np.degrees(_number(path, where, values, "camera_angle_y")), height)
    else:
        fy = fx
    if not (fx > 0 and fy > 0):
        raise InputError(f"{path}: {where}: the focal lengths are {fx} and {fy}; they must be positive.")
    cx = _number(path, where, values, "cx") if "cx" in values else width / 2
    cy = _number(path, where, values, "cy") if "cy" in values else height / 2
    out_width, out_height = size or (width, height)
    sx, sy = out_width / width, out_height / height
    return Camera(pose, fx * sx, fy * sy, cx * sx, cy * sy, out_width, out_height)


def _file_size(path: Path, where: str, values: dict[str, Any], size: tuple[int, int] | None) -> tuple[int, int]:
    """The size that the intrinsics are meant for: from the keys, else from the image, else ``size``."""
    if "w" in values and "h" in values:
        return _pixels(path, where, values, "w"), _pixels(path, where, values, "h")
    name = values.get("file_path")
    if isinstance(name, str):
        for suffix in _IMAGE_SUFFIXES:
            image = path.parent / (name + suffix)
            if image.is_file():
                from PIL import Image

                with Image.open(image) as opened:
                    return opened.size
    if size is not None:
        return size
    raise InputError(
        f"{path}: {where}: the image size is unknown: w and h are not given, and there is no image at {name!r}. "
        "Give a size."
    )


def _pose(path: Path, where: str, entry: dict[str, Any], key: str) -> Float64[np.ndarray, "4 4"]:
    """T_camera_world, OpenCV axes, from a camera-to-world matrix with OpenGL axes: 16 numbers or 4 rows of 4."""
    if key not in entry:
        raise InputError(f"{path}: {where}: {key} is missing.")
    try:
        matrix = np.asarray(entry[key], np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{path}: {where}: {key} does not hold numbers in rows of equal length.") from None
    if matrix.shape not in ((16,), (4, 4)):
        raise InputError(f"{path}: {where}: {key} has shape {matrix.shape}; 16 numbers or 4 rows of 4 are needed.")
    matrix = matrix.reshape(4, 4)
    if not np.isfinite(matrix).all():
        raise InputError(f"{path}: {where}: {key} has a NaN or infinite entry.")
    if not np.allclose(matrix[3], [0, 0, 0, 1], atol=1e-6):
        raise InputError(f"{path}: {where}: the last row of {key} is {matrix[3].tolist()}, not 0 0 0 1. Transposed?")
    left, lengths, right = np.linalg.svd(matrix[:3, :3])
    if not np.allclose(lengths, 1, atol=1e-3):
        symptom = "is singular" if lengths[2] < 1e-6 else "contains a scale or a shear"
        raise InputError(f"{path}: {where}: the 3x3 part of {key} {symptom}; a rotation is needed.")
    if np.linalg.det(left @ right) < 0:
        raise InputError(f"{path}: {where}: {key} is mirrored (its determinant is negative); a rotation is needed.")
    camera_to_world = np.eye(4)
    camera_to_world[:3, :3], camera_to_world[:3, 3] = left @ right, matrix[:3, 3]
    return np.linalg.inv(camera_to_world @ _FLIP)


def _number(path: Path, where: str, entry: dict[str, Any], key: str) -> float:
    if key not in entry:
        raise InputError(f"{path}: {where}: {key} is missing.")
    value = entry[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise InputError(f"{path}: {where}: {key} is {value!r}; a finite number is needed.")
    return float(value)


def _pixels(path: Path, where: str, entry: dict[str, Any], key: str) -> int:
    value = _number(path, where, entry, key)
    if value != int(value) or not 1 <= value <= 65536:
        raise InputError(f"{path}: {where}: {key} is {value:g}; a whole number of pixels is needed.")
    return int(value)


def _fps(path: Path, data: dict[str, Any]) -> float | None:
    if data.get("fps") is None:
        return None
    fps = _number(path, "the file", data, "fps")
    if fps <= 0:
        raise InputError(f"{path}: fps is {fps:g}; it must be positive.")
    return fps


def _note(data: dict[str, Any]) -> str:
    entries = (
        [data, *(frame for frame in data.get("frames") or [] if isinstance(frame, dict))]
        if isinstance(data.get("frames"), list)
        else [data]
    )
    found = sorted({key for entry in entries for key in _DISTORTION if entry.get(key)})
    return f"Lens distortion ({', '.join(found)}) is ignored." if found else ""
