"""Pictures of PAPR clouds: conventions, chunking, moved points, and gradients through a picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.renderer import PaprRendering, render, render_rays, within_reach
from splatanim.errors import InputError
from splatanim.render.camera import Camera, look_at


def ball(head: str = "kernel", count: int = 600, **changes: float) -> PaprCloud:
    """Points on a sphere of radius 0.5 around (1, 2, 3), red above, green below."""
    rng = np.random.default_rng(0)
    p = rng.normal(size=(count, 3))
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    config = CloudConfig(head=head, neighbours=8, feature_size=8, width=16, key_layers=2, value_layers=2, octaves=2)
    cloud = PaprCloud(config, torch.from_numpy(10 * p).float(), centre=np.array([1.0, 2.0, 3.0]), scale=20.0, **changes)
    if head == "kernel":
        with torch.no_grad():
            cloud.features[:, 4:7] = torch.tensor([4.0, -4.0, -4.0])
            cloud.features[p[:, 1] < 0, 4:7] = torch.tensor([-4.0, 4.0, -4.0])
    return cloud


def shot(size: int = 40) -> Camera:
    return look_at((1, 2, 6), (1, 2, 3), (0, 1, 0), width=size, height=size, focal=1.5 * size)


def test_the_picture_has_the_right_side_up_and_the_right_depth() -> None:
    cloud = ball()
    with torch.no_grad():
        cloud.influence += 2  # an opaque skin
    picture = render(cloud, shot(), background=(0.0, 0.0, 1.0))
    middle = picture.rgb[18:22, 18:22].reshape(-1, 3)
    assert picture.alpha[15:25, 15:25].min() > 0.95 and picture.alpha[:3].max() < 1e-6
    np.testing.assert_allclose(picture.rgb[0, 0], [0, 0, 1])
    assert picture.rgb[14, 20, 0] > 0.9 > 0.1 > picture.rgb[14, 20, 1]  # red above
    assert picture.rgb[26, 20, 1] > 0.9 and middle.max() <= 1
    assert picture.depth[20, 20] == pytest.approx(2.5, abs=0.05)  # the sphere's front, along the optical axis
    assert picture.depth[20, 0] == 0 or picture.alpha[20, 0] > 0


def test_the_result_does_not_depend_on_the_chunk() -> None:
    cloud, camera = ball(), shot()
    whole, parts = render(cloud, camera), render(cloud, camera, chunk=97)
    for name in ("rgb", "alpha", "depth", "weights"):
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), atol=2e-6)
    np.testing.assert_array_equal(whole.indices, parts.indices)


def test_weights_and_indices_say_which_points_made_a_pixel() -> None:
    cloud = ball()
    picture = render(cloud, shot())
    assert picture.indices.shape == picture.weights.shape == (40, 40, 8)
    np.testing.assert_allclose(picture.weights.sum(-1), picture.alpha, atol=1e-5)
    strongest = np.take_along_axis(picture.indices, picture.weights.argmax(-1)[..., None], -1)[20, 20, 0]
    front = cloud.world_positions[strongest].detach().numpy()
    np.testing.assert_allclose(front, [1, 2, 3.5], atol=0.1)
    assert (picture.indices[0, 0] == -1).all() or picture.weights[0, 0].sum() == 0


def test_a_reach_saves_work_and_changes_nothing() -> None:
    camera = shot()
    near, all_pixels = ball(reach=2.0), ball()
    covered = within_reach(near, camera, near.positions)
    assert 0.2 < covered.mean() < 0.9 and within_reach(all_pixels, camera, all_pixels.positions).all()
    np.testing.assert_allclose(render(near, camera).rgb, render(all_pixels, camera).rgb, atol=1e-5)


def test_moved_points_move_the_picture() -> None:
    cloud, camera = ball(), shot()
    moved = cloud.world_positions.detach() + torch.tensor([0.25, 0.0, 0.0])
    picture: PaprRendering = render(cloud, camera, positions=moved)
    rest = render(cloud, look_at((0.75, 2, 6), (0.75, 2, 3), (0, 1, 0), width=40, height=40, focal=60.0))
    np.testing.assert_allclose(picture.rgb, rest.rgb, atol=2e-3)


@pytest.mark.parametrize("head", ["kernel", "paper"])
def test_gradients_reach_positions_features_influence_and_head(head: str) -> None:
    cloud = ball(head)
    pixels = np.array([[20.5, 14.5], [12.5, 20.5], [30.0, 25.0]])
    moved = cloud.world_positions.detach().clone().requires_grad_(True)
    rays = render_rays(cloud, shot(), pixels, positions=moved)
    (rays.rgb.sum() + rays.depth.sum() + rays.alpha.square().sum()).backward()
    assert moved.grad is not None and moved.grad.abs().max() > 0
    for name, parameter in cloud.named_parameters():
        if name != "positions":
            assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    rest = render_rays(cloud, shot(), pixels)
    rest.rgb.sum().backward()
    assert cloud.positions.grad is not None and cloud.positions.grad.abs().max() > 0


def test_gradient_of_a_picture_with_respect_to_a_moved_point() -> None:
    cloud = ball().double()
    pixels = np.array([[20.5, 14.5], [12.5, 20.5], [30.0, 25.0]])
    base = cloud.world_positions.detach().double()
    from rigpapr.renderer import neighbours

    rows = neighbours(cloud, shot(), pixels, cloud.positions)

    def value(x: torch.Tensor) -> torch.Tensor:
        rays = render_rays(cloud, shot(), pixels, positions=x, rows=rows)
        return (rays.rgb * torch.tensor([1.0, 2.0, 3.0])).sum() + rays.depth.sum()

    x = base.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(value(x), x)
    row = int(gradient.abs().sum(1).argmax())
    for axis in range(3):
        step = torch.zeros_like(base)
        step[row, axis] = 1e-6
        numeric = (value(base + step) - value(base - step)).item() / 2e-6
        assert numeric == pytest.approx(gradient[row, axis].item(), rel=1e-4, abs=1e-6)


def test_a_cloud_behind_the_camera_is_not_seen() -> None:
    camera = look_at((1, 2, 6), (1, 2, 9), (0, 1, 0), width=16, height=12, focal=20.0)
    picture = render(ball(), camera, background=(0.2, 0.4, 0.6))
    np.testing.assert_allclose(picture.rgb, np.broadcast_to([0.2, 0.4, 0.6], (12, 16, 3)), atol=1e-6)
    assert picture.alpha.max() == 0


def test_moved_points_that_do_not_fit_are_refused() -> None:
    cloud = ball()
    with pytest.raises(InputError, match=r"positions are \(3, 3\); the cloud has 600 points"):
        render(cloud, shot(), positions=torch.zeros(3, 3))
    with pytest.raises(InputError, match="a moved point is NaN or infinite"):
        render(cloud, shot(), positions=torch.full((600, 3), torch.nan))
