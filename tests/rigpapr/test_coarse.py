"""The coarse tracker: derivatives by finite differences, elimination against the full system, a known motion found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rigpapr.binding import joint_transforms, weight_logits
from rigpapr.coarse_equations import NormalEquations, geman_mcclure
from rigpapr.coarse_kinematics import (
    JointPose,
    exp_rotations,
    jacobian,
    log_rotations,
    rest_pose,
    skinned,
    transforms,
)
from rigpapr.coarse_smooth import smoothed
from rigpapr.coarse_surface import outward
from rigpapr.coarse_terms import CoarseConfig, Problem, Targets, add_priors, add_targets, observe, state_of
from rigpapr.coarse_tracker import RigMotion, Tracker, predict
from rigpapr.coarse_view import lift, project, project_jacobian, recoloured, see
from rigpapr.skin import rig_mesh
from splatanim.errors import InputError
from splatanim.render.camera import look_at
from tests.rigpapr import creatures


def some_pose(seed: int = 1) -> JointPose:
    rng = np.random.default_rng(seed)
    return JointPose(exp_rotations(0.5 * rng.normal(size=(4, 3))), 0.1 * rng.normal(size=(4, 3)))


def test_transforms_are_those_of_torch() -> None:
    rig, _ = creatures.creature(500)
    pose = some_pose()
    turned, shifted = torch.from_numpy(pose.rotations), torch.from_numpy(pose.translations)
    other = joint_transforms(rig.parents, torch.from_numpy(rig.joints), turned, shifted)
    np.testing.assert_allclose(transforms(rig, pose), other[:, :3].numpy(), atol=1e-12)


def test_point_jacobian_by_finite_differences() -> None:
    rig, surface = creatures.creature(500)
    pose, below = some_pose(), rig.descendants()
    rows = np.arange(0, 500, 60)
    points, skin = surface.points[rows], surface.skin[rows]
    exact = jacobian(rig, below, points, skin, transforms(rig, pose))
    step = 1e-6
    for unknown in range(24):
        change = np.zeros(24)
        change[unknown] = step
        ahead = skinned(points, skin, transforms(rig, pose.stepped(change)))[0]
        back = skinned(points, skin, transforms(rig, pose.stepped(-change)))[0]
        np.testing.assert_allclose(exact[:, :, unknown], (ahead - back) / (2 * step), atol=1e-7)
    assert np.abs(exact).max() > 0.1


def test_projection_jacobian_and_lift() -> None:
    shot = creatures.camera()
    points = np.random.default_rng(0).normal(size=(6, 3)) * 0.3
    exact = project_jacobian(shot, points)
    for axis in range(3):
        change = np.eye(3)[axis] * 1e-6
        (a, za), (b, zb) = project(shot, points + change), project(shot, points - change)
        numeric = np.column_stack([a - b, za - zb]) / 2e-6
        np.testing.assert_allclose(exact[:, :, axis], numeric, atol=1e-5)
    pixels, z = project(shot, points)
    np.testing.assert_allclose(lift(shot, pixels, z), points, atol=1e-12)


def test_elimination_solves_the_full_system() -> None:
    rng = np.random.default_rng(0)
    j, b, r, w = rng.normal(size=(30, 5)), rng.normal(size=(30, 3)), rng.normal(size=30), rng.uniform(0.5, 2, 30)
    prior = np.diag([0.1, 2.0, 3.0])
    equations = NormalEquations(5, prior)
    equations.add(j, r, w, b)
    matrix, right = equations.reduced()
    both = np.column_stack([j, b])
    full = (both * w[:, None]).T @ both
    full[5:, 5:] += prior
    expected = np.linalg.solve(full, -(both * w[:, None]).T @ r)[:5]
    np.testing.assert_allclose(np.linalg.solve(matrix, right), expected, atol=1e-12)


def energy(problem: Problem, pose: JointPose, targets: Targets, predicted: JointPose) -> float:
    """Flow and prior terms written as one sum of squares with weights of one (outliers far away)."""
    c, state = problem.config, state_of(problem, pose)
    flow = ((state.seen.pixels[targets.rows] - targets.pixels) ** 2).sum()
    total = flow * c.votes / len(targets.rows) / (c.flow_px * problem.pixel) ** 2
    total += (log_rotations(pose.rotations) ** 2).sum() / c.rest**2
    total += (log_rotations(pose.rotations @ predicted.rotations.transpose(0, 2, 1)) ** 2).sum() / c.predicted**2
    loose = np.where(problem.rig.loose, c.loose * problem.size, 1.0)
    loose[0] = problem.size
    total += (pose.translations**2 / loose[:, None] ** 2).sum()
    forward = problem.camera.T_camera_world[2, :3]
    off = pose.translations[0] - predicted.translations[0]
    total += (off @ off) / (c.root * problem.size) ** 2 + (forward @ off) ** 2 / (c.root_depth * problem.size) ** 2
    total += (forward @ pose.translations[0]) ** 2 / (c.home * problem.size) ** 2
    rows = problem.mean_rows
    mean = forward @ (state.points[rows] - problem.surface.points[rows]).mean(axis=0)
    return 0.5 * (total + mean**2 / (c.in_place * problem.size) ** 2)


def test_normal_equations_are_the_gradient_of_their_energy() -> None:
    rig, surface = creatures.creature(2000)
    config = CoarseConfig(flow_cut_px=1e9)
    problem = Problem(rig, surface, creatures.camera(), config, np.random.default_rng(0))
    rng = np.random.default_rng(3)
    pose = JointPose(exp_rotations(1e-5 * rng.normal(size=(4, 3))), 0.05 * rng.normal(size=(4, 3)))
    predicted = JointPose(exp_rotations(2e-5 * rng.normal(size=(4, 3))), np.zeros((4, 3)))
    state = state_of(problem, pose)
    rows = np.flatnonzero(state.seen.visible)[:40].astype(np.int64)
    targets = Targets(rows, state.seen.pixels[rows] + rng.normal(size=(40, 2)))
    frame = observe(np.ones((128, 128), bool), None, config)
    equations = NormalEquations(24, np.eye(len(frame.bias_centres) + 1))
    add_targets(equations, problem, state, frame, targets, 1.0)
    add_priors(equations, problem, state, predicted, 0.0)
    for unknown in range(24):
        change = np.zeros(24)
        change[unknown] = 1e-6
        ahead = energy(problem, pose.stepped(change), targets, predicted)
        back = energy(problem, pose.stepped(-change), targets, predicted)
        numeric = -(ahead - back) / 2e-6
        assert equations.right[unknown] == pytest.approx(numeric, rel=2e-3, abs=2.0)
    assert np.abs(equations.right).max() > 100


def test_a_known_motion_is_found() -> None:
    rig, surface = creatures.creature()
    truth = creatures.motion(6)
    clip, depth = creatures.film(rig, surface, truth, creatures.camera())
    errors, still = [], []
    found = Tracker(rig, surface, clip, depth, config=CoarseConfig()).track()
    for frame in range(1, 6):
        target, _ = skinned(surface.points, surface.skin, transforms(rig, truth[frame]))
        moved, _ = skinned(surface.points, surface.skin, transforms(rig, found.pose(frame)))
        errors.append(np.linalg.norm(moved - target, axis=1).mean())
        still.append(np.linalg.norm(surface.points - target, axis=1).mean())
    assert max(errors) < 0.015 and np.mean(errors) < 0.2 * np.mean(still)
    np.testing.assert_array_equal(found.rotations[0], np.tile(np.eye(3), (4, 1, 1)))
    again = Tracker(rig, surface, clip, depth, config=CoarseConfig()).track()
    np.testing.assert_array_equal(found.rotations, again.rotations)


def test_the_whole_clip_at_once_solves_the_dense_system() -> None:
    rig, surface = creatures.creature(500)
    problem = Problem(rig, surface, creatures.camera(), CoarseConfig(), np.random.default_rng(0))
    active = np.flatnonzero(problem.active)
    rng = np.random.default_rng(1)
    poses = [rest_pose(4)] + [some_pose(k) for k in (1, 2, 3, 4)]
    systems = []
    for _ in range(4):
        root = rng.normal(size=(24, 24))
        systems.append((1e4 * root @ root.T, 1e3 * rng.normal(size=24)))
    found = smoothed(problem, poses, systems)
    steps = dense_steps(
        Problem(rig, surface, creatures.camera(), CoarseConfig(), np.random.default_rng(0)), poses, systems
    )
    for pose, step, after in zip(poses[1:], steps, found[1:], strict=True):
        full = np.zeros(24)
        full[active] = step
        np.testing.assert_allclose(after.rotations, pose.stepped(full).rotations, atol=1e-8)
        np.testing.assert_allclose(after.translations, pose.stepped(full).translations, atol=1e-8)
    assert np.abs(steps).max() > 1e-3
    np.testing.assert_array_equal(found[0].rotations, poses[0].rotations)


def dense_steps(problem: Problem, poses: list[JointPose], systems: list) -> np.ndarray:
    """The steps by one stacked least-squares matrix."""
    active = np.flatnonzero(problem.active)
    count, rows = len(active), problem.pick(np.arange(len(problem.surface.points)), 250)
    points, skin = problem.surface.points[rows], problem.surface.skin[rows]
    places = [skinned(points, skin, transforms(problem.rig, p))[0].ravel() for p in poses]
    slopes = [
        jacobian(problem.rig, problem.below, points, skin, transforms(problem.rig, p)).reshape(-1, 24)[:, active]
        for p in poses
    ]
    matrix, right = np.zeros((4 * count, 4 * count)), np.zeros(4 * count)
    for k, (block, pull) in enumerate(systems):
        part, at = block[np.ix_(active, active)], slice(k * count, (k + 1) * count)
        matrix[at, at] += part + np.diag(problem.config.damping * np.diag(part) + 1.0)
        right[at] += pull[active]
    weight = len(problem.rig) / (len(rows) * (problem.config.jerk * problem.size) ** 2)
    for k in (1, 2, 3):
        wide = np.zeros((len(places[0]), 4 * count))
        for frame, share in ((k - 1, 1.0), (k, -2.0), (k + 1, 1.0)):
            if frame:
                wide[:, (frame - 1) * count : frame * count] = share * slopes[frame]
        matrix += weight * wide.T @ wide
        right -= weight * wide.T @ (places[k - 1] - 2 * places[k] + places[k + 1])
    return np.linalg.solve(matrix, right).reshape(4, count)


def test_a_surface_below_the_outlines_moves_out_to_them() -> None:
    rng = np.random.default_rng(0)
    normals = rng.normal(size=(3000, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    shots = [look_at(3 * d, (0, 0, 0), (0, 1, 0.1), width=200, height=200, fov_y_degrees=30) for d in normals[:16]]
    masks = []
    for shot in shots:  # silhouettes of a ball of radius 0.5
        y, x = np.mgrid[:200, :200] + 0.5
        away = np.hypot((x - shot.cx) / shot.fx, (y - shot.cy) / shot.fy)
        masks.append(np.sin(np.arctan(away)) * 3 < 0.5)
    noisy = normals + 0.3 * rng.normal(size=normals.shape)
    noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
    places, facing = outward(0.48 * normals, noisy, masks, shots)
    assert np.linalg.norm(places, axis=1).mean() == pytest.approx(0.5, abs=0.006)
    assert (facing * normals).sum(axis=1).mean() > (noisy * normals).sum(axis=1).mean() + 0.02


def test_the_first_picture_gives_its_colours_where_it_shows_the_surface() -> None:
    rig, surface = creatures.creature(20_000)
    clip, _ = creatures.film(rig, surface, creatures.motion(2), creatures.camera())
    picture = np.full_like(clip.rgb[0], 7)
    painted = recoloured(surface, clip.camera, picture, clip.masks[0])
    seen = see(clip.camera, surface.points, surface.size).visible
    np.testing.assert_array_equal(painted.colours[~seen], surface.colours[~seen])
    assert (np.abs(painted.colours - 7).max(axis=1) < 1e-4)[seen].mean() > 0.5


def test_points_follow_the_shell_that_they_lie_below() -> None:
    # two closed shells that run into each other: a wide one on joint 2, and the end of one on joint 3 hidden inside it
    rig, _ = creatures.creature(200)
    wide, thin = box((-0.5, -0.5, -0.5), (0.5, 0.5, 0.5)), box((-0.2, 0.2, -0.2), (0.2, 1.2, 0.2))
    vertices = np.concatenate([wide[0], thin[0]])
    weights = np.repeat(np.eye(4)[[2, 3]], 8, axis=0)
    mesh = rig_mesh(vertices, np.concatenate([wide[1], thin[1] + 8]), weights, np.tile(np.eye(3, 4), (4, 1, 1)))
    split = dataclasses.replace(rig, mesh=mesh)
    below_wide = np.array([[0.3, 0.48, 0.0], [0.48, -0.2, 0.1]])
    below_thin = np.array([[0.0, 1.1, 0.18], [0.18, 0.8, 0.0]])
    np.testing.assert_allclose(split.skin(below_wide).weights, [[0, 0, 1, 0]] * 2, atol=1e-9)
    np.testing.assert_allclose(split.skin(below_thin).weights, [[0, 0, 0, 1]] * 2, atol=1e-9)
    # nearer to the thin shell's side, but outside of it and below the wide one's top
    np.testing.assert_allclose(split.skin(np.array([[0.21, 0.47, 0.0]])).weights, [[0, 0, 1, 0]], atol=1e-9)
    assert np.abs(rig.skin(below_wide).moments).max() == 0 and split.weights(below_wide).shape == (2, 4)


def box(low: tuple[float, float, float], high: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """A closed box, faces outward."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    return np.array(low) + corners * (np.array(high) - np.array(low)), faces


