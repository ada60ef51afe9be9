"""Damaged and hostile glTF files: each is refused with its name, what is wrong, and what to do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.rig.gltf import read_gltf
from tests.rig.rigs import HandMade, bar

Change = Callable[[HandMade], None]


def first(made: HandMade) -> dict:
    return made.content["meshes"][0]["primitives"][0]


def set_in(*path_and_value) -> Change:
    """Put a value at a place of the JSON."""

    def change(made: HandMade) -> None:
        *path, last, value = path_and_value
        at = made.content
        for step in path:
            at = at[step]
        at[last] = value

    return change


def clip_with(**sampler) -> Change:
    def change(made: HandMade) -> None:
        keys = {"input": made.floats([0.0, 1.0]), "output": made.floats([[0, 0, 0, 1], [0, 0, 1, 0]]), **sampler}
        channel = {"sampler": 0, "target": {"node": 1, "path": "rotation"}}
        made.content["animations"] = [{"samplers": [keys], "channels": [channel]}]

    return change


def joints_of(rows: list) -> Change:
    return lambda made: first(made)["attributes"].update(JOINTS_0=made.accessor("4H", 5123, "VEC4", rows))


def weights_of(rows: list) -> Change:
    return lambda made: first(made)["attributes"].update(WEIGHTS_0=made.floats(rows))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (set_in("asset", "version", "1.0"), "is glTF 1.0; 2.0 can be read"),
        (set_in("extensionsRequired", ["KHR_draco_mesh_compression"]), "compressed with Draco"),
        (set_in("extensionsRequired", ["EXT_meshopt_compression"]), "compressed with EXT_meshopt_compression"),
        (set_in("extensionsRequired", ["VENDOR_magic"]), "requires VENDOR_magic, which is not known here"),
        (set_in("nodes", 2, "children", [1]), "the node hierarchy has a cycle through node 1"),
        (set_in("nodes", 0, "children", [2]), "node 2 has two parents"),
        (set_in("nodes", 1, "children", [7]), r"refers to nodes\[7\], but there are 3 nodes"),
        (set_in("nodes", 2, "translation", [0, float("nan"), 0]), r"nodes\[2\].translation is .*, not 3 numbers"),
        (set_in("nodes", 2, "rotation", [0, 0, 0, 0]), r"nodes\[2\].rotation is zero"),
        (set_in("nodes", 0, "mesh", 4), r"refers to meshes\[4\], but there are 1 meshes"),
        (set_in("nodes", 0, "skin", 3), r"refers to skins\[3\], but there are 1 skins"),
        (set_in("skins", 0, "joints", [1, 9]), r"refers to nodes\[9\]"),
        (set_in("skins", 0, "joints", []), "a skin has no joints"),
        (set_in("skins", 0, "joints", [1, 2, 0]), "a skin of 3 joints has 2 inverse bind matrices"),
        (set_in("accessors", 0, "count", 99), "99 elements do not fit into its buffer view of 128 bytes"),
        (set_in("accessors", 0, "count", -1), r"accessors\[0\] has type 'MAT4', -1 elements"),
        (set_in("accessors", 1, "type", "VEC2"), "holds VEC2, where"),
        (set_in("bufferViews", 0, "byteLength", 10**9), r"bufferViews\[0\] ends beyond its buffer"),
        (set_in("meshes", 0, "primitives", 0, "indices", 77), r"refers to accessors\[77\]"),
        (joints_of([[5, 0, 0, 0]] * 6), "a vertex follows joint 5, but the skin has 2 joints"),
        (joints_of([[0, 1, 0, 0]] * 5), "6 positions, 5 JOINTS_0, 6 WEIGHTS_0"),
        (weights_of([[0, 0, 0, 0]] * 6), "the skinning weights of all 6 vertices are zero"),
        (weights_of([[float("nan")] * 4] * 6), "the skinning weights of all 6 vertices are zero"),
        (lambda made: first(made)["attributes"].pop("WEIGHTS_0"), "has JOINTS_0 but no WEIGHTS_0"),
        (lambda made: first(made)["attributes"].pop("JOINTS_0"), "belongs to skin 0 but has no JOINTS_0"),
        (lambda made: first(made).update(indices=made.accessor("H", 5123, "SCALAR", [0, 1, 6])), "vertex 6 of 6"),
        (clip_with(interpolation="BEZIER"), "unknown interpolation 'BEZIER'"),
        (clip_with(input=0), r"accessors\[0\] holds MAT4, where scalars are needed"),
        (lambda made: clip_with(input=made.floats([1.0, 0.0]))(made), "times of a rotation channel do not rise"),
        (lambda made: clip_with(input=made.floats([1.0]))(made), "1 times for 2 keys"),
        (set_in("meshes", 0, "primitives", 5), "does not follow the format"),
        (set_in("nodes", [1, 2]), "nodes is not a list of objects"),
        (set_in("scene", 3), r"refers to scenes\[3\]"),
        (set_in("nodes", [{}]), "refers to nodes"),
    ],
)
def test_contradictions_are_named(change: Change, text: str, tmp_path: Path) -> None:
    made = bar()
    change(made)
    path = made.write(tmp_path / "odd.glb")
    with pytest.raises(InputError, match=text) as caught:
        read_gltf(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_files_cut_off_anywhere(share: float, tmp_path: Path) -> None:
    whole = bar().write(tmp_path / "whole.glb").read_bytes()
    path = tmp_path / "cut.glb"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"cut.glb: (the file is empty|.*cut off|starts with)"):
        read_gltf(path)


def test_wrong_magic_missing_buffer_and_no_json(tmp_path: Path) -> None:
    path = tmp_path / "a.glb"
    path.write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(InputError, match=r"starts with b'PK.*It is no .glb"):
        read_gltf(path)
    path.write_bytes(struct.pack("<4sII", b"glTF", 1, 40) + bytes(28))
    with pytest.raises(InputError, match=r"a .glb of version 1; 2 can be read"):
        read_gltf(path)
    gltf = bar().write(tmp_path / "b.gltf", "file")
    (tmp_path / "the buffer.bin").write_bytes(b"1234")
    with pytest.raises(InputError, match="buffer 0 holds 4 bytes of"):
        read_gltf(gltf)
    (tmp_path / "the buffer.bin").unlink()
    with pytest.raises(InputError, match=r"needs the%20buffer.bin beside it, which is not there"):
        read_gltf(gltf)
    gltf.write_text("{not json")
    with pytest.raises(InputError, match="is no glTF: its JSON cannot be read"):
        read_gltf(gltf)
    with pytest.raises(InputError, match="no such file"):
        read_gltf(tmp_path / "nowhere.glb")


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("../secret.bin", "outside its own folder"),
        ("/etc/passwd", "outside its own folder"),
        ("https://example.org/a.bin", "nothing is downloaded"),
        ("data:;base64,###", "a data: URI cannot be decoded"),
        (7, "a URI is 7"),
        (None, "has neither a file nor a place"),
    ],
)
def test_buffers_elsewhere_are_not_fetched(uri, text: str, tmp_path: Path) -> None:
    path = bar().write(tmp_path / "a.gltf", "data")
    content = json.loads(path.read_text())
    content["buffers"][0]["uri"] = uri
    if uri is None:
        del content["buffers"][0]["uri"]
    path.write_text(json.dumps(content))
    (tmp_path.parent / "secret.bin").write_bytes(bytes(10_000))
    with pytest.raises(InputError, match=text):
        read_gltf(path)


def test_random_damage_never_ends_in_another_error(tmp_path: Path) -> None:
    """Bytes overwritten at random: the file reads, or an InputError says why not."""
    rng = np.random.default_rng(0)
    whole = bytearray(bar().write(tmp_path / "whole.glb").read_bytes())
    path = tmp_path / "damaged.glb"
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(12, len(data), 3):
            data[at] = rng.integers(256)
        path.write_bytes(data)
        try:
            read_gltf(path)
        except InputError:
            refused += 1
    assert refused > 50
