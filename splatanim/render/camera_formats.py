"""Cameras in the conventions of other tools: gsplat, PyTorch3D, COLMAP and nerfstudio, both ways.

Ours (:mod:`.camera`) is world-to-camera with OpenCV axes (x right, y down, z forward) and the centre of the first pixel
at (0.5, 0.5): x_cam = R x + t, (u, v) = (fx x/z + cx, fy y/z + cy). The others, as facts:

* **gsplat**: ``viewmats`` (C, 4, 4) and ``Ks`` (C, 3, 3), the very same.
* **COLMAP**: the same axes and pixels; the rotation as a quaternion ``QW QX QY QZ``, the translation ``TX TY TZ``.
* **nerfstudio** (and Blender, NeRF): camera-to-world with OpenGL axes (x right, y up, z backward).
* **PyTorch3D**: x_cam = x R + T for row vectors, axes x left, y up, z forward; focal lengths and principal points in
  NDC, where the shorter side of the image spans [-1, 1] and x grows to the left, y upwards.

COLMAP model files: :mod:`.camera_colmap`. nerfstudio's JSON files: :mod:`.camera_io`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.rotations import matrices_to_quaternions, quaternions_to_matrices

_FLIP_YZ = np.diag([1.0, -1.0, -1.0, 1.0])  # OpenGL axes <-> OpenCV axes
_FLIP_XY = np.array([-1.0, -1.0, 1.0])  # PyTorch3D's axes <-> OpenCV axes


def to_gsplat(cameras: Sequence[Camera]) -> tuple[Float64[np.ndarray, "c 4 4"], Float64[np.ndarray, "c 3 3"]]:
    """``viewmats`` and ``Ks`` of ``gsplat.rasterization``; raises InputError where the image sizes differ."""
    if len({(camera.width, camera.height) for camera in cameras}) > 1:
        raise InputError("gsplat renders cameras of one image size together; these differ. Pass them size by size.")
    poses = [camera.T_camera_world for camera in cameras]
    return np.array(poses, np.float64).reshape(-1, 4, 4), np.array([c.intrinsics for c in cameras]).reshape(-1, 3, 3)


def from_gsplat(
    viewmats: Float[np.ndarray, "c 4 4"], Ks: Float[np.ndarray, "k 3 3"], width: int, height: int
) -> list[Camera]:
    """Cameras from ``viewmats`` and ``Ks``; raises InputError for matrices that are no pinhole camera's."""
    if len(viewmats) != len(Ks):
        raise InputError(f"gsplat cameras: {len(viewmats)} viewmats but {len(Ks)} Ks.")
    cameras = []
    for k, (pose, lens) in enumerate(zip(np.asarray(viewmats, np.float64), np.asarray(Ks, np.float64), strict=True)):
        if not np.allclose(lens[[0, 1, 2, 2], [1, 0, 0, 1]], 0, atol=1e-6) or not np.isclose(lens[2, 2], 1):
            raise InputError(f"gsplat cameras: Ks[{k}] has a skew or is not scaled to K[2, 2] = 1.")
        fx, fy, cx, cy = (float(lens[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2)))
        cameras.append(Camera(_rigid(pose), fx, fy, cx, cy, width, height))
    return cameras


def to_colmap(
    camera: Camera,
) -> tuple[Float64[np.ndarray, " 4"], Float64[np.ndarray, " 3"], tuple[float, float, float, float]]:
    """``qvec`` (wxyz), ``tvec`` and the parameters of a ``PINHOLE`` camera (fx, fy, cx, cy)."""
    pose = camera.T_camera_world
    return (
        matrices_to_quaternions(pose[None, :3, :3])[0],
        pose[:3, 3].copy(),
        (camera.fx, camera.fy, camera.cx, camera.cy),
    )


