"""``splatanim fit``: the motion of a rig from one fixed-viewpoint video, on a PAPR asset."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.fit_rig_inputs import FitInputs
    from pipelines.fit_rig_preview import Preview
    from rigpapr.coarse_kinematics import JointPose
    from rigpapr.coarse_tracker import RigMotion, Tracker
    from rigpapr.quality import Quality
    from rigpapr.two_phase import Fit, TwoPhaseConfig


@dataclass(frozen=True)
class FitConfig:
    """Fit a rig's motion to a fixed-viewpoint video; the result can be re-posed and seen from anywhere.

    Args:
        video: A video, or a folder of numbered frames. Its first frame shows the asset as it is.
        asset: The PAPR asset to move, *.papr.safetensors.
        camera: The video's camera: a transforms.json with one frame, a fixed-camera video.json, or find:SIDE (such as
            find:+z): found by the first frame's outline, starting from that side of the object, and written beside the
            output.
        fov: With --camera find: the lens's vertical field of view in degrees, which outlines hardly show.
        output: The fitted asset to write, *.papr.safetensors; films and the report are written beside it.
        rig: A rig file (.glb, .gltf, .txt, .npz), or auto: made from the asset's points.
        rig_mesh: The mesh that a .txt rig numbers.
        rig_clip: Take the rig in the first pose of this clip, where its file's bind pose is not the first frame.
        depth: Depth maps: maps.npz, maps.npz:KEY, a folder of 16-bit pictures, da3:FOLDER (a local Depth Anything 3
            model), or none.
        tracks: Tracks for phase 2: tracks.npz, flow (optical flow), cotracker:CHECKPOINT (a local CoTracker3), or none.
        masks: Where the subject is: alpha, a folder of masks, or auto (alpha, else what differs from a plain ground).
        frames: A part of the video, START:STOP:STEP.
        preset: cpu (a coarse tracker's start, refined in minutes), or paper (the published schedule, for a GPU's time).
        phases: How far to go: coarse (the tracker alone), one, or two.
        coarse: Start from the coarse tracker; without it, phase 1 goes from frame to frame as in the paper.
        orbit: Film the fitted motion from a camera that goes round, and from four around it, too.
        preview: A folder for pictures of the fit under way, one every 20 seconds; without it one picture beside the
            output is written anew each time and removed at the end.
        lpips: A VGG16 state dict: the report then has LPIPS as well.
        resume: Go on from the checkpoint that an interrupted run left beside the output.
        seed: Seed of everything random.
    """

    video: Positional[Path]
    asset: Path
    camera: str
    output: Annotated[Path, arg(aliases=["-o"])]
    rig: str = "auto"
    rig_mesh: Path | None = None
    rig_clip: str = ""
    fov: float = 40.0
    depth: str = "none"
    tracks: str = "none"
    masks: str = "auto"
    frames: str = ""
    preset: Literal["cpu", "paper"] = "cpu"
    phases: Literal["coarse", "one", "two"] = "two"
    coarse: bool = True
    orbit: bool = True
    preview: Path | None = None
    lpips: Path | None = None
    resume: bool = False
    seed: int = 0


def fit_rig(config: FitConfig, progress: Progress) -> str:
    """Read, track, refine, write; returns what was made."""
    from pipelines.fit_rig_films import write_films
    from pipelines.fit_rig_inputs import read_inputs
    from pipelines.fit_rig_preview import Preview
    from rigpapr.fitted import write_fitted
    from rigpapr.posing import with_rig_file
    from rigpapr.quality import load_lpips

    checkpoint = checkpoint_of(config)
    lpips = load_lpips(config.lpips) if config.lpips else None
    with progress.spinner("reading"):
        inputs = read_inputs(config, progress)
    preview = Preview(inputs.clip, sibling(config.output, "_preview.png"), config.preview)
    started = time.process_time()
    fit, seconds = run_phases(config, inputs, checkpoint, progress, preview)
    asset = with_rig_file(fit.result(), inputs.placed.frames, inputs.placed.place)
    asset = dataclasses.replace(asset, view=inputs.clip.camera)
    spent = time.process_time() - started
    notes = {"frames": len(asset), "phases": config.phases, "cpu_seconds": round(spent, 1), "notes": inputs.notes}
    write_fitted(config.output, asset, notes=notes)
    films, quality = write_films(config.output, asset, inputs.clip, progress, orbit=config.orbit, lpips=lpips)
    report: dict[str, object] = {
        **notes,
        "preset": config.preset,
        "seconds": seconds,
        "first_frame_overlap": round(inputs.overlap, 4),
    }
    _write_report(sibling(config.output, ".json"), report, quality)
    checkpoint.unlink(missing_ok=True)
    preview.close()
    shown = mean_quality_after_first(quality)
    lines = [
        f"{config.output}: {len(asset)} frames of {len(asset.names)} joints in {spent:.0f} CPU seconds, "
        f"{shown} against the video",
        *(f"  {note}" for note in inputs.notes),
        *(f"  {film}" for film in films),
    ]
    return "\n".join(lines)


def run_phases(
    config: FitConfig, inputs: FitInputs, checkpoint: Path, progress: Progress, preview: Preview
) -> tuple[Fit, dict[str, float]]:
    """The coarse tracker and the phases asked for, with a checkpoint after every frame and every 200 steps; the fit,
    and CPU seconds a phase. Where phase 1 aligns directly, the tracker works within it, frame by frame."""
    from rigpapr.phase_one import phase_one
    from rigpapr.two_phase import phase_two
    from rigpapr.two_phase_state import write_fit

    seconds: dict[str, float] = {}
    direct = plan_of(config).direct and config.phases != "coarse"
    with _timed(seconds, "coarse"):
        alone = config.coarse and not direct and not config.resume
        motion = _track(_tracker(config, inputs, progress), inputs, progress, preview) if alone else None
        fit = _start(config, inputs, checkpoint, motion)
        tracker = _tracker(config, inputs, progress) if direct and not fit.settled else None

    def save(under_way: Fit) -> None:
        write_fit(checkpoint, under_way)
        frame, steps = min(under_way.frames_done, len(inputs.clip)) - 1, under_way.steps_done
        label = f"two_{steps:06d}" if steps else f"one_{frame:04d}"
        preview.show(label, max(frame, 0) if not steps else len(inputs.clip) // 2, under_way.result)

    save(fit)
    if config.phases != "coarse":
        with _timed(seconds, "one"), _bar(progress, "phase 1") as report:
            phase_one(fit, tracker, on_frame=report, save=save)
    if config.phases == "two":
        with _timed(seconds, "two"), _bar(progress, "phase 2") as report:
            phase_two(fit, on_step=report, save=save)
    return fit, seconds


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.process_time()
    yield
    seconds[name] = round(time.process_time() - start, 1)


def mean_quality_after_first(quality: list[Quality]) -> Quality:
    """Over all frames but the first, which needs no motion."""
    from rigpapr.quality import mean_quality

    return mean_quality(quality[1:])


def _write_report(path: Path, report: dict[str, object], quality: list[Quality]) -> None:
    """Figures against the video, frame by frame and their means over all frames but the first."""
    from splatanim.formats.atomic import atomic_path

    frames = {f"train_{key}": [getattr(q, key) for q in quality] for key in ("psnr", "foreground", "ssim", "lpips")}
    means = dataclasses.asdict(mean_quality_after_first(quality))
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps({**report, "train": means, **frames}, indent=1) + "\n", encoding="utf-8")


def sibling(output: Path, suffix: str) -> Path:
    """A file beside the output, of its name with another suffix."""
    from rigpapr.asset import SUFFIX

    return output.with_name(output.name[: -len(SUFFIX)] + suffix)


def checkpoint_of(config: FitConfig) -> Path:
    """Where the checkpoint goes. Refuses outputs that cannot be written, before any work."""
    from rigpapr.asset import SUFFIX, is_asset

    if not is_asset(config.output):
        raise InputError(f"{config.output}: a fitted asset is named *{SUFFIX}.")
    if not config.output.absolute().parent.is_dir():
        raise InputError(f"{config.output}: the folder {config.output.parent} does not exist. Create it first.")
    if config.output.absolute() == config.asset.absolute():
        raise InputError(f"{config.output}: is the asset itself. Give the fitted asset another name.")
    if not config.coarse and config.phases == "coarse":
        raise InputError("--phases coarse needs the coarse tracker: leave out --no-coarse.")
    path = sibling(config.output, ".fit.safetensors")
    if config.resume and not path.is_file():
        raise InputError(f"--resume: there is no checkpoint at {path}. Start without --resume.")
    return path


def plan_of(config: FitConfig) -> TwoPhaseConfig:
    """The preset with what the user changed."""
    from rigpapr.two_phase import PRESETS

    plan = PRESETS[config.preset]
    return dataclasses.replace(plan, chain=not config.coarse, direct=plan.direct and config.coarse, seed=config.seed)


def _start(config: FitConfig, inputs: FitInputs, checkpoint: Path, motion: RigMotion | None) -> Fit:
    from rigpapr.two_phase import start_fit
    from rigpapr.two_phase_state import resume_fit

    fit = start_fit(
        inputs.cloud,
        inputs.rig,
        inputs.clip,
        motion=motion,
        depth=inputs.depth,
        tracks=inputs.tracks,
        config=plan_of(config),
    )
    if config.resume:
        resume_fit(checkpoint, fit)
    return fit


def _tracker(config: FitConfig, inputs: FitInputs, progress: Progress) -> Tracker:
    from rigpapr.coarse_tracker import tracker_of

    with progress.spinner("looking at the asset from all around"):
        return tracker_of(inputs.cloud, inputs.rig, inputs.clip, inputs.depth, seed=config.seed)


def _track(tracker: Tracker, inputs: FitInputs, progress: Progress, preview: Preview) -> RigMotion:
    """The coarse tracker alone, over the whole clip."""
    sketch = preview.sketch(inputs.cloud, inputs.rig)

    def tracked(frame: int, pose: JointPose) -> None:
        preview.show(f"coarse_{frame:04d}", frame, lambda: sketch(frame, pose))
        tick()

    with progress.bar("tracking", len(inputs.clip) - 1) as tick:
        return tracker.track(on_frame=tracked)


@contextmanager
def _bar(progress: Progress, text: str) -> Iterator[Callable[[int, int, float], None] | None]:
    """A bar with the running loss; None where progress is not shown."""
    if not progress.enabled:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(text, total=None)
        yield lambda done, total, loss: bars.update(
            task, completed=done, total=total, description=f"{text}, loss {loss:.4f}"
        )
