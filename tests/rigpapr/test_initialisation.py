"""Where points start: the visual hull, and files of points, splats and meshes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh

from rigpapr.cloud import OBJECT_SIZE, CloudConfig
from rigpapr.dataset import View
from rigpapr.initialisation import colours_from_views, read_start, start_cloud, thin, viewed_box, visual_hull
from splatanim.errors import InputError
from splatanim.formats import write_ply
from tests.helpers import random_splats
from tests.rigpapr import scenes


def test_the_hull_lies_around_the_subject() -> None:
    points = visual_hull(scenes.views(24), 2000, resolution=96).positions
    assert points.shape == (2000, 3)
    level = np.linalg.norm(points / scenes.RADII, axis=1)  # 1 on the ellipsoid
    assert np.quantile(level, 0.02) > 0.85 and np.median(level) < 1.3
    spans = np.ptp(points, axis=0)
    assert (spans > 1.9 * scenes.RADII).all() and (spans < 3.2 * scenes.RADII).all()


def test_masks_that_contradict_each_other_are_refused() -> None:
    views = scenes.views()
    moved = []
    for k, view in enumerate(views):
        rgba = np.zeros_like(view.rgba)
        corner = 8 if k % 2 else 32
        rgba[corner - 4 : corner + 4, corner - 4 : corner + 4] = 255
        moved.append(View(view.name, view.camera, rgba))
    with pytest.raises(InputError, match="The masks of the 8 views have no common shape"):
        visual_hull(moved, 100)


def test_the_viewed_box_is_where_cameras_look() -> None:
    low, high = viewed_box(scenes.cameras())
    np.testing.assert_allclose((low + high) / 2, 0, atol=1e-3)
    assert 0.7 < high.min() and high.max() < 1.2


def test_thinning_spreads_and_repeats() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(scale=0.01, size=(5000, 3)), rng.uniform(-1, 1, (300, 3))])
    few = thin(points, 300, rng)
    assert few.shape == (300, 3) and (np.abs(few).max(axis=1) > 0.1).mean() > 0.8
    assert len(np.unique(few, axis=0)) == 300
    assert thin(points[:10], 25, rng).shape == (25, 3)


def test_points_take_colours_from_the_views_that_see_them() -> None:
    rng = np.random.default_rng(0)
    p = rng.normal(size=(1500, 3))
    p = p / np.linalg.norm(p, axis=1, keepdims=True) * scenes.RADII
    colours = colours_from_views(p, scenes.views(16, 80))
    sides = np.abs(p[:, 0]) > 0.1
    red = colours[:, 0] > colours[:, 2]
    assert (red == (p[:, 0] > 0))[sides].mean() > 0.97


def test_splats_points_and_meshes_can_start_a_cloud(tmp_path: Path) -> None:
    splats = random_splats(300, degree=0)
    write_ply(tmp_path / "s.ply", splats.replace(raw_opacities=np.full(300, 2.0, np.float32)))
    start = read_start(tmp_path / "s.ply", 500)
    assert start.positions.shape == (500, 3) and np.isfinite(start.colours).all()
    np.testing.assert_allclose(start.positions[:300], splats.means, atol=1e-6)
    expected = np.clip(0.5 + 0.28209479 * splats.sh[:, 0], 0, 1)
    np.testing.assert_allclose(start.colours[:300], expected, atol=1e-5)
    assert read_start(tmp_path / "s.ply", 100).positions.shape == (100, 3)

    rgb = np.random.default_rng(1).integers(0, 255, (40, 3))
    trimesh.PointCloud(splats.means[:40], colors=rgb).export(tmp_path / "p.ply")
    found = read_start(tmp_path / "p.ply", 40)
    np.testing.assert_allclose(found.colours, rgb / 255, atol=1e-6)

    for name in ("m.ply", "m.obj", "m.glb"):
        trimesh.creation.icosphere(2, 0.7).export(tmp_path / name)
        on_mesh = read_start(tmp_path / name, 250)
        np.testing.assert_allclose(np.linalg.norm(on_mesh.positions, axis=1), 0.69, atol=0.03)
        assert on_mesh.positions.shape == (250, 3) and np.isnan(on_mesh.colours).all()


def test_files_that_start_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file\. Give points, splats"):
        read_start(tmp_path / "x.ply", 10)
    write_ply(tmp_path / "s.ply", random_splats(5).replace(raw_opacities=np.full(5, -9.0, np.float32)))
    with pytest.raises(InputError, match=r"no splat has an opacity above 0.1"):
        read_start(tmp_path / "s.ply", 10)
    (tmp_path / "bad.obj").write_bytes(b"\x00\x01")
    with pytest.raises(InputError, match=r"bad.obj: (cannot be read|holds no points)"):
        read_start(tmp_path / "bad.obj", 10)


def test_the_cloud_is_normalised_and_coloured() -> None:
    views = scenes.views(12)
    cloud = start_cloud(CloudConfig(), visual_hull(views, 500), views, band=3.0, seed=0)
    size = np.ptp(np.quantile(cloud.positions.detach().numpy(), [0.005, 0.995], axis=0), axis=0).max()
    assert size == pytest.approx(OBJECT_SIZE, rel=1e-4)
    np.testing.assert_allclose(cloud.world_positions.detach().numpy().mean(0), 0, atol=0.1)
    colours = cloud.colours()
    assert colours.max() < 0.99 and colours[:, 0].max() > 0.6 and np.isfinite(float(cloud.reach))
    unlimited = start_cloud(CloudConfig(), visual_hull(views, 50), views, band=float("inf"), seed=0)
    assert np.isinf(float(unlimited.reach))
