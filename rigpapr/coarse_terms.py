"""What pulls the coarse pose: flow targets, depth, silhouettes, and the priors. Each adds rows to the equations.

Lengths are shares of the object's longest side, pixels those of a 256-pixel picture (both scale along).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from rigpapr.binding import FitRig
from rigpapr.coarse_equations import NormalEquations, geman_mcclure
from rigpapr.coarse_kinematics import JointPose, jacobian, log_rotations, skinned, transforms
from rigpapr.coarse_view import Seen, Surface, lift, project_jacobian, see
from splatanim.errors import require
from splatanim.render.camera import Camera

_SCALE_PRECISION = 1e-6  # the depth scale is free
_STEP = 0.015  # relative change of depth within three pixels that is a step from one surface to another


@dataclass(frozen=True)
class CoarseConfig:
    """Deviations and weights of the coarse tracker.

    ``flow_px`` and ``flow_cut_px``: deviation of flow targets, and from where they count as outliers; ``depth`` and
    ``depth_cut`` the same for depth [shares]; ``outline_px`` and ``outline_cut_px`` for silhouettes, which the surface
    may leave by ``outline_slack_px`` (of this picture): a pull inwards within a pixel, where the outline itself is not
    known better, would make everything smaller, so farther off. ``bias_px``: spacing of the Gaussians that make the
    depth maps' smooth bias, ``bias`` its relative deviation. ``predicted`` and ``rest`` [rad] hold turns to the
    prediction and to rest; ``root`` and ``root_depth`` [shares] the root to its prediction; ``home`` [shares] the
    root's, ``in_place`` the surface's mean depth to rest, loosened where the subject travels; ``loose`` [shares] shifts
    of loose joints; ``jerk`` [shares] second differences of places over frames. ``votes``: how many independent
    measurements a block of residuals counts for; ``targets`` flow targets a frame; ``rounds`` of drawing and flow, of
    ``steps`` each; ``windows``: passes over the whole clip at once after that; ``velocity``: the share of the last
    frame's turns by which the prediction runs on.
    """

    flow_px: float = 1.0
    flow_cut_px: float = 4.0
    depth: float = 0.0055
    depth_cut: float = 0.0165
    outline_px: float = 3.0
    outline_cut_px: float = 8.0
    outline_slack_px: float = 2.0
    bias_px: float = 120.0
    bias: float = 0.006
    predicted: float = 0.05
    rest: float = 0.8
    root: float = 0.0165
    root_depth: float = 0.0055
    home: float = 0.0165
    in_place: float = 0.007
    loose: float = 0.0055
    jerk: float = 0.006
    votes: float = 1000.0
    targets: int = 700
    rounds: int = 3
    steps: int = 4
    velocity: float = 0.5
    windows: int = 1
    damping: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class Targets:
    """Where flow says that surface rows (M,) are: pixels (M, 2)."""

    rows: Int64[np.ndarray, " m"]
    pixels: Float64[np.ndarray, "m 2"]


@dataclass(frozen=True)
class Observation:
    """One frame: mask, depth (0 unknown, or None), every pixel's distance to the mask, and the mask's nearest pixel."""

    mask: Bool[np.ndarray, "h w"]
    depth: Float32[np.ndarray, "h w"] | None
    distance: Float64[np.ndarray, "h w"]
    nearest: Float64[np.ndarray, "h w 2"]
    bias_centres: Float64[np.ndarray, "b 2"]
    bias_width: float

    def bias(self, pixels: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, "n c"]:
        """A constant and the Gaussians at pixels."""
        apart = ((pixels[:, None] - self.bias_centres[None]) ** 2).sum(axis=2)
        return np.concatenate([np.ones((len(pixels), 1)), np.exp(-apart / (2 * self.bias_width**2))], axis=1)

    def depth_at(self, pixels: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n"]:
        """The map's value of each pixel, 0 where there is none."""
        height, width = self.mask.shape
        cell = np.floor(pixels + 0.25).astype(np.int64)
        inside = (cell >= 0).all(axis=1) & (cell[:, 0] < width) & (cell[:, 1] < height)
        if self.depth is None:
            return np.zeros(len(pixels))
        x, y = cell[:, 0].clip(0, width - 1), cell[:, 1].clip(0, height - 1)
        return np.where(inside, self.depth[y, x], 0.0).astype(np.float64)