def from_colmap(
    qvec: Float[np.ndarray, " 4"], tvec: Float[np.ndarray, " 3"], pinhole: Sequence[float], width: int, height: int
) -> Camera:
    """A camera from COLMAP's pose (wxyz, world to camera) and (fx, fy, cx, cy)."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = quaternions_to_matrices(np.asarray(qvec, np.float64)[None])[0], tvec
    fx, fy, cx, cy = (float(value) for value in pinhole)
    return Camera(pose, fx, fy, cx, cy, width, height)


def to_nerfstudio(camera: Camera) -> Float64[np.ndarray, "4 4"]:
    """``camera_to_world`` (``transform_matrix``) with OpenGL axes; the lens is ``fl_x, fl_y, cx, cy`` as it is."""
    return np.linalg.inv(camera.T_camera_world) @ _FLIP_YZ


def from_nerfstudio(
    camera_to_world: Float[np.ndarray, "r 4"], pinhole: Sequence[float], width: int, height: int
) -> Camera:
    """A camera from a 4x4 or 3x4 ``camera_to_world`` with OpenGL axes and (fl_x, fl_y, cx, cy)."""
    pose = np.eye(4)
    pose[:3] = np.asarray(camera_to_world, np.float64)[:3]
    fx, fy, cx, cy = (float(value) for value in pinhole)
    return Camera(_rigid(np.linalg.inv(pose @ _FLIP_YZ)), fx, fy, cx, cy, width, height)


@dataclass(frozen=True)
class Pytorch3dCameras:
    """Arguments of ``pytorch3d.renderer.PerspectiveCameras`` in NDC (its default), C cameras.

    ``R`` acts on row vectors from the left: x_cam = x R + T. ``image_size`` rows are (height, width).
    """

    R: Float64[np.ndarray, "c 3 3"]
    T: Float64[np.ndarray, "c 3"]
    focal_length: Float64[np.ndarray, "c 2"]
    principal_point: Float64[np.ndarray, "c 2"]
    image_size: Float64[np.ndarray, "c 2"]

    def __len__(self) -> int:
        return len(self.R)


def to_pytorch3d(cameras: Sequence[Camera]) -> Pytorch3dCameras:
    """Cameras as PyTorch3D takes them; image sizes may differ."""
    poses = np.array([camera.T_camera_world for camera in cameras], np.float64).reshape(-1, 4, 4)
    sizes = np.array([(c.width, c.height) for c in cameras], np.float64).reshape(-1, 2)
    scale = sizes.min(axis=1, keepdims=True) / 2
    centres = np.array([(c.cx, c.cy) for c in cameras], np.float64).reshape(-1, 2)
    return Pytorch3dCameras(
        R=poses[:, :3, :3].transpose(0, 2, 1) * _FLIP_XY,
        T=poses[:, :3, 3] * _FLIP_XY,
        focal_length=np.array([(c.fx, c.fy) for c in cameras], np.float64).reshape(-1, 2) / scale,
        principal_point=(sizes / 2 - centres) / scale,
        image_size=sizes[:, ::-1].copy(),
    )


def from_pytorch3d(cameras: Pytorch3dCameras) -> list[Camera]:
    """Cameras from PyTorch3D's arguments in NDC; raises InputError where a pose is no rotation."""
    out = []
    for k in range(len(cameras)):
        pose = np.eye(4)
        pose[:3, :3] = (cameras.R[k] * _FLIP_XY).T
        pose[:3, 3] = cameras.T[k] * _FLIP_XY
        height, width = (round(float(side)) for side in cameras.image_size[k])
        scale = min(width, height) / 2
        fx, fy = (float(value) for value in cameras.focal_length[k] * scale)
        cx, cy = (float(v) for v in np.array([width, height]) / 2 - cameras.principal_point[k] * scale)
        out.append(Camera(pose, fx, fy, cx, cy, width, height))
    return out


def _rigid(pose: Float64[np.ndarray, "4 4"]) -> Float64[np.ndarray, "4 4"]:
    """A pose whose rotation, stored in float32 perhaps, is one to rounding again; others are left to Camera's check."""
    left, lengths, right = np.linalg.svd(pose[:3, :3])
    if np.allclose(lengths, 1, atol=1e-4) and np.linalg.det(left @ right) > 0:
        pose = pose.copy()
        pose[:3, :3] = left @ right
    return pose
