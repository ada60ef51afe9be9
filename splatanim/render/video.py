"""Frames to files: H.264 video through ffmpeg, and PNG."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from jaxtyping import Float, Float32, UInt8

from splatanim.errors import InputError, OutputError
from splatanim.formats.atomic import atomic_path

_TAIL_BYTES = 4000  # of ffmpeg's messages are kept


class VideoWriter:
    """Writes an MP4 (H.264, yuv420p, BT.709, faststart) frame by frame; memory does not grow with the length.

    ::

        with VideoWriter("out.mp4", fps=30) as video:
            for frame in frames:  # (H, W, 3), float in [0, 1] or uint8
                video.write(frame)

    H.264 in yuv420p wants even sizes: an odd width or height gets its last column or row once more, which ``note``
    then says. The file appears under its name when the block ends well; after any failure, an interrupt included,
    nothing is left and an older file of that name stays as it was.

    Args:
        path: ends in ``.mp4``.
        fps: frames per second.
        crf: quality, 0 (lossless) to 51; 18 looks lossless.

    Raises:
        InputError: another suffix, a rate that is not positive, frames of differing sizes, no frame at all.
        OutputError: the folder cannot be written, or ffmpeg fails (with its own message).

    The program is the one of ``imageio-ffmpeg``, or what the environment variable ``IMAGEIO_FFMPEG_EXE`` names.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float = 30.0, crf: int = 18) -> None:
        self.path = Path(path)
        self.fps = float(fps)
        self.crf = crf
        self.note = ""
        self.frames = 0
        if self.path.suffix.lower() != ".mp4":
            raise InputError(f"{path}: only .mp4 can be written. Give a name such as {self.path.with_suffix('.mp4')}.")
        if not 0 < self.fps < 1e4:
            raise InputError(f"{path}: {fps} frames per second; give a positive number such as 30.")
        self._stack = ExitStack()
        self._encoder: _Encoder | None = None
        self._shape: tuple[int, ...] = ()

    def __enter__(self) -> VideoWriter:
        self._temporary = self._stack.enter_context(atomic_path(self.path))
        self._stack.push(self._close)  # runs before the temporary file is moved or removed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def write(self, rgb: Float[np.ndarray, "..."] | UInt8[np.ndarray, "..."]) -> None:
        """Append a frame (H, W, 3): float in [0, 1] (clipped) or uint8."""
        if rgb.ndim != 3 or rgb.shape[2] != 3:
            raise InputError(f"{self.path}: a frame has shape {rgb.shape}; (height, width, 3) is needed.")
        if self._encoder is None:
            self._start(rgb.shape)
        if rgb.shape != self._shape:
            raise InputError(f"{self.path}: frame {self.frames} has shape {rgb.shape}, the first had {self._shape}.")
        height, width = rgb.shape[:2]
        frame = np.pad(to_bytes(rgb), ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        assert self._encoder is not None
        self._encoder.write(frame)
        self.frames += 1

    def _start(self, shape: tuple[int, ...]) -> None:
        height, width = shape[:2]
        even = (width + width % 2, height + height % 2)
        if even != (width, height):
            self.note = f"{width}x{height} was padded to {even[0]}x{even[1]}: H.264 needs even sizes."
        self._shape = shape
        self._encoder = _Encoder(self.path, self._temporary, even, self.fps, self.crf)

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if self._encoder is not None:
                self._encoder.abort()
        elif self._encoder is None:
            raise InputError(f"{self.path}: no frame was given, so there is no video to write.")
        else:
            self._encoder.finish()


class _Encoder:
    """The ffmpeg process: frames go in through a pipe, the end of what it says is kept."""

    def __init__(self, path: Path, temporary: Path, size: tuple[int, int], fps: float, crf: int) -> None:
        self._path = path
        self._messages = b""
        program = _ffmpeg(path)
        command = [program, "-y", "-nostdin", "-nostats", "-loglevel", "error"]
        command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-framerate", f"{fps:.6g}"]
        command += ["-i", "pipe:0", "-an", "-vf", "scale=out_color_matrix=bt709:out_range=tv"]
        command += ["-c:v", "libx264", "-crf", str(crf), "-pix_fmt", "yuv420p", "-colorspace", "bt709"]
        command += ["-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
        command += ["-movflags", "+faststart", str(temporary)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise OutputError(f"{path}: ffmpeg ({program}) cannot be started: {error}.") from error
        assert self._process.stdin is not None and self._process.stderr is not None
        self._input = self._process.stdin
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        """Keep reading, so that ffmpeg never blocks on a full pipe; keep only the end."""
        with stream:
            for block in iter(lambda: stream.read1(4096), b""):  # type: ignore[attr-defined]
                self._messages = (self._messages + block)[-_TAIL_BYTES:]

    def write(self, frame: UInt8[np.ndarray, "h w 3"]) -> None:
        try:
            self._input.write(np.ascontiguousarray(frame).data)
        except OSError as error:  # it has closed its end: it has failed, and says why
            raise self._failure() from error

    def finish(self) -> None:
        """Close the pipe and wait; OutputError where ffmpeg reports failure."""
        try:
            self._input.close()
            failed = self._process.wait() != 0
        except OSError as error:
            raise self._failure() from error
        except BaseException:  # an interrupt while ffmpeg writes its last frames
            self.abort()
            raise
        if failed:
            raise self._failure()
        self._reader.join()

    def abort(self) -> None:
        """Stop ffmpeg, whatever it does; safe to call after a failure, too."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)
        try:
            self._input.close()
        except OSError:
            pass

    def _failure(self) -> OutputError:
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5)
        lines = self._messages.decode("utf-8", "replace").strip().splitlines()[-8:]
        said = "\n".join(f"  {line.strip()}" for line in lines) or "  (it said nothing)"
        return OutputError(
            f"{self._path}: ffmpeg failed with exit code {self._process.returncode}; it said:\n{said}\n"
            "Check that the disk has room; IMAGEIO_FFMPEG_EXE can name another ffmpeg."
        )


def write_png(
    path: str | os.PathLike[str],
    rgb: Float32[np.ndarray, "h w 3"] | UInt8[np.ndarray, "h w 3"],
    alpha: Float32[np.ndarray, "h w"] | None = None,
) -> None:
    """Write an 8-bit PNG, whole or not at all.

    With ``alpha``, ``rgb`` must have been rendered over black: it is divided by alpha, as PNG wants it.

    Raises InputError for another suffix than ``.png``, OutputError where the file cannot be written.
    """
    from PIL import Image

    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{path}: an image is written as .png. Give a name such as {Path(path).with_suffix('.png')}.")
    pixels = to_bytes(rgb)
    if alpha is not None:
        straight = (np.asarray(pixels, np.float32) / 255) / np.maximum(alpha, 1e-6)[..., None]
        pixels = np.concatenate([to_bytes(straight), to_bytes(alpha)[..., None]], axis=-1)
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary)


def to_bytes(values: Float[np.ndarray, "..."] | UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """[0, 1] to [0, 255], clipped and rounded; NaN becomes 0; bytes pass through."""
    if values.dtype == np.uint8:
        return values
    return (np.clip(np.nan_to_num(values), 0.0, 1.0) * 255 + 0.5).astype(np.uint8)


def _ffmpeg(path: Path) -> str:
    import imageio_ffmpeg

    try:
        return imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise OutputError(
            f"{path}: no ffmpeg was found ({error}). Install one with: pip install imageio-ffmpeg"
        ) from error
