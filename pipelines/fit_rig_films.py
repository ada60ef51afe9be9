"""Films of a fit: beside the video, from cameras that go round, and from four that stand around the subject."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.progress import Progress
from rigpapr.fitted import FittedAsset
from rigpapr.quality import Quality, image_quality
from rigpapr.renderer import render
from rigpapr.supervision import Clip
from splatanim.render.camera import Camera, look_at, view_direction
from splatanim.render.video import VideoWriter

if TYPE_CHECKING:
    from rigpapr.quality import Lpips

_LEAST_ORBIT = 48  # frames: a shorter clip plays several times while the camera goes round once
_AROUND = 4  # standing cameras


def picture(asset: FittedAsset, frame: int, camera: Camera) -> np.ndarray:
    """One frame of the fitted motion from a camera, over white."""
    positions, rotations = asset.posed(frame)
    return render(asset.cloud, camera, positions=positions, rotations=rotations).rgb


def write_films(
    output: Path, asset: FittedAsset, clip: Clip, progress: Progress, *, orbit: bool = True, lpips: Lpips | None = None
) -> tuple[list[str], list[Quality]]:
    """``NAME_fit.mp4``: video, fit, and their difference; with ``orbit`` also ``NAME_orbit.mp4`` and
    ``NAME_around.mp4``; and how near each frame comes to the video."""
    from pipelines.fit_rig import sibling

    side = sibling(output, "_fit.mp4")
    scores = []
    with VideoWriter(side, fps=clip.fps) as film, progress.bar("film", len(clip)) as tick:
        for k in range(len(clip)):
            truth, drawn = clip.picture(k), picture(asset, k, clip.camera)
            scores.append(image_quality(drawn, truth, clip.masks[k], lpips))
            film.write(np.concatenate([truth, drawn.clip(0, 1), 1 - np.abs(drawn - truth).clip(0, 1)], axis=1))
            tick()
    made = [f"{side}: the video, the fit, and where they differ"]
    if orbit:
        made += _round(output, asset, clip, progress)
    return made, scores


def _round(output: Path, asset: FittedAsset, clip: Clip, progress: Progress) -> list[str]:
    from pipelines.fit_rig import sibling

    around, standing = sibling(output, "_orbit.mp4"), sibling(output, "_around.mp4")
    cameras = orbit_cameras(asset, clip.camera)
    with VideoWriter(around, fps=clip.fps) as film, progress.bar("orbit", len(cameras)) as tick:
        for k, camera in enumerate(cameras):
            film.write(picture(asset, k % len(asset), camera))
            tick()
    four = ring(asset, clip.camera, _AROUND)
    with VideoWriter(standing, fps=clip.fps) as film, progress.bar("around", len(asset)) as tick:
        for k in range(len(asset)):
            views = [picture(asset, k, camera) for camera in four]
            film.write(np.concatenate([np.concatenate(views[:2], axis=1), np.concatenate(views[2:], axis=1)]))
            tick()
    return [
        f"{around}: the same motion from a camera that goes round",
        f"{standing}: from four that stand around it, a quarter turn apart",
    ]


def orbit_cameras(asset: FittedAsset, view: Camera, least: int = _LEAST_ORBIT) -> list[Camera]:
    """Cameras once round the object, whole plays of the clip long."""
    return ring(asset, view, len(asset) * -(-least // len(asset)))


def ring(asset: FittedAsset, view: Camera, count: int, *, elevation: float = 15.0) -> list[Camera]:
    """``count`` cameras around the object, the first at the azimuth of ``view``, with its lens and distance.

    They look at the middle of everything that the motion passes through, from so far that it stays in the picture.
    """
    centre, reach = swept(asset)
    up = up_axis(view)
    towards = view.position - centre
    distance = max(float(np.linalg.norm(towards)), reach * 2.1 * view.fy / min(view.width, view.height))
    front, left = -view_direction(up, 0.0, 0.0), -view_direction(up, 90.0, 0.0)
    azimuth = float(np.degrees(np.arctan2(towards @ left, towards @ front)))
    cameras = []
    for k in range(count):
        eye = centre - distance * view_direction(up, azimuth + 360.0 * k / count, elevation)
        cameras.append(
            look_at(eye, centre, up, width=view.width, height=view.height, focal=view.fy, near=0.01 * distance)
        )
    return cameras


def swept(asset: FittedAsset) -> tuple[np.ndarray, float]:
    """Middle of the box that the points pass through, and half its diagonal."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for k in range(0, len(asset), max(1, len(asset) // 12)):
        points = asset.posed(k)[0].numpy()
        low, high = np.minimum(low, points.min(axis=0)), np.maximum(high, points.max(axis=0))
    return (0.5 * (low + high)).astype(np.float64), float(0.5 * np.linalg.norm(high - low))


def up_axis(view: Camera) -> tuple[float, float, float]:
    """The world's axis that points most upwards in a picture."""
    up = -view.T_camera_world[1, :3]
    axis = np.zeros(3)
    k = int(np.argmax(np.abs(up)))
    axis[k] = np.sign(up[k])
    return (float(axis[0]), float(axis[1]), float(axis[2]))
