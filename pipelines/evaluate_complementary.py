"""How complementary elastic motion is, how much of it there is, and what it costs; with and without the means for it.

Run as ``python -m pipelines.evaluate_complementary --folder DATA/rigged --output TABLES``; writes complementary.md and
complementary.json. Ways that are compared on each character: ``plain`` (fields as bound for physics without a rig),
``projected`` (the exact complement, what ``animate --elastic`` uses) and, with --weights, the fields of networks by
themselves (``learned``, one a file).
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from tyro.conf import UseAppendAction

from pipelines.progress import Progress
from pipelines.rigged import RiggedConfig, choose_clip, load_actor
from pipelines.rigged_elastic import Body, clip_time, elastic_model, inside_of
from splatanim.dynamics.simulate import Settings
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path

if TYPE_CHECKING:
    from splatanim.data import Material
    from splatanim.dynamics.reduced import ReducedModel
    from splatanim.rig.elastic import ElasticMotion

# name: model, clip, file of the clip where that is another
CHARACTERS = {
    "fox": ("fox_textured.glb", "Walk", None),
    "spider": ("spider.glb", "Spider_Walk", None),
    "mannequin": ("kaykit_mannequin/manny_med_mod.gltf", "Walking_A", "kaykit_mannequin/Med_MovementBasic.glb"),
}
_FPS = 30.0
_SHOWN = 5  # joints named


@dataclass(frozen=True)
class EvaluateComplementaryConfig:
    """Measure complementary dynamics on rigged characters.

    Args:
        folder: The folder of rigged models.
        output: The folder to write complementary.md and complementary.json to.
        weights: Networks of train-fields to compare (.safetensors), repeatable.
        material: What the characters are made of.
        functions: Elastic functions of the projected model; 64 are what 16 handles have.
        splats: How many splats a character becomes, for the timing.
        points: Cubature points of the timing, as for a rig moved by hand; films take 1024.
        subject: Which characters, repeatable; all by default.
    """

    folder: Path
    output: Path
    weights: UseAppendAction[tuple[Path, ...]] = ()
    material: str = "flesh"
    functions: int = 64
    splats: int = 30_000
    points: int = 512
    subject: UseAppendAction[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Case:
    """A character's body, the skinning transforms over its clip, and how long that is [s]."""

    body: Body
    transforms: Any
    duration: float


def evaluate_complementary(config: EvaluateComplementaryConfig, progress: Progress | None = None) -> str:
    """Measure, write both files; returns the Markdown."""
    progress = progress or Progress()
    unknown = [name for name in config.subject if name not in CHARACTERS]
    if unknown:
        raise InputError(f"There is no character {unknown[0]!r}. There are: {', '.join(CHARACTERS)}.")
    rows: list[dict[str, Any]] = []
    timings: list[dict[str, Any]] = []
    for name in config.subject or CHARACTERS:
        with progress.spinner(name):
            case = load_case(config, name)
            for way, model in _ways(config, case):
                rows.append({"character": name, "way": way, **measured(case, model, projected="projected" in way)})
            timings.append({"character": name, **timed(config, case)})
    text = as_markdown(rows, timings)
    config.output.mkdir(parents=True, exist_ok=True)
    record = {"config": _plain(config), "rows": rows, "timings": timings}
    for file, content in (("complementary.md", text), ("complementary.json", json.dumps(record, indent=1) + "\n")):
        with atomic_path(config.output / file) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return text


def load_case(config: EvaluateComplementaryConfig, name: str) -> Case:
    """A character as splats, its inside, and its clip."""
    from splatanim.rig.skeleton import skin_transforms

    file, clip_name, other = CHARACTERS[name]
    wish = RiggedConfig(
        config.folder / file,
        clip=clip_name,
        retarget=config.folder / other if other else None,
        count=config.splats,
    )
    actor = load_actor(wish)
    clip, _ = choose_clip(wish, actor)

    def transforms(seconds: float) -> np.ndarray:
        return skin_transforms(actor.model.skeleton, clip.sample(clip_time(clip, seconds)))

    return Case(inside_of(actor), transforms, clip.duration)


def _ways(config: EvaluateComplementaryConfig, case: Case):
    """(name, model) of everything that is compared."""
    from splatanim.dynamics.materials import preset

    material = preset(config.material)
    yield "plain", unprojected(case, _first(case.body.field, 16), material)
    yield "projected", elastic_model(case.body, case.transforms, material, functions=config.functions)
    for path in config.weights:
        field = network_field(path, case.body)
        yield f"learned {path.stem}", unprojected(case, field, material)


