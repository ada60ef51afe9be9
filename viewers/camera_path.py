"""Cameras between the browser, this program and files, and the camera path that keyframes make.

A camera in the browser is a position, a ``wxyz`` rotation with OpenCV axes (x right, y down, z forward), camera to
world, and a vertical field of view in radians. Files hold file coordinates; the viewer shows the simulator's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Frame
from splatanim.errors import InputError
from splatanim.render.camera import Camera, focal_from_fov
from splatanim.rotations import matrices_to_quaternions, quaternions_to_matrices

if TYPE_CHECKING:
    import viser


@dataclass(frozen=True)
class Keyframe:
    """Where a browser's camera stood: position, ``wxyz`` (camera to world, OpenCV axes), vertical fov [rad]."""

    position: Float64[np.ndarray, " 3"]
    wxyz: Float64[np.ndarray, " 4"]
    fov: float

    @classmethod
    def of(cls, camera: viser.CameraHandle) -> Keyframe:
        """The camera of a connected browser."""
        return cls(np.array(camera.position, np.float64), np.array(camera.wxyz, np.float64), float(camera.fov))

    def camera(self, width: int, height: int, near: float = 0.01) -> Camera:
        """As a pinhole camera of a picture of that size, in the viewer's coordinates."""
        rotation = quaternions_to_matrices(self.wxyz[None])[0]
        pose = np.eye(4)
        pose[:3, :3] = rotation.T
        pose[:3, 3] = -rotation.T @ self.position
        focal = focal_from_fov(float(np.degrees(self.fov)), height)
        return Camera(pose, focal, focal, width / 2, height / 2, width, height, near)


@dataclass
class CameraKeys:
    """The keyframes that were set, in order."""

    keys: list[Keyframe] = field(default_factory=list)

    def add(self, key: Keyframe) -> int:
        """Append a keyframe; returns how many there are."""
        self.keys.append(key)
        return len(self.keys)

    def clear(self) -> None:
        self.keys.clear()

    def cameras(self, frames: int, size: tuple[int, int]) -> list[Camera]:
        """``frames`` cameras along the path, in the viewer's coordinates; the first and last stand on the first and
        last keyframe. Raises InputError where no keyframe is set."""
        if not self.keys:
            raise InputError("No camera keyframe is set. Move the camera to where the path starts, and add one.")
        return [key.camera(*size) for key in interpolated(self.keys, frames)]

    def write(self, path: Path, seconds: float, fps: float, size: tuple[int, int], frame: Frame) -> str:
        """Write nerfstudio's camera_path.json in file coordinates; returns a sentence on what was written."""
        from splatanim.render.camera_io import write_camera_path

        frames = max(1, round(seconds * fps))
        cameras = [to_file(camera, frame) for camera in self.cameras(frames, size)]
        write_camera_path(path, cameras, fps)
        return f"{path}: {frames} cameras through {len(self.keys)} keyframes, {fps:g} a second."


def interpolated(keys: Sequence[Keyframe], frames: int) -> list[Keyframe]:
    """``frames`` keyframes at even times along a path through ``keys``.

    Positions and fields of view run along a monotone cubic (PCHIP, which does not overshoot); rotations along
    the great circles between neighbours.
    """
    from scipy.interpolate import PchipInterpolator
    from scipy.spatial.transform import Rotation, Slerp

    if len(keys) == 1 or frames == 1:
        return [keys[0]] * frames
    knots = np.arange(len(keys), dtype=np.float64)
    times = np.linspace(0.0, len(keys) - 1.0, frames)
    values = np.stack([[*key.position, key.fov] for key in keys])
    path = PchipInterpolator(knots, values)(times)
    turns = Slerp(knots, Rotation.from_quat(np.stack([np.roll(key.wxyz, -1) for key in keys])))(times)
    quaternions = np.roll(turns.as_quat(), 1, axis=1)
    return [Keyframe(row[:3], q, float(row[3])) for row, q in zip(path, quaternions, strict=True)]


def to_file(camera: Camera, frame: Frame) -> Camera:
    """A camera of the viewer's coordinates in those of the file: the same picture of the same thing."""
    position = frame.to_file(camera.position[None])[0]
    return _moved(camera, position, 1.0 / frame.scale)


def to_viewer(camera: Camera, frame: Frame) -> Camera:
    """A camera of file coordinates in the viewer's."""
    position = frame.to_sim(camera.position[None])[0]
    return _moved(camera, position, frame.scale)


def _moved(camera: Camera, position: np.ndarray, scale: float) -> Camera:
    pose = camera.T_camera_world.copy()
    pose[:3, 3] = -pose[:3, :3] @ position
    return dataclasses.replace(camera, T_camera_world=pose, near=camera.near * scale)


def browser_pose(camera: Camera) -> tuple[Float[np.ndarray, " 4"], Float[np.ndarray, " 3"], float, float]:
    """``wxyz``, position, vertical fov [rad] and aspect of a camera, for frusta and for setting a browser's camera."""
    rotation = camera.T_camera_world[:3, :3].T
    fov = 2.0 * float(np.arctan(camera.height / (2.0 * camera.fy)))
    return matrices_to_quaternions(rotation[None])[0], camera.position, fov, camera.width / camera.height
