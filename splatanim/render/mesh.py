"""Pictures of triangle meshes on a CPU: exact visibility per sample, texture, soft light, alpha and depth.

Made for ground truth: the picture of a mesh, its mask and its depth come from one geometry, cameras are those of
:mod:`splatanim.render.camera`, and light stands still in the world and knows no view, so that a surface point looks the
same from everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int32, Int64, UInt8

from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.rig.appearance import Appearance, decode_srgb, encode_srgb

_LAYERS = 8  # of transparent surfaces looked through, one behind the other
_CLEAR = 1e-3  # what little light is left behind so much opacity is not followed
_STEP = 1e-6  # relative: how far behind a transparent surface the next one is searched


@dataclass(frozen=True)
class Hits:
    """What each sample of an image sees first.

    ``face`` (h, w), -1 where nothing; ``barycentric`` (h, w, 3) on that face; ``depth`` (h, w) along the camera's axis
    (z, not distance), infinite where nothing.
    """

    face: Int32[np.ndarray, "h w"]
    barycentric: Float64[np.ndarray, "h w 3"]
    depth: Float64[np.ndarray, "h w"]


@dataclass(frozen=True)
class Light:
    """An even sky and one far lamp, both white: linear brightness ``sky + lamp * max(0, n . towards)``.

    ``wrap`` in [0, 1] carries the lamp's light around the terminator: max(0, (n . towards + wrap) / (1 + wrap)).
    ``towards`` points from the object to the lamp, in world coordinates.
    """

    towards: tuple[float, float, float] = (0.35, 0.85, 0.4)
    sky: float = 0.27
    lamp: float = 0.7
    wrap: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.towards).all() and np.linalg.norm(self.towards) > 0):
            raise InputError(f"Light: the direction {self.towards} must be finite and not zero.")
        if self.sky < 0 or self.lamp < 0 or not 0 <= self.wrap <= 1:
            raise InputError(
                f"Light: sky {self.sky} and lamp {self.lamp} must not be negative, wrap {self.wrap} in 0-1."
            )

    def on(self, normals: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, " n"]:
        """Linear brightness of a white surface with these unit normals."""
        direction = np.asarray(self.towards, np.float64) / np.linalg.norm(self.towards)
        return self.sky + self.lamp * np.maximum(0.0, (normals @ direction + self.wrap) / (1.0 + self.wrap))


@dataclass(frozen=True)
class Pattern:
    """A marking that goes with the surface: a sum of plane waves in rest coordinates, shaped into blotches.

    ``rest`` (v, 3) are the vertices in the pose it was painted in, ``waves`` (k, 3) wave vectors [rad / unit] and
    ``phases`` (k,). Display colours c become c (1 + contrast n) + lift (1 + n) / 2 with n in [-1, 1], the last so that
    black is marked too.
    """

    rest: Float64[np.ndarray, "v 3"]
    waves: Float64[np.ndarray, "k 3"]
    phases: Float64[np.ndarray, " k"]
    contrast: float = 0.3
    lift: float = 0.08

    def apply(
        self, colours: Float64[np.ndarray, "n 3"], points: Float64[np.ndarray, "n 3"]
    ) -> Float64[np.ndarray, "n 3"]:
        """Display colours of points given in rest coordinates."""
        phase = points.astype(np.float32) @ self.waves.T.astype(np.float32) + self.phases.astype(np.float32)
        total = np.cos(phase).sum(axis=1)  # in float32, whose cosine is vectorised
        n = np.tanh(1.2 * total / np.sqrt(len(self.phases) / 2))[:, None]
        return np.clip(colours * (1.0 + self.contrast * n) + self.lift * 0.5 * (1.0 + n), 0.0, 1.0)


@dataclass(frozen=True)
class Surface:
    """A mesh in one pose with its looks. Without ``normals`` the faces are shaded flat."""

    vertices: Float64[np.ndarray, "v 3"]
    faces: Int64[np.ndarray, "f 3"]
    appearance: Appearance
    normals: Float64[np.ndarray, "v 3"] | None = None
    pattern: Pattern | None = None


@dataclass(frozen=True)
class MeshImage:
    """``rgba`` (h, w, 4): straight display colours, alpha the share of the pixel that is covered, black where nothing.

    ``depth`` (h, w): z-depth seen through the pixel's centre, 0 where nothing is.
    """

    rgba: UInt8[np.ndarray, "h w 4"]
    depth: Float32[np.ndarray, "h w"]


def trace(
    vertices: Float[np.ndarray, "v 3"],
    faces: Int64[np.ndarray, "f 3"],
    camera: Camera,
    *,
    beyond: Float64[np.ndarray, "h w"] | None = None,
) -> Hits:
    """The nearest face along the ray of every pixel's centre, from both sides, exact in float64.

    Only hits with a depth greater than the camera's ``near`` and than ``beyond`` count. Faces may reach behind the
    camera.
    """
    from splatanim.render._mesh import raster_triangles

    shape = (camera.height, camera.width)
    pose = camera.T_camera_world
    seen = np.asarray(vertices, np.float64) @ pose[:3, :3].T + pose[:3, 3]
    corners = np.ascontiguousarray(seen[faces]).reshape(-1, 3, 3)
    face, depth = np.full(shape, -1, np.int32), np.full(shape, np.inf)
    barycentric = np.zeros((*shape, 3))
    lens = (float(camera.fx), float(camera.fy), float(camera.cx), float(camera.cy))
    beyond = np.full(shape, -np.inf) if beyond is None else np.ascontiguousarray(beyond)
    raster_triangles(corners, lens, float(camera.near), beyond, face, barycentric, depth)
    return Hits(face, barycentric, depth)


def render_mesh(surface: Surface, camera: Camera, *, light: Light | None = None, samples: int = 3) -> MeshImage:
    """Render with ``samples`` x ``samples`` points a pixel; without a light in plain colours.

    Display colours are averaged, not linear ones: pictures with alpha are laid over backgrounds in display values, and
    so a pixel at a rim is what compositing makes of it. Raises :class:`InputError` for fewer than one sample.
    """
    if samples < 1:
        raise InputError(f"render_mesh: {samples} samples a pixel; at least 1 is needed.")
    total, depth = _shaded(surface, camera, samples, light)
    if samples % 2 == 0:  # no sample lies at the pixel's centre
        depth = _shaded(surface, camera, 1, None)[1] if _see_through(surface) else _centre_depth(surface, camera)
    covered = total[:, 3:] / samples**2
    straight = total[:, :3] / np.maximum(total[:, 3:], 1e-12)
    pixels = np.concatenate([straight, covered], axis=1).reshape(camera.height, camera.width, 4)
    pixels = (np.clip(pixels, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)
    pixels[pixels[..., 3] == 0] = 0
    return MeshImage(pixels, np.where(np.isfinite(depth), depth, 0.0).astype(np.float32))


def _finer(camera: Camera, samples: int) -> Camera:
    pose, s = camera.T_camera_world, samples
    lens = (camera.fx * s, camera.fy * s, camera.cx * s, camera.cy * s)
    return Camera(pose, *lens, camera.width * s, camera.height * s, camera.near)


def _centre_depth(surface: Surface, camera: Camera) -> np.ndarray:
    return trace(surface.vertices, surface.faces, camera).depth


def _shaded(surface: Surface, camera: Camera, samples: int, light: Light | None) -> tuple[np.ndarray, np.ndarray]:
    """Sums over each pixel's samples of premultiplied display colour and opacity (h w, 4), and the depth (h, w) of the
    first half opaque surface at the middle sample (infinite where none)."""
    fine = _finer(camera, samples)
    pixels = camera.height * camera.width
    total = np.zeros((pixels, 4))
    left, beyond = np.ones(fine.height * fine.width), None
    solid = np.full(fine.height * fine.width, np.inf)
    for _ in range(_LAYERS if _see_through(surface) else 1):
        hits = trace(surface.vertices, surface.faces, fine, beyond=beyond)
        seen = np.flatnonzero((hits.face.ravel() >= 0) & (left > _CLEAR))
        if not len(seen):
            break
        face, at = hits.face.ravel()[seen].astype(np.int64), hits.barycentric.reshape(-1, 3)[seen]
        colours = _colours(surface, camera, face, at, light)
        opacity = colours[:, 3]
        weight = left[seen] * opacity
        row, column = np.divmod(seen, fine.width)
        pixel = row // samples * camera.width + column // samples
        for k in range(3):
            total[:, k] += np.bincount(pixel, weight * colours[:, k], pixels)
        total[:, 3] += np.bincount(pixel, weight, pixels)
        left[seen] *= 1.0 - opacity
        first = seen[(opacity >= 0.5) & np.isinf(solid[seen])]
        solid[first] = hits.depth.ravel()[first]
        beyond = hits.depth * (1.0 + _STEP)
    middle = slice(samples // 2, None, samples)
    return total, solid.reshape(fine.height, fine.width)[middle, middle]


def _see_through(surface: Surface) -> bool:
    return any(paint.cutoff is not None for paint in surface.appearance.paints)


def _colours(surface: Surface, camera: Camera, face: np.ndarray, at: np.ndarray, light: Light | None) -> np.ndarray:
    """Display colours with alpha (n, 4) of places on faces."""
    out = surface.appearance.sample(surface.faces, face, at)
    corners = surface.faces[face]
    if surface.pattern is not None:
        out[:, :3] = surface.pattern.apply(out[:, :3], np.einsum("nk,nkd->nd", at, surface.pattern.rest[corners]))
    if light is None:
        return out
    brightness = light.on(_normals(surface, camera, face, at))
    paints = surface.appearance.paints
    if any(paint.unlit for paint in paints):
        own = surface.appearance.paint_of_face
        unlit = np.array([paint.unlit for paint in paints])
        brightness[unlit[own[face]] if len(own) else np.full(len(face), unlit[0])] = 1.0
    out[:, :3] = encode_srgb(decode_srgb(out[:, :3]) * brightness[:, None])
    return out


def _normals(surface: Surface, camera: Camera, face: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Unit normals (n, 3) of the side that the camera sees.

    Which side that is, the triangle decides; the smooth normals decide which of its sides is their own.
    """
    corners = surface.vertices[surface.faces]
    flat = _unit(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    smooth = None
    if surface.normals is not None:
        own = surface.normals[surface.faces]
        flat = np.where((own.sum(axis=1) * flat).sum(axis=1, keepdims=True) < 0, -flat, flat)
        smooth = own
    away = ((corners[:, 0] - camera.position) * flat).sum(axis=1) > 0
    side = np.where(away, -1.0, 1.0)[:, None]
    if smooth is None:
        return (flat * side)[face]
    blended = np.einsum("nk,nkd->nd", at, smooth[face])
    length = np.linalg.norm(blended, axis=1, keepdims=True)
    blended = np.where(length > 1e-6, blended / np.maximum(length, 1e-30), flat[face])
    return blended * side[face]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)
