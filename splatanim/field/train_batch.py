"""Training batches: random shapes, random points of them, randomly turned; everything drawn from one seed a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import roma
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from splatanim.field.dataset import Shape
from splatanim.field.neural_surface import anchored

TARGETS = 20  # exact modes that distillation asks for; the evaluation counts 16


@dataclass(frozen=True)
class Batch:
    """b shapes: surface points and normals (b, s, 3), query points (b, n, 3), exact modes there (b, n, c).

    ``edges`` (b, e, 2) are rows of query points that are neighbouring voxels, ``edge_weights`` (b, e) one over their
    distance, 0 for padding. ``bones`` (b, n, j) are rigs' weights at the query points, 0 for padding; j is 0 where no
    shape has a rig.
    """

    surface: Tensor
    normals: Tensor
    points: Tensor
    modes: Tensor
    edges: Tensor
    edge_weights: Tensor
    bones: Tensor


def usable(shapes: Sequence[Shape]) -> list[Shape]:
    """Connected shapes with the wanted modes: loose parts are shown to the network one by one when they are bound."""
    return [s for s in shapes if len(s.levels) >= TARGETS and s.parts == 1]


def draw_batch(
    shapes: Sequence[Shape],
    rng: np.random.Generator,
    *,
    batch: int,
    points: int,
    surface: int,
    anchors: int,
    blocks: bool = True,
) -> Batch:
    """A batch of different shapes (as far as there are enough), in float32.

    ``points`` are drawn in blocks of 2 x 2 x 2 voxels, so that many have neighbours among them (as differences need),
    or else independently (as products do).
    """
    chosen = rng.choice(len(shapes), batch, replace=batch > len(shapes))
    wide = max((_bones(shape).shape[1] for shape in shapes), default=0)
    parts = [_draw(shapes[i], rng, points, surface, anchors, blocks, wide) for i in chosen]
    columns = [torch.from_numpy(np.stack(column)) for column in zip(*parts)]
    return Batch(*(column if column.dtype == torch.int64 else column.float() for column in columns))


def _bones(shape: Shape) -> np.ndarray:
    """A shape's rig at its candidates, without columns where it has none."""
    bones = getattr(shape, "bones", None)
    return np.zeros((len(shape.rows), 0), np.float32) if bones is None else bones


def _draw(
    shape: Shape, rng: np.random.Generator, points: int, surface: int, anchors: int, blocks: bool, wide: int
) -> tuple[np.ndarray, ...]:
    rows = _blocks(shape, rng, points) if blocks else np.resize(rng.permutation(len(shape.rows)), points)
    turn = random_turn(rng)
    seen = anchored(shape.surface, rng, surface, anchors)
    turned = seen.points @ turn.T
    low, high = turned.min(axis=0), turned.max(axis=0)
    scale = 2.0 / float((high - low).max())
    cells = shape.domain.cells[shape.rows[rows]]
    query = shape.domain.origin + (cells + 0.5) * shape.domain.spacing
    query = (query @ turn.T - (low + high) / 2) * scale
    edges, weights = _edges(cells, 2 * points, shape.domain.spacing * scale, rng)
    modes = shape.modes[rows, :TARGETS]
    bones = _bones(shape)[rows]
    bones = np.pad(bones, ((0, 0), (0, wide - bones.shape[1])))
    return (turned - (low + high) / 2) * scale, seen.normals @ turn.T, query, modes, edges, weights, bones


def _blocks(shape: Shape, rng: np.random.Generator, count: int) -> Int[np.ndarray, " n"]:
    """Candidate rows in random blocks of 2 x 2 x 2 voxels."""
    cells = shape.domain.cells[shape.rows] + rng.integers(2, size=3)
    block = np.unique(cells // 2, axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(rng.permutation(block.max() + 1)[block], kind="stable")
    return np.resize(order, count)  # small shapes repeat


def _edges(
    cells: Int[np.ndarray, "n 3"], most: int, spacing: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` pairs of rows that are neighbours along an axis, padded with (0, 0) of weight 0."""
    low = cells.min(axis=0)
    index = np.full(cells.max(axis=0) - low + 2, -1, np.int64)
    index[tuple((cells - low).T)] = np.arange(len(cells))
    here = index[tuple((cells - low).T)]
    pairs = [np.stack([here, index[tuple((cells - low + step).T)]], axis=1) for step in np.eye(3, dtype=np.int64)]
    found = np.unique(np.concatenate(pairs), axis=0)
    found = found[found[:, 1] >= 0]
    if len(found) > most:
        found = found[rng.choice(len(found), most, replace=False)]
    edges, weights = np.zeros((most, 2), np.int64), np.zeros(most)
    edges[: len(found)], weights[: len(found)] = found, 1.0 / spacing
    return edges, weights


def random_turn(rng: np.random.Generator) -> Float64[np.ndarray, "3 3"]:
    """Half the time one of the 48 symmetries of the cube (files mix their up axes), else any rotation."""
    if rng.random() < 0.5:
        return np.eye(3)[rng.permutation(3)] * rng.choice([-1.0, 1.0], (3, 1))
    quaternion = torch.from_numpy(rng.normal(size=4))
    return roma.unitquat_to_rotmat(quaternion / quaternion.norm()).numpy()
