"""Cameras from and to COLMAP models: ``cameras`` and ``images`` as .txt or .bin, read without COLMAP itself.

Formats: COLMAP's documentation, "Output Format". Poses are world-to-camera with our axes and pixels
(:mod:`.camera_formats`), so that only the notation changes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path, made_folder
from splatanim.formats.base import damaged, first_bytes
from splatanim.render.camera import Camera
from splatanim.render.camera_formats import from_colmap, to_colmap

# COLMAP's camera models by number: name, number of parameters, whether one focal length serves both axes.
_MODELS = {
    0: ("SIMPLE_PINHOLE", 3, True),
    1: ("PINHOLE", 4, False),
    2: ("SIMPLE_RADIAL", 4, True),
    3: ("RADIAL", 5, True),
    4: ("OPENCV", 8, False),
    6: ("FULL_OPENCV", 12, False),
}
_NAMES = {name: (count, single) for name, count, single in _MODELS.values()}

Lens = tuple[tuple[float, float, float, float], int, int, bool]  # fx fy cx cy, width, height, whether it distorts


def is_colmap(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a COLMAP model."""
    return any((Path(folder) / f"images{suffix}").is_file() for suffix in (".bin", ".txt"))


def read_colmap(folder: str | os.PathLike[str]) -> tuple[list[Camera], list[str], str]:
    """The registered images of a model in the order of their names: cameras, names, and a note (distortion, or empty).

    Lenses are reduced to their pinhole part; the note says where that leaves distortion out.

    Raises InputError for missing or damaged files and for lens models without a pinhole part.
    """
    folder = Path(folder)
    if not is_colmap(folder):
        raise InputError(f"{folder}: holds no COLMAP model (cameras and images, .bin or .txt). Is it in sparse/0?")
    binary = (folder / "images.bin").is_file()
    suffix = ".bin" if binary else ".txt"
    paths = folder / f"cameras{suffix}", folder / f"images{suffix}"
    try:
        lenses = (_lenses_bin if binary else _lenses_txt)(paths[0])
        images = (_images_bin if binary else _images_txt)(paths[1])
    except InputError:
        raise
    except (struct.error, IndexError, ValueError) as error:  # lines with too few words, names that are no text
        raise damaged(folder, f"cameras{suffix} or images{suffix} ends too early or is none ({error})") from None
    images.sort(key=lambda image: image[0])
    if not images:
        raise InputError(f"{folder}: no image of this model is registered. Run COLMAP's mapper again.")
    cameras = []
    for name, pose, lens in images:
        if lens not in lenses:
            raise damaged(paths[1], f"image {name} has camera {lens}, which cameras{suffix} lacks")
        pinhole, width, height, _ = lenses[lens]
        try:
            cameras.append(from_colmap(np.array(pose[:4]), np.array(pose[4:]), pinhole, width, height))
        except (InputError, ValueError) as error:  # ValueError: a zero quaternion
            raise InputError(f"{paths[1]}: image {name}: {error}") from None
    distorted = any(lens[3] for lens in lenses.values())
    return cameras, [name for name, _, _ in images], "Lens distortion is ignored." if distorted else ""


