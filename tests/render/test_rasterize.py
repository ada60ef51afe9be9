"""The CPU rasteriser against the float64 brute force, closed forms and itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.render import cpu
from splatanim.render.camera import Camera
from splatanim.render.cpu import CpuRasterizer
from splatanim.render.rasterize import rasterize
from splatanim.render.reference import rasterize_reference
from tests.helpers import random_splats
from tests.render import scenes

BACKGROUND = (0.2, 0.4, 0.6)


def psnr(image: np.ndarray, other: np.ndarray) -> float:
    return float(-10 * np.log10(max(np.mean((image.astype(np.float64) - other) ** 2), 1e-20)))


def agreement(splats: Splats, camera: Camera) -> tuple[float, float, float]:
    """PSNR of colour, largest difference of alpha, largest relative difference of depth where something is seen."""
    rendering = rasterize(splats, camera, background=BACKGROUND, backend="cpu", depth=True)
    rgb, alpha, depth = rasterize_reference(splats, camera, background=BACKGROUND)
    assert rendering.rgb.dtype == np.float32 and rendering.rgb.shape == (camera.height, camera.width, 3)
    assert rendering.depth is not None
    seen = alpha > 0.01
    depth_error = np.abs(rendering.depth - depth)[seen] / depth[seen]
    return psnr(rendering.rgb, rgb), float(np.abs(rendering.alpha - alpha).max()), float(depth_error.max(initial=0))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_every_sh_degree_matches_the_brute_force(degree: int) -> None:
    quality, alpha, depth = agreement(random_splats(300, degree, seed=degree), scenes.camera())
    assert quality > 110 and alpha < 2e-5 and depth < 2e-5


@pytest.mark.parametrize("scene", ["needles", "huge", "around_camera", "opaque_wall"])
def test_hostile_scenes_match_the_brute_force(scene: str) -> None:
    quality, alpha, _ = agreement(getattr(scenes, scene)(), scenes.camera(distance=2.5))
    assert quality > 110 and alpha < 1e-4


@pytest.mark.parametrize("size", [(333, 251), (1, 1), (32, 32), (33, 31), (3, 200)])
def test_image_sizes_off_the_tile_grid(size: tuple[int, int]) -> None:
    splats = random_splats(80, 1, seed=5)
    quality, alpha, _ = agreement(splats, scenes.camera(*size))
    assert quality > 105 and alpha < 1e-4


def test_unequal_focal_lengths_and_a_principal_point_off_the_centre() -> None:
    base = scenes.camera()
    camera = Camera(base.T_camera_world, 70.0, 110.0, 11.0, 50.0, 96, 64)
    assert agreement(scenes.around_camera(), camera)[0] > 100


def test_an_image_without_visible_splats_is_the_background() -> None:
    behind = scenes.one_splat(mean=(12.0, -6.0, 14.8))
    faint = scenes.one_splat(opacity=0.003)
    none = random_splats(3).select(np.zeros(3, bool))
    for splats in (behind, faint, none):
        rendering = rasterize(splats, scenes.camera(), background=BACKGROUND, backend="cpu", depth=True)
        assert np.array_equal(rendering.rgb, np.broadcast_to(np.array(BACKGROUND, np.float32), rendering.rgb.shape))
        assert rendering.depth is not None and not rendering.alpha.any() and not rendering.depth.any()


@pytest.mark.parametrize(("depth", "near", "seen"), [
    (-0.5, 0.01, False), (-30.0, 0.01, False), (0.0, 0.01, False), (0.005, 0.01, False),
    (0.02, 0.01, True), (0.9, 1.0, False), (1.1, 1.0, True),
])  # fmt: skip
def test_the_near_plane(depth: float, near: float, seen: bool) -> None:
    camera = Camera(np.eye(4), 30.0, 30.0, 16.0, 16.0, 32, 32, near)
    splat = scenes.one_splat(mean=(0.001, 0.001, depth), scale=0.2)
    assert rasterize(splat, camera, backend="cpu").alpha.any() == seen


@pytest.mark.parametrize("field", ["means", "quaternions", "log_scales", "raw_opacities", "sh"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e38, -1e38])
def test_broken_splats_leave_the_others_alone(field: str, poison: float) -> None:
    splats = random_splats(50, 1, seed=6)
    broken = splats.select(np.arange(5))
    values = getattr(broken, field).copy()
    values.reshape(5, -1)[:, 0] = poison
    mixed = scenes.join(broken.replace(**{field: values}), splats.select(np.arange(5, 50)))
    image = rasterize(mixed, scenes.camera(), backend="cpu").rgb
    assert np.isfinite(image).all()
    dropped = np.isnan(poison) or (field in ("means", "quaternions", "sh") and not np.isfinite(poison))
    if dropped or (field == "log_scales" and poison > 0):
        clean = rasterize(splats.select(np.arange(5, 50)), scenes.camera(), backend="cpu").rgb
        assert np.array_equal(image, clean)


def test_zero_quaternions_are_dropped() -> None:
    splats = random_splats(20, 0, seed=7)
    image = rasterize(splats.replace(quaternions=np.zeros((20, 4), np.float32)), scenes.camera(), backend="cpu").rgb
    assert (image == 1).all()


def test_one_splat_in_closed_form() -> None:
    """alpha = o exp(-r^2 / (2 (s^2 f^2 / z^2 + 0.3))) at the centre's row, colour over white, depth z exactly."""
    scale, opacity, z, focal = 0.1, 0.8, 4.0, 120.0
    pose = np.eye(4)
    pose[2, 3] = z
    camera = Camera(pose, focal, focal, 32.0, 32.0, 64, 64)
    rendering = rasterize(scenes.one_splat(scale=scale, opacity=opacity), camera, backend="cpu", depth=True)
    dx, dy = np.arange(64) + 0.5 - 32.0, 0.5
    variance = (scale * focal / z) ** 2 + 0.3
    alpha = opacity * np.exp(-(dx * dx + dy * dy) / (2 * variance))
    alpha[alpha < 1 / 255] = 0
    np.testing.assert_allclose(rendering.alpha[32], alpha, atol=5e-6)
    expected = alpha[:, None] * np.array([0.9, 0.2, 0.4]) + (1 - alpha[:, None])
    np.testing.assert_allclose(rendering.rgb[32], expected, atol=5e-6)
    assert rendering.depth is not None
    np.testing.assert_allclose(rendering.depth[rendering.alpha > 0], z, rtol=1e-5)


