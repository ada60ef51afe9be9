"""A scene from beginning to end: built, simulated, filmed, reported."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.animate import FILMS, Timings
from pipelines.progress import Progress
from pipelines.scene_build import BuiltObject, BuiltScene, build_scene
from splatanim.dynamics.scene import Scene, SceneError
from splatanim.dynamics.world import WorldTrajectory


@dataclass(frozen=True)
class SceneResult:
    """What a scene came to: the solver's ``trajectory`` (one motion an object, in order), and the film."""

    film: Path
    built: BuiltScene
    trajectory: WorldTrajectory
    timings: dict[str, float]
    notes: tuple[str, ...]


def animate_scene(
    scene: Scene, film: Path | str | None = None, *, backend: str = "auto", progress: Progress | None = None
) -> SceneResult:
    """Simulate a scene and write its film (``scene.mp4`` unless given), exports and report.

    Raises :class:`InputError` and ``OutputError`` with messages for the user; a :class:`SceneError` knows the key.
    """
    from pipelines.scene_film import film_scene
    from splatanim.dynamics.world import simulate_world

    progress = progress or Progress()
    timings = Timings()
    path = Path(film or scene.output.film or "scene.mp4")
    check_outputs(scene, path)
    with timings.stage("load"), progress.spinner("reading and binding the objects"):
        built = build_scene(scene)
    with timings.stage("simulate"), progress.bar("simulating", scene.frames - 1) as tick:
        trajectory = simulate_world(built.world, built.settings, on_frame=lambda _k: tick())
    notes = film_scene(built, trajectory, path, backend, timings, progress)
    result = SceneResult(path, built, trajectory, timings.seconds, tuple(notes))
    if scene.output.report:
        write_scene_report(result, Path(scene.output.report))
    return result


def check_outputs(scene: Scene, film: Path) -> None:
    """Whatever can be wrong with the outputs is said before the work, not after it."""
    from pipelines.scene_film import check_output

    check_output(scene.output.size)
    if not all(0 <= c <= 1 for c in scene.output.background):
        raise SceneError("output.background", f"background is {scene.output.background}; 0 to 1 are possible.")
    if film.suffix.lower() not in FILMS:
        raise SceneError(
            "output.film",
            f"film {film}: a film is .mp4, .webm or .mov, or a folder of PNGs (no suffix); for splats set ply.",
        )
    if scene.output.transparent and film.suffix.lower() == ".mp4":
        raise SceneError("output.film", f"film {film}: an .mp4 holds no alpha; write {film.with_suffix('.webm')}.")
    for key, path in (("film", film), ("report", Path(scene.output.report or film))):
        if not path.parent.is_dir():
            raise SceneError(f"output.{key}", f"{key} {path}: there is no folder {path.parent}. Make it first.")
    if not (scene.camera.path in ("orbit", "fixed") or scene.camera.path.endswith(".json")):
        raise SceneError("camera.path", f"path is {scene.camera.path!r}; give orbit, fixed or a .json of cameras.")


def warnings_of(result: SceneResult) -> list[str]:
    """Everything that a user should know and would not see in the film at once."""
    notes = [f"{item.thing.name}: {note}" for item in result.built.objects for note in item.thing.source.notes]
    for item in result.built.objects:
        asked = next(o.handles for o in result.built.scene.objects if o.name == item.thing.name)
        have = item.model.handles.field.handles
        if not item.rigid and have < asked:
            notes.append(f"{item.thing.name}: {asked} handles were asked for; its field has {have} independent ones.")
    for item, motion in zip(result.built.objects, result.trajectory.trajectories, strict=True):
        if motion.penetration > 0.005:
            notes.append(f"{item.thing.name} sank {100 * motion.penetration:.2f} % of its size into a plane.")
        if not np.isfinite(motion.handles).all():
            notes.append(f"{item.thing.name}: its motion is not finite; its material may be far too stiff or soft.")
    return [*notes, *result.trajectory.notes, *result.notes]


