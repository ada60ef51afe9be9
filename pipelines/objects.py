"""Any file that holds an object, as a place in the simulator, integration points and a surface to paint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64

from pipelines.field_pictures import Surface, disks, outward, shade_of
from splatanim.data import Cubature, Frame, Mesh, Splats
from splatanim.errors import InputError

MESHES = (".obj", ".stl", ".glb", ".gltf", ".off")
_MOST_PAINTED = 60_000  # splats in a picture of a handle


@dataclass(frozen=True)
class Object:
    """An object of one file, its longest side 1 m in the simulator. ``content`` keeps what the file held."""

    file: str
    form: Literal["splats", "mesh", "points"]
    content: Splats | Mesh
    frame: Frame
    cubature: Cubature
    notes: tuple[str, ...] = ()


def read_object(path: Path, *, up: str = "auto", seed: int = 0) -> Object:
    """Read splats (.ply and what else :func:`read_splats` knows), a mesh or a point cloud.

    A .ply holds splats where it has their columns, a mesh where it has faces, and points otherwise. Raises
    :class:`InputError` where the file is missing, broken, empty, not finite or has no volume.
    """
    form = form_of(path)
    if form == "splats":
        return _from_splats(path, up, seed)
    content = _load(path)
    if isinstance(content, Mesh):
        return mesh_object(content, str(path), up=up, seed=seed)
    return _from_points(content, str(path), up, seed)


def mesh_object(mesh: Mesh, file: str, *, up: str = "auto", seed: int = 0) -> Object:
    """A mesh as an object; its up axis is +y unless said otherwise."""
    from splatanim.sampling.cubature import cubature_from_mesh

    used = mesh.vertices[np.unique(mesh.faces)] if len(mesh.faces) else mesh.vertices
    frame = _frame(used, up, file)
    return Object(file, "mesh", mesh, frame, cubature_from_mesh(mesh, frame, seed=seed))


def surface_of(subject: Object, *, seed: int = 0) -> Surface:
    """The object's surface as splats that can be coloured, at most some tens of thousands."""
    if isinstance(subject.content, Mesh):
        from splatanim.sampling.surface import sample_surface

        points, normals = sample_surface(subject.content, 60_000, seed=seed, sharp_fraction=0.0)
        area = _area(subject.content)
        middle = points.mean(axis=0)
        splats = disks(points - middle, normals, 1.2 * (area / len(points)) ** 0.5, tuple(middle.tolist()))
        local = subject.frame.to_sim(points)
    else:
        splats = subject.content
        if len(splats) > _MOST_PAINTED:
            rows = np.random.default_rng(seed).choice(len(splats), _MOST_PAINTED, replace=False)
            splats = splats.select(np.sort(rows))
        local = subject.frame.to_sim(splats.means)
        normals = outward(local, subject.cubature.domain)
    return Surface(splats, local, shade_of(normals, subject.frame.up))


def form_of(path: Path) -> str:
    """splats, mesh or points: what a file holds, by what is in it rather than by its suffix where it can be both."""
    from splatanim.formats.base import first_bytes
    from splatanim.formats.gltf_splats import holds_gaussians
    from splatanim.formats.ply_table import read_header

    if path.suffix.lower() in MESHES:
        first_bytes(path, 1)  # names a missing or empty file
        if path.suffix.lower() in (".glb", ".gltf") and holds_gaussians(path):
            return "splats"
        return "mesh"
    if path.suffix.lower() != ".ply":
        return "splats"  # its reader knows what is readable and says so
    header = read_header(path)
    vertex, faces = header.element("vertex"), header.element("face")
    names = vertex.names if vertex else ()
    if any(name in names for name in ("scale_0", "f_dc_0", "opacity", "packed_position")):
        return "splats"
    return "mesh" if faces is not None and faces.count else "points"


def _load(path: Path) -> Mesh | np.ndarray:
    """Through trimesh: all meshes of the file as one, or the points of a file that has no faces."""
    import trimesh

    try:
        loaded = trimesh.load(path, process=False)
    except Exception as error:  # its readers raise whatever their format trips over
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {error}). It may be cut off or damaged: export it again."
        ) from error
    if isinstance(loaded, trimesh.Scene):
        if not loaded.geometry:
            raise InputError(f"{path}: holds no geometry. Export it with the object selected.")
        loaded = loaded.to_mesh()
    vertices = np.asarray(getattr(loaded, "vertices", np.empty((0, 3))), np.float64).reshape(-1, 3)
    faces = getattr(loaded, "faces", None)
    if not len(vertices):
        raise InputError(f"{path}: has no vertices. Export it again.")
    return vertices if faces is None or not len(faces) else Mesh(vertices, np.asarray(faces, np.int64))


def _from_splats(path: Path, up: str, seed: int) -> Object:
    from pipelines.animate import prepare
    from splatanim.formats import read_splats
    from splatanim.sampling.cubature import cubature_from_splats

    subject = prepare(read_splats(path), up, 1.0, path)
    cubature = cubature_from_splats(subject.splats, subject.frame, seed=seed)
    return Object(str(path), "splats", subject.splats, subject.frame, cubature, tuple(subject.inspection.warnings))


def _from_points(points: np.ndarray, file: str, up: str, seed: int) -> Object:
    """Points as small round splats, as large as the distance to their neighbours."""
    from scipy.spatial import cKDTree

    from splatanim.sampling.cubature import cubature_from_splats

    finite = np.isfinite(points).all(axis=1)
    notes = () if finite.all() else (f"{int((~finite).sum())} of {len(points)} points are not finite; left out.",)
    points = points[finite]
    if len(points) < 8:
        raise InputError(f"{file}: {len(points)} usable points; a point cloud needs at least 8, better some thousands.")
    frame = _frame(points, up, file)
    middle = points.mean(axis=0)
    local = points - middle
    asked = local[:: max(len(local) // 2000, 1)]
    sigma = 0.5 * float(np.median(cKDTree(local).query(asked, k=5)[0][:, 4])) or 0.01 / frame.scale
    splats = disks(local, np.tile([0.0, 0.0, 1.0], (len(local), 1)), sigma, tuple(middle.tolist()))
    splats = splats.replace(log_scales=np.full((len(local), 3), np.log(sigma), np.float32))
    frame = Frame(tuple((np.asarray(frame.centre) - middle).tolist()), frame.scale, frame.up)
    return Object(file, "points", splats, frame, cubature_from_splats(splats, frame, seed=seed), notes)


def _frame(points: Float64[np.ndarray, "n 3"], up: str, file: str) -> Frame:
    from splatanim.inspect import up_vector

    low, high = points.min(axis=0), points.max(axis=0)
    longest = float((high - low).max())
    if not longest > 0:
        raise InputError(f"{file}: all points lie at one place; there is no object to bind a field to.")
    return Frame(tuple((0.5 * (low + high)).tolist()), 1.0 / longest, up_vector("+y" if up == "auto" else up))


def _area(mesh: Mesh) -> float:
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)
