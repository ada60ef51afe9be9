"""What one step of the two-phase fit looks at: patches of rays near the subject, and points whose depth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from rigpapr.cloud import PaprCloud
from rigpapr.coarse_view import project, see
from rigpapr.renderer import render_rays
from rigpapr.supervision import Clip
from rigpapr.supervision_tracks import sample
from splatanim.render.camera import Camera


@dataclass(frozen=True)
class DepthReference:
    """The first frame: the cloud's depths (N,) [cloud units], the map's values there, and where both are known."""

    z: Tensor
    values: np.ndarray
    known: np.ndarray


def reference_depth(
    cloud: PaprCloud, camera: Camera, depth: Float32[np.ndarray, "h w"], mask: np.ndarray
) -> DepthReference:
    """Depths of the points at rest against the first map; hidden points and those off the mask are not known."""
    points = cloud.world_positions.detach().cpu().numpy().astype(np.float64)
    z, values, known = map_values(points, camera, depth, mask)
    return DepthReference(torch.from_numpy(z * float(cloud.scale)).float(), values, known)


def map_values(
    points: Float[np.ndarray, "n 3"], camera: Camera, depth: Float32[np.ndarray, "h w"], mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z of world points, the map bilinearly at their pixels, and which are in front, inside, seen, and on the mask
    with its neighbours (so that no value mixes with what lies outside)."""
    from scipy.ndimage import binary_erosion

    size = float(np.ptp(points, axis=0).max())
    seen = see(camera, points, size)
    cell = np.floor(np.clip(seen.pixels, 0, [camera.width - 1, camera.height - 1])).astype(int)
    inner = binary_erosion(mask & (depth > 0), np.ones((3, 3)))
    known = seen.visible & inner[cell[:, 1], cell[:, 0]]
    return seen.z, sample(depth[..., None], seen.pixels)[:, 0], known


def patch_pixels(centres: np.ndarray, side: int, camera: Camera) -> Float[np.ndarray, "r 2"]:
    """Pixel centres (P s s, 2) of square patches around pixels (P, 2), moved inside the picture."""
    first = np.clip(centres - side // 2, 0, [camera.width - side, camera.height - side]).astype(int)
    y, x = np.mgrid[:side, :side]
    grid = np.stack([x, y], axis=-1).reshape(1, -1, 2)
    return (first[:, None] + grid + 0.5).reshape(-1, 2)


def near_subject(clip: Clip, frame: int, positions: Float[np.ndarray, "n 3"], reach: int) -> np.ndarray:
    """Pixels (M, 2) near the mask or the posed cloud: elsewhere both picture and drawing are background."""
    from scipy.ndimage import maximum_filter

    near = clip.masks[frame].copy()
    pixels, z = project(clip.camera, positions)
    cell = np.floor(np.clip(pixels, -1, 1e6)).astype(int)
    inside = (cell >= 0).all(1) & (cell[:, 0] < near.shape[1]) & (cell[:, 1] < near.shape[0]) & (z > 0)
    near[cell[inside, 1], cell[inside, 0]] = True
    y, x = np.nonzero(maximum_filter(near, 2 * reach + 1))
    return np.stack([x, y], axis=1)


def draw_patches(
    cloud: PaprCloud,
    clip: Clip,
    frame: int,
    posed: tuple[Tensor, Tensor],
    pixels: Float[np.ndarray, "r 2"],
    side: int,
) -> tuple[Tensor, Tensor]:
    """Patches (P, s, s, 3) as the frozen cloud draws them with its points moved, and as the frame shows them."""
    rays = render_rays(cloud, clip.camera, pixels, positions=posed[0], rotations=posed[1])
    cell = pixels.astype(int)
    truth = torch.from_numpy(clip.rgb[frame][cell[:, 1], cell[:, 0]].astype(np.float32) / 255)
    shape = (-1, side, side, 3)
    return rays.rgb.view(shape), truth.to(rays.rgb).view(shape)


def project_torch(camera: Camera, points: Float[Tensor, "n 3"]) -> tuple[Float[Tensor, "n 2"], Float[Tensor, " n"]]:
    """Pixels and z-depth of world points, differentiable."""
    pose = torch.from_numpy(camera.T_camera_world).to(points)
    local = points @ pose[:3, :3].T + pose[:3, 3]
    z = local[:, 2].clamp(min=1e-6)
    x, y = camera.fx * local[:, 0] / z + camera.cx, camera.fy * local[:, 1] / z + camera.cy
    return torch.stack([x, y], dim=1), local[:, 2]
