"""Pinhole cameras. Said once: files hold camera-to-world matrices with OpenGL axes (x right, y up, z backward);
inside, a camera is world-to-camera with OpenCV axes (x right, y down, z forward), pixel centres at half-integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: ``T_camera_world`` (4, 4) with OpenCV axes; focal lengths and principal point in pixels."""

    T_camera_world: Float64[np.ndarray, "4 4"]
    fx: float
    fy: float
    cx: float
    cy: float
    width: int
    height: int
    near: float = 0.01

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise InputError(f"Camera: image size {self.width}x{self.height} is empty.")
        if not (self.fx > 0 and self.fy > 0):
            raise InputError(f"Camera: focal lengths ({self.fx}, {self.fy}) must be positive.")
        if not np.isfinite(self.T_camera_world).all():
            raise InputError("Camera: the pose has a NaN or infinite entry.")
        rotation = self.T_camera_world[:3, :3]
        if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) or np.linalg.det(rotation) < 0:
            raise InputError("Camera: the pose's 3x3 part is not a rotation (mirrored, scaled or singular).")

    @property
    def position(self) -> Float64[np.ndarray, " 3"]:
        """The camera's centre in world coordinates."""
        return -self.T_camera_world[:3, :3].T @ self.T_camera_world[:3, 3]

    @property
    def intrinsics(self) -> Float64[np.ndarray, "3 3"]:
        return np.array([[self.fx, 0, self.cx], [0, self.fy, self.cy], [0, 0, 1.0]])
