"""The reduced model: mass-orthonormal coordinates of an object's free handles on its cubature (III-A, III-D).

Coordinates. With S_k(X) the 4 h shape functions w_h [X; 1], the map is x = X + Z S(X), Z (3, 4h). Neighbouring
shape functions are nearly dependent (a low mode times 1 looks like the constant times X), so the solver works in
y (3, K) with Z = y T^T, where T orthonormalises the S_k in the mass inner product and cuts directions that carry
nothing. Then sum_q m_q N_q N_q^T = I: the reduced mass matrix is the identity, |y| is a mass-weighted displacement,
and Newton's systems are as well conditioned as they can be. F stays linear in y, and the span is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.binding import Handles, shape_functions
from splatanim.data import Cubature, Domain, Material
from splatanim.errors import InputError

# Relative eigenvalue of the Gram matrix below which a direction is numerically absent. Scaled up to unit mass, such
# directions amplify what interpolated fields and their gradients disagree by: some come out far too soft (a cow's
# lowest mode 24 times), some 1e7 times stiffer than inertia, which costs Newton iterations. (At 1e-6 a cantilever of
# 16 handles sags 7 % less; at 4e-7, no less.)
_RANK_CUT = 2e-7


@dataclass(frozen=True)
class ReducedModel:
    """One deformable object, ready to be simulated.

    ``shape`` (Q, K) and ``slope`` (3Q, K; rows point-major, then axis) are the free shape functions and their
    gradients at the cubature points; ``contact_*`` the same at the contact points; ``held_*`` those of the
    prescribed handles. ``to_handles`` (4h, K) gives Z = y to_handles^T. ``size`` is the object's longest side [m],
    ``domain`` its inside.
    """

    handles: Handles
    material: Material
    rest: Float64[np.ndarray, "q 3"]
    volumes: Float64[np.ndarray, " q"]
    masses: Float64[np.ndarray, " q"]
    shape: Float64[np.ndarray, "q k"]
    slope: Float64[np.ndarray, "q3 k"]
    held_shape: Float64[np.ndarray, "q p"]
    held_slope: Float64[np.ndarray, "q3 p"]
    contact_rest: Float64[np.ndarray, "s 3"]
    contact_shape: Float64[np.ndarray, "s k"]
    contact_held: Float64[np.ndarray, "s p"]
    to_handles: Float64[np.ndarray, "h4 k"]
    size: float
    domain: Domain

    @property
    def dof(self) -> int:
        """3 K, the number of reduced coordinates."""
        return 3 * self.shape.shape[1]

    @property
    def mass(self) -> float:
        return float(self.masses.sum())

    def held_coordinates(self, time: float) -> Float64[np.ndarray, "3 p"]:
        """The prescribed handles' Z at ``time``, as (3, 4 regions)."""
        return self.handles.prescribed(time).transpose(1, 0, 2).reshape(3, -1)

    def positions(self, y: np.ndarray, held: np.ndarray) -> Float64[np.ndarray, "q 3"]:
        return self.rest + self.shape @ y.reshape(3, -1).T + self.held_shape @ held.T

    def contact_positions(self, y: np.ndarray, held: np.ndarray) -> Float64[np.ndarray, "s 3"]:
        return self.contact_rest + self.contact_shape @ y.reshape(3, -1).T + self.contact_held @ held.T

    def shape_at(
        self, points: Float64[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n k"], Float64[np.ndarray, "n p"]]:
        """The free and the prescribed shape functions at any rest points, as ``contact_shape``, ``contact_held``."""
        free, _, held, _ = _shapes(points, self.handles)
        return free @ self.to_handles, held

    def deformation_gradients(self, y: np.ndarray, held: np.ndarray) -> Float64[np.ndarray, "q 3 3"]:
        """F at the cubature points: dx_r/dX_c = delta_rc + sum_k Z_rk G_kc."""
        f = (self.slope @ y.reshape(3, -1).T + self.held_slope @ held.T).reshape(-1, 3, 3)
        return np.ascontiguousarray(f.transpose(0, 2, 1)) + np.eye(3)

    def all_handles(self, y: np.ndarray, held: np.ndarray) -> Float64[np.ndarray, "h 3 4"]:
        """Affine displacements Z of every handle, free ones first: what poses splats, vertices and points."""
        z = np.concatenate([y.reshape(3, -1) @ self.to_handles.T, held], axis=1)
        return z.reshape(3, -1, 4).transpose(1, 0, 2)


def reduce(cubature: Cubature, handles: Handles, material: Material) -> ReducedModel:
    """Build the reduced model of an object from its cubature, handles and material.

    Raises :class:`InputError` when nothing is left to move (everything pinned).
    """
    masses = cubature.volumes * material.density
    shape, slope, held_shape, held_slope = _shapes(cubature.points, handles)
    gram = shape.T @ (masses[:, None] * shape)
    if np.diagonal(gram).max() <= 1e-12 * masses.sum():
        raise InputError("The pinned region covers the whole object: nothing is left to move. Use a smaller --pin.")
    # w X and w have different units: columns are made comparable first, so that the cut does not depend on the size
    norms = np.sqrt(np.maximum(np.diagonal(gram), 1e-24 * np.diagonal(gram).max()))
    values, vectors = np.linalg.eigh(gram / np.outer(norms, norms))
    keep = values > _RANK_CUT * values[-1]
    transform = vectors[:, keep] / np.sqrt(values[keep]) / norms[:, None]
    contact_shape, _, contact_held, _ = _shapes(cubature.surface, handles)
    extent = cubature.domain.centres
    size = float((extent.max(axis=0) - extent.min(axis=0)).max() + cubature.domain.spacing)
    return ReducedModel(
        handles,
        material,
        cubature.points,
        cubature.volumes,
        masses,
        shape @ transform,
        _rows(slope) @ transform,
        held_shape,
        _rows(held_slope),
        cubature.surface,
        contact_shape @ transform,
        contact_held,
        transform,
        size,
        cubature.domain,
    )


def _shapes(points: np.ndarray, handles: Handles) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    shape, slope = shape_functions(points, *handles.evaluate(points))
    free = 4 * handles.free
    return shape[:, :free], slope[:, :free], shape[:, free:], slope[:, free:]


def _rows(slope: np.ndarray) -> np.ndarray:
    """(Q, K, 3) -> (3Q, K), rows point-major, then axis."""
    n, k, _ = slope.shape
    return np.ascontiguousarray(slope.transpose(0, 2, 1).reshape(3 * n, k))
