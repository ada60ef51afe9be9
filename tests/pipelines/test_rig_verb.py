"""``splatanim rig``: every kind of source, every output, and the errors' texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.cli import main
from pipelines.rig_verb import RigConfig, points_subject, read_subject, rig
from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats import write_ply
from splatanim.rig.files import read_rig
from splatanim.rig.gltf import read_gltf
from tests.helpers import data_file
from tests.rig.auto_shapes import CREATURE, surface_points

FIELDS = ("means", "quaternions", "log_scales", "raw_opacities", "sh")


def creature_obj(path: Path) -> None:
    """Closed capsules that intersect, as many low-poly models are made."""
    import trimesh

    parts = []
    for a, b, radius in CREATURE:
        a, b = np.array(a, float), np.array(b, float)
        part = trimesh.creation.capsule(float(np.linalg.norm(b - a)), radius, count=[10, 10])
        part.apply_translation(-part.bounds.mean(axis=0))
        part.apply_transform(trimesh.geometry.align_vectors([0, 0, 1], (b - a) / np.linalg.norm(b - a)))
        part.apply_translation(0.5 * (a + b))
        parts.append(part)
    mesh = trimesh.util.concatenate(parts)
    lines = [f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in mesh.vertices]
    lines += [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in mesh.faces]
    path.write_text("\n".join(lines) + "\n")


def creature_splats(count: int = 5000, offset: tuple = (0.0, 0.0, 0.0)) -> Splats:
    points = surface_points(CREATURE, count)
    n = len(points)
    still = np.tile(np.array([1, 0, 0, 0], np.float32), (n, 1))
    log_scales = np.full((n, 3), np.log(0.008), np.float32)
    return Splats(
        points.astype(np.float32),
        still,
        log_scales,
        np.full(n, 3.0, np.float32),
        np.zeros((n, 1, 3), np.float32),
        offset,
    )


@pytest.fixture(scope="module")
def obj(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rig") / "creature.obj"
    creature_obj(path)
    return path


def test_mesh_to_all_outputs(obj: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = [tmp_path / f"rig{suffix}" for suffix in (".glb", ".txt", ".png")]
    assert main(["rig", str(obj), *(word for path in outputs for word in ("-o", str(path)))]) == 0
    said = capsys.readouterr().out
    assert "2 pairs of limbs about a plane across 1.00" in said and "limb_1_l + limb_1_r" in said
    model, text = read_gltf(outputs[0]), read_rig(outputs[1], obj)
    assert model.skeleton.names == text.skeleton.names
    np.testing.assert_allclose(model.skeleton.joint_positions, text.skeleton.joint_positions, atol=1e-5)
    assert len(model.vertices) == len(text.vertices)
    np.testing.assert_allclose(model.skin.dense(), text.skin.dense(), atol=1e-5)
    assert not model.animations and model.skeleton.parents.min() == -1
    picture = np.asarray(Image.open(outputs[2]).convert("RGB"))
    assert picture.shape == (584, 1560, 3)
    coloured = np.ptp(picture.astype(int), axis=2) > 40
    assert coloured[:, :520].mean() > 0.02 and coloured[:, 1040:].mean() > 0.02


def test_splats_keep_their_order_and_place(tmp_path: Path) -> None:
    """Every splat of the file gets weights, floaters too, whatever turns the points upright in the .glb."""
    splats = creature_splats()
    away = (4.0 + np.arange(3)[:, None] * np.ones(3)).astype(np.float32)
    far = splats.select(np.arange(3)).replace(means=away)
    both = Splats(*(np.concatenate([getattr(splats, k), getattr(far, k)]) for k in FIELDS))
    path = tmp_path / "creature.ply"
    write_ply(path, both, comments=("Vertical Axis: +y",))
    said = rig(RigConfig(path, (tmp_path / "rig.glb", tmp_path / "rig.txt")))
    assert f"for {len(both)} splats" in said
    model = read_gltf(tmp_path / "rig.glb")
    np.testing.assert_allclose(model.vertices, both.means, atol=1e-5)
    assert np.ptp(model.skeleton.joint_positions, axis=0).max() < 1.2  # the floaters are no limbs
    lines = (tmp_path / "rig.txt").read_text().splitlines()
    assert sum(line.startswith("skin ") for line in lines) == len(both)


def test_papr_asset(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from rigpapr.asset import write_asset
    from rigpapr.cloud import CloudConfig, PaprCloud

    points = surface_points(CREATURE, 4000) + np.array([3.0, 0.0, -1.0])
    cloud = PaprCloud(CloudConfig(), torch.tensor(points, dtype=torch.float32))
    path = tmp_path / "creature.papr.safetensors"
    write_asset(path, cloud)
    said = rig(RigConfig(path, (tmp_path / "rig.glb",)))
    assert "for 4000 points" in said
    model = read_gltf(tmp_path / "rig.glb")
    np.testing.assert_allclose(model.vertices, cloud.world_positions.detach().numpy(), atol=1e-5)
    low, high = points.min(axis=0) - 0.05, points.max(axis=0) + 0.05
    joints = model.skeleton.joint_positions
    assert ((joints > low) & (joints < high)).all() and len(joints) > 15


def test_points_of_a_ply(tmp_path: Path) -> None:
    import trimesh

    path = tmp_path / "points.ply"
    trimesh.PointCloud(surface_points(CREATURE, 3000)).export(path)
    said = rig(RigConfig(path, (tmp_path / "rig.glb",)))
    assert "for 3000 points" in said and len(read_gltf(tmp_path / "rig.glb").vertices) == 3000


def test_subject_of_points_is_where_the_points_are() -> None:
    points = 100.0 + surface_points(CREATURE, 2000)
    subject = points_subject(points, "cloud")
    np.testing.assert_allclose(subject.points + subject.offset, points)
    inside = subject.object.frame.to_file(subject.object.cubature.domain.centres) + subject.offset
    assert np.abs(inside.mean(axis=0) - points.mean(axis=0)).max() < 0.1


def test_refused(obj: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"say what to write: -o rig.glb, -o rig.txt or -o rig.png"):
        rig(RigConfig(obj))
    with pytest.raises(InputError, match=r"rig.fbx: .fbx cannot be written. Write .glb, .txt or .png"):
        rig(RigConfig(obj, (tmp_path / "rig.fbx",)))
    with pytest.raises(InputError, match=r"--influences 9: a point follows 1 to 8 joints"):
        rig(RigConfig(obj, (tmp_path / "rig.glb",), influences=9))
    with pytest.raises(InputError, match="no such file"):
        read_subject(tmp_path / "missing.ply")


def test_few_and_broken_points(tmp_path: Path) -> None:
    import trimesh

    few = tmp_path / "few.ply"
    trimesh.PointCloud(np.eye(3)).export(few)
    with pytest.raises(InputError, match="3 usable points; a point cloud needs at least 8"):
        rig(RigConfig(few, (tmp_path / "rig.glb",)))
    broken = surface_points(CREATURE, 2000)
    broken[7] = np.nan
    path = tmp_path / "broken.ply"
    trimesh.PointCloud(broken).export(path)
    assert "1 of 2000 points are not finite; left out" in rig(RigConfig(path, (tmp_path / "rig.glb",)))


def test_glb_of_points_alone_is_refused(tmp_path: Path) -> None:
    write_ply(tmp_path / "creature.ply", creature_splats(1500))
    rig(RigConfig(tmp_path / "creature.ply", (tmp_path / "rig.glb",)))
    with pytest.raises(InputError, match=r"has no faces\. Give a mesh, splats or a \.ply of points"):
        read_subject(tmp_path / "rig.glb")


def test_spiders_eight_legs_each_get_a_chain(tmp_path: Path) -> None:
    path = data_file("rigged/spider.glb")
    rig(RigConfig(path, (tmp_path / "rig.glb",)))
    made, true = read_gltf(tmp_path / "rig.glb"), read_gltf(path)
    size, names, parents = made.size, made.skeleton.names, made.skeleton.parents
    feet = [k for k, name in enumerate(true.skeleton.names) if "Leg" in name and not len(true.skeleton.children(k))]
    own = true.skin.joints[np.arange(len(true.skin)), true.skin.weights.argmax(axis=1)]
    chains = set()
    for foot in feet:
        tip = true.vertices[own == foot].mean(axis=0)
        end = int(np.linalg.norm(made.skeleton.joint_positions - tip, axis=1).argmin())
        assert np.linalg.norm(made.skeleton.joint_positions[end] - tip) < 0.08 * size
        chain = names[end].rsplit("_", 1)[0]
        assert sum(name.startswith(chain + "_") for name in names) >= 4
        chains.add(chain)
        at = end
        while parents[at] >= 0:
            at = parents[at]
        assert names[at] == "root"
    assert len(feet) == 8 and len(chains) == 8
    assert {chain.rsplit("_", 1)[1] for chain in chains} == {"l", "r"}
