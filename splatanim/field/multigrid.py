"""The lowest modes of a voxel graph by aggregation multigrid: linear in the number of voxels, no factorisation.

Voxels are gathered two by two by two into aggregates, and those again; an aggregate never joins voxels that are not
connected inside its own box, so that fingers a voxel apart, or pieces that hang on by a few voxels, stay apart on every
level and their modes are there from the coarsest one up. Modes found there start a block iteration on the finest level
(LOBPCG: Knyazev, "Toward the optimal preconditioned eigensolver", SIAM J. Sci. Comput. 2001) with one V-cycle of
smoothed aggregation (Vanek, Mandel & Brezina, "Algebraic multigrid by smoothed aggregation", Computing 1996) as
preconditioner: each round leaves about a tenth of the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int

from splatanim.data import Domain
from splatanim.field.ritz import neighbours

_COARSEST = 600  # unknowns of the dense problem, or
_COARSEST_PER_MODE = 12  # as many times the modes: one more level may leave an eighth
_GUARD = 6  # modes carried beyond those asked for: the last of a block converge slowly
_ROUNDS = 60  # ten are usual for full accuracy
_RANK_CUT = 1e-9
_DAMPING = 2.0 / 3.0  # of Jacobi sweeps


@dataclass(frozen=True)
class Level:
    """One level above the coarsest: its matrix, damped inverse diagonal, and the way down and up (scipy CSR)."""

    matrix: Any
    jacobi: np.ndarray
    prolongation: Any
    restriction: Any


@dataclass(frozen=True)
class Hierarchy:
    """Levels from fine to coarse, and the coarsest problem ``matrix x = lambda mass x`` (dense)."""

    levels: tuple[Level, ...]
    matrix: Float64[np.ndarray, "c c"]
    mass: Float64[np.ndarray, "c c"]


def laplacian(domain: Domain) -> Any:
    """The graph Laplacian of the voxels (scipy CSR, 7-point stencil, Neumann borders, unit spacing)."""
    from scipy import sparse

    adjacent = neighbours(domain)
    n = len(adjacent)
    row, axis = np.nonzero(adjacent >= 0)
    column = adjacent[row, axis]
    ends = np.concatenate([row, column]), np.concatenate([column, row])
    links = sparse.csr_matrix((np.ones(2 * len(row)), ends), (n, n))
    return (sparse.diags(np.asarray(links.sum(axis=1)).ravel()) - links).tocsr()


def aggregates(graph: Any, cells: Int[np.ndarray, "v 3"]) -> tuple[Int[np.ndarray, " v"], Int[np.ndarray, "a 3"]]:
    """Each voxel's aggregate and each aggregate's cell: the pieces that every box of 2^3 cells falls into."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    box = cells // 2
    links = graph.tocoo()
    inside = (links.data < 0) & (box[links.row] == box[links.col]).all(axis=1)
    row, column = links.row[inside], links.col[inside]
    count, label = connected_components(sparse.coo_matrix((np.ones(len(row)), (row, column)), graph.shape), False)
    member = np.empty(count, np.int64)
    member[label] = np.arange(len(label))
    return label.astype(np.int64), box[member]


def joined(graph: Any, label: Int[np.ndarray, " v"]) -> Any:
    """The Laplacian of the aggregates: a link's weight is the number of voxel faces between two of them."""
    from scipy import sparse

    gather = sparse.csr_matrix((np.ones(len(label)), (np.arange(len(label)), label)))
    return (gather.T @ graph @ gather).tocsr()


