"""Splats to .ply: the Inria column order, binary little endian, so that every viewer and trainer reads it."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.formats.ply_dialects import DC, OPACITY, POSITION, ROTATION, SCALES
from splatanim.formats.ply_table import CHUNK, TYPE_NAMES

NORMALS = ("nx", "ny", "nz")


def write_ply(path: str | os.PathLike[str], splats: Splats, *, comments: Iterable[str] = ()) -> None:
    """Write splats as ``x y z nx ny nz f_dc f_rest opacity scale rot`` and their extras, atomically.

    ``Splats.offset`` is added back; positions are then written as double, else everything is float32. Normals are
    those of the extras, or zero. Each of ``comments`` becomes a header comment (``Vertical Axis: -y``).

    Raises OutputError where the file cannot be written, InputError for extras that PLY cannot hold.
    """
    columns = _columns(splats)
    kinds = [(name, column.dtype.newbyteorder("<")) for name, column in columns]
    offset = np.asarray(splats.offset, np.float64)
    if offset.any():
        kinds[:3] = [(name, np.dtype("<f8")) for name in POSITION]
    lines = ["ply", "format binary_little_endian 1.0"]
    lines += [f"comment {line}" for comment in comments for line in comment.splitlines()]
    lines += [f"element vertex {len(splats)}"]
    lines += [f"property {TYPE_NAMES[kind.str[1:]]} {name}" for name, kind in kinds]
    head = "\n".join([*lines, "end_header\n"]).encode("ascii", "replace")
    rows = np.zeros(min(CHUNK, len(splats)), np.dtype(kinds))
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(head)
        for start in range(0, len(splats), CHUNK):
            block = rows[: len(splats) - start]
            for name, column in columns:
                block[name] = column[start : start + len(block)]
            if offset.any():
                for axis, name in enumerate(POSITION):
                    block[name] += offset[axis]
            file.write(block.data)


def ply_with_up(path: str | os.PathLike[str], splats: Splats, *, up: str | None = None) -> tuple[str, ...]:
    """:func:`write_ply` with the up axis, where one is given, as a header comment. Nothing is lost or said."""
    write_ply(path, splats, comments=(f"Vertical Axis: {up}",) if up else ())
    return ()


def _columns(splats: Splats) -> list[tuple[str, np.ndarray]]:
    """Names and (N,) values in file order."""
    n, k = len(splats), splats.sh.shape[1]
    extras = {name: _storable(name, column, n) for name, column in splats.extras.items()}
    zeros = np.zeros(n, np.float32)
    columns = [*zip(POSITION, splats.means.T)]
    columns += [(name, extras.pop(name, zeros)) for name in NORMALS]
    columns += zip(DC, splats.sh[:, 0].T)
    columns += [(f"f_rest_{c * (k - 1) + i}", splats.sh[:, 1 + i, c]) for c in range(3) for i in range(k - 1)]
    columns += [(OPACITY, splats.raw_opacities)]
    columns += zip(SCALES, splats.log_scales.T)
    columns += zip(ROTATION, splats.quaternions.T)
    taken = {name for name, _ in columns} & set(extras)
    if taken:
        raise InputError(f"Splats: extra column {min(taken)} has the name of a splat column. Rename it.")
    return [*columns, *extras.items()]


def _storable(name: str, column: np.ndarray, n: int) -> np.ndarray:
    if column.shape != (n,) or not name or any(c.isspace() for c in name) or not name.isascii():
        raise InputError(
            f"Splats: extra column {name!r} of shape {column.shape} cannot be written to .ply. "
            f"It needs a name of one ASCII word and {n} numbers."
        )
    if column.dtype == bool:
        return column.astype(np.uint8)
    if column.dtype.str[1:] not in TYPE_NAMES:
        raise InputError(
            f"Splats: extra column {name} has type {column.dtype}, which .ply lacks. Convert it to int32 or float64."
        )
    return column
