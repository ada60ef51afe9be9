"""The contact balls of all bodies as one array of points, and the maps between them and the coordinates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.balls import Balls, balls_on, balls_within
from splatanim.dynamics.blocks import BlockMatrix
from splatanim.dynamics.pairs import Group
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Step, Vector

if TYPE_CHECKING:
    from splatanim.dynamics.world import Obstacle

_FINEST = 0.12  # of the smallest other body's size: the ball spacing that it cannot sink into visibly


@dataclass(frozen=True)
class Surface:
    """A body's balls with the shape functions at their centres and at the surface points that they stand for.

    ``motion`` is an obstacle's; its shape functions are empty. ``mass`` [kg] is infinite for one.
    """

    name: str
    balls: Balls
    shape: Float64[np.ndarray, "s k"]
    held: Float64[np.ndarray, "s p"]
    skin_shape: Float64[np.ndarray, "s k"]
    skin_held: Float64[np.ndarray, "s p"]
    mass: float
    size: float
    friction: float
    motion: Callable[[float], np.ndarray] | None = None

    def at_least(self, radius: float) -> Surface:
        """With balls that let none of ``radius`` through."""
        return dataclasses.replace(self, balls=self.balls.at_least(radius))


def spaced(sizes: Sequence[float]) -> list[float]:
    """How finely each body's balls should lie for the smallest of the others [m]."""
    return [
        _FINEST * min([size for k, size in enumerate(sizes) if k != mine] or [np.inf]) for mine in range(len(sizes))
    ]


def surface_of_actor(name: str, model: ReducedModel, finest: float) -> Surface:
    """The balls of a simulated body, spaced no wider than ``finest`` [m] where possible."""
    balls = balls_within(model.domain, finest)
    at_centres, at_surface = model.shape_at(balls.centres), model.shape_at(balls.surface)
    return Surface(name, balls, *at_centres, *at_surface, model.mass, model.size, model.material.friction)


def surface_of_obstacle(obstacle: Obstacle, smallest: float) -> Surface:
    """The balls of a prescribed body, which let none of the radius ``smallest`` through."""
    points = np.asarray(obstacle.points, np.float64)
    none = np.zeros((len(points), 0))
    size = float(np.ptp(points, axis=0).max())
    balls = balls_on(points).at_least(smallest)
    return Surface(
        obstacle.name, balls, none, none, none, none, np.inf, size or 1.0, obstacle.friction, obstacle.motion
    )


def groups_of(
    surfaces: Sequence[Surface], reach: float, friction: float | None
) -> tuple[list[Group], np.ndarray, list[float]]:
    """All pairs of bodies that can touch, their friction coefficients, and reduced mass times smaller size [kg m]."""
    groups, frictions, heft = [], [], []
    for a, one in enumerate(surfaces):
        for b in range(a + 1, len(surfaces)):
            two = surfaces[b]
            if one.motion is not None and two.motion is not None:
                continue
            size = one.size if two.motion is not None else min(one.size, two.size)
            groups.append(Group(a, b, reach * size, size))
            frictions.append(np.sqrt(one.friction * two.friction) if friction is None else friction)
            heft.append(size / (1.0 / one.mass + 1.0 / two.mass))
    return groups, np.array(frictions), heft


