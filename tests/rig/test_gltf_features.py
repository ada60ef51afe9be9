"""What glTF allows and few files use, on files made by hand: the same mesh must come out however it is stored."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from splatanim.rig.animation import Animation, Channel
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Pose, skin_transforms
from tests.rig.gltf_check import check_glb
from tests.rig.reference import Reference
from tests.rig.rigs import HandMade, bar, random_pose, random_skeleton, random_weights, unit_quaternions

TURN = [0.0, 0.0, np.sin(0.4), np.cos(0.4)]


def bent(model) -> np.ndarray:
    """Vertices with the second joint turned by 0.8 rad about z."""
    rest = model.skeleton.rest
    rotations = rest.rotations.copy()
    rotations[1] = np.roll(TURN, 1)
    return model.posed(Pose(rest.translations, rotations, rest.scales))


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    made = bar()
    made.content["nodes"][2]["rotation"] = TURN
    return Reference(made.write(tmp_path_factory.mktemp("bar") / "bent.glb")).posed()


@pytest.mark.parametrize("how", ["glb", "data", "file"])
def test_buffers_may_lie_in_three_places(how: str, tmp_path: Path, wanted: np.ndarray) -> None:
    model = read_gltf(bar().write(tmp_path / ("a.glb" if how == "glb" else "a.gltf"), how))
    np.testing.assert_allclose(bent(model), wanted, atol=1e-6)
    assert model.faces.tolist() == [[0, 1, 2], [2, 1, 3], [2, 3, 4], [4, 3, 5]]
    assert model.skeleton.names == ("low", "high")


def attributes(made: HandMade) -> dict[str, int]:
    return made.content["meshes"][0]["primitives"][0]["attributes"]


def test_interleaved_attributes(tmp_path: Path, wanted: np.ndarray) -> None:
    """Position, joints (bytes) and weights of each vertex side by side, 32 bytes apart."""
    made = bar()
    rows = Reference(made.write(tmp_path / "a.glb"))
    columns = [rows.values(attributes(made)[n]) for n in ("POSITION", "JOINTS_0", "WEIGHTS_0")]
    data = b"".join(struct.pack("<3f4B4f", *p, *j, *w) for p, j, w in zip(*columns))
    view = made.view(data, byteStride=32)
    for name, offset, component, kind in (
        ("POSITION", 0, 5126, "VEC3"),
        ("JOINTS_0", 12, 5121, "VEC4"),
        ("WEIGHTS_0", 16, 5126, "VEC4"),
    ):
        attributes(made)[name] = made.add(
            {"bufferView": view, "byteOffset": offset, "componentType": component, "type": kind, "count": 6}
        )
    np.testing.assert_allclose(bent(read_gltf(made.write(tmp_path / "b.glb"))), wanted, atol=1e-6)


@pytest.mark.parametrize(("code", "component", "top"), [("4B", 5121, 255), ("4H", 5123, 65535)])
def test_normalised_weights(code: str, component: int, top: int, tmp_path: Path, wanted: np.ndarray) -> None:
    made = bar()
    weights = [[top, 0, 0, 0]] * 2 + [[top // 2, top - top // 2, 0, 0]] * 2 + [[0, top, 0, 0]] * 2
    attributes(made)["WEIGHTS_0"] = made.accessor(code, component, "VEC4", weights, normalized=True)
    np.testing.assert_allclose(bent(read_gltf(made.write(tmp_path / "a.glb"))), wanted, atol=1.0 / top)


def test_sparse_accessors_with_and_without_a_base(tmp_path: Path, wanted: np.ndarray) -> None:
    """Positions as zeros but for sparse rows, and the base's positions replaced in two rows."""
    made = bar()
    points = Reference(made.write(tmp_path / "a.glb")).values(attributes(made)["POSITION"])

    def sparse(rows: list[int]) -> dict:
        return {
            "count": len(rows),
            "indices": {"bufferView": made.view(struct.pack(f"<{len(rows)}H", *rows)), "componentType": 5123},
            "values": {"bufferView": made.view(b"".join(struct.pack("<3f", *points[k]) for k in rows))},
        }

    entry = {"componentType": 5126, "type": "VEC3", "count": 6}
    attributes(made)["POSITION"] = made.add({**entry, "sparse": sparse([1, 2, 3, 4, 5])})
    np.testing.assert_allclose(bent(read_gltf(made.write(tmp_path / "b.glb"))), wanted, atol=1e-6)
    wrong = made.floats([[9.0, 9.0, 9.0] if k in (2, 5) else p for k, p in enumerate(points)])
    made.content["accessors"][wrong]["sparse"] = sparse([2, 5])
    attributes(made)["POSITION"] = wrong
    np.testing.assert_allclose(bent(read_gltf(made.write(tmp_path / "c.glb"))), wanted, atol=1e-6)


