"""Full-space finite elements: the truth that reduced models are held against, far too slow for animation.

Hexahedra on an object's voxels or linear tetrahedra, the same hyperelastic laws as the reduced solver, projected Newton
with a line search. Trilinear hexahedra and linear tetrahedra are too stiff in bending where a part is few elements
thick; serendipity hexahedra (20 nodes, quadratic) are not, and serve as the reference. The linear systems are solved
by conjugate gradients with a two-level preconditioner: Jacobi on the nodes, and smoothed rigid motions of blocks of
nodes (smoothed aggregation; Vanek, Mandel & Brezina 1996).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int

from splatanim.data import Domain, Material, Mesh
from splatanim.errors import InputError, require

_CHUNK = 4096  # elements of eight integration points whose tangents are held at a time


@dataclass(frozen=True)
class Solid:
    """A mesh of e elements with k nodes and g integration points each; the first axis is 1 where all are alike.

    ``shapes`` (g, k) and ``gradients`` (e | 1, g, k, 3) are the shape functions and their rest gradients [1/m] at the
    integration points, ``volumes`` (e | 1, g) what each stands for [m^3].
    """

    nodes: Float64[np.ndarray, "n 3"]
    elements: Int[np.ndarray, "e k"]
    shapes: Float64[np.ndarray, "g k"]
    gradients: Float64[np.ndarray, "e1 g k 3"]
    volumes: Float64[np.ndarray, "e1 g"]

    @property
    def weights(self) -> Float64[np.ndarray, " q"]:
        """The volume of every integration point of every element."""
        return np.broadcast_to(self.volumes, (len(self.elements), self.volumes.shape[1])).ravel()


@dataclass(frozen=True)
class Equilibrium:
    """Displacements (n, 3) [m] of a static solve and how it went; ``residual`` is relative to the load."""

    displacements: Float64[np.ndarray, "n 3"]
    converged: bool
    iterations: int
    residual: float


def voxel_solid(domain: Domain, order: int = 1) -> Solid:
    """One hexahedron a voxel: trilinear with 8 Gauss points, or (``order`` 2) serendipity with 20 nodes and 27.

    Voxels should hang together by faces: edges alone make hinges.
    """
    lattice = np.array([(i, j, k) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)])
    local = lattice[np.abs(lattice).sum(axis=1) >= (3 if order == 1 else 2)]  # corners, then also middles of edges
    line, share = np.polynomial.legendre.leggauss(order + 1)
    gauss = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", share, share, share).ravel() / 8.0
    every = (2 * domain.cells[:, None, :] + 1 + local).reshape(-1, 3)
    unique, index = np.unique(every, axis=0, return_inverse=True)
    shapes, slopes = (_trilinear if order == 1 else _serendipity)(local, gauss)
    return Solid(
        domain.origin + unique * (0.5 * domain.spacing),
        index.reshape(-1, len(local)),
        shapes,
        (slopes * (2.0 / domain.spacing))[None],
        (weights * domain.spacing**3)[None],
    )


def _trilinear(local: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape functions (g, 8) and their slopes (g, 8, 3) in the cube [-1, 1]^3: prod (1 + a x) / 8."""
    one = 1.0 + local * at[:, None, :]
    slopes = [local[:, a] * np.prod(np.delete(one, a, axis=2), axis=2) / 8.0 for a in range(3)]
    return one.prod(axis=2) / 8.0, np.stack(slopes, axis=2)


