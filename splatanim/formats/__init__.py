"""Splat files, one format a module: a table from suffix to reader, and the one function that chooses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from splatanim.errors import InputError
from splatanim.formats.base import ReadResult, first_bytes
from splatanim.formats.ply import read_ply, write_ply, write_sequence_frame

__all__ = ["READERS", "ReadResult", "read_ply", "read_splats", "write_ply", "write_sequence_frame"]

READERS: dict[str, Callable[[str | os.PathLike[str]], ReadResult]] = {".ply": read_ply}

_MAGIC = {rb"ply[ \t]*[\r\n]": ".ply"}
_NOT_YET = {".splat", ".ksplat", ".spz", ".sog"}


def read_splats(path: str | os.PathLike[str]) -> ReadResult:
    """Read splats, choosing the format by the first bytes of the file, then by its suffix.

    Raises InputError where the file is missing, unreadable or of no known format.
    """
    path = Path(path)
    head = first_bytes(path, 16)
    suffix = next((s for magic, s in _MAGIC.items() if re.match(magic, head)), path.suffix.lower())
    if suffix in READERS:
        return READERS[suffix](path)
    readable = ", ".join(READERS)
    if suffix in _NOT_YET:
        raise InputError(
            f"{path}: {suffix} files are not readable yet (readable: {readable}). Convert it to .ply: open it in "
            "SuperSplat and export as PLY, or run splat-transform."
        )
    raise InputError(
        f"{path}: suffix {suffix or '(none)'} is no splat format known here. Readable: {readable}. Export it as .ply."
    )
