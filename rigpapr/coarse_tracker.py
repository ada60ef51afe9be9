"""A rig's pose in every frame of a clip, before any photometric refinement.

Photometric descent from the previous frame fails on real clips, where limbs turn by 84 degrees in three frames; it
finishes well from near. So, frame by frame: predict, a few Gauss-Newton steps on depth and silhouette, then rounds of
*draw the surface in the current pose, optical flow from that drawing to the frame, Gauss-Newton over the skeleton*.
Flow from a drawing is noisier than flow from the last frame, but it does not drift. At the end all frames are moved
together, so that no place moves in jerks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from rigpapr.binding import FitRig
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_equations import NormalEquations
from rigpapr.coarse_kinematics import JointPose, exp_rotations, log_rotations, rest_pose
from rigpapr.coarse_smooth import smoothed
from rigpapr.coarse_surface import surface_of_cloud
from rigpapr.coarse_terms import (
    CoarseConfig,
    Observation,
    Problem,
    State,
    Targets,
    add_depth,
    add_outline,
    add_priors,
    add_targets,
    bias_precision,
    observe,
    state_of,
)
from rigpapr.coarse_view import Surface, draw, recoloured
from rigpapr.supervision import Clip
from rigpapr.supervision_tracks import FlowTracker, sample
from splatanim.errors import InputError

_FASTEST = 0.5  # [rad] a frame by which the prediction may run on
_WINDOW_STEPS = 3


@dataclass(frozen=True)
class RigMotion:
    """Turns (T, J, 3, 3) and shifts (T, J, 3) of a rig's joints, frame by frame; the first frame is at rest."""

    rotations: Float64[np.ndarray, "t j 3 3"]
    translations: Float64[np.ndarray, "t j 3"]

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rotations).all() and np.isfinite(self.translations).all()):
            raise InputError("RigMotion: a turn or shift is NaN or infinite.")

    def __len__(self) -> int:
        return len(self.rotations)

    def pose(self, frame: int) -> JointPose:
        return JointPose(self.rotations[frame], self.translations[frame])


class Tracker:
    """Finds a frame's pose from those of the frames before; what is random depends on the frame alone.

    Needs OpenCV (extra ``captures``); ``depth`` None does without depth.
    """

    def __init__(
        self,
        rig: FitRig,
        surface: Surface,
        clip: Clip,
        depth: Float32[np.ndarray, "t h w"] | None,
        *,
        config: CoarseConfig | None = None,
    ) -> None:
        config = config or CoarseConfig()
        surface = recoloured(surface, clip.camera, clip.over_grey(0), clip.masks[0])
        self.problem = Problem(rig, surface, clip.camera, config, np.random.default_rng(config.seed))
        self.clip, self.depth, self.flow = clip, depth, FlowTracker()
        self._views: dict[int, View] = {}

    def track(self, *, on_frame: Callable[[int, JointPose], None] | None = None) -> RigMotion:
        """Poses of all frames, one after the other, then all together. ``on_frame`` gets each frame's pose as it is
        found. Raises InputError where a frame's mask is empty."""
        poses = [rest_pose(len(self.problem.rig))]
        for frame in range(1, len(self.clip)):
            poses.append(self.follow(frame, poses))
            if on_frame is not None:
                on_frame(frame, poses[-1])
        poses = self.settled(poses)
        return RigMotion(np.stack([p.rotations for p in poses]), np.stack([p.translations for p in poses]))

    def view(self, frame: int) -> View:
        """What there is of a frame. Raises InputError where its mask is empty."""
        if frame not in self._views:
            mask = self.clip.masks[frame]
            if not mask.any():
                raise InputError(f"frame {frame}: the mask is empty: the subject has left. Cut the clip with --frames.")
            seen = observe(mask, None if self.depth is None else self.depth[frame], self.problem.config)
            self._views[frame] = View(seen, self.clip.over_grey(frame), travelled(self.problem, self.clip, frame))
        return self._views[frame]

    def follow(self, frame: int, poses: list[JointPose]) -> JointPose:
        """A frame's pose from its prediction: Gauss-Newton on depth and outlines, then rounds with flow."""
        problem, view, c = self.problem, self.view(frame), self.problem.config
        problem.rng = np.random.default_rng((c.seed, frame))
        predicted = predict(poses, c.velocity)
        pose = descend(problem, view.seen, predicted, predicted, view.travel, None, c.steps + 2)
        for _ in range(c.rounds):
            targets = flow_targets(problem, self.flow, state_of(problem, pose), view.seen, view.picture)
            pose = descend(problem, view.seen, pose, predicted, view.travel, targets, c.steps)
        return pose

    def settled(self, poses: list[JointPose]) -> list[JointPose]:
        """All frames at once (:mod:`rigpapr.coarse_smooth`), towards targets of the poses that come in."""
        for _ in range(self.problem.config.windows if len(poses) > 2 else 0):
            poses = self._settle(poses)
        return poses

    def _settle(self, poses: list[JointPose]) -> list[JointPose]:
        problem = self.problem
        problem.rng = np.random.default_rng(problem.config.seed)
        views = [self.view(frame) for frame in range(1, len(poses))]
        targets = [
            flow_targets(problem, self.flow, state_of(problem, p), v.seen, v.picture)
            for v, p in zip(views, poses[1:], strict=True)
        ]
        for _ in range(_WINDOW_STEPS):
            systems = []
            for view, pose, these in zip(views, poses[1:], targets, strict=True):
                equations = equations_at(problem, view.seen, state_of(problem, pose), None, view.travel, these, 1.0)
                systems.append(equations.reduced())
            poses = smoothed(problem, poses, systems)
        return poses


