"""Outputs appear whole or not at all, and leave no temporary file."""

from __future__ import annotations

import errno

import pytest

from splatanim.errors import InputError, OutputError
from splatanim.formats.atomic import atomic_path


def test_success_moves_the_file_into_place(tmp_path):
    target = tmp_path / "clip.final.mp4"
    target.write_text("old")
    with atomic_path(target) as temporary:
        assert temporary.parent == target.parent and temporary.suffix == ".mp4" and not temporary.exists()
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, InputError, ZeroDivisionError])
def test_any_failure_keeps_the_old_file_and_removes_the_new(tmp_path, error):
    target = tmp_path / "a.ply"
    target.write_text("old")
    with pytest.raises(error), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise error
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("code", "message"),
    [(errno.ENOSPC, "a.ply: cannot be written .*The disk is full: free some space"), (errno.EIO, "Check the folder")],
)
def test_os_errors_become_output_errors(tmp_path, code, message):
    with pytest.raises(OutputError, match=message), atomic_path(tmp_path / "a.ply") as temporary:
        temporary.write_text("half")
        raise OSError(code, "said the disk")
    assert not list(tmp_path.iterdir())


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(OutputError, match=r"a\.ply: cannot be written"), atomic_path(tmp_path / "a.ply"):
        pass


def test_bad_targets_are_refused_before_the_work(tmp_path):
    ran = False
    for target, message in ((tmp_path, "is a folder. Give the name"), (tmp_path / "no" / "a.ply", "does not exist")):
        with pytest.raises(OutputError, match=message), atomic_path(target):
            ran = True
    assert not ran


def test_a_symbolic_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "a.ply", tmp_path / "real" / "b.ply"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink() and real.read_text() == "new"
