"""Limbs that were lost: other poses of one limb at a time, judged by what the frame shows.

Gauss-Newton keeps to the nearest explanation, so a leg that passes behind another may come out as the other one, or
stay behind. How well a drawing covers the mask tells: a limb in the wrong place leaves its part of the mask bare. For
every limb, poses are drawn at random around what is known of it, kept by their cost and drawn again more closely
(cross-entropy method). The rest of the body is drawn once, so that one pose costs a millisecond.

The cost of a pose, in shares of the mask's area: bare pixels of the mask, pixels outside it, differences of colour and
of depth where both are known, and how far the limb's joints have turned from where they were expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8

from rigpapr.coarse_kinematics import JointPose, exp_rotations, log_rotations, skinned, transforms
from rigpapr.coarse_terms import Observation, Problem, State, depth_scale, state_of
from rigpapr.coarse_view import project
from splatanim.errors import require

_LARGEST, _SMALLEST = 0.2, 0.004  # shares of the surface's points that a limb may have
_ALIKE = 0.06  # of the size, by which a limb may differ from another one's mirror image
_CHAIN = 4  # joints of a limb that are tried, from its root down its heaviest branch
_FIRST, _ROUNDS, _EACH, _ELITE = 80, 4, 48, 8  # poses drawn first, rounds after, poses of each, poses kept
_ACROSS, _OTHER = 0.6, 0.25  # [rad] first deviations about the line of sight and about the other axes
_OPTIONS = 120  # poses of a limb and a frame that a path may go through
_COLOUR, _DEPTH, _TURN = 2.0, 0.4, 0.01  # weights of the cost
_FAR = 0.03  # [of the size] a difference of depth that counts in full
_SLACK, _REACH, _FARTHEST = 1.5, 3.0, 9.0  # [px] outlines are known no better, counts once, and at most
_MARGIN = 0.004  # of the mask's area, by which another pose of a limb must be better
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
        chain, at = [], j
        while at >= 0 and len(chain) < _CHAIN:
            if not rig.still[at] and not rig.loose[at]:
                chain.append(at)
            below = [k for k in range(len(rig)) if rig.parents[k] == at]
            at = max(below, key=lambda k: share[k]) if below else -1
        if chain:
            others = tuple(k for k in np.flatnonzero(problem.below[j]) if k not in chain)
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
            best, least = replace(limb, mirrored=other.joints, normal=normal), off
    return best


class Judge:
    """The cost of poses against one frame. ``pose`` is where everything but the limb in question stands."""

    def __init__(self, problem: Problem, frame: Observation, picture: UInt8[np.ndarray, "h w 3"]) -> None:
        self.problem, self.frame, self.picture = problem, frame, picture
        self.near = _widened(frame.mask)
        self.area = max(int(frame.mask.sum()), 1)
        self.depth: np.ndarray | None = None

    def calibrate(self, state: State) -> None:
        """Bring the depth map to scene units by the surface as it stands, its smooth bias taken out."""
        seen, c = state.seen, self.problem.config
        rows = np.flatnonzero(seen.visible & (self.frame.depth_at(seen.pixels) > 0))
        if self.frame.depth is None or len(rows) < 50:
            return
        rows = self.problem.pick(rows, 1000)
        lifted = self.frame.depth_at(seen.pixels[rows]) * depth_scale(state, self.frame)
        off = seen.z[rows] - lifted
        basis = lifted[:, None] * self.frame.bias(seen.pixels[rows])
        trust = 1 / (1 + (off / (c.depth_cut * self.problem.size)) ** 2) ** 2
        prior = np.full(basis.shape[1], (c.depth * self.problem.size / c.bias) ** 2 / c.votes * len(rows))
        prior[0] = 1e-9
        amounts = np.linalg.solve((basis * trust[:, None]).T @ basis + np.diag(prior), basis.T @ (trust * off))
        y, x = np.nonzero(self.frame.depth > 0)
        values = self.frame.depth[y, x] * depth_scale(state, self.frame)
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
        total = float(np.clip(away[mask] - _SLACK, 0, _FARTHEST).sum()) / _REACH
        total += float(np.clip(self.frame.distance[drawn] - _SLACK, 0, _FARTHEST).sum()) / _REACH
        both = np.flatnonzero((drawn & mask).ravel())
        colours = self.problem.surface.colours[row[both]]
        apart = np.abs(colours - self.picture.reshape(-1, 3)[both]).mean(axis=1) / 255
        total += _COLOUR * float(np.minimum(apart, _LAST).sum())
        if self.depth is not None:
            wanted = self.depth.ravel()[both]
            off = np.abs(nearest[both] - wanted)[wanted > 0] / (_FAR * self.problem.size)
            total += _DEPTH * float(np.minimum(off, 1.0).sum())
        return total / self.area


def _widened(mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """By a pixel all around: outlines are known no better."""
    cv2: Any = require("cv2", extra="captures")
    return cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0


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


def follow_limb(
    judges: Sequence[Judge], limb: Limb, poses: Sequence[JointPose], rng: np.random.Generator
) -> tuple[list[JointPose], float]:
    """A limb's turns in all frames at once: of many poses a frame those with the least sum of costs and of squared
    turns from frame to frame (Viterbi). ``poses[0]`` is at rest and stays. And by how much the sum fell."""
    joints = list(limb.joints)
    axes = judges[0].problem.camera.T_camera_world[:3, :3]
    known = [pose.rotations[joints] for pose in poses]
    options, costs, at = [np.stack(known[:1])], [np.zeros(1)], []
    for frame, judge in enumerate(judges, 1):
        cost = LimbCosts(judge, limb, poses[frame])
        tried = [known[frame], known[frame - 1], known[min(frame + 1, len(known) - 1)], *known[:: max(1, len(known) // 8)]]
        if limb.mirrored:
            tried += [limb.from_partner(pose) for pose in poses[:: max(1, len(poses) // 24)]]
        if frame > 1:
            best = np.argsort(costs[-1])[:_ELITE]
            tried += [options[-1][k] for k in best]
        values = [cost(turns) for turns in tried]
        for around in range(_ROUNDS + 1):
            order = np.argsort(values, kind="stable")[:_ELITE]
            elite = [tried[k] for k in order]
            for k in range(_FIRST if around == 0 else _EACH):
                steps = 0.5**around * rng.normal(size=(len(joints), 3)) * np.array([_OTHER, _OTHER, _ACROSS])
                tried.append(exp_rotations(steps @ axes) @ elite[k % len(elite)])
                values.append(cost(tried[-1]))
        kept = np.concatenate([[0], 1 + np.argsort(values[1:], kind="stable")[: _OPTIONS - 1]])
        options.append(np.stack([tried[k] for k in kept]))
        at.append(cost)
        costs.append(np.array(values)[kept])
    path, total, before = _cheapest(options, costs)
    moved = [at[frame - 1].with_turns(options[frame][choice]) for frame, choice in enumerate(path[1:], 1)]
    return [poses[0], *moved], before - total


def _cheapest(options: list[np.ndarray], costs: list[np.ndarray]) -> tuple[list[int], float, float]:
    """The cheapest path through the options, its cost, and that of the path of first options."""
    total, back = costs[0], []
    before = float(sum(values[0] for values in costs))
    for last, new, values in zip(options[:-1], options[1:], costs[1:], strict=True):
        # tr(A^T B) = 1 + 2 cos angle; 2 - 2 cos is the squared angle where that is small, and bounded
        cosine = (np.einsum("akij,bkij->abk", last, new) - 1) / 2
        apart = _TURN * (2 - 2 * cosine.clip(-1, 1)).sum(axis=2)
        before += float(apart[0, 0])
        step = total[:, None] + apart
        back.append(step.argmin(axis=0))
        total = step.min(axis=0) + values
    path = [int(total.argmin())]
    for origin in reversed(back):
        path.append(int(origin[path[-1]]))
    return path[::-1], float(total.min()), before
