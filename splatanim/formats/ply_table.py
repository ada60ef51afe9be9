"""The PLY container: header and the rows of one element, whatever they mean.

ASCII and both binary byte orders, LF, CRLF and CR headers, list properties in elements that are skipped. Rows come
in chunks that fit the processor's cache, so that callers can copy column by column at memory speed.
Format: G. Turk, "The PLY Polygon File Format" (1994).
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import first_bytes

HEADER_LIMIT = 1 << 20
CHUNK = 1 << 13

_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"},
    **{"float": "f4", "double": "f8", "float32": "f4", "float64": "f8"},
}
#: numpy type code -> the classic PLY name, for writers.
TYPE_NAMES = {code: name for name, code in reversed(_TYPES.items())}
_BYTE_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


@dataclass(frozen=True)
class Property:
    """One column: numpy type code without byte order; ``counter`` is the type of the length where it is a list."""

    name: str
    type: str
    counter: str | None = None


@dataclass(frozen=True)
class Element:
    """One element of a header: its name, how many rows follow, and the properties of a row."""

    name: str
    count: int
    properties: tuple[Property, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.properties)

    @property
    def has_lists(self) -> bool:
        return any(p.counter for p in self.properties)

    @property
    def least_bytes(self) -> int:
        """Bytes of a binary row, lists counted as empty."""
        return sum(np.dtype(p.counter or p.type).itemsize for p in self.properties)

    def dtype(self, byte_order: str) -> np.dtype:
        return np.dtype([(p.name, byte_order + p.type) for p in self.properties])


@dataclass(frozen=True)
class Header:
    """``size`` is where the data begins, in bytes; ``byte_order`` is numpy's, ``=`` for ASCII."""

    encoding: str
    elements: tuple[Element, ...]
    comments: tuple[str, ...]
    size: int

    @property
    def byte_order(self) -> str:
        return _BYTE_ORDERS[self.encoding]

    def element(self, name: str) -> Element | None:
        return next((e for e in self.elements if e.name == name), None)


def read_header(path: Path) -> Header:
    """The header of a PLY file.

    Raises InputError where it is no PLY file, or the header is cut off or broken (naming the line).
    """
    head = first_bytes(path, HEADER_LIMIT)
    if not re.match(rb"ply[ \t]*[\r\n]", head):
        if b"ply".startswith(head):
            raise InputError(f"{path}: the file ends after {len(head)} bytes. It was cut off: copy it again.")
        raise InputError(
            f"{path}: not a PLY file (it does not begin with 'ply'). Export it as .ply, or give it its true suffix."
        )
    end = re.search(rb"[\r\n]end_header[ \t]*(\r\n|\n|\r)", head)
    if end is None:
        raise InputError(
            f"{path}: the PLY header has no end_header line. The file was cut off or is damaged: copy it again."
        )
    size = end.end()
    if re.match(rb"ply[ \t]*\r[^\n]", head) and end[1] == b"\r\n":
        size -= 1  # lines end in CR alone here, so that the LF is the first byte of the data
    lines = re.split(r"\r\n|\n|\r", head[: end.start()].decode("utf-8", "replace"))
    return _parse(path, lines, size)


def _parse(path: Path, lines: list[str], size: int) -> Header:
    encoding = ""
    comments: list[str] = []
    elements: list[tuple[str, int, list[Property]]] = []
    for number, line in enumerate(lines[1:], start=2):
        match line.split():
            case []:
                continue
            case ["comment" | "obj_info", *_]:
                comments.append(line.strip().partition(" ")[2].strip())
            case ["format", name, "1.0"] if name in _BYTE_ORDERS and not encoding:
                encoding = name
            case ["element", name, count] if re.fullmatch("[0-9]{1,15}", count):
                if name in [e[0] for e in elements]:
                    raise InputError(f"{path}: line {number} declares element {name} twice. Export the file again.")
                elements.append((name, int(count), []))
            case ["property", kind, name] if elements and kind in _TYPES:
                elements[-1][2].append(Property(name, _TYPES[kind]))
            case ["property", "list", counter, kind, name] if (
                elements and kind in _TYPES and _TYPES.get(counter, "f")[0] != "f"
            ):
                elements[-1][2].append(Property(name, _TYPES[kind], _TYPES[counter]))
            case _:
                raise InputError(
                    f"{path}: line {number} of the PLY header is not understood: {line.strip()[:80]!r}. "
                    "The file is damaged: export it again."
                )
    if not encoding:
        raise InputError(f"{path}: the PLY header has no format line. The file is damaged: export it again.")
    for name, _, properties in elements:
        names = [p.name for p in properties]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InputError(f"{path}: element {name} has column {twice[0]} twice. Export the file again.")
    return Header(encoding, tuple(Element(n, c, tuple(p)) for n, c, p in elements), tuple(comments), size)


