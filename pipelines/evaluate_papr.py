"""``splatanim bench papr``: held-out quality, time and memory of reconstruction, the top-K search, and re-posing.

Run as ``python -m pipelines.evaluate_papr --folder DATA/multiview --output TABLES``; writes papr.md, papr.json and
pictures with the truth beside them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from tyro.conf import UseAppendAction

from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.papr_reposing import Picture, PosedFrame
    from rigpapr.cloud import PaprCloud
    from rigpapr.dataset import View
    from rigpapr.quality import Lpips, Quality

Study = Literal["quality", "reposing", "topk"]
SUBJECTS = ("fox", "wolf", "spider")
_WHITE = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class EvaluatePaprConfig:
    """Measure PAPR on a folder of subjects with posed images, true motion and novel views.

    Args:
        folder: One folder a subject, each with transforms_train.json; for re-posing also video_vertices.npz, video.json
            and novel.json.
        output: The folder to write papr.md, papr.json, pictures and the trained assets to.
        study: What to run, repeatable: quality (trains), reposing (of the assets in output, which quality leaves) or
            topk. All by default.
        subject: Which subjects, repeatable; fox, wolf and spider by default.
        preset: cpu or paper.
        seconds: Training time a subject.
        clock: What seconds mean: wall time, or the process's CPU time, which is steadier on a busy machine.
        steps: Train for so many steps instead.
        passes: The most passes over the pixels near the subject, 0 for no such end; the preset's by default.
        holdout: Every so manieth view is held out.
        seeds: How many seeds to train, means reported.
        lpips: VGG16 weights for LPIPS, a local file; without it LPIPS is not measured.
        threads: Threads of torch and of the search; 0 takes all.
    """

    folder: Path
    output: Path
    study: UseAppendAction[tuple[Study, ...]] = ()
    subject: UseAppendAction[tuple[str, ...]] = ()
    preset: Literal["cpu", "paper"] = "cpu"
    seconds: float = 150.0
    clock: Literal["wall", "process"] = "wall"
    steps: int = 0
    passes: float | None = None
    holdout: int = 8
    seeds: int = 1
    lpips: Path | None = None
    threads: int = 0


def evaluate_papr(config: EvaluatePaprConfig, progress: Progress | None = None) -> str:
    """Run the studies; returns the Markdown. Files are written after every study."""
    import numba
    import torch

    from splatanim.formats.atomic import atomic_path

    progress = progress or Progress()
    if config.threads:
        torch.set_num_threads(config.threads)
        numba.set_num_threads(config.threads)
    config.output.mkdir(parents=True, exist_ok=True)
    everything: dict[str, object] = {"config": {key: str(value) for key, value in asdict(config).items()}}
    text = ["# PAPR"]
    run: dict[str, Callable[[], tuple[object, str]]] = {
        "quality": lambda: quality_study(config, progress),
        "reposing": lambda: reposing_study(config, progress),
        "topk": lambda: topk_study(),
    }
    for name in config.study or ("quality", "reposing", "topk"):
        everything[name], table = run[name]()
        text.append(table)
        with atomic_path(config.output / "papr.json") as path:
            path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
        with atomic_path(config.output / "papr.md") as path:
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return "\n".join(text)


def _subjects(config: EvaluatePaprConfig) -> list[Path]:
    folders = [config.folder / name for name in config.subject or SUBJECTS]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder. Give --folder the one that holds the subjects' folders.")
    return folders


def quality_study(config: EvaluatePaprConfig, progress: Progress) -> tuple[list[dict[str, object]], str]:
    """Train each subject with views held out; the last seed's asset and pictures stay in the output folder."""
    from rigpapr.quality import load_lpips

    lpips = load_lpips(config.lpips) if config.lpips else None
    rows: list[dict[str, object]] = []
    for folder in _subjects(config):
        for seed in range(config.seeds):
            rows.append(_reconstruct(config, folder, seed, lpips, progress))
    lines = [
        f"\n## Held-out views (every {config.holdout}th), preset {config.preset}\n",
        "| subject | PSNR | subject's pixels | SSIM | LPIPS | seconds | CPU s | steps | points | frame ms | peak MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    keys = ("psnr", "foreground", "ssim", "lpips", "seconds", "cpu_seconds", "steps", "points", "frame_ms", "peak_mb")
    digits = (2, 2, 4, 4, 0, 0, 0, 0, 0, 0)
    mean: dict[str, object] = {key: _mean([row[key] for row in rows]) for key in keys}
    for row in [*rows, {"subject": "mean", **mean}]:
        lines.append("| " + " | ".join([str(row["subject"]), *map(_cell, (row[key] for key in keys), digits)]) + " |")
    return rows, "\n".join(lines)


def _mean(values: list[object]) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return float(np.mean(numbers)) if numbers else None


def _cell(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "not measured"


def _reconstruct(
    config: EvaluatePaprConfig, folder: Path, seed: int, lpips: Lpips | None, progress: Progress
) -> dict[str, object]:
    import dataclasses

    from pipelines.reconstruct import ReconstructConfig, split_views, train_plan, training_bar
    from rigpapr.asset import write_asset
    from rigpapr.dataset import read_dataset
    from rigpapr.initialisation import start_cloud, visual_hull
    from rigpapr.topk import search
    from rigpapr.train import start, train

    asset = config.output / f"{folder.name}.papr.safetensors"
    views, held_out = split_views(read_dataset(folder), config.holdout)
    plan = train_plan(ReconstructConfig(folder, asset, config.preset, seconds=config.seconds, seed=seed), _WHITE)
    passes = plan.passes if config.passes is None else config.passes
    plan = dataclasses.replace(plan, clock=config.clock, steps=config.steps, passes=passes)
    wall, cpu = time.monotonic(), time.process_time()
    points = visual_hull(views, plan.first_points, seed=seed)
    cloud = start_cloud(plan.cloud, points, views, band=plan.band, seed=seed)
    search(cloud.positions, views[0].camera, np.zeros((1, 2)), 1)  # compiles once a machine, which no row should pay
    with training_bar(progress) as on_step:
        training = train(start(cloud, plan), plan, views, on_step=on_step)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    clock = time.perf_counter if config.clock == "wall" else time.process_time
    quality, frame_ms = _held_out(cloud, held_out, clock, lpips, config.output / f"{folder.name}_held_out.png")
    write_asset(asset, cloud, notes={"views": len(views), "steps": training.step, "held_out": asdict(quality)})
    return {
        "subject": folder.name,
        "seed": seed,
        **asdict(quality),
        "seconds": wall,
        "cpu_seconds": cpu,
        "steps": training.step,
        "points": len(cloud),
        "frame_ms": frame_ms,
        "peak_mb": _peak_mb(),
    }


def _held_out(
    cloud: PaprCloud, views: list[View], clock: Callable[[], float], lpips: Lpips | None, path: Path
) -> tuple[Quality, float]:
    """Render the views once each: their mean quality, a frame's median milliseconds, and in the picture at ``path``
    rows of rendering, truth and tripled difference."""
    from rigpapr.quality import image_quality, mean_quality
    from rigpapr.renderer import render

    qualities, times, rows = [], [], []
    for view in views:
        began = clock()
        image = render(cloud, view.camera, background=_WHITE).rgb.clip(0, 1)
        times.append(1000 * (clock() - began))
        truth = view.over(_WHITE)
        qualities.append(image_quality(image, truth, view.mask > 0.5, lpips))
        rows.append(np.concatenate([image, truth, (3 * np.abs(image - truth)).clip(0, 1)], axis=1))
    save_rows(path, rows)
    return mean_quality(qualities), float(np.median(times))


def _peak_mb() -> float | None:
    """The process's largest resident size so far; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


def save_rows(path: Path, rows: list[np.ndarray]) -> None:
    """Pictures of equal width one below the other."""
    from splatanim.render.video import write_png

    write_png(path, np.concatenate(rows).astype(np.float32))


def reposing_study(config: EvaluatePaprConfig, progress: Progress) -> tuple[dict[str, object], str]:
    """Each subject's asset, and splats on its true surface, under the true motion; novel cameras."""
    found: dict[str, object] = {}
    lines = [
        "\n## Re-posed with the true motion, novel views\n",
        "Loss: bind frame's PSNR less the worst frame's. Holes: pixels inside the true mask less than half covered. "
        "Unlit: points keep their brightness when they turn.\n",
        "| subject | | bind PSNR | mean | worst | loss | subject's: bind | worst | loss | at joints, mean | holes % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for folder in _subjects(config):
        rows = _reposed(config, folder, progress)
        found[folder.name] = {method: [asdict(row) for row in frames] for method, frames in rows.items()}
        lines += [
            _posed_row("" if k else folder.name, method, frames) for k, (method, frames) in enumerate(rows.items())
        ]
    return found, "\n".join(lines)


def _reposed(config: EvaluatePaprConfig, folder: Path, progress: Progress) -> dict[str, list[PosedFrame]]:
    """One subject in every frame by each method; pictures of truth, PAPR and splats go to the output folder."""
    from pipelines.papr_reposing import attach_cloud, measure, posed_papr, posed_splats, read_motion, surface_splats
    from pipelines.reconstruct import split_views
    from rigpapr.asset import read_asset
    from rigpapr.dataset import read_dataset

    asset = config.output / f"{folder.name}.papr.safetensors"
    if not asset.is_file():
        raise InputError(f"{asset} is missing: run --study quality first, with the same output folder.")
    cloud, unlit, motion = read_asset(asset), read_asset(asset), read_motion(folder)
    unlit.set_light(None, None)
    attached = attach_cloud(cloud, motion)
    splats = surface_splats(motion, split_views(read_dataset(folder), config.holdout)[0])
    draw: dict[str, Callable[[int], Iterator[tuple[str, Picture]]]] = {
        "PAPR": lambda frame: posed_papr(cloud, attached, motion, frame),
        "PAPR, unlit": lambda frame: posed_papr(unlit, attached, motion, frame),
        "splats": lambda frame: posed_splats(splats, motion, frame),
    }
    found: dict[str, list[PosedFrame]] = {method: [] for method in draw}
    with progress.bar(f"{folder.name}, posed", len(motion)) as tick:
        for frame in range(len(motion)):
            for method, pictures in draw.items():
                found[method].append(measure(pictures(frame), motion, frame))
            tick()
    worst = min(found["PAPR"], key=lambda row: row.quality.psnr).frame
    for name in motion.cameras:
        rows = []
        for frame in (0, len(motion) // 2, worst):
            shown = [dict(draw[method](frame))[name][0].clip(0, 1) for method in ("PAPR", "splats")]
            rows.append(np.concatenate([motion.picture(name, frame)[0], *shown], axis=1))
        save_rows(config.output / f"{folder.name}_posed_{name}.png", rows)
    return found


def _posed_row(subject: str, method: str, frames: list) -> str:
    full = [row.quality.psnr for row in frames]
    own = [row.quality.foreground for row in frames]
    holes = 100 * max(row.holes for row in frames)
    joints = float(np.mean([row.joints for row in frames]))
    return (
        f"| {subject} | {method} | {full[0]:.2f} | {np.mean(full):.2f} | {min(full):.2f} | {full[0] - min(full):.2f} | "
        f"{own[0]:.2f} | {min(own):.2f} | {own[0] - min(own):.2f} | {joints:.2f} | {holes:.2f} |"
    )


def topk_study() -> tuple[list[dict[str, float]], str]:
    """25,600 rays against 30,000 points on one thread, beside the brute-force tensor forms in the same run."""
    from pipelines.bench_topk import bench_topk

    return bench_topk()


def main() -> None:
    """Parse, run, print."""
    import tyro

    print(evaluate_papr(tyro.cli(EvaluatePaprConfig, config=(tyro.conf.OmitArgPrefixes,)), Progress(None)))


if __name__ == "__main__":
    main()
