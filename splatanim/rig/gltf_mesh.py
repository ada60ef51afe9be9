"""glTF meshes to vertices in the bind pose, with weights, normals and looks."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from splatanim.errors import InputError
from splatanim.rig.appearance import Appearance, Paint, Wrap
from splatanim.rig.gltf_file import GltfFile, checked_number
from splatanim.rig.gltf_nodes import Armature
from splatanim.rig.weights import SkinWeights, repair_weights

_WRAPS = {33071: "clamp", 33648: "mirror", 10497: "repeat"}
_MODES = {0: "points", 1: "lines", 2: "lines", 3: "lines", 4: "triangles", 5: "strip", 6: "fan"}


@dataclass(frozen=True)
class Piece:
    """One primitive: world bind-pose vertices, its own triangles, weights on the skeleton's joints, and its looks."""

    vertices: np.ndarray
    faces: np.ndarray
    skin: SkinWeights
    normals: np.ndarray | None
    uv: np.ndarray | None
    colours: np.ndarray | None
    material: int | None


@dataclass(frozen=True)
class Surfaces:
    """All primitives of a scene as one mesh."""

    vertices: np.ndarray
    faces: np.ndarray
    skin: SkinWeights
    normals: np.ndarray | None
    appearance: Appearance
    notes: tuple[str, ...]


def read_surfaces(file: GltfFile, armature: Armature) -> Surfaces:
    """Every mesh of the scene, one after the other.

    Raises :class:`InputError` for indices that point nowhere, Draco, and weights that are all zero.
    """
    pieces: list[Piece] = []
    notes: list[str] = []
    for node in armature.meshes:
        entry = file.item("nodes", node)
        mesh = file.item("meshes", entry["mesh"])
        for k, primitive in enumerate(mesh.get("primitives", [])):
            where = f"{file.path}: meshes[{entry['mesh']}].primitives[{k}]"
            piece = _piece(file, armature, node, primitive, where, notes)
            if piece is not None:
                pieces.append(piece)
    if not pieces:
        none = SkinWeights(np.empty((0, 1), np.int32), np.empty((0, 1)), len(armature.skeleton))
        return Surfaces(np.empty((0, 3)), np.empty((0, 3), np.int64), none, None, Appearance(), tuple(notes))
    return _joined(file, pieces, notes)


def _piece(
    file: GltfFile, armature: Armature, node: int, primitive: dict[str, Any], where: str, notes: list[str]
) -> Piece | None:
    if "KHR_draco_mesh_compression" in primitive.get("extensions", {}) and "bufferView" not in file.item(
        "accessors", primitive.get("attributes", {}).get("POSITION")
    ):
        raise InputError(
            f"{where} is compressed with Draco, which is not read here. Decompress it first: "
            "npx @gltf-transform/cli cp IN.glb OUT.glb (or import and export it in Blender)."
        )
    mode = _MODES.get(primitive.get("mode", 4))
    attributes = primitive.get("attributes", {})
    if mode in (None, "lines") or "POSITION" not in attributes:
        notes.append(f"{where} holds {mode or 'nothing known'}; left out.")
        return None
    if primitive.get("targets"):
        notes.append(f"{where} has {len(primitive['targets'])} morph targets; left out.")
    raw = file.accessor(attributes["POSITION"], (3,)).astype(np.float64)
    if not np.isfinite(raw).all():
        raise file.broken(f"{where} has positions that are NaN or infinite")
    joints, to_world = _binding(file, armature, node, attributes, raw, where, notes)
    normals = _normals(file, attributes, to_world)
    for name, values in (("NORMAL", normals), ("JOINTS_0", joints)):
        if values is not None and len(values) != len(raw):
            raise file.broken(f"{where}: {len(raw)} positions but {len(values)} of {name}")
    texture = _base_texture(file, primitive.get("material"))
    return Piece(
        raw @ to_world[:3, :3].T + to_world[:3, 3],
        _triangles(file, primitive, mode, len(raw), where),
        joints,
        normals,
        _uv(file, attributes, texture, len(raw), where),
        _colours(file, attributes, len(raw), where),
        primitive.get("material"),
    )


