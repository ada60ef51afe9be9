"""Cutting long splats: moments, opacities, closed forms of the miss, and pictures of the rest pose."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from splatanim.binding import Handles
from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.render.camera import look_at
from splatanim.render.rasterize import rasterize
from splatanim.splitting import RandomPoses, Splitting, misses, piece_opacities, row_of, split_splats
from splatanim.transforms import BoundSplats, bind_splats, deform, pose

FRAME = Frame((0.5, -0.2, 0.1), 0.5, (0.0, 1.0, 0.0))
COUNTS = (3, 5, 7, 9)


@dataclasses.dataclass(frozen=True)
class Square:
    """One field, W = x^2: under Z = (0 | e_z) a parabola, whose linearisation misses by s_x^2 exactly."""

    kind: str = "square"
    handles: int = 1

    def weights(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(points, np.float64)[:, :1] ** 2

    def gradients(self, points: np.ndarray) -> np.ndarray:
        out = np.zeros((len(points), 1, 3))
        out[:, 0, 0] = 2.0 * np.asarray(points, np.float64)[:, 0]
        return out

    def evaluate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.weights(points), self.gradients(points)


def _needles(count: int = 300, seed: int = 0, axis: int = 0) -> Splats:
    """Splats in a box of 2 file units (1 m), every third a needle along an axis."""
    rng = np.random.default_rng(seed)
    scales = np.exp(np.log(0.008) + 0.2 * rng.normal(size=(count, 3)))
    scales[::3, axis] = rng.uniform(0.1, 0.25, len(scales[::3]))
    means = rng.uniform(-1, 1, (count, 3)) + FRAME.centre
    quaternions = np.zeros((count, 4))
    quaternions[:, 0] = 1.0
    quaternions[1::3] = rng.normal(size=quaternions[1::3].shape)
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    return Splats(
        means.astype(np.float32),
        quaternions.astype(np.float32),
        np.log(scales).astype(np.float32),
        rng.normal(1.0, 1.5, count).astype(np.float32),
        (0.15 * rng.normal(size=(count, 4, 3))).astype(np.float32),
        extras={"row": np.arange(count, dtype=np.float32)},
    )


def _bound(splats: Splats | None = None) -> tuple[BoundSplats, Handles]:
    handles = Handles(Square())
    return bind_splats(_needles() if splats is None else splats, FRAME, handles), handles


def _lift(amount: float) -> np.ndarray:
    """One pose (1, 2, 3, 4): z rises by amount x^2; the constant handle turns and shears everything."""
    z = np.zeros((1, 2, 3, 4))
    z[0, 0, 2, 3] = amount
    z[0, 1, :, :3] = np.random.default_rng(3).normal(scale=0.3, size=(3, 3))
    return z


def _covariances(splats: Splats) -> np.ndarray:
    from splatanim.rotations import quaternions_to_matrices

    root = quaternions_to_matrices(splats.quaternions) * splats.scales[:, None, :].astype(np.float64)
    return root @ root.transpose(0, 2, 1)


@pytest.mark.parametrize("count", COUNTS)
def test_a_row_keeps_mean_and_covariance_and_looks_like_the_whole(count: int) -> None:
    row = row_of(count)
    assert row.shares.sum() == pytest.approx(1.0) and row.shares @ row.places == pytest.approx(0.0, abs=1e-15)
    assert row.shares @ row.places**2 + row.length**2 == pytest.approx(1.0) and 0 < row.length < 1
    t = np.linspace(-4, 4, 801)
    sum_ = (row.shares / row.length * np.exp(-0.5 * ((t[:, None] - row.places) / row.length) ** 2)).sum(axis=1)
    assert np.abs(sum_ - np.exp(-0.5 * t**2)).max() < 0.021


def test_more_pieces_are_shorter() -> None:
    lengths = [row_of(count).length for count in COUNTS]
    assert all(b < a for a, b in itertools.pairwise(lengths)) and lengths[-1] < 0.4


@pytest.mark.parametrize("count", COUNTS)
def test_pieces_let_through_what_the_whole_let_through(count: int) -> None:
    row = row_of(count)
    opacities = np.array([1e-4, 0.1, 0.5, 0.9, 0.99, 0.999])
    found = piece_opacities(opacities, row)
    assert (found > 0).all() and (found < 1).all()
    reach = np.exp(-0.5 * ((row.places[:, None] - row.places) / row.length) ** 2)
    through = np.prod(1.0 - found[:, None, :] * reach, axis=2)
    whole = 1.0 - opacities[:, None] * np.exp(-0.5 * row.places**2)
    np.testing.assert_allclose(through, whole, atol=2e-3)
    np.testing.assert_allclose(found[0], opacities[0] * row.shares / row.length, rtol=0.12)


def test_the_miss_of_a_parabola_in_closed_form() -> None:
    bound, handles = _bound()
    rows = np.arange(0, len(bound.rest), 3)  # needles along x
    length = 2.0 * FRAME.scale * bound.splats.scales[rows, 0].astype(np.float64)
    found = misses(bound, handles, rows, reach=2.0, poses=_lift(0.7))
    np.testing.assert_allclose(found, 0.7 * length**2, rtol=1e-4)
    several = np.concatenate([_lift(0.7), _lift(-1.4), _lift(0.0)])
    np.testing.assert_allclose(misses(bound, handles, rows, reach=2.0, poses=several), 1.4 * length**2, rtol=1e-4)
    across, _ = _bound(_needles(axis=1))  # along y: the parabola is straight there
    assert misses(across, handles, rows, reach=2.0, poses=_lift(0.7)).max() < 1e-6


def test_a_frozen_weight_misses_at_first_order() -> None:
    bound, handles = _bound()
    frozen = dataclasses.replace(bound, weight_gradients=False)
    rows = np.arange(0, len(bound.rest), 3)
    x, s = bound.rest[rows, 0].astype(np.float64), 2.0 * FRAME.scale * bound.splats.scales[rows, 0].astype(np.float64)
    expected = 0.7 * np.maximum(abs((x + s) ** 2 - x**2), abs((x - s) ** 2 - x**2))
    np.testing.assert_allclose(misses(frozen, handles, rows, reach=2.0, poses=_lift(0.7)), expected, rtol=1e-4)


def test_the_expectation_over_random_poses_is_that_of_sampling() -> None:
    bound, handles = _bound()
    rows = np.arange(0, 30, 3)
    spread = RandomPoses(np.array([0.2, 0.4]), np.array([0.3, 0.1]), np.array([0.1, -0.2, 0.05]))
    closed = misses(bound, handles, rows, reach=2.0, poses=spread)
    rng = np.random.default_rng(0)
    squares = np.zeros(len(rows))
    samples = 4000
    for _ in range(samples):
        z = rng.normal(size=(1, 2, 3, 4)) * np.concatenate(
            [np.repeat(spread.linear[:, None], 3, axis=1), spread.shift[:, None]], axis=1
        ).reshape(1, 2, 1, 4)
        z[..., 3] -= z[..., :3] @ spread.centre  # columns about the centre
        squares += misses(bound, handles, rows, reach=2.0, poses=z) ** 2 / samples
    # the worse end of each pose is a little more than the worse end of the mean
    assert (np.sqrt(squares) > 0.97 * closed).all() and (np.sqrt(squares) < 1.3 * closed).all()


def test_a_straight_map_needs_no_cut() -> None:
    bound, handles = _bound()
    z = _lift(0.0)
    assert split_splats(bound, handles, poses=z) is bound
    assert split_splats(bound, handles, Splitting(rounds=0)) is bound
    empty, _ = _bound(_needles().select(np.zeros(0, np.int64)))
    assert split_splats(empty, handles) is empty


@pytest.mark.parametrize("poses", [_lift(1.0), None], ids=["known pose", "random poses"])
def test_only_what_misses_is_cut_and_pieces_follow(poses: np.ndarray | None) -> None:
    bound, handles = _bound()
    options = Splitting(rounds=4)
    split = split_splats(bound, handles, options, poses=poses)
    assert split.parents is not None and len(split.parents) == len(split.rest) > len(bound.rest)
    assert (np.diff(split.parents) >= 0).all() and set(split.parents) == set(range(len(bound.rest)))
    np.testing.assert_array_equal(split.splats.extras["row"], split.parents)
    whole = np.bincount(split.parents) == 1
    assert whole[1::3].all() and not whole[::3].all()  # round splats are left alone
    rows = np.flatnonzero(whole[split.parents])
    for name in ("means", "quaternions", "log_scales", "raw_opacities", "sh"):
        np.testing.assert_array_equal(
            getattr(split.splats, name)[rows], getattr(bound.splats, name)[split.parents[rows]]
        )
    again = bind_splats(split.splats, FRAME, handles)
    np.testing.assert_allclose(split.rest, again.rest, atol=1e-6)
    np.testing.assert_allclose(split.weights, again.weights, atol=1e-5)
    np.testing.assert_allclose(split.slopes, again.slopes, atol=1e-5)
    if poses is not None:
        size = float(np.ptp(bound.rest, axis=0).max())
        left = misses(split, handles, np.arange(len(split.rest)), reach=2.0, poses=poses)
        assert left.max() < 1.05 * options.tolerance * size


def test_pieces_of_a_faint_splat_have_its_mean_and_covariance() -> None:
    splats = _needles()
    splats = splats.replace(raw_opacities=np.full(len(splats), -7.0, np.float32))
    bound, handles = _bound(splats)
    split = split_splats(bound, handles, Splitting(rounds=1), poses=_lift(2.0))
    assert split.parents is not None
    mass = split.splats.opacities.astype(np.float64) * split.splats.scales.astype(np.float64).prod(axis=1)
    total = np.bincount(split.parents, mass)
    share = mass / total[split.parents]
    means = np.stack([np.bincount(split.parents, share * c) for c in split.splats.means.T], axis=1)
    np.testing.assert_allclose(means, splats.means, atol=1e-5)
    away = split.splats.means - means[split.parents]
    spread = _covariances(split.splats) + away[:, :, None] * away[:, None, :]
    found = np.stack([np.bincount(split.parents, share * c) for c in spread.reshape(-1, 9).T], axis=1).reshape(-1, 3, 3)
    exact = _covariances(splats)
    np.testing.assert_allclose(found, exact, atol=0.06 * np.abs(exact).max())  # shares are exact where opacity -> 0
    np.testing.assert_allclose(total, splats.opacities * splats.scales.prod(axis=1), rtol=0.05)


@pytest.mark.parametrize("opacity", [0.05, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("eye", [(0.0, 0.0, 5.0), (3.0, 2.0, 3.0)], ids=["from the side", "aslant"])
def test_the_rest_pose_looks_as_before(eye: tuple[float, ...], opacity: float) -> None:
    """Needles that lie apart: what is left then is the row's own error, not the order of overlapping ones."""
    count = 5
    splats = _needles(3 * count).select(np.arange(0, 3 * count, 3))
    means = np.zeros((count, 3), np.float32)
    means[:, 1] = np.linspace(-0.8, 0.8, count)
    means += np.asarray(FRAME.centre, np.float32)
    logits = np.full(count, np.log(opacity / (1.0 - opacity)), np.float32)
    bound, handles = _bound(splats.replace(means=means, raw_opacities=logits))
    split = split_splats(bound, handles, poses=_lift(3.0))
    assert len(split.rest) > 5 * count
    camera = look_at(np.add(FRAME.centre, eye), FRAME.centre, (0.0, 1.0, 0.0), width=160, height=160)
    before, after = (np.clip(rasterize(s, camera, backend="cpu").rgb, 0, 1) for s in (bound.splats, split.splats))
    assert before.min() < 1.0 - 0.4 * opacity
    assert -10.0 * np.log10(np.mean((before - after) ** 2)) > 42.0


