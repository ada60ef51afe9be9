"""Splats in glTF: points with the extension KHR_gaussian_splatting (Khronos review draft), and SPZ data inside glTF.

A point primitive's attributes: POSITION, and with the prefix ``KHR_gaussian_splatting:`` ROTATION (xyzw), SCALE
(logarithms), OPACITY (0 to 1) and SH_DEGREE_l_COEF_n, whose basis and signs are those of 3DGS. COLOR_0 lets viewers
that do not know the extension show coloured points. glTF is y-up: nodes turn what is not.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.formats.axes import HALF_TURN, half_turn
from splatanim.formats.base import ReadResult, damaged, first_bytes, read_bytes
from splatanim.formats.clean import SH_C0, Columns, cleaned
from splatanim.formats.losses import said_losses
from splatanim.formats.spz import unpack_spz

if TYPE_CHECKING:
    from splatanim.rig.gltf_file import GltfFile

EXTENSION = "KHR_gaussian_splatting"
_SPZ = ("KHR_gaussian_splatting_compression_spz_2", "KHR_gaussian_splatting_compression_spz")
_KNOWN = {EXTENSION, *_SPZ, "KHR_mesh_quantization", "KHR_materials_unlit", "KHR_xmp_json_ld"}
_POINTS = 0
_UNSIGNED_BYTE, _FLOAT, _ARRAY_BUFFER = 5121, 5126, 34962
_UP = "+y"


def holds_gaussians(path: str | os.PathLike[str]) -> bool:
    """Whether a .glb or .gltf has a primitive with the extension; False for files that are broken or no glTF.

    Raises InputError where the file is missing or cannot be read.
    """
    path = Path(path)
    try:
        content = json.loads(_split(path)[0])
        return isinstance(content, dict) and any(True for _ in _gaussian_primitives(content))
    except (InputError, ValueError, RecursionError):
        first_bytes(path, 1)
        return False


def read_gltf_splats(path: str | os.PathLike[str]) -> ReadResult:
    """All splats of a .glb or .gltf where its nodes show them, in one set.

    Raises InputError where the file holds none, is broken, or uses a kernel or compression that is not known here.
    """
    path = Path(path)
    file = _open(path)
    pieces, notes = [], list[str]()
    shown = _shown(file)
    for mesh, primitive in _gaussian_primitives(file.content):
        columns = _columns(file, primitive, notes)
        pieces += [_moved(columns, world) for node_mesh, world in shown if node_mesh == mesh]
    if not pieces:
        raise InputError(
            f"{path}: holds no splats ({EXTENSION}) that its scene shows. If it is a mesh, make splats of it: "
            "splatanim convert IN.glb OUT.ply."
        )
    return cleaned(path, _joined(pieces), format="gltf/khr_gaussian_splatting", warnings=dict.fromkeys(notes), up=_UP)


def _split(path: Path) -> tuple[bytes, memoryview | None]:
    """The JSON text and the binary chunk of a .glb or .gltf."""
    data = read_bytes(path)
    if data[:4] != b"glTF":
        return data, None
    view = memoryview(data)  # the binary chunk may be large: no copies of it
    chunks: dict[bytes, memoryview] = {}
    at = 12
    while at + 8 <= len(data):
        size, kind = struct.unpack_from("<I4s", data, at)
        if at + 8 + size > len(data):
            raise damaged(path, f"a chunk of {size} bytes reaches beyond the end of the .glb")
        chunks.setdefault(kind, view[at + 8 : at + 8 + size])
        at += 8 + size
    if b"JSON" not in chunks:
        raise damaged(path, "the .glb has no JSON chunk")
    return bytes(chunks[b"JSON"]), chunks.get(b"BIN\0")


def _open(path: Path) -> GltfFile:
    from splatanim.rig.gltf_file import GltfFile

    text, embedded = _split(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"is no glTF: its JSON cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise damaged(path, "is no glTF: its JSON is no object")
    required = content.get("extensionsRequired", [])
    unknown = [str(name) for name in required if name not in _KNOWN] if isinstance(required, list) else ["(broken)"]
    if unknown:
        raise InputError(f"{path}: requires {', '.join(unknown)}, which is not known here. Export it without.")
    return GltfFile(path, content, None if embedded is None else bytes(embedded))


def _gaussian_primitives(content: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index of the mesh, primitive) of every primitive with the extension."""
    meshes = content.get("meshes")
    for k, mesh in enumerate(meshes if isinstance(meshes, list) else []):
        primitives = mesh.get("primitives") if isinstance(mesh, dict) else None
        for primitive in primitives if isinstance(primitives, list) else []:
            extensions = primitive.get("extensions") if isinstance(primitive, dict) else None
            if isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict):
                yield k, primitive