def _binding(
    file: GltfFile,
    armature: Armature,
    node: int,
    attributes: dict[str, int],
    raw: np.ndarray,
    where: str,
    notes: list[str],
) -> tuple[SkinWeights, np.ndarray]:
    """Weights on the skeleton's joints, and the map from mesh space to the bind pose."""
    count = len(armature.skeleton)
    skin = file.item("nodes", node).get("skin")
    if skin is None or "JOINTS_0" not in attributes:
        joint, to_world = armature.rigid(node) if skin is None else _unweighted(file, armature, skin, where)
        return SkinWeights(np.full((len(raw), 1), joint, np.int32), np.ones((len(raw), 1)), count), to_world
    file.item("skins", skin)
    binding = armature.skins[skin]
    sets = [k for k in range(8) if f"JOINTS_{k}" in attributes]
    slots, weights = [], []
    for k in sets:
        if f"WEIGHTS_{k}" not in attributes:
            raise file.broken(f"{where} has JOINTS_{k} but no WEIGHTS_{k}")
        slots.append(file.accessor(attributes[f"JOINTS_{k}"], (4,)).astype(np.int64))
        weights.append(file.accessor(attributes[f"WEIGHTS_{k}"], (4,)).astype(np.float64))
        if not len(slots[-1]) == len(weights[-1]) == len(raw):
            raise file.broken(
                f"{where}: {len(raw)} positions, {len(slots[-1])} JOINTS_{k}, {len(weights[-1])} WEIGHTS_{k}"
            )
    mended, more = repair_weights(np.concatenate(slots, 1), np.concatenate(weights, 1), raw, len(binding.joints), where)
    notes += more
    return SkinWeights(binding.joints[mended.joints].astype(np.int32), mended.weights, count), binding.to_world


def _unweighted(file: GltfFile, armature: Armature, skin: int, where: str) -> tuple[int, np.ndarray]:
    file.item("skins", skin)
    raise file.broken(f"{where} belongs to skin {skin} but has no JOINTS_0")


def _triangles(file: GltfFile, primitive: dict[str, Any], mode: str | None, count: int, where: str) -> np.ndarray:
    """Vertex indices (f, 3); strips and fans are unrolled with their winding kept."""
    if mode == "points":
        return np.empty((0, 3), np.int64)
    if "indices" in primitive:
        index = file.accessor(primitive["indices"], ()).astype(np.int64)
    else:
        index = np.arange(count)
    if len(index) and (index.min() < 0 or index.max() >= count):
        raise file.broken(f"{where}: a face refers to vertex {index.max()} of {count}")
    if mode == "triangles":
        return index[: len(index) // 3 * 3].reshape(-1, 3)
    if len(index) < 3:
        return np.empty((0, 3), np.int64)
    if mode == "fan":
        return np.stack([np.full(len(index) - 2, index[0]), index[1:-1], index[2:]], axis=1)
    faces = np.stack([index[:-2], index[1:-1], index[2:]], axis=1)
    faces[1::2] = faces[1::2][:, [1, 0, 2]]
    return faces


def _normals(file: GltfFile, attributes: dict[str, int], to_world: np.ndarray) -> np.ndarray | None:
    if "NORMAL" not in attributes:
        return None
    normals = file.accessor(attributes["NORMAL"], (3,)).astype(np.float64) @ np.linalg.inv(to_world[:3, :3])
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)


def _colours(file: GltfFile, attributes: dict[str, int], count: int, where: str) -> np.ndarray | None:
    if "COLOR_0" not in attributes:
        return None
    colours = file.accessor(attributes["COLOR_0"]).astype(np.float64)
    if colours.ndim != 2 or colours.shape[1] not in (3, 4) or len(colours) != count:
        raise file.broken(f"{where}: COLOR_0 has shape {colours.shape} for {count} vertices")
    return colours if colours.shape[1] == 4 else np.concatenate([colours, np.ones((count, 1))], axis=1)


def _base_texture(file: GltfFile, material: int | None) -> dict[str, Any] | None:
    if material is None:
        return None
    return file.item("materials", material).get("pbrMetallicRoughness", {}).get("baseColorTexture")


def _uv(
    file: GltfFile, attributes: dict[str, int], texture: dict[str, Any] | None, count: int, where: str
) -> np.ndarray | None:
    """The texture coordinates that the base colour uses, KHR_texture_transform applied."""
    if texture is None:
        return None
    moved = texture.get("extensions", {}).get("KHR_texture_transform", {})
    name = f"TEXCOORD_{moved.get('texCoord', texture.get('texCoord', 0))}"
    if name not in attributes:
        return None
    uv = file.accessor(attributes[name], (2,)).astype(np.float64)
    if len(uv) != count:
        raise file.broken(f"{where}: {count} positions but {len(uv)} of {name}")
    uv = uv * checked_number(file, moved.get("scale", [1, 1]), 2, "a texture's scale")
    turn = float(moved.get("rotation", 0.0))
    uv = uv @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return uv + checked_number(file, moved.get("offset", [0, 0]), 2, "a texture's offset")


