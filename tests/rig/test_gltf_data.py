"""Every readable rig of the data folder: skinning equals a reference written from the specification alone, before and
after an export, and exports pass the Khronos validator where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from splatanim.errors import InputError
from splatanim.rig.gltf import read_gltf, write_glb
from splatanim.rig.model import RiggedModel
from tests.helpers import data_file
from tests.rig.gltf_check import check_glb
from tests.rig.reference import Reference

RIGS = [
    "apatosaurus.glb", "biped_multiskin.glb", "crab.glb", "fox_textured.glb", "frog.glb", "horse.glb",
    "kaykit_mannequin/manny_med_mod.gltf", "manta_ray.glb", "mech_leela_textured.glb", "simple_skin.gltf",
    "snake.glb", "spider.glb", "stag.glb", "wolf.glb",
]  # fmt: skip


def moments(model: RiggedModel, reference: Reference, clips: int | None) -> list[tuple[int | None, str, float]]:
    """(clip number, name, time): three times of each clip, or of the first ``clips``; the rest pose without clips."""
    names = list(model.animations)
    assert len(names) == len(reference.json.get("animations", []))
    out: list[tuple[int | None, str, float]] = [(None, "", 0.0)]
    for k, name in enumerate(names[:clips]):
        clip = model.animations[name]
        out += [(k, name, clip.start + share * clip.duration) for share in (0.0, 0.37, 0.81)]
    return out


def corner_positions(model: RiggedModel, vertices: np.ndarray) -> np.ndarray:
    """Face corners, material by material: the order of vertices may change in an export, that of faces does not."""
    order = np.argsort(model.appearance.paint_of_face, kind="stable")
    return vertices[model.faces[order]]


def compare(path: Path, tmp_path: Path, clips: int | None, every: int) -> None:
    model, reference = read_gltf(path), Reference(path)
    write_glb(tmp_path / "again.glb", model)
    again = read_gltf(tmp_path / "again.glb")
    assert again.skeleton.names == model.skeleton.names and again.animations.keys() == model.animations.keys()
    for number, name, time in moments(model, reference, clips):
        pose = model.skeleton.rest if number is None else model.animations[name].sample(time)
        back = again.skeleton.rest if number is None else again.animations[name].sample(time)
        ours, wanted = model.posed(pose), reference.posed(number, time, every)
        finite = np.isfinite(wanted).all(axis=1)
        assert finite.sum() > 0.8 * len(wanted) / every
        assert np.abs(ours - wanted)[finite].max() < 1e-6 * model.size
        corners = corner_positions(again, again.posed(back)), corner_positions(model, ours)
        assert np.abs(corners[0] - corners[1]).max() < 1e-6 * model.size


@pytest.mark.parametrize("name", RIGS)
def test_skinning_equals_the_specification_and_survives_an_export(name: str, tmp_path: Path) -> None:
    compare(data_file(f"rigged/{name}"), tmp_path, 1, 17)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGS)
def test_every_vertex_at_three_times_of_every_clip(name: str, tmp_path: Path) -> None:
    compare(data_file(f"rigged/{name}"), tmp_path, None, 1)


@pytest.mark.parametrize("name", RIGS)
def test_exports_are_well_formed(name: str, tmp_path: Path) -> None:
    write_glb(tmp_path / "out.glb", read_gltf(data_file(f"rigged/{name}")))
    check_glb(tmp_path / "out.glb")


def test_exports_pass_the_khronos_validator(tmp_path: Path) -> None:
    """Needs node and the npm package gltf-validator; GLTF_VALIDATOR names its folder."""
    package, node = os.environ.get("GLTF_VALIDATOR"), shutil.which("node")
    if not package or node is None:
        pytest.skip("set GLTF_VALIDATOR to node_modules/gltf-validator (npm install gltf-validator), with node on PATH")
    for k, name in enumerate(RIGS):
        write_glb(tmp_path / f"{k}.glb", read_gltf(data_file(f"rigged/{name}")))
    script = (
        "const v=require(process.argv[1]),fs=require('fs');(async()=>{const out={};"
        "for(const f of process.argv.slice(2)){const r=await v.validateBytes(new Uint8Array(fs.readFileSync(f)));"
        "out[f]=r.issues.messages.map(m=>m.severity+' '+m.code+' '+m.pointer)}console.log(JSON.stringify(out))})()"
    )
    files = [str(path) for path in sorted(tmp_path.glob("*.glb"))]
    run = subprocess.run([node, "-e", script, package, *files], capture_output=True, text=True, check=True)
    issues = json.loads(run.stdout)
    assert len(issues) == len(RIGS) and not any(issues.values()), issues


def test_nan_weights_are_mended_and_counted() -> None:
    model = read_gltf(data_file("rigged/crab.glb"))
    assert any("6 vertices have skinning weights that are NaN" in note for note in model.notes)
    assert any("6 vertices follow no joint; they got the weights of their neighbours" in n for n in model.notes)
    np.testing.assert_allclose(model.skin.weights.sum(axis=1), 1.0, atol=1e-12)


def test_draco_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"compressed with Draco.*npx @gltf-transform/cli cp IN.glb OUT.glb"):
        read_gltf(data_file("rigged/mech_frog_draco.glb"))


def test_several_skins_share_one_skeleton_and_one_joint_a_vertex_stays_one() -> None:
    biped = read_gltf(data_file("rigged/biped_multiskin.glb"))
    assert len(biped.skeleton) == 29 and len(biped.vertices) == 1895
    leela = read_gltf(data_file("rigged/mech_leela_textured.glb"))
    assert (leela.skin.weights > 0).sum(axis=1).max() == 1
    assert leela.appearance.paints[0].unlit and leela.appearance.paints[0].texture is not None


def test_a_mesh_on_a_bone_without_a_skin_follows_it() -> None:
    """The stag's horns hang on its head joint as a plain node."""
    path = data_file("rigged/stag.glb")
    stag, reference = read_gltf(path), Reference(path)
    horns = reference.json["meshes"][0]["primitives"][0]["attributes"]["POSITION"]
    rows = np.arange(reference.json["accessors"][horns]["count"])  # they come first
    assert set(stag.skin.joints[rows][stag.skin.weights[rows] > 0].tolist()) == {stag.skeleton.index("Head")}


def test_clips_of_another_file_play_by_joint_name() -> None:
    body = read_gltf(data_file("rigged/kaykit_mannequin/manny_med_mod.gltf"))
    motion = read_gltf(data_file("rigged/kaykit_mannequin/Med_MovementBasic.glb"))
    assert not len(motion.vertices) and len(motion.animations) == 11
    model = body.with_clips_of(motion)
    walk = model.clip("walking_a")
    moved = model.posed(walk.sample(0.4 * walk.duration))
    assert np.ptp(moved[:, 1]) > 0.8 * np.ptp(model.vertices[:, 1])  # upright
    assert np.abs(moved - model.vertices).max() > 0.05 * model.size
    with pytest.raises(InputError, match=r"share no joint name \('root'"):
        body.with_clips_of(read_gltf(data_file("rigged/manta_ray.glb")))
    with pytest.raises(InputError, match=r"no clip 'fly' in this rig. Its clips: Rig_Medium"):
        model.clip("fly")
