"""Studies of the training of neural fields: the paper's comparison, ablations, and pre-training of the encoder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64

from pipelines.progress import Progress
from splatanim.data import Domain

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.evaluate_fields import EvaluateFieldsConfig, Shape
    from splatanim.field.dataset import Dataset
    from splatanim.field.neural_model import FieldModel
    from splatanim.field.train import TrainConfig, Training

Table = tuple[list[dict[str, object]], str]
# name of an ablation: changes of the training, of the network
ABLATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({}, {}),
    "without the object's metric": ({}, {"metric": False}),
    "without normalisation": ({"normalise": False}, {}),
    "without ONI": ({}, {"oni": False}),
    "without ConFIG": ({"config": False}, {}),
    "without smoothness": ({"w_smooth": 0.0}, {}),
    "without potential energy": ({"w_potential": 0.0}, {}),
    "without orthogonality": ({"w_orthogonal": 0.0}, {}),
}
SAMPLE = 4096  # voxels that the metric layer is fixed on in a row of its own
PRETRAINED = 0.25  # of the time, where the encoder is pre-trained


def own_output(
    network: FieldModel,
    domain: Domain,
    points: Float[np.ndarray, "n 3"] | None = None,
    *,
    fixed_on: int = 0,
    seed: int = 0,
) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m"]]:
    """The network's fields at points (all voxels without them): those of its last linear layer, and after the metric
    layer where it has one.

    The metric layer's constants are fixed on all voxels, or on ``fixed_on`` random ones where that is above 0.
    """
    import torch

    from splatanim.field.decoder import orthonormaliser
    from splatanim.field.neural import raw_model

    voxels = raw_model(network, domain, domain.centres, seed=seed)
    linear = voxels if points is None else raw_model(network, domain, points, seed=seed)
    if not network.config.metric:
        return linear, linear
    known = np.random.default_rng(seed).permutation(voxels)[: fixed_on or None]
    return linear, linear @ orthonormaliser(torch.from_numpy(known)[None], iterations=45, ridge=1e-12)[0].numpy()


def comparison_study(config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress) -> Table:
    """The paper's protocol: Omega_orth, kappa_log, H_spec (eq. 29-31) at the voxels, means over the shapes."""
    from splatanim.field.ritz import subspace_ratio
    from splatanim.metrics import skinning_metrics

    rows: list[dict[str, object]] = []
    with progress.bar("comparing", len(shapes)) as tick:
        for number, shape in enumerate(shapes):
            for name, fields in _contenders(config, shape.domain, trained=number < config.simplicits).items():
                start = time.process_time()
                weights = fields()
                seconds = time.process_time() - start
                ratio = subspace_ratio(weights, shape.domain, shape.exact, min(16, weights.shape[1] + 1))
                figures = dataclasses.asdict(skinning_metrics(weights))
                rows.append({"fields": name, "file": shape.file, "ratio": ratio, "seconds": seconds, **figures})
            tick()
    lines = [
        "\n## The network's own output in the paper's protocol",
        f"\nMeans over the shapes, {config.handles} fields each, at the voxels; worst in brackets. Bound fields have "
        "the constant beside them, raw ones may hold it.\n",
        "| fields | shapes | Omega_orth | kappa_log | H_spec | ratio | CPU seconds (median) |",
        "|---|---|---|---|---|---|---|",
    ]
    return rows, "\n".join([*lines, *_rows(rows)])


