"""Columns as a file has them, to splats: what every reader does with them, whatever the format.

Rows that are not finite or have a zero quaternion are dropped and counted, infinite opacities become logits of
+-``LOGIT_LIMIT``, quaternions are normalised, and scenes far from the origin are recentred in float64 before they
become float32 (``Splats.offset``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, UInt8

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.base import COORDINATE_LIMIT, ReadResult

SH_C0 = 0.28209479177387814
#: What an infinite logit becomes: opacity 0.99995 or 0.00005, opaque or gone in 8 bits and still finite to work with.
LOGIT_LIMIT = 10.0
#: Positions are recentred where their median is this many times their extent: float32 then keeps under 5 digits.
FAR_OFF = 100.0

_CHUNK = 1 << 13


@dataclass
class Columns:
    """The columns as they stand in the file, K = SH coefficients, S = 3 scales (2 in 2DGS files).

    ``log_scales`` and ``opacity`` (logits) are raw; quaternions are wxyz of any length; ``extras`` are further columns.
    """

    xyz: Float64[np.ndarray, "n 3"]
    sh: Float32[np.ndarray, "n k 3"]
    opacity: Float32[np.ndarray, " n"]
    log_scales: Float32[np.ndarray, "n s"]
    rotation: Float32[np.ndarray, "n 4"]
    extras: dict[str, np.ndarray] = field(default_factory=dict)

    def select(self, rows: Bool[np.ndarray, " n"]) -> Columns:
        """The rows at a mask, extras included."""
        return Columns(
            self.xyz[rows],
            self.sh[rows],
            self.opacity[rows],
            self.log_scales[rows],
            self.rotation[rows],
            {name: column[rows] for name, column in self.extras.items()},
        )


def usable(path: Path, columns: Columns) -> tuple[Columns, dict[str, int]]:
    """The rows that are splats, and how many were dropped, by the first reason that holds.

    Raises InputError where none is left.
    """
    dropped, good = _faults(columns)
    if not good.any():
        counts = ", ".join(f"{key}: {count}" for key, count in dropped.items())
        raise InputError(
            f"{path}: none of its {len(columns.xyz)} splats is usable ({counts}). "
            "The training diverged or the file is damaged: export it again."
        )
    return (columns if good.all() else columns.select(good)), dropped


def finished(columns: Columns) -> tuple[Splats, list[str]]:
    """Usable columns as splats, with sentences about what had to be changed."""
    notes = []
    infinite = np.isinf(columns.opacity)
    opacity = columns.opacity
    if infinite.any():
        notes.append(f"{infinite.sum()} infinite opacities were set to logits of +-{LOGIT_LIMIT:g}.")
        opacity = np.nan_to_num(opacity, posinf=LOGIT_LIMIT, neginf=-LOGIT_LIMIT)
    means, offset = _recentre(columns.xyz, columns.log_scales)
    if offset != (0.0, 0.0, 0.0):
        notes.append(f"The scene lies far from the origin and was recentred by {offset}; outputs are moved back.")
    unit = _unit(columns.rotation)
    return Splats(means, unit, columns.log_scales, opacity, columns.sh, offset, columns.extras), notes


def cleaned(
    path: Path, columns: Columns, *, format: str, warnings: Iterable[str] = (), up: str | None = None
) -> ReadResult:
    """Columns of any format to what its reader returns; raises InputError where no row is usable."""
    total = len(columns.xyz)
    columns, dropped = usable(path, columns)
    splats, notes = finished(columns)
    return ReadResult(splats, format, total, dropped, (*warnings, *notes), up)


def logits_of_bytes(opacity: UInt8[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """8-bit opacities as logits; 0 and 255 stand for the middle of what rounds to them, so that all are finite."""
    share = np.clip(np.arange(256) / 255, 0.25 / 255, 1 - 0.25 / 255)
    return np.log(share / (1 - share)).astype(np.float32)[opacity]


def harmonics_of_colours(colours: Float[np.ndarray, "n 3"]) -> Float32[np.ndarray, "n 3"]:
    """Display colours in [0, 1] as the constant SH coefficient."""
    return ((colours - 0.5) / SH_C0).astype(np.float32)


def _faults(columns: Columns) -> tuple[dict[str, int], Bool[np.ndarray, " n"]]:
    """Rows to drop, counted by the first reason that holds, and the mask of those to keep."""
    good = np.ones(len(columns.xyz), bool)
    dropped: dict[str, int] = {}
    with np.errstate(invalid="ignore"):  # signalling NaNs
        squares = np.square(columns.rotation, dtype=np.float64).sum(axis=1)
        reasons = {
            "nan_position": (np.abs(columns.xyz) < COORDINATE_LIMIT).all(axis=1),
            "nan_scale": (np.isfinite(columns.log_scales) & (columns.log_scales < np.log(COORDINATE_LIMIT))).all(
                axis=1
            ),
            "nan_rotation": np.isfinite(squares),
            "nan_opacity": ~np.isnan(columns.opacity),
            "nan_sh": _finite_rows(columns.sh),
            "zero_quaternion": ~(squares < 1e-30),
        }
    for reason, passed in reasons.items():
        count = int((good & ~passed).sum())
        if count:
            dropped[reason] = count
            good &= passed
    return dropped, good


def _finite_rows(sh: Float32[np.ndarray, "n k 3"]) -> Bool[np.ndarray, " n"]:
    # By blocks, so that the intermediate masks stay in the cache; the common case needs no row-wise look.
    good = np.ones(len(sh), bool)
    for start in range(0, len(sh), _CHUNK):
        finite = np.isfinite(sh[start : start + _CHUNK])
        if not finite.all():
            good[start : start + _CHUNK] = finite.all(axis=(1, 2))
    return good


def _recentre(
    xyz: Float64[np.ndarray, "n 3"], log_scales: Float32[np.ndarray, "n 3"]
) -> tuple[Float32[np.ndarray, "n 3"], tuple[float, float, float]]:
    """float32 positions and the float64 offset that was taken off them; zero where the scene is near the origin."""
    sample = xyz[:: max(1, len(xyz) // 100_000)]
    low, median, high = np.quantile(sample, [0.05, 0.5, 0.95], axis=0)
    # One splat alone has an extent too.
    extent = max(float((high - low).max()), 6 * float(np.exp(np.median(log_scales), dtype=np.float64)))
    extent = max(extent, 1e-9 * float(np.abs(median).max()))  # all in one place
    if np.abs(median).max() <= FAR_OFF * extent:
        return xyz.astype(np.float32), (0.0, 0.0, 0.0)
    # Round offsets, and none on an axis that is near already: so float32 input comes back bit by bit.
    step = 2.0 ** np.floor(np.log2(extent))
    offset = np.where(np.abs(median) > 2 * extent, np.round(median / step) * step, 0.0)
    x, y, z = (float(v) for v in offset)
    return (xyz - offset).astype(np.float32), (x, y, z)


def _unit(rotation: Float32[np.ndarray, "n 4"]) -> Float32[np.ndarray, "n 4"]:
    """Unit quaternions; those that are already (to float32 rounding) stay bit by bit what they are."""
    norms = np.sqrt(np.square(rotation, dtype=np.float64).sum(axis=1, keepdims=True))
    norms[np.abs(norms - 1) < 1e-6] = 1
    return (rotation / norms).astype(np.float32)
