"""``splatanim bench fit``: fits of a rig's motion held against the truth of synthetic subjects."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg

from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from rigpapr.binding import FitRig
    from rigpapr.cloud import PaprCloud
    from rigpapr.coarse_kinematics import JointPose
    from rigpapr.coarse_tracker import RigMotion
    from rigpapr.supervision import Clip


@dataclass(frozen=True)
class EvaluateFitConfig:
    """Measure the fit of a rig's motion on subjects with known truth.

    Args:
        folder: A folder of subjects (fox, wolf, ...), each with video.json, frames, depth and true vertices.
        assets: A folder with their PAPR assets, NAME.papr.safetensors.
        rigs: The folder that video.json's ``model`` is relative to; by default two levels above a subject.
        output: Where tables, JSON and pictures go.
        subjects: Which subjects; by default all that have an asset.
        frames: Fit so many frames; 0 fits all.
        phases: coarse measures the coarse tracker alone; one and two also refine, and measure pictures.
        seed: Seed of everything random.
    """

    folder: Positional[Path]
    assets: Path
    output: Annotated[Path, arg(aliases=["-o"])]
    rigs: Path | None = None
    subjects: tuple[str, ...] = ()
    frames: int = 0
    phases: Literal["coarse", "one", "two"] = "coarse"
    seed: int = 0


def evaluate_fit(config: EvaluateFitConfig, progress: Progress) -> str:
    """Run the studies on every subject; returns the tables."""
    found = config.subjects or tuple(
        sorted(p.parent.name for p in config.folder.glob("*/video.json") if asset_of(config, p.parent.name).is_file())
    )
    if not found:
        raise InputError(f"{config.folder}: no subject with video.json and an asset in {config.assets}.")
    config.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in found:
        with progress.spinner(f"fitting {name}"):
            case = load_case(config, name)
            row, motion = coarse_study(config, case)
            rows.append(row if config.phases == "coarse" else {**row, **refined_study(config, case, motion)})
    (config.output / "fit.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    table = coarse_table(rows) + ("" if config.phases == "coarse" else "\n\n" + refined_table(rows))
    (config.output / "fit.md").write_text(table + "\n", encoding="utf-8")
    return table


def asset_of(config: EvaluateFitConfig, name: str) -> Path:
    """Where a subject's asset lies."""
    return config.assets / f"{name}.papr.safetensors"


@dataclass(frozen=True)
class Case:
    """A subject: what fitting gets, and the truth (T, V, 3)."""

    name: str
    clip: Clip
    depth: np.ndarray
    rig: FitRig
    cloud: PaprCloud
    vertices: np.ndarray


def load_case(config: EvaluateFitConfig, name: str) -> Case:
    """Read a subject as ``splatanim fit`` would, and its true vertices."""
    from pipelines.fit_rig_inputs import read_camera_file, read_fit_rig
    from rigpapr.asset import read_asset
    from rigpapr.supervision import read_clip
    from rigpapr.supervision_depth import read_depth

    folder = config.folder / name
    camera = read_camera_file(folder / "video.json")
    part = slice(config.frames or None)
    clip = read_clip(folder / "video", camera.camera, fps=camera.fps, part=part)
    depth = read_depth(f"{folder / 'video_depth.npz'}:depth_mono", clip.masks.shape, part=part)
    model = json.loads((folder / "video.json").read_text(encoding="utf-8"))["model"]
    rig = read_fit_rig((config.rigs or config.folder.parent) / model, camera)
    with np.load(folder / "video_vertices.npz") as file:
        vertices = file["vertices"].astype(np.float64)
    return Case(name, clip, depth, rig, read_asset(asset_of(config, name)), vertices)


