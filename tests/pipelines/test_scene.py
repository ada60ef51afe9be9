"""Whole scenes, small: what they write, that each object keeps its own coordinates, and that they fail well."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipelines.cli import main
from pipelines.scene_build import build_scene, upright
from pipelines.scene_regions import regions_of
from pipelines.scene_run import animate_scene, scene_json
from splatanim.dynamics.scene import (
    Drag,
    Output,
    Pin,
    Plane,
    Scene,
    SceneError,
    SceneObject,
    Scenery,
    Stiffness,
    View,
)
from splatanim.errors import InputError
from splatanim.formats import read_splats, write_ply
from tests.helpers import hears_interrupts, random_splats

ROOT = Path(__file__).parents[2]
SMALL = {"seconds": 0.2, "fps": 15.0}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ball of 2,000 splats, y down, far from its file's origin, its middle at (5, -3, 1) and its radius 1.5."""
    rng = np.random.default_rng(3)
    direction = rng.normal(size=(2000, 3))
    means = 1.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True) + [5.0, -3.0, 1.0]
    path = tmp_path_factory.mktemp("capture") / "ball.ply"
    splats = random_splats(2000, degree=1).replace(means=means.astype(np.float32))
    write_ply(path, splats.replace(raw_opacities=np.full(2000, 2.0, np.float32)))
    return path


@pytest.fixture(scope="module")
def result(capture: Path, tmp_path_factory: pytest.TempPathFactory):
    """A capture and a box fall side by side onto a floor, beside a post."""
    folder = tmp_path_factory.mktemp("scene")
    scene = Scene(
        objects=(
            SceneObject("toy", file=str(capture), size=0.5, at=(0.4, 0.1, 0.0), handles=4, rotate=(0.0, 90.0, 0.0)),
            SceneObject("cube", shape="box", size=0.4, at=(-0.4, 0.05, 0.0), handles=4, rigid=True),
        ),
        scenery=(Scenery("post", shape="cylinder", proportions=(0.2, 1.0, 0.2), at=(0.0, 0.0, -1.0)),),
        planes=(Plane(),),
        output=Output(
            size="64x48", ply=str(folder / "ply"), npz=str(folder / "npz"), report=str(folder / "report.json")
        ),
        **SMALL,
    )
    return animate_scene(scene, folder / "out.mp4")


def test_a_scene_writes_its_film_report_and_exports(result) -> None:
    folder = result.film.parent
    assert result.film.stat().st_size > 500
    report = json.loads((folder / "report.json").read_text())
    assert set(report) == {"film", "frames", "objects", "scenery", "solver", "contact", "timings", "warnings"}
    assert [item["name"] for item in report["objects"]] == ["toy", "cube"] and report["frames"] == 3
    assert report["solver"]["converged_fraction"] == 1.0 and report["solver"]["steps"] == 16
    assert report["objects"][1]["rigid"] and report["objects"][1]["mass"] == pytest.approx(0.4**3 * 60, rel=0.1)
    assert sorted(p.name for p in (folder / "ply" / "toy").iterdir()) == [f"frame_{k:04d}.ply" for k in range(3)]
    assert sorted(p.name for p in (folder / "npz").iterdir()) == ["cube.npz", "toy.npz"]


def test_a_captures_frames_are_in_its_files_coordinates_and_order(result, capture: Path) -> None:
    source = read_splats(capture).splats
    frames = [read_splats(result.film.parent / "ply" / "toy" / f"frame_{k:04d}.ply").splats for k in range(3)]
    np.testing.assert_allclose(frames[0].means, source.means, atol=1e-4)
    np.testing.assert_allclose(np.sort(frames[0].scales), np.sort(source.scales), rtol=1e-4)
    np.testing.assert_array_equal(frames[0].raw_opacities, source.raw_opacities)
    fall = (frames[2].means - source.means).mean(axis=0)
    metres = 0.5 * 9.81 * (2 / 15) ** 2 * (1 + 1 / 16)  # implicit Euler's fall: g h^2 n (n + 1) / 2, 16 steps
    np.testing.assert_allclose(
        fall, [0, metres * 3.0 / 0.5, 0], atol=0.02
    )  # y points down in the file; 3 units = 0.5 m


