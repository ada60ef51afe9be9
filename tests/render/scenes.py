"""Seeded scenes and cameras for the rasteriser's tests."""

from __future__ import annotations

import numpy as np

from splatanim.data import Splats
from splatanim.render.camera import Camera, look_at
from tests.helpers import random_splats


def camera(width: int = 96, height: int = 64, distance: float = 4.0) -> Camera:
    return look_at(
        (0.6 * distance, -0.3 * distance, 0.74 * distance), (0, 0, 0), (0, -1, 0), width=width, height=height
    )


def one_splat(
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0),
    scale: float = 0.1,
    opacity: float = 0.8,
    colour: tuple[float, float, float] = (0.9, 0.2, 0.4),
) -> Splats:
    """A round splat of one colour."""
    return Splats(
        np.array([mean], np.float32),
        np.array([[1, 0, 0, 0]], np.float32),
        np.full((1, 3), np.log(scale), np.float32),
        np.array([np.log(opacity / (1 - opacity))], np.float32),
        ((np.array(colour, np.float32) - 0.5) / 0.28209479177387814)[None, None],
    )


def join(*parts: Splats) -> Splats:
    names = ("means", "quaternions", "log_scales", "raw_opacities", "sh")
    return parts[0].replace(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def needles(seed: int = 1) -> Splats:
    """Splats a thousand times longer than wide, at all angles."""
    splats = random_splats(40, 0, seed)
    return splats.replace(log_scales=np.log(np.tile([3.0, 0.003, 0.003], (40, 1))).astype(np.float32))


def huge(seed: int = 2) -> Splats:
    """Faint splats far larger than the image, some around the camera, among ordinary ones."""
    splats = random_splats(60, 1, seed)
    log_scales, raw_opacities = splats.log_scales.copy(), splats.raw_opacities.copy()
    log_scales[:10], raw_opacities[:10] = np.log(50.0), -2.0
    return splats.replace(log_scales=log_scales, raw_opacities=raw_opacities)


def around_camera(seed: int = 3) -> Splats:
    """Splats on all sides of the camera: behind it, at the near plane, and outside the image."""
    splats = random_splats(150, 2, seed)
    return splats.replace(means=(splats.means * 8).astype(np.float32))


def opaque_wall(seed: int = 4) -> Splats:
    """Many layers of nearly opaque splats: every pixel is finished early."""
    splats = random_splats(300, 0, seed)
    return splats.replace(
        log_scales=splats.log_scales + np.float32(1.5), raw_opacities=splats.raw_opacities + np.float32(5)
    )
