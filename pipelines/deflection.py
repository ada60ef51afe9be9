"""Static deflection under gravity: reduced models against the full-space finite elements of :mod:`pipelines.fem`.

An object lies along its longest axis, is held over a share of one end and sags under gravity across it. The truth are
quadratic hexahedra on the same voxels, held at the nodes where the reduced model's prescribed displacement is exact.
The stiffness is set so that the linear full-space answer sags by a tenth of the object: large enough to be nonlinear,
and equally demanding for a club and a whale.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from pipelines.fem import Equilibrium, solve_static, voxel_solid
from splatanim.data import Cubature, Domain, Material
from splatanim.dynamics.regions import Region
from splatanim.errors import InputError
from splatanim.field import SkinningField
from splatanim.formats.atomic import atomic_path

GRAVITY = 9.81
HELD = 0.12  # share of the length that is held
FADE = 0.04  # of the length, over which the hold of a reduced model fades out: finite elements' holds end at once
POINTS = 64  # cubature points a handle, as of ``animate``: with fewer, what lies between them bends for nothing
SAG = 0.1  # wanted deflection of the linear full-space solution, in lengths
BASE = Material("reference", 1e5, 0.3, 1000.0, stretch_limit=4.0)


@dataclass(frozen=True)
class Reference:
    """The full-space answer for a held object: displacements at the centres of its voxels, and the material."""

    cubature: Cubature
    region: Region
    acceleration: Float64[np.ndarray, " 3"]
    material: Material
    moved: Float64[np.ndarray, "v 3"]
    seconds: float

    @property
    def tip(self) -> int:
        """The voxel that moves most."""
        return int(np.linalg.norm(self.moved, axis=1).argmax())


@dataclass(frozen=True)
class Deflection:
    """A reduced answer against the reference: ``tip`` is the ratio of the displacements along the reference's at the
    voxel that moves most (1 is right, less is too stiff), ``l2`` the relative error over the whole object."""

    tip: float
    l2: float
    converged: bool
    seconds: float


def coarsened(domain: Domain, voxels: int = 6_000) -> Cubature:
    """The largest face-connected part of an object on a coarser grid of about ``voxels``, as a cubature.

    A voxel is kept where at least half of it is object. Full-space solves grow faster than the voxels' number.
    """
    from scipy import ndimage

    from splatanim.sampling.cubature import spread

    spacing = domain.spacing * max((len(domain.cells) / voxels) ** (1 / 3), 1.0)
    cells = domain.cells - domain.cells.min(axis=0)
    grid = np.zeros(cells.max(axis=0) + 2, bool)  # one empty layer, where beyond the far end is looked up
    grid[tuple(cells.T)] = True
    steps = [np.arange(int(np.ceil((n - 1) * domain.spacing / spacing))) for n in grid.shape]
    coarse = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1)
    share = np.zeros(coarse.shape[:3])
    for part in np.ndindex(2, 2, 2):
        at = np.floor((coarse + 0.25 + 0.5 * np.array(part)) * (spacing / domain.spacing)).astype(np.int64)
        share += grid[tuple(np.moveaxis(np.minimum(at, np.array(grid.shape) - 1), -1, 0))] / 8
    labels, _ = ndimage.label(share >= 0.5)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    origin = domain.origin + domain.cells.min(axis=0) * domain.spacing
    kept = Domain(np.argwhere(labels == sizes.argmax()), origin, spacing)
    points, volumes = spread(kept, 1024)
    return Cubature(points, volumes, points, kept, "coarsened")


def reference(cubature: Cubature, *, model: str = "neohookean") -> Reference:
    """Solve the held object in the full space. Raises :class:`InputError` where Newton does not converge."""
    start = time.perf_counter()
    solid = voxel_solid(cubature.domain, order=2)
    region, acceleration = _hold(cubature)
    pinned = region.contains(solid.nodes)
    linear = dataclasses.replace(BASE, model="linear")
    first = solve_static(solid, linear, pinned, acceleration, tolerance=1e-3)
    size = float(np.ptp(solid.nodes, axis=0).max())
    sag = float(np.linalg.norm(first.displacements, axis=1).max())
    material = dataclasses.replace(BASE, young=BASE.young * sag / (SAG * size), model=model)
    found = solve_static(solid, material, pinned, acceleration, tolerance=1e-3)
    _require_converged(found)
    middle = len(solid.shapes) // 2  # of the 27 Gauss points: the voxel's centre
    moved = np.einsum("k,ekr->er", solid.shapes[middle], found.displacements[solid.elements])
    return Reference(cubature, region, acceleration, material, moved, time.perf_counter() - start)


def kept_reference(cubature: Cubature, file: Path) -> Reference:
    """:func:`reference`, kept in an .npz between runs; one that belongs to other voxels or settings is solved anew."""
    region, acceleration = _hold(cubature)
    key = np.concatenate(
        [cubature.domain.cells.ravel(), [cubature.domain.spacing, HELD, SAG, BASE.young, BASE.poisson]]
    )
    if file.is_file():
        with np.load(file) as kept:
            if np.array_equal(kept["key"], key):
                material = dataclasses.replace(BASE, young=float(kept["young"]), model=str(kept["model"]))
                seconds = float(kept["seconds"])
                return Reference(cubature, region, acceleration, material, kept["moved"], seconds)
    found = reference(cubature)
    with atomic_path(file) as temporary:
        young, model = np.array(found.material.young), np.array(found.material.model)
        seconds_taken = np.array(found.seconds)
        np.savez_compressed(temporary, key=key, moved=found.moved, young=young, model=model, seconds=seconds_taken)
    return found


def deflect(truth: Reference, field: SkinningField) -> Deflection:
    """The same problem in the subspace of a field, on ``POINTS`` cubature points a handle, dilatation averaged."""
    from splatanim.binding import Handles, shape_functions
    from splatanim.dynamics.dilation import AveragedElasticity
    from splatanim.dynamics.newton import minimise
    from splatanim.dynamics.reduced import reduce
    from splatanim.dynamics.terms import Step, gravity
    from splatanim.sampling.cubature import spread

    start = time.perf_counter()
    handles = Handles(field, (truth.region,))
    points, volumes = spread(truth.cubature.domain, POINTS * field.handles)
    model = reduce(dataclasses.replace(truth.cubature, points=points, volumes=volumes), handles, truth.material)
    rest, held = np.zeros(model.dof), model.held_coordinates(0.0)
    elasticity, weight = AveragedElasticity(model), gravity(model, truth.acceleration)
    step = Step(0.0, 1.0, rest, rest, held, held, held)
    elasticity.begin_step(step)
    weight.begin_step(step)
    unit = 1.0 / (model.mass**0.5 * GRAVITY)  # the load has norm about sqrt(mass) g in these coordinates
    y, report = minimise([elasticity, weight], rest, tolerance=1e-6, unit=unit, max_iterations=100)
    centres = truth.cubature.domain.centres
    shape, _ = shape_functions(centres, *handles.evaluate(centres))
    z = model.all_handles(y, held)  # (h, 3, 4)
    moved = shape @ z.transpose(0, 2, 1).reshape(-1, 3)
    way = truth.moved[truth.tip]
    return Deflection(
        float(moved[truth.tip] @ way / (way @ way)),
        float(np.linalg.norm(moved - truth.moved) / np.linalg.norm(truth.moved)),
        report.converged,
        time.perf_counter() - start,
    )


def _hold(cubature: Cubature) -> tuple[Region, np.ndarray]:
    """The held end, the heavier one of the longest axis, and gravity along the thinner axis across it.

    The hold ends at a voxel's face, so that finite elements and reduced models hold the same material.
    """
    centres, spacing = cubature.domain.centres, cubature.domain.spacing
    low, high = centres.min(axis=0) - 0.5 * spacing, centres.max(axis=0) + 0.5 * spacing
    extent = high - low
    along = int(extent.argmax())
    across = int(np.where(np.arange(3) == along, np.inf, extent).argmin())
    lo, hi = np.full(3, -np.inf), np.full(3, np.inf)
    depth = (max(1, round(HELD * extent[along] / spacing)) + 1e-6) * spacing
    if np.median(centres[:, along]) <= 0.5 * (low[along] + high[along]):
        hi[along] = low[along] + depth
    else:
        lo[along] = high[along] - depth
    acceleration = np.zeros(3)
    acceleration[across] = -GRAVITY
    return Region(tuple(lo.tolist()), tuple(hi.tolist()), FADE * float(extent[along])), acceleration


def _require_converged(found: Equilibrium) -> None:
    if not found.converged:
        raise InputError(
            f"FEM: no equilibrium after {found.iterations} iterations (residual {found.residual:.1e} of the load). "
            "The object may hang together by edges alone, or be far too soft."
        )
