"""``splatanim convert``: any splat file to any other, moved, cropped, cleaned and thinned; meshes to splats; rigs onto
points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from tyro.conf import Positional

from pipelines.convert_splats import (
    box_of,
    capped_needles,
    cropped,
    moved_splats,
    placement_of,
    thinned,
    turned_axis,
    without_floaters,
)
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
    """Convert splats from one format to another, moved, cropped, cleaned or thinned; or a mesh to splats.

    Args:
        source: A splat file (.ply, compressed or not, .splat, .ksplat, .spz, .sog or its folder, .glb), or a mesh:
            .glb, .gltf, .obj, .stl, .off or .ply. The crop comes first, then --drop-floaters; then --transform,
            --scale, --rotate and --translate, in this order; then --cap-needles and the thinning.
        output: The .ply, .splat, .spz or .glb (KHR_gaussian_splatting) to write; a mesh goes into a .glb as a mesh.
        count: How many splats a mesh becomes (60000 by default), or how many of the input's splats are kept, those
            that cover most.
        crop: Keep what has its centre in a box x0,y0,z0,x1,y1,z1 of the input's coordinates.
        filter_nan: Leave out splats that are not finite; with --no-filter-nan a file that has such is refused.
        drop_floaters: Leave out splats far outside the object, and those larger than it.
        cap_needles: Shorten splats that are long and thin, which show where an object bends.
        transform: 12 or 16 numbers, rows of a matrix, or a text file of them.
        scale: Factor on everything, about the origin.
        rotate: Degrees about x, y and z, applied in this order, such as 90,0,0.
        translate: x,y,z to add.
        rig: Give a .glb the skeleton, weights and clips of this rig (.glb, .gltf, .txt, .npz); it then holds points,
            which is what viewers can move.
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
    filter_nan: bool = True
    drop_floaters: bool = False
    cap_needles: bool = False
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
    from pipelines.render_papr import asset_to_points
    from splatanim.formats import WRITERS

    if str(config.source).lower().endswith(".papr.safetensors"):
        return asset_to_points(config.source, config.output)
    suffix = config.output.suffix.lower()
    if suffix not in WRITERS:
        raise InputError(f"{config.output}: {suffix or 'no suffix'} cannot be written. Write {', '.join(WRITERS)}.")
    if config.count is not None and config.count < 1:
        raise InputError(f"--count {config.count}: give a positive number such as 60000.")
    if config.rig is not None and suffix != ".glb":
        raise InputError(f"--rig goes into a .glb; {config.output} cannot hold a skeleton.")
    matrix = placement_of(config.transform, config.scale, config.rotate, config.translate)
    if holds_mesh(config.source):
        return _from_mesh(config, matrix)
    return _from_splats(config, matrix)


def holds_mesh(path: Path) -> bool:
    """Whether a file is read as a mesh: by suffix, a .ply by its columns, glTF by whether it holds splats.

    Raises :class:`InputError` for a missing or empty file.
    """
    from splatanim.formats.base import first_bytes
    from splatanim.formats.gltf_splats import holds_gaussians
    from splatanim.formats.ply_table import read_header

    if path.is_dir():  # an unbundled SOG
        return False
    suffix = path.suffix.lower()
    head = first_bytes(path, 4)
    if suffix in _GLTF or head == b"glTF":
        return not holds_gaussians(path)
    if suffix in _MESHES:
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
    from splatanim.formats import write_splats
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
    splats = changed(config, splats, matrix, notes)
    notes += write_splats(config.output, splats, up=turned_axis(up, matrix))
    return _report(config, f"{len(splats)} splats", notes)


def _from_splats(config: ConvertConfig, matrix: np.ndarray) -> str:
    from splatanim.formats import read_splats, write_splats
    from splatanim.inspect import analyse

    result = read_splats(config.source)
    notes = [*result.warnings]
    if result.dropped:
        counts = ", ".join(f"{reason}: {count}" for reason, count in result.dropped.items())
        if not config.filter_nan:
            raise InputError(
                f"{config.source}: {sum(result.dropped.values())} of {result.total} splats are not usable ({counts}). "
                "--filter-nan leaves them out."
            )
        notes.append(f"{sum(result.dropped.values())} of {result.total} splats were left out ({counts}).")
    splats = thinned(changed(config, result.splats, matrix, notes), config.count)
    up = turned_axis(analyse(result, file=str(config.source), up=None if config.up == "auto" else config.up).up, matrix)
    if config.rig is not None:
        return _to_points(config, splats, matrix, up, notes)
    # A .ply without the comment means the convention, so that nothing is stated where nothing was.
    stated = result.up is not None or config.up != "auto" or not np.allclose(matrix, np.eye(4))
    silent = config.output.suffix.lower() == ".ply" and not stated
    notes += write_splats(config.output, splats, up=None if silent else up)
    return _report(config, f"{len(splats)} splats", notes)


def changed(config: ConvertConfig, splats: Splats, matrix: np.ndarray, notes: list[str]) -> Splats:
    """Splats cropped, freed of floaters, moved and with needles capped, as the options say; notes say how many."""
    splats = cropped(splats, config.crop)
    if config.drop_floaters:
        splats, said = without_floaters(splats)
        notes.append(said)
    splats = moved_splats(splats, matrix)
    if config.cap_needles:
        splats, said = capped_needles(splats)
        notes.append(said)
    return splats


def _to_points(config: ConvertConfig, splats: Splats, matrix: np.ndarray, up: str, notes: list[str]) -> str:
    """Splats as glTF points on a rig; a node above turns what is not y-up, as the format is."""
    from splatanim.inspect import up_vector
    from splatanim.rig.affine import shortest_turn
    from splatanim.rig.files import read_rig
    from splatanim.rig.gltf import write_glb
    from splatanim.rig.points_model import points_of_splats

    assert config.rig is not None
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
    joints = f", {len(model.skeleton)} joints, {len(model.animations)} clips"
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
            f"The rig does not lie on the splats: its bind pose fills {box_of(surface)}, they fill {box_of(points)}. "
            "Bring them together first with convert --scale, --rotate and --translate."
        )


def _skinned_mesh(config: ConvertConfig, model: RiggedModel) -> RiggedModel:
    """A mesh with another file's rig; a rig text that numbers this very mesh is taken vertex by vertex."""
    import dataclasses

    from splatanim.rig.files import read_rig

    assert config.rig is not None
    rig = read_rig(config.rig, config.rig_mesh or config.source)
    skin = carried_weights(model.vertices, rig, config.weights)
    return dataclasses.replace(model, skeleton=rig.skeleton, skin=skin, animations=rig.animations)


def _report(config: ConvertConfig, what: str, notes: list[str]) -> str:
    return "\n".join([f"{config.output}: {what}", *(f"  note: {note}" for note in notes)])
