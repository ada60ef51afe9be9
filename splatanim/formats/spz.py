"""SPZ (Niantic): quantised splats in RUB axes (y up, z back), as gzip (versions 1 to 3) or zstd streams (version 4).

A header, then one array an attribute: positions (float16 in version 1, else 24-bit fixed point), opacities, colours,
log-scales (8 bits), quaternions (xyz of 8 bits, or from version 3 on the smallest three of xyzw as sign and 9 bits),
and harmonics of 8 bits, coefficient by coefficient. Source: the format's description at nianticlabs/spz.
"""

from __future__ import annotations

import gzip
import itertools
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError, require
from splatanim.formats.atomic import atomic_path
from splatanim.formats.axes import half_turn
from splatanim.formats.base import ReadResult, damaged, read_bytes
from splatanim.formats.clean import Columns, cleaned, logits_of_bytes
from splatanim.formats.losses import near_positions, said_losses
from splatanim.formats.quantised import smallest_three, three_of

MAGIC = b"NGSP"
_HEADER = struct.Struct("<4sIIBBBB")  # magic, version, count, SH degree, fractional bits, flags, streams (version 4)
_ANTIALIASED, _HAS_EXTENSIONS = 1, 2
_COLOUR_SCALE = 0.15  # colours beyond [0, 1] have room: f_dc = (byte / 255 - 1/2) / 0.15
_SIGNED_9_BITS = 511
_COEFFICIENTS = (0, 3, 8, 15, 24)
_ZSTD_HEADER = 32
_BLOCK = 1 << 14  # splats packed at a time
_MOST = 1 << 28  # splats; a header that says more is damaged


@dataclass(frozen=True)
class _Header:
    version: int
    count: int
    degree: int
    fraction: int
    flags: int
    streams: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of positions, opacities, colours, scales, rotations, harmonics."""
        position = 6 if self.version == 1 else 9
        rotation = 4 if self.version >= 3 else 3
        return tuple(self.count * k for k in (position, 1, 3, 3, rotation, 3 * _COEFFICIENTS[self.degree]))


def read_spz(path: str | os.PathLike[str]) -> ReadResult:
    """Read an .spz file of version 1 to 4 into the axes of .ply files (RDF, y down).

    Version 4 needs the package ``zstandard`` (extra ``formats``). Harmonics of degree 4 are cut to degree 3.

    Raises InputError where it is no such file, or cut off, or damaged.
    """
    path = Path(path)
    columns, header, notes = unpack_spz(path, read_bytes(path))
    columns.xyz, columns.rotation, columns.sh = half_turn(columns.xyz, columns.rotation, columns.sh)
    return cleaned(path, columns, format=f"spz/{header}", warnings=notes)


def unpack_spz(path: Path, data: bytes) -> tuple[Columns, int, tuple[str, ...]]:
    """The columns of SPZ data in its own axes (RUB), its version, and sentences for the user.

    ``path`` is what errors name; they are those of :func:`read_spz`.
    """
    if data[:2] == b"\x1f\x8b":
        data = _gunzip(path, data)
    header = _header(path, data)
    if header.version >= 4:
        parts = _zstd_streams(path, header, data)
    else:
        if len(data) < _HEADER.size + sum(header.sizes):
            raise damaged(path, f"its header promises {header.count} splats, the data ends before")
        ends = _HEADER.size + np.cumsum((0, *header.sizes))
        parts = [data[a:b] for a, b in itertools.pairwise(ends)]
    notes = []
    if header.flags & _ANTIALIASED:
        notes.append("The splats were trained with an anti-aliased rasteriser, others draw them a bit thick.")
    if header.flags & _HAS_EXTENSIONS:
        notes.append("Vendor extensions of the SPZ file were left out.")
    if header.degree > 3:
        notes.append("SH of degree 4 were cut to degree 3.")
    return _columns(header, parts), header.version, tuple(notes)


def _header(path: Path, data: bytes) -> _Header:
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise InputError(f"{path}: not an SPZ file (it does not begin with NGSP). Give it its true suffix.")
    _, version, count, degree, fraction, flags, streams = _HEADER.unpack_from(data)
    if not 1 <= version <= 4:
        raise InputError(f"{path}: SPZ of version {version}; 1 to 4 can be read. Export it as version 3 or as .ply.")
    if degree >= len(_COEFFICIENTS) or fraction > 30 or count > _MOST:
        raise damaged(path, f"its SPZ header makes no sense ({count} splats, SH degree {degree})")
    if not count:
        raise damaged(path, "the file holds zero splats")
    return _Header(version, count, degree, fraction, flags, streams)


def _gunzip(path: Path, data: bytes) -> bytes:
    """What the gzip stream holds, no more than its header asks for (damaged data must not fill the memory)."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        head = inflate.decompress(data, _HEADER.size)
        rest = sum(_header(path, head).sizes)
        return head + inflate.decompress(inflate.unconsumed_tail, rest)
    except zlib.error as error:
        raise damaged(path, f"its gzip stream cannot be read ({error})") from None