def test_points_behind_others_are_hidden() -> None:
    shot = creatures.camera()
    front = np.stack([np.linspace(-0.2, 0.2, 200), np.zeros(200), np.zeros(200)], axis=1)
    behind = shot.position + (front - shot.position) * 1.5
    seen = see(shot, np.concatenate([front, behind]), 1.0)
    assert seen.visible[:200].all() and not seen.visible[200:].any()


def test_small_parts() -> None:
    first, second = some_pose(1), some_pose(2)
    assert predict([first], 0.5) is first
    run = predict([first, first], 0.5)
    np.testing.assert_allclose(run.rotations, first.rotations, atol=1e-12)
    limited = predict([first, second], 5.0)
    turn = log_rotations(limited.rotations @ second.rotations.transpose(0, 2, 1))
    assert np.linalg.norm(turn, axis=1).max() <= 0.5 + 1e-9
    assert geman_mcclure(np.array([0.0, 1.0]), 1.0).tolist() == [1.0, 0.25]
    weights = np.array([[0.25, 0.75, 0.0]])
    np.testing.assert_allclose(torch.softmax(weight_logits(weights), 1).numpy(), weights, atol=2e-4)


def test_errors() -> None:
    rig, surface = creatures.creature(2000)
    clip, _ = creatures.film(rig, surface, creatures.motion(3), creatures.camera())
    clip.masks[2] = False
    with pytest.raises(InputError, match=r"frame 2: the mask is empty: the subject has left. Cut the clip"):
        Tracker(rig, surface, clip, None, config=CoarseConfig(rounds=0, steps=1)).track()
    with pytest.raises(InputError, match="a turn or shift is NaN"):
        RigMotion(np.full((2, 4, 3, 3), np.nan), np.zeros((2, 4, 3)))
