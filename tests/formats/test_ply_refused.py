"""Files that are no readable splats: each refused by an InputError that names the file, the fault and the next step."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from ply_files import columns, faces, ply_bytes, save

from splatanim.errors import InputError
from splatanim.formats import read_splats
from splatanim.formats.ply import read_ply

ENCODINGS = ("ascii", "binary_little_endian", "binary_big_endian")


def only(*names, **more):
    table = columns(20)
    return {n: table[n] for n in names} | more


def without(*names):
    return {n: c for n, c in columns(20).items() if n not in names}


COLOURS = {n: np.zeros(20, "u1") for n in ("red", "green", "blue")}
SCAFFOLD = {f"f_offset_{i}": np.zeros(20, "f4") for i in range(3)} | {"f_anchor_feat_0": np.zeros(20, "f4")}
NAN = np.full(20, np.nan, "f4")

TABLES = {
    "points": (only("x", "y", "z"), {}, "plain point cloud.*opacity, scale_0..2 and rot_0..3 are missing.*3D Gaussian"),
    "coloured points": (only("x", "y", "z", **COLOURS), {}, "plain point cloud.*Give the trained"),
    "mesh": (only("x", "y", "z"), {"face_after": True}, r"a mesh \(5 faces\).*Give the trained"),
    "scaffold": (columns(20) | SCAFFOLD, {}, "Scaffold-GS.*Export one view's splats"),
    "no opacity": (without("opacity"), {}, "missing: opacity.*Needed are.*Export the file again"),
    "no colour": (without("f_dc_1"), {}, r"missing: f_dc_1\. Needed are .*red green blue"),
    "no position": (without("z"), {}, r"missing: z\."),
    "two rotations": (without("rot_2", "rot_3"), {}, r"missing: rot_2, rot_3\."),
    "one scale": (without("scale_1", "scale_2"), {}, r"missing: scale_1\."),
    "12 f_rest": (without(*(f"f_rest_{i}" for i in range(12, 45))), {}, "12 f_rest columns; 0, 9, 24 or 45"),
    "a gap in f_rest": (without("f_rest_44") | {"f_rest_99": NAN}, {}, "45 f_rest columns, but f_rest_44 is missing"),
    "all rows dropped": (columns(20) | {"x": NAN}, {}, r"none of its 20 splats is usable \(nan_position: 20\).*again"),
    "zero splats": (columns(0), {}, "zero splats.*Export it again"),
}


@pytest.mark.parametrize("case", TABLES)
def test_other_contents_are_refused_by_name(tmp_path, case):
    table, options, message = TABLES[case]
    with pytest.raises(InputError, match=rf"splats\.ply: .*{message}"):
        read_ply(save(tmp_path, table, **options))


WHOLE = ply_bytes(columns(20))
HEAD = b"ply\nformat binary_little_endian 1.0\n"
FILES = {
    "empty": (b"", "the file is empty"),
    "two bytes": (b"pl", "ends after 2 bytes.*cut off"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(99), "not a PLY file"),
    "no end of header": (HEAD + b"element vertex 2\n", "no end_header line.*copy it again"),
    "no format": (b"ply\nelement vertex 2\nend_header\n", "no format line"),
    "unknown format": (b"ply\nformat binary_middle_endian 1.0\nend_header\n", "line 2 .*binary_middle_endian"),
    "version 2": (b"ply\nformat ascii 2.0\nend_header\n", "line 2 .*format ascii 2.0"),
    "negative count": (HEAD + b"element vertex -4\nend_header\n", "line 3 .*element vertex -4"),
    "unknown type": (HEAD + b"element vertex 4\nproperty half x\nend_header\n", "line 4 .*property half x"),
    "ownerless column": (HEAD + b"property float x\nend_header\n", "line 3 .*property float x"),
    "element twice": (HEAD + b"element a 1\nelement a 1\nend_header\n", "line 4 declares element a twice"),
    "column twice": (
        HEAD + b"element vertex 1\nproperty float x\nproperty int x\nend_header\n",
        "element vertex has column x twice",
    ),
    "no vertices": (HEAD + b"element face 0\nend_header\n", r"no vertex element \(elements: face\)"),
    "list column": (
        WHOLE.replace(b"property float nx", b"property list uchar float nx"),
        "column nx of element vertex is a list",
    ),
    "cut off": (WHOLE[:-1000], "cut off: its header promises 20 rows of element vertex, the data holds 15"),
    "cut off in front": (
        HEAD
        + faces("binary_little_endian", "\n")[0].encode()
        + WHOLE[len(HEAD) : WHOLE.index(b"end_header\n") + 11]
        + b"\x04",
        "promises 5 rows of element face",
    ),
    "absurd count": (
        WHOLE.replace(b"vertex 20\n", b"vertex 999999999999\n"),
        "promises 999999999999 rows of element vertex, the data holds 20",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_broken_files_are_refused_by_symptom(tmp_path, case):
    content, message = FILES[case]
    path = tmp_path / "broken.ply"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"broken\.ply: .*{message}"):
        read_ply(path)


ASCII = ply_bytes(columns(4, degree=0), encoding="ascii")
ASCII_FILES = {
    "fewer rows": (b"\n".join(ASCII.split(b"\n")[:-2]), "promises 4 rows of element vertex, the data holds 3"),
    "no rows": (ASCII[: ASCII.index(b"end_header\n") + 11], "promises 4 rows .* the data holds 0"),
    "half a row": (ASCII[:-40], "a row of element vertex cannot be read .*cut off or is damaged"),
    "a word": (ASCII[:-5] + b"pear\n", "a row of element vertex cannot be read .*pear"),
    "a column short": (
        ASCII.replace(b"property float nx\n", b""),
        "rows of element vertex hold 17 numbers.*16 columns",
    ),
}


@pytest.mark.parametrize("case", ASCII_FILES)
def test_broken_ascii_is_refused_by_symptom(tmp_path, case):
    content, message = ASCII_FILES[case]
    path = tmp_path / "broken.ply"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"broken\.ply: .*{message}"):
        read_ply(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match=r"none\.ply: no such file\. Check the spelling"):
        read_ply(tmp_path / "none.ply")
    with pytest.raises(InputError, match="is a folder, not a file"):
        read_splats(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_splats("a\0b.ply")


def survives(path, content: bytes) -> bool:
    """Whether the file is read; refusals are fine, anything else (a numpy warning included) is not."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = read_splats(path)
        except InputError as error:
            assert path.name in str(error)
            return False
    assert result.total == len(result.splats) + sum(result.dropped.values())
    assert np.isfinite(result.splats.sh).all() and np.isfinite(result.splats.means).all()
    return True


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_truncation_at_any_byte(tmp_path, encoding):
    content = ply_bytes(columns(3, degree=0), encoding=encoding, face_before=True)
    read = [survives(tmp_path / "cut.ply", content[:size]) for size in range(len(content) + 1)]
    assert read[-1]
    # Only ASCII cannot tell that the last digits of its last number are gone.
    assert not any(read[: -1 if encoding != "ascii" else -30])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_random_corruption(tmp_path, encoding):
    rng = np.random.default_rng(4)
    content = ply_bytes(columns(6, degree=1), encoding=encoding, face_before=True)
    head = content.index(b"end_header") + 12
    outcomes = set()
    for trial in range(500):
        damaged = bytearray(content)
        for place in rng.integers(4, head if trial % 4 else len(content), rng.integers(1, 4)):
            match trial % 3:
                case 0:
                    damaged[place] = rng.integers(256)
                case 1:
                    del damaged[place : place + rng.integers(1, 9)]
                case _:
                    damaged[place] = rng.choice(np.frombuffer(b"0123456789 \n", np.uint8))
        outcomes.add(survives(tmp_path / "damaged.ply", bytes(damaged)))
    assert outcomes == {True, False}
