"""The video that a rig's motion is fitted to: frames, masks, the camera; and the checks that refuse what cannot work.

A clip is read whole: at 256 px a frame takes about half a megabyte with its mask and depth, which is why clips longer
than :data:`MOST_FRAMES` are refused with the memory said and the way to take a part of them.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from splatanim.errors import InputError
from splatanim.render.camera import Camera

MOST_FRAMES = 600
_BYTES_A_PIXEL = 3 + 1 + 4 + 4  # colour, mask, depth, and the distance to the mask that fitting keeps
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_VIDEOS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".gif")
_PLAIN = 24  # [of 255] by which a pixel must differ from a plain background to be the subject
_SMALLEST = 30  # pixels of a subject


@dataclass(frozen=True)
class Clip:
    """T frames from one fixed camera: ``rgb`` (T, h, w, 3) over white, ``masks`` (T, h, w), frames a second; ``alpha``
    (T, h, w) how much of a pixel is the subject, where the pictures say it."""

    rgb: UInt8[np.ndarray, "t h w 3"]
    masks: Bool[np.ndarray, "t h w"]
    camera: Camera
    fps: float
    notes: tuple[str, ...] = ()
    alpha: UInt8[np.ndarray, "t h w"] | None = None

    def __len__(self) -> int:
        return len(self.rgb)

    def picture(self, frame: int) -> Float32[np.ndarray, "h w 3"]:
        """One frame in [0, 1]."""
        return self.rgb[frame].astype(np.float32) / 255

    def over_grey(self, frame: int, grey: int = 128) -> UInt8[np.ndarray, "h w 3"]:
        """One frame with everything but the subject grey, edges blended where alpha is known."""
        if self.alpha is None:
            return np.where(self.masks[frame][..., None], self.rgb[frame], np.uint8(grey))
        behind = (255 - self.alpha[frame].astype(np.float32))[..., None] * ((255 - grey) / 255)
        return np.clip(np.round(self.rgb[frame] - behind), 0, 255).astype(np.uint8)


def read_clip(
    path: str | os.PathLike[str],
    camera: Camera,
    *,
    masks: str = "auto",
    fps: float | None = None,
    part: slice = slice(None),
) -> Clip:
    """Read a video, or a folder of pictures in the order of the numbers in their names.

    ``masks``: ``alpha`` (of the pictures), a folder of mask pictures, or ``auto``: alpha where there is some, else what
    differs from the border's colour. ``part`` takes some of the frames.

    Raises InputError for: no or unreadable frames, one frame, too many, sizes that differ from each other or from the
    camera's, a variable frame rate, and frames without a subject.
    """
    path = Path(path)
    if path.is_dir():
        names = numbered(path, _PICTURES)[part]
        _check_count(path, len(names), camera)
        rgba, rate = _read_pictures(path, names), fps
    else:
        rgba, rate = _read_video(path, part, camera)
        rate = fps or rate
    shape = rgba.shape[1:3]
    if shape != (camera.height, camera.width):
        raise InputError(
            f"{path}: the frames are {shape[1]}x{shape[0]}, the camera is for {camera.width}x{camera.height}. "
            "Give the camera of this video, or scale the video to the camera's size."
        )
    found, note = _masks(path, rgba, masks, part)
    alpha = rgba[..., 3:].astype(np.float32) / 255
    rgb = np.round(rgba[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8) if alpha.min() < 1 else rgba[..., :3]
    if masks != "alpha" and alpha.min() == 1:
        rgb = np.where(found[..., None], rgb, np.uint8(255))  # the cloud is drawn over white
    _check_subject(path, found)
    soft = np.ascontiguousarray(rgba[..., 3]) if alpha.min() < 1 else None
    return Clip(np.ascontiguousarray(rgb), found, camera, float(rate or 24.0), (note,) if note else (), soft)


def numbered(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """A folder's files with these suffixes, by the last number in their names."""
    files = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in suffixes]

    def key(file: Path) -> tuple[int, str]:
        digits = re.findall(r"\d+", file.stem)
        return (int(digits[-1]) if digits else -1, file.name)

    return sorted(files, key=key)


