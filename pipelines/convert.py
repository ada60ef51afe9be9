"""``splatanim convert``: meshes to splats, splats to glTF points, and splats moved, cropped and thinned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from tyro.conf import Positional

from splatanim.data import Splats
from splatanim.errors import InputError

if TYPE_CHECKING:
    from splatanim.rig.model import RiggedModel
    from splatanim.rig.weights import SkinWeights

_GLTF = (".glb", ".gltf")
_MESHES = (*_GLTF, ".obj", ".stl", ".off")
_UPRIGHT = "+y"  # meshes stand so unless said otherwise; glTF requires it


@dataclass(frozen=True)
class ConvertConfig:
    """Convert a mesh to splats (.ply), splats to points (.glb), or splats to splats moved, cropped or thinned.

    The crop comes first, in the input's coordinates; then --transform, --scale, --rotate and --translate, in this
    order; then the thinning.

    Args:
        source: A splat file, or a mesh: .glb, .gltf, .obj, .stl, .off or .ply.
        output: The .ply (splats) or .glb (points of splats, or the mesh) to write.
        count: How many splats a mesh becomes (60000 by default), or how many of the input's splats are kept, those
            that cover most.
        crop: Keep what has its centre in a box x0,y0,z0,x1,y1,z1 of the input's coordinates.
        transform: 12 or 16 numbers, rows of a matrix, or a text file of them.
        scale: Factor on everything, about the origin.
        rotate: Degrees about x, y and z, applied in this order, such as 90,0,0.
        translate: x,y,z to add.
        rig: Give the points of a .glb the skeleton, weights and clips of this rig (.glb, .gltf, .txt, .npz).
        rig_mesh: The mesh that a .txt rig numbers.
        weights: How weights are carried over: nearest (6 nearest vertices by inverse distance) or heat (then spread
            along the surface).
        light: Paint soft light from above into the colours of a mesh, as splats have no other.
        up: Which way is up in the input: auto, +y, -y, +z, -z, +x or -x.
        seed: Seed of the places on a mesh.
    """

    source: Positional[Path]
    output: Positional[Path]
    count: int | None = None
    crop: str | None = None
    transform: str | None = None
    scale: float = 1.0
    rotate: str = "0,0,0"
    translate: str = "0,0,0"
    rig: Path | None = None
    rig_mesh: Path | None = None
    weights: Literal["nearest", "heat"] = "nearest"
    light: bool = True
    up: str = "auto"
    seed: int = 0


def convert(config: ConvertConfig) -> str:
    """Read, change, write; returns what was done in words.

    Raises :class:`InputError` for options that do not fit the files, ``OutputError`` where nothing can be written.
    """
    suffix = config.output.suffix.lower()
    if suffix not in (".ply", ".glb"):
        raise InputError(f"{config.output}: {suffix or 'no suffix'} cannot be written. Write .ply (splats) or .glb.")
    if config.count is not None and config.count < 1:
        raise InputError(f"--count {config.count}: give a positive number such as 60000.")
    if config.rig is not None and suffix != ".glb":
        raise InputError(f"--rig goes into a .glb; {config.output} cannot hold a skeleton.")
    matrix = placement(config)
    if holds_mesh(config.source):
        return _from_mesh(config, matrix)
    return _from_splats(config, matrix)


def holds_mesh(path: Path) -> bool:
    """Whether a file is read as a mesh: by suffix, and a .ply by its columns.

    Raises :class:`InputError` for a missing or empty file.
    """
    from splatanim.formats.base import first_bytes
    from splatanim.formats.ply_table import read_header

    suffix = path.suffix.lower()
    head = first_bytes(path, 4)
    if suffix in _MESHES or head == b"glTF":
        return True
    if suffix != ".ply":
        return False
    header = read_header(path)
    vertex, faces = header.element("vertex"), header.element("face")
    names = vertex.names if vertex else ()
    return faces is not None and faces.count > 0 and not any(n in names for n in ("scale_0", "f_dc_0", "opacity"))


def read_model(path: Path) -> RiggedModel:
    """Any mesh as a model, with a skeleton that moves where it is glTF."""
    from splatanim.rig.gltf import read_gltf
    from splatanim.rig.mesh_files import read_mesh

    return read_gltf(path) if path.suffix.lower() in _GLTF else read_mesh(path)


def _from_mesh(config: ConvertConfig, matrix: np.ndarray) -> str:
    from splatanim.formats import write_ply
    from splatanim.inspect import up_vector
    from splatanim.rig.gltf import write_glb
    from splatanim.rig.surface_splats import splats_of_mesh

    model = read_model(config.source)
    if not len(model.faces):
        raise InputError(f"{config.source}: has no faces. Splats need a surface to lie on: export it as a mesh.")
    up = _UPRIGHT if config.up == "auto" else config.up
    notes = [*model.notes]
    if config.output.suffix.lower() == ".glb":
        if config.crop is not None or config.count is not None:
            raise InputError("--crop and --count are for splats; a mesh goes into a .glb whole.")
        if config.rig is not None:
            model = _skinned_mesh(config, model)
        moved = model.transformed(matrix)
        write_glb(config.output, moved, name=config.source.stem)
        return _report(config, f"{len(moved.vertices)} vertices, {len(moved.skeleton)} joints", notes)
    splats, _ = splats_of_mesh(
        model.vertices,
        model.faces,
        model.appearance,
        count=config.count or 60_000,
        normals=model.normals,
        up=up_vector(up) if config.light else None,
        seed=config.seed,
    )
    splats = moved_splats(cropped(splats, config.crop), matrix)
    write_ply(config.output, splats, comments=(f"Vertical Axis: {_turned(up, matrix)}",))
    return _report(config, f"{len(splats)} splats", notes)


def _from_splats(config: ConvertConfig, matrix: np.ndarray) -> str:
    from splatanim.formats import read_splats, write_ply
    from splatanim.inspect import analyse

    result = read_splats(config.source)
    splats = cropped(result.splats, config.crop)
    splats = thinned(moved_splats(splats, matrix), config.count)
    up = analyse(result, file=str(config.source), up=None if config.up == "auto" else config.up).up
    notes = [*result.warnings]
    if config.output.suffix.lower() == ".ply":
        stated = result.up is not None or config.up != "auto" or not np.allclose(matrix, np.eye(4))
        write_ply(config.output, splats, comments=(f"Vertical Axis: {_turned(up, matrix)}",) if stated else ())
        return _report(config, f"{len(splats)} splats", notes)
    return _to_points(config, splats, matrix, _turned(up, matrix), notes)


def _to_points(config: ConvertConfig, splats: Splats, matrix: np.ndarray, up: str, notes: list[str]) -> str:
    """Splats as glTF points; a node above turns what is not y-up, as the format is."""
    from splatanim.inspect import up_vector
    from splatanim.rig.affine import shortest_turn
    from splatanim.rig.gltf import write_glb
    from splatanim.rig.points_model import points_of_splats

    model = points_of_splats(splats)
    if config.rig is not None:
        from splatanim.rig.files import read_rig

        rig = read_rig(config.rig, config.rig_mesh).transformed(matrix)
        notes += rig.notes
        points = splats.means.astype(np.float64) + splats.offset
        skin = carried_weights(points, rig, config.weights)
        model = points_of_splats(splats, rig.skeleton, skin, rig.animations)
    placed = np.eye(4)
    if up != _UPRIGHT:
        placed[:3, :3] = shortest_turn(np.asarray(up_vector(up)), np.array([0.0, 1.0, 0.0]))
        notes.append(f"glTF is y-up: a node turns the points from {up} to +y; their coordinates stay.")
    write_glb(config.output, model, name=config.source.stem, placed=placed)
    joints = "" if config.rig is None else f", {len(model.skeleton)} joints, {len(model.animations)} clips"
    return _report(config, f"{len(splats)} points{joints}", notes)


def carried_weights(points: np.ndarray, rig: RiggedModel, how: str) -> SkinWeights:
    """A rig's weights at other points of the same object in the same place.

    Raises :class:`InputError` where rig and points do not lie on each other, with both boxes in the message.
    """
    from splatanim.rig.surface_splats import weight_sources
    from splatanim.rig.transfer import diffused_weights, transfer_weights

    if not len(rig.vertices):
        raise InputError("The rig holds no mesh, so no weights. Give the file with the skinned mesh.")
    sources, skin = weight_sources(rig)
    check_overlap(points, sources)
    carry = diffused_weights if how == "heat" else transfer_weights
    return carry(points, sources, skin)


def check_overlap(points: np.ndarray, surface: np.ndarray) -> None:
    """Refuse a rig that lies elsewhere, or is of another size, than the points that it should move.

    ``surface`` are points all over the rig's surface in its bind pose.
    """
    from scipy.spatial import cKDTree

    sample = points[:: max(len(points) // 2000, 1)]
    away = float(np.median(cKDTree(surface).query(sample)[0]))
    size = min(float(np.ptp(points, axis=0).max()), float(np.ptp(surface, axis=0).max()))
    if not away < 0.1 * size:
        raise InputError(
            f"The rig does not lie on the splats: its bind pose fills {_box(surface)}, they fill {_box(points)}. "
            "Bring them together first with convert --scale, --rotate and --translate."
        )


def _box(points: np.ndarray) -> str:
    low, high = points.min(axis=0), points.max(axis=0)
    return f"{' '.join(f'{v:.3g}' for v in low)} to {' '.join(f'{v:.3g}' for v in high)}"


def _skinned_mesh(config: ConvertConfig, model: RiggedModel) -> RiggedModel:
    """A mesh with another file's rig; a rig text that numbers this very mesh is taken vertex by vertex."""
    import dataclasses

    from splatanim.rig.files import read_rig

    assert config.rig is not None
    rig = read_rig(config.rig, config.rig_mesh or config.source)
    skin = carried_weights(model.vertices, rig, config.weights)
    return dataclasses.replace(model, skeleton=rig.skeleton, skin=skin, animations=rig.animations)


