"""Tracks of surface points through a clip: from files, by optical flow, or by a local CoTracker3.

Pixel coordinates here have centres at k + 1/2, as cameras have; trackers that count from 0 at a pixel's centre are
shifted on the way in and out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, UInt8

from rigpapr.renderer import PaprRendering
from splatanim.errors import InputError, require

DOMINANCE = 0.05  # attention below which a pixel has no dominant point (RigPAPR D.6)


@dataclass(frozen=True)
class Tracks:
    """M tracks: the row of the point each belongs to (M,), pixels (T, M, 2), and where they are seen (T, M)."""

    rows: Int64[np.ndarray, " m"]
    pixels: Float32[np.ndarray, "t m 2"]
    seen: Bool[np.ndarray, "t m"]

    def __post_init__(self) -> None:
        if self.pixels.shape[1] != len(self.rows) or self.seen.shape != self.pixels.shape[:2]:
            raise InputError(
                f"Tracks: {len(self.rows)} points, pixels {self.pixels.shape}, visibility {self.seen.shape}."
            )


def seeds(
    rendering: PaprRendering, mask: Bool[np.ndarray, "h w"], most: int = 2000, seed: int = 0
) -> Int64[np.ndarray, " m"]:
    """Rows of the points that dominate a pixel of the first frame by attention, each once (RigPAPR D.6)."""
    inside = mask & (rendering.weights.max(axis=-1) > DOMINANCE)
    best = rendering.weights[inside].argmax(axis=1)
    rows = np.unique(rendering.indices[inside][np.arange(len(best)), best]).astype(np.int64)
    rows = rows[rows >= 0]
    if not len(rows):
        raise InputError("tracks: no point of the object dominates a pixel of the first frame. Is it the right camera?")
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return rows


def check_tracks(tracks: Tracks, where: str) -> Tracks:
    """Raises InputError where nothing is seen after the first frame, or seen places are not finite."""
    if not np.isfinite(tracks.pixels[tracks.seen]).all():
        raise InputError(f"{where}: a visible track has a NaN or infinite place. Mark such places as not visible.")
    if not tracks.seen[1:].any():
        raise InputError(
            f"{where}: every track is lost right after the first frame. Check that tracks and clip belong together, or "
            "use --tracks none."
        )
    return tracks


def read_tracks(
    path: str | os.PathLike[str], frames: int, start: Float[np.ndarray, "n 2"], visible: Bool[np.ndarray, " n"]
) -> Tracks:
    """Tracks of a .npz: ``tracks`` (T, M, 2) pixels, ``visibility`` (T, M); ``points`` (M,) rows of the asset.

    Without ``points`` each track belongs to the visible point that projects nearest to its start. ``start`` are the
    points' own pixels in the first frame.
    """
    from rigpapr.supervision_depth import read_array

    file = Path(path)
    if file.suffix.lower() != ".npz":
        raise InputError(f"{file}: tracks are kept in a .npz with the arrays tracks and visibility.")
    pixels = read_array(file, "tracks", "tracks")
    if pixels.ndim != 3 or pixels.shape[0] != frames or pixels.shape[2] != 2:
        raise InputError(f"{file}: tracks have shape {pixels.shape}; ({frames}, M, 2) is needed for {frames} frames.")
    seen = np.isfinite(pixels).all(axis=-1)
    with np.load(file, allow_pickle=False) as loaded:
        names = set(loaded.files)
        if "visibility" in names:
            if loaded["visibility"].shape != pixels.shape[:2]:
                raise InputError(f"{file}: visibility has shape {loaded['visibility'].shape}, tracks {pixels.shape}.")
            seen &= loaded["visibility"].astype(bool)
        if "points" in names:
            rows = loaded["points"].astype(np.int64)
            if rows.shape != pixels.shape[1:2] or rows.min(initial=0) < 0 or rows.max(initial=0) >= len(start):
                raise InputError(f"{file}: points must name one of the asset's {len(start)} points a track.")
        else:
            rows = _nearest(start, visible, pixels[0])
    return check_tracks(Tracks(rows, np.nan_to_num(pixels).astype(np.float32), seen), str(file))


def _nearest(start: np.ndarray, visible: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    from scipy.spatial import cKDTree

    rows = np.flatnonzero(visible)
    return rows[cKDTree(start[rows]).query(np.nan_to_num(pixels))[1]].astype(np.int64)


class FlowTracker:
    """Chained optical flow (dense inverse search), forward and backward: a point is lost where the two disagree.

    Needs OpenCV (extra ``captures``).
    """

    def __init__(self, upscale: int = 2, tolerance: float = 1.0) -> None:
        self.cv2: Any = require("cv2", extra="captures")
        self.upscale, self.tolerance = upscale, tolerance
        self.engine = self.cv2.DISOpticalFlow_create(self.cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self.engine.setFinestScale(0)
        self.engine.setPatchSize(8)
        self.engine.setPatchStride(3)
        self.engine.setVariationalRefinementIterations(10)
        self.engine.setVariationalRefinementDelta(0.5)  # little faith in equal brightness: turned limbs change theirs

    def flow(
        self, first: UInt8[np.ndarray, "h w 3"], second: UInt8[np.ndarray, "h w 3"]
    ) -> tuple[Float32[np.ndarray, "h w 2"], Float32[np.ndarray, "h w"]]:
        """Flow from the first picture to the second [px], and by how much going there and back misses [px]."""
        cv2, up = self.cv2, self.upscale
        grey = [
            cv2.resize(cv2.cvtColor(im, cv2.COLOR_RGB2GRAY), None, fx=up, fy=up, interpolation=cv2.INTER_CUBIC)
            for im in (first, second)
        ]
        there, back = self.engine.calc(grey[0], grey[1], None), self.engine.calc(grey[1], grey[0], None)
        height, width = grey[0].shape
        y, x = np.mgrid[:height, :width].astype(np.float32)
        returned = cv2.remap(back, x + there[..., 0], y + there[..., 1], cv2.INTER_LINEAR, borderValue=(1e3, 1e3))
        miss = np.linalg.norm(there + returned, axis=-1)
        size = (first.shape[1], first.shape[0])
        small = (cv2.resize(values, size, interpolation=cv2.INTER_AREA) / up for values in (there, miss))
        moved, missed = small
        return moved.astype(np.float32), missed.astype(np.float32)

    def track(
        self,
        rows: Int64[np.ndarray, " m"],
        start: Float[np.ndarray, "m 2"],
        rgb: UInt8[np.ndarray, "t h w 3"],
        masks: Bool[np.ndarray, "t h w"],
    ) -> Tracks:
        """Follow ``start`` (pixels of the first frame) through the clip; a point once lost stays lost."""
        pixels = np.empty((len(rgb), len(rows), 2), np.float32)
        seen = np.zeros(pixels.shape[:2], bool)
        pixels[0], seen[0] = start, True
        for k in range(1, len(rgb)):
            moved, missed = self.flow(rgb[k - 1], rgb[k])
            there = pixels[k - 1] + sample(moved, pixels[k - 1])
            inside = sample(masks[k].astype(np.float32)[..., None], there)[:, 0] > 0.5
            agrees = sample(missed[..., None], pixels[k - 1])[:, 0] < self.tolerance
            pixels[k], seen[k] = there, seen[k - 1] & inside & agrees
        return check_tracks(Tracks(rows, pixels, seen), "optical flow")


def sample(image: Float32[np.ndarray, "h w c"], pixels: Float[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n c"]:
    """Bilinear values at pixels whose centres are at k + 1/2; the border's beyond the image."""
    height, width = image.shape[:2]
    x = np.clip(pixels[:, 0] - 0.5, 0, width - 1)
    y = np.clip(pixels[:, 1] - 0.5, 0, height - 1)
    i, j = np.minimum(x.astype(int), max(width - 2, 0)), np.minimum(y.astype(int), max(height - 2, 0))
    a, b = (x - i)[:, None].astype(np.float32), (y - j)[:, None].astype(np.float32)
    right, down = np.minimum(i + 1, width - 1), np.minimum(j + 1, height - 1)
    top = image[j, i] * (1 - a) + image[j, right] * a
    bottom = image[down, i] * (1 - a) + image[down, right] * a
    return top * (1 - b) + bottom * b


