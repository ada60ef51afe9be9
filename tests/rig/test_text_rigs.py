"""RigNet, Puppeteer and UniRig files: any order of lines, round trips, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from splatanim.data import Mesh
from splatanim.errors import InputError
from splatanim.rig.files import read_motion, read_rig
from splatanim.rig.rignet import read_obj, read_rignet, read_rignet_skeleton, write_rignet
from splatanim.rig.skeleton import skeleton_from_positions
from splatanim.rig.unirig import read_unirig
from tests.helpers import data_file
from tests.rig.rigs import random_skeleton, random_weights

SQUARE = Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]), np.array([[0, 1, 2], [0, 2, 3]]))
TEXT = """skin 2 tip 0.5 base 1.5
hier base tip
skin 0 base 1.0
joints tip 1 1 0
root base

skin 3 tip 1
joints base 0 0 0
skin 1 base 0.25 tip 0.75
"""


def test_lines_in_any_order_indexed_by_vertex_and_scaled(tmp_path: Path) -> None:
    path = tmp_path / "rig.txt"
    path.write_text(TEXT)
    model = read_rignet(path, SQUARE)
    assert model.skeleton.names == ("tip", "base") and model.skeleton.parents.tolist() == [1, -1]
    np.testing.assert_allclose(model.skin.dense(), [[0, 1], [0.75, 0.25], [0.25, 0.75], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(model.posed(model.skeleton.rest), SQUARE.vertices, atol=1e-12)
    assert model.notes == (f"{path}: the skinning weights of 1 vertices do not sum to 1; scaled.",)
    assert read_rignet_skeleton(path).joint_positions.tolist() == [[1, 1, 0], [0, 0, 0]]


def test_a_real_rig_round_trips(tmp_path: Path) -> None:
    mesh = read_obj(data_file("video/crocodile/mesh.obj"))
    model = read_rignet(data_file("video/crocodile/rig.txt"), mesh)
    assert len(model.skeleton) == 28 and len(model.vertices) == 2555 and not model.notes
    write_rignet(tmp_path / "again.txt", model.skeleton, model.skin)
    again = read_rignet(tmp_path / "again.txt", mesh)
    assert again.skeleton.names == model.skeleton.names
    np.testing.assert_array_equal(again.skeleton.parents, model.skeleton.parents)
    np.testing.assert_allclose(again.skeleton.joint_positions, model.skeleton.joint_positions, atol=1e-7)
    np.testing.assert_allclose(again.skin.dense(), model.skin.dense(), atol=1e-7)


def test_several_roots_get_one_above_them(tmp_path: Path) -> None:
    skeleton = skeleton_from_positions(["a b", "c", "d"], np.array([-1, -1, 1]), np.eye(3))
    write_rignet(tmp_path / "rig.txt", skeleton)
    again = read_rignet_skeleton(tmp_path / "rig.txt")
    assert again.names == ("a_b", "c", "d", "rig_root") and again.parents.tolist() == [3, 3, 1, -1]
    with pytest.raises(InputError, match="has joints but no skin lines"):
        read_rignet(tmp_path / "rig.txt", SQUARE)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("joints tip 1 1 0", "joints tip 1 one 0"), "line 4 cannot be read .*could not convert"),
        (("joints tip 1 1 0", "joints tip 1 1"), "three coordinates are needed"),
        (("joints tip 1 1 0", "bones tip 1 1 0"), "starts with none of joints, root, hier, skin"),
        (("joints tip 1 1 0", ""), "there is no joint 'tip'. It needs a line: joints tip x y z"),
        (("hier base tip", "hier base tip\nhier tip base"), "'base' is called root, but hangs on 'tip'"),
        (("root base", "hier tip base"), "has a cycle"),
        (("skin 3 tip 1", "skin 3 tip"), "vertex 3 is not made of pairs"),
        (("skin 3 tip 1", "skin 3 tip x"), "vertex 3: could not convert"),
        (("skin 3 tip 1", "skin 4 tip 1"), "speaks of vertex 4, but the mesh has 4 vertices"),
        (("skin 3 tip 1", ""), "1 of 4 vertices have no skin line, the first is 3"),
    ],
)
def test_broken_texts_are_refused(change: tuple[str, str], text: str, tmp_path: Path) -> None:
    path = tmp_path / "rig.txt"
    path.write_text(TEXT.replace(*change))
    with pytest.raises(InputError, match=text) as caught:
        read_rignet(path, SQUARE)
    assert str(path) in str(caught.value)


def test_weights_that_are_all_zero_and_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rig.txt"
    path.write_text("joints a 0 0 0\nroot a\n" + "".join(f"skin {k} a 0\n" for k in range(4)))
    with pytest.raises(InputError, match="weights of all 4 vertices are zero"):
        read_rignet(path, SQUARE)
    path.write_bytes(b"\xff\xfe\x00joints")
    with pytest.raises(InputError, match="is no rig text"):
        read_rignet(path, SQUARE)
    with pytest.raises(InputError, match="Name the mesh too"):
        read_rig(path)
    with pytest.raises(InputError, match=r"\.fbx is no rig known here. Readable: .glb"):
        read_rig(tmp_path / "a.fbx")
    with pytest.raises(InputError, match=r"\.fbx is no motion known here"):
        read_motion(tmp_path / "a.fbx")


def test_obj_vertices_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.obj"
    path.write_text("v 0 0 0\nv 1 0 0 0.5 0.5 0.5\nv 1 1 0\nv 0 1 0\nvt 0 0\nf 1/1 2/1 3/1 4/1\nf -4 -2 -1\n")
    mesh = read_obj(path)
    np.testing.assert_array_equal(mesh.vertices, SQUARE.vertices)
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 2, 3]]
    path.write_text("v 0 0\n")
    with pytest.raises(InputError, match="line 1 cannot be read"):
        read_obj(path)


def unirig(path: Path, **change) -> Path:
    rng = np.random.default_rng(0)
    skeleton, skin = random_skeleton(), random_weights(rng, 30, 8)
    arrays = {
        "vertices": rng.normal(size=(30, 3)).astype(np.float32),
        "faces": np.array([[0, 1, 2]]),
        "joints": skeleton.joint_positions,
        "skin": skin.dense().astype(np.float16),
        "parents": np.array([None if p < 0 else int(p) for p in skeleton.parents], dtype=object),
        "names": np.array(skeleton.names),
        "no_skin": None,
    }
    np.savez(path, **{**arrays, **change})
    return path


def test_unirig_archives_with_pickled_parents(tmp_path: Path) -> None:
    model = read_unirig(unirig(tmp_path / "a.npz"))
    wanted = random_skeleton()
    assert model.skeleton.names == wanted.names
    np.testing.assert_array_equal(model.skeleton.parents, wanted.parents)
    np.testing.assert_allclose(model.skeleton.joint_positions, wanted.joint_positions, atol=1e-12)
    np.testing.assert_allclose(model.skin.dense(), random_weights(np.random.default_rng(0), 30, 8).dense(), atol=1e-3)


class Evil:
    """Unpickling this would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_unirig_archives_cannot_run_anything(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    path = unirig(tmp_path / "a.npz", parents=np.array([Evil(trap)], dtype=object))
    with pytest.raises(InputError, match=r"could run programs \(it asks for posix.mkdir\)"):
        read_unirig(path)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"skin": None}, "has no skin"),
        ({"skin": np.ones((29, 8))}, "do not fit together"),
        ({"skin": np.zeros((30, 8))}, "weights of all 30 vertices are zero"),
        ({"parents": np.array([1, 0, 1, 2, 3, 4, 5, 6])}, "has a cycle"),
        ({"parents": np.array([-1, 0])}, "8 joint names, 2 parents"),
    ],
)
def test_broken_unirig_archives(change: dict, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=text) as caught:
        read_unirig(unirig(tmp_path / "a.npz", **change))
    assert "a.npz" in str(caught.value)


def test_unirig_archives_cut_off(tmp_path: Path) -> None:
    whole = unirig(tmp_path / "a.npz").read_bytes()
    for share in (0.2, 0.6, 0.99):
        (tmp_path / "b.npz").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(InputError, match="is damaged"):
            read_unirig(tmp_path / "b.npz")
    (tmp_path / "b.npz").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"is no .npz archive"):
        read_unirig(tmp_path / "b.npz")
