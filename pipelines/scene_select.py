"""``--select``: a part of a capture that moves while the rest stands still, pinned where the two meet.

The part has an inside of its own. The whole capture is filled as well; voxels of the rest that touch the part are the
interface: held still, and released over a distance around it, so that nothing tears. What the rest's splats are in the
file they stay in every export, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int

from splatanim.data import Cubature, Splats
from splatanim.dynamics.regions import Cloud, Region, shaped
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.animate import Subject

_FADE = 0.25  # of the part's size, over which the hold fades out
_TOUCH = 1.5  # voxels of the whole: rest this near to the part is the interface
_REACH = 2.0  # voxels of the whole around the interface, which the hold fills before it fades
_FEWEST = 50  # splats that make a part


@dataclass(frozen=True)
class Selection:
    """What ``--select`` said: a box or sphere in file coordinates, or a label file and its label (None: any but 0)."""

    kind: str
    numbers: tuple[float, ...] = ()
    path: Path | None = None
    label: int | None = None


@dataclass(frozen=True)
class Part:
    """The moving part of a subject: ``rows`` of its splats, its own cubature, and where it is held.

    ``still`` are contact points of the rest that are far from the interface; ``whole`` the corners of all.
    """

    rows: Int[np.ndarray, " r"]
    cubature: Cubature
    regions: tuple[Region, ...]
    still: Float64[np.ndarray, "s 3"]
    whole: Float64[np.ndarray, "2 3"]
    note: str


def parse_selection(text: str) -> Selection:
    """``box:x0,y0,z0,x1,y1,z1``, ``sphere:x,y,z,r`` or ``labels:FILE`` (``labels:FILE:3`` for label 3).

    Raises :class:`InputError` for anything else.
    """
    kind, _, rest = text.partition(":")
    if kind == "labels" and rest:
        path, _, label = rest.rpartition(":")
        if path and label.lstrip("-").isdigit():
            return Selection(kind, path=Path(path), label=int(label))
        return Selection(kind, path=Path(rest))
    try:
        numbers = tuple(float(part) for part in rest.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != {"box": 6, "sphere": 4}.get(kind, -1) or not np.isfinite(numbers).all():
        raise InputError(
            f"--select {text!r} is none of box:x0,y0,z0,x1,y1,z1, sphere:x,y,z,r (file coordinates) and labels:FILE."
        )
    if kind == "sphere" and not numbers[3] > 0:
        raise InputError(f"--select {text!r}: the sphere's radius must be positive.")
    return Selection(kind, numbers)


def select_part(selection: Selection, subject: Subject, total: int, *, seed: int = 0) -> Part:
    """Cut the selected part out of a subject; ``total`` is the number of splats that were read from its file.

    Raises :class:`InputError` where the selection holds (almost) nothing or everything, or labels do not fit.
    """
    from splatanim.sampling.cubature import cubature_from_splats

    chosen = chosen_splats(selection, subject, total)
    _sensible(chosen, subject, selection)
    rows = np.flatnonzero(chosen)
    cubature = cubature_from_splats(subject.splats.select(rows), subject.frame, seed=seed)
    whole = cubature_from_splats(subject.splats, subject.frame, seed=seed)
    interface = interface_of(cubature, whole, subject.frame.to_sim(subject.splats.means), chosen)
    corners = np.stack([whole.surface.min(axis=0), whole.surface.max(axis=0)])
    size = float((cubature.surface.max(axis=0) - cubature.surface.min(axis=0)).max())
    if not len(interface):
        note = "The selection does not touch the rest; nothing holds it."
        return Part(rows, cubature, (), np.empty((0, 3)), corners, note)
    region = shaped(Cloud(interface, _REACH * whole.domain.spacing), _FADE * size)
    still = _still_points(whole, cubature)
    share = 100.0 * len(rows) / len(chosen)
    note = f"{len(rows)} of {len(chosen)} splats ({share:.0f} %) move; the rest stands still."
    return Part(rows, cubature, (region,), still, corners, note)


def chosen_splats(selection: Selection, subject: Subject, total: int) -> Bool[np.ndarray, " n"]:
    """Which of the subject's splats a selection names."""
    from pipelines.scene_load import read_labels

    if selection.kind == "labels":
        assert selection.path is not None
        labels = read_labels(selection.path, "labels")
        if len(labels) != total:
            raise InputError(
                f"--select labels:{selection.path}: {len(labels)} labels for a file of {total} splats. "
                "One integer for each splat is needed, in the file's order."
            )
        wanted = labels != 0 if selection.label is None else labels == selection.label
        return wanted[subject.order]
    points = subject.splats.means.astype(np.float64) + subject.splats.offset
    numbers = np.asarray(selection.numbers)
    if selection.kind == "sphere":
        return np.linalg.norm(points - numbers[:3], axis=1) <= numbers[3]
    low, high = np.minimum(numbers[:3], numbers[3:]), np.maximum(numbers[:3], numbers[3:])
    return ((points >= low) & (points <= high)).all(axis=1)


