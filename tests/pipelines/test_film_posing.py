"""Posing block by block: the same splats as all at once, cut or not, and little memory for large captures."""

from __future__ import annotations

import numpy as np
import pytest

import pipelines.film_posing as posing
from pipelines.bench_memory import measure
from pipelines.film_posing import bind_capture, drawn_capture, posed_whole
from splatanim.binding import Handles
from splatanim.data import Frame
from splatanim.field.gaussians import bind_gaussians
from splatanim.render.camera import look_at
from splatanim.render.cpu import CpuRasterizer
from splatanim.splitting import split_splats
from splatanim.transforms import bind_splats, pose
from tests.helpers import box_cubature, random_splats

COUNT = 700
FRAME = Frame((0.1, -0.2, 0.0), 0.5, (0.0, 1.0, 0.0))


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> tuple:
    """Splats with needles, the handles of a box, bent poses; in blocks of 128 rows."""
    monkeypatch.setattr(posing, "BLOCK", 128)
    splats = random_splats(COUNT, degree=2, seed=3)
    splats.log_scales[::9, 0] = np.log(0.5)  # needles
    handles = Handles(bind_gaussians(box_cubature((10, 10, 10), 0.12).domain, 6))
    z = 0.25 * np.random.default_rng(4).normal(size=(3, len(handles), 3, 4))
    return splats, handles, z


def test_blocks_pose_what_all_at_once_is_posed_to(setup: tuple) -> None:
    splats, handles, z = setup
    splats.extras["kept"] = np.arange(COUNT)
    bound = bind_capture(splats, FRAME, handles)
    whole = bind_splats(splats, FRAME, handles)
    found, wanted = posed_whole(bound, z[0]), pose(whole, z[0])
    for name in ("means", "quaternions", "log_scales", "raw_opacities", "sh"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=2e-6, err_msg=name)
    np.testing.assert_array_equal(found.extras["kept"], splats.extras["kept"])
    for name in ("rest", "weights", "slopes"):
        np.testing.assert_allclose(getattr(bound.whole(), name), getattr(whole, name), atol=1e-6)


def test_cut_splats_and_one_colour_each_make_the_same_picture(setup: tuple) -> None:
    splats, handles, z = setup
    drawn = drawn_capture(bind_capture(splats, FRAME, handles), handles, z)
    cut = split_splats(bind_splats(splats, FRAME, handles), handles, poses=z)
    assert drawn.cut > 20 and sum(block.count for block in drawn.blocks) == len(cut.rest)
    camera = look_at((0.5, 0.6, 5.0), (0, 0, 0), (0, 1, 0), width=80, height=60)
    for k in range(3):
        here = drawn.at(z[k], camera.position)
        assert here.sh.shape == (len(cut.rest), 1, 3)
        images = [CpuRasterizer().render(s, camera).rgb for s in (here, pose(cut, z[k]))]
        np.testing.assert_allclose(*images, atol=1e-4)


def test_half_precision_of_large_captures_is_not_seen(setup: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any size of the object: the gradients of one of a millimetre would not fit without their unit."""
    splats, handles, z = setup
    z = 0.2 * z  # strains of a fifth
    exact = posed_whole(bind_capture(splats, FRAME, handles), z[0])
    monkeypatch.setattr(posing, "LARGE", 1)
    for unit in (1.0, 1e-3):
        bound = bind_capture(splats, FRAME, handles, unit=unit)
        assert bound.slopes.dtype == np.float16
        found = posed_whole(bound, z[0])
        np.testing.assert_array_equal(found.means, exact.means)
        np.testing.assert_allclose(found.log_scales, exact.log_scales, atol=5e-3)


@pytest.mark.slow
def test_a_large_capture_takes_less_than_three_frames() -> None:
    """What every further splat takes at the peak, over its own 59 numbers; what does not grow cancels out."""
    options = ("--size", "64x64", "--no-stage")
    small, large = (measure(count, frames=2, options=options) for count in (600_000, 1_200_000))
    grown = (large.bytes - small.bytes) / (large.frame - small.frame)
    assert (
        1.5 < grown < 3.0
    )  # the splats alone, and weights at them, are 1.7: less would mean that nothing was measured
