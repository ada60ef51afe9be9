"""``splatanim synth``: what is in the folder, whether the project's readers read it, whether it agrees with itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pipelines.synth
from pipelines.cli import main
from pipelines.papr_reposing import read_motion
from pipelines.synth import SynthConfig, synth
from pipelines.synth_cameras import FOV, ring_cameras
from pipelines.synth_files import monocular, whole_folder
from pipelines.synth_motion import perform, posed, read_subject
from pipelines.synth_speed import seconds_of_views
from rigpapr.dataset import read_dataset
from splatanim.errors import InputError, OutputError
from splatanim.render.camera import Camera
from splatanim.render.camera_io import read_cameras
from splatanim.render.mesh import trace
from splatanim.rig.animation import Animation, Channel
from splatanim.rig.appearance import Appearance, Paint
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import skeleton_from_positions
from splatanim.rig.skinning import blend_points
from splatanim.rig.weights import sparse_weights
from tests.helpers import data_file
from tests.rig.rigs import add_bow, bar

UP = (0.0, 1.0, 0.0)


def worm() -> RiggedModel:
    """A capsule along z on two joints that nods within a second, while it goes 3 forward (+z) and 0.5 up."""
    import trimesh

    shape = trimesh.creation.capsule(height=4.0, radius=0.6, count=[12, 12])
    vertices = np.asarray(shape.vertices, np.float64) - shape.bounds.mean(axis=0)
    bones = skeleton_from_positions(("root", "tip"), np.array([-1, 0]), np.array([[0.0, 0, -2], [0, 0, 0]]))
    front = np.clip(vertices[:, 2] + 0.5, 0.0, 1.0)
    skin = sparse_weights(np.stack([1 - front, front], axis=1))
    turn = np.array([[1.0, 0, 0, 0], [np.cos(0.2), -np.sin(0.2), 0, 0], [1.0, 0, 0, 0]])
    channels = (
        Channel(1, "rotation", np.array([0.0, 0.5, 1.0]), turn),
        Channel(0, "translation", np.array([0.0, 1.0]), np.array([[0.0, 0, -2], [0, 0.5, 1]])),
    )
    clip = Animation("Nod", bones.rest, channels)
    looks = Appearance((Paint("skin", (0.6, 0.3, 0.2, 1.0)),), np.zeros(len(shape.faces), np.int64))
    faces = np.asarray(shape.faces, np.int64)
    return RiggedModel(vertices, faces, bones, skin, shape.vertex_normals.copy(), looks, {"Nod": clip})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "worm.glb"
    write_glb(path, worm())
    return path


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small whole set, the subject nodding in place."""
    folder = tmp_path_factory.mktemp("sets") / "worm"
    synth(small(source, folder))
    return folder


def small(source: Path, folder: Path, **more: object) -> SynthConfig:
    options = {"clip": "Nod", "frames": 4, "views": 6, "novel": 2, "size": 64, "travel": "in-place", **more}
    return SynthConfig(source, folder, **options)  # type: ignore[arg-type]


def project(camera: Camera, points: np.ndarray) -> np.ndarray:
    seen = points @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    assert (seen[:, 2] > 0).all()
    return seen[:, :2] / seen[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy]


def share_inside(camera: Camera, points: np.ndarray, alpha: np.ndarray) -> float:
    """Share of points that project into a mask widened by a pixel."""
    from scipy.ndimage import binary_dilation

    mask = binary_dilation(alpha > 0, np.ones((3, 3), bool))
    at = np.floor(project(camera, points)).astype(int)
    inside = ((at >= 0) & (at < alpha.shape[0])).all(axis=1)
    at = np.clip(at, 0, alpha.shape[0] - 1)
    return float((inside & mask[at[:, 1], at[:, 0]]).mean())


def alpha_of(path: Path) -> np.ndarray:
    image = Image.open(path)
    assert image.mode == "RGBA"
    return np.asarray(image)[..., 3]


