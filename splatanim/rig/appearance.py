"""What a surface looks like without light: base colours, vertex colours and textures, as glTF 2.0 defines them.

The colour of a point is factor * texture * vertex colour, a product of *linear* values; a texture's bytes are sRGB and
are decoded first, the product is encoded again. What comes out is what a viewer shows of an unlit material, and what
splats store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float64, Int, Int64, UInt8

from splatanim.errors import InputError

Wrap = tuple[str, str]  # along u and v: "repeat", "mirror" or "clamp"


@dataclass(frozen=True)
class Paint:
    """A material: linear base colour RGBA, and an sRGB image (h, w, 4) that multiplies it, rows from the top.

    ``cutoff``: alpha below it is a hole (glTF's MASK), None where alpha means nothing (OPAQUE), 0 where it blends.
    ``unlit``: light is painted in already.
    """

    name: str = "default"
    base: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    texture: UInt8[np.ndarray, "h w 4"] | None = None
    wrap: Wrap = ("repeat", "repeat")
    cutoff: float | None = None
    unlit: bool = False


@dataclass(frozen=True)
class Appearance:
    """Looks of a mesh of V vertices and F faces.

    ``uv`` (v, 2), origin at the image's top left; ``colours`` (v, 4) linear RGBA; ``paint_of_face`` (f,) indices into
    ``paints``. Both per-vertex arrays may be missing.
    """

    paints: tuple[Paint, ...] = (Paint(),)
    paint_of_face: Int64[np.ndarray, " f"] = field(default_factory=lambda: np.empty(0, np.int64))
    uv: Float64[np.ndarray, "v 2"] | None = None
    colours: Float64[np.ndarray, "v 4"] | None = None

    def __post_init__(self) -> None:
        if len(self.paint_of_face) and not 0 <= self.paint_of_face.min() <= self.paint_of_face.max() < len(self.paints):
            raise InputError(
                f"Appearance: a face has material {self.paint_of_face.max()}, but there are {len(self.paints)}."
            )

    def sample(
        self, faces: Int[np.ndarray, "f 3"], face: Int[np.ndarray, " n"], barycentric: Float[np.ndarray, "n 3"]
    ) -> Float64[np.ndarray, "n 4"]:
        """Display colours (sRGB) and alpha in [0, 1] of points on faces, given by barycentric coordinates."""
        paint = self.paint_of_face[face] if len(self.paint_of_face) else np.zeros(len(face), np.int64)
        out = np.array([p.base for p in self.paints], np.float64)[paint]
        corners = faces[face]
        if self.colours is not None:
            out = out * np.einsum("nk,nkc->nc", barycentric, self.colours[corners])
        if self.uv is not None:
            uv = np.einsum("nk,nkc->nc", barycentric, self.uv[corners])
            for k in np.unique(paint):
                texture = self.paints[k].texture
                if texture is not None:
                    rows = paint == k
                    out[rows] *= sample_texture(texture, uv[rows], self.paints[k].wrap)
        out[:, :3] = encode_srgb(out[:, :3])
        cutoffs = np.array([np.nan if p.cutoff is None else p.cutoff for p in self.paints])[paint]
        alpha = np.where(cutoffs > 0, np.where(out[:, 3] >= cutoffs, 1.0, 0.0), out[:, 3])
        out[:, 3] = np.where(np.isnan(cutoffs), 1.0, np.clip(alpha, 0.0, 1.0))
        return out


def decode_srgb(values: Float[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Display values in [0, 1] to linear ones (IEC 61966-2-1)."""
    v = np.asarray(values, np.float64)
    return np.where(v <= 0.04045, v / 12.92, ((np.maximum(v, 0.0) + 0.055) / 1.055) ** 2.4)


def encode_srgb(values: Float[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Linear values to display values in [0, 1] (IEC 61966-2-1)."""
    v = np.clip(np.asarray(values, np.float64), 0.0, 1.0)
    return np.where(v <= 0.0031308, 12.92 * v, 1.055 * v ** (1 / 2.4) - 0.055)


def sample_texture(
    texture: UInt8[np.ndarray, "h w 4"], uv: Float[np.ndarray, "n 2"], wrap: Wrap = ("repeat", "repeat")
) -> Float64[np.ndarray, "n 4"]:
    """Bilinear samples in linear light, RGBA; texel centres lie at half-integers."""
    height, width = texture.shape[:2]
    x, y = uv[:, 0] * width - 0.5, uv[:, 1] * height - 0.5
    i, j = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    fx, fy = (x - i)[:, None], (y - j)[:, None]
    left, right = _wrapped(i, width, wrap[0]), _wrapped(i + 1, width, wrap[0])
    above, below = _wrapped(j, height, wrap[1]), _wrapped(j + 1, height, wrap[1])

    def linear(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:  # of the texels asked for alone
        texels = texture[rows, columns]
        return np.concatenate([_DECODED[texels[:, :3]], texels[:, 3:] / 255.0], axis=1)

    top = linear(above, left) * (1 - fx) + linear(above, right) * fx
    return top * (1 - fy) + (linear(below, left) * (1 - fx) + linear(below, right) * fx) * fy


def _wrapped(index: np.ndarray, size: int, mode: str) -> np.ndarray:
    if mode == "clamp":
        return np.clip(index, 0, size - 1)
    if mode == "mirror":
        index = index % (2 * size)
        return np.where(index < size, index, 2 * size - 1 - index)
    return index % size


_DECODED = decode_srgb(np.arange(256) / 255.0)
