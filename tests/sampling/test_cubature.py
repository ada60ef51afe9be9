"""Cubature against closed forms, on hostile shapes, and on real captures."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Cubature, Frame, Mesh, Splats
from splatanim.errors import InputError
from splatanim.sampling.cubature import MOST_VOXELS, cubature_from_mesh, cubature_from_splats
from splatanim.transforms import merge
from tests.helpers import data_file
from tests.sampling.shapes import (
    UNIT,
    ball_mesh,
    box_mesh,
    box_surface,
    flat_splats,
    join,
    round_splats,
    sphere_surface,
    torus_surface,
)

BALL_VOLUME = np.pi / 6


def ball(n: int = 12_000, seed: int = 0, sigma: float = 0.01) -> Splats:
    return flat_splats(*sphere_surface(0.5, n, seed), sigma)


def moments(cubature: Cubature) -> tuple[float, np.ndarray, np.ndarray]:
    """Volume, centroid, and second moments about the origin per unit volume, by the cubature itself."""
    v, x = cubature.volumes, cubature.points
    return v.sum(), (v[:, None] * x).sum(axis=0) / v.sum(), np.einsum("q,qi,qj->ij", v, x, x) / v.sum()


def covers(cubature: Cubature, point: tuple[float, float, float]) -> bool:
    """Whether a point lies in a voxel of the domain."""
    domain = cubature.domain
    cell = np.floor((np.array(point) - domain.origin) / domain.spacing).astype(int)
    return bool((domain.cells == cell).all(axis=1).any())


def join_splats(a: Splats, b: Splats) -> Splats:
    names = ("means", "quaternions", "log_scales", "raw_opacities", "sh")
    return Splats(*[np.concatenate([getattr(a, name), getattr(b, name)]) for name in names])


@pytest.mark.parametrize(
    ("source", "volume", "diagonal"),
    [
        (flat_splats(*box_surface((1, 0.6, 0.4), 30_000), 0.006), 0.24, np.array([1, 0.36, 0.16]) / 12),
        (ball(), BALL_VOLUME, np.full(3, 0.05)),
        (box_mesh((1, 0.6, 0.4)), 0.24, np.array([1, 0.36, 0.16]) / 12),
        (ball_mesh(0.5, 48), BALL_VOLUME, np.full(3, 0.05)),
    ],
    ids=["box splats", "ball splats", "box mesh", "ball mesh"],
)
def test_volume_and_moments_of_solids(source: Splats | Mesh, volume: float, diagonal: np.ndarray) -> None:
    """Voxels of 1/64 leave up to half a voxel a side: 4 % of volume; 1024 clusters lose a little second moment."""
    make = cubature_from_splats if isinstance(source, Splats) else cubature_from_mesh
    cubature = make(source, UNIT)
    total, centroid, second = moments(cubature)
    assert total == pytest.approx(cubature.domain.volume, rel=1e-12)
    assert total == pytest.approx(volume, rel=0.04)
    np.testing.assert_allclose(centroid, 0, atol=2e-3)
    np.testing.assert_allclose(np.diag(second), diagonal, rtol=0.06)
    np.testing.assert_allclose(second - np.diag(np.diag(second)), 0, atol=2e-3)


def test_first_moments_equal_those_of_the_voxels() -> None:
    cubature = cubature_from_splats(ball(), UNIT, count=300)
    _, centroid, _ = moments(cubature)
    np.testing.assert_allclose(centroid, cubature.domain.centres.mean(axis=0), atol=1e-12)
    assert len(cubature.points) == 300
    assert cubature.volumes.min() > 0.4 * cubature.volumes.mean()
    assert cubature.volumes.max() < 2.0 * cubature.volumes.mean()


def test_every_point_lies_in_the_domain() -> None:
    ring = flat_splats(*torus_surface(0.4, 0.1, 20_000), 0.006)
    cubature = cubature_from_splats(ring, UNIT, count=9)  # so few that each cluster is a bent piece of ring
    assert all(covers(cubature, tuple(point)) for point in cubature.points)


def test_same_seed_same_result() -> None:
    first, second = (cubature_from_splats(ball(5_000, sigma=0.015), UNIT, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    np.testing.assert_array_equal(first.surface, second.surface)
    other = cubature_from_splats(ball(5_000, sigma=0.015), UNIT, seed=4)
    assert other.domain.volume == first.domain.volume


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_any_unit_of_length(factor: float) -> None:
    splats = ball()
    shrunk = splats.replace(
        means=splats.means * np.float32(factor), log_scales=splats.log_scales + np.float32(np.log(factor))
    )
    cubature = cubature_from_splats(shrunk, UNIT)
    assert cubature.domain.volume == pytest.approx(BALL_VOLUME * factor**3, rel=0.02)
    framed = cubature_from_splats(shrunk, Frame((0, 0, 0), 1 / factor, (0, 0, 1)))
    assert framed.domain.volume == pytest.approx(BALL_VOLUME, rel=0.02)


@pytest.mark.parametrize(("n", "sigma"), [(2_000, 0.02), (60_000, 0.005)])
def test_threshold_does_not_depend_on_the_number_of_splats(n: int, sigma: float) -> None:
    cubature = cubature_from_splats(ball(n, sigma=sigma), UNIT)
    assert cubature.domain.volume == pytest.approx(BALL_VOLUME, rel=0.02)


@pytest.mark.parametrize(("n", "sigma"), [(40_000, 0.01), (20_000, 0.0005), (300, 0.005)])
def test_volumetric_clouds(n: int, sigma: float) -> None:
    rng = np.random.default_rng(0)
    points = sphere_surface(0.5, n)[0] * rng.random((n, 1)) ** (1 / 3)
    cubature = cubature_from_splats(round_splats(points, sigma), UNIT)
    assert cubature.domain.volume == pytest.approx(BALL_VOLUME, rel=0.2)


def test_small_hole_is_closed_and_wide_opening_is_not() -> None:
    points, normals = sphere_surface(0.5, 30_000)
    away = np.linalg.norm(points - [0.5, 0, 0], axis=1)
    holed = cubature_from_splats(flat_splats(points[away > 0.06], normals[away > 0.06], 0.008), UNIT)
    assert holed.domain.volume == pytest.approx(BALL_VOLUME, rel=0.03)
    assert "filled by flood fill" in holed.method and "closing radius" in holed.method
    bowl = points[:, 2] < 0
    open_ = cubature_from_splats(flat_splats(points[bowl], normals[bowl], 0.008), UNIT)
    assert "thin shell" in open_.method
    assert open_.domain.volume < 0.2 * BALL_VOLUME / 2
    assert not covers(open_, (0, 0, -0.2))


def test_open_base_is_closed_downward_only() -> None:
    points, normals = sphere_surface(0.5, 30_000)
    seen = points[:, 2] > -0.3
    splats = flat_splats(points[seen], normals[seen], 0.008)
    standing = cubature_from_splats(splats, UNIT)
    expected = BALL_VOLUME - np.pi * 0.2**2 * (0.5 - 0.2 / 3)  # a cap of height 0.2 is missing
    assert standing.domain.volume == pytest.approx(expected, rel=0.03)
    assert "open base closed" in standing.method
    hanging = cubature_from_splats(splats, Frame((0, 0, 0), 1.0, (0, 0, -1.0)))
    assert hanging.domain.volume < 0.25 * expected


def test_torus_keeps_its_hole() -> None:
    cubature = cubature_from_splats(flat_splats(*torus_surface(0.4, 0.1, 20_000), 0.006), UNIT)
    assert cubature.domain.volume == pytest.approx(2 * np.pi**2 * 0.4 * 0.01, rel=0.03)
    assert covers(cubature, (0.4, 0, 0)) and not covers(cubature, (0, 0, 0))


def test_elongated_bar_has_six_voxels_across() -> None:
    cubature = cubature_from_splats(flat_splats(*box_surface((1, 0.06, 0.06), 30_000), 0.0015), UNIT)
    extent = np.ptp(cubature.domain.cells, axis=0) + 1
    assert (extent[1:] >= 6).all()
    assert cubature.domain.volume == pytest.approx(0.0036, rel=0.15)  # half a voxel of about seven


def test_sheet_becomes_a_shell_two_voxels_thick() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.5, 0.5, (20_000, 3))
    points[:, 2] = 0.003
    cubature = cubature_from_splats(flat_splats(points, np.tile([0, 0, 1.0], (len(points), 1)), 0.008), UNIT)
    assert "thin shell" in cubature.method
    domain = cubature.domain
    assert 1.8 < domain.volume / (1.03 * domain.spacing) < 3.2
    assert len(np.unique(domain.cells[:, :2], axis=0)) * domain.spacing**2 == pytest.approx(1.0, abs=0.1)


def test_separate_parts_stay_and_debris_goes() -> None:
    points, normals = sphere_surface(0.2, 10_000)
    apart = np.array([0.3, 0, 0])
    two = np.concatenate([points - apart, points + apart, [[0, 0.3, 0]]])
    splats = flat_splats(two, np.concatenate([normals, normals, [[0, 0, 1.0]]]), 0.004)
    cubature = cubature_from_splats(splats, UNIT)
    assert "2 separate parts, all kept" in cubature.method
    assert cubature.domain.volume == pytest.approx(2 * 4 / 3 * np.pi * 0.008, rel=0.03)
    assert not covers(cubature, (0, 0.3, 0))


def test_strays_and_a_huge_background_do_not_matter() -> None:
    clutter = round_splats(np.array([[0, 0, 0], [5, 5, 5], [0.2, 0.2, 1.2]]), 3.0)
    cubature = cubature_from_splats(join_splats(ball(), clutter), UNIT)
    assert cubature.domain.volume == pytest.approx(BALL_VOLUME, rel=0.02)


def test_full_cube_stays_within_the_voxel_budget() -> None:
    cubature = cubature_from_splats(flat_splats(*box_surface((1, 1, 1), 40_000), 0.008), UNIT)
    assert len(cubature.domain.cells) <= MOST_VOXELS
    assert cubature.domain.volume == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("n", [1, 3])
def test_very_few_splats(n: int) -> None:
    points = np.array([[0, 0, 0], [0.3, 0.1, 0], [0.7, 0, 0.5]])[:n]
    cubature = cubature_from_splats(round_splats(points, 0.1), UNIT)
    assert cubature.domain.volume == pytest.approx(n * 4 / 3 * np.pi * 0.15**3, rel=0.25)
    assert np.isfinite(cubature.surface).all() and len(cubature.surface) >= 100
    tiny = cubature_from_splats(round_splats(points, 0.001), UNIT)
    assert len(tiny.points) >= 1


def test_contact_points_are_splats_and_hold_the_lowest() -> None:
    splats = ball(20_000, seed=1)
    cubature = cubature_from_splats(splats, UNIT, contact_count=200)
    means = UNIT.to_sim(splats.means)
    assert len(cubature.surface) == 200
    assert {tuple(p) for p in cubature.surface} <= {tuple(p) for p in means}
    for axis in range(3):
        assert cubature.surface[:, axis].min() == means[:, axis].min()
        assert cubature.surface[:, axis].max() == means[:, axis].max()
    gaps = np.linalg.norm(cubature.surface[:, None] - means[None, ::40], axis=2).min(axis=0)
    assert gaps.max() < 2.2 * np.sqrt(np.pi / 200) * 0.5 * 2 / np.sqrt(np.pi)  # no bald patch


def test_mesh_of_intersecting_and_inverted_shells_is_their_union() -> None:
    cross = join(box_mesh((1, 0.25, 0.25)), box_mesh((0.25, 1, 0.25)))
    flipped = Mesh(cross.vertices, np.concatenate([cross.faces[:12], cross.faces[12:, ::-1]]))
    for mesh in (cross, flipped):
        cubature = cubature_from_mesh(mesh, UNIT)
        assert cubature.domain.volume == pytest.approx(2 * 0.0625 - 0.25**3, rel=0.06)
        assert "winding number" in cubature.method
        inner = (np.abs(cubature.surface) < 0.09).all(axis=1)
        assert not inner.any()  # where the bars cross is inside, not surface


def test_open_meshes() -> None:
    mesh = ball_mesh(0.5)
    corners = mesh.vertices[mesh.faces]
    holed = Mesh(mesh.vertices, mesh.faces[48:])
    assert cubature_from_mesh(holed, UNIT).domain.volume == pytest.approx(BALL_VOLUME, rel=0.03)
    bowl = Mesh(mesh.vertices, mesh.faces[(corners[:, :, 2] < 1e-9).all(axis=1)])
    cubature = cubature_from_mesh(bowl, UNIT)
    assert "thin shell" in cubature.method and not covers(cubature, (0, 0, -0.2))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: cubature_from_splats(ball(100), UNIT, keep=np.zeros(100, bool)), "of 100, 100 are masked out"),
        (lambda: cubature_from_splats(round_splats(np.zeros((9, 3)), 0.1, 0.01), UNIT), "9 have an opacity below"),
        (lambda: cubature_from_splats(round_splats(np.ones((9, 3)), 1e-20), UNIT), "no volume"),
        (lambda: cubature_from_splats(ball(100), UNIT, keep=np.ones(7, bool)), "7 entries for 100 splats"),
        (lambda: cubature_from_splats(ball(100), UNIT, count=0), "count is 0"),
        (lambda: cubature_from_splats(ball(100), UNIT, resolution=2), "resolution is 2"),
        (lambda: cubature_from_mesh(Mesh(np.zeros((3, 3)), np.empty((0, 3), int)), UNIT), "no faces"),
        (lambda: cubature_from_mesh(Mesh(np.ones((3, 3)), np.array([[0, 1, 2]])), UNIT), "no volume"),
        (lambda: cubature_from_mesh(Mesh(np.eye(3)[[0, 1, 1]], np.array([[0, 1, 2]])), UNIT), "has an area"),
    ],
)
def test_errors_name_the_problem(call: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(("name", "low", "high"), [("playbot_31k_sh2", 0.03, 0.07), ("guitar_91k_sh0", 0.004, 0.010)])
def test_real_captures_are_solid(name: str, low: float, high: float) -> None:
    from splatanim.formats import read_splats

    splats = read_splats(data_file(f"splats/{name}.ply")).splats
    bounds = np.percentile(splats.means, [1, 99], axis=0)
    frame = Frame(tuple(bounds.mean(axis=0)), float(1 / np.ptp(bounds, axis=0).max()), (0.0, -1.0, 0.0))
    cubature = cubature_from_splats(splats, frame)
    assert low < cubature.domain.volume < high
    assert "thin shell" not in cubature.method
    if name.startswith("playbot"):
        head = frame.to_sim(np.array([[0.0, -0.80, 0.0]]))
        near = np.abs(cubature.domain.centres - head).max(axis=1) < 0.05
        assert near.sum() * cubature.domain.spacing**3 > 0.8 * 0.1**3  # the head is full


def test_loose_parts_are_tied_into_one() -> None:
    """Two balls a diameter apart: one body for elasticity, with little more volume than the two."""
    from scipy import ndimage

    one = ball(6000)
    two = one.replace(means=one.means + np.float32([2.0, 0.0, 0.0]))
    both = merge(one, two)
    cubature = cubature_from_splats(both, UNIT)
    cells = cubature.domain.cells - cubature.domain.cells.min(axis=0)
    grid = np.zeros(cells.max(axis=0) + 1, bool)
    grid[tuple(cells.T)] = True
    assert ndimage.label(grid)[1] == 1 and "2 separate parts" in cubature.method and "1 strut" in cubature.method
    assert cubature.domain.volume == pytest.approx(2 * BALL_VOLUME, rel=0.03)