def test_the_npz_poses_a_capture_where_its_frames_are(result) -> None:
    data = np.load(result.film.parent / "npz" / "toy.npz")
    one = np.concatenate([data["rest"], np.ones((len(data["rest"]), 1), np.float32)], axis=1)
    moved = data["rest"] + np.einsum("nh,hrc,nc->nr", data["weights"], data["handles"][2], one)
    frame = read_splats(result.film.parent / "ply" / "toy" / "frame_0002.ply").splats
    np.testing.assert_allclose(moved / data["scale"] + data["centre"], frame.means, atol=1e-4)


def test_a_mesh_stays_a_mesh(result) -> None:
    """Its frames are meshes of its own vertices, and its npz poses those."""
    import trimesh

    frames = [trimesh.load(result.film.parent / "ply" / "cube" / f"frame_{k:04d}.ply", process=False) for k in (0, 2)]
    assert len(frames[0].faces) == 12
    np.testing.assert_allclose(np.ptp(frames[0].vertices, axis=0), 1.0, atol=1e-6)  # its own units
    drop = (frames[0].vertices - frames[1].vertices)[:, 1] * 0.4
    np.testing.assert_allclose(drop, drop.mean(), atol=1e-4)  # rigid
    assert 0.04 < drop.mean() < 0.1
    data = np.load(result.film.parent / "npz" / "cube.npz")
    one = np.concatenate([data["rest"], np.ones((8, 1), np.float32)], axis=1)
    moved = data["rest"] + np.einsum("nh,hrc,nc->nr", data["weights"], data["handles"][2], one)
    np.testing.assert_allclose(moved / data["scale"] + data["centre"], frames[1].vertices, atol=1e-5)


def test_objects_stand_where_they_are_put(result) -> None:
    toy, cube = (item.thing.cubature.surface for item in result.built.objects)
    assert toy[:, 1].min() == pytest.approx(0.1 + 0.002, abs=2e-3) and np.ptp(toy[:, 1]) == pytest.approx(0.5, rel=0.05)
    np.testing.assert_allclose(0.5 * (cube.min(axis=0) + cube.max(axis=0)), [-0.4, 0.2516, 0.0], atol=2e-3)
    assert scene_json(result)["contact"]["max_penetration_fraction"] == 0.0


