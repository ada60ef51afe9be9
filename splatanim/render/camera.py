"""Pinhole cameras. Said once: files hold camera-to-world matrices with OpenGL axes (x right, y up, z backward);
inside, a camera is world-to-camera with OpenCV axes (x right, y down, z forward), pixel centres at half-integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Num

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


Vector = Sequence[float | int] | Num[np.ndarray, " 3"]


def look_at(
    eye: Vector,
    target: Vector,
    up: Vector,
    *,
    width: int,
    height: int,
    fov_y_degrees: float | None = None,
    focal: float | None = None,
    near: float = 0.01,
) -> Camera:
    """A camera at ``eye`` that sees ``target`` in the middle of the image and ``up`` upwards.

    The lens is given by the vertical field of view in degrees or by the focal length in pixels; default 40 degrees.

    Raises InputError where ``eye`` and ``target`` coincide, ``up`` is zero or along the line of sight, or both kinds
    of lens are given.
    """
    if focal is not None and fov_y_degrees is not None:
        raise InputError("look_at: give fov_y_degrees or focal, not both.")
    if focal is None:
        focal = focal_from_fov(40.0 if fov_y_degrees is None else fov_y_degrees, height)
    position = np.asarray(eye, np.float64)
    rotation = _facing(np.asarray(target, np.float64) - position, np.asarray(up, np.float64))
    return _camera(rotation, position, focal, (width, height), near)


def orbit(
    centre: Vector,
    radius: float,
    up: Vector,
    *,
    count: int,
    width: int,
    height: int,
    elevation_degrees: float = 15.0,
    fov_y_degrees: float = 40.0,
) -> list[Camera]:
    """``count`` cameras evenly around ``centre``, anticlockwise seen from above, all at distance ``radius``.

    The first stands at the front (see :func:`view_direction`); the last one step before it, so that the film loops.
    """
    if count < 1 or not radius > 0:
        raise InputError(f"orbit: count {count} and radius {radius} must be positive.")
    cameras = []
    for k in range(count):
        eye = np.asarray(centre, np.float64) - radius * view_direction(up, 360.0 * k / count, elevation_degrees)
        camera = look_at(
            eye, centre, up, width=width, height=height, fov_y_degrees=fov_y_degrees, near=min(0.01, 0.01 * radius)
        )
        cameras.append(camera)
    return cameras


def frame_object(
    points: Float[np.ndarray, "n 3"],
    up: Vector,
    *,
    width: int,
    height: int,
    fov_y_degrees: float = 35.0,
    azimuth_degrees: float = 35.0,
    elevation_degrees: float = 15.0,
    margin: float = 0.06,
) -> Camera:
    """The nearest camera from a given side that has all ``points`` in the image: a three-quarter view from above.

    ``points`` are what must be seen, in world units: the splats' centres, or the corners of the boxes that the object
    fills over time (:func:`box_corners`). The fit is exact, for any shape of image, with a border of ``margin`` times
    the image on each side that touches. Angles as in :func:`view_direction`.

    Raises InputError where no point is finite or ``margin`` is not in [0, 0.5).
    """
    if not 0 <= margin < 0.5:
        raise InputError(f"frame_object: margin is {margin}; it must lie in [0, 0.5).")
    points = np.asarray(points, np.float64).reshape(-1, 3)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        raise InputError("frame_object: there is no finite point to look at. Is the object empty?")
    rotation = _facing(view_direction(up, azimuth_degrees, elevation_degrees), np.asarray(up, np.float64))
    focal = focal_from_fov(fov_y_degrees, height)
    x, y, z = rotation @ points.T
    # Seen where |x - eye_x| <= slope (z - eye_z), and so for y: linear in the eye; both sides tight in the better one.
    eye = np.empty(3)
    eye[2] = z.min() - 0.25 * (float(np.linalg.norm(np.ptp(points, axis=0))) or 1.0)
    for axis, (values, pixels) in enumerate(((x, width), (y, height))):
        slope = (0.5 - margin) * pixels / focal
        right, left = (values - slope * z).max(), (-values - slope * z).max()
        eye[axis] = (right - left) / 2
        eye[2] = min(eye[2], -(right + left) / (2 * slope))
    near = 0.02 * float(z.min() - eye[2])
    return _camera(rotation, rotation.T @ eye, focal, (width, height), near)


def box_corners(lo: Num[np.ndarray, "*t 3"], hi: Num[np.ndarray, "*t 3"]) -> Float64[np.ndarray, "n 3"]:
    """The 8 corners of each of one or more axis-aligned boxes, stacked."""
    lo, hi = np.asarray(lo, np.float64).reshape(-1, 3), np.asarray(hi, np.float64).reshape(-1, 3)
    take_high = np.array([[k & 1, k >> 1 & 1, k >> 2 & 1] for k in range(8)], bool)
    return np.where(take_high, hi[:, None], lo[:, None]).reshape(-1, 3)


def view_direction(up: Vector, azimuth_degrees: float, elevation_degrees: float) -> Float64[np.ndarray, " 3"]:
    """The unit vector from a camera to what it looks at.

    Azimuth 0 is the front, where +z points at the camera for y up (-z for y down, -y for z up); it grows
    anticlockwise seen from above. Elevation is the angle above the horizon.
    """
    vertical = _unit(np.asarray(up, np.float64), "up")
    axis = int(np.argmax(np.abs(vertical)))
    front = np.array([[0, 0, 1.0], [0, 0, 1.0], [0, -1.0, 0]])[axis] * np.sign(vertical[axis])
    front = _unit(front - (front @ vertical) * vertical, "up")
    side = np.cross(vertical, front)
    a, e = np.radians(azimuth_degrees), np.radians(elevation_degrees)
    return -(np.cos(e) * (np.cos(a) * front + np.sin(a) * side) + np.sin(e) * vertical)


def focal_from_fov(fov_degrees: float, pixels: int) -> float:
    """The focal length in pixels at which ``pixels`` span ``fov_degrees``."""
    if not 0 < fov_degrees < 180:
        raise InputError(f"Camera: a field of view of {fov_degrees} degrees; it must lie between 0 and 180.")
    return 0.5 * pixels / float(np.tan(np.radians(fov_degrees) / 2))


def _camera(rotation: np.ndarray, position: np.ndarray, focal: float, size: tuple[int, int], near: float) -> Camera:
    """``rotation`` (3, 3) world to camera; the principal point is the image's centre."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, -rotation @ position
    width, height = size
    return Camera(pose, focal, focal, width / 2, height / 2, width, height, near)


def _facing(forward: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The world-to-camera rotation, rows right, down and forward."""
    forward = _unit(forward, "the line of sight")
    right = np.cross(forward, _unit(up, "up"))
    if np.linalg.norm(right) < 1e-6:
        raise InputError("Camera: up is parallel to the line of sight. Choose another up vector.")
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(forward, right), forward])


def _unit(vector: np.ndarray, name: str) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    if not (np.isfinite(length) and length > 0):
        raise InputError(f"Camera: {name} is {vector.tolist()}; it must be a finite vector other than zero.")
    return vector / length
