"""``splatanim bench rigs``: the auto-rigger against the rigs that artists made.

Run as ``python -m pipelines.evaluate_rigs --folder DATA/rigged --output TABLES``; writes rigs.md, rigs.json and a
picture of every character, with the true skeleton in grey.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from tyro.conf import UseAppendAction

from pipelines.progress import Progress
from splatanim.errors import InputError

if TYPE_CHECKING:
    from splatanim.rig.auto_rig import AutoRig
    from splatanim.rig.model import RiggedModel
    from splatanim.rig.weights import SkinWeights

Study = Literal["auto"]

_FEWEST = 64  # vertices of a character


@dataclass(frozen=True)
class EvaluateRigsConfig:
    """Measure rigs against those of skinned and animated characters (.glb, .gltf).

    Args:
        folder: A folder of characters; clips in files without a mesh go to the characters beside them.
        output: Folder for rigs.md, rigs.json and pictures.
        study: What to measure (all when not given): auto is the auto-rigger.
        subject: Characters to take, by file name without suffix (all when not given).
        frames: Moments of each clip.
        weights: Where the auto-rigger's heat spreads: volume or surface (extra rig).
        pictures: Draw every character.
    """

    folder: Path
    output: Path
    study: UseAppendAction[tuple[Study, ...]] = ()
    subject: UseAppendAction[tuple[str, ...]] = ()
    frames: int = 12
    weights: Literal["volume", "surface"] = "volume"
    pictures: bool = True


def evaluate_rigs(config: EvaluateRigsConfig, progress: Progress | None = None) -> str:
    """Run the studies, write their tables, return the markdown.

    Raises :class:`InputError` where the folder has no character with a rig.
    """
    from splatanim.formats.atomic import atomic_path

    if config.frames < 1:
        raise InputError(f"--frames {config.frames}: at least one moment of each clip is needed.")
    progress = progress or Progress()
    config.output.mkdir(parents=True, exist_ok=True)
    parts, tables = [], {}
    names: tuple[str, ...] = config.study or tuple(STUDIES)
    for name in names:
        tables[name], text = STUDIES[name](config, progress)
        parts.append(text)
    text = "\n\n".join(parts) + "\n"
    for file, content in (("rigs.md", text), ("rigs.json", json.dumps(tables, indent=2) + "\n")):
        with atomic_path(config.output / file) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return text


def load_characters(config: EvaluateRigsConfig) -> tuple[dict[str, RiggedModel], list[str]]:
    """Characters by name, with the clips of files beside them; and why others were left out."""
    from splatanim.rig.gltf import read_gltf

    if not config.folder.is_dir():
        raise InputError(f"{config.folder}: is no folder. Give one with .glb or .gltf characters.")
    files = sorted(p for p in config.folder.rglob("*") if p.suffix.lower() in (".glb", ".gltf"))
    models, clips, left_out = {}, [], []
    for path in files:
        try:
            model = read_gltf(path)
        except InputError as error:
            left_out.append(f"{path.name}: {error}")
            continue
        if len(model.vertices):
            models[path] = model
        else:
            clips.append((path, model))
    for path, motion in clips:
        for beside in [p for p in models if p.parent == path.parent]:
            if set(models[beside].skeleton.names) & set(motion.skeleton.names):
                models[beside] = models[beside].with_clips_of(motion)
    named = {path.stem: model for path, model in models.items()}
    unknown = [name for name in config.subject if name not in named]
    if unknown or not named:
        there = ", ".join(named) or "none"
        raise InputError(f"{config.folder}: no character {', '.join(unknown)}. There are: {there}.")
    return {name: named[name] for name in config.subject or named}, left_out


def auto_study(config: EvaluateRigsConfig, progress: Progress) -> tuple[list[dict[str, object]], str]:
    """The auto-rigger on every character."""
    characters, left_out = load_characters(config)
    rows: list[dict[str, object]] = []
    with progress.bar("rigging characters", len(characters)) as tick:
        for name, model in characters.items():
            try:
                rows.append(measure(name, model, config))
            except InputError as error:
                left_out.append(f"{name}: {error}")
            tick()
    return rows, markdown(rows, left_out, config)


def measure(name: str, model: RiggedModel, config: EvaluateRigsConfig) -> dict[str, object]:
    """One character: the rig found, its distances from the true one, and the errors of re-posing."""
    from pipelines.objects import mesh_object
    from pipelines.rig_metrics import bones_of, bound_joints, skeleton_distances, weight_difference
    from splatanim.data import Mesh
    from splatanim.rig.auto_rig import auto_rig

    if not len(model.faces) or len(model.vertices) < _FEWEST:
        raise InputError(
            f"{len(model.vertices)} vertices and {len(model.faces)} faces are too few to fit bones' motions to."
        )
    start, wall = time.process_time(), time.perf_counter()
    subject = mesh_object(Mesh(model.vertices, model.faces), name)
    found = auto_rig(subject.cubature.domain, subject.frame)
    skin = found.weights(model.vertices, how=config.weights)
    seconds = time.process_time() - start, time.perf_counter() - wall
    ours = bones_of(found.skeleton, joints=~found.tree.ends)
    truth = bones_of(model.skeleton, bound_joints(model))
    row: dict[str, object] = {
        "name": name,
        "vertices": len(model.vertices),
        "joints": int((~found.tree.ends).sum()),
        "ends": int(found.tree.ends.sum()),
        "true_joints": len(truth.joints),
        "pairs": sum(len(limb) == 2 for limb in found.limbs),
        "limbs": [list(limb) for limb in found.limbs],
        "plane": None if found.plane is None else found.plane.normal.round(4).tolist(),
        **skeleton_distances(ours, truth, model.size),
        "weights_l1": weight_difference(skin, model.skin),
        "outside": outside_share(found),
        "cpu_seconds": seconds[0],
        "wall_seconds": seconds[1],
        **reposing(model, found, skin, config.frames),
    }
    if config.pictures:
        _draw(name, model, found, config)
    return row


def outside_share(found: AutoRig) -> float:
    """The share of the bones' length that lies outside the object."""
    from splatanim.rig.auto_grid import nearest_cells

    tree = found.tree
    lower = np.flatnonzero(tree.parents >= 0)
    share = np.linspace(0.0, 1.0, 32)[:, None, None]
    a, b = tree.positions[tree.parents[lower]], tree.positions[lower]
    points = (a * (1 - share) + b * share).reshape(-1, 3)
    length = np.tile(np.linalg.norm(b - a, axis=1), 32)
    away = np.abs(points - found.graph.centres[nearest_cells(found.graph, points)[1][:, 0]]).max(axis=1)
    return float((length * (away > 0.75 * found.graph.spacing)).sum() / max(length.sum(), 1e-12))