def test_the_readers_of_the_project_read_it(made: Path) -> None:
    views = read_dataset(made)
    assert len(views) == 6 and views[0].rgba.shape == (64, 64, 4)
    assert len(read_cameras(made / "video.json").cameras) == 4 and read_cameras(made / "video.json").fps == 4.0
    assert len(read_cameras(made / "novel.json").cameras) == 2
    motion = read_motion(made)
    assert len(motion) == 4 and motion.joints.shape == (4, 2, 3) and list(motion.cameras) == ["ring0", "ring1"]
    rgb, mask = motion.picture("ring1", 3)
    assert rgb.shape == (64, 64, 3) and 0.01 < mask.mean() < 0.6


def test_the_keys_are_those_of_the_multiview_data(made: Path) -> None:
    theirs = data_file("multiview/spider")
    for name in ("transforms_train.json", "video.json", "novel.json"):
        mine, other = (json.loads((folder / name).read_text()) for folder in (made, theirs))
        assert set(other) <= set(mine)
        for key in set(other) & {"frames", "cameras"}:
            assert type(mine[key]) is type(other[key])
            if isinstance(other[key], list) and isinstance(other[key][0], dict):
                assert set(mine[key][0]) == set(other[key][0])
        assert mine.get("pattern") == other.get("pattern")
    assert mine["cameras"][1]["name"] == "ring1" and mine["frames"] == 4


def test_true_vertices_project_into_the_masks_of_every_picture(made: Path) -> None:
    with np.load(made / "train_vertices.npz") as file:
        rest = file["vertices"].astype(float)
    for camera, view in zip(read_cameras(made / "transforms_train.json").cameras, read_dataset(made), strict=True):
        assert share_inside(camera, rest, view.rgba[..., 3]) == 1.0
        low, high = project(camera, rest).min(axis=0), project(camera, rest).max(axis=0)
        rows, columns = np.nonzero(view.rgba[..., 3])  # and the mask is no larger than they are
        assert np.abs([columns.min() - low[0], rows.min() - low[1]]).max() < 1.5
        assert np.abs([columns.max() + 1 - high[0], rows.max() + 1 - high[1]]).max() < 1.5
    with np.load(made / "video_vertices.npz") as file:
        vertices = file["vertices"].astype(float)
    np.testing.assert_allclose(vertices[0], rest, atol=1e-6)
    video = json.loads((made / "video.json").read_text())
    fixed = read_cameras(made / "video.json").cameras[0]
    ring = read_cameras(made / "novel.json").cameras
    for t, name in enumerate(video["frames"]):
        assert share_inside(fixed, vertices[t], alpha_of(made / name)) == 1.0
        for k, camera in enumerate(ring):
            assert share_inside(camera, vertices[t], alpha_of(made / f"novel/ring{k}_{t:03d}.png")) == 1.0


def test_depth_is_that_of_the_true_surface(made: Path) -> None:
    with np.load(made / "video_vertices.npz") as file:
        vertices, faces = file["vertices"].astype(float), file["faces"].astype(np.int64)
    with np.load(made / "video_depth.npz") as file:
        depth, mono = file["depth"], file["depth_mono"]
    camera = read_cameras(made / "video.json").cameras[0]
    for t in range(4):
        expected = trace(vertices[t], faces, camera).depth
        both = np.isfinite(expected) & (depth[t] > 0)
        assert (np.isfinite(expected) != (depth[t] > 0)).sum() <= 2  # float32 vertices against float64 ones
        np.testing.assert_allclose(depth[t][both], expected[both], atol=1e-4)
        alpha = alpha_of(made / f"video/f_{t:03d}.png")
        assert (alpha[depth[t] > 0] > 0).all() and (depth[t][alpha == 255] > 0).all()
        assert ((mono[t] > 0) == (depth[t] > 0)).all()
    nodding = vertices[2, :, 1].max() - vertices[0, :, 1].max()
    assert nodding > 0.1


