"""Direct alignment: derivatives by finite differences, poses found again, the depth term alone, who owns a pixel."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rigpapr.coarse_kinematics import JointPose, exp_rotations, log_rotations, rest_pose
from rigpapr.coarse_tracker import Tracker
from rigpapr.direct import Aligner, DirectConfig, owners
from rigpapr.phase_one import phase_one, pose_of
from rigpapr.renderer import PaprRendering
from rigpapr.supervision import Clip
from rigpapr.two_phase import Fit, TwoPhaseConfig, start_fit
from rigpapr.two_phase_state import resume_fit, write_fit
from splatanim.errors import InputError
from splatanim.rig.weights import sparse_weights
from tests.rigpapr import creatures
from tests.rigpapr.test_two_phase import clip_of, cloud_of, cloud_on

DIRECT = TwoPhaseConfig(direct=True)
FRAMES = 6


@cache
def scene() -> tuple[Any, Any, Clip, np.ndarray]:
    """Cloud, rig, and its own pictures and depth under :func:`creatures.motion`, a scale for every map."""
    cloud, rig = cloud_of()
    clip, depth = clip_of(cloud, creatures.motion(FRAMES, 0.1), rig)
    return cloud, rig, clip, depth * np.linspace(0.4, 2.4, FRAMES, dtype=np.float32)[:, None, None]


def fit_of(*, depth: bool = False, clip: Clip | None = None) -> Fit:
    cloud, rig, shown, maps = scene()
    return start_fit(cloud, rig, clip or shown, motion=None, depth=maps if depth else None, config=DIRECT)


def jittered(pose: JointPose, seed: int, turn: float, shift: float = 0.0) -> JointPose:
    rng = np.random.default_rng(seed)
    moved = pose.translations.copy()
    moved[0] += shift * rng.normal(size=3)
    return JointPose(exp_rotations(turn * rng.normal(size=(4, 3))) @ pose.rotations, moved)


def apart(aligner: Aligner, pose: JointPose, truth: JointPose) -> float:
    """Mean distance of the points in two poses."""
    return float(np.linalg.norm(aligner.draw(pose)[0] - aligner.draw(truth)[0], axis=1).mean())


@pytest.mark.parametrize("blur", [0.6, 1.5])
def test_the_colour_term_is_the_fall_of_the_pictures_difference(blur: float) -> None:
    import cv2

    truth = creatures.motion(FRAMES, 0.1)[2]
    aligner = Aligner(fit_of(), DirectConfig(colour_cut=1e6))
    wanted = cv2.GaussianBlur(aligner.fit.clip.picture(2), (0, 0), blur)

    def half(pose: JointPose) -> float:
        drawn = cv2.GaussianBlur(aligner.draw(pose)[1].rgb, (0, 0), blur)
        return 0.5 * float(((drawn - wanted).astype(np.float64) ** 2).sum())

    pose = jittered(truth, 2, 0.03)
    equations = aligner.equations(2, None, pose, *aligner.draw(pose), None, blur)
    active, step = np.flatnonzero(aligner.active), 0.01
    fall = np.zeros(24)
    for unknown in active:
        change = np.eye(24)[unknown] * step
        fall[unknown] = (half(pose.stepped(-change)) - half(pose.stepped(change))) / (2 * step)
    c = aligner.config
    found = equations.right * c.colour**2 / c.votes * int(aligner.fit.clip.masks[2].sum())
    assert found[active] @ fall[active] > 0.97 * np.linalg.norm(found[active]) * np.linalg.norm(fall)
    large = np.abs(fall) > 0.3 * np.abs(fall).max()
    assert large.sum() >= 3 and np.abs(found[large] / fall[large] - 1).max() < 0.3
    # the matrix is that of Gauss-Newton: one step takes the larger part of the difference away
    assert half(pose.stepped(equations.solve(aligner.active, 1e-3))) < 0.3 * half(pose)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("depth", [False, True])
def test_a_known_pose_is_found_again(depth: bool, seed: int) -> None:
    truth = creatures.motion(FRAMES, 0.1)[3]
    aligner = Aligner(fit_of(depth=depth))
    given = jittered(truth, seed, 0.06, 0.015)
    found, error = aligner.aligned(3, given)
    assert apart(aligner, found, truth) < 0.25 * apart(aligner, given, truth)
    assert error == pytest.approx(aligner.error(aligner.draw(found)[1], 3), abs=1e-7)
    assert error < 0.25 * aligner.error(aligner.draw(given)[1], 3)


def test_no_picture_makes_it_worse() -> None:
    clip, rng = scene()[2], np.random.default_rng(0)
    rgb = clip.rgb.copy()
    rgb[1] = rng.integers(0, 255, rgb[1].shape)  # noise
    rgb[2] = np.roll(rgb[2], 20, axis=1)  # the subject elsewhere, where its mask is not
    rgb[3] = 255  # nothing
    aligner = Aligner(fit_of(clip=dataclasses.replace(clip, rgb=rgb)))
    for frame in (1, 2, 3, 4):
        for given in (rest_pose(4), creatures.motion(FRAMES, 0.1)[frame]):
            before = aligner.error(aligner.draw(given)[1], frame)
            found, error = aligner.aligned(frame, given)
            assert error <= before and error == pytest.approx(aligner.error(aligner.draw(found)[1], frame), abs=1e-7)
            if error == before:
                assert found is given


def test_depth_alone_turns_a_limb_along_the_line_of_sight() -> None:
    cloud, rig, _, _ = scene()
    vectors = np.zeros((4, 3))
    vectors[2, 1] = 0.25  # the arm lies across the picture; this brings its end nearer
    truth = JointPose(exp_rotations(vectors), np.zeros((4, 3)))
    clip, depth = clip_of(cloud, [rest_pose(4), truth], rig, 96)
    depth[1] *= 3
    blind = DirectConfig(colour=1e6)  # colours count for nothing
    aligner = Aligner(start_fit(cloud, rig, clip, motion=None, depth=depth, config=DIRECT), blind)
    without = Aligner(start_fit(cloud, rig, clip, motion=None, config=DIRECT), blind)
    for this, turned in ((aligner, 0.25), (without, 0.0)):
        pose, seen = rest_pose(4), this.observation(1)
        for _ in range(4):
            equations = this.equations(1, seen, pose, *this.draw(pose), rest_pose(4), 0.5)
            pose = pose.stepped(equations.solve(this.active, this.config.damping))
        assert log_rotations(pose.rotations)[2, 1] == pytest.approx(turned, abs=0.03)
    found = log_rotations(aligner.aligned(1, jittered(truth, 0, 0.05))[0].rotations)
    assert found[2, 1] == pytest.approx(0.25, abs=0.1)


def test_the_first_maps_smooth_bias_is_no_offset_of_points() -> None:
    cloud, rig, clip, depth = scene()
    across = np.linspace(-1, 1, depth.shape[2], dtype=np.float32)
    bent = depth.copy()
    bent[0] *= 1 + 0.02 * across + 0.01 * across[:, None]
    step = depth.copy()
    step[0, :, :32] *= 1.05  # a bias that is not smooth stays with the points
    plain, smooth, sharp = (
        Aligner(start_fit(cloud, rig, clip, motion=None, depth=maps, config=DIRECT)) for maps in (depth, bent, step)
    )
    known = plain.below_map != 0
    assert known.sum() > 150 and np.abs(plain.below_map).mean() < 0.005 * plain.size
    bias = 2.7 * 0.02  # what the first map is off by at its sides
    assert np.abs(smooth.below_map - plain.below_map).mean() < 0.05 * bias
    assert np.abs(sharp.below_map - plain.below_map)[known].mean() > 0.2 * bias
    assert not Aligner(fit_of()).below_map.any()


def test_what_is_hidden_stays_where_it_was_given() -> None:
    cloud, rig, clip, _ = scene()
    alone = np.eye(4)[rig.source_weights.dense().argmax(axis=1)]  # else a joint moves what is seen of its neighbours
    rig = dataclasses.replace(rig, source_weights=sparse_weights(alone, 1))
    shot = dataclasses.replace(clip.camera, cy=0.0)  # moves the picture up: the top leaves it
    truth = creatures.motion(3, 0.1)[2]
    cut, _ = clip_of(cloud, [rest_pose(4), truth], rig, shot=shot)
    # held loosely along the line of sight: that hold is on the mean of all points, and the hidden ones would give way
    aligner = Aligner(start_fit(cloud, rig, cut, motion=None, config=DIRECT), DirectConfig(along=1e3))
    given = jittered(truth, 1, 0.04)
    found, _ = aligner.aligned(1, given)
    turned = np.linalg.norm(log_rotations(found.rotations @ given.rotations.transpose(0, 2, 1)), axis=1)
    assert turned[3] < 0.002 and turned[:3].min() > 0.02


def test_all_frames_together_calm_what_jitters() -> None:
    truth = creatures.motion(FRAMES, 0.1)
    aligner = Aligner(fit_of(depth=True))
    rough = [truth[0], *[jittered(pose, 10 + k, 0.04, 0.01) for k, pose in enumerate(truth[1:])]]
    calm = aligner.settled(rough, 4)
    np.testing.assert_array_equal(calm[0].rotations, truth[0].rotations)
    np.testing.assert_array_equal(calm[0].translations, truth[0].translations)
    before = [apart(aligner, pose, true) for pose, true in zip(rough, truth, strict=True)]
    after = [apart(aligner, pose, true) for pose, true in zip(calm, truth, strict=True)]
    assert np.mean(after) < 0.25 * np.mean(before) and max(after) < min(before[1:])


def shown(depth: np.ndarray, points: np.ndarray) -> PaprRendering:
    """A picture whose pixels show one point each, with another one of less attention before it in the list."""
    solid = depth > 0
    indices = np.stack([np.full(depth.shape, 99), np.where(solid, points, -1)], axis=-1).astype(np.int32)
    weights = np.stack([0.2 * solid, 0.7 * solid], axis=-1).astype(np.float32)
    rgb = np.zeros((*depth.shape, 3), np.float32)
    return PaprRendering(rgb, weights.sum(axis=2), depth.astype(np.float32), indices, weights)


def test_owners_of_pixels() -> None:
    depth, points = np.zeros((12, 20)), np.zeros((12, 20), int)
    depth[3:9, 4:10], points[3:9, 4:10] = 2.0, 1  # in front
    depth[3:9, 10:16], points[3:9, 10:16] = 3.0, 2  # behind
    owner = owners(shown(depth, points), 2)
    assert owner.shape == (12, 20)
    assert (owner[3:9, 4:11] == 1).all()  # the first column of what is behind goes with what is in front
    # beyond the outlines one pixel with the nearest surface around it, and two more
    assert (owner[3:9, 11:19] == 2).all() and (owner[3:9, 1:4] == 1).all()
    assert (owner[3:9, :1] == -1).all() and (owner[3:9, 19:] == -1).all()
    assert owner[0, 5] == 1 and owner[11, 14] == 2 and owner[0, 1] == -1
    assert owner[2, 10] == 1  # above the edge between them, with what is in front
    level = np.where(depth > 2.5, 2.01, depth)  # one surface, slanted: every pixel keeps its own
    assert (owners(shown(level, points), 2)[3:9, 10:16] == 2).all()
    nothing = owners(shown(np.zeros((12, 20)), points), 5)
    assert (nothing == -1).all() and nothing.shape == (12, 20)


class Stop(Exception):
    pass


def test_an_interrupted_phase_one_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    rig, surface = creatures.creature(4000)
    cloud, path = cloud_on(creatures.creature(1500)[1]), tmp_path / "fit.safetensors"
    clip, depth = clip_of(cloud, creatures.motion(5, 0.12), rig)

    def fresh() -> Fit:
        return start_fit(cloud, rig, clip, motion=None, depth=depth, config=DIRECT)

    def tracker() -> Tracker:
        return Tracker(rig, surface, clip, depth)

    whole, seen = fresh(), []
    phase_one(whole, tracker(), on_frame=lambda done, total, error: seen.append((done, total, error)))
    assert [(done, total) for done, total, _ in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)] and whole.settled
    judge = Aligner(whole)
    for frame, truth in enumerate(creatures.motion(5, 0.12)):
        assert apart(judge, pose_of(whole, frame), truth) <= 0.1 * apart(judge, rest_pose(4), truth)
    for last in (2, 3, 5):  # in the middle, and between the last frame and aligning them together

        def save(under_way: Fit, last: int = last) -> None:
            write_fit(path, under_way)
            if under_way.frames_done == last:
                raise Stop

        broken = fresh()
        with pytest.raises(Stop):
            phase_one(broken, tracker(), save=save)
        again = fresh()
        resume_fit(path, again)
        assert again.frames_done == last and not again.settled
        phase_one(again, tracker(), save=lambda done: write_fit(path, done))
        np.testing.assert_array_equal(again.vectors.numpy(), whole.vectors.numpy())
        np.testing.assert_array_equal(again.shifts.numpy(), whole.shifts.numpy())
    done = fresh()
    resume_fit(path, done)
    assert done.settled and done.frames_done == 5
    phase_one(done, None, on_frame=lambda *_: pytest.fail("nothing is left to do"))
    np.testing.assert_array_equal(done.vectors.numpy(), whole.vectors.numpy())


def test_checkpoints_of_the_first_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, fit = tmp_path / "fit.safetensors", fit_of()
    monkeypatch.setattr("rigpapr.two_phase_state._VERSION", 1)
    write_fit(path, fit)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"is a checkpoint of version 1, 2 is needed\. Fit without --resume"):
        resume_fit(path, fit_of())
