"""Weights of a Michelangelo shape encoder (Zhao et al. 2023) for an encoder of the preset ``paper``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splatanim.errors import InputError
from splatanim.field.encoder import ShapeEncoder

_ANCHOR = "encoder.cross_attn.attn.c_q.weight"  # tells under which prefix a checkpoint holds the encoder


def load_michelangelo(encoder: ShapeEncoder, path: Path) -> None:
    """Copy a state dict from a local file (.ckpt, .pt or .safetensors) into an encoder of the same sizes.

    Raises :class:`InputError` when the file is missing, holds no such encoder, or one of other sizes.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give the checkpoint of a Michelangelo shape encoder.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a zip, pickle or key error, according to the damage
        raise InputError(f"{path}: cannot be read as a checkpoint ({error!r}). Download it again.") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else {}
    prefix = next((key[: -len(_ANCHOR)] for key in state if key.endswith(_ANCHOR)), None)
    if prefix is None:
        raise InputError(f"{path}: holds no Michelangelo shape encoder (no {_ANCHOR}).")
    copy_state(encoder, {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}, str(path))


def copy_state(encoder: ShapeEncoder, state: dict[str, Tensor], source: str) -> None:
    """Translate names and layouts, and load; ``state`` has keys such as ``encoder.query``."""
    translated = {}
    own = encoder.state_dict()
    for mine, theirs, take in _pairs(encoder):
        if theirs not in state:
            raise InputError(f"{source}: has no {theirs}; it needs {len(encoder.layers)} self-attention layers.")
        tensor = state[theirs].float()
        value = _part(tensor, take, encoder)
        if value.shape != own[mine].shape:
            raise InputError(
                f"{source}: {theirs} is {tuple(state[theirs].shape)}, which does not fit this encoder's {mine} "
                f"{tuple(own[mine].shape)}. The preset paper has 256 latents of width 768 and 12 heads."
            )
        translated[mine] = value
    missing, _ = encoder.load_state_dict(translated, strict=False)
    assert not missing, missing


def _pairs(encoder: ShapeEncoder) -> Iterator[tuple[str, str, str]]:
    """(our name, their name, what to take of their tensor)."""
    yield "tokens", "encoder.query", "last latents"
    yield from _both("embed", "encoder.input_proj")
    theirs = "encoder.cross_attn"
    yield "cross.attention.query.weight", f"{theirs}.attn.c_q.weight", ""
    yield "cross.attention.key.weight", f"{theirs}.attn.c_kv.weight", "0/2"
    yield "cross.attention.value.weight", f"{theirs}.attn.c_kv.weight", "1/2"
    yield from _both("cross.norm_memory", f"{theirs}.ln_2")
    yield from _rest("cross", theirs, "ln_3")
    for number in range(len(encoder.layers)):
        theirs = f"encoder.self_attn.resblocks.{number}"
        for third, name in enumerate(("query", "key", "value")):
            yield f"layers.{number}.attention.{name}.weight", f"{theirs}.attn.c_qkv.weight", f"{third}/3"
        yield from _rest(f"layers.{number}", theirs, "ln_2")
    yield from _both("norm_out", "encoder.ln_post")


def _rest(mine: str, theirs: str, norm_mlp: str) -> Iterator[tuple[str, str, str]]:
    yield from _both(f"{mine}.attention.out", f"{theirs}.attn.c_proj")
    yield from _both(f"{mine}.norm", f"{theirs}.ln_1")
    yield from _both(f"{mine}.norm_mlp", f"{theirs}.{norm_mlp}")
    yield from _both(f"{mine}.mlp.0", f"{theirs}.mlp.c_fc")
    yield from _both(f"{mine}.mlp.2", f"{theirs}.mlp.c_proj")


def _both(mine: str, theirs: str) -> Iterator[tuple[str, str, str]]:
    for kind in ("weight", "bias"):
        yield f"{mine}.{kind}", f"{theirs}.{kind}", ""


def _part(tensor: Tensor, take: str, encoder: ShapeEncoder) -> Tensor:
    """Joint projections hold query, key and value rows head by head; their first token, of the class, is left out."""
    if take == "last latents":
        return tensor[-encoder.latents :]
    if not take:
        return tensor
    index, count = map(int, take.split("/"))
    heads = encoder.cross.attention.heads
    if tensor.shape[0] % (heads * count):
        return tensor
    return tensor.unflatten(0, (heads, count, -1))[:, index].flatten(0, 1)