class Surfaces:
    """All balls, body after body: where they are, what moves them, and what forces on them do to the coordinates."""

    def __init__(self, parts: Sequence[Surface]) -> None:
        self.parts = list(parts)
        self.starts = np.concatenate([[0], np.cumsum([len(part.balls) for part in parts])])
        self.radii = np.concatenate([part.balls.radii for part in parts])
        self.body = np.repeat(np.arange(len(parts)), np.diff(self.starts))
        self.fraction = 1.0
        self._offsets: list[int] = []
        self._begin = self._end = np.zeros((len(self.radii), 3))

    def attach(self, offsets: Sequence[int]) -> None:
        """Learn where each body's coordinates begin; bodies without any (obstacles) come last."""
        self._offsets = list(offsets)

    @property
    def bodies(self) -> int:
        """The number of bodies with coordinates."""
        return len(self._offsets) - 1

    @property
    def moving(self) -> bool:
        return not np.array_equal(self._begin, self._end)

    def begin_step(self, steps: Sequence[Step]) -> None:
        """Take the prescribed part of all positions at both ends of the step."""
        self._begin = self._prescribed(steps, [step.held for step in steps], steps[0].time)
        self._end = self._prescribed(steps, [step.held_next for step in steps], steps[0].target_time)

    def _prescribed(self, steps: Sequence[Step], held: Sequence[np.ndarray], time: float) -> np.ndarray:
        rows = [part.balls.centres + part.held @ z.T for part, z in zip(self.parts, held, strict=False)]
        return np.concatenate([*rows, *(_moved(part, time) for part in self.parts[len(rows) :])])

    def positions(self, y: Vector) -> Float64[np.ndarray, "s 3"]:
        """Where all ball centres are, prescribed points at the current fraction of the step."""
        rest = self._begin + self.fraction * (self._end - self._begin)
        return rest + self._free(y)

    def displacement(self, direction: Vector, fraction: float) -> Float64[np.ndarray, "s 3"]:
        """How ball centres move along a direction, with a further ``fraction`` of the prescribed motion."""
        return self._free(direction) + fraction * (self._end - self._begin)

    def carried(self, first: np.ndarray, second: np.ndarray, fraction: float) -> Vector:
        """A direction that shifts each body by the mean prescribed motion of the points it is paired with."""
        prescribed = fraction * (self._end - self._begin)
        out = np.zeros(self._offsets[-1])
        for body in range(self.bodies):
            others = np.concatenate([second[self.body[first] == body], first[self.body[second] == body]])
            moved = prescribed[others]
            moved = moved[moved.any(axis=1)]
            if len(moved):
                shape = self.parts[body].shape
                unit = np.linalg.lstsq(shape, np.ones(len(shape)), rcond=None)[0]
                out[self._offsets[body] : self._offsets[body + 1]] = np.outer(moved.mean(axis=0), unit).ravel()
        return out

    def _free(self, y: Vector) -> np.ndarray:
        out = np.zeros((len(self.radii), 3))
        for body in range(self.bodies):
            mine = y[self._offsets[body] : self._offsets[body + 1]]
            out[self.starts[body] : self.starts[body + 1]] = self.parts[body].shape @ mine.reshape(3, -1).T
        return out

    def free_skin(self, points: np.ndarray, y: Vector) -> Float64[np.ndarray, "p 3"]:
        """What the coordinates ``y`` add to the surface points of some balls."""
        out = np.zeros((len(points), 3))
        owner = self.body[points]
        for body in range(self.bodies):
            rows = np.flatnonzero(owner == body)
            if len(rows):
                mine = y[self._offsets[body] : self._offsets[body + 1]].reshape(3, -1)
                out[rows] = self._shape(body, points[rows], True) @ mine.T
        return out

    def skin(self, points: np.ndarray, ys: np.ndarray, held: Sequence[np.ndarray], time: float) -> np.ndarray:
        """Where the surface points (n, 3) of some balls are: bodies at ``ys``, obstacles at ``time``."""
        out = np.zeros((len(points), 3))
        for body in np.unique(self.body[points]):
            rows = np.flatnonzero(self.body[points] == body)
            part, local = self.parts[body], points[rows] - self.starts[body]
            if body >= self.bodies:
                out[rows] = _moved(part, time)[local]
                continue
            z = ys[self._offsets[body] : self._offsets[body + 1]].reshape(3, -1)
            out[rows] = part.balls.surface[local] + part.skin_shape[local] @ z.T + part.skin_held[local] @ held[body].T
        return out

    def gather(
        self, first: np.ndarray, second: np.ndarray, force: np.ndarray, skin: bool = False
    ) -> Float64[np.ndarray, " n"]:
        """The coordinates' gradient from dE/dx (p, 3) at the first points of pairs, and its opposite at the second."""
        total = np.stack(
            [
                np.bincount(first, force[:, c], len(self.radii)) - np.bincount(second, force[:, c], len(self.radii))
                for c in range(3)
            ]
        )
        out = np.zeros(self._offsets[-1])
        for body in range(self.bodies):
            mine = total[:, self.starts[body] : self.starts[body + 1]]
            rows = np.flatnonzero(mine.any(axis=0))
            shape = self.parts[body].skin_shape if skin else self.parts[body].shape
            out[self._offsets[body] : self._offsets[body + 1]] = (mine[:, rows] @ shape[rows]).ravel()
        return out

    def assemble(self, first: np.ndarray, second: np.ndarray, weight: np.ndarray, skin: bool = False) -> BlockMatrix:
        """The coordinates' Hessian from symmetric (p, 3, 3) Hessians in the difference of the points of pairs."""
        blocks: dict[tuple[int, int], np.ndarray] = {}
        both = np.concatenate([first, second])
        points, place = np.unique(both, return_inverse=True)
        own = np.zeros((len(points), 3, 3))
        np.add.at(own, place, np.concatenate([weight, weight]))
        for body in range(self.bodies):
            rows = np.flatnonzero(self.body[points] == body)
            if len(rows):
                shape = self._shape(body, points[rows], skin)
                blocks[body, body] = _product(shape, own[rows], shape)
        low, high = np.minimum(first, second), np.maximum(first, second)
        key = self.body[high] * len(self.parts) + self.body[low]
        for code in np.unique(key):
            b, a = divmod(int(code), len(self.parts))
            if b < self.bodies:
                rows = np.flatnonzero(key == code)
                blocks[b, a] = -_product(
                    self._shape(b, high[rows], skin), weight[rows], self._shape(a, low[rows], skin)
                )
        return BlockMatrix(self._offsets, blocks)

    def _shape(self, body: int, points: np.ndarray, skin: bool) -> np.ndarray:
        part = self.parts[body]
        return (part.skin_shape if skin else part.shape)[points - self.starts[body]]


def _moved(part: Surface, time: float) -> np.ndarray:
    """An obstacle's points at ``time``."""
    assert part.motion is not None
    z = np.asarray(part.motion(time), np.float64)
    return part.balls.centres + part.balls.centres @ z[:, :3].T + z[:, 3]


def _product(left: np.ndarray, weight: np.ndarray, right: np.ndarray) -> np.ndarray:
    """sum_p W_p[r, s] left_pk right_pl as a (3 k, 3 l) matrix; W symmetric."""
    k, m = left.shape[1], right.shape[1]
    out = np.empty((3, k, 3, m))
    for r in range(3):
        for s in range(r, 3):
            block = left.T @ (weight[:, r, s, None] * right)
            out[r, :, s, :] = block
            out[s, :, r, :] = block
    return out.reshape(3 * k, 3 * m)
