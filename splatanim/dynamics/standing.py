"""Stiffness that lets a captured object stand as it was captured.

A capture shows its object at rest under its own weight. A uniform soft material would contradict that wherever a thin
part carries a heavy one: a waist, a stalk, a guitar's neck. So the points that the weight strains most are stiffened
until none is strained by more than a limit, as in fully stressed design: E_q is multiplied by |eps_q| / limit, again
and again, from linear statics with the foot held. What carries little stays as soft as the material is.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.reduced import ReducedModel

_FOOT = 0.08  # of the height, counted from below, that stands on the ground
_HOLD = 1e4  # stiffness of the foot's springs, as a frequency squared in units of g / size
_MOST = 1e3  # how many times stiffer a point may become


def standing_stiffness(
    model: ReducedModel,
    up: Float64[np.ndarray, " 3"],
    *,
    gravity: float = 9.81,
    strain: float = 0.005,
    rounds: int = 8,
) -> Float64[np.ndarray, " q"]:
    """Factors (q,), at least 1, on the stiffness of the cubature points, with which the object carries its weight
    without straining any point by more than about ``strain`` (Frobenius norm of the linear strain)."""
    from splatanim.dynamics.dilation import AveragedElasticity

    up = np.asarray(up, np.float64) / np.linalg.norm(up)
    height = model.rest @ up
    foot = height <= height.min() + _FOOT * np.ptp(height)
    springs = np.where(foot, _HOLD * gravity / model.size * model.masses, 0.0)
    hold = np.kron(np.eye(3), model.shape.T @ (springs[:, None] * model.shape))
    load = -gravity * np.kron(up, model.shape.T @ model.masses)
    rest, unheld = np.zeros(model.dof), np.zeros((3, model.held_shape.shape[1]))
    factor = np.ones(len(model.rest))
    for _ in range(rounds):
        hessian = AveragedElasticity(model, factor).hessian(rest) + hold
        hessian[np.diag_indices_from(hessian)] += 1e-9 * np.trace(hessian) / len(hessian)
        y = np.linalg.solve(hessian, load)
        f = model.deformation_gradients(y, unheld)
        strained = np.linalg.norm(0.5 * (f + f.transpose(0, 2, 1)) - np.eye(3), axis=(1, 2))
        if strained.max() <= strain:
            break
        factor = np.clip(factor * np.maximum(strained / strain, 1.0), 1.0, _MOST)
    return factor