def coarse_study(config: EvaluateFitConfig, case: Case) -> tuple[dict[str, Any], RigMotion]:
    """Vertex errors of the coarse tracker [scene units], and its CPU time a frame."""
    from rigpapr.coarse_surface import surface_of_cloud
    from rigpapr.coarse_terms import CoarseConfig
    from rigpapr.coarse_tracker import track

    surface = surface_of_cloud(case.cloud, case.rig, seed=config.seed)
    weights = case.rig.weights(case.vertices[0])
    start = time.process_time()
    errors = []

    def note(frame: int, pose: JointPose) -> None:
        errors.append(vertex_errors(case, weights, pose, frame))

    chosen = CoarseConfig(seed=config.seed)
    motion = track(case.rig, surface, case.clip, case.depth, config=chosen, on_frame=note)
    seconds = (time.process_time() - start) / max(len(errors), 1)
    every = np.stack(errors)
    row = {
        "subject": case.name,
        "mean": float(every.mean()),
        "p95": float(np.percentile(every, 95)),
        "frames": every.mean(axis=1).round(5).tolist(),
        "seconds": seconds,
        "still": float(np.linalg.norm(case.vertices[1 : len(every) + 1] - case.vertices[0], axis=2).mean()),
    }
    return row, motion


def refined_study(config: EvaluateFitConfig, case: Case, motion: RigMotion) -> dict[str, Any]:
    """Vertex errors after phases 1 and 2, and pictures of the train view and of the novel views against the truth,
    beside those of a cloud that does not move."""
    from pipelines.papr_reposing import read_motion
    from rigpapr.coarse_kinematics import JointPose
    from rigpapr.quality import image_quality, mean_quality
    from rigpapr.renderer import render
    from rigpapr.two_phase import TwoPhaseConfig, phase_one, phase_two, start_fit

    start = time.process_time()
    plan = TwoPhaseConfig(seed=config.seed)
    fit = start_fit(case.cloud, case.rig, case.clip, motion=motion, depth=case.depth, config=plan)
    phase_one(fit)
    if config.phases == "two":
        phase_two(fit)
    asset, seconds = fit.result(), time.process_time() - start
    weights, truth = case.rig.weights(case.vertices[0]), read_motion(config.folder / case.name)
    errors, train, novel, still = [], [], [], []
    for k in range(1, len(asset)):
        pose = JointPose(asset.rotations[k].double().numpy(), asset.translations[k].double().numpy())
        errors.append(float(vertex_errors(case, weights, pose, k).mean()))
        moved, turned = asset.posed(k)
        drawn = render(case.cloud, case.clip.camera, positions=moved, rotations=turned).rgb
        train.append(image_quality(drawn, case.clip.picture(k), case.clip.masks[k]))
        for name, camera in truth.cameras.items():
            picture, mask = truth.picture(name, k)
            drawn = render(case.cloud, camera, positions=moved, rotations=turned).rgb
            novel.append(image_quality(drawn, picture, mask))
            still.append(image_quality(render(case.cloud, camera).rgb, picture, mask))
    means = {"train": train, "novel": novel, "unmoved": still}
    found = {key: dataclasses.asdict(mean_quality(values)) for key, values in means.items()}
    return {"refined": float(np.mean(errors)), "refined_frames": errors, "refine_seconds": seconds, **found}


def refined_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: PSNR of the full frame / of the subject's pixels [dB]."""
    lines = [
        "| subject | mean error | train view | novel views | novel, unmoved | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = [f"{r[k]['psnr']:.2f} / {r[k]['foreground']:.2f}" for k in ("train", "novel", "unmoved")]
        lines.append(f"| {r['subject']} | {r['refined']:.4f} | {' | '.join(cells)} | {r['refine_seconds']:.0f} |")
    return "\n".join(lines)


def vertex_errors(case: Case, weights: np.ndarray, pose: JointPose, frame: int) -> np.ndarray:
    """Distances of the posed true mesh from the truth, (V,)."""
    from rigpapr.coarse_kinematics import skinned, transforms

    moved, _ = skinned(case.vertices[0], weights, transforms(case.rig, pose))
    return np.linalg.norm(moved - case.vertices[frame], axis=1)


def coarse_table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| subject | mean error | p95 | worst frame | at rest | CPU s a frame |", "|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r['subject']} | {r['mean']:.4f} | {r['p95']:.4f} | {max(r['frames']):.4f} | {r['still']:.4f} | "
            f"{r['seconds']:.2f} |"
        )
    return "\n".join(lines)