def _contenders(
    config: EvaluateFieldsConfig, domain: Domain, *, trained: bool
) -> dict[str, Callable[[], Float[np.ndarray, "v k"]]]:
    from splatanim.field.eigenmodes import bind_eigenmodes
    from splatanim.field.gaussians import bind_gaussians
    from splatanim.field.neural import bind_neural
    from splatanim.field.neural_model import SHIPPED_PAPER
    from splatanim.field.simplicits import bind_simplicits
    from splatanim.field.subspace import raw_functions

    handles, seed = config.handles, config.seed
    every: dict[str, Callable[[], np.ndarray]] = {}
    paper = config.paper_weights or SHIPPED_PAPER
    every["network, paper's objective: last linear layer"] = lambda: _own(paper, domain, seed)[0]
    if _load(paper).config.metric:
        every["network, paper's objective: its output"] = lambda: _own(paper, domain, seed)[1]
        every[f"the same, layer fixed on {SAMPLE} voxels"] = lambda: _own(paper, domain, seed, SAMPLE)[1]
    every["shipped network (32 fields), raw"] = lambda: _own(config.weights, domain, seed)[1]
    every["bound: neural"] = lambda: bind_neural(domain, handles, weights=config.weights, seed=seed).weights(
        domain.centres
    )
    every["bound: Gaussians"] = lambda: bind_gaussians(domain, handles, seed=seed).weights(domain.centres)
    every[f"{handles} Gaussians, raw"] = lambda: raw_functions(
        bind_gaussians(domain, handles - 1, raw=handles, seed=seed), domain
    )
    every["bound: eigenmodes"] = lambda: bind_eigenmodes(domain, handles).weights(domain.centres)
    if trained:
        steps = config.simplicits_steps
        kept: list[Any] = []

        def simplicits() -> np.ndarray:
            kept.append(bind_simplicits(domain, handles, steps=steps, seed=seed))
            return raw_functions(kept[0], domain)

        every[f"Simplicits, raw ({steps} steps an object)"] = simplicits
        every["bound: Simplicits"] = lambda: kept[0].weights(domain.centres)
    return every


