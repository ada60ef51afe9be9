"""The engines of ``splatanim bench dynamics`` behind one interface: what a step costs, and where the object is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float64

from pipelines.dynamics_shapes import Problem, particles, tetrahedra

WARM_UP = 2  # first steps that are not counted


@dataclass(frozen=True)
class Gauge:
    """Weights that turn an engine's own points into the two things compared: centre of mass and free end."""

    masses: Float64[np.ndarray, " n"]
    tip: Bool[np.ndarray, " n"]

    def read(self, moved: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "2 3"]:
        """Mass-weighted mean displacements [m] of the whole and of the free end."""
        end = self.masses * self.tip
        return np.stack([self.masses @ moved / self.masses.sum(), end @ moved / end.sum()])


@dataclass
class Run:
    """Steps of one engine on one problem: their threads, wall and CPU milliseconds, and the curves of the gauge.

    ``unit`` and ``count`` say what is simulated; ``work`` is what a step does on average, by name; ``failure`` is why
    the engine stopped early, or ''.
    """

    engine: str
    unit: str
    count: int
    setup: float
    details: dict[str, float | int | str]
    threads: list[int] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    curve: list[np.ndarray] = field(default_factory=list)
    work: dict[str, list[float]] = field(default_factory=dict)
    unconverged: int = 0
    failure: str = ""

    def median(self, threads: int, clock: str = "wall") -> float | None:
        """Milliseconds a step with so many threads, after the warm-up; None where no step was timed."""
        values = getattr(self, clock)
        rows = [ms for k, ms in enumerate(values) if self.threads[k] == threads and k >= WARM_UP]
        return float(np.median(rows)) if rows else None

    def measured(self, threads: int) -> int:
        return sum(1 for k, used in enumerate(self.threads) if used == threads and k >= WARM_UP)


class FullSpace(Protocol):
    """A full-space simulator that can be stepped; ``step`` gives (converged, what was done, by name)."""

    def step(self) -> tuple[bool, dict[str, float]]: ...

    def moved(self) -> np.ndarray: ...


def run_ours(problem: Problem, steps: int, h: float) -> Run:
    """The reduced model. The solver holds itself to one BLAS thread, so there is no figure for two."""
    from splatanim.binding import shape_functions
    from splatanim.dynamics.simulate import Settings, simulate
    from splatanim.dynamics.terms import gravity

    model = problem.model
    terms = [gravity(model, problem.acceleration)]
    simulate(model, terms, Settings(3, 1 / h, 1))  # compiles
    start = time.process_time()
    trajectory = simulate(model, terms, Settings(steps + 1, 1 / h, 1))
    cpu = 1e3 * (time.process_time() - start) / steps
    details: dict[str, float | int | str] = {
        "reduced_coordinates": model.dof,
        "cubature_points": len(model.rest),
        "field": problem.field,
        "pose_vertices_ms": _posing(problem, trajectory.handles[-1]),
    }
    run = Run("ours", "vertices", len(problem.mesh.vertices), sum(problem.seconds.values()), details)
    run.threads = [1] * steps
    run.wall, run.cpu = trajectory.milliseconds.tolist(), [cpu] * steps
    run.work = {"newton": [float(report.iterations) for report in trajectory.reports]}
    run.unconverged = sum(not report.converged for report in trajectory.reports)
    # Read at the voxels' centres: they fill the object evenly, and are no part of what is timed.
    centres = problem.cubature.domain.centres
    gauge = Gauge(np.ones(len(centres)), problem.tip(centres))
    shape, _ = shape_functions(centres, *model.handles.evaluate(centres))
    run.curve = [gauge.read(shape @ z.transpose(0, 2, 1).reshape(-1, 3)) for z in trajectory.handles[1:]]
    return run


