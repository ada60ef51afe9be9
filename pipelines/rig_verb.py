"""``splatanim rig``: a skeleton and skinning weights for an object that has none."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from pipelines.progress import Progress
from splatanim.data import Mesh, Splats
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.objects import Object
    from splatanim.rig.auto_rig import AutoRig
    from splatanim.rig.model import RiggedModel
    from splatanim.rig.weights import SkinWeights

SUFFIXES = (".glb", ".txt", ".png")


@dataclass(frozen=True)
class RigConfig:
    """Rig an object: joints along its limbs and body, a hierarchy, and skinning weights. No network is used.

    Args:
        source: Splats (.ply), a mesh (.glb, .gltf, .obj, .stl, .off, .ply), points (.ply) or a PAPR asset
            (.papr.safetensors).
        output: What to write, by suffix: .glb (the object with its skin), .txt (RigNet text; it numbers the vertices
            or splats of the source) or .png (a picture). Give -o again for more than one.
        bone: Length of a bone, as a share of the longest way through the skeleton.
        symmetric: Look for a plane of symmetry and make limbs mirror images of each other.
        weights: Heat inside the object (volume), or on its surface alone (surface; extra rig).
        influences: Joints that a point follows at most.
        up: Which way is up: auto, +y, -y, +z, -z, +x or -x.
        seed: Seed of the samples.
    """

    source: Positional[Path]
    output: Annotated[UseAppendAction[tuple[Path, ...]], arg(aliases=["-o"])] = ()
    bone: float = 0.075
    symmetric: bool = True
    weights: Literal["volume", "surface"] = "volume"
    influences: int = 4
    up: str = "auto"
    seed: int = 0


@dataclass(frozen=True)
class Subject:
    """What is rigged. ``points`` are the vertices, splats or points of the file, in its order and coordinates less
    ``offset``; ``object`` has the inside and is in the same coordinates."""

    object: Object
    points: np.ndarray
    offset: np.ndarray
    up: str
    model: RiggedModel | None = None  # of a mesh: what it looks like
    splats: Splats | None = None
    notes: tuple[str, ...] = ()


def rig(config: RigConfig, progress: Progress | None = None) -> str:
    """Read, rig, write; returns what was done in words.

    Raises :class:`InputError` for options and files that do not fit, ``OutputError`` where nothing can be written.
    """
    from splatanim.rig.auto_rig import auto_rig

    progress = progress or Progress()
    if not config.output:
        raise InputError("rig: say what to write: -o rig.glb, -o rig.txt or -o rig.png (more than one may be given).")
    for path in config.output:
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(f"{path}: {path.suffix or 'no suffix'} cannot be written. Write .glb, .txt or .png.")
    if not 1 <= config.influences <= 8:
        raise InputError(f"--influences {config.influences}: a point follows 1 to 8 joints; 4 is usual.")
    start = time.perf_counter()
    with progress.spinner("finding the inside"):
        subject = read_subject(config.source, up=config.up, seed=config.seed)
    with progress.spinner("placing joints and weights"):
        found = auto_rig(
            subject.object.cubature.domain, subject.object.frame, symmetric=config.symmetric, bone=config.bone
        )
        skin = found.weights(subject.points, most=config.influences, how=config.weights)
    seconds = time.perf_counter() - start
    for path in config.output:
        write_rig(path, subject, found, skin)
    return describe(config, subject, found, seconds)


def read_subject(path: Path, *, up: str = "auto", seed: int = 0) -> Subject:
    """Any of the files that can be rigged; :class:`InputError` where it cannot be read."""
    from pipelines.convert import holds_mesh, read_model
    from pipelines.objects import mesh_object, read_object

    if path.name.lower().endswith(".papr.safetensors"):
        from rigpapr.asset import read_asset

        points = read_asset(path).world_positions.detach().cpu().numpy().astype(np.float64)
        return points_subject(points, str(path), up=up, seed=seed)
    if holds_mesh(path):
        model = read_model(path)
        if not len(model.faces):
            raise InputError(f"{path}: has no faces. Give a mesh, splats or a .ply of points.")
        if path.suffix.lower() == ".obj":
            model = _by_lines(path, model)
        subject = mesh_object(Mesh(model.vertices, model.faces), str(path), up=up, seed=seed)
        return Subject(subject, model.vertices, np.zeros(3), _upright(up), model=model, notes=model.notes)
    if path.suffix.lower() == ".ply" and not _holds_splats(path):
        found = read_object(path, up=up, seed=seed)
        assert isinstance(found.content, Splats)
        means = found.content.means.astype(np.float64)
        return Subject(found, means, np.array(found.content.offset), _upright(up), notes=found.notes)
    return _from_splats(path, up, seed)


def points_subject(points: np.ndarray, file: str, *, up: str = "auto", seed: int = 0) -> Subject:
    """A cloud of surface points, such as the positions of a PAPR cloud."""
    from pipelines.field_pictures import disks
    from pipelines.objects import Object
    from splatanim.data import Cubature
    from splatanim.inspect import up_vector
    from splatanim.rig.auto_grid import domain_of_points

    domain, frame = domain_of_points(points, seed=seed)
    frame = replace(frame, up=up_vector(_upright(up)))
    middle = points.mean(axis=0)
    sigma = 0.35 / frame.scale / max(len(points), 1) ** 0.5
    splats = disks(points - middle, np.tile([0.0, 0.0, 1.0], (len(points), 1)), sigma)
    splats = splats.replace(log_scales=np.full((len(points), 3), np.log(sigma), np.float32))
    frame = replace(frame, centre=tuple((np.asarray(frame.centre) - middle).tolist()))
    some = domain.centres[:: max(len(domain.cells) // 1024, 1)]
    cubature = Cubature(some, np.full(len(some), domain.volume / len(some)), some, domain, "filled from points")
    return Subject(Object(file, "points", splats, frame, cubature), points - middle, middle, _upright(up))


def _from_splats(path: Path, up: str, seed: int) -> Subject:
    """All splats of the file get weights; floaters say nothing about its shape."""
    from pipelines.animate import prepare
    from pipelines.objects import Object
    from splatanim.formats import read_splats
    from splatanim.sampling.cubature import cubature_from_splats

    result = read_splats(path)
    placed = prepare(result, up, 1.0, path)
    cubature = cubature_from_splats(placed.splats, placed.frame, seed=seed)
    notes = list(placed.inspection.warnings)
    if result.total > len(result.splats):
        notes.append(
            f"{result.total - len(result.splats)} rows of the file are no usable splats; a .txt numbers the others."
        )
    found = Object(str(path), "splats", placed.splats, placed.frame, cubature)
    splats = result.splats
    points, offset = splats.means.astype(np.float64), np.array(splats.offset)
    return Subject(found, points, offset, placed.inspection.up, splats=splats, notes=tuple(notes))


def _by_lines(path: Path, model: RiggedModel) -> RiggedModel:
    """An .obj by the vertices of its own lines, which rig texts count by, where nothing but plain colour is lost."""
    from splatanim.rig.rignet import read_obj
    from splatanim.rig.weights import SkinWeights

    if model.appearance.uv is not None:
        return model
    mesh = read_obj(path)
    if not len(mesh.faces):
        return model
    still = SkinWeights(np.zeros((len(mesh.vertices), 1), np.int32), np.ones((len(mesh.vertices), 1)), 1)
    return type(model)(mesh.vertices, mesh.faces, model.skeleton, still, notes=model.notes)


def _holds_splats(path: Path) -> bool:
    from splatanim.formats.ply_table import read_header

    vertex = read_header(path).element("vertex")
    return vertex is not None and any(name in vertex.names for name in ("scale_0", "f_dc_0", "opacity"))


def _upright(up: str) -> str:
    return "+y" if up == "auto" else up


def write_rig(path: Path, subject: Subject, found: AutoRig, skin: SkinWeights) -> None:
    """One output, by its suffix."""
    moved = np.eye(4)
    moved[:3, 3] = subject.offset
    suffix = path.suffix.lower()
    if suffix == ".txt":
        from splatanim.rig.rignet import write_rignet

        write_rignet(path, found.skeleton.transformed(moved), _numbered(subject, found, skin))
        return
    if suffix == ".png":
        from splatanim.render.video import write_png

        write_png(path, picture(subject, found).astype(np.float32) / 255.0)
        return
    _write_glb(path, subject, found, skin, moved)


def _numbered(subject: Subject, found: AutoRig, skin: SkinWeights) -> SkinWeights:
    """Weights by the numbers that a rig text uses: for an .obj, its lines, even where its texture split vertices."""
    path = Path(subject.object.file)
    if path.suffix.lower() != ".obj":
        return skin
    from splatanim.rig.rignet import read_obj

    vertices = read_obj(path).vertices
    return skin if len(vertices) == len(skin) else found.weights(vertices, most=skin.joints.shape[1])


def _write_glb(path: Path, subject: Subject, found: AutoRig, skin: SkinWeights, moved: np.ndarray) -> None:
    from splatanim.inspect import up_vector
    from splatanim.rig.affine import shortest_turn
    from splatanim.rig.gltf import write_glb
    from splatanim.rig.model import RiggedModel
    from splatanim.rig.points_model import points_of_splats

    skeleton = found.skeleton.transformed(moved)
    if subject.model is not None:
        model = replace(subject.model, skeleton=skeleton, skin=skin, animations={})
    elif subject.splats is not None:
        model = points_of_splats(subject.splats, skeleton, skin)
    else:
        model = RiggedModel(subject.points + subject.offset, np.empty((0, 3), np.int64), skeleton, skin)
    placed = np.eye(4)
    if subject.up != "+y":
        placed[:3, :3] = shortest_turn(np.asarray(up_vector(subject.up)), np.array([0.0, 1.0, 0.0]))
    write_glb(path, model, name=Path(subject.object.file).stem, placed=placed)


def picture(subject: Subject, found: AutoRig) -> np.ndarray:
    """The object in the colours of its bones, with the skeleton."""
    from pipelines.objects import surface_of
    from pipelines.rig_pictures import rig_picture

    surface = surface_of(subject.object)
    skeleton = found.skeleton
    inner = np.asarray(surface.splats.offset) if subject.model is not None else np.zeros(3)
    if inner.any():  # meshes are painted about their middle
        back = np.eye(4)
        back[:3, 3] = -inner
        skeleton = skeleton.transformed(back)
    skin = found.weights(surface.splats.means.astype(np.float64) + inner)
    return rig_picture(
        surface,
        skeleton,
        skin,
        subject.object.frame.up,
        title=Path(subject.object.file).name,
        subtitle=f"{len(skeleton)} joints, {int(found.tree.ends.sum())} of them ends; {_symmetry(found)}",
    )


def _symmetry(found: AutoRig) -> str:
    pairs = sum(len(limb) == 2 for limb in found.limbs)
    if found.plane is None:
        return "no plane of symmetry"
    return f"{pairs} pairs of limbs about a plane across {' '.join(f'{v:.2f}' for v in found.plane.normal)}"


def describe(config: RigConfig, subject: Subject, found: AutoRig, seconds: float) -> str:
    """What was found, in a few lines."""
    lines = [
        f"{', '.join(str(path) for path in config.output)}: {len(found.skeleton)} joints for {len(subject.points)} "
        f"{'vertices' if subject.model is not None else subject.object.form}, in {seconds:.1f} s",
        f"  inside    {subject.object.cubature.method}",
        f"  symmetry  {_symmetry(found)}",
        f"  chains    {'; '.join(' + '.join(limb) for limb in found.limbs)}",
    ]
    return "\n".join([*lines, *(f"  note: {note}" for note in subject.notes)])
