"""Posed images of one subject: what every layout is read into, how images are read and checked, and the dispatch.

Layouts, told apart by what lies in the folder:

* ``annots.npy``: ZJU-MoCap (:mod:`rigpapr.dataset_zju`);
* ``transforms_train.json`` or ``transforms.json``, or such a file itself: NeRF-synthetic, nerfstudio
  (:mod:`rigpapr.dataset_transforms`);
* ``sparse/0``, ``sparse`` or the folder itself with ``cameras.bin`` or ``cameras.txt``: COLMAP
  (:mod:`rigpapr.dataset_colmap`).

The subject is cut out by the images' alpha, by mask files, or, where there are neither, by what differs from a plain
background colour.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from splatanim.errors import InputError
from splatanim.render.camera import Camera

Colour = tuple[float, float, float]
_PLAIN = 3  # [of 255] by which a pixel may differ from a plain background and still belong to it


@dataclass(frozen=True)
class Lens:
    """Distortion by OpenCV's polynomial (``k1 k2 p1 p2 k3 k4 k5 k6``) or, for a fisheye, ``k1 k2 k3 k4``."""

    coefficients: tuple[float, ...] = ()
    fisheye: bool = False

    @property
    def straight(self) -> bool:
        """Whether there is nothing to undo."""
        return not self.fisheye and not any(self.coefficients)


@dataclass(frozen=True)
class Source:
    """Where a view comes from, before its image is read; ``where`` names file and frame in messages."""

    name: str
    where: str
    image: Path
    camera: Camera
    mask: Path | None = None
    lens: Lens = Lens()


@dataclass(frozen=True)
class View:
    """An undistorted image: straight (not premultiplied) ``rgba`` whose alpha is the mask, and its camera."""

    name: str
    camera: Camera
    rgba: UInt8[np.ndarray, "h w 4"]

    def over(self, background: Colour) -> Float[np.ndarray, "h w 3"]:
        """The image composited over a colour, float32 in [0, 1]."""
        pixels = self.rgba.astype(np.float32) / 255
        alpha = pixels[..., 3:]
        return pixels[..., :3] * alpha + (1 - alpha) * np.asarray(background, np.float32)

    @property
    def mask(self) -> Float[np.ndarray, "h w"]:
        """Alpha in [0, 1]."""
        return self.rgba[..., 3].astype(np.float32) / 255


@dataclass(frozen=True)
class ReadOptions:
    """How a dataset is read.

    ``resolution``: images whose longer side exceeds it are reduced to it, 0 never. ``background``: of images without
    alpha and masks. ``frame``: which moment of a multi-camera video. ``invert_masks``: masks are white outside.
    """

    resolution: int = 0
    background: Colour = (1.0, 1.0, 1.0)
    frame: int = 0
    invert_masks: bool = False


def read_dataset(path: str | os.PathLike[str], options: ReadOptions | None = None) -> list[View]:
    """Read the posed images at ``path``, a folder or a transforms file.

    Raises InputError, naming file and frame, for: no known layout, a missing image or mask, sizes that differ from
    the camera's or among the images, a pose that is no rotation, masks that are empty or look inverted.
    """
    from rigpapr.dataset_colmap import colmap_model, colmap_sources
    from rigpapr.dataset_transforms import transforms_file, transforms_sources
    from rigpapr.dataset_zju import zju_sources

    options = options or ReadOptions()
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such folder or file. Check the spelling.")
    if path.is_dir() and (path / "annots.npy").is_file():
        sources = zju_sources(path, options.frame)
    elif (file := transforms_file(path)) is not None:
        sources = transforms_sources(file)
    elif (model := colmap_model(path)) is not None:
        sources = colmap_sources(path, model)
    else:
        raise InputError(
            f"{path}: no dataset layout known here. It needs transforms_train.json or transforms.json (NeRF, "
            "nerfstudio), sparse/0 with cameras.bin or cameras.txt (COLMAP), or annots.npy (ZJU-MoCap)."
        )
    views = [read_view(source, options) for source in sources]
    check_masks(views, [source.where for source in sources])
    return views


def read_view(source: Source, options: ReadOptions) -> View:
    """Read, cut out, undistort and reduce one image."""
    rgba = _read_rgba(source, options)
    height, width = rgba.shape[:2]
    camera = source.camera
    if (width, height) != (camera.width, camera.height):
        raise InputError(
            f"{source.where}: {source.image} is {width}x{height}, but its intrinsics are for {camera.width}x"
            f"{camera.height}. Use the images that were calibrated, or correct the size and the focal length."
        )
    if not source.lens.straight:
        rgba = undistort(rgba, camera, source.lens)
    longest = max(width, height)
    if 0 < options.resolution < longest:
        factor = options.resolution / longest
        rgba, camera = _reduced(rgba, camera, max(1, round(width * factor)), max(1, round(height * factor)))
    return View(source.name, camera, rgba)


