"""The rasteriser's plain twin: every splat against every pixel in float64 NumPy, no tiles, no bounds, no tricks.

Slow (seconds for a thousand splats); what the fast backends are held against in tests and benchmarks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from splatanim.data import Splats
from splatanim.render.camera import Camera


def rasterize_reference(
    splats: Splats, camera: Camera, *, background: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> tuple[Float64[np.ndarray, "h w 3"], Float64[np.ndarray, "h w"], Float64[np.ndarray, "h w"]]:
    """rgb, alpha and depth as :class:`splatanim.render.rasterize.Rendering` defines them, in float64."""
    rotation, translation = camera.T_camera_world[:3, :3], camera.T_camera_world[:3, 3]
    points = splats.means.astype(np.float64) @ rotation.T + translation
    seen = np.flatnonzero(points[:, 2] >= camera.near)
    order = seen[np.argsort(points[seen, 2], kind="stable")]
    splats, points = splats.select(order), points[order]
    centres = points[:, :2] / points[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy]
    precisions = np.linalg.inv(image_covariances(splats, camera, points))
    directions = splats.means.astype(np.float64) - camera.position
    colours = sh_colours(splats.sh, directions / np.linalg.norm(directions, axis=1, keepdims=True))
    opacities = 1 / (1 + np.exp(-splats.raw_opacities.astype(np.float64)))

    rows, columns = np.mgrid[: camera.height, : camera.width] + 0.5
    transmittance = np.ones((camera.height, camera.width))
    done = np.zeros_like(transmittance, bool)
    rgb, depth = np.zeros((camera.height, camera.width, 3)), np.zeros_like(transmittance)
    for k in range(len(order)):
        dx, dy = columns - centres[k, 0], rows - centres[k, 1]
        (xx, xy), (_, yy) = precisions[k]
        alpha = np.minimum(0.999, opacities[k] * np.exp(-0.5 * (xx * dx * dx + yy * dy * dy) - xy * dx * dy))
        alpha[(alpha < 1 / 255) | done] = 0
        last = (alpha > 0) & (transmittance * (1 - alpha) <= 1e-4)
        done |= last
        alpha[last] = 0
        weight = alpha * transmittance
        rgb += weight[..., None] * colours[k]
        depth += weight * points[k, 2]
        transmittance *= 1 - alpha
    rgb += transmittance[..., None] * np.asarray(background)
    return rgb, 1 - transmittance, depth / np.maximum(1e-10, 1 - transmittance)


def image_covariances(
    splats: Splats, camera: Camera, points: Float64[np.ndarray, "n 3"]
) -> Float64[np.ndarray, "n 2 2"]:
    """J W Sigma W^T J^T + 0.3 I [px^2] of splats at camera coordinates ``points``; J clamped 30 % outside the image."""
    w, x, y, z = (splats.quaternions / np.linalg.norm(splats.quaternions, axis=1, keepdims=True)).astype(np.float64).T
    axes = np.empty((len(splats), 3, 3))
    axes[:, 0] = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], axis=1)
    axes[:, 1] = np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], axis=1)
    axes[:, 2] = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1)
    axes = axes * np.exp(splats.log_scales.astype(np.float64))[:, None]

    margin_x, margin_y = 0.15 * camera.width, 0.15 * camera.height
    depth = points[:, 2]
    u = np.clip(
        points[:, 0] / depth, (-camera.cx - margin_x) / camera.fx, (camera.width - camera.cx + margin_x) / camera.fx
    )
    v = np.clip(
        points[:, 1] / depth, (-camera.cy - margin_y) / camera.fy, (camera.height - camera.cy + margin_y) / camera.fy
    )
    jacobian = np.zeros((len(splats), 2, 3))
    jacobian[:, 0, 0], jacobian[:, 0, 2] = camera.fx / depth, -camera.fx * u / depth
    jacobian[:, 1, 1], jacobian[:, 1, 2] = camera.fy / depth, -camera.fy * v / depth
    root = jacobian @ camera.T_camera_world[:3, :3] @ axes
    return root @ root.transpose(0, 2, 1) + 0.3 * np.eye(2)


def sh_colours(sh: np.ndarray, directions: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
    """max(0, 1/2 + sum_k Y_k(direction) sh_k) for ``sh`` (N, K, 3), unit directions camera to splat."""
    x, y, z = directions.T
    basis = [
        np.full(len(x), 0.28209479177387814),
        -0.4886025119029199 * y,
        0.4886025119029199 * z,
        -0.4886025119029199 * x,
        1.0925484305920792 * x * y,
        -1.0925484305920792 * y * z,
        0.31539156525252005 * (2 * z * z - x * x - y * y),
        -1.0925484305920792 * x * z,
        0.5462742152960396 * (x * x - y * y),
        -0.5900435899266435 * y * (3 * x * x - y * y),
        2.890611442640554 * x * y * z,
        -0.4570457994644658 * y * (4 * z * z - x * x - y * y),
        0.3731763325901154 * z * (2 * z * z - 3 * x * x - 3 * y * y),
        -0.4570457994644658 * x * (4 * z * z - x * x - y * y),
        1.445305721320277 * z * (x * x - y * y),
        -0.5900435899266435 * x * (x * x - 3 * y * y),
    ]
    return np.maximum(0, 0.5 + np.einsum("kn,nkc->nc", np.stack(basis[: sh.shape[1]]), sh))
