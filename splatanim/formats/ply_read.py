"""Splats from .ply files: the columns of every dialect turned into the raw values of 3DGS, checked row by row."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.base import COORDINATE_LIMIT, ReadResult
from splatanim.formats.ply_dialects import FILTER, OPACITY, POSITION, RGB, ROTATION, Layout, bind, up_axis
from splatanim.formats.ply_table import CHUNK, Element, Header, read_header, read_rows

SH_C0 = 0.28209479177387814
#: What an infinite logit becomes: opacity 0.99995 or 0.00005, opaque or gone in 8 bits and still finite to work with.
LOGIT_LIMIT = 10.0
#: Thickness of a 2DGS disc over the smaller of its two radii.
DISC_THICKNESS = 0.01
#: Positions are recentred where their median is this many times their extent: float32 then keeps under 5 digits.
FAR_OFF = 100.0


@dataclass
class _Columns:
    """The columns as they stand in the file, K = SH coefficients; ``filter`` is empty where there is none."""

    xyz: Float64[np.ndarray, "n 3"]
    sh: Float32[np.ndarray, "n k 3"]
    opacity: Float32[np.ndarray, " n"]
    log_scales: Float32[np.ndarray, "n s"]
    rotation: Float32[np.ndarray, "n 4"]
    filter: Float32[np.ndarray, "n f"]
    extras: dict[str, np.ndarray]

    def select(self, rows: Bool[np.ndarray, " n"]) -> _Columns:
        return _Columns(
            self.xyz[rows],
            self.sh[rows],
            self.opacity[rows],
            self.log_scales[rows],
            self.rotation[rows],
            self.filter[rows],
            {name: column[rows] for name, column in self.extras.items()},
        )


def read_ply(path: str | os.PathLike[str]) -> ReadResult:
    """Read splats from a .ply file (3DGS, Mip-Splatting, 2DGS, RGB columns; ASCII or binary of either byte order).

    Rows that are not finite or have a zero quaternion are dropped and counted; infinite opacities become logits of
    +-``LOGIT_LIMIT``; quaternions are normalised; positions far from the origin are recentred (``Splats.offset``).
    Columns that mean nothing here stay in ``Splats.extras``.

    Raises InputError, naming the file, what is wrong and the next step, for anything else.
    """
    path = Path(path)
    header = read_header(path)
    vertex, layout = bind(path, header)
    columns = _load(path, header, vertex, layout)
    dropped, good = _faults(columns)
    if not good.any():
        counts = ", ".join(f"{key}: {count}" for key, count in dropped.items())
        raise InputError(
            f"{path}: none of its {vertex.count} splats is usable ({counts}). "
            "The training diverged or the file is damaged: export it again."
        )
    if not good.all():
        columns = columns.select(good)
    _refuse_activated(path, columns)
    warnings = _header_notes(header)
    infinite = np.isinf(columns.opacity)
    if infinite.any():
        warnings.append(f"{infinite.sum()} infinite opacities were set to logits of +-{LOGIT_LIMIT:g}.")
        columns.opacity = np.nan_to_num(columns.opacity, posinf=LOGIT_LIMIT, neginf=-LOGIT_LIMIT)
    if len(layout.scales) == 2:
        warnings.append(f"2DGS discs: scale_2 is missing and was set to {DISC_THICKNESS:g} of the smaller radius.")
        thin = columns.log_scales.min(axis=1, keepdims=True) + np.float32(np.log(DISC_THICKNESS))
        columns.log_scales = np.concatenate([columns.log_scales, thin], axis=1)
    if layout.has_filter:
        warnings.append(f"The Mip-Splatting column {FILTER} was folded into scales and opacities.")
        _fold_filter(columns)
    if layout.colours is RGB:
        warnings.append("The columns red, green, blue were turned into SH coefficients f_dc.")
    means, offset = _recentre(columns.xyz, columns.log_scales)
    if offset != (0.0, 0.0, 0.0):
        warnings.append(f"The scene lies far from the origin and was recentred by {offset}; outputs are moved back.")
    splats = Splats(
        means, _unit(columns.rotation), columns.log_scales, columns.opacity, columns.sh, offset, columns.extras
    )
    return ReadResult(splats, layout.dialect, vertex.count, dropped, tuple(warnings), up_axis(header.comments))


def _load(path: Path, header: Header, vertex: Element, layout: Layout) -> _Columns:
    n, k = vertex.count, layout.coefficients
    if n * (1 if header.encoding == "ascii" else vertex.least_bytes) > path.stat().st_size:
        n = 0  # cut off: read_rows says so; reserve no memory on the word of a damaged header
    columns = _Columns(
        np.empty((n, 3)),
        np.empty((n, k, 3), np.float32),
        np.empty(n, np.float32),
        np.empty((n, len(layout.scales)), np.float32),
        np.empty((n, 4), np.float32),
        np.empty((n, int(layout.has_filter)), np.float32),
        {p.name: np.empty(n, p.type) for p in layout.extras},
    )
    targets: list[tuple[str, np.ndarray]] = [(OPACITY, columns.opacity), *columns.extras.items()]
    targets += zip(POSITION, columns.xyz.T)
    targets += zip(layout.colours, columns.sh[:, 0].T)
    targets += [(name, columns.sh[:, 1 + i % (k - 1), i // (k - 1)]) for i, name in enumerate(layout.rest)]
    targets += zip(layout.scales, columns.log_scales.T)
    targets += zip(ROTATION, columns.rotation.T)
    targets += zip((FILTER,), columns.filter.T)
    with np.errstate(invalid="ignore", over="ignore"):  # values beyond float32 become inf, and are dropped as such
        for start, rows in zip(range(0, vertex.count, CHUNK), read_rows(path, header, vertex)):
            for name, target in targets:
                target[start : start + len(rows)] = rows[name]
    if layout.colours is RGB:
        kind = vertex.dtype("=")[RGB[0]]
        white = 1.0 if kind.kind == "f" else float(np.iinfo(kind).max)
        columns.sh[:, 0] = (columns.sh[:, 0] / np.float32(white) - 0.5) / np.float32(SH_C0)
    return columns


def _faults(columns: _Columns) -> tuple[dict[str, int], Bool[np.ndarray, " n"]]:
    """Rows to drop, counted by the first reason that holds, and the mask of those to keep."""
    good = np.ones(len(columns.xyz), bool)
    dropped: dict[str, int] = {}
    with np.errstate(invalid="ignore"):  # signalling NaNs
        squares = np.square(columns.rotation, dtype=np.float64).sum(axis=1)
        reasons = {
            "nan_position": (np.abs(columns.xyz) < COORDINATE_LIMIT).all(axis=1),
            "nan_scale": (np.isfinite(columns.log_scales) & (columns.log_scales < np.log(COORDINATE_LIMIT))).all(axis=1)
            & (np.abs(columns.filter) < COORDINATE_LIMIT).all(axis=1),
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
    for start in range(0, len(sh), CHUNK):
        finite = np.isfinite(sh[start : start + CHUNK])
        if not finite.all():
            good[start : start + CHUNK] = finite.all(axis=(1, 2))
    return good


def _refuse_activated(path: Path, columns: _Columns) -> None:
    """Refuse values that are scales and opacities themselves, not their logarithms and logits.

    Raw files have negative log-scales (splats below one unit) or logits outside [0, 1] (training drives opacities
    to the ends), all but always both. A scene of large splats with one and the same logit is let through.
    """
    scales, opacity = columns.log_scales, columns.opacity
    if scales.min() <= 0 or opacity.min() < 0 or opacity.max() > 1:
        return
    extent = float(np.ptp(columns.xyz, axis=0).max())
    if np.ptp(opacity) == 0 and np.exp(scales.max(), dtype=np.float64) < extent / 10:
        return
    raise InputError(
        f"{path}: scales and opacities are activated already (all scales are positive, up to {scales.max():.3g}, all "
        f"opacities lie in [0, 1]). A splat .ply stores their logarithms and logits: write log(scale) and "
        "log(opacity / (1 - opacity)), or export with the raw values."
    )


def _fold_filter(columns: _Columns) -> None:
    """Mip-Splatting's 3D filter: s' = sqrt(s^2 + f^2), alpha' = alpha sqrt(prod s^2 / prod s'^2).

    Z. Yu et al., "Mip-Splatting: Alias-free 3D Gaussian Splatting" (CVPR 2024), eq. 9.
    """
    raw = columns.log_scales.astype(np.float64)
    with np.errstate(divide="ignore"):  # no filter: log 0
        log_filter = np.log(np.abs(columns.filter.astype(np.float64)))
    scales = 0.5 * np.logaddexp(2 * raw, 2 * log_filter)
    log_factor = (raw - scales).sum(axis=1)
    logit = columns.opacity.astype(np.float64)
    log_alpha = log_factor - np.logaddexp(0, -logit)
    with np.errstate(divide="ignore"):
        folded = log_alpha - np.log(-np.expm1(np.minimum(log_alpha, -1e-300)))
    columns.log_scales = scales.astype(np.float32)
    columns.opacity = np.where(log_factor < 0, np.minimum(folded, logit), logit).astype(np.float32)


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


def _header_notes(header: Header) -> list[str]:
    return [
        f"The header says '{c}': the splats were trained with an anti-aliased rasteriser, others draw them a bit thick."
        for c in header.comments
        if re.search(r"anti-?alias\w*\s*[:=]?\s*(true|1|on)\b|SplatRenderMode\s*:\s*mip", c, re.IGNORECASE)
    ]
