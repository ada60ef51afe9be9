"""Lost limbs: partners and mirrored turns, the cost against brute force, and a leg in the wrong place found again."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from rigpapr.binding import FitRig
from rigpapr.coarse_kinematics import JointPose, exp_rotations, log_rotations, rest_pose, skinned, transforms
from rigpapr.coarse_limbs import Judge, Limb, LimbCosts, LimbSearch, limbs_of, proposals, starts
from rigpapr.coarse_terms import CoarseConfig, Observation, Problem, observe, state_of
from rigpapr.coarse_tracker import Tracker
from rigpapr.coarse_view import Surface, project
from rigpapr.direct import Aligner
from rigpapr.two_phase import TwoPhaseConfig, start_fit
from splatanim.render.camera import look_at
from splatanim.rig.weights import sparse_weights
from tests.rigpapr import creatures
from tests.rigpapr.test_two_phase import clip_of, cloud_on

# A trunk along x, legs at z = 0.15 and -0.15 with knees, and a tail of three joints, of which one is loose, one still.
NAMES = ("trunk", "left", "left knee", "right", "right knee", "fore", "fore knee", "tail", "tip", "end")
PARENTS = (-1, 0, 1, 0, 3, 0, 5, 0, 7, 8)
JOINTS = np.array(
    [
        *([-0.4, 0, 0], [-0.3, 0, 0.15], [-0.3, -0.3, 0.15], [-0.3, 0, -0.15], [-0.3, -0.3, -0.15]),
        *([0.3, 0, 0.15], [0.2, -0.28, 0.15], [-0.5, 0.1, 0], [-0.7, 0.1, 0], [-0.85, 0.1, 0]),
    ]
)
ENDS = JOINTS + np.array(
    [[0.9, 0, 0], *[[0.0, -0.3, 0]] * 4, [-0.1, -0.28, 0], [0.0, -0.3, 0], [-0.2, 0, 0], [-0.15, 0, 0], [-0.15, 0, 0]],
    float,
)
SHARES = (0.42, 0.08, 0.07, 0.08, 0.07, 0.08, 0.07, 0.06, 0.04, 0.03)
THICK = (0.17, *[0.06] * 9)


@cache
def beast(count: int = 8000) -> tuple[FitRig, Surface]:
    rng = np.random.default_rng(0)
    part = rng.choice(len(SHARES), count, p=SHARES)
    axis = ENDS[part] - JOINTS[part]
    length = np.linalg.norm(axis, axis=1, keepdims=True)
    around = np.cross(axis / length, rng.normal(size=(count, 3)))
    normals = around / np.linalg.norm(around, axis=1, keepdims=True)
    points = JOINTS[part] + rng.uniform(0, 1, (count, 1)) * axis + np.array(THICK)[part, None] * normals
    waves = np.sin(points @ rng.normal(size=(3, 12)) * 12)
    colours = 128 + 90 * np.tanh(waves @ rng.normal(size=(12, 3)) / 2 + 0.3 * rng.normal(size=(10, 3))[part])
    loose, still = np.arange(10) == 7, np.arange(10) == 8
    weights = sparse_weights(np.eye(10)[part], 1)
    rig = FitRig(NAMES, PARENTS, JOINTS, loose, still, points, weights)
    return rig, Surface(points, normals, colours, rig.skin(points))


def shot(size: int = 128):
    return look_at((0.5, 0.4, 3.0), (-0.1, -0.15, 0), (0, 1, 0), width=size, height=size, fov_y_degrees=36)


def problem_of() -> Problem:
    rig, surface = beast()
    return Problem(rig, surface, shot(), CoarseConfig(), np.random.default_rng(0))


def turned(**turns: tuple[float, float, float]) -> JointPose:
    """Rest but for some joints' rotation vectors."""
    vectors = np.zeros((10, 3))
    for name, vector in turns.items():
        vectors[NAMES.index(name.replace("_", " "))] = vector
    return JointPose(exp_rotations(vectors), np.zeros((10, 3)))


