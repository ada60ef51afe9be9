"""Depth maps beside a clip: read from files, and held against the geometry before anybody trusts them.

A map holds z-depth (along the optical axis) up to one unknown scale a frame; 0 means not known. Whether it is depth
at all, and not disparity or another subject's, shows at frame 0, where the geometry is known: the two must correlate.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32

from rigpapr.supervision import numbered
from splatanim.errors import InputError

_LEAST_CORRELATION = 0.3


def read_depth(
    path: str | os.PathLike[str], shape: tuple[int, int, int], *, part: slice = slice(None)
) -> Float32[np.ndarray, "t h w"]:
    """Depth maps of all frames: ``maps.npz``, ``maps.npz:KEY``, ``maps.npy``, or a folder of 16-bit pictures.

    ``shape`` is that of the clip (T, h, w). NaN, infinite and negative values become 0 (not known).
    Raises InputError for files, keys or sizes that do not fit.
    """
    text = str(path)
    name, _, key = text.rpartition(":") if ".npz:" in text.lower() else (text, "", "")
    file = Path(name)
    if file.is_dir():
        maps = _read_folder(file, part)
    else:
        maps = read_array(file, key, "depth")[part]
    if maps.ndim != 3 or maps.shape != shape:
        raise InputError(
            f"{path}: depth maps have shape {maps.shape}, the clip is {shape[0]} frames of {shape[2]}x{shape[1]}. "
            "One map a frame, of the frames' size, is needed."
        )
    depth = np.nan_to_num(maps.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0).clip(0)
    empty = np.flatnonzero((depth > 0).reshape(len(depth), -1).sum(axis=1) == 0)
    if len(empty) == len(depth):
        raise InputError(f"{path}: no depth map has a positive value. Is it the right key or folder?")
    return depth


def read_array(file: Path, key: str, wanted: str) -> np.ndarray:
    """An array of a .npy or .npz file: the one of that key, the only one, or the one called ``wanted``."""
    if not file.is_file():
        raise InputError(f"{file}: no such file. Check the spelling.")
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            keys = list(loaded.files)
            chosen = key or (keys[0] if len(keys) == 1 else wanted)
            if chosen not in keys:
                raise InputError(
                    f"{file}: has no array {chosen!r}; it has {', '.join(keys)}. Name one: {file.name}:KEY"
                )
            return loaded[chosen]
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file}: cannot be read as NumPy arrays ({error}). Save it with numpy.savez.") from error


def _read_folder(folder: Path, part: slice) -> np.ndarray:
    from PIL import Image

    names = numbered(folder, (".png", ".tif", ".tiff"))[part]
    if not names:
        raise InputError(f"{folder}: holds no depth maps (16-bit .png or .tif).")
    maps = []
    for name in names:
        with Image.open(name) as image:
            values = np.asarray(image)
        if values.ndim != 2:
            raise InputError(f"{name}: has {values.shape[-1]} channels; a depth map has one (16-bit grey).")
        if values.dtype == np.uint8:
            raise InputError(f"{name}: has 8 bits, too few for depth. Write 16-bit pictures, or .npz.")
        maps.append(values)
    if len({values.shape for values in maps}) > 1:
        raise InputError(f"{folder}: its depth maps differ in size.")
    return np.stack(maps)


def check_depth(
    depth: Float[np.ndarray, "h w"], known: Float[np.ndarray, "h w"], mask: Bool[np.ndarray, "h w"], where: str
) -> str:
    """Hold the first map against the geometry's z-depth ``known`` (0 where there is none) inside the mask.

    Returns a note with scale and correlation. Raises InputError for disparity (negative correlation), and for maps
    that have nothing to do with the geometry.
    """
    both = mask & (depth > 0) & (known > 0)
    if both.sum() < 30:
        raise InputError(
            f"{where}: the first depth map and the object share {int(both.sum())} pixels. "
            "Is the camera the one of this video, and the depth that of its first frame?"
        )
    a, b = depth[both].astype(np.float64), known[both].astype(np.float64)
    correlation = float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0
    if correlation < -_LEAST_CORRELATION:
        raise InputError(
            f"{where}: the maps fall where the object recedes (correlation {correlation:.2f} at the first frame): they "
            "hold disparity or inverse depth. Give depth, such as 1 / disparity, or --depth none."
        )
    if correlation < _LEAST_CORRELATION:
        raise InputError(
            f"{where}: the first map does not follow the object's depth (correlation {correlation:.2f}). "
            "Is it the right clip, or relative depth with a shift? Give metric depth, or --depth none."
        )
    scale = float(np.median(b / a))
    return f"depth: correlation {correlation:.2f} with the object at frame 0, its unit is {scale:.4g} of the scene's."
