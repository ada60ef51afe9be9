"""Writing .ply: what comes back is what went out, in the column order of Inria, whole or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from ply_files import columns, ply_bytes, save

from splatanim.data import Splats
from splatanim.errors import InputError, OutputError
from splatanim.formats import write_sequence_frame
from splatanim.formats.ply import read_ply, write_ply


def random_splats(n: int = 50, degree: int = 3, seed: int = 0, **changes: object) -> Splats:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(n, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    arrays = (rng.uniform(-1, 1, (n, 3)), q, rng.normal(-4, 1, (n, 3)), rng.normal(size=n))
    sh = rng.normal(size=(n, (degree + 1) ** 2, 3))
    return Splats(*(a.astype(np.float32) for a in (*arrays, sh))).replace(**changes)


def assert_same(a: Splats, b: Splats) -> None:
    for name in ("means", "quaternions", "log_scales", "raw_opacities", "sh"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert a.offset == b.offset


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [1, 8192, 8193])
def test_round_trip_is_exact(tmp_path, degree, n):
    splats = random_splats(n, degree)
    write_ply(tmp_path / "a.ply", splats)
    back = read_ply(tmp_path / "a.ply").splats
    assert_same(splats, back)
    write_ply(tmp_path / "b.ply", back)
    assert (tmp_path / "a.ply").read_bytes() == (tmp_path / "b.ply").read_bytes()


def test_file_is_that_of_an_independent_writer(tmp_path):
    table = columns(30, degree=2)
    source = save(tmp_path, table, comments=("Vertical Axis: z",))
    write_ply(tmp_path / "out.ply", read_ply(source).splats, comments=["Vertical Axis: z"])
    assert (tmp_path / "out.ply").read_bytes() == source.read_bytes()


def test_extras_follow_with_their_types_and_normals_take_their_place(tmp_path):
    table = columns(30, degree=1) | {"label": np.arange(30, dtype="u1"), "time": np.linspace(0, 1, 30)}
    for name in ("nx", "ny", "nz"):
        table[name] = np.random.default_rng(5).normal(size=30)
    source = save(tmp_path, table)
    write_ply(tmp_path / "out.ply", read_ply(source).splats)
    assert (tmp_path / "out.ply").read_bytes() == source.read_bytes()


def test_missing_normals_are_written_as_zeros(tmp_path):
    write_ply(tmp_path / "a.ply", random_splats())
    extras = read_ply(tmp_path / "a.ply").splats.extras
    assert list(extras) == ["nx", "ny", "nz"] and not any(c.any() for c in extras.values())


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_far_off_scene_comes_back(tmp_path, kind):
    table = columns(300, degree=0)
    for name, shift in zip("xyz", (5e5, 4.5e6, 100.0)):
        table[name] = (table[name].astype("f8") * 50 + shift).astype(kind)
    first = read_ply(save(tmp_path, table)).splats
    write_ply(tmp_path / "out.ply", first)
    second = read_ply(tmp_path / "out.ply").splats
    assert_same(first, second)
    assert b"property double x" in (tmp_path / "out.ply").read_bytes()
    world = second.means.astype("f8") + second.offset
    exact = np.stack([table[n] for n in "xyz"], axis=1)
    np.testing.assert_allclose(world, exact, rtol=0, atol=0 if kind == "f4" else 1e-5)


def test_comments_become_header_lines(tmp_path):
    write_ply(tmp_path / "a.ply", random_splats(), comments=["Vertical Axis: -y", "two\nlines", "größe"])
    head = (tmp_path / "a.ply").read_bytes().split(b"end_header")[0].splitlines()
    assert head[2:6] == [b"comment Vertical Axis: -y", b"comment two", b"comment lines", b"comment gr??e"]
    assert read_ply(tmp_path / "a.ply").up == "-y"


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"opacity": np.zeros(50)}, "extra column opacity has the name of a splat column. Rename it"),
        ({"f_rest_44": np.zeros(50)}, "extra column f_rest_44 has the name"),
        ({"two words": np.zeros(50)}, "'two words' .* one ASCII word"),
        ({"short": np.zeros(49)}, r"'short' of shape \(49,\) .* 50 numbers"),
        ({"large": np.zeros(50, np.int64)}, "large has type int64, which .ply lacks. Convert it"),
    ],
)
def test_extras_that_ply_cannot_hold_are_refused(tmp_path, extras, message):
    with pytest.raises(InputError, match=message):
        write_ply(tmp_path / "a.ply", random_splats(extras=extras))
    assert not list(tmp_path.iterdir())


def test_boolean_extras_become_bytes(tmp_path):
    write_ply(tmp_path / "a.ply", random_splats(extras={"chosen": np.arange(50) > 20}))
    chosen = read_ply(tmp_path / "a.ply").splats.extras["chosen"]
    assert chosen.dtype == np.uint8 and chosen.sum() == 29


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(OutputError, match=r"a\.ply: the folder .*nowhere does not exist\. Create it"):
        write_ply(tmp_path / "nowhere" / "a.ply", random_splats())


def test_sequence_frames_are_numbered(tmp_path):
    paths = [write_sequence_frame(tmp_path / "new" / "frames", i, random_splats(seed=i)) for i in (0, 12)]
    assert [p.name for p in paths] == ["frame_0000.ply", "frame_0012.ply"]
    assert_same(read_ply(paths[1]).splats, random_splats(seed=12))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=r"file: the folder cannot be made .*Choose another"):
        write_sequence_frame(tmp_path / "file", 0, random_splats())


def test_reading_and_writing_the_same_file(tmp_path):
    path = tmp_path / "a.ply"
    path.write_bytes(ply_bytes(columns(40)))
    before = path.read_bytes()
    write_ply(path, read_ply(path).splats)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
