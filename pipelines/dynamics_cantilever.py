"""A bar held at one end: the reduced model's sag and first natural frequency against full FEM and beam theory."""

from __future__ import annotations

import numpy as np

from pipelines.fem import _System, solve_static, voxel_solid
from splatanim.data import Cubature, Domain, Material
from splatanim.dynamics.regions import Region

CELLS = (60, 6, 6)  # 1 x 0.1 x 0.1 m; the first layers are held
HELD = 6
LOAD = 1e-3  # m/s^2: small enough for the linear answer
SOFT = Material("bar", 1e6, 0.3, 1000.0, stretch_limit=4.0)
WIDTHS = (0.2, 0.05)  # m over which a reduced model's hold fades out: of ``animate``, and a sharp one


def cantilever(handles: int = 16) -> dict[str, object]:
    """Tip deflection and first frequency [Hz] of each model, relative to full-space hexahedra of the same bar."""
    spacing = 1.0 / CELLS[0]
    cells = np.stack(np.meshgrid(*(np.arange(n) for n in CELLS), indexing="ij"), axis=-1).reshape(-1, 3)
    domain = Domain(cells, np.zeros(3), spacing)
    tip, frequency = _full(domain)
    length, height = (CELLS[0] - HELD) * spacing, CELLS[1] * spacing
    rigidity = SOFT.young * height**4 / 12
    line = SOFT.density * height**2
    beam = (LOAD * line * length**4 / (8 * rigidity), 1.8751**2 / (2 * np.pi) * (rigidity / (line * length**4)) ** 0.5)
    rows = {"Euler-Bernoulli": beam}
    for kind in ("auto", "eigenmodes"):
        for width in WIDTHS:
            rows[f"reduced, {kind}, {handles} handles, hold fading over {width:g} m"] = _reduced(
                domain, kind, handles, width
            )
    return {
        "what": f"A bar of {length:.2g} x {height:.2g} x {height:.2g} m (free part), E {SOFT.young:g} Pa, nu "
        f"{SOFT.poisson:g}, linear load; FEM: {len(cells)} trilinear hexahedra, tip {tip / LOAD:.4g} m per m/s^2, "
        f"{frequency:.4g} Hz.",
        "rows": {name: {"tip": float(t / tip), "frequency": float(f / frequency)} for name, (t, f) in rows.items()},
    }


def _region(domain: Domain, width: float) -> Region:
    inf = float("inf")
    return Region((-inf, -inf, -inf), ((HELD + 1e-6) * domain.spacing, inf, inf), width)


def _full(domain: Domain) -> tuple[float, float]:
    """Tip deflection and first frequency of the full-space model, its masses lumped."""
    from scipy import sparse
    from scipy.sparse.linalg import eigsh

    solid = voxel_solid(domain)
    held = _region(domain, 1.0).contains(solid.nodes)
    found = solve_static(solid, SOFT, held, np.array([0.0, 0.0, -LOAD]), tolerance=1e-6)
    end = np.isclose(solid.nodes[:, 0], CELLS[0] * domain.spacing)
    system = _System(solid, SOFT, held)
    masses = system.load(np.array([1.0, 1.0, 1.0]))[~held].ravel()
    stiffness = system.stiffness(np.zeros_like(solid.nodes)).tocsc()
    level = eigsh(stiffness, 1, sparse.diags(masses).tocsc(), sigma=0.0, return_eigenvectors=False)[0]
    return -float(found.displacements[end, 2].mean()), float(np.sqrt(level) / (2 * np.pi))


def _reduced(domain: Domain, kind: str, handles: int, width: float) -> tuple[float, float]:
    """The same two of the reduced model at rest: its mass matrix is the identity."""
    from splatanim.binding import Handles, shape_functions
    from splatanim.dynamics.dilation import AveragedElasticity
    from splatanim.dynamics.reduced import reduce
    from splatanim.field.subspace import bind
    from splatanim.sampling.cubature import spread

    points, volumes = spread(domain, 1024)
    field, _ = bind(kind, domain, handles)
    model = reduce(Cubature(points, volumes, points, domain, "bar"), Handles(field, (_region(domain, width),)), SOFT)
    stiffness = AveragedElasticity(model).hessian(np.zeros(model.dof))
    force = np.zeros((3, model.dof // 3))
    force[2] = -LOAD * model.masses @ model.shape
    y = np.linalg.solve(stiffness, force.ravel())
    centres = domain.centres
    last = centres[centres[:, 0] > (CELLS[0] - 1) * domain.spacing]
    shape, _ = shape_functions(last, *model.handles.evaluate(last))
    z = model.all_handles(y, model.held_coordinates(0.0))
    tip = -float((shape @ z.transpose(0, 2, 1).reshape(-1, 3))[:, 2].mean())
    return tip, float(np.sqrt(np.linalg.eigvalsh(stiffness)[0]) / (2 * np.pi))
