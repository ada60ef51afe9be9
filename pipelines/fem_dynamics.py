"""Full-space implicit dynamics on linear tetrahedra: what reduced dynamics is timed against.

The same problem as :mod:`splatanim.dynamics.simulate` without the subspace: implicit Euler as a minimisation over all
nodes (eq. 10), the same Neo-Hookean law, Newton's method with an Armijo line search, and the same convergence test:
the force left over, times h^2 / mass in the mass norm, is at most 1e-6 of the object's size. The linear systems are
solved inexactly (Eisenstat & Walker 1996) by preconditioned conjugate gradients (:mod:`pipelines.fem_solver`), which
stop where the exact Hessian curves downward (Steihaug 1983). Nodes and elements are in Morton order; every kernel is
compiled and runs on all of Numba's threads; matrix blocks are float32 (they only shape the search direction), all else
is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int
from numba import njit, prange

from pipelines.fem import Solid
from pipelines.fem_solver import Coarse, conjugate_gradients
from splatanim.data import Material
from splatanim.dynamics.materials import _LIMIT_STIFFNESS as LIMIT_STIFFNESS
from splatanim.errors import InputError

TOLERANCE = 1e-6  # of the object's size, as in splatanim.dynamics.simulate
_NEWTON = 50


@dataclass(frozen=True)
class FemReport:
    """How one step went: Newton iterations, conjugate gradient iterations in all, the residual in metres."""

    converged: bool
    iterations: int
    cg_iterations: int
    residual: float


class FemDynamics:
    """A solid of linear tetrahedra under a constant acceleration, some nodes held where they are.

    ``displacements`` and ``velocities`` (n, 3) are in the solid's own node order. Raises :class:`InputError` for a
    solid that is not made of linear tetrahedra.
    """

    def __init__(
        self,
        solid: Solid,
        material: Material,
        held: Bool[np.ndarray, " n"],
        acceleration: Float64[np.ndarray, " 3"],
        h: float,
        velocities: Float64[np.ndarray, "n 3"] | None = None,
    ) -> None:
        if solid.elements.shape[1] != 4:
            raise InputError(f"FEM dynamics: elements have {solid.elements.shape[1]} nodes; linear tetrahedra have 4.")
        if material.model != "neohookean":
            raise InputError(f"FEM dynamics: the model is {material.model}; only neohookean is implemented here.")
        self._order = _morton(solid.nodes)
        rank = np.empty_like(self._order)
        rank[self._order] = np.arange(len(rank))
        elements = rank[solid.elements]
        rows = np.argsort(elements.min(axis=1), kind="stable")
        parts = elements[rows], solid.gradients[rows, 0], solid.volumes[rows, 0]  # (e, 4), (e, 4, 3), (e,)
        self._solid = tuple(np.ascontiguousarray(part) for part in parts)
        self._rest = np.ascontiguousarray(solid.nodes[self._order])
        self._free = ~held[self._order]
        self._rank, self._h = rank, h
        mu, lam = material.lame
        self._law = (mu, lam, material.stretch_limit)
        share = material.density * self._solid[2] / 4
        self._masses = np.bincount(self._solid[0].ravel(), np.repeat(share, 4), len(rank))
        if not self._masses.min() > 0:
            raise InputError(f"FEM dynamics: {int((self._masses <= 0).sum())} nodes belong to no element.")
        self._weight = self._masses[:, None] * np.asarray(acceleration, np.float64)
        self._graph = _graph(self._solid[0], len(rank))
        self._size = float(np.ptp(solid.nodes, axis=0).max())
        self._coarse: Coarse | None = None
        self._slow = False
        self._x = self._rest.copy()
        start = np.zeros_like(self._x) if velocities is None else np.asarray(velocities, np.float64)[self._order]
        self._before = self._x - h * np.where(self._free[:, None], start, 0.0)
        self._stress = np.empty((len(rows), 3, 3))
        self._deformation = np.empty((len(rows), 3, 3))

    @property
    def displacements(self) -> Float64[np.ndarray, "n 3"]:
        return (self._x - self._rest)[self._rank]

    @property
    def velocities(self) -> Float64[np.ndarray, "n 3"]:
        """Of the step just made, (x - x_before) / h [m/s]."""
        return ((self._x - self._before) / self._h)[self._rank]

    @property
    def masses(self) -> Float64[np.ndarray, " n"]:
        """Lumped: a quarter of each adjoining tetrahedron."""
        return self._masses[self._rank]

    def elastic_energy(self) -> float:
        """[J] of the state now."""
        return float(_energy(self._x, self._solid, self._law))

    def step(self) -> FemReport:
        """One implicit Euler step of h seconds."""
        target = np.where(self._free[:, None], 2.0 * self._x - self._before, self._x)
        x, cg_total = target.copy(), 0
        value, gradient, residual = self._evaluate(x, target)
        report = None
        for iteration in range(_NEWTON + 1):
            done = residual <= TOLERANCE * self._size and (iteration > 0 or residual == 0.0)
            if done or iteration == _NEWTON or not np.isfinite(residual):
                report = FemReport(done, iteration, cg_total, residual)
                break
            blocks, inverse = self._matrix()
            forcing = min(0.1, max((residual / self._size) ** 0.5, 0.3 * TOLERANCE * self._size / residual))
            if self._coarse is None or self._slow:
                self._coarse, self._slow = Coarse(self._graph.rows, blocks, x, self._free), False
            direction, used = conjugate_gradients(
                self._graph.rows, blocks, inverse, self._coarse, self._free, -gradient, forcing
            )
            self._slow = self._coarse.grew(used, forcing)
            cg_total += used
            length = self._line_search(x, target, direction, value, float(np.sum(gradient * direction)))
            if length == 0.0:
                report = FemReport(residual <= TOLERANCE * self._size, iteration, cg_total, residual)
                break
            x = x + length * direction
            value, gradient, residual = self._evaluate(x, target)
        self._before, self._x = self._x, x
        assert report is not None
        return report

    def _evaluate(self, x: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Energy, gradient (n, 3) of the free nodes, and its mass norm in metres."""
        elastic = _elements(x, self._solid, self._law, self._deformation, self._stress)
        force = _gather(*self._graph.incidence, self._stress, self._solid[1])
        gradient = force + self._masses[:, None] * (x - target) / self._h**2 - self._weight
        gradient[~self._free] = 0.0
        norm = np.sqrt(np.sum(gradient**2 / self._masses[:, None]))
        return self._value(x, target, elastic), gradient, float(norm * self._h**2 / np.sqrt(self._masses.sum()))

    def _value(self, x: np.ndarray, target: np.ndarray, elastic: float | None = None) -> float:
        if elastic is None:
            elastic = _energy(x, self._solid, self._law)
        inertia = 0.5 * float(np.sum(self._masses[:, None] * (x - target) ** 2)) / self._h**2
        return inertia + float(elastic) - float(np.sum(self._weight * (x - self._rest)))

    def _matrix(self) -> tuple[np.ndarray, np.ndarray]:
        """The Hessian's 3x3 blocks (float32) row by row, and the inverse diagonal blocks."""
        graph = (*self._graph.incidence, self._graph.slots, self._graph.diagonal, self._graph.count)
        return _assemble(graph, self._solid, self._deformation, self._law, self._masses / self._h**2)

    def _line_search(self, x: np.ndarray, target: np.ndarray, step: np.ndarray, value: float, slope: float) -> float:
        length, rounding = 1.0, 1e-12 * abs(value)
        for _ in range(30):
            if self._value(x + length * step, target) <= value + 1e-4 * length * slope + rounding:
                return length
            length *= 0.5
        return 0.0


