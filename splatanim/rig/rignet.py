"""Rig texts of RigNet and Puppeteer.

The text has one statement a line, in any order: ``joints NAME x y z``, ``root NAME``, ``hier PARENT CHILD``,
``skin VERTEX NAME weight NAME weight ...``. It speaks of the vertices of a mesh kept elsewhere, by their place in its
file. Joints have no axes of their own: they get the world's.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
from jaxtyping import Float

from splatanim.data import Mesh
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.formats.base import first_bytes
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Skeleton, skeleton_from_positions
from splatanim.rig.weights import SkinWeights, repair_weights, sparse_weights


def read_rignet(path: str | os.PathLike[str], mesh: Mesh) -> RiggedModel:
    """A rig text together with the mesh that its ``skin`` lines number.

    Raises :class:`InputError` for lines that are none of the four, unknown joints, a vertex that the mesh lacks or
    that no line mentions, and weights that sum to nothing.
    """
    skeleton, rows, dense = _parse(Path(path))
    if not len(rows):
        raise InputError(f"{path}: has joints but no skin lines. Bind the mesh to it first (weights are missing).")
    count = len(mesh.vertices)
    if rows.max() >= count:
        raise InputError(
            f"{path}: a skin line speaks of vertex {rows.max()}, but the mesh has {count} vertices. "
            "Give the mesh that the rig was made for, with its vertices in the order of its file."
        )
    if len(np.unique(rows)) < count:
        missing = np.setdiff1d(np.arange(count), rows)
        raise InputError(
            f"{path}: {len(missing)} of {count} vertices have no skin line, the first is {missing[0]}. "
            "Give the mesh that the rig was made for."
        )
    full = np.zeros((count, len(skeleton)))
    full[rows] = dense
    return model_of_arrays(mesh.vertices, mesh.faces, skeleton, full, str(path))


def read_rignet_skeleton(path: str | os.PathLike[str]) -> Skeleton:
    """The joints of a rig text alone."""
    return _parse(Path(path))[0]


def _parse(path: Path) -> tuple[Skeleton, np.ndarray, np.ndarray]:
    """Skeleton, vertex numbers (s,) and their dense weights (s, j)."""
    first_bytes(path, 1)
    places: dict[str, list[float]] = {}
    parent: dict[str, str] = {}
    roots: list[str] = []
    skins: list[tuple[int, list[str]]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no rig text: {error}. Give the .txt of RigNet or Puppeteer.") from error
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            if words[0] == "joints":
                places[words[1]] = [float(v) for v in words[2:5]]
                if len(words) != 5:
                    raise ValueError("three coordinates are needed")
            elif words[0] == "root":
                roots.append(words[1])
            elif words[0] == "hier":
                parent[words[2]] = words[1]
            elif words[0] == "skin":
                skins.append((int(words[1]), words[2:]))
            else:
                raise ValueError("it starts with none of joints, root, hier, skin")
        except (ValueError, IndexError) as error:
            raise InputError(f"{path}: line {number} cannot be read ({error}): {line[:60]!r}.") from error
    return _built(path, places, parent, roots, skins)


def _built(
    path: Path,
    places: dict[str, list[float]],
    parent: dict[str, str],
    roots: list[str],
    skins: list[tuple[int, list[str]]],
) -> tuple[Skeleton, np.ndarray, np.ndarray]:
    names = list(places)
    index = {name: k for k, name in enumerate(names)}

    def look(name: str) -> int:
        if name not in index:
            raise InputError(f"{path}: there is no joint {name!r}. It needs a line: joints {name} x y z.")
        return index[name]

    if not names:
        raise InputError(f"{path}: has no joints. Give the .txt of RigNet or Puppeteer.")
    parents = np.full(len(names), -1, np.int64)
    for child, above in parent.items():
        parents[look(child)] = look(above)
    for name in roots:
        if parents[look(name)] >= 0:
            raise InputError(f"{path}: {name!r} is called root, but hangs on {parent[name]!r}.")
    try:
        skeleton = skeleton_from_positions(names, parents, np.array([places[name] for name in names]))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    dense = np.zeros((len(skins), len(names)))
    for row, (vertex, words) in enumerate(skins):
        if vertex < 0 or len(words) % 2 or not words:
            raise InputError(f"{path}: the skin line of vertex {vertex} is not made of pairs NAME weight.")
        for name, weight in zip(words[::2], words[1::2]):
            try:
                dense[row, look(name)] += float(weight)
            except ValueError as error:
                raise InputError(f"{path}: the skin line of vertex {vertex}: {error}.") from error
    return skeleton, np.array([vertex for vertex, _ in skins], np.int64), dense


def write_rignet(path: str | os.PathLike[str], skeleton: Skeleton, skin: SkinWeights | None = None) -> None:
    """Joints at their bind positions, hierarchy, and weights where given (vertices in the rows' order).

    Several roots get one more joint above them, as the format has one root. Raises OutputError where the file cannot
    be written, InputError for names with blanks.
    """
    names = ["_".join(name.split()) or "joint" for name in skeleton.names]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: joint names must differ in more than blanks for this format. Rename the joints.")
    lines = [f"joints {n} {x:.8f} {y:.8f} {z:.8f}" for n, (x, y, z) in zip(names, skeleton.joint_positions)]
    roots = np.flatnonzero(skeleton.parents < 0)
    if len(roots) == 1:
        lines.append(f"root {names[roots[0]]}")
    else:
        top = "rig_root"
        while top in names:
            top += "_"
        x, y, z = skeleton.joint_positions[roots[0]]
        lines += [f"joints {top} {x:.8f} {y:.8f} {z:.8f}", f"root {top}"]
        lines += [f"hier {top} {names[r]}" for r in roots]
    lines += [f"hier {names[p]} {names[j]}" for j, p in enumerate(skeleton.parents) if p >= 0]
    if skin is not None:
        for row, (joints, weights) in enumerate(zip(skin.joints, skin.weights)):
            pairs = " ".join(f"{names[j]} {w:.8f}" for j, w in zip(joints, weights) if w > 0)
            lines.append(f"skin {row} {pairs}")
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_obj(path: str | os.PathLike[str]) -> Mesh:
    """Vertices and faces of an .obj in the order of its lines, which rig texts count by; polygons become fans.

    (Readers made for drawing split vertices at texture seams, and rigs then no longer fit.)
    """
    path = Path(path)
    first_bytes(path, 1)
    vertices: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        words = line.split()
        try:
            if words[:1] == ["v"]:
                vertices.append([float(v) for v in words[1:4]])
                if len(words) < 4:
                    raise ValueError("three coordinates are needed")
            elif words[:1] == ["f"]:
                corners = [int(word.split("/")[0]) for word in words[1:]]
                corners = [c - 1 if c > 0 else len(vertices) + c for c in corners]
                faces += [(corners[0], b, c) for b, c in itertools.pairwise(corners[1:])]
        except (ValueError, IndexError) as error:
            raise InputError(f"{path}: line {number} cannot be read ({error}): {line[:60]!r}.") from error
    if not vertices:
        raise InputError(f"{path}: has no vertices. Export it again.")
    return Mesh(np.array(vertices, np.float64), np.array(faces, np.int64).reshape(-1, 3))


def model_of_arrays(
    vertices: Float[np.ndarray, "v 3"],
    faces: np.ndarray,
    skeleton: Skeleton,
    dense: Float[np.ndarray, "v j"],
    where: str,
) -> RiggedModel:
    """A model from dense weights, mended as :func:`splatanim.rig.weights.repair_weights` does."""
    vertices = np.asarray(vertices, np.float64)
    joints = np.tile(np.arange(len(skeleton)), (len(vertices), 1))
    skin, notes = repair_weights(joints, dense, vertices, len(skeleton), where)
    return RiggedModel(vertices, np.asarray(faces, np.int64), skeleton, sparse_weights(skin.dense()), notes=notes)
