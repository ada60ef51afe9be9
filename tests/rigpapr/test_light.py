"""The lamp found in a cloud's own colours, points lit anew as they turn, and colours borrowed from neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rigpapr.asset import load_tensors, read_asset, save_tensors, write_asset
from rigpapr.attention import brightening
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.light import estimate_lamp, estimate_light, surface_normals
from rigpapr.renderer import render, render_rays
from rigpapr.sight import Sight, borrow_colours, sight
from splatanim.errors import InputError
from splatanim.render.camera import look_at
from tests.helpers import random_rotation
from tests.rigpapr import scenes

LAMP = np.array([0.3, 0.8, 0.5])
CAMERA = look_at((0, 0, 2.5), (0, 0, 0), (0, 1, 0), width=40, height=40, focal=60.0)


def directions(count: int = 1500) -> np.ndarray:
    n = np.random.default_rng(0).normal(size=(count, 3))
    return n / np.linalg.norm(n, axis=1, keepdims=True)


def shading(normals: np.ndarray) -> np.ndarray:
    return 1 + np.maximum(0, normals @ LAMP)


def lit_ball(normals: np.ndarray, own: np.ndarray) -> PaprCloud:
    """A ball of radius 0.5 whose points are ``own`` (n, 3) bright, lit by the lamp; opaque."""
    cloud = PaprCloud(CloudConfig(neighbours=10), torch.from_numpy(10 * normals).float(), scale=20.0)
    colours = torch.from_numpy((own * shading(normals)[:, None]).clip(0.02, 0.98))
    with torch.no_grad():
        cloud.features[:, 4:7] = torch.logit(colours).float()
        cloud.influence += 2
    return cloud


def patches(normals: np.ndarray) -> np.ndarray:
    """White where the ball faces certain ways, dark elsewhere: edges of colour that are no light."""
    white = np.sin(7 * normals[:, :1]) * np.sin(6 * normals[:, 2:]) > 0.2
    return np.where(white, [0.45, 0.44, 0.4], [0.25, 0.15, 0.1])


def test_normals_point_outwards_and_keep_the_sides_of_a_thin_plate_apart() -> None:
    normals = directions()
    found = surface_normals(0.5 * normals, Sight(np.full(1500, 20.0), normals))
    assert (found * normals).sum(1).min() > 0.9 and np.median((found * normals).sum(1)) > 0.99
    rng = np.random.default_rng(1)
    plate = np.column_stack([rng.uniform(-1, 1, (800, 2)), np.repeat([0.01, -0.01], 400)])
    side = np.sign(plate[:, 2:]) * [0.0, 0.0, 1.0]
    found = surface_normals(plate, Sight(np.full(800, 20.0), side))
    assert (found * side).sum(1).min() > 0.99


def test_the_lamp_is_found_among_patches_of_colour() -> None:
    normals = directions(4000)
    rng = np.random.default_rng(2)
    seen = np.full(4000, 50.0)
    own = patches(normals).mean(1) * np.exp(0.02 * rng.normal(size=4000))
    lamp = estimate_lamp(normals, normals, own * shading(normals), seen)
    cosine = lamp @ LAMP / np.linalg.norm(lamp) / np.linalg.norm(LAMP)
    assert cosine > 0.99 and np.linalg.norm(lamp) == pytest.approx(np.linalg.norm(LAMP), rel=0.15)
    assert np.linalg.norm(estimate_lamp(normals, normals, own, seen)) < 0.05
    assert (estimate_lamp(normals, normals, own, np.zeros(4000)) == 0).all()  # nothing well seen
    assert (estimate_lamp(normals[:1], normals[:1], own[:1], seen[:1]) == 0).all()


def test_a_ball_that_turns_under_its_lamp_looks_as_before() -> None:
    normals = directions()
    cloud = lit_ball(normals, np.full((1500, 3), 0.4))
    rest = render(cloud, CAMERA).rgb
    rotation = random_rotation(np.random.default_rng(3))
    moved = torch.from_numpy(0.5 * normals @ rotation.T).float()
    turned = torch.from_numpy(rotation).float().expand(1500, 3, 3)
    unlit = render(cloud, CAMERA, positions=moved, rotations=turned).rgb
    cloud.set_light(torch.from_numpy(normals).float(), torch.from_numpy(LAMP).float())
    lit = render(cloud, CAMERA, positions=moved, rotations=turned).rgb
    assert np.abs(lit - rest).mean() < 0.01 < 0.03 < np.abs(unlit - rest).mean()
    np.testing.assert_array_equal(render(cloud, CAMERA).rgb, rest)


def test_the_light_of_a_rendered_cloud_is_estimated_from_it_alone() -> None:
    normals = directions(2500)
    cloud = lit_ball(normals, np.full((2500, 3), 0.4))
    seen = sight(cloud, scenes.views(16, 48))
    assert seen.attention.sum() > 1000 and (seen.towards * normals).sum(1)[seen.attention > 10].min() > 0
    estimate_light(cloud, Sight(seen.attention * 4, seen.towards))
    assert cloud.lamp is not None
    lamp = cloud.lamp.double().numpy()
    assert lamp @ LAMP / np.linalg.norm(lamp) / np.linalg.norm(LAMP) > 0.97


def test_gradients_of_brightness_equal_finite_differences() -> None:
    rng = np.random.default_rng(4)
    normals, maps = torch.from_numpy(directions(6)), torch.from_numpy(rng.normal(size=(6, 3, 3)))
    lamp = torch.from_numpy(LAMP)
    same = brightening(normals, lamp, torch.eye(3).double().expand(6, 3, 3))
    torch.testing.assert_close(same, torch.ones(6).double())
    maps.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda m: brightening(normals, lamp, m), (maps,))
    cloud = lit_ball(directions(300), np.full((300, 3), 0.4)).requires_grad_(False)
    cloud.set_light(torch.from_numpy(directions(300)).float(), lamp.float())
    turned = torch.eye(3).repeat(300, 1, 1).requires_grad_(True)
    pixels = np.array([[20.5, 14.5], [12.5, 20.5]])
    render_rays(cloud, CAMERA, pixels, positions=cloud.world_positions, rotations=turned).rgb.sum().backward()
    assert turned.grad is not None and turned.grad.abs().max() > 0 and torch.isfinite(turned.grad).all()


def test_assets_keep_the_light_and_those_of_version_1_have_none(tmp_path: Path) -> None:
    normals, path = directions(200), tmp_path / "a.papr.safetensors"
    cloud = lit_ball(normals, np.full((200, 3), 0.4))
    write_asset(path, cloud)
    tensors, header = load_tensors(path, "papr")
    save_tensors(path, tensors, "papr", {**header, "version": 1})
    old = read_asset(path)
    assert old.normals is None and old.lamp is None
    cloud.set_light(torch.from_numpy(normals).float(), torch.from_numpy(LAMP).float())
    write_asset(path, cloud)
    again = read_asset(path)
    assert again.lamp is not None and again.normals is not None
    torch.testing.assert_close(again.normals, cloud.normals)
    torch.testing.assert_close(again.lamp, cloud.lamp)
    tensors, header = load_tensors(path, "papr")
    del tensors["lamp"]
    save_tensors(path, tensors, "papr", header)
    with pytest.raises(InputError, match=r"tensor lamp is missing, not \(3,\)"):
        read_asset(path)
    with pytest.raises(InputError, match="give normals of all 200 points and the lamp, or neither"):
        cloud.set_light(cloud.normals, None)


def test_points_that_no_pixel_shaped_take_their_neighbours_colour() -> None:
    normals = directions(600)
    cloud = lit_ball(normals, np.full((600, 3), 0.4))
    attention = np.full(600, 200.0)
    attention[::7] = 0.0
    wanted = cloud.features.detach().clone()
    with torch.no_grad():
        cloud.features[::7, 4:7] = 9.0  # noise
        cloud.features[:, 7:] = 1.0
    borrow_colours(cloud, attention, 4.0)
    assert (cloud.features[:, 4:7] - wanted[:, 4:7]).abs().max() < 0.5
    well = np.arange(600) % 7 != 0
    assert (cloud.features[well, 4:7] - wanted[well, 4:7]).abs().max() < 0.05
    assert (cloud.features[::7, 7:] == 0).all() and cloud.features[1, 7].item() == pytest.approx(200 / 204)
    single = PaprCloud(CloudConfig(), torch.zeros(1, 3))
    before = single.features.detach().clone()
    borrow_colours(single, np.zeros(1), 4.0)
    torch.testing.assert_close(single.features.detach(), before)