def test_the_background_shines_through_by_transmittance() -> None:
    splats = random_splats(200, 0, seed=8)
    black, white = (rasterize(splats, scenes.camera(), background=(v, v, v), backend="cpu") for v in (0.0, 1.0))
    assert 0.05 < black.alpha.mean() < 0.95
    np.testing.assert_allclose(white.rgb - black.rgb, np.repeat(1 - black.alpha[..., None], 3, axis=2), atol=2e-6)


def test_threads_and_bands_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    splats, camera = random_splats(500, 1, seed=9), scenes.camera(200, 150)
    expected = CpuRasterizer(1).render(splats, camera, depth=True)
    for threads in (2, 3, 7):
        assert np.array_equal(CpuRasterizer(threads).render(splats, camera).rgb, expected.rgb)
    monkeypatch.setattr(cpu, "PAIR_LIMIT", 100)
    for threads in (1, 3):
        banded = CpuRasterizer(threads).render(splats, camera, depth=True)
        assert banded.depth is not None and expected.depth is not None
        assert np.array_equal(banded.rgb, expected.rgb) and np.array_equal(banded.depth, expected.depth)


def test_buffers_are_reused_without_leftovers() -> None:
    large, small = random_splats(800, 3, seed=10), random_splats(30, 0, seed=11)
    rasterizer = CpuRasterizer(2)
    first = rasterizer.render(small, scenes.camera()).rgb
    rasterizer.render(large, scenes.camera(150, 140))
    assert np.array_equal(rasterizer.render(small, scenes.camera()).rgb, first)
    assert len(rasterizer._packed) == 800


