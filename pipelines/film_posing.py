"""Posing a capture for a film, a block of rows at a time, so that large captures need little more than themselves.

Of N splats with h handles are kept: the splats as read, weights (N, h) and gradients (N, h, 3), of large captures in
half precision, as in the 4D file. A frame adds what is drawn, 14 numbers a splat (:mod:`splatanim.render.colours`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from splatanim.binding import Handles
from splatanim.data import Frame, Splats
from splatanim.render.colours import seen_colours
from splatanim.splitting import split_splats
from splatanim.transforms import BoundSplats, bind_splats, deform, push_forward

BLOCK = 16384  # rows
LARGE = 500_000  # splats from which gradients are kept in half precision


@dataclass(frozen=True)
class BoundCapture:
    """Splats and the weights of every handle at them, as :class:`BoundSplats`, to be had block by block.

    ``slopes`` are the weights' gradients times ``unit`` [m], so that half precision holds them for objects of any size.
    """

    splats: Splats
    frame: Frame
    weights: np.ndarray
    slopes: np.ndarray
    unit: float

    def __len__(self) -> int:
        return len(self.splats)

    def rows(self, rows: slice) -> BoundSplats:
        """A block of it; the splats are a view."""
        splats = _view(self.splats, rows)
        slopes = self.slopes[rows].astype(np.float32) / np.float32(self.unit)
        return BoundSplats(splats, self.frame, _rest(splats, self.frame), self.weights[rows], slopes)

    def whole(self) -> BoundSplats:
        """All of it at once."""
        return self.rows(slice(0, len(self)))

    def blocks(self) -> Iterator[slice]:
        return (slice(start, min(start + BLOCK, len(self))) for start in range(0, len(self), BLOCK))

    @property
    def size(self) -> float:
        """The longest side of the box of all centres [m]."""
        means = self.splats.means
        return float((means.max(axis=0).astype(np.float64) - means.min(axis=0)).max()) * self.frame.scale


def bind_capture(splats: Splats, frame: Frame, handles: Handles, *, unit: float = 1.0) -> BoundCapture:
    """Evaluate the handles at all splats, once. ``unit``: about the object's size [m]."""
    kind = np.float16 if len(splats) >= LARGE else np.float32
    weights = np.empty((len(splats), len(handles)), np.float32)
    slopes = np.empty((len(splats), len(handles), 3), kind)
    capture = BoundCapture(splats, frame, weights, slopes, unit)
    for rows in capture.blocks():
        block = bind_splats(_view(splats, rows), frame, handles)
        weights[rows], slopes[rows] = block.weights, block.slopes * np.float32(unit)
    return capture


@dataclass(frozen=True)
class _Block:
    """Rows of a capture as they are drawn: ``kept`` is the mask of those in one piece (None: all), ``pieces`` what the
    others were cut into."""

    rows: slice
    kept: np.ndarray | None = None
    pieces: BoundSplats | None = None

    @property
    def count(self) -> int:
        whole = self.rows.stop - self.rows.start if self.kept is None else int(self.kept.sum())
        return whole + (0 if self.pieces is None else len(self.pieces.rest))


@dataclass(frozen=True)
class DrawnCapture:
    """A capture as it is drawn, with its long splats in pieces; ``cut`` is how many those are."""

    bound: BoundCapture
    blocks: tuple[_Block, ...]
    cut: int

    def at(self, handles: Float[np.ndarray, "h 3 4"], eye: Float[np.ndarray, " 3"] | None = None) -> Splats:
        """All that is drawn under affine displacements of the handles; seen from ``eye`` alone, with one colour a
        splat, or with turned harmonics where no eye is given."""
        source = self.bound.splats
        count = sum(block.count for block in self.blocks)
        coefficients = source.sh.shape[1] if eye is None else 1
        out = Splats(
            np.empty((count, 3), np.float32),
            np.empty((count, 4), np.float32),
            np.empty((count, 3), np.float32),
            np.empty(count, np.float32),
            np.empty((count, coefficients, 3), np.float32),
            source.offset,
        )
        start = 0
        for block in self.blocks:
            start = _write(out, start, _posed(self.bound.rows(block.rows), handles, eye), block.kept)
            if block.pieces is not None:
                start = _write(out, start, _posed(block.pieces, handles, eye), None)
        return out


def drawn_capture(
    bound: BoundCapture, handles: Handles, poses: Float[np.ndarray, "p h 3 4"] | None = None
) -> DrawnCapture:
    """The capture as it is drawn under some poses of its motion; without poses every splat stays whole."""
    blocks, cut = [], 0
    size = bound.size
    for rows in bound.blocks():
        parents = None
        if poses is not None:
            drawn = split_splats(bound.rows(rows), handles, poses=poses, size=size)
            parents = drawn.parents
        if parents is None:
            blocks.append(_Block(rows))
            continue
        divided = np.bincount(parents, minlength=rows.stop - rows.start) > 1
        cut += int(divided.sum())
        blocks.append(_Block(rows, ~divided, _selected(drawn, divided[parents])))
    return DrawnCapture(bound, tuple(blocks), cut)


def posed_whole(bound: BoundCapture, handles: Float[np.ndarray, "h 3 4"]) -> Splats:
    """The capture's own splats, uncut and with turned harmonics: what is exported. Further columns are kept."""
    whole = DrawnCapture(bound, tuple(_Block(rows) for rows in bound.blocks()), 0)
    return whole.at(handles).replace(extras=bound.splats.extras)


def _posed(bound: BoundSplats, handles: np.ndarray, eye: np.ndarray | None) -> Splats:
    means, gradients = deform(bound, handles)
    if eye is None:
        return push_forward(bound.splats, gradients, means)
    colours = seen_colours(bound.splats.sh, gradients, means, eye)
    return push_forward(bound.splats.replace(sh=colours, extras={}), gradients, means)


def _write(out: Splats, start: int, block: Splats, kept: np.ndarray | None) -> int:
    """Copy a block (the rows at a mask) into ``out`` from a row on; where the next one goes."""
    end = start + (len(block) if kept is None else int(kept.sum()))
    for name in ("means", "quaternions", "log_scales", "raw_opacities", "sh"):
        column = getattr(block, name)
        getattr(out, name)[start:end] = column if kept is None else column[kept]
    return end


def _selected(bound: BoundSplats, rows: np.ndarray) -> BoundSplats:
    return BoundSplats(
        bound.splats.select(rows), bound.frame, bound.rest[rows], bound.weights[rows], bound.slopes[rows]
    )


def _view(splats: Splats, rows: slice) -> Splats:
    """Some rows without copying them, and without further columns."""
    return Splats(
        splats.means[rows],
        splats.quaternions[rows],
        splats.log_scales[rows],
        splats.raw_opacities[rows],
        splats.sh[rows],
        splats.offset,
    )


def _rest(splats: Splats, frame: Frame) -> np.ndarray:
    return frame.to_sim(splats.means).astype(np.float32)
