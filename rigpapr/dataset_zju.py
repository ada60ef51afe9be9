"""ZJU-MoCap: ``annots.npy`` with calibrated cameras and the images of every moment, and masks beside them."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from rigpapr.dataset import Lens, Source
from splatanim.errors import InputError
from splatanim.render.camera import Camera

_MASK_FOLDERS = ("mask", "mask_cihp", "masks")
_HARMLESS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}


def zju_sources(folder: Path, frame: int) -> list[Source]:
    """One view a camera of moment ``frame``.

    ``annots.npy`` holds ``cams`` (lists K, D, R, T; T in millimetres, world to camera) and ``ims`` (one a moment, with
    the list ``ims`` of paths, one a camera). Coordinates come out in metres. Raises InputError for a file without
    these, a moment that is not there, poses that are no rotation, and missing images or masks.
    """
    path = folder / "annots.npy"
    data = _load(path)
    try:
        cameras, moments = data["cams"], data["ims"]
        count = len(moments)
        names = [str(name) for name in moments[frame]["ims"]] if 0 <= frame < count else []
        calibration = [tuple(np.asarray(cameras[key][k], np.float64) for key in "KDRT") for k in range(len(names))]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is not as ZJU-MoCap's: cams (K, D, R, T) and ims are needed ({error!r}).") from error
    if not names:
        raise InputError(f"{path}: moment {frame} is not there; the file has 0 to {count - 1}. Change --frame.")
    sources = []
    for k, (name, (matrix, distortion, rotation, translation)) in enumerate(zip(names, calibration, strict=True)):
        where = f"{path}: moment {frame}, camera {k}"
        image = folder / name
        if not image.is_file():
            raise InputError(f"{where}: {image} is missing. Check the folder.")
        camera = _camera(where, image, matrix, rotation, translation)
        lens = Lens(tuple(float(value) for value in distortion.ravel()[:8]))
        sources.append(Source(f"camera{k:02d}", where, image, camera, _mask(folder, name, where), lens))
    return sources


def _camera(where: str, image: Path, matrix: np.ndarray, rotation: np.ndarray, translation: np.ndarray) -> Camera:
    """The image gives the size, as annots.npy does not; a principal point far from its middle is refused."""
    from PIL import Image

    with Image.open(image) as opened:
        width, height = opened.size
    if matrix.shape != (3, 3) or rotation.size != 9 or translation.size != 3:
        raise InputError(f"{where}: K, R and T have shapes {matrix.shape}, {rotation.shape}, {translation.shape}.")
    fx, fy, cx, cy = matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]
    if not (0.25 * width < cx < 0.75 * width and 0.25 * height < cy < 0.75 * height):
        raise InputError(
            f"{where}: the principal point ({cx:g}, {cy:g}) is far from the middle of the {width}x{height} image: the "
            "intrinsics are for another size. Use the images that were calibrated."
        )
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation.reshape(3, 3), translation.ravel() / 1000
    try:
        # K counts pixel centres as whole numbers (OpenCV).
        return Camera(pose, float(fx), float(fy), float(cx) + 0.5, float(cy) + 0.5, width, height)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _mask(folder: Path, name: str, where: str) -> Path:
    for masks in _MASK_FOLDERS:
        for relative in (Path(name), Path(name).relative_to(Path(name).parts[0])):
            candidate = (folder / masks / relative).with_suffix(".png")
            if candidate.is_file():
                return candidate
    raise InputError(f"{where}: no mask for {name} in {', '.join(_MASK_FOLDERS)}. Get the dataset's masks.")


def _load(path: Path) -> dict[str, Any]:
    """The dictionary that the file pickles; whatever is not plain data or numpy's is refused, never run."""

    class Harmless(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) in _HARMLESS:
                return super().find_class(module, name)
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}")

    try:
        raw = io.BytesIO(path.read_bytes())
        version = np.lib.format.read_magic(raw)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        read(raw)
        data = Harmless(raw, encoding="latin1").load()
        data = data.item() if isinstance(data, np.ndarray) else data
    except (OSError, ValueError, EOFError, AttributeError, IndexError, pickle.UnpicklingError) as error:
        raise InputError(f"{path}: cannot be read as ZJU-MoCap's annotations ({error}).") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds a {type(data).__name__}, not ZJU-MoCap's dictionary.")
    return data
