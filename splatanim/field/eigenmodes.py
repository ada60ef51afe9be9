"""Exact Laplacian eigenmodes of an object's voxels: the reference that every other skinning field is held against.

The lowest Neumann modes minimise the Dirichlet energy over all functions, so no other field has a lower mean Rayleigh
quotient on the same voxels. Between voxels they are interpolated by quadratic B-splines (C^1, so gradients are
continuous); beyond the object each grid node takes the value of the nearest voxel, which continues the Neumann
condition outward.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.ritz import neighbours, ritz

_CHUNK = 65536
_BORDER = 3  # voxels of continuation around the object's bounding box


@dataclass(frozen=True)
class GridField:
    """Fields given on a regular grid: values (x, y, z, m), node (0, 0, 0) at ``origin``."""

    values: Float64[np.ndarray, "x y z m"]
    origin: Float64[np.ndarray, " 3"]
    spacing: float
    coefficients: Float64[np.ndarray, "k m"]
    constants: Float64[np.ndarray, " m"]
    kind: str = "eigenmodes"

    @property
    def handles(self) -> int:
        return self.coefficients.shape[1]

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        return self._interpolate(points, None) @ self.coefficients + self.constants

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return np.stack([self._interpolate(points, axis) @ self.coefficients for axis in range(3)], axis=2)

    def _interpolate(self, points: np.ndarray, derivative: int | None) -> np.ndarray:
        out = np.empty((len(points), self.values.shape[3]))
        for start in range(0, len(points), _CHUNK):
            rows = slice(start, start + _CHUNK)
            out[rows] = _spline(self.values, (np.asarray(points[rows]) - self.origin) / self.spacing, derivative)
        return out if derivative is None else out / self.spacing


def _spline(values: np.ndarray, position: np.ndarray, derivative: int | None) -> np.ndarray:
    """Tensor-product quadratic B-spline over 27 nodes; constant outside the grid."""
    top = np.array(values.shape[:3]) - 2.0
    inside = np.clip(position, 1.0, top)
    base = np.round(inside).astype(np.int64)
    f = inside - base
    parts = []
    for axis in range(3):
        t = f[:, axis]
        if axis == derivative:
            free = (position[:, axis] >= 1.0) & (position[:, axis] <= top[axis])
            parts.append([np.where(free, w, 0.0) for w in (t - 0.5, -2.0 * t, t + 0.5)])
        else:
            parts.append([0.5 * (0.5 - t) ** 2, 0.75 - t**2, 0.5 * (0.5 + t) ** 2])
    out = np.zeros((len(position), values.shape[3]))
    for i, j, k in itertools.product(range(3), repeat=3):
        weight = parts[0][i] * parts[1][j] * parts[2][k]
        out += weight[:, None] * values[base[:, 0] + i - 1, base[:, 1] + j - 1, base[:, 2] + k - 1]
    return out


def neumann_modes(domain: Domain, count: int) -> tuple[Float64[np.ndarray, " c"], Float64[np.ndarray, "v c"]]:
    """The ``count`` lowest eigenvalues [1/m^2] and modes of the voxel Laplacian with Neumann borders (7-point stencil).

    Modes have mean square 1. The first is the constant; loose parts add further zeros.
    """
    from scipy import sparse
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    adjacent = neighbours(domain)
    n = len(adjacent)
    if n < count + 2:
        raise InputError(f"The object fills only {n} voxels, too few for {count} eigenmodes. Use fewer --handles.")
    row, axis = np.nonzero(adjacent >= 0)
    links = sparse.coo_matrix((np.ones(len(row)), (row, adjacent[row, axis])), (n, n))
    links = links + links.T
    laplacian = (sparse.diags(np.asarray(links.sum(axis=1)).ravel()) - links) / domain.spacing**2
    extent = float(np.ptp(domain.centres, axis=0).max()) + domain.spacing
    shift = 1.0 / extent**2  # of the order of the first eigenvalue, so that the shifted matrix is well conditioned
    factor = splu(
        (laplacian + shift * sparse.identity(n)).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    start = np.random.default_rng(0).normal(size=n)
    inverse = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    # Lanczos from one vector finds the copies of a repeated eigenvalue (symmetric objects) only through rounding, late:
    # to full accuracy and with some to spare they are there, at 1e-8 some are missing.
    wanted = min(count + 8, n - 2)
    values, modes = eigsh(inverse, k=wanted, which="LM", tol=0, ncv=min(n - 1, 2 * wanted + 8), v0=start)
    eigenvalues = 1.0 / values - shift
    order = np.argsort(eigenvalues)[:count]
    return np.maximum(eigenvalues[order], 0.0), modes[:, order] * np.sqrt(n)


def bind_eigenmodes(domain: Domain, handles: int) -> GridField:
    """Bind the ``handles`` lowest non-constant modes of a domain; orthonormal where they are evaluated."""
    from scipy import ndimage

    _, modes = neumann_modes(domain, handles + 1)
    low = domain.cells.min(axis=0) - _BORDER
    cells = domain.cells - low
    shape = tuple(cells.max(axis=0) + 1 + _BORDER)
    empty = np.ones(shape, bool)
    empty[tuple(cells.T)] = False
    row = np.zeros(shape, np.int64)
    row[tuple(cells.T)] = np.arange(len(cells))
    nearest = ndimage.distance_transform_edt(empty, return_distances=False, return_indices=True)
    values = modes[:, 1:][row[tuple(nearest)]]
    origin = domain.origin + (low + 0.5) * domain.spacing
    raw = GridField(values, origin, domain.spacing, np.eye(handles), np.zeros(handles))
    # The spline smooths a little; a Ritz pass on what it gives makes the fields orthonormal again.
    coefficients, constants, _ = ritz(raw.weights(domain.centres), domain, handles)
    return GridField(values, origin, domain.spacing, coefficients, constants)