def test_a_second_set_of_joints_and_weights(tmp_path: Path, wanted: np.ndarray) -> None:
    made = bar()
    half = [[0.5, 0, 0, 0]] * 2 + [[0.25, 0.25, 0, 0]] * 2 + [[0, 0.5, 0, 0]] * 2
    for k in range(2):
        attributes(made)[f"WEIGHTS_{k}"] = made.floats(half)
        attributes(made)[f"JOINTS_{k}"] = made.accessor("4B", 5121, "VEC4", [[0, 1, 0, 0]] * 6)
    np.testing.assert_allclose(bent(read_gltf(made.write(tmp_path / "a.glb"))), wanted, atol=1e-6)


@pytest.mark.parametrize(("mode", "order"), [(5, [0, 1, 2, 3, 4, 5]), (6, [2, 0, 1, 3, 5, 4])])
def test_strips_and_fans(mode: int, order: list[int], tmp_path: Path) -> None:
    """Every triangle winds the same way (the strip is flat and faces +z; so does the fan)."""
    made = bar()
    primitive = made.content["meshes"][0]["primitives"][0]
    primitive.update(mode=mode, indices=made.accessor("H", 5123, "SCALAR", order))
    model = read_gltf(made.write(tmp_path / "a.glb"))
    corners = model.vertices[model.faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, 2]
    assert len(area) == 4 and (area > 0).all()