def unprojected(case: Case, field: Any, material: Material) -> ReducedModel:
    """A field's own functions, as eq. 18 has them, orthonormal and nothing more.

    The constant handle is left out: a rig and it would both place the whole body.
    """
    from splatanim.binding import shape_functions
    from splatanim.rig.complementary import complement, free_gradients, led_model

    handles: Any = elastic_model(case.body, case.transforms, material, functions=1).handles
    handles = dataclasses.replace(handles, field=field)
    cubature = case.body.cubature
    raw = shape_functions(cubature.points, *handles.evaluate(cubature.points))[0]
    used = 4 * field.handles
    masses = cubature.volumes * material.density
    slopes = free_gradients(cubature, handles)[:, :used]
    mixing = complement(raw[:, :used], slopes, np.zeros((len(raw), 0)), masses, used, poisson=material.poisson)
    transform = np.zeros((4 * handles.free, mixing.shape[1]))
    transform[:used] = mixing
    return led_model(cubature, handles, material, transform)


def _first(field: Any, count: int) -> Any:
    """The first fields of a spline field."""
    return dataclasses.replace(field, coefficients=field.coefficients[:, :count], constants=field.constants[:count])


def network_field(path: Path, body: Body) -> Any:
    """A network's own fields on a body, as splines through its values at the voxels."""
    from splatanim.field.grid import interpolated, lattice_of
    from splatanim.field.neural_basis import basis_of
    from splatanim.field.neural_model import load_model

    domain = body.cubature.domain
    values = basis_of(load_model(path), domain, 0).values(domain.centres).astype(np.float64)
    values /= np.sqrt((values**2).mean(axis=0))
    return interpolated(values, domain, lattice_of(domain), "network")


def measured(case: Case, model: ReducedModel, *, projected: bool) -> dict[str, Any]:
    """A cycle of the clip after one to settle in: complementarity, overlap with the rig, extra motion by joint."""
    from pipelines.rigged_elastic import flesh_terms
    from splatanim.rig.complementary import complementarity, rig_share
    from splatanim.rig.elastic import RigInertia, simulate_on_rig

    cycle = max(2, round(case.duration * _FPS))
    terms = flesh_terms(model, case.duration, 1.0)
    if not projected:  # without complementarity the rig's inertia comes in through the mass coupling itself
        terms = [term for term in terms if not isinstance(term, RigInertia)]
    motion: ElasticMotion = simulate_on_rig(model, Settings(2 * cycle, _FPS, 2, integrator="bdf2"), terms)
    coordinates = motion.coordinates[cycle:]
    root = np.sqrt(model.masses)[:, None]
    overlap: list[float] = []
    shares: list[float] = []
    sizes: list[np.ndarray] = []
    for k, y in enumerate(coordinates):
        u = model.shape @ y.reshape(3, -1).T
        led = model.held_shape @ model.held_coordinates((cycle + k) / _FPS).T
        across = float(np.linalg.norm(root * u) * np.linalg.norm(root * led))
        overlap.append(abs(float(((root * u) * (root * led)).sum())) / max(across, 1e-30))
        shares.append(rig_share(model, y))
        sizes.append(np.linalg.norm(u, axis=1) / model.size)
    size = np.array(sizes)
    return {
        "functions": model.dof // 3,
        "product": complementarity(model),
        "product_eq22": product_share(case, model, projected=projected),
        "rig_share_max": max(shares),
        "overlap_mean": float(np.mean(overlap)),
        "extra_max": float(size.max()),
        "extra_p95": float(np.quantile(size, 0.95)),
        "extra_by_joint": by_joint(case, size.max(axis=0)),
        "converged": motion.converged_fraction,
    }


def product_share(case: Case, model: ReducedModel, *, projected: bool) -> float:
    """|J^T B| / (|J| |B|) of the full matrices as eq. 22 is trained: X in [-1, 1], B the field's W_i [X; 1].

    Of projected models their N.
    """
    points = 2.0 * model.rest / model.size
    one = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    root = np.sqrt(model.masses)[:, None]

    def times_affine(weights: np.ndarray) -> np.ndarray:
        return root * (weights[:, :, None] * one[:, None]).reshape(len(points), -1)

    rig = times_affine(case.body.bones.weights(model.rest))
    free = root * model.shape if projected else times_affine(model.handles.field.weights(model.rest))
    return float(np.linalg.norm(rig.T @ free) / (3.0**0.5 * np.linalg.norm(rig) * np.linalg.norm(free)))


