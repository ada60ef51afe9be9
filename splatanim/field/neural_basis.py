"""What a network offers for one connected object: its fields, these times polynomials, and warped Gaussians."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.field.neural_surface import Box, anchored, box_of, surface_of

if TYPE_CHECKING:
    from torch import Tensor

    from splatanim.field.neural_model import FieldModel

_CHUNK = 2048  # rows at a time, so that what attention makes of them stays in the cache
_POOL = 20_000  # voxels that centres are chosen from


@dataclass(frozen=True)
class Encoding:
    """A network (float64) that has seen one object: its handle latents, and where the object lies."""

    network: FieldModel
    latents: Tensor
    box: Box


@dataclass(frozen=True)
class Basis:
    """Raw functions of X: fields f_i times every monomial of up to ``degree``, and Gaussians

        phi_k(X) = exp(-|y(X) - y_k|^2 / (2 w_k^2)),  y(X) = (X, e(X)),

    e being the network's embedding. X is in the object's normalised coordinates throughout.
    """

    encoding: Encoding
    places: Float64[np.ndarray, "k y"]
    widths: Float64[np.ndarray, " k"]
    degree: int

    def values(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n r"]:
        chunks = [self._values(np.asarray(points[rows], np.float64)) for rows in chunks_of(len(points))]
        return np.concatenate(chunks) if chunks else np.empty((0, self.size))

    @property
    def size(self) -> int:
        return self.encoding.network.config.fields * len(exponents(self.degree)) + len(self.widths)

    def _values(self, points: np.ndarray) -> np.ndarray:
        position = self.encoding.box.normalise(points)
        fields, y, _ = query(self.encoding, position)
        products = [fields * monomial(position, power)[:, None] for power in exponents(self.degree)]
        return np.concatenate([*products, self._gaussians(y)], axis=1)

    def _gaussians(self, y: np.ndarray) -> np.ndarray:
        squared = (y**2).sum(1)[:, None] + (self.places**2).sum(1)[None, :] - 2.0 * (y @ self.places.T)
        exponent = np.maximum(squared, 0.0) * (-0.5 / self.widths**2)
        # Below e^-80 zero is exact enough, and products of smaller numbers are denormal: very slow.
        return np.where(exponent > -80.0, np.exp(np.maximum(exponent, -80.0)), 0.0)

    def gradients(
        self, points: Float[np.ndarray, "n 3"], coefficients: Float64[np.ndarray, "r m"]
    ) -> Float64[np.ndarray, "n m 3"]:
        """d(values @ coefficients)/dX, exactly: forward mode through the network, chain rule through the rest."""
        out = np.empty((len(points), coefficients.shape[1], 3))
        for rows in chunks_of(len(points)):
            position = self.encoding.box.normalise(points[rows])
            out[rows] = self._gradients(position, coefficients) / self.encoding.box.half
        return out

    def _gradients(self, position: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        fields, slopes, y, y_slopes = slopes_of(self.encoding, position)
        total = np.zeros((len(position), coefficients.shape[1], 3))
        for number, power in enumerate(exponents(self.degree)):
            c = coefficients[number * fields.shape[1] : (number + 1) * fields.shape[1]]
            factor, combined = monomial(position, power)[:, None], fields @ c
            for axis in range(3):
                total[:, :, axis] += factor * (slopes[:, :, axis] @ c)
                if power[axis]:
                    lower = tuple(p - (a == axis) for a, p in enumerate(power))
                    total[:, :, axis] += power[axis] * monomial(position, lower)[:, None] * combined
        start = self.size - len(self.widths)
        c = coefficients[start:] / self.widths[:, None] ** 2
        phi = self._gaussians(y)
        pulled = phi @ c
        for e in range(y.shape[1]):
            # d phi_k / d y_e = phi_k (y_ke - y_e) / w_k^2, then y's own derivative.
            by_place = phi @ (self.places[:, [e]] * c) - y[:, [e]] * pulled
            if e < 3:
                total[:, :, e] += by_place
            else:
                total += by_place[:, :, None] * y_slopes[:, e - 3, None, :]
        return total


def exponents(degree: int) -> list[tuple[int, ...]]:
    """Exponents of the monomials in three variables up to a degree, the constant first."""
    powers = itertools.product(range(degree + 1), repeat=3)
    return sorted((p for p in powers if sum(p) <= degree), key=lambda p: (sum(p), [-e for e in p]))


def monomial(position: Float64[np.ndarray, "n 3"], power: tuple[int, ...]) -> Float64[np.ndarray, " n"]:
    product = np.ones(len(position))
    for axis, exponent in enumerate(power):
        for _ in range(exponent):
            product = product * position[:, axis]
    return product


def encode(network: FieldModel, domain: Domain, seed: int = 0) -> Encoding:
    """Show an object's surface to a network."""
    import torch

    config, box = network.config, box_of(domain)
    rng = np.random.default_rng(seed)
    seen = anchored(surface_of(domain), rng, config.surface_points, 0 if config.michelangelo else config.latents)
    network = network.double()
    with torch.no_grad():
        points, normals = torch.from_numpy(box.normalise(seen.points)), torch.from_numpy(seen.normals)
        latents = network.encode(points[None], normals[None])
    return Encoding(network, latents, box)


