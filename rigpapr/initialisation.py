"""Where a cloud's points start: on the visual hull of the masks, or on something that is there already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from rigpapr.cloud import OBJECT_SIZE, CloudConfig, PaprCloud, median_spacing
from rigpapr.dataset import View
from splatanim.errors import InputError
from splatanim.render.camera import Camera

_COARSE = 48  # cells along the longest side in the first pass, which only finds the hull's box
_VISIBLE = 3  # of the nearest spacings: a point deeper than the hull's front by more is not seen


@dataclass(frozen=True)
class StartPoints:
    """World positions (N, 3), float64, and colours (N, 3) in [0, 1], NaN where unknown."""

    positions: Float[np.ndarray, "n 3"]
    colours: Float[np.ndarray, "n 3"]


def visual_hull(views: Sequence[View], count: int, *, resolution: int = 128, seed: int = 0) -> StartPoints:
    """About evenly spread points on the surface of the largest shape that all masks allow.

    Space is carved twice: coarsely in the box that the cameras look at, then at ``resolution`` cells along the longest
    side of what is left. Raises InputError where nothing is left: masks or poses that contradict each other.
    """
    rng = np.random.default_rng(seed)
    low, high = viewed_box([view.camera for view in views])
    masks = [_grown(view.mask > 0.25) for view in views]
    for cells in (_COARSE, resolution):
        kept, spacing, origin = _carve(views, masks, low, high, cells)
        if not kept.any():
            raise InputError(
                f"The masks of the {len(views)} views have no common shape: at {cells}^3 cells nothing is left. Check "
                "that poses and masks belong together, that the masks are not inverted, and the pose convention."
            )
        filled = np.argwhere(kept)
        low = origin + (filled.min(axis=0) - 1.0) * spacing
        high = origin + (filled.max(axis=0) + 2.0) * spacing
    surface = origin + (np.argwhere(kept & ~_eroded(kept)) + 0.5) * spacing
    points = thin(surface, count, rng)
    points = points + spacing * rng.uniform(-0.5, 0.5, points.shape)
    return StartPoints(points, np.full(points.shape, np.nan))


def viewed_box(cameras: Sequence[Camera]) -> tuple[np.ndarray, np.ndarray]:
    """A box, corners (3,) each, that holds all that the cameras have in common: around the point nearest to all optical
    axes, as large as the widest picture there."""
    system, right = np.zeros((3, 3)), np.zeros(3)
    for camera in cameras:
        axis = camera.T_camera_world[2, :3]
        across = np.eye(3) - np.outer(axis, axis)
        system += across
        right += across @ camera.position
    # Parallel axes leave a direction open: keep it near the cameras' own middle.
    middle = np.mean([camera.position for camera in cameras], axis=0)
    weight = 1e-6 * len(cameras)
    centre = np.linalg.solve(system + weight * np.eye(3), right + weight * middle)
    extents = []
    for camera in cameras:
        z = float(camera.T_camera_world[2] @ np.append(centre, 1.0))
        extents.append(max(z, 0.0) * max(camera.width / camera.fx, camera.height / camera.fy) / 2)
    half = 1.3 * max(extents)
    if not half > 0:
        raise InputError("The cameras look away from each other: no point lies before them. Check the pose convention.")
    return centre - half, centre + half


def _carve(
    views: Sequence[View], masks: list[np.ndarray], low: np.ndarray, high: np.ndarray, cells: int
) -> tuple[Bool[np.ndarray, "x y z"], float, np.ndarray]:
    """Cells whose centre falls into every mask that sees it; also spacing and the grid's corner.

    A cell must be in the picture of more than half as many views as the box's middle: what most cameras miss, none has
    carved.
    """
    spacing = float((high - low).max()) / cells
    shape = np.maximum(1, np.ceil((high - low) / spacing).astype(int))
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), axis=-1).reshape(-1, 3)
    alive = np.arange(len(grid))
    seen = np.zeros(len(grid), np.int64)
    for view, mask in zip(views, masks, strict=True):
        x, y, z = project(view.camera, low + (grid[alive] + 0.5) * spacing)
        inside = in_picture(view.camera, x, y, z)
        keep = ~inside
        keep[inside] = mask[y[inside].astype(int), x[inside].astype(int)]
        seen[alive[inside & keep]] += 1
        alive = alive[keep]
    kept = np.zeros(len(grid), bool)
    middle = (low + high)[None] / 2
    kept[alive] = seen[alive] > 0.5 * sum(
        bool(in_picture(view.camera, *project(view.camera, middle))[0]) for view in views
    )
    return kept.reshape(shape), spacing, low


def project(camera: Camera, points: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixel coordinates x, y and depth z of world points; x and y are meaningless where z <= 0."""
    local = points @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    z = local[:, 2]
    safe = np.where(z > 0, z, 1.0)
    return camera.fx * local[:, 0] / safe + camera.cx, camera.fy * local[:, 1] / safe + camera.cy, z