def test_cubic_step_and_linear_keys_equal_the_formulas(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = bar()
    times = [0.0, 0.5, 1.25]
    turns = rng.normal(size=(9, 4))
    turns[1::3] /= np.linalg.norm(turns[1::3], axis=1, keepdims=True)
    outputs = {
        ("rotation", "CUBICSPLINE"): turns.tolist(),
        ("translation", "CUBICSPLINE"): rng.normal(size=(9, 3)).tolist(),
        ("scale", "STEP"): rng.uniform(0.5, 2, (3, 3)).tolist(),
    }
    samplers, channels = [], []
    for (path, kind), rows in outputs.items():
        samplers.append({"input": made.floats(times), "output": made.floats(rows), "interpolation": kind})
        channels.append({"sampler": len(samplers) - 1, "target": {"node": 2, "path": path}})
    samplers.append({"input": made.floats([0.2, 1.0]), "output": made.floats([TURN, [0.0, 0.0, 0.0, -1.0]])})
    channels.append({"sampler": 3, "target": {"node": 1, "path": "rotation"}})
    channels.append({"sampler": 3, "target": {"node": 0, "path": "weights"}})
    made.content["animations"] = [{"name": "wave", "samplers": samplers, "channels": channels}]
    path = made.write(tmp_path / "a.glb")
    model, reference = read_gltf(path), Reference(path)
    made.content["animations"][0]["channels"].pop()
    for time in (-1.0, 0.0, 0.1, 0.3, 0.5, 0.77, 1.0, 1.25, 9.0):
        got = model.posed(model.animations["wave"].sample(time))
        np.testing.assert_allclose(got, reference.posed(0, time), atol=1e-6)
    assert model.notes == (f"{path}: clip 'wave': 1 channels move no joint (morph weights and such); left out.",)
    assert (model.animations["wave"].start, model.animations["wave"].end) == (0.0, 1.25)


def test_normalised_integer_rotations(tmp_path: Path) -> None:
    made = bar()
    keys = [[0, 0, 0, 32767], [0, 0, -32768, 0]]
    sampler = {"input": made.floats([0.0, 1.0]), "output": made.accessor("4h", 5122, "VEC4", keys, normalized=True)}
    channel = {"sampler": 0, "target": {"node": 2, "path": "rotation"}}
    made.content["animations"] = [{"samplers": [sampler], "channels": [channel]}]
    clip = read_gltf(made.write(tmp_path / "a.glb")).animations["clip0"]
    np.testing.assert_allclose(clip.sample(1.0).rotations[1], [0, 0, 0, -1], atol=1e-12)


def test_transforms_above_the_skin_and_of_the_mesh_node(tmp_path: Path) -> None:
    """The skeleton's ancestors move the mesh, the mesh's own node does not; sheared matrices are kept exactly."""
    made = bar()
    shear = np.eye(4)
    shear[:3] = [[2, 0.7, 0, 3], [0, 1, 0.3, -1], [0.2, 0, 1.5, 4]]
    made.content["nodes"] += [
        {"matrix": shear.T.ravel().tolist(), "children": [4]},
        {"scale": [1, 2, 1], "children": [1]},
    ]
    made.content["nodes"][0]["translation"] = [100.0, 0, 0]
    made.content["scenes"] = [{"nodes": [0, 3]}]
    made.content["nodes"][2]["rotation"] = TURN
    path = made.write(tmp_path / "a.glb")
    model = read_gltf(path)
    assert len(model.skeleton) == 2
    np.testing.assert_allclose(model.posed(model.skeleton.rest), Reference(path).posed(), atol=1e-5)


def test_a_joint_bound_in_two_ways_becomes_two(tmp_path: Path) -> None:
    """Two skins on the same joints that no one change of mesh space explains."""
    made = bar()
    other = np.stack([np.eye(4), np.eye(4)])
    other[1, :3, 3] = [0.3, -1.2, 0.1]
    made.content["skins"].append({"joints": [1, 2], "inverseBindMatrices": made.floats([m.T for m in other])})
    made.content["nodes"].append({"mesh": 0, "skin": 1})
    made.content["nodes"][2]["rotation"] = TURN
    made.content["scenes"] = [{"nodes": [0, 1, 3]}]
    path = made.write(tmp_path / "a.glb")
    model = read_gltf(path)
    assert model.skeleton.names == ("low", "high", "high#2") and model.skeleton.parents.tolist() == [-1, 0, 1]
    np.testing.assert_allclose(model.posed(model.skeleton.rest), Reference(path).posed(), atol=1e-6)


def test_lines_and_morphs_are_left_out_with_a_note_and_plain_meshes_get_one_joint(tmp_path: Path) -> None:
    made = bar()
    primitive = made.content["meshes"][0]["primitives"][0]
    made.content["meshes"][0]["primitives"].append({**primitive, "mode": 1})
    primitive["targets"] = [{"POSITION": primitive["attributes"]["POSITION"]}]
    del made.content["skins"], made.content["nodes"][0]["skin"]
    made.content["nodes"][0]["scale"] = [2, 2, 2]
    model = read_gltf(made.write(tmp_path / "a.glb"))
    assert model.notes[0].endswith("primitives[0] has 1 morph targets; left out.")
    assert model.notes[1].endswith("primitives[1] holds lines; left out.")
    assert len(model.skeleton) == 1 and model.vertices[:, 1].max() == 4.0


def test_a_texture_transform_and_a_missing_image(tmp_path: Path) -> None:
    made = bar()
    attributes(made)["TEXCOORD_0"] = made.floats([[0.5, 0.25]] * 6)
    moved = {"offset": [0.1, 0.2], "rotation": np.pi / 2, "scale": [2, 4]}
    texture = {"index": 0, "extensions": {"KHR_texture_transform": moved}}
    made.content.update(
        materials=[{"pbrMetallicRoughness": {"baseColorTexture": texture, "baseColorFactor": [0.5, 1, 1, 1]}}],
        textures=[{"source": 0}],
        images=[{"uri": "gone.png"}],
    )
    made.content["meshes"][0]["primitives"][0]["material"] = 0
    model = read_gltf(made.write(tmp_path / "a.glb"))
    assert model.appearance.uv is not None
    # scale to (1, 1), a quarter turn as the extension defines it (u' = c u + s v, v' = -s u + c v), then the offset
    np.testing.assert_allclose(model.appearance.uv[0], [1.1, -0.8], atol=1e-9)
    assert model.appearance.paints[0].texture is None and "gone.png" in model.notes[0]


def test_any_skeleton_survives_an_export(tmp_path: Path) -> None:
    """Sheared prefixes, two roots, eight influences, a cubic clip, and a node above it all: posed vertices stay."""
    rng = np.random.default_rng(1)
    skeleton = random_skeleton()
    turns = rng.normal(size=(4, 3, 4))
    turns[:, 1] = unit_quaternions(rng, 4)
    channels = (
        Channel(2, "rotation", np.array([0.0, 0.5, 0.75, 2.0]), turns, "CUBICSPLINE"),
        Channel(5, "translation", np.array([0.25, 1.0]), rng.normal(size=(2, 3)), "STEP"),
    )
    model = RiggedModel(
        rng.normal(size=(40, 3)),
        rng.integers(40, size=(60, 3)),
        skeleton,
        random_weights(rng, 40, 8, 8),
        animations={"wave": Animation("wave", skeleton.rest, channels)},
    )
    placed = np.eye(4)
    placed[:3, :3] = 2.0 * np.eye(3)[[1, 2, 0]]
    write_glb(tmp_path / "a.glb", model, placed=placed)
    check_glb(tmp_path / "a.glb")
    again = read_gltf(tmp_path / "a.glb")
    assert again.skeleton.names == skeleton.names
    np.testing.assert_array_equal(again.skeleton.parents, skeleton.parents)
    clips = model.animations["wave"], again.animations["wave"]
    for pose, back in [
        (random_pose(rng, 8),) * 2,
        *((clips[0].sample(t), clips[1].sample(t)) for t in (0.1, 0.6, 1.7)),
    ]:
        used = np.unique(model.faces)
        wanted = model.posed(pose)[used] @ placed[:3, :3].T
        np.testing.assert_allclose(again.posed(back), wanted, atol=1e-4 * np.abs(wanted).max())
    assert np.isfinite(skin_transforms(again.skeleton, again.skeleton.rest)).all()