def _serendipity(local: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of the 20-node brick: corners prod (1 + a x) (sum a x - 2) / 8, edges (1 - x^2)(1 + b y)(1 + c z)/4."""
    shapes, slopes = np.empty((len(at), 20)), np.empty((len(at), 20, 3))
    for k, node in enumerate(local):
        one = np.where(node == 0, 1.0 - at**2, 1.0 + node * at)
        d_one = np.where(node == 0, -2.0 * at, node)
        others = np.stack([np.prod(np.delete(one, a, axis=1), axis=1) for a in range(3)], axis=1)
        if (node == 0).any():
            shapes[:, k], slopes[:, k] = one.prod(axis=1) / 4.0, d_one * others / 4.0
            continue
        inner = at @ node - 2.0
        shapes[:, k] = one.prod(axis=1) * inner / 8.0
        slopes[:, k] = (d_one * others * inner[:, None] + one.prod(axis=1)[:, None] * node) / 8.0
    return shapes, slopes


def tetrahedral_solid(nodes: Float64[np.ndarray, "n 3"], elements: Int[np.ndarray, "e 4"]) -> Solid:
    """Linear tetrahedra, whichever way round they are numbered. Raises :class:`InputError` for flat ones."""
    edges = nodes[elements[:, 1:]] - nodes[elements[:, :1]]  # (e, 3, 3), rows are edges
    volumes = np.abs(np.linalg.det(edges)) / 6.0
    if not volumes.min() > 1e-12 * volumes.mean():
        raise InputError(
            f"FEM: {int((volumes <= 1e-12 * volumes.mean()).sum())} tetrahedra are flat. Remesh the object."
        )
    slopes = np.linalg.inv(edges).transpose(0, 2, 1)  # rows are grad N_1..N_3
    gradients = np.concatenate([-slopes.sum(axis=1, keepdims=True), slopes], axis=1)
    return Solid(nodes, elements, np.full((1, 4), 0.25), gradients[:, None], volumes[:, None])


def tetrahedralise(mesh: Mesh, spacing: float) -> Solid:
    """Tetrahedra of about ``spacing`` [m] inside a closed mesh, by TetGen; :class:`InputError` where it fails."""
    tetgen = require("tetgen", extra="fem")
    builder = tetgen.TetGen(np.ascontiguousarray(mesh.vertices), np.ascontiguousarray(mesh.faces, dtype=np.int32))
    try:
        result = builder.tetrahedralize(order=1, mindihedral=10.0, minratio=1.5, maxvolume=spacing**3 / 6, verbose=0)
    except RuntimeError as error:
        raise InputError(
            f"FEM: TetGen could not fill the mesh ({error}). It needs a closed surface without self-intersections; "
            "the voxel solid has no such needs."
        ) from error
    return tetrahedral_solid(np.asarray(result[0], np.float64), np.asarray(result[1], np.int64))


def solve_static(
    solid: Solid,
    material: Material,
    pinned: Bool[np.ndarray, " n"],
    acceleration: Float64[np.ndarray, " 3"],
    *,
    prescribed: Float64[np.ndarray, "n 3"] | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 40,
) -> Equilibrium:
    """Equilibrium under a constant acceleration [m/s^2] with some nodes held (at ``prescribed``, or where they are).

    Converged means that the free nodes' leftover force is ``tolerance`` of the load (or, without a load, of the first
    leftover force). Raises :class:`InputError` where nothing or everything is held.
    """
    if not pinned.any() or pinned.all():
        raise InputError(f"FEM: {int(pinned.sum())} of {len(pinned)} nodes are held; hold some and leave some free.")
    system = _System(solid, material, pinned)
    load = system.load(acceleration)
    u = np.zeros_like(solid.nodes) if prescribed is None else np.where(pinned[:, None], prescribed, 0.0)
    force = system.forces(u) - load
    scale = float(np.linalg.norm(load[~pinned])) or float(np.linalg.norm(force[~pinned])) or 1.0
    precondition = None
    for iteration in range(max_iterations + 1):
        residual = float(np.linalg.norm(force[~pinned])) / scale
        if residual <= tolerance or iteration == max_iterations:
            return Equilibrium(u, residual <= tolerance, iteration, residual)
        stiffness = system.stiffness(u)
        precondition = precondition or _TwoLevel(stiffness, solid.nodes[~pinned])
        step = _solve(stiffness, -force[~pinned].ravel(), precondition, 0.1 * tolerance / max(residual, tolerance))
        moved = np.zeros_like(u)
        moved[~pinned] = step.reshape(-1, 3)
        length = _line_search(system, u, moved, load, float(np.sum(force * moved)))
        if length == 0.0:
            return Equilibrium(u, False, iteration, residual)
        u = u + length * moved
        force = system.forces(u) - load
    raise AssertionError("unreachable")


def _line_search(system: _System, u: np.ndarray, step: np.ndarray, load: np.ndarray, slope: float) -> float:
    start = system.energy(u) - float(np.sum(load * u))
    length = 1.0
    for _ in range(30):
        ahead = u + length * step
        if system.energy(ahead) - float(np.sum(load * ahead)) <= start + 1e-4 * length * slope + 1e-12 * abs(start):
            return length
        length *= 0.5
    return 0.0


class _System:
    """Energy, forces and stiffness of a solid; the stiffness is that of the free nodes alone."""

    def __init__(self, solid: Solid, material: Material, pinned: np.ndarray) -> None:
        from splatanim.dynamics.materials import MODELS

        self._solid, self._material, self._model = solid, material, MODELS[material.model]
        self._free = np.full(len(pinned), -1, np.int64)
        self._free[~pinned] = np.arange(int((~pinned).sum()))
        self._count = int((~pinned).sum())
        nodes = self._free[solid.elements]
        row, column = np.broadcast_arrays(nodes[:, :, None], nodes[:, None, :])
        key = np.where((row < 0) | (column < 0), -1, row * self._count + column)
        unique, slot = np.unique(key, return_inverse=True)
        self._drop = int(unique[0] == -1)  # the first slot collects what belongs to held nodes
        self._slot = slot.reshape(key.shape)
        used = unique[self._drop :]
        self._columns = used % self._count
        self._rows = np.searchsorted(used // self._count, np.arange(self._count + 1))

    def load(self, acceleration: np.ndarray) -> np.ndarray:
        share = np.broadcast_to(self._solid.volumes @ self._solid.shapes, self._solid.elements.shape)
        mass = np.bincount(self._solid.elements.ravel(), share.ravel(), len(self._solid.nodes))
        return self._material.density * mass[:, None] * np.asarray(acceleration, np.float64)

    def energy(self, u: np.ndarray) -> float:
        from splatanim.dynamics.materials import energies

        f = self._deformation(u, slice(None)).reshape(-1, 3, 3)
        mu, lam = (np.full(len(f), value) for value in self._material.lame)
        return float(energies(self._model, f, self._solid.weights, mu, lam, self._material.stretch_limit))

    def forces(self, u: np.ndarray) -> np.ndarray:
        """Elastic forces (n, 3), the gradient of the energy."""
        nodal = np.concatenate([pulled for _, pulled, _ in self._chunks(u, tangents=False)])
        flat = self._solid.elements.ravel()
        n = len(self._solid.nodes)
        return np.stack([np.bincount(flat, nodal[:, :, r].ravel(), n) for r in range(3)], axis=1)

    def stiffness(self, u: np.ndarray):
        """The positive semi-definite Hessian of the free nodes, as a BSR matrix of 3x3 blocks."""
        from scipy import sparse

        data = np.zeros((len(self._columns) + self._drop, 9))
        for rows, _, pairs in self._chunks(u, tangents=True):  # pairs (e, 9, k, k)
            slot = self._slot[rows].ravel()
            for pair in range(9):
                data[:, pair] += np.bincount(slot, pairs[:, pair].ravel(), len(data))
        blocks = data[self._drop :].reshape(-1, 3, 3)
        return sparse.bsr_matrix((blocks, self._columns, self._rows), shape=(3 * self._count,) * 2)

    def _deformation(self, u: np.ndarray, rows: slice) -> np.ndarray:
        local = u[self._solid.elements[rows]].transpose(0, 2, 1)[:, None]  # (e, 1, 3, k)
        return np.ascontiguousarray(local @ self._of(rows, self._solid.gradients)) + np.eye(3)

    def _of(self, rows: slice, table: np.ndarray) -> np.ndarray:
        return table if len(table) == 1 else table[rows]

    def _chunks(self, u: np.ndarray, tangents: bool):
        """(rows, forces on the elements' nodes (e, k, 3), stiffness blocks (e, 9, k, k) or None) piece by piece."""
        from splatanim.dynamics.materials import stresses_and_tangents

        size = max(1, _CHUNK * 64 // (self._solid.shapes.size))
        for start in range(0, len(self._solid.elements), size):
            rows = slice(start, min(start + size, len(self._solid.elements)))
            f = self._deformation(u, rows)
            e, g = f.shape[:2]
            mu, lam = (np.full(e * g, value) for value in self._material.lame)
            volumes = np.broadcast_to(self._of(rows, self._solid.volumes), (e, g)).ravel()
            limit = self._material.stretch_limit
            stress, tangent = stresses_and_tangents(
                self._model, f.reshape(-1, 3, 3), volumes, mu, lam, limit, self._model != 2
            )
            slopes = self._of(rows, self._solid.gradients)  # (e | 1, g, k, 3)
            pulled = (slopes @ stress.reshape(e, g, 3, 3).transpose(0, 1, 3, 2)).sum(axis=1)
            blocks = None
            if tangents:  # K_(a r)(b s) = sum_gcd G_ac C_rcsd G_bd, the sum over g and c as one product
                c = tangent.reshape(e, g, 3, 3, 3, 3).transpose(0, 2, 4, 1, 3, 5)  # (e, r, s, g, c, d)
                k = slopes.shape[2]
                right = (c @ slopes.transpose(0, 1, 3, 2)[:, None, None]).reshape(e, 9, 3 * g, k)
                left = slopes.transpose(0, 2, 1, 3).reshape(len(slopes), 1, k, 3 * g)
                blocks = left @ right
            yield rows, pulled, blocks


class _TwoLevel:
    """A symmetric two-level cycle as a preconditioner: Jacobi, smoothed rigid motions of blocks, Jacobi."""

    def __init__(self, stiffness, nodes: np.ndarray) -> None:
        from scipy import sparse
        from scipy.sparse.linalg import splu

        diagonal = stiffness.diagonal()
        self._inverse = 1.0 / np.where(diagonal > 0, diagonal, 1.0)
        self._weight = 1.3 / _largest(stiffness, self._inverse)
        rigid = _rigid_motions(nodes)
        smoothed = rigid - self._weight * (sparse.diags(self._inverse) @ (stiffness.tocsr() @ rigid))
        coarse = (smoothed.T @ (stiffness.tocsr() @ smoothed)).tocsc()
        shift = sparse.diags(1e-10 * coarse.diagonal() + 1e-12 * coarse.diagonal().max())
        self._coarse = splu((coarse + shift).tocsc())
        self._prolong, self._restrict = smoothed.tocsr(), smoothed.T.tocsr()

    def apply(self, stiffness, residual: np.ndarray) -> np.ndarray:
        x = self._weight * self._inverse * residual
        left = residual - stiffness @ x
        x += self._prolong @ self._coarse.solve(self._restrict @ left)
        left = residual - stiffness @ x
        return x + self._weight * self._inverse * left


def _largest(stiffness, inverse: np.ndarray) -> float:
    """About the largest eigenvalue of D^-1 K, by the power method, with some room."""
    x = np.random.default_rng(0).normal(size=len(inverse))
    for _ in range(12):
        x = inverse * (stiffness @ x)
        size = float(np.linalg.norm(x))
        x /= size
    return 1.1 * size


def _rigid_motions(nodes: np.ndarray):
    """Six rigid motions for each block of nodes, (3 n, 6 blocks) sparse; blocks are cubes of some 200 nodes."""
    from scipy import sparse

    extent = np.ptp(nodes, axis=0) + 1e-12
    spacing = float(np.partition(np.linalg.norm(np.diff(nodes[:2000], axis=0), axis=1), 1)[1])
    side = 6.0 * spacing if spacing > 0 else float(extent.max()) / 10
    cube = np.floor((nodes - nodes.min(axis=0)) / side).astype(np.int64)
    _, block = np.unique(cube, axis=0, return_inverse=True)
    block = block.ravel()
    blocks = int(block.max()) + 1
    size = np.bincount(block)
    centre = np.stack([np.bincount(block, nodes[:, a]) for a in range(3)], axis=1) / size[:, None]
    x, y, z = ((nodes - centre[block]) / side).T
    zero, one = np.zeros(len(nodes)), np.ones(len(nodes))
    motions = [[one, zero, zero, zero, z, -y], [zero, one, zero, -z, zero, x], [zero, zero, one, y, -x, zero]]
    values = np.array(motions).transpose(2, 0, 1)  # (n, 3, 6)
    rows = np.broadcast_to(3 * np.arange(len(nodes))[:, None, None] + np.arange(3)[None, :, None], values.shape)
    columns = np.broadcast_to(6 * block[:, None, None] + np.arange(6)[None, None, :], values.shape)
    return sparse.csr_matrix((values.ravel(), (rows.ravel(), columns.ravel())), (3 * len(nodes), 6 * blocks))


def _solve(stiffness, right: np.ndarray, precondition: _TwoLevel, tolerance: float) -> np.ndarray:
    from scipy.sparse.linalg import LinearOperator, cg

    n = len(right)
    operator = LinearOperator((n, n), matvec=lambda r: precondition.apply(stiffness, r), dtype=np.float64)
    return cg(stiffness, right, rtol=min(max(tolerance, 1e-9), 0.02), maxiter=600, M=operator)[0]
