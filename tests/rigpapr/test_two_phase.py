"""The two-phase fit: each loss by its closed form or finite differences, a pose found again, checkpoints, the asset."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from rigpapr.asset import read_asset, write_asset
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.coarse_kinematics import JointPose, skinned, transforms
from rigpapr.coarse_tracker import RigMotion
from rigpapr.coarse_view import Surface
from rigpapr.fitted import FittedAsset, is_fitted, read_fitted, write_fitted
from rigpapr.losses import (
    arap_loss,
    calibrated_depth,
    correction_losses,
    delta_depth,
    descendant_weights,
    neighbour_edges,
    patch_ssim,
    rgb_loss,
    rotation_loss,
    track_loss,
    weight_smoothness,
    weight_sparsity,
)
from rigpapr.phase_one import phase_one
from rigpapr.quality import ssim
from rigpapr.renderer import render
from rigpapr.skin import plain_skin
from rigpapr.supervision import Clip
from rigpapr.two_phase import TwoPhaseConfig, phase_two, start_fit
from rigpapr.two_phase_batch import map_values, patch_pixels, project_torch
from rigpapr.two_phase_state import resume_fit, write_fit
from rigpapr.two_phase_trust import accepted, depth_hold, depths, keep_what_helps, picture_error
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.rig.skeleton import skin_transforms
from tests.rigpapr import creatures


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_delta_depth_has_its_closed_form() -> None:
    dm = randn(50)
    noise = randn(50, seed=1)
    noise -= dm * (noise @ dm) / (dm @ dm)  # what no scale explains
    loss, scale = delta_depth(3.0 * dm + noise, dm)
    assert scale == pytest.approx(3.0) and float(loss) == pytest.approx(float((noise**2).mean()))
    dz = (3.0 * dm + noise).requires_grad_(True)
    delta_depth(dz, dm)[0].backward()
    torch.testing.assert_close(dz.grad, 2 * noise / 50, atol=1e-12, rtol=1e-9)  # the scale is held constant
    wide, _ = delta_depth(torch.tensor([0.1, 10.0]), torch.tensor([0.0, 0.0]), cut=0.5)
    assert float(wide) == pytest.approx((0.01 + 2 * 0.5 * 10 - 0.25) / 2)
    assert float(delta_depth(torch.zeros(0), torch.zeros(0))[0]) == 0


def test_calibrated_depth_takes_up_every_maps_own_scale() -> None:
    first, z = randn(60).abs() + 20, randn(60, seed=1).abs() + 20
    loss, scale = calibrated_depth(z, first, z / 3.0, first / 7.0)
    assert float(loss) == pytest.approx(0, abs=1e-20) and scale == pytest.approx(3.0)
    assert float(delta_depth(z - first, z / 3.0 - first / 7.0)[0]) > 0.1  # one scale for both cannot
    moved = (z + randn(60, seed=2)).requires_grad_(True)
    loss, scale = calibrated_depth(moved, first, z / 3.0, first / 7.0)
    loss.backward()
    torch.testing.assert_close(moved.grad, 2 * (moved.detach() - scale * z / 3.0) / 60)
    assert float(calibrated_depth(*[torch.zeros(0)] * 4)[0]) == 0


EDGES = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
REST = randn(4, 3, seed=5)
SCALARS = {
    "arap": (lambda x: arap_loss(x, REST, EDGES), randn(4, 3)),
    "rotation": (lambda x: rotation_loss(x, torch.tensor([2.0, 1.0, 0.5, 0.5]).double()), randn(4, 3)),
    "weight smoothness": (lambda x: weight_smoothness(torch.softmax(x, 1), EDGES), randn(4, 3)),
    "weight sparsity": (lambda x: weight_sparsity(torch.softmax(x, 1)), randn(4, 3)),
    "correction size": (lambda x: correction_losses(x)[0], randn(5, 2, 3)),
    "correction changes": (lambda x: correction_losses(x)[1], randn(5, 2, 3)),
    "tracks": (lambda x: track_loss(x, 2 * randn(6, 2, seed=2), torch.arange(6) < 4), randn(6, 2)),
    "ssim": (lambda x: patch_ssim(x.sigmoid(), randn(1, 12, 12, 3, seed=3).sigmoid()), randn(1, 12, 12, 3)),
    "colour": (lambda x: rgb_loss(x.sigmoid(), randn(1, 12, 12, 3, seed=3).sigmoid()), randn(1, 12, 12, 3)),
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_by_finite_differences(name: str) -> None:
    function, x = SCALARS[name]
    x = x.clone().requires_grad_(True)
    function(x).backward()
    assert float(x.grad.abs().max()) > 1e-6
    flat = x.detach().flatten()
    for k in range(0, len(flat), max(1, len(flat) // 12)):
        ends = []
        for sign in (1, -1):
            moved = flat.clone()
            moved[k] += sign * 1e-6
            ends.append(float(function(moved.view(x.shape))))
        assert float(x.grad.flatten()[k]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)


def test_losses_have_their_closed_forms() -> None:
    assert float(arap_loss(REST + 7.0, REST, EDGES)) == pytest.approx(0, abs=1e-20)
    lengths = (REST[EDGES[:, 0]] - REST[EDGES[:, 1]]).norm(dim=1)
    assert float(arap_loss(1.5 * REST, REST, EDGES)) == pytest.approx(float((0.25 * lengths**2).mean()))
    assert float(weight_sparsity(torch.eye(3))) < 1e-4
    assert float(weight_sparsity(torch.full((2, 2), 0.5))) == pytest.approx(np.log(2) * 1.0)
    torch.testing.assert_close(
        descendant_weights(creatures.creature(300)[0].descendants()), torch.tensor([4.0, 3.0, 1.0, 1.0]) / 2.25
    )
    a, b = np.random.default_rng(0).uniform(0, 1, (2, 20, 20, 3))
    patches = [torch.from_numpy(v)[None] for v in (a, b)]
    assert float(patch_ssim(*patches)) == pytest.approx(ssim(a, b), abs=1e-3)
    edges = neighbour_edges(np.random.default_rng(0).normal(size=(30, 3)), 4)
    assert edges.shape == (120, 2) and bool((edges[:, 0] != edges[:, 1]).all())
    assert float(track_loss(torch.ones(2, 2), torch.zeros(2, 2), torch.zeros(2, dtype=torch.bool))) == 0


def cloud_of(count: int = 1500) -> tuple[PaprCloud, object]:
    """A PAPR cloud of the creature."""
    rig, surface = creatures.creature(count)
    return cloud_on(surface), rig


def cloud_on(surface: Surface) -> PaprCloud:
    """A PAPR cloud of a surface, untrained but coloured: good enough to see it move."""
    cloud = PaprCloud(
        CloudConfig(neighbours=6),
        torch.from_numpy(surface.points * 12).float(),
        scale=12.0,
        reach=1.5,
    )
    colours = torch.from_numpy(surface.colours / 255).float().clamp(0.05, 0.95)
    with torch.no_grad():
        cloud.features[:, 4:7] = torch.log(colours / (1 - colours))
        cloud.influence += 2
    return cloud


def clip_of(
    cloud: PaprCloud, asset_poses: list[JointPose], rig, size: int = 64, shot: Camera | None = None
) -> tuple[Clip, np.ndarray]:
    """The cloud's own pictures under known poses: what a perfect fit reproduces exactly."""
    motion = motion_of(asset_poses)
    fit = start_fit(cloud, rig, blank(len(asset_poses), size), motion=motion)
    asset, shot = fit.result(), creatures.camera(size) if shot is None else shot
    pictures = [render(cloud, shot, positions=p, rotations=r) for p, r in map(asset.posed, range(len(asset)))]
    rgb = np.stack([np.round(255 * p.rgb.clip(0, 1)).astype(np.uint8) for p in pictures])
    depth = np.stack([np.where(p.alpha > 0.5, p.depth, 0) for p in pictures]).astype(np.float32)
    return Clip(rgb, np.stack([p.alpha > 0.5 for p in pictures]), shot, 24.0), depth


