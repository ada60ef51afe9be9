"""The things of a scene from their files, samples or shapes, each still in its own coordinates; and their labels."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int

from pipelines.field_pictures import shade_of
from pipelines.objects import Object, form_of, mesh_object, read_object, surface_of
from splatanim.data import Cubature, Frame, Mesh, Splats
from splatanim.dynamics.scene import SceneError, SceneObject, Scenery
from splatanim.errors import InputError
from splatanim.field import SkinningField

_SH0 = 0.28209479177387814


@dataclass(frozen=True)
class Source:
    """One file's content. ``frame`` takes its coordinates to longest side 1, in which ``cubature`` is.

    ``splats`` are what is drawn: a capture's own (``rows`` of its file, of which ``total`` were read), or a mesh's or
    cloud's surface. ``places`` are what labels count: splats, vertices or points, in the cubature's coordinates.
    ``offset`` is added to what ``frame`` starts from to get the file's coordinates (captures far from its origin).
    """

    label: str
    content: Splats | Mesh
    frame: Frame
    cubature: Cubature
    splats: Splats
    places: Float64[np.ndarray, "r 3"]
    rows: Int[np.ndarray, " r"]
    total: int
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    notes: tuple[str, ...] = ()

    def to_local(self, points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """File coordinates to the cubature's."""
        return self.frame.to_sim(np.asarray(points, np.float64) - self.offset)

    def to_file(self, points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return self.frame.to_file(points) + self.offset


def load(thing: SceneObject | Scenery, seed: int) -> Source:
    """Read what a thing is made of. Raises :class:`InputError` where a file is broken or holds no object."""
    if thing.shape:
        return _of_object(_shape_object(thing.shape, thing.proportions, seed), thing)
    if thing.sample or form_of(Path(thing.file)) == "splats":
        return _of_splats(thing, seed)
    return _of_object(read_object(Path(thing.file), up=thing.up, seed=seed), thing)


def labels_of(path: str, source: Source) -> Int[np.ndarray, " r"]:
    """The integers of a label file, one for each of ``source.places``.

    Raises :class:`SceneError` (key ``labels``) where the file is no list of integers or has another length.
    """
    labels = read_labels(Path(path), "labels")
    if len(labels) != source.total:
        raise SceneError("labels", f"labels {path} holds {len(labels)} labels; {source.label} has {source.total} rows.")
    return labels[source.rows]


def read_labels(path: Path, key: str) -> Int[np.ndarray, " r"]:
    """A .npy or .txt file of integers, flat; ``key`` is named in errors."""
    from splatanim.formats.base import first_bytes

    first_bytes(path, 1)
    try:
        values = np.load(path, allow_pickle=False) if path.suffix.lower() == ".npy" else np.loadtxt(path, ndmin=1)
    except (ValueError, OSError) as error:
        raise SceneError(key, f"{path}: is not a .npy or .txt file of numbers ({error}).") from None
    values = np.asarray(values).ravel()
    if not np.issubdtype(values.dtype, np.number) or not np.array_equal(values, np.round(values)):
        raise SceneError(key, f"{path}: labels must be whole numbers, one for each splat of the file.")
    return values.astype(np.int64)


def _of_splats(thing: SceneObject | Scenery, seed: int) -> Source:
    from pipelines.animate import prepare
    from splatanim.formats import ReadResult, read_splats
    from splatanim.samples import make_sample
    from splatanim.sampling.cubature import cubature_from_splats

    if thing.sample:
        try:
            splats = make_sample(thing.sample, seed=seed)
        except InputError as error:
            raise SceneError("sample", str(error)) from None
        result = ReadResult(splats, "sample", len(splats), up="-y")
    else:
        result = read_splats(thing.file)
    subject = prepare(result, thing.up, 1.0, thing.file or thing.sample)
    cubature = cubature_from_splats(subject.splats, subject.frame, seed=seed)
    return Source(
        thing.file or thing.sample,
        subject.splats,
        subject.frame,
        cubature,
        subject.splats,
        subject.frame.to_sim(subject.splats.means),
        subject.order.astype(np.int64),
        len(result.splats),
        result.splats.offset,
        tuple(subject.inspection.warnings),
    )


def _of_object(found: Object, thing: SceneObject | Scenery) -> Source:
    """A mesh or points, painted in the thing's colour."""
    colour = np.asarray(thing.colour)
    if isinstance(found.content, Mesh):
        surface = surface_of(found)
        splats, shade = surface.splats, surface.shade
        places = found.frame.to_sim(found.content.vertices)
    else:
        splats, places = found.content, found.frame.to_sim(found.content.means)
        from pipelines.field_pictures import outward

        shade = shade_of(outward(places, found.cubature.domain), found.frame.up)
    sh = ((colour * shade[:, None] - 0.5) / _SH0).astype(np.float32)[:, None, :]
    splats = splats.replace(sh=sh)
    rows = np.arange(len(places))
    offset = (0.0, 0.0, 0.0) if isinstance(found.content, Mesh) else found.content.offset
    return Source(
        found.file, found.content, found.frame, found.cubature, splats, places, rows, len(rows), offset, found.notes
    )


@functools.lru_cache(maxsize=16)
def _shape_object(shape: str, proportions: tuple[float, float, float], seed: int) -> Object:
    """Shapes are the same every time: many in one scene are filled once."""
    return mesh_object(_shape(shape, proportions), f"shape {shape}", seed=seed)


def bound_field(item: SceneObject, source: Source, seed: int) -> tuple[SkinningField, str]:
    """An object's skinning field in its own coordinates, and a sentence on how it came about."""
    from splatanim.field.subspace import bind

    if item.shape:
        return _shape_field(item.shape, item.proportions, seed, item.field, item.handles)
    return bind(item.field, source.cubature.domain, item.handles, seed=seed)


@functools.lru_cache(maxsize=16)
def _shape_field(
    shape: str, proportions: tuple[float, float, float], seed: int, kind: str, handles: int
) -> tuple[SkinningField, str]:
    from splatanim.field.subspace import bind

    return bind(kind, _shape_object(shape, proportions, seed).cubature.domain, handles, seed=seed)


def _shape(shape: str, proportions: tuple[float, float, float]) -> Mesh:
    """A closed mesh of longest side 1 before ``proportions``, y up."""
    import trimesh

    if shape == "box":
        mesh = trimesh.creation.box()
    elif shape == "ball":
        mesh = trimesh.creation.icosphere(subdivisions=4, radius=0.5)
    else:
        mesh = trimesh.creation.cylinder(radius=0.5, height=1.0, sections=64)
        mesh.apply_transform(trimesh.transformations.rotation_matrix(np.pi / 2, [1, 0, 0]))
    return Mesh(np.asarray(mesh.vertices) * proportions, np.asarray(mesh.faces, np.int64))
