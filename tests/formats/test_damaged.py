"""Files cut short or with flipped bytes: read, or refused by an InputError that names the file; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made import compressed_ply_bytes, ksplat_bytes, scene, sog_bytes, sog_files, splat_bytes, spz_bytes
from ply_files import columns, ply_bytes

from splatanim.errors import InputError
from splatanim.formats import read_splats, write_splats

SOURCE = scene(count=40, degree=1)


def glb_bytes(folder: Path) -> bytes:
    write_splats(folder / "whole.glb", SOURCE)
    data = (folder / "whole.glb").read_bytes()
    (folder / "whole.glb").unlink()
    return data


MAKERS: dict[str, Callable[[Path], bytes]] = {
    "a.ply": lambda _: ply_bytes(columns(40, degree=1)),
    "ascii.ply": lambda _: ply_bytes(columns(10, degree=0), encoding="ascii"),
    "compressed.ply": lambda _: compressed_ply_bytes(SOURCE),
    "a.splat": lambda _: splat_bytes(SOURCE),
    "0.ksplat": lambda _: ksplat_bytes(SOURCE, 0),
    "2.ksplat": lambda _: ksplat_bytes(SOURCE, 2),
    "2.spz": lambda _: spz_bytes(SOURCE, 2),
    "3.spz": lambda _: spz_bytes(SOURCE, 3),
    "4.spz": lambda _: spz_bytes(SOURCE, 4),
    "1.sog": lambda _: sog_bytes(SOURCE, 1),
    "2.sog": lambda _: sog_bytes(SOURCE, 2),
    "a.glb": glb_bytes,
}


def attempt(path: Path) -> bool:
    """Whether it is read. A refusal must name the file and be a sentence with a next step."""
    try:
        result = read_splats(path)
    except InputError as error:
        text = str(error)
        assert str(path) in text and "Traceback" not in text and len(text) < 600, text
        return False
    splats = result.splats
    assert len(splats) == result.total - sum(result.dropped.values()) > 0
    assert np.isfinite(splats.means).all() and np.isfinite(splats.quaternions).all() and np.isfinite(splats.sh).all()
    return True


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MAKERS)
def test_cut_short_anywhere(tmp_path: Path, name: str) -> None:
    if name == "4.spz":
        pytest.importorskip("zstandard")
    data = MAKERS[name](tmp_path)
    rng = np.random.default_rng(1)
    path = tmp_path / name
    for length in sorted({0, 1, 3, 7, 15, 31, len(data) - 1, *rng.integers(0, len(data), 25).tolist()}):
        path.write_bytes(data[:length])
        # Whole rows of a headerless .splat are a file as well, and so are trailing bytes that nothing needs.
        if attempt(path):
            assert name == "a.splat" or length > 0.9 * len(data)
    path.write_bytes(data[:-1000] if len(data) > 2000 else data[: len(data) // 2])
    if name != "a.splat":
        assert not attempt(path)
    path.write_bytes(data)
    assert attempt(path)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MAKERS)
def test_flipped_bytes(tmp_path: Path, name: str) -> None:
    if name == "4.spz":
        pytest.importorskip("zstandard")
    whole = np.frombuffer(MAKERS[name](tmp_path), np.uint8)
    rng = np.random.default_rng(2)
    path = tmp_path / name
    head = min(600, len(whole))
    for trial in range(120):
        data = whole.copy()
        spread = head if trial % 2 else len(whole)  # headers are where it hurts
        at = rng.integers(0, spread, rng.integers(1, 5))
        data[at] = rng.integers(0, 256, len(at))
        path.write_bytes(data.tobytes())
        attempt(path)


def test_any_value_of_a_sog_meta(tmp_path: Path) -> None:
    """Every entry of meta.json replaced by values of the wrong kind."""
    for name, data in sog_files(SOURCE, 2).items():
        (tmp_path / name).write_bytes(data)
    content = json.loads((tmp_path / "meta.json").read_text())
    wrong = (None, -1, 3, 1e400, "x", [], {}, [None] * 3, ["../secret.webp"] * 2, ["gone.webp"] * 2)
    for key in content:
        for inner in [None, *(content[key] if isinstance(content[key], dict) else ())]:
            for value in wrong:
                changed = json.loads(json.dumps(content))
                if inner is None:
                    changed[key] = value
                else:
                    changed[key][inner] = value
                (tmp_path / "meta.json").write_text(json.dumps(changed))
                try:
                    read_splats(tmp_path / "meta.json")
                except InputError as error:
                    assert str(tmp_path) in str(error)
    (tmp_path / "meta.json").unlink()
    with pytest.raises(InputError, match="is a folder"):
        read_splats(tmp_path)


def test_messages(tmp_path: Path) -> None:
    no_turn = (bytes(28) + bytes([128] * 4)) * 2
    cases = {
        "a.spz": (b"\x1f\x8b\x08nonsense", "its gzip stream cannot be read"),
        "b.spz": (b"not at all", "not an SPZ file"),
        "c.spz": (b"NGSP" + (9).to_bytes(4, "little") + bytes(24), "SPZ of version 9; 1 to 4 can be read"),
        "a.splat": (bytes(33), "33 bytes are no whole number of .splat rows of 32 bytes"),
        "a.ksplat": (bytes(5000), r"not a \.ksplat file that can be read \(version 0\.0"),
        "a.sog": (b"PK\x03\x04broken", "the .sog archive cannot be read"),
        "a.json": (b'{"frames": []}', "is no SOG meta.json"),
        "a.glb": (b"glTF" + bytes(16), "has no JSON chunk"),
        "a.gltf": (b"[]", "its JSON is no object"),
        "z.splat": (
            no_turn,
            r"none of its 2 splats is usable \(zero_quaternion",
        ),
    }
    for name, (data, message) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=rf"{name}: .*{message}"):
            read_splats(tmp_path / name)


def test_version_4_without_zstandard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zstandard")
    (tmp_path / "a.spz").write_bytes(spz_bytes(SOURCE, 4))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(InputError, match=r'zstandard is needed.*pip install "splatanim\[formats\]"'):
        read_splats(tmp_path / "a.spz")
