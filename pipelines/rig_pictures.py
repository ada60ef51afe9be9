"""Pictures of rigs: the object in the colours of its bones, and the skeleton drawn over it, from three sides."""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float64, UInt8

from pipelines.field_pictures import Surface
from splatanim.rig.skeleton import Skeleton
from splatanim.rig.weights import SkinWeights

if TYPE_CHECKING:
    from splatanim.render.camera import Camera

VIEWS = ((35.0, 15.0), (90.0, 5.0), (0.0, 80.0))  # azimuth and elevation in degrees
_INK, _SOFT, _ROOT, _JOINT, _END = (32, 33, 36), (110, 113, 118), (24, 128, 56), (217, 48, 37), (25, 103, 210)


def bone_colours(count: int) -> Float64[np.ndarray, "j 3"]:
    """Light colours (RGB in [0, 1]) that differ between neighbours in the list: hues by the golden ratio."""
    return np.array([colorsys.hls_to_rgb(0.618034 * k % 1.0, 0.72 if k % 2 else 0.62, 0.62) for k in range(count)])


def rig_picture(
    surface: Surface,
    skeleton: Skeleton,
    skin: SkinWeights,
    up: tuple[float, float, float],
    *,
    title: str,
    subtitle: str = "",
    tile: int = 520,
    reference: Skeleton | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """The surface (splats with their offset left out) blended from the colours of the bones it follows.

    ``skeleton`` and ``reference``, another one drawn in grey beneath it, are in the coordinates of the splats.
    """
    from PIL import Image, ImageDraw, ImageFont

    from splatanim.render.camera import frame_object

    colours = skin.dense() @ bone_colours(len(skeleton)) * surface.shade[:, None]
    splats = surface.splats.replace(sh=((colours - 0.5) / 0.28209479177387814).astype(np.float32)[:, None], extras={})
    joints = skeleton.joint_positions
    seen = np.concatenate([splats.means.astype(np.float64), joints])
    if reference is not None:
        seen = np.concatenate([seen, reference.joint_positions])
    sheet = Image.new("RGB", (len(VIEWS) * tile, tile + 64), (255, 255, 255))
    for k, (azimuth, elevation) in enumerate(VIEWS):
        camera = frame_object(
            seen, up, width=2 * tile, height=2 * tile, azimuth_degrees=azimuth, elevation_degrees=elevation
        )
        sheet.paste(Image.fromarray(_tile(splats, camera, skeleton, reference, tile)), (k * tile, 64))
    draw = ImageDraw.Draw(sheet)
    draw.text((16, 10), title, fill=_INK, font=ImageFont.load_default(22))
    draw.text((16, 40), subtitle, fill=_SOFT, font=ImageFont.load_default(14))
    return np.asarray(sheet)


def _tile(splats, camera: Camera, skeleton: Skeleton, reference: Skeleton | None, tile: int) -> np.ndarray:
    from PIL import Image, ImageDraw

    from splatanim.render.rasterize import rasterize
    from splatanim.render.video import to_bytes

    image = Image.fromarray(to_bytes(rasterize(splats, camera).rgb))
    draw = ImageDraw.Draw(image)
    if reference is not None:
        _draw(draw, _projected(camera, reference.joint_positions), reference, plain=True)
    _draw(draw, _projected(camera, skeleton.joint_positions), skeleton, plain=False)
    return np.asarray(image.resize((tile, tile), Image.Resampling.LANCZOS))


def _projected(camera: Camera, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 2"]:
    local = points @ camera.T_camera_world[:3, :3].T + camera.T_camera_world[:3, 3]
    depth = np.maximum(local[:, 2], 1e-9)
    return np.stack([camera.fx * local[:, 0] / depth + camera.cx, camera.fy * local[:, 1] / depth + camera.cy], axis=1)


def _draw(draw, places: np.ndarray, skeleton: Skeleton, *, plain: bool) -> None:
    """Bones as lines with a white rim, joints as discs: the root green, ends blue; all grey where ``plain``."""
    lines = [(tuple(places[p]), tuple(places[j])) for j, p in enumerate(skeleton.parents) if p >= 0]
    if not plain:
        for line in lines:
            draw.line(line, fill=(255, 255, 255), width=9)
    for line in lines:
        draw.line(line, fill=(120, 124, 130) if plain else _INK, width=3 if plain else 5)
    for j, (x, y) in enumerate(places):
        end = not len(skeleton.children(j))
        colour = (150, 154, 160) if plain else _ROOT if skeleton.parents[j] < 0 else _END if end else _JOINT
        r = 4 if plain else 10 if skeleton.parents[j] < 0 else 7
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour, outline=(255, 255, 255))
