"""Pictures of skinning handles: the object's surface as splats, coloured by the sign and size of each weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8

from splatanim.data import Domain, Splats

# ColorBrewer RdBu, blue (negative) to red (positive), the middle a warm grey that stands out from white paper.
_STOPS = np.array(
    [[5, 48, 97], [33, 102, 172], [107, 174, 214], [226, 223, 218], [244, 165, 130], [178, 24, 43], [103, 0, 31]]
)
_PAPER, _INK, _SOFT = (255, 255, 255), (32, 33, 36), (110, 113, 118)
_BAND_HEIGHT, _LABEL_HEIGHT = 76, 26


@dataclass(frozen=True)
class Surface:
    """What is painted: splats in file coordinates, their points in the simulator and a shade (n,) in [0, 1] each."""

    splats: Splats
    points: Float64[np.ndarray, "n 3"]
    shade: Float64[np.ndarray, " n"]


def diverging(values: Float[np.ndarray, " n"]) -> Float64[np.ndarray, "n 3"]:
    """Values in [-1, 1] as RGB in [0, 1]: blue below zero, grey at zero, red above."""
    position = 0.5 * (np.clip(values, -1.0, 1.0) + 1.0) * (len(_STOPS) - 1)
    return np.stack([np.interp(position, np.arange(len(_STOPS)), _STOPS[:, c]) for c in range(3)], axis=1) / 255.0


def scaled(weights: Float[np.ndarray, "n m"]) -> Float64[np.ndarray, "n m"]:
    """Each column over the 99.5th percentile of its magnitude, so that a few extreme points do not pale the rest."""
    top = np.maximum(np.percentile(np.abs(weights), 99.5, axis=0), 1e-12)
    return np.clip(weights / top, -1.0, 1.0)


def painted(surface: Surface, values: Float[np.ndarray, " n"], *, shaded: bool = True) -> Splats:
    """The surface's splats in the colours of ``values`` in [-1, 1], opaque enough to read."""
    colours = diverging(values) * (surface.shade[:, None] if shaded else 1.0)
    sh = ((colours - 0.5) / 0.28209479177387814).astype(np.float32)[:, None, :]
    return surface.splats.replace(sh=sh, extras={})


def shade_of(
    normals: Float[np.ndarray, "n 3"], up: tuple[float, float, float], *, darkest: float = 0.55
) -> Float64[np.ndarray, " n"]:
    """Light from above and from the viewer's side, wrapped around, so that form shows and colour stays true."""
    from splatanim.render.camera import view_direction

    light = -view_direction(up, 60.0, 50.0)
    lambert = 0.5 + 0.5 * (np.asarray(normals, np.float64) @ light)
    return darkest + (1.0 - darkest) * np.clip(lambert, 0.0, 1.0) ** 0.8


def outward(points: Float64[np.ndarray, "n 3"], domain: Domain) -> Float64[np.ndarray, "n 3"]:
    """Unit directions away from the voxels around each point: normals of captures, which carry none of their own."""
    from scipy.spatial import cKDTree

    centres = domain.centres
    _, near = cKDTree(centres).query(points, k=min(80, len(centres)))
    away = points - centres[near].mean(axis=1)
    return away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-12)


def disks(
    points: Float[np.ndarray, "n 3"], normals: Float[np.ndarray, "n 3"], sigma: float, offset=(0.0, 0.0, 0.0)
) -> Splats:
    """Flat opaque Gaussians lying in a surface."""
    n = len(points)
    z = np.asarray(normals, np.float64)
    q = np.stack([1.0 + z[:, 2], -z[:, 1], z[:, 0], np.zeros(n)], axis=1)  # the shortest turn that takes z there
    q[z[:, 2] < -0.999999] = (0.0, 1.0, 0.0, 0.0)
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    scales = np.log(np.tile([sigma, sigma, 0.1 * sigma], (n, 1)))
    return Splats(
        np.asarray(points, np.float32),
        q.astype(np.float32),
        scales.astype(np.float32),
        np.full(n, 3.5, np.float32),
        np.zeros((n, 1, 3), np.float32),
        offset,
    )


def contact_sheet(
    surface: Surface,
    weights: Float[np.ndarray, "n m"],
    up: tuple[float, float, float],
    *,
    title: str,
    subtitle: str,
    labels: Sequence[str],
    tile: int = 320,
) -> UInt8[np.ndarray, "h w 3"]:
    """All handles in a grid, each a three-quarter view of the object, under a title and above a colour bar."""
    from PIL import Image, ImageDraw

    columns = min(4, len(labels)) if len(labels) <= 16 else int(np.ceil(len(labels) ** 0.5))
    columns = max(columns, 2)
    rows = -(-len(labels) // columns)
    window = _window(surface.splats, up, tile)
    step = window.stop - window.start + _LABEL_HEIGHT
    height = _BAND_HEIGHT + rows * step + 44
    sheet = Image.new("RGB", (columns * tile, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((18, 14), title, fill=_INK, font=_font(24))
    draw.text((18, 46), subtitle, fill=_SOFT, font=_font(15))
    values = scaled(weights)
    for k, label in enumerate(labels):
        left, top = (k % columns) * tile, _BAND_HEIGHT + (k // columns) * step
        picture = _view(painted(surface, values[:, k]), up, tile)[window]
        sheet.paste(Image.fromarray(picture), (left, top))
        draw.text((left + tile / 2, top + step - _LABEL_HEIGHT + 2), label, fill=_INK, font=_font(15), anchor="ma")
    _colour_bar(sheet, draw, height - 32)
    return np.asarray(sheet)


def _window(splats: Splats, up: tuple[float, float, float], tile: int) -> slice:
    """The rows of a tile that the object fills, with some air: flat objects need no square."""
    black = splats.replace(sh=np.full((len(splats), 1, 3), -2.0, np.float32))
    seen = np.flatnonzero((_view(black, up, tile) < 250).any(axis=(1, 2)))
    if not len(seen):
        return slice(0, tile)
    return slice(max(int(seen[0]) - 10, 0), min(int(seen[-1]) + 14, tile))


def _view(splats: Splats, up: tuple[float, float, float], tile: int) -> UInt8[np.ndarray, "t t 3"]:
    from splatanim.render.camera import frame_object
    from splatanim.render.rasterize import rasterize
    from splatanim.render.video import to_bytes

    camera = frame_object(splats.means, up, width=2 * tile, height=2 * tile, margin=0.05)
    large: Float32[np.ndarray, "h w 3"] = rasterize(splats, camera).rgb
    return to_bytes(large.reshape(tile, 2, tile, 2, 3).mean(axis=(1, 3)))  # twice the size, averaged: smooth edges


def _colour_bar(sheet, draw, top: int) -> None:
    from PIL import Image

    width = 220
    ramp = (diverging(np.linspace(-1.0, 1.0, width)) * 255).round().astype(np.uint8)
    sheet.paste(Image.fromarray(np.repeat(ramp[None], 12, axis=0)), (58, top + 4))
    draw.text((50, top + 1), "-max", fill=_SOFT, font=_font(14), anchor="ra")
    draw.text((58 + width + 8, top + 1), "+max  (each handle on its own scale)", fill=_SOFT, font=_font(14))


def _font(size: int):
    from PIL import ImageFont

    return ImageFont.load_default(size)
