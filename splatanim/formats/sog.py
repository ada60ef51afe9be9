"""SOG (PlayCanvas): splats as WebP images and a meta.json, in a folder or zipped as .sog.

Positions are 16 bits an axis over two images, between bounds of sign(x) ln(1 + |x|); quaternions 8 bits for the smaller
three of wxyz, the alpha channel naming the largest; scales and colours indices of 256-entry codebooks; harmonics rows
of a palette, each entry an index of a codebook. Version 1 has bounds where version 2 has codebooks, and stores logits.
Axes are those of the .ply. Source: the format's description in PlayCanvas' developer documentation.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import ReadResult, damaged, read_bytes
from splatanim.formats.clean import Columns, cleaned, logits_of_bytes
from splatanim.formats.quantised import smallest_three

META = "meta.json"
_COEFFICIENTS = {0: 0, 1: 3, 2: 8, 3: 15}
_PALETTE_ROW = 64  # palette entries an image row
_MOST_BYTES = 1 << 30  # of one member of the archive: a damaged or hostile one must not fill the memory


@dataclass(frozen=True)
class _Images:
    """The images of a file: ``load`` gives the bytes of a member by name."""

    path: Path
    load: Callable[[str], bytes]

    def pixels(self, part: dict[str, Any], index: int = 0, count: int = 0) -> np.ndarray:
        """Image ``index`` of a part as (height, width, 4); with ``count``, its first pixels (count, 4)."""
        from PIL import Image

        names = part.get("files")
        if not isinstance(names, list) or len(names) <= index or not isinstance(names[index], str):
            raise damaged(self.path, f"{META} names no image where one is needed")
        try:
            with Image.open(io.BytesIO(self.load(names[index])), formats=("WEBP", "PNG")) as image:
                pixels = np.asarray(image.convert("RGBA"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise damaged(self.path, f"its image {names[index]} cannot be read ({error})") from None
        if not count:
            return pixels
        if pixels.shape[0] * pixels.shape[1] < count:
            raise damaged(self.path, f"its image {names[index]} is too small for {count} splats")
        return pixels.reshape(-1, 4)[:count]


def read_sog(path: str | os.PathLike[str]) -> ReadResult:
    """Read a .sog file, a folder with a meta.json and its images, or that meta.json.

    Raises InputError where it is none, or a part is missing or damaged.
    """
    path = Path(path)
    if path.is_dir():
        path = path / META
        if not path.is_file():
            raise InputError(f"{path.parent}: is a folder without {META}. Give one splat file of it.")
    if path.suffix.lower() == ".json":
        return _read(path, read_bytes(path), lambda name: _beside(path, name))
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
            members = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}

            def load(name: str) -> bytes:
                if name not in members:
                    raise damaged(path, f"the archive holds no {name}")
                if archive.getinfo(members[name]).file_size > _MOST_BYTES:
                    raise damaged(path, f"{name} in the archive is too large to be true")
                return archive.read(members[name])

            return _read(path, load(META), load)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, OSError) as error:
        raise damaged(path, f"the .sog archive cannot be read ({error})") from None


def _beside(path: Path, name: str) -> bytes:
    if Path(name).name != name:
        raise InputError(f"{path}: refers to {name}, outside its own folder. Put all images beside it.")
    return read_bytes(path.parent / name)


def _read(path: Path, meta: bytes, load: Callable[[str], bytes]) -> ReadResult:
    try:
        content = json.loads(meta)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise damaged(path, f"{META} cannot be read ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("means"), dict):
        raise InputError(f"{path}: is no SOG {META} (it has no means). Give the {META} of a SOG folder, or a .sog.")
    version = content.get("version", 1)
    if version not in (1, 2):
        raise InputError(f"{path}: SOG of version {version}; 1 and 2 can be read. Export it as .ply.")
    images = _Images(path, load)
    count = _count(path, content, version)
    colours = _part(path, content, "sh0")
    columns = Columns(
        _positions(images, _part(path, content, "means"), count),
        np.zeros((count, 1, 3), np.float32),
        np.zeros(count, np.float32),
        _values(images, _part(path, content, "scales"), version, count, 3),
        _rotations(images, _part(path, content, "quats"), count),
    )
    if version == 2:
        columns.sh[:, 0] = _values(images, colours, version, count, 3)
        columns.opacity = logits_of_bytes(images.pixels(colours, count=count)[:, 3])
    else:
        four = _values(images, colours, version, count, 4)
        columns.sh[:, 0], columns.opacity = four[:, :3], four[:, 3]
    if content.get("shN") is not None:
        more = _harmonics(images, _part(path, content, "shN"), version, count)
        columns.sh = np.concatenate([columns.sh, more], axis=1)
    return cleaned(path, columns, format=f"sog/{version}")


def _count(path: Path, content: dict[str, Any], version: int) -> int:
    shape = content["means"].get("shape")
    count = content.get("count") if version == 2 else shape[0] if isinstance(shape, list) and shape else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 1 << 30:
        raise damaged(path, f"{META} gives {count!r} as the number of splats")
    return count


def _part(path: Path, content: dict[str, Any], name: str) -> dict[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        raise damaged(path, f"{META} has no {name}")
    return part


def _numbers(path: Path, part: dict[str, Any], name: str, count: int) -> np.ndarray:
    try:
        values = np.array(part.get(name), np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(0)
    if count == len(values) == 256 and np.isnan(values[0]):  # some writers left the first entry out, as null
        values[0] = values[1] + (values[1] - values[255]) / 255
    if len(values) != count or not np.isfinite(values).all():
        raise damaged(path, f"{META} does not give {count} numbers as {name}")
    return values


def _positions(images: _Images, part: dict[str, Any], count: int) -> np.ndarray:
    low, high = (images.pixels(part, k, count)[:, :3].astype(np.uint16) for k in (0, 1))
    mins, maxs = (_numbers(images.path, part, name, 3) for name in ("mins", "maxs"))
    logs = mins + (maxs - mins) * ((low | (high << 8)) / 65535)
    with np.errstate(over="ignore"):
        return np.sign(logs) * np.expm1(np.abs(logs))


def _rotations(images: _Images, part: dict[str, Any], count: int) -> np.ndarray:
    pixels = images.pixels(part, count=count)
    largest = pixels[:, 3].astype(np.int64) - 252
    out = smallest_three((pixels[:, :3] / 255 - 0.5) * np.sqrt(2.0), largest.clip(0))
    out[largest < 0] = 1, 0, 0, 0  # no such tag: what other readers take, too
    return out


def _values(images: _Images, part: dict[str, Any], version: int, count: int, channels: int) -> np.ndarray:
    """8-bit pixels through the codebook (version 2) or between the channels' bounds (version 1)."""
    pixels = images.pixels(part, count=count)[:, :channels]
    if version == 2:
        return _numbers(images.path, part, "codebook", 256).astype(np.float32)[pixels]
    mins, maxs = (_numbers(images.path, part, name, channels) for name in ("mins", "maxs"))
    return (mins + (maxs - mins) * (pixels / 255)).astype(np.float32)