def motion_of(poses: list[JointPose]) -> RigMotion:
    return RigMotion(np.stack([p.rotations for p in poses]), np.stack([p.translations for p in poses]))


def blank(frames: int, size: int) -> Clip:
    rgb = np.full((frames, size, size, 3), 255, np.uint8)
    return Clip(rgb, np.ones(rgb.shape[:3], bool), creatures.camera(size), 24.0)


SMALL = TwoPhaseConfig(steps_one=40, steps_two=6, patches=3, side=14, rate_one=(2e-2, 1e-3))


def error(asset: FittedAsset, rig, truth: JointPose, frame: int) -> float:
    points = asset.cloud.world_positions.detach().double().numpy()
    target, _ = skinned(points, rig.skin(points), transforms(rig, truth))
    return float(np.linalg.norm(asset.posed(frame)[0].numpy() - target, axis=1).mean())


@pytest.mark.slow
def test_phase_one_comes_nearer_to_a_known_pose() -> None:
    cloud, rig = cloud_of()
    truth = creatures.motion(3, 0.1)
    clip, depth = clip_of(cloud, truth, rig)
    near = motion_of(creatures.motion(3, 0.04))
    # from 0.12 rad off, half the steps leave it to the patches that happen to be drawn whether all limbs arrive
    fit = start_fit(cloud, rig, clip, motion=near, depth=depth, config=dataclasses.replace(SMALL, steps_one=80))
    before = error(fit.result(), rig, truth[2], 2)
    reports = []
    phase_one(fit, on_frame=lambda *values: reports.append(values[:2]))
    after = error(fit.result(), rig, truth[2], 2)
    assert after < 0.2 * before and reports == [(1, 2), (2, 2)]
    torch.testing.assert_close(fit.vectors[0], torch.zeros(4, 3))
    assert all(parameter.grad is None for parameter in cloud.parameters())  # the renderer is frozen


