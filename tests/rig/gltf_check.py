"""The rules of the glTF 2.0 specification that a skinned file can break, checked without a validator."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

_BYTES = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}
_KINDS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
_DTYPES = {5121: "u1", 5123: "<u2", 5125: "<u4", 5126: "<f4"}


def check_glb(path: Path) -> dict:
    """Assert the rules; returns the JSON."""
    data = path.read_bytes()
    magic, version, length = struct.unpack_from("<4sII", data)
    assert (magic, version, length) == (b"glTF", 2, len(data))
    size, kind = struct.unpack_from("<I4s", data, 12)
    assert kind == b"JSON" and size % 4 == 0
    content = json.loads(data[20 : 20 + size])
    binary_size, kind = struct.unpack_from("<I4s", data, 20 + size)
    assert kind == b"BIN\0" and binary_size % 4 == 0 and 28 + size + binary_size == len(data)
    assert len(content["buffers"]) == 1 and content["buffers"][0]["byteLength"] <= binary_size
    binary = data[28 + size :]
    arrays = [_array(content, binary, a) for a in content["accessors"]]
    _check_nodes(content)
    for skin in content.get("skins", []):
        assert len(arrays[skin["inverseBindMatrices"]]) == len(skin["joints"]) == len(set(skin["joints"]))
        last = arrays[skin["inverseBindMatrices"]].reshape(-1, 4, 4)[:, :, 3]
        assert (last == [0, 0, 0, 1]).all()
    for mesh in content["meshes"]:
        for primitive in mesh["primitives"]:
            _check_primitive(content, arrays, primitive)
    for clip in content.get("animations", []):
        targets = {(c["target"]["node"], c["target"]["path"]) for c in clip["channels"]}
        assert len(targets) == len(clip["channels"]) == len(clip["samplers"])
        for sampler in clip["samplers"]:
            times = arrays[sampler["input"]].ravel()
            assert times[0] >= 0 and (np.diff(times) > 0).all()
            assert content["accessors"][sampler["input"]]["max"] == [float(times[-1])]
            factor = 3 if sampler["interpolation"] == "CUBICSPLINE" else 1
            assert len(arrays[sampler["output"]]) == factor * len(times)
    return content


def _array(content: dict, binary: bytes, accessor: dict) -> np.ndarray:
    view = content["bufferViews"][accessor["bufferView"]]
    width = _KINDS[accessor["type"]]
    component = _BYTES[accessor["componentType"]]
    assert view["byteOffset"] % 4 == 0 and "byteStride" not in view
    assert accessor["count"] * width * component == view["byteLength"] and accessor["count"] > 0
    if "target" in view and accessor["type"] != "SCALAR":
        assert width * component % 4 == 0  # vertex attributes are aligned to four bytes
    values = np.frombuffer(
        binary, _DTYPES[accessor["componentType"]], accessor["count"] * width, view["byteOffset"]
    ).reshape(-1, width)
    assert np.isfinite(values).all()
    if "min" in accessor:
        assert accessor["min"] == values.min(axis=0).tolist() and accessor["max"] == values.max(axis=0).tolist()
    return values


def _check_nodes(content: dict) -> None:
    children = [c for node in content["nodes"] for c in node.get("children", [])]
    assert len(children) == len(set(children))
    roots = set(content["scenes"][0]["nodes"])
    assert roots.isdisjoint(children) and len(roots) + len(children) == len(content["nodes"])
    for node in content["nodes"]:
        if "rotation" in node:
            assert abs(np.linalg.norm(node["rotation"]) - 1) < 1e-6


def _check_primitive(content: dict, arrays: list[np.ndarray], primitive: dict) -> None:
    attributes = primitive["attributes"]
    counts = {len(arrays[k]) for k in attributes.values()}
    assert len(counts) == 1 and "min" in content["accessors"][attributes["POSITION"]]
    if "indices" in primitive:
        index = arrays[primitive["indices"]]
        assert index.max() < min(counts) and len(index) % 3 == 0
    if "NORMAL" in attributes:
        np.testing.assert_allclose(np.linalg.norm(arrays[attributes["NORMAL"]], axis=1), 1, atol=5e-4)
    joints = np.concatenate([arrays[v] for k, v in sorted(attributes.items()) if k.startswith("JOINTS")], axis=1)
    weights = np.concatenate([arrays[v] for k, v in sorted(attributes.items()) if k.startswith("WEIGHTS")], axis=1)
    assert joints.max() < len(content["skins"][0]["joints"])
    assert (weights >= 0).all() and np.abs(weights.astype(float).sum(axis=1) - 1).max() < 2e-7 * weights.shape[1]
    assert (joints[weights == 0] == 0).all()
    used = np.where(weights > 0, joints, -1 - np.arange(joints.shape[1]))
    assert (np.diff(np.sort(used, axis=1), axis=1) > 0).all()  # no joint twice