def basis_of(network: FieldModel, domain: Domain, gaussians: int, degree: int = 0, seed: int = 0) -> Basis:
    """A network's raw functions for a connected domain, Gaussians at farthest voxels.

    Widths are in units of the mean distance to the nearest centre.
    """
    from scipy.spatial import cKDTree

    from splatanim.sampling.surface import farthest_points

    encoding = encode(network, domain, seed)
    points = domain.centres
    rng = np.random.default_rng(seed)
    pool = points if len(points) <= _POOL else points[np.sort(rng.choice(len(points), _POOL, replace=False))]
    centres = pool[farthest_points(pool, min(gaussians, len(pool)))]
    _, y, log_width = query(encoding, encoding.box.normalise(centres))
    if not len(centres):
        return Basis(encoding, y, np.empty(0), degree)
    # At least what it is when every voxel is a centre: the mean distance of a voxel's points from its middle.
    unit = max(float(cKDTree(centres).query(pool)[0].mean()), 0.48 * domain.spacing) / encoding.box.half
    return Basis(encoding, y, unit * np.exp(log_width), degree)


def query(encoding: Encoding, position: Float64[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fields (n, f), places y (n, 3 + e) and log widths (n,) at normalised positions."""
    import torch

    decoder = encoding.network.decoder
    with torch.no_grad():
        hidden = decoder.features(encoding.latents, torch.from_numpy(position)[None])[0]
        fields = decoder.out(hidden).numpy()
        log_widths = decoder.log_widths(hidden).numpy()
        if decoder.warp is None:
            return fields, position, log_widths
        return fields, np.concatenate([position, decoder.warp(hidden).numpy()], axis=1), log_widths


def slopes_of(
    encoding: Encoding, position: Float64[np.ndarray, "n 3"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Fields (n, f) and their slopes (n, f, 3), places (n, 3 + e) and the embedding's slopes (n, e, 3)."""
    import torch

    decoder = encoding.network.decoder
    x = torch.from_numpy(position)[None]

    def along(tangent: Tensor) -> Any:
        return torch.func.jvp(lambda at: decoder.features(encoding.latents, at), (x,), (tangent,))

    with torch.no_grad():
        directions = torch.eye(3, dtype=x.dtype)[:, None, None].expand(3, *x.shape)
        hidden, slopes = torch.func.vmap(along, out_dims=(0, 0))(directions)
        hidden, slopes = hidden[0, 0], slopes[:, 0]
        fields = decoder.out(hidden).numpy()
        bias = decoder.out.bias
        assert isinstance(bias, torch.Tensor)
        by_axis = (decoder.out(slopes) - bias).movedim(0, -1).numpy()  # the last layer is affine
        if decoder.warp is None:
            return fields, by_axis, position, np.empty((len(position), 0, 3))
        y = np.concatenate([position, decoder.warp(hidden).numpy()], axis=1)
        return fields, by_axis, y, decoder.warp(slopes).movedim(0, -1).numpy()


def chunks_of(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK))
