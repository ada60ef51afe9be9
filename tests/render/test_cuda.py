"""The gsplat adapter against a stand-in that checks what it is given and renders with the brute force."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch

from pipelines import gpu_check
from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.render import cuda, rasterize
from splatanim.render.camera import Camera
from splatanim.render.reference import rasterize_reference
from tests.helpers import random_splats
from tests.render import scenes


def fake_rasterization(
    means: torch.Tensor,
    quats: torch.Tensor,
    scales: torch.Tensor,
    opacities: torch.Tensor,
    colors: torch.Tensor,
    viewmats: torch.Tensor,
    Ks: torch.Tensor,
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    packed: bool = True,
    tile_size: int = 16,
    backgrounds: torch.Tensor | None = None,
    render_mode: str = "RGB",
    rasterize_mode: str = "classic",
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """The signature, shapes and meaning of gsplat 1.5's ``rasterization``."""
    n = len(means)
    assert sh_degree is not None and rasterize_mode == "classic" and eps2d == 0.3 and radius_clip == 0.0
    shapes = [(n, 3), (n, 4), (n, 3), (n,), (n, (sh_degree + 1) ** 2, 3), (1, 4, 4), (1, 3, 3)]
    values = (means, quats, scales, opacities, colors, viewmats, Ks)
    assert [tuple(value.shape) for value in values] == shapes
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in values)
    assert (scales > 0).all() and (opacities >= 0).all() and (opacities <= 1).all()
    k = Ks[0].double().numpy()
    pose = viewmats[0].double().numpy()
    camera = Camera(pose, k[0, 0], k[1, 1], k[0, 2], k[1, 2], width, height, near_plane)
    splats = Splats(means.numpy(), quats.numpy(), scales.log().numpy(), torch.logit(opacities).numpy(), colors.numpy())
    background = (0.0, 0.0, 0.0) if backgrounds is None else tuple(backgrounds[0].tolist())
    rgb, alpha, depth = rasterize_reference(splats, camera, background=background)
    channels = np.concatenate([rgb, depth[..., None]], axis=-1) if render_mode == "RGB+ED" else rgb
    assert render_mode in ("RGB", "RGB+ED")
    return torch.tensor(channels[None]).float(), torch.tensor(alpha[None, ..., None]).float(), {}


@pytest.fixture
def fake_gsplat(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("gsplat")
    module.rasterization = fake_rasterization  # type: ignore[attr-defined]
    module.__spec__ = types.SimpleNamespace(name="gsplat")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "gsplat", module)


@pytest.mark.parametrize("degree", [0, 2])
def test_both_backends_give_the_same_picture(fake_gsplat: None, degree: int) -> None:
    splats, camera, background = random_splats(120, degree, seed=3), scenes.camera(50, 40), (0.1, 0.7, 0.3)
    ours = rasterize.rasterize(splats, camera, background=background, backend="cpu", depth=True)
    theirs = cuda.rasterize_cuda(splats, camera, background=background, depth=True, device="cpu")
    assert theirs.depth is not None and ours.depth is not None
    np.testing.assert_allclose(theirs.rgb, ours.rgb, atol=2e-5)
    np.testing.assert_allclose(theirs.alpha, ours.alpha, atol=2e-5)
    np.testing.assert_allclose(theirs.depth, ours.depth, rtol=1e-4, atol=1e-4)
    assert theirs.rgb.dtype == theirs.alpha.dtype == theirs.depth.dtype == np.float32
    assert cuda.rasterize_cuda(splats, camera, device="cpu").depth is None


def test_broken_and_absent_splats_do_not_reach_gsplat(fake_gsplat: None) -> None:
    splats, camera = random_splats(20, 1, seed=4), scenes.camera(20, 10)
    means = splats.means.copy()
    means[4] = np.nan
    image = cuda.rasterize_cuda(splats.replace(means=means), camera, device="cpu").rgb
    assert np.isfinite(image).all() and image.min() < 0.99
    none = cuda.rasterize_cuda(
        splats.select(np.zeros(20, bool)), camera, background=(0.5, 0, 1), depth=True, device="cpu"
    )
    assert (none.rgb == np.array([0.5, 0, 1], np.float32)).all() and not none.alpha.any() and none.depth is not None


def test_without_gsplat_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gsplat", None)
    with pytest.raises(InputError, match=r'pip install "splatanim\[cuda\]"'):
        rasterize.rasterize(scenes.one_splat(), scenes.camera(), backend="cuda")


def test_without_a_gpu_cuda_is_refused_and_auto_takes_the_cpu(
    fake_gsplat: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r'torch finds none. Use backend="cpu"'):
        rasterize.rasterize(scenes.one_splat(), scenes.camera(), backend="cuda")
    assert rasterize.rasterize(scenes.one_splat(), scenes.camera()).alpha.max() > 0.5


def test_auto_takes_cuda_where_it_is_there(fake_gsplat: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    calls = []
    blank = rasterize.Rendering(np.zeros((1, 1, 3), np.float32), np.zeros((1, 1), np.float32))
    monkeypatch.setattr(cuda, "rasterize_cuda", lambda *a, **k: calls.append(k) or blank)
    rasterize.rasterize(scenes.one_splat(), scenes.camera(), depth=True)
    assert calls == [{"background": (1.0, 1.0, 1.0), "depth": True}]


def test_the_gpu_check_compares(
    fake_gsplat: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    on_cpu = cuda.rasterize_cuda
    monkeypatch.setattr(cuda, "rasterize_cuda", lambda *a, **k: on_cpu(*a, **k, device="cpu"))
    arguments = ["--splats", "300", "--size", "48", "--repeats", "1"]
    assert gpu_check.main(arguments) == 0
    assert "The backends agree." in capsys.readouterr().out

    def darker(*a: Any, **k: Any) -> rasterize.Rendering:
        rendering = on_cpu(*a, **k, device="cpu")
        return rasterize.Rendering(rendering.rgb * 0.9, rendering.alpha, rendering.depth)

    monkeypatch.setattr(cuda, "rasterize_cuda", darker)
    assert gpu_check.main(arguments) == 1
    assert "DIFFER" in capsys.readouterr().out


def test_the_gpu_check_without_a_gpu_says_so() -> None:
    if rasterize.cuda_available():
        pytest.skip("there is a GPU here")
    run = subprocess.run([sys.executable, "-m", "pipelines.gpu_check"], capture_output=True, text=True)
    assert run.returncode == 0 and "No CUDA device" in run.stdout
