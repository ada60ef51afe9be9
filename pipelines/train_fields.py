"""``splatanim train-fields``: a folder of meshes to weights of the neural skinning field."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from splatanim.field.dataset import Dataset
    from splatanim.field.neural_model import ModelConfig
    from splatanim.field.train import TrainConfig, Training


# Weight of eq. 22 in eq. 23: the share is squared, and small to begin with. ConFIG lets each loss fall at the same
# relative pace, by which the share stood at 0.30 after 300 steps; in the plain sum it fell to 0.08 within ten minutes.
_COMPLEMENTARY = 3000.0


@dataclass(frozen=True)
class TrainFieldsConfig:
    """Train the network of the neural skinning field on a folder of meshes, without labels.

    Under ``torchrun`` each process takes its own batches and gradients are averaged. Ctrl-C loses at most a minute:
    start again with --resume.

    Args:
        folder: The meshes (.ply, .obj, .off, .stl, .glb or .gltf), closed ones for the most part. An index.csv with
            the columns file and split (train or val) is honoured.
        output: The weights to write (.safetensors); their config and provenance go beside them, as .json.
        preset: Size of the network: small (1 M parameters, one CPU core will do) or paper (a GPU).
        objective: ritz (32 raw fields that distil the lowest-energy subspace; best for animating) or paper (16
            fields, trained by elastic energy, smoothness and orthogonality).
        complementary: Fields for the elastic motion of rigged characters: the folder and those in it hold skinned
            .glb and .gltf files, and fields are trained to have no product with what their rigs do (objective paper).
        held_out: With --complementary, models (names without suffix, with commas) that are not trained on.
        seconds: How long to train.
        steps: How many steps to train, instead of seconds; then a run is repeatable bit for bit.
        seed: Seed of everything random.
        resume: A checkpoint to go on from. Checkpoints lie beside the output, as .checkpoint.pt.
        init: Weights (.safetensors) of an earlier training to start from, of any objective.
        cache: Where the voxels and exact modes of the meshes are kept; beside the output by default.
        generated: Seeded shapes (trees of capsules, boxes, tori) added to the meshes.
        encoder: Weights of a Michelangelo encoder (.ckpt, .pt or .safetensors) to start from; preset paper only.
        freeze_encoder: Leave the encoder as it is loaded.
        pretrain: occupancy trains the encoder first, to tell inside from outside.
        pretrain_seconds: How long.
        batch: Shapes a step; 0 for the objective's own number.
        points: Points a shape and step; 0 for the objective's own number.
        half: Store the weights in half precision, half the size.
        recipe: Repeat how the weights that come with splatanim were made (shipped): network, stages, steps, seeds and
            number of generated shapes are the recipe's, so that options of the training are refused beside it.
    """

    folder: Positional[Path]
    output: Annotated[Path, arg(aliases=["-o"])] = Path("weights.safetensors")
    preset: Literal["small", "paper"] = "small"
    objective: Literal["ritz", "paper"] = "ritz"
    complementary: bool = False
    held_out: str = ""
    seconds: float = 1200.0
    steps: int = 0
    seed: int = 0
    resume: Path | None = None
    init: Path | None = None
    cache: Path | None = None
    generated: int = 40
    encoder: Path | None = None
    freeze_encoder: bool = False
    pretrain: Literal["none", "occupancy"] = "none"
    pretrain_seconds: float = 120.0
    batch: int = 0
    points: int = 0
    half: bool = False
    recipe: Literal["none", "shipped"] = "none"


def train_fields(config: TrainFieldsConfig, progress: Progress) -> str:
    """Train, write weights and JSON; returns what to print."""
    from splatanim.field.neural_model import save_model
    from splatanim.field.train import train

    _check(config)
    if config.recipe != "none":
        return _follow(config, progress)
    with _processes() as rank:
        data = _data(config, config.generated, progress if rank == 0 else Progress(False))
        model_config, settings = resolve(config)
        training = _start(config, model_config, settings, data)
        checkpoint = config.output.with_suffix(".checkpoint.pt")
        with _bar(progress if rank == 0 else Progress(False), training, settings) as tick:
            train(training, settings, data.split("train"), checkpoint=checkpoint, on_step=tick)
        if rank:
            return ""
        made = provenance(config, settings, data, training)
        save_model(training.model.eval(), config.output, made, half=config.half)
    return _summary(config, data, training)


def _follow(config: TrainFieldsConfig, progress: Progress) -> str:
    """Train by a recipe."""
    from splatanim.field.neural_model import save_model
    from splatanim.field.train_recipes import RECIPES, follow

    recipe = RECIPES[config.recipe]
    checkpoints = [config.output.with_suffix(f".stage{k + 1}.checkpoint.pt") for k in range(len(recipe.stages))]
    with _processes() as rank:
        shown = progress if rank == 0 else Progress(False)
        data = _data(config, recipe.generated, shown)
        total = sum(stage.training.stop or stage.training.steps for stage in recipe.stages)
        with shown.bar("training", total) as advance:
            training, stages = follow(
                recipe, data.split("train"), checkpoints, resume=config.resume, on_step=lambda training: advance()
            )
        if rank:
            return ""
        made = {"recipe": config.recipe, "options": _options(config), "data": _origin(config, recipe.generated, data)}
        save_model(training.model.eval(), config.output, {**made, "stages": stages}, half=config.half)
    return _summary(config, data, training)


def resolve(config: TrainFieldsConfig) -> tuple[ModelConfig, TrainConfig]:
    """The full configs of network and training that the options stand for."""
    from splatanim.field.neural_model import PRESETS
    from splatanim.field.train import TrainConfig

    model = PRESETS[config.preset]
    common: dict[str, Any] = {
        "objective": config.objective,
        "seconds": config.seconds,
        "steps": config.steps,
        "seed": config.seed,
        "surface": model.surface_points // 2 if config.preset == "small" else model.surface_points,
        "freeze_encoder": config.freeze_encoder,
    }
    if config.objective == "paper":
        model = dataclasses.replace(
            model, fields=16, oni=True, warp=0, affine=False, direct=config.preset == "small", metric=True
        )
        if config.preset == "paper":
            sizes: dict[str, Any] = {"batch": config.batch or 4, "points": config.points or 1000, "rate": 5e-4}
        else:
            sizes = {"batch": config.batch or 2, "points": config.points or 512, "rate": 1e-3}
        if config.complementary:
            sizes |= {"points": config.points or 256, "gram": 1024, "rate": 2 * sizes["rate"], "config": False}
        weight = _COMPLEMENTARY if config.complementary else 0.0
        return model, TrainConfig(**common, **sizes, last_rate=5e-5, w_orthogonal=0.02, w_complementary=weight)
    model = dataclasses.replace(model, fields=32, oni=False, warp=16, affine=True, direct=True)
    return model, TrainConfig(**common, batch=config.batch or 1, points=config.points or 4096)


def provenance(config: TrainFieldsConfig, settings: TrainConfig, data: Dataset, training: Training) -> dict[str, Any]:
    """What the JSON beside the weights says of their making."""
    from splatanim.field.train_recipes import record

    made = {"options": _options(config), "data": _origin(config, config.generated, data)}
    return made | record(training, settings)


def _options(config: TrainFieldsConfig) -> dict[str, Any]:
    """The options, files by name only: where they lay says nothing to others."""
    return {key: value.name if isinstance(value, Path) else value for key, value in vars(config).items()}


def _origin(config: TrainFieldsConfig, generated: int, data: Dataset) -> dict[str, Any]:
    return {"summary": data.summary(), "generated": generated, "licences": _licences(config.folder)}


def _check(config: TrainFieldsConfig) -> None:
    if config.output.suffix != ".safetensors":
        raise InputError(f"{config.output}: weights are written as .safetensors. Name the output NAME.safetensors.")
    if config.encoder is not None and config.preset != "paper":
        raise InputError("--encoder holds a network of the preset paper. Add --preset paper, or leave it out.")
    if config.complementary and config.objective != "paper":
        raise InputError("--complementary trains 16 fields by eq. 23. Add --objective paper.")
    if config.held_out and not config.complementary:
        raise InputError("--held-out names rigged models: it goes with --complementary.")
    if config.generated < 0:
        raise InputError(f"--generated is {config.generated}; it must not be negative.")
    if config.recipe != "none":
        free = {"folder", "output", "cache", "resume", "half", "recipe"}
        given = [f for f in dataclasses.fields(config) if f.name not in free and getattr(config, f.name) != f.default]
        if given:
            names = ", ".join("--" + f.name.replace("_", "-") for f in given)
            raise InputError(f"--recipe {config.recipe} fixes how to train; leave out {names}.")


def _data(config: TrainFieldsConfig, count: int, progress: Progress) -> Dataset:
    """The folder's shapes and ``count`` generated ones."""
    from splatanim.field.dataset import generated, load_dataset, mesh_files

    if config.complementary:
        from splatanim.field.dataset_rigged import invented_rig, rigged_dataset

        with progress.spinner("reading the rigs"):
            data = rigged_dataset(config.folder, tuple(name for name in config.held_out.split(",") if name))
        shapes = enumerate(generated(count, config.seed))
        data.shapes.extend(invented_rig(shape, config.seed + number) for number, shape in shapes)
        return data
    cache = config.cache or config.output.with_suffix(".cache")
    with progress.bar("shapes", len(mesh_files(config.folder))) as tick:
        data = load_dataset(config.folder, cache, tick)
    data.shapes.extend(generated(count, config.seed))
    return data


