"""The neural skinning field: one network for any shape, with warped Gaussians beside it, combined by Rayleigh-Ritz."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.neural_basis import Basis, basis_of, chunks_of, encode, query
from splatanim.field.neural_parts import Parts, parts_of
from splatanim.field.ritz import neighbours, ritz

if TYPE_CHECKING:
    from splatanim.field.neural_model import FieldModel


_DEGREE = 2  # of the polynomials that fields are multiplied with, where a network was trained for that (affine)

_CANDIDATES = 5  # per handle


@dataclass(frozen=True)
class NeuralField:
    """On part p of the object, W(X) = basis_p(X) @ coefficients_p + constants_p.

    An object in one piece has one part. Loose parts are shown to the network one by one: the low-energy functions of
    the whole are those of the parts, and the parts' indicators. Everything is evaluated in float64 (the weights were
    trained in float32), so that results do not depend on how points are batched.
    """

    parts: Parts
    bases: tuple[Basis, ...]
    coefficients: tuple[Float64[np.ndarray, "r m"], ...]
    constants: Float64[np.ndarray, "p m"]
    levels: Float64[np.ndarray, " m"]
    kind: str = "neural"

    @property
    def handles(self) -> int:
        return self.constants.shape[1]

    @property
    def raw(self) -> int:
        """How many raw functions the handles were combined from (of the part with most)."""
        return max(basis.size for basis in self.bases)

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        part = self.parts.of(points)
        out = self.constants[part]
        for number, basis in enumerate(self.bases):
            rows = np.flatnonzero(part == number)
            out[rows] += basis.values(points[rows]) @ self.coefficients[number]
        return out

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        """By forward-mode differentiation of the network and the chain rule through the Gaussians."""
        part = self.parts.of(points)
        out = np.empty((len(points), self.handles, 3))
        for number, basis in enumerate(self.bases):
            rows = np.flatnonzero(part == number)
            out[rows] = basis.gradients(points[rows], self.coefficients[number])
        return out


def bind_neural(
    domain: Domain, handles: int, *, weights: Path | None = None, gaussians: int = 144, seed: int = 0
) -> NeuralField:
    """Bind ``handles`` fields of the network on a domain: Ritz over its raw fields, these times polynomials, and
    ``gaussians`` warped Gaussians.

    ``weights``: a .safetensors of ``splatanim train-fields``; without it the one that comes with the package.

    Raises :class:`InputError` when the object has too few voxels, or the weights cannot be used.
    """
    return bind_model(_network(weights), domain, handles, gaussians=gaussians, seed=seed)


def bind_model(
    network: FieldModel, domain: Domain, handles: int, *, gaussians: int = 144, seed: int = 0
) -> NeuralField:
    """As :func:`bind_neural`, for a network in memory (which becomes float64)."""
    if len(domain.cells) < handles + 2:
        raise InputError(
            f"The object fills only {len(domain.cells)} voxels, too few for {handles} handles. "
            "Use fewer --handles, or check with `splatanim inspect` that the capture has an inside."
        )
    parts = parts_of(domain)
    owner = parts.of(domain.centres)
    bases, low, first, blocks = [], [], [], []
    for number in range(parts.count):
        rows = np.flatnonzero(owner == number)
        piece = Domain(domain.cells[rows], domain.origin, domain.spacing)
        basis = basis_of(network, piece, gaussians, _DEGREE if network.config.affine else 0, seed)
        c, constant, values = _lowest(basis, piece, handles)
        block = np.zeros((len(domain.cells), c.shape[1]))
        block[rows] = values
        bases.append(basis)
        low.append(c)
        first.append(constant)
        blocks.append(block)
    blocks.append((owner[:, None] == np.arange(1, parts.count)).astype(np.float64))
    joint, constants, levels = ritz(np.concatenate(blocks, axis=1), domain, handles)
    if joint.shape[1] < handles:
        raise InputError(
            f"The object carries only {joint.shape[1]} independent fields, too few for {handles} handles. "
            "Use fewer --handles."
        )
    return _joined(parts, bases, low, first, joint, constants, levels)


def _lowest(basis: Basis, domain: Domain, handles: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients, constants and values on the voxels of a basis' fields of lowest energy.

    A first pass, fast but of single precision in effect (it forms the energy of the raw functions), picks a few
    candidates per handle; Ritz on these is exact.
    """
    raw = basis.values(domain.centres)
    first = _candidates(raw, domain, _CANDIDATES * handles)
    reduced = raw @ first
    c, constant, _ = ritz(reduced, domain, handles)
    return first @ c, constant, reduced @ c + constant