def _posing(problem: Problem, handles: np.ndarray) -> float:
    """Milliseconds to pose all vertices: one product of the shape functions at them (float32) with the handles."""
    from splatanim.binding import shape_functions
    from splatanim.threads import one_blas_thread

    rest = problem.mesh.vertices
    parts = np.array_split(rest, max(len(rest) // 16_384, 1))
    evaluate = problem.model.handles.evaluate
    shape = np.concatenate([shape_functions(p, *evaluate(p))[0].astype(np.float32) for p in parts])
    z = np.ascontiguousarray(handles.transpose(0, 2, 1).reshape(-1, 3), np.float32)
    still = rest.astype(np.float32)
    samples = []
    with one_blas_thread():
        for _ in range(9):
            start = time.perf_counter()
            np.add(shape @ z, still)
            samples.append(1e3 * (time.perf_counter() - start))
    return float(np.median(samples[1:]))


class _Fem:
    def __init__(self, problem: Problem, h: float, kept: Path | None) -> None:
        from pipelines.fem_dynamics import FemDynamics

        solid = tetrahedra(problem.mesh, kept)
        self.solid, held = solid, problem.region.contains(solid.nodes)
        self.engine = FemDynamics(solid, problem.material, held, problem.acceleration, h)

    def step(self) -> tuple[bool, dict[str, float]]:
        report = self.engine.step()
        return report.converged, {"newton": report.iterations, "cg": report.cg_iterations}

    def moved(self) -> np.ndarray:
        return self.engine.displacements


def run_fem(problem: Problem, steps: int, h: float, seconds: float, kept: Path | None = None) -> Run:
    """Tetrahedra on all of the mesh's vertices and what TetGen adds inside."""
    start = time.perf_counter()
    fem = _Fem(problem, h, kept)
    details: dict[str, float | int | str] = {
        "nodes": len(fem.solid.nodes),
        "tetrahedra": len(fem.solid.elements),
        "free_coordinates": 3 * int((~problem.region.contains(fem.solid.nodes)).sum()),
    }
    run = Run("fem", "nodes", len(fem.solid.nodes), time.perf_counter() - start, details)
    return _stepped(run, fem, Gauge(fem.engine.masses, problem.tip(fem.solid.nodes)), steps, seconds)


class _Mpm:
    def __init__(self, problem: Problem, h: float) -> None:
        from pipelines.mpm import Mpm

        self.rest, volume, spacing = particles(problem.mesh, len(problem.mesh.vertices))
        self.dx = 2.0 * spacing  # eight particles a cell
        self.engine = Mpm(self.rest, volume, self.dx, problem.material, problem.acceleration, h, held=problem.region)

    def step(self) -> tuple[bool, dict[str, float]]:
        report = self.engine.step()
        return True, {"substeps": report.substeps}

    def moved(self) -> np.ndarray:
        return self.engine.positions - self.rest


def run_mpm(problem: Problem, steps: int, h: float, seconds: float) -> Run:
    """About as many particles as vertices, eight to a grid cell."""
    start = time.perf_counter()
    mpm = _Mpm(problem, h)
    details: dict[str, float | int | str] = {
        "dx_mm": 1e3 * mpm.dx,
        "cells_along_longest_side": float(np.ptp(mpm.rest, axis=0).max() / mpm.dx),
        "substeps": mpm.engine.substeps,
    }
    run = Run("mpm", "particles", len(mpm.rest), time.perf_counter() - start, details)
    return _stepped(run, mpm, Gauge(np.ones(len(mpm.rest)), problem.tip(mpm.rest)), steps, seconds)


def _stepped(run: Run, engine: FullSpace, gauge: Gauge, steps: int, seconds: float) -> Run:
    """Step until the end or until the time is used up, with one and two threads in turn (one where there is one)."""
    import numba

    counts = (1, 2) if numba.get_num_threads() > 1 else (1,)
    before, begin = numba.get_num_threads(), time.perf_counter()
    try:
        for k in range(steps):
            if k == WARM_UP:
                begin = time.perf_counter()  # compiling does not count
            if time.perf_counter() - begin > seconds and k >= WARM_UP + len(counts):
                break
            threads = counts[k % len(counts)]
            numba.set_num_threads(threads)
            wall, cpu = time.perf_counter(), time.process_time()
            converged, work = engine.step()
            run.wall.append(1e3 * (time.perf_counter() - wall))
            run.cpu.append(1e3 * (time.process_time() - cpu))
            run.threads.append(threads)
            run.curve.append(gauge.read(engine.moved()))
            run.unconverged += not converged
            for name, value in work.items():
                run.work.setdefault(name, []).append(float(value))
    except (ValueError, ArithmeticError) as error:  # told in the report: one engine's failure is a result, too
        run.failure = f"step {len(run.wall) + 1}: {error}"
    finally:
        numba.set_num_threads(before)
    return run


ENGINES: dict[str, Callable[..., Run]] = {"ours": run_ours, "fem": run_fem, "mpm": run_mpm}
