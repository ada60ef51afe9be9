"""How near renderings come to photographs: PSNR, SSIM, and LPIPS where its weights are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Num

from rigpapr.cloud import PaprCloud
from rigpapr.dataset import Colour, View
from rigpapr.renderer import render
from splatanim.errors import InputError, require
from splatanim.metrics import psnr

_WINDOW = 1.5  # deviation of SSIM's Gaussian window [px]
Lpips = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Quality:
    """Means over images: PSNR [dB] of the full frame and of the subject's pixels, SSIM, LPIPS (None: not measured)."""

    psnr: float
    foreground: float
    ssim: float
    lpips: float | None = None

    def __str__(self) -> str:
        tail = "" if self.lpips is None else f", LPIPS {self.lpips:.4f}"
        return f"PSNR {self.psnr:.2f} dB (subject alone {self.foreground:.2f}), SSIM {self.ssim:.4f}{tail}"


def image_quality(
    image: Float[np.ndarray, "h w 3"], truth: Float[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"], lpips=None
) -> Quality:
    """One picture against another, both in [0, 1] (clipped); ``mask`` marks the subject in the truth."""
    image = np.clip(image, 0, 1)
    subject = psnr(image[mask], truth[mask]) if mask.any() else float("nan")
    return Quality(psnr(image, truth), subject, ssim(image, truth), None if lpips is None else lpips(image, truth))


def mean_quality(items: Sequence[Quality]) -> Quality:
    """Field by field; LPIPS only where all have it."""
    measured = [item.lpips for item in items if item.lpips is not None]
    return Quality(
        float(np.mean([item.psnr for item in items])),
        float(np.nanmean([item.foreground for item in items])),
        float(np.mean([item.ssim for item in items])),
        float(np.mean(measured)) if len(measured) == len(items) else None,
    )


def held_out_quality(
    cloud: PaprCloud, views: Sequence[View], background: Colour, lpips: Lpips | None = None
) -> Quality:
    """The mean over views, rendered in full frame over ``background``."""
    results = []
    for view in views:
        image = render(cloud, view.camera, background=background).rgb
        results.append(image_quality(image, view.over(background), view.mask > 0.5, lpips))
    return mean_quality(results)


def ssim(image: Num[np.ndarray, "h w c"], truth: Num[np.ndarray, "h w c"]) -> float:
    """Structural similarity (Wang et al. 2004) of values in [0, 1]: Gaussian window of deviation 1.5 px, 11 px wide,
    K = (0.01, 0.03), mean over all pixels whose window lies inside, and over channels."""
    from scipy.ndimage import gaussian_filter

    x, y = np.asarray(image, np.float64), np.asarray(truth, np.float64)
    if min(x.shape[:2]) < 11:
        raise InputError(f"ssim: images of {x.shape[1]}x{x.shape[0]} are smaller than the window of 11x11.")

    def blur(values: np.ndarray) -> np.ndarray:
        return gaussian_filter(values, (_WINDOW, _WINDOW, 0), truncate=3.5)[5:-5, 5:-5]

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    a, b = 0.01**2, 0.03**2
    return float(np.mean((2 * mx * my + a) * (2 * cov + b) / ((mx * mx + my * my + a) * (vx + vy + b))))


def load_lpips(weights: Path) -> Lpips:
    """LPIPS (VGG16) with the backbone's state dict from a local file; nothing is downloaded.

    Raises InputError where the package or the file is missing or does not fit.
    """
    import torch

    lpips = require("lpips", extra="lpips")
    if not weights.is_file():
        raise InputError(f"{weights}: no such file. Give a VGG16 state dict (.pth), or leave LPIPS out.")
    net = lpips.LPIPS(net="vgg", pnet_rand=True, verbose=False)
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        features = {key: value for key, value in state.items() if key.startswith("features.")}
        backbone = {f"slice{_slice(int(key.split('.')[1]))}.{key.split('.', 1)[1]}": v for key, v in features.items()}
        net.net.load_state_dict(backbone)
    except Exception as error:  # whatever torch.load and load_state_dict find wrong
        raise InputError(f"{weights}: is no VGG16 state dict ({error}). Give torchvision's vgg16 weights.") from error
    net.eval()

    def measure(image: np.ndarray, truth: np.ndarray) -> float:
        a, b = (torch.from_numpy(np.moveaxis(x, -1, 0)[None].astype(np.float32) * 2 - 1) for x in (image, truth))
        with torch.no_grad():
            return net(a, b).item()

    return measure


def _slice(layer: int) -> int:
    """Which of LPIPS's five slices of VGG16 holds a layer of ``features``."""
    return 1 + sum(layer >= first for first in (4, 9, 16, 23))