def test_a_step_is_taken_only_where_the_picture_gains() -> None:
    cloud, rig = cloud_of(600)
    clip, _ = clip_of(cloud, creatures.motion(2, 0.2), rig)
    fit = start_fit(cloud, rig, clip, motion=motion_of(creatures.motion(2, 0.2)), config=SMALL)
    true = (fit.vectors[1], fit.shifts[1])
    off = (true[0] * 1.6, true[1])
    assert picture_error(fit, 1, *true) < 0.5 * picture_error(fit, 1, *off)
    kept, error = accepted(fit, 1, true, off)
    assert torch.equal(kept[0], true[0]) and error == picture_error(fit, 1, *true)
    moved, error = accepted(fit, 1, off, true)
    assert torch.equal(moved[0], true[0]) and error < picture_error(fit, 1, *off)
    half, _ = accepted(fit, 1, (2 * true[0] - off[0], true[1]), off)  # the middle of the step is the truth
    torch.testing.assert_close(half[0], true[0])


def test_depths_are_held_along_the_line_of_sight() -> None:
    cloud, rig = cloud_of(300)
    fit = start_fit(cloud, rig, blank(2, 32), motion=None)
    held = depths(fit, fit.points)
    forward = torch.from_numpy(fit.clip.camera.T_camera_world[2, :3]).float()
    across = torch.linalg.cross(forward, torch.tensor([0.0, 1.0, 0.0]))
    assert float(depth_hold(fit, fit.points + across, held)) == pytest.approx(0, abs=1e-6)
    nearer = float(depth_hold(fit, fit.points - 0.1 * forward, held))
    assert nearer == pytest.approx(11 * (0.1 * fit.unit) ** 2, rel=1e-3)


@pytest.mark.slow
def test_phase_two_moves_corrections_and_weights_and_resumes(tmp_path: Path) -> None:
    cloud, rig = cloud_of(600)
    clip, depth = clip_of(cloud, creatures.motion(3, 0.1), rig)
    start = motion_of(creatures.motion(3, 0.08))
    path = tmp_path / "fit.safetensors"

    def fresh():
        return start_fit(cloud, rig, clip, motion=start, depth=depth, config=dataclasses.replace(SMALL, steps_one=2))

    whole = fresh()
    assert float(whole.net().detach().abs().max()) == 0
    initial = whole.logits.clone()
    phase_one(whole)
    phase_two(whole, save_every=3, take_back=False)
    assert float(whole.net().detach().abs().max()) > 0 and float(whole.net().detach()[0].abs().max()) == 0
    assert float((whole.logits - initial).abs().max()) > 1e-3

    class Stop(Exception):
        pass

    broken = fresh()
    phase_one(broken)

    def save(under_way) -> None:
        write_fit(path, under_way)
        raise Stop

    with pytest.raises(Stop):
        phase_two(broken, save=save, save_every=3, take_back=False)
    again = fresh()
    resume_fit(path, again)
    assert (again.frames_done, again.steps_done) == (3, 3)
    phase_one(again)  # nothing left to do
    phase_two(again, take_back=False)
    torch.testing.assert_close(again.logits, whole.logits)
    torch.testing.assert_close(again.net(), whole.net())


def test_phase_two_takes_back_what_makes_pictures_worse() -> None:
    cloud, rig = cloud_of(300)
    clip, _ = clip_of(cloud, creatures.motion(2, 0.1), rig)
    fit = start_fit(cloud, rig, clip, motion=motion_of(creatures.motion(2, 0.1)), config=SMALL)
    before = picture_error(fit, 1, fit.vectors[1], fit.shifts[1])
    with torch.no_grad():
        fit.net.layers[-1].bias += 0.5  # a correction by half a radian of everything
        fit.logits = fit.logits.roll(1, dims=1)  # and weights of other joints
    assert keep_what_helps(fit, fit.bound) == "neither"
    assert float(fit.net().detach().abs().max()) == 0 and torch.equal(fit.logits, fit.bound)
    assert picture_error(fit, 1, fit.vectors[1], fit.shifts[1]) == pytest.approx(before)


