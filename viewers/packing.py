"""Splats as the browser takes them: 32 bytes each, packed once a frame into one array.

viser's layout of a splat, as eight 32-bit words: the centre as three float32; one word for its renderer; the upper
triangle of the covariance (xx, xy, xz, yy, yz, zz) as six float16; red, green, blue and opacity as four bytes.

float16 ends at 65504 below and keeps its eleven bits only above 6e-5, but the variances of a capture one metre long
are 1e-4 to 1e-9 m^2. So everything is sent in a unit of ``1 / Packer.unit`` metres and the node in the browser scaled
back: the largest variance at rest lands at 1000, with room for a stretch of eight, and splats a thousand times smaller
than the largest still keep all bits.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, UInt32

from viewers.moving import Cloud

_LARGEST = 1000.0  # where the largest variance at rest lands in float16
_HALF_LIMIT = 60000.0  # float16 ends at 65504
_UPPER = np.array([0, 1, 2, 4, 5, 8])  # of a 3 x 3 matrix in rows


class Packer:
    """Packs the states of one cloud, always of the same number of splats; ``unit`` is how many units a metre has.

    Colours and opacities are converted again only where other arrays come than the last time: those of one body
    stay the same array while it moves.
    """

    def __init__(self, cloud: Cloud) -> None:
        variances = np.abs(cloud.covariances.reshape(-1, 9)[:, [0, 4, 8]])
        largest = float(np.nan_to_num(variances, posinf=0.0).max(initial=0.0))
        self.unit = float(np.sqrt(_LARGEST / largest)) if largest > 0 else 1.0
        self._buffer = np.zeros((len(cloud.means), 8), np.uint32)
        self._upper = np.empty((len(cloud.means), 6), np.float32)
        self._half = np.empty((len(cloud.means), 6), np.float16)
        self._coloured: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self._buffer)

    def pack(self, cloud: Cloud) -> UInt32[np.ndarray, "n 8"]:
        """The words of ``cloud``'s splats; the same array at every call, overwritten by the next one."""
        words = self._buffer
        np.multiply(cloud.means, np.float32(self.unit), out=words[:, :3].view(np.float32))
        np.take(cloud.covariances.reshape(-1, 9), _UPPER, axis=1, out=self._upper)
        np.multiply(self._upper, np.float32(self.unit**2), out=self._upper)
        np.clip(self._upper, -_HALF_LIMIT, _HALF_LIMIT, out=self._upper)
        self._half[...] = self._upper
        words[:, 4:7] = self._half.view(np.uint32)
        if self._coloured is None or self._coloured[0] is not cloud.rgbs or self._coloured[1] is not cloud.opacities:
            words[:, 7] = colour_words(cloud.rgbs, cloud.opacities)
            self._coloured = (cloud.rgbs, cloud.opacities)
        return words


def colour_words(rgbs: Float32[np.ndarray, "n 3"], opacities: Float32[np.ndarray, " n"]) -> UInt32[np.ndarray, " n"]:
    """Colours and opacities of 0 to 1 as bytes red, green, blue, opacity in one little-endian word."""
    rgba = np.concatenate([rgbs, opacities[:, None]], axis=1)
    return np.round(np.clip(np.nan_to_num(rgba), 0.0, 1.0) * 255.0).astype(np.uint8).view("<u4")[:, 0]
