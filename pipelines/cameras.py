"""Where the cameras of a film stand: from a file, or framed on everything that the object passes through."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from splatanim.errors import InputError
from splatanim.render.camera import Camera, box_corners, frame_object, look_at, view_direction
from splatanim.render.camera_io import read_cameras

if TYPE_CHECKING:
    from pipelines.animate import AnimateConfig, Subject

_ORBIT_SPEED = 18.0  # degrees a second: slow enough to watch the motion, fast enough to see that it is solid
_ELEVATION = 15.0  # degrees above the horizon
_FRONT = 25.0  # degrees beside the front, where an orbit is halfway


def cameras_for(
    config: AnimateConfig, subject: Subject, boxes: tuple[np.ndarray, np.ndarray], frames: int
) -> tuple[list[Camera], list[str]]:
    """One camera a frame: from a file, fixed, or a slow orbit; framed on everything the object passes through."""
    width, height = parse_size(config.size)
    up = subject.frame.up
    if config.camera not in ("orbit", "fixed"):
        if not config.camera.endswith(".json"):
            raise InputError(f"--camera {config.camera!r} is neither orbit, fixed nor a .json file of cameras.")
        path = read_cameras(config.camera, size=(width, height))
        index = np.round(np.linspace(0, len(path.cameras) - 1, frames)).astype(int)
        notes = [path.note] if path.note else []
        return [shifted(path.cameras[k], subject.splats.offset) for k in index], notes
    corners = box_corners(*boxes)
    if config.camera == "fixed":
        return [frame_object(corners, up, width=width, height=height)] * frames, []
    return _orbit(corners, np.asarray(up), width, height, frames, config.seconds), []


def _orbit(corners: np.ndarray, up: np.ndarray, width: int, height: int, frames: int, seconds: float) -> list[Camera]:
    """An arc at constant speed, the front in the middle, at the distance that fits from every side."""
    sweep = min(360.0, _ORBIT_SPEED * seconds)
    angles = np.linspace(_FRONT - sweep / 2, _FRONT + sweep / 2, frames)
    views = [
        frame_object(corners, up, width=width, height=height, azimuth_degrees=a, elevation_degrees=_ELEVATION)
        for a in np.linspace(angles[0], angles[-1], 9)
    ]
    target = 0.5 * (corners.min(axis=0) + corners.max(axis=0))
    radius = max(float(np.linalg.norm(view.position - target)) for view in views)
    lens = {"focal": views[0].fy, "near": 0.02 * radius}
    return [
        look_at(target - radius * view_direction(up, a, _ELEVATION), target, up, width=width, height=height, **lens)
        for a in angles
    ]


def shifted(camera: Camera, offset: tuple[float, float, float]) -> Camera:
    """A camera of file coordinates in those of ``Splats.means``, which lack ``offset``."""
    if not any(offset):
        return camera
    pose = camera.T_camera_world.copy()
    pose[:3, 3] += pose[:3, :3] @ np.asarray(offset)
    return dataclasses.replace(camera, T_camera_world=pose)


def parse_size(text: str) -> tuple[int, int]:
    """``640x480`` -> (640, 480)."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(p.isdigit() and 0 < int(p) <= 16384 for p in parts):
        raise InputError(f"--size {text!r} is not WIDTHxHEIGHT in pixels, such as 640x640 (16384 at most).")
    return int(parts[0]), int(parts[1])


def parse_colour(text: str) -> tuple[float, float, float]:
    """``1,1,1`` -> (1.0, 1.0, 1.0)."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(0.0 <= v <= 1.0 for v in values):
        raise InputError(f"--background {text!r} is not three numbers between 0 and 1, such as 1,1,1.")
    return values
