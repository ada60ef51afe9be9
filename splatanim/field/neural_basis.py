"""What a network offers for one connected object: its fields, these times polynomials, and warped Gaussians."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.field import chunks
from splatanim.field.neural_surface import Box, anchored, box_of, surface_of

if TYPE_CHECKING:
    from torch import Tensor, dtype

    from splatanim.field.neural_model import FieldModel

_CHUNK = 2048  # rows at a time, so that what attention makes of them stays in the cache
_POOL = 20_000  # voxels that centres are chosen from


@dataclass(frozen=True)
class Encoding:
    """A network that has seen one object: its handle latents, and where the object lies."""

    network: FieldModel
    latents: Tensor
    box: Box

    @property
    def dtype(self) -> dtype:
        """The precision that the network runs in."""
        return self.latents.dtype


@dataclass(frozen=True)
class Basis:
    """Raw functions of X: fields f_i times every monomial of up to ``degree``, and Gaussians

        phi_k(X) = exp(-|y(X) - y_k|^2 / (2 w_k^2)),  y(X) = (X, e(X)),

    e being the network's embedding. X is in the object's normalised coordinates throughout. Values come in the
    network's precision.
    """

    encoding: Encoding
    places: Float[np.ndarray, "k y"]
    widths: Float[np.ndarray, " k"]
    degree: int

    @property
    def size(self) -> int:
        return self.encoding.network.config.fields * len(exponents(self.degree)) + len(self.widths)

    def values(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n r"]:
        position = self.encoding.box.normalise(points).astype(self.places.dtype)
        out = np.empty((len(points), self.size), self.places.dtype)
        for rows in chunks(len(points), _CHUNK):
            self._fill(position[rows], out[rows])
        return out

    def combined(
        self, points: Float[np.ndarray, "n 3"], coefficients: Float64[np.ndarray, "r m"]
    ) -> Float64[np.ndarray, "n m"]:
        """``values(points) @ coefficients``, the raw functions of a chunk at a time."""
        out = np.empty((len(points), coefficients.shape[1]))
        for rows in chunks(len(points), _CHUNK):
            out[rows] = self.values(points[rows]) @ coefficients
        return out

    def _fill(self, position: np.ndarray, out: np.ndarray) -> None:
        fields, y, _ = query(self.encoding, position)
        width = fields.shape[1]
        for number, power in enumerate(exponents(self.degree)):
            factor = monomial(position, power)[:, None]
            np.multiply(fields, factor, out=out[:, number * width : (number + 1) * width])
        out[:, self.size - len(self.widths) :] = self._gaussians(y)

    def _gaussians(self, y: np.ndarray) -> np.ndarray:
        squared = (y**2).sum(1)[:, None] + (self.places**2).sum(1)[None, :] - 2.0 * (y @ self.places.T)
        exponent = np.maximum(squared, 0.0) * (-0.5 / self.widths**2)
        # Below e^-80 zero is exact enough, and products of smaller numbers are denormal: very slow.
        return np.where(exponent > -80.0, np.exp(np.maximum(exponent, -80.0)), 0.0)


def exponents(degree: int) -> list[tuple[int, ...]]:
    """Exponents of the monomials in three variables up to a degree, the constant first."""
    powers = itertools.product(range(degree + 1), repeat=3)
    return sorted((p for p in powers if sum(p) <= degree), key=lambda p: (sum(p), [-e for e in p]))


def monomial(position: Float[np.ndarray, "n 3"], power: tuple[int, ...]) -> Float[np.ndarray, " n"]:
    product = np.ones(len(position), position.dtype)
    for axis, exponent in enumerate(power):
        for _ in range(exponent):
            product = product * position[:, axis]
    return product


def encode(network: FieldModel, domain: Domain, seed: int = 0) -> Encoding:
    """Show an object's surface to a network, in the network's precision."""
    import torch

    config, rng = network.config, np.random.default_rng(seed)
    # In cells from the object's own corner, so that what the network sees does not depend on where the object lies.
    own = Domain(domain.cells - domain.cells.min(axis=0), np.zeros(3), 1.0)
    seen = anchored(surface_of(own), rng, config.surface_points, 0 if config.michelangelo else config.latents)
    precision = next(network.parameters()).dtype
    with torch.no_grad():
        shown = box_of(own).normalise(seen.points), seen.normals
        points, normals = (torch.from_numpy(a).to(precision) for a in shown)
        latents = network.encode(points[None], normals[None])
    return Encoding(network, latents, box_of(domain))


def basis_of(network: FieldModel, domain: Domain, gaussians: int, degree: int = 0, seed: int = 0) -> Basis:
    """A network's raw functions for a connected domain, Gaussians at farthest voxels.

    Widths are in units of the mean distance to the nearest centre.
    """
    from scipy.spatial import cKDTree

    from splatanim.sampling.surface import farthest_points

    encoding = encode(network, domain, seed)
    points = domain.centres
    rng = np.random.default_rng(seed)
    rows = np.arange(len(points))
    if len(points) > _POOL:
        rows = np.sort(rng.choice(len(points), _POOL, replace=False))
    pool = points[rows]
    # Chosen by cells: ties are then broken alike wherever the object lies.
    centres = pool[farthest_points(domain.cells[rows].astype(np.float64), min(gaussians, len(pool)))]
    _, y, log_width = query(encoding, encoding.box.normalise(centres))
    if not len(centres):
        return Basis(encoding, y, np.empty(0, y.dtype), degree)
    # At least what it is when every voxel is a centre: the mean distance of a voxel's points from its middle.
    unit = max(float(cKDTree(centres).query(pool)[0].mean()), 0.48 * domain.spacing) / encoding.box.half
    return Basis(encoding, y, (unit * np.exp(log_width)).astype(y.dtype), degree)


def query(encoding: Encoding, position: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fields (n, f), places y (n, 3 + e) and log widths (n,) at normalised positions, in the network's precision."""
    import torch

    decoder = encoding.network.decoder
    with torch.no_grad():
        at = torch.from_numpy(position).to(encoding.dtype)
        hidden = decoder.features(encoding.latents, at[None])[0]
        fields = decoder.out(hidden).numpy()
        log_widths = decoder.log_widths(hidden).numpy()
        if decoder.warp is None:
            return fields, at.numpy(), log_widths
        return fields, torch.cat([at, decoder.warp(hidden)], dim=1).numpy(), log_widths
