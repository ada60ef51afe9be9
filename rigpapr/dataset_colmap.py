"""COLMAP reconstructions, text or binary, through ``pycolmap``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rigpapr.dataset import Lens, Source
from splatanim.errors import InputError, require
from splatanim.render.camera import Camera

# Indices of fx, fy, cx, cy in a model's parameters, then which are k1 k2 p1 p2 k3 ... of OpenCV's polynomial.
_MODELS = {
    "SIMPLE_PINHOLE": ((0, 0, 1, 2), ()),
    "PINHOLE": ((0, 1, 2, 3), ()),
    "SIMPLE_RADIAL": ((0, 0, 1, 2), (3,)),
    "RADIAL": ((0, 0, 1, 2), (3, 4)),
    "OPENCV": ((0, 1, 2, 3), (4, 5, 6, 7)),
    "FULL_OPENCV": ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9, 10, 11)),
    "OPENCV_FISHEYE": ((0, 1, 2, 3), (4, 5, 6, 7)),
}


def colmap_model(path: Path) -> Path | None:
    """The folder of a COLMAP model under ``path``: sparse/0, sparse or itself."""
    for folder in (path / "sparse" / "0", path / "sparse", path):
        if any((folder / f"cameras{suffix}").is_file() for suffix in (".bin", ".txt")):
            return folder
    return None


def colmap_sources(path: Path, model: Path) -> list[Source]:
    """The registered images of a model, in order of their names, from ``path/images``; masks from ``path/masks``.

    A mask is named as its image or with ``.png`` added or in place of the suffix. Raises InputError for a model that
    pycolmap cannot read, lens models without a pinhole to undistort to, and missing images.
    """
    pycolmap = require("pycolmap", extra="captures")
    try:
        reconstruction = pycolmap.Reconstruction(str(model))
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{model}: pycolmap cannot read this model ({error}). Export it again.") from error
    found = sorted((image for image in reconstruction.images.values() if image.has_pose), key=lambda image: image.name)
    if not found:
        raise InputError(f"{model}: no image of this model is registered. Run COLMAP's mapper again.")
    images = path / "images" if (path / "images").is_dir() else path
    sources = []
    for image in found:
        where = f"{model}: image {image.name}"
        camera, lens = _camera(image, reconstruction.cameras[image.camera_id], where)
        file = images / image.name
        if not file.is_file():
            raise InputError(f"{where}: {file} is missing. Put the images into {path / 'images'}.")
        sources.append(Source(image.name, where, file, camera, _mask(path / "masks", image.name), lens))
    return sources


def _camera(image: Any, camera: Any, where: str) -> tuple[Camera, Lens]:
    name = camera.model_name
    if name not in _MODELS:
        raise InputError(f"{where}: camera model {name}; known are {', '.join(_MODELS)}. Run image_undistorter first.")
    pinhole, rest = _MODELS[name]
    values = np.asarray(camera.params, np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{where}: the camera has a NaN or infinite parameter.")
    pose = np.eye(4)
    placed = image.cam_from_world
    pose[:3] = (placed() if callable(placed) else placed).matrix()
    try:
        fx, fy, cx, cy = (float(values[k]) for k in pinhole)
        shape = Camera(pose, fx, fy, cx, cy, int(camera.width), int(camera.height))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return shape, Lens(tuple(float(values[k]) for k in rest), name == "OPENCV_FISHEYE")


def _mask(folder: Path, name: str) -> Path | None:
    for candidate in (folder / name, folder / f"{name}.png", (folder / name).with_suffix(".png")):
        if candidate.is_file():
            return candidate
    return None