def test_an_upright_turn_takes_up_to_up_and_front_to_front() -> None:
    turn = upright((0.0, -1.0, 0.0), np.array([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(turn, np.diag([1.0, -1.0, -1.0]), atol=1e-12)
    np.testing.assert_allclose(upright((0, 1, 0), np.array([0.0, 1, 0])), np.eye(3), atol=1e-12)
    assert np.linalg.det(upright((0, 0, 1), np.array([0.0, 1, 0]))) == pytest.approx(1.0)


def test_the_same_scene_gives_the_same_film(tmp_path: Path) -> None:
    scene = Scene(objects=(box(rigid=True, spin=(0.0, 0.0, 90.0)),), output=Output(size="32x32"), **SMALL)
    films = [animate_scene(scene, tmp_path / f"{k}.mp4").film.read_bytes() for k in range(2)]
    assert films[0] == films[1]


def box(name: str = "a", **changes) -> SceneObject:
    return SceneObject(name, shape="box", **{"size": 0.4, "handles": 2} | changes)


def refused(scene: Scene) -> tuple[str, str]:
    with pytest.raises(SceneError) as caught:
        build_scene(scene)
    assert str(caught.value) == f"{caught.value.key}: {caught.value.message}"
    return caught.value.key, caught.value.message


def test_what_starts_inside_something_else_is_refused_with_its_depth() -> None:
    key, text = refused(Scene(objects=(box(rigid=True), box("b", rigid=True, at=(0.3, 0.0, 0.0)))))
    assert key == "objects.0.at" and "overlaps object 'b' by 0.1" in text and "at the start" in text
    key, text = refused(Scene(objects=(box(rigid=True),), scenery=(Scenery("wall", shape="box", at=(0.0, 0.2, 0.0)),)))
    assert key == "objects.0.at" and "overlaps scenery 'wall' by" in text
    key, text = refused(Scene(objects=(box(rigid=True, at=(0.0, -0.1, 0.0)),), planes=(Plane("ground"),)))
    assert key == "objects.0.at" and text.startswith("starts 0.0984 m under plane 'ground'; lift it by as much")
    build_scene(Scene(objects=(box(rigid=True), box("b", rigid=True, at=(0.3, 0.0, 0.0))), collide=False))


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        (
            {"pins": (Pin(box=(5, 5, 5, 6, 6, 6)),)},
            "objects.0.pins.0.box",
            "holds no part of the object, which fills (-0.5",
        ),
        ({"pins": (Pin(box=(0, 0, 0, 1, 1, 0)),)}, "objects.0.pins.0.box", "is flat; its corners must differ"),
        ({"pins": (Pin(sphere=(0, 0, 0, -1)),)}, "objects.0.pins.0.sphere", "the sphere's radius is -1"),
        ({"pins": (Pin(sphere=(9, 0, 0, 1), space="world"),)}, "objects.0.pins.0.sphere", "in metres of the world"),
        ({"pins": (Pin(box=(-1, -1, -1, 1, 1, 1)),)}, "objects.0", "nothing is left to move"),
        (
            {"drags": (Drag((3.0, 0, 0)),)},
            "objects.0.drags.0.point",
            "the point lies 1 m from the object, which fills (-0.5",
        ),
        ({"material": "jely"}, "objects.0.material", "Did you mean jelly?"),
        ({"poisson": 0.5}, "objects.0.poisson", "poisson is 0.5"),
        (
            {"rigid": True, "stiffness": (Stiffness(label=None, sphere=(0, 0, 0, 1)),)},
            "objects.0.stiffness",
            "a rigid object",
        ),
    ],
)
def test_objects_that_cannot_be_are_refused_with_the_place(changes, key: str, said: str) -> None:
    found, text = refused(Scene(objects=(box(**changes),)))
    assert found == key and said in text


def test_labels_choose_parts_and_must_fit(tmp_path: Path, capture: Path) -> None:
    source = read_splats(capture).splats
    labels = (source.means[:, 1] > -2.5).astype(int) * 7  # the lower part, as y points down
    np.savetxt(tmp_path / "l.txt", labels, fmt="%d")
    item = {"file": str(capture), "handles": 2, "labels": str(tmp_path / "l.txt")}
    built = build_scene(Scene(objects=(SceneObject("a", pins=(Pin(label=7),), **item),)))
    region = built.objects[0].model.handles.regions[0]
    local = built.objects[0].thing.placement.to_world(built.objects[0].thing.source.places)
    mask = region.mask(local)[0]
    chosen = labels[built.objects[0].thing.source.rows] == 7
    assert np.quantile(mask[chosen], 0.97) == 0.0 and mask[chosen].max() < 0.5 and mask[~chosen].max() == 1.0
    thing = built.objects[0].thing
    (tmp_path / "real.txt").write_text("0.5\n" * 2000)
    np.save(tmp_path / "short.npy", labels[:-1])
    for file, pin, key, said in (
        ("l.txt", Pin(label=3), "pins.0.label", "no splat of it has label 3; there are 0, 7"),
        ("short.npy", Pin(label=7), "labels", "short.npy holds 1999 labels; "),
        ("real.txt", Pin(label=7), "labels", "labels must be whole numbers"),
    ):
        with pytest.raises(SceneError) as caught:
            regions_of(SceneObject("a", pins=(pin,), **item | {"labels": str(tmp_path / file)}), thing, built.up)
        assert caught.value.key == key and said in caught.value.message


def test_stiffer_parts_are_stiffer_where_they_are() -> None:
    plain, part = (
        build_scene(Scene(objects=(box(stiffness=s),))).objects[0]
        for s in ((), (Stiffness(box=(-1, 0, -1, 1, 1, 1), factor=100.0),))
    )
    assert len(part.actor.terms) == len(plain.actor.terms) + 1
    model = part.model
    stretch = ((model.shape * model.masses[:, None]).T @ (model.rest * [0, 0.1, 0])).T.ravel()
    from splatanim.dynamics.terms import Elasticity, Step

    y, held = np.zeros(model.dof), np.zeros((3, 0))
    energies = []
    for term in (Elasticity(model), part.actor.terms[0]):
        term.begin_step(Step(0.0, 0.1, y, y, held, held, held))
        energies.append(term.energy(stretch))
    assert energies[1] == pytest.approx(50.5 * energies[0], rel=0.05)


def test_outputs_are_checked_before_the_work(tmp_path: Path) -> None:
    for scene, film, key in (
        (Scene(objects=(box(),), output=Output(size="12")), "a.mp4", "output.size"),
        (Scene(objects=(box(),), output=Output(background=(2.0, 0, 0))), "a.mp4", "output.background"),
        (Scene(objects=(box(),)), "a.avi", "output.film"),
        (Scene(objects=(box(),)), "none/a.mp4", "output.film"),
        (Scene(objects=(box(),), camera=View(path="orbitt")), "a.mp4", "camera.path"),
    ):
        with pytest.raises(SceneError) as caught:
            animate_scene(scene, tmp_path / film)
        assert caught.value.key == key


SCENE_FILE = """\
seconds = 9.0
fps = 15.0

[[planes]]

[[objects]]
name = "a"
shape = "box"
size = 0.3
handles = 2
at = [0, 0.1, 0]
"""


def test_options_beside_a_scene_file_win(tmp_path: Path, capsys) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENE_FILE)
    report = tmp_path / "r.json"
    options = ["--seconds", "0.2", "--size", "48x32", "--report", str(report), "--no-stage", "--camera", "fixed"]
    assert main(["animate", str(path), *options, "--export", f"npz:{tmp_path / 'z'}"]) == 0
    out = capsys.readouterr().out
    assert "s.mp4: 3 frames of 1 objects" in out and "all steps converged" in out
    assert json.loads(report.read_text())["frames"] == 3 and (tmp_path / "z" / "a.npz").exists()


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (("at = [0, 0.1, 0]", "at = [0, -0.1, 0]"), [], "11: object 'a': starts 0.0988 m under plane 'floor'"),
        (("handles = 2", 'material = "jely"'), [], "10: object 'a': There is no material preset 'jely'. Did you mean"),
        (("handles = 2", "poisson = 0.5"), [], "10: object 'a': Material foam: poisson is 0.5"),
        (None, ["--motion", "poke"], "--motion is for one capture; in a scene file each object says so itself"),
        (None, ["--size", "3"], "--size '3' is not WIDTHxHEIGHT"),
        (None, ["--seconds", "-1"], "--seconds -1: a positive number is needed"),
        (None, ["-o", "a.avi"], "1: film a.avi: a film is .mp4, .webm or .mov"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, capsys, change, options, said: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENE_FILE.replace(*change) if change else SCENE_FILE)
    assert main(["animate", str(path), *options]) == 2
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["s.toml"]


