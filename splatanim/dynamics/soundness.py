"""Whether a model can be simulated at all: said before the first step, not after a run that went nowhere."""

from __future__ import annotations

import numpy as np

from splatanim.dynamics.reduced import ReducedModel
from splatanim.errors import InputError

_FLAT = 1e-5  # of the widest extent of the cubature points' masses, below which they have no width


def check_cubature(name: str, model: ReducedModel) -> None:
    """Raise :class:`InputError` for a body whose cubature points do not span three dimensions.

    Then its mass matrix is singular for some rotation or stretch: that motion would cost nothing, and any force would
    move it without bound.
    """
    away = model.rest - model.masses @ model.rest / model.mass
    widths = np.linalg.svd(np.sqrt(model.masses)[:, None] * away, compute_uv=False)
    rank = int((widths > _FLAT * widths.max()).sum()) if widths.max() > 0 else 0
    if rank < 3:
        where = ("at one point", "on a line", "in a plane")[rank]
        raise InputError(
            f"Body {name!r}: its {len(model.rest)} cubature points lie {where}, so that its mass matrix is singular. "
            "Sample at least 4 points that span its volume."
        )
