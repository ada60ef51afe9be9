"""``--select``: a part moves, the rest stays bit by bit, and nothing tears between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.animate import AnimateConfig, animate, prepare, read
from pipelines.cli import main
from pipelines.scene_select import chosen_splats, insert, parse_selection, select_part
from splatanim.errors import InputError
from splatanim.formats import read_splats, write_ply
from splatanim.formats.ply_table import read_header, read_rows
from tests.helpers import random_splats

FAST = ["--seconds", "0.3", "--size", "64x48", "--fps", "15", "--handles", "4"]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An upright bar of 6,000 splats, y down, 4 units high, with unnormalised quaternions and three floaters."""
    rng = np.random.default_rng(3)
    means = rng.uniform([-0.5, -4.0, -0.5], [0.5, 0.0, 0.5], (6000, 3))
    means[:3] = [[300.0, 0, 0], [0, 300.0, 0], [0, 0, 300.0]]
    splats = random_splats(6000, degree=1)
    splats = splats.replace(
        means=means.astype(np.float32),
        raw_opacities=np.full(6000, 2.0, np.float32),
        quaternions=splats.quaternions * rng.uniform(0.5, 2.0, (6000, 1)).astype(np.float32),
    )
    path = tmp_path_factory.mktemp("select") / "bar.ply"
    write_ply(path, splats)
    return path


def rows_of(path: Path) -> np.ndarray:
    """The raw rows of a .ply."""
    header = read_header(path)
    vertex = header.element("vertex")
    return np.concatenate(list(read_rows(path, header, vertex)))


def test_the_rest_stays_bit_by_bit_in_every_frame(capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "seq"
    arguments = [
        "animate",
        str(capture),
        "--select",
        "box:-9,-9,-9,9,-2.4,9",
        "--motion",
        "poke",
        "--material",
        "jelly",
    ]
    assert main([*arguments, "-o", str(tmp_path / "a.mp4"), "--export", f"ply:{folder}", *FAST]) == 0
    source = rows_of(capture)
    still = source["y"] > -2.4
    still[:3] = True  # floaters are no part of anything
    frames = sorted(folder.iterdir())
    assert len(frames) == 4
    for path in frames:
        frame = rows_of(path)
        assert frame.dtype == source.dtype and len(frame) == len(source)
        assert frame[still].tobytes() == source[still].tobytes()
    moved = np.abs(frame["x"] - source["x"])[~still]
    assert moved.max() > 0.02 and 0.3 < (~still).mean() < 0.5


def test_nothing_tears_at_the_interface(capture: Path, tmp_path: Path) -> None:
    """Splats just inside the part hardly move, and how far they move rises smoothly from there."""
    config = AnimateConfig(
        capture,
        tmp_path / "a.mp4",
        motion="twist",
        material="jelly",
        select="box:-9,-9,-9,9,-2.4,9",
        seconds=0.4,
        size="64x48",
        fps=10.0,
        handles=4,
        export=(f"npz:{tmp_path / 'a.npz'}",),
    )
    result = animate(config)
    assert result.trajectory.converged_fraction == 1.0
    data = np.load(tmp_path / "a.npz")
    rest = data["rest"].astype(np.float64)
    one = np.concatenate([rest, np.ones((len(rest), 1))], axis=1)
    moved = np.einsum("nh,thrc,nc->tnr", data["weights"], data["handles"], one, optimize=True)
    away = np.linalg.norm(moved, axis=2).max(axis=0) / data["scale"]
    height = -2.4 - read_splats(capture).splats.means[data["rows"], 1]  # over the cut, in file units
    assert away[height < 0.05].max() < 0.01  # a fifth of a splat's standard deviation
    assert away.max() > 0.1 and away[height < 0.2].max() < 0.3 * away.max()


def test_a_labelled_part_is_the_same_as_its_box(capture: Path, tmp_path: Path) -> None:
    subject = prepare(read_splats(capture), "auto", 1.0, capture)
    total = len(subject.everything)
    labels = np.where(read_splats(capture).splats.means[:, 1] < -2.4, 5, 0)
    np.save(tmp_path / "l.npy", labels)
    boxed = chosen_splats(parse_selection("box:-9,-9,-9,9,-2.4,9"), subject, total)
    for text in (f"labels:{tmp_path / 'l.npy'}", f"labels:{tmp_path / 'l.npy'}:5"):
        np.testing.assert_array_equal(chosen_splats(parse_selection(text), subject, total), boxed)
    ball = chosen_splats(parse_selection("sphere:0,-4,0,1"), subject, total)
    assert 0 < ball.sum() < boxed.sum()


def test_a_part_is_held_where_it_meets_the_rest_and_nowhere_else(capture: Path) -> None:
    subject = prepare(read_splats(capture), "auto", 1.0, capture)
    part = select_part(parse_selection("box:-9,-9,-9,9,-2.4,9"), subject, len(subject.everything))
    (region,) = part.regions
    points = subject.frame.to_sim(subject.splats.means[part.rows])
    height = (-2.4 - subject.splats.means[part.rows, 1]) * subject.frame.scale
    mask = region.mask(points)[0]
    assert mask[height < 0.01].max() < 0.05 and mask[height > 0.2].min() == 1.0
    assert len(part.still) and (subject.frame.to_file(part.still)[:, 1] > -2.4).all()
    assert "move; the rest stands still" in part.note


def test_inserted_rows_leave_the_others_alone() -> None:
    whole, part = random_splats(20, seed=1), random_splats(3, seed=2)
    out = insert(whole, np.array([4, 9, 2]), part)
    np.testing.assert_array_equal(out.means[[4, 9, 2]], part.means)
    others = np.setdiff1d(np.arange(20), [4, 9, 2])
    assert out.select(others).sh.tobytes() == whole.select(others).sh.tobytes()
    assert not np.shares_memory(out.means, whole.means)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("box:1,2,3", "--select 'box:1,2,3' is none of box:x0,y0,z0,x1,y1,z1, sphere:x,y,z,r"),
        ("cube:1,2,3,4", "is none of box"),
        ("sphere:0,0,0,x", "is none of box"),
        ("sphere:0,0,0,nan", "is none of box"),
        ("sphere:0,0,0,-1", "the sphere's radius must be positive"),
        ("labels:", "is none of box"),
        ("labels:absent.npy", "absent.npy: no such file"),
        ("box:50,50,50,51,51,51", "holds 0 of 5997 splats; a part needs at least 50. The capture fills (-0."),
        ("box:-99,-99,-99,99,99,99", "holds every splat; leave --select out to move all"),
    ],
)
def test_selections_that_mean_nothing_are_refused(capture: Path, tmp_path: Path, capsys, text: str, said: str) -> None:
    assert main(["animate", str(capture), "--select", text, "-o", str(tmp_path / "a.mp4"), *FAST]) == 2
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err and not list(tmp_path.iterdir())


def test_labels_of_another_length_are_refused(capture: Path, tmp_path: Path) -> None:
    subject = prepare(read(AnimateConfig(capture)), "auto", 1.0, capture)
    (tmp_path / "l.txt").write_text("1\n0\n")
    with pytest.raises(InputError, match=r"l\.txt: 2 labels for a file of 6000 splats\. One integer for each splat"):
        chosen_splats(parse_selection(f"labels:{tmp_path / 'l.txt'}"), subject, len(subject.everything))
