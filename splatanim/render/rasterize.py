"""Splats to pixels: one function, two backends that follow the same conventions (those of gsplat's "classic" mode)."""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.render.camera import Camera

Backend = Literal["auto", "cpu", "cuda"]

_WORKSPACE = threading.local()  # the CPU rasteriser of each calling thread, made at its first call


@dataclass(frozen=True)
class Rendering:
    """An image.

    ``rgb`` is composited over the background and not clipped above 1; ``alpha`` is the accumulated opacity. ``depth``
    is the expected camera-space z, ``sum_i w_i z_i / alpha`` with ``w_i = alpha_i prod_{j<i} (1 - alpha_j)``, in the
    units of the splats, and 0 where nothing is seen; None unless asked for.
    """

    rgb: Float32[np.ndarray, "h w 3"]
    alpha: Float32[np.ndarray, "h w"]
    depth: Float32[np.ndarray, "h w"] | None = None


def rasterize(
    splats: Splats,
    camera: Camera,
    *,
    background: tuple[float, float, float] = (1.0, 1.0, 1.0),
    backend: str = "auto",
    depth: bool = False,
) -> Rendering:
    """Render splats by EWA splatting (Kerbl et al. 2023), front to back.

    Conventions: 2D covariances dilated by 0.3 px^2, ``alpha_i = min(0.999, o_i exp(-sigma))``, splats with alpha
    below 1/255 skipped, a pixel finished when its transmittance would fall to 1e-4, splats nearer than
    ``camera.near`` and ones with NaN or overflowing values dropped. ``splats.offset`` is not applied: the camera lives
    in the coordinates of ``splats.means``.

    Args:
        background: red, green, blue, usually in [0, 1].
        backend: ``cuda`` needs gsplat and a CUDA device; ``auto`` takes it where both are there, else ``cpu``.
        depth: also return the expected depth.

    Raises:
        InputError: an unknown backend, or ``cuda`` where gsplat or the device is missing.

    The first call on a machine compiles the CPU backend (some seconds; kept on disk afterwards). Splats in Morton
    order (:func:`splatanim.render.order.morton_order`) render some 10 % faster. Calls from several threads at
    once are safe; each calling thread keeps its own buffers.
    """
    if backend not in ("auto", "cpu", "cuda"):
        raise InputError(f"rasterize: unknown backend {backend!r}; choose auto, cpu or cuda.")
    if backend == "cuda" or (backend == "auto" and cuda_available()):
        from splatanim.render.cuda import rasterize_cuda

        return rasterize_cuda(splats, camera, background=background, depth=depth)
    from splatanim.render.cpu import CpuRasterizer

    if not hasattr(_WORKSPACE, "rasterizer"):
        _WORKSPACE.rasterizer = CpuRasterizer()
    return _WORKSPACE.rasterizer.render(splats, camera, background=background, depth=depth)


def cuda_available() -> bool:
    """Whether gsplat is installed and a CUDA device is there; imports torch only where gsplat is installed."""
    if importlib.util.find_spec("gsplat") is None or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
