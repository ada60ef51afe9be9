"""Contact between bodies: a log barrier between balls (eq. 15, 16; Li et al. 2020), and friction.

Two balls i and j of different bodies have the gap g = |x_i - x_j| - R, with R the sum of their radii. With u = g / d,

    E = -k (u - 1)^2 log u   for 0 < u < 1,   0 beyond,   infinite at u <= 0,

so they never touch, let alone pass each other (:meth:`BodyContact.max_step` keeps every step short of that). The
normal is that of the two centres as they move, not one held fixed, so the gradient and Hessian are exact.

The constants follow from the bodies, not from the user. The reach d is half a percent of the smaller body's size, so
bodies at rest hover within that of each other. The stiffness k = m g L / 10 (m the reduced mass of the two, L the
smaller size) holds a body's weight on one pair at u = 0.75, and a tenfold load at 0.4; a hit that stops the body
within a step of 1/120 s after it fell its own height comes down to 0.1. The barrier then swings at about 300 rad/s
for bodies of a metre, which implicit steps of frames take without trouble.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics._pair_kernels import free_share, touching
from splatanim.dynamics.blocks import BlockMatrix
from splatanim.dynamics.friction import PairFriction
from splatanim.dynamics.pairs import Near, Neighbours
from splatanim.dynamics.surfaces import Surface, Surfaces, groups_of, surface_of_actor, surface_of_obstacle
from splatanim.dynamics.terms import Step, Vector
from splatanim.errors import InputError

if TYPE_CHECKING:
    from splatanim.dynamics.world import Actor, Obstacle

REACH = 5e-3  # of the smaller size: the gap at which the barrier begins
_STIFFNESS = 0.1  # of m g L
_KEEP = 0.1  # of every gap is left by a step
_TOUCHING = 1e-4  # of the reach: a pair nearer than that at the start of a step counts as overlapping
_REOPENED = 0.5  # of the reach: the gap that an overlapping pair is given


@dataclass(frozen=True)
class ContactSettings:
    """How bodies touch each other.

    ``friction``: one coefficient for all pairs; None takes the geometric mean of the two materials' (or the material's
    with the obstacle's). ``gravity`` [m/s^2] is the acceleration that the barrier's stiffness is made for.
    """

    friction: float | None = None
    gravity: float = 9.81

    def __post_init__(self) -> None:
        if self.friction is not None and self.friction < 0:
            raise InputError(f"Contact: friction is {self.friction}; it must not be negative.")
        if not self.gravity > 0:
            raise InputError(f"Contact: gravity is {self.gravity}; the barrier's stiffness needs a positive one.")


def barrier(u: Float64[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-(u - 1)^2 log u and its first two derivatives for u in (0, 1); zero from 1 on, infinite (1st: -inf) below 0."""
    inside = np.clip(u, 1e-100, 1.0)
    log, gap = np.log(inside), inside - 1.0
    value = np.where(u > 0, -(gap**2) * log, np.inf)
    first = np.where(u > 0, -(2.0 * gap * log + gap**2 / inside), -np.inf)
    second = -(2.0 * log + 4.0 * gap / inside - gap**2 / inside**2)
    return value, first, np.where(u < 1, second, 0.0)


@dataclass(frozen=True)
class Active:
    """Pairs at some positions: point indices, distance [m], unit normal (second to first), u, and the group's d, k."""

    first: np.ndarray
    second: np.ndarray
    group: np.ndarray
    distance: np.ndarray
    normal: np.ndarray
    u: np.ndarray
    reach: np.ndarray
    stiffness: np.ndarray


