"""What a rig-driven film can leave beside its pictures: splat sequences, and glTF points with skin and clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.rigged import Actor
    from splatanim.rig.animation import Animation


def parse_exports(exports: Sequence[str]) -> list[tuple[str, Path]]:
    """``ply:DIR`` and ``glb:FILE`` -> (kind, path)."""
    out = []
    for text in exports:
        kind, _, path = text.partition(":")
        if kind not in ("ply", "glb") or not path:
            raise InputError(f"--export {text!r} is neither ply:DIR (a splat sequence) nor glb:FILE (points on a rig).")
        if kind == "glb" and Path(path).suffix.lower() != ".glb":
            raise InputError(f"--export {text!r}: the file must end in .glb.")
        out.append((kind, Path(path)))
    return out


def sequence_writer(exports: Sequence[str], order: np.ndarray) -> Callable[[int, Splats], None]:
    """Writes a frame into every ``ply:`` folder; ``order`` is the source's row of each splat of the film."""
    from splatanim.formats import write_sequence_frame

    folders = [path for kind, path in parse_exports(exports) if kind == "ply"]
    back = np.argsort(order)

    def write(frame: int, splats: Splats) -> None:
        for folder in folders:
            write_sequence_frame(folder, frame, splats.select(back))

    return write


def write_models(exports: Sequence[str], actor: Actor, clip: Animation, name: str) -> list[str]:
    """Every ``glb:`` file: the splats' centres with skeleton, weights and the clip; returns notes."""
    from splatanim.inspect import up_vector
    from splatanim.rig.affine import shortest_turn
    from splatanim.rig.gltf import write_glb
    from splatanim.rig.points_model import points_of_splats

    notes = []
    for kind, path in parse_exports(exports):
        if kind != "glb":
            continue
        rigged = actor.rigged
        model = points_of_splats(rigged.splats, actor.model.skeleton, rigged.skin, {clip.name: clip})
        placed = np.eye(4)
        upright = np.asarray(up_vector("+y"))
        if not np.allclose(actor.up, upright):
            placed[:3, :3] = shortest_turn(np.asarray(actor.up), upright)
        write_glb(path, model, name=name, placed=placed)
        notes.append(f"{path}: {len(rigged.splats)} points on {len(actor.model.skeleton)} joints, clip {clip.name}")
    return notes
