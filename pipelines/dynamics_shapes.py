"""The problems that engines of dynamics are timed on: one object at one resolution, held at one end, under gravity.

An object is brought to an exact number of vertices by splitting its longest edges, which leaves its shape as it is.
From the same surface come tetrahedra (every vertex of the mesh is a node), particles on a lattice (about as many as
vertices) and cubature points; the hold, the load and the material are shared, so that all engines solve one problem.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64

from pipelines.deflection import _hold as hold_one_end
from pipelines.fem import Solid, tetrahedral_solid
from splatanim.data import Cubature, Material, Mesh
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.regions import Region
from splatanim.errors import InputError, require

SAG = 0.1  # of the free end in the linear static answer, in object sizes: what sets the stiffness
TIP = 0.1  # share of the length, at the free end, whose mean displacement is compared
BASE = Material("rubbery", 1e5, 0.3, 1000.0, stretch_limit=4.0)
SHAPES = ("vehicle_plane.ply", "human_hand_closed.ply", "animal_spot.ply", "animal_koala_low_resolution.ply")


@dataclass(frozen=True)
class Problem:
    """What every engine is given (simulator units). ``seconds``: what preparing the reduced model took, by stage."""

    name: str
    mesh: Mesh
    cubature: Cubature
    region: Region
    acceleration: Float64[np.ndarray, " 3"]
    model: ReducedModel
    field: str
    seconds: dict[str, float]

    @property
    def material(self) -> Material:
        return self.model.material

    def tip(self, points: Float64[np.ndarray, "n 3"]) -> Bool[np.ndarray, " n"]:
        """Rest points within the last tenth of the length, away from the hold."""
        lo, hi = np.asarray(self.region.lo), np.asarray(self.region.hi)
        axis = int(np.flatnonzero(np.isfinite(lo) | np.isfinite(hi))[0])
        low, high = self.mesh.vertices[:, axis].min(), self.mesh.vertices[:, axis].max()
        if np.isfinite(hi[axis]):
            return points[:, axis] >= high - TIP * (high - low)
        return points[:, axis] <= low + TIP * (high - low)


def make_problem(file: Path, vertices: int, handles: int = 16, seed: int = 0) -> Problem:
    """Read a closed mesh, refine it to so many vertices, bind the ``auto`` field and set the stiffness by the sag.

    Raises :class:`InputError` where the mesh is not closed or already has more vertices.
    """
    from threadpoolctl import threadpool_limits

    from pipelines.objects import mesh_object, read_object
    from splatanim.binding import Handles
    from splatanim.dynamics.reduced import reduce
    from splatanim.field.subspace import bind

    content = read_object(file).content
    if not isinstance(content, Mesh):
        raise InputError(f"{file}: holds no faces; the benchmark of dynamics needs a closed mesh.")
    fine = refined(content, vertices)
    clock = time.perf_counter
    start = clock()
    subject = mesh_object(fine, str(file), seed=seed)
    mesh = Mesh(subject.frame.to_sim(fine.vertices), fine.faces)
    filled = clock()
    with threadpool_limits(1):  # as everywhere in timings: a figure must not hang on what else the machine does
        field, _ = bind("auto", subject.cubature.domain, handles, seed=seed)
    bound = clock()
    region, acceleration = hold_one_end(subject.cubature)
    held = Handles(field, (region,))
    model = reduce(subject.cubature, held, BASE)
    seconds = {"cubature": filled - start, "field": bound - filled, "model": clock() - bound}
    soft = Problem(file.stem, mesh, subject.cubature, region, acceleration, model, field.kind, seconds)
    material = dataclasses.replace(BASE, young=BASE.young * _linear_sag(soft) / SAG)
    return dataclasses.replace(soft, model=dataclasses.replace(model, material=material))  # densities are equal


def _linear_sag(problem: Problem) -> float:
    """How far the free end sags in the small-strain answer of the reduced model, in object sizes."""
    from splatanim.dynamics.dilation import AveragedElasticity

    model = problem.model
    force = np.outer(problem.acceleration, model.masses @ model.shape).ravel()
    y = np.linalg.solve(AveragedElasticity(model).hessian(np.zeros(model.dof)), force)
    end = model.masses * problem.tip(model.rest)
    return float(np.linalg.norm(end @ model.shape @ y.reshape(3, -1).T / end.sum())) / model.size


def refined(mesh: Mesh, vertices: int) -> Mesh:
    """The same surface with exactly so many vertices: longest edges are halved, one new vertex a split.

    Each round splits, of the edges that are the longest of both their faces, the longer half. Raises
    :class:`InputError` where the mesh has more vertices than asked for.
    """
    points, faces = mesh.vertices, np.asarray(mesh.faces, np.int64)
    if len(points) > vertices:
        raise InputError(f"Mesh: {len(points)} vertices, more than the {vertices} asked for. Ask for more.")
    while len(points) < vertices:
        ends = np.sort(faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
        edges, of_face = np.unique(ends, axis=0, return_inverse=True)
        of_face = of_face.reshape(-1, 3)
        # Ties are broken by the edge's number, so that neighbouring faces agree and some edge can always be split.
        length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
        rank = np.empty(len(edges), np.int64)
        rank[np.argsort(length, kind="stable")] = np.arange(len(edges))
        side = rank[of_face].argmax(axis=1)
        longest = of_face[np.arange(len(faces)), side]
        agreed = np.flatnonzero(
            np.bincount(longest, minlength=len(edges)) == np.bincount(of_face.ravel(), minlength=len(edges))
        )
        agreed = agreed[np.argsort(-rank[agreed])][: min(max(len(agreed) // 2, 1), vertices - len(points))]
        new = np.full(len(edges), -1, np.int64)
        new[agreed] = len(points) + np.arange(len(agreed))
        points = np.concatenate([points, points[edges[agreed]].mean(axis=1)])
        middle = new[longest]
        cut = middle >= 0
        a, b, c = (faces[cut, (side[cut] + k) % 3] for k in range(3))
        halves = [np.stack([a, middle[cut], c], axis=1), np.stack([middle[cut], b, c], axis=1)]
        faces = np.concatenate([faces[~cut], *halves])
    return Mesh(points, faces)


def tetrahedra(mesh: Mesh, kept: Path | None = None) -> Solid:
    """Tetrahedra whose boundary nodes are the mesh's vertices, in their order, by TetGen; ``kept`` caches them.

    Raises :class:`InputError` where TetGen is missing or the surface is open or meets itself.
    """
    if kept is not None and kept.is_file():
        with np.load(kept) as data:
            if np.array_equal(data["vertices"], mesh.vertices) and np.array_equal(data["faces"], mesh.faces):
                return tetrahedral_solid(data["nodes"], data["elements"])
    tetgen = require("tetgen", extra="fem")
    builder = tetgen.TetGen(np.ascontiguousarray(mesh.vertices), np.ascontiguousarray(mesh.faces, dtype=np.int32))
    try:
        found = builder.tetrahedralize(order=1, mindihedral=5.0, minratio=1.8, nobisect=True, verbose=0)
    except RuntimeError as error:
        raise InputError(
            f"FEM: TetGen could not fill the mesh ({error}). It needs a closed surface that does not meet itself."
        ) from error
    nodes, elements = np.asarray(found[0], np.float64), np.asarray(found[1], np.int64)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, nodes=nodes, elements=elements, vertices=mesh.vertices, faces=mesh.faces)
    return tetrahedral_solid(nodes, elements)


def particles(mesh: Mesh, count: int) -> tuple[Float64[np.ndarray, "n 3"], float, float]:
    """About ``count`` lattice points inside a closed mesh, its volume [m^3], and the lattice's spacing [m].

    Raises :class:`InputError` for an open mesh.
    """
    import trimesh

    from splatanim.sampling import inside

    solid = inside.closed(mesh)
    if solid is None:
        raise InputError("MPM: the mesh is not closed, so particles cannot be told inside from outside.")
    volume = float(trimesh.Trimesh(solid.vertices, solid.faces, process=False).volume)
    low, extent = mesh.vertices.min(axis=0), np.ptp(mesh.vertices, axis=0)
    spacing = (volume / count) ** (1 / 3)
    for _ in range(6):
        shape = tuple(int(n) for n in np.ceil(extent / spacing) + 1)
        cells = np.argwhere(inside.inside_cells(solid, shape, low - 0.5 * spacing, spacing))
        if abs(len(cells) / count - 1.0) < 0.01:
            break
        spacing *= (len(cells) / count) ** (1 / 3)
    return low + cells * spacing, volume, spacing
