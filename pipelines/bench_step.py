"""``splatanim bench step``: what one step of reduced dynamics costs, and posing, as medians on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from splatanim.binding import Handles
from splatanim.data import Cubature, Domain, Frame, Material, Splats
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.terms import Step


@dataclass(frozen=True)
class BenchStepConfig:
    """Time a Newton iteration, a simulation step and posing; prints medians.

    CPU milliseconds are those of one thread.

    Args:
        handles: Handles besides the constant; 9 gives 120 reduced coordinates.
        repeats: Runs of each; the median counts.
        pose_splats: Splats of the posing test.
        json: Print JSON.
    """

    handles: int = 9
    repeats: int = 30
    pose_splats: int = 1_000_000
    json: bool = False


def bench_step(config: BenchStepConfig) -> str:
    """Run all and format them."""
    from splatanim.threads import one_blas_thread

    model = bar_model(config.handles)
    rows: dict[str, float] = {"reduced_coordinates": model.dof, "cubature_points": len(model.rest)}
    with one_blas_thread():
        rows |= newton_iteration(model, config.repeats)
    rows |= pinned_beam(config.handles, config.repeats)
    rows |= step_against_splats(config)
    rows |= posing(config.pose_splats)
    if config.json:
        return json.dumps(rows, indent=2)
    width = max(len(name) for name in rows)
    return "\n".join(f"{name:<{width}}  {value:10.3f}" for name, value in rows.items())


def bar_cubature() -> Cubature:
    """A bar of 32 x 16 x 16 voxels, one cubature point for each block of 2^3: 1024 points."""
    spacing = 1.0 / 32
    grid = np.stack(np.meshgrid(np.arange(32), np.arange(16), np.arange(16), indexing="ij"), -1).reshape(-1, 3)
    domain = Domain(grid, np.array([-0.5, -0.25, -0.25]), spacing)
    block = np.stack(np.meshgrid(np.arange(16), np.arange(8), np.arange(8), indexing="ij"), -1).reshape(-1, 3)
    points = domain.origin + (block + 0.5) * 2 * spacing
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.25, 0.25) for z in (-0.25, 0.25)])
    return Cubature(points, np.full(len(points), 8 * spacing**3), corners, domain, "bar")


def bar_model(handles: int, *, pinned: bool = False) -> ReducedModel:
    from splatanim.dynamics.regions import Region
    from splatanim.field.gaussians import bind_gaussians

    cubature = bar_cubature()
    regions = (Region((-9.0, -9.0, -9.0), (-0.45, 9.0, 9.0), 0.2),) if pinned else ()
    field = bind_gaussians(cubature.domain, handles)
    return reduce(cubature, Handles(field, regions), Material("bench", 1e5, 0.45, 1000.0))


def _median(action: Callable[[], object], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    action()
    samples = []
    for _ in range(repeats):
        start = clock()
        action()
        samples.append(1e3 * (clock() - start))
    return float(np.median(samples))


def newton_iteration(model: ReducedModel, repeats: int) -> dict[str, float]:
    """Energy, gradient, Hessian, factorisation and solve at a deformed state."""
    from scipy.linalg import cho_factor, cho_solve

    from splatanim.dynamics.dilation import AveragedElasticity
    from splatanim.dynamics.terms import Elasticity, Inertia

    rng = np.random.default_rng(0)
    y = 0.05 * np.sqrt(model.mass) * rng.normal(size=model.dof)
    terms: list[Inertia | Elasticity] = [Inertia(model), AveragedElasticity(model)]
    held = np.zeros((3, 0))
    step = Step(0.0, 1 / 120, np.zeros_like(y), np.zeros_like(y), held, held, held)
    state = {"y": y}

    def iterate() -> None:
        state["y"] = state["y"] * 1.0001  # a new point, so that nothing is remembered
        sum(term.energy(state["y"]) for term in terms)
        gradient = np.add.reduce([term.gradient(state["y"]) for term in terms])
        hessian = np.add.reduce([term.hessian(state["y"]) for term in terms])
        cho_solve(cho_factor(hessian, lower=True, check_finite=False), gradient, check_finite=False)

    for term in terms:
        term.begin_step(step)
    return {"newton_iteration_cpu_ms": _median(iterate, repeats)}


def pinned_beam(handles: int, repeats: int) -> dict[str, float]:
    """Whole implicit steps (h = 1/60 s) of a beam that is pinned at one end and falls under gravity."""
    from splatanim.dynamics.simulate import Settings, simulate
    from splatanim.dynamics.terms import gravity

    model = bar_model(handles, pinned=True)
    terms = [gravity(model, np.array([0.0, -9.81, 0.0]))]
    simulate(model, terms, Settings(3, 60.0, 1))
    start = time.process_time()
    trajectory = simulate(model, terms, Settings(2 * repeats + 1, 60.0, 1))
    cpu = 1e3 * (time.process_time() - start) / len(trajectory.reports)
    return {
        "beam_step_cpu_ms": cpu,
        "beam_newton_mean": float(np.mean([r.iterations for r in trajectory.reports])),
        "beam_converged": trajectory.converged_fraction,
    }


def step_against_splats(config: BenchStepConfig) -> dict[str, float]:
    """The solve knows nothing of the splats: the ratio of step times bound to 1 M and to 10 k of them, in one run."""
    from splatanim.dynamics.simulate import Settings, simulate
    from splatanim.dynamics.terms import gravity
    from splatanim.transforms import bind_splats

    model = bar_model(config.handles, pinned=True)
    out = {}
    for count in (10_000, config.pose_splats):
        bound = bind_splats(_cloud(count), Frame((0.0, 0.0, 0.0), 1.0, (0.0, 1.0, 0.0)), model.handles)
        trajectory = simulate(model, [gravity(model, np.array([0.0, -9.81, 0.0]))], Settings(60, 60.0, 1))
        out[f"step_ms_with_{len(bound.rest)}_splats"] = float(np.median(trajectory.milliseconds))
    return out


def posing(count: int) -> dict[str, float]:
    """Wall milliseconds to pose ``count`` SH-3 splats by 17 handles, all threads."""
    from splatanim.transforms import bind_splats, pose

    model = bar_model(16)
    bound = bind_splats(_cloud(count), Frame((0.0, 0.0, 0.0), 1.0, (0.0, 1.0, 0.0)), model.handles)
    z = 0.01 * np.random.default_rng(0).normal(size=(len(model.handles), 3, 4))  # strains of some ten per cent
    return {f"pose_{count}_splats_wall_ms": _median(lambda: pose(bound, z), 5, time.perf_counter)}


def _cloud(count: int) -> Splats:
    rng = np.random.default_rng(0)
    q = rng.normal(size=(count, 4)).astype(np.float32)
    return Splats(
        (rng.uniform(-0.5, 0.5, (count, 3)) * [1.0, 0.5, 0.5]).astype(np.float32),
        q / np.linalg.norm(q, axis=1, keepdims=True),
        (rng.normal(size=(count, 3)) - 5).astype(np.float32),
        rng.normal(size=count).astype(np.float32),
        rng.normal(size=(count, 16, 3)).astype(np.float32),
    )