TRUTH = turned(trunk=(0, 0.1, 0.05), left=(0.1, 0, 0.5), left_knee=(0, 0, -0.4), right=(0, 0, -0.4))


def scene(pose: JointPose = TRUTH) -> tuple[Problem, Judge, np.ndarray]:
    """The judge of a frame that shows the beast in a pose, and the true depth."""
    problem = problem_of()
    rig, surface = beast()
    clip, depth = creatures.film(rig, surface, [pose], shot())
    judge = Judge(problem, observe(clip.masks[0], depth[0], problem.config), clip.over_grey(0))
    judge.calibrate(state_of(problem, pose))
    return problem, judge, depth[0] / 0.4


def limb_named(problem: Problem, name: str) -> Limb:
    return next(limb for limb in limbs_of(problem) if limb.joints[0] == NAMES.index(name))


def whole(judge: Judge, pose: JointPose) -> float:
    surface = judge.problem.surface
    points = skinned(surface.points, surface.skin, transforms(judge.problem.rig, pose))[0]
    return judge.cost(*judge.layer(points, np.arange(len(points))))


def test_limbs_their_partners_and_mirrored_turns() -> None:
    problem = problem_of()
    limbs = {NAMES[limb.joints[0]]: limb for limb in limbs_of(problem)}
    assert set(limbs) == {"left", "right", "fore", "end"}
    left, right = limbs["left"], limbs["right"]
    assert left.joints == (1, 2) and left.mirrored == (3, 4) and right.mirrored == (1, 2)
    assert left.others == () and limbs["fore"].mirrored == () and limbs["fore"].normal is None
    assert left.normal is not None
    np.testing.assert_allclose(np.abs(left.normal), [0, 0, 1], atol=1e-12)
    np.testing.assert_array_equal(left.rows, np.flatnonzero(np.isin(problem.bones, [1, 2])))
    # the right leg posed by the left one's mirrored turns is the mirror image of the left one
    pose = turned(left=(0.4, -0.2, 0.6), left_knee=(0.3, 0.1, -0.7))
    rotations = pose.rotations.copy()
    rotations[list(right.joints)] = right.from_partner(pose)
    posed = JointPose(rotations, pose.translations)
    points = problem.surface.points[left.rows]
    skin = problem.surface.skin[left.rows]
    flip = np.array([1.0, 1.0, -1.0])
    partner = dataclasses.replace(skin, weights=skin.weights[:, [0, 3, 4, 1, 2, 5, 6, 7, 8, 9]])
    maps = transforms(problem.rig, posed)
    np.testing.assert_allclose(
        skinned(points * flip, partner, maps)[0], skinned(points, skin, maps)[0] * flip, atol=1e-12
    )
    assert np.abs(skinned(points, skin, maps)[0] - points).max() > 0.2


def test_joints_that_shift_or_never_turn_follow() -> None:
    tail = [limb for limb in limbs_of(problem_of()) if 9 in (*limb.joints, *limb.others)]
    assert len(tail) == 1
    assert tail[0].joints == (9,) and tail[0].others == (7, 8)  # the loose one and the still one are not tried


def test_a_layer_is_a_z_buffer() -> None:
    problem, judge, _ = scene()
    rng = np.random.default_rng(1)
    points = problem.surface.points[rng.choice(8000, 900, replace=False)] * rng.uniform(0.8, 2.5, (900, 1))
    rows = rng.permutation(8000)[:900]
    nearest, row = judge.layer(points, rows)
    pixels, z = project(problem.camera, points)
    expected, owner = np.full((128, 128), np.inf), np.zeros((128, 128), int)
    for (x, y), depth, which in zip(pixels, z, rows, strict=True):
        if 0 <= x < 128 and 0 <= y < 128 and 0 < depth < expected[int(y), int(x)]:
            expected[int(y), int(x)], owner[int(y), int(x)] = depth, which
    np.testing.assert_array_equal(nearest.reshape(128, 128), expected)
    np.testing.assert_array_equal(row.reshape(128, 128), owner)
    outside = ((pixels < 0) | (pixels >= 128)).any(axis=1)
    assert outside.sum() > 20 and np.isfinite(expected).sum() > 300
    behind = problem.camera.position + (problem.camera.position - points)
    assert not np.isfinite(judge.layer(behind, rows)[0]).any()