def observe(
    mask: Bool[np.ndarray, "h w"], depth: Float32[np.ndarray, "h w"] | None, config: CoarseConfig
) -> Observation:
    """Prepare one frame."""
    from scipy.ndimage import distance_transform_edt

    scale = max(mask.shape) / 256
    distance, (y, x) = distance_transform_edt(~mask, return_indices=True)
    gap = config.bias_px * scale
    rows, columns = np.nonzero(mask)
    grid_x = np.arange(columns.min() - gap / 2, columns.max() + gap, gap)
    grid_y = np.arange(rows.min() - gap / 2, rows.max() + gap, gap)
    centres = np.stack(np.meshgrid(grid_x, grid_y), axis=-1).reshape(-1, 2)
    nearest = np.stack([x, y], axis=-1) + 0.5
    return Observation(mask, None if depth is None else _without_steps(depth), distance, nearest, centres, gap)


def _without_steps(depth: Float32[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """A map without the pixels beside a step, where one limb is in front of another: half a pixel off, and a point
    would be drawn to the wrong one."""
    from scipy.ndimage import maximum_filter, minimum_filter

    known = depth > 0
    high = maximum_filter(np.where(known, depth, -np.inf), 3)
    low = minimum_filter(np.where(known, depth, np.inf), 3)
    return np.where(known & (high < (1 + _STEP) * low), depth, 0).astype(np.float32)


def bias_precision(frame: Observation | None, config: CoarseConfig) -> Float64[np.ndarray, "c c"]:
    """How firmly the unknowns of a frame's depth map are held to zero: its scale hardly, each Gaussian of its bias by
    ``config.bias``; the scale alone without a map."""
    out = np.eye(1 if frame is None else len(frame.bias_centres) + 1) / config.bias**2
    out[0, 0] = _SCALE_PRECISION
    return out


@dataclass
class Problem:
    """What stays the same over the clip: rig, surface, camera, configuration, and which unknowns may move."""

    rig: FitRig
    surface: Surface
    camera: Camera
    config: CoarseConfig
    rng: np.random.Generator
    below: np.ndarray = field(init=False)
    active: np.ndarray = field(init=False)
    size: float = field(init=False)
    pixel: float = field(init=False)
    bones: np.ndarray = field(init=False)
    mean_rows: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        j = len(self.rig)
        self.below, self.size = self.rig.descendants(), self.surface.size
        self.pixel = max(self.camera.width, self.camera.height) / 256
        self.active = np.concatenate([np.repeat(~self.rig.still, 3), np.repeat(self.rig.loose, 3)])
        self.active[3 * j : 3 * j + 3] = True
        self.bones = self.surface.skin.weights.argmax(axis=1)
        self.mean_rows = self.rng.choice(len(self.surface.points), min(400, len(self.surface.points)), replace=False)

    def pick(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Some rows, more from bones with few, so that thin limbs keep a voice."""
        if len(rows) <= count:
            return rows
        share = np.bincount(self.bones[rows], minlength=len(self.rig))[self.bones[rows]] ** -0.5
        return self.rng.choice(rows, count, replace=False, p=share / share.sum())


@dataclass(frozen=True)
class State:
    """A pose carried out: the joints' maps, posed points and their unit normals, and what the camera sees."""

    pose: JointPose
    maps: np.ndarray
    points: np.ndarray
    normals: np.ndarray
    seen: Seen


def state_of(problem: Problem, pose: JointPose) -> State:
    """Pose the surface and look at it."""
    maps = transforms(problem.rig, pose)
    points, linear = skinned(problem.surface.points, problem.surface.skin, maps)
    normals = np.einsum("nab,nb->na", linear, problem.surface.normals)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    return State(pose, maps, points, normals, see(problem.camera, points, problem.size))


def _point_rows(problem: Problem, state: State, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dx'/dstep and d(pixel, z)/dstep of surface rows."""
    surface = problem.surface
    world = jacobian(problem.rig, problem.below, surface.points[rows], surface.skin[rows], state.maps)
    return world, project_jacobian(problem.camera, state.points[rows]) @ world


def depth_scale(state: State, frame: Observation) -> float:
    """The median ratio of the visible surface's depth to the map's; 1 where they share nothing."""
    rows = np.flatnonzero(state.seen.visible)
    values = frame.depth_at(state.seen.pixels[rows])
    known = values > 0
    return float(np.median(state.seen.z[rows][known] / values[known])) if known.any() else 1.0


def add_targets(
    equations: NormalEquations, problem: Problem, state: State, frame: Observation, targets: Targets, widen: float
) -> None:
    """Flow targets in the picture, and the depth found at them."""
    c, rows = problem.config, targets.rows
    if not len(rows):
        return
    _, image = _point_rows(problem, state, rows)
    residual = state.seen.pixels[rows] - targets.pixels
    size = np.linalg.norm(residual, axis=1)
    trust = geman_mcclure(size, c.flow_cut_px * problem.pixel * widen) * c.votes / len(rows)
    weight = trust / (c.flow_px * problem.pixel) ** 2
    equations.add(image[:, :2].reshape(-1, image.shape[2]), residual.ravel(), np.repeat(weight, 2))
    values = frame.depth_at(targets.pixels)
    if not values.any():
        return
    lifted = values * depth_scale(state, frame)
    off = state.seen.z[rows] - lifted
    robust = np.where(values > 0, geman_mcclure(off, c.depth_cut * problem.size * widen), 0.0)
    weight = robust * trust / (c.depth * problem.size) ** 2
    equations.add(image[:, 2], off, weight, -lifted[:, None] * frame.bias(targets.pixels))


def add_depth(equations: NormalEquations, problem: Problem, state: State, frame: Observation, widen: float) -> None:
    """Visible surface against the lifted map, point to plane."""
    c, seen = problem.config, state.seen
    rows = np.flatnonzero(seen.visible & (frame.depth_at(seen.pixels) > 0))
    if not len(rows):
        return
    rows = problem.pick(rows, c.targets // 2)
    world, _ = _point_rows(problem, state, rows)
    lifted = frame.depth_at(seen.pixels[rows]) * depth_scale(state, frame)
    places = lift(problem.camera, seen.pixels[rows], lifted)
    normals = state.normals[rows]
    sight = state.points[rows] - problem.camera.position
    facing = np.abs((normals * sight).sum(axis=1)) / np.linalg.norm(sight, axis=1)
    residual = (normals * (state.points[rows] - places)).sum(axis=1)
    robust = (facing > 0.25) * geman_mcclure(seen.z[rows] - lifted, c.depth_cut * problem.size * widen)
    weight = robust / (c.depth * problem.size) ** 2 * c.votes / len(rows)
    along = (normals * (places - problem.camera.position)).sum(axis=1)
    rows_of_pose = np.einsum("na,nap->np", normals, world)
    equations.add(rows_of_pose, residual, weight, -along[:, None] * frame.bias(seen.pixels[rows]))


def add_outline(equations: NormalEquations, problem: Problem, state: State, frame: Observation, widen: float) -> None:
    """Silhouettes both ways: surface outside the mask comes in, mask without surface draws the nearest of it."""
    c = problem.config
    rows, pixels = _outside(problem, state, frame)
    more_rows, more_pixels = _uncovered(problem, state, frame)
    for these, targets in ((rows, pixels), (more_rows, more_pixels)):
        if not len(these):
            continue
        _, image = _point_rows(problem, state, these)
        residual = state.seen.pixels[these] - targets
        size = np.linalg.norm(residual, axis=1)
        weight = geman_mcclure(size, c.outline_cut_px * problem.pixel * widen) / (c.outline_px * problem.pixel) ** 2
        equations.add(image[:, :2].reshape(-1, image.shape[2]), residual.ravel(), np.repeat(weight, 2) * c.votes / 1000)


def _outside(problem: Problem, state: State, frame: Observation) -> tuple[np.ndarray, np.ndarray]:
    count = len(problem.surface.points)
    rows = problem.rng.choice(count, min(3000, count), replace=False)
    height, width = frame.mask.shape
    cell = np.floor(np.clip(state.seen.pixels[rows], -1e6, 1e6)).astype(np.int64)
    x, y = cell[:, 0].clip(0, width - 1), cell[:, 1].clip(0, height - 1)
    away = frame.distance[y, x]
    slack = problem.config.outline_slack_px
    out = away > max(slack, 0.8)
    edge = frame.nearest[y[out], x[out]]
    back = (state.seen.pixels[rows[out]] - edge) * (slack / away[out])[:, None]
    return rows[out], edge + back


def _uncovered(problem: Problem, state: State, frame: Observation) -> tuple[np.ndarray, np.ndarray]:
    from scipy.spatial import cKDTree

    cv2: Any = require("cv2", extra="captures")
    seen = state.seen
    covered = cv2.dilate(np.isfinite(seen.nearest).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    y, x = np.nonzero(frame.mask & ~covered)
    if len(x) <= 5:
        return np.empty(0, np.int64), np.empty((0, 2))
    some = problem.rng.choice(len(x), min(400, len(x)), replace=False)
    pixels = np.stack([x[some], y[some]], axis=1) + 0.5
    values = frame.depth_at(pixels)
    middle = float(np.median(seen.z))
    depth = np.where(values > 0, values * depth_scale(state, frame), middle)
    per_depth = 0.5 * problem.camera.fx / middle  # how much a step in depth counts against one in the picture
    tree = cKDTree(np.column_stack([seen.pixels, per_depth * seen.z]))
    return tree.query(np.column_stack([pixels, per_depth * depth]))[1].astype(np.int64), pixels


def add_priors(
    equations: NormalEquations, problem: Problem, state: State, predicted: JointPose | None, travel: float
) -> None:
    """Turns near the prediction (if any) and rest, the root near its prediction, the body where it was in depth.

    ``travel``: how far the subject has moved across the picture since the first frame [world]. One view hardly shows
    depth, so a subject that stays in place in the picture is taken to stay in depth as well.
    """
    c, j, size = problem.config, len(problem.rig), problem.size
    turns, shifts = np.arange(3 * j), np.arange(3 * j, 6 * j)
    pose = state.pose
    equations.hold(turns, log_rotations(pose.rotations).ravel(), 1 / c.rest**2)
    loose = np.where(problem.rig.loose, c.loose * size, 1.0)
    loose[0] = size
    equations.hold(shifts, pose.translations.ravel(), np.repeat(1 / loose**2, 3))
    forward = problem.camera.T_camera_world[2, :3]
    root = slice(3 * j, 3 * j + 3)
    free = 0.5 * travel
    if predicted is not None:
        apart = log_rotations(pose.rotations @ predicted.rotations.transpose(0, 2, 1)).ravel()
        equations.hold(turns, apart, 1 / c.predicted**2)
        hold = np.eye(3) / (c.root * size + free) ** 2 + np.outer(forward, forward) / (c.root_depth * size) ** 2
        equations.matrix[root, root] += hold
        equations.right[root] -= hold @ (pose.translations[0] - predicted.translations[0])
    home = np.outer(forward, forward) / (c.home * size + free) ** 2
    equations.matrix[root, root] += home
    equations.right[root] -= home @ pose.translations[0]
    rows = problem.mean_rows
    world, _ = _point_rows(problem, state, rows)
    mean = forward @ world.mean(axis=0)
    moved = float(forward @ (state.points[rows] - problem.surface.points[rows]).mean(axis=0))
    equations.add(mean[None], np.array([moved]), np.array([1 / (c.in_place * size + free) ** 2]))
