"""Training shapes that know a rig: what fields of complementary motion are trained against (III-E, eq. 22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64

from splatanim.data import Mesh
from splatanim.errors import InputError
from splatanim.field.dataset import SUFFIXES, Dataset, Shape, Skipped, fill, preprocess

MOST_BONES = 24  # the strongest of a rig; the rest of it is little
RIGGED = (".glb", ".gltf")
_CLEAR = 1e-3  # the least weight for which a bone counts


@dataclass(frozen=True)
class RiggedShape(Shape):
    """A shape with a rig's weights at its candidate voxels, ``bones`` (c, j)."""

    bones: Float32[np.ndarray, "c j"] | None = None


def rigged_dataset(folder: Path, held_out: Sequence[str] = ()) -> Dataset:
    """The rigged models of a folder and of the folders in it; those named in ``held_out`` (stems) are ``val``.

    Files without a surface (clips alone) and those that cannot be filled are counted in ``Dataset.skipped``.

    Raises :class:`InputError` when the folder does not exist or holds no usable rig.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder. Give the folder that holds the rigged models (.glb, .gltf).")
    data = Dataset()
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in RIGGED):
        try:
            data.shapes.append(rigged_shape(path, "val" if path.stem in held_out else "train"))
        except Skipped as reason:
            data.skipped[str(reason)] += 1
    if not data.split("train"):
        raise InputError(
            f"{folder}: no usable rigged model for training ({data.summary()}). Put skinned .glb or .gltf files into "
            f"it; meshes without a rig ({', '.join(SUFFIXES)}) are for training without --complementary."
        )
    return data


def rigged_shape(path: Path, split: str) -> RiggedShape:
    """One skinned model, filled, with its rig's weights carried to the candidate voxels; raises :class:`Skipped`."""
    from splatanim.rig.bone_field import bone_field
    from splatanim.rig.gltf import read_gltf
    from splatanim.rig.surface_splats import weight_sources

    try:
        model = read_gltf(path)
    except InputError as error:
        raise Skipped("that cannot be read") from error
    if not len(model.faces):
        raise Skipped("without faces")
    used = model.vertices[np.unique(model.faces)]
    middle, scale = 0.5 * (used.min(axis=0) + used.max(axis=0)), 2.0 / float(np.ptp(used, axis=0).max())
    shape = preprocess(fill(Mesh(model.vertices, model.faces)), path.name, split)
    points, skin = weight_sources(model)
    bones, _ = bone_field(shape.domain, (points - middle) * scale, skin)
    return with_bones(shape, bones.weights(shape.points))


def with_bones(shape: Shape, weights: Float64[np.ndarray, "c j"]) -> RiggedShape:
    """A shape with the :data:`MOST_BONES` strongest of these weights at its candidate voxels."""
    order = np.argsort(-weights.sum(axis=0), kind="stable")[:MOST_BONES]
    bones = weights[:, order[weights[:, order].max(axis=0) > _CLEAR]].astype(np.float32)
    return RiggedShape(**vars(shape), bones=np.ascontiguousarray(bones))


def invented_rig(shape: Shape, seed: int) -> RiggedShape:
    """A shape with bones at farthest points, 4 to 20 of them, whose weights fall off with the squared distance.

    Characters with rigs are few; fields should be complementary to whatever smooth weights there are.
    """
    from splatanim.sampling.surface import farthest_points

    rng = np.random.default_rng([seed, len(shape.rows)])
    points = shape.points
    pool = points[rng.permutation(len(points))[:2000]]
    centres = pool[farthest_points(pool, int(rng.integers(4, 21)))]
    squared = ((points[:, None] - centres) ** 2).sum(axis=2)
    width = float(np.sqrt(squared.min(axis=1)).mean()) * rng.uniform(0.7, 1.5)
    logits = -squared / (2.0 * width**2)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return with_bones(shape, weights / weights.sum(axis=1, keepdims=True))