def load_cotracker(checkpoint: str | os.PathLike[str], device: str = "cpu") -> Any:
    """CoTracker3's offline predictor from a local checkpoint.

    Raises InputError without the package, without the file, and for an online checkpoint, which the offline model
    loads but tracks wrongly with.
    """
    file = Path(checkpoint)
    if not file.is_file():
        raise InputError(f"{file}: no such checkpoint. CoTracker3's is called scaled_offline.pth.")
    if "online" in file.name.lower():
        raise InputError(
            f"{file}: is an online checkpoint; whole clips need the offline one, scaled_offline.pth, which has another "
            "window and other positions in time."
        )
    try:
        from cotracker.predictor import CoTrackerPredictor
    except ImportError as error:
        raise InputError(
            "cotracker cannot be imported. Install a checkout of CoTracker3 (pip install -e co-tracker), or use "
            "--tracks flow."
        ) from error
    return CoTrackerPredictor(checkpoint=str(file), offline=True, window_len=60).to(device)


def track_with_cotracker(
    predictor: Any,
    rows: Int64[np.ndarray, " m"],
    start: Float[np.ndarray, "m 2"],
    rgb: UInt8[np.ndarray, "t h w 3"],
    *,
    chunk: int = 512,
) -> Tracks:
    """Follow ``start`` by CoTracker3: video (1, T, 3, h, w) in 0..255, queries (1, M, 3) of frame and pixel."""
    import torch

    video = torch.from_numpy(np.ascontiguousarray(rgb.transpose(0, 3, 1, 2)))[None].float()
    parts, shown = [], []
    for first in range(0, len(rows), chunk):
        at = torch.from_numpy(np.asarray(start[first : first + chunk], np.float32)) - 0.5
        queries = torch.cat([torch.zeros(len(at), 1), at], dim=1)[None]
        with torch.no_grad():
            places, visible = predictor(video, queries=queries)
        parts.append(places[0].cpu().numpy() + 0.5)
        shown.append(visible[0].cpu().numpy().reshape(len(rgb), -1) > 0.5)
    pixels, seen = np.concatenate(parts, axis=1).astype(np.float32), np.concatenate(shown, axis=1)
    return check_tracks(Tracks(rows, pixels, seen), "CoTracker3")
