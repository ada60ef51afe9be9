"""Frames to files: video through ffmpeg (H.264; VP9 and ProRes 4444, which can be transparent), and PNG.

A transparent frame comes as the rasteriser makes it, over black, with its alpha; files store *straight* colour, that
is, divided by alpha, because that is what WebM, ProRes and PNG are read as.
"""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from jaxtyping import Float, Float32, UInt8

from splatanim.errors import InputError, OutputError
from splatanim.formats.atomic import atomic_path

_TAIL_BYTES = 4000  # of ffmpeg's messages are kept
_NIL = np.float32(0.5 / 255)  # alpha below this is written as 0


@dataclass(frozen=True)
class _Codec:
    """How ffmpeg is told to encode: options without alpha, and with it (None where the format has none)."""

    name: str
    opaque: tuple[str, ...]
    transparent: tuple[str, ...] | None
    even: bool


_VP9 = ("-c:v", "libvpx-vp9", "-b:v", "0", "-deadline", "good", "-cpu-used", "4", "-row-mt", "1")
_PRORES = ("-c:v", "prores_ks", "-vendor", "apl0", "-qscale:v", "9")
_CODECS = {
    ".mp4": _Codec("H.264", ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart"), None, True),
    ".webm": _Codec(
        "VP9", (*_VP9, "-pix_fmt", "yuv420p"), (*_VP9, "-pix_fmt", "yuva420p", "-auto-alt-ref", "0"), False
    ),
    ".mov": _Codec(
        "ProRes",
        (*_PRORES, "-profile:v", "3", "-pix_fmt", "yuv422p10le"),
        (*_PRORES, "-profile:v", "4444", "-pix_fmt", "yuva444p10le", "-alpha_bits", "16"),
        True,
    ),
}


class VideoWriter:
    """Writes a video frame by frame; memory does not grow with the length.

    ::

        with VideoWriter("out.mp4", fps=30) as video:
            for frame in frames:  # (H, W, 3), float in [0, 1] or uint8
                video.write(frame)

    The suffix says what it is: ``.mp4`` H.264 (yuv420p, faststart), ``.webm`` VP9, ``.mov`` ProRes (422 HQ, or 4444
    with alpha); all BT.709. With ``alpha`` every frame comes with its alpha, and has been rendered over black.

    H.264 and ProRes want even sizes: an odd width or height gets its last column or row once more, which ``note``
    then says. The file appears under its name when the block ends well; after any failure, an interrupt included,
    nothing is left and an older file of that name stays as it was.

    Args:
        path: ends in ``.mp4``, ``.webm`` or ``.mov``.
        fps: frames per second.
        crf: quality of H.264 and VP9, 0 (lossless) to 51; 18 looks lossless.
        alpha: a transparent film (not in ``.mp4``).

    Raises:
        InputError: another suffix, alpha in an MP4, a rate that is not positive, frames of differing sizes, no frame.
        OutputError: the folder cannot be written, or ffmpeg fails (with its own message).

    The program is the one of ``imageio-ffmpeg``, or what the environment variable ``IMAGEIO_FFMPEG_EXE`` names.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float = 30.0, crf: int = 18, alpha: bool = False) -> None:
        self.path = Path(path)
        self.fps = float(fps)
        self.note = ""
        self.frames = 0
        self.alpha = alpha
        suffix = self.path.suffix.lower()
        if suffix not in _CODECS:
            raise InputError(
                f"{path}: only {', '.join(_CODECS)} can be written. Give a name such as "
                f"{self.path.with_suffix('.mp4')}."
            )
        self._codec = _CODECS[suffix]
        options = self._codec.transparent if alpha else self._codec.opaque
        if options is None:
            raise InputError(
                f"{path}: an MP4 cannot be transparent. Write {self.path.with_suffix('.webm').name} (for browsers), "
                f"{self.path.with_suffix('.mov').name} (ProRes 4444, for editors) or a folder of PNGs."
            )
        quality = () if suffix == ".mov" else ("-crf", str(crf))
        self._options = (*options, *quality)
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

    def write(
        self,
        rgb: Float[np.ndarray, "..."] | UInt8[np.ndarray, "..."],
        alpha: Float[np.ndarray, "..."] | None = None,
    ) -> None:
        """Append a frame (H, W, 3): float in [0, 1] (clipped) or uint8; with its alpha (H, W) in a transparent film."""
        if rgb.ndim != 3 or rgb.shape[2] != 3:
            raise InputError(f"{self.path}: a frame has shape {rgb.shape}; (height, width, 3) is needed.")
        if (alpha is not None) != self.alpha:
            said = "has no alpha, but the film is transparent" if self.alpha else "has alpha, but the film is opaque"
            raise InputError(f"{self.path}: frame {self.frames} {said}. Give alpha for every frame or for none.")
        if self._encoder is None:
            self._start(rgb.shape)
        if rgb.shape != self._shape:
            raise InputError(f"{self.path}: frame {self.frames} has shape {rgb.shape}, the first had {self._shape}.")
        height, width = rgb.shape[:2]
        frame = to_bytes(rgb) if alpha is None else straight(rgb, alpha)
        if self._codec.even:
            frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        assert self._encoder is not None
        self._encoder.write(frame)
        self.frames += 1

    def _start(self, shape: tuple[int, ...]) -> None:
        height, width = shape[:2]
        size = (width + width % 2, height + height % 2) if self._codec.even else (width, height)
        if size != (width, height):
            self.note = f"{width}x{height} was padded to {size[0]}x{size[1]}: {self._codec.name} needs even sizes."
        self._shape = shape
        kind = "rgba" if self.alpha else "rgb24"
        self._encoder = _Encoder(self.path, self._temporary, size, self.fps, kind, self._options)

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

    def __init__(
        self, path: Path, temporary: Path, size: tuple[int, int], fps: float, kind: str, options: tuple[str, ...]
    ) -> None:
        self._path = path
        self._messages = b""
        program = _ffmpeg(path)
        command = [program, "-y", "-nostdin", "-nostats", "-loglevel", "error"]
        command += ["-f", "rawvideo", "-pix_fmt", kind, "-s", f"{size[0]}x{size[1]}", "-framerate", f"{fps:.6g}"]
        command += ["-i", "pipe:0", "-an", "-vf", "scale=out_color_matrix=bt709:out_range=tv"]
        command += [*options, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"]
        command += ["-color_range", "tv", str(temporary)]
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

    def write(self, frame: UInt8[np.ndarray, "h w c"]) -> None:
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

    With ``alpha``, ``rgb`` must have been rendered over black: :func:`straight` makes of it what PNG wants.

    Raises InputError for another suffix than ``.png``, OutputError where the file cannot be written.
    """
    from PIL import Image

    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{path}: an image is written as .png. Give a name such as {Path(path).with_suffix('.png')}.")
    pixels = to_bytes(rgb) if alpha is None else straight(rgb, alpha)
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary)