def _own(weights: Path | None, domain: Domain, seed: int, fixed_on: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return own_output(_load(weights), domain, fixed_on=fixed_on, seed=seed)


def _load(weights: Path | None) -> FieldModel:
    from splatanim.field.neural_model import load_model

    return load_model(weights).double()


def ablation_study(config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress) -> Table:
    """The paper's objective without each of its parts: short trainings of the same length, the network's own output."""
    from pipelines.train_fields import TrainFieldsConfig, resolve
    from splatanim.field.neural_model import copy_matching
    from splatanim.field.train import start

    data = _data(config)
    options = TrainFieldsConfig(config.folder, objective="paper", seconds=config.ablation_seconds, seed=config.seed)
    model, settings = resolve(options)
    rows: list[dict[str, object]] = []
    with progress.bar("ablations", len(ABLATIONS)) as tick:
        for name, (training_changes, model_changes) in ABLATIONS.items():
            changed = dataclasses.replace(settings, **training_changes)
            state = start(dataclasses.replace(model, **model_changes), changed)
            if config.ablation_init is not None:
                copy_matching(state.model, config.ablation_init)
            _train(state, changed, data)
            rows += [{"ablation": name, **row} for row in _measured(state, shapes, config.seed)]
            tick()
    begun = f"from {config.ablation_init.name}" if config.ablation_init is not None else "from fresh weights"
    lines = [
        "\n## Ablation",
        f"\nThe network's own 16 fields after {config.ablation_seconds:g} s of training each (CPU seconds, one "
        f"thread), {begun}; means over {len(shapes)} shapes, worst in brackets. The metric layer makes every output "
        "orthonormal (last column but one), so that what training did shows in the last linear layer and the ratio.\n",
        "| training | steps | Omega_orth, last linear layer | kappa_log | H_spec | kappa_log of the output | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    return rows, "\n".join([*lines, *_training_rows(rows, "ablation")])


def pretraining_study(config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress) -> Table:
    """The encoder pre-trained by occupancy for a quarter of the time, or trained with the rest from the start."""
    from pipelines.train_fields import TrainFieldsConfig, resolve
    from splatanim.field.train import start
    from splatanim.field.train_occupancy import pretrain

    data = _data(config)
    rows: list[dict[str, object]] = []
    variants = (("none", False), ("occupancy", False), ("occupancy", True))
    with progress.bar("pre-training", len(variants)) as tick:
        for pretrained, frozen in variants:
            share = PRETRAINED if pretrained == "occupancy" else 0.0
            seconds = config.ablation_seconds * (1.0 - share)
            options = TrainFieldsConfig(config.folder, seconds=seconds, seed=config.seed, freeze_encoder=frozen)
            model, settings = resolve(options)
            state = start(model, settings)
            if share:
                budget = config.ablation_seconds * share
                pretrain(state.model, data.split("train"), seconds=budget, seed=config.seed, clock=time.process_time)
            _train(state, settings, data)
            name = pretrained + (", then frozen" if frozen else "")
            rows += [{"pretraining": name, **row} for row in _measured(state, shapes, config.seed)]
            tick()
    lines = [
        "\n## Pre-training of the encoder",
        f"\nObjective ritz, {config.ablation_seconds:g} CPU seconds in all, a quarter of them pre-training where "
        f"there is any; the network's own 32 fields, means over {len(shapes)} shapes.\n",
        "| pre-training | steps | Omega_orth | kappa_log | H_spec | kappa_log of the output | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    return rows, "\n".join([*lines, *_training_rows(rows, "pretraining")])


def _data(config: EvaluateFieldsConfig) -> Dataset:
    from splatanim.field.dataset import load_dataset

    return load_dataset(config.folder, config.cache or config.output / "cache")


def _train(state: Training, settings: TrainConfig, data: Dataset) -> None:
    """By CPU seconds, so that all get the same whatever else the machine does."""
    from splatanim.field.train import train

    train(state, settings, data.split("train"), clock=time.process_time)


def _measured(state: Training, shapes: list[Shape], seed: int) -> list[dict[str, object]]:
    from splatanim.field.ritz import subspace_ratio
    from splatanim.metrics import skinning_metrics

    network = state.model.eval().requires_grad_(False).double()
    rows: list[dict[str, object]] = []
    for shape in shapes:
        linear, output = own_output(network, shape.domain, seed=seed)
        figures = dataclasses.asdict(skinning_metrics(linear))
        after = {f"output_{key}": value for key, value in dataclasses.asdict(skinning_metrics(output)).items()}
        count = min(16, linear.shape[1] + 1)
        ratio = subspace_ratio(linear, shape.domain, shape.exact, count)
        rows.append({"file": shape.file, "steps": state.step, "ratio": ratio, **figures, **after})
    return rows


def _training_rows(rows: list[dict[str, Any]], key: str) -> list[str]:
    lines = []
    for name in dict.fromkeys(row[key] for row in rows):
        mine = [row for row in rows if row[key] == name]
        mean = {k: float(np.mean([row[k] for row in mine])) for k in mine[0] if k not in (key, "file")}
        worst = max(row["ratio"] for row in mine)
        lines.append(
            f"| {name} | {mine[0]['steps']} | {mean['omega_orth']:.1e} | {mean['kappa_log']:.2f} "
            f"| {mean['h_spec']:.3f} | {mean['output_kappa_log']:.3f} | {mean['ratio']:.2f} ({worst:.2f}) |"
        )
    return lines


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for name in dict.fromkeys(row["fields"] for row in rows):
        mine = [row for row in rows if row["fields"] == name]
        column = {k: np.array([row[k] for row in mine], np.float64) for k in mine[0] if k not in ("fields", "file")}
        lines.append(
            f"| {name} | {len(mine)} | {column['omega_orth'].mean():.1e} ({column['omega_orth'].max():.0e}) "
            f"| {column['kappa_log'].mean():.3f} ({column['kappa_log'].max():.3f}) "
            f"| {column['h_spec'].mean():.4f} ({column['h_spec'].min():.4f}) "
            f"| {column['ratio'].mean():.3f} ({column['ratio'].max():.2f}) | {np.median(column['seconds']):.2f} |"
        )
    return lines
