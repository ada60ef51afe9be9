"""Centrelines put together: a tree of branches that mirror each other where the object does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from splatanim.rig.auto_curves import Tips, arclength, medial_tree, path_to_root, resampled, smoothed
from splatanim.rig.auto_grid import VoxelGraph
from splatanim.rig.auto_symmetry import MirrorPlane, paired_tips

_JOINS = 0.6  # of the trunk's radius: a centreline that comes so near to another has joined it
_STEM = 0.06  # length from which what two limbs of a pair have in common is a branch of its own
_ON_PLANE = 0.022  # a tip so near to the plane of symmetry may be on it, however thin
_ALIKE = 0.025  # mean distance of the outer halves of mirrored centrelines up to which their mean is taken


@dataclass(frozen=True)
class Branch:
    """A centreline from where it leaves its parent to its tip: ``points`` (m, 3) evenly spaced, ``radii`` (m,).

    ``parent`` is a branch (-1 for the first one, which starts at the root) and ``attach`` a sample of it.
    ``mirror`` is the branch on the other side, the branch itself on the plane of symmetry, -1 without either.
    ``length`` is how far the tip sticks out.
    """

    points: Float64[np.ndarray, "m 3"]
    radii: Float64[np.ndarray, " m"]
    parent: int
    attach: int
    mirror: int
    length: float


def grow_branches(graph: VoxelGraph, root: int, tips: Tips, plane: MirrorPlane | None) -> list[Branch]:
    """The tree: centrelines on the plane of symmetry first, then by length, pairs together."""
    towards = medial_tree(graph, root)
    lines = [_line(graph, path_to_root(towards, int(cell))) for cell in tips.cells]
    far = np.array([arclength(line[:, :3])[-1] for line in lines])
    ends = np.array([line[-1] for line in lines])
    blunt = np.array([_bluntness(line, plane) for line in lines])
    partner = paired_tips(ends[:, :3], blunt, np.maximum(far, graph.spacing), plane)
    lines, alike = _mirror_lines(lines, partner, plane)
    central = partner == np.arange(len(ends))
    far[partner >= 0] = np.maximum(far, far[partner])[partner >= 0]
    order = sorted(range(len(ends)), key=lambda t: (-far[t], min(t, partner[t]), t))
    tree = _Tree(graph.spacing, [], {})
    for t in order:
        if central[t]:
            tree.add(lines[t], float(tips.lengths[t]), t, central=True)
    for stem in _stems(lines, np.where(alike, partner, -1), plane, order):
        branch = _attached(stem, tree.branches, 0.0, graph.spacing)
        if arclength(branch.points)[-1] > max(_STEM, 1.2 * float(branch.radii[0])) or not tree.branches:
            tree.branches.append(replace(branch, mirror=len(tree.branches)))
    for t in order:
        if t in tree.place:
            continue
        tree.add(lines[t], float(tips.lengths[t]), t)
        if alike[t] and plane is not None:
            tree.add_image(plane, t, int(partner[t]))
    for t, other in enumerate(partner):
        if other >= 0:
            row = tree.place[t]
            tree.branches[row] = replace(tree.branches[row], mirror=tree.place[int(other)])
    return _level_pairs(tree.branches)


def _bluntness(line: np.ndarray, plane: MirrorPlane | None) -> float:
    """How far off the plane the tip of a line may lie and still be on it: its radius, or nothing where the outer third
    of the line does not run in the middle of what the plane cuts (legs beside the plane)."""
    if plane is None:
        return 0.0
    outer = line[-max(len(line) // 3, 1) :]
    astray = float((np.abs(plane.side(outer[:, :3])) / outer[:, 3]).mean()) > 0.5
    return 0.0 if astray else max(float(line[-1, 3]), _ON_PLANE)


@dataclass
class _Tree:
    """Branches as they are found; ``place`` says which is that of a tip."""

    spacing: float
    branches: list[Branch]
    place: dict[int, int]

    def add(self, line: np.ndarray, length: float, tip: int, *, central: bool = False) -> None:
        """What a line from the root to a tip adds."""
        row = self.place[tip] = len(self.branches)
        branch = _attached(line, self.branches, length, self.spacing)
        self.branches.append(replace(branch, mirror=row) if central else branch)

    def add_image(self, plane: MirrorPlane, tip: int, other: int) -> None:
        """The mirror image of a tip's branch, where the part that it hangs on has an image."""
        branch = self.branches[self.place[tip]]
        if branch.parent < 0:
            return
        parent = self.branches[branch.parent].mirror
        if parent < 0:
            return
        self.place[other] = len(self.branches)
        mine = self.place[tip]
        self.branches[mine] = replace(branch, mirror=self.place[other])
        image = replace(branch, points=plane.mirrored(branch.points), parent=parent, mirror=mine)
        self.branches.append(image)


