"""The rays that a training draws from: pixels near the subject, with what they should see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32

from rigpapr.cloud import PaprCloud
from rigpapr.dataset import Colour, View
from rigpapr.renderer import camera_in_cloud
from rigpapr.topk import camera_rays
from splatanim.render.camera import Camera


@dataclass(frozen=True)
class Batch:
    """R rays in cloud units, view after view: ``parts`` holds each view's camera and pixels in the same order.

    ``rgba``: colour over the background, then the mask.
    """

    origins: Float32[np.ndarray, "r 3"]
    directions: Float32[np.ndarray, "r 3"]
    rgba: Float32[np.ndarray, "r 4"]
    parts: list[tuple[Camera, Float[np.ndarray, "p 2"]]]


class RayPool:
    """All pixels of all views within ``band`` px of the mask (infinite: every pixel), 8 bytes each.

    A view whose subject touches few pixels is drawn as often as any other.
    """

    def __init__(self, views: Sequence[View], cloud: PaprCloud, band: float, background: Colour) -> None:
        self._background = np.asarray(background, np.float32)
        self._cameras = [camera_in_cloud(cloud, view.camera) for view in views]
        self._pixels = [_near(view, band) for view in views]
        self._rgba = [view.rgba.reshape(-1, 4)[pixels] for view, pixels in zip(views, self._pixels, strict=True)]

    def __len__(self) -> int:
        return sum(len(pixels) for pixels in self._pixels)

    def draw(self, rng: np.random.Generator, rays: int, views: int) -> Batch:
        """``rays`` pixels, evenly from ``views`` views drawn without repetition."""
        chosen = rng.permutation(len(self._cameras))[:views]
        origins, directions, colours = [], [], []
        parts: list[tuple[Camera, np.ndarray]] = []
        shares = np.diff(np.linspace(0, rays, len(chosen) + 1).astype(int))
        for k, share in zip(chosen, shares, strict=True):
            camera, pixels = self._cameras[k], self._pixels[k]
            picked = np.sort(rng.integers(0, len(pixels), share))
            flat = pixels[picked]
            xy = np.stack([flat % camera.width + 0.5, flat // camera.width + 0.5], axis=1)
            centre, towards = camera_rays(camera, xy)
            origins.append(np.broadcast_to(centre, (share, 3)))
            directions.append(towards)
            colours.append(self._rgba[k][picked])
            parts.append((camera, xy))
        rgba = np.concatenate(colours).astype(np.float32) / 255
        rgba[:, :3] = rgba[:, :3] * rgba[:, 3:] + (1 - rgba[:, 3:]) * self._background
        return Batch(
            np.concatenate(origins).astype(np.float32), np.concatenate(directions).astype(np.float32), rgba, parts
        )


def _near(view: View, band: float) -> np.ndarray:
    """Flat indices (int32) of the pixels within ``band`` of the subject."""
    from scipy.ndimage import distance_transform_cdt

    subject = view.rgba[..., 3] > 0
    if not np.isfinite(band) or not subject.any():
        return np.arange(subject.size, dtype=np.int32)
    return np.flatnonzero(distance_transform_cdt(~subject, "chessboard") <= band).astype(np.int32)
