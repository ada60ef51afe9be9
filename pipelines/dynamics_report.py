"""The figures of ``splatanim bench dynamics`` as Markdown."""

from __future__ import annotations

from typing import Any


def markdown(results: dict[str, Any]) -> str:
    """All tables. ``results`` is what :mod:`pipelines.evaluate_dynamics` writes as JSON."""
    machine, settings = results["machine"], results["settings"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        "# Dynamics: a step of the reduced model against full-space FEM and MPM",
        "",
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load_at_start']} at the start; {versions}.",
        f"h = {1e3 * settings['h']:.3g} ms, {settings['steps']} steps from rest under gravity, held at one end; "
        "medians after warm-up. `ours`: reduced, one thread. `fem`: linear tetrahedra, implicit Euler, Newton and PCG; "
        f"`mpm`: MLS-MPM, explicit; both plain references of this project, stopped after {settings['seconds']:g} s.",
        "",
        "| shape | vertices | engine | simulated | ms a step, 1 thread (CPU) | 2 threads | steps timed | times ours, "
        "1 / 2 threads | a step does | preparation s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results["objects"]:
        lines += [_timing(row, name, engine) for name, engine in row["engines"].items()]
    lines += _spread(results["objects"])
    lines += ["", "## Agreement", "", _AGREEMENT, ""]
    lines += ["| shape | vertices | engine | against | steps | centre of mass | free end | reach |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for row in results["objects"]:
        for name, engine in row["engines"].items():
            found = engine["agreement"]
            if found:
                lines.append(
                    f"| {row['shape']} | {row['vertices']} | {name} | {found['against']} | {found['steps']} | "
                    f"{100 * found['centre']:.1f} % | {100 * found['tip']:.1f} % | {found['reach']:.3f} |"
                )
    lines += _same_shape(results.get("same_shape", []))
    if "cantilever" in results:
        lines += _cantilever(results["cantilever"])
    lines += _failures(results)
    return "\n".join(lines)


_AGREEMENT = (
    "Largest distance between the curves over the common steps, in the largest displacement that the other reached; "
    "reach: ratio of the free end's largest displacements. Implicit Euler (ours and FEM) runs ahead of explicit MPM by "
    "(k + 1) / k over the first k steps from rest, and damps; MPM's grid is coarser than the surface."
)


def _timing(row: dict[str, Any], name: str, engine: dict[str, Any]) -> str:
    one, two = engine["ms_a_step"]["1"], engine["ms_a_step"]["2"]
    work = ", ".join(f"{value:.4g} {what}" for what, value in engine["work_a_step"].items())
    ratios = " / ".join(_number(engine["times_ours"][threads]) for threads in ("1", "2"))
    steps = " + ".join(str(n) for n in engine["steps"].values() if n)
    cells = [row["shape"], row["vertices"], name, f"{engine['count']} {engine['counted']}"]
    cells += [f"{_number(one['wall'])} ({_number(one['cpu'])})", _number(two["wall"]), steps, ratios, work]
    return "| " + " | ".join(str(cell) for cell in [*cells, f"{engine['setup_seconds']:.1f}"]) + " |"


def _spread(objects: list[dict[str, Any]]) -> list[str]:
    """How far the reduced steps lie apart, a step and a Newton iteration, and what posing costs."""
    ours = [row["engines"]["ours"] for row in objects if "ours" in row["engines"]]
    if not ours:
        return []
    steps = [engine["ms_a_step"]["1"]["wall"] for engine in ours]
    turns = [ms / max(engine["work_a_step"]["newton"], 1e-9) for ms, engine in zip(steps, ours, strict=True)]
    posing = ", ".join(
        f"{row['vertices']}: {row['engines']['ours']['details']['pose_vertices_ms']:.2f} ms"
        for row in objects
        if "ours" in row["engines"]
    )
    return [
        "",
        f"Ours: {min(steps):.2f} to {max(steps):.2f} ms a step ({100 * (max(steps) / min(steps) - 1):.0f} % apart), "
        f"{min(turns):.2f} to {max(turns):.2f} ms a Newton iteration ({100 * (max(turns) / min(turns) - 1):.0f} %). "
        f"Posing the vertices, apart: {posing}.",
    ]


def _same_shape(rows: list[dict[str, Any]]) -> list[str]:
    """One shape at every size: the solver never sees a vertex."""
    if not rows:
        return []
    lines = ["", f"## Vertices alone: {rows[0]['shape']} at every size, ours", ""]
    lines += ["| vertices | ms a step (CPU) | Newton iterations | posing the vertices, ms | preparation s |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| {row['vertices']} | {_number(row['ms_a_step'])} ({_number(row['cpu_ms_a_step'])}) | {row['newton']:.2f} | "
        f"{row['pose_vertices_ms']:.2f} | {row['prepare_seconds']:.1f} |"
        for row in rows
    ]
    steps = [row["ms_a_step"] for row in rows]
    return [*lines, "", f"Slowest over fastest: {100 * (max(steps) / min(steps) - 1):.1f} % apart."]


def _cantilever(found: dict[str, Any]) -> list[str]:
    lines = ["", "## Cantilever", "", found["what"], "", "| | tip deflection, of FEM | first frequency, of FEM |"]
    lines += ["|---|---|---|"]
    return lines + [
        f"| {name} | {100 * (row['tip'] - 1):+.1f} % | {100 * (row['frequency'] - 1):+.1f} % |"
        for name, row in found["rows"].items()
    ]


def _failures(results: dict[str, Any]) -> list[str]:
    lines = list(results["failures"])
    for row in results["objects"]:
        for name, engine in row["engines"].items():
            where = f"{name} on {row['shape']} with {row['vertices']} vertices"
            if engine["failure"]:
                lines.append(f"{where}: {engine['failure']}")
            if engine["unconverged_steps"]:
                lines.append(f"{where}: {engine['unconverged_steps']} steps did not converge.")
    return ["", "## Failures", "", *(f"- {line}" for line in lines or ["none"])]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"
