"""Which balls of different bodies are near each other: lists that stay complete while things move.

A list is made at a reference position, with some slack beyond the distance at which contact begins. It holds every
pair that matters for as long as no two bodies have moved against each other by more than the slack; before they
could, it is made anew. So no pair is ever missed, however far a step goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int
from scipy.spatial import cKDTree

_SLACK = 0.03  # of the smaller body's size, added to what is asked for
_STRIDE = 0.3  # of it, the furthest that two near bodies are looked ahead for


@dataclass(frozen=True)
class Group:
    """Two bodies that can touch: their numbers, the gap [m] below which they interact, and the smaller one's size."""

    first: int
    second: int
    reach: float
    size: float


@dataclass(frozen=True)
class Near:
    """Candidate pairs: ``first`` and ``second`` point indices, and the ``group`` that each belongs to."""

    first: Int[np.ndarray, " p"]
    second: Int[np.ndarray, " p"]
    group: Int[np.ndarray, " p"]


class Neighbours:
    """Candidate pairs among the balls (s,) of bodies whose points begin at ``starts`` (bodies + 1,)."""

    def __init__(self, groups: list[Group], starts: np.ndarray, radii: Float64[np.ndarray, " s"]) -> None:
        self._groups = groups
        self._starts = starts
        self._radii = radii
        self._largest = np.maximum.reduceat(radii, starts[:-1])
        self._a = np.array([group.first for group in groups])
        self._b = np.array([group.second for group in groups])
        self._reach = np.array([group.reach for group in groups])
        self._size = np.array([group.size for group in groups])
        self._reference: np.ndarray | None = None
        self._slack = np.zeros(len(groups))
        self._near = Near(*(np.zeros(0, np.int64) for _ in range(3)))

    def stride(self, positions: Float64[np.ndarray, "s 3"], moved: Float64[np.ndarray, "s 3"]) -> float:
        """The share of a motion that can be looked ahead for at once: bodies that are near go a third of their size.

        Longer lists would hold every pair there is.
        """
        needed = self._motion(moved)
        allowed = np.maximum(self._clear(positions), _STRIDE * self._size)
        return float(min(1.0, (allowed / np.maximum(needed, 1e-300)).min()))

    def at(self, positions: Float64[np.ndarray, "s 3"], moved: Float64[np.ndarray, "s 3"] | None = None) -> Near:
        """The pairs that interact at ``positions`` or anywhere on the way to ``positions + moved``."""
        if self._reference is not None:
            needed = self._motion(positions - self._reference)
            if moved is not None:
                needed = np.maximum(needed, self._motion(positions + moved - self._reference))
            if (needed <= self._slack).all():
                return self._near
        asked = np.zeros(len(self._groups)) if moved is None else self._motion(moved)
        self._rebuild(positions, asked)
        return self._near

    def _motion(self, displacement: np.ndarray) -> np.ndarray:
        """For each group, a bound on how much nearer two of its points may have come."""
        counts = np.diff(self._starts)
        mean = np.add.reduceat(displacement, self._starts[:-1]) / counts[:, None]
        own = np.linalg.norm(displacement - np.repeat(mean, counts, axis=0), axis=1)
        spread = np.maximum.reduceat(own, self._starts[:-1])
        between = np.linalg.norm(mean[self._a] - mean[self._b], axis=1)
        return between + spread[self._a] + spread[self._b]

    def _clear(self, positions: np.ndarray) -> np.ndarray:
        """For each group, what is left between its bodies' boxes beyond radii and reach; negative where they meet."""
        low = np.minimum.reduceat(positions, self._starts[:-1])
        high = np.maximum.reduceat(positions, self._starts[:-1])
        a, b = self._a, self._b
        apart = np.linalg.norm(np.maximum(np.maximum(low[a] - high[b], low[b] - high[a]), 0.0), axis=1)
        return apart - self._largest[a] - self._largest[b] - self._reach

    def _rebuild(self, positions: np.ndarray, asked: np.ndarray) -> None:
        self._reference = positions
        slack, clear = _SLACK * self._size + 1.2 * asked, self._clear(positions)
        self._slack = np.maximum(slack, clear)
        trees: dict[int, cKDTree] = {}
        found = [self._search(int(k), positions, trees, float(slack[k])) for k in np.flatnonzero(clear <= slack)]
        empty = np.zeros(0, np.int64)
        self._near = Near(*(np.concatenate([part[k] for part in found]) if found else empty for k in range(3)))

    def _search(self, index: int, positions: np.ndarray, trees: dict[int, cKDTree], slack: float):
        group, starts = self._groups[index], self._starts
        for body in (group.first, group.second):
            if body not in trees:
                trees[body] = cKDTree(positions[starts[body] : starts[body + 1]])
        radius = self._largest[group.first] + self._largest[group.second] + group.reach + slack
        pairs = trees[group.first].sparse_distance_matrix(trees[group.second], radius, output_type="ndarray")
        first = pairs["i"].astype(np.int64) + starts[group.first]
        second = pairs["j"].astype(np.int64) + starts[group.second]
        # (sparse_distance_matrix leaves out nothing at distance 0 in this output, unlike in a sparse matrix)
        near = pairs["v"] - self._radii[first] - self._radii[second] <= group.reach + slack
        return first[near], second[near], np.full(int(near.sum()), index)
