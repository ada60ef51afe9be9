"""The studies of ``bench fit``: on a set made for the test, resumed from what is kept, as tables."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluate_rigpapr import EvaluateFitConfig, evaluate_fit, forget
from pipelines.fit_cases import Chain, plan_for
from pipelines.fit_sets import NOVEL_POSE, chosen
from pipelines.fit_tables import mean_row, study_table
from pipelines.progress import Progress
from splatanim.errors import InputError
from tests.helpers import DATA, data_file

QUALITY = {"psnr": 25.0, "foreground": 16.0, "ssim": 0.9, "lpips": None}


def test_tables_and_means() -> None:
    row = {"row": "ours", "subject": "fox", "train": QUALITY, "novel": {**QUALITY, "psnr": 20.0}, "points": 0.012}
    other = {**row, "subject": "wolf", "points": 0.024, "joints": 0.5, "train": {**QUALITY, "psnr": 27.0}}
    still = {"row": "static", "subject": "fox", "novel": {**QUALITY, "lpips": 0.1}}
    lines = study_table("Fits", [row, other, still]).splitlines()
    assert lines[0] == "## Fits" and len(lines) == 8
    assert lines[4] == (
        "| ours | fox | 25.00 / 16.00 | 0.9000 | 20.00 / 16.00 | 0.9000 | not measured | 12.0 |  |  |  |  |"
    )
    assert lines[6].startswith("| ours | **mean** | 26.00 / 16.00 ") and "| 18.0 |" in lines[6]
    assert "|  / 0.1000 |" in lines[7]
    assert mean_row([row, other])["joints"] is None


def test_what_the_options_change() -> None:
    config = EvaluateFitConfig(Path("f"), Path("o"), steps_one=3, seed=5)
    plan = plan_for(config, Chain("x", depth_weight=3.0))
    base = plan_for(EvaluateFitConfig(Path("f"), Path("o")), Chain("x"))
    assert plan.steps_one == 3 and plan.steps_two == base.steps_two and plan.seed == 5
    assert plan.one.depth == 3 * base.one.depth and plan.two.depth == 3 * base.two.depth
    assert dataclasses.replace(plan.one, depth=base.one.depth) == base.one


def test_fresh_forgets_what_was_measured_and_keeps_what_was_made(tmp_path: Path) -> None:
    for name in ("rows/main_fox_ours.json", "fits/fox_full_two.papr.safetensors", "sets/a/video.json", "fox_main.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    forget(tmp_path)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["video.json"]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    config = EvaluateFitConfig(tmp_path, tmp_path / "o", tmp_path)
    with pytest.raises(InputError, match=r"no subject with video\.json and an asset"):
        evaluate_fit(config, Progress())
    with pytest.raises(InputError, match="name the folder of the subjects' assets"):
        evaluate_fit(dataclasses.replace(config, assets=None, subjects=("fox",)), Progress())
    with pytest.raises(InputError, match=r"fox: is no subject: it has no video\.json"):
        evaluate_fit(dataclasses.replace(config, subjects=("fox",)), Progress())
    with pytest.raises(InputError, match="has no subject 'cat'; it has fox_walk"):
        chosen(dataclasses.replace(config, subjects=("cat",)), NOVEL_POSE)
    with pytest.raises(InputError, match=r"fox_textured\.glb: no such file"):
        made = dataclasses.replace(config, study=("novel-pose",), subjects=("fox_walk",))
        evaluate_fit(made, Progress())


@pytest.mark.slow
def test_a_novel_pose_from_synth_to_table_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_file("rigged/fox_textured.glb")
    config = EvaluateFitConfig(
        DATA / "multiview",
        tmp_path,
        study=("novel-pose",),
        subjects=("fox_walk",),
        frames=3,
        steps_one=2,
        steps_two=2,
        pose_frames=2,
        train_steps=120,
        films=False,
    )
    table = evaluate_fit(config, Progress())
    rows = {row["row"]: row for row in json.loads((tmp_path / "novel-pose.json").read_text())}
    assert (tmp_path / "novel-pose.md").read_text() == table + "\n"
    assert rows["Run, ours"]["novel"]["psnr"] > rows["Run, static"]["novel"]["psnr"] + 2
    assert rows["Run, splats, skinned"]["novel"]["psnr"] > 20 and rows["Run, splats on the mesh"]["novel"]["psnr"] > 20
    assert rows["fitted clip"]["points"] < 0.1 and np.isfinite(rows["fitted clip"]["joints"])

    def again(*_args, **_options):
        raise AssertionError("is kept already")

    monkeypatch.setattr("pipelines.fit_cases._run", again)
    monkeypatch.setattr("pipelines.fit_studies.pictures", again)
    assert evaluate_fit(config, Progress()) == table
