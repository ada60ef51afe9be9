"""Assets: what is read is what was written, and damaged files are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from rigpapr.asset import asset_notes, is_asset, load_tensors, read_asset, save_tensors, write_asset, write_points
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.renderer import render
from splatanim.errors import InputError, OutputError
from tests.rigpapr import scenes


def cloud(head: str = "kernel") -> PaprCloud:
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.uniform(-8, 8, (200, 3))).float()
    config = CloudConfig(head=head, neighbours=6, feature_size=5, width=8, key_layers=2, value_layers=2, octaves=2)
    made = PaprCloud(config, points, centre=np.array([1e3, 0.1, -2.0]), scale=17.3, reach=2.5, seed=3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize("head", ["kernel", "paper"])
def test_round_trip(head: str, tmp_path: Path) -> None:
    path = tmp_path / "a.papr.safetensors"
    made = cloud(head)
    write_asset(path, made, notes={"views": 28})
    again = read_asset(path)
    assert again.config == made.config and asset_notes(path) == {"views": 28}
    for name, value in made.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)
    camera = scenes.cameras()[0]
    np.testing.assert_array_equal(render(made, camera).rgb, render(again, camera).rgb)
    assert [file.name for file in tmp_path.iterdir()] == ["a.papr.safetensors"]


def damaged(path: Path, change) -> Path:
    write_asset(path, cloud())
    tensors, header = load_tensors(path, "papr")
    change(tensors, header)
    save_tensors(path, tensors, "papr", header)
    return path


DAMAGE = {
    "newer version": (lambda t, h: h.update(version=3), r"is of version 3; this program reads up to 2. Update it"),
    "no version": (lambda t, h: h.pop("version"), r"is of version None"),
    "NaN": (lambda t, h: t["features"].__setitem__((7, 3), torch.nan), r"tensor features has 1 NaN or infinite"),
    "infinity": (lambda t, h: t["influence"].__setitem__(7, torch.inf), r"tensor influence has 1 NaN or infinite"),
    "missing tensor": (lambda t, h: t.pop("influence"), r"tensor influence is missing, not \(200,\)"),
    "misshapen tensor": (lambda t, h: t.update(features=torch.zeros(3, 16)), r"tensor features is \(3, 16\), not"),
    "no positions": (lambda t, h: t.pop("positions"), r"holds no tensor positions"),
    "unknown head": (lambda t, h: h["config"].update(head="x"), r"configuration is damaged .*no head 'x'"),
    "no config": (lambda t, h: h.pop("config"), r"configuration is damaged"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_assets_are_refused(name: str, tmp_path: Path) -> None:
    change, text = DAMAGE[name]
    path = damaged(tmp_path / "a.papr.safetensors", change)
    with pytest.raises(InputError, match=text) as raised:
        read_asset(path)
    assert "a.papr.safetensors" in str(raised.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.papr.safetensors"
    with pytest.raises(InputError, match="no such file"):
        read_asset(path)
    path.write_bytes(b"not a tensor in it")
    with pytest.raises(InputError, match="cannot be read as a safetensors file"):
        read_asset(path)
    save_tensors(path, {"x": torch.zeros(1)}, "other", {})
    with pytest.raises(InputError, match="without the entry 'papr'"):
        read_asset(path)


def test_nothing_is_written_where_it_would_be_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is named \*.papr.safetensors"):
        write_asset(tmp_path / "a.safetensors", cloud())
    broken = cloud()
    with torch.no_grad():
        broken.positions[3] = torch.nan
    with pytest.raises(InputError, match="tensor positions has 3 NaN"):
        write_asset(tmp_path / "a.papr.safetensors", broken)
    with pytest.raises(OutputError, match="does not exist"):
        write_asset(tmp_path / "nowhere" / "a.papr.safetensors", cloud())
    assert not list(tmp_path.iterdir())
    assert is_asset("x/Y.PAPR.safetensors") and not is_asset("y.safetensors")


@pytest.mark.parametrize("head", ["kernel", "paper"])
def test_points_for_other_programs(head: str, tmp_path: Path) -> None:
    made = cloud(head)
    write_points(tmp_path / "p.ply", made)
    loaded = trimesh.load(tmp_path / "p.ply")
    np.testing.assert_allclose(loaded.vertices, made.world_positions.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(np.asarray(loaded.colors)[:, :3] / 255, made.colours(), atol=0.003)
    with pytest.raises(InputError, match=r"points are written as \.ply"):
        write_points(tmp_path / "p.obj", made)
