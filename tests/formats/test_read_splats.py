"""Choosing the reader: magic bytes, then suffix; and what importing the formats costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ply_files import columns, save

from splatanim.errors import InputError
from splatanim.formats import READERS, read_splats


@pytest.mark.parametrize("name", ["a.ply", "A.PLY", "a.splat", "a"])
def test_ply_is_known_by_its_first_bytes(tmp_path, name):
    assert read_splats(save(tmp_path, columns(5), name=name)).total == 5


def test_a_ply_suffix_without_ply_content(tmp_path):
    (tmp_path / "a.ply").write_bytes(b"<html>404</html>")
    with pytest.raises(InputError, match=r"a\.ply: not a PLY file"):
        read_splats(tmp_path / "a.ply")


@pytest.mark.parametrize("suffix", [".splat", ".ksplat", ".spz", ".sog"])
def test_known_formats_without_a_reader_say_how_to_convert(tmp_path, suffix):
    (tmp_path / f"a{suffix}").write_bytes(bytes(64))
    with pytest.raises(InputError, match=rf"{suffix} files are not readable yet \(readable: \.ply\)\. Convert it"):
        read_splats(tmp_path / f"a{suffix}")


@pytest.mark.parametrize(("name", "suffix"), [("a.obj", ".obj"), ("a", r"\(none\)")])
def test_unknown_suffixes_list_what_is_readable(tmp_path, name, suffix):
    (tmp_path / name).write_bytes(b"v 0 0 0\n")
    with pytest.raises(InputError, match=rf"suffix {suffix} is no splat format known here\. Readable: \.ply\."):
        read_splats(tmp_path / name)
    assert list(READERS) == [".ply"]


def test_import_and_reading_load_nothing_heavy(tmp_path):
    path = save(tmp_path, columns(5))
    code = (
        "import sys; from splatanim.formats import read_splats; read_splats(sys.argv[1]); "
        "print([m for m in ('torch', 'numba', 'plyfile', 'scipy', 'trimesh') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