def test_the_stand_in_for_a_predictor_has_an_unknown_scale_a_smooth_bias_and_noise() -> None:
    depth = np.full((6, 40, 40), 3.0, np.float32)
    depth[:, :, 20:] = 4.0
    depth[:, 0] = 0.0
    mono = monocular(depth, 5).astype(float)
    assert not mono[:, 0].any() and (mono[:, 1:] > 0).all()
    np.testing.assert_array_equal(mono, monocular(depth, 5))
    assert np.abs(monocular(depth, 6) - mono).max() > 0.1
    step = mono[:, 1:, 20] - mono[:, 1:, 19]
    scale = step.mean(axis=1)
    assert 1.25 < scale.min() < scale.max() < 2.25 and 0.002 < scale.std() / scale.mean() < 0.08
    rough = np.diff(mono[:, 1:, :20], n=2, axis=2).std() / np.sqrt(6)  # of white noise: sqrt(1 + 4 + 1) times its own
    assert rough == pytest.approx(scale.mean() * 0.003 * 3.0, rel=0.25)


def test_the_rig_and_its_transforms_give_the_true_vertices_and_joints(made: Path) -> None:
    rig = read_gltf(made / "rig.glb")
    video = json.loads((made / "video.json").read_text())
    assert tuple(video["joint_names"]) == rig.skeleton.names == ("root", "tip")
    assert video["joint_parents"] == [-1, 0] and video["rig"] == "rig.glb" and video["animation"] == "Nod"
    with np.load(made / "video_rig.npz") as file:
        transforms = file["skin_transforms"].astype(float)
    with np.load(made / "video_vertices.npz") as file:
        vertices = file["vertices"]
    for t in range(4):
        np.testing.assert_allclose(blend_points(rig.vertices, rig.skin, transforms[t]), vertices[t], atol=1e-5)
        at = rig.skeleton.joint_positions
        joints = np.einsum("jab,jb->ja", transforms[t][:, :3, :3], at) + transforms[t][:, :3, 3]
        np.testing.assert_allclose(joints, video["joint_positions"][t], atol=1e-5)
    assert list(rig.animations) == ["Nod"]
    place = video["normalisation"]
    np.testing.assert_allclose((worm().vertices - place["center"]) * place["scale"], rig.vertices, atol=1e-5)
    box = np.stack([vertices.min(axis=(0, 1)), vertices.max(axis=(0, 1))])
    np.testing.assert_allclose(box[0], -box[1], atol=1e-5)  # the clip's box: centred, half a diagonal of 1
    assert np.linalg.norm(box[1]) == pytest.approx(1.0, abs=1e-5)


def test_the_same_seed_makes_the_same_bytes(source: Path, made: Path, tmp_path: Path) -> None:
    synth(small(source, tmp_path / "again"))
    names = sorted(str(p.relative_to(made)) for p in made.rglob("*") if p.is_file())
    assert names == sorted(
        str(p.relative_to(tmp_path / "again")) for p in (tmp_path / "again").rglob("*") if p.is_file()
    )
    assert [n for n in names if (made / n).read_bytes() != (tmp_path / "again" / n).read_bytes()] == []
    synth(small(source, tmp_path / "other", seed=1))
    for name in ("train/r_000.png", "video/f_000.png", "video_depth.npz", "transforms_train.json"):
        assert (made / name).read_bytes() != (tmp_path / "other" / name).read_bytes()


