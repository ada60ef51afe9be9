"""Subjects that fits are measured on, and the fits themselves, kept in the output folder so that a study resumes."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.evaluate_rigpapr import EvaluateFitConfig
    from pipelines.fit_rig_inputs import PlacedRig
    from pipelines.papr_reposing import Motion
    from rigpapr.binding import FitRig
    from rigpapr.cloud import PaprCloud
    from rigpapr.coarse_tracker import RigMotion
    from rigpapr.fitted import FittedAsset
    from rigpapr.supervision import Clip
    from rigpapr.supervision_tracks import Tracks
    from rigpapr.two_phase import Fit, TwoPhaseConfig

STAGES = ("coarse", "one", "two")


@dataclass(frozen=True)
class Case:
    """A subject: what fitting gets, and the truth: vertices (T, V, 3) and joints by name (T, 3)."""

    name: str
    clip: Clip
    depth: np.ndarray
    placed: PlacedRig
    cloud: PaprCloud
    vertices: np.ndarray
    folder: Path
    joints: dict[str, np.ndarray]

    @property
    def rig(self) -> FitRig:
        return self.placed.rig

    @functools.cached_property
    def truth(self) -> Motion:
        """The true surface in every frame and what novel cameras saw."""
        from pipelines.papr_reposing import read_motion

        return read_motion(self.folder)


def asset_of(config: EvaluateFitConfig, name: str) -> Path:
    """Where a subject's asset lies."""
    if config.assets is None:
        raise InputError("bench fit: name the folder of the subjects' assets: --assets FOLDER.")
    return config.assets / f"{name}.papr.safetensors"


def subjects(config: EvaluateFitConfig) -> tuple[str, ...]:
    """The subjects asked for, or all that have a clip and an asset."""
    found = config.subjects or tuple(
        sorted(p.parent.name for p in config.folder.glob("*/video.json") if asset_of(config, p.parent.name).is_file())
    )
    if not found:
        raise InputError(f"{config.folder}: no subject with video.json and an asset in {config.assets}.")
    return found


def load_case(config: EvaluateFitConfig, name: str) -> Case:
    """Read a subject of the folder as ``splatanim fit`` would, and its truth."""
    folder, asset = config.folder / name, asset_of(config, name)
    if not (folder / "video.json").is_file():
        raise InputError(f"{folder}: is no subject: it has no video.json. Check the folder and --subjects.")
    model = json.loads((folder / "video.json").read_text(encoding="utf-8"))["model"]
    return read_case(config, folder, asset, (config.rigs or config.folder.parent) / model)


def read_case(config: EvaluateFitConfig, folder: Path, asset: Path, rig: Path, *, placed: bool = True) -> Case:
    """A subject in the layout of the multi-view data. ``placed`` says whether the rig's file has to be moved by the
    normalisation in ``video.json``."""
    from pipelines.fit_rig_inputs import read_camera_file, read_placed_rig
    from rigpapr.asset import read_asset
    from rigpapr.supervision import read_clip
    from rigpapr.supervision_depth import read_depth

    camera = read_camera_file(folder / "video.json")
    if not placed:
        camera = dataclasses.replace(camera, matrix=None)
    part = slice(config.frames or None)
    clip = read_clip(folder / "video", camera.camera, fps=camera.fps, part=part)
    depth = read_depth(f"{folder / 'video_depth.npz'}:depth_mono", clip.masks.shape, part=part)
    with np.load(folder / "video_vertices.npz") as file:
        vertices = file["vertices"].astype(np.float64)
    data = json.loads((folder / "video.json").read_text(encoding="utf-8"))
    places = np.asarray(data.get("joint_positions", []), np.float64)
    names = data.get("joint_names", []) if places.ndim == 3 else []
    joints = {joint: places[:, k] for k, joint in enumerate(names)}
    return Case(folder.name, clip, depth, read_placed_rig(rig, camera), read_asset(asset), vertices, folder, joints)


@dataclass(frozen=True)
class Chain:
    """How a case is fitted. ``label`` names what is kept of it in the output folder."""

    label: str
    depth: bool = True
    auto_rig: bool = False
    depth_weight: float = 1.0


def plan_for(config: EvaluateFitConfig, chain: Chain) -> TwoPhaseConfig:
    """The preset of ``splatanim fit``, with what the bench's options and the chain change."""
    from rigpapr.two_phase import PRESETS

    plan = dataclasses.replace(PRESETS["cpu"], seed=config.seed)
    one, two = config.steps_one or plan.steps_one, config.steps_two or plan.steps_two
    plan = dataclasses.replace(plan, steps_one=one, steps_two=two)
    factor = chain.depth_weight
    return dataclasses.replace(
        plan,
        one=dataclasses.replace(plan.one, depth=factor * plan.one.depth),
        two=dataclasses.replace(plan.two, depth=factor * plan.two.depth),
    )


