"""The writer's end of a .glb: one buffer that accessors are appended to, and the file around it."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

import numpy as np

from splatanim.formats.atomic import atomic_path

ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER = 34962, 34963
_CODES = {"int8": 5120, "uint8": 5121, "int16": 5122, "uint16": 5123, "uint32": 5125, "float32": 5126}
_KINDS = {(): "SCALAR", (2,): "VEC2", (3,): "VEC3", (4,): "VEC4", (4, 4): "MAT4"}


class GlbBuilder:
    """Collects the JSON of a file in ``content`` and its binary chunk."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {"asset": {"version": "2.0", "generator": "splatanim"}}
        self._binary = bytearray()

    def add(self, kind: str, entry: dict[str, Any]) -> int:
        """Append to a top-level list; returns the index."""
        self.content.setdefault(kind, []).append(entry)
        return len(self.content[kind]) - 1

    def view(self, data: bytes, target: int | None = None) -> int:
        """Append bytes as a buffer view of their own, aligned to four."""
        self._binary += bytes(-len(self._binary) % 4)
        entry: dict[str, Any] = {"buffer": 0, "byteOffset": len(self._binary), "byteLength": len(data)}
        if target is not None:
            entry["target"] = target
        self._binary += data
        return self.add("bufferViews", entry)

    def accessor(
        self, values: np.ndarray, *, target: int | None = None, bounds: bool = False, normalized: bool = False
    ) -> int:
        """Append an array (count, ...), matrices as rows; ``bounds`` writes min and max, which some uses require."""
        shape = values.shape[1:]
        stored = values.swapaxes(1, 2) if len(shape) == 2 else values
        entry: dict[str, Any] = {
            "bufferView": self.view(np.ascontiguousarray(stored).tobytes(), target),
            "componentType": _CODES[values.dtype.name],
            "count": len(values),
            "type": _KINDS[shape],
        }
        if normalized:
            entry["normalized"] = True
        if bounds:
            entry["min"] = np.atleast_1d(values.min(axis=0)).tolist()
            entry["max"] = np.atleast_1d(values.max(axis=0)).tolist()
        return self.add("accessors", entry)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the .glb, whole or not at all; raises OutputError where that is impossible."""
        if self._binary:
            self._binary += bytes(-len(self._binary) % 4)
            self.content["buffers"] = [{"byteLength": len(self._binary)}]
        text = json.dumps(self.content, separators=(",", ":"), allow_nan=False).encode()
        text += b" " * (-len(text) % 4)
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        if self._binary:
            chunks += struct.pack("<I4s", len(self._binary), b"BIN\0") + bytes(self._binary)
        with atomic_path(path) as temporary:
            temporary.write_bytes(struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks)
