"""Readers and writers against an independent implementation of SPZ and SOG, where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made import scene, sog_bytes, spz_bytes

from splatanim.formats import read_splats
from splatanim.formats.axes import half_turn
from splatanim.formats.spz import write_spz

gsply = pytest.importorskip("gsply")


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("mine", [True, False])
def test_spz_files_are_read_alike(tmp_path: Path, version: int, mine: bool) -> None:
    if version == 4:
        pytest.importorskip("zstandard")
    path = tmp_path / "a.spz"
    if mine:
        write_spz(path, scene(), version=version)
    else:
        path.write_bytes(spz_bytes(scene(), version))
    theirs, ours = gsply.read_spz(str(path)), read_splats(path).splats
    means, quaternions, sh = half_turn(ours.means, ours.quaternions, ours.sh)  # gsply stays in the file's axes
    np.testing.assert_allclose(theirs.means, means, atol=1e-6)
    np.testing.assert_allclose(theirs.quats, quaternions, atol=1e-6)
    np.testing.assert_allclose(theirs.scales, ours.log_scales, atol=1e-6)
    np.testing.assert_allclose(np.asarray(theirs.shN).reshape(sh[:, 1:].shape), sh[:, 1:], atol=1e-6)
    np.testing.assert_allclose(theirs.sh0, sh[:, 0], atol=1e-5)


def test_sog_files_are_read_alike(tmp_path: Path) -> None:
    pytest.importorskip("imagecodecs")
    path = tmp_path / "a.sog"
    path.write_bytes(sog_bytes(scene()))
    theirs, ours = gsply.sogread(str(path)), read_splats(path).splats
    np.testing.assert_allclose(theirs.means, ours.means, atol=1e-6)
    np.testing.assert_allclose(theirs.quats, ours.quaternions, atol=1e-5)
    np.testing.assert_allclose(theirs.scales, ours.log_scales, atol=1e-6)