def _stems(
    lines: list[np.ndarray], partner: np.ndarray, plane: MirrorPlane | None, order: list[int]
) -> list[np.ndarray]:
    """Of every pair, what both have in common: the part from the root that stays near the plane, put onto it."""
    out = []
    for t in order:
        if plane is None or partner[t] <= t:
            continue
        line = lines[t]
        off = np.flatnonzero(np.abs(plane.side(line[:, :3])) > np.maximum(_JOINS * line[:, 3], 0.01))
        stop = int(off[0]) if len(off) else len(line)
        if stop > 1:
            out.append(np.concatenate([plane.onto(line[:stop, :3]), line[:stop, 3:]], axis=1))
    return out


def _line(graph: VoxelGraph, cells: Int64[np.ndarray, " m"]) -> Float64[np.ndarray, "c 4"]:
    """Points and radii along a path of cells, smoothed and evenly spaced.

    Where no more than the local radius is left, the path goes straight on: the farthest cell of a blunt end lies
    anywhere on its rim, and a centreline that turned there would bend for nothing.
    """
    depth = graph.depth[cells]
    window = float(np.clip(np.median(depth) / graph.spacing, 1.5, 4.0))  # knees of thin legs stay sharp
    points = smoothed(graph.centres[cells], window)
    radii = smoothed(np.repeat(depth[:, None], 3, axis=1), 4.0)[:, 0] + 0.5 * graph.spacing
    along = arclength(points)
    last = int(np.argmax(along[-1] - along <= radii))
    back = int(np.searchsorted(along, along[last] - 1.5 * radii[last]))
    way = points[last] - points[back]
    if back < last and last < len(points) - 1:
        end = points[last] + 0.9 * radii[last] * way / max(float(np.linalg.norm(way)), 1e-12)
        points = np.concatenate([points[: last + 1], end[None]])
        radii = np.concatenate([radii[: last + 1], radii[-1:]])
    count = max(2, round(arclength(points)[-1] / graph.spacing) + 1)
    return resampled(np.concatenate([points, radii[:, None]], axis=1), count)


def _mirror_lines(
    lines: list[np.ndarray], partner: np.ndarray, plane: MirrorPlane | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Lines on the plane put onto it; pairs that are alike replaced by their mean and its mirror image.

    Also returns the mask of the latter.
    """
    out, alike = list(lines), np.zeros(len(lines), bool)
    if plane is None:
        return out, alike
    for t, other in enumerate(partner):
        if other == t:
            out[t] = np.concatenate([plane.onto(lines[t][:, :3]), lines[t][:, 3:]], axis=1)
        elif other > t:
            count = max(len(lines[t]), len(lines[other]))
            ours, theirs = resampled(lines[t], count), resampled(lines[other], count)
            image = plane.mirrored(theirs[:, :3])
            if np.linalg.norm(ours[count // 2 :, :3] - image[count // 2 :], axis=1).mean() > _ALIKE:
                continue
            radii = 0.5 * (ours[:, 3:] + theirs[:, 3:])
            mean = 0.5 * (ours[:, :3] + image)
            mean[0] = plane.onto(mean[:1])[0]
            out[t] = np.concatenate([mean, radii], axis=1)
            out[other] = np.concatenate([plane.mirrored(mean), radii], axis=1)
            alike[[t, other]] = True
    return out, alike


def _attached(line: np.ndarray, branches: list[Branch], length: float, spacing: float) -> Branch:
    """The part of a line from the root that no branch has yet, from its tip down to where it comes near one."""
    points, radii = line[:, :3], line[:, 3]
    if not branches:
        return Branch(points, radii, -1, 0, -1, length)
    taken = np.concatenate([b.points for b in branches])
    reach = np.concatenate([b.radii for b in branches])
    owner = np.concatenate([np.full(len(b.points), k) for k, b in enumerate(branches)])
    sample = np.concatenate([np.arange(len(b.points)) for b in branches])
    gaps = np.linalg.norm(points[:, None] - taken[None], axis=2)
    near = gaps < np.maximum(_JOINS * reach, 1.5 * spacing)
    joined = np.flatnonzero(near.any(axis=1))
    last = min(int(joined.max()), len(points) - 2) if len(joined) else 0
    score = np.where(near[last], gaps[last] / reach, np.inf) if near[last].any() else gaps[last]
    at = int(score.argmin())
    kept = np.concatenate([taken[at : at + 1], points[last + 1 :]])
    count = max(2, round(arclength(kept)[-1] / spacing) + 1)
    width = np.concatenate([reach[at : at + 1], radii[last + 1 :]])[:, None]
    even = resampled(np.concatenate([kept, width], axis=1), count)
    return Branch(even[:, :3], even[:, 3], int(owner[at]), int(sample[at]), -1, length)


def _level_pairs(branches: list[Branch]) -> list[Branch]:
    """Both of a pair on a central branch leave it at one place, the mean of the two."""
    out = list(branches)
    for k, branch in enumerate(branches):
        other = branches[branch.mirror] if branch.mirror > k else None
        if other is None or other.parent != branch.parent or branch.parent < 0:
            continue
        attach = (branch.attach + other.attach) // 2
        foot = branches[branch.parent].points[attach]
        for row, one in ((k, branch), (branch.mirror, other)):
            points = np.concatenate([foot[None], one.points[1:]])
            out[row] = replace(one, points=points, attach=attach)
    return out
