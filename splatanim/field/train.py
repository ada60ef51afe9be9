"""Training of neural skinning fields, without labels: the loop, its schedule, checkpoints and several processes."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, distributed

from splatanim.errors import InputError
from splatanim.field.dataset import Shape
from splatanim.field.neural_model import FieldModel, ModelConfig, seeded_model
from splatanim.field.train_batch import draw_batch, usable
from splatanim.field.train_objectives import OBJECTIVES, Terms

_CHECKPOINT_EVERY = 60.0  # s


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    ``objective``: ``ritz`` distils the exact low-energy subspace into more raw fields than handles, ``paper`` is eq. 6.
    Training ends after ``steps``, or after ``seconds`` where steps is 0; ``stop`` > 0 ends a schedule of ``steps``
    early. ``batch`` shapes, ``points`` query points and ``surface`` points each. The rate rises to ``rate`` over the
    first 1 % and falls to ``last_rate`` by a cosine.

    For ``ritz``: ``centres`` Gaussians beside the fields; the points must outnumber all raw functions many times, or
    least squares fits the sample rather than the shape. For ``paper``: norms and products of columns over ``gram``
    points, energies over ``points``; ``deviation`` mu of z, the mean taken in closed form or, with ``samples`` > 0,
    over that many; weights ``w_potential`` and ``w_orthogonal`` of eq. 6 and ``w_complementary`` of eq. 23 (shapes
    then need rigs), and switches for the ablations:
    ``normalise`` columns on the fly, merge gradients by ``config`` (ConFIG; otherwise their sum).
    """

    objective: Literal["ritz", "paper"] = "ritz"
    seconds: float = 1200.0
    steps: int = 0
    stop: int = 0
    batch: int = 1
    points: int = 4096
    surface: int = 512
    rate: float = 8e-4
    last_rate: float = 3e-5
    weight_decay: float = 1e-4
    seed: int = 0
    centres: int = 48
    gram: int = 2048
    samples: int = 0
    deviation: float = 0.2
    w_smooth: float = 1.0
    w_potential: float = 1.0
    w_orthogonal: float = 1.0
    w_complementary: float = 0.0
    normalise: bool = True
    config: bool = True
    freeze_encoder: bool = False

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(f"TrainConfig: no objective {self.objective!r}; there are {', '.join(OBJECTIVES)}.")
        if self.steps <= 0 and not self.seconds > 0:
            raise InputError("TrainConfig: give --steps or --seconds, at least one above 0.")
        if self.stop and not 0 < self.stop <= self.steps:
            raise InputError(f"TrainConfig: stop is {self.stop}; it must lie between 1 and steps ({self.steps}).")
        for key in ("batch", "points", "surface", "centres", "gram"):
            if getattr(self, key) < 1:
                raise InputError(f"TrainConfig: {key} is {getattr(self, key)}; it must be at least 1.")


@dataclass
class Training:
    """A training in progress: all that a checkpoint holds."""

    model: FieldModel
    optimiser: torch.optim.Optimizer
    step: int = 0
    elapsed: float = 0.0
    curve: list[tuple[int, float, dict[str, float]]] = dataclasses.field(default_factory=list)


def start(model_config: ModelConfig, config: TrainConfig) -> Training:
    """Fresh weights from the seed."""
    return _training(seeded_model(model_config, config.seed), config)


def _training(model: FieldModel, config: TrainConfig) -> Training:
    if config.freeze_encoder:
        model.encoder.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, config.rate, betas=(0.9, 0.98), weight_decay=config.weight_decay)
    return Training(model.train(), optimiser)


def train(
    training: Training,
    config: TrainConfig,
    shapes: Sequence[Shape],
    *,
    checkpoint: Path | None = None,
    on_step: Callable[[Training], None] = lambda training: None,
    every: int = 100,
    clock: Callable[[], float] = time.monotonic,
) -> Training:
    """Train until the config's end, from wherever ``training`` is; a checkpoint is written each minute and at the end.

    ``clock`` [s] is what the config's seconds are counted by.

    Every ``every`` steps the mean of each loss goes into ``training.curve``. Randomness depends on (seed, process,
    step) alone, so a resumed run by steps repeats an uninterrupted one bit for bit.

    Raises :class:`InputError` when no shape can be trained on.
    """
    pool = usable(shapes)
    if not pool:
        raise InputError(
            f"None of the {len(shapes)} shapes can be trained on: all are tiny or fall into many loose parts."
        )
    if config.w_complementary > 0 and all(getattr(shape, "bones", None) is None for shape in pool):
        raise InputError("None of the shapes has a rig to be complementary to. Train on rigged models (.glb, .gltf).")
    rank, world = _process()
    before, began, saved = training.elapsed, clock(), time.monotonic()
    recent: list[dict[str, float]] = []
    _broadcast(training.model)
    while (progress := _progress(training, config)) < 1.0 and not 0 < config.stop <= training.step:
        for group in training.optimiser.param_groups:
            group["lr"] = rate_at(progress, config)
        recent.append(_step(training, config, pool, rank, progress))
        training.step += 1
        training.elapsed = _agree(before + clock() - began, world)
        if training.step % every == 0:
            means = {name: float(np.mean([losses[name] for losses in recent])) for name in recent[0]}
            training.curve.append((training.step, round(training.elapsed, 1), means))
            recent = []
        if checkpoint is not None and rank == 0 and time.monotonic() - saved > _CHECKPOINT_EVERY:
            save_checkpoint(training, config, checkpoint)
            saved = time.monotonic()
        on_step(training)
    if checkpoint is not None and rank == 0:
        save_checkpoint(training, config, checkpoint)
    return training