def test_checkpoints_of_other_fits_are_refused(tmp_path: Path) -> None:
    cloud, rig = cloud_of(300)
    fit = start_fit(cloud, rig, blank(3, 32), motion=None)
    write_fit(tmp_path / "a.safetensors", fit)
    other = start_fit(cloud, rig, blank(4, 32), motion=None)
    with pytest.raises(InputError, match=r"vectors is \(3, 4, 3\), this fit needs \(4, 4, 3\): .*another clip"):
        resume_fit(tmp_path / "a.safetensors", other)
    with pytest.raises(InputError, match="the motion has 2 frames, the clip 3"):
        start_fit(cloud, rig, blank(3, 32), motion=motion_of(creatures.motion(2)))
    fit.vectors[1] = torch.nan
    write_fit(tmp_path / "b.safetensors", fit)
    with pytest.raises(InputError, match=r"holds NaN or infinite values\. Fit without --resume"):
        resume_fit(tmp_path / "b.safetensors", start_fit(cloud, rig, blank(3, 32), motion=None))


def test_fitted_assets_come_back_as_they_went(tmp_path: Path) -> None:
    cloud, rig = cloud_of(300)
    asset = start_fit(cloud, rig, blank(3, 32), motion=motion_of(creatures.motion(3))).result()
    path = tmp_path / "a.papr.safetensors"
    write_fitted(path, asset, notes={"frames": 3})
    again = read_fitted(path)
    assert is_fitted(path) and again.names == asset.names and again.fps == 24.0
    for frame in range(3):
        for one, other in zip(asset.posed(frame), again.posed(frame), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert len(read_asset(path)) == 300  # a plain reader sees the cloud at rest
    torch.testing.assert_close(asset.posed(0)[0], cloud.world_positions.detach(), atol=1e-5, rtol=0)
    with pytest.raises(InputError, match="frame 3: the fitted motion has frames 0 to 2"):
        again.posed(3)


def test_the_motion_as_a_clip_poses_the_same() -> None:
    cloud, rig = cloud_of(300)
    asset = start_fit(cloud, rig, blank(3, 32), motion=motion_of(creatures.motion(3))).result()
    maps = skin_transforms(asset.skeleton(), asset.animation().sample(2 / 24.0))
    points = cloud.world_positions.detach().double().numpy()
    moved, _ = skinned(points, plain_skin(asset.weights.double().numpy()), maps[:, :3])
    np.testing.assert_allclose(asset.posed(2)[0].numpy(), moved, atol=1e-5)


def test_damaged_fitted_assets(tmp_path: Path) -> None:
    cloud, rig = cloud_of(300)
    path = tmp_path / "a.papr.safetensors"
    write_asset(path, cloud)
    assert not is_fitted(path)
    with pytest.raises(InputError, match=r"holds a cloud without a rig\. Fit it to a video first"):
        read_fitted(path)
    asset = start_fit(cloud, rig, blank(3, 32), motion=None).result()
    with pytest.raises(InputError, match=r"rig.logits is \(5, 4\), not \(300, 4\)"):
        dataclasses.replace(asset, logits=torch.zeros(5, 4))
    with pytest.raises(InputError, match="must name joints before their children"):
        dataclasses.replace(asset, parents=torch.tensor([-1, 2, 1, 1]))
    with pytest.raises(InputError, match=r"a fitted asset is named \*\.papr\.safetensors"):
        write_fitted(tmp_path / "a.bin", asset)
    broken = dataclasses.replace(asset, logits=torch.full((300, 4), torch.nan))
    with pytest.raises(InputError, match=r"rig\.logits has NaN or infinite values: the fit diverged"):
        write_fitted(path, broken)


def test_batches() -> None:
    shot = creatures.camera(64)
    pixels = patch_pixels(np.array([[0, 0], [63, 30]]), 14, shot)
    assert len(pixels) == 2 * 14 * 14 and pixels.min() == 0.5 and pixels.max() == 63.5
    points = np.random.default_rng(0).normal(size=(5, 3)) * 0.2
    flat, _ = project_torch(shot, torch.from_numpy(points))
    from rigpapr.coarse_view import project

    np.testing.assert_allclose(flat.numpy(), project(shot, points)[0], atol=1e-9)
    _, surface = creatures.creature(3000)
    depth = np.full((64, 64), 2.0, np.float32)
    mask = np.zeros((64, 64), bool)
    mask[:, 20:40] = True
    _, values, known = map_values(surface.points, shot, depth, mask)
    columns = project(shot, surface.points)[0][known][:, 0]
    assert known.any() and columns.min() >= 21 and columns.max() <= 39 and np.allclose(values[known], 2.0)