@dataclass(frozen=True)
class _Graph:
    """Which nodes share an element. ``rows`` is (row starts, columns) of the block matrix; ``incidence`` is (starts,
    elements, corners) of the elements around a node; ``slots`` (e, 4, 4) the block of a pair of an element's nodes."""

    rows: tuple[np.ndarray, np.ndarray]
    incidence: tuple[np.ndarray, np.ndarray, np.ndarray]
    slots: Int[np.ndarray, "e 4 4"]
    diagonal: Int[np.ndarray, " n"]
    count: int


def _graph(elements: Int[np.ndarray, "e 4"], n: int) -> _Graph:
    key = (elements[:, :, None] * n + elements[:, None, :]).ravel()
    unique, slots = np.unique(key, return_inverse=True)
    row, column = unique // n, unique % n
    around = np.argsort(elements.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(elements.ravel(), minlength=n))])
    return _Graph(
        (np.searchsorted(row, np.arange(n + 1)), column.astype(np.int32)),
        (starts, around // 4, around % 4),
        slots.reshape(len(elements), 4, 4).astype(np.int32),
        np.flatnonzero(row == column),
        len(unique),
    )


def _morton(points: Float64[np.ndarray, "n 3"]) -> Int[np.ndarray, " n"]:
    """The order along a Z-curve, so that neighbours in space are neighbours in memory."""
    cells = ((points - points.min(axis=0)) / max(float(np.ptp(points, axis=0).max()), 1e-300) * 1023).astype(np.int64)
    code = np.zeros(len(points), np.int64)
    for bit in range(10):
        for axis in range(3):
            code |= ((cells[:, axis] >> bit) & 1) << (3 * bit + axis)
    return np.argsort(code, kind="stable")


@njit(cache=True)
def _deformation(x, element, gradients, out):
    for r in range(3):
        for c in range(3):
            total = 0.0
            for a in range(4):
                total += x[element[a], r] * gradients[a, c]
            out[r, c] = total


@njit(cache=True)
def _cofactor(f, g):
    """The cofactor matrix dJ/dF into ``g``; returns J."""
    for r in range(3):
        i, j = (r + 1) % 3, (r + 2) % 3
        for c in range(3):
            k, l = (c + 1) % 3, (c + 2) % 3
            g[r, c] = f[i, k] * f[j, l] - f[i, l] * f[j, k]
    return f[0, 0] * g[0, 0] + f[0, 1] * g[0, 1] + f[0, 2] * g[0, 2]


@njit(cache=True)
def _law(f, j, mu, lam, limit):
    """Psi and the factors of its derivatives: P = a F + c cof F, and d of dP = a dF + (lambda + mu) .. + d F (F : dF).

    Stable Neo-Hookean and the finite extensibility of splatanim.dynamics.materials, written in F.
    """
    i1 = 0.0
    trace = e2 = 0.0
    for r in range(3):
        trace += f[r, r] - 1.0
        for c in range(3):
            i1 += f[r, c] * f[r, c]
            u = f[r, c] - (1.0 if r == c else 0.0)
            e2 += u * u
    i0 = limit * limit + 2.0 / limit
    t = max(i1 / i0 - 1.0, 0.0)
    a = mu + 2.0 * mu * LIMIT_STIFFNESS * t * t
    d = 8.0 * mu * LIMIT_STIFFNESS * t / i0
    # (|F|^2 - 3)/2 - (J - 1) without the cancellation of its first-order parts: |F|^2 - 3 = |F - I|^2 + 2 tr(F - I)
    psi = mu * (0.5 * e2 + (trace - (j - 1.0))) + 0.5 * (lam + mu) * (j - 1.0) ** 2
    psi += mu * LIMIT_STIFFNESS * i0 * t * t * t / 3.0
    return psi, a, (lam + mu) * (j - 1.0) - mu, d


@njit(parallel=True, cache=True)
def _elements(x, solid, law, deformation, stress):
    """Deformation gradients (e, 3, 3) and volume-weighted stresses (e, 3, 3), written; returns the energy [J]."""
    elements, gradients, volumes = solid
    mu, lam, limit = law
    total = 0.0
    for e in prange(len(elements)):
        g = np.empty((3, 3))
        f = deformation[e]
        _deformation(x, elements[e], gradients[e], f)
        psi, a, c, _ = _law(f, _cofactor(f, g), mu, lam, limit)
        for r in range(3):
            for k in range(3):
                stress[e, r, k] = volumes[e] * (a * f[r, k] + c * g[r, k])
        total += volumes[e] * psi
    return total


@njit(parallel=True, cache=True)
def _energy(x, solid, law):
    elements, gradients, volumes = solid
    mu, lam, limit = law
    total = 0.0
    for e in prange(len(elements)):
        f, g = np.empty((3, 3)), np.empty((3, 3))
        _deformation(x, elements[e], gradients[e], f)
        total += volumes[e] * _law(f, _cofactor(f, g), mu, lam, limit)[0]
    return total


@njit(parallel=True, cache=True)
def _gather(starts, around, corners, stress, gradients):
    """Elastic forces (n, 3): sum over the elements around a node of P grad N."""
    n = len(starts) - 1
    out = np.zeros((n, 3))
    for i in prange(n):
        for k in range(starts[i], starts[i + 1]):
            e, a = around[k], corners[k]
            for r in range(3):
                for c in range(3):
                    out[i, r] += stress[e, r, c] * gradients[e, a, c]
    return out


@njit(parallel=True, cache=True)
def _assemble(graph, solid, deformation, law, mass):
    """Blocks K_ij = sum_e grad N_i : d2Psi/dF2 : grad N_j plus mass / h^2 on the diagonal, and the diagonal's inverse.

    With u_i = F grad N_i and g_i = cof(F) grad N_i, an element's block is V (a (grad N_i . grad N_j) I + (lambda + mu)
    g_i g_j^T + d u_i u_j^T + c [F (grad N_i x grad N_j)]), [w]_rs = eps_rst w_t. Each thread owns whole rows.
    """
    starts, around, corners, slots, diagonal, count = graph
    _, gradients, volumes = solid
    mu, lam, limit = law
    n = len(starts) - 1
    blocks = np.zeros((count, 3, 3), np.float32)
    inverse = np.empty((n, 3, 3), np.float32)
    for i in prange(n):
        own, cof, block = np.zeros((3, 3)), np.empty((3, 3)), np.empty((3, 3))
        g, u = np.empty((4, 3)), np.empty((4, 3))
        for k in range(starts[i], starts[i + 1]):
            e, p = around[k], corners[k]
            f, slope, v = deformation[e], gradients[e], volumes[e]
            _, a, c, d = _law(f, _cofactor(f, cof), mu, lam, limit)
            for q in range(4):
                for r in range(3):
                    g[q, r] = cof[r, 0] * slope[q, 0] + cof[r, 1] * slope[q, 1] + cof[r, 2] * slope[q, 2]
                    u[q, r] = f[r, 0] * slope[q, 0] + f[r, 1] * slope[q, 1] + f[r, 2] * slope[q, 2]
            for q in range(4):
                same = a * (slope[p, 0] * slope[q, 0] + slope[p, 1] * slope[q, 1] + slope[p, 2] * slope[q, 2])
                for r in range(3):
                    for s in range(3):
                        block[r, s] = (lam + mu) * g[p, r] * g[q, s] + d * u[p, r] * u[q, s]
                    block[r, r] += same
                x = slope[p, 1] * slope[q, 2] - slope[p, 2] * slope[q, 1]
                y = slope[p, 2] * slope[q, 0] - slope[p, 0] * slope[q, 2]
                z = slope[p, 0] * slope[q, 1] - slope[p, 1] * slope[q, 0]
                for t in range(3):
                    w = c * (f[t, 0] * x + f[t, 1] * y + f[t, 2] * z)
                    block[(t + 1) % 3, (t + 2) % 3] += w
                    block[(t + 2) % 3, (t + 1) % 3] -= w
                slot = slots[e, p, q]
                for r in range(3):
                    for s in range(3):
                        blocks[slot, r, s] += np.float32(v * block[r, s])
                        if p == q:
                            own[r, s] += v * block[r, s]
        for r in range(3):
            blocks[diagonal[i], r, r] += np.float32(mass[i])
            own[r, r] += mass[i]
        inverse[i] = np.linalg.inv(own).astype(np.float32)
    return blocks, inverse
