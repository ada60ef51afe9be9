"""One implicit step of all bodies: setting the terms up, the coupled solve, and shorter steps where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.blocks import lift
from splatanim.dynamics.contact import PlaneContact
from splatanim.dynamics.descent import energy_of
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.integrators import History, advance, predict, step_data
from splatanim.dynamics.newton import NewtonReport, Term, minimise
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.simulate import Settings
from splatanim.dynamics.terms import Inertia, Step

_TOLERANCE = 1e-6  # of the object's size: the displacement that the leftover force would cause in one step
_ROUNDS = 24  # in which obstacles and held parts may be brought to where they should be, contact in their way
_PUSH_ITERATIONS = 5  # of Newton's method in every other such round
_STALLED = 0.02  # of the way, in four rounds: less is no progress


@dataclass
class Body:
    """An actor made ready: its smooth ``terms``, the ``sharp`` ones (cheap, and kinked or strongly curved: planes, a
    rigid body's rigidity), and the ``deepest`` that it was under a plane [m]."""

    model: ReducedModel
    terms: list[Term]
    sharp: list[Term]
    elastic: list[Term]
    deepest: float = 0.0

    @staticmethod
    def of(model: ReducedModel, terms: Sequence[Term]) -> Body:
        """A body with inertia and, unless ``terms`` bring their own, elasticity."""
        elastic = [term for term in terms if getattr(term, "elastic", False)] or [AveragedElasticity(model)]
        every = [Inertia(model), *elastic, *(term for term in terms if term not in elastic)]
        sharp = [term for term in every if getattr(term, "sharp", False)]
        return Body(model, [term for term in every if term not in sharp], sharp, elastic)

    @property
    def planes(self) -> list[PlaneContact]:
        return [term for term in self.sharp if isinstance(term, PlaneContact)]

    def split(self, history: History) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates y and those of the prescribed handles, (3, p)."""
        n = self.model.dof
        return history.now[:n], history.now[n:].reshape(3, -1)

    def handles(self, history: History) -> Float64[np.ndarray, "h 3 4"]:
        return self.model.all_handles(*self.split(history))

    def energies(self, history: History, time: float) -> tuple[float, float]:
        """Kinetic and elastic energy [J] at ``time``."""
        n, model = self.model.dof, self.model
        velocity = history.velocity
        speed = model.shape @ velocity[:n].reshape(3, -1).T + model.held_shape @ velocity[n:].reshape(3, -1).T
        y, held = self.split(history)
        still = Step(time, 1.0, y, y, held, held, held)
        elastic = 0.0
        for term in self.elastic:
            term.begin_step(still)  # type: ignore[attr-defined]
            elastic += term.energy(y)
        return 0.5 * float(model.masses @ (speed**2).sum(axis=1)), elastic

    def measure(self, step: Step, y: np.ndarray) -> None:
        for plane in self.planes:
            heights = plane.heights(y, step.held_next, step.target_time)
            self.deepest = max(self.deepest, float(-heights.min()))


@dataclass
class Log:
    """What happened beside the solves, one entry a step."""

    gaps: list[float] = field(default_factory=list)
    substeps: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Stepper:
    """Advances all bodies by whole steps of ``settings.h``."""

    def __init__(self, bodies: Sequence[Body], contact, settings: Settings) -> None:
        self._bodies = list(bodies)
        self._contact = contact
        self._settings = settings
        self._offsets = np.concatenate([[0], np.cumsum([body.model.dof for body in bodies])]).astype(int).tolist()
        alone = len(bodies) == 1 and contact is None

        def ready(term: Term, index: int) -> Term:
            return term if alone else lift(term, index, self._offsets)

        self._smooth = [ready(term, i) for i, body in enumerate(bodies) for term in body.terms]
        self._sharp = [ready(term, i) for i, body in enumerate(bodies) for term in body.sharp]
        if contact is not None:
            contact.attach(self._offsets)
            self._sharp.append(contact)
        self._size = max(body.model.size for body in bodies)
        self._depth = settings.max_halvings
        self._given_up = False  # of the step at hand: a part of the shortest length did not converge
        self.log = Log()

    def step(self, histories: Sequence[History], time: float) -> tuple[list[History], NewtonReport]:
        """All bodies a step of ``settings.h`` further, cut into shorter ones where that does not converge."""
        parts: list[NewtonReport] = []
        gaps: list[float] = []
        self._given_up = False
        out = self._cut(list(histories), time, self._settings.h, 0, parts, gaps)
        self.log.substeps.append(len(parts))
        self.log.gaps.append(min(gaps))
        failed = [part for part in parts if not part.converged]
        # Where the shortest parts do not converge either, cutting is not the cure: the next steps try less of it.
        self._depth = self._depth // 2 if failed else min(self._depth + 1, self._settings.max_halvings)
        worst = failed[0] if failed else parts[-1]
        iterations, residual = sum(part.iterations for part in parts), max(part.residual for part in parts)
        return out, NewtonReport(not failed, iterations, residual, worst.reason)

    def _cut(
        self, histories: list[History], time: float, h: float, depth: int, parts: list[NewtonReport], gaps: list[float]
    ) -> list[History]:
        """The step from ``time`` to ``time + h``, or its halves, or, at the last depth, the best that there is."""
        predictions = [predict(history, h, self._settings.integrator) for history in histories]
        steps = [
            step_data(body.model, history, prediction, time, h)
            for body, history, prediction in zip(self._bodies, histories, predictions, strict=True)
        ]
        y, report = self._solve(steps)
        if not report.converged and np.isfinite(report.residual) and depth < self._depth and not self._given_up:
            middle = self._cut(histories, time, 0.5 * h, depth + 1, parts, gaps)
            return self._cut(middle, time + 0.5 * h, 0.5 * h, depth + 1, parts, gaps)
        self._given_up = self._given_up or not report.converged
        parts.append(report)
        gaps.append(np.inf if self._contact is None else self._contact.smallest_gap(y))
        out = []
        for index, (body, step) in enumerate(zip(self._bodies, steps, strict=True)):
            mine = y[self._offsets[index] : self._offsets[index + 1]]
            body.measure(step, mine)
            reached = np.concatenate([mine, step.held_next.ravel()])
            out.append(advance(histories[index], predictions[index], reached, h))
        return out

    def _solve(self, steps: Sequence[Step]) -> tuple[np.ndarray, NewtonReport]:
        """The minimum of all energies at the step's end, found again where contacts appeared that had no friction."""
        for body, step in zip(self._bodies, steps, strict=True):
            for term in (*body.terms, *body.sharp):
                begin = getattr(term, "begin_step", None)
                if begin is not None:
                    begin(step)
        start, arrived = np.concatenate([step.inertial()[0] for step in steps]), True
        if self._contact is not None:
            now = np.concatenate([step.y for step in steps])
            self._contact.begin_step(steps)
            start, arrived = self._brought(now, start, steps)
        iterations = self._settings.max_iterations
        y, report = self._minimise(self._lower(start, steps), steps, iterations)
        if not arrived:
            reason = "what is prescribed ran into a body that could not get out of its way"
            report = NewtonReport(False, report.iterations, report.residual, reason)
        if report.converged and self._relag(y):
            y, again = self._minimise(y, steps, iterations)
            report = NewtonReport(again.converged, report.iterations + again.iterations, again.residual, again.reason)
        return y, report

    def _brought(self, now: np.ndarray, start: np.ndarray, steps: Sequence[Step]) -> tuple[np.ndarray, bool]:
        """As far from ``now`` towards ``start`` as no gap closes, all that is prescribed at the step's end.

        Prescribed points that would run into a body push it: they go as far as its gaps allow, from there on they
        carry it along, what is in its way is let move aside, and so on. False where that leads nowhere; then they
        pass into it. (Only where the solve starts from is found here, not where it ends.)
        """
        contact = self._contact
        if not contact.moving:
            contact.set_fraction(1.0)
            return now + contact.free_share(now, start - now, 0.0) * (start - now), True
        y, ahead, fraction, earlier = now, start - now, 0.0, -1.0
        for count in range(_ROUNDS):
            share = contact.free_share(y, ahead, 1.0 - fraction)
            y, fraction = y + share * ahead, fraction + share * (1.0 - fraction)
            if share == 1.0:
                contact.set_fraction(1.0)
                return y, True
            contact.set_fraction(fraction)
            if count % 4 == 3:
                if fraction < earlier + _STALLED:
                    break
                earlier = fraction
            if count % 2:
                y, _ = self._minimise(y, steps, _PUSH_ITERATIONS)
            ahead = contact.carried(y, 1.0 - fraction)
        contact.set_fraction(1.0)
        contact.give_way(y)
        return y, False

    def _lower(self, start: np.ndarray, steps: Sequence[Step]) -> np.ndarray:
        """Where inertia leads, or, if that is so deep in contact that the energy is higher, where the step began."""
        now = np.concatenate([step.y for step in steps])
        if not energy_of(self._sharp, start) > energy_of(self._sharp, now):
            return start
        every = [*self._smooth, *self._sharp]
        return start if energy_of(every, start) <= energy_of(every, now) else now

    def _minimise(self, start: np.ndarray, steps: Sequence[Step], iterations: int) -> tuple[np.ndarray, NewtonReport]:
        units = [
            step.span**2 / np.sqrt(body.model.mass) * (self._size / body.model.size)
            for body, step in zip(self._bodies, steps, strict=True)
        ]
        unit = units[0] if len(units) == 1 else np.repeat(units, np.diff(self._offsets))
        return minimise(
            self._smooth,
            start,
            tolerance=_TOLERANCE * self._size,
            unit=unit,
            max_iterations=iterations,
            sharp=self._sharp,
            min_iterations=1,
        )

    def _relag(self, y: np.ndarray) -> bool:
        """Let friction know the loads that the solve has found; whether some were not expected."""
        changed = False
        for index, body in enumerate(self._bodies):
            mine = y[self._offsets[index] : self._offsets[index + 1]]
            for plane in body.planes:
                changed = plane.relag(mine) or changed
        if self._contact is not None:
            changed = self._contact.relag(y) or changed
        return changed
