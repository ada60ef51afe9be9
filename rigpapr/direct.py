"""Direct alignment: a pose by Gauss-Newton on the colours of the picture that the cloud itself draws.

Phase 1 of the fit (RigPAPR 3.4) descends on colours by Adam; from near, Gauss-Newton gets there in a few pictures. With
D the drawing, F the frame, and v_u = J_u d how a step d moves the surface that pixel u shows,

    D(u; d) - F(u) = r_u - grad(D)_u . v_u,      H = sum_u J_u^T A_u J_u,   A_u = sum_c w grad_c grad_c^T

to first order, the gradient being the mean of both pictures' (which makes the error of third order). A pixel beside an
outline shows the gradient of what is in front, so it goes with the nearest surface around it. A pixel's surface moves
as the point does that has most of its attention (D.6); pixels of one point share its J, so H is a sum over points.
Pictures are blurred less and less. Delta-depth of the points (:mod:`rigpapr.losses`) with its scale and smooth bias
eliminated (:mod:`rigpapr.coarse_equations`), and holds to the pose that is given, for what the frame does not show.

A cloud's picture differs from the frames even where its pose is true: outlines a fifth of a pixel off make a subject
half a per cent nearer or farther. The first frame's pose is known, so what it differs by there is taken off wherever
the same place of the surface is seen later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64

from rigpapr.coarse_equations import NormalEquations, geman_mcclure, robust_amounts
from rigpapr.coarse_kinematics import JointPose, jacobian, log_rotations, rest_pose, skinned, transforms
from rigpapr.coarse_smooth import smoothed
from rigpapr.coarse_terms import CoarseConfig, Observation, Problem, add_priors, bias_precision, observe, state_of
from rigpapr.coarse_tracker import travelled
from rigpapr.coarse_view import Surface, project, project_jacobian
from rigpapr.fitted import deform
from rigpapr.renderer import PaprRendering, render
from rigpapr.skin import Skin
from rigpapr.supervision_tracks import sample
from splatanim.errors import require

if TYPE_CHECKING:
    from rigpapr.two_phase import Fit

_SEEN = 0.5  # alpha from which a pixel shows the subject
_WORSE = 1.02  # times the least error on the way: what the cloud's own error may make up
_REST_REACH = 8  # [px] around the subject at rest
_SAME_PLACE = 0.03  # of the size, from a point to the one that shows the same place at rest
_BEHIND = 0.015  # of the size: how far behind the drawn depth a point still counts as seen


@dataclass(frozen=True)
class DirectConfig:
    """Deviations and steps of direct alignment.

    ``blurs`` [px of a 256-pixel picture]: one after the other, ``steps`` each; ``quick_steps`` of the first alone.
    ``colour`` and ``colour_cut`` of values
    in [0, 1], ``depth`` and ``depth_cut`` [shares of the size] as in :class:`CoarseConfig`; ``turn`` [rad], ``root``
    and ``along`` [shares] hold turns, the root, and the mean way along the line of sight to the pose given; ``loose``
    [shares] shifts of loose joints; ``jerk`` and ``in_place`` [shares] are those of :class:`CoarseConfig`, for all
    frames together. ``votes``: how many independent measurements a picture counts for.
    """

    blurs: tuple[float, ...] = (2.0, 1.0, 0.5)
    steps: int = 4
    quick_steps: int = 3
    colour: float = 0.05
    colour_cut: float = 0.2
    depth: float = 0.0055
    depth_cut: float = 0.0165
    turn: float = 0.1
    root: float = 0.02
    along: float = 0.015
    loose: float = 0.0055
    jerk: float = 0.006
    in_place: float = 0.01
    votes: float = 1000.0
    damping: float = 1e-3


class Aligner:
    """What direct alignment of one fit keeps: points and their skin in double precision, and which unknowns move."""

    def __init__(self, fit: Fit, config: DirectConfig | None = None) -> None:
        self.fit, self.config = fit, config or DirectConfig()
        self.rig, self.camera = fit.rig, fit.clip.camera
        self.points = fit.points.double().numpy()
        self.weights = torch.softmax(fit.bound, dim=1)
        self.skin = Skin(self.weights.double().numpy(), fit.moments.double().numpy())
        nothing = np.zeros_like(self.points)
        surface = Surface(self.points, nothing, nothing, self.skin)
        self.priors = CoarseConfig(jerk=self.config.jerk, in_place=self.config.in_place)
        self.problem = Problem(self.rig, surface, self.camera, self.priors, np.random.default_rng(fit.config.seed))
        self.below, self.size, self.pixel = self.problem.below, self.problem.size, self.problem.pixel
        self.active = self.problem.active
        self.forward = self.camera.T_camera_world[2, :3]
        self.travel = [travelled(self.problem, fit.clip, k) for k in range(len(fit.clip))]
        self.below_map = self._offsets()
        self.rest_picture = self.draw(rest_pose(len(self.rig)))[1]
        self.rest_pixels = project(self.camera, self.points)[0]
        self.rest_owners = owners(self.rest_picture, _REST_REACH)
        self.rest_differences: dict[float, np.ndarray] = {}  # by blur
        self.some = np.random.default_rng(0).choice(len(self.points), min(500, len(self.points)), replace=False)

    def draw(self, pose: JointPose) -> tuple[np.ndarray, PaprRendering]:
        """Posed points, and the picture."""
        maps = torch.eye(4).repeat(len(self.rig), 1, 1)
        maps[:, :3] = torch.from_numpy(transforms(self.rig, pose)).float()
        positions, linear = deform(self.fit.points, self.weights, maps, self.fit.moments)
        return positions.double().numpy(), render(self.fit.cloud, self.camera, positions=positions, rotations=linear)

    def aligned(self, frame: int, given: JointPose, *, quick: bool = False) -> tuple[JointPose, float]:
        """The pose near the given one that the steps end at, or where its picture is clearly farther from the frame
        than one on the way (the given one first), that; and the pictures' mean absolute difference over the mask."""
        best, least = given, np.inf
        pose, c = given, self.config
        seen = self.observation(frame)
        for blur in c.blurs[:1] if quick else c.blurs:
            for _ in range(c.quick_steps if quick else c.steps):
                posed, picture = self.draw(pose)
                error = self.error(picture, frame)
                if error < least:
                    best, least = pose, error
                equations = self.equations(frame, seen, pose, posed, picture, given, blur * self.pixel)
                pose = pose.stepped(equations.solve(self.active, c.damping), limit=0.2)
        error = self.error(self.draw(pose)[1], frame)
        return (pose, error) if error < _WORSE * least else (best, least)

    def settled(self, poses: list[JointPose], rounds: int) -> list[JointPose]:
        """All frames together (:mod:`rigpapr.coarse_smooth`), ``rounds`` steps of each."""
        blur = self.config.blurs[-1] * self.pixel
        for _ in range(rounds if len(poses) > 2 else 0):
            systems = []
            for k in range(1, len(poses)):
                pose, seen = poses[k], self.observation(k)
                equations = self.equations(k, seen, pose, *self.draw(pose), None, blur)
                add_priors(equations, self.problem, state_of(self.problem, pose), None, self.travel[k])
                systems.append(equations.reduced())
            poses = smoothed(self.problem, poses, systems)
        return poses

    def observation(self, frame: int) -> Observation | None:
        """The frame's depth map without its steps, with the basis of its bias; None without depth."""
        if self.fit.depth is None or self.fit.reference is None:
            return None
        return observe(self.fit.clip.masks[frame], self.fit.depth[frame], self.priors)

    def error(self, picture: PaprRendering, frame: int) -> float:
        """Mean absolute difference of the drawing and the frame, summed, for every pixel of the mask."""
        off = np.abs(picture.rgb - self.fit.clip.picture(frame)).mean(axis=2).sum()
        return float(off) / max(int(self.fit.clip.masks[frame].sum()), 1)

    def equations(
        self,
        frame: int,
        seen: Observation | None,
        pose: JointPose,
        posed: Float64[np.ndarray, "n 3"],
        picture: PaprRendering,
        given: JointPose | None,
        blur: float,
    ) -> NormalEquations:
        """All terms at a pose; without a given one, nothing is held to it."""
        equations = NormalEquations(6 * len(self.rig), bias_precision(seen, self.priors))
        maps = transforms(self.rig, pose)
        self._add_colours(equations, frame, posed, picture, maps, blur)
        if seen is not None:
            self._add_depth(equations, seen, posed, picture, maps)
        if given is not None:
            self._add_holds(equations, pose, posed, maps, given)
        return equations

    def _slopes(self, rows: np.ndarray, posed: np.ndarray, maps: np.ndarray) -> np.ndarray:
        """d(pixel, z)/d(step) of points, (M, 3, 6 J)."""
        world = jacobian(self.rig, self.below, self.points[rows], self.skin[rows], maps)
        return project_jacobian(self.camera, posed[rows]) @ world

    def _add_colours(
        self,
        equations: NormalEquations,
        frame: int,
        posed: np.ndarray,
        picture: PaprRendering,
        maps: np.ndarray,
        blur: float,
    ) -> None:
        c = self.config
        residual, mean = self._difference(picture, frame, blur)
        slope = np.stack([np.gradient(mean, axis=1), np.gradient(mean, axis=0)], axis=-1)  # (h, w, 3, 2)
        owner = owners(picture, int(np.ceil(2 * blur)) + 1)
        y, x = np.nonzero((owner >= 0) & (np.abs(slope).sum(axis=(2, 3)) > 1e-4))
        own = owner[y, x]
        r, g = residual[y, x].astype(np.float64), slope[y, x].astype(np.float64)
        pixels = np.stack([x, y], axis=1) + 0.5
        r -= self._at_rest(pixels - project(self.camera, posed)[0][own] + self.rest_pixels[own], own, blur)
        trust = geman_mcclure(np.linalg.norm(r, axis=1), c.colour_cut) / c.colour**2
        trust *= c.votes / max(int(self.fit.clip.masks[frame].sum()), 1)
        rows, point = np.unique(own, return_inverse=True)
        square, right = np.zeros((len(rows), 2, 2)), np.zeros((len(rows), 2))
        np.add.at(square, point, np.einsum("m,mca,mcb->mab", trust, g, g))
        np.add.at(right, point, np.einsum("m,mca,mc->ma", trust, g, r))
        image = self._slopes(rows, posed, maps)[:, :2]
        # the residual falls by grad . v, so its derivative is -grad J
        equations.matrix += np.einsum("nap,nab,nbq->pq", image, square, image, optimize=True)
        equations.right += np.einsum("nap,na->p", image, right)

    def _difference(self, picture: PaprRendering, frame: int, blur: float) -> tuple[np.ndarray, np.ndarray]:
        """Drawing less frame, and their mean, both blurred."""
        cv2: Any = require("cv2", extra="captures")
        drawn, wanted = (cv2.GaussianBlur(p, (0, 0), blur) for p in (picture.rgb, self.fit.clip.picture(frame)))
        return drawn - wanted, (drawn + wanted) / 2

    def _at_rest(
        self, pixels: Float64[np.ndarray, "m 2"], own: Int64[np.ndarray, " m"], blur: float
    ) -> Float64[np.ndarray, "m 3"]:
        """The difference that the first frame, whose pose is known, has at the same places of the surface: the cloud's
        own error, which no motion explains. 0 where that frame does not show the place."""
        if blur not in self.rest_differences:
            self.rest_differences[blur] = self._difference(self.rest_picture, 0, blur)[0]
        cell = np.floor(pixels).astype(int)
        size = [self.camera.width, self.camera.height]
        inside = (cell >= 0).all(axis=1) & (cell < size).all(axis=1)
        cell = cell.clip(0, np.array(size) - 1)
        there = self.rest_owners[cell[:, 1], cell[:, 0]]
        apart = np.linalg.norm(self.points[there] - self.points[own], axis=1)
        same = inside & (there >= 0) & (apart < _SAME_PLACE * self.size)
        return np.where(same[:, None], sample(self.rest_differences[blur], pixels), 0.0).astype(np.float64)

    def _add_depth(
        self, equations: NormalEquations, seen: Observation, posed: np.ndarray, picture: PaprRendering, maps: np.ndarray
    ) -> None:
        """Delta-depth of the points that are seen in this frame and in the first."""
        c, reference = self.config, self.fit.reference
        assert reference is not None and seen.depth is not None
        pixels, z = project(self.camera, posed)
        drawn = sample(picture.depth[..., None], pixels)[:, 0]
        values = seen.depth_at(pixels)
        visible = (drawn > 0) & (z < drawn + _BEHIND * self.size)
        rows = np.flatnonzero(visible & reference.known & (values > 0) & (reference.values > 0))
        if len(rows) < 50:
            return
        offset = self.below_map[rows]
        lifted = values[rows] * np.median((z[rows] - offset) / values[rows])
        residual = z[rows] - lifted - offset
        normals = _map_slopes(seen.depth)
        cell = np.floor(pixels[rows]).astype(int).clip(0, [self.camera.width - 1, self.camera.height - 1])
        along = normals[cell[:, 1], cell[:, 0]] * (lifted / values[rows])[:, None]
        slopes = self._slopes(rows, posed, maps)
        lines = slopes[:, 2] - np.einsum("na,nap->np", along, slopes[:, :2])
        weight = geman_mcclure(residual, c.depth_cut * self.size) / (c.depth * self.size) ** 2 * c.votes / len(rows)
        weight *= self.fit.config.one.depth
        weight *= np.linalg.norm(along, axis=1) < 0.02 * self.size  # not where the surface turns away
        equations.add(lines, residual, weight, -lifted[:, None] * seen.bias(pixels[rows]))

    def _offsets(self) -> Float64[np.ndarray, " n"]:
        """How far points lie behind what the first map shows at their pixels, which stays with them; what is smooth
        over the picture is that map's own bias."""
        out, reference = np.zeros(len(self.points)), self.fit.reference
        seen = self.observation(0)
        if reference is None or seen is None:
            return out
        rows = np.flatnonzero(reference.known & (reference.values > 0))
        if len(rows) < 50:
            return out
        z = reference.z.double().numpy()[rows] / self.fit.unit
        lifted = reference.values[rows] * np.median(z / reference.values[rows])
        basis = lifted[:, None] * seen.bias(project(self.camera, self.points[rows])[0])
        off = z - lifted  # far off beside steps
        prior = np.full(basis.shape[1], (self.config.depth * self.size / self.priors.bias) ** 2)
        amounts = robust_amounts(basis, off, self.config.depth_cut * self.size, prior, rounds=5)
        out[rows] = off - basis @ amounts
        return out

    def _add_holds(
        self,
        equations: NormalEquations,
        pose: JointPose,
        posed: np.ndarray,
        maps: np.ndarray,
        given: JointPose,
    ) -> None:
        c, j, size = self.config, len(self.rig), self.size
        turns, shifts = np.arange(3 * j), np.arange(3 * j, 6 * j)
        apart = log_rotations(pose.rotations @ given.rotations.transpose(0, 2, 1)).ravel()
        equations.hold(turns, apart, 1 / c.turn**2)
        loose = np.where(self.rig.loose, c.loose * size, 1.0)
        loose[0] = c.root * size
        equations.hold(shifts, (pose.translations - given.translations).ravel(), np.repeat(1 / loose**2, 3))
        before = skinned(self.points[self.some], self.skin[self.some], transforms(self.rig, given))[0]
        world = jacobian(self.rig, self.below, self.points[self.some], self.skin[self.some], maps)
        moved = float(self.forward @ (posed[self.some] - before).mean(axis=0))
        line = self.forward @ world.mean(axis=0)
        equations.add(line[None], np.array([moved]), np.array([1 / (c.along * size) ** 2]))


