"""``splatanim bench papr``: held-out quality, time and memory of reconstruction, the top-K search, and re-posing.

Run as ``python -m pipelines.evaluate_papr --folder DATA/multiview --output TABLES``; writes papr.md, papr.json and
pictures with the truth beside them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from tyro.conf import UseAppendAction

from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from rigpapr.cloud import PaprCloud
    from rigpapr.dataset import View
    from rigpapr.quality import Lpips

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
    from rigpapr.quality import held_out_quality
    from rigpapr.topk import search
    from rigpapr.train import start, train

    asset = config.output / f"{folder.name}.papr.safetensors"
    views, held_out = split_views(read_dataset(folder), config.holdout)
    plan = train_plan(ReconstructConfig(folder, asset, config.preset, seconds=config.seconds, seed=seed), _WHITE)
    plan = dataclasses.replace(plan, clock=config.clock, steps=config.steps)
    wall, cpu = time.monotonic(), time.process_time()
    points = visual_hull(views, plan.first_points, seed=seed)
    cloud = start_cloud(plan.cloud, points, views, band=plan.band, seed=seed)
    search(cloud.positions, views[0].camera, np.zeros((1, 2)), 1)  # compiles once a machine, which no row should pay
    with training_bar(progress, plan) as on_step:
        training = train(start(cloud, plan), plan, views, on_step=on_step)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    quality = held_out_quality(cloud, held_out, _WHITE, lpips)
    frame_ms = _frame_ms(cloud, held_out)
    write_asset(asset, cloud, notes={"views": len(views), "steps": training.step, "held_out": asdict(quality)})
    _side_by_side(cloud, held_out, config.output / f"{folder.name}_held_out.png")
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


def _frame_ms(cloud: PaprCloud, views: list[View]) -> float:
    from rigpapr.renderer import render

    times = []
    for view in views:
        began = time.perf_counter()
        render(cloud, view.camera)
        times.append(1000 * (time.perf_counter() - began))
    return float(np.median(times))


def _peak_mb() -> float | None:
    """The process's largest resident size so far; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


def _side_by_side(cloud: PaprCloud, views: list[View], path: Path) -> None:
    """Rows of rendering, truth and tripled difference."""
    from rigpapr.renderer import render

    rows = []
    for view in views:
        image, truth = render(cloud, view.camera).rgb.clip(0, 1), view.over(_WHITE)
        rows.append(np.concatenate([image, truth, (3 * np.abs(image - truth)).clip(0, 1)], axis=1))
    save_rows(path, rows)


def save_rows(path: Path, rows: list[np.ndarray]) -> None:
    """Pictures of equal width one below the other."""
    from splatanim.render.video import write_png

    write_png(path, np.concatenate(rows).astype(np.float32))


def reposing_study(config: EvaluatePaprConfig, progress: Progress) -> tuple[dict[str, object], str]:
    """Each subject's asset, and splats on its true surface, under the true motion; novel cameras."""
    from pipelines.papr_reposing import attach_cloud, measure, posed_papr, posed_splats, read_motion, surface_splats
    from pipelines.reconstruct import split_views
    from rigpapr.asset import read_asset
    from rigpapr.dataset import read_dataset

    found: dict[str, object] = {}
    lines = [
        "\n## Re-posed with the true motion, novel views\n",
        "Loss: bind frame's PSNR less the worst frame's. Holes: pixels inside the true mask less than half covered.\n",
        "| subject | | bind PSNR | mean | worst | loss | subject's: bind | worst | loss | at joints, mean | holes % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for folder in _subjects(config):
        asset = config.output / f"{folder.name}.papr.safetensors"
        if not asset.is_file():
            raise InputError(f"{asset} is missing: run --study quality first, with the same output folder.")
        cloud, motion = read_asset(asset), read_motion(folder)
        attached = attach_cloud(cloud, motion)
        splats = surface_splats(motion, split_views(read_dataset(folder), config.holdout)[0])
        papr, peer = [], []
        with progress.bar(f"{folder.name}, posed", len(motion)) as tick:
            for frame in range(len(motion)):
                papr.append(measure(posed_papr(cloud, attached, motion, frame), motion, frame))
                peer.append(measure(posed_splats(splats, motion, frame), motion, frame))
                tick()
        found[folder.name] = {"papr": [asdict(row) for row in papr], "splats": [asdict(row) for row in peer]}
        lines += [_posed_row(folder.name, "PAPR", papr), _posed_row("", "splats", peer)]
        worst = min(papr, key=lambda row: row.quality.psnr).frame
        name = next(iter(motion.cameras))
        rows = []
        for frame in (0, len(motion) // 2, worst):
            truth = motion.picture(name, frame)[0]
            shown = [
                dict(posed_papr(cloud, attached, motion, frame))[name][0],
                dict(posed_splats(splats, motion, frame))[name][0],
            ]
            rows.append(np.concatenate([truth, *(image.clip(0, 1) for image in shown)], axis=1))
        save_rows(config.output / f"{folder.name}_posed.png", rows)
    return found, "\n".join(lines)


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