def scene_json(result: SceneResult) -> dict[str, Any]:
    """The report, with stable keys."""
    trajectory = result.trajectory
    iterations = [report.iterations for report in trajectory.reports] or [0]
    milliseconds = trajectory.milliseconds
    gap = trajectory.smallest_gap
    return {
        "film": str(result.film),
        "frames": len(trajectory.times),
        "objects": [_object_json(result, item, k) for k, item in enumerate(result.built.objects)],
        "scenery": [
            {"name": prop.thing.name, "file": prop.thing.source.label, "splats": len(prop.thing.source.splats)}
            for prop in result.built.props
        ],
        "solver": {
            "integrator": result.built.scene.integrator,
            "converged_fraction": trajectory.converged_fraction,
            "newton_mean": float(np.mean(iterations)),
            "newton_max": int(max(iterations)),
            "ms_per_step_median": float(np.median(milliseconds)) if len(milliseconds) else 0.0,
            "steps": len(trajectory.reports),
            "steps_cut": int(sum(parts > 1 for parts in trajectory.substeps)),
            "most_parts": int(max(trajectory.substeps, default=1)),
        },
        "contact": {
            "smallest_gap": gap if np.isfinite(gap) else None,
            "max_penetration_fraction": max(motion.penetration for motion in trajectory.trajectories),
        },
        "timings": {name: round(seconds, 4) for name, seconds in result.timings.items()},
        "warnings": warnings_of(result),
    }


def _object_json(result: SceneResult, item: BuiltObject, k: int) -> dict[str, Any]:
    trajectory = result.trajectory
    return {
        "name": item.thing.name,
        "file": item.thing.source.label,
        "splats": len(item.thing.source.splats),
        "rigid": item.rigid,
        "size": item.thing.size,
        "mass": item.model.mass,
        "handles": item.model.handles.field.handles,
        "field": item.field_choice or item.model.handles.field.kind,
        "inside": item.thing.cubature.method,
        "material": dataclasses.asdict(item.material),
        "max_penetration_fraction": trajectory.trajectories[k].penetration,
        "kinetic_energy": [round(float(value), 6) for value in trajectory.kinetic[:, k]],
        "elastic_energy": [round(float(value), 6) for value in trajectory.elastic[:, k]],
    }


def write_scene_report(result: SceneResult, path: Path) -> None:
    """The report as JSON."""
    from splatanim.formats.atomic import atomic_path

    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(scene_json(result), indent=2) + "\n", encoding="utf-8")


def scene_summary(result: SceneResult) -> str:
    """One paragraph of lines for the terminal."""
    report = scene_json(result)
    solver, contact = report["solver"], report["contact"]
    lines = [f"{result.film}: {report['frames']} frames of {len(result.built.objects)} objects"]
    for item in result.built.objects:
        kind = "rigid" if item.rigid else f"{item.model.handles.field.handles} handles"
        lines.append(
            f"  {item.thing.name:<10}{len(item.thing.source.splats)} splats, {item.thing.size:.3g} m, "
            f"{item.model.mass:.3g} kg, {item.material.name}, {kind}"
        )
    whole = solver["converged_fraction"] == 1.0
    converged = "all steps converged" if whole else f"{100 * solver['converged_fraction']:.1f} % of steps converged"
    lines.append(
        f"  solver    {converged}; Newton mean {solver['newton_mean']:.1f}, max {solver['newton_max']}; "
        f"{solver['ms_per_step_median']:.1f} ms a step; {solver['steps_cut']} steps cut"
    )
    gap = contact["smallest_gap"]
    between = "no two bodies came near" if gap is None else f"smallest gap {gap:.3f} of the contact distance"
    lines.append(f"  contact   {between}; deepest under a plane {100 * contact['max_penetration_fraction']:.3f} %")
    lines.append("  time      " + "  ".join(f"{name} {seconds:.2f}s" for name, seconds in result.timings.items()))
    return "\n".join([*lines, *(f"  note      {note}" for note in report["warnings"])])