def test_ways_to_travel() -> None:
    model = worm()
    clip = model.clip("Nod")

    def drift(travel: str) -> tuple[np.ndarray, bool, float]:
        done = perform(model, clip, 8, up=UP, travel=travel)
        root = done.joints[:, 0] / done.scale
        return (root[-1] - root[0]) * 8 / 7, done.roams, done.scale

    along, roams, _ = drift("clip")
    np.testing.assert_allclose(along, [0, 0.5, 3], atol=1e-9)
    assert roams and not drift("0.2")[1]  # 3 of a length of 5.2, and a fifth of it
    still, roams, scale = drift("in-place")
    np.testing.assert_allclose(still, [0, 0.5, 0], atol=1e-9)
    far, roams, own = drift("2")
    np.testing.assert_allclose(far, [0, 0.5, 2 * np.ptp(model.vertices[:, 2])], atol=1e-9)
    assert roams and own == pytest.approx(scale, rel=0.1)
    np.testing.assert_allclose(drift("-1.5")[0], [0, 0.5, -1.5 * np.ptp(model.vertices[:, 2])], atol=1e-9)
    for bad in ("fast", "nan"):
        with pytest.raises(InputError, match=f"--travel {bad}: give clip, in-place, or a number of body lengths"):
            drift(bad)


def test_a_roaming_clip_stays_in_every_picture(source: Path, tmp_path: Path) -> None:
    result = synth(small(source, tmp_path / "far", travel="3", frames=3))
    assert "needs more room than in any frame" in result.notes[0]
    with np.load(tmp_path / "far/video_vertices.npz") as file:
        vertices = file["vertices"].astype(float)
    fixed = read_cameras(tmp_path / "far/video.json").cameras[0]
    ring = read_cameras(tmp_path / "far/novel.json").cameras
    for t in range(3):
        assert share_inside(fixed, vertices[t], alpha_of(tmp_path / f"far/video/f_{t:03d}.png")) == 1.0
        for k, camera in enumerate(ring):
            assert share_inside(camera, vertices[t], alpha_of(tmp_path / f"far/novel/ring{k}_{t:03d}.png")) == 1.0
    for view in read_dataset(tmp_path / "far"):
        assert 0.02 < view.mask.mean() < 0.6
        assert not view.mask[[0, -1]].any() and not view.mask[:, [0, -1]].any()


def test_the_field_of_view_changes_perspective_but_not_the_size_of_the_subject(source: Path, tmp_path: Path) -> None:
    shares = []
    for fov in (12.0, 39.6, 70.0):
        synth(small(source, tmp_path / str(fov), fov=fov, views=3, frames=1, novel=0))
        data = json.loads((tmp_path / str(fov) / "transforms_train.json").read_text())
        assert data["camera_angle_x"] == pytest.approx(np.radians(fov))
        shares.append(np.mean([view.mask.mean() for view in read_dataset(tmp_path / str(fov))]))
        assert not (tmp_path / str(fov) / "novel.json").exists()
    assert max(shares) < 1.3 * min(shares)


def test_normals_turn_with_the_surface() -> None:
    model = worm()
    done = perform(model, model.clip("Nod"), 4, up=UP)
    vertices, normals = posed(done.model, done.frames[2])
    corners = vertices[model.faces]
    flat = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    assert normals is not None
    assert (flat * normals[model.faces].mean(axis=1)).sum(axis=1).min() > 0.7
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0)


def test_without_a_clip_only_training_views_are_made(source: Path, tmp_path: Path) -> None:
    result = synth(SynthConfig(source, tmp_path / "a", views=4, size=48))
    assert result.frames == result.novel == 0 and "clips: Nod" in result.notes[-1]
    files = {p.name for p in (tmp_path / "a").iterdir()}
    assert files == {"train", "transforms_train.json", "train_vertices.npz", "rig.glb", "README.md"}
    assert "bind pose" in (tmp_path / "a/README.md").read_text()
    import trimesh

    trimesh.creation.box((1, 2, 3)).export(tmp_path / "box.obj")
    assert synth(SynthConfig(tmp_path / "box.obj", tmp_path / "b", views=4, size=48, up="+z")).notes == ()
    up = np.array([c.T_camera_world[1, :3] for c in read_cameras(tmp_path / "b/transforms_train.json").cameras])
    assert (up[:, 2] < -0.3).all()  # picture's down is the world's -z
    assert len(read_dataset(tmp_path / "b")) == 4