def placement(config: ConvertConfig) -> np.ndarray:
    """--transform, --scale, --rotate and --translate as one matrix (4, 4)."""
    from scipy.spatial.transform import Rotation

    if not (np.isfinite(config.scale) and config.scale > 0):
        raise InputError(f"--scale {config.scale}: a positive number is needed.")
    turn = Rotation.from_euler("xyz", numbers(config.rotate, 3, "--rotate"), degrees=True).as_matrix()
    move = np.eye(4)
    move[:3, :3] = config.scale * turn
    move[:3, 3] = numbers(config.translate, 3, "--translate")
    return move if config.transform is None else move @ _matrix(config.transform)


def _matrix(text: str) -> np.ndarray:
    path = Path(text)
    if path.suffix and path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
    words = text.replace(",", " ").split()
    values = numbers(",".join(words), 16 if len(words) == 16 else 12, "--transform")
    matrix = np.eye(4)
    matrix[: len(values) // 4] = values.reshape(-1, 4)
    if len(values) == 16 and not np.allclose(matrix[3], [0, 0, 0, 1]):
        raise InputError("--transform: the last row must be 0 0 0 1. Give the matrix row by row.")
    if not abs(np.linalg.det(matrix[:3, :3])) > 1e-12:
        raise InputError("--transform: the matrix flattens space (its determinant is 0).")
    return matrix


def numbers(text: str, count: int, option: str) -> np.ndarray:
    """``1,2,3`` -> an array of ``count`` finite numbers; :class:`InputError` names the option."""
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.empty(0)
    if len(values) != count or not np.isfinite(values).all():
        raise InputError(f"{option} {text!r}: {count} numbers with commas between them are needed.")
    return values


def cropped(splats: Splats, box: str | None) -> Splats:
    """The splats whose centres lie in a box ``x0,y0,z0,x1,y1,z1`` of file coordinates."""
    if box is None:
        return splats
    corners = numbers(box, 6, "--crop").reshape(2, 3)
    centres = splats.means.astype(np.float64) + splats.offset
    inside = ((centres >= corners.min(axis=0)) & (centres <= corners.max(axis=0))).all(axis=1)
    if not inside.any():
        raise InputError(f"--crop {box}: no splat has its centre in this box; they fill {_box(centres)}.")
    return splats.select(inside)


def thinned(splats: Splats, count: int | None) -> Splats:
    """The ``count`` splats that cover most (opacity times the area of the two longer axes), in their order."""
    if count is None or count >= len(splats):
        return splats
    area = np.sort(splats.log_scales, axis=1)[:, 1:].sum(axis=1)
    cover = splats.opacities * np.exp(area - area.max())
    return splats.select(np.sort(np.argsort(-cover, kind="stable")[:count]))


def moved_splats(splats: Splats, matrix: np.ndarray) -> Splats:
    """Splats under an affine map of file coordinates; the offset goes along, so that no digits are lost."""
    from splatanim.transforms import transform

    if np.allclose(matrix, np.eye(4), atol=0.0):
        return splats
    linear = np.concatenate([matrix[:3, :3], np.zeros((3, 1))], axis=1)
    moved = transform(splats, linear)
    shift = matrix[:3, :3] @ np.asarray(splats.offset) + matrix[:3, 3]
    if np.abs(shift).max() < 100.0 * max(float(np.ptp(moved.means, axis=0).max()), 1e-9):
        return moved.replace(means=(moved.means.astype(np.float64) + shift).astype(np.float32), offset=(0.0, 0.0, 0.0))
    return moved.replace(offset=tuple(shift.tolist()))


def _turned(up: str, matrix: np.ndarray) -> str:
    """The axis that the up direction lies nearest to afterwards."""
    from splatanim.inspect import up_vector

    direction = matrix[:3, :3] @ np.asarray(up_vector(up))
    axis = int(np.argmax(np.abs(direction)))
    return f"{'+' if direction[axis] > 0 else '-'}{'xyz'[axis]}"


def _report(config: ConvertConfig, what: str, notes: list[str]) -> str:
    return "\n".join([f"{config.output}: {what}", *(f"  note: {note}" for note in notes)])
