"""Joints along branches: at forks, where a limb leaves the body, at bends, else evenly; a tree from the root."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from splatanim.rig.auto_branches import Branch
from splatanim.rig.auto_curves import arclength, resampled

BONE_SHARE = 0.075  # of the longest way through the skeleton: how long a bone is, where nothing else decides
_EVEN = 0.1  # weight of equal lengths (as shares of the mean) against distance from the centreline (of the radius)
_MORE = 2  # bones that a bent piece may have beyond what its length asks for, to stay inside


@dataclass(frozen=True)
class JointTree:
    """``positions`` (j, 3), ``parents`` (j,) with -1 at the root, which comes first; parents before children.

    ``samples`` (s, 3) and ``radii`` (s,) are points along all bones, ``owners`` (s,) the joint each turns with: a
    bone turns with the joint at its upper end. ``ends`` (j,) marks joints at tips, which nothing turns with.
    """

    names: tuple[str, ...]
    positions: Float64[np.ndarray, "j 3"]
    parents: Int64[np.ndarray, " j"]
    ends: np.ndarray
    samples: Float64[np.ndarray, "s 3"]
    radii: Float64[np.ndarray, " s"]
    owners: Int64[np.ndarray, " s"]


def place_joints(branches: list[Branch], names: list[str], *, share: float = BONE_SHARE) -> JointTree:
    """Joints of all branches, named after them (``names``, one a branch) and numbered from the body outwards."""
    bone = max(share * _longest_way(branches), 1e-9)
    knots = [_knots(branches, k, bone) for k in range(len(branches))]
    positions, parents, labels = [branches[0].points[0]], [-1], ["root"]
    samples, radii, owners = [], [], []
    joint_at: list[dict[int, int]] = []
    for k, branch in enumerate(branches):
        marks = knots[k]
        above = 0 if branch.parent < 0 else _joint_below(joint_at[branch.parent], branch.attach)
        here = {0: above}
        for number, (start, stop) in enumerate(itertools.pairwise(marks)):
            positions.append(branch.points[stop])
            parents.append(above)
            last = stop == marks[-1]
            labels.append(f"{names[k]}_end" if last else f"{names[k]}_{number}")
            rows = slice(start, stop if not last else stop + 1)
            samples.append(branch.points[rows])
            radii.append(branch.radii[rows])
            owners.append(np.full(len(branch.points[rows]), above))
            above = len(positions) - 1
            here[stop] = above
        joint_at.append(here)
    return JointTree(
        tuple(labels),
        np.array(positions),
        np.array(parents, np.int64),
        ~np.isin(np.arange(len(parents)), parents),
        np.concatenate(samples),
        np.concatenate(radii),
        np.concatenate(owners).astype(np.int64),
    )


def _longest_way(branches: list[Branch]) -> float:
    """The longest way through the tree from one tip to another."""
    heights: list[list[float]] = [[] for _ in branches]  # lengths of ways from the root
    root: list[float] = []
    for k, branch in enumerate(branches):
        base = 0.0 if branch.parent < 0 else heights[branch.parent][branch.attach]
        heights[k] = (base + arclength(branch.points)).tolist()
        root.append(heights[k][-1])
    top = sorted(root, reverse=True)
    return top[0] + (top[1] if len(top) > 1 else 0.0)


def _joint_below(joints: dict[int, int], sample: int) -> int:
    """The joint that stands at a sample; forks are knots, so that there is one."""
    return joints[min(joints, key=lambda mark: abs(mark - sample))]


def _knots(branches: list[Branch], k: int, bone: float) -> list[int]:
    """Samples of a branch where joints stand: both ends, forks, the limb's first joint, and others between them."""
    branch = branches[k]
    along = arclength(branch.points)
    total = float(along[-1])
    fixed = [0, len(along) - 1]
    start = _leaves_body(branches, branch, along, bone)
    if start:
        fixed.append(start)
    forks = sorted({b.attach for b in branches if b.parent == k})
    for fork in forks:
        room = max(0.3 * bone, 0.4 * float(branch.radii[fork]))
        gaps = [abs(along[fork] - along[mark]) for mark in fixed]
        if min(gaps) > min(room, 0.2 * total):
            fixed.append(fork)
    marks = sorted(set(fixed))
    out = [0]
    for a, b in itertools.pairwise(marks):
        length = float(along[b] - along[a])
        radii = branch.radii[a : b + 1]
        thick = float(radii.mean())
        radii = np.maximum(radii, 0.7 * np.median(radii))  # tips taper off to nothing
        count = max(1, round(length / max(bone, thick)))
        out += [a + m for m in _fitting(branch.points[a : b + 1], radii, count)]
    return out


def _fitting(points: np.ndarray, radii: np.ndarray, count: int) -> list[int]:
    """Split into ``count`` straight bones, or a few more where one would leave the limb."""
    marks = _split(points, radii, count)
    for more in range(count + 1, count + 1 + _MORE):
        starts = [0, *marks[:-1]]
        if all((_off(points[a : b + 1]) <= 0.7 * radii[a : b + 1]).all() for a, b in zip(starts, marks)):
            break
        marks = _split(points, radii, more)
    return marks


def _off(points: np.ndarray) -> np.ndarray:
    """Distances of a polyline's points from its chord."""
    chord, inner = points[-1] - points[0], points - points[0]
    share = np.clip(inner @ chord / max(float(chord @ chord), 1e-12), 0, 1)
    return np.linalg.norm(inner - share[:, None] * chord, axis=1)


def _leaves_body(branches: list[Branch], branch: Branch, along: np.ndarray, bone: float) -> int:
    """Where a branch comes out of the part that it hangs on: its shoulder or hip; 0 where that part is thin."""
    if branch.parent < 0:
        return 0
    parent = branches[branch.parent]
    reach = float(parent.radii[branch.attach])
    out = np.flatnonzero(np.linalg.norm(branch.points - branch.points[0], axis=1) > 0.75 * reach)
    if not len(out) or along[out[0]] > 0.5 * along[-1] or along[out[0]] < (0.5 if branch.attach == 0 else 0.3) * bone:
        return 0
    return int(out[0])


def _split(points: np.ndarray, radii: np.ndarray, count: int) -> list[int]:
    """Ends of ``count`` straight pieces along a polyline: close to it and about equally long (dynamic programming)."""
    m = len(points)
    count = min(count, m - 1)
    if count <= 1:
        return [m - 1]
    few = min(m, 64)
    even = resampled(np.concatenate([points, radii[:, None]], axis=1), few)
    coarse, radius = even[:, :3], even[:, 3]
    cost = np.full((few, few), np.inf)
    for i in range(few):
        for j in range(i + 1, few):
            off = ((_off(coarse[i : j + 1]) / radius[i : j + 1]) ** 2).sum() * count / few
            cost[i, j] = off + _EVEN * ((j - i) * count / (few - 1) - 1.0) ** 2
    best, back = np.full((count + 1, few), np.inf), np.zeros((count + 1, few), int)
    best[0, 0] = 0.0
    for piece in range(1, count + 1):
        whole = best[piece - 1][:, None] + cost
        best[piece], back[piece] = whole.min(axis=0), whole.argmin(axis=0)
    ends, at = [], few - 1
    for piece in range(count, 0, -1):
        ends.append(round(at * (m - 1) / (few - 1)))
        at = int(back[piece, at])
    return ends[::-1]
