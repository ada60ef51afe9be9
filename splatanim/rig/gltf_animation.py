"""glTF animations to clips on a skeleton's joints."""

from __future__ import annotations

from typing import Any

import numpy as np

from splatanim.errors import InputError
from splatanim.rig.animation import WIDTH, Animation, Channel
from splatanim.rig.gltf_file import GltfFile
from splatanim.rig.gltf_nodes import Armature


def read_animations(file: GltfFile, armature: Armature, notes: list[str]) -> dict[str, Animation]:
    """All clips by name (``clip0`` and so on where the file names none); morph weights are left out with a note."""
    clips: dict[str, Animation] = {}
    for k, entry in enumerate(file.entries("animations")):
        name = str(entry.get("name") or f"clip{k}")
        while name in clips:
            name += "#2"
        channels = []
        left = 0
        for channel in entry.get("channels", []):
            made = _channel(file, armature, entry, channel, f"animations[{k}]")
            left += made is None
            if made is not None:
                channels.append(made)
        if left:
            notes.append(
                f"{file.path}: clip {name!r}: {left} channels move no joint (morph weights and such); left out."
            )
        clips[name] = Animation(name, armature.skeleton.rest, tuple(channels))
    return clips


def _channel(
    file: GltfFile, armature: Armature, clip: dict[str, Any], channel: dict[str, Any], where: str
) -> Channel | None:
    target = channel.get("target", {})
    joint = armature.joint_of_node.get(target.get("node", -1))
    path = target.get("path")
    if joint is None or path not in WIDTH:
        return None
    samplers, index = clip.get("samplers", []), channel.get("sampler")
    if not isinstance(index, int) or not 0 <= index < len(samplers):
        raise file.broken(f"{where}: a channel refers to sampler {index} of {len(samplers)}")
    sampler = samplers[index]
    times = file.accessor(sampler.get("input"), ()).astype(np.float64)
    values = file.accessor(sampler.get("output"), (WIDTH[path],)).astype(np.float64)
    kind = sampler.get("interpolation", "LINEAR")
    if kind == "CUBICSPLINE":
        values = values[: len(values) // 3 * 3].reshape(-1, 3, WIDTH[path])
    elif kind not in ("LINEAR", "STEP"):
        raise file.broken(f"{where}: unknown interpolation {kind!r}")
    if path == "rotation":
        values = np.roll(values, 1, axis=-1)  # xyzw in the file
    try:
        return Channel(joint, path, times, values, kind)
    except InputError as error:
        raise InputError(f"{file.path}: {where}: {error}") from error
