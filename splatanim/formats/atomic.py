"""Outputs that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from splatanim.errors import OutputError

_NEXT_STEP = {
    errno.ENOSPC: "The disk is full: free some space, or write to another disk.",
    errno.EDQUOT: "The disk quota is used up: free some space, or write to another disk.",
    errno.EACCES: "Choose a folder you may write to.",
    errno.EPERM: "Choose a folder you may write to.",
    errno.EROFS: "The disk is read-only: choose another folder.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to, moved onto ``path`` when the block ends well.

    The temporary file lies in the folder of ``path`` and has its suffix (muxers go by it). When the block fails in
    any way, an interrupt included, it is removed and whatever stood at ``path`` before stays as it was. A symbolic
    link is written through, not replaced.

    Raises OutputError where the folder is missing or ``path`` is a folder (before the block runs), and for every
    OSError in the block.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OutputError(f"{path}: is a folder. Give the name of a file.")
    if not target.parent.is_dir():
        raise OutputError(f"{path}: the folder {target.parent} does not exist. Create it, or choose another.")
    temporary = target.with_name(f".{target.stem[:40]}.{secrets.token_hex(4)}{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except OutputError:
        raise
    except OSError as error:
        step = _NEXT_STEP.get(error.errno or 0, "Check the folder and the disk, then try again.")
        raise OutputError(f"{path}: cannot be written ({error.strerror or error}). {step}") from error
    finally:
        with suppress(OSError):  # gone already after the move; never hide the error that brought us here
            temporary.unlink()


def made_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made where it is missing; raises OutputError where that is impossible."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: the folder cannot be made ({error.strerror or error}). Choose another one."
        ) from error
    return Path(folder)
