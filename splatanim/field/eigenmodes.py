"""Exact Laplacian eigenmodes of an object's voxels: the softest skinning field there is.

The lowest Neumann modes minimise the Dirichlet energy over all functions, so no other field has a lower mean Rayleigh
quotient on the same voxels. They are found by multigrid in time linear in the voxels (:mod:`.multigrid`) and evaluated
between voxels, and beyond the object, by splines that do not reach across gaps (:mod:`.grid`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field.grid import GridField, on_grid
from splatanim.field.multigrid import lowest_modes

_FULL = 1e-12  # of a mean eigenvalue: where rounding begins
_BINDING = 1e-3  # leaves about a ten-thousandth; Ritz on the spline's values adds more than that


def neumann_modes(
    domain: Domain, count: int, *, accuracy: float = _FULL
) -> tuple[Float64[np.ndarray, " c"], Float64[np.ndarray, "v c"]]:
    """The ``count`` lowest eigenvalues [1/m^2] and modes of the voxel Laplacian with Neumann borders (7-point stencil).

    Modes have mean square 1. The first is the constant; loose parts add further zeros. ``accuracy``: see
    :func:`splatanim.field.multigrid.lowest_modes`; without it they are exact to rounding.

    Raises :class:`InputError` when the object has too few voxels.
    """
    n = len(domain.cells)
    if n < count + 2:
        raise InputError(f"The object fills only {n} voxels, too few for {count} eigenmodes. Use fewer --handles.")
    values, modes = lowest_modes(domain, count, accuracy)
    return values / domain.spacing**2, modes * np.sqrt(n)


def bind_eigenmodes(domain: Domain, handles: int) -> GridField:
    """Bind the ``handles`` lowest non-constant modes of a domain; orthonormal where they are evaluated.

    Raises :class:`InputError` when the object has too few voxels.
    """
    return softest(domain, handles)[0]


def softest(domain: Domain, handles: int) -> tuple[GridField, Float64[np.ndarray, " m"]]:
    """As :func:`bind_eigenmodes`, and the modes' eigenvalues [1/m^2] before splines took their place."""
    values, modes = neumann_modes(domain, handles + 1, accuracy=_BINDING)
    return on_grid(modes[:, 1:], domain, "eigenmodes"), values[1:]