def hierarchy(graph: Any, cells: Int[np.ndarray, "v 3"], shift: float, coarsest: int) -> Hierarchy:
    """Levels for ``graph + shift`` down to ``coarsest`` unknowns; interpolation is smoothed by a Jacobi step."""
    from scipy import sparse

    matrix = (graph + shift * sparse.identity(graph.shape[0])).tocsr()
    mass = sparse.identity(graph.shape[0], format="csr")
    levels = []
    while matrix.shape[0] > coarsest:
        label, coarser = aggregates(graph, cells)
        if len(coarser) > 0.8 * len(cells):  # dust: nothing is connected, so that anything may be gathered
            coarser, label = np.unique(cells // 2, axis=0, return_inverse=True)
        gather = sparse.csr_matrix((np.ones(len(label)), (np.arange(len(label)), label)))
        jacobi = _DAMPING / matrix.diagonal()
        up = (gather - sparse.diags(jacobi) @ (matrix @ gather)).tocsr()
        down = up.T.tocsr()
        levels.append(Level(matrix, jacobi[:, None], up, down))
        graph, cells = (gather.T @ graph @ gather).tocsr(), coarser
        matrix, mass = (down @ matrix @ up).tocsr(), (down @ mass @ up).tocsr()
    return Hierarchy(tuple(levels), matrix.toarray(), mass.toarray())


def lowest_modes(
    domain: Domain, count: int, accuracy: float
) -> tuple[Float64[np.ndarray, " c"], Float64[np.ndarray, "v c"]]:
    """The ``count`` lowest eigenvalues (unit spacing) and orthonormal modes of the voxel graph, in order.

    ``accuracy``: the rounds end when the mean eigenvalue of the wanted modes falls by less than this share; the error
    left is about a tenth of the last fall. Needs at least ``count`` voxels.
    """
    from scipy.linalg import eigh

    graph = laplacian(domain)
    low = domain.cells.min(axis=0)
    # Of the order of the first eigenvalue: the shifted matrix is regular, and hardly another preconditioner.
    shift = 0.5 / float(np.ptp(domain.cells, axis=0).max() + 1) ** 2
    found = hierarchy(graph, domain.cells - low, shift, max(_COARSEST, _COARSEST_PER_MODE * (count + _GUARD)))
    size = min(count + _GUARD, len(found.matrix))
    values, modes = eigh(found.matrix, found.mass, subset_by_index=[0, size - 1])
    if not found.levels:
        return np.maximum(values[:count] - shift, 0.0), modes[:, :count]
    for level in reversed(found.levels):
        modes = level.prolongation @ modes
    values, modes = _iterate(graph, modes, _preconditioner(found), count, accuracy)
    return np.maximum(values[:count], 0.0), modes[:, :count]


def _iterate(graph: Any, modes: np.ndarray, precondition: Any, count: int, accuracy: float) -> tuple:
    """LOBPCG: Rayleigh-Ritz over the modes, their preconditioned residuals and the last change."""
    x, ax = modes, graph @ modes
    values, c = _rayleigh_ritz(x, ax, modes.shape[1])
    x, ax = x @ c, ax @ c
    change: list[np.ndarray] = []
    for _ in range(_ROUNDS):
        before, size = values[:count].sum(), x.shape[1]
        w = precondition(ax - x * values)
        w -= x @ (x.T @ w)
        space = np.concatenate([x, w, *change[:1]], axis=1)
        image = np.concatenate([ax, graph @ w, *change[1:]], axis=1)
        values, c = _rayleigh_ritz(space, image, size)
        rest = c[size:]
        change = [space[:, size:] @ rest, image[:, size:] @ rest]
        x, ax = x @ c[:size] + change[0], ax @ c[:size] + change[1]
        if before - values[:count].sum() <= accuracy * before + 1e-13 * count:
            break
    # Products that were carried along hold rounding of their own; the last word is a fresh one.
    values, c = _rayleigh_ritz(x, graph @ x, x.shape[1])
    return values, x @ c


def _rayleigh_ritz(space: np.ndarray, image: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The lowest Ritz values over a space (its image under the matrix at hand), and their coefficients."""
    mass, energy = space.T @ space, space.T @ image
    scale = 1.0 / np.sqrt(np.maximum(np.diagonal(mass), 1e-300))
    levels, vectors = np.linalg.eigh(mass * np.outer(scale, scale))
    keep = levels > _RANK_CUT * levels[-1]
    basis = scale[:, None] * vectors[:, keep] / np.sqrt(levels[keep])
    projected = basis.T @ energy @ basis
    values, rotation = np.linalg.eigh((projected + projected.T) / 2)
    return values[:count], basis @ rotation[:, :count]


def _preconditioner(found: Hierarchy) -> Any:
    """One V-cycle in single precision: the residuals it is given are exact, so nothing of the result is."""
    single = np.float32
    levels = [
        Level(*(part.astype(single) for part in (a.matrix, a.jacobi, a.prolongation, a.restriction)))
        for a in found.levels
    ]
    inverse = np.linalg.inv(found.matrix).astype(single)

    def cycle(b: Float[np.ndarray, "n k"], depth: int = 0) -> np.ndarray:
        if depth == len(levels):
            return inverse @ b
        level = levels[depth]
        x = level.jacobi * b
        x += level.prolongation @ cycle(level.restriction @ (b - level.matrix @ x), depth + 1)
        x += level.jacobi * (b - level.matrix @ x)
        return x

    def apply(residual: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        scale = np.maximum(np.linalg.norm(residual, axis=0), 1e-300)
        return cycle((residual / scale).astype(single)).astype(np.float64)

    return apply
