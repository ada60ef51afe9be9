"""Implicit time integration of first and second order, as a minimisation each step.

Both methods give the velocity at the end of a step as v = (q - anchor) / reach, with the anchor made of positions and
``reach`` a share of h. Newton's law then is the minimum of |q - target|_M^2 / (2 reach^2) + E(q), with

    implicit Euler  reach = h      anchor = q_t                         target = anchor + h v_t         (eq. 10)
    BDF2            reach = 2h/3   anchor = (4 q_t - q_{t-1}) / 3       target = anchor + reach (4 v_t - v_{t-1}) / 3

BDF2 (Hairer & Wanner, *Solving ODEs II*, sec. V.1; Li et al. 2020 use it with barriers) is as stable as Euler at large
steps and of second order: an oscillation of frequency w loses (h w)^4 / 4 of its amplitude a step, Euler (h w)^2 / 2.
Where the length of steps changes by a factor r = h / h_before, as after a halving, the general formula is used,

    reach = h (1 + r) / (1 + 2 r)      anchor = ((1 + r)^2 q_t - r^2 q_{t-1}) / (1 + 2 r),

which is stable up to r = 1 + sqrt(2) (Hairer, Norsett & Wanner, *Solving ODEs I*, sec. III.5). The first step, and one
that grows by more, are Euler's. With the velocity so defined, the energy of a free oscillation falls in every step of
either method: what BDF2 shows beside is the loss of its first, Euler step ((h w)^2), and of impacts.

q is a body's coordinates y followed by those of its prescribed handles, so that the momentum of what is held follows
the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Step

_STEEPEST = 2.4  # times the last step's length that BDF2 takes: just under 1 + sqrt(2)

Integrator = Literal["euler", "bdf2"]
Vector = Float64[np.ndarray, " q"]


@dataclass(frozen=True)
class History:
    """Where a body is (``now``) and how fast [1/s]; ``before`` and its velocity a step of ``h`` seconds earlier.

    Each is flat, (3 K + 3 p,): coordinates y, then the prescribed handles'. Without a step behind it ``before`` is
    None.
    """

    now: Vector
    velocity: Vector
    before: Vector | None = None
    velocity_before: Vector | None = None
    h: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """The ``anchor``, ``target`` and ``reach`` of a step (see above)."""

    anchor: Vector
    target: Vector
    reach: float


def predict(history: History, h: float, integrator: Integrator) -> Prediction:
    """What a step of ``h`` seconds starts from: BDF2 where asked for and there is a step behind it that is not much
    shorter, else Euler."""
    now, velocity, before, older = history.now, history.velocity, history.before, history.velocity_before
    if integrator == "bdf2" and before is not None and older is not None and h <= _STEEPEST * history.h:
        r = h / history.h
        reach = h * (1.0 + r) / (1.0 + 2.0 * r)
        latest, earlier = (1.0 + r) ** 2 / (1.0 + 2.0 * r), r**2 / (1.0 + 2.0 * r)
        anchor = latest * now - earlier * before
        return Prediction(anchor, anchor + reach * (latest * velocity - earlier * older), reach)
    return Prediction(now, now + h * velocity, h)


def advance(history: History, prediction: Prediction, reached: Vector, h: float) -> History:
    """The history after a step of ``h`` seconds that ended in ``reached``."""
    velocity = (reached - prediction.anchor) / prediction.reach
    return History(reached, velocity, history.now, history.velocity, h)


def step_data(model: ReducedModel, history: History, prediction: Prediction, time: float, h: float) -> Step:
    """The step from ``time`` to ``time + h`` as terms see it; prescribed handles are taken at its exact end."""
    n = model.dof

    def held(flat: np.ndarray) -> np.ndarray:
        return flat[n:].reshape(3, -1)

    back = history.now - h * history.velocity
    return Step(
        time,
        h,
        history.now[:n],
        back[:n],
        model.held_coordinates(time + h),
        held(history.now),
        held(back),
        predicted=prediction.target[:n],
        held_predicted=held(prediction.target),
        anchor=prediction.anchor[:n],
        held_anchor=held(prediction.anchor),
        reach=prediction.reach,
    )