def test_callers_in_several_threads_get_their_own_pictures() -> None:
    work = [random_splats(300 + 50 * k, 1, seed=k) for k in range(8)]
    alone = [rasterize(splats, scenes.camera(), backend="cpu").rgb for splats in work]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda splats: rasterize(splats, scenes.camera(), backend="cpu").rgb, work))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_rendering_goes_on_in_a_forked_process() -> None:
    rasterizer = CpuRasterizer(2)
    rasterizer.render(scenes.one_splat(), scenes.camera())
    child = os.fork()
    if child == 0:
        try:
            rasterizer.render(scenes.one_splat(), scenes.camera())
        finally:
            os._exit(0)
    deadline = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the forked process hangs")
        time.sleep(0.01)


def test_non_contiguous_input() -> None:
    splats = random_splats(40, 1, seed=12)
    strided = Splats(
        np.asfortranarray(splats.means),
        np.repeat(splats.quaternions, 2, axis=0)[::2],
        np.asfortranarray(splats.log_scales),
        splats.raw_opacities,
        np.asfortranarray(splats.sh),
    )
    expected = rasterize(splats, scenes.camera(), backend="cpu").rgb
    assert np.array_equal(rasterize(strided, scenes.camera(), backend="cpu").rgb, expected)


def test_splats_beyond_the_int16_range_of_tiles() -> None:
    """Centres 1e7 pixels off the image, and extents as large: no tile index may wrap around."""
    far = scenes.join(*(scenes.one_splat(mean=(s * 1e6, 0, 0), scale=s2) for s in (-1, 1) for s2 in (0.1, 3e5)))
    pose = np.eye(4)
    pose[2, 3] = 4.0
    camera = Camera(pose, 100.0, 100.0, 32.0, 32.0, 64, 64)
    image = rasterize(scenes.join(far, scenes.one_splat()), camera, backend="cpu").rgb
    alone = rasterize(scenes.one_splat(), camera, backend="cpu").rgb
    assert np.isfinite(image).all() and psnr(image[24:40, 24:40], alone[24:40, 24:40]) > 30


def test_the_golden_picture() -> None:
    """A committed picture of a seeded scene (made by the brute force): a change of convention shows here."""
    golden = np.load(Path(__file__).parent / "golden.npz")
    splats = random_splats(250, 3, seed=2024)
    rendering = rasterize(splats, scenes.camera(80, 60), background=BACKGROUND, backend="cpu", depth=True)
    assert rendering.depth is not None
    np.testing.assert_allclose(rendering.rgb, golden["rgb"], atol=1e-3)  # stored as float16
    np.testing.assert_allclose(rendering.alpha, golden["alpha"], atol=1e-3)
    np.testing.assert_allclose(rendering.depth, golden["depth"], atol=1e-2)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InputError, match="unknown backend 'gpu'; choose auto, cpu or cuda"):
        rasterize(scenes.one_splat(), scenes.camera(), backend="gpu")


def test_importing_is_light_and_the_cpu_backend_needs_no_torch() -> None:
    script = """
import json, sys
import splatanim, splatanim.render, splatanim.render.rasterize, splatanim.render.camera
light = not {"numba", "torch", "llvmlite"} & set(sys.modules)
from tests.render import scenes
splatanim.render.rasterize.rasterize(scenes.one_splat(), scenes.camera(), backend="auto")
print(json.dumps([light, "numba" in sys.modules, "torch" in sys.modules]))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    light, numba_loaded, torch_loaded = json.loads(run.stdout)
    assert light and numba_loaded and not torch_loaded
