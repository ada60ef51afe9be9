"""One colour a splat shows what turned harmonics show, from wherever it is asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from splatanim.render.camera import look_at
from splatanim.render.colours import seen_colours
from splatanim.render.cpu import CpuRasterizer
from splatanim.rotations import SH_C0, rotate_sh, sh_basis
from splatanim.transforms import push_forward
from tests.helpers import random_rotation, random_splats

ROOT = Path(__file__).parent.parent.parent / "splatanim" / "render"


def by_turning(sh: np.ndarray, gradients: np.ndarray, means: np.ndarray, eye: np.ndarray) -> np.ndarray:
    """Polar rotations by SVD, harmonics turned by them, evaluated towards the splats: in float64."""
    u, _, vt = np.linalg.svd(gradients)
    u[:, :, 2] *= np.sign(np.linalg.det(u @ vt))[:, None]
    turned = rotate_sh(sh, u @ vt)
    away = means - eye
    basis = sh_basis(away / np.linalg.norm(away, axis=1, keepdims=True), round(sh.shape[1] ** 0.5) - 1)
    return np.einsum("nk,nkc->nc", basis, turned)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_the_direction_turns_as_the_harmonics_would(degree: int) -> None:
    rng = np.random.default_rng(degree)
    sh = rng.normal(size=(500, (degree + 1) ** 2, 3)).astype(np.float32)
    gradients = np.array([random_rotation(rng) for _ in range(500)]) @ (np.eye(3) + 0.4 * rng.normal(size=(500, 3, 3)))
    gradients[:5] = np.diag([1.0, 1.0, 0.0])  # squashed flat
    gradients[5:10] = random_rotation(rng) @ np.diag([1.0, 1.0, -0.7])  # turned over
    means, eye = rng.normal(size=(500, 3)), np.array([0.3, -4.0, 1.0])
    wanted = by_turning(sh, gradients, means, eye) if degree else SH_C0 * sh[:, 0]
    np.testing.assert_allclose(SH_C0 * seen_colours(sh, gradients, means, eye)[:, 0], wanted, atol=2e-5)


def test_pictures_are_the_same() -> None:
    rng = np.random.default_rng(1)
    splats = random_splats(300)
    gradients = random_rotation(rng) @ (np.eye(3) + 0.1 * rng.normal(size=(300, 3, 3)))
    camera = look_at((0.5, 1.0, 4.0), (0, 0, 0), (0, 1, 0), width=96, height=64)
    turned = push_forward(splats, gradients, splats.means)
    colours = seen_colours(splats.sh, gradients, splats.means, camera.position)
    flat = push_forward(splats.replace(sh=colours), gradients, splats.means)
    images = [CpuRasterizer().render(s, camera).rgb for s in (turned, flat)]
    assert np.abs(images[0] - images[1]).max() < 2e-5


def test_motion_that_is_not_finite_stays_where_it_is() -> None:
    splats = random_splats(4)
    gradients = np.tile(np.eye(3), (4, 1, 1))
    gradients[2] = np.nan
    colours = seen_colours(splats.sh, gradients, splats.means, np.array([0.0, 0.0, 5.0]))
    assert np.isfinite(colours).all()


def test_the_kernel_names_the_helpers_it_was_compiled_with() -> None:
    """See tests/test_kernel_caches.py: Numba would not notice a change of what is inlined."""
    text = (ROOT / "_colours.py").read_text(encoding="utf-8")
    for name in ("_project.py", "_numba.py"):
        digest = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()[:12]
        assert f"# Compiled with {name} {digest}." in text