def test_the_training_pose_may_be_the_bind_pose(source: Path, tmp_path: Path) -> None:
    synth(small(source, tmp_path / "a", pose="bind", views=2, frames=2, novel=0))
    with np.load(tmp_path / "a/train_vertices.npz") as file:
        np.testing.assert_allclose(file["vertices"], read_gltf(tmp_path / "a/rig.glb").vertices, atol=1e-5)


def test_looks(source: Path, tmp_path: Path) -> None:
    """Unlit, patterned and lit pictures differ as they should; more samples refine alpha."""
    colours = {}
    for name, more in {
        "plain": {"unlit": True, "pattern": "off"},
        "marked": {"unlit": True},
        "lit": {"pattern": "off"},
        "dark": {"pattern": "off", "ambient": 0.0, "light": (0.0, -90.0)},
        "coarse": {"samples": 1},
    }.items():
        synth(small(source, tmp_path / name, views=1, frames=1, novel=0, **more))
        rgba = np.asarray(Image.open(tmp_path / name / "train/r_000.png"))
        colours[name] = rgba[rgba[..., 3] == 255][:, 0].astype(float)
        assert (len(np.unique(rgba[..., 3])) <= 2) == (name == "coarse")
    assert colours["plain"].std() == 0 and colours["marked"].std() > 4
    assert 5 < colours["lit"].std() and colours["lit"].max() <= colours["plain"][0]
    assert colours["dark"].min() == 0


def test_a_flat_mesh_is_never_seen_edge_on(tmp_path: Path) -> None:
    card = bar()
    add_bow(card)
    synth(SynthConfig(card.write(tmp_path / "card.glb"), tmp_path / "set", clip="bow", frames=2, views=9, size=48))
    assert len(read_dataset(tmp_path / "set")) == 9  # refuses empty masks


