"""What an animation was, for people (the summary) and for programs (``--report``)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pipelines.animate import Result
from splatanim.formats.atomic import atomic_path


def warnings_of(result: Result) -> list[str]:
    """Everything that a user should know and would not see in the picture at once."""
    notes = list(result.subject.inspection.warnings)
    trajectory = result.trajectory
    handles = result.handles.field.handles
    if handles < result.config.handles:
        notes.append(f"{result.config.handles} handles were asked for; this field has {handles} independent ones.")
    failed = Counter(r.reason for r in trajectory.reports if not r.converged)
    for reason, count in failed.items():
        notes.append(f"{count} of {len(trajectory.reports)} steps did not converge: {reason}.")
    if trajectory.penetration > 0.005:
        notes.append(
            f"The object sank {100 * trajectory.penetration:.2f} % of its size into a plane. "
            "A stiffer --material or a lower --density helps."
        )
    if not np.isfinite(trajectory.handles).all():
        notes.append("The motion is not finite; the material may be far too stiff or too soft for its density.")
    return [*notes, *result.notes]


def to_json(result: Result) -> dict[str, object]:
    """The report, with stable keys."""
    trajectory = result.trajectory
    iterations = [r.iterations for r in trajectory.reports] or [0]
    milliseconds = trajectory.milliseconds
    return {
        "file": result.subject.inspection.file,
        "output": str(result.output),
        "frames": len(trajectory.handles),
        "splats": len(result.subject.splats),
        "dropped": dropped_of(result),
        "up": result.subject.inspection.up,
        "inside": result.cubature.method,
        "field_choice": result.field_choice,
        "motion": result.config.motion,
        "material": asdict(result.material),
        "field": {
            "kind": result.handles.field.kind,
            "handles": result.handles.field.handles,
            "omega_orth": result.metrics.omega_orth,
            "kappa_log": result.metrics.kappa_log,
            "h_spec": result.metrics.h_spec,
        },
        "solver": {
            "converged_fraction": trajectory.converged_fraction,
            "newton_mean": float(np.mean(iterations)),
            "newton_max": int(max(iterations)),
            "ms_per_step_median": float(np.median(milliseconds)) if len(milliseconds) else 0.0,
            "steps": len(trajectory.reports),
        },
        "max_penetration_fraction": trajectory.penetration,
        "timings": {name: round(seconds, 4) for name, seconds in result.timings.items()},
        "warnings": warnings_of(result),
    }


def dropped_of(result: Result) -> dict[str, int]:
    inspection = result.subject.inspection
    dropped = dict(inspection.dropped)
    if inspection.floaters:
        dropped["floater"] = inspection.floaters
    return dropped


def write_report(result: Result, path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(to_json(result), indent=2) + "\n", encoding="utf-8")


def summary(result: Result) -> str:
    """One paragraph of lines for the terminal."""
    report = to_json(result)
    trajectory = result.trajectory
    dropped = dropped_of(result)
    left_out = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "none"
    metrics = result.metrics
    times = "  ".join(f"{name} {seconds:.2f}s" for name, seconds in result.timings.items())
    fails = "" if trajectory.converged_fraction == 1.0 else f" ({100 * trajectory.converged_fraction:.1f} % of steps)"
    solver = report["solver"]
    assert isinstance(solver, dict)
    lines = [
        f"{result.output}: {len(trajectory.handles)} frames of {len(result.subject.splats)} splats",
        f"  splats    {len(result.subject.splats)} kept; left out: {left_out}",
        f"  up        {result.subject.inspection.up} ({result.subject.inspection.up_source}; --up changes it)",
        f"  inside    {result.cubature.method}",
        f"  material  {result.material.name}: E {result.material.young:g} Pa, nu {result.material.poisson:g}, "
        f"rho {result.material.density:g} kg/m^3",
        f"  field     {result.field_choice or result.handles.field.kind}, "
        f"{result.handles.field.handles} handles + constant; "
        f"Omega_orth {metrics.omega_orth:.1e}, kappa_log {metrics.kappa_log:.3f}, H_spec {metrics.h_spec:.4f}",
        f"  solver    {'all steps converged' if not fails else 'converged in part' + fails}; Newton mean "
        f"{solver['newton_mean']:.1f}, max {solver['newton_max']}; {solver['ms_per_step_median']:.1f} ms a step",
        f"  contact   deepest penetration {100 * trajectory.penetration:.3f} % of the object's size",
        f"  time      {times}",
    ]
    return "\n".join([*lines, *(f"  note      {note}" for note in warnings_of(result))])
