"""The container of glTF 2.0: .glb and .gltf, their buffers, and accessors as arrays (spec sections 3.6 and 4.4).

Accessors may be interleaved, sparse, normalised integers, or without a buffer view (zeros). Everything that an index
in the file points to is looked up through :meth:`GltfFile.item`, which names the file, the list and the index when it
points nowhere.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import first_bytes

_TYPES = {5120: np.int8, 5121: np.uint8, 5122: np.int16, 5123: np.uint16, 5125: np.uint32, 5126: np.float32}
_SHAPES: dict[str, tuple[int, ...]] = {
    "SCALAR": (), "VEC2": (2,), "VEC3": (3,), "VEC4": (4,), "MAT2": (2, 2), "MAT3": (3, 3), "MAT4": (4, 4),
}  # fmt: skip
_KNOWN = {
    "KHR_mesh_quantization", "KHR_texture_transform", "KHR_materials_unlit", "KHR_lights_punctual",
    "EXT_texture_webp", "KHR_node_visibility", "KHR_xmp_json_ld",
}  # fmt: skip
_DECODE = "Decompress it first: npx @gltf-transform/cli cp IN.glb OUT.glb (or import and export it in Blender)."
_MOST_ELEMENTS = 1 << 28  # an accessor beyond this is damage, not data


@dataclass(frozen=True)
class GltfFile:
    """A parsed file: ``content`` is its JSON, ``embedded`` the binary chunk of a .glb."""

    path: Path
    content: dict[str, Any]
    embedded: bytes | None = None
    _buffers: dict[int, bytes] = field(default_factory=dict, repr=False)

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """A top-level list, such as ``nodes``; empty where the file has none."""
        found = self.content.get(kind, [])
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            raise self.broken(f"{kind} is not a list of objects")
        return found

    def item(self, kind: str, index: Any) -> dict[str, Any]:
        """Entry ``index`` of a top-level list."""
        entries = self.entries(kind)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(entries):
            raise self.broken(f"something refers to {kind}[{index}], but there are {len(entries)} {kind}")
        return entries[index]

    def broken(self, what: str) -> InputError:
        """The error for a file that contradicts itself or the format."""
        return InputError(f"{self.path}: {what}. The file is damaged or cut off: export or download it again.")

    def buffer(self, index: int) -> bytes:
        """The bytes of a buffer: the .glb chunk, a data: URI or a file beside this one."""
        if index not in self._buffers:
            entry = self.item("buffers", index)
            data = self._load(entry.get("uri"), index)
            wanted = entry.get("byteLength")
            if not isinstance(wanted, int) or wanted < 0:
                raise self.broken(f"buffers[{index}] has no length")
            if len(data) < wanted:
                raise self.broken(f"buffer {index} holds {len(data)} bytes of {wanted}")
            self._buffers[index] = data
        return self._buffers[index]

    def _load(self, uri: Any, index: int) -> bytes:
        if uri is None:
            if index != 0 or self.embedded is None:
                raise self.broken(f"buffer {index} has neither a file nor a place in this one")
            return self.embedded
        return self.resource(uri)

    def resource(self, uri: Any) -> bytes:
        """What a URI of the file holds: data: URIs, and files in its folder or below."""
        if not isinstance(uri, str):
            raise self.broken(f"a URI is {uri!r}")
        if uri.startswith("data:"):
            head, _, body = uri.partition(",")
            try:
                return base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote(body).encode()
            except (binascii.Error, ValueError) as error:
                raise self.broken(f"a data: URI cannot be decoded ({error})") from error
        if "://" in uri:
            raise InputError(f"{self.path}: refers to {uri}; nothing is downloaded. Save it beside the file.")
        path = self.path.parent / unquote(uri)
        if self.path.parent.resolve() not in path.resolve().parents:
            raise InputError(f"{self.path}: refers to {uri}, outside its own folder. Copy it beside the file.")
        if not path.is_file():
            raise InputError(f"{self.path}: needs {uri} beside it, which is not there. Copy it there, or use a .glb.")
        return path.read_bytes()

    def view(self, index: int) -> tuple[bytes, int, int, int]:
        """A buffer view: buffer, first byte, length and stride (0 where packed)."""
        entry = self.item("bufferViews", index)
        if "EXT_meshopt_compression" in entry.get("extensions", {}):
            raise InputError(f"{self.path}: is compressed with EXT_meshopt_compression. {_DECODE}")
        data = self.buffer(entry.get("buffer", -1))
        start, length, stride = (entry.get(key, 0) for key in ("byteOffset", "byteLength", "byteStride"))
        if not all(isinstance(v, int) and v >= 0 for v in (start, length, stride)) or start + length > len(data):
            raise self.broken(f"bufferViews[{index}] ends beyond its buffer of {len(data)} bytes")
        return data, start, length, stride

    def accessor(self, index: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """An accessor's values (count, *shape): float64 where normalised or float, else integers.

        Matrices come as rows (the file stores columns). ``shape`` is what the caller expects of each element.
        """
        entry = self.item("accessors", index)
        own = _SHAPES.get(entry.get("type", ""))
        count, kind = entry.get("count"), _TYPES.get(entry.get("componentType", 0))
        if own is None or kind is None or not isinstance(count, int) or not 0 <= count < _MOST_ELEMENTS:
            raise self.broken(f"accessors[{index}] has type {entry.get('type')!r}, {entry.get('count')!r} elements")
        if shape is not None and own != shape:
            raise self.broken(f"accessors[{index}] holds {entry['type']}, where {shape or 'scalars'} are needed")
        where = f"accessors[{index}]"
        if "bufferView" in entry:
            raw = self._strided(entry["bufferView"], entry.get("byteOffset", 0), count, own, kind, where)
        else:
            raw = np.zeros((count, *own), kind)
        if "sparse" in entry:
            raw = self._with_sparse(raw, entry["sparse"], own, where)
        values = _float(raw, bool(entry.get("normalized")))
        return values.swapaxes(1, 2) if len(own) == 2 else values

    def _strided(
        self, view: int, offset: Any, count: int, shape: tuple[int, ...], kind: type, where: str
    ) -> np.ndarray:
        data, start, length, stride = self.view(view)
        size = np.dtype(kind).itemsize
        # Columns of matrices start at multiples of four bytes.
        pad = (-size * shape[0]) % 4 if len(shape) == 2 else 0
        element = (size * shape[0] + pad) * shape[1] if len(shape) == 2 else size * int(np.prod(shape, dtype=int))
        stride = stride or element
        if not isinstance(offset, int) or offset < 0 or (count and offset + stride * (count - 1) + element > length):
            raise self.broken(f"{where}: {count} elements do not fit into its buffer view of {length} bytes")
        inner = (size * shape[0] + pad, size) if len(shape) == 2 else (size,) * len(shape)
        return np.ndarray(
            (count, *shape), np.dtype(kind).newbyteorder("<"), data, start + offset, (stride, *inner)
        ).copy()

    def _with_sparse(self, raw: np.ndarray, sparse: dict[str, Any], shape: tuple[int, ...], where: str) -> np.ndarray:
        try:
            count, indices, values = sparse["count"], sparse["indices"], sparse["values"]
            kind = _TYPES[indices["componentType"]]
            views = indices["bufferView"], values["bufferView"]
        except (KeyError, TypeError) as error:
            raise self.broken(f"{where}: its sparse part lacks {error}") from error
        if not isinstance(count, int) or not 0 <= count <= len(raw):
            raise self.broken(f"{where}: {count} sparse values for {len(raw)} elements")
        at = self._strided(views[0], indices.get("byteOffset", 0), count, (), kind, where)
        if count and at.max() >= len(raw):
            raise self.broken(f"{where}: a sparse index is {at.max()}, but there are {len(raw)} elements")
        raw[at] = self._strided(views[1], values.get("byteOffset", 0), count, shape, raw.dtype.type, where)
        return raw


def _float(raw: np.ndarray, normalised: bool) -> np.ndarray:
    """Integers stay integers unless they stand for fractions (spec 3.11: c / 127, and -128 counts as -127)."""
    if raw.dtype.kind == "f":
        return raw.astype(np.float64)
    if not normalised:
        return raw.astype(np.int64)
    return np.maximum(raw.astype(np.float64) / np.iinfo(raw.dtype).max, -1.0)


def open_gltf(path: Path) -> GltfFile:
    """Read a .glb or .gltf (told apart by the first bytes) and refuse what cannot be read, with the way out.

    Raises :class:`InputError` for missing and broken files, glTF 1.0, Draco, and required extensions unknown here.
    """
    head = first_bytes(path, 4)
    data = path.read_bytes()
    if head == b"glTF":
        content, embedded = _glb_chunks(path, data)
    elif path.suffix.lower() == ".glb":
        raise InputError(f"{path}: starts with {head!r}, not with glTF. It is no .glb: export or download it again.")
    else:
        content, embedded = data, None
    try:
        parsed = json.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: is no glTF: its JSON cannot be read ({error}). Export or download it again."
        ) from error
    if not isinstance(parsed, dict):
        raise InputError(f"{path}: is no glTF: its JSON is no object. Export or download it again.")
    asset = parsed.get("asset")
    version = str(asset.get("version", "")) if isinstance(asset, dict) else ""
    if not version.startswith("2."):
        raise InputError(f"{path}: is glTF {version or 'of no version'}; 2.0 can be read. Convert it with Blender.")
    file = GltfFile(path, parsed, embedded)
    _check_extensions(file)
    return file


def _check_extensions(file: GltfFile) -> None:
    required = file.content.get("extensionsRequired", [])
    compressed = {"KHR_draco_mesh_compression": "Draco", "EXT_meshopt_compression": "EXT_meshopt_compression"}
    for name, spoken in compressed.items():
        if name in required:
            raise InputError(f"{file.path}: its meshes are compressed with {spoken}, which is not read here. {_DECODE}")
    unknown = [str(name) for name in required if name not in _KNOWN]
    if unknown:
        raise InputError(f"{file.path}: requires {', '.join(unknown)}, which is not known here. Export it without.")


def _glb_chunks(path: Path, data: bytes) -> tuple[bytes, bytes | None]:
    if len(data) < 20:
        raise InputError(f"{path}: {len(data)} bytes are too few for a .glb. It is cut off: download it again.")
    version, length = struct.unpack_from("<II", data, 4)
    if version != 2:
        raise InputError(f"{path}: is a .glb of version {version}; 2 can be read. Convert it with Blender.")
    if length > len(data):
        raise InputError(f"{path}: is cut off: {len(data)} bytes of {length}. Download or export it again.")
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= length:
        size, kind = struct.unpack_from("<I4s", data, at)
        if at + 8 + size > length:
            raise InputError(f"{path}: a chunk of {size} bytes reaches beyond its end. Download or export it again.")
        chunks.setdefault(kind, data[at + 8 : at + 8 + size])
        at += 8 + size
    if b"JSON" not in chunks:
        raise InputError(f"{path}: has no JSON chunk. It is damaged: export or download it again.")
    return chunks[b"JSON"], chunks.get(b"BIN\0")


def checked_number(file: GltfFile, values: Any, count: int, what: str) -> np.ndarray:
    """A JSON list of ``count`` finite numbers as float64."""
    try:
        out = np.array(values, np.float64)
    except (TypeError, ValueError):
        out = np.empty(0)
    if out.shape != (count,) or not np.isfinite(out).all():
        raise file.broken(f"{what} is {values!r}, not {count} numbers")
    return out
