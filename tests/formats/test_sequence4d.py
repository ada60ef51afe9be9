"""The 4D format: its frames are those of the simulation, the formula of its documentation holds, damage is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from splatanim.data import Frame
from splatanim.errors import InputError
from splatanim.formats import write_ply
from splatanim.formats.sequence4d import Sequence4D, read_sequence4d, sequence_of, write_sequence4d
from splatanim.rotations import quaternions_to_matrices
from splatanim.transforms import BoundSplats, pose
from tests.helpers import random_splats


def made(count: int = 400, handles: int = 5, frames: int = 7, *, part: bool = False) -> tuple[Sequence4D, BoundSplats]:
    rng = np.random.default_rng(4)
    everything = random_splats(count, degree=2).replace(offset=(5e5, 4.5e6, 100.0))
    rows = rng.permutation(count)[: count // 2 if part else count]
    splats = everything.select(rows)
    frame = Frame((0.1, -0.2, 0.3), 0.5, (0.0, -1.0, 0.0))
    rest = frame.to_sim(splats.means).astype(np.float32)
    weights = rng.normal(size=(len(rows), handles)).astype(np.float32)
    slopes = rng.normal(size=(len(rows), handles, 3)).astype(np.float32)
    bound = BoundSplats(splats, frame, rest, weights, slopes)
    motion = 0.05 * rng.normal(size=(frames, handles, 3, 4))
    whole = everything if part else None
    return sequence_of(bound, motion, np.arange(frames) / 30, rows=rows, whole=whole), bound


def covariances(splats) -> np.ndarray:
    axes = quaternions_to_matrices(splats.quaternions) * splats.scales[:, None, :].astype(np.float64)
    return axes @ axes.transpose(0, 2, 1)


@pytest.mark.parametrize("part", [False, True])
def test_frames_are_those_of_the_simulation(tmp_path: Path, part: bool) -> None:
    sequence, bound = made(part=part)
    write_sequence4d(tmp_path / "a.npz", sequence)
    read = read_sequence4d(tmp_path / "a.npz")
    assert len(read) == 7 and read.splats.offset == (5e5, 4.5e6, 100.0)
    for k in (0, 6, -1):
        exact, frame = pose(bound, sequence.handles[k]), read.frame(k)
        assert len(frame) == 400
        got = frame.select(read.moving)
        order = _order(bound, sequence)
        np.testing.assert_allclose(got.means, exact.means[order], atol=2e-5)
        wanted = covariances(exact)[order]
        error = np.linalg.norm(covariances(got) - wanted, axis=(1, 2)) / np.linalg.norm(wanted, axis=(1, 2))
        assert error.max() < 5e-3 and np.median(error) < 1e-3
        np.testing.assert_allclose(got.sh, exact.sh[order], atol=3e-3)
    still = np.setdiff1d(np.arange(400), read.moving)
    assert len(still) == (200 if part else 0)
    np.testing.assert_array_equal(read.frame(3).means[still], sequence.splats.means[still])


def _order(bound: BoundSplats, sequence: Sequence4D) -> np.ndarray:
    """The bound rows in the order of the file: by their place at rest, which is unlike any other's."""
    found = [int(np.flatnonzero((bound.rest == place).all(axis=1))[0]) for place in sequence.bound.rest]
    return np.array(found)


def test_the_documented_formula_poses_the_arrays(tmp_path: Path) -> None:
    sequence, _ = made()
    write_sequence4d(tmp_path / "a.npz", sequence)
    data = np.load(tmp_path / "a.npz", allow_pickle=False)
    one = np.concatenate([data["rest"], np.ones((400, 1), np.float32)], axis=1)
    moved = data["rest"] + np.einsum("nh,hrc,nc->nr", data["weights"], data["handles"][2], one)
    shown = sequence.frame(2)
    np.testing.assert_allclose(
        moved / data["scale"] + (data["centre"] - data["offset"]), shown.means, rtol=0, atol=3e-5
    )


def test_between_frames_and_beyond_the_ends() -> None:
    sequence, _ = made()
    np.testing.assert_array_equal(sequence.at(-1.0).means, sequence.frame(0).means)
    np.testing.assert_array_equal(sequence.at(99.0).means, sequence.frame(6).means)
    middle = 0.5 * (sequence.frame(2).means + sequence.frame(3).means)  # positions are linear in the handles
    np.testing.assert_allclose(sequence.at(2.5 / 30).means, middle, atol=1e-5)
    with pytest.raises(InputError, match="there is no frame 7; it has 7"):
        sequence.frame(7)


def test_a_long_sequence_stays_small(tmp_path: Path) -> None:
    """200 frames take less than two .ply frames of the same splats would."""
    sequence, _ = made(count=3000, handles=17, frames=200)
    write_sequence4d(tmp_path / "a.npz", sequence)
    write_ply(tmp_path / "a.ply", sequence.splats)
    assert (tmp_path / "a.npz").stat().st_size < 2 * (tmp_path / "a.ply").stat().st_size


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sequence, _ = made()
    with pytest.raises(InputError, match=r"is written as .npz. Give a name such as a.npz"):
        write_sequence4d(tmp_path / "a.bin", sequence)
    write_sequence4d(path, sequence)
    whole = path.read_bytes()
    arrays = dict(np.load(path))
    cases = {
        "is no .npz that can be read": whole[:-400],
        "is no 4D sequence of the kind splatanim-4d/1": _npz(tmp_path, {"handles": np.zeros(3)}),
        "weights has shape": _npz(tmp_path, arrays | {"weights": arrays["weights"][:-1]}),
        "moving refers to splat 400 of 400": _npz(tmp_path, arrays | {"moving": arrays["moving"] + 1}),
        "'handles'": _npz(tmp_path, {k: v for k, v in arrays.items() if k != "handles"}),
        "is no .npz": b"\x80\x04]",
    }
    for message, data in cases.items():
        path.write_bytes(data)
        with pytest.raises(InputError, match=rf"a\.npz: .*{message}"):
            read_sequence4d(path)
    with pytest.raises(InputError, match="no such file"):
        read_sequence4d(tmp_path / "gone.npz")


def _npz(folder: Path, arrays: dict[str, np.ndarray]) -> bytes:
    np.savez(folder / "made.npz", **arrays)
    return (folder / "made.npz").read_bytes()


def test_bytes_flipped_anywhere_never_end_in_a_traceback(tmp_path: Path) -> None:
    sequence, _ = made(count=30, frames=2)
    path = tmp_path / "a.npz"
    write_sequence4d(path, sequence)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    rng = np.random.default_rng(0)
    for _ in range(150):
        data = whole.copy()
        data[rng.integers(0, len(data), 3)] = rng.integers(0, 256, 3)
        path.write_bytes(data.tobytes())
        try:
            read_sequence4d(path)
        except InputError as error:
            assert "a.npz: " in str(error)
