"""The rig-driven film: from files to an MP4, the steps in between, and options that do not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pipelines.rigged import (
    RiggedConfig,
    animate_rigged,
    choose_clip,
    frame_times,
    joint_transforms,
    load_actor,
    swept_boxes,
)
from splatanim.errors import InputError
from splatanim.formats import write_ply
from splatanim.rig.skinning import pose_splats
from tests.helpers import data_file
from tests.rig.rigs import add_bow, bar

SMALL = {"count": 400, "size": "48x48", "fps": 10.0}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bar, whose upper joint bows over in a clip of one second."""
    made = bar()
    add_bow(made)
    return made.write(tmp_path_factory.mktemp("rig") / "bar.glb")


def test_a_rigged_mesh_to_a_film(rig: Path, tmp_path: Path) -> None:
    result = animate_rigged(RiggedConfig(rig, output=tmp_path / "a.mp4", **SMALL))
    assert (tmp_path / "a.mp4").stat().st_size > 500
    assert result.frames == 10 and result.joints == 2 and result.clip == "bow"
    assert str(result).startswith(f"{tmp_path / 'a.mp4'}: 10 frames of ")


def test_splats_take_the_rigs_weights_and_move_with_it(rig: Path, tmp_path: Path) -> None:
    """The mesh's own splats, written and read again with the rig beside them, move as the mesh's do."""
    config = RiggedConfig(rig, **SMALL)
    own = load_actor(config)
    write_ply(tmp_path / "bar.ply", own.rigged.splats, comments=("Vertical Axis: y",))
    carried = load_actor(dataclasses.replace(config, scene=tmp_path / "bar.ply", rig=rig))
    assert own.up == carried.up == (0.0, 1.0, 0.0)
    clip, _ = choose_clip(config, own)
    joints = joint_transforms(own, clip, np.array([0.6]))[0]
    a, b = pose_splats(own.rigged, joints), pose_splats(carried.rigged, joints)
    order = [np.lexsort(actor.rigged.splats.means.T) for actor in (own, carried)]
    assert np.abs(a.means[order[0]] - b.means[order[1]]).max() < 0.02
    assert np.abs(a.means - own.rigged.splats.means).max() > 0.5


def test_frames_repeat_a_clip_that_is_too_short(rig: Path) -> None:
    actor = load_actor(RiggedConfig(rig, **SMALL))
    clip = actor.model.animations["bow"]
    np.testing.assert_allclose(frame_times(clip, 10.0, None), np.arange(10) / 10, atol=1e-12)
    np.testing.assert_allclose(frame_times(clip, 4.0, 1.5), [0, 0.25, 0.5, 0.75, 0, 0.25], atol=1e-12)
    low, high = swept_boxes(actor, joint_transforms(actor, clip, np.array([0.0, 1.0])))
    assert low[0, 0] > -0.1 and low[1, 0] < -0.9 and high[0, 1] > 1.9  # upright, then bowed


def test_motion_of_another_file_is_retargeted_and_the_map_is_told() -> None:
    body = data_file("rigged/kaykit_mannequin/manny_med_mod.gltf")
    config = RiggedConfig(body, retarget=data_file("motion/cmu_02_01_walk.bvh"), **SMALL)
    actor = load_actor(config)
    clip, notes = choose_clip(config, actor)
    assert clip.name == "cmu_02_01_walk" and "LeftUpLeg    -> upperleg.l" in notes[0]
    own = data_file("rigged/kaykit_mannequin/Med_MovementBasic.glb")
    clip, notes = choose_clip(dataclasses.replace(config, retarget=own, clip="Walking_B"), actor)
    assert clip.name.endswith("Walking_B") and "the clip plays as it is" in notes[0]


def test_options_that_do_not_fit(rig: Path, tmp_path: Path) -> None:
    config = RiggedConfig(rig, output=tmp_path / "a.mp4", **SMALL)
    write_ply(tmp_path / "bar.ply", load_actor(config).rigged.splats)
    cases = [
        ({"output": tmp_path / "a.gif"}, "only .mp4 can be written"),
        ({"fps": 0.0}, "--fps 0: a positive number"),
        ({"seconds": -1.0}, "--seconds -1"),
        ({"clip": "jump"}, "no clip 'jump' in this rig. Its clips: bow"),
        ({"scene": tmp_path / "bar.ply"}, "holds splats and no skeleton. Name a rig"),
        ({"scene": tmp_path / "gone.ply", "rig": rig}, "no such file"),
        ({"rig": data_file("rigged/snake.glb"), "scene": tmp_path / "bar.ply"}, "The rig does not lie on the splats"),
    ]
    for change, text in cases:
        with pytest.raises(InputError, match=text):
            animate_rigged(dataclasses.replace(config, **change))
