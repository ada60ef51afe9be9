"""How ``splatanim synth`` lights and marks its subjects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from splatanim.render.camera import Camera
    from splatanim.render.mesh import Light, MeshImage, Pattern, Surface
    from splatanim.rig.appearance import Appearance
    from splatanim.rig.model import RiggedModel

_BRIGHTEST = 0.97  # linear brightness of a surface that faces the lamp
_WAVES = 32  # of the pattern
_WAVELENGTHS = (0.1, 0.5)  # half the bind pose's diagonal being 1
_PLAIN = 5  # [of 255] that an image may vary by and still be one colour


@dataclass(frozen=True)
class Look:
    """``light``: share of even light, the lamp's azimuth and elevation [degrees]; None for plain colours."""

    light: tuple[float, float, float] | None
    pattern: Literal["auto", "on", "off"]
    samples: int
    seed: int


class Painter:
    """Renders one model: :meth:`pose` it once, then :meth:`draw` it for any number of cameras."""

    def __init__(self, model: RiggedModel, up: tuple[float, float, float], look: Look) -> None:
        marked = look.pattern == "on" or (look.pattern == "auto" and is_plain(model.appearance))
        self._model = model
        self._pattern = blotches(model.vertices, look.seed) if marked else None
        self._light = None if look.light is None else lamp(up, *look.light)
        self._samples = look.samples

    def pose(self, transforms: np.ndarray) -> Surface:
        """The model under joint transforms (j, 4, 4)."""
        from pipelines.synth_motion import posed
        from splatanim.render.mesh import Surface

        vertices, normals = posed(self._model, transforms)
        return Surface(vertices, self._model.faces, self._model.appearance, normals, self._pattern)

    def draw(self, surface: Surface, camera: Camera) -> MeshImage:
        """One picture."""
        from splatanim.render.mesh import render_mesh

        return render_mesh(surface, camera, light=self._light, samples=self._samples)


def lamp(up: tuple[float, float, float], ambient: float, azimuth: float, elevation: float) -> Light:
    """Even light and one lamp, a little under full brightness together."""
    from splatanim.render.camera import view_direction
    from splatanim.render.mesh import Light

    x, y, z = (float(v) for v in -view_direction(up, azimuth, elevation))
    return Light((x, y, z), sky=_BRIGHTEST * ambient, lamp=_BRIGHTEST * (1.0 - ambient))


def is_plain(looks: Appearance) -> bool:
    """Whether each material is of one colour, so that nothing on it could be tracked."""
    images = [paint.texture for paint in looks.paints if paint.texture is not None]
    if any(np.ptp(image, axis=(0, 1)).max() > _PLAIN for image in images):
        return False
    return looks.colours is None or bool(np.ptp(looks.colours, axis=0).max() < _PLAIN / 255)


def blotches(vertices: np.ndarray, seed: int) -> Pattern:
    """A seeded pattern on the bind pose."""
    from splatanim.render.mesh import Pattern

    rng = np.random.default_rng((seed, 0))
    ways = rng.normal(size=(_WAVES, 3))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    shortest, longest = np.log(_WAVELENGTHS)
    lengths = np.exp(rng.uniform(shortest, longest, (_WAVES, 1)))
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    rest = (vertices - 0.5 * (low + high)) * 2.0 / max(float(np.linalg.norm(high - low)), 1e-30)
    return Pattern(rest, 2 * math.pi * ways / lengths, rng.uniform(0, 2 * math.pi, _WAVES))