def _zstd_streams(path: Path, header: _Header, data: bytes) -> list[bytes]:
    """The attribute streams of version 4: a table of their sizes, then one zstd frame each."""
    zstd = require("zstandard", extra="formats")
    sizes = header.sizes if header.degree else header.sizes[:-1]
    (at,) = struct.unpack_from("<I", data, 16) if len(data) >= _ZSTD_HEADER else (0,)
    begin = at + 16 * header.streams
    if at < _ZSTD_HEADER or begin > len(data) or header.streams != len(sizes):
        raise damaged(path, "the table of streams of the SPZ file is broken")
    parts = []
    for k, size in enumerate(sizes):
        packed, unpacked = struct.unpack_from("<QQ", data, at + 16 * k)
        if unpacked != size or begin + packed > len(data):
            raise damaged(path, f"stream {k} of the SPZ file does not fit its {header.count} splats")
        try:  # as a stream, so that memory grows with what is there, not with what a header promises
            part = zstd.ZstdDecompressor().decompressobj().decompress(data[begin : begin + packed])
        except zstd.ZstdError as error:
            raise damaged(path, f"stream {k} of the SPZ file cannot be read ({error})") from None
        if len(part) != size:
            raise damaged(path, f"stream {k} of the SPZ file holds {len(part)} bytes of {size}")
        parts.append(part)
        begin += packed
    return [*parts, b""] if len(parts) < 6 else parts


def _columns(header: _Header, parts: list[bytes]) -> Columns:
    n = header.count
    positions, opacities, colours, scales, rotations, harmonics = (np.frombuffer(part, np.uint8) for part in parts)
    sh = np.empty((n, 1 + min(_COEFFICIENTS[header.degree], 15), 3), np.float32)
    sh[:, 0] = (colours.reshape(n, 3) / np.float32(255) - np.float32(0.5)) / np.float32(_COLOUR_SCALE)
    sh[:, 1:] = harmonics.reshape(n, -1, 3)[:, : sh.shape[1] - 1]  # in place, as they are most of the file
    sh[:, 1:] -= 128
    sh[:, 1:] /= 128
    return Columns(
        _positions(header, positions),
        sh,
        logits_of_bytes(opacities),
        scales.reshape(n, 3) / np.float32(16) - np.float32(10),
        _rotations(header, rotations),
    )


def _positions(header: _Header, stored: np.ndarray) -> np.ndarray:
    if header.version == 1:
        return stored.view("<f2").reshape(-1, 3).astype(np.float64)
    low, middle, high = stored.reshape(-1, 3).astype(np.int32).T
    fixed = low | (middle << 8) | (high << 16)
    return ((fixed ^ 0x800000) - 0x800000).reshape(-1, 3) / float(1 << header.fraction)


def _rotations(header: _Header, stored: np.ndarray) -> np.ndarray:
    """Stored as xyzw; returned as wxyz."""
    if header.version < 3:
        xyz = stored.reshape(-1, 3) / 127.5 - 1.0
        return np.roll(smallest_three(xyz, np.full(len(xyz), 3)), 1, axis=1)
    words = stored.view("<u4")
    fields = np.stack([words >> np.uint32(20), words >> np.uint32(10), words], axis=1).astype(np.int64)
    three = (fields & _SIGNED_9_BITS) / _SIGNED_9_BITS * np.sqrt(0.5)
    three = np.where(fields & 512, -three, three)
    return np.roll(smallest_three(three, (words >> np.uint32(30)).astype(np.int64)), 1, axis=1)


