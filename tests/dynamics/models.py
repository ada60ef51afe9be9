"""Small reduced models, and the states and steps that the dynamics tests put them in."""

from __future__ import annotations

import functools

import numpy as np

from splatanim.binding import Handles
from splatanim.data import Cubature, Material
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.regions import Region
from splatanim.dynamics.terms import Elasticity, Step
from splatanim.field import SkinningField
from splatanim.field.eigenmodes import bind_eigenmodes
from splatanim.field.gaussians import bind_gaussians
from splatanim.sampling.cubature import spread
from tests.helpers import box_cubature

SOFT = Material("soft", 2.0e4, 0.3, 500.0)
G = 9.81


@functools.cache
def bound_field(cells: tuple[int, int, int], spacing: float, handles: int, kind: str = "gaussians") -> SkinningField:
    """A field on a box of voxels centred at the origin, bound once for all tests."""
    bind = {"gaussians": bind_gaussians, "eigenmodes": bind_eigenmodes}[kind]
    return bind(box_cubature(cells, spacing).domain, handles)


def box_model(
    cells: tuple[int, int, int] = (8, 6, 5),
    *,
    size: float = 1.0,
    handles: int = 4,
    material: Material = SOFT,
    regions: tuple[Region, ...] = (),
    kind: str = "gaussians",
    count: int | None = None,
) -> ReducedModel:
    """A box whose longest side is ``size`` [m], as a reduced model.

    Its cubature points are its voxels, or ``count`` points placed as for captures.
    """
    spacing = size / max(cells)
    cubature = box_cubature(cells, spacing)
    if count is not None:
        points, volumes = spread(cubature.domain, count)
        cubature = Cubature(points, volumes, cubature.surface, cubature.domain, cubature.method)
    return reduce(cubature, Handles(bound_field(cells, spacing, handles, kind), regions), material)


def rest_step(model: ReducedModel, h: float = 1 / 30, time: float = 0.0, **changes: np.ndarray) -> Step:
    """A step from rest at ``time``; coordinates and held handles can be replaced."""
    before, now, after = (model.held_coordinates(t) for t in (time - h, time, time + h))
    rest = np.zeros(model.dof)
    return Step(
        **{"time": time, "h": h, "y": rest, "y_before": rest, "held_next": after, "held": now, "held_before": before}
        | changes
    )


def coordinates(model: ReducedModel, displacement: np.ndarray) -> np.ndarray:
    """Reduced coordinates of a displacement of the cubature points (Q, 3), by mass-weighted projection."""
    return ((model.shape * model.masses[:, None]).T @ displacement).T.ravel()


def affine(model: ReducedModel, displacement: np.ndarray) -> np.ndarray:
    """Reduced coordinates of an affine displacement Z (3, 4)."""
    return coordinates(model, model.rest @ displacement[:, :3].T + displacement[:, 3])


def random_state(model: ReducedModel, strain: float = 0.3, seed: int = 0) -> np.ndarray:
    """Random coordinates, asymmetric, scaled so that the largest entry of F - I is ``strain``."""
    y = np.random.default_rng(seed).normal(size=model.dof)
    held = np.zeros((3, model.held_shape.shape[1]))
    return y * strain / np.abs(model.deformation_gradients(y, held) - np.eye(3)).max()


def elastic_hessian(model: ReducedModel) -> np.ndarray:
    """The stiffness matrix at rest, in mass-orthonormal coordinates: its eigenvalues are squared frequencies."""
    term = Elasticity(model)
    term.begin_step(rest_step(model))
    return term.hessian(np.zeros(model.dof), psd=False)


def end_pin(cubature_low: float, width: float, axis: int = 0) -> Region:
    """The half-space below ``cubature_low`` on an axis, held still, with a transition of ``width`` [m]."""
    high = [np.inf] * 3
    high[axis] = cubature_low
    return Region((-np.inf, -np.inf, -np.inf), tuple(high), width)


def centre_of_mass(model: ReducedModel, z: np.ndarray) -> np.ndarray:
    """The centre of mass of an unpinned model under handles (h, 3, 4)."""
    from splatanim.binding import shape_functions

    values, _ = shape_functions(model.rest, *model.handles.evaluate(model.rest))
    flat = z.transpose(1, 0, 2).reshape(3, -1)
    return model.masses @ (model.rest + values @ flat.T) / model.masses.sum()
