"""``transforms.json``: NeRF-synthetic (camera_angle_x, RGBA) and nerfstudio (OPENCV intrinsics, masks by file)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rigpapr.dataset import Lens, Source
from splatanim.errors import InputError
from splatanim.render.camera_io import read_cameras

NAMES = ("transforms_train.json", "transforms.json")
_SUFFIXES = ("", ".png", ".jpg", ".jpeg", ".webp", ".PNG", ".JPG")
_POLYNOMIAL = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
_FISHEYE = ("k1", "k2", "k3", "k4")


def transforms_file(path: Path) -> Path | None:
    """The transforms file of a folder, or ``path`` itself where it is a .json; None where there is none."""
    if path.is_file():
        return path if path.suffix.lower() == ".json" else None
    return next((path / name for name in NAMES if (path / name).is_file()), None)


def transforms_sources(path: Path) -> list[Source]:
    """The views of a transforms file; every frame needs ``file_path`` and ``transform_matrix``.

    ``mask_path`` names a mask. Lens distortion (``k1`` ... at the top or in the frame; ``camera_model`` OPENCV or
    OPENCV_FISHEYE) is undone when the image is read. Raises InputError for cameras that cannot be read
    (:func:`splatanim.render.camera_io.read_cameras`), unknown lenses, and sizes that differ under one lens.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        data = {}  # read_cameras says what is wrong
    frames = data.get("frames") if isinstance(data, dict) else None
    entries = [frame for frame in frames or [] if isinstance(frame, dict)]
    images = []
    for k, entry in enumerate(entries):
        name = entry.get("file_path")
        if not isinstance(name, str):
            raise InputError(f"{path}: frames[{k}]: file_path is missing; every training frame needs its image.")
        images.append(_image(path.parent, name, f"{path}: frames[{k}]"))
    cameras = read_cameras(path).cameras
    if len(cameras) != len(entries):
        raise InputError(f"{path}: is a file of cameras without images. Give the transforms file of a dataset.")
    shared = {key for key in ("fl_x", "camera_angle_x", "w") if key in data}
    sources = []
    for k, (entry, image, camera) in enumerate(zip(entries, images, cameras, strict=True)):
        where = f"{path}: frames[{k}]"
        first = cameras[0]
        own = {"fl_x", "camera_angle_x", "w"} & set(entry)
        if shared and not own and (camera.width, camera.height) != (first.width, first.height):
            raise InputError(
                f"{where}: {image} is {camera.width}x{camera.height}, the first image {first.width}x{first.height}: "
                "images of different sizes cannot share one lens. Give fl_x, w and h in each frame."
            )
        sources.append(
            Source(image.stem, where, image, camera, _mask(path.parent, entry, where), _lens(data, entry, where))
        )
    return sources


def _image(folder: Path, name: str, where: str) -> Path:
    for suffix in _SUFFIXES:
        if (folder / (name + suffix)).is_file():
            return folder / (name + suffix)
    raise InputError(f"{where}: the image {folder / name} is missing. Check the folder, or take the frame out.")


def _mask(folder: Path, entry: dict[str, Any], where: str) -> Path | None:
    name = entry.get("mask_path")
    if name is None:
        return None
    if not isinstance(name, str) or not (folder / name).is_file():
        raise InputError(f"{where}: the mask {folder / str(name)} is missing. Check the folder, or take the frame out.")
    return folder / name


def _lens(data: dict[str, Any], entry: dict[str, Any], where: str) -> Lens:
    values = {**data, **entry}
    model = str(values.get("camera_model", "OPENCV")).upper()
    if model not in ("OPENCV", "OPENCV_FISHEYE", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL"):
        raise InputError(f"{where}: camera_model is {model}; OPENCV, OPENCV_FISHEYE and PINHOLE can be undistorted.")
    fisheye = model == "OPENCV_FISHEYE" or bool(values.get("is_fisheye"))
    names = _FISHEYE if fisheye else _POLYNOMIAL
    try:
        coefficients = tuple(float(values.get(name) or 0.0) for name in names)
    except (TypeError, ValueError):
        raise InputError(f"{where}: the distortion coefficients {', '.join(names)} must be numbers.") from None
    return Lens(coefficients, fisheye)
