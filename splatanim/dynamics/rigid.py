"""Free rigid bodies as stiff affine ones (Lan et al. 2022, *Affine Body Dynamics*), beside deformables in one solve.

A rigid body has one handle, the constant: twelve coordinates, the affine map x = X + Z [X; 1]. What keeps that a
rotation is the energy V kappa |A^T A - I|^2 with A = I + Z[:, :3], so stiff that the shape is kept to 1e-4. There are
no constraints to be met and no rotations to be parametrised: barrier, friction and planes act as on any body.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.binding import Handles
from splatanim.data import Cubature, Material
from splatanim.dynamics.newton import Term
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.terms import Matrix, Step, Vector
from splatanim.errors import InputError

_STRAIN = 2e-4  # under an acceleration of a hundred g


@dataclass(frozen=True)
class NoField:
    """The skinning field of a rigid body: none, so that the constant handle is all there is."""

    kind: str = "rigid"
    handles: int = 0

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        return np.zeros((len(points), 0))

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return np.zeros((len(points), 0, 3))

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        return self.weights(points), self.gradients(points)


class Orthogonality:
    """V kappa |A^T A - I|^2 [J] of a body with the constant handle alone; ``kappa`` in Pa.

    It is the material of St. Venant and Kirchhoff with Lame constants 4 kappa and 0.
    """

    elastic = True
    sharp = True  # twelve coordinates cost nothing, and a spinning body bends the valley of its rotations strongly

    def __init__(self, model: ReducedModel, kappa: float) -> None:
        if model.handles.free != 1 or model.handles.regions:
            raise InputError("A rigid body has the constant handle alone, and nothing of it is pinned.")
        self._scale = kappa * float(model.volumes.sum())
        self._slope = model.slope[:3]  # the same at every point: rows c, columns k

    def begin_step(self, step: Step) -> None:
        """Nothing of it depends on time."""

    def _linear(self, y: Vector) -> np.ndarray:
        return np.eye(3) + y.reshape(3, -1) @ self._slope.T

    def energy(self, y: Vector) -> float:
        a = self._linear(y)
        return self._scale * float(np.sum((a.T @ a - np.eye(3)) ** 2))

    def gradient(self, y: Vector) -> Vector:
        a = self._linear(y)
        return (4.0 * self._scale * (a @ (a.T @ a - np.eye(3))) @ self._slope).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        """d/dA of 4 V kappa A (A^T A - I): (dA) E + A (dA^T A + A^T dA), with E = A^T A - I dropped where negative."""
        a = self._linear(y)
        strain = a.T @ a - np.eye(3)
        if psd:
            values, vectors = np.linalg.eigh(strain)
            strain = (vectors * np.maximum(values, 0.0)) @ vectors.T
        eye = np.eye(3)
        outer = np.einsum("rs,cd->rcsd", eye, strain) + np.einsum("rd,sc->rcsd", a, a)
        outer += np.einsum("re,se,cd->rcsd", a, a, eye)
        k = self._slope.shape[1]
        full = np.einsum("rcsd,ck,dl->rksl", outer, self._slope, self._slope)
        return 4.0 * self._scale * full.reshape(3 * k, 3 * k)


def rigid_model(
    cubature: Cubature, material: Material, *, gravity: float = 9.81
) -> tuple[ReducedModel, tuple[Term, ...]]:
    """The model of a free rigid body, and its terms: ``Actor(name, model, (*terms, ...))``.

    Of the material, density and friction count. The body keeps its cubature's mass, centre and moments, on eight
    points. ``gravity`` [m/s^2] sets how stiff it has to be.
    """
    model = reduce(_eight_points(cubature), Handles(NoField()), material)
    return model, (Orthogonality(model, stiffness(model, gravity)),)


def stiffness(model: ReducedModel, gravity: float = 9.81) -> float:
    """kappa [Pa] that keeps the strain under a hundred times the body's own weight below 2e-4."""
    return model.material.density * 100.0 * gravity * model.size / (8.0 * _STRAIN)


def _eight_points(cubature: Cubature) -> Cubature:
    """The corners of the box that has the cubature's volume, centre and second moments (2-point Gauss on each axis)."""
    volume = cubature.volumes.sum()
    centre = cubature.volumes @ cubature.points / volume
    away = cubature.points - centre
    second = (away * cubature.volumes[:, None]).T @ away / volume
    second += np.eye(3) * cubature.domain.spacing**2 / 12.0  # of a voxel itself, so that flat and thin ones turn too
    values, axes = np.linalg.eigh(second)
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
    points = centre + (corners * np.sqrt(values)) @ axes.T
    return Cubature(points, np.full(8, volume / 8), cubature.surface, cubature.domain, f"{cubature.method}; rigid")