def _harmonics(images: _Images, part: dict[str, Any], version: int, count: int) -> np.ndarray:
    """The coefficients beyond the constant one (count, K - 1, 3), each splat's row of the palette."""
    palette, labels = images.pixels(part, 0), images.pixels(part, 1, count).astype(np.int64)
    width = palette.shape[1] / _PALETTE_ROW
    bands = part.get("bands")
    coefficients = width if version == 1 else _COEFFICIENTS.get(bands if isinstance(bands, int) else -1, -1)
    if coefficients not in _COEFFICIENTS.values() or coefficients != width:
        raise damaged(images.path, f"the SH palette is {palette.shape[1]} pixels wide, which fits no degree")
    if version == 2:
        values = _numbers(images.path, part, "codebook", 256)
    else:
        low, high = (_numbers(images.path, part, name, 1)[0] for name in ("mins", "maxs"))
        values = low + (high - low) * np.arange(256) / 255
    entries = palette[:, :, :3].reshape(palette.shape[0] * _PALETTE_ROW, int(coefficients), 3)
    rows = labels[:, 0] | (labels[:, 1] << 8)
    if rows.max() >= len(entries):
        raise damaged(images.path, f"a splat refers to entry {rows.max()} of an SH palette of {len(entries)}")
    return values.astype(np.float32)[entries[rows]]
