"""``splatanim reconstruct``: posed images to a PAPR asset."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from pipelines.cameras import parse_colour
from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from rigpapr.dataset import View
    from rigpapr.train import TrainConfig, Training


@dataclass(frozen=True)
class ReconstructConfig:
    """Reconstruct a PAPR neural point cloud from posed images.

    Args:
        dataset: A folder with transforms.json (NeRF, nerfstudio), sparse/0 (COLMAP) or annots.npy (ZJU-MoCap), or a
            transforms file.
        output: The asset to write, *.papr.safetensors.
        preset: cpu (kernel head, minutes on two cores) or paper (the official head and rates, for a GPU).
        init: Points or splats (.ply) or a mesh to start from; by default the visual hull of the masks.
        seconds: How long to train at most; 0 takes the preset's time. The cpu preset ends after 40 passes over the
            pixels near the subject in any case: more of them make a cloud that poses worse.
        steps: Train for so many steps instead.
        points: Number of points; 0 takes the preset's.
        resolution: Images are reduced to so many pixels on their longer side; 0 takes the preset's.
        background: Red, green and blue behind the subject, 0 to 1: of images without alpha, and in training.
        frame: Which moment of a multi-camera video (ZJU-MoCap).
        invert_masks: The masks are white outside the subject.
        holdout: Leave out every so manieth view and report its PSNR and SSIM; 0 trains on all.
        resume: Go on from the checkpoint that an interrupted run left beside the output.
        device: cpu, cuda, or auto: cuda where there is one for the paper's preset, else cpu.
        seed: Seed of everything random.
    """

    dataset: Positional[Path]
    output: Annotated[Path, arg(aliases=["-o"])]
    preset: Literal["cpu", "paper"] = "cpu"
    init: Path | None = None
    seconds: float = 0.0
    steps: int = 0
    points: int = 0
    resolution: int = 0
    background: str = "1,1,1"
    frame: int = 0
    invert_masks: bool = False
    holdout: int = 0
    resume: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = 0


_RESOLUTION = {"cpu": 400, "paper": 0}


def reconstruct(config: ReconstructConfig, progress: Progress) -> str:
    """Read, train, write; returns what was made. What can be refused is refused before the training."""
    from rigpapr.asset import write_asset
    from rigpapr.dataset import ReadOptions, read_dataset
    from rigpapr.quality import held_out_quality
    from rigpapr.train import train

    checkpoint = checkpoint_path(config.output)
    options = ReadOptions(
        config.resolution or _RESOLUTION[config.preset],
        parse_colour(config.background),
        config.frame,
        config.invert_masks,
    )
    with progress.spinner("reading images"):
        views = read_dataset(config.dataset, options)
    training_views, held_out = split_views(views, config.holdout)
    plan = train_plan(config, options.background)
    training = _start(config, plan, training_views, checkpoint, progress)
    with training_bar(progress) as on_step:
        train(training, plan, training_views, checkpoint=checkpoint, on_step=on_step)
    cloud = training.cloud.cpu()
    psnr = training.curve[-1][2] if training.curve else float("nan")
    notes: dict[str, object] = {
        "views": len(training_views),
        "steps": training.step,
        "seconds": training.elapsed,
        "train_psnr": psnr,
    }
    lines = [f"{config.output}: {len(cloud)} points from {len(training_views)} views, {training.step} steps"]
    lines[0] += f" in {training.elapsed:.0f} s"
    if math.isfinite(psnr):
        lines[0] += f", training PSNR {psnr:.2f} dB near the subject"
    if held_out:
        quality = held_out_quality(cloud, held_out, options.background)
        notes["held_out"] = dataclasses.asdict(quality)
        lines.append(f"  {len(held_out)} views held out: {quality}")
    write_asset(config.output, cloud, notes={key: _json(value) for key, value in notes.items()})
    checkpoint.unlink(missing_ok=True)
    return "\n".join(lines)


def _json(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checkpoint_path(output: Path) -> Path:
    """Where a run leaves its checkpoints: beside the asset. Refuses names and folders that cannot become an asset."""
    from rigpapr.asset import SUFFIX, is_asset

    if not is_asset(output):
        raise InputError(f"{output}: a PAPR asset is named *{SUFFIX}. Try -o {output.with_suffix('')}{SUFFIX}")
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: the folder {output.parent} does not exist. Create it, or choose another.")
    return output.with_name(output.name[: -len(SUFFIX)] + ".checkpoint.safetensors")


def split_views(views: list[View], holdout: int) -> tuple[list[View], list[View]]:
    """Views to train on, and every ``holdout``-th (0, holdout, 2 holdout ...) to measure on; none for 0.

    Raises InputError where nothing is left to train on.
    """
    if holdout < 0:
        raise InputError(f"--holdout {holdout}: give 0 (none) or how many views there are to each one held out.")
    if not holdout:
        return views, []
    kept = [view for k, view in enumerate(views) if k % holdout]
    if not kept:
        raise InputError(f"--holdout {holdout} leaves none of {len(views)} views to train on. Give 2 or more.")
    return kept, views[::holdout]


def train_plan(config: ReconstructConfig, background: tuple[float, float, float]) -> TrainConfig:
    """The preset with what the user changed."""
    from rigpapr.train import PRESETS

    plan = dataclasses.replace(PRESETS[config.preset], background=background, seed=config.seed)
    if config.seconds:
        plan = dataclasses.replace(plan, seconds=config.seconds, steps=0)
    if config.steps:
        plan = dataclasses.replace(plan, steps=config.steps)
    if config.points:
        plan = dataclasses.replace(plan, points=config.points, first_points=config.points)
    return plan


def _start(
    config: ReconstructConfig, plan: TrainConfig, views: list[View], checkpoint: Path, progress: Progress
) -> Training:
    import torch

    from rigpapr.initialisation import read_start, start_cloud, visual_hull
    from rigpapr.train import read_checkpoint, start

    device = _device(config)
    if config.resume:
        if not checkpoint.is_file():
            raise InputError(f"--resume: there is no checkpoint at {checkpoint}. Start without --resume.")
        return read_checkpoint(checkpoint, plan, device)
    with progress.spinner("placing points"):
        if config.init is None:
            points = visual_hull(views, plan.first_points, seed=config.seed)
        else:
            # What someone already has is near the surface everywhere: all points at once, nothing to grow.
            points = read_start(config.init, plan.points, config.seed)
        cloud = start_cloud(plan.cloud, points, views, band=plan.band, seed=config.seed)
    return start(cloud.to(torch.device(device)), plan)


def _device(config: ReconstructConfig) -> str:
    import torch

    if config.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no CUDA device here. Use --device cpu.")
    if config.device != "auto":
        return config.device
    return "cuda" if config.preset == "paper" and torch.cuda.is_available() else "cpu"


@contextmanager
def training_bar(progress: Progress) -> Iterator[Callable[[Training, float], None]]:
    """A bar over the training with the running PSNR; nothing where progress is not shown."""
    if not progress.enabled:
        yield lambda training, psnr: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("training", total=1.0)

        def on_step(training: Training, psnr: float) -> None:
            bars.update(task, completed=training.progress, description=f"training, step {training.step}, {psnr:.2f} dB")

        yield on_step
