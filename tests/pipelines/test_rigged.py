"""``animate`` with a rig: elastic motion on a clip, exports that agree with it, options, and the evaluation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.animate import AnimateConfig, with_given
from pipelines.evaluate_complementary import EvaluateComplementaryConfig, evaluate_complementary
from pipelines.rigged import RiggedConfig, animate_rigged, choose_clip, joint_transforms, load_actor
from pipelines.rigged_elastic import clip_time, figures, inside_of, simulate_actor
from pipelines.rigged_export import parse_exports
from pipelines.rigged_verb import rigged_config
from splatanim.errors import InputError
from splatanim.formats import read_splats, write_ply
from splatanim.rig.gltf import read_gltf
from splatanim.rig.skinning import pose_splats
from tests.helpers import data_file

SMALL = {"count": 3000, "size": "48x48", "fps": 12.0, "functions": 12}


@pytest.fixture(scope="module")
def fox() -> RiggedConfig:
    return RiggedConfig(data_file("rigged/fox_textured.glb"), clip="Walk", elastic=True, **SMALL)


@pytest.mark.slow
def test_an_elastic_walk_and_its_exports(fox: RiggedConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(
        fox,
        output=tmp_path / "a.mp4",
        material="jelly",
        export=(f"ply:{tmp_path / 'walk'}", f"glb:{tmp_path / 'walk.glb'}"),
        report=tmp_path / "a.json",
    )
    result = animate_rigged(config)
    report = json.loads((tmp_path / "a.json").read_text())["elastic"]
    assert result.elastic is not None and report["converged_fraction"] == 1.0
    assert report["complementarity"] < 1e-8 and report["rig_share"] < 0.01
    assert 0.003 < report["extra_motion_max"] < 0.2
    assert "elastic (jelly): moves by up to" in str(result) and "export ply:DIR" in str(result)
    assert len(list((tmp_path / "walk").glob("*.ply"))) == result.frames == 8
    # The .glb holds the rig's own motion; the sequence is that plus the elastic part, in the splats' first order.
    model = read_gltf(tmp_path / "walk.glb")
    assert list(model.animations) == ["Walk"] and len(model.vertices) == result.splats
    actor = load_actor(config)
    clip, _ = choose_clip(config, actor)
    joints = joint_transforms(actor, clip, np.array([clip.start + 3 / 12.0]))[0]
    alone = pose_splats(actor.rigged, joints).select(np.argsort(actor.order))
    shown = read_splats(tmp_path / "walk" / "frame_0003.ply").splats
    away = np.linalg.norm(shown.means + shown.offset - alone.means - alone.offset, axis=1)
    assert 0.001 < away.max() / model.size < 0.2 and np.median(away) < 0.02 * model.size


def test_without_elasticity_the_film_is_the_rigs(fox: RiggedConfig, tmp_path: Path) -> None:
    result = animate_rigged(dataclasses.replace(fox, elastic=False, output=tmp_path / "b.mp4"))
    assert result.elastic is None and not result.notes


@pytest.mark.slow
def test_a_cycle_ends_as_it_began(fox: RiggedConfig) -> None:
    """Two cycles of a clip that goes round: after the run-up each is as the other, so nothing drifts."""
    actor = load_actor(fox)
    clip, _ = choose_clip(fox, actor)
    frames = round(clip.duration * 24)
    config = dataclasses.replace(fox, fps=24.0, material="flesh")
    elastic = simulate_actor(config, actor, clip, 2 * frames)
    u = elastic.displacements()
    assert elastic.first == frames and len(u) == 2 * frames
    assert np.abs(u[:frames] - u[frames:]).max() < 0.15 * np.abs(u).max()
    assert figures(elastic)["rig_share"] < 1e-6
    assert inside_of(actor, points=200).bones.handles == len(elastic.body.joints)


def test_clip_times_go_round(fox: RiggedConfig) -> None:
    clip, _ = choose_clip(fox, load_actor(fox))
    assert clip_time(clip, 0.0) == clip.start
    assert clip_time(clip, clip.duration + 0.1) == pytest.approx(clip.start + 0.1)
    assert clip_time(clip, -0.1) == pytest.approx(clip.end - 0.1)


def test_the_verbs_options(tmp_path: Path) -> None:
    scene, rig = tmp_path / "fox.ply", tmp_path / "fox.glb"

    def asked(*arguments: str, **changes: object) -> AnimateConfig:
        return with_given(AnimateConfig(scene, rig=rig, **changes), arguments)  # type: ignore[arg-type]

    plain = rigged_config(asked(clip="Walk"))
    assert (plain.scene, plain.rig, plain.clip, plain.output) == (scene, rig, "Walk", tmp_path / "fox.mp4")
    assert plain.seconds is None and plain.camera == "fixed" and not plain.elastic
    said = rigged_config(asked("--seconds", "--camera", seconds=2.5, camera="orbit", elastic=True, material="jelly"))
    assert (said.seconds, said.camera, said.elastic, said.material) == (2.5, "orbit", True, "jelly")
    assert AnimateConfig(rig).is_rigged and AnimateConfig(scene, elastic=True).is_rigged
    assert not AnimateConfig(scene).is_rigged
    cases = [
        (asked("--motion", motion="poke"), "--motion does not fit here: a rig says how things move"),
        (asked("--material", material="jelly"), "--material does not fit here: it goes with --elastic"),
        (asked(map=tmp_path / "m.toml"), "--map names joints for --retarget"),
        (AnimateConfig(None, rig=rig), "name the splats or the mesh before --rig"),
        (AnimateConfig(tmp_path / "scene.toml", rig=rig), "scene files and rigs do not go together"),
    ]
    for config, text in cases:
        with pytest.raises(InputError, match=text):
            rigged_config(config)


def test_what_does_not_fit_is_said_before_the_work(fox: RiggedConfig, tmp_path: Path) -> None:
    write_ply(tmp_path / "fox.ply", load_actor(fox).rigged.splats)
    config = dataclasses.replace(fox, output=tmp_path / "a.mp4")
    cases: list[tuple[dict, str]] = [
        ({"clip": "Fly"}, "no clip 'Fly' in this rig. Its clips: Survey, Walk, Run"),
        ({"scene": tmp_path / "fox.ply"}, "holds splats and no skeleton. Name a rig"),
        ({"scene": tmp_path / "fox.ply", "rig": data_file("rigged/snake.glb")}, "The rig does not lie on the splats"),
        ({"material": "cheese"}, "cheese"),
        ({"leak": 1.5}, "--leak 1.5: a number from 0 to 1"),
        ({"object_size": 0.0}, "--object-size 0: a positive number"),
        ({"functions": 0}, "--functions 0: at least one"),
        ({"export": ("obj:x",)}, "neither ply:DIR"),
        ({"export": ("glb:x.ply",)}, "must end in .glb"),
    ]
    for change, text in cases:
        with pytest.raises(InputError, match=text):
            animate_rigged(dataclasses.replace(config, **change))
    assert parse_exports(("ply:a",)) == [("ply", Path("a"))]


@pytest.mark.slow
def test_the_evaluation_writes_both_files(tmp_path: Path) -> None:
    folder = data_file("rigged/fox_textured.glb").parent
    text = evaluate_complementary(
        EvaluateComplementaryConfig(folder, tmp_path, subject=("fox",), functions=12, splats=1500, points=200)
    )
    record = json.loads((tmp_path / "complementary.json").read_text())
    assert (tmp_path / "complementary.md").read_text() == text
    rows = {row["way"]: row for row in record["rows"]}
    assert rows["projected"]["product"] < 1e-8 and rows["projected"]["rig_share_max"] < 0.01
    assert rows["plain"]["product"] > 0.01 and rows["plain"]["rig_share_max"] > 0.5
    assert rows["projected"]["overlap_mean"] < 1e-6 and rows["projected"]["extra_max"] > 1e-3
    assert record["timings"][0]["12 functions"]["cpu_ms"]["step"] > 0
    with pytest.raises(InputError, match="no character 'dog'"):
        evaluate_complementary(EvaluateComplementaryConfig(folder, tmp_path, subject=("dog",)))
