"""Numba keys a cached kernel by the text of its own file alone, so a change in a file of helpers that it inlines would
go unnoticed by machines that have it cached. Each such file therefore names the digest of the helpers it was written
against, in a comment; changing the helpers means changing the comment, which empties the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "splatanim"
USES = (
    ("dynamics/materials.py", "_small.py"),
    ("_pushforward.py", "_small.py"),
    ("_pushforward.py", "_harmonics.py"),
    ("render/_project.py", "render/_numba.py"),
    ("render/_blend.py", "render/_numba.py"),
    ("render/_colours.py", "render/_numba.py"),
)


@pytest.mark.parametrize(("kernel", "helpers"), USES)
def test_kernels_name_the_helpers_they_were_compiled_with(kernel: str, helpers: str) -> None:
    digest = hashlib.sha256((ROOT / helpers).read_bytes()).hexdigest()[:12]
    wanted = f"# Compiled with {Path(helpers).name} {digest}."
    assert wanted in (ROOT / kernel).read_text(encoding="utf-8"), f"put this line into {kernel}: {wanted}"


def test_every_kernel_file_with_helpers_is_listed() -> None:
    helpers = {Path(name).stem for _, name in USES}
    found = {
        (path.relative_to(ROOT).as_posix(), stem)
        for path in ROOT.rglob("*.py")
        for stem in helpers
        if f".{stem} import" in path.read_text() and path.name != "rotations.py"  # which calls it from Python
    }
    assert found == {(kernel, Path(name).stem) for kernel, name in USES}
