"""The network of the neural skinning field, its configurations, and its weights on disk."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from splatanim.errors import InputError
from splatanim.field.decoder import SkinningDecoder
from splatanim.field.encoder import ShapeEncoder

SHIPPED = Path(__file__).parent / "weights" / "small.safetensors"
SHIPPED_PAPER = SHIPPED.with_name("paper.safetensors")  # of the objective paper, for comparisons


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the network.

    ``fields``: m, the network's own output; ``warp``: dimensions that warp the Gaussians (0: none); ``oni``: last
    layer with orthonormal rows; ``affine``: binding uses every field also times X, Y and Z; ``direct``: queries attend
    to the shape latents too, not to the handles alone; ``michelangelo``: an encoder with that model's layout, whose
    weights can be loaded; ``metric``: fields are trained and measured after :func:`decoder.orthonormaliser`, whose
    constants are fixed once on an object's points.
    """

    width: int = 128
    latents: int = 64
    layers: int = 4
    heads: int = 4
    fields: int = 32
    octaves: int = 2
    expansion: int = 2
    depth: int = 3
    surface_points: int = 1024
    oni: bool = False
    warp: int = 16
    affine: bool = True
    direct: bool = True
    michelangelo: bool = False
    metric: bool = False

    def __post_init__(self) -> None:
        for key in ("width", "latents", "heads", "fields", "surface_points", "expansion"):
            if getattr(self, key) < 1:
                raise InputError(f"ModelConfig: {key} is {getattr(self, key)}; it must be at least 1.")
        if self.width % self.heads:
            raise InputError(f"ModelConfig: width {self.width} is not a multiple of heads {self.heads}.")
        if self.surface_points < self.latents:
            raise InputError(
                f"ModelConfig: {self.surface_points} surface points are fewer than {self.latents} latents."
            )


SMALL = ModelConfig()
PAPER = ModelConfig(
    width=768, latents=256, layers=8, heads=12, fields=16, octaves=8, expansion=4, surface_points=4096, oni=True,
    warp=0, affine=False, direct=False, michelangelo=True,
)  # fmt: skip
PRESETS = {"small": SMALL, "paper": PAPER}


class FieldModel(nn.Module):
    """Encoder and decoder: the full autoencoder Phi_theta."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ShapeEncoder(
            config.width,
            config.latents,
            config.layers,
            config.heads,
            octaves=config.octaves,
            expansion=config.expansion,
            michelangelo=config.michelangelo,
        )
        self.decoder = SkinningDecoder(config)

    def encode(self, points: Float[Tensor, "b s 3"], normals: Float[Tensor, "b s 3"]) -> Float[Tensor, "b k d"]:
        """Handle latents of shapes: all that queries need to know of them. Points are in [-1, 1]^3."""
        return self.decoder.handles(self.encoder(points, normals))

    def fields(self, handles: Float[Tensor, "b k d"], points: Float[Tensor, "b n 3"]) -> Float[Tensor, "b n m"]:
        """Phi_theta(X), the network's own output."""
        return self.decoder.out(self.decoder.features(handles, points))


def save_model(model: FieldModel, path: Path, provenance: dict[str, Any], *, half: bool = False) -> None:
    """Write weights as safetensors and, beside them under the same name, the config and provenance as JSON.

    ``half`` stores them in half precision; :func:`load_model` makes float32 of either.
    """
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    dtype = torch.float16 if half else torch.float32
    save_file({key: value.to(dtype).contiguous() for key, value in model.state_dict().items()}, partial)
    partial.replace(path)
    record = {"model": dataclasses.asdict(model.config), **provenance}
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def load_model(path: Path | None = None) -> FieldModel:
    """The network of a weight file, or the one that comes with the package; float32, for evaluation.

    Raises :class:`InputError` when a file is missing or damaged, or weights and config do not fit.
    """
    from safetensors.torch import load_file

    path = Path(path) if path is not None else SHIPPED
    model = FieldModel(read_config(path))
    try:
        state = load_file(path)
    except Exception as error:  # of several kinds, according to the damage
        raise InputError(
            f"{path}: not a readable .safetensors file ({error}). Train it again or restore it."
        ) from error
    _fit(model, state, path)
    return model.eval().requires_grad_(False)


def read_config(path: Path) -> ModelConfig:
    """The sizes in the JSON beside a weight file."""
    beside = path.with_suffix(".json")
    for file in (path, beside):
        if not file.is_file():
            raise InputError(
                f"{file}: no such file. Weights are a pair NAME.safetensors and NAME.json, as `splatanim train-fields` "
                "writes them; leave --weights out to use those that come with splatanim."
            )
    try:
        record = json.loads(beside.read_text(encoding="utf-8"))["model"]
        return ModelConfig(**record)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{beside}: not a config of these weights ({error!r}). Use the JSON that was written with them."
        ) from error


def copy_matching(model: FieldModel, path: Path) -> int:
    """Start from the weights of another training: copy every tensor of equal name and shape; returns how many.

    Raises :class:`InputError` when the file cannot be used or nothing of its encoder fits.
    """
    other, own = load_model(path).state_dict(), model.state_dict()
    found = {key: value for key, value in other.items() if key in own and own[key].shape == value.shape}
    if not any(key.startswith("encoder.") for key in found):
        raise InputError(f"{path}: no tensor of its encoder fits this network. Start from weights of the same preset.")
    model.load_state_dict(own | found)
    return len(found)


def _fit(model: FieldModel, state: dict[str, Tensor], path: Path) -> None:
    own = model.state_dict()
    wrong = [
        f"{key} is {_size(state.get(key))}, the config says {_size(own.get(key))}"
        for key in sorted(own.keys() | state.keys())
        if _size(state.get(key)) != _size(own.get(key))
    ]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise InputError(
            f"{path}: these weights do not fit {path.with_suffix('.json').name} ({wrong[0]}{more}). "
            "Use the .json that was written with them."
        )
    model.load_state_dict(state)


def _size(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else "x".join(map(str, tensor.shape)) or "scalar"


def seeded_model(config: ModelConfig, seed: int) -> FieldModel:
    """A network with fresh weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FieldModel(config)