def by_joint(case: Case, furthest: Float64[np.ndarray, " q"]) -> dict[str, float]:
    """The joints whose flesh moves most by itself, in units of the size."""
    body = case.body
    owner = body.bones.weights(body.cubature.points).argmax(axis=1)
    names = [body.actor.model.skeleton.names[joint] for joint in body.joints]
    found = {name: float(furthest[owner == k].max()) for k, name in enumerate(names) if (owner == k).any()}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:_SHOWN])


def timed(config: EvaluateComplementaryConfig, case: Case) -> dict[str, Any]:
    """Milliseconds a frame at one step a frame, CPU and wall: kinematics, step, and posing the splats (medians)."""
    from pipelines.rigged_elastic import flesh_terms
    from splatanim.dynamics.materials import preset
    from splatanim.rig.elastic import RigStepper, bind_elastic, pose_elastic

    case = dataclasses.replace(case, body=inside_of(case.body.actor, points=config.points))
    out: dict[str, Any] = {"splats": len(case.body.actor.rigged.splats), "bones": len(case.body.joints)}
    for functions in (config.functions, config.functions // 2):
        model = elastic_model(case.body, case.transforms, preset(config.material), functions=functions)
        bound = bind_elastic(case.body.actor.rigged, case.body.frame, model)
        settings = Settings(2, _FPS, 1, integrator="bdf2")
        stepper = RigStepper(model, settings, flesh_terms(model, case.duration, 1.0))
        parts: dict[str, list[tuple[float, float]]] = {"kinematics": [], "step": [], "pose": []}
        for _ in range(30):
            marks = [_clocks()]
            joints = case.transforms(stepper.time)
            marks.append(_clocks())
            stepper.step()
            marks.append(_clocks())
            pose_elastic(bound, joints, stepper.y)
            marks.append(_clocks())
            for part, spent in zip(parts, np.diff(marks, axis=0), strict=True):
                parts[part].append((1e3 * spent[0], 1e3 * spent[1]))
        medians = {part: np.round(np.median(spent, axis=0), 2).tolist() for part, spent in parts.items()}
        out[f"{functions} functions"] = {"cpu_ms": {p: m[0] for p, m in medians.items()}} | {
            "wall_ms": {p: m[1] for p, m in medians.items()}
        }
    return out


def _clocks() -> tuple[float, float]:
    """CPU and wall time [s]."""
    return time.process_time(), time.perf_counter()


def as_markdown(rows: list[dict[str, Any]], timings: list[dict[str, Any]]) -> str:
    """Both tables."""
    lines = [
        "| character | functions of | number | product, mass | product, eq. 22 | rig could make | overlap | extra, max "
        "| p95 | moves most | converged |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        most = ", ".join(f"{name} {100 * value:.1f} %" for name, value in list(row["extra_by_joint"].items())[:3])
        lines.append(
            f"| {row['character']} | {row['way']} | {row['functions']} | {row['product']:.2g} | "
            f"{row['product_eq22']:.2g} | {100 * row['rig_share_max']:.2g} % | {row['overlap_mean']:.2g} | "
            f"{100 * row['extra_max']:.2g} % | {100 * row['extra_p95']:.2g} % | {most} | "
            f"{100 * row['converged']:.0f} % |"
        )
    lines += ["", "Milliseconds a frame, one step each:", ""]
    for timing in timings:
        head = f"- {timing['character']}, {timing['splats']} splats, {timing['bones']} bones"
        for key, clocks in timing.items():
            for clock, parts in clocks.items() if isinstance(clocks, dict) else ():
                shown = ", ".join(f"{part} {value}" for part, value in parts.items())
                lines.append(f"{head}, {key}, {clock}: {shown}; together {sum(parts.values()):.1f}")
    return "\n".join(lines) + "\n"


def _plain(config: EvaluateComplementaryConfig) -> dict[str, Any]:
    """The options, files by name only."""
    named = {key: value.name if isinstance(value, Path) else value for key, value in vars(config).items()}
    return named | {"weights": [path.name for path in config.weights]}


if __name__ == "__main__":
    import tyro

    print(evaluate_complementary(tyro.cli(EvaluateComplementaryConfig)))
