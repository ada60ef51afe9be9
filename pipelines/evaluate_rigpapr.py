"""``splatanim bench fit``: fits of a rig's motion held against the truth of synthetic subjects, and against others."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from pipelines.progress import Progress

if TYPE_CHECKING:
    from pipelines.fit_cases import Case
    from rigpapr.quality import Lpips

Study = Literal["errors", "main", "ablations", "weights", "auto-rig", "novel-pose", "travelling"]
_MADE = ("novel-pose", "travelling")  # studies on sets that they make themselves
_TITLES = {
    "main": "Fits and baselines",
    "ablations": "Ablations",
    "weights": "Weight of delta-depth",
    "auto-rig": "Given rig and auto-rig",
    "novel-pose": "A clip that was not fitted",
    "travelling": "Subjects that travel",
}


@dataclass(frozen=True)
class EvaluateFitConfig:
    """Measure the fit of a rig's motion on subjects with known truth.

    Args:
        folder: A folder of subjects (fox, wolf, ...), each with video.json, frames, depth and true vertices.
        output: Where tables, JSON, films, and all that a study resumes from go.
        assets: A folder with the subjects' PAPR assets, NAME.papr.safetensors; novel-pose and travelling need none.
        study: errors (vertex errors of the coarse tracker, of the phases too with --phases), main (ours, its stages and
            the baselines), ablations (depth, phases), weights (of depth), auto-rig, novel-pose (a clip that was not
            fitted), travelling; repeatable, by default errors. The last two make sets with synth, and train their
            assets.
        rigs: The folder that video.json's ``model`` is relative to; by default two levels above a subject.
        subjects: Which subjects; by default all that have an asset, or all of the study's own.
        frames: Fit so many frames; 0 fits all.
        phases: How far the study errors goes: coarse, one or two.
        tracks: Tracks of phase 2: flow or none.
        steps_one: Steps a frame of phase 1; 0 takes the preset's.
        steps_two: Steps of phase 2; 0 takes the preset's.
        pose_frames: Frames of the clip that was not fitted.
        train_seconds: How long assets of made sets are trained.
        train_steps: Train them for so many steps instead, which gives the same on any machine.
        lpips: A VGG16 state dict: tables then have LPIPS.
        films: Write side-by-side films.
        fresh: Forget rows, fits and films that an earlier run left in the output (sets and their assets stay).
        seed: Seed of everything random.
    """

    folder: Positional[Path]
    output: Annotated[Path, arg(aliases=["-o"])]
    assets: Path | None = None
    study: UseAppendAction[tuple[Study, ...]] = ()
    rigs: Path | None = None
    subjects: tuple[str, ...] = ()
    frames: int = 0
    phases: Literal["coarse", "one", "two"] = "coarse"
    tracks: Literal["flow", "none"] = "flow"
    steps_one: int = 0
    steps_two: int = 0
    pose_frames: int = 8
    train_seconds: float = 90.0
    train_steps: int = 0
    lpips: Path | None = None
    films: bool = True
    fresh: bool = False
    seed: int = 0


def evaluate_fit(config: EvaluateFitConfig, progress: Progress) -> str:
    """Run the studies on every subject; returns the tables. Each study's table is written as it grows."""
    from rigpapr.quality import load_lpips

    lpips = load_lpips(config.lpips) if config.lpips else None
    config.output.mkdir(parents=True, exist_ok=True)
    if config.fresh:
        forget(config.output)
    texts = []
    for study in config.study or ("errors",):
        texts.append(_errors(config, progress) if study == "errors" else _study(config, study, progress, lpips))
    return "\n\n".join(texts)


def forget(output: Path) -> None:
    """Remove rows, fits and films of earlier runs; sets and their assets stay."""
    import shutil

    for name in ("rows", "fits"):
        shutil.rmtree(output / name, ignore_errors=True)
    for film in (*output.glob("*_main.mp4"), *output.glob("*_novel_pose.mp4")):
        film.unlink()


