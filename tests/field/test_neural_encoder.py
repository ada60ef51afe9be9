"""ONI, and the translation of a Michelangelo state dict, on a synthetic one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from splatanim.errors import InputError
from splatanim.field.decoder import OrthogonalLinear, orthogonalise
from splatanim.field.encoder import ShapeEncoder
from splatanim.field.encoder_weights import load_michelangelo

WIDTH, HEADS, LATENTS, LAYERS = 12, 3, 5, 2


def test_oni_makes_rows_orthonormal() -> None:
    raw = torch.randn(16, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = orthogonalise(raw)
    assert torch.allclose(w @ w.T, torch.eye(16, dtype=torch.float64), atol=1e-6)
    layer = OrthogonalLinear(128, 16)
    zero = layer(torch.zeros(1, 128))
    assert torch.allclose(layer(torch.eye(128)) - zero, orthogonalise(layer.weight).T, atol=1e-6)


def test_oni_can_be_trained() -> None:
    raw = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: orthogonalise(x, 5), (raw,))


def _synthetic() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return 0.3 * torch.randn(*shape, generator=generator)

    def linear(name: str, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return {f"{name}.weight": draw(outputs, inputs), f"{name}.bias": draw(outputs)}

    def norm(name: str) -> dict[str, torch.Tensor]:
        return {f"{name}.weight": 1 + draw(WIDTH), f"{name}.bias": draw(WIDTH)}

    def block(name: str, norms: int) -> dict[str, torch.Tensor]:
        parts = linear(f"{name}.attn.c_proj", WIDTH, WIDTH)
        parts |= linear(f"{name}.mlp.c_fc", 4 * WIDTH, WIDTH) | linear(f"{name}.mlp.c_proj", WIDTH, 4 * WIDTH)
        for number in range(1, norms + 1):
            parts |= norm(f"{name}.ln_{number}")
        return parts

    state = {"encoder.query": draw(LATENTS + 1, WIDTH)} | linear("encoder.input_proj", WIDTH, 51 + 3)
    state |= block("encoder.cross_attn", 3) | norm("encoder.ln_post")
    state["encoder.cross_attn.attn.c_q.weight"] = draw(WIDTH, WIDTH)
    state["encoder.cross_attn.attn.c_kv.weight"] = draw(2 * WIDTH, WIDTH)
    for number in range(LAYERS):
        state |= block(f"encoder.self_attn.resblocks.{number}", 2)
        state[f"encoder.self_attn.resblocks.{number}.attn.c_qkv.weight"] = draw(3 * WIDTH, WIDTH)
    return state


def _by_the_book(state: dict[str, torch.Tensor], points: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
    """The encoder written down plainly from its published layout."""
    get = {key.removeprefix("encoder."): value for key, value in state.items()}
    size = WIDTH // HEADS

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ get[f"{name}.weight"].T + get.get(f"{name}.bias", torch.zeros(()))

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (WIDTH,), get[f"{name}.weight"], get[f"{name}.bias"])

    def attend(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mixed = torch.softmax(torch.einsum("thc,shc->hts", q, k) / size**0.5, dim=-1)
        return linear(f"{name}.attn.c_proj", torch.einsum("hts,shc->thc", mixed, v).reshape(len(q), -1))

    def mlp(name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(f"{name}.mlp.c_proj", torch.nn.functional.gelu(linear(f"{name}.mlp.c_fc", x)))

    phases = (points[:, :, None] * 2.0 ** torch.arange(8)).reshape(len(points), -1)
    data = linear("input_proj", torch.cat([points, phases.sin(), phases.cos(), normals], dim=-1))
    x = get["query"][1:]
    q = linear("cross_attn.attn.c_q", norm("cross_attn.ln_1", x)).view(-1, HEADS, size)
    kv = linear("cross_attn.attn.c_kv", norm("cross_attn.ln_2", data)).view(-1, HEADS, 2 * size)
    x = x + attend("cross_attn", q, kv[..., :size], kv[..., size:])
    x = x + mlp("cross_attn", norm("cross_attn.ln_3", x))
    for number in range(LAYERS):
        name = f"self_attn.resblocks.{number}"
        qkv = linear(f"{name}.attn.c_qkv", norm(f"{name}.ln_1", x)).view(-1, HEADS, 3 * size)
        x = x + attend(name, qkv[..., :size], qkv[..., size : 2 * size], qkv[..., 2 * size :])
        x = x + mlp(name, norm(f"{name}.ln_2", x))
    return norm("ln_post", x)


def _encoder(layers: int = LAYERS, width: int = WIDTH) -> ShapeEncoder:
    return ShapeEncoder(width, LATENTS, layers, HEADS, octaves=8, expansion=4, michelangelo=True)


@pytest.mark.parametrize("prefix", ["", "sal.shape_model."])
def test_michelangelo_weights_give_michelangelo_latents(tmp_path: Path, prefix: str) -> None:
    state, path = _synthetic(), tmp_path / "shape.ckpt"
    torch.save({"state_dict": {prefix + key: value for key, value in state.items()}}, path)
    encoder = _encoder()
    load_michelangelo(encoder, path)
    points, normals = torch.rand(2, 30, 3, generator=torch.Generator().manual_seed(3)) * 2 - 1
    expected = _by_the_book(state, points, normals)
    assert torch.allclose(encoder(points[None], normals[None])[0], expected, atol=1e-4)


def test_foreign_checkpoints_are_named(tmp_path: Path) -> None:
    path = tmp_path / "shape.ckpt"
    with pytest.raises(InputError, match=r"shape\.ckpt: no such file"):
        load_michelangelo(_encoder(), path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="cannot be read as a checkpoint"):
        load_michelangelo(_encoder(), path)
    torch.save({"state_dict": {"weight": torch.zeros(2)}}, path)
    with pytest.raises(InputError, match="holds no Michelangelo shape encoder"):
        load_michelangelo(_encoder(), path)
    torch.save(_synthetic(), path)
    with pytest.raises(InputError, match="it needs 3 self-attention layers"):
        load_michelangelo(_encoder(layers=3), path)
    with pytest.raises(InputError, match="does not fit this encoder's tokens"):
        load_michelangelo(_encoder(width=24), path)