def rate_at(progress: float, config: TrainConfig) -> float:
    """Linear warm-up over the first 1 %, then a cosine down to the last rate."""
    if progress < 0.01:
        return config.rate * max(progress, 1e-4) / 0.01
    fall = 0.5 * (1.0 + math.cos(math.pi * (progress - 0.01) / 0.99))
    return config.last_rate + (config.rate - config.last_rate) * fall


def _progress(training: Training, config: TrainConfig) -> float:
    return training.step / config.steps if config.steps > 0 else training.elapsed / config.seconds


def _step(
    training: Training, config: TrainConfig, pool: Sequence[Shape], rank: int, progress: float
) -> dict[str, float]:
    rng = np.random.default_rng([config.seed, rank, training.step])
    size, ritz = training.model.config, config.objective == "ritz"
    batch = draw_batch(
        pool,
        rng,
        batch=config.batch,
        points=config.points if ritz else max(config.points, config.gram),
        surface=max(config.surface, size.latents),
        anchors=0 if size.michelangelo else size.latents,
        blocks=ritz,
    )
    terms = OBJECTIVES[config.objective](training.model, batch, config, progress, rng)
    trained = [p for p in training.model.parameters() if p.requires_grad]
    _assign(trained, _merged(terms, trained, config))
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    training.optimiser.step()
    return {name: float(loss.detach()) for name, loss in terms.items()}


def _merged(terms: Terms, trained: list[torch.nn.Parameter], config: TrainConfig) -> Tensor:
    """The update direction as one vector, the same in all processes."""
    conflict = config.objective == "paper" and config.config and len(_groups(terms)) > 1
    losses = _groups(terms) if conflict else [torch.stack(list(terms.values())).sum()]
    rows = []
    for number, loss in enumerate(losses):
        parts = torch.autograd.grad(loss, trained, retain_graph=number + 1 < len(losses), allow_unused=True)
        rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(trained, parts)]))
    stacked = torch.stack(rows)
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(stacked)
        stacked /= distributed.get_world_size()
    if not conflict:
        return stacked[0]
    from splatanim.field.losses import conflict_free

    return conflict_free(stacked)


def _groups(terms: Terms) -> list[Tensor]:
    """Losses whose gradients are kept apart. Smoothness and potential energy count as one: their gradients point the
    same way (cosine 0.95 to 0.99 throughout), and every further group costs one more pass backward."""
    energies = [loss for name, loss in terms.items() if name in ("smooth", "potential")]
    others = [loss for name, loss in terms.items() if name not in ("smooth", "potential")]
    return [torch.stack(energies).sum(), *others] if energies else others


def _assign(trained: list[torch.nn.Parameter], vector: Tensor) -> None:
    start = 0
    for parameter in trained:
        size = parameter.numel()
        parameter.grad = vector[start : start + size].view_as(parameter).clone()
        start += size


def _process() -> tuple[int, int]:
    """Rank and number of processes (0 and 1 without torchrun)."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _broadcast(model: FieldModel) -> None:
    if _process()[1] > 1:
        for parameter in model.parameters():
            distributed.broadcast(parameter.data, 0)


def _agree(elapsed: float, world: int) -> float:
    """The first process's clock, so that all stop at the same step."""
    if world == 1:
        return elapsed
    clock = torch.tensor([elapsed], dtype=torch.float64)
    distributed.broadcast(clock, 0)
    return float(clock)


def save_checkpoint(training: Training, config: TrainConfig, path: Path) -> None:
    """Write a checkpoint whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    state: dict[str, Any] = {
        "model_config": dataclasses.asdict(training.model.config),
        "train_config": dataclasses.asdict(config),
        "model": training.model.state_dict(),
        "optimiser": training.optimiser.state_dict(),
        "step": training.step,
        "elapsed": training.elapsed,
        "curve": training.curve,
    }
    torch.save(state, partial)
    partial.replace(path)


def load_checkpoint(path: Path, model_config: ModelConfig, config: TrainConfig) -> Training:
    """Continue from a checkpoint; its sizes and objective must be those asked for (its end and rates need not).

    Raises :class:`InputError` when the file is missing, damaged, or of another config, which is named.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint. Leave --resume out to start anew.")
    try:
        state = torch.load(path, weights_only=True)
        old, old_train = state["model_config"], state["train_config"]
    except Exception as error:  # a zip, pickle or key error, according to the damage
        raise InputError(f"{path}: not a checkpoint of train-fields ({error!r}). Leave --resume out.") from error
    new = dataclasses.asdict(model_config) | {"objective": config.objective}
    old = old | {"objective": old_train["objective"]}
    wrong = [f"{key} is {old.get(key)} there and {value} here" for key, value in new.items() if old.get(key) != value]
    if wrong:
        raise InputError(f"{path}: this checkpoint is of another config ({'; '.join(wrong)}). Give the same options.")
    training = _training(FieldModel(model_config), config)
    training.model.load_state_dict(state["model"])
    training.optimiser.load_state_dict(state["optimiser"])
    training.step, training.elapsed, training.curve = state["step"], state["elapsed"], state["curve"]
    return training
