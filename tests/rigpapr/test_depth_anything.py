"""Depth Anything 3 through its package's interface, faked: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from rigpapr.depth_anything import load_depth_anything, predict_depth
from rigpapr.supervision import Clip
from splatanim.errors import InputError
from tests.rigpapr import creatures


class FakeModel:
    """Gives a plane that recedes to the right, at half the picture's size."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[int, ...], str, int]] = []
        self.device = ""

    def to(self, device: str) -> FakeModel:
        self.device = device
        return self

    def inference(self, image: list[np.ndarray], process_res: int):
        assert len(image) == 1  # one by one: several would be taken for views of one moment
        self.seen.append((image[0].shape, str(image[0].dtype), process_res))
        height, width = image[0].shape[0] // 2, image[0].shape[1] // 2
        plane = np.tile(np.linspace(1.0, 2.0, width, dtype=np.float32), (height, 1))
        return types.SimpleNamespace(depth=plane[None])


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch):
    """A package depth_anything_3 whose model comes from a local folder only."""
    calls = []

    class DepthAnything3:
        @classmethod
        def from_pretrained(cls, folder: str, local_files_only: bool = False) -> FakeModel:
            assert local_files_only
            calls.append(folder)
            if "broken" in folder:
                raise RuntimeError("size mismatch for backbone")
            return FakeModel()

    api = types.ModuleType("depth_anything_3.api")
    api.DepthAnything3 = DepthAnything3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "depth_anything_3", types.ModuleType("depth_anything_3"))
    monkeypatch.setitem(sys.modules, "depth_anything_3.api", api)
    return calls


def folder(path: Path, name: str = "da3metric-large") -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(f'{{"model_name": "{name}"}}')
    (path / "model.safetensors").write_bytes(b"")
    return path


def clip(size: int = 32) -> Clip:
    masks = np.zeros((2, size, size), bool)
    masks[:, 4:28, 4:28] = True
    return Clip(np.zeros((2, size, size, 3), np.uint8), masks, creatures.camera(size), 24.0)


def test_metric_maps_have_the_frames_size_and_the_focal_lengths_unit(tmp_path: Path, package) -> None:
    model, metric = load_depth_anything(folder(tmp_path / "m"))
    assert metric and model.device == "cpu" and package == [str(tmp_path / "m")]
    ticks = []
    film = clip()
    depth = predict_depth(model, film, metric=metric, on_frame=lambda: ticks.append(1))
    assert depth.shape == (2, 32, 32) and depth.dtype == np.float32 and len(ticks) == 2
    assert model.seen == [((32, 32, 3), "uint8", 504)] * 2
    assert (depth[~film.masks] == 0).all() and (depth[film.masks] > 0).all()
    unit = film.camera.fy * 0.5 / 300
    assert depth[0, 16, 5] == pytest.approx(unit * (1 + 5 / 31), rel=0.03)
    assert (np.diff(depth[0, 16, 4:28]) >= 0).all()
    plain = predict_depth(model, film, metric=False)
    np.testing.assert_allclose(plain * unit, depth, rtol=1e-5)


def test_the_relative_model_is_told_apart(tmp_path: Path, package) -> None:
    assert not load_depth_anything(folder(tmp_path / "r", "da3-large"))[1]
    (tmp_path / "r" / "config.json").write_text("{")
    assert not load_depth_anything(tmp_path / "r")[1]


def test_what_cannot_work_is_told(tmp_path: Path, package, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"--depth da3:.*none: there is no config\.json.*da3metric-large"):
        load_depth_anything(tmp_path / "none")
    broken = folder(tmp_path / "broken")
    with pytest.raises(InputError, match=r"the model cannot be loaded .*size mismatch"):
        load_depth_anything(broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"there is no model\.safetensors"):
        load_depth_anything(broken)
    wrong = types.SimpleNamespace(
        inference=lambda image, process_res: types.SimpleNamespace(depth=np.full((3, 4), np.nan))
    )
    with pytest.raises(InputError, match=r"frame 0 came back as \(3, 4\), not one finite map"):
        predict_depth(wrong, clip(), metric=False)
    monkeypatch.setitem(sys.modules, "depth_anything_3.api", None)
    with pytest.raises(InputError, match=r"depth_anything_3 cannot be imported\. Install a checkout"):
        load_depth_anything(folder(tmp_path / "m"))
