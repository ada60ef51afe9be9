"""Skinning straight from the text of the glTF 2.0 specification: float64, one vertex at a time, nothing shared with the
package. Slow on purpose; ``every`` takes each so-manieth vertex."""

from __future__ import annotations

import base64
import json
import math
import struct
from pathlib import Path

import numpy as np

_CODES = {5120: "b", 5121: "B", 5122: "h", 5123: "H", 5125: "I", 5126: "f"}
_COUNTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}


class Reference:
    """One file, read with struct alone."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        if data[:4] == b"glTF":
            (length,) = struct.unpack_from("<I", data, 12)
            self.json = json.loads(data[20 : 20 + length])
            self.buffers = [data[28 + length :]]
        else:
            self.json = json.loads(data)
            self.buffers = [self._load(path, b["uri"]) for b in self.json["buffers"]]
        self.nodes = self.json["nodes"]
        self.parent = {c: k for k, node in enumerate(self.nodes) for c in node.get("children", [])}

    @staticmethod
    def _load(path: Path, uri: str) -> bytes:
        return base64.b64decode(uri.split(",")[1]) if uri.startswith("data:") else (path.parent / uri).read_bytes()

    def values(self, index: int) -> list[tuple[float, ...]]:
        accessor = self.json["accessors"][index]
        view = self.json["bufferViews"][accessor["bufferView"]]
        code = f"<{_COUNTS[accessor['type']]}{_CODES[accessor['componentType']]}"
        stride = view.get("byteStride") or struct.calcsize(code)
        start = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
        buffer = self.buffers[view["buffer"]]
        return [struct.unpack_from(code, buffer, start + stride * k) for k in range(accessor["count"])]

    def sampled(self, clip: int | None, time: float) -> dict[int, dict[str, np.ndarray]]:
        out: dict[int, dict[str, np.ndarray]] = {}
        if clip is None:
            return out
        animation = self.json["animations"][clip]
        for channel in animation["channels"]:
            sampler = animation["samplers"][channel["sampler"]]
            times = [t for (t,) in self.values(sampler["input"])]
            keys = [np.array(v) for v in self.values(sampler["output"])]
            path = channel["target"]["path"]
            value = _between(times, keys, time, sampler.get("interpolation", "LINEAR"), path == "rotation")
            out.setdefault(channel["target"]["node"], {})[path] = value
        return out

    def posed(self, clip: int | None = None, time: float = 0.0, every: int = 1) -> np.ndarray:
        """World positions, all primitives of all mesh nodes one after the other."""
        changes = self.sampled(clip, time)
        local = [_local(node, changes.get(k, {})) for k, node in enumerate(self.nodes)]

        def world(k: int) -> np.ndarray:
            return local[k] if k not in self.parent else world(self.parent[k]) @ local[k]

        out = []
        for k, node in enumerate(self.nodes):
            if "mesh" not in node:
                continue
            for primitive in self.json["meshes"][node["mesh"]]["primitives"]:
                attributes = primitive["attributes"]
                points = self.values(attributes["POSITION"])
                if "skin" not in node:
                    out += [(world(k) @ [*p, 1.0])[:3] for p in points]
                    continue
                skin = self.json["skins"][node["skin"]]
                inverse = [np.array(m).reshape(4, 4).T for m in self.values(skin["inverseBindMatrices"])]
                joints = [world(j) @ inverse[s] for s, j in enumerate(skin["joints"])]
                slots, weights = self.values(attributes["JOINTS_0"]), self.values(attributes["WEIGHTS_0"])
                for p, slot, weight in zip(points, slots, weights):
                    if len(out) % every:
                        out.append(np.full(3, np.nan))
                        continue
                    blended = sum(w * joints[s] for s, w in zip(slot, weight))
                    out.append((blended @ [*p, 1.0])[:3])
        return np.array(out)


def _local(node: dict, change: dict[str, np.ndarray]) -> np.ndarray:
    if "matrix" in node:
        return np.array(node["matrix"]).reshape(4, 4).T
    x, y, z, w = change.get("rotation", node.get("rotation", [0, 0, 0, 1]))
    length = math.sqrt(x * x + y * y + z * z + w * w)
    x, y, z, w = x / length, y / length, z / length, w / length
    out = np.eye(4)
    out[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    out[:3, :3] = out[:3, :3] @ np.diag(change.get("scale", node.get("scale", [1, 1, 1])))
    out[:3, 3] = change.get("translation", node.get("translation", [0, 0, 0]))
    return out


def _between(times: list[float], keys: list[np.ndarray], time: float, kind: str, turn: bool) -> np.ndarray:
    cubic = kind == "CUBICSPLINE"
    own = keys[1::3] if cubic else keys
    if time <= times[0] or len(times) == 1:
        return own[0]
    if time >= times[-1]:
        return own[-1]
    k = max(i for i in range(len(times)) if times[i] <= time)
    gap = times[k + 1] - times[k]
    s = (time - times[k]) / gap
    if kind == "STEP":
        return own[k]
    if cubic:
        a, b = 2 * s**3 - 3 * s**2 + 1, s**3 - 2 * s**2 + s
        c, d = -2 * s**3 + 3 * s**2, s**3 - s**2
        return a * own[k] + gap * b * keys[3 * k + 2] + c * own[k + 1] + gap * d * keys[3 * k + 3]
    if not turn:
        return own[k] * (1 - s) + own[k + 1] * s
    a, b = own[k] / np.linalg.norm(own[k]), own[k + 1] / np.linalg.norm(own[k + 1])
    if a @ b < 0:
        b = -b
    angle = math.acos(min(1.0, float(a @ b)))
    if angle < 1e-7:
        return a * (1 - s) + b * s
    return (math.sin((1 - s) * angle) * a + math.sin(s * angle) * b) / math.sin(angle)
