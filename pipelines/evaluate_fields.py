"""The comparison of skinning fields on shapes that no training saw: tables as Markdown and JSON.

Run as ``python -m pipelines.evaluate_fields --folder MESHES --output TABLES``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64
from tyro.conf import UseAppendAction

from pipelines.fields import SUBSPACE
from pipelines.progress import Progress
from splatanim.data import Cubature, Domain
from splatanim.errors import InputError

Study = Literal["subspace", "comparison", "deflection", "family", "ablation", "pretraining", "timing"]
GAUSSIANS = (48, 96, 192, 256, 464)  # 192 is what is bound by default, 464 as many as the network offers


@dataclass(frozen=True)
class EvaluateFieldsConfig:
    """Compare skinning fields on a folder's validation meshes and write fields.md and fields.json.

    Args:
        folder: Meshes with an index.csv that has the columns file and split.
        output: The folder to write to; exact modes are kept there as well, so that a second run is quick.
        study: What to run, repeatable: subspace (the comparison), deflection (against finite elements), family (one
            shape, many deformations), comparison (the paper's metrics of the network's own output), ablation and
            pretraining (short trainings) or timing (from splats to bound field). Without it, all that do not train.
        split: Which rows of the index.
        limit: At most so many shapes; 0 takes all.
        most_voxels: Larger domains are left out.
        handles: Number of skinning handles.
        weights: Weights of the network; the shipped ones by default.
        paper_weights: Weights trained with the objective paper, for the comparison; the shipped ones by default.
        simplicits: How many shapes Simplicits is trained on; 0 leaves it out.
        simplicits_steps: Training steps of each.
        deflections: How many shapes are bent.
        family_file: The mesh of the shape family.
        ablation_seconds: How long each row of ablation and pretraining trains, in CPU seconds.
        ablation_init: Weights that every row of the ablation starts from; fresh ones without it.
        cache: Where training keeps voxels and modes; beside the tables by default.
        seed: Seed of everything random.
    """

    folder: Path
    output: Path
    study: UseAppendAction[tuple[Study, ...]] = ()
    split: str = "val"
    limit: int = 0
    most_voxels: int = 150_000
    handles: int = 16
    weights: Path | None = None
    paper_weights: Path | None = None
    simplicits: int = 4
    simplicits_steps: int = 1000
    deflections: int = 10
    family_file: str = "animal_spot.ply"
    ablation_seconds: float = 120.0
    ablation_init: Path | None = None
    cache: Path | None = None
    seed: int = 0


@dataclass(frozen=True)
class Shape:
    """A shape to compare on: its voxels, its exact eigenvalues, and how long those took [s]."""

    file: str
    cubature: Cubature
    domain: Domain
    parts: int
    exact: Float64[np.ndarray, " n"]
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """One method on one shape; figures of raw functions and bound fields as in :mod:`pipelines.fields`."""

    method: str
    file: str
    parts: int
    ratio: float
    seconds: float
    raw: dict[str, float]
    bound: dict[str, float]


def evaluate_fields(config: EvaluateFieldsConfig, progress: Progress | None = None) -> str:
    """Run the studies; returns the Markdown. What is done is written after every study, skipped shapes are named.

    Raises :class:`InputError` when the folder or the split hold no usable mesh.
    """
    from threadpoolctl import threadpool_limits

    from pipelines import field_studies as studies
    from pipelines import field_training as trainings
    from pipelines.field_timing import timing_study
    from splatanim.formats.atomic import atomic_path

    progress = progress or Progress()
    config.output.mkdir(parents=True, exist_ok=True)
    shapes, skipped = load_shapes(config, progress)
    everything: dict[str, object] = {"shapes": len(shapes), "skipped": skipped}
    text = [f"# Skinning fields on {len(shapes)} unseen shapes", *(f"\nSkipped: {line}" for line in skipped)]
    run: dict[str, Callable[[], tuple[object, str]]] = {
        "subspace": lambda: subspace_study(config, shapes, progress),
        "deflection": lambda: studies.deflection_study(config, shapes, progress),
        "family": lambda: studies.family_study(config, progress),
        "comparison": lambda: trainings.comparison_study(config, shapes, progress),
        "ablation": lambda: trainings.ablation_study(config, shapes, progress),
        "pretraining": lambda: trainings.pretraining_study(config, shapes, progress),
        "timing": lambda: timing_study(config, progress),
    }
    for name in config.study or ("subspace", "comparison", "deflection", "family", "timing"):
        with threadpool_limits(1):  # so that seconds compare, whatever else the machine does
            everything[name], table = run[name]()
        text.append(table)
        with atomic_path(config.output / "fields.json") as path:
            path.write_text(json.dumps(everything, indent=1, default=_plain) + "\n", encoding="utf-8")
        with atomic_path(config.output / "fields.md") as path:
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return "\n".join(text)


def load_shapes(config: EvaluateFieldsConfig, progress: Progress) -> tuple[list[Shape], list[str]]:
    """The split's shapes with their exact modes, and why others were left out."""
    import csv

    index = config.folder / "index.csv"
    if not index.is_file():
        raise InputError(f"{config.folder}: holds no index.csv with the columns file and split. Give the mesh folder.")
    with index.open(newline="", encoding="utf-8") as lines:
        rows = [row["file"] for row in csv.DictReader(lines) if row.get("split") == config.split]
    rows = rows[: config.limit or None]
    shapes, skipped = [], []
    with progress.bar("exact modes", len(rows)) as tick:
        for file in rows:
            try:
                shapes.append(_shape(config, file))
            except InputError as error:
                skipped.append(str(error) if file in str(error) else f"{file}: {error}")
            tick()
    if not shapes:
        reasons = "\n".join(f"  {line}" for line in skipped) or f"  no row has the split {config.split!r}"
        raise InputError(f"{config.folder}: no shape to compare on.\n{reasons}")
    return shapes, skipped


