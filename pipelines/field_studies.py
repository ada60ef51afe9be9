"""The studies beside the comparison: deflection against finite elements, a shape family, timing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from pipelines.progress import Progress
from splatanim.data import Domain, Mesh
from splatanim.errors import InputError
from splatanim.field import SkinningField

if TYPE_CHECKING:
    from pipelines.deflection import Reference
    from pipelines.evaluate_fields import EvaluateFieldsConfig, Shape

Table = tuple[list[dict[str, object]], str]
FAMILY = 8  # deformations of the shape family


def deflection_study(config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress) -> Table:
    """The sag of held shapes in each subspace over that of the full space, from stout shapes to slender ones.

    References and rows are kept in the output folder: a run that was broken off goes on where it stopped.
    """
    from pipelines.deflection import coarsened, kept_reference
    from splatanim.field.subspace import KINDS
    from splatanim.formats.atomic import made_folder

    single = sorted((shape for shape in shapes if shape.parts == 1), key=_slenderness)
    spaced = np.linspace(0, len(single) - 1, min(config.deflections, len(single))).round().astype(int)
    chosen = [single[k] for k in spaced]
    folder = made_folder(config.output / "deflection")
    rows: list[dict[str, object]] = []
    with progress.bar("bending", len(chosen)) as tick:
        for shape in chosen:
            try:
                truth = kept_reference(coarsened(shape.domain), folder / f"{shape.file}.npz")
            except InputError as error:
                rows.append({"file": shape.file, "error": str(error)})
                continue
            rows += [_deflection_row(config, shape.file, kind, truth, folder) for kind in KINDS]
            tick()
    return rows, _deflection_table(rows, KINDS, config.handles)


def _deflection_row(
    config: EvaluateFieldsConfig, file: str, kind: str, truth: Reference, folder: Path
) -> dict[str, object]:
    """One shape in the subspace of one kind of field, kept between runs with the same options."""
    from pipelines.deflection import POINTS, deflect
    from splatanim.formats.atomic import atomic_path

    name = f"{file}.{kind}.{config.handles}"
    options = {
        "handles": config.handles,
        "points": POINTS * config.handles,
        "law": "averaged dilatation",
        "seed": config.seed,
        "steps": config.simplicits_steps if kind == "simplicits" else 0,
        "weights": str(config.weights or "") if kind == "neural" else "",
        "young": truth.material.young,
    }
    kept = folder / f"{name}.json"
    if kept.is_file():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before.pop("options") == options:
            return before
    row: dict[str, object] = {"file": file, "field": kind, "young": truth.material.young}
    try:
        row |= dataclasses.asdict(deflect(truth, _bind(config, kind, truth.cubature.domain)))
    except (InputError, ImportError) as error:
        return row | {"error": str(error)}
    with atomic_path(kept) as temporary:
        temporary.write_text(json.dumps(row | {"options": options}, indent=1) + "\n", encoding="utf-8")
    return row


def _slenderness(shape: Shape) -> float:
    """The longest side over the root of the mean cross-section along it."""
    longest = float(np.ptp(shape.domain.centres, axis=0).max()) + shape.domain.spacing
    return longest / (shape.domain.volume / longest) ** 0.5


def _deflection_table(rows: list[dict[str, object]], kinds: tuple[str, ...], handles: int) -> str:
    from pipelines.deflection import POINTS

    files = list(dict.fromkeys(str(row["file"]) for row in rows))
    lines = [
        "\n## Static deflection",
        f"\n{handles} handles, {POINTS * handles} cubature points. Held at one end, sagging by a tenth of its length "
        "under gravity (stable Neo-Hookean, nu 0.3, dilatation averaged over groups of points): displacement of the "
        "point that moves most over that of quadratic finite elements on the same voxels (1 is right, less is too "
        "stiff).\n",
        f"| shape | {' | '.join(kinds)} |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    found = {(row["file"], row.get("field")): row.get("tip") for row in rows}
    for file in files:
        cells = [found.get((file, kind)) for kind in kinds]
        lines.append(f"| {file} | " + " | ".join(f"{c:.3f}" if isinstance(c, float) else "-" for c in cells) + " |")
    means, medians, near = [], [], []
    for kind in kinds:
        tips = [t for file in files if isinstance(t := found.get((file, kind)), float)]
        means.append(f"{np.mean(tips):.3f}" if tips else "-")
        medians.append(f"{np.median(tips):.3f}" if tips else "-")
        near.append(f"{sum(abs(t - 1) <= 0.15 for t in tips)} of {len(tips)}")
    last = [f"| mean | {' | '.join(means)} |", f"| median | {' | '.join(medians)} |"]
    return "\n".join([*lines, *last, f"| within 15 % | {' | '.join(near)} |"])


def family_study(config: EvaluateFieldsConfig, progress: Progress) -> Table:
    """One shape under many smooth deformations: the ratio of each, and whether handles stay on their places.

    Consistency is |correlation| of a handle's weights at corresponding points of the deformed and the rest shape,
    mean over handles; span is the mean squared cosine of the principal angles between both subspaces.
    """
    from pipelines.objects import read_object

    rest = read_object(config.folder / config.family_file, seed=config.seed)
    if not isinstance(rest.content, Mesh):
        raise InputError(f"{config.family_file}: the shape family needs a mesh.")
    vertices = rest.frame.to_sim(rest.content.vertices)
    rng = np.random.default_rng(config.seed)
    inner = rest.cubature.domain.centres
    inner = inner[rng.choice(len(inner), min(3000, len(inner)), replace=False)]
    rows: list[dict[str, object]] = []
    first: dict[str, np.ndarray] = {}
    with progress.bar("shape family", FAMILY + 1) as tick:
        for number in range(FAMILY + 1):
            bend = deformation(number, config.seed)
            mesh = Mesh(bend(vertices), rest.content.faces)
            for name, row, weights in _family_member(config, mesh, bend(inner), rest.content):
                first.setdefault(name, weights)
                row |= {"deformation": number, "field": name} | _consistency(first[name], weights)
                rows.append(row)
            tick()
    return rows, _family_table(config, rows)


def deformation(number: int, seed: int) -> Callable[[np.ndarray], Float64[np.ndarray, "n 3"]]:
    """A smooth map of space (metres, object about 1 m): a bend and slow sines; number 0 is the identity."""
    rng = np.random.default_rng((seed, number))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    waves, phases = rng.normal(scale=2.5, size=(3, 3)), rng.uniform(0, 2 * np.pi, 3)
    amount = 0.0 if number == 0 else 1.0

    def bend(points: np.ndarray) -> np.ndarray:
        local = points @ turn
        angle = amount * 0.9 * local[:, [0]]
        x, y = local[:, [0]], local[:, [1]]
        local = np.concatenate(
            [x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle), local[:, [2]]], 1
        )
        return local @ turn.T + amount * 0.06 * np.sin(points @ waves + phases)

    return bend


def _family_member(config: EvaluateFieldsConfig, mesh: Mesh, inner: np.ndarray, _rest: Mesh):
    """(name, row, weights at the corresponding points) of each method on one member of the family."""
    from pipelines.evaluate_fields import SUBSPACE
    from pipelines.objects import mesh_object
    from splatanim.field.eigenmodes import neumann_modes
    from splatanim.field.ritz import subspace_ratio

    subject = mesh_object(mesh, "member")
    domain, points = subject.cubature.domain, subject.frame.to_sim(inner)
    exact, _ = neumann_modes(domain, SUBSPACE)
    for kind in ("neural", "gaussians", "eigenmodes"):
        try:
            field = _bind(config, kind, domain)
        except (InputError, ImportError):
            continue
        yield kind, {"ratio": subspace_ratio(field.weights(domain.centres), domain, exact)}, field.weights(points)
    from pipelines.field_training import own_output
    from splatanim.field.neural_model import SHIPPED_PAPER, load_model

    for name, weights in (("network's output", config.weights), ("paper's objective", config.paper_weights)):
        weights = SHIPPED_PAPER if weights is None and name.startswith("paper") else weights
        try:
            network = load_model(weights).double()
        except (InputError, ImportError):
            continue
        own, there = own_output(network, domain)[1], own_output(network, domain, points)[1]
        yield name, {"ratio": subspace_ratio(own, domain, exact)}, there


def _consistency(first: np.ndarray, weights: np.ndarray) -> dict[str, object]:
    a, b = (w - w.mean(axis=0) for w in (first, weights))
    a_unit, b_unit = (w / np.maximum(np.linalg.norm(w, axis=0), 1e-12) for w in (a, b))
    cosines = np.linalg.svd(np.linalg.qr(a)[0].T @ np.linalg.qr(b)[0], compute_uv=False)
    return {"consistency": float(np.abs((a_unit * b_unit).sum(axis=0)).mean()), "span": float(np.mean(cosines**2))}


def _family_table(config: EvaluateFieldsConfig, rows: list[dict[str, Any]]) -> str:
    lines = [
        "\n## A deformable shape family",
        f"\n{config.family_file} under {FAMILY} smooth deformations, one model. Consistency: |correlation| of each "
        "handle with the same handle of the undeformed shape; span: mean squared cosine between the subspaces.\n",
        "| fields | ratio mean | ratio worst | consistency | span |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["field"] for row in rows):
        mine = [row for row in rows if row["field"] == name and row["deformation"]]
        ratios, same, span = (np.array([row[key] for row in mine]) for key in ("ratio", "consistency", "span"))
        lines.append(f"| {name} | {ratios.mean():.3f} | {ratios.max():.3f} | {same.mean():.3f} | {span.mean():.3f} |")
    return "\n".join(lines)


def _bind(config: EvaluateFieldsConfig, kind: str, domain: Domain) -> SkinningField:
    """A field with the options of the evaluation."""
    from splatanim.field.subspace import bind

    if kind == "neural":
        from splatanim.field.neural import bind_neural

        return bind_neural(domain, config.handles, weights=config.weights, seed=config.seed)
    if kind == "simplicits":
        from splatanim.field.simplicits import bind_simplicits

        return bind_simplicits(domain, config.handles, steps=config.simplicits_steps, seed=config.seed)
    return bind(kind, domain, config.handles, seed=config.seed)[0]
