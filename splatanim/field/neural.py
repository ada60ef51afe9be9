"""The neural skinning field: one network for any shape, with warped Gaussians beside it, combined by Rayleigh-Ritz."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field import chunks
from splatanim.field.grid import GridField, grown, interpolated, lattice_of
from splatanim.field.multigrid import laplacian
from splatanim.field.neural_basis import Basis, basis_of, encode, query
from splatanim.field.neural_parts import Parts, parts_of
from splatanim.field.ritz import ritz

if TYPE_CHECKING:
    from splatanim.field.neural_model import FieldModel

_CHUNK = 2048  # points asked at a time
_DEGREE = 2  # of the polynomials that fields are multiplied with, where a network was trained for that (affine)
_CANDIDATES = 3  # per handle
_RANK_CUT = 1e-10  # relative eigenvalue of a Gram matrix that is rounding
_AROUND = 2  # cells beside the object where the network is asked too, so that splines follow it up to the surface


@dataclass(frozen=True)
class NeuralField:
    """On part p of the object, W(X) = fields_p(X): the network's functions combined, interpolated between voxels.

    An object in one piece has one part. Loose parts are shown to the network one by one: the low-energy functions of
    the whole are those of the parts, and the parts' indicators. The network is asked at the voxels and at the cells
    around them, once; from there splines give weights and exact gradients anywhere, some ten times quicker than the
    network would. ``raw``: how many functions the handles were combined from (of the part with most).
    """

    parts: Parts
    fields: tuple[GridField, ...]
    levels: Float64[np.ndarray, " m"]
    raw: int
    kind: str = "neural"

    @property
    def handles(self) -> int:
        return self.fields[0].handles

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        out = np.empty((len(points), self.handles))
        for field, rows in self._shares(points):
            out[rows] = field.weights(points[rows])
        return out

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return self.evaluate(points)[1]

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        w, dw = np.empty((len(points), self.handles)), np.empty((len(points), self.handles, 3))
        for field, rows in self._shares(points):
            w[rows], dw[rows] = field.evaluate(points[rows])
        return w, dw

    def _shares(self, points: np.ndarray) -> Iterator[tuple[GridField, np.ndarray]]:
        part = self.parts.of(points)
        return ((field, np.flatnonzero(part == number)) for number, field in enumerate(self.fields))


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
    """As :func:`bind_neural`, for a network in memory, in its precision."""
    if len(domain.cells) < handles + 2:
        raise InputError(
            f"The object fills only {len(domain.cells)} voxels, too few for {handles} handles. "
            "Use fewer --handles, or check with `splatanim inspect` that the capture has an inside."
        )
    parts = parts_of(domain)
    owner = parts.of(domain.centres)
    blocks = [(owner[:, None] == np.arange(1, parts.count)).astype(np.float64)]
    pieces, raw = [], 0
    for number in range(parts.count):
        rows = np.flatnonzero(owner == number)
        piece = Domain(domain.cells[rows], domain.origin, domain.spacing)
        basis = basis_of(network, piece, gaussians, _DEGREE if network.config.affine else 0, seed)
        offered = _offered(basis, piece, handles)
        block = np.zeros((len(domain.cells), offered.handles))
        block[rows] = offered.weights(piece.centres)
        pieces.append(offered)
        blocks.append(block)
        raw = max(raw, basis.size)
    joint, constants, levels = ritz(np.concatenate(blocks, axis=1), domain, handles)
    if joint.shape[1] < handles:
        raise InputError(
            f"The object carries only {joint.shape[1]} independent fields, too few for {handles} handles. "
            "Use fewer --handles."
        )
    shifts = constants + np.concatenate([np.zeros((1, handles)), joint[: parts.count - 1]])
    ends = parts.count - 1 + np.cumsum([piece.handles for piece in pieces])
    fields = tuple(
        GridField(piece.lattice, piece.values @ joint[end - piece.handles : end], np.eye(handles), shift, "neural")
        for piece, end, shift in zip(pieces, ends, shifts, strict=True)
    )
    return NeuralField(parts, fields, levels, raw)


def _offered(basis: Basis, domain: Domain, handles: int) -> GridField:
    """A few candidates per handle of a basis, as splines: what a part of an object offers to the whole."""
    around = grown(domain, _AROUND)
    raw = basis.values(domain.centres).astype(np.float64)
    c = _candidates(raw, domain, _CANDIDATES * handles)
    values = np.concatenate([raw @ c, basis.combined(around.centres[len(raw) :], c)])
    return interpolated(values, around, lattice_of(around, gaps=False), "neural")


def _candidates(raw: Float64[np.ndarray, "v r"], domain: Domain, count: int) -> Float64[np.ndarray, "r c"]:
    """Coefficients of about ``count`` combinations of low Dirichlet energy, from two matrix products.

    Single precision in effect (the energy is that of the raw functions); Ritz on these few is exact.
    """
    centred = raw - raw.mean(axis=0)
    energy = centred.T @ (laplacian(domain) @ centred)
    mass = centred.T @ centred
    norms = np.maximum(np.sqrt(np.diagonal(mass)), 1e-30)
    values, vectors = np.linalg.eigh(mass / np.outer(norms, norms))
    keep = values > _RANK_CUT * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep]) / norms[:, None]
    projected = basis.T @ energy @ basis
    return basis @ np.linalg.eigh((projected + projected.T) / 2)[1][:, :count]


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
    out = np.empty((len(points), network.config.fields))
    for rows in chunks(len(points), _CHUNK):
        out[rows] = query(encoding, position[rows])[0]
    return out


def _network(weights: Path | None) -> FieldModel:
    from splatanim.field.neural_model import SHIPPED

    path = Path(weights) if weights is not None else SHIPPED
    return _loaded(path, path.stat().st_mtime_ns if path.is_file() else 0)


@functools.lru_cache(maxsize=4)
def _loaded(path: Path, stamp: int) -> FieldModel:
    """Read once; ``stamp`` tells a rewritten file from the one in memory."""
    from splatanim.field.neural_model import load_model

    return load_model(path)
