"""Each object of a scene as files of its own, in the coordinates and order of the file that it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pipelines.scene_build import BuiltObject, BuiltScene
from splatanim.data import Mesh, Splats
from splatanim.dynamics.world import WorldTrajectory
from splatanim.errors import OutputError
from splatanim.transforms import BoundSplats, pose


def exports_of(built: BuiltScene, trajectory: WorldTrajectory, bound: Sequence[BoundSplats]) -> Callable[[int], None]:
    """Writes all that the scene's output asks for at frame k."""
    output = built.scene.output
    writers = []
    for item, world, motion in zip(built.objects, bound, trajectory.trajectories, strict=True):
        local = item.thing.placement.local_handles(motion.handles)
        if output.ply:
            folder = made(Path(output.ply) / item.thing.name)
            writers.append(_sequence(item, world, local, folder))
        if output.npz:
            writers.append(_npz(item, world, local, motion.times, made(Path(output.npz))))

    def write(k: int) -> None:
        for writer in writers:
            writer(k)

    return write


def made(folder: Path) -> Path:
    """The folder, made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: the folder cannot be made ({error.strerror or error}). Choose another one."
        ) from error
    return folder


def file_bound(item: BuiltObject, world: BoundSplats) -> BoundSplats:
    """The splats bound in their file's own coordinates: the same weights, slopes turned back."""
    source, placement = item.thing.source, item.thing.placement
    shift = np.asarray(source.splats.offset) - np.asarray(source.offset)
    frame = dataclasses.replace(source.frame, centre=tuple((np.asarray(source.frame.centre) - shift).tolist()))
    rest = frame.to_sim(source.splats.means).astype(np.float32)
    slopes = (placement.scale * world.slopes @ placement.rotation.astype(np.float32)).astype(np.float32)
    return BoundSplats(source.splats, frame, rest, world.weights, slopes)


def _sequence(item: BuiltObject, world: BoundSplats, local: np.ndarray, folder: Path) -> Callable[[int], None]:
    from splatanim.formats import write_sequence_frame

    source = item.thing.source
    if isinstance(source.content, Mesh):
        return _mesh_sequence(item, local, folder)
    bound = file_bound(item, world)
    back = np.argsort(source.rows)

    def write(k: int) -> None:
        splats: Splats = pose(bound, local[k])
        write_sequence_frame(folder, k, splats.select(back))

    return write


def _mesh_sequence(item: BuiltObject, local: np.ndarray, folder: Path) -> Callable[[int], None]:
    """The mesh with moved vertices, as binary PLY."""
    import trimesh

    from splatanim.formats.atomic import atomic_path

    source = item.thing.source
    assert isinstance(source.content, Mesh)
    faces = source.content.faces
    weights, _ = item.model.handles.evaluate(item.thing.placement.to_world(source.places))
    one = np.concatenate([source.places, np.ones((len(source.places), 1))], axis=1)

    def write(k: int) -> None:
        moved = source.places + np.einsum("nh,hrc,nc->nr", weights, local[k], one, optimize=True)
        mesh = trimesh.Trimesh(source.to_file(moved), faces, process=False)
        with atomic_path(folder / f"frame_{k:04d}.ply") as temporary:
            mesh.export(temporary, file_type="ply")

    return write


def _npz(
    item: BuiltObject, world: BoundSplats, local: np.ndarray, times: np.ndarray, folder: Path
) -> Callable[[int], None]:
    """With the last frame: x = X + sum_h w_h Z_h [X; 1], in units of the object (longest side 1)."""
    from splatanim.formats.atomic import atomic_path

    source = item.thing.source
    rest, weights, slopes, centre = _posed_places(item, world)

    def write(k: int) -> None:
        if k + 1 < len(local):
            return
        with atomic_path(folder / f"{item.thing.name}.npz") as temporary:
            np.savez_compressed(
                temporary,
                handles=local.astype(np.float32),
                times=times,
                rest=rest,
                weights=weights,
                weight_gradients=slopes,
                rows=np.sort(source.rows),
                centre=centre,
                scale=source.frame.scale,
                up=np.asarray(source.frame.up),
            )

    return write


def _posed_places(item: BuiltObject, world: BoundSplats) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rest places, weights and their gradients in the object's own coordinates, and the file's centre.

    One row for each splat or point in the file's order, or for each vertex of a mesh.
    """
    source, placement = item.thing.source, item.thing.placement
    if isinstance(source.content, Mesh):
        weights, slopes = item.model.handles.evaluate(placement.to_world(source.places))
        slopes = placement.scale * slopes @ placement.rotation
        out = [array.astype(np.float32) for array in (source.places, weights, slopes)]
        return out[0], out[1], out[2], np.asarray(source.frame.centre)
    bound, back = file_bound(item, world), np.argsort(source.rows)
    centre = np.asarray(bound.frame.centre) + source.splats.offset
    return bound.rest[back], bound.weights[back], bound.slopes[back], centre