def test_a_folder_is_whole_or_not_there(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "set"
    one = {"views": 1, "frames": 1, "novel": 0}
    synth(small(source, target, **one))
    with pytest.raises(InputError, match=r"set: exists already. Choose another folder, or replace it with --overwrite"):
        synth(small(source, target, **one))
    synth(small(source, target, overwrite=True, views=2, frames=1, novel=0))
    assert len(read_dataset(target)) == 2

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pipelines.synth, "write_picture", fails)
    with pytest.raises(OutputError, match=r"set: cannot be written .No space left on device"):
        synth(small(source, target, overwrite=True, **one))
    with pytest.raises(OutputError):
        synth(small(source, tmp_path / "new", **one))
    assert [p.name for p in tmp_path.iterdir()] == ["set"] and len(read_dataset(target)) == 2
    monkeypatch.undo()
    moves = os.replace

    def second_fails(source: str, to: Path) -> None:
        if ".old" not in str(to) and not str(source).endswith(".old"):
            raise OSError(5, "Input/output error")
        moves(source, to)

    monkeypatch.setattr(os, "replace", second_fails)
    with (
        pytest.raises(OutputError, match=r"set: cannot be written .Input/output error"),
        whole_folder(target, overwrite=True) as folder,
    ):
        (folder / "new.txt").write_text("new")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["set"] and len(read_dataset(target)) == 2
    with pytest.raises(KeyboardInterrupt), whole_folder(target, overwrite=True):
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["set"] and len(read_dataset(target)) == 2
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/mother.txt").write_text("dear")
    with pytest.raises(InputError, match=r"is not empty and holds no transforms_train.json"):
        synth(small(source, tmp_path / "letters", overwrite=True, **one))
    with pytest.raises(InputError, match=r"is a file. Give the name of a folder"):
        synth(small(source, tmp_path / "letters/mother.txt", **one))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"clip": "Fly"}, r"worm.glb: There is no clip 'Fly' in this rig. Its clips: Nod."),
        ({"frames": 0}, "--frames 0: a whole number from 1 to 10000"),
        ({"views": 0}, "--views 0: a whole number from 1 to 10000"),
        ({"novel": -1}, "--novel -1: a whole number from 0 to 1000"),
        ({"size": 4}, "--size 4: a whole number from 16 to 8192"),
        ({"samples": 9}, "--samples 9: a whole number from 1 to 8"),
        ({"fov": 180.0}, "--fov 180: give degrees from 5 to 120"),
        ({"ambient": 1.5}, "--ambient 1.5: a share from 0 to 1"),
        ({"light": (0.0, 100.0)}, "--light .0.0, 100.0.: azimuth and elevation in degrees"),
        ({"seed": -1}, "--seed -1: must not be negative"),
        ({"travel": "far"}, "--travel far: give clip, in-place, or a number"),
        ({"up": "north"}, "Up axis 'north' is unknown"),
        ({"motion": Path("walk.bvh")}, "--motion walk.bvh: clips are taken from .glb and .gltf"),
        ({"clip": "", "travel": "1"}, "--motion and --travel are for a clip: name one with --clip"),
    ],
)
def test_options_that_are_refused(source: Path, tmp_path: Path, more: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        synth(small(source, tmp_path / "set", **{"travel": "clip", **more}))
    assert not list(tmp_path.iterdir())


def test_sources_that_are_refused(tmp_path: Path) -> None:
    import trimesh

    trimesh.creation.box().export(tmp_path / "box.obj")
    with pytest.raises(InputError, match="is one rigid piece without a skin and has no animation, so there is no clip"):
        synth(SynthConfig(tmp_path / "box.obj", tmp_path / "set", clip="Walk"))
    stiff = bar().write(tmp_path / "bar.glb")
    with pytest.raises(InputError, match="is a rig and has no animation, so there is no clip 'Walk'"):
        synth(SynthConfig(stiff, tmp_path / "set", clip="Walk"))
    (tmp_path / "a.usd").write_text("")
    with pytest.raises(InputError, match=r"a.usd: .usd is no rig or mesh known here. Readable: .glb"):
        synth(SynthConfig(tmp_path / "a.usd", tmp_path / "set"))
    clear = worm()
    clear = RiggedModel(
        clear.vertices, clear.faces, clear.skeleton, clear.skin,
        appearance=Appearance((Paint(base=(1, 1, 1, 0.0), cutoff=0.0),)),
    )  # fmt: skip
    write_glb(tmp_path / "clear.glb", clear)
    with pytest.raises(InputError, match="view 0 shows nothing of the model at 48 pixels"):
        synth(SynthConfig(tmp_path / "clear.glb", tmp_path / "set", size=48))
    assert not (tmp_path / "set").exists()


def test_the_verb(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--clip", "nod", "--frames", "2", "--views", "2", "--novel", "1", "--size", "32"]
    assert main(["synth", str(source), "-o", str(tmp_path / "set"), *options]) == 0
    assert "set: 2 training views, a clip of 2 frames, 1 held-out cameras" in capsys.readouterr().out
    assert main(["synth", str(source), "-o", str(tmp_path / "set")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_speed_is_measured(source: Path) -> None:
    assert seconds_of_views(source, views=2, size=32) > 0


def test_the_fox_is_as_in_the_multiview_data(tmp_path: Path) -> None:
    theirs = data_file("multiview/fox")
    options = {"views": 32, "frames": 24, "novel": 0, "samples": 2}
    synth(SynthConfig(data_file("rigged/fox_textured.glb"), tmp_path / "fox", clip="Walk", **options))  # type: ignore[arg-type]
    ring = ring_cameras(4, UP, size=256, fov=FOV)
    given = read_cameras(theirs / "novel.json").cameras
    assert list(ring) == [c["name"] for c in json.loads((theirs / "novel.json").read_text())["cameras"]]
    for a, b in zip(ring.values(), given, strict=True):
        np.testing.assert_allclose(a.T_camera_world, b.T_camera_world, atol=1e-9)
    for name in ("transforms_train.json", "video.json"):
        mine, other = (json.loads((folder / name).read_text()) for folder in (tmp_path / "fox", theirs))
        assert other.keys() <= mine.keys()
        for key in other.keys() & {"w", "h", "camera_angle_x", "fl_x", "fl_y", "cx", "cy", "animation", "model"}:
            assert mine[key] == pytest.approx(other[key], abs=1e-9)
        for a, b in zip(*(read_cameras(folder / name).cameras for folder in (tmp_path / "fox", theirs))):
            np.testing.assert_allclose(a.T_camera_world, b.T_camera_world, atol=2e-5)  # their golden angle has 7 digits
    for key in ("joint_names", "joint_parents", "frames"):
        mine, other = (json.loads((folder / "video.json").read_text())[key] for folder in (tmp_path / "fox", theirs))
        assert mine == other
    for name in ("video_vertices.npz", "video_depth.npz"):
        with np.load(tmp_path / "fox" / name) as mine, np.load(theirs / name) as other:
            assert set(mine) == set(other) and all(mine[key].shape == other[key].shape for key in other)
            if name == "video_vertices.npz":
                assert (
                    np.abs(mine["vertices"] - other["vertices"]).max() < 2e-3
                )  # rotations are blended otherwise there
            else:
                both = (mine["depth"] > 0) & (other["depth"] > 0)
                assert both.sum() > 0.98 * (other["depth"] > 0).sum()
                assert np.median(np.abs(mine["depth"] - other["depth"].astype(float))[both]) < 3e-3
    for name in ("train/r_000.png", "train/r_020.png", "video/f_012.png"):
        mine, other = (np.asarray(Image.open(folder / name), float) for folder in (tmp_path / "fox", theirs))
        assert np.abs(mine[..., 3] - other[..., 3]).mean() < 0.3
        both = (mine[..., 3] == 255) & (other[..., 3] == 255)
        assert np.abs(mine - other)[both][:, :3].mean() < 12  # light is reckoned in linear values here


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("rigged/biped_multiskin.glb", {"clip": "Walk"}),
        ("rigged/crab.glb", {"clip": "Dance"}),
        ("rigged/horse.glb", {"clip": "Gallop"}),
        ("rigged/simple_skin.gltf", {"clip": "clip0"}),
        ("rigged/kaykit_mannequin/manny_med_mod.gltf", {"clip": "Walking_A", "motion": "Med_MovementBasic.glb"}),
        ("video/crocodile/rig.txt", {"rig_mesh": "mesh.obj", "up": "+z"}),
        ("video/crocodile/mesh.obj", {"up": "+z"}),
    ],
)
def test_rigs_of_the_data(name: str, more: dict[str, str], tmp_path: Path) -> None:
    path = data_file(name)
    beside = {key: path.parent / more[key] for key in ("motion", "rig_mesh") if key in more}
    options = {"views": 3, "frames": 2, "novel": 1, "size": 48, "samples": 2, **more, **beside}
    result = synth(SynthConfig(path, tmp_path / "set", **options))  # type: ignore[arg-type]
    assert result.frames == (2 if "clip" in more else 0)
    with np.load(tmp_path / "set/train_vertices.npz") as file:
        vertices, faces = file["vertices"].astype(float), file["faces"]
    cameras = read_cameras(tmp_path / "set/transforms_train.json").cameras
    for camera, view in zip(cameras, read_dataset(tmp_path / "set"), strict=True):
        assert share_inside(camera, vertices[np.unique(faces)], view.rgba[..., 3]) > 0.97  # the rest is finer than 1 px


def test_draco_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Draco, which is not read here. Decompress it first"):
        synth(SynthConfig(data_file("rigged/mech_frog_draco.glb"), tmp_path / "set"))
    with pytest.raises(InputError, match="has no faces, so there is nothing to see"):
        read_subject(data_file("rigged/kaykit_mannequin/Med_General.glb"))