def _read_rgba(source: Source, options: ReadOptions) -> UInt8[np.ndarray, "h w 4"]:
    image = _open(source.image, source.where)
    rgba = np.array(image.convert("RGBA"))
    if source.mask is not None:
        mask = np.asarray(_open(source.mask, source.where).convert("L"))
        if mask.shape != rgba.shape[:2]:
            raise InputError(
                f"{source.where}: the mask {source.mask} is {mask.shape[1]}x{mask.shape[0]}, the image "
                f"{rgba.shape[1]}x{rgba.shape[0]}. They must be of one size."
            )
        # Label images hold small whole numbers; everything but 0 is the subject there.
        rgba[..., 3] = np.where(mask > 0, 255, 0) if mask.max() < 64 else mask
    elif "A" not in image.getbands() and "transparency" not in image.info:
        plain = np.round(255 * np.asarray(options.background))
        rgba[..., 3] = np.where((np.abs(rgba[..., :3] - plain) > _PLAIN).any(axis=-1), 255, 0)
        if rgba[..., 3].all():
            raise InputError(
                f"{source.where}: {source.image} has neither alpha nor a mask, and no pixel of the background colour "
                f"{options.background}. Give RGBA images or masks, or the right --background."
            )
    if options.invert_masks:
        rgba[..., 3] = 255 - rgba[..., 3]
    return rgba


def _open(path: Path, where: str):
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(path)
        image.load()
        return image
    except FileNotFoundError:
        raise InputError(f"{where}: {path} is missing. Check the folder, or take the frame out.") from None
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise InputError(f"{where}: {path} cannot be read as an image ({error}). Copy it again.") from error


def undistort(rgba: UInt8[np.ndarray, "h w 4"], camera: Camera, lens: Lens) -> UInt8[np.ndarray, "h w 4"]:
    """The picture that an ideal pinhole with the same intrinsics takes; outside the original it is transparent."""
    from splatanim.errors import require

    cv2 = require("cv2", extra="captures")
    intrinsics = camera.intrinsics.copy()
    intrinsics[:2, 2] -= 0.5  # OpenCV's pixel centres are whole numbers
    coefficients = np.asarray(lens.coefficients, np.float64)
    size = (camera.width, camera.height)
    if lens.fisheye:
        maps = cv2.fisheye.initUndistortRectifyMap(intrinsics, coefficients, np.eye(3), intrinsics, size, cv2.CV_32FC1)
    else:
        maps = cv2.initUndistortRectifyMap(intrinsics, coefficients, np.eye(3), intrinsics, size, cv2.CV_32FC1)
    straight = cv2.remap(_premultiplied(rgba), *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=0)
    return _straight(straight)


def _reduced(rgba: np.ndarray, camera: Camera, width: int, height: int) -> tuple[np.ndarray, Camera]:
    """The image averaged down to a size, lens along with it."""
    from PIL import Image

    channels = [
        np.asarray(Image.fromarray(channel).resize((width, height), Image.Resampling.BOX))
        for channel in np.moveaxis(_premultiplied(rgba), -1, 0)
    ]
    x, y = width / camera.width, height / camera.height
    smaller = replace(
        camera, fx=camera.fx * x, fy=camera.fy * y, cx=camera.cx * x, cy=camera.cy * y, width=width, height=height
    )
    return _straight(np.stack(channels, axis=-1)), smaller


def _premultiplied(rgba: np.ndarray) -> np.ndarray:
    pixels = rgba.astype(np.float32)
    pixels[..., :3] *= pixels[..., 3:] / 255
    return pixels


def _straight(pixels: np.ndarray) -> np.ndarray:
    pixels = pixels.copy()
    pixels[..., :3] /= np.maximum(pixels[..., 3:], 1e-3) / 255
    return np.round(pixels.clip(0, 255)).astype(np.uint8)


def check_masks(views: list[View], places: list[str]) -> None:
    """Refuse empty masks, masks that look inverted, and images of differing size seen by one lens."""
    inverted = 0
    for view, where in zip(views, places, strict=True):
        subject = view.rgba[..., 3] >= 128
        if not subject.any():
            raise InputError(f"{where}: the mask of {view.name} is empty: nothing is subject. Take the frame out.")
        border = np.concatenate([subject[0], subject[-1], subject[:, 0], subject[:, -1]])
        inverted += bool(border.mean() > 0.95 and subject.mean() < 0.999)
    if inverted > len(views) / 2:
        raise InputError(
            f"{places[0]}: in {inverted} of {len(views)} images the border is subject and the middle is not: the masks "
            "look inverted. Give --invert-masks."
        )
