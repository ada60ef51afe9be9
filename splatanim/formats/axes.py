"""Axes of splat files: RDF (x right, y down, z forward: .ply and its relatives) and RUB (y up, z back: SPZ).

The two differ by half a turn about x, which changes the sign of y and z, of the quaternion's y and z, and of every
harmonic that is odd in (y, z) together. The same map leads back.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32

#: The map itself.
HALF_TURN = np.diag([1.0, -1.0, -1.0])
#: Signs of the 16 harmonics under the half turn, in 3DGS order: 1, y, z, x, xy, yz, 3zz-1, xz, xx-yy, ...
HALF_TURN_SH = np.array([1, -1, -1, 1, -1, 1, 1, -1, 1, -1, 1, -1, -1, 1, -1, 1], np.float32)


def half_turn(
    means: Float[np.ndarray, "n 3"], quaternions: Float32[np.ndarray, "n 4"], sh: Float32[np.ndarray, "n k 3"]
) -> tuple[Float[np.ndarray, "n 3"], Float32[np.ndarray, "n 4"], Float32[np.ndarray, "n k 3"]]:
    """Means, wxyz quaternions and harmonics after half a turn about x: from RUB to RDF, or back."""
    return (
        means * np.array([1, -1, -1], means.dtype),
        quaternions * np.array([1, 1, -1, -1], np.float32),
        sh * HALF_TURN_SH[: sh.shape[1], None],
    )