def read_picture(path: Path) -> UInt8[np.ndarray, "h w 4"]:
    """A picture as RGBA; InputError names a file that cannot be read."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGBA"))
    except (OSError, UnidentifiedImageError) as error:
        raise InputError(f"{path}: cannot be read as a picture ({error}). Export this frame again.") from error


def _read_pictures(folder: Path, names: list[Path]) -> UInt8[np.ndarray, "t h w 4"]:
    pictures = [read_picture(name) for name in names]
    for name, picture in zip(names, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            raise InputError(
                f"{name}: is {picture.shape[1]}x{picture.shape[0]}, the first frame of {folder} is "
                f"{pictures[0].shape[1]}x{pictures[0].shape[0]}. All frames of a clip have one size."
            )
    return np.stack(pictures)


def _check_count(path: Path, count: int, camera: Camera) -> None:
    if count < 2:
        raise InputError(
            f"{path}: {'one frame' if count else 'no frame'} was found; motion needs two or more "
            f"(pictures: {', '.join(_PICTURES)})."
        )
    if count > MOST_FRAMES:
        gigabytes = count * camera.width * camera.height * _BYTES_A_PIXEL / 1e9
        raise InputError(
            f"{path}: {count} frames would take {gigabytes:.1f} GB; up to {MOST_FRAMES} are fitted at once. "
            f"Take a part, such as --frames 0:{MOST_FRAMES}, or every n-th frame, such as --frames ::4."
        )


def _read_video(path: Path, part: slice, camera: Camera) -> tuple[UInt8[np.ndarray, "t h w 4"], float]:
    import imageio_ffmpeg

    if not path.is_file():
        raise InputError(f"{path}: no such video or folder. Check the spelling.")
    if path.suffix.lower() not in _VIDEOS:
        raise InputError(f"{path}: is no video known here ({', '.join(_VIDEOS)}). A folder of frames will do, too.")
    _check_rate(path)
    frames: list[np.ndarray] = []
    try:
        reader = imageio_ffmpeg.read_frames(str(path), pix_fmt="rgb24")
        meta = next(reader)
        width, height = meta["size"]
        for data in islice(reader, part.start or 0, part.stop, part.step or 1):
            frames.append(np.frombuffer(data, np.uint8).reshape(height, width, 3))
            if len(frames) > MOST_FRAMES:
                break
        reader.close()
    except (OSError, RuntimeError, StopIteration, IndexError) as error:
        raise InputError(f"{path}: ffmpeg cannot read it ({str(error)[-200:]}). Re-encode the video.") from error
    count = len(frames)
    if count > MOST_FRAMES and part == slice(None):
        count = max(count, round(float(meta.get("duration") or 0) * float(meta.get("fps") or 0)))
    _check_count(path, count, camera)
    rgb = np.stack(frames)
    rgba = np.concatenate([rgb, np.full((*rgb.shape[:3], 1), 255, np.uint8)], axis=-1)
    rate = float(meta.get("fps") or 24.0)
    return rgba, rate / (part.step or 1)


def _check_rate(path: Path) -> None:
    """Refuse a variable frame rate: frames would not be evenly spaced in time."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-i", str(path), "-vf", "vfrdet", "-an", "-f", "null"]
    said = subprocess.run([*command, "-"], capture_output=True, text=True, errors="replace", check=False).stderr
    share = re.search(r"VFR:([0-9.]+)", said)
    if share and float(share.group(1)) > 0.02:
        raise InputError(
            f"{path}: its frame rate varies ({100 * float(share.group(1)):.0f} % of the frames). Re-encode it at one "
            f"rate: ffmpeg -i {path.name} -fps_mode cfr -r 24 even.mp4"
        )


def _masks(path: Path, rgba: np.ndarray, how: str, part: slice) -> tuple[Bool[np.ndarray, "t h w"], str]:
    has_alpha = bool((rgba[..., 3] < 128).any())
    if how == "alpha" or (how == "auto" and has_alpha):
        if not has_alpha:
            raise InputError(f"{path}: --masks alpha, but no frame has a transparent pixel. Use a folder, or auto.")
        return rgba[..., 3] > 127, ""
    if how != "auto":
        return _read_masks(Path(how), rgba.shape[:3], part), ""
    rgb = rgba[..., :3].astype(np.int16)
    border = np.concatenate([rgb[:, 0], rgb[:, -1], rgb[:, :, 0], rgb[:, :, -1]], axis=1)
    plain = np.median(border, axis=(0, 1))
    off = float((np.abs(border - plain).max(axis=-1) > _PLAIN).mean())
    if off > 0.15:
        raise InputError(
            f"{path}: there is no alpha, and the background is not plain ({100 * off:.0f} % of the border differs from "
            "its median colour). Give masks of the subject: --masks FOLDER."
        )
    found = np.abs(rgb - plain).max(axis=-1) > _PLAIN
    return np.stack([_largest(mask) for mask in found]), f"{path}: masks are what differs from the plain background."


def _largest(mask: np.ndarray) -> np.ndarray:
    """Holes filled, and parts of less than a twentieth of the largest left out: marks, dust."""
    from scipy.ndimage import binary_fill_holes, label

    parts, count = label(binary_fill_holes(mask), np.ones((3, 3)))
    sizes = np.bincount(parts.ravel(), minlength=count + 1)
    sizes[0] = 0
    return (sizes >= max(sizes.max(), 1) / 20)[parts]


def _read_masks(folder: Path, shape: tuple[int, ...], part: slice) -> Bool[np.ndarray, "t h w"]:
    if not folder.is_dir():
        raise InputError(f"--masks {folder}: give alpha, auto, or a folder of mask pictures; there is no such folder.")
    names = numbered(folder, _PICTURES)[part]
    if len(names) != shape[0]:
        raise InputError(f"{folder}: holds {len(names)} masks for {shape[0]} frames. One mask a frame is needed.")
    pictures = _read_pictures(folder, names)
    if pictures.shape[1:3] != shape[1:]:
        raise InputError(
            f"{folder}: masks are {pictures.shape[2]}x{pictures.shape[1]}, the frames {shape[2]}x{shape[1]}."
        )
    cut = pictures[..., 3] if (pictures[..., 3] < 128).any() else pictures[..., :3].max(axis=-1)
    return cut > 127


def _check_subject(path: Path, masks: np.ndarray) -> None:
    sizes = masks.reshape(len(masks), -1).sum(axis=1)
    if sizes[0] < _SMALLEST or np.median(sizes) < _SMALLEST:
        raise InputError(
            f"{path}: the masks show no subject (the first has {sizes[0]} pixels, half of them less than "
            f"{int(np.median(sizes))}). Are they inverted or empty? Give others with --masks."
        )
    if sizes.min() > 0.95 * masks[0].size:
        raise InputError(f"{path}: the masks cover the whole picture. Give masks of the subject: --masks FOLDER.")