def test_the_schema_is_printed(capsys) -> None:
    assert main(["animate", "--scene-schema"]) == 0
    assert "| `young` | number | Young's modulus [Pa] instead of the preset's. |" in capsys.readouterr().out


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("substeps = 1\n" + SCENE_FILE.replace("9.0", "40.0").replace("15.0", "5.0"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", "animate", str(path), "--size", "1200x1200"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=hears_interrupts,
    )
    for _ in range(600):  # until the film has been begun
        if process.poll() is not None or list(tmp_path.glob(".s.*.mp4")):
            break
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and "interrupted" in err
    assert [p.name for p in tmp_path.iterdir()] == ["s.toml"]


def test_the_api_is_under_twelve_lines() -> None:
    source = (ROOT / "examples" / "01_scene.py").read_text(encoding="utf-8")
    assert sum(1 for line in source.splitlines() if line.strip()) < 12
    ast.parse(source)


@pytest.mark.slow
def test_the_python_example_runs(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "01_scene.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    assert "steps converged" in run.stdout and (tmp_path / "scene.mp4").stat().st_size > 1000


def test_a_scene_file_is_not_given_to_animate(tmp_path: Path) -> None:
    from pipelines.animate import AnimateConfig, animate

    with pytest.raises(InputError, match="is a scene file"):
        animate(AnimateConfig(tmp_path / "a.toml", tmp_path / "a.mp4"))
