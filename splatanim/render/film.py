"""One way to write a film, whatever it becomes: a video by its suffix, or a folder of PNGs."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np
from jaxtyping import Float, UInt8

from splatanim.errors import InputError, OutputError
from splatanim.formats.atomic import made_folder
from splatanim.render.video import VideoWriter, write_png

#: Suffixes that can hold alpha; a path without a suffix is a folder of PNGs, which can as well.
TRANSPARENT = (".webm", ".mov", "")


class PngFolder:
    """Writes ``frame_0000.png`` ... into a folder; the interface is :class:`VideoWriter`'s.

    The frames appear in the folder when the block ends well, in the place of older ones of that name; after any
    failure nothing is left of them. With ``alpha`` they have straight alpha.

    Raises InputError for frames with alpha in an opaque film and the other way round and for no frame at all,
    OutputError where the folder cannot be made or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, alpha: bool = False) -> None:
        self.path = Path(path)
        self.alpha = alpha
        self.frames = 0
        self.note = ""
        self._made = False

    def __enter__(self) -> PngFolder:
        self._made = not self.path.exists()
        made_folder(self.path)
        try:
            self._temporary = Path(tempfile.mkdtemp(prefix=".frames.", dir=self.path))
        except OSError as error:
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror or error}). Choose a folder you may write to."
            ) from error
        return self

    def write(
        self,
        rgb: Float[np.ndarray, "h w 3"] | UInt8[np.ndarray, "h w 3"],
        alpha: Float[np.ndarray, "h w"] | None = None,
    ) -> None:
        """Append a frame, as :meth:`VideoWriter.write` does."""
        if (alpha is not None) != self.alpha:
            said = "has no alpha, but the film is transparent" if self.alpha else "has alpha, but the film is opaque"
            raise InputError(f"{self.path}: frame {self.frames} {said}. Give alpha for every frame or for none.")
        write_png(self._temporary / f"frame_{self.frames:04d}.png", rgb, alpha)
        self.frames += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                if not self.frames:
                    raise InputError(f"{self.path}: no frame was given, so there is nothing to write.")
                for frame in sorted(self._temporary.iterdir()):
                    os.replace(frame, self.path / frame.name)
        except OSError as failure:
            raise OutputError(f"{self.path}: cannot be written ({failure.strerror or failure}).") from failure
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)
            if self._made and not any(self.path.iterdir()):
                self.path.rmdir()


def open_film(
    path: str | os.PathLike[str], *, fps: float = 30.0, crf: int = 18, alpha: bool = False
) -> VideoWriter | PngFolder:
    """What writes a film to ``path``: .mp4, .webm or .mov, or a folder of PNGs where it has no suffix.

    Raises InputError for other suffixes, and for a transparent .mp4, with what to write instead.
    """
    if not Path(path).suffix:
        return PngFolder(path, alpha=alpha)
    return VideoWriter(path, fps=fps, crf=crf, alpha=alpha)
