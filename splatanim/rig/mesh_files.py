"""Meshes of the other formats (.obj, .stl, .off, .ply) with their colours, as models of one joint that never moves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import first_bytes
from splatanim.rig.appearance import Appearance, Paint, decode_srgb
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import skeleton_from_positions
from splatanim.rig.weights import SkinWeights

MESH_SUFFIXES = (".obj", ".stl", ".off", ".ply")


def read_mesh(path: str | os.PathLike[str]) -> RiggedModel:
    """Read a mesh through trimesh, all its parts as one, with textures, vertex colours and material colours.

    Raises :class:`InputError` where the file is missing, damaged or has no faces.
    """
    import trimesh

    path = Path(path)
    first_bytes(path, 1)
    try:
        loaded = trimesh.load(path, process=False)
        parts: list[Any] = list(loaded.dump()) if isinstance(loaded, trimesh.Scene) else [loaded]
    except Exception as error:  # its readers raise whatever their format trips over
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {error}). It may be cut off or damaged: export it again."
        ) from error
    parts = [p for p in parts if len(getattr(p, "faces", ()))]
    if not parts:
        raise InputError(f"{path}: has no faces. Splats need a surface to lie on: export it as a mesh.")
    looks = [_look(part) for part in parts]
    starts = np.cumsum([0, *(len(p.vertices) for p in parts)])
    vertices = np.concatenate([np.asarray(p.vertices, np.float64) for p in parts])
    faces = np.concatenate([np.asarray(p.faces, np.int64) + s for p, s in zip(parts, starts)])
    still = SkinWeights(np.zeros((len(vertices), 1), np.int32), np.ones((len(vertices), 1)), 1)
    bone = skeleton_from_positions(("still",), np.array([-1]), np.zeros((1, 3)))
    return RiggedModel(vertices, faces, bone, still, appearance=_joined(parts, looks))


def _look(part: Any) -> tuple[Paint, np.ndarray | None, np.ndarray | None]:
    """Paint, texture coordinates and linear vertex colours of one part."""
    visual = part.visual
    if visual.kind == "texture":
        return _textured(visual)
    if visual.kind in ("vertex", "face"):
        colours = np.asarray(visual.vertex_colors, np.float64) / 255.0
        return Paint(), None, np.concatenate([decode_srgb(colours[:, :3]), colours[:, 3:]], axis=1)
    return Paint(base=(0.5, 0.5, 0.5, 1.0)), None, None


def _textured(visual: Any) -> tuple[Paint, np.ndarray | None, np.ndarray | None]:
    material = visual.material
    image = getattr(material, "image", None) or getattr(material, "baseColorTexture", None)
    main = np.asarray(getattr(material, "main_color", (255, 255, 255, 255)), np.float64) / 255.0
    r, g, b = (float(v) for v in decode_srgb(main[:3]))
    if image is None or visual.uv is None:
        return Paint(base=(r, g, b, 1.0)), None, None
    uv = np.asarray(visual.uv, np.float64) * [1.0, -1.0] + [0.0, 1.0]  # trimesh counts from the bottom
    return Paint(texture=np.asarray(image.convert("RGBA"), np.uint8)), uv, None


def _joined(parts: list[Any], looks: list[tuple[Paint, np.ndarray | None, np.ndarray | None]]) -> Appearance:
    paint_of_face = np.repeat(np.arange(len(parts)), [len(p.faces) for p in parts]).astype(np.int64)
    uv = colours = None
    if any(look[1] is not None for look in looks):
        uv = np.concatenate([np.zeros((len(p.vertices), 2)) if u is None else u for p, (_, u, _) in zip(parts, looks)])
    if any(look[2] is not None for look in looks):
        colours = np.concatenate(
            [np.ones((len(p.vertices), 4)) if c is None else c for p, (_, _, c) in zip(parts, looks)]
        )
    return Appearance(tuple(look[0] for look in looks), paint_of_face, uv, colours)