def test_posing_pieces_lies_on_the_parabola() -> None:
    bound, handles = _bound()
    split = split_splats(bound, handles, poses=_lift(1.0))
    means, _ = deform(split, _lift(1.0)[0])
    np.testing.assert_allclose(pose(split, _lift(1.0)[0]).means, means, atol=1e-5)
    rest = split.rest.astype(np.float64)
    turned = rest + rest @ _lift(1.0)[0, 1, :, :3].T
    turned[:, 2] += rest[:, 0] ** 2
    np.testing.assert_allclose(means, FRAME.to_file(turned), atol=1e-6)


def test_bad_options_are_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"tolerance is 0; it must be positive"):
        Splitting(tolerance=0)
    with pytest.raises(InputError, match=r"rounds is 7; use 0 \(never cut\) to 6"):
        Splitting(rounds=7)
    with pytest.raises(InputError, match=r"cut into 3, 5, 7, 9 pieces, not 4"):
        row_of(4)


def test_parts_of_an_object_are_cut_as_the_whole_is() -> None:
    bound, handles = _bound()
    poses = np.zeros((1, len(handles), 3, 4))
    poses[0, 0, 2, 3] = 1.0
    whole = split_splats(bound, handles, poses=poses)
    size = float(np.ptp(bound.rest, axis=0).max())
    parts = []
    for rows in np.array_split(np.arange(len(bound.rest)), 3):
        part = dataclasses.replace(
            bound,
            splats=bound.splats.select(rows),
            rest=bound.rest[rows],
            weights=bound.weights[rows],
            slopes=bound.slopes[rows],
        )
        parts.append(split_splats(part, handles, poses=poses, size=size))
    assert len(whole.rest) > len(bound.rest)
    np.testing.assert_array_equal(np.concatenate([part.splats.means for part in parts]), whole.splats.means)
    np.testing.assert_array_equal(np.concatenate([part.rest for part in parts]), whole.rest)
