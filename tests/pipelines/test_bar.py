"""The case of the soft bar: 40x6x6, pinned at one end, of the softest preset there is, 30 steps a second, 60 frames."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.binding import Handles, shape_functions
from splatanim.dynamics.materials import PRESETS
from splatanim.dynamics.reduced import reduce
from splatanim.dynamics.simulate import Settings, simulate
from splatanim.dynamics.terms import Elasticity, gravity
from splatanim.field.subspace import bind
from tests.dynamics.models import end_pin
from tests.helpers import box_cubature


@pytest.mark.parametrize("field", ["eigenmodes", "gaussians"])
def test_the_softest_bar_bends_without_tearing(field: str) -> None:
    softest = min(PRESETS.values(), key=lambda material: material.young)
    cubature = box_cubature((40, 6, 6), 1 / 40, stride=2)
    chosen, _ = bind(field, cubature.domain, 16)
    model = reduce(cubature, Handles(chosen, (end_pin(-0.5 + 2 / 40, 2 / 40),)), softest)
    trajectory = simulate(
        model, [Elasticity(model), gravity(model, np.array([0.0, 0.0, -9.81]))], Settings(60, 30.0, 1)
    )
    assert trajectory.converged_fraction == 1.0 and np.isfinite(trajectory.handles).all()
    _, slopes = shape_functions(model.rest, *model.handles.evaluate(model.rest))
    flat = trajectory.handles.transpose(0, 2, 1, 3).reshape(60, 3, -1)
    stretches = np.linalg.svd(np.eye(3) + np.einsum("trk,qkc->tqrc", flat, slopes), compute_uv=False)
    assert (stretches[..., 0] / stretches[..., 2]).max() < 4.0
    ends = np.einsum("trk,qk->tqr", flat, shape_functions(model.rest, *model.handles.evaluate(model.rest))[0])
    assert ends[-1, :, 2].min() < -0.2  # it hangs indeed
