"""Where the cameras of a film stand: from a file, or framed on everything that the object passes through."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.scene import View
from splatanim.errors import InputError
from splatanim.render.camera import Camera, box_corners, frame_object, look_at, view_direction
from splatanim.render.camera_io import read_cameras

Boxes = tuple[Float64[np.ndarray, "t 3"], Float64[np.ndarray, "t 3"]]


def cameras_for(
    view: View,
    size: tuple[int, int],
    up: tuple[float, float, float],
    boxes: Boxes,
    seconds: float,
    *,
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> tuple[list[Camera], list[str]]:
    """One camera a frame and notes: from a file, fixed, or a slow orbit, framed on all that ``boxes`` pass through.

    ``boxes`` are the low and high corners of what is seen, a pair a frame; ``offset`` is what the coordinates drawn
    in lack of those of the file (``Splats.offset``).
    """
    width, height = size
    frames = len(boxes[0])
    if view.path not in ("orbit", "fixed"):
        if not view.path.endswith(".json") and not Path(view.path).is_dir():
            raise InputError(
                f"--camera {view.path!r} is neither orbit, fixed, a .json file of cameras nor a COLMAP model's folder."
            )
        path = read_cameras(view.path, size=(width, height))
        index = np.round(np.linspace(0, len(path.cameras) - 1, frames)).astype(int)
        notes = [path.note] if path.note else []
        return [_zoomed(shifted(path.cameras[k], offset), view.zoom) for k in index], notes
    corners = box_corners(*boxes)
    if view.path == "fixed":
        angles = {"azimuth_degrees": view.azimuth, "elevation_degrees": view.elevation}
        return [_zoomed(frame_object(corners, up, width=width, height=height, **angles), view.zoom)] * frames, []
    orbit = _orbit(corners, np.asarray(up), size, view, frames, seconds)
    return [_zoomed(camera, view.zoom) for camera in orbit], []


def _orbit(
    corners: np.ndarray, up: np.ndarray, size: tuple[int, int], view: View, frames: int, seconds: float
) -> list[Camera]:
    """An arc at constant speed, the front in the middle, at the distance that fits from every side."""
    width, height = size
    sweep = min(360.0, view.speed * seconds)
    angles = np.linspace(view.azimuth - sweep / 2, view.azimuth + sweep / 2, frames)
    elevation = view.elevation
    views = [
        frame_object(corners, up, width=width, height=height, azimuth_degrees=a, elevation_degrees=elevation)
        for a in np.linspace(angles[0], angles[-1], 9)
    ]
    target = 0.5 * (corners.min(axis=0) + corners.max(axis=0))
    radius = max(float(np.linalg.norm(camera.position - target)) for camera in views)
    lens = {"focal": views[0].fy, "near": 0.02 * radius}
    return [
        look_at(target - radius * view_direction(up, a, elevation), target, up, width=width, height=height, **lens)
        for a in angles
    ]


def _zoomed(camera: Camera, zoom: float) -> Camera:
    return camera if zoom == 1.0 else dataclasses.replace(camera, fx=camera.fx * zoom, fy=camera.fy * zoom)


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