def owners(picture: PaprRendering, reach: int) -> Int64[np.ndarray, "h w"]:
    """The point whose motion moves what a pixel shows: that of most attention at the nearest surface within a pixel,
    and within ``reach`` pixels of the subject at the nearest pixel that shows it; -1 farther off."""
    from scipy.ndimage import distance_transform_edt

    solid = picture.alpha > _SEEN
    if not solid.any():
        return np.full(solid.shape, -1, np.int64)
    best = picture.weights.argmax(axis=2)
    own = np.take_along_axis(picture.indices, best[..., None], axis=2)[..., 0].astype(np.int64)
    depth = np.where(solid, picture.depth, np.inf)
    height, width = solid.shape
    front, owner = depth.copy(), np.where(solid, own, -1)
    padded, padded_own = np.pad(depth, 1, constant_values=np.inf), np.pad(owner, 1, constant_values=-1)
    for dy in range(3):
        for dx in range(3):
            z = padded[dy : dy + height, dx : dx + width]
            nearer = z < 0.99 * front
            front = np.where(nearer, z, front)
            owner = np.where(nearer, padded_own[dy : dy + height, dx : dx + width], owner)
    distance, (y, x) = distance_transform_edt(owner < 0, return_indices=True)
    return np.where(distance <= reach, owner[y, x], -1)


def _map_slopes(depth: Float[np.ndarray, "h w"]) -> Float64[np.ndarray, "h w 2"]:
    """d(depth)/d(x, y) a pixel where both neighbours are known, else 0."""
    out = np.zeros((*depth.shape, 2))
    known = depth > 0
    for axis, place in ((1, 0), (0, 1)):
        ahead, behind = np.roll(depth, -1, axis), np.roll(depth, 1, axis)
        both = known & (ahead > 0) & (behind > 0)
        out[..., place] = np.where(both, (ahead - behind) / 2, 0.0)
    return out