def test_the_true_pose_costs_least() -> None:
    problem, judge, _ = scene()
    rng = np.random.default_rng(2)
    least = whole(judge, TRUTH)
    for name in ("left", "right", "fore"):
        joints = list(limb_named(problem, name).joints)
        for angle in (0.15, 0.5, 1.2):
            for _ in range(4):
                axis = rng.normal(size=3)
                rotations = TRUTH.rotations.copy()
                step = exp_rotations(angle * axis[None] / np.linalg.norm(axis))[0]
                rotations[joints[0]] = step @ rotations[joints[0]]
                assert whole(judge, JointPose(rotations, TRUTH.translations)) > least
    nothing = judge.cost(np.full(128 * 128, np.inf), np.zeros(128 * 128, np.int64))
    assert nothing > 4 * least


def test_calibration_recovers_scale_and_smooth_bias() -> None:
    problem, judge, true = scene()
    known = true > 0
    y, x = np.mgrid[:128, :128] / 128 - 0.5
    bias = 1 + 0.01 * x - 0.008 * y
    maps = np.where(known, true * 0.037 * bias, 0).astype(np.float32)
    frame = observe(judge.frame.mask, maps, problem.config)
    found = Judge(problem, frame, judge.picture)
    assert found.depth is None
    found.calibrate(state_of(problem, TRUTH))
    assert found.depth is not None
    taken = found.depth > 0
    np.testing.assert_array_equal(taken, frame.depth > 0)
    off = np.abs(found.depth - true)[taken]
    assert np.median(off) < 0.003 * problem.size
    scaled = np.abs(maps / np.median((maps / np.maximum(true, 1e-9))[known]) - true)[taken]
    assert off.mean() < 0.4 * scaled.mean()  # against the scale alone
    without = Judge(problem, dataclasses.replace(frame, depth=None), judge.picture)
    without.calibrate(state_of(problem, TRUTH))
    assert without.depth is None and whole(without, TRUTH) < whole(found, TRUTH)  # one term less


@pytest.mark.parametrize("name", ["left", "right", "fore"])
def test_a_limbs_cost_is_that_of_the_whole_drawing(name: str) -> None:
    problem, judge, _ = scene()
    limb = limb_named(problem, name)
    for pose in (TRUTH, rest_pose(10)):
        cost = LimbCosts(judge, limb, pose)
        turns = pose.rotations[list(limb.joints)]
        assert cost(turns) == pytest.approx(whole(judge, pose), abs=1e-12)
        other = exp_rotations(np.array([[0.2, 0.1, 0.7], [0.0, 0.0, -0.5]])) @ turns
        assert cost(other) == pytest.approx(whole(judge, cost.with_turns(other)), abs=1e-12)
        np.testing.assert_array_equal(cost.with_turns(turns).rotations, pose.rotations)


def test_what_hangs_on_a_lost_limb_goes_back_to_rest_where_that_fits() -> None:
    problem, judge, _ = scene(rest_pose(10))
    tail = next(limb for limb in limbs_of(problem) if 7 in limb.others)
    bent = turned(tail=(0, 0, 1.0), tip=(0, 0.5, 0.5))
    cost = LimbCosts(judge, tail, bent)
    assert cost.at_rest
    back = cost.with_turns(bent.rotations[list(tail.joints)])
    np.testing.assert_array_equal(back.rotations[[7, 8]], rest_pose(2).rotations)
    fits = LimbCosts(judge, tail, rest_pose(10))
    assert not fits.at_rest


def lost(problem: Problem, name: str, degrees: float) -> JointPose:
    """TRUTH with a limb swung about the line of sight."""
    forward = problem.camera.T_camera_world[2, :3]
    at, rotations = NAMES.index(name), TRUTH.rotations.copy()
    rotations[at] = exp_rotations(np.radians(degrees) * forward[None])[0] @ rotations[at]
    return JointPose(rotations, TRUTH.translations)