def _candidates(raw: Float64[np.ndarray, "v r"], domain: Domain, count: int) -> Float64[np.ndarray, "r c"]:
    """Coefficients of about ``count`` combinations of low Dirichlet energy, from two matrix products."""
    from scipy import sparse

    adjacent = neighbours(domain)
    row, axis = np.nonzero(adjacent >= 0)
    links = sparse.coo_matrix((np.ones(len(row)), (row, adjacent[row, axis])), (len(raw), len(raw)))
    links = (links + links.T).tocsr()
    centred = raw - raw.mean(axis=0)
    laplacian = sparse.diags(np.asarray(links.sum(axis=1)).ravel()) - links
    energy = centred.T @ (laplacian @ centred)
    mass = centred.T @ centred
    norms = np.maximum(np.sqrt(np.diagonal(mass)), 1e-30)
    values, vectors = np.linalg.eigh(mass / np.outer(norms, norms))
    keep = values > 1e-10 * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep]) / norms[:, None]
    projected = basis.T @ energy @ basis
    return basis @ np.linalg.eigh((projected + projected.T) / 2)[1][:, :count]


def _joined(
    parts: Parts,
    bases: list[Basis],
    low: list[np.ndarray],
    first: list[np.ndarray],
    joint: np.ndarray,
    constants: np.ndarray,
    levels: np.ndarray,
) -> NeuralField:
    """Multiply each part's own Ritz coefficients with the rows of the joint ones that belong to them."""
    ends = np.cumsum([c.shape[1] for c in low])
    indicators = np.concatenate([np.zeros((1, joint.shape[1])), joint[ends[-1] :]])
    coefficients, shifts = [], []
    for number, end in enumerate(ends):
        rows = joint[end - low[number].shape[1] : end]
        coefficients.append(low[number] @ rows)
        shifts.append(first[number] @ rows + indicators[number] + constants)
    return NeuralField(parts, tuple(bases), tuple(coefficients), np.stack(shifts), levels)


def raw_fields(
    domain: Domain, points: Float[np.ndarray, "n 3"], weights: Path | None = None, *, seed: int = 0
) -> Float64[np.ndarray, "n r"]:
    """The network's own fields Phi(X) for an object (shown as a whole), before any binding."""
    return raw_model(_network(weights), domain, points, seed=seed)


def raw_model(
    network: FieldModel, domain: Domain, points: Float[np.ndarray, "n 3"], *, seed: int = 0
) -> Float64[np.ndarray, "n r"]:
    """As :func:`raw_fields`, for a network in memory."""
    encoding = encode(network, domain, seed)
    position = encoding.box.normalise(points)
    chunks = [query(encoding, position[rows])[0] for rows in chunks_of(len(points))]
    return np.concatenate(chunks) if chunks else np.empty((0, network.config.fields))


def _network(weights: Path | None) -> FieldModel:
    from splatanim.field.neural_model import SHIPPED

    path = Path(weights) if weights is not None else SHIPPED
    return _loaded(path, path.stat().st_mtime_ns if path.is_file() else 0)


@functools.lru_cache(maxsize=4)
def _loaded(path: Path, stamp: int) -> FieldModel:
    """Read once; ``stamp`` tells a rewritten file from the one in memory."""
    from splatanim.field.neural_model import load_model

    return load_model(path).double()
