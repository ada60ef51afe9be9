"""Skinning fields: m smooth scalar functions on an object, the weights of the skinning handles (eq. 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float64


@runtime_checkable
class SkinningField(Protocol):
    """m skinning weight functions W_i : R^3 -> R, bound to one object.

    Every constant (normalisation, orthonormalisation, Ritz rotation) is fixed when the field is bound on the
    object's domain and reused for every query, so a weight does not depend on which points it is asked for with.
    The constant function is *not* among the m; the reduced model always appends it, so that affine motion is exact.
    """

    @property
    def kind(self) -> str:
        """The name that reports and ``--field`` use."""
        ...

    @property
    def handles(self) -> int:
        """m, without the constant handle."""
        ...

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        """W(X) at any points of the simulator's rest frame [m]."""
        ...

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        """dW_i/dX at any points [1/m]; exact derivatives of :meth:`weights`."""
        ...

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        """:meth:`weights` and :meth:`gradients` together, for about the price of the gradients."""
        ...


def chunks(n: int, size: int) -> Iterator[slice]:
    """``n`` rows in slices of at most ``size``, so that what is made of them stays in the cache."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
