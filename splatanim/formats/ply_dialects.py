"""Which .ply dialect a vertex element is written in: its columns bound by name, or a refusal that says why.

* 3DGS (Inria): ``x y z [nx ny nz] f_dc_0..2 f_rest_* opacity scale_0..2 rot_0..3``, any order.
* Mip-Splatting: 3DGS and ``filter_3D``, the standard deviation of a 3D low-pass filter.
* 2DGS: 3DGS without ``scale_2``.
* RGB: ``red green blue`` in place of ``f_dc``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from splatanim.errors import InputError
from splatanim.formats.ply_table import Element, Header, Property

POSITION = ("x", "y", "z")
DC = ("f_dc_0", "f_dc_1", "f_dc_2")
RGB = ("red", "green", "blue")
SCALES = ("scale_0", "scale_1", "scale_2")
ROTATION = ("rot_0", "rot_1", "rot_2", "rot_3")
OPACITY = "opacity"
FILTER = "filter_3D"

_NEEDED = "Needed are x y z, f_dc_0..2 (or red green blue), opacity, scale_0..2 and rot_0..3."
_EXPORT = "Give the trained 3D Gaussian splats instead (often point_cloud/iteration_30000/point_cloud.ply)."


@dataclass(frozen=True)
class Layout:
    """Where each quantity lies: column names in order.

    ``rest`` is channel-major, as in the file: all coefficients of red, then of green, then of blue. ``colours`` is
    ``DC`` or ``RGB``; ``scales`` has two names in 2DGS files. ``extras`` are the columns bound to nothing.
    """

    dialect: str
    colours: tuple[str, str, str]
    rest: tuple[str, ...]
    scales: tuple[str, ...]
    has_filter: bool
    extras: tuple[Property, ...]

    @property
    def coefficients(self) -> int:
        """SH coefficients a channel, the constant one included."""
        return 1 + len(self.rest) // 3


def bind(path: Path, header: Header) -> tuple[Element, Layout]:
    """The vertex element and the layout of its columns.

    Raises InputError for everything that is a PLY file but not readable splats, saying what it is or what it lacks.
    """
    vertex = header.element("vertex")
    if vertex is None:
        found = ", ".join(e.name for e in header.elements) or "none"
        raise InputError(f"{path}: the PLY file has no vertex element (elements: {found}). {_EXPORT}")
    names = vertex.names
    _refuse_other_kinds(path, header, names)
    colours = DC if set(DC) <= set(names) or not set(RGB) <= set(names) else RGB
    missing = [n for n in (*POSITION, *colours, OPACITY, *SCALES[:2], *ROTATION) if n not in names]
    if missing:
        raise InputError(
            f"{path}: these columns of 3D Gaussian splats are missing: {', '.join(missing)}. {_NEEDED} "
            "Export the file again with all of them."
        )
    lists = [p.name for p in vertex.properties if p.counter]
    if lists:
        raise InputError(
            f"{path}: column {lists[0]} of element vertex is a list; splats have plain numbers only. Remove the column."
        )
    if not vertex.count:
        raise InputError(f"{path}: the file holds zero splats. Export it again with at least one.")
    rest = _rest_names(path, names)
    scales = tuple(n for n in SCALES if n in names)
    has_filter = FILTER in names
    bound = {*POSITION, *colours, *rest, OPACITY, *scales, *ROTATION, FILTER}
    dialect = "rgb" if colours is RGB else "mip-splatting" if has_filter else "2dgs" if len(scales) == 2 else "3dgs"
    extras = tuple(p for p in vertex.properties if p.name not in bound)
    return vertex, Layout(f"ply/{dialect}", colours, rest, scales, has_filter, extras)


def _rest_names(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    count = sum(bool(re.fullmatch(r"f_rest_\d+", n)) for n in names)
    if count not in (0, 9, 24, 45):
        raise InputError(
            f"{path}: {count} f_rest columns; 0, 9, 24 or 45 are possible (SH degree 0 to 3). "
            "Export the file again with one of these degrees."
        )
    rest = tuple(f"f_rest_{i}" for i in range(count))
    gaps = [n for n in rest if n not in names]
    if gaps:
        raise InputError(f"{path}: {count} f_rest columns, but {gaps[0]} is missing. Export the file again.")
    return rest


def _refuse_other_kinds(path: Path, header: Header, names: tuple[str, ...]) -> None:
    """Name the files that people take for splats and that are something else."""
    if any(n.startswith(("f_offset_", "f_anchor_feat_")) for n in names):
        raise InputError(
            f"{path}: this is a Scaffold-GS file: anchors, whose splats a network makes anew for every view "
            "(columns f_offset_*, f_anchor_feat_*). Export one view's splats as plain 3DGS .ply, or train with 3DGS."
        )
    if not set(POSITION) <= set(names) or {OPACITY, "scale_0", "rot_0"} & set(names):
        return
    face = header.element("face")
    if face and face.count:
        raise InputError(
            f"{path}: this is a mesh ({face.count} faces), not splats: opacity, scale_0..2 and rot_0..3 are missing. "
            f"{_EXPORT}"
        )
    raise InputError(
        f"{path}: this is a plain point cloud, not splats: opacity, scale_0..2 and rot_0..3 are missing. {_EXPORT}"
    )


def up_axis(comments: tuple[str, ...]) -> str | None:
    """The up axis that a header comment ``Vertical Axis: z`` states, as ``+z`` or ``-y``; None where none does."""
    for comment in comments:
        found = re.search(r"vertical\s+axis\s*[:=]\s*([+-]?)\s*([xyz])\b", comment, re.IGNORECASE)
        if found:
            return (found[1] or "+") + found[2].lower()
    return None
