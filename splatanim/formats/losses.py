"""What a smaller format cannot hold, said or refused."""

from __future__ import annotations

import os

import numpy as np
from jaxtyping import Float64

from splatanim.data import Splats
from splatanim.errors import InputError

#: Positions may be rounded to this share of the scene's extent before they are refused.
_TOLERANCE = 1e-3
_NORMALS = {"nx", "ny", "nz"}


def near_positions(path: str | os.PathLike[str], splats: Splats, step: float) -> Float64[np.ndarray, "n 3"]:
    """Positions in file coordinates, for a format that rounds them to ``step`` of the largest coordinate.

    Raises InputError where that would tear the scene, because it lies far from the origin.
    """
    places = splats.means.astype(np.float64) + splats.offset
    extent = float(np.max(np.subtract(*np.quantile(places, [0.95, 0.05], axis=0)))) if len(places) > 1 else 0.0
    farthest = float(np.abs(places).max())
    if extent > 0 and np.any(splats.offset) and farthest * step > _TOLERANCE * extent:
        where = ",".join(f"{-v:g}" for v in splats.offset)
        raise InputError(
            f"{path}: the scene is {extent:.3g} wide and up to {farthest:.3g} from the origin, which this format would "
            f"round to steps of {farthest * step:.2g}. Write .ply, or move it first with --translate {where}."
        )
    return places


def said_losses(splats: Splats, format: str, *, harmonics: int = 3) -> tuple[str, ...]:
    """Sentences about view-dependent colour beyond a degree, and about further columns, that a format leaves out."""
    notes = []
    if splats.sh_degree > harmonics:
        notes.append(
            f"{format} holds no view-dependent colour: SH degree {splats.sh_degree} became {harmonics}."
            if harmonics == 0
            else f"{format} holds SH up to degree {harmonics}, of {splats.sh_degree}."
        )
    extras = sorted(set(splats.extras) - _NORMALS)
    if extras:
        notes.append(f"{format} holds no further columns: {', '.join(extras)} left out.")
    return tuple(notes)
