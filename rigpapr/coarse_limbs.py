"""Limbs that were lost: other poses of one limb at a time, judged by what the frame shows.

Gauss-Newton keeps to the nearest explanation, so a leg that passes behind another may come out as the other one, or
stay behind. How well a drawing covers the mask tells: a limb in the wrong place leaves its part of the mask bare. For
every limb, poses are drawn at random around what is known of it (where it is and was, swings in the picture, the
mirrored poses of its partner on the body's other side), kept by their cost and drawn again more closely (cross-entropy
method). The rest of the body is drawn once, so that one pose costs a millisecond and a half. The best few of all limbs
are then aligned directly (:mod:`rigpapr.direct`), and the picture that is nearest to the frame decides.

The cost of a pose, in shares of the mask's area: how far bare pixels of the mask are from the drawing and drawn ones
from the mask, differences of colour and of depth where both are known, and how far the limb's joints have turned from
where they were expected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from rigpapr.coarse_equations import robust_amounts
from rigpapr.coarse_kinematics import JointPose, exp_rotations, log_rotations, skinned, transforms
from rigpapr.coarse_terms import Observation, Problem, State, depth_scale, state_of
from rigpapr.coarse_tracker import Tracker, predict
from rigpapr.coarse_view import project
from rigpapr.direct import Aligner
from splatanim.errors import require

_LARGEST, _SMALLEST = 0.2, 0.004  # shares of the surface's points that a limb may have
_ALIKE = 0.06  # of the size, by which a limb may differ from another one's mirror image
_CHAIN = 4  # joints of a limb that are tried, from its root down its heaviest branch
_SWINGS = (-1.3, -0.9, -0.5, 0.5, 0.9, 1.3)  # [rad] in the picture, that are tried first
_FIRST, _ROUNDS, _EACH, _ELITE = 80, 3, 40, 8  # poses drawn first, rounds after, poses of each, poses kept
_ACROSS, _OTHER = 0.6, 0.25  # [rad] first deviations about the line of sight and about the other axes
_NEW, _APART = 0.25, 0.5  # [rad] by which a proposal differs from the pose at hand and from other proposals
_OF_EACH, _TRIED, _ALIGNED = 2, 8, 3  # proposals of a limb, of all limbs tried quickly, and of these aligned fully
_REMEMBERED = 6  # frames back, whose poses of the partner are mirrored
_COLOUR, _DEPTH, _TURN = 2.0, 0.4, 0.02  # weights of the cost
_FAR = 0.03  # [of the size] a difference of depth that counts in full
_SLACK, _REACH, _FARTHEST = 1.5, 3.0, 9.0  # [px of 256] outlines are known no better, counts once, and at most
_LAST = 0.3  # a difference of colour beyond which it counts no more


@dataclass(frozen=True)
class Limb:
    """``joints`` that are tried, from the limb's root down its heaviest branch; ``others`` on it, which follow at rest;
    and the surface rows that hang on the limb. ``mirrored`` are the joints of its partner on the body's other side, and
    ``normal`` that of the plane between them."""

    joints: tuple[int, ...]
    others: tuple[int, ...]
    rows: Int64[np.ndarray, " m"]
    mirrored: tuple[int, ...] = ()
    normal: Float64[np.ndarray, " 3"] | None = None

    def from_partner(self, pose: JointPose) -> Float64[np.ndarray, "k 3 3"]:
        """The partner's turns, mirrored."""
        assert self.normal is not None
        mirror = np.eye(3) - 2 * np.outer(self.normal, self.normal)
        return mirror @ pose.rotations[list(self.mirrored)] @ mirror


def limbs_of(problem: Problem) -> list[Limb]:
    """Parts that hang on the body: the largest subtrees with at most a fifth of the surface."""
    rig, count = problem.rig, len(problem.surface.points)
    own = np.bincount(problem.bones, minlength=len(rig)).astype(np.float64) / count
    share = problem.below @ own
    found = []
    for j in range(1, len(rig)):
        if not _SMALLEST < share[j] <= _LARGEST or share[rig.parents[j]] <= _LARGEST:
            continue
        chain: list[int] = []
        at = j
        while at >= 0 and len(chain) < _CHAIN:
            if not rig.still[at] and not rig.loose[at]:
                chain.append(at)
            below = [k for k in range(len(rig)) if rig.parents[k] == at]
            at = max(below, key=lambda k: share[k]) if below else -1
        if chain:
            others = tuple(int(k) for k in np.flatnonzero(problem.below[j]) if k not in chain)
            found.append(Limb(tuple(chain), others, np.flatnonzero(problem.below[j][problem.bones] > 0)))
    return [_paired(limb, found, problem) for limb in found]