def _shown(file: GltfFile) -> list[tuple[int, np.ndarray]]:
    """(mesh, its map to the world (4, 4)) of every node with a mesh; all meshes unmoved where there are no nodes."""
    from splatanim.rig.gltf_nodes import read_nodes

    entries = file.entries("nodes")
    for entry in entries:
        if not isinstance(entry.get("children", []), list):
            raise file.broken("children of a node are no list")
    nodes = read_nodes(file)
    if not nodes:
        return [(k, np.eye(4)) for k in range(len(file.entries("meshes")))]
    out = []
    for entry, node in zip(entries, nodes, strict=True):
        if not isinstance(entry.get("mesh"), int):
            continue
        world, at = node.local, node.parent
        while at >= 0:
            world, at = nodes[at].local @ world, nodes[at].parent
        out.append((entry["mesh"], world))
    return out


def _columns(file: GltfFile, primitive: dict[str, Any], notes: list[str]) -> Columns:
    """One primitive's splats in the axes of its mesh."""
    extension = primitive["extensions"][EXTENSION]
    inner = extension.get("extensions")
    for name in _SPZ:
        if isinstance(inner, dict) and isinstance(inner.get(name), dict):
            data, start, length, _ = file.view(inner[name].get("bufferView"))
            columns, _, said = unpack_spz(file.path, data[start : start + length])
            notes += said
            return columns
    if isinstance(inner, dict) and inner:
        raise InputError(f"{file.path}: its splats use {', '.join(map(str, inner))}, unknown here. Export it without.")
    if extension.get("kernel", "ellipse") != "ellipse" or primitive.get("mode", 4) != _POINTS:
        raise InputError(
            f"{file.path}: its splats have the kernel {extension.get('kernel')!r} and mode {primitive.get('mode')}; "
            "ellipse and points (0) can be read. Export it again as 3DGS."
        )
    if extension.get("colorSpace") == "lin_rec709_display":
        notes.append("The colours of the file are linear; they are shown as they are, darker than meant.")
    attributes = primitive.get("attributes")
    if not isinstance(attributes, dict):
        raise file.broken("a primitive has no attributes")
    xyz = _attribute(file, attributes, "POSITION", (3,))
    rotation = _attribute(file, attributes, f"{EXTENSION}:ROTATION", (4,))
    opacity = _attribute(file, attributes, f"{EXTENSION}:OPACITY", ())
    scales = _attribute(file, attributes, f"{EXTENSION}:SCALE", (3,))
    sh = _harmonics(file, attributes)
    if {len(a) for a in (rotation, opacity, scales, sh)} != {len(xyz)}:
        raise file.broken("the attributes of a splat primitive differ in length")
    if len(opacity) and not (np.nanmin(opacity) >= -1e-6 and np.nanmax(opacity) <= 1 + 1e-6):
        raise file.broken("opacities of its splats lie outside [0, 1]")
    with np.errstate(divide="ignore", over="ignore"):
        logits = np.log(opacity.clip(0, 1)) - np.log1p(-opacity.clip(0, 1))
        return Columns(
            xyz,
            sh,
            logits.astype(np.float32),
            scales.astype(np.float32),
            np.roll(rotation, 1, axis=1).astype(np.float32),
        )


def _attribute(file: GltfFile, attributes: dict[str, Any], name: str, shape: tuple[int, ...]) -> np.ndarray:
    if name not in attributes:
        raise file.broken(f"a splat primitive lacks the attribute {name}")
    return np.asarray(file.accessor(attributes[name], shape), np.float64)


def _harmonics(file: GltfFile, attributes: dict[str, Any]) -> np.ndarray:
    """Whole degrees, from 0 up to the highest that is there (N, K, 3)."""
    names = [f"{EXTENSION}:SH_DEGREE_0_COEF_0"]
    for degree in range(1, 4):
        more = [f"{EXTENSION}:SH_DEGREE_{degree}_COEF_{k}" for k in range(2 * degree + 1)]
        if not any(name in attributes for name in more):
            break
        names += more
    first = _attribute(file, attributes, names[0], (3,))
    out = np.empty((len(first), len(names), 3), np.float32)
    with np.errstate(over="ignore"):
        for k, name in enumerate(names):
            part = _attribute(file, attributes, name, (3,)) if k else first
            if len(part) != len(first):
                raise file.broken("the attributes of a splat primitive differ in length")
            out[:, k] = part
    return out


def _moved(columns: Columns, world: np.ndarray) -> Columns:
    """Columns under a node's affine map, in float64 as far as positions go."""
    linear = world[:3, :3]
    xyz = columns.xyz @ linear.T + world[:3, 3]
    if np.array_equal(linear, np.eye(3)):
        return Columns(xyz, columns.sh, columns.opacity, columns.log_scales, columns.rotation)
    if np.array_equal(linear, HALF_TURN):
        _, rotation, sh = half_turn(xyz, columns.rotation, columns.sh)
        return Columns(xyz, sh, columns.opacity, columns.log_scales, rotation)
    from splatanim.transforms import push_forward

    norms = np.linalg.norm(columns.rotation.astype(np.float64), axis=1, keepdims=True)
    good = np.isfinite(columns.log_scales).all(axis=1) & np.isfinite(norms[:, 0]) & (norms[:, 0] > 1e-15)
    good &= np.isfinite(columns.sh).all(axis=(1, 2))
    rotation, log_scales, sh = columns.rotation.copy(), columns.log_scales.copy(), columns.sh.copy()
    unit = (columns.rotation[good] / norms[good]).astype(np.float32)
    still = Splats(np.zeros((len(unit), 3), np.float32), unit, log_scales[good], columns.opacity[good], sh[good])
    moved = push_forward(still, np.broadcast_to(linear, (len(unit), 3, 3)), np.zeros((len(unit), 3)))
    rotation[good], log_scales[good], sh[good] = moved.quaternions, moved.log_scales, moved.sh
    return Columns(xyz, sh, columns.opacity, log_scales, rotation)


