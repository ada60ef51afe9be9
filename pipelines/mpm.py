"""Full-space explicit dynamics by the material point method: what reduced dynamics is timed against.

MLS-MPM (Hu et al. 2018) with APIC transfers (Jiang et al. 2015) and quadratic B-splines: particles carry position,
velocity, its affine part C and the deformation gradient F. The law is the stable Neo-Hookean one of
:mod:`splatanim.dynamics.materials` (without its stretch limit), whose stress needs no singular values. Explicit steps
are bound by the speed of sound, dt = cfl dx / sqrt((lambda + 2 mu) / rho), so one animation step of h seconds takes
many of them. Particles are sorted by grid cell; each thread scatters a run of them into a grid of its own, and the
grids are summed over the nodes that were touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numba import get_num_threads, njit, prange

from splatanim.data import Material
from splatanim.dynamics.regions import Region
from splatanim.errors import InputError

PER_CELL = 8  # particles in a grid cell at rest
CFL = 0.8  # of the substep at which a wave crosses a cell; the motion diverges somewhat above 1
MARGIN = 3  # grid nodes kept free around the particles
MOST_NODES = 30_000_000  # of a grid, 32 bytes each and thread
_LOST = "MPM: particles fly apart; the material is too soft for the motion, or the step too long for its stiffness."


@dataclass(frozen=True)
class MpmReport:
    """How one step went: explicit substeps, their length [s], and the grid's nodes."""

    substeps: int
    dt: float
    grid: tuple[int, int, int]


