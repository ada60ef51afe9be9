"""KHR_gaussian_splatting: quantised attributes, nodes, SPZ inside, other kernels; and telling splats from meshes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import rub, scene, spz_bytes
from test_compressed_formats import covariances

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats import read_splats, write_splats
from splatanim.formats.gltf_splats import EXTENSION, holds_gaussians
from splatanim.rotations import sh_rotation
from tests.helpers import random_rotation

CODES = {"f4": 5126, "i1": 5120, "u1": 5121, "i2": 5122, "u2": 5123}


def glb(content: dict[str, Any], arrays: list[tuple[np.ndarray, bool]], blob: bytes = b"") -> bytes:
    """A .glb whose accessors are the arrays (normalised or not), one view each; ``blob`` is a view after them."""
    binary, views, accessors = b"", [], []
    for values, normalised in arrays:
        data = values.astype(values.dtype.newbyteorder("<")).tobytes()
        if values.ndim == 2 and values.shape[1] * values.itemsize % 4:  # rows start at multiples of four
            pad = -values.shape[1] * values.itemsize % 4
            data = b"".join(row.tobytes() + bytes(pad) for row in values)
        stride = len(data) // max(len(values), 1)
        views.append({"buffer": 0, "byteOffset": len(binary), "byteLength": len(data)})
        if values.ndim == 2:
            views[-1]["byteStride"] = stride
        kind = "SCALAR" if values.ndim == 1 else f"VEC{values.shape[1]}"
        code = CODES[values.dtype.str[1:]]
        accessors.append({"bufferView": len(views) - 1, "componentType": code, "count": len(values), "type": kind})
        accessors[-1]["normalized"] = normalised
        binary += data + bytes(-len(data) % 4)
    views.append({"buffer": 0, "byteOffset": len(binary), "byteLength": len(blob)})
    binary += blob + bytes(-len(blob) % 4)
    content = {"asset": {"version": "2.0"}, "extensionsUsed": [EXTENSION], **content}
    content |= {"bufferViews": views, "accessors": accessors, "buffers": [{"byteLength": len(binary)}]}
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(binary), b"BIN\0") + binary
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def attributes_of(splats: Splats) -> tuple[dict[str, int], list[tuple[np.ndarray, bool]]]:
    names = ["POSITION", f"{EXTENSION}:ROTATION", f"{EXTENSION}:SCALE", f"{EXTENSION}:OPACITY"]
    arrays = [splats.means, np.roll(splats.quaternions, -1, axis=1), splats.log_scales, splats.opacities]
    for degree in range(splats.sh_degree + 1):
        for k in range(2 * degree + 1):
            names.append(f"{EXTENSION}:SH_DEGREE_{degree}_COEF_{k}")
            arrays.append(splats.sh[:, degree**2 + k])
    return {name: k for k, name in enumerate(names)}, [(np.ascontiguousarray(a, "f4"), False) for a in arrays]


def content_of(attributes: dict[str, int], nodes: list[dict] | None = None, **extension: Any) -> dict[str, Any]:
    primitive = {"attributes": attributes, "mode": 0, "extensions": {EXTENSION: {"kernel": "ellipse", **extension}}}
    return {"meshes": [{"primitives": [primitive]}], **({"nodes": nodes} if nodes else {})}


def save(folder: Path, content: dict[str, Any], arrays: list[tuple[np.ndarray, bool]], blob: bytes = b"") -> Path:
    (folder / "a.glb").write_bytes(glb(content, arrays, blob))
    return folder / "a.glb"


def test_floats_without_nodes(tmp_path: Path) -> None:
    source = scene(degree=3)
    result = read_splats(save(tmp_path, content_of(attributes_of(source)[0]), attributes_of(source)[1]))
    np.testing.assert_array_equal(result.splats.means, source.means)
    np.testing.assert_array_equal(result.splats.sh, source.sh)
    np.testing.assert_array_equal(result.splats.log_scales, source.log_scales)
    np.testing.assert_allclose(result.splats.opacities, source.opacities, atol=1e-6)
    assert result.up == "+y" and result.format == "gltf/khr_gaussian_splatting" and result.warnings == ()


def test_quantised_attributes(tmp_path: Path) -> None:
    source = scene(degree=0)
    attributes, arrays = attributes_of(source)
    arrays[1] = (np.round(arrays[1][0] * 32767).astype("i2"), True)
    arrays[3] = (np.round(arrays[3][0] * 255).astype("u1"), True)
    whole = np.round(source.log_scales).astype("i1")
    arrays[2] = (whole, False)
    splats = read_splats(save(tmp_path, content_of(attributes), arrays)).splats
    np.testing.assert_array_equal(splats.log_scales, whole)
    np.testing.assert_allclose(splats.quaternions, source.quaternions, atol=1e-4)
    np.testing.assert_allclose(splats.opacities, source.opacities, atol=0.51 / 255)


def test_nodes_turn_scale_and_repeat(tmp_path: Path) -> None:
    """Two nodes show the mesh: one below a turned parent, one far away."""
    source = scene(degree=2)
    rng = np.random.default_rng(0)
    turn = random_rotation(rng)
    matrix = np.eye(4)
    matrix[:3, :3] = 2.0 * turn
    nodes = [
        {"children": [1], "matrix": matrix.T.ravel().tolist()},
        {"mesh": 0, "translation": [1.0, 2.0, 3.0]},
        {"mesh": 0, "scale": [1.0, 1.0, 1.0]},
    ]
    attributes, arrays = attributes_of(source)
    splats = read_splats(save(tmp_path, content_of(attributes, nodes), arrays)).splats
    moved, plain = splats.select(np.arange(60)), splats.select(np.arange(60, 120))
    np.testing.assert_array_equal(plain.means, source.means)
    np.testing.assert_allclose(moved.means, 2.0 * np.add(source.means, [1, 2, 3]) @ turn.T, atol=2e-6)
    np.testing.assert_allclose(covariances(moved), 4.0 * turn @ covariances(source) @ turn.T, rtol=1e-4, atol=1e-7)
    wanted = np.einsum("kj,njc->nkc", sh_rotation(turn, 2), source.sh)
    np.testing.assert_allclose(moved.sh, wanted, atol=1e-5)


def test_far_nodes_keep_their_digits(tmp_path: Path) -> None:
    source = scene()
    attributes, arrays = attributes_of(source)
    nodes = [{"mesh": 0, "translation": [5e5, 4.5e6, 100.0]}]
    splats = read_splats(save(tmp_path, content_of(attributes, nodes), arrays)).splats
    places = splats.means.astype(float) + splats.offset
    np.testing.assert_allclose(places, source.means + np.array([5e5, 4.5e6, 100.0]), rtol=0, atol=1e-6)


def test_spz_inside(tmp_path: Path) -> None:
    source = scene(degree=1)
    data = spz_bytes(source, 3)
    inner = {"KHR_gaussian_splatting_compression_spz_2": {"bufferView": 0}}
    content = content_of({}, extensions=inner) | {"extensionsRequired": [EXTENSION, *inner]}
    splats = read_splats(save(tmp_path, content, [], data)).splats
    np.testing.assert_allclose(splats.means, rub(source)[0], atol=0.51 / 4096)
    assert splats.sh_degree == 1


def test_linear_colours_are_said(tmp_path: Path) -> None:
    attributes, arrays = attributes_of(scene())
    result = read_splats(save(tmp_path, content_of(attributes, colorSpace="lin_rec709_display"), arrays))
    assert "linear" in result.warnings[0]


def broken(what: str) -> tuple[dict[str, Any], list[tuple[np.ndarray, bool]]]:
    attributes, arrays = attributes_of(scene())
    content = content_of(attributes)
    primitive = content["meshes"][0]["primitives"][0]
    match what:
        case "kernel":
            primitive["extensions"][EXTENSION]["kernel"] = "box"
        case "compression":
            primitive["extensions"][EXTENSION]["extensions"] = {"EXT_tight": {}}
        case "required":
            content["extensionsRequired"] = ["EXT_tight"]
        case "no scale":
            del attributes[f"{EXTENSION}:SCALE"]
        case "a gap in the harmonics":
            del attributes[f"{EXTENSION}:SH_DEGREE_2_COEF_3"]
        case "opacity":
            arrays[3] = (arrays[3][0] * 3, False)
        case "short":
            arrays[2] = (arrays[2][0][:-1], False)
        case "lost accessor":
            attributes["POSITION"] = 99
        case "a cycle":
            content["nodes"] = [{"children": [1]}, {"children": [0], "mesh": 0}]
        case "unseen":
            content["nodes"] = [{"translation": [0, 0, 1]}]
        case "no splats":
            del primitive["extensions"]
    return content, arrays


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("kernel", "have the kernel 'box' and mode 0; ellipse and points"),
        ("compression", "use EXT_tight, unknown here. Export it without"),
        ("required", "requires EXT_tight, which is not known here"),
        ("no scale", "lacks the attribute KHR_gaussian_splatting:SCALE"),
        ("a gap in the harmonics", "lacks the attribute KHR_gaussian_splatting:SH_DEGREE_2_COEF_3"),
        ("opacity", r"opacities of its splats lie outside \[0, 1\]"),
        ("short", "differ in length"),
        ("lost accessor", r"refers to accessors\[99\]"),
        ("a cycle", "a cycle"),
        ("unseen", "holds no splats .*that its scene shows"),
        ("no splats", "holds no splats .*If it is a mesh, make splats of it"),
    ],
)
def test_what_is_refused(tmp_path: Path, what: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.glb: .*{message}"):
        read_splats(save(tmp_path, *broken(what)))


def test_splats_are_told_from_meshes(tmp_path: Path) -> None:
    assert holds_gaussians(save(tmp_path, content_of(attributes_of(scene())[0]), attributes_of(scene())[1]))
    assert not holds_gaussians(save(tmp_path, *broken("no splats")))
    (tmp_path / "b.glb").write_bytes(b"glTF broken")
    assert not holds_gaussians(tmp_path / "b.glb")
    with pytest.raises(InputError, match="no such file"):
        holds_gaussians(tmp_path / "gone.glb")


def test_the_written_file_follows_the_extension(tmp_path: Path) -> None:
    source = scene(degree=1)
    write_splats(tmp_path / "a.glb", source)
    data = (tmp_path / "a.glb").read_bytes()
    content = json.loads(data[20 : 20 + int.from_bytes(data[12:16], "little")])
    (primitive,) = content["meshes"][0]["primitives"]
    assert content["extensionsUsed"] == [EXTENSION] and "extensionsRequired" not in content
    assert primitive["mode"] == 0 and primitive["extensions"][EXTENSION]["colorSpace"] == "srgb_rec709_display"
    kinds = {name: content["accessors"][k]["type"] for name, k in primitive["attributes"].items()}
    assert kinds == {
        "POSITION": "VEC3",
        "COLOR_0": "VEC4",
        f"{EXTENSION}:ROTATION": "VEC4",
        f"{EXTENSION}:SCALE": "VEC3",
        f"{EXTENSION}:OPACITY": "SCALAR",
        f"{EXTENSION}:SH_DEGREE_0_COEF_0": "VEC3",
        **{f"{EXTENSION}:SH_DEGREE_1_COEF_{k}": "VEC3" for k in range(3)},
    }
    assert len(data) == int.from_bytes(data[8:12], "little")
