"""Splats from .ply files: the columns of every dialect turned into the raw values of 3DGS, checked row by row."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import COORDINATE_LIMIT, ReadResult
from splatanim.formats.clean import SH_C0, Columns, finished, usable
from splatanim.formats.compressed_ply import is_compressed, read_compressed_ply
from splatanim.formats.ply_dialects import FILTER, OPACITY, POSITION, RGB, ROTATION, Layout, bind, up_axis
from splatanim.formats.ply_table import CHUNK, Element, Header, read_header, read_rows

#: Thickness of a 2DGS disc over the smaller of its two radii.
DISC_THICKNESS = 0.01


def read_ply(path: str | os.PathLike[str]) -> ReadResult:
    """Read splats from a .ply file (3DGS, Mip-Splatting, 2DGS, RGB columns, PlayCanvas' compressed form; ASCII or
    binary of either byte order).

    Rows that are not finite or have a zero quaternion are dropped and counted; infinite opacities become logits of
    +-``LOGIT_LIMIT``; quaternions are normalised; positions far from the origin are recentred (``Splats.offset``).
    Columns that mean nothing here stay in ``Splats.extras``.

    Raises InputError, naming the file, what is wrong and the next step, for anything else.
    """
    path = Path(path)
    header = read_header(path)
    if is_compressed(header):
        return read_compressed_ply(path, header)
    vertex, layout = bind(path, header)
    columns, dropped = usable(path, _load(path, header, vertex, layout))
    _refuse_activated(path, columns)
    warnings = _header_notes(header)
    if len(layout.scales) == 2:
        warnings.append(f"2DGS discs: scale_2 is missing and was set to {DISC_THICKNESS:g} of the smaller radius.")
        thin = columns.log_scales.min(axis=1, keepdims=True) + np.float32(np.log(DISC_THICKNESS))
        columns.log_scales = np.concatenate([columns.log_scales, thin], axis=1)
    if layout.has_filter:
        warnings.append(f"The Mip-Splatting column {FILTER} was folded into scales and opacities.")
        _fold_filter(columns, columns.extras.pop(FILTER))
    if layout.colours is RGB:
        warnings.append("The columns red, green, blue were turned into SH coefficients f_dc.")
    splats, notes = finished(columns)
    return ReadResult(splats, layout.dialect, vertex.count, dropped, (*warnings, *notes), up_axis(header.comments))


def _load(path: Path, header: Header, vertex: Element, layout: Layout) -> Columns:
    n, k = vertex.count, layout.coefficients
    if n * (1 if header.encoding == "ascii" else vertex.least_bytes) > path.stat().st_size:
        n = 0  # cut off: read_rows says so; reserve no memory on the word of a damaged header
    columns = Columns(
        np.empty((n, 3)),
        np.empty((n, k, 3), np.float32),
        np.empty(n, np.float32),
        np.empty((n, len(layout.scales)), np.float32),
        np.empty((n, 4), np.float32),
        {p.name: np.empty(n, p.type) for p in layout.extras},
    )
    if layout.has_filter:
        columns.extras[FILTER] = np.empty(n, np.float32)
    targets: list[tuple[str, np.ndarray]] = [(OPACITY, columns.opacity), *columns.extras.items()]
    targets += zip(POSITION, columns.xyz.T)
    targets += zip(layout.colours, columns.sh[:, 0].T)
    targets += [(name, columns.sh[:, 1 + i % (k - 1), i // (k - 1)]) for i, name in enumerate(layout.rest)]
    targets += zip(layout.scales, columns.log_scales.T)
    targets += zip(ROTATION, columns.rotation.T)
    with np.errstate(invalid="ignore", over="ignore"):  # values beyond float32 become inf, and are dropped as such
        for start, rows in zip(range(0, vertex.count, CHUNK), read_rows(path, header, vertex)):
            for name, target in targets:
                target[start : start + len(rows)] = rows[name]
    if layout.colours is RGB:
        kind = vertex.dtype("=")[RGB[0]]
        white = 1.0 if kind.kind == "f" else float(np.iinfo(kind).max)
        columns.sh[:, 0] = (columns.sh[:, 0] / np.float32(white) - 0.5) / np.float32(SH_C0)
    if layout.has_filter:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            columns.log_scales[~(np.abs(columns.extras[FILTER]) < COORDINATE_LIMIT)] = np.nan
    return columns


def _refuse_activated(path: Path, columns: Columns) -> None:
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


def _fold_filter(columns: Columns, low_pass: np.ndarray) -> None:
    """Mip-Splatting's 3D filter: s' = sqrt(s^2 + f^2), alpha' = alpha sqrt(prod s^2 / prod s'^2).

    Z. Yu et al., "Mip-Splatting: Alias-free 3D Gaussian Splatting" (CVPR 2024), eq. 9.
    """
    raw = columns.log_scales.astype(np.float64)
    with np.errstate(divide="ignore"):  # no filter: log 0
        log_filter = np.log(np.abs(low_pass.astype(np.float64)))[:, None]
    scales = 0.5 * np.logaddexp(2 * raw, 2 * log_filter)
    log_factor = (raw - scales).sum(axis=1)
    logit = columns.opacity.astype(np.float64)
    log_alpha = log_factor - np.logaddexp(0, -logit)
    with np.errstate(divide="ignore"):
        folded = log_alpha - np.log(-np.expm1(np.minimum(log_alpha, -1e-300)))
    columns.log_scales = scales.astype(np.float32)
    columns.opacity = np.where(log_factor < 0, np.minimum(folded, logit), logit).astype(np.float32)


def _header_notes(header: Header) -> list[str]:
    return [
        f"The header says '{c}': the splats were trained with an anti-aliased rasteriser, others draw them a bit thick."
        for c in header.comments
        if re.search(r"anti-?alias\w*\s*[:=]?\s*(true|1|on)\b|SplatRenderMode\s*:\s*mip", c, re.IGNORECASE)
    ]
