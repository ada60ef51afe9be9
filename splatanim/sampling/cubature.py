"""From a capture or a mesh to integration points with volumes and contact points (DESIGN.md section 4, Cubature)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from scipy import ndimage

from splatanim.data import Cubature, Domain, Frame, Mesh, Splats
from splatanim.errors import InputError
from splatanim.sampling import density, inside, voxels
from splatanim.sampling.quadrature import spread
from splatanim.sampling.surface import farthest_points, sample_surface, support_extremes

MOST_VOXELS = 150_000  # in a domain; finer grids are coarsened until they fit
FEWEST_VOXELS = 25_000  # below it the grid is refined, at most four times
MOST_CELLS = 1_200_000  # in a grid, empty ones included
THINNEST = 6  # voxels wanted across the thinnest direction
COARSEST = 12  # voxels along the longest side below which a grid is not coarsened further
MOST_COARSE = 300_000  # points that settle how thick an object is
SEALED_SHARE = 0.03  # of the volume found behind the surface: less counts as a thin shell


@dataclass(frozen=True)
class _Filled:
    """A filled grid and how it came about."""

    cells: Bool[np.ndarray, "x y z"]
    raster: voxels.Raster
    method: str


def cubature_from_splats(
    splats: Splats,
    frame: Frame,
    *,
    count: int = 1024,
    contact_count: int = 512,
    resolution: int = 64,
    seed: int = 0,
    keep: Bool[np.ndarray, " n"] | None = None,
) -> Cubature:
    """Integration and contact points of a capture, from its Gaussians alone (simulator units: m, m^3).

    The Gaussians' coverage (opacity times area, over their extent) is summed on a grid; what stays behind the
    covered voxels when a ball is rolled around them from outside is the inside (:func:`voxels.seal`). Captures
    that enclose nothing, such as cloth or leaves, become a shell two voxels thick. ``Cubature.method`` says which.

    ``count``: integration points; ``contact_count``: contact points, taken from outermost splat centres and always
    including the support extremes; ``resolution``: voxels along the longest side, refined for thin objects and
    coarsened for sparse or very full ones; ``keep`` (n,): mask of the splats to use (floaters out).

    Raises :class:`InputError` when no splat is left or the object has no extent.
    """
    _check(count, contact_count, resolution)
    bodies = density.Ellipsoids(splats, frame, keep)
    low, high = density.box(bodies)
    size = _longest(low, high, f"{len(bodies.rows)} splats")
    coarse = np.concatenate([points for points, _ in density.body_samples(bodies, size / COARSEST)])
    coarse = coarse[:: max(len(coarse) // MOST_COARSE, 1)]
    spacing, finest = _spacing(coarse, low, high, resolution)

    def fill(h: float) -> _Filled:
        return _fill_splats(bodies, low, high, h, frame)

    filled = _tied(_within_budget(fill, spacing, finest))
    domain, shell = _domain(filled)
    centres = bodies.means[bodies.opacity >= 0.1] if (bodies.opacity >= 0.1).any() else bodies.means
    surface = _contacts(centres, shell, filled.raster, contact_count, frame.up, seed)
    return _cubature(domain, count, surface, filled.method)


def cubature_from_mesh(
    mesh: Mesh, frame: Frame, *, count: int = 1024, contact_count: int = 512, resolution: int = 64, seed: int = 0
) -> Cubature:
    """Integration and contact points of a mesh (simulator units: m, m^3).

    A closed mesh is filled by winding number, the union of its shells; an open one by rolling a ball around its
    surface (:func:`voxels.seal`), which closes gaps of a few voxels but no wide opening. Contact points are spread
    evenly over the outer surface, with more of them on edges sharper than 30 degrees. Arguments as in
    :func:`cubature_from_splats`.

    Raises :class:`InputError` when the mesh has no triangles or no extent.
    """
    _check(count, contact_count, resolution)
    if not len(mesh.faces):
        raise InputError(
            f"Mesh: {len(mesh.vertices)} vertices but no faces, so it has no surface and no volume. "
            "Load it as a point cloud, or export it with faces."
        )
    mesh = Mesh(frame.to_sim(mesh.vertices), mesh.faces)
    used = mesh.vertices[np.unique(mesh.faces)]
    low, high = used.min(axis=0), used.max(axis=0)
    _longest(low, high, f"{len(mesh.faces)} triangles")
    solid = inside.closed(mesh)
    points, _ = sample_surface(mesh, 20_000, seed=seed)
    spacing, finest = _spacing(points, low, high, resolution)

    def fill(h: float) -> _Filled:
        return _fill_mesh(mesh, solid, low, high, h, seed)

    filled = _within_budget(fill, spacing, finest)
    domain, shell = _domain(filled)
    points, _ = sample_surface(mesh, max(20_000, 8 * contact_count), seed=seed)
    surface = _contacts(np.concatenate([used, points]), shell, filled.raster, contact_count, frame.up, seed)
    return _cubature(domain, count, surface, filled.method)


def _check(count: int, contact_count: int, resolution: int) -> None:
    if count < 1 or contact_count < 1:
        raise InputError(f"Cubature: count is {count} and contact_count {contact_count}; both must be at least 1.")
    if not 8 <= resolution <= 512:
        raise InputError(f"Cubature: resolution is {resolution} voxels along the longest side; use 8 to 512.")


def _longest(low: np.ndarray, high: np.ndarray, what: str) -> float:
    size = float((high - low).max())
    if not size > 1e-9 * max(float(np.abs([low, high]).max()), 1e-30):
        raise InputError(
            f"The object has no volume: its {what} all lie in one point. Check the file's positions and scales, "
            "or that the crop did not cut the object away."
        )
    return size


def _spacing(points: np.ndarray, low: np.ndarray, high: np.ndarray, resolution: int) -> tuple[float, float]:
    """Voxel size, and the finest one allowed (four times finer than the first guess, or the grid's budget).

    The size is the longest side over ``resolution``, or a sixth of the thickness of thin bars and slabs.

    Thin is measured along principal axes. A direction too thin for that is the thickness of a sheet, or of a wire.
    """
    size = float((high - low).max())
    _, axes = np.linalg.eigh(np.cov((points - points.mean(axis=0)).T) if len(points) > 1 else np.eye(3))
    along = points @ axes
    reach = (0.5, 99.5) if len(points) > 200 else (0, 100)
    extents = np.sort(np.diff(np.percentile(along, reach, axis=0), axis=0)[0])
    room = float(np.prod(np.maximum(high - low, size / (4 * resolution))) / MOST_CELLS) ** (1 / 3)
    finest = max(size / (4 * resolution), room)
    thin = extents[0] if extents[0] >= THINNEST * finest else extents[1]
    return max(min(size / resolution, thin / THINNEST), finest), finest


def _within_budget(fill: Callable[[float], _Filled], spacing: float, finest: float) -> _Filled:
    """Fill at this spacing; finer (down to ``finest``) where the domain has few voxels, coarser where too many."""
    filled = fill(spacing)
    total = int(filled.cells.sum())
    if total < FEWEST_VOXELS and spacing > finest:
        filled = fill(max(spacing * (total / FEWEST_VOXELS) ** 0.4, finest))
        total = int(filled.cells.sum())
    while total > MOST_VOXELS:
        filled = fill(filled.raster.spacing * 1.03 * (total / MOST_VOXELS) ** (1 / 3))
        total = int(filled.cells.sum())
    return filled


def _fill_splats(
    bodies: density.Ellipsoids, low: np.ndarray, high: np.ndarray, spacing: float, frame: Frame
) -> _Filled:
    size = float((high - low).max())
    note = ""
    while True:
        raster = voxels.rasterise(density.body_samples(bodies, spacing), low, high, spacing)
        occupied = _covered(raster.weight)
        if voxels.hangs_together(occupied) or spacing * 1.35 > size / COARSEST:
            break
        spacing *= 1.35
        note = ", coarsened because the splats are sparse"
    height = raster.centres @ (np.asarray(frame.up) / np.linalg.norm(frame.up))
    ground = height < np.percentile(height[occupied], 0.5) - 0.25 * spacing
    return _finish(occupied, raster, "flood fill of the capture", note, ground=ground)


def _tied(filled: _Filled) -> _Filled:
    """Loose parts of a capture held together, and the method's words saying so."""
    cells, struts = voxels.tie_parts(filled.cells)
    if not struts:
        return filled
    words = f"{filled.method}; loose parts tied by {struts} strut{'s' if struts > 1 else ''}"
    return dataclasses.replace(filled, cells=cells, method=words)


def _covered(weight: np.ndarray) -> np.ndarray:
    """Voxels with enough coverage: 10 % of a face, or a tenth of the typical voxel where all coverage is slight."""
    filled = np.sort(weight[weight > 0])
    if not len(filled):
        return weight > 0
    typical = filled[np.searchsorted(np.cumsum(filled), 0.5 * filled.sum())]
    return weight >= min(0.1, 0.1 * typical)


def _fill_mesh(mesh: Mesh, solid: Mesh | None, low: np.ndarray, high: np.ndarray, spacing: float, seed: int) -> _Filled:
    corners = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() / 2
    dense = int(np.clip(16 * area / spacing**2, 5_000, density.MOST_SAMPLES))
    points, _ = sample_surface(mesh, dense, seed=seed, sharp_fraction=0.1)
    raster = voxels.rasterise([(points, np.ones(len(points)))], low, high, spacing)
    occupied = raster.weight > 0
    if solid is None:
        return _finish(occupied, raster, "flood fill of an open mesh", "")
    within = inside.inside_cells(solid, occupied.shape, raster.origin, spacing)
    # Parts thinner than a voxel hold no centre; they stay as the surface voxels that no inside voxel touches.
    missed = occupied & ~ndimage.binary_dilation(within, voxels.EVERY_NEIGHBOUR)
    cells, parts = voxels.large_parts(within | missed)
    cells = voxels.without_crumbs(cells)
    return _Filled(cells, raster, _words("filled by winding number of a closed mesh", cells, raster, parts, ""))


def _finish(
    occupied: np.ndarray, raster: voxels.Raster, how: str, note: str, ground: np.ndarray | None = None
) -> _Filled:
    """Seal, trim to the surface, give thin parts two voxels, drop debris, and say so."""
    occupied, _ = voxels.large_parts(occupied, share=0.002)
    sealed = voxels.seal(occupied, ground)
    hidden = int((sealed.filled & ~occupied).sum())
    core = ndimage.binary_erosion(sealed.filled)
    thin = occupied & ~ndimage.binary_dilation(core, voxels.EVERY_NEIGHBOUR)
    cells = voxels.trim(sealed.filled, occupied, raster) | voxels.thicken(thin, raster)
    cells, parts = voxels.large_parts(cells)
    cells = voxels.without_crumbs(cells)
    total = int(cells.sum())
    if hidden >= SEALED_SHARE * total:
        base = ", open base closed" if sealed.base_closed else ""
        note += f", closing radius {sealed.radius}, {min(hidden / total, 1):.0%} behind the surface{base}"
        return _Filled(cells, raster, _words(f"filled by {how}", cells, raster, parts, note))
    deep = int(ndimage.binary_erosion(cells, voxels.EVERY_NEIGHBOUR, iterations=2).sum()) / max(total, 1)
    way = (
        f"covered throughout ({deep:.0%} deeper than two voxels)"
        if deep > 0.05
        else f"thin shell (nothing enclosed by {how})"
    )
    return _Filled(cells, raster, _words(way, cells, raster, parts, note))


def _words(how: str, cells: np.ndarray, raster: voxels.Raster, parts: int, note: str) -> str:
    joined = "1 part" if parts == 1 else f"{parts} separate parts, all kept"
    return f"{how}: {int(cells.sum()):,} voxels of {_length(raster.spacing)}, {joined}{note}"


def _length(metres: float) -> str:
    return f"{metres * 1e3:.3g} mm" if metres < 1 else f"{metres:.3g} m"


def _domain(filled: _Filled) -> tuple[Domain, Bool[np.ndarray, "x y z"]]:
    """The domain, and the cells on and just outside its outer surface, where contact points lie."""
    if not filled.cells.any():
        raise InputError(
            "The object has no volume: no voxel is covered by its surface. Check the opacities and scales, "
            "or raise the resolution."
        )
    domain = Domain(voxels.cells_of(filled.cells), filled.raster.origin, filled.raster.spacing)
    shell = ndimage.binary_dilation(voxels.outer_shell(filled.cells), voxels.EVERY_NEIGHBOUR)
    return domain, shell


def _contacts(
    candidates: np.ndarray,
    shell: Bool[np.ndarray, "x y z"],
    raster: voxels.Raster,
    count: int,
    up: tuple[float, float, float],
    seed: int,
) -> Float64[np.ndarray, "s 3"]:
    """``count`` candidates spread over the outer surface, the support extremes first; voxel centres where too few."""
    index = np.floor((candidates - raster.origin) / raster.spacing).astype(np.int64)
    on_grid = ((index >= 0) & (index < shell.shape)).all(axis=1)
    candidates, index = candidates[on_grid], index[on_grid]
    candidates = candidates[shell[tuple(index.T)]]
    if len(candidates) < count:
        rim = raster.origin + (np.argwhere(shell) + 0.5) * raster.spacing
        candidates = np.concatenate([candidates, rim])
    extremes = support_extremes(candidates, up)
    rest = np.setdiff1d(np.arange(len(candidates)), extremes)
    rest = np.random.default_rng(seed).permutation(rest)[: max(20_000 - len(extremes), 0)]
    pool = candidates[np.concatenate([extremes, np.sort(rest)])]
    return pool[farthest_points(pool, max(count, len(extremes)), start=np.arange(len(extremes)))]


def _cubature(domain: Domain, count: int, surface: np.ndarray, method: str) -> Cubature:
    points, volumes = spread(domain, count)
    return Cubature(points, volumes, surface, domain, method)
