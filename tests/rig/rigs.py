"""Seeded skeletons, weights and hand-made glTF files for the tests of rigs."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.rig.skeleton import Pose, Skeleton, skeleton_from_positions
from splatanim.rig.weights import SkinWeights, sparse_weights

PARENTS = np.array([3, 0, 1, -1, 3, 4, 0, -1])  # not in topological order, two roots


def unit_quaternions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    q = rng.normal(size=(*shape, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def random_pose(rng: np.random.Generator, *shape: int) -> Pose:
    size = (*shape, 3)
    return Pose(rng.normal(size=size), unit_quaternions(rng, *shape), rng.uniform(0.6, 1.5, size))


def random_skeleton(seed: int = 0) -> Skeleton:
    """Eight joints with turned rest axes, prefixes that shear, and a bind pose that is not the rest pose."""
    rng = np.random.default_rng(seed)
    n = len(PARENTS)
    inverse = np.tile(np.eye(4), (n, 1, 1))
    inverse[:, :3] = rng.normal(size=(n, 3, 4)) + 2 * np.eye(3, 4)
    prefix = np.tile(np.eye(4), (n, 1, 1))
    prefix[[1, 3], :3] = rng.normal(size=(2, 3, 4)) + 2 * np.eye(3, 4)
    return Skeleton(tuple(f"joint{k}" for k in range(n)), PARENTS, random_pose(rng, n), inverse, prefix)


def chain(count: int = 3) -> Skeleton:
    """Joints one above the other along y, a unit apart."""
    positions = np.stack([np.zeros(count), np.arange(count), np.zeros(count)], axis=1).astype(float)
    return skeleton_from_positions([f"bone{k}" for k in range(count)], np.arange(count) - 1, positions)


def random_weights(rng: np.random.Generator, count: int, joints: int, most: int = 4) -> SkinWeights:
    return sparse_weights(rng.random((count, joints)) ** 6 + 1e-9, most)


class HandMade:
    """A glTF put together by hand: ``content`` and raw bytes, none of it through the package's writer."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {"asset": {"version": "2.0"}, "bufferViews": [], "accessors": []}
        self.binary = b""

    def view(self, data: bytes, **extra: Any) -> int:
        self.binary += bytes(-len(self.binary) % 4)
        self.content["bufferViews"].append(
            {"buffer": 0, "byteOffset": len(self.binary), "byteLength": len(data), **extra}
        )
        self.binary += data
        return len(self.content["bufferViews"]) - 1

    def accessor(self, code: str, component: int, kind: str, rows: list, **extra: Any) -> int:
        data = b"".join(struct.pack("<" + code, *np.ravel(row)) for row in rows)
        entry = {"bufferView": self.view(data), "componentType": component, "type": kind, "count": len(rows), **extra}
        return self.add(entry)

    def add(self, accessor: dict[str, Any]) -> int:
        self.content["accessors"].append(accessor)
        return len(self.content["accessors"]) - 1

    def floats(self, rows: list) -> int:
        width = np.size(rows[0])
        kind = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4", 16: "MAT4"}[width]
        return self.accessor(f"{width}f", 5126, kind, rows)

    def write(self, path: Path, how: str = "glb") -> Path:
        """``glb``, ``data`` (a data: URI) or ``file`` (a .bin beside it)."""
        content = json.loads(json.dumps(self.content))
        buffer: dict[str, Any] = {"byteLength": len(self.binary)}
        content["buffers"] = [buffer]
        if how == "data":
            buffer["uri"] = "data:application/octet-stream;base64," + base64.b64encode(self.binary).decode()
        if how == "file":
            buffer["uri"] = "the%20buffer.bin"
            (path.parent / "the buffer.bin").write_bytes(self.binary)
        text = json.dumps(content).encode()
        if how != "glb":
            path.write_bytes(text)
            return path
        text += b" " * (-len(text) % 4)
        binary = self.binary + bytes(-len(self.binary) % 4)
        body = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(binary), b"BIN\0") + binary
        path.write_bytes(struct.pack("<4sII", b"glTF", 2, 12 + len(body)) + body)
        return path


def bar(weights: list | None = None, joints: list | None = None) -> HandMade:
    """Two triangles on two joints along y, the mesh's bind matrices moving it down by one at the second joint."""
    made = HandMade()
    points = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 2, 0], [1, 2, 0]]
    weights = weights or [[1, 0, 0, 0], [1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
    joints = joints or [[0, 1, 0, 0]] * 6
    down = np.eye(4)
    down[1, 3] = -1.0
    made.content.update(
        scene=0,
        scenes=[{"nodes": [0, 1]}],
        nodes=[
            {"mesh": 0, "skin": 0},
            {"name": "low", "children": [2]},
            {"name": "high", "translation": [0, 1, 0]},
        ],
        skins=[{"joints": [1, 2], "inverseBindMatrices": made.floats([np.eye(4).T, down.T])}],
    )
    attributes = {"POSITION": made.floats(points), "WEIGHTS_0": made.floats(weights)}
    attributes["JOINTS_0"] = made.accessor("4H", 5123, "VEC4", joints)
    indices = made.accessor("H", 5123, "SCALAR", [0, 1, 2, 2, 1, 3, 2, 3, 4, 4, 3, 5])
    made.content["meshes"] = [{"primitives": [{"attributes": attributes, "indices": indices}]}]
    return made


def add_bow(made: HandMade) -> None:
    """Add the clip ``bow``: the upper joint turns by 1.5 rad about z within a second."""
    keys = [[0, 0, 0, 1], [0, 0, np.sin(0.75), np.cos(0.75)]]
    sampler = {"input": made.floats([0.0, 1.0]), "output": made.floats(keys)}
    channel = {"sampler": 0, "target": {"node": 2, "path": "rotation"}}
    made.content["animations"] = [{"name": "bow", "samplers": [sampler], "channels": [channel]}]
