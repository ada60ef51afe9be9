"""Rigged models to .glb: a skinned mesh or skinned points, the skeleton, and its clips."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from splatanim.errors import InputError
from splatanim.rig.affine import decompose, matrix_quaternions
from splatanim.rig.gltf_write import ARRAY_BUFFER, ELEMENT_ARRAY_BUFFER, GlbBuilder
from splatanim.rig.weights import SkinWeights, sparse_weights

if TYPE_CHECKING:
    from splatanim.rig.animation import Animation
    from splatanim.rig.appearance import Paint
    from splatanim.rig.model import RiggedModel
    from splatanim.rig.skeleton import Skeleton

_WRAP_CODES = {"clamp": 33071, "mirror": 33648, "repeat": 10497}


def write_glb(
    path: str | os.PathLike[str],
    model: RiggedModel,
    *,
    name: str = "model",
    placed: Float[np.ndarray, "4 4"] | None = None,
) -> None:
    """Write a model as .glb that re-imports equal; the bind pose is its mesh space.

    A model without faces is written as points, with its vertex colours. ``placed`` is a transform of the whole, put
    on a node above the skeleton (glTF is y-up: turn what is not).

    Raises OutputError where the file cannot be written, InputError where the model has no vertices.
    """
    if not len(model.vertices):
        raise InputError(f"{path}: the model has no vertices to write.")
    out = GlbBuilder()
    joints, top = _skeleton_nodes(out, model.skeleton, name, placed)
    skin = out.add(
        "skins",
        {
            "joints": joints,
            "skeleton": top,
            "inverseBindMatrices": out.accessor(model.skeleton.inverse_bind.astype(np.float32)),
        },
    )
    mesh = out.add("meshes", {"name": name, "primitives": _primitives(out, model)})
    body = out.add("nodes", {"name": f"{name} surface", "mesh": mesh, "skin": skin})
    for clip in model.animations.values():
        _animation(out, clip, joints)
    out.content["scene"] = out.add("scenes", {"nodes": [top, body]})
    out.write(path)


def _skeleton_nodes(out: GlbBuilder, skeleton: Skeleton, name: str, placed: np.ndarray | None) -> tuple[list[int], int]:
    """A node for every joint below one common node, with nodes between for prefixes."""
    top = out.add("nodes", {"name": f"{name} rig", **_trs(np.eye(4) if placed is None else np.asarray(placed))[0]})
    nodes = np.full(len(skeleton), -1)
    rest = skeleton.rest
    for j in skeleton.order:
        above = top if skeleton.parents[j] < 0 else int(nodes[skeleton.parents[j]])
        if np.abs(skeleton.prefix[j] - np.eye(4)).max() > 1e-12:
            for part in _trs(skeleton.prefix[j]):
                above = _child(out, above, {"name": f"{skeleton.names[j]} place", **part})
        entry: dict[str, Any] = {"name": skeleton.names[j], "translation": _floats(rest.translations[j])}
        entry["rotation"] = _floats(np.roll(rest.rotations[j], -1))
        entry["scale"] = _floats(rest.scales[j])
        nodes[j] = _child(out, above, entry)
    return [int(k) for k in nodes], top


def _child(out: GlbBuilder, parent: int, entry: dict[str, Any]) -> int:
    index = out.add("nodes", entry)
    out.content["nodes"][parent].setdefault("children", []).append(index)
    return index


def _trs(matrix: np.ndarray) -> list[dict[str, Any]]:
    """Nodes, the upper one first, whose product is the matrix; a shear needs two (M = U S V^T)."""
    parts = decompose(matrix)
    if parts is not None:
        translation, rotation, scale = parts
        return [
            {"translation": _floats(translation), "rotation": _floats(np.roll(rotation, -1)), "scale": _floats(scale)}
        ]
    u, s, vt = np.linalg.svd(matrix[:3, :3])
    flip = np.array([1.0, 1.0, np.linalg.det(u)]), np.array([1.0, 1.0, np.linalg.det(vt)])
    u, vt, s = u * flip[0], vt * flip[1][:, None], s * flip[0] * flip[1]
    upper = {"translation": _floats(matrix[:3, 3]), "rotation": _floats(np.roll(matrix_quaternions(u), -1))}
    return [{**upper, "scale": _floats(s)}, {"rotation": _floats(np.roll(matrix_quaternions(vt), -1))}]


def _floats(values: np.ndarray) -> list[float]:
    return [float(v) for v in values]


def _primitives(out: GlbBuilder, model: RiggedModel) -> list[dict[str, Any]]:
    """One primitive a material (they share nothing, so that each has the vertices it uses and no others)."""
    if not len(model.faces):
        return [{"mode": 0, "attributes": _attributes(out, model, np.arange(len(model.vertices)))}]
    looks = model.appearance
    paint = looks.paint_of_face if len(looks.paint_of_face) else np.zeros(len(model.faces), np.int64)
    primitives = []
    for k in np.unique(paint):
        faces = model.faces[paint == k]
        rows, local = np.unique(faces, return_inverse=True)
        kind = np.uint16 if len(rows) < 65535 else np.uint32
        entry: dict[str, Any] = {
            "attributes": _attributes(out, model, rows, textured=looks.paints[k].texture is not None),
            "indices": out.accessor(local.ravel().astype(kind), target=ELEMENT_ARRAY_BUFFER),
            "material": _material(out, looks.paints[k]),
        }
        primitives.append(entry)
    return primitives


def _attributes(out: GlbBuilder, model: RiggedModel, rows: np.ndarray, textured: bool = False) -> dict[str, int]:
    looks = model.appearance

    def floats(values: np.ndarray, bounds: bool = False) -> int:
        return out.accessor(values[rows].astype(np.float32), target=ARRAY_BUFFER, bounds=bounds)

    attributes = {"POSITION": floats(model.vertices, bounds=True)}
    if model.normals is not None and (np.linalg.norm(model.normals[rows], axis=1) > 0.5).all():
        attributes["NORMAL"] = floats(model.normals)
    if looks.uv is not None and textured:
        attributes["TEXCOORD_0"] = floats(looks.uv)
    if looks.colours is not None:
        colours = np.round(np.clip(looks.colours[rows], 0.0, 1.0) * 65535).astype(np.uint16)
        attributes["COLOR_0"] = out.accessor(colours, target=ARRAY_BUFFER, normalized=True)
    joints, weights = influences(model.skin.select(rows))
    for k in range(joints.shape[1] // 4):
        part = slice(4 * k, 4 * k + 4)
        attributes[f"JOINTS_{k}"] = out.accessor(joints[:, part], target=ARRAY_BUFFER)
        attributes[f"WEIGHTS_{k}"] = out.accessor(weights[:, part], target=ARRAY_BUFFER)
    return attributes


def influences(skin: SkinWeights) -> tuple[np.ndarray, np.ndarray]:
    """Joints (n, 4 or 8) and float32 weights as the format wants them: no joint twice, sums of 1 to the last digit.

    At most 8 influences are written; weaker ones are dropped and the rest scaled.
    """
    merged = sparse_weights(skin.dense())
    count = merged.joints.shape[1]
    width = -(-count // 4) * 4
    weights = np.pad(merged.weights, ((0, 0), (0, width - count))).astype(np.float32)
    for _ in range(2):  # put the rounding of the sum onto the largest
        weights[:, 0] += (1.0 - weights.astype(np.float64).sum(axis=1)).astype(np.float32)
    kind = np.uint8 if skin.joint_count <= 256 else np.uint16
    joints = np.pad(merged.joints, ((0, 0), (0, width - count)))
    return np.where(weights > 0, joints, 0).astype(kind), weights


def _material(out: GlbBuilder, paint: Paint) -> int:
    from PIL import Image

    pbr: dict[str, Any] = {"baseColorFactor": list(paint.base), "metallicFactor": 0.0, "roughnessFactor": 1.0}
    if paint.texture is not None:
        packed = io.BytesIO()
        Image.fromarray(paint.texture).save(packed, "PNG")
        image = out.add("images", {"mimeType": "image/png", "bufferView": out.view(packed.getvalue())})
        wraps = {"wrapS": _WRAP_CODES[paint.wrap[0]], "wrapT": _WRAP_CODES[paint.wrap[1]]}
        sampler = out.add("samplers", wraps)
        pbr["baseColorTexture"] = {"index": out.add("textures", {"source": image, "sampler": sampler})}
    entry: dict[str, Any] = {"name": paint.name, "pbrMetallicRoughness": pbr}
    if paint.cutoff is not None:
        entry.update({"alphaMode": "MASK", "alphaCutoff": paint.cutoff} if paint.cutoff > 0 else {"alphaMode": "BLEND"})
    if paint.unlit:
        entry["extensions"] = {"KHR_materials_unlit": {}}
        if "KHR_materials_unlit" not in out.content.setdefault("extensionsUsed", []):
            out.content["extensionsUsed"].append("KHR_materials_unlit")
    return out.add("materials", entry)


def _animation(out: GlbBuilder, clip: Animation, joints: list[int]) -> None:
    samplers: list[dict[str, Any]] = []
    channels: list[dict[str, Any]] = []
    inputs: dict[bytes, int] = {}
    for channel in clip.channels:
        times, kept = _distinct(channel.times)
        values = channel.values[kept]
        if channel.path == "rotation":
            values = np.roll(values, -1, axis=-1)
            if channel.interpolation != "CUBICSPLINE":
                values = values / np.linalg.norm(values, axis=-1, keepdims=True)
        key = times.tobytes()
        if key not in inputs:
            inputs[key] = out.accessor(times, bounds=True)
        flat = np.ascontiguousarray(values.reshape(-1, values.shape[-1]), np.float32)
        samplers.append({"input": inputs[key], "output": out.accessor(flat), "interpolation": channel.interpolation})
        target = {"node": joints[channel.joint], "path": channel.path}
        channels.append({"sampler": len(samplers) - 1, "target": target})
    if channels:
        out.add("animations", {"name": clip.name, "samplers": samplers, "channels": channels})


def _distinct(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times in float32, strictly rising as the format wants them, and which keys they keep (the last of equals)."""
    single = np.maximum(times, 0.0).astype(np.float32)
    kept = np.append(single[1:] > single[:-1], True)
    return single[kept], np.flatnonzero(kept)
