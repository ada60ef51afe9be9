"""Films of a fit: beside the video, and from cameras that go round."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipelines.progress import Progress
from rigpapr.fitted import FittedAsset
from rigpapr.renderer import render
from rigpapr.supervision import Clip
from splatanim.metrics import psnr
from splatanim.render.camera import Camera, orbit
from splatanim.render.video import VideoWriter

_LEAST_ORBIT = 48  # frames: a shorter clip plays several times while the camera goes round once


def picture(asset: FittedAsset, frame: int, camera: Camera) -> np.ndarray:
    """One frame of the fitted motion from a camera, over white."""
    positions, rotations = asset.posed(frame)
    return render(asset.cloud, camera, positions=positions, rotations=rotations).rgb


def write_films(
    output: Path, asset: FittedAsset, clip: Clip, progress: Progress, *, orbit: bool = True
) -> tuple[list[str], list[float]]:
    """``NAME_fit.mp4``: video, fit, and their difference; ``NAME_orbit.mp4``; and each frame's PSNR [dB]."""
    from pipelines.fit_rig import sibling

    side, around = sibling(output, "_fit.mp4"), sibling(output, "_orbit.mp4")
    scores = []
    with VideoWriter(side, fps=clip.fps) as film, progress.bar("film", len(clip)) as tick:
        for k in range(len(clip)):
            truth, drawn = clip.picture(k), picture(asset, k, clip.camera)
            scores.append(psnr(np.clip(drawn, 0, 1), truth))
            film.write(np.concatenate([truth, drawn, 1 - np.abs(drawn - truth).clip(0, 1)], axis=1))
            tick()
    made = [f"{side}: the video, the fit, and where they differ"]
    if orbit:
        cameras = orbit_cameras(asset, clip, _LEAST_ORBIT)
        with VideoWriter(around, fps=clip.fps) as film, progress.bar("orbit", len(cameras)) as tick:
            for k, camera in enumerate(cameras):
                film.write(picture(asset, k % len(asset), camera))
                tick()
        made.append(f"{around}: the same motion from cameras that go round")
    return made, scores


def orbit_cameras(asset: FittedAsset, clip: Clip, least: int) -> list[Camera]:
    """Cameras once round the object, starting beside the video's, whole plays of the clip long."""
    points = asset.cloud.world_positions.detach().numpy()
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    radius = float(np.linalg.norm(clip.camera.position - centre))
    count = len(asset) * -(-least // len(asset))
    up = -clip.camera.T_camera_world[1, :3]
    axis = np.zeros(3)
    axis[int(np.argmax(np.abs(up)))] = np.sign(up[int(np.argmax(np.abs(up)))])
    fov = 2 * np.degrees(np.arctan(clip.camera.height / (2 * clip.camera.fy)))
    size = {"width": clip.camera.width, "height": clip.camera.height}
    return orbit(centre, radius, axis, count=count, fov_y_degrees=float(fov), elevation_degrees=15.0, **size)
