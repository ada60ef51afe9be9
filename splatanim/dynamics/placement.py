"""Where an object stands in a world that several share: a similarity from its own coordinates, applied at rest.

Each object keeps its own frame (its file's axes, longest side 1), in which its field is bound; the solver sees all of
them in one world. Fields are functions of space, so a placed one asks its own at the point brought back.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Cubature, Domain
from splatanim.errors import InputError
from splatanim.field import SkinningField


@dataclass(frozen=True)
class Placement:
    """x_world = scale * rotation @ x_local + shift."""

    rotation: Float64[np.ndarray, "3 3"]
    shift: Float64[np.ndarray, " 3"]
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"Placement: the scale {self.scale} must be positive.")

    def to_world(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return self.scale * np.asarray(points, np.float64) @ self.rotation.T + self.shift

    def to_local(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return (np.asarray(points, np.float64) - self.shift) @ self.rotation / self.scale

    def local_handles(self, handles: Float64[np.ndarray, "... 3 4"]) -> Float64[np.ndarray, "... 3 4"]:
        """Affine displacements of the world's coordinates as those of the object's own.

        x + Z [x; 1] in the world is, brought back, x_l + R^T/s Z [s R x_l + shift; 1].
        """
        linear = handles[..., :3] @ (self.scale * self.rotation)
        offset = handles[..., :3] @ self.shift + handles[..., 3]
        return np.concatenate([self.rotation.T @ linear, (offset @ self.rotation)[..., None]], axis=-1) / self.scale


@dataclass(frozen=True)
class PlacedField:
    """A skinning field of an object's own coordinates, asked for at points of the world."""

    field: SkinningField
    placement: Placement

    @property
    def kind(self) -> str:
        return self.field.kind

    @property
    def handles(self) -> int:
        return self.field.handles

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        return self.field.weights(self.placement.to_local(points))

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return self.evaluate(points)[1]

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        """Weights and gradients in one pass."""
        weights, local = self.field.evaluate(self.placement.to_local(points))
        return weights, local @ self.placement.rotation.T / self.placement.scale


def place_cubature(cubature: Cubature, placement: Placement) -> Cubature:
    """Integration points, contact points and voxels in the world."""
    return dataclasses.replace(
        cubature,
        points=placement.to_world(cubature.points),
        volumes=cubature.volumes * placement.scale**3,
        surface=placement.to_world(cubature.surface),
        domain=place_domain(cubature.domain, placement),
    )


def place_domain(domain: Domain, placement: Placement) -> Domain:
    """The voxels along the world's axes; at right angles they are the same voxels, elsewhere those that are touched.

    Each is sampled at 2 x 2 x 2 points, so that turning leaves no holes.
    """
    spacing = placement.scale * domain.spacing
    turned = np.abs(placement.rotation)
    if np.allclose(turned, np.round(turned), atol=1e-9):
        offsets = np.zeros((1, 3))
    else:
        offsets = (np.stack(np.meshgrid(*[[-0.25, 0.25]] * 3, indexing="ij"), axis=-1) * domain.spacing).reshape(-1, 3)
    centres = domain.centres
    origin = placement.to_world(centres[:1])[0] - 0.5 * spacing
    points = np.concatenate([placement.to_world(centres + offset) for offset in offsets])
    cells = np.unique(np.floor((points - origin) / spacing + 1e-6).astype(np.int64), axis=0)
    return Domain(cells, origin, spacing)