def angles(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return np.degrees(np.linalg.norm(log_rotations(one @ two.transpose(0, 2, 1)), axis=1))


@pytest.mark.parametrize(("name", "degrees"), [("left", 60), ("left", -60), ("fore", 60), ("right", -60)])
def test_a_lost_limb_is_among_the_proposals(name: str, degrees: float) -> None:
    problem, judge, _ = scene()
    limb, pose = limb_named(problem, name), lost(problem, name, degrees)
    found = proposals(judge, limb, pose, [rest_pose(10), pose], np.random.default_rng(0))
    joints = list(limb.joints)
    assert min(angles(p.rotations[joints], TRUTH.rotations[joints])[0] for _, p in found) < 20
    assert found[0][0] < 0 and found == sorted(found, key=lambda item: item[0])
    others = np.setdiff1d(np.arange(10), [*joints, *limb.others])
    for k, (_, proposed) in enumerate(found):
        np.testing.assert_array_equal(proposed.rotations[others], pose.rotations[others])
        assert angles(proposed.rotations[joints], pose.rotations[joints]).max() > np.degrees(0.25)
        for _, other in found[:k]:
            assert angles(proposed.rotations[joints], other.rotations[joints]).max() > np.degrees(0.5)
    again = proposals(judge, limb, pose, [rest_pose(10), pose], np.random.default_rng(0))
    for (gain, one), (same, two) in zip(found, again, strict=True):
        assert gain == same
        np.testing.assert_array_equal(one.rotations, two.rotations)


def test_what_is_known_of_a_limb_is_tried_first() -> None:
    problem = problem_of()
    right, forward = limb_named(problem, "right"), problem.camera.T_camera_world[2, :3]
    joints, before = list(right.joints), [rest_pose(10), TRUTH]
    expected = turned(right=(0, 0, 0.3)).rotations[joints]
    tried = starts(right, lost(problem, "right", 60), before, expected, forward)
    np.testing.assert_array_equal(tried[0], lost(problem, "right", 60).rotations[joints])
    np.testing.assert_array_equal(tried[1], expected)
    np.testing.assert_array_equal(tried[2], TRUTH.rotations[joints])
    assert any(np.abs(turns - right.from_partner(TRUTH)).max() < 1e-12 for turns in tried)
    fore = limb_named(problem, "fore")
    fewer = starts(fore, TRUTH, before, TRUTH.rotations[list(fore.joints)], forward)
    assert len(fewer) == 3 + 6 * 3 * 2 and len(tried) == 3 + 3 + 6 * 4 * 2


def test_the_search_never_makes_the_picture_worse() -> None:
    rig, surface = beast()
    cloud = cloud_on(beast(2000)[1])
    view = shot(64)
    clip, depth = clip_of(cloud, [rest_pose(10), TRUTH], rig, shot=view)
    fit = start_fit(cloud, rig, clip, motion=None, depth=depth, config=TwoPhaseConfig(direct=True))
    aligner = Aligner(fit)
    search = LimbSearch(Tracker(rig, surface, clip, depth), aligner)
    assert [limb.joints[0] for limb in search.limbs][:3] == [1, 3, 5]
    stuck, error = aligner.aligned(1, lost(search.tracker.problem, "left", 75))
    true = aligner.error(aligner.draw(TRUTH)[1], 1)
    found, less = search.better(1, stuck, error, [rest_pose(10)])
    assert less <= error and less == pytest.approx(aligner.error(aligner.draw(found)[1], 1), abs=1e-7)
    assert error > 5 * true and less < 0.3 * error  # the leg was lost, and is found
    same, kept = search.better(1, TRUTH, 0.0, [rest_pose(10)])
    assert same is TRUTH and kept == 0.0  # nothing is better than no error
    assert isinstance(search.tracker.view(1).seen, Observation)