class Mpm:
    """Particles of equal volume under a constant acceleration; grid nodes inside ``held`` do not move.

    ``spacing`` is the grid's dx [m]. ``positions``, ``velocities`` (n, 3) are in the order given. Raises
    :class:`InputError` for a material that is not Neo-Hookean, and in ``step`` where particles fly apart.
    """

    def __init__(
        self,
        points: Float64[np.ndarray, "n 3"],
        volume: float,
        spacing: float,
        material: Material,
        acceleration: Float64[np.ndarray, " 3"],
        h: float,
        *,
        held: Region | None = None,
        velocities: Float64[np.ndarray, "n 3"] | None = None,
    ) -> None:
        if material.model != "neohookean":
            raise InputError(f"MPM: the model is {material.model}; only neohookean is implemented here.")
        n = len(points)
        mu, lam = material.lame
        self._law = (mu, lam)
        self._volume, self._mass = volume / n, volume / n * material.density
        self._dx, self._h, self._held = spacing, h, held
        sound = np.sqrt((lam + 2 * mu) / material.density)
        self.substeps = int(np.ceil(h * sound / (CFL * spacing)))
        self._acceleration = np.asarray(acceleration, np.float64)
        self._x: np.ndarray = np.array(points, np.float64)
        self._v: np.ndarray = np.zeros((n, 3)) if velocities is None else np.array(velocities, np.float64)
        self._c: np.ndarray = np.zeros((n, 3, 3))
        self._f: np.ndarray = np.tile(np.eye(3), (n, 1, 1))
        self._index: np.ndarray = np.arange(n)

    @property
    def positions(self) -> Float64[np.ndarray, "n 3"]:
        return self._in_order(self._x)

    @property
    def velocities(self) -> Float64[np.ndarray, "n 3"]:
        return self._in_order(self._v)

    def angular_momentum(self) -> Float64[np.ndarray, " 3"]:
        """About the origin [kg m^2/s], with the part that the affine velocities carry (dx^2 / 4 each, APIC)."""
        spin = np.stack([self._c[:, k, j] - self._c[:, j, k] for j, k in ((1, 2), (2, 0), (0, 1))], axis=1)
        return self._mass * (np.cross(self._x, self._v) + 0.25 * self._dx**2 * spin).sum(axis=0)

    def energy(self) -> tuple[float, float]:
        """Kinetic (affine part included) and elastic energy [J]."""
        affine = 0.25 * self._dx**2 * np.sum(self._c**2)
        kinetic = 0.5 * self._mass * float(np.sum(self._v**2) + affine)
        mu, lam = self._law
        j = np.linalg.det(self._f)
        psi = 0.5 * mu * (np.sum(self._f**2, axis=(1, 2)) - 3) - mu * (j - 1) + 0.5 * (lam + mu) * (j - 1) ** 2
        return kinetic, self._volume * float(psi.sum())

    def step(self) -> MpmReport:
        """Advance h seconds in substeps. The grid follows the particles and is laid anew here."""
        dt = self._h / self.substeps
        origin, shape = self._lay_grid(dt)
        held = np.zeros(shape, np.bool_)
        if self._held is not None:
            axes = [origin[a] + self._dx * np.arange(shape[a]) for a in range(3)]
            nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
            held = self._held.contains(nodes).reshape(shape)
        grids = np.zeros((get_num_threads(), *shape, 4))
        for _ in range(self.substeps):
            state = (self._x, self._v, self._c, self._f)
            _to_grid(*state, grids, origin, self._dx, dt, self._mass, self._volume, *self._law)
            _move_grid(grids, held, self._acceleration, dt)
            if _to_particles(*state, grids[0], origin, self._dx, dt, len(grids)):
                raise InputError(_LOST)  # off the grid, or no longer numbers
            grids[0] = 0.0
        return MpmReport(self.substeps, dt, (int(shape[0]), int(shape[1]), int(shape[2])))

    def _lay_grid(self, dt: float) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Sort the particles by cell; a grid aligned to multiples of dx with room for this step's motion."""
        speed = float(np.linalg.norm(self._v, axis=1).max()) + float(np.linalg.norm(self._acceleration)) * self._h
        room = MARGIN + int(np.ceil(1.5 * speed * self._h / self._dx))
        low = np.floor(self._x.min(axis=0) / self._dx).astype(np.int64) - room
        high = np.ceil(self._x.max(axis=0) / self._dx).astype(np.int64) + room
        x, y, z = (int(k) for k in high - low + 1)
        if x * y * z > MOST_NODES:
            raise InputError(_LOST)
        cell = np.floor(self._x / self._dx).astype(np.int64) - low
        order = np.argsort((cell[:, 0] * y + cell[:, 1]) * z + cell[:, 2], kind="stable")
        self._x, self._v, self._c, self._f, self._index = (
            np.ascontiguousarray(part[order]) for part in (self._x, self._v, self._c, self._f, self._index)
        )
        return low * self._dx, (x, y, z)

    def _in_order(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty_like(rows)
        out[self._index] = rows
        return out


@njit(cache=True)
def _weights(x, origin, dx, base, offset, w):
    """The first of three nodes each way, the particle's place among them in cells, and the spline's weights."""
    for axis in range(3):
        at = (x[axis] - origin[axis]) / dx
        base[axis] = int(at - 0.5)
        f = at - base[axis]
        offset[axis] = f
        w[axis, 0] = 0.5 * (1.5 - f) ** 2
        w[axis, 1] = 0.75 - (f - 1.0) ** 2
        w[axis, 2] = 0.5 * (f - 0.5) ** 2


@njit(cache=True)
def _kirchhoff(f, mu, lam, tau):
    """tau = P F^T of the stable Neo-Hookean law: mu F F^T + ((lambda + mu) (J - 1) - mu) J I."""
    j = (
        f[0, 0] * (f[1, 1] * f[2, 2] - f[1, 2] * f[2, 1])
        - f[0, 1] * (f[1, 0] * f[2, 2] - f[1, 2] * f[2, 0])
        + f[0, 2] * (f[1, 0] * f[2, 1] - f[1, 1] * f[2, 0])
    )
    pressure = ((lam + mu) * (j - 1.0) - mu) * j
    for r in range(3):
        for s in range(r, 3):
            tau[r, s] = mu * (f[r, 0] * f[s, 0] + f[r, 1] * f[s, 1] + f[r, 2] * f[s, 2])
            tau[s, r] = tau[r, s]
        tau[r, r] += pressure


@njit(parallel=True, cache=True)
def _to_grid(x, v, c, f, grids, origin, dx, dt, mass, volume, mu, lam):
    """Scatter mass and momentum (with the stress as an affine momentum, MLS-MPM eq. 29), a grid a thread."""
    n, threads = len(x), len(grids)
    for t in prange(threads):
        grid = grids[t]
        base, offset, w, q = np.empty(3, np.int64), np.empty(3), np.empty((3, 3)), np.empty((3, 3))
        for p in range(t * n // threads, (t + 1) * n // threads):
            _weights(x[p], origin, dx, base, offset, w)
            _kirchhoff(f[p], mu, lam, q)
            for r in range(3):
                for s in range(3):
                    q[r, s] = mass * c[p, r, s] - 4.0 * dt * volume / (dx * dx) * q[r, s]
            for i in range(3):
                a = (i - offset[0]) * dx
                for j in range(3):
                    b = (j - offset[1]) * dx
                    wij = w[0, i] * w[1, j]
                    m0 = mass * v[p, 0] + q[0, 0] * a + q[0, 1] * b
                    m1 = mass * v[p, 1] + q[1, 0] * a + q[1, 1] * b
                    m2 = mass * v[p, 2] + q[2, 0] * a + q[2, 1] * b
                    for k in range(3):
                        weight = wij * w[2, k]
                        d = (k - offset[2]) * dx
                        node = grid[base[0] + i, base[1] + j, base[2] + k]
                        node[0] += weight * (m0 + q[0, 2] * d)
                        node[1] += weight * (m1 + q[1, 2] * d)
                        node[2] += weight * (m2 + q[2, 2] * d)
                        node[3] += weight * mass


@njit(parallel=True, cache=True)
def _move_grid(grids, held, acceleration, dt):
    """Sum the threads' grids into the first as velocities, add the acceleration, stop held nodes, clear the others."""
    threads, nx, ny, nz, _ = grids.shape
    for i in prange(nx):
        for j in range(ny):
            for k in range(nz):
                node = grids[0, i, j, k]
                for t in range(1, threads):
                    other = grids[t, i, j, k]
                    if other[3] > 0.0:
                        for r in range(4):
                            node[r] += other[r]
                            other[r] = 0.0
                if node[3] > 0.0:
                    for r in range(3):
                        node[r] = 0.0 if held[i, j, k] else node[r] / node[3] + dt * acceleration[r]


@njit(parallel=True, cache=True)
def _to_particles(x, v, c, f, grid, origin, dx, dt, threads):
    """Gather velocities and their affine part, move, and carry F along: F <- (I + dt C) F.

    Returns how many particles have left the grid (or are no longer numbers), which must not be scattered again.
    """
    n, lost = len(x), 0
    for t in prange(threads):
        base, offset, w, row = np.empty(3, np.int64), np.empty(3), np.empty((3, 3)), np.empty((3, 3))
        for p in range(t * n // threads, (t + 1) * n // threads):
            _weights(x[p], origin, dx, base, offset, w)
            v0 = v1 = v2 = 0.0
            row[:] = 0.0
            for i in range(3):
                a = i - offset[0]
                for j in range(3):
                    b = j - offset[1]
                    wij = w[0, i] * w[1, j]
                    for k in range(3):
                        weight = wij * w[2, k]
                        d = k - offset[2]
                        node = grid[base[0] + i, base[1] + j, base[2] + k]
                        g0, g1, g2 = weight * node[0], weight * node[1], weight * node[2]
                        v0, v1, v2 = v0 + g0, v1 + g1, v2 + g2
                        row[0, 0] += g0 * a
                        row[0, 1] += g0 * b
                        row[0, 2] += g0 * d
                        row[1, 0] += g1 * a
                        row[1, 1] += g1 * b
                        row[1, 2] += g1 * d
                        row[2, 0] += g2 * a
                        row[2, 1] += g2 * b
                        row[2, 2] += g2 * d
            v[p, 0], v[p, 1], v[p, 2] = v0, v1, v2
            for r in range(3):
                x[p, r] += dt * v[p, r]
                at = (x[p, r] - origin[r]) / dx
                lost += 0 if 1.0 < at < grid.shape[r] - 2.5 else 1
                for s in range(3):
                    c[p, r, s] = 4.0 / dx * row[r, s]
            for s in range(3):
                f0, f1, f2 = f[p, 0, s], f[p, 1, s], f[p, 2, s]
                f[p, 0, s] = f0 + dt * (c[p, 0, 0] * f0 + c[p, 0, 1] * f1 + c[p, 0, 2] * f2)
                f[p, 1, s] = f1 + dt * (c[p, 1, 0] * f0 + c[p, 1, 1] * f1 + c[p, 1, 2] * f2)
                f[p, 2, s] = f2 + dt * (c[p, 2, 0] * f0 + c[p, 2, 1] * f1 + c[p, 2, 2] * f2)
    return lost
