"""Schedules of several stages by name, so that one command repeats how weights were made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from splatanim.errors import InputError
from splatanim.field.dataset import Shape
from splatanim.field.neural_model import SMALL, ModelConfig
from splatanim.field.train import TrainConfig, Training, load_checkpoint, start, train


@dataclass(frozen=True)
class Stage:
    """One training of a recipe; from the second on it starts from the weights of the one before."""

    training: TrainConfig
    note: str


@dataclass(frozen=True)
class Recipe:
    """A network and the stages of its training, on the meshes and ``generated`` seeded shapes."""

    model: ModelConfig
    stages: tuple[Stage, ...]
    generated: int = 40


# Counted in steps, so that a machine's speed does not matter. The shipped weights were trained by the clock: their
# first stage reached step 4986 after 87 % of its time, 5717 steps at that pace.
RECIPES = {
    "shipped": Recipe(
        SMALL,
        (
            Stage(
                TrainConfig("ritz", steps=5717, stop=4986, batch=4, points=768, rate=1.2e-3, seed=0),
                "stopped before the end of its schedule; 768 points for 177 functions let least squares fit the sample",
            ),
            Stage(
                TrainConfig("ritz", steps=2944, batch=1, points=4096, rate=6e-4, seed=1),
                "from the weights of the first stage, on (nearly) all voxels of one shape a step",
            ),
        ),
    ),
}


def follow(
    recipe: Recipe,
    shapes: Sequence[Shape],
    checkpoints: Sequence[Path],
    *,
    resume: Path | None = None,
    on_step: Callable[[Training], None] = lambda training: None,
) -> tuple[Training, list[dict[str, Any]]]:
    """Train all stages; returns the last one's training and a record of each, for the provenance.

    ``checkpoints``: a file per stage. ``resume``: one of them, to go on from; earlier stages are read from theirs.

    Raises :class:`InputError` when the checkpoint to resume is of none of the stages.
    """
    first = _stage_of(recipe, resume) if resume is not None else 0
    training = None
    records = []
    for number, (stage, checkpoint) in enumerate(zip(recipe.stages, checkpoints)):
        if number < first:
            training = load_checkpoint(checkpoint, recipe.model, stage.training)
        elif number == first and resume is not None:
            training = train(
                load_checkpoint(resume, recipe.model, stage.training),
                stage.training, shapes, checkpoint=checkpoint, on_step=on_step,
            )  # fmt: skip
        else:
            fresh = start(recipe.model, stage.training)
            if training is not None:
                fresh.model.load_state_dict(training.model.state_dict())
            training = train(fresh, stage.training, shapes, checkpoint=checkpoint, on_step=on_step)
        records.append(record(training, stage.training) | {"note": stage.note})
    assert training is not None
    return training, records


def record(training: Training, config: TrainConfig) -> dict[str, Any]:
    """Config, length and curve of a training, as the JSON beside weights keeps them."""
    return {
        "training": dataclasses.asdict(config),
        "steps": training.step,
        "seconds": round(training.elapsed, 1),
        "curve": [{"step": step, "seconds": seconds, **losses} for step, seconds, losses in training.curve],
    }


def _stage_of(recipe: Recipe, checkpoint: Path) -> int:
    """Which stage a checkpoint is of, told by its training config."""
    try:
        kept = torch.load(checkpoint, weights_only=True)["train_config"]
    except Exception as error:  # a missing file, or a zip, pickle or key error, according to the damage
        raise InputError(f"{checkpoint}: not a checkpoint of train-fields ({error!r}). Leave --resume out.") from error
    for number, stage in enumerate(recipe.stages):
        if kept == dataclasses.asdict(stage.training):
            return number
    raise InputError(
        f"{checkpoint}: this checkpoint is of no stage of the recipe. Give the one beside the output, or leave "
        "--resume out."
    )