def _shape(config: EvaluateFieldsConfig, file: str) -> Shape:
    """Read, fill and solve one shape; the solution is kept beside the tables."""
    from pipelines.objects import read_object
    from splatanim.field.eigenmodes import neumann_modes
    from splatanim.field.subspace import parts

    cubature = read_object(config.folder / file, seed=config.seed).cubature
    domain = cubature.domain
    if len(domain.cells) > config.most_voxels:
        raise InputError(f"{file}: {len(domain.cells)} voxels, more than --most-voxels {config.most_voxels}.")
    kept = config.output / "exact" / f"{file}.npz"
    key = np.array([len(domain.cells), domain.spacing, *domain.origin, SUBSPACE])
    if kept.is_file():
        with np.load(kept) as data:
            if np.array_equal(data["key"], key):
                return Shape(file, cubature, domain, parts(domain)[0], data["levels"], float(data["seconds"]))
    start = time.perf_counter()
    levels, _ = neumann_modes(domain, SUBSPACE)
    seconds = time.perf_counter() - start
    kept.parent.mkdir(exist_ok=True)
    np.savez(kept, key=key, levels=levels, seconds=seconds)
    return Shape(file, cubature, domain, parts(domain)[0], levels, seconds)


def subspace_study(
    config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress
) -> tuple[list[dict[str, object]], str]:
    """Every method on every shape; the rows of the table."""
    outcomes: list[Outcome] = []
    notes: list[str] = []
    with progress.bar("comparing", len(shapes)) as tick:
        for number, shape in enumerate(shapes):
            for name, method in methods(config, trained=number < config.simplicits).items():
                try:
                    outcomes.append(_outcome(name, shape, *method(shape.domain)))
                except (InputError, ImportError) as error:
                    if not any(line.startswith(f"{name}, ") for line in notes):  # one reason a method is enough
                        notes.append(f"{name}, {shape.file}: {error}")
            tick()
    table = [
        "\n## Subspaces",
        "\nratio: mean Rayleigh quotient of the best 16 functions, the constant included, over that of the exact modes "
        "on the same voxels. Single and multi: shapes of one and of several parts. Metrics are of the functions "
        "before Ritz; bound fields have Omega_orth below the figure in the last but one column. One thread.\n",
        "| fields | shapes | ratio mean | median | worst | single | multi | raw Omega_orth | raw kappa_log | raw "
        "H_spec | bound Omega_orth | seconds (median) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    table += [
        _row(name, [o for o in outcomes if o.method == name]) for name in dict.fromkeys(o.method for o in outcomes)
    ]
    table += ["", *(f"- not measured: {line}" for line in notes)]
    return [asdict(outcome) for outcome in outcomes], "\n".join(table)


Method = Callable[[Domain], tuple[np.ndarray, np.ndarray, float]]