def write_colmap(folder: str | os.PathLike[str], cameras: Sequence[Camera], names: Sequence[str] | None = None) -> None:
    """Write a text model: ``cameras.txt`` (PINHOLE, equal lenses once), ``images.txt``, an empty ``points3D.txt``.

    ``names`` are the images' (``frame_0000.png`` ... by default). Raises InputError where they do not fit, OutputError
    where the folder cannot be written.
    """
    names = [f"frame_{k:04d}.png" for k in range(len(cameras))] if names is None else list(names)
    if len(names) != len(cameras) or any(not name or "\n" in name for name in names):
        raise InputError(f"{folder}: {len(names)} names for {len(cameras)} cameras; each needs one of its own.")
    lenses: dict[tuple, int] = {}
    lines = []
    for k, (camera, name) in enumerate(zip(cameras, names, strict=True), start=1):
        q, t, pinhole = to_colmap(camera)
        lens = lenses.setdefault((camera.width, camera.height, *pinhole), len(lenses) + 1)
        numbers = " ".join(repr(float(v)) for v in (*q, *t))
        lines.append(f"{k} {numbers} {lens} {name}\n\n")
    model = made_folder(folder)
    for file, text in (
        ("cameras.txt", "".join(f"{k} PINHOLE {' '.join(repr(v) for v in lens)}\n" for lens, k in lenses.items())),
        ("images.txt", "".join(lines)),
        ("points3D.txt", ""),
    ):
        with atomic_path(model / file) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _lens(path: Path, name: str, size: Sequence[int], values: Sequence[float]) -> Lens:
    if name not in _NAMES:
        raise InputError(f"{path}: camera model {name}; known are {', '.join(_NAMES)}. Run image_undistorter first.")
    count, single = _NAMES[name]
    if len(values) < count or not np.isfinite(values).all():
        raise damaged(path, f"a {name} camera has the parameters {list(values)}")
    focal = (values[0], values[0]) if single else (values[0], values[1])
    centre = values[1:3] if single else values[2:4]
    rest = values[3:] if single else values[4:]
    return (*focal, *centre), int(size[0]), int(size[1]), any(rest)  # type: ignore[return-value]


def _lines(path: Path) -> list[str]:
    """All lines but comments; empty ones count in ``images.txt``."""
    first_bytes(path, 1)
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if not line.startswith("#")]


def _lenses_txt(path: Path) -> dict[int, Lens]:
    out = {}
    for line in _lines(path):
        if line:
            number, name, *rest = line.split()
            width, height = (_whole(path, text) for text in rest[:2])
            out[_whole(path, number)] = _lens(path, name, (width, height), _floats(path, rest[2:]))
    return out


def _images_txt(path: Path) -> list[tuple[str, tuple[float, ...], int]]:
    out = []
    lines = _lines(path)
    while lines and not lines[0]:
        lines.pop(0)
    for line in lines[::2]:  # every other line lists the image's points, or is empty
        if line:
            words = line.split(maxsplit=9)
            if len(words) < 10:
                raise damaged(path, f"the line {line!r} of an image has {len(words)} words, not 10")
            _, *pose, lens, name = words
            out.append((name, tuple(_floats(path, pose)), _whole(path, lens)))
    return out


def _lenses_bin(path: Path) -> dict[int, Lens]:
    data = _bytes(path)
    (count,), at = struct.unpack_from("<Q", data), 8
    out = {}
    for _ in range(count):
        number, model, width, height = struct.unpack_from("<iiQQ", data, at)
        name, parameters, _ = _MODELS.get(model, (f"number {model}", 0, False))
        out[number] = _lens(path, name, (width, height), struct.unpack_from(f"<{parameters}d", data, at + 24))
        at += 24 + 8 * parameters
    return out


def _images_bin(path: Path) -> list[tuple[str, tuple[float, ...], int]]:
    data = _bytes(path)
    (count,), at = struct.unpack_from("<Q", data), 8
    out = []
    for _ in range(count):
        _, *pose, lens = struct.unpack_from("<i7di", data, at)
        at += 64
        end = data.find(b"\0", at)
        if end < 0:
            raise IndexError("a name has no end")
        name = data[at:end].decode("utf-8")
        (points,) = struct.unpack_from("<Q", data, end + 1)
        at = end + 9 + 24 * points
        out.append((name, tuple(pose), lens))
    return out


def _bytes(path: Path) -> bytes:
    first_bytes(path, 1)
    return path.read_bytes()


def _whole(path: Path, text: str) -> int:
    if not text.lstrip("-").isdigit():
        raise damaged(path, f"{text!r} stands where a whole number should")
    return int(text)


def _floats(path: Path, texts: Sequence[str]) -> list[float]:
    try:
        values = [float(text) for text in texts]
    except ValueError:
        raise damaged(path, f"{' '.join(texts)!r} should be numbers") from None
    if not np.isfinite(values).all():
        raise damaged(path, f"{' '.join(texts)!r} has a number that is not finite")
    return values
