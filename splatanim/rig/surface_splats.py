"""Meshes to splats: surface-aligned disks, evenly spread by area, in the mesh's colours, with its skinning weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.rig.appearance import Appearance
from splatanim.rig.model import RiggedModel
from splatanim.rig.skinning import RiggedSplats
from splatanim.rig.transfer import stacked_weights
from splatanim.rig.weights import SkinWeights, sparse_weights
from splatanim.rotations import SH_C0

_SIGMA = 0.78  # of a disk, in units of the least distance between disks: the widest gaps just close
_THICKNESS = 0.15  # of a disk, in units of its sigma
_OPACITY = 0.99
_FULL = 0.57  # disks that fit on unit area at unit least distance, of those tried


@dataclass(frozen=True)
class SurfacePoints:
    """Points on a mesh: the face of each and its barycentric coordinates there, with the least distance between any."""

    face: Int[np.ndarray, " n"]
    barycentric: Float64[np.ndarray, "n 3"]
    spacing: float


def even_points(
    vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"], count: int, seed: int = 0
) -> SurfacePoints:
    """About ``count`` points on the surface with no two closer than a spacing, and no room for more.

    Raises :class:`InputError` where no triangle has an area.
    """
    from splatanim.samples.surfels import thin_out

    if count < 1:
        raise InputError(f"surface: {count} points were asked for; give a positive number such as 60000.")
    corners = np.asarray(vertices, np.float64)[faces]
    doubled = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    area = float(doubled.sum()) / 2
    if not area > 0:
        raise InputError(f"surface: none of {len(faces)} triangles has an area. Does the file hold only points?")
    rng = np.random.default_rng(seed)
    wanted = 12 * count
    face = rng.choice(len(doubled), wanted, p=doubled / doubled.sum())
    root, along = np.sqrt(rng.random(wanted)), rng.random(wanted)
    barycentric = np.stack([1 - root, root * (1 - along), root * along], axis=1)
    points = np.einsum("nk,nkd->nd", barycentric, corners[face])
    spacing = float(np.sqrt(_FULL * area / count))
    kept = _rows(points, thin_out(points, spacing))
    return SurfacePoints(face[kept], barycentric[kept], spacing)


def _rows(points: np.ndarray, subset: np.ndarray) -> np.ndarray:
    """Which rows of ``points`` a subset in the same order is made of."""
    from scipy.spatial import cKDTree

    return np.sort(cKDTree(points).query(subset)[1])


def splats_of_mesh(
    vertices: Float[np.ndarray, "v 3"],
    faces: Int[np.ndarray, "f 3"],
    appearance: Appearance,
    *,
    count: int = 60_000,
    normals: Float[np.ndarray, "v 3"] | None = None,
    up: tuple[float, float, float] | None = (0.0, 1.0, 0.0),
    seed: int = 0,
) -> tuple[Splats, SurfacePoints]:
    """Disks on a mesh in its display colours, and the places they stand at.

    Light from above is painted in (a splat has no other), softly, except on unlit materials; ``up`` None leaves all
    colours as they are. Holes (alpha below the material's cutoff) get no disks.
    """
    vertices = np.asarray(vertices, np.float64)
    places = even_points(vertices, faces, count, seed)
    colour = appearance.sample(faces, places.face, places.barycentric)
    seen = colour[:, 3] > 0.02
    if not seen.any():
        raise InputError("surface: the whole mesh is transparent. Check the materials' alpha.")
    places = SurfacePoints(places.face[seen], places.barycentric[seen], places.spacing)
    colour = colour[seen]
    corners = vertices[faces[places.face]]
    points = np.einsum("nk,nkd->nd", places.barycentric, corners)
    flat = _unit(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    if up is not None:
        smooth = flat
        if normals is not None:
            smooth = _unit(np.einsum("nk,nkd->nd", places.barycentric, normals[faces[places.face]]))
            smooth = np.where(np.linalg.norm(smooth, axis=1, keepdims=True) > 0.5, smooth, flat)
        unlit = np.array([paint.unlit for paint in appearance.paints])
        painted = appearance.paint_of_face[places.face] if len(appearance.paint_of_face) else np.zeros(len(flat), int)
        colour[:, :3] *= np.where(unlit[painted], 1.0, soft_light(smooth, up))[:, None]
    middle = np.round(0.5 * (vertices.min(axis=0) + vertices.max(axis=0)), 6) if _far(vertices) else np.zeros(3)
    return _disks(points - middle, flat, colour, places.spacing, tuple(middle.tolist())), places


def _far(vertices: np.ndarray) -> bool:
    """Whether coordinates are so large against the object that float32 would round it visibly."""
    return bool(np.abs(vertices).max() > 1e4 * float(np.ptp(vertices, axis=0).max()))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)


def soft_light(normals: Float[np.ndarray, "n 3"], up: tuple[float, float, float]) -> Float64[np.ndarray, " n"]:
    """Brightness in [0.55, 1.08] under a bright sky and a low front light, both wrapped far around."""
    from splatanim.render.camera import view_direction

    vertical = np.asarray(up, np.float64) / np.linalg.norm(up)
    key = -view_direction(up, 40.0, 35.0)
    sky = 0.5 + 0.5 * (normals @ vertical)
    front = np.clip(0.35 + 0.65 * (normals @ key), 0.0, 1.0)
    return 0.55 + 0.28 * sky + 0.25 * front


def _disks(
    points: np.ndarray, normals: np.ndarray, colour: np.ndarray, spacing: float, offset: tuple[float, float, float]
) -> Splats:
    n = len(points)
    z = normals
    q = np.stack([1.0 + z[:, 2], -z[:, 1], z[:, 0], np.zeros(n)], axis=1)  # the shortest turn that takes z there
    q[z[:, 2] < -0.999999] = (0.0, 1.0, 0.0, 0.0)
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    sigma = _SIGMA * spacing
    opacity = np.clip(_OPACITY * colour[:, 3], 1e-3, _OPACITY)
    return Splats(
        points.astype(np.float32),
        q.astype(np.float32),
        np.tile(np.log([sigma, sigma, _THICKNESS * sigma]), (n, 1)).astype(np.float32),
        np.log(opacity / (1.0 - opacity)).astype(np.float32),
        ((np.clip(colour[:, :3], 0.0, 1.0) - 0.5) / SH_C0).astype(np.float32)[:, None, :],
        offset,
    )


def rigged_splats(
    model: RiggedModel,
    *,
    count: int = 60_000,
    up: tuple[float, float, float] | None = (0.0, 1.0, 0.0),
    seed: int = 0,
) -> RiggedSplats:
    """A rigged mesh as splats in its bind pose, each with the weights of its place on its triangle."""
    if not len(model.faces):
        raise InputError("surface: the model has no faces, so there is no surface to cover with splats.")
    splats, places = splats_of_mesh(
        model.vertices, model.faces, model.appearance, count=count, normals=model.normals, up=up, seed=seed
    )
    return RiggedSplats(splats, weights_at(model, places))


def weights_at(model: RiggedModel, places: SurfacePoints) -> SkinWeights:
    """Skinning weights inside triangles, linear in between the corners."""
    corners = model.faces[places.face]
    n, width = len(corners), model.skin.joints.shape[1]
    dense = np.zeros((n, model.skin.joint_count))
    rows = np.repeat(np.arange(n), 3 * width)
    values = places.barycentric[:, :, None] * model.skin.weights[corners]
    np.add.at(dense, (rows, model.skin.joints[corners].ravel()), values.ravel())
    return sparse_weights(dense)


def weight_sources(model: RiggedModel, count: int = 20_000) -> tuple[Float64[np.ndarray, "m 3"], SkinWeights]:
    """Points that know their weights, to carry these from: the vertices, and even points inside the triangles.

    On a coarse mesh the nearest vertices say little about a point in the middle of a face. Points alone where there
    are no faces.
    """
    if not len(model.faces):
        return model.vertices, model.skin
    places = even_points(model.vertices, model.faces, count)
    inside = np.einsum("nk,nkd->nd", places.barycentric, model.vertices[model.faces[places.face]])
    used = np.unique(model.faces)
    return np.concatenate([model.vertices[used], inside]), stacked_weights(
        [model.skin.select(used), weights_at(model, places)]
    )