def write_spz(
    path: str | os.PathLike[str], splats: Splats, *, up: str | None = None, version: Literal[3, 4] = 3
) -> tuple[str, ...]:
    """Write an .spz file, whole or not at all; returns what the format could not hold, as sentences.

    The axes become SPZ's own (RUB) from those of .ply files (RDF), as every reader of SPZ expects. Positions get as
    many fractional bits as the scene needs, 12 at least where its size allows (readers go by the header). Harmonics
    keep 5 bits in degree 1 and 4 above, as other writers do, and are cut to [-1, 1].

    Raises InputError where the scene is too large or too far from the origin, OutputError where nothing can be written.
    """
    places = near_positions(path, splats, 0.0)
    fraction = _fraction_bits(path, places)
    near_positions(path, splats, 2.0**-fraction / max(float(np.abs(places).max()), 1e-30))
    head = _HEADER.pack(MAGIC, version, len(splats), splats.sh_degree, fraction, 0, 0)
    parts = _packed(splats, places, fraction)
    with atomic_path(path) as temporary:
        if version == 3:
            with open(temporary, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
                file.write(head)
                for part in parts:
                    file.write(part)
        else:
            temporary.write_bytes(_zstd_file(head, parts))
    notes = list(said_losses(splats, ".spz"))
    if up not in (None, "-y"):
        notes.append(f"SPZ readers take y for up; here it is {up}. Turn the scene with --rotate first if that matters.")
    return tuple(notes)


def _fraction_bits(path: str | os.PathLike[str], places: np.ndarray) -> int:
    farthest = max(float(np.abs(places).max()), 1e-6)
    room = int(np.floor(23 - np.log2(farthest * (1 + 1e-6))))
    if room < 0:
        raise InputError(f"{path}: the scene reaches {farthest:.3g} from the origin, SPZ to 8388608. Write .ply.")
    extent = max(float(np.ptp(places, axis=0).max()), 1e-6)
    return min(room, max(12, int(np.ceil(17 - np.log2(extent)))), 30)


def _packed(splats: Splats, places: np.ndarray, fraction: int) -> list[memoryview]:
    """The attribute arrays, made block by block so that memory stays near that of the result."""
    widths = (9, 1, 3, 3, 4, 3 * (splats.sh.shape[1] - 1))
    parts = [np.empty((len(splats), width), np.uint8) for width in widths]
    opacities = _bytes(splats.opacities * 255)
    for start in range(0, len(splats), _BLOCK):
        rows = slice(start, start + _BLOCK)
        means, quaternions, sh = half_turn(places[rows], splats.quaternions[rows], splats.sh[rows])
        fixed = np.round(means * (1 << fraction)).astype("<i4")
        parts[0][rows] = fixed.view(np.uint8).reshape(-1, 3, 4)[:, :, :3].reshape(-1, 9)
        parts[1][rows, 0] = opacities[rows]
        parts[2][rows] = _bytes(sh[:, 0] * (_COLOUR_SCALE * 255) + 127.5)
        parts[3][rows] = _bytes((splats.log_scales[rows] + 10) * 16)
        parts[4][rows] = _packed_rotations(quaternions).view(np.uint8).reshape(-1, 4)
        parts[5][rows] = _packed_harmonics(sh[:, 1:]).reshape(len(means), -1)
    return [part.reshape(-1).data for part in parts]


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def _packed_rotations(wxyz: np.ndarray) -> np.ndarray:
    three, largest = three_of(np.roll(wxyz, -1, axis=1))
    magnitude = np.minimum(np.round(np.abs(three) * (_SIGNED_9_BITS / np.sqrt(0.5))), _SIGNED_9_BITS).astype(np.uint32)
    fields = magnitude | ((three < 0).astype(np.uint32) << np.uint32(9))
    top = largest.astype(np.uint32) << np.uint32(30)
    return (top | (fields[:, 0] << np.uint32(20)) | (fields[:, 1] << np.uint32(10)) | fields[:, 2]).astype("<u4")


def _packed_harmonics(sh: np.ndarray) -> np.ndarray:
    step = np.where(np.arange(sh.shape[1]) < 3, np.float32(8), np.float32(16))[:, None]
    values = np.round(np.clip(sh, -1, 1) * np.float32(128)) + np.float32(128)
    return np.clip(np.floor((values + step / 2) / step) * step, 0, 255).astype(np.uint8)


def _zstd_file(head: bytes, body: list[memoryview]) -> bytes:
    zstd = require("zstandard", extra="formats")
    parts = [part for part in body if len(part)]
    packed = [zstd.ZstdCompressor(level=12).compress(part) for part in parts]
    table = b"".join(struct.pack("<QQ", len(small), len(part)) for small, part in zip(packed, parts))
    start = head[:-1] + bytes([len(parts)]) + struct.pack("<I", _ZSTD_HEADER)
    return start.ljust(_ZSTD_HEADER, b"\0") + table + b"".join(packed)