def _paired(limb: Limb, limbs: list[Limb], problem: Problem) -> Limb:
    """The limb with its partner, if another one is its mirror image at rest across the plane between their roots."""
    places = problem.rig.joints
    best, least = limb, _ALIKE * problem.size
    for other in limbs:
        apart = places[other.joints[0]] - places[limb.joints[0]]
        width = float(np.linalg.norm(apart))
        if other is limb or len(other.joints) != len(limb.joints) or width < 1e-6 * problem.size:
            continue
        normal = apart / width
        middle = (places[other.joints[0]] + places[limb.joints[0]]) / 2
        from_middle = places[list(other.joints)] - middle
        image = middle + from_middle - 2 * np.outer(from_middle @ normal, normal)
        off = float(np.linalg.norm(image - places[list(limb.joints)], axis=1).max())
        if off < least:
            best, least = dataclasses.replace(limb, mirrored=other.joints, normal=normal), off
    return best


class Judge:
    """The cost of drawings of the surface against one frame."""

    def __init__(self, problem: Problem, frame: Observation, picture: UInt8[np.ndarray, "h w 3"]) -> None:
        self.problem, self.frame, self.picture = problem, frame, picture
        self.area = max(int(frame.mask.sum()), 1)
        self.depth: np.ndarray | None = None

    def calibrate(self, state: State) -> None:
        """Bring the depth map to scene units by the surface as it stands, its smooth bias taken out."""
        seen, c = state.seen, self.problem.config
        rows = np.flatnonzero(seen.visible & (self.frame.depth_at(seen.pixels) > 0))
        if self.frame.depth is None or len(rows) < 50:
            return
        rows = self.problem.pick(rows, 1000)
        scale = depth_scale(state, self.frame)
        lifted = self.frame.depth_at(seen.pixels[rows]) * scale
        off = seen.z[rows] - lifted
        basis = lifted[:, None] * self.frame.bias(seen.pixels[rows])
        prior = np.full(basis.shape[1], (c.depth * self.problem.size / c.bias) ** 2 / c.votes * len(rows))
        prior[0] = 1e-9
        amounts = robust_amounts(basis, off, c.depth_cut * self.problem.size, prior)
        y, x = np.nonzero(self.frame.depth > 0)
        values = self.frame.depth[y, x] * scale
        self.depth = np.zeros(self.frame.mask.shape)
        self.depth[y, x] = values * (1 + self.frame.bias(np.stack([x, y], axis=1) + 0.5) @ amounts)

    def layer(self, points: Float64[np.ndarray, "m 3"], rows: Int64[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
        """The nearest point's z (infinite where there is none) and row, a pixel."""
        camera = self.problem.camera
        pixels, z = project(camera, points)
        cell = np.floor(np.clip(pixels, -1, 1e6)).astype(np.int64)
        inside = (cell >= 0).all(axis=1) & (cell[:, 0] < camera.width) & (cell[:, 1] < camera.height) & (z > 0)
        order = np.argsort(-z[inside])
        flat = (cell[:, 1] * camera.width + cell[:, 0])[inside][order]
        nearest, row = np.full(camera.width * camera.height, np.inf), np.zeros(camera.width * camera.height, np.int64)
        nearest[flat], row[flat] = z[inside][order], rows[inside][order]
        return nearest, row

    def cost(self, nearest: np.ndarray, row: np.ndarray) -> float:
        """Of a picture made of one layer, or of several by the nearest."""
        cv2: Any = require("cv2", extra="captures")
        mask = self.frame.mask
        drawn = np.isfinite(nearest).reshape(mask.shape)
        away = cv2.distanceTransform((~drawn).astype(np.uint8), cv2.DIST_L2, 3)
        pixel = self.problem.pixel
        total = 0.0
        for distance in (away[mask], self.frame.distance[drawn]):
            near = np.minimum(distance, _FARTHEST * 4 * pixel) / pixel  # infinite where nothing is drawn
            total += float(np.clip(near - _SLACK, 0, _FARTHEST).sum()) / _REACH
        both = np.flatnonzero((drawn & mask).ravel())
        colours = self.problem.surface.colours[row[both]]
        apart = np.abs(colours - self.picture.reshape(-1, 3)[both]).mean(axis=1) / 255
        total += _COLOUR * float(np.minimum(apart, _LAST).sum())
        if self.depth is not None:
            wanted = self.depth.ravel()[both]
            off = np.abs(nearest[both] - wanted)[wanted > 0] / (_FAR * self.problem.size)
            total += _DEPTH * float(np.minimum(off, 1.0).sum())
        return total / self.area


class LimbCosts:
    """Costs of one limb's poses in one frame, the rest of the body being drawn once."""

    def __init__(self, judge: Judge, limb: Limb, pose: JointPose) -> None:
        self.judge, self.limb, self.pose = judge, limb, pose
        problem = judge.problem
        surface = problem.surface
        others = np.setdiff1d(np.arange(len(surface.points)), limb.rows)
        maps = transforms(problem.rig, pose)
        self.behind = judge.layer(skinned(surface.points[others], surface.skin[others], maps)[0], others)
        self.points, self.skin = surface.points[limb.rows], surface.skin[limb.rows]
        turns, self.at_rest = pose.rotations[list(limb.joints)], False
        if limb.others:  # what hangs on a lost limb may be turned anyhow
            as_is, self.at_rest = self(turns), True
            self.at_rest = self(turns) < as_is

    def with_turns(self, turns: Float64[np.ndarray, "k 3 3"]) -> JointPose:
        """The pose with other turns of the limb's joints."""
        rotations, shifts = self.pose.rotations.copy(), self.pose.translations.copy()
        rotations[list(self.limb.joints)] = turns
        if self.at_rest:
            rotations[list(self.limb.others)], shifts[list(self.limb.others)] = np.eye(3), 0.0
        return JointPose(rotations, shifts)

    def __call__(self, turns: Float64[np.ndarray, "k 3 3"]) -> float:
        maps = transforms(self.judge.problem.rig, self.with_turns(turns))
        nearest, row = self.judge.layer(skinned(self.points, self.skin, maps)[0], self.limb.rows)
        front = nearest < self.behind[0]
        return self.judge.cost(np.where(front, nearest, self.behind[0]), np.where(front, row, self.behind[1]))


class LimbSearch:
    """Tries other poses of single limbs in a frame whose picture stays too far from the drawing."""

    def __init__(self, tracker: Tracker, aligner: Aligner) -> None:
        self.tracker, self.aligner = tracker, aligner
        self.limbs = limbs_of(tracker.problem)

    def better(self, frame: int, pose: JointPose, error: float, before: Sequence[JointPose]) -> tuple[JointPose, float]:
        """The pose with the least error of the picture, the one at hand and its error included. ``before``: the poses
        of the frames up to this one."""
        problem, view = self.tracker.problem, self.tracker.view(frame)
        judge = Judge(problem, view.seen, view.picture)
        judge.calibrate(state_of(problem, pose))
        found = []
        for limb in self.limbs:
            rng = np.random.default_rng((problem.config.seed, frame, limb.joints[0]))
            found += proposals(judge, limb, pose, before, rng)
        found.sort(key=lambda item: item[0])
        tried = [self.aligner.aligned(frame, start, quick=True)[::-1] for _, start in found[:_TRIED]]
        tried.sort(key=lambda item: item[0])
        for _, start in tried[:_ALIGNED]:
            aligned, off = self.aligner.aligned(frame, start)
            if off < error:
                pose, error = aligned, off
        return pose, error


def proposals(
    judge: Judge, limb: Limb, pose: JointPose, before: Sequence[JointPose], rng: np.random.Generator
) -> list[tuple[float, JointPose]]:
    """Poses that differ from ``pose`` in one limb, clearly and from one another, with how much less they cost."""
    cost, joints = LimbCosts(judge, limb, pose), list(limb.joints)
    axes = judge.problem.camera.T_camera_world[:3, :3]
    expected = predict(list(before), 0.9).rotations[joints]

    def value(turns: np.ndarray) -> float:
        return cost(turns) + _TURN * float((3 - np.einsum("kij,kij->k", turns, expected)).sum()) / 2

    tried = starts(limb, pose, before, expected, axes[2])
    values = [value(turns) for turns in tried]
    now = values[0]
    for around in range(_ROUNDS + 1):
        elite = [tried[k] for k in np.argsort(values, kind="stable")[:_ELITE]]
        for k in range(_FIRST if around == 0 else _EACH):
            steps = 0.5**around * rng.normal(size=(len(joints), 3)) * np.array([_OTHER, _OTHER, _ACROSS])
            tried.append(exp_rotations(steps @ axes) @ elite[k % len(elite)])
            values.append(value(tried[-1]))
    chosen: list[tuple[float, np.ndarray]] = []
    for k in np.argsort(values, kind="stable"):
        new = _widest(tried[k], tried[0]) > _NEW and all(_widest(tried[k], kept) > _APART for _, kept in chosen)
        if new:
            chosen.append((values[k] - now, tried[k]))
        if len(chosen) == _OF_EACH:
            break
    return [(gain, cost.with_turns(turns)) for gain, turns in chosen]


def starts(
    limb: Limb,
    pose: JointPose,
    before: Sequence[JointPose],
    expected: Float64[np.ndarray, "k 3 3"],
    forward: Float64[np.ndarray, " 3"],
) -> list[np.ndarray]:
    """What is known of a limb: the pose at hand first, what was expected, the last ones, its partner's mirrored, and
    these swung about the line of sight at the limb's first and second joint."""
    joints = list(limb.joints)
    out = [pose.rotations[joints], expected, before[-1].rotations[joints]]
    rest = np.tile(np.eye(3), (len(joints), 1, 1))
    bases = [out[0], expected, rest]
    if limb.mirrored:
        out += [limb.from_partner(past) for past in [pose, *before[-_REMEMBERED:]]]
        bases.append(limb.from_partner(pose))
    for swing in exp_rotations(np.array(_SWINGS)[:, None] * forward):
        for base in bases:
            for at in range(min(2, len(joints))):
                swung = base.copy()
                swung[at] = swing @ base[at]
                out.append(swung)
    return out


def _widest(one: np.ndarray, two: np.ndarray) -> float:
    """The largest angle [rad] between turns (K, 3, 3)."""
    return float(np.linalg.norm(log_rotations(one @ two.transpose(0, 2, 1)), axis=1).max())
