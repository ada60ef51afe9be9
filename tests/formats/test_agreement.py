"""One capture in all formats: after the change of axes they agree with each other, within each one's quantisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree
from test_compressed_formats import covariances

from splatanim.data import Splats
from splatanim.formats import read_splats
from splatanim.formats.clean import SH_C0
from tests.helpers import data_file

_PLAYBOT, _SMALL, _GUITAR = "playbot_31k_sh2.ply", "playbot_8k_sh2.ply", "guitar_91k_sh0.ply"
# (file, the .ply it is the same as, format, place, shape: median and worst, display colours, harmonics)
CASES = [
    ("playbot_31k.compressed.ply", _PLAYBOT, "ply/compressed", 6e-4, 0.003, 0.01, 0.0085, 0.017),
    ("playbot_31k.sog", _PLAYBOT, "sog/2", 5e-5, 1e-4, 0.04, 0.009, 0.012),
    ("playbot_31k.splat", _PLAYBOT, "splat", 0, 0.01, 0.02, 0.004, None),
    ("playbot_31k.spz", _PLAYBOT, "spz/3", 1.3e-4, 0.035, 0.07, 0.0072, 0.07),
    ("playbot_8k.ksplat", _SMALL, "ksplat/0", 0, 1e-6, 1e-6, 0.004, 1e-7),
    ("playbot_8k_sog_unbundled", _SMALL, "sog/2", 0, 1e-6, 1e-6, 1e-6, 1e-7),
    ("playbot_8k_sog_unbundled/meta.json", _SMALL, "sog/2", 0, 1e-6, 1e-6, 1e-6, 1e-7),
    ("guitar.compressed.ply", _GUITAR, "ply/compressed", 0, 1e-6, 1e-5, 1e-6, None),
]


def in_order_of(splats: Splats, truth: Splats) -> Splats:
    """SOG files are sorted in space: the same splats, matched by place."""
    if np.abs(splats.means - truth.means).max() < 0.01:
        return splats
    rows = cKDTree(splats.means).query(truth.means)[1]
    assert len(np.unique(rows)) > 0.99 * len(rows)
    return splats.select(rows)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_formats_agree(case) -> None:
    name, truth_name, form, place, middle, worst, colour, harmonics = case
    result, truth = read_splats(data_file(f"splats/{name}")), read_splats(data_file(f"splats/{truth_name}")).splats
    assert result.format == form and result.total == len(truth) and not result.dropped and not result.warnings
    splats = in_order_of(result.splats, truth)
    np.testing.assert_allclose(splats.means, truth.means, rtol=0, atol=place + 1e-12)
    wanted = covariances(truth)
    error = np.linalg.norm(covariances(splats) - wanted, axis=(1, 2)) / np.linalg.norm(wanted, axis=(1, 2))
    assert np.median(error) < middle and error.max() < worst
    np.testing.assert_allclose(splats.opacities, truth.opacities, rtol=0, atol=0.0040)
    shown, meant = (np.clip(0.5 + SH_C0 * s.sh[:, 0], 0, 1) for s in (splats, truth))
    reach = (meant > 0) & (meant < 1)  # 8-bit colours end there
    assert np.abs(shown - meant)[reach].max() < colour
    if harmonics is not None:
        ends = (-1, 1) if form.startswith("spz") else (-4, 4)  # what the format can hold
        np.testing.assert_allclose(splats.sh[:, 1:], truth.sh[:, 1:].clip(*ends), rtol=0, atol=harmonics)
    else:
        assert splats.sh_degree == 0