def in_picture(camera: Camera, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Which projected points fall into the picture."""
    return (z > 0) & (x >= 0) & (x < camera.width) & (y >= 0) & (y < camera.height)


def _grown(mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """One pixel wider, so that cells whose centre just misses a thin part survive."""
    from scipy.ndimage import binary_dilation

    return binary_dilation(mask, np.ones((3, 3), bool))


def _eroded(filled: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    from scipy.ndimage import binary_erosion

    return binary_erosion(filled)


def thin(points: Float[np.ndarray, "n 3"], count: int, rng: np.random.Generator) -> Float[np.ndarray, "m 3"]:
    """``count`` of the points, evenly spread: one a cell of the finest grid that has no more filled cells than that,
    the rest at random; points are repeated where there are too few."""
    points = points[rng.permutation(len(points))]
    if len(points) <= count:
        return points[np.arange(count) % len(points)]
    low, high = 0.0, float(np.ptp(points, axis=0).max())
    for _ in range(24):
        middle = (low + high) / 2
        cells = np.unique(np.floor(points / max(middle, 1e-12)).astype(np.int64), axis=0)
        low, high = (middle, high) if len(cells) > count else (low, middle)
    _, first = np.unique(np.floor(points / high).astype(np.int64), axis=0, return_index=True)
    rest = np.setdiff1d(np.arange(len(points)), first)
    return points[np.concatenate([first, rest[: count - len(first)]])]


def read_start(path: Path, count: int, seed: int = 0) -> StartPoints:
    """Points of a splat .ply, a point .ply with or without colours, or a mesh's surface (.ply, .obj, .glb).

    Raises InputError where the file holds none of these.
    """
    from splatanim.formats import read_splats

    rng = np.random.default_rng(seed)
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give points, splats (.ply) or a mesh (.ply, .obj, .glb).")
    if path.suffix.lower() == ".ply" and _is_splats(path):
        splats = read_splats(path).splats
        splats = splats.select(splats.opacities > 0.1)
        if not len(splats):
            raise InputError(f"{path}: no splat has an opacity above 0.1. Is it the right file?")
        colours = np.clip(0.5 + 0.28209479177387814 * splats.sh[:, 0].astype(np.float64), 0, 1)
        return _some(splats.means.astype(np.float64) + splats.offset, colours, count, rng)
    return _from_geometry(path, count, seed, rng)


def _is_splats(path: Path) -> bool:
    from splatanim.formats.ply_table import read_header

    vertex = read_header(path).element("vertex")
    return vertex is not None and {"opacity", "scale_0"} <= set(vertex.names)


def _from_geometry(path: Path, count: int, seed: int, rng: np.random.Generator) -> StartPoints:
    import trimesh

    from splatanim.data import Mesh
    from splatanim.sampling.surface import sample_surface

    try:
        loaded = trimesh.load(path)
    except Exception as error:  # trimesh raises whatever its parsers do
        raise InputError(f"{path}: cannot be read as points or a mesh ({error}). Export it as .ply again.") from error
    if isinstance(loaded, trimesh.Scene):
        loaded = loaded.to_mesh()
    vertices = np.asarray(getattr(loaded, "vertices", np.empty((0, 3))), np.float64)
    if not len(vertices) or not np.isfinite(vertices).all():
        raise InputError(f"{path}: holds no points, or some that are NaN or infinite. Export it again.")
    faces = np.asarray(getattr(loaded, "faces", np.empty((0, 3))))
    if len(faces):
        points, _ = sample_surface(Mesh(vertices, faces.astype(np.int64)), count, seed=seed, sharp_fraction=0.1)
        return StartPoints(points, np.full(points.shape, np.nan))
    colours = np.asarray(getattr(loaded, "colors", np.empty((0, 4))), np.float64)
    known = colours[:, :3] / 255 if colours.shape[0] == len(vertices) else np.full(vertices.shape, np.nan)
    return _some(vertices, known, count, rng)


def _some(positions: np.ndarray, colours: np.ndarray, count: int, rng: np.random.Generator) -> StartPoints:
    """At most ``count`` points, evenly spread; fewer are filled up by mixes of neighbours."""
    from scipy.spatial import cKDTree

    if len(positions) > count:
        chosen = thin(np.column_stack([positions, np.arange(len(positions))])[:, :3], count, rng)
        _, rows = cKDTree(positions).query(chosen)
        return StartPoints(positions[rows], colours[rows])
    missing = count - len(positions)
    if missing and len(positions) >= 3:
        base = rng.integers(0, len(positions), missing)
        _, near = cKDTree(positions).query(positions[base], 3)
        mix = rng.dirichlet(np.ones(3), missing)[..., None]
        positions = np.concatenate([positions, (mix * positions[near]).sum(axis=1)])
        colours = np.concatenate([colours, (mix * colours[near]).sum(axis=1)])
    return StartPoints(positions, colours)


def colours_from_views(positions: Float[np.ndarray, "n 3"], views: Sequence[View]) -> Float[np.ndarray, "n 3"]:
    """The mean colour of each point over the views that see it, by depth among the points; grey where none does."""
    from scipy.spatial import cKDTree

    distances, _ = cKDTree(positions).query(positions, min(2, len(positions)))
    spacing = float(np.median(distances[:, -1])) or 1e-6
    total, seen = np.zeros(positions.shape), np.full(len(positions), 1e-9)
    for view in views:
        camera = view.camera
        x, y, z = project(camera, positions)
        step = max(1.0, 2 * spacing * camera.fx / max(float(np.median(z)), 1e-9))
        rows = np.flatnonzero(in_picture(camera, x, y, z))
        cell = (y[rows] // step).astype(int) * (int(camera.width / step) + 1) + (x[rows] // step).astype(int)
        front = np.full(int(cell.max()) + 1 if len(cell) else 1, np.inf)
        np.minimum.at(front, cell, z[rows])
        rows = rows[z[rows] < front[cell] + _VISIBLE * spacing]
        pixel = view.rgba[y[rows].astype(int), x[rows].astype(int)].astype(np.float64) / 255
        total[rows] += pixel[:, :3] * pixel[:, 3:]
        seen[rows] += pixel[:, 3]
    return np.where(seen[:, None] > 1e-6, total / seen[:, None], 0.5)


def start_cloud(config: CloudConfig, start: StartPoints, views: Sequence[View], *, band: float, seed: int) -> PaprCloud:
    """A cloud at the start points, normalised to their robust extent, coloured by them or by the views.

    ``band`` [px]: rays farther than this from any point see background (the cloud's reach); infinity for none.
    """
    import torch

    low, high = np.quantile(start.positions, [0.005, 0.995], axis=0)
    size = float((high - low).max())
    if not size > 0:
        raise InputError("All start points coincide. Give --init a file with an extent.")
    centre, scale = (low + high) / 2, OBJECT_SIZE / size
    positions = torch.from_numpy((start.positions - centre) * scale).float()
    pixel = np.median([_pixel_size(view.camera, centre) for view in views]) * scale
    reach = max(float(band * pixel), 3 * median_spacing(positions)) if np.isfinite(band) else float("inf")
    cloud = PaprCloud(config, positions, centre=centre, scale=scale, reach=reach, seed=seed)
    if config.head == "kernel":
        colours = start.colours
        unknown = ~np.isfinite(colours).all(axis=1)
        if unknown.any():
            colours = np.where(unknown[:, None], colours_from_views(start.positions, views), colours)
        clipped = np.clip(colours, 0.02, 0.98)
        with torch.no_grad():
            cloud.features[:, 4:7] = torch.from_numpy(np.log(clipped / (1 - clipped))).float()
    return cloud


def _pixel_size(camera: Camera, point: np.ndarray) -> float:
    """The width of a pixel at a world point's depth, in world units."""
    return max(float(camera.T_camera_world[2] @ np.append(point, 1.0)), 1e-9) / max(camera.fx, camera.fy)