def interface_of(
    part: Cubature, whole: Cubature, places: Float64[np.ndarray, "n 3"], chosen: Bool[np.ndarray, " n"]
) -> Float64[np.ndarray, "i 3"]:
    """Voxel centres of the whole that belong to the rest (as their nearest splat does) and touch the part."""
    from scipy.spatial import cKDTree

    centres = whole.domain.centres
    rest = centres[~chosen[cKDTree(places).query(centres)[1]]]
    if not len(rest):
        return rest
    reach = _TOUCH * max(whole.domain.spacing, part.domain.spacing)
    away, _ = cKDTree(part.domain.centres).query(rest, distance_upper_bound=reach)
    return rest[np.isfinite(away)]


def insert(whole: Splats, rows: Int[np.ndarray, " r"], part: Splats) -> Splats:
    """``whole`` with some of its rows replaced by those of ``part``; all others keep their bits."""
    changes = {}
    for name in ("means", "quaternions", "log_scales", "raw_opacities", "sh"):
        column = getattr(whole, name).copy()
        column[rows] = getattr(part, name)
        changes[name] = column
    return whole.replace(**changes)


def with_raw_rotations(splats: Splats, path: Path) -> Splats:
    """The splats with their quaternions as the file has them, where it is a .ply that says so (reading makes them
    unit), so that rows that do not move can be written back as they were."""
    from splatanim.formats.ply_table import read_header, read_rows

    if path.suffix.lower() != ".ply":
        return splats
    header = read_header(path)
    vertex = header.element("vertex")
    names = [f"rot_{k}" for k in range(4)]
    if vertex is None or vertex.count != len(splats) or not all(name in vertex.names for name in names):
        return splats
    rows = [np.stack([block[name] for name in names], axis=1) for block in read_rows(path, header, vertex)]
    return splats.replace(quaternions=np.concatenate(rows).astype(np.float32))


def _sensible(chosen: np.ndarray, subject: Subject, selection: Selection) -> None:
    count = int(chosen.sum())
    if count < _FEWEST:
        low, high = (np.asarray(corner) for corner in subject.inspection.bounds)
        words = " to ".join("(" + ", ".join(f"{v:.4g}" for v in corner) + ")" for corner in (low, high))
        raise InputError(
            f"--select {selection.kind}: holds {count} of {len(chosen)} splats; a part needs at least {_FEWEST}. "
            f"The capture fills {words} in its file's coordinates."
        )
    if count == len(chosen):
        raise InputError(f"--select {selection.kind}: holds every splat; leave --select out to move all.")


def _still_points(whole: Cubature, part: Cubature) -> np.ndarray:
    """Contact points of the rest that the part does not touch where it is."""
    from scipy.spatial import cKDTree

    away, _ = cKDTree(part.domain.centres).query(whole.surface)
    return whole.surface[away > 4.0 * whole.domain.spacing]
