""".ksplat (GaussianSplats3D): sections of splats, whole floats or quantised within buckets.

A header of 4096 bytes, one of 1024 for each section, then a section's data: lengths of its partly filled buckets,
bucket centres, and one record a splat: position, linear scales, wxyz quaternion, RGBA bytes, harmonics. Compression
level 0 stores float32, level 1 positions of 16 bits about the bucket's centre and float16, level 2 harmonics of 8 bits
as well. Harmonics come degree by degree, in each channel by channel; GaussForge, known by sections that do not say
their size, writes all of red, then of green, then of blue. Axes are those of the .ply.
Source: the format's description in mkkellogg/GaussianSplats3D.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import ReadResult, damaged, read_bytes
from splatanim.formats.clean import Columns, cleaned, harmonics_of_colours, logits_of_bytes

_FILE_HEADER, _SECTION_HEADER = 4096, 1024
_COEFFICIENTS = (0, 3, 8, 15)
_MOST_SECTIONS = 1 << 16
_FLAT = -30.0  # log-scale of a splat that is stored with a scale of zero
_DEFAULT_RANGE = (-1.5, 1.5)  # of 8-bit harmonics, where the header is silent
_HALF_RANGE = 32767


@dataclass(frozen=True)
class _Section:
    count: int
    reserved: int
    bucket_size: int
    buckets: int
    block: float
    bucket_bytes: int
    half_range: int
    full: int
    partial: int
    degree: int
    sized: bool


def read_ksplat(path: str | os.PathLike[str]) -> ReadResult:
    """Read a .ksplat file of any compression level.

    Raises InputError where it is no such file, or cut off, or damaged.
    """
    path = Path(path)
    data = read_bytes(path)
    if len(data) < _FILE_HEADER:
        raise damaged(path, f"{len(data)} bytes are fewer than the header of a .ksplat file")
    sections, count = struct.unpack_from("<I8xI", data, 4)
    (level,) = struct.unpack_from("<H", data, 20)
    low, high = struct.unpack_from("<ff", data, 36)
    if data[0] != 0 or data[1] < 1 or level > 2 or not 0 < sections <= _MOST_SECTIONS:
        raise InputError(
            f"{path}: not a .ksplat file that can be read (version {data[0]}.{data[1]}, compression level {level}; "
            "version 0.1 and levels 0 to 2 are known). Give it its true suffix, or export it as .ply."
        )
    span = (low, high) if np.isfinite([low, high]).all() and low < high else _DEFAULT_RANGE
    at = _FILE_HEADER + sections * _SECTION_HEADER
    if at > len(data):
        raise damaged(path, f"{len(data)} bytes are fewer than the headers of its {sections} sections")
    parts = []
    for k in range(sections):
        section = _section(path, data, _FILE_HEADER + k * _SECTION_HEADER)
        if not section.count:
            continue
        part, at = _read_section(path, data, at, section, level, span)
        parts.append(part)
    found = sum(len(part.xyz) for part in parts)
    if not found or found != count:
        raise damaged(path, f"its header promises {count} splats, its sections hold {found}")
    return cleaned(path, _joined(parts), format=f"ksplat/{level}")


def _section(path: Path, data: bytes, at: int) -> _Section:
    count, reserved, size, buckets, block, stride = struct.unpack_from("<IIIIfH", data, at)
    half_range, size_bytes = struct.unpack_from("<II", data, at + 24)
    full, partial, degree = struct.unpack_from("<IIH", data, at + 32)
    if degree >= len(_COEFFICIENTS) or count > reserved:
        raise damaged(path, f"a section of the .ksplat file makes no sense ({count} splats, SH degree {degree})")
    half_range = half_range or _HALF_RANGE
    return _Section(count, reserved, size, buckets, block, stride, half_range, full, partial, degree, size_bytes > 0)


def _record(level: int, degree: int) -> np.dtype:
    number, place = ("<f4", "<f4") if level == 0 else ("<f2", "<u2")
    harmonic = ("<f4", "<f2", "u1")[level]
    fields = [("xyz", place, 3), ("scale", number, 3), ("wxyz", number, 4), ("rgba", "u1", 4)]
    return np.dtype([*fields, ("sh", harmonic, 3 * _COEFFICIENTS[degree])])


def _read_section(
    path: Path, data: bytes, at: int, section: _Section, level: int, span: tuple[float, float]
) -> tuple[Columns, int]:
    """The columns of a section whose data begins at byte ``at``, and where they end."""
    kind = _record(level, section.degree)
    centres_at = at + 4 * section.partial
    begin = centres_at + section.bucket_bytes * section.buckets
    end = begin + kind.itemsize * section.reserved
    if begin + kind.itemsize * section.count > len(data):
        raise damaged(path, f"a section of the .ksplat file promises {section.count} splats, the data ends before")
    rows = np.frombuffer(data, kind, section.count, begin)
    xyz = rows["xyz"].astype(np.float64)
    if level:
        bucket = _buckets(path, section, np.frombuffer(data, "<u4", section.partial, at))
        if section.bucket_bytes < 12:
            raise damaged(path, f"buckets of {section.bucket_bytes} bytes hold no centre")
        kept = np.frombuffer(data, np.uint8, section.bucket_bytes * section.buckets, centres_at)
        centres = np.ascontiguousarray(kept.reshape(section.buckets, -1)[:, :12]).view("<f4").astype(np.float64)
        xyz = (xyz - section.half_range) * (section.block / 2 / section.half_range) + centres[bucket]
    sh = np.zeros((section.count, 1 + _COEFFICIENTS[section.degree], 3), np.float32)
    sh[:, 0] = harmonics_of_colours(rows["rgba"][:, :3].astype(np.float32) / np.float32(255))
    stored = rows["sh"].astype(np.float32)
    if level == 2:
        stored = span[0] + stored * np.float32((span[1] - span[0]) / 255)
    sh[:, 1:] = _harmonics(stored, section)
    with np.errstate(invalid="ignore", divide="ignore"):  # scales that are NaN or negative: those rows are dropped
        log_scales = np.maximum(np.log(rows["scale"].astype(np.float32)), np.float32(_FLAT))
    return Columns(xyz, sh, logits_of_bytes(rows["rgba"][:, 3]), log_scales, rows["wxyz"].astype(np.float32)), end


def _harmonics(stored: np.ndarray, section: _Section) -> np.ndarray:
    """The stored coefficients (N, 3 K) as (N, K, 3)."""
    if not section.sized:
        return stored.reshape(len(stored), 3, -1).transpose(0, 2, 1)
    out = np.empty((len(stored), stored.shape[1] // 3, 3), np.float32)
    for degree in range(1, section.degree + 1):
        first, width = degree**2 - 1, 2 * degree + 1
        block = stored[:, 3 * first : 3 * (first + width)]
        out[:, first : first + width] = block.reshape(-1, 3, width).transpose(0, 2, 1)
    return out


def _buckets(path: Path, section: _Section, partial: np.ndarray) -> np.ndarray:
    """Which bucket each splat lies in: full ones first, then those whose lengths the file lists."""
    lengths = np.concatenate([np.full(min(section.full, section.count), section.bucket_size, np.int64), partial])
    ends = np.cumsum(lengths)
    if len(lengths) > section.buckets or not len(ends) or ends[-1] < section.count:
        raise damaged(path, f"the buckets of a .ksplat section do not hold its {section.count} splats")
    return np.searchsorted(ends, np.arange(section.count), side="right")


def _joined(parts: list[Columns]) -> Columns:
    """Sections as one; harmonics are padded to the highest degree."""
    most = max(part.sh.shape[1] for part in parts)
    return Columns(
        np.concatenate([part.xyz for part in parts]),
        np.concatenate([np.pad(part.sh, ((0, 0), (0, most - part.sh.shape[1]), (0, 0))) for part in parts]),
        np.concatenate([part.opacity for part in parts]),
        np.concatenate([part.log_scales for part in parts]),
        np.concatenate([part.rotation for part in parts]),
    )