def straight(
    rgb: Float[np.ndarray, "h w 3"] | UInt8[np.ndarray, "h w 3"], alpha: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 4"]:
    """Colour over black, and alpha, to bytes of straight colour and alpha.

    Where nothing is seen the colour is that of what is seen nearby: players filter and subsample colour apart from
    alpha, and a black surrounding would show as a dark rim.
    """
    scale = 255.0 if rgb.dtype == np.uint8 else 1.0
    seen = np.clip(np.nan_to_num(np.asarray(alpha, np.float32)), 0.0, 1.0)
    colour = _extended(np.nan_to_num(np.asarray(rgb, np.float32) / np.float32(scale)), seen)
    return np.concatenate([to_bytes(colour), to_bytes(seen)[..., None]], axis=-1)


def _extended(premultiplied: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Straight colour; where alpha is nil, that of the next coarser picture of half the size, and so on."""
    colour = premultiplied / np.maximum(alpha, _NIL)[..., None]
    nil = alpha < _NIL
    if not nil.any() or max(alpha.shape) == 1:
        return colour
    height, width = alpha.shape
    both = np.concatenate([premultiplied, alpha[..., None]], axis=-1) * ~nil[..., None]
    both = np.pad(both, ((0, height % 2), (0, width % 2), (0, 0)))
    both = both.reshape(both.shape[0] // 2, 2, both.shape[1] // 2, 2, 4).mean(axis=(1, 3))
    # Wherever anything was seen, the coarser picture is opaque: a single pixel must last to the coarsest.
    both /= np.where(both[..., 3:] > 0, both[..., 3:], 1.0)
    coarse = _extended(both[..., :3], both[..., 3])
    coarse = coarse.repeat(2, axis=0).repeat(2, axis=1)[:height, :width]
    colour[nil] = coarse[nil]
    return colour


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