class BodyContact:
    """The barrier and friction between all bodies of a world, as one term of all their coordinates.

    Prescribed points (obstacles, held parts) move within a step too; :meth:`set_fraction` puts them part of the way,
    so that they can push what is in their way aside gradually.
    """

    def __init__(self, surfaces: Sequence[Surface], settings: ContactSettings) -> None:
        self._surfaces = Surfaces(surfaces)
        self._groups, self._frictions, stiff = groups_of(surfaces, REACH, settings.friction)
        self._reach = np.array([group.reach for group in self._groups])
        self._stiffness = _STIFFNESS * settings.gravity * np.array(stiff)
        radii = self._surfaces.radii
        self._neighbours = Neighbours(self._groups, self._surfaces.starts, radii)
        self._shrunk = np.zeros(0, np.int64), np.zeros(0)  # keys of overlapping pairs, and what R they are given
        self._friction = PairFriction(self._surfaces, self._frictions, self._groups, settings.gravity)
        self._cached: tuple[bytes, Active] | None = None
        self._known: tuple[Near, np.ndarray, np.ndarray] | None = None
        self._started = False
        self.notes: list[str] = []

    def attach(self, offsets: Sequence[int]) -> None:
        """Learn where each body's coordinates begin."""
        self._surfaces.attach(offsets)

    # --- a step ---------------------------------------------------------------------------------------------------

    def begin_step(self, steps: Sequence[Step]) -> None:
        """Take the bodies' steps: prescribed points at both ends, overlaps at the start, loads for friction."""
        surfaces = self._surfaces
        surfaces.begin_step(steps)
        y = np.concatenate([step.y for step in steps]) if steps else np.zeros(0)
        self.set_fraction(0.0)
        self._shrink(surfaces.positions(y))
        self._friction.begin_step(steps)
        self._friction.load(self._active(y), self._pull(y))
        if not self._started:
            self._started = True
            self._note_overlaps(y)

    def set_fraction(self, fraction: float) -> None:
        """Put prescribed points at ``fraction`` of their way through the step."""
        self._surfaces.fraction = fraction
        self._cached = None

    @property
    def moving(self) -> bool:
        """Whether anything prescribed moves in this step."""
        return self._surfaces.moving

    def carried(self, y: Vector, fraction: float) -> Vector:
        """A shift of every body along with the prescribed points that touch it, over a further ``fraction``."""
        pairs = self._active(y)
        return self._surfaces.carried(pairs.first, pairs.second, fraction)

    def give_way(self, y: Vector) -> None:
        """Let overlap what prescribed points have run over: those pairs touch from here on."""
        self._shrink(self._surfaces.positions(y))
        self._cached = None

    def relag(self, y: Vector) -> bool:
        """Take the loads at ``y`` for friction; whether they differ enough to solve the step again."""
        return self._friction.relag(self._active(y), self._pull(y))

    def smallest_gap(self, y: Vector) -> float:
        """The smallest gap as a fraction of the reach; negative for overlaps, infinite where nothing is near."""
        near = self._neighbours.at(x := self._surfaces.positions(y))
        if not len(near.first):
            return np.inf
        distance = np.linalg.norm(x[near.first] - x[near.second], axis=1)
        gap = (distance - self._surfaces.radii[near.first] - self._surfaces.radii[near.second]) / self._reach[
            near.group
        ]
        return float(gap.min()) if gap.min() < 1 else np.inf

    # --- a term ---------------------------------------------------------------------------------------------------

    def energy(self, y: Vector) -> float:
        pairs = self._active(y)
        return float(pairs.stiffness @ barrier(pairs.u)[0]) + self._friction.energy(y)

    def gradient(self, y: Vector) -> Vector:
        pairs = self._active(y)
        force = self._pull(y)[:, None] * pairs.normal
        return self._surfaces.gather(pairs.first, pairs.second, force) + self._friction.gradient(y)

    def hessian(self, y: Vector, psd: bool = True) -> BlockMatrix:
        pairs = self._active(y)
        _, first, second = barrier(pairs.u)
        along = pairs.stiffness / pairs.reach**2 * second
        outer = pairs.normal[:, :, None] * pairs.normal[:, None, :]
        weight = along[:, None, None] * outer
        if not psd:
            across = pairs.stiffness / pairs.reach * first / pairs.distance
            weight += across[:, None, None] * (np.eye(3) - outer)
        return self._surfaces.assemble(pairs.first, pairs.second, weight) + self._friction.hessian(y, psd)

    def max_step(self, y: Vector, direction: Vector) -> float:
        return self.free_share(y, direction, 0.0)

    def free_share(self, y: Vector, direction: Vector, fraction: float) -> float:
        """The share in [0, 1] of a straight motion that leaves every gap at least a tenth of what it is.

        ``fraction``: by how much prescribed points move on with it. Exact for balls that move straight: the first root
        of |p + t v|^2 = (R + g / 10)^2. (Bodies that are near each other go no further than a third of their size.)
        """
        x = self._surfaces.positions(y)
        moved = self._surfaces.displacement(direction, fraction)
        stride = self._neighbours.stride(x, moved)
        moved = stride * moved
        near = self._neighbours.at(x, moved)
        radius, _ = self._of(near)
        return stride * free_share(x, moved, near.first, near.second, radius, _KEEP)

    # --- pairs ----------------------------------------------------------------------------------------------------

    def _radius(self, near: Near) -> np.ndarray:
        """R of each pair: the sum of radii, or what an overlapping pair is given."""
        radii = self._surfaces.radii
        out = radii[near.first] + radii[near.second]
        keys, given = self._shrunk
        if len(keys):
            key = near.first * len(radii) + near.second
            at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            out = np.where(keys[at] == key, given[at], out)
        return out

    def _active(self, y: Vector) -> Active:
        key = y.tobytes()
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._find(y))
        return self._cached[1]

    def _of(self, near: Near) -> tuple[np.ndarray, np.ndarray]:
        """R and the reach of each candidate pair, worked out once a list."""
        if self._known is None or self._known[0] is not near:
            self._known = (near, self._radius(near), self._reach[near.group])
        return self._known[1], self._known[2]

    def _find(self, y: Vector) -> Active:
        x = self._surfaces.positions(y)
        near = self._neighbours.at(x)
        radius, reach = self._of(near)
        on, distance, normal = touching(x, near.first, near.second, radius, reach)
        group, reach = near.group[on], reach[on]
        u = (distance - radius[on]) / reach
        stiffness = self._stiffness[group]
        return Active(near.first[on], near.second[on], group, distance, normal, u, reach, stiffness)

    def _pull(self, y: Vector) -> np.ndarray:
        """dE/dg of each active pair [N]: negative, as they repel."""
        pairs = self._active(y)
        return pairs.stiffness / pairs.reach * barrier(pairs.u)[1]

    def _shrink(self, x: np.ndarray) -> None:
        """Pairs that overlap at the start of a step touch where they are: R is shrunk, and grows back as they part."""
        near = self._neighbours.at(x)
        radii = self._surfaces.radii
        distance = np.linalg.norm(x[near.first] - x[near.second], axis=1)
        reach = self._reach[near.group]
        true, given = radii[near.first] + radii[near.second], self._radius(near)
        wanted = np.where(distance - given < _TOUCHING * reach, distance - _REOPENED * reach, given)
        wanted = np.minimum(true, np.maximum(wanted, np.where(given < true, distance - reach, 0.0)))
        rows = np.flatnonzero(wanted < true)
        key = near.first[rows] * len(radii) + near.second[rows]
        order = np.argsort(key)
        self._shrunk = key[order], np.maximum(wanted[rows], 0.0)[order]
        self._known = None

    def _note_overlaps(self, y: Vector) -> None:
        x = self._surfaces.positions(y)
        near = self._neighbours.at(x)
        radii = self._surfaces.radii
        overlap = radii[near.first] + radii[near.second] - np.linalg.norm(x[near.first] - x[near.second], axis=1)
        for index, group in enumerate(self._groups):
            mine = overlap[near.group == index]
            if len(mine) and mine.max() > 0:
                names = [self._surfaces.parts[body].name for body in (group.first, group.second)]
                self.notes.append(
                    f"{names[0]} and {names[1]} overlap at the start, by {100 * mine.max() / group.size:.1f} % of the "
                    "smaller one's size: they are pushed no deeper, but start in each other."
                )


def contact_between(actors: Sequence[Actor], obstacles: Sequence[Obstacle], settings: ContactSettings) -> BodyContact:
    """The contact of a world's bodies with each other and with its obstacles."""
    from splatanim.dynamics.surfaces import spaced

    finest = spaced([actor.model.size for actor in actors])
    bodies = [surface_of_actor(actor.name, actor.model, limit) for actor, limit in zip(actors, finest, strict=True)]
    smallest = min(surface.balls.radii.min() for surface in bodies)
    surfaces = [surface.at_least(smallest) for surface in bodies]
    surfaces += [surface_of_obstacle(obstacle, smallest) for obstacle in obstacles]
    return BodyContact(surfaces, settings)
