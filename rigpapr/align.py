"""The camera of a video whose first frame shows the asset as it is, from that frame's mask alone.

Silhouettes say little about how far a lens is zoomed, so the field of view is given; direction, distance and place are
found by making the projected points cover the mask and nothing else. With D the distance to the mask and d that from a
pixel of the mask to the nearest projected point, the mean of D over points plus the mean of d over the mask's pixels is
descended without derivatives, from a side that the user names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from rigpapr.coarse_view import project
from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at

_POINTS, _PIXELS = 1500, 1500
_FARTHEST = 0.02  # of the picture's size: mean distance at which the silhouettes do not belong together
SIDES = ("+x", "-x", "+y", "-y", "+z", "-z")


@dataclass(frozen=True)
class Alignment:
    """``camera``, and ``distance`` [px]: the mean of both directions' distances between silhouettes."""

    camera: Camera
    distance: float


def find_camera(
    points: Float[np.ndarray, "n 3"],
    mask: Bool[np.ndarray, "h w"],
    side: str,
    *,
    fov_y_degrees: float = 40.0,
    up: tuple[float, float, float] | None = None,
    seed: int = 0,
) -> Alignment:
    """The camera that sees the points fill the mask, starting from a side of the object (``+z``: it looks along -z).

    ``up`` is +y where it is not given (+z for cameras above and below). Raises InputError for sides that there are
    not, empty masks, and silhouettes that do not come to lie on each other.
    """
    from scipy.ndimage import distance_transform_edt
    from scipy.optimize import minimize
    from scipy.spatial import cKDTree

    if side not in SIDES:
        raise InputError(f"--camera find:{side}: name the side that the camera stands on: {', '.join(SIDES)}.")
    if not mask.any():
        raise InputError("--camera find: the first frame shows no subject.")
    rng = np.random.default_rng(seed)
    points = np.asarray(points, np.float64)
    some = points[rng.choice(len(points), min(_POINTS, len(points)), replace=False)]
    outside = distance_transform_edt(~mask)
    pixels = np.argwhere(mask)[:, ::-1] + 0.5
    pixels = pixels[rng.choice(len(pixels), min(_PIXELS, len(pixels)), replace=False)]
    start = _start(points, mask, side, fov_y_degrees, up)

    def cost(change: np.ndarray) -> float:
        here, z = project(_moved(start, points, change), some)
        if (z <= 0).any():
            return 1e6
        x = np.clip(here, 0, np.array(mask.shape[::-1]) - 1e-6).astype(int)
        beyond = np.linalg.norm(here - (x + 0.5), axis=1)
        there = outside[x[:, 1], x[:, 0]] + np.where(beyond > 1, beyond, 0)
        return float(there.mean() + cKDTree(here).query(pixels)[0].mean())

    scale = np.array([0.1, 0.1, 0.1, 0.05, 0.05, 0.1])
    best = np.zeros(6)
    for shrink in (1.0, 0.2):
        simplex = best + np.vstack([np.zeros(6), np.diag(shrink * scale)])
        options = {"initial_simplex": simplex, "maxfev": 350, "xatol": 1e-5, "fatol": 1e-4}
        best = minimize(cost, best, method="Nelder-Mead", options=options).x
    distance = cost(best)
    if distance > _FARTHEST * max(mask.shape):
        raise InputError(
            f"--camera find:{side}: the asset and the first frame's subject stay {distance:.1f} px apart. Is it the "
            "right side, and does the first frame show the asset as it was captured?"
        )
    return Alignment(_moved(start, points, best), distance)


def _start(
    points: np.ndarray, mask: np.ndarray, side: str, fov: float, up: tuple[float, float, float] | None
) -> Camera:
    """From the side asked for, at the distance where the object is as long as the mask."""
    axis = "xyz".index(side[1])
    towards = np.zeros(3)
    towards[axis] = 1.0 if side[0] == "+" else -1.0
    vertical = up or ((0.0, 0.0, 1.0) if axis == 1 else (0.0, 1.0, 0.0))
    low, high = points.min(axis=0), points.max(axis=0)
    centre = (low + high) / 2
    height, width = mask.shape
    camera = look_at(centre + towards * np.ptp(points), centre, vertical, width=width, height=height, fov_y_degrees=fov)
    local = (points - centre) @ camera.T_camera_world[:3, :3].T
    rows, columns = np.nonzero(mask)
    longest = max(np.ptp(rows), np.ptp(columns)) + 1
    distance = camera.fy * float(max(np.ptp(local[:, 0]), np.ptp(local[:, 1]))) / longest
    lens = {"width": width, "height": height, "fov_y_degrees": fov, "near": 0.01 * distance}
    camera = look_at(centre + towards * distance, centre, vertical, **lens)
    pose = camera.T_camera_world.copy()
    pose[0, 3] += (columns.mean() + 0.5 - camera.cx) * distance / camera.fx
    pose[1, 3] += (rows.mean() + 0.5 - camera.cy) * distance / camera.fy
    return Camera(pose, camera.fx, camera.fy, camera.cx, camera.cy, width, height, camera.near)


def _moved(camera: Camera, points: np.ndarray, change: np.ndarray) -> Camera:
    """The object turned about its middle by three angles and shifted, as the camera sees it: x and y in shares of the
    distance, and the logarithm of the distance."""
    from scipy.spatial.transform import Rotation

    turn = Rotation.from_rotvec(change[:3]).as_matrix()
    old = camera.T_camera_world
    middle = old[:3, :3] @ ((points.min(axis=0) + points.max(axis=0)) / 2) + old[:3, 3]
    place = middle + np.append(change[3:5] * middle[2], 0.0)
    place = place * np.exp(change[5])
    pose = np.eye(4)
    pose[:3, :3] = turn @ old[:3, :3]
    pose[:3, 3] = place - turn @ (middle - old[:3, 3])
    return Camera(pose, camera.fx, camera.fy, camera.cx, camera.cy, camera.width, camera.height, camera.near)