def methods(config: EvaluateFieldsConfig, *, trained: bool) -> dict[str, Method]:
    """Names and functions ``domain -> (raw functions, bound fields, seconds to bind)`` at the domain's voxels."""
    from splatanim.field.eigenmodes import bind_eigenmodes
    from splatanim.field.gaussians import bind_gaussians
    from splatanim.field.simplicits import bind_simplicits
    from splatanim.field.subspace import bind

    handles, seed = config.handles, config.seed
    every: dict[str, Method] = {}
    for raw in GAUSSIANS:
        every[f"{raw} Gaussians"] = _bound(lambda d, raw=raw: bind_gaussians(d, handles, raw=raw, seed=seed))
    every["auto"] = _bound(lambda d: bind("auto", d, handles, seed=seed)[0])
    every["eigenmodes at query points"] = _bound(lambda d: bind_eigenmodes(d, handles))
    every["network + Gaussians"] = lambda d: _neural(d, config)
    every["network alone"] = lambda d: _own(d, config.weights, handles)
    if config.paper_weights is not None:
        every["network, paper's objective"] = lambda d: _own(d, config.paper_weights, handles)
    if trained:
        steps = config.simplicits_steps
        every["Simplicits"] = _bound(lambda d: bind_simplicits(d, handles, steps=steps, seed=seed))
    return every


def _bound(bind: Callable) -> Method:
    from splatanim.field.subspace import raw_functions

    def method(domain: Domain) -> tuple[np.ndarray, np.ndarray, float]:
        start = time.perf_counter()
        field = bind(domain)
        seconds = time.perf_counter() - start
        weights = field.weights(domain.centres)
        return raw_functions(field, domain), weights, seconds

    return method


def _neural(domain: Domain, config: EvaluateFieldsConfig) -> tuple[np.ndarray, np.ndarray, float]:
    """What ``--field neural`` binds; raw is the network's own output."""
    from splatanim.field.neural import bind_neural, raw_fields

    start = time.perf_counter()
    field = bind_neural(domain, config.handles, weights=config.weights, seed=config.seed)
    seconds = time.perf_counter() - start
    raw = np.asarray(raw_fields(domain, domain.centres, config.weights), np.float64)
    return raw, field.weights(domain.centres), seconds


def _own(domain: Domain, weights: Path | None, handles: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The network's own output, and Ritz on nothing else."""
    from splatanim.field.neural import raw_fields
    from splatanim.field.ritz import ritz

    start = time.perf_counter()
    raw = np.asarray(raw_fields(domain, domain.centres, weights), np.float64)
    coefficients, constants, _ = ritz(raw, domain, handles)
    return raw, raw @ coefficients + constants, time.perf_counter() - start


def _outcome(name: str, shape: Shape, raw: np.ndarray, bound: np.ndarray, seconds: float) -> Outcome:
    from splatanim.field.ritz import subspace_ratio
    from splatanim.metrics import skinning_metrics

    count = min(SUBSPACE, bound.shape[1] + 1)
    ratio = subspace_ratio(bound, shape.domain, shape.exact, count)
    figures = asdict(skinning_metrics(raw)), asdict(skinning_metrics(bound))
    return Outcome(name, shape.file, shape.parts, ratio, seconds, *figures)


def _row(name: str, rows: list[Outcome]) -> str:
    ratios = np.array([row.ratio for row in rows])
    single, multi = (np.array([r.ratio for r in rows if (r.parts > 1) == many]) for many in (False, True))

    def mean(values: np.ndarray) -> str:
        return f"{values.mean():.3f}" if len(values) else "-"

    def figure(key: str, digits: str) -> str:
        return format(float(np.median([row.raw[key] for row in rows])), digits)

    figures = [figure("omega_orth", ".1e"), figure("kappa_log", ".3f"), figure("h_spec", ".4f")]
    worst = max(row.bound["omega_orth"] for row in rows)
    cells = [name, str(len(rows)), mean(ratios), f"{np.median(ratios):.3f}", f"{ratios.max():.3f}", mean(single)]
    cells += [mean(multi), *figures, f"{worst:.0e}", f"{np.median([row.seconds for row in rows]):.2f}"]
    return "| " + " | ".join(cells) + " |"


def _plain(value: object) -> object:
    """numpy and infinities as JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


if __name__ == "__main__":
    import sys

    import tyro

    try:
        print(evaluate_fields(tyro.cli(EvaluateFieldsConfig), Progress(None)))
    except InputError as error:
        sys.exit(f"evaluate_fields: {error}")
