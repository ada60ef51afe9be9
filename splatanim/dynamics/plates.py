"""The distance to a finite plane: a plate whose upper face and sides are solid, in the plane's own frame.

Above it and beside it that is the distance to the nearest point of the plate, so that its edges are round to what
lies on them; inside it is minus the depth under the nearest face. It is continuous everywhere, and so are the
energies made of it. The plate has no underside: what has come from below passes through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64


@dataclass(frozen=True)
class Distances:
    """Signed distances (p,) [m], their gradients (p, 3), and their second derivatives (p, 3, 3) [1/m].

    (The second derivatives are zero but round the edges and corners.)
    """

    value: Float64[np.ndarray, " p"]
    normal: Float64[np.ndarray, "p 3"]
    bend: Float64[np.ndarray, "p 3 3"]


def plate_distance(local: Float64[np.ndarray, "p 3"], half_extents: tuple[float, float]) -> Distances:
    """Of points in the plane's frame (tangents, normal) from the plate under |x| <= a, |y| <= b, z <= 0."""
    beyond = np.concatenate([np.abs(local[:, :2]) - half_extents, local[:, 2:]], axis=1)  # over each face
    sign = np.concatenate([np.sign(local[:, :2]), np.ones((len(local), 1))], axis=1)
    outside = np.maximum(beyond, 0.0)
    away = np.sqrt(np.einsum("pc,pc->p", outside, outside))
    within = away == 0.0
    nearest = beyond.argmax(axis=1)
    face = np.eye(3)[nearest] * sign
    safe = np.maximum(away, 1e-300)[:, None]
    normal = np.where(within[:, None], face, sign * outside / safe)
    active = np.where(within[:, None], 0.0, outside > 0.0)  # directions round which it bends
    bend = (active[:, :, None] * np.eye(3) - normal[:, :, None] * normal[:, None, :]) / safe[:, :, None]
    bend = np.where(within[:, None, None], 0.0, bend)
    return Distances(np.where(within, beyond.max(axis=1), away), normal, bend)


def from_below(
    local: Float64[np.ndarray, "p 3"],
    half_extents: tuple[float, float],
    thickness: float,
    margin: float,
    before: Bool[np.ndarray, " p"] | None,
) -> Bool[np.ndarray, " p"]:
    """Which points are under the plate or on their way there, so that it leaves them alone.

    A point gets there beside the plate, or by lying deeper than ``thickness`` in it, and stays until it is above;
    ``before`` says which points were there a step ago.
    """
    beside = (np.abs(local[:, :2]) > half_extents).any(axis=1)
    under = (local[:, 2] < -thickness) | (beside & (local[:, 2] < -margin))
    return under if before is None else under | (before & (local[:, 2] < 0.0))
