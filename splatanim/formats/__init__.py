"""Splat files, one format a module: one table of what is read and written, and the functions that choose from it.

Which format a file has is told by its first bytes where the format has such, and by its suffix otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.base import ReadResult, first_bytes
from splatanim.formats.gltf_splats import read_gltf_splats, write_gltf_splats
from splatanim.formats.ksplat import read_ksplat
from splatanim.formats.ply import ply_with_up, read_ply, write_ply
from splatanim.formats.sog import META, read_sog
from splatanim.formats.splat import read_splat, write_splat
from splatanim.formats.spz import read_spz, write_spz

__all__ = [
    "FORMATS",
    "READERS",
    "WRITERS",
    "ReadResult",
    "read_ply",
    "read_splats",
    "write_ply",
    "write_sequence_frame",
    "write_splats",
]

Reader = Callable[[str | os.PathLike[str]], ReadResult]
Writer = Callable[..., tuple[str, ...]]


@dataclass(frozen=True)
class Format:
    """A suffix: how it is read, how it is written (None where it is not), and what its files begin with."""

    read: Reader
    write: Writer | None = None
    magic: bytes | None = None


#: Every format by its suffix. A folder or ``meta.json`` is an unbundled SOG.
FORMATS: dict[str, Format] = {
    ".ply": Format(read_ply, ply_with_up, rb"ply[ \t]*[\r\n]"),
    ".splat": Format(read_splat, write_splat),
    ".ksplat": Format(read_ksplat),
    ".spz": Format(read_spz, write_spz, rb"\x1f\x8b|NGSP"),
    ".sog": Format(read_sog, magic=rb"PK\x03\x04"),
    ".json": Format(read_sog),
    ".glb": Format(read_gltf_splats, write_gltf_splats, rb"glTF"),
    ".gltf": Format(read_gltf_splats),
}
READERS: dict[str, Reader] = {suffix: entry.read for suffix, entry in FORMATS.items()}
WRITERS: dict[str, Writer] = {suffix: entry.write for suffix, entry in FORMATS.items() if entry.write is not None}

_READABLE = ".ply (3DGS, compressed), .splat, .ksplat, .spz, .sog (or its folder), .glb with splats"


def read_splats(path: str | os.PathLike[str]) -> ReadResult:
    """Read splats, choosing the format by the first bytes of the file, then by its suffix.

    Raises InputError where the file is missing, unreadable or of no known format.
    """
    path = Path(path)
    if path.is_dir() and (path / META).is_file():
        return read_sog(path)
    head = first_bytes(path, 16)
    suffix = next((s for s, f in FORMATS.items() if f.magic and re.match(f.magic, head)), path.suffix.lower())
    if suffix in FORMATS:
        return FORMATS[suffix].read(path)
    raise InputError(
        f"{path}: suffix {suffix or '(none)'} is no splat format known here. Readable: {_READABLE}. Export it as .ply."
    )


def write_splats(path: str | os.PathLike[str], splats: Splats, *, up: str | None = None) -> tuple[str, ...]:
    """Write splats in the format of the path's suffix, whole or not at all.

    ``up`` is the up axis (``-y``) where it is known: .ply files say it in their header, .glb files turn it to +y.
    Returns sentences on what the format could not hold.

    Raises InputError for suffixes that are not written, OutputError where the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise InputError(
            f"{path}: {suffix or 'no suffix'} cannot be written as splats. Write one of {', '.join(WRITERS)}."
        )
    return WRITERS[suffix](path, splats, up=up)


def write_sequence_frame(
    folder: str | os.PathLike[str], index: int, splats: Splats, *, suffix: str = ".ply", up: str | None = None
) -> Path:
    """Write frame ``index`` of a sequence as ``folder/frame_0000.ply`` (the folder is made), and return its path.

    ``suffix`` is any that :func:`write_splats` knows. Raises as it does, and OutputError where the folder cannot be
    made.
    """
    from splatanim.formats.atomic import made_folder

    path = made_folder(folder) / f"frame_{index:04d}{suffix}"
    write_splats(path, splats, up=up)
    return path