def fitted(
    config: EvaluateFitConfig, case: Case, chain: Chain, upto: str = "two"
) -> dict[str, tuple[FittedAsset, float]]:
    """The assets after each stage up to ``upto`` and the CPU seconds until then; read where they are kept already."""
    stages = STAGES[: STAGES.index(upto) + 1]
    mark = _mark(config, case, chain)
    kept = {stage: _kept(config, case, chain, stage, mark) for stage in stages}
    if all(value is not None for value in kept.values()):
        return {stage: value for stage, value in kept.items() if value is not None}
    return _run(config, case, chain, stages, mark)


def _mark(config: EvaluateFitConfig, case: Case, chain: Chain) -> dict[str, Any]:
    """What a kept fit must have been made with."""
    return {
        "frames": len(case.clip),
        "points": len(case.cloud),
        "plan": json.loads(json.dumps(dataclasses.asdict(plan_for(config, chain)))),
        "tracks": config.tracks,
    }


def _path(config: EvaluateFitConfig, case: Case, chain: Chain, stage: str) -> Path:
    return config.output / "fits" / f"{case.name}_{chain.label}_{stage}.papr.safetensors"


def _kept(
    config: EvaluateFitConfig, case: Case, chain: Chain, stage: str, mark: dict[str, Any]
) -> tuple[FittedAsset, float] | None:
    from rigpapr.asset import asset_notes
    from rigpapr.fitted import read_fitted

    path = _path(config, case, chain, stage)
    if not path.is_file():
        return None
    notes = asset_notes(path)
    if notes.get("mark") != mark:
        return None
    return read_fitted(path), float(notes["seconds"])


def _run(
    config: EvaluateFitConfig, case: Case, chain: Chain, stages: tuple[str, ...], mark: dict[str, Any]
) -> dict[str, tuple[FittedAsset, float]]:
    from pipelines.fit_rig_inputs import PlacedRig, rig_of_points
    from rigpapr.coarse_tracker import tracker_of
    from rigpapr.fitted import write_fitted
    from rigpapr.phase_one import phase_one
    from rigpapr.posing import with_rig_file
    from rigpapr.two_phase import phase_two, start_fit

    placed = case.placed
    if chain.auto_rig:
        placed = PlacedRig(rig_of_points(case.cloud.world_positions.detach().double().numpy()))
    depth = case.depth if chain.depth else None
    plan = plan_for(config, chain)
    out = {}
    (config.output / "fits").mkdir(parents=True, exist_ok=True)

    def keep(stage: str, fit: Fit, seconds: float) -> None:
        asset = dataclasses.replace(
            with_rig_file(fit.result(), placed.frames, placed.place), view=case.clip.camera, fps=case.clip.fps
        )
        write_fitted(_path(config, case, chain, stage), asset, notes={"mark": mark, "seconds": seconds})
        out[stage] = (asset, seconds)

    motion, seconds = coarse_motion(config, case, placed.rig, depth, chain)
    keep("coarse", start_fit(case.cloud, placed.rig, case.clip, motion=motion, depth=depth, config=plan), seconds)
    if "one" not in stages:
        return out
    start = time.process_time()  # the tracker works within phase 1, from what that has found
    tracks, tracker = tracks_of(config, case), tracker_of(case.cloud, placed.rig, case.clip, depth, seed=config.seed)
    fit = start_fit(case.cloud, placed.rig, case.clip, motion=None, depth=depth, tracks=tracks, config=plan)
    phase_one(fit, tracker)
    keep("one", fit, time.process_time() - start)
    if "two" in stages:
        phase_two(fit)
        keep("two", fit, time.process_time() - start)
    return out


def coarse_motion(
    config: EvaluateFitConfig, case: Case, rig: FitRig, depth: np.ndarray | None, chain: Chain
) -> tuple[RigMotion, float]:
    """The coarse tracker's motion, and the CPU seconds that it took.

    Chains that differ in the phases alone share it.
    """
    from rigpapr.coarse_tracker import RigMotion, tracker_of

    label = f"{'auto' if chain.auto_rig else 'given'}{'' if chain.depth else '_nodepth'}"
    path = config.output / "fits" / f"{case.name}_{label}_{len(case.clip)}_{config.seed}_coarse.npz"
    if path.is_file():
        with np.load(path) as kept:
            if kept["rotations"].shape[:2] == (len(case.clip), len(rig)):
                return RigMotion(kept["rotations"], kept["translations"]), float(kept["seconds"])
    start = time.process_time()
    motion = tracker_of(case.cloud, rig, case.clip, depth, seed=config.seed).track()
    path.parent.mkdir(parents=True, exist_ok=True)
    seconds = time.process_time() - start
    np.savez_compressed(path, rotations=motion.rotations, translations=motion.translations, seconds=seconds)
    return motion, seconds


def tracks_of(config: EvaluateFitConfig, case: Case) -> Tracks | None:
    """Tracks of phase 2 as ``splatanim fit`` makes them."""
    from pipelines.fit_rig_inputs import find_tracks
    from rigpapr.renderer import render

    if config.tracks == "none":
        return None
    return find_tracks(config.tracks, case.cloud, case.clip, render(case.cloud, case.clip.camera), seed=config.seed)