def _joined(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    most = max(part.sh.shape[1] for part in parts)
    return Columns(
        np.concatenate([part.xyz for part in parts]),
        np.concatenate([np.pad(part.sh, ((0, 0), (0, most - part.sh.shape[1]), (0, 0))) for part in parts]),
        np.concatenate([part.opacity for part in parts]),
        np.concatenate([part.log_scales for part in parts]),
        np.concatenate([part.rotation for part in parts]),
    )


def write_gltf_splats(path: str | os.PathLike[str], splats: Splats, *, up: str | None = None) -> tuple[str, ...]:
    """Write a .glb with KHR_gaussian_splatting, whole or not at all; returns what is worth saying, as sentences.

    Coordinates stay as they are: a node above turns ``up`` (an axis name, -y by default) to +y, as glTF has it, and
    carries the offset of scenes far from the origin.

    Raises OutputError where nothing can be written.
    """
    from splatanim.inspect import PLY_UP

    up = up or PLY_UP
    arrays = _arrays(splats)
    accessors, views, end = _layout(arrays)
    extension = {"kernel": "ellipse", "colorSpace": "srgb_rec709_display", "projection": "perspective"}
    attributes = {name: k for k, name in enumerate(arrays)}
    primitive = {"attributes": attributes, "mode": _POINTS, "extensions": {EXTENSION: extension}}
    notes = list(said_losses(splats, ".glb"))
    placed = np.eye(4)
    placed[:3, 3] = splats.offset
    if up != _UP:
        placed = _turn_to_up(up) @ placed
        notes.append(f"glTF is y-up: a node turns the points from {up} to +y; their coordinates stay.")
    node: dict[str, Any] = {"mesh": 0, "name": Path(path).stem}
    if not np.array_equal(placed, np.eye(4)):
        node["matrix"] = placed.T.ravel().tolist()
    content = {
        "asset": {"version": "2.0", "generator": "splatanim"},
        "extensionsUsed": [EXTENSION],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [node],
        "meshes": [{"primitives": [primitive]}],
        "accessors": accessors,
        "bufferViews": views,
        "buffers": [{"byteLength": end}],
    }
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:  # array by array, so that memory stays small
        file.write(struct.pack("<4sII", b"glTF", 2, 28 + len(text) + end))
        file.write(struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", end, b"BIN\0"))
        for values in arrays.values():
            file.write(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data)
    return tuple(notes)


def _turn_to_up(up: str) -> np.ndarray:
    from splatanim.inspect import up_vector
    from splatanim.rig.affine import shortest_turn

    turn = np.eye(4)
    # From -y it is the half turn about x that leads from RDF to RUB, as for other formats.
    turned = HALF_TURN if up == "-y" else shortest_turn(np.asarray(up_vector(up)), np.asarray(up_vector(_UP)))
    turn[:3, :3] = turned
    return turn


def _arrays(splats: Splats) -> dict[str, np.ndarray]:
    """Attributes by name; elements are multiples of four bytes, as glTF wants it."""
    colours = np.clip(0.5 + SH_C0 * splats.sh[:, 0], 0, 1)
    rgba = np.concatenate([colours, splats.opacities[:, None]], axis=1)
    out = {
        "POSITION": splats.means,
        "COLOR_0": np.round(255 * rgba).astype(np.uint8),
        f"{EXTENSION}:ROTATION": np.roll(splats.quaternions, -1, axis=1),
        f"{EXTENSION}:SCALE": splats.log_scales,
        f"{EXTENSION}:OPACITY": splats.opacities,
    }
    for k in range(splats.sh.shape[1]):
        degree = int(k**0.5)
        out[f"{EXTENSION}:SH_DEGREE_{degree}_COEF_{k - degree**2}"] = splats.sh[:, k]
    return out


def _layout(arrays: dict[str, np.ndarray]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Accessors and buffer views of arrays that follow each other in one buffer, and its length."""
    accessors, views, at = [], list[dict[str, Any]](), 0
    for name, values in arrays.items():
        entry = {
            "bufferView": len(views),
            "componentType": _UNSIGNED_BYTE if values.dtype == np.uint8 else _FLOAT,
            "count": len(values),
            "type": "SCALAR" if values.ndim == 1 else f"VEC{values.shape[1]}",
        }
        if values.dtype == np.uint8:
            entry["normalized"] = True
        if name == "POSITION":
            entry |= {"min": values.min(axis=0).tolist(), "max": values.max(axis=0).tolist()}
        accessors.append(entry)
        views.append({"buffer": 0, "byteOffset": at, "byteLength": values.nbytes, "target": _ARRAY_BUFFER})
        at += values.nbytes
    return accessors, views, at
