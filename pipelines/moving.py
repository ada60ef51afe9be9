"""How a capture is made to move: its inside, its elasticity, what is done to it, and the simulation of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from splatanim.data import Cubature
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.motions import Direction
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.simulate import Settings, Trajectory
from splatanim.dynamics.terms import Elasticity

if TYPE_CHECKING:
    from pipelines.animate import AnimateConfig, Subject
    from pipelines.scene_select import Part


def inside_of(config: AnimateConfig, subject: Subject) -> tuple[Cubature, Part | None]:
    """The cubature of what moves, and the part where that is a selection."""
    from pipelines.scene_select import parse_selection, select_part
    from splatanim.sampling.cubature import cubature_from_splats

    if config.select is None:
        return cubature_from_splats(subject.splats, subject.frame, seed=config.seed), None
    part = select_part(parse_selection(config.select), subject, len(subject.everything), seed=config.seed)
    return part.cubature, part


def elasticity_of(config: AnimateConfig, model: ReducedModel, up: np.ndarray) -> tuple[Elasticity, list[str]]:
    """The elastic energy, and a note where it is not the plain material: left to choose, ``--material auto`` stiffens
    what a capture's own weight would strain, since captures stand as they were taken."""
    from splatanim.dynamics.standing import standing_stiffness

    if config.scene is None or config.material != "auto" or config.young is not None:
        return AveragedElasticity(model), []
    stiffness = standing_stiffness(model, up)
    share = float(model.volumes @ (stiffness > 1.01) / model.volumes.sum())
    note = (
        f"{100 * share:.0f} % of the object are stiffened, up to {stiffness.max():.1f} times, so that it stands as it "
        f"was captured; --material {model.material.name} leaves the material as it is."
    )
    return AveragedElasticity(model, stiffness), [note] if share > 0 else []


def simulated(
    model: ReducedModel,
    direction: Direction,
    settings: Settings,
    part: Part | None,
    elastic: Elasticity,
    tick: Callable[[], None],
) -> Trajectory:
    """The motion. What stands still beside a selection is an obstacle to it."""
    from splatanim.dynamics.regions import hold_still
    from splatanim.dynamics.simulate import placed_state, simulate
    from splatanim.dynamics.world import Actor, Obstacle, World, simulate_world

    state = placed_state(model, direction.displacement, np.zeros((3, 4)), settings.h)
    terms = [elastic, *direction.build(model)]
    if part is None or not len(part.still):
        return simulate(model, terms, settings, state, on_frame=lambda _k: tick())
    world = World((Actor("part", model, tuple(terms), state),), (Obstacle("rest", part.still, hold_still),))
    return simulate_world(world, settings, on_frame=lambda _k: tick()).trajectories[0]


def direct_subject(config: AnimateConfig, subject: Subject, cubature: Cubature, part: Part | None = None) -> Direction:
    """Set the motion up on the extent of what moves (that of its contact points)."""
    from splatanim.dynamics.motions import body_of, direct, floor

    low, high = cubature.surface.min(axis=0), cubature.surface.max(axis=0)
    up = np.asarray(subject.frame.up)
    body = body_of(low, high, up, config.seconds, () if part is None else part.regions)
    pin = None if config.pin == "auto" else config.pin
    if pin not in (None, "none", "bottom", "top"):
        pin = _box_to_sim(pin, subject)
    direction = direct(config.motion, body, pin)
    if part is None or not part.regions:
        return direction
    ground = floor(body_of(part.whole[0], part.whole[1], up, config.seconds))
    return dataclasses.replace(direction, scenery=(*direction.planes, ground))


def _box_to_sim(text: str, subject: Subject) -> str:
    """A box in file coordinates, as the simulator's."""
    try:
        corners = np.array([float(part) for part in text.removeprefix("box:").split(",")]).reshape(2, 3)
    except ValueError:
        return text  # the motion names what is wrong
    sim = subject.frame.to_sim(corners - np.asarray(subject.splats.offset))
    return ",".join(repr(float(v)) for v in sim.ravel())
