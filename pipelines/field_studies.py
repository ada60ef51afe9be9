"""The studies beside the comparison: deflection against finite elements, a shape family, ablations, timing."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from pipelines.progress import Progress
from splatanim.data import Domain, Mesh
from splatanim.errors import InputError
from splatanim.field import SkinningField

if TYPE_CHECKING:
    from pipelines.evaluate_fields import EvaluateFieldsConfig, Shape

Table = tuple[list[dict[str, object]], str]
FAMILY = 8  # deformations of the shape family
SPLATS = 100_000  # of the timing study
# name of an ablation: changes of the training, of the network
ABLATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({}, {}),
    "without normalisation": ({"normalise": False}, {}),
    "without ONI": ({}, {"oni": False}),
    "without ConFIG": ({"config": False}, {}),
    "without smoothness": ({"w_smooth": 0.0}, {}),
    "without potential energy": ({"w_potential": 0.0}, {}),
    "without orthogonality": ({"w_orthogonal": 0.0}, {}),
}


def deflection_study(config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress) -> Table:
    """The sag of held shapes in each subspace over that of the full space, from stout shapes to slender ones."""
    from pipelines.deflection import coarsened, deflect, reference
    from splatanim.field.subspace import KINDS

    single = sorted((shape for shape in shapes if shape.parts == 1), key=_slenderness)
    spaced = np.linspace(0, len(single) - 1, min(config.deflections, len(single))).round().astype(int)
    chosen = [single[k] for k in spaced]
    rows: list[dict[str, object]] = []
    with progress.bar("bending", len(chosen)) as tick:
        for shape in chosen:
            try:
                truth = reference(coarsened(shape.domain))
            except InputError as error:
                rows.append({"file": shape.file, "error": str(error)})
                continue
            for kind in KINDS:
                row: dict[str, object] = {"file": shape.file, "field": kind, "young": truth.material.young}
                try:
                    row |= dataclasses.asdict(deflect(truth, _bind(config, kind, truth.cubature.domain)))
                except (InputError, ImportError) as error:
                    row["error"] = str(error)
                rows.append(row)
            tick()
    return rows, _deflection_table(rows, KINDS)


def _slenderness(shape: Shape) -> float:
    """The longest side over the root of the mean cross-section along it."""
    longest = float(np.ptp(shape.domain.centres, axis=0).max()) + shape.domain.spacing
    return longest / (shape.domain.volume / longest) ** 0.5


def _deflection_table(rows: list[dict[str, object]], kinds: tuple[str, ...]) -> str:
    files = list(dict.fromkeys(str(row["file"]) for row in rows))
    lines = [
        "\n## Static deflection",
        "\nHeld at one end, sagging by a tenth of the length under gravity (stable Neo-Hookean, nu 0.3): displacement "
        "of the point that moves most over that of trilinear finite elements on the same voxels (1 is right).\n",
        f"| shape | {' | '.join(kinds)} |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    found = {(row["file"], row.get("field")): row.get("tip") for row in rows}
    for file in files:
        cells = [found.get((file, kind)) for kind in kinds]
        lines.append(f"| {file} | " + " | ".join(f"{c:.3f}" if isinstance(c, float) else "-" for c in cells) + " |")
    means, near = [], []
    for kind in kinds:
        tips = [t for file in files if isinstance(t := found.get((file, kind)), float)]
        means.append(f"{np.mean(tips):.3f}" if tips else "-")
        near.append(f"{sum(abs(t - 1) <= 0.15 for t in tips)} of {len(tips)}")
    return "\n".join([*lines, f"| mean | {' | '.join(means)} |", f"| within 15 % | {' | '.join(near)} |"])


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
    from splatanim.field.subspace import without_crumbs

    subject = mesh_object(mesh, "member")
    domain, points = without_crumbs(subject.cubature.domain), subject.frame.to_sim(inner)
    exact, _ = neumann_modes(domain, SUBSPACE)
    for kind in ("neural", "gaussians", "eigenmodes"):
        try:
            field = _bind(config, kind, domain)
        except (InputError, ImportError):
            continue
        yield kind, {"ratio": subspace_ratio(field.weights(domain.centres), domain, exact)}, field.weights(points)
    try:
        from splatanim.field.neural import raw_fields

        raw = np.asarray(raw_fields(domain, np.concatenate([points, domain.centres]), config.weights), np.float64)
    except (InputError, ImportError):
        return
    yield "network's output", {"ratio": subspace_ratio(raw[len(points) :], domain, exact)}, raw[: len(points)]


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


def ablation_study(config: EvaluateFieldsConfig, shapes: list[Shape], progress: Progress) -> Table:
    """The paper's objective without each of its parts: short trainings of the same length, the network's own output."""
    from pipelines.train_fields import TrainFieldsConfig, resolve
    from splatanim.field.dataset import load_dataset
    from splatanim.field.neural import raw_model
    from splatanim.field.ritz import subspace_ratio
    from splatanim.field.train import start, train
    from splatanim.metrics import skinning_metrics

    data = load_dataset(config.folder, config.output / "cache")
    options = TrainFieldsConfig(config.folder, objective="paper", seconds=config.ablation_seconds, seed=config.seed)
    model, settings = resolve(options)
    rows: list[dict[str, object]] = []
    with progress.bar("ablations", len(ABLATIONS)) as tick:
        for name, (training_changes, model_changes) in ABLATIONS.items():
            changed = dataclasses.replace(settings, **training_changes)
            state = train(start(dataclasses.replace(model, **model_changes), changed), changed, data.split("train"))
            network = state.model.eval().double()
            for shape in shapes:
                raw = raw_model(network, shape.domain, shape.domain.centres, seed=config.seed)
                figures = dataclasses.asdict(skinning_metrics(raw))
                ratio = subspace_ratio(raw, shape.domain, shape.exact)
                rows.append({"ablation": name, "file": shape.file, "steps": state.step, "ratio": ratio, **figures})
            tick()
    return rows, _ablation_table(config, rows)


def _ablation_table(config: EvaluateFieldsConfig, rows: list[dict[str, Any]]) -> str:
    lines = [
        "\n## Ablation",
        f"\nThe network's own 16 fields after {config.ablation_seconds:g} s of training each; medians over shapes.\n",
        "| training | steps | Omega_orth | kappa_log | H_spec | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["ablation"] for row in rows):
        mine = [row for row in rows if row["ablation"] == name]
        middle = {k: float(np.median([row[k] for row in mine])) for k in ("omega_orth", "kappa_log", "h_spec", "ratio")}
        lines.append(
            f"| {name} | {mine[0]['steps']} | {middle['omega_orth']:.1e} | {middle['kappa_log']:.3f} | "
            f"{middle['h_spec']:.4f} | {middle['ratio']:.2f} |"
        )
    return "\n".join(lines)


def timing_study(config: EvaluateFieldsConfig) -> Table:
    """From 100,000 splats to a bound field, by kind: seconds of sampling, binding, and weights at all splats."""
    from pipelines.field_pictures import disks
    from pipelines.objects import read_object
    from splatanim.field.subspace import KINDS, without_crumbs
    from splatanim.sampling.cubature import cubature_from_splats
    from splatanim.sampling.surface import sample_surface

    subject = read_object(config.folder / config.family_file, seed=config.seed)
    assert isinstance(subject.content, Mesh)
    points, normals = sample_surface(subject.content, SPLATS, seed=config.seed)
    splats = disks(points, normals, 0.004 / subject.frame.scale)
    start = time.perf_counter()
    domain = without_crumbs(cubature_from_splats(splats, subject.frame, seed=config.seed).domain)
    sampling = time.perf_counter() - start
    rows: list[dict[str, object]] = []
    for kind in (*KINDS, "auto"):
        try:
            start = time.perf_counter()
            field = _bind(config, kind, domain)
            bound = time.perf_counter()
            field.weights(subject.frame.to_sim(splats.means))
        except (InputError, ImportError) as error:
            rows.append({"field": kind, "error": str(error)})
            continue
        rows.append({"field": kind, "sample": sampling, "bind": bound - start, "weights": time.perf_counter() - bound})
    lines = [
        f"\n## From {SPLATS:,} splats to a bound field ({len(domain.cells):,} voxels), seconds\n",
        "| field | sample | bind | weights at all splats | together |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        times = [row.get(key) for key in ("sample", "bind", "weights")]
        cells = [
            f"{t:.2f}" if isinstance(t, float) else "-" for t in (*times, sum(t for t in times if isinstance(t, float)))
        ]
        lines.append(f"| {row['field']} | {' | '.join(cells)} |")
    return rows, "\n".join(lines)


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