def read_rows(path: Path, header: Header, element: Element) -> Iterator[np.ndarray]:
    """The rows of a list-free element as structured arrays, chunk by chunk, ``element.count`` rows in all.

    Raises InputError where the data ends early or an ASCII row cannot be read.
    """
    before = header.elements[: header.elements.index(element)]
    try:
        with open(path, "rb") as file:
            total = file.seek(0, io.SEEK_END)
            file.seek(header.size)
            if header.encoding == "ascii":
                with io.TextIOWrapper(file, "latin-1") as text:
                    yield _ascii_rows(path, text, total - header.size, before, element)
                return
            for other in before:
                _skip(path, file, total, header, other)
            kind = element.dtype(header.byte_order)
            whole = (total - file.tell()) // max(1, kind.itemsize)
            if whole < element.count:
                raise _truncated(path, element, whole)
            for start in range(0, element.count, CHUNK):
                rows = np.fromfile(file, kind, min(CHUNK, element.count - start))
                if len(rows) < min(CHUNK, element.count - start):
                    raise _truncated(path, element, start + len(rows))
                yield rows
    except OSError as error:
        raise InputError(f"{path}: reading failed ({error.strerror or error}). Check the disk, then retry.") from error


def _truncated(path: Path, element: Element, found: int) -> InputError:
    return InputError(
        f"{path}: the file is cut off: its header promises {element.count} rows of element {element.name}, "
        f"the data holds {found}. Copy or download it again."
    )


def _skip(path: Path, file: io.BufferedReader, total: int, header: Header, element: Element) -> None:
    """Move past a binary element; lists are walked row by row."""
    left = total - file.tell()
    if element.count * element.least_bytes > left:
        raise _truncated(path, element, left // element.least_bytes)
    if not element.has_lists:
        file.seek(element.count * element.least_bytes, io.SEEK_CUR)
        return
    order: Literal["big", "little"] = "big" if header.byte_order == ">" else "little"
    sizes = [
        (np.dtype(p.type).itemsize, np.dtype(p.counter).itemsize if p.counter else 0, (p.counter or "u")[0] == "i")
        for p in element.properties
    ]
    for row in range(element.count):
        for size, counter, signed in sizes:
            length = 1
            if counter:
                length = int.from_bytes(file.read(counter), order, signed=signed)
            if length < 0 or file.tell() + length * size > total:
                raise _truncated(path, element, row)
            file.seek(length * size, io.SEEK_CUR)


def _ascii_rows(
    path: Path, text: io.TextIOWrapper, size: int, before: tuple[Element, ...], element: Element
) -> np.ndarray:
    """All rows of an ASCII element; a row is a line, and blank lines do not count. ``size`` is the text's, in bytes."""
    skipped = sum(e.count for e in before)
    if skipped + element.count > size:  # a row takes a byte at least
        raise _truncated(path, element, 0)
    lines = (line for line in text if not line.isspace())
    wanted = itertools.islice(lines, skipped, skipped + element.count)
    first = next(wanted, None)
    if first is None:
        raise _truncated(path, element, 0)
    try:
        table = np.loadtxt(itertools.chain([first], wanted), dtype=np.float64, comments=None, ndmin=2)
    except ValueError as error:
        raise InputError(
            f"{path}: a row of element {element.name} cannot be read ({error}). "
            "The file was cut off or is damaged: copy or export it again."
        ) from None
    if len(table) < element.count:
        raise _truncated(path, element, len(table))
    if table.shape[1] != len(element.properties):
        raise InputError(
            f"{path}: rows of element {element.name} hold {table.shape[1]} numbers, "
            f"the header names {len(element.properties)} columns. Export the file again."
        )
    rows = np.empty(len(table), element.dtype("="))
    with np.errstate(invalid="ignore", over="ignore"):
        for column, name in zip(table.T, element.names):
            rows[name] = column
    return rows