def reposing(model: RiggedModel, found: AutoRig, skin: SkinWeights, frames: int) -> dict[str, object]:
    """Mean vertex errors (shares of the size) over moments of all clips: with the rig found, with the artist's weights
    under the same fit, and with one rigid motion of the whole."""
    from pipelines.rig_metrics import reposing_errors, rigid_motion

    ours, artist, rigid, worst = [], [], [], 0.0
    rest = model.vertices
    for clip in model.animations.values():
        for at in np.linspace(clip.start, clip.end, frames):
            moved = model.posed(clip.sample(float(at)))
            errors = reposing_errors(rest, moved, found.skeleton, skin)
            ours.append(errors.mean())
            worst = max(worst, float(np.percentile(errors, 95)))
            artist.append(reposing_errors(rest, moved, model.skeleton, model.skin).mean())
            whole = rigid_motion(rest, moved)
            rigid.append(np.linalg.norm(rest @ whole[:3, :3].T + whole[:3, 3] - moved, axis=1).mean())
    if not ours:
        return {"clips": 0, "frames": 0}
    return {
        "clips": len(model.animations),
        "frames": len(ours),
        "reposed_mean": float(np.mean(ours) / model.size),
        "reposed_worst_frame": float(np.max(ours) / model.size),
        "reposed_worst_p95": worst / model.size,
        "artist_mean": float(np.mean(artist) / model.size),
        "rigid_mean": float(np.mean(rigid) / model.size),
    }


def _draw(name: str, model: RiggedModel, found: AutoRig, config: EvaluateRigsConfig) -> None:
    from pipelines.objects import mesh_object, surface_of
    from pipelines.rig_metrics import bones_of, bound_joints
    from pipelines.rig_pictures import rig_picture
    from splatanim.data import Mesh
    from splatanim.render.video import write_png
    from splatanim.rig.skeleton import skeleton_from_positions

    surface = surface_of(mesh_object(Mesh(model.vertices, model.faces), name))
    offset = np.asarray(surface.splats.offset)
    back = np.eye(4)
    back[:3, 3] = -offset
    truth = bones_of(model.skeleton, bound_joints(model)).bones - offset
    pairs = truth.reshape(-1, 3)
    parents = np.where(np.arange(len(pairs)) % 2, np.arange(len(pairs)) - 1, -1)
    grey = skeleton_from_positions([str(k) for k in range(len(pairs))], parents, pairs) if len(pairs) else None
    image = rig_picture(
        surface,
        found.skeleton.transformed(back),
        found.weights(surface.splats.means.astype(np.float64) + offset, how=config.weights),
        (0.0, 1.0, 0.0),
        title=name,
        subtitle=f"{int((~found.tree.ends).sum())} joints and {int(found.tree.ends.sum())} ends; grey: the true rig",
        reference=grey,
    )
    write_png(config.output / f"rig_{name}.png", image)


def markdown(rows: list[dict[str, object]], left_out: list[str], config: EvaluateRigsConfig) -> str:
    """The table, in per cent of the objects' sizes."""
    lines = [
        "## Auto-rig",
        "",
        f"Weights by heat in the {config.weights}; {config.frames} moments of every clip. Distances in % of the size.",
        "",
        "| character | joints (true) | pairs | J2J | J2B | B2B | weights L1 | re-posed: mean | worst frame | artist's "
        "weights | rigid | bones outside | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [_percent(row, key) for key in ("j2j", "j2b", "b2b")]
        cells.append(f"{row['weights_l1']:.2f}")
        cells += [_percent(row, key) for key in ("reposed_mean", "reposed_worst_frame", "artist_mean", "rigid_mean")]
        cells += [_percent(row, "outside"), f"{row['cpu_seconds']:.1f}"]
        head = f"{row['name']} | {row['joints']} ({row['true_joints']}) | {row['pairs']}"
        lines.append(f"| {head} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- left out: {reason}" for reason in left_out)]).rstrip()


def _percent(row: dict[str, object], key: str) -> str:
    value = row.get(key)
    return f"{100 * value:.2f}" if isinstance(value, float) else "-"


#: A study takes the configuration and returns rows for rigs.json and text for rigs.md.
STUDIES: dict[str, Callable[[EvaluateRigsConfig, Progress], tuple[list[dict[str, object]], str]]] = {"auto": auto_study}


def main() -> None:
    """Entry point of ``python -m pipelines.evaluate_rigs``."""
    import tyro

    print(evaluate_rigs(tyro.cli(EvaluateRigsConfig, config=(tyro.conf.OmitArgPrefixes,)), Progress(None)))


if __name__ == "__main__":
    main()
