"""The CUDA backend: gsplat's rasterisation, in our conventions."""

from __future__ import annotations

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError, require
from splatanim.render.camera import Camera
from splatanim.render.rasterize import Rendering


def rasterize_cuda(
    splats: Splats,
    camera: Camera,
    *,
    background: tuple[float, float, float] = (1.0, 1.0, 1.0),
    depth: bool = False,
    device: str = "cuda",
) -> Rendering:
    """As :func:`splatanim.render.rasterize.rasterize`, through ``gsplat.rasterization`` (gsplat 1.x).

    The background is composited here, since gsplat's versions differ in what they do to the depth channel.

    Raises InputError where gsplat cannot be imported or no CUDA device is there.
    """
    gsplat = require("gsplat", extra="cuda")
    torch = require("torch", extra="cuda")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError('The cuda backend needs an NVIDIA GPU, and torch finds none. Use backend="cpu" (or "auto").')

    def tensor(array: np.ndarray) -> object:
        return torch.as_tensor(np.ascontiguousarray(array, np.float32), device=device)

    whole = _whole(splats)
    if not whole.any():
        return _empty(camera, background, depth)
    if not whole.all():
        splats = splats.select(whole)
    with torch.no_grad():
        colour, alpha, _ = gsplat.rasterization(
            means=tensor(splats.means),
            quats=tensor(splats.quaternions),
            scales=tensor(splats.scales),
            opacities=tensor(splats.opacities),
            colors=tensor(splats.sh),
            viewmats=tensor(camera.T_camera_world[None]),
            Ks=tensor(camera.intrinsics[None]),
            width=camera.width,
            height=camera.height,
            near_plane=camera.near,
            sh_degree=splats.sh_degree,
            packed=False,
            render_mode="RGB+ED" if depth else "RGB",
            rasterize_mode="classic",
        )
        alpha = alpha[0]
        rgb = colour[0, ..., :3] + (1 - alpha) * torch.tensor(background, dtype=torch.float32, device=device)
    return Rendering(rgb.cpu().numpy(), alpha[..., 0].cpu().numpy(), colour[0, ..., 3].cpu().numpy() if depth else None)


def _whole(splats: Splats) -> np.ndarray:
    """The splats without NaN or overflow, (N,) bool: gsplat lets such values spread over the image."""
    with np.errstate(over="ignore"):
        columns = (splats.means, splats.quaternions, splats.scales, splats.opacities[:, None], splats.sh.sum(axis=1))
    return np.logical_and.reduce([np.isfinite(column).all(axis=1) for column in columns])


def _empty(camera: Camera, background: tuple[float, float, float], depth: bool) -> Rendering:
    size = (camera.height, camera.width)
    rgb = np.broadcast_to(np.asarray(background, np.float32), (*size, 3)).copy()
    return Rendering(rgb, np.zeros(size, np.float32), np.zeros(size, np.float32) if depth else None)
