"""The sample objects: conventions, determinism, variety, and that they are solid enough to animate."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.render.camera import frame_object
from splatanim.render.rasterize import rasterize
from splatanim.samples import make_sample, sample_names, surfels
from splatanim.samples.shapes import ellipsoid, gradient, smooth_max, smooth_min, tubes
from splatanim.sampling.cubature import cubature_from_splats

COLUMNS = ("means", "quaternions", "log_scales", "raw_opacities", "sh")
UP = (0.0, -1.0, 0.0)


@pytest.fixture(scope="module")
def samples() -> dict[str, Splats]:
    return {name: make_sample(name) for name in sample_names()}


@pytest.mark.parametrize("name", sample_names())
def test_conventions_of_a_capture(samples: dict[str, Splats], name: str) -> None:
    splats = samples[name]
    assert 20_000 < len(splats) < 60_000
    for column in COLUMNS:
        values = getattr(splats, column)
        assert values.dtype == np.float32 and np.isfinite(values).all()
    assert splats.means[:, 1].max() == pytest.approx(0, abs=1e-6)  # y down: the base is the largest y
    assert np.ptp(splats.means, axis=0).max() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(np.linalg.norm(splats.quaternions, axis=1), 1, atol=1e-5)
    assert splats.scales.max() < 0.03
    assert splats.sh.shape[1:] == (9, 3)


@pytest.mark.parametrize("name", sample_names())
def test_same_seed_same_bits_and_other_seeds_differ(samples: dict[str, Splats], name: str) -> None:
    again, other = make_sample(name), make_sample(name, seed=1)
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(again, column), getattr(samples[name], column))
    assert len(other) != len(again) or np.abs(other.means - again.means).max() > 1e-3
    assert np.abs(other.sh[:, 0].mean(axis=0) - again.sh[:, 0].mean(axis=0)).max() > 0.02


@pytest.mark.parametrize("name", sample_names())
def test_no_holes_and_no_halo(samples: dict[str, Splats], name: str) -> None:
    splats = samples[name]
    camera = frame_object(splats.means, UP, width=160, height=160)
    alpha = rasterize(splats, camera).alpha
    assert 0.1 < (alpha > 0.5).mean() < 0.8
    half = (alpha > 0.05) & (alpha < 0.9)
    assert half.sum() < 0.3 * (alpha > 0.5).sum()  # only the outline is soft
    white = rasterize(splats, camera).rgb[alpha > 0.95]
    black = rasterize(splats, camera, background=(0.0, 0.0, 0.0)).rgb[alpha > 0.95]
    assert np.abs(white - black).mean() < 0.02
    assert white.std(axis=0).max() > 0.05  # it has shading


@pytest.mark.parametrize("name", sample_names())
def test_cubature_finds_an_inside(samples: dict[str, Splats], name: str) -> None:
    cubature = cubature_from_splats(samples[name], Frame((0.0, -0.5, 0.0), 1.0, UP))
    assert "thin shell" not in cubature.method
    assert "1 part" in cubature.method
    assert 0.005 < cubature.domain.volume < 0.5
    assert cubature.surface[:, 1].max() == pytest.approx(0.5, abs=0.01)  # a contact point on the floor


def test_unknown_name_lists_the_names_and_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'plsh'\. Did you mean plush\? Samples: jelly, octopus, plant, plush"):
        make_sample("plsh")
    with pytest.raises(InputError, match=r"'xyzzy'\. Samples:"):
        make_sample("xyzzy")


def test_distance_functions() -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    ball = ellipsoid(points, (0.1, 0, 0), (0.5, 0.5, 0.5))
    np.testing.assert_allclose(ball, np.linalg.norm(points - [0.1, 0, 0], axis=1) - 0.5, atol=1e-12)
    path = np.array([[-0.5, 0, 0], [0.5, 0, 0], [0.5, 0.5, 0]])
    pipe = tubes([path], np.full(3, 0.1), far=5.0)(points)
    segment = np.minimum(
        np.linalg.norm(points - np.stack([np.clip(points[:, 0], -0.5, 0.5), 0 * ball, 0 * ball], axis=1), axis=1),
        np.linalg.norm(points - np.stack([0 * ball + 0.5, np.clip(points[:, 1], 0, 0.5), 0 * ball], axis=1), axis=1),
    )
    np.testing.assert_allclose(pipe, segment - 0.1, atol=0.02)
    assert (smooth_min(ball, pipe, 0.1) <= np.minimum(ball, pipe) + 1e-12).all()
    assert (smooth_max(ball, pipe, 0.1) >= np.maximum(ball, pipe) - 1e-12).all()
    slope = gradient(lambda p: ellipsoid(p, (0, 0, 0), (0.5, 0.5, 0.5)), points)
    np.testing.assert_allclose(slope, points / np.linalg.norm(points, axis=1, keepdims=True), atol=1e-5)


def test_surface_points_cover_a_sphere_evenly() -> None:
    rng = np.random.default_rng(0)

    def ball(points: np.ndarray) -> np.ndarray:
        return ellipsoid(points, (0, 0, 0), (0.5, 0.5, 0.5))

    points = surfels.thin_out(surfels.on_surface(ball, 0.03, rng, 1.0), 0.03)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 0.5, atol=1e-3)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) + 9 * np.eye(len(points))
    assert apart.min() >= 0.03
    probes = rng.normal(size=(2000, 3))
    probes *= 0.5 / np.linalg.norm(probes, axis=1, keepdims=True)
    assert np.linalg.norm(probes[:, None] - points[None], axis=2).min(axis=1).max() < 0.045


def test_a_view_dependent_lobe_is_brightest_along_its_direction() -> None:
    from splatanim.rotations import sh_basis

    axis = np.array([[0.6, 0.0, 0.8]])
    coefficients = surfels.glow(axis, np.ones(1), lambda t: np.clip(t, 0, 1) ** 4)[0, :, 0]
    directions = np.concatenate([axis, -axis, np.random.default_rng(0).normal(size=(100, 3))])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    values = sh_basis(directions, 2) @ coefficients
    assert values.argmax() == 0 and values[0] > 0.5
    assert abs(values[1]) < 0.15
