"""Covariances pushed forward by deformation gradients, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pushed(rest: np.ndarray, gradients: np.ndarray, out: np.ndarray) -> None:
    """``out`` (n, 3, 3) = F Sigma F^T for ``rest`` covariances (n, 3, 3) and ``gradients`` F (n, 3, 3)."""
    half = np.empty((3, 3))
    for i in range(len(rest)):
        for r in range(3):
            for c in range(3):
                half[r, c] = (
                    gradients[i, r, 0] * rest[i, 0, c]
                    + gradients[i, r, 1] * rest[i, 1, c]
                    + gradients[i, r, 2] * rest[i, 2, c]
                )
        for r in range(3):
            for c in range(r, 3):
                value = (
                    half[r, 0] * gradients[i, c, 0] + half[r, 1] * gradients[i, c, 1] + half[r, 2] * gradients[i, c, 2]
                )
                out[i, r, c] = value
                out[i, c, r] = value
