"""Choosing the reader: magic bytes, then suffix; and what importing the formats costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from made import scene, sog_bytes
from ply_files import columns, save

from splatanim.errors import InputError
from splatanim.formats import FORMATS, READERS, WRITERS, read_splats, write_sequence_frame, write_splats


@pytest.mark.parametrize("name", ["a.ply", "A.PLY", "a.splat", "a"])
def test_ply_is_known_by_its_first_bytes(tmp_path, name):
    assert read_splats(save(tmp_path, columns(5), name=name)).total == 5


def test_a_ply_suffix_without_ply_content(tmp_path):
    (tmp_path / "a.ply").write_bytes(b"<html>404</html>")
    with pytest.raises(InputError, match=r"a\.ply: not a PLY file"):
        read_splats(tmp_path / "a.ply")


@pytest.mark.parametrize("kind", ["a.ply", "a.spz", "a.glb", "a.sog"])
@pytest.mark.parametrize("name", ["b.ply", "b.splat", "b.spz", "b", "b.glb"])
def test_first_bytes_come_before_the_suffix(tmp_path, kind, name):
    data = sog_bytes(scene()) if kind == "a.sog" else b""
    if data:
        (tmp_path / name).write_bytes(data)
    else:
        write_splats(tmp_path / kind, scene())
        (tmp_path / kind).rename(tmp_path / name)
    assert read_splats(tmp_path / name).total == 60


@pytest.mark.parametrize(("name", "suffix"), [("a.obj", ".obj"), ("a", r"\(none\)")])
def test_unknown_suffixes_list_what_is_readable(tmp_path, name, suffix):
    (tmp_path / name).write_bytes(b"v 0 0 0\n")
    with pytest.raises(
        InputError, match=rf"suffix {suffix} is no splat format known here\. Readable: \.ply .*\.ksplat"
    ):
        read_splats(tmp_path / name)


def test_the_table(tmp_path):
    assert set(FORMATS) == set(READERS) == {".ply", ".splat", ".ksplat", ".spz", ".sog", ".json", ".glb", ".gltf"}
    assert set(WRITERS) == {".ply", ".splat", ".spz", ".glb"}
    path = write_sequence_frame(tmp_path / "seq", 3, scene(), suffix=".spz")
    assert path.name == "frame_0003.spz" and read_splats(path).format == "spz/3"


def test_import_and_reading_load_nothing_heavy(tmp_path):
    path = save(tmp_path, columns(5))
    code = (
        "import sys; from splatanim.formats import read_splats; read_splats(sys.argv[1]); "
        "print([m for m in ('torch', 'numba', 'plyfile', 'scipy', 'trimesh') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