def tracker_of(
    cloud: PaprCloud, rig: FitRig, clip: Clip, depth: Float32[np.ndarray, "t h w"] | None, *, seed: int = 0
) -> Tracker:
    """A tracker of a cloud's surface (:func:`rigpapr.coarse_surface.surface_of_cloud`), all seeded alike."""
    surface = surface_of_cloud(cloud, rig, seed=seed)
    return Tracker(rig, surface, clip, depth, config=CoarseConfig(seed=seed))


@dataclass(frozen=True)
class View:
    """What there is of one frame: the observation, the picture over grey, how far the subject has travelled."""

    seen: Observation
    picture: np.ndarray
    travel: float


def predict(poses: list[JointPose], share: float) -> JointPose:
    """The last pose, run on by a share of the last frame's turns."""
    if len(poses) < 2:
        return poses[-1]
    turn = share * log_rotations(poses[-1].rotations @ poses[-2].rotations.transpose(0, 2, 1))
    size = np.linalg.norm(turn, axis=1, keepdims=True)
    turn = turn * np.minimum(1.0, _FASTEST / np.maximum(size, 1e-12))
    return JointPose(exp_rotations(turn) @ poses[-1].rotations, poses[-1].translations)


def descend(
    problem: Problem,
    frame: Observation,
    pose: JointPose,
    predicted: JointPose,
    travel: float,
    targets: Targets | None,
    steps: int,
) -> JointPose:
    """Gauss-Newton steps; without targets the robust scales start three times as wide and narrow down."""
    for k in range(steps):
        widen = 1.0 if targets is not None else (3.0, 2.0, 1.0)[min(2, 3 * k // max(steps - 1, 1))]
        equations = equations_at(problem, frame, state_of(problem, pose), predicted, travel, targets, widen)
        pose = pose.stepped(equations.solve(problem.active, problem.config.damping))
    return pose


def equations_at(
    problem: Problem,
    frame: Observation,
    state: State,
    predicted: JointPose | None,
    travel: float,
    targets: Targets | None,
    widen: float,
) -> NormalEquations:
    """All terms at one pose."""
    equations = NormalEquations(6 * len(problem.rig), bias_precision(frame, problem.config))
    if targets is not None:
        add_targets(equations, problem, state, frame, targets, widen)
    if frame.depth is not None:
        add_depth(equations, problem, state, frame, widen)
    add_outline(equations, problem, state, frame, widen)
    add_priors(equations, problem, state, predicted, travel)
    return equations


def flow_targets(problem: Problem, flow: FlowTracker, state: State, frame: Observation, picture: np.ndarray) -> Targets:
    """Where the frame shows what the drawing of this pose shows."""
    count = problem.config.targets
    drawing, _ = draw(problem.surface, problem.camera, state.seen)
    moved, missed = flow.flow(drawing, picture)
    rows = problem.pick(np.flatnonzero(state.seen.visible), 2 * count)
    here = state.seen.pixels[rows]
    there = here + sample(moved, here)
    inside = sample(frame.mask.astype(np.float32)[..., None], there)[:, 0] > 0.3
    good = inside & (sample(missed[..., None], here)[:, 0] < problem.pixel)
    rows, there = rows[good], there[good]
    if len(rows) > count:
        some = problem.rng.choice(len(rows), count, replace=False)
        rows, there = rows[some], there[some]
    return Targets(rows.astype(np.int64), there.astype(np.float64))


def travelled(problem: Problem, clip: Clip, frame: int) -> float:
    """How far the mask's middle has moved since the first frame, in world units at the object's depth, less a slack
    of a twentieth of its size: limbs move the middle of a subject that stays in place, too."""
    middles = [np.array(np.nonzero(clip.masks[k])).mean(axis=1) for k in (0, frame)]
    z = float(((problem.surface.points - problem.camera.position) @ problem.camera.T_camera_world[2, :3]).mean())
    moved = float(np.linalg.norm(middles[1] - middles[0])) * z / problem.camera.fx
    return max(0.0, moved - 0.05 * problem.size)
