"""References of the deflection study are solved once: kept, read back, and solved anew when they no longer fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines import deflection
from tests.helpers import box_cubature


def test_a_reference_is_solved_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bar, other = box_cubature((12, 3, 3), 1 / 12), box_cubature((12, 3, 2), 1 / 12)
    file, solved = tmp_path / "bar.npz", []
    solve = deflection.reference

    def counted(cubature):
        solved.append(cubature)
        return solve(cubature)

    monkeypatch.setattr(deflection, "reference", counted)
    first, second = (deflection.kept_reference(bar, file) for _ in range(2))
    assert len(solved) == 1
    np.testing.assert_array_equal(first.moved, second.moved)
    assert (first.material, first.seconds, first.region) == (second.material, second.seconds, second.region)
    assert 0.05 < np.linalg.norm(first.moved, axis=1).max() < 0.11  # of the length, which is 1 m
    deflection.kept_reference(other, file)  # another object under the same name
    monkeypatch.setattr(deflection, "HELD", 0.3)
    deflection.kept_reference(other, file)
    assert len(solved) == 3
