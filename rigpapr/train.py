"""Fitting a PAPR cloud to posed images: the schedule, the losses, growing and pruning, and checkpoints."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rigpapr.asset import build_cloud, cloud_tensors, load_tensors, save_tensors
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.dataset import Colour, View
from rigpapr.light import estimate_light
from rigpapr.raypool import Batch, RayPool
from rigpapr.refine import grow, prune
from rigpapr.renderer import render
from rigpapr.sight import borrow_colours, sight
from rigpapr.topk import search
from splatanim.errors import InputError

_CHECKPOINT_EVERY = 30.0  # s
_VERSION = 1


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Rates are Adam's, in cloud units; all rise over ``warmup`` steps and fall by a cosine.

    Training ends after ``steps``, or after ``seconds`` where steps is 0, on ``clock``: wall time, or the process's CPU
    time; then also after ``passes`` over all pixels that are drawn from (0: no such end), for a cloud that knows its
    views by heart poses worse. Each step draws ``rays`` from ``views`` random views, among the pixels within ``band``
    px of the mask (infinite: all). ``dropout`` is the share of points left out of a step, falling to none at the end,
    so that neighbours learn to stand in for each other. Losses: squared error of colour, and ``mask_weight`` times
    alpha's.

    The cloud starts with ``first_points``. The paper's refinement: every ``refine_every`` steps between a tenth and two
    thirds of the training, points without influence go, and ``grow`` are added until there are ``points``. Refinement
    by sight: at each share of the training in ``sweeps``, points whose attention stays below ``unseen`` in all training
    views go. They do nothing at rest, but would come to light, never trained, when the cloud is posed.

    At the end points that fewer pixels than ``borrow`` have shaped take over their neighbours' colour
    (:func:`rigpapr.sight.borrow_colours`; 0: none), and with ``light`` the lamp is estimated that posed points are lit
    by (:mod:`rigpapr.light`).
    """

    cloud: CloudConfig = field(default_factory=CloudConfig)
    points: int = 8000
    first_points: int = 8000
    seconds: float = 120.0
    steps: int = 0
    passes: float = 40.0
    clock: Literal["wall", "process"] = "wall"
    rays: int = 3072
    views: int = 8
    band: float = 8.0
    dropout: float = 0.15
    mask_weight: float = 1.0
    warmup: int = 50
    rate_points: float = 1e-2
    rate_features: float = 6e-2
    rate_influence: float = 5e-2
    rate_head: float = 2e-2
    last_rate: float = 0.01
    refine_every: int = 0
    grow: int = 0
    sweeps: tuple[float, ...] = (0.3, 0.6, 0.85)
    unseen: float = 0.05
    borrow: float = 4.0
    light: bool = True
    background: Colour = (1.0, 1.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps <= 0 and not self.seconds > 0:
            raise InputError("TrainConfig: give --steps or --seconds, at least one above 0.")
        for key in ("points", "first_points", "rays", "views"):
            if getattr(self, key) < 1:
                raise InputError(f"TrainConfig: {key} is {getattr(self, key)}; it must be at least 1.")
        if not 0 <= self.dropout < 0.9:
            raise InputError(f"TrainConfig: dropout is {self.dropout}; it must lie in [0, 0.9).")


PAPER = TrainConfig(
    cloud=CloudConfig(head="paper", neighbours=20),
    points=30_000,
    first_points=15_000,
    seconds=0.0,
    steps=250_000,
    passes=0.0,
    band=math.inf,
    rate_points=2e-3,
    rate_features=1e-3,
    rate_influence=1e-3,
    rate_head=3e-4,
    dropout=0.0,
    mask_weight=0.0,
    refine_every=500,
    grow=500,
    sweeps=(),
    borrow=0.0,
    light=False,
)
PRESETS = {"cpu": TrainConfig(), "paper": PAPER}


@dataclass
class Training:
    """A training in progress: all that a checkpoint holds.

    ``curve``: (step, seconds, PSNR over the last steps); ``swept``: how many of the sweeps are done. ``progress``, the
    share of the training that is done, follows from the rest.
    """

    cloud: PaprCloud
    optimiser: torch.optim.Optimizer
    step: int = 0
    elapsed: float = 0.0
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    swept: int = 0
    progress: float = 0.0


def start(cloud: PaprCloud, config: TrainConfig) -> Training:
    """A training of ``cloud``, which it changes in place."""
    return Training(cloud, _optimiser(cloud, config))


def _optimiser(cloud: PaprCloud, config: TrainConfig) -> torch.optim.Optimizer:
    groups = [
        {"params": [cloud.positions], "lr": config.rate_points, "rate": config.rate_points},
        {"params": [cloud.features], "lr": config.rate_features, "rate": config.rate_features},
        {"params": [cloud.influence], "lr": config.rate_influence, "rate": config.rate_influence},
        {"params": list(cloud.head.parameters()), "lr": config.rate_head, "rate": config.rate_head},
    ]
    return torch.optim.Adam(groups, eps=1e-10, fused=True)


def train(
    training: Training,
    config: TrainConfig,
    views: Sequence[View],
    *,
    checkpoint: Path | None = None,
    on_step: Callable[[Training, float], None] = lambda training, psnr: None,
) -> Training:
    """Train to the config's end, from wherever ``training`` is; ``on_step`` gets the running PSNR.

    A checkpoint is written every half minute and at an interrupt. Random numbers depend on (seed, step) alone, so a
    resumed run by steps repeats an uninterrupted one. Raises InputError where the loss becomes NaN.
    """
    training.cloud.set_light(None, None)
    pool = RayPool(views, training.cloud, config.band, config.background)
    clock = time.monotonic if config.clock == "wall" else time.process_time
    before, began, saved = training.elapsed, clock(), time.monotonic()
    mean = _last_error(training)
    try:
        while (progress := _progress(training, config, len(pool))) < 1.0:
            training.progress = progress
            rng = np.random.default_rng((config.seed, training.step))
            _set_rates(training.optimiser, config, training.step, progress)
            dropout = config.dropout * (1 - progress)
            error = _step(training, config, pool.draw(rng, config.rays, config.views), dropout, rng)
            if not math.isfinite(error):
                raise InputError(f"Step {training.step}: the loss is {error}. Lower the rates, or check the poses.")
            mean = error if math.isnan(mean) else 0.98 * mean + 0.02 * error
            training.step += 1
            _refine(training, config, progress, rng)
            _sweep(training, config, progress, views)
            training.elapsed = before + clock() - began
            psnr = -10 * math.log10(max(mean, 1e-12))
            if training.step % 50 == 0:
                training.curve.append((training.step, training.elapsed, psnr))
            on_step(training, psnr)
            if checkpoint is not None and time.monotonic() - saved > _CHECKPOINT_EVERY:
                write_checkpoint(checkpoint, training, config)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if checkpoint is not None:
            write_checkpoint(checkpoint, training, config)
        raise
    _finish(training.cloud, config, views)
    return training


def _finish(cloud: PaprCloud, config: TrainConfig, views: Sequence[View]) -> None:
    if not (config.borrow or config.light):
        return
    seen = sight(cloud, views)
    if config.borrow:
        borrow_colours(cloud, seen.attention, config.borrow)
    if config.light:
        estimate_light(cloud, seen, seed=config.seed)


def _progress(training: Training, config: TrainConfig, pixels: int) -> float:
    """The share of the training that is done, by whichever end comes first."""
    if config.steps > 0:
        return training.step / config.steps
    passes = training.step * config.rays / pixels
    return max(training.elapsed / config.seconds, passes / config.passes if config.passes else 0.0)


def _last_error(training: Training) -> float:
    return 10 ** (-training.curve[-1][2] / 10) if training.curve else math.nan


def _set_rates(optimiser: torch.optim.Optimizer, config: TrainConfig, step: int, progress: float) -> None:
    low = config.last_rate
    factor = low + (1 - low) * 0.5 * (1 + math.cos(math.pi * progress))
    factor *= min(1.0, (step + 1) / max(config.warmup, 1))
    for group in optimiser.param_groups:
        group["lr"] = group["rate"] * factor


def _step(training: Training, config: TrainConfig, batch: Batch, dropout: float, rng: np.random.Generator) -> float:
    """One step of Adam; returns the mean squared error of colour."""
    cloud = training.cloud
    device = cloud.positions.device
    rows = torch.from_numpy(_neighbours(cloud, batch, dropout, rng)).to(device)
    origins, directions = (torch.from_numpy(array).to(device) for array in (batch.origins, batch.directions))
    target = torch.from_numpy(batch.rgba).to(device)
    _, attention = cloud.attend(origins, directions, rows)
    seen, last = attention.weights[:, :-1], attention.weights[:, -1:]
    background = torch.tensor(config.background, device=device)
    rgb = (seen[..., None] * attention.colours).sum(1) + last * background
    error = (rgb - target[:, :3]).square().mean()
    loss = error
    if config.mask_weight:
        loss = loss + config.mask_weight * (1 - last[:, 0] - target[:, 3]).square().mean()
    training.optimiser.zero_grad()
    loss.backward()
    training.optimiser.step()
    return error.item()


def _neighbours(cloud: PaprCloud, batch: Batch, dropout: float, rng: np.random.Generator) -> np.ndarray:
    """(R, K) rows, int64, of the points nearest to the batch's rays, some points left out at random."""
    points = cloud.positions.detach()
    kept = None
    if dropout:
        kept = np.flatnonzero(rng.random(len(points)) >= dropout)
        points = points[torch.from_numpy(kept).to(points.device)]
    k = cloud.config.neighbours
    parts = [search(points, camera, pixels, k) for camera, pixels in batch.parts]
    rows = np.concatenate(parts).astype(np.int64)
    return rows if kept is None else np.where(rows >= 0, kept[rows], -1)


def _refine(training: Training, config: TrainConfig, progress: float, rng: np.random.Generator) -> None:
    if not config.refine_every or training.step % config.refine_every or not 0.1 < progress < 2 / 3:
        return
    prune(training.cloud, training.optimiser, training.cloud.influence.detach() > 0)
    grow(training.cloud, training.optimiser, min(config.grow, config.points - len(training.cloud)), rng)


def _sweep(training: Training, config: TrainConfig, progress: float, views: Sequence[View]) -> None:
    if training.swept < len(config.sweeps) and progress >= config.sweeps[training.swept]:
        training.swept += 1
        prune(training.cloud, training.optimiser, most_attention(training.cloud, views) >= config.unseen)


def most_attention(cloud: PaprCloud, views: Sequence[View]) -> Tensor:
    """(N,) the largest attention that each point has in any pixel of the views."""
    most = torch.zeros(len(cloud))
    for view in views:
        picture = render(cloud, view.camera)
        seen = picture.weights > 1e-3
        rows, weights = picture.indices[seen].astype(np.int64), picture.weights[seen]
        most.scatter_reduce_(0, torch.from_numpy(rows), torch.from_numpy(weights), "amax")
    return most.to(cloud.positions.device)


def write_checkpoint(path: Path, training: Training, config: TrainConfig) -> None:
    """Cloud, Adam's moments, step, time and curve in one safetensors file, whole or not at all."""
    tensors = {f"cloud.{name}": value for name, value in cloud_tensors(training.cloud).items()}
    for name, parameter in training.cloud.named_parameters():
        for key, value in training.optimiser.state.get(parameter, {}).items():
            tensors[f"adam.{name}.{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
    header = {
        "version": _VERSION,
        "config": training.cloud.config.to_json(),
        "training": dataclasses.asdict(config),
        "step": training.step,
        "elapsed": training.elapsed,
        "curve": training.curve,
        "swept": training.swept,
    }
    save_tensors(path, tensors, "papr_training", header)


def read_checkpoint(path: Path, config: TrainConfig, device: str = "cpu") -> Training:
    """A training as :func:`write_checkpoint` left it, to go on with under ``config`` (its end and rates may differ).

    Raises InputError for a damaged or newer file, NaN in it, or another kind of cloud than the config asks for.
    """
    tensors, header = load_tensors(path, "papr_training")
    if not isinstance(header.get("version"), int) or header["version"] > _VERSION:
        raise InputError(
            f"{path}: is a checkpoint of version {header.get('version')}; update: pip install -U splatanim."
        )
    cloud = build_cloud(path, _part(tensors, "cloud."), header)
    if cloud.config != config.cloud:
        raise InputError(
            f"{path}: holds a cloud of {cloud.config}, asked for is {config.cloud}. Resume with its preset."
        )
    cloud = cloud.to(device)
    training = start(cloud, config)
    for name, parameter in cloud.named_parameters():
        moments = _part(tensors, f"adam.{name}.")
        if moments:
            state: dict[str, Any] = {key: value.to(device) for key, value in moments.items()}
            training.optimiser.state[parameter] = state
    try:
        training.step, training.elapsed = int(header["step"]), float(header["elapsed"])
        training.swept = int(header["swept"])
        training.curve = [(int(a), float(b), float(c)) for a, b, c in header["curve"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the checkpoint is damaged ({error!r}). Start again without --resume.") from None
    return training


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
