"""``splatanim bench dynamics``: a step of reduced dynamics against full-space FEM and MPM, on one problem, in one run.

The paper's time-efficiency table (IV-D): objects of 10k, 80k, 121k and 127k vertices. Each is held at one end and
released under gravity, with a stiffness at which the small-strain answer sags by a tenth of its size; every engine
gets the same hold, load, material and animation step h. FEM and MPM are this project's own plain references
(:mod:`pipelines.fem_dynamics`, :mod:`pipelines.mpm`). How far the engines agree on the motion stands beside the times.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import numpy as np

from pipelines.dynamics_engines import Run, run_fem, run_mpm, run_ours
from pipelines.dynamics_shapes import SHAPES, Problem, make_problem
from pipelines.progress import Progress
from splatanim.errors import InputError

Engine = Literal["ours", "fem", "mpm"]
_FAILURES = (InputError, ValueError, ArithmeticError, MemoryError, OSError)  # of one row, which the others survive


@dataclass(frozen=True)
class EvaluateDynamicsConfig:
    """Time steps of reduced dynamics against full-space implicit FEM and explicit MPM, and how far they agree.

    Writes dynamics.md and dynamics.json. Medians over steps, first steps left out; FEM and MPM run with one and two
    threads in turn. Tetrahedra are kept in the output folder, so that a second run is quick.

    Args:
        folder: The folder of closed meshes (vehicle_plane.ply, human_hand_closed.ply, ...).
        output: Where tables and tetrahedra go.
        engines: What to time.
        sizes: Vertices of the objects; the first size goes with the first shape, and so on round.
        shapes: Files of the folder.
        same: Another file, on which the reduced model alone is timed at every size ('' for none).
        steps: Animation steps.
        h: Their length [s].
        seconds: After so many seconds an engine stops on an object, with the steps that it has made.
        handles: Skinning handles of the reduced model.
        cantilever: Hold the reduced model against FEM and beam theory on a bar, too.
        seed: Seed of everything random.
    """

    folder: Path
    output: Path = Path("bench-dynamics")
    engines: tuple[Engine, ...] = ("ours", "fem", "mpm")
    sizes: tuple[int, ...] = (10_000, 80_000, 121_000, 127_000)
    shapes: tuple[str, ...] = SHAPES
    same: str = "animal_spot.ply"
    steps: int = 60
    h: float = 1 / 120
    seconds: float = 20.0
    handles: int = 16
    cantilever: bool = True
    seed: int = 0


def evaluate_dynamics(config: EvaluateDynamicsConfig, progress: Progress | None = None) -> str:
    """Run all; returns the Markdown. What is done is written after every object; failures are rows, too.

    Raises :class:`InputError` for empty lists, steps too few to time, or when no object could be prepared.
    """
    from pipelines.dynamics_cantilever import cantilever

    progress = progress or Progress()
    if not (config.engines and config.sizes and config.shapes):
        raise InputError("bench dynamics: --engines, --sizes and --shapes need at least one entry each.")
    if config.steps < 4 or not config.h > 0:
        raise InputError(f"bench dynamics: --steps {config.steps} --h {config.h}: at least 4 steps of positive length.")
    config.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, object] = {"machine": machine(), "settings": _settings(config), "objects": [], "failures": []}
    if config.cantilever:
        with progress.spinner("cantilever"):
            results["cantilever"] = cantilever(config.handles)
    objects: list[dict[str, object]] = []
    failures: list[str] = []
    results |= {"objects": objects, "failures": failures}
    if config.same and "ours" in config.engines:
        results["same_shape"] = _same_shape(config, failures)
    text = _write(results, config.output)
    with progress.bar("engines", len(config.sizes) * len(config.engines)) as tick:
        for number, size in enumerate(config.sizes):
            file = config.shapes[number % len(config.shapes)]
            problem = _prepared(config, file, size, failures)
            if problem is not None:
                runs = []
                for engine in config.engines:
                    try:
                        runs.append(_run(engine, problem, config))
                    except _FAILURES as error:
                        failures.append(f"{engine} on {file} with {size} vertices: {error}")
                    tick()
                objects.append(_row(problem, runs))
            text = _write(results, config.output)
    if not objects:
        raise InputError("bench dynamics: no object could be prepared.\n" + "\n".join(f"  {f}" for f in failures))
    return text


def _prepared(config: EvaluateDynamicsConfig, file: str, size: int, failures: list[str]) -> Problem | None:
    """The problem, or None and a line of ``failures``."""
    try:
        return make_problem(config.folder / file, size, config.handles, config.seed)
    except _FAILURES as error:
        failures.append(f"{file} with {size} vertices: {error}")
        return None


def _write(results: dict[str, object], output: Path) -> str:
    """Both files as far as things have got; returns the Markdown."""
    from pipelines.dynamics_report import markdown
    from splatanim.formats.atomic import atomic_path

    text = markdown(results)
    with atomic_path(output / "dynamics.json") as path:
        path.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with atomic_path(output / "dynamics.md") as path:
        path.write_text(text + "\n", encoding="utf-8")
    return text


def _same_shape(config: EvaluateDynamicsConfig, failures: list[str]) -> list[dict[str, object]]:
    """The reduced model of one shape at every size: what is left is the effect of the number of vertices."""
    runs = []
    for size in config.sizes:
        problem = _prepared(config, config.same, size, failures)
        if problem is None:
            continue
        run = run_ours(problem, config.steps, config.h)
        runs.append(
            {
                "shape": problem.name,
                "vertices": size,
                "ms_a_step": run.median(1),
                "cpu_ms_a_step": run.median(1, "cpu"),
                "newton": float(np.mean(run.work["newton"])),
                "pose_vertices_ms": run.details["pose_vertices_ms"],
                "prepare_seconds": run.setup,
            }
        )
    return runs


def machine() -> dict[str, object]:
    """Processor, cores, load and versions, as far as the system tells."""
    from threadpoolctl import threadpool_info

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    versions = {"python": platform.python_version()}
    for package in ("splatanim", "numpy", "scipy", "numba", "torch", "tetgen"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    blas = sorted({f"{i['internal_api']} {i.get('version')} {i.get('architecture', '')}" for i in threadpool_info()})
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "load_at_start": load,
        "system": platform.platform(),
        "blas_and_threads": blas,
        "versions": versions,
    }


def _settings(config: EvaluateDynamicsConfig) -> dict[str, object]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(config).items()}


def _run(engine: str, problem: Problem, config: EvaluateDynamicsConfig) -> Run:
    if engine == "ours":
        return run_ours(problem, config.steps, config.h)
    if engine == "mpm":
        return run_mpm(problem, config.steps, config.h, config.seconds)
    kept = config.output / "tetrahedra" / f"{problem.name}-{len(problem.mesh.vertices)}.npz"
    return run_fem(problem, config.steps, config.h, config.seconds, kept)


def _row(problem: Problem, runs: list[Run]) -> dict[str, object]:
    """One object's figures; ratios are medians over ours with one thread, agreement is against FEM (else ours)."""
    ours = next((run.median(1) for run in runs if run.engine == "ours"), None)
    truth = next((run for name in ("fem", "ours") for run in runs if run.engine == name and run.curve), None)
    engines = {}
    for run in runs:
        medians = {str(t): {c: run.median(t, c) for c in ("wall", "cpu")} for t in (1, 2)}
        walls = {t: medians[str(t)]["wall"] for t in (1, 2)}
        engines[run.engine] = {
            "counted": run.unit,
            "count": run.count,
            "setup_seconds": run.setup,
            "ms_a_step": medians,
            "steps": {str(t): run.measured(t) for t in (1, 2)},
            "times_ours": {str(t): None if ms is None or ours is None else ms / ours for t, ms in walls.items()},
            "work_a_step": {name: float(np.mean(values)) for name, values in run.work.items()},
            "unconverged_steps": run.unconverged,
            "failure": run.failure,
            "details": run.details,
            "agreement": None if truth is None or run is truth else agreement(run, truth),
            "tip_displacement_m": [float(np.linalg.norm(at[1])) for at in run.curve],
        }
    return {
        "shape": problem.name,
        "vertices": len(problem.mesh.vertices),
        "material": asdict(problem.material),
        "seconds_to_prepare": problem.seconds,
        "engines": engines,
    }


def agreement(run: Run, truth: Run) -> dict[str, object]:
    """Largest distance between two engines' curves over their common steps, in the largest displacement of the truth:
    of the centre of mass and of the free end; and the ratio of their largest free-end displacements."""
    steps = min(len(run.curve), len(truth.curve))
    ours, theirs = np.array(run.curve[:steps]), np.array(truth.curve[:steps])  # (t, 2, 3)
    reach = np.linalg.norm(theirs, axis=2).max(axis=0)
    apart = np.linalg.norm(ours - theirs, axis=2).max(axis=0) / np.maximum(reach, 1e-300)
    ratio = float(np.linalg.norm(ours[:, 1], axis=1).max() / max(reach[1], 1e-300))
    return {"against": truth.engine, "steps": steps, "centre": float(apart[0]), "tip": float(apart[1]), "reach": ratio}