def _joined(file: GltfFile, pieces: list[Piece], notes: list[str]) -> Surfaces:
    starts = np.cumsum([0, *(len(p.vertices) for p in pieces)])
    width = max(p.skin.joints.shape[1] for p in pieces)

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values, ((0, 0), (0, width - values.shape[1])))

    skin = SkinWeights(
        np.concatenate([padded(p.skin.joints) for p in pieces]),
        np.concatenate([padded(p.skin.weights) for p in pieces]),
        pieces[0].skin.joint_count,
    )
    used = sorted({p.material for p in pieces}, key=lambda m: -1 if m is None else m)
    paints = tuple(_paint(file, material, notes) for material in used)
    normals = [p.normals for p in pieces]
    return Surfaces(
        np.concatenate([p.vertices for p in pieces]),
        np.concatenate([p.faces + start for p, start in zip(pieces, starts)]),
        skin,
        np.concatenate(normals) if all(n is not None for n in normals) else None,  # type: ignore[arg-type]
        Appearance(
            paints,
            np.repeat([used.index(p.material) for p in pieces], [len(p.faces) for p in pieces]).astype(np.int64),
            _stacked([p.uv for p in pieces], [np.zeros((len(p.vertices), 2)) for p in pieces]),
            _stacked([p.colours for p in pieces], [np.ones((len(p.vertices), 4)) for p in pieces]),
        ),
        tuple(dict.fromkeys(notes)),
    )


def _stacked(values: list[np.ndarray | None], defaults: list[np.ndarray]) -> np.ndarray | None:
    if all(v is None for v in values):
        return None
    return np.concatenate([d if v is None else v for v, d in zip(values, defaults)])


def _paint(file: GltfFile, material: int | None, notes: list[str]) -> Paint:
    if material is None:
        return Paint()
    entry = file.item("materials", material)
    pbr = entry.get("pbrMetallicRoughness", {})
    base = checked_number(file, pbr.get("baseColorFactor", [1, 1, 1, 1]), 4, f"materials[{material}].baseColorFactor")
    image, wrap = _texture(file, pbr.get("baseColorTexture"), notes)
    cutoff = {"MASK": float(entry.get("alphaCutoff", 0.5)), "BLEND": 0.0}.get(entry.get("alphaMode", "OPAQUE"))
    unlit = "KHR_materials_unlit" in entry.get("extensions", {})
    r, g, b, a = (float(v) for v in base)
    return Paint(str(entry.get("name") or f"material{material}"), (r, g, b, a), image, wrap, cutoff, unlit)


def _texture(file: GltfFile, reference: dict[str, Any] | None, notes: list[str]) -> tuple[np.ndarray | None, Wrap]:
    """The image (h, w, 4), or None with a note where it is not there or not readable."""
    default: Wrap = ("repeat", "repeat")
    if reference is None:
        return None, default
    texture = file.item("textures", reference.get("index"))
    source = texture.get("extensions", {}).get("EXT_texture_webp", {}).get("source", texture.get("source"))
    if source is None:
        notes.append(f"{file.path}: a texture has no image that is read here; the base colour stands alone.")
        return None, default
    sampler = file.item("samplers", texture["sampler"]) if "sampler" in texture else {}
    wrap = (_WRAPS.get(sampler.get("wrapS", 0), "repeat"), _WRAPS.get(sampler.get("wrapT", 0), "repeat"))
    image = file.item("images", source)
    try:
        if "bufferView" in image:
            data, start, length, _ = file.view(image["bufferView"])
            raw = data[start : start + length]
        else:
            raw = file.resource(image.get("uri"))
        from PIL import Image

        with Image.open(io.BytesIO(raw)) as opened:
            return np.asarray(opened.convert("RGBA"), np.uint8), wrap
    except (InputError, OSError, ValueError, SyntaxError) as error:
        notes.append(f"{file.path}: image {source} cannot be read ({error}); the base colour stands alone.")
        return None, default
