"""What every reader of splats returns, and how it looks at its file first."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from splatanim.data import Splats
from splatanim.errors import InputError

#: Positions and scales beyond this (file units) count as not finite: their squares would leave float32.
COORDINATE_LIMIT = 1e15


@dataclass(frozen=True)
class ReadResult:
    """The splats of a file, and what happened to them on the way in.

    ``format`` is the dialect, e.g. ``ply/3dgs``. ``total`` counts the rows of the file; ``dropped`` counts the rows
    left out, by reason, one reason a row (``nan_position``, ``nan_scale``, ``nan_rotation``, ``nan_opacity``,
    ``nan_sh``, ``zero_quaternion``), so that ``total == len(splats) + sum(dropped.values())``. ``warnings`` are
    sentences for the user. ``up`` is the up axis the file itself states (``+z``, ``-y`` ...), None where it is silent.
    """

    splats: Splats
    format: str
    total: int
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    up: str | None = None


def first_bytes(path: Path, count: int) -> bytes:
    """The first ``count`` bytes of a file.

    Raises InputError where the path is missing, a folder, empty or may not be read.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(count)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Check the spelling and the folder.") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a file. Give one splat file of it.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}). Check its permissions and the disk.") from error
    if not head:
        raise InputError(f"{path}: the file is empty. Export or download it again.")
    return head


def read_bytes(path: Path) -> bytes:
    """A whole file; raises InputError as :func:`first_bytes` does."""
    first_bytes(path, 1)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: reading failed ({error.strerror or error}). Check the disk, then retry.") from error


def damaged(path: Path, what: str) -> InputError:
    """The error for a file that is cut off or contradicts itself or its format; what others say of it is kept short."""
    what = what if len(what) < 200 else f"{what[:190]} ..."
    return InputError(f"{path}: {what}. The file is cut off or damaged: copy, download or export it again.")