def _study(config: EvaluateFitConfig, study: str, progress: Progress, lpips: Lpips | None) -> str:
    from pipelines.fit_cases import load_case, subjects
    from pipelines.fit_sets import NOVEL_POSE, TRAVELLING, chosen, made_case
    from pipelines.fit_studies import (
        Bench,
        ablation_study,
        main_study,
        pose_study,
        rig_study,
        travel_study,
        weight_study,
    )
    from pipelines.fit_tables import study_table

    plain = {"main": main_study, "ablations": ablation_study, "weights": weight_study, "auto-rig": rig_study}
    rows: list[dict[str, Any]] = []
    characters = chosen(config, NOVEL_POSE if study == "novel-pose" else TRAVELLING) if study in _MADE else []
    names = [character.name for character in characters] or list(subjects(config))
    text = ""
    for k, name in enumerate(names):
        if study in _MADE:
            case = made_case(config, characters[k], progress)
        else:
            case = load_case(config, name)
        with progress.spinner(f"{study}: {name}"):
            bench = Bench(config, case, lpips)
            if study == "novel-pose":
                rows += pose_study(bench, case.folder / "rig.glb", characters[k].other)
            elif study == "travelling":
                rows += travel_study(bench)
            else:
                rows += plain[study](bench)
        text = study_table(_TITLES[study], rows)
        write_results(config.output, study, rows, text)
    return text


def write_results(output: Path, study: str, rows: list[dict[str, Any]], text: str) -> None:
    """``STUDY.json`` and ``STUDY.md``, whole or not at all."""
    from splatanim.formats.atomic import atomic_path

    with atomic_path(output / f"{study}.json") as path:
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    with atomic_path(output / f"{study}.md") as path:
        path.write_text(text + "\n", encoding="utf-8")


def _errors(config: EvaluateFitConfig, progress: Progress) -> str:
    """Vertex errors of the coarse tracker, and of the phases where they are asked for."""
    from pipelines.fit_cases import load_case, subjects
    from pipelines.fit_tables import coarse_table, refined_table

    rows: list[dict[str, Any]] = []
    for name in subjects(config):
        with progress.spinner(f"fitting {name}"):
            case = load_case(config, name)
            row = coarse_study(config, case)
            rows.append(row if config.phases == "coarse" else {**row, **refined_study(config, case)})
    table = coarse_table(rows) + ("" if config.phases == "coarse" else "\n\n" + refined_table(rows))
    write_results(config.output, "fit", rows, table)
    return table


def coarse_study(config: EvaluateFitConfig, case: Case) -> dict[str, Any]:
    """Vertex errors of the coarse tracker [scene units], and its CPU time a frame."""
    from pipelines.fit_measures import vertex_errors
    from rigpapr.coarse_tracker import tracker_of

    tracker = tracker_of(case.cloud, case.rig, case.clip, case.depth, seed=config.seed)
    skin = case.rig.skin(case.vertices[0])
    start = time.process_time()
    motion = tracker.track()
    seconds = (time.process_time() - start) / max(len(motion) - 1, 1)
    every = np.stack([vertex_errors(case, skin, motion.pose(k), k) for k in range(1, len(motion))])
    return {
        "subject": case.name,
        "mean": float(every.mean()),
        "p95": float(np.percentile(every, 95)),
        "frames": every.mean(axis=1).round(5).tolist(),
        "seconds": seconds,
        "still": float(np.linalg.norm(case.vertices[1 : len(every) + 1] - case.vertices[0], axis=2).mean()),
    }


def refined_study(config: EvaluateFitConfig, case: Case) -> dict[str, Any]:
    """Vertex errors after phases 1 and 2, and pictures of the train view and of the novel views against the truth,
    beside those of a cloud that does not move."""
    from pipelines.fit_cases import Chain, plan_for, tracks_of
    from pipelines.fit_measures import cloud_method, mean_vertex_errors, pictures, still_method
    from rigpapr.coarse_tracker import tracker_of
    from rigpapr.phase_one import phase_one
    from rigpapr.two_phase import phase_two, start_fit

    start = time.process_time()
    plan, tracks = plan_for(config, Chain("errors")), tracks_of(config, case)
    fit = start_fit(case.cloud, case.rig, case.clip, motion=None, depth=case.depth, tracks=tracks, config=plan)
    phase_one(fit, tracker_of(case.cloud, case.rig, case.clip, case.depth, seed=config.seed))
    if config.phases == "two":
        phase_two(fit)
    asset, seconds = fit.result(), time.process_time() - start
    errors = mean_vertex_errors(case, asset)
    found = pictures(case, cloud_method(asset))
    still = pictures(case, still_method(case.cloud))["novel"]
    timing = {"refined": float(np.mean(errors)), "refined_frames": errors, "refine_seconds": seconds}
    return {**timing, **found, "unmoved": still}
