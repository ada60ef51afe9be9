"""PlayCanvas compressed .ply (SuperSplat): chunks of 256 splats, quantised to 16 bytes within their chunk's bounds.

Element ``chunk`` holds bounds of positions, log-scales and (in newer files) colours; ``vertex`` four packed words;
``sh`` (where there is one) 8-bit harmonics, channel-major. Bits from the top: positions and scales 11-10-11, colours
and opacity 8-8-8-8, quaternions 2 for the largest of wxyz and 10 for each of the others, in (-1, 1) / sqrt 2.
Source: the format's description in PlayCanvas' developer documentation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatanim.formats.base import ReadResult, damaged
from splatanim.formats.clean import Columns, cleaned, harmonics_of_colours, logits_of_bytes
from splatanim.formats.ply_dialects import up_axis
from splatanim.formats.ply_table import Element, Header, read_rows
from splatanim.formats.quantised import smallest_three

ROWS_OF_CHUNK = 256
_WORDS = ("packed_position", "packed_rotation", "packed_scale", "packed_color")
_COLOURS = ("r", "g", "b")
_AXES = ("x", "y", "z")


def is_compressed(header: Header) -> bool:
    """Whether a .ply is of this kind."""
    vertex = header.element("vertex")
    return header.element("chunk") is not None and vertex is not None and "packed_position" in vertex.names


def read_compressed_ply(path: Path, header: Header) -> ReadResult:
    """Read the splats of a compressed .ply whose header has been read.

    Raises InputError, naming the file, where columns or rows are missing.
    """
    chunks, vertices = header.element("chunk"), header.element("vertex")
    assert chunks is not None and vertices is not None
    missing = [name for name in _WORDS if name not in vertices.names]
    missing += [f"{end}_{axis}" for axis in _AXES for end in ("min", "max") if f"{end}_{axis}" not in chunks.names]
    if missing:
        raise damaged(path, f"the compressed .ply lacks the column {missing[0]}")
    if not vertices.count:
        raise damaged(path, "the file holds zero splats")
    if chunks.count * ROWS_OF_CHUNK < vertices.count:
        raise damaged(path, f"{vertices.count} splats need more than its {chunks.count} chunks")
    bounds, words = _rows(path, header, chunks), _rows(path, header, vertices)
    chunk = np.arange(vertices.count) // ROWS_OF_CHUNK
    position, scale = (_unpack(words[name].astype(np.uint32), (11, 10, 11)) for name in (_WORDS[0], _WORDS[2]))
    colour = _unpack(words["packed_color"].astype(np.uint32), (8, 8, 8, 8))
    sh = np.concatenate([np.zeros((vertices.count, 1, 3), np.float32), _harmonics(path, header)], axis=1)
    if "min_r" in chunks.names:
        colour[:, :3] = _within(path, bounds, colour[:, :3], "", _COLOURS, chunk)
    sh[:, 0] = harmonics_of_colours(colour[:, :3])
    columns = Columns(
        _within(path, bounds, position, "", _AXES, chunk).astype(np.float64),
        sh,
        logits_of_bytes((words["packed_color"] & 255).astype(np.uint8)),
        _within(path, bounds, scale, "scale_", _AXES, chunk),
        _rotation(words["packed_rotation"].astype(np.uint32)),
    )
    return cleaned(path, columns, format="ply/compressed", up=up_axis(header.comments))


def _rows(path: Path, header: Header, element: Element) -> np.ndarray:
    if element.has_lists:
        raise damaged(path, f"element {element.name} of the compressed .ply has a list column")
    return np.concatenate(list(read_rows(path, header, element)))


def _within(
    path: Path, bounds: np.ndarray, share: np.ndarray, prefix: str, names: tuple[str, ...], chunk: np.ndarray
) -> np.ndarray:
    """Shares in [0, 1] of the chunks' bounds, as float32 values."""
    out = np.empty((len(share), len(names)), np.float32)
    for k, name in enumerate(names):
        ends = [f"min_{prefix}{name}", f"max_{prefix}{name}"]
        if not set(ends) <= set(bounds.dtype.names or ()):
            raise damaged(path, f"the compressed .ply lacks the columns {ends[0]}, {ends[1]}")
        low, high = (bounds[end].astype(np.float64)[chunk] for end in ends)
        with np.errstate(invalid="ignore", over="ignore"):  # bounds that are not finite: those rows are dropped
            out[:, k] = low + (high - low) * share[:, k]
    return out


def _unpack(words: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """Fields of 32-bit words from the top, as shares of their largest value (N, len(bits))."""
    out, shift = np.empty((len(words), len(bits))), 32
    for k, width in enumerate(bits):
        shift -= width
        out[:, k] = ((words >> np.uint32(shift)) & np.uint32((1 << width) - 1)) / ((1 << width) - 1)
    return out


def _rotation(words: np.ndarray) -> np.ndarray:
    largest = (words >> np.uint32(30)).astype(np.int64)
    return smallest_three(_unpack(words, (2, 10, 10, 10))[:, 1:] * np.sqrt(2.0) - np.sqrt(0.5), largest)


def _harmonics(path: Path, header: Header) -> np.ndarray:
    """The harmonics beyond the constant one (N, K - 1, 3); N rows of none where the file has no element sh."""
    vertices, element = header.element("vertex"), header.element("sh")
    assert vertices is not None
    count = 0 if element is None else len(element.properties)
    if element is None or not count:
        return np.zeros((vertices.count, 0, 3), np.float32)
    names = [f"f_rest_{i}" for i in range(count)]
    if count not in (9, 24, 45) or set(names) != set(element.names) or element.count != vertices.count:
        raise damaged(path, f"element sh holds {element.count} rows of {count} columns for {vertices.count} splats")
    rows = _rows(path, header, element)
    stored = np.stack([rows[name] for name in names], axis=1).astype(np.uint8)
    # 0 and 255 are the ends; the other values are the middles of 256 equal parts.
    share = (np.arange(256) + 0.5) / 256
    share[[0, 255]] = 0.0, 1.0
    values = (8.0 * (share - 0.5)).astype(np.float32)[stored]
    if any("gaussforge" in comment.lower() for comment in header.comments):
        return values.reshape(len(rows), count // 3, 3)  # this writer stores them coefficient by coefficient
    return values.reshape(len(rows), 3, count // 3).transpose(0, 2, 1)
