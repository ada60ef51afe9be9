""".splat (antimatter15): 32 bytes a splat, no header.

float32 position and linear scales, uint8 red, green, blue, opacity, uint8 wxyz quaternion as 128 + 128 q. Axes are
those of the .ply. The format has no view-dependent colour.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from splatanim.data import Splats
from splatanim.formats.atomic import atomic_path
from splatanim.formats.base import ReadResult, damaged, read_bytes
from splatanim.formats.clean import SH_C0, Columns, cleaned, harmonics_of_colours, logits_of_bytes
from splatanim.formats.losses import near_positions, said_losses

ROW = np.dtype([("xyz", "<f4", 3), ("scale", "<f4", 3), ("rgba", "u1", 4), ("wxyz", "u1", 4)])
#: Log-scale of a splat that is stored with a scale of zero.
_FLAT = -30.0


def read_splat(path: str | os.PathLike[str]) -> ReadResult:
    """Read a .splat file; raises InputError where it is no whole number of rows or none is usable."""
    path = Path(path)
    data = read_bytes(path)
    if len(data) % ROW.itemsize:
        raise damaged(path, f"{len(data)} bytes are no whole number of .splat rows of {ROW.itemsize} bytes")
    rows = np.frombuffer(data, ROW)
    with np.errstate(invalid="ignore", divide="ignore"):  # scales that are NaN or negative: those rows are dropped
        log_scales = np.maximum(np.log(rows["scale"]), np.float32(_FLAT))
    columns = Columns(
        rows["xyz"].astype(np.float64),
        harmonics_of_colours(rows["rgba"][:, :3].astype(np.float32) / np.float32(255))[:, None],
        logits_of_bytes(rows["rgba"][:, 3]),
        log_scales,
        (rows["wxyz"].astype(np.float32) - 128) / 128,
    )
    return cleaned(path, columns, format="splat")


def write_splat(path: str | os.PathLike[str], splats: Splats, *, up: str | None = None) -> tuple[str, ...]:
    """Write a .splat file, whole or not at all; returns what the format could not hold, as sentences.

    Raises InputError where the splats lie too far from the origin for float32, OutputError where nothing can be
    written. ``up`` cannot be stored: the file keeps the axes of the splats.
    """
    rows = np.empty(len(splats), ROW)
    rows["xyz"] = near_positions(path, splats, 2.0**-23)
    with np.errstate(over="ignore", under="ignore"):
        rows["scale"] = splats.scales
    colours = 0.5 + SH_C0 * splats.sh[:, 0]
    rgba = np.concatenate([colours, splats.opacities[:, None]], axis=1)
    rows["rgba"] = np.clip(np.round(rgba * 255), 0, 255)
    rows["wxyz"] = np.clip(np.round(splats.quaternions * 128 + 128), 0, 255)
    with atomic_path(path) as temporary:
        temporary.write_bytes(rows.tobytes())
    return said_losses(splats, ".splat", harmonics=0)
