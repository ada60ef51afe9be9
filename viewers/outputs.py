"""Where the viewer's buttons write: one folder, numbered names, nothing overwritten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from splatanim.formats.atomic import made_folder


@dataclass(frozen=True)
class OutputFolder:
    """A folder that is made when something is first written into it."""

    path: Path

    def new(self, stem: str, suffix: str = "") -> Path:
        """A name that is not taken: ``stem_000.suffix``, counting up; without suffix, of a folder.

        Raises OutputError where the folder cannot be made.
        """
        made_folder(self.path)
        taken = {path.stem if path.suffix else path.name for path in self.path.iterdir()}
        return self.path / f"{_free(stem, taken)}{suffix}"


def _free(stem: str, taken: Iterable[str]) -> str:
    names = set(taken)
    return next(name for k in range(10**6) if (name := f"{stem}_{k:03d}") not in names)