def _start(config: TrainFieldsConfig, model: ModelConfig, settings: TrainConfig, data: Dataset) -> Training:
    from splatanim.field.train import load_checkpoint, start

    if config.resume is not None:
        return load_checkpoint(config.resume, model, settings)
    training = start(model, settings)
    if config.init is not None:
        from splatanim.field.neural_model import copy_matching

        copy_matching(training.model, config.init)
    if config.encoder is not None:
        from splatanim.field.encoder_weights import load_michelangelo

        load_michelangelo(training.model.encoder, config.encoder)
    if config.pretrain == "occupancy":
        from splatanim.field.train_occupancy import pretrain

        pretrain(training.model, data.split("train"), seconds=config.pretrain_seconds, seed=config.seed)
    return training


@contextmanager
def _bar(progress: Progress, training: Training, settings: TrainConfig) -> Iterator[Any]:
    """A bar over steps, or over seconds of training."""
    done = training.step if settings.steps else int(training.elapsed)
    total = (settings.steps or int(settings.seconds)) - done
    with progress.bar("training", total) as advance:
        shown = done

        def tick(now: Training) -> None:
            nonlocal shown
            reached = now.step if settings.steps else int(now.elapsed)
            while shown < reached:
                advance()
                shown += 1

        yield tick


@contextmanager
def _processes() -> Iterator[int]:
    """Join the other processes of torchrun, if there are any; yields the rank."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield 0
        return
    from torch import cuda, distributed

    distributed.init_process_group("nccl" if cuda.is_available() else "gloo")
    try:
        yield distributed.get_rank()
        distributed.barrier()  # one that leaves first would cut the connection of the others in mid-talk
    finally:
        distributed.destroy_process_group()


def _licences(folder: Path) -> list[dict[str, Any]]:
    """Licences and authors of the meshes from the index; where a licence asks for attribution, the files too."""
    import csv

    index = folder / "index.csv"
    if not index.is_file():
        return []
    found: dict[tuple[str, str, str], list[str]] = {}
    with index.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            key = (row.get("licence") or "", row.get("author") or "", row.get("source") or "")
            found.setdefault(key, []).append(row["file"])
    rows = []
    for (licence, author, source), files in sorted(found.items()):
        row = {"licence": licence, "author": author, "source": source, "meshes": len(files)}
        rows.append(row | {"files": files} if licence.upper().startswith("CC-BY") else row)
    return rows


def _summary(config: TrainFieldsConfig, data: Dataset, training: Training) -> str:
    losses = ", ".join(f"{name} {value:.4g}" for name, value in training.curve[-1][2].items()) if training.curve else ""
    rows = [data.summary(), f"{training.step} steps in {training.elapsed:.0f} s" + (f": {losses}" if losses else "")]
    rows.append(f"wrote {config.output} and {config.output.with_suffix('.json').name}")
    return "\n".join(rows)
