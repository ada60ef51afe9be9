"""The flesh of a live rig: complementary elastic motion under poses that are only known as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from pipelines.rigged import Actor
from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.rig.affine import slerp
from splatanim.rig.skeleton import Pose, skin_transforms

if TYPE_CHECKING:
    from pipelines.rigged import RiggedConfig
    from splatanim.rig.animation import Animation
    from splatanim.rig.elastic import RigStepper

_STEP = 1.0 / 60.0  # s
_STILL = 1e-3  # of the size a second: slower than that in the mean is rest
_STILL_STEPS = 30  # that many in a row


class Flesh:
    """Eq. 24 step by step. Between two poses the rig moves evenly, so that it has a velocity whatever moves it."""

    def __init__(self, actor: Actor, config: RiggedConfig, clip: Animation | None, clips: dict[str, Animation]) -> None:
        from pipelines.rigged_elastic import chosen_material, elastic_model, flesh_terms, inside_of
        from splatanim.rig.elastic import bind_elastic

        self._skeleton = actor.model.skeleton
        self._clip = clip or next(iter(clips.values()), None)
        self._before = self._after = self._skeleton.rest
        self._start = 0.0
        self._sampling = True  # while the model is made, its clip's poses say where the rig itself tears
        body = inside_of(actor, object_size=config.object_size, seed=config.seed)
        self.model = elastic_model(body, self._motion, chosen_material(config), functions=config.functions)
        duration = self._clip.duration if self._clip is not None else 1.0
        self._terms = flesh_terms(self.model, duration, config.leak)
        self._sampling = False
        self._bound = bind_elastic(actor.rigged, body.frame, self.model)
        self._stepper: RigStepper | None = None
        self._last = np.zeros(self.model.dof)
        self._quiet = 0

    @property
    def y(self) -> Float64[np.ndarray, " n"]:
        """The elastic coordinates now."""
        return self._last if self._stepper is None else self._stepper.y

    @property
    def still(self) -> bool:
        """Whether it has come to rest."""
        return self._quiet >= _STILL_STEPS

    def restart(self, pose: Pose) -> None:
        """At rest in a pose."""
        from splatanim.dynamics.simulate import Settings
        from splatanim.rig.elastic import RigStepper

        self._before = self._after = pose
        self._start = 0.0
        settings = Settings(2, 1.0 / _STEP, 1, integrator="bdf2")
        self._stepper = RigStepper(self.model, settings, self._terms)
        self._last = self._stepper.y.copy()
        self._quiet = 0

    def step(self, before: Pose, after: Pose) -> tuple[int, bool]:
        """A step in which the rig goes from a pose to the next; Newton's iterations and whether they converged."""
        if self._stepper is None:
            self.restart(before)
        assert self._stepper is not None
        self._last = self._stepper.y.copy()
        self._before, self._after, self._start = before, after, self._stepper.time
        report = self._stepper.step()
        if not np.isfinite(self._stepper.y).all():
            self.restart(after)
            raise InputError("the elastic motion is not finite: the flesh is too soft for this. Take a stiffer one.")
        speed2 = float(np.sum(((self.y - self._last) / _STEP) ** 2)) / self.model.mass
        self._quiet = 0 if speed2 > (_STILL * self.model.size) ** 2 else self._quiet + 1
        return report.iterations, report.converged

    def energies(self) -> tuple[float, float]:
        """Kinetic energy of the elastic motion alone, and elastic energy [J]."""
        term = next(term for term in self._terms if getattr(term, "elastic", False))
        return 0.5 * float(np.sum(((self.y - self._last) / _STEP) ** 2)), float(term.energy(self.y))

    def points(self, y: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "q 3"]:
        """The cubature points [m]."""
        time = 0.0 if self._stepper is None else self._stepper.time
        return self.model.positions(y, self.model.held_coordinates(time))

    def add(
        self, means: Float64[np.ndarray, "n 3"], linear: Float64[np.ndarray, "n 3 3"], y: Float64[np.ndarray, " n"]
    ) -> None:
        """The elastic motion on top of the rig's, in place: file coordinates and deformation gradients of splats."""
        moved, slope = self._bound.motion(y)
        means += moved
        linear += slope

    def splats(self, transforms: Float64[np.ndarray, "j 4 4"], y: Float64[np.ndarray, " n"]) -> Splats:
        """The splats with both motions, in file coordinates."""
        from splatanim.rig.elastic import pose_elastic

        return pose_elastic(self._bound, transforms, y)

    def _motion(self, time: float) -> Float64[np.ndarray, "j 4 4"]:
        """The rig's skinning transforms at the solver's time."""
        if self._sampling and self._clip is not None:
            from pipelines.rigged_elastic import clip_time

            return skin_transforms(self._skeleton, self._clip.sample(clip_time(self._clip, time)))
        share = float(np.clip((time - self._start) / _STEP, 0.0, 1.0))
        return skin_transforms(self._skeleton, between(self._before, self._after, share))


def between(a: Pose, b: Pose, share: float) -> Pose:
    """The pose that lies a share of the way from one to another."""
    if share <= 0.0 or a is b:
        return a
    if share >= 1.0:
        return b
    return Pose(
        (1.0 - share) * a.translations + share * b.translations,
        slerp(a.rotations, b.rotations, np.full((len(a.rotations), 1), share)),
        (1.0 - share) * a.scales + share * b.scales,
    )
