"""PAPR assets: one safetensors file with the cloud's tensors and, in its header, version and configuration.

``papr`` in the header is a JSON object: ``version``, ``config`` (:class:`rigpapr.cloud.CloudConfig`) and ``notes``,
free text of whoever made it. Tensors carry the module's names, so that any safetensors reader can look at them.

Version 2 may hold ``normals`` and ``lamp``, how the subject was lit (:mod:`rigpapr.light`). Assets of version 1 have
neither: their points keep their brightness when they turn, as they did when the assets were made.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rigpapr.cloud import CloudConfig, PaprCloud
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path

VERSION = 2
_LIGHT = ("normals", "lamp")
SUFFIX = ".papr.safetensors"


def is_asset(path: str | os.PathLike[str]) -> bool:
    """Whether a name is that of a PAPR asset."""
    return str(path).lower().endswith(SUFFIX)


def write_asset(path: str | os.PathLike[str], cloud: PaprCloud, *, notes: dict[str, Any] | None = None) -> None:
    """Write a cloud, whole or not at all.

    Raises InputError for another suffix and for NaN or infinite values, OutputError where it cannot be written.
    """
    if not is_asset(path):
        raise InputError(f"{path}: a PAPR asset is named *{SUFFIX}.")
    tensors = cloud_tensors(cloud)
    _check_finite(Path(path), tensors)
    save_tensors(path, tensors, "papr", {"version": VERSION, "config": cloud.config.to_json(), "notes": notes or {}})


def read_asset(path: str | os.PathLike[str]) -> PaprCloud:
    """Read a cloud; its parameters are trainable.

    Raises InputError, naming file and tensor, for: no such file, no safetensors file, no PAPR asset, a newer version,
    missing or misshapen tensors, NaN or infinite values.
    """
    tensors, header = load_tensors(path, "papr")
    return build_cloud(Path(path), tensors, header)


def asset_notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the asset's maker noted: views, PSNR and the like."""
    notes = load_tensors(path, "papr")[1].get("notes", {})
    return notes if isinstance(notes, dict) else {}


def cloud_tensors(cloud: PaprCloud) -> dict[str, Tensor]:
    """The cloud's tensors on the CPU, by name."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in cloud.state_dict().items()}


def build_cloud(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> PaprCloud:
    """A cloud from its tensors and the header's ``version`` and ``config``; ``path`` is for messages."""
    version = header.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise InputError(
            f"{path}: is of version {version}; this program reads up to {VERSION}. Update it: pip install -U splatanim."
        )
    try:
        config = CloudConfig(**header["config"])
    except (KeyError, TypeError, InputError) as error:
        raise InputError(f"{path}: its configuration is damaged ({error}). Train or export the asset again.") from None
    _check_finite(path, tensors)
    positions = tensors.get("positions")
    if positions is None or positions.ndim != 2 or positions.shape[1] != 3 or not len(positions):
        raise InputError(f"{path}: holds no tensor positions (N, 3). Train or export the asset again.")
    cloud = PaprCloud(config, positions)
    if any(name in tensors for name in _LIGHT):
        cloud.set_light(torch.zeros_like(positions), torch.zeros(3))
    wanted = cloud.state_dict()
    for name, value in wanted.items():
        if name not in tensors or tensors[name].shape != value.shape:
            found = tuple(tensors[name].shape) if name in tensors else "missing"
            raise InputError(f"{path}: tensor {name} is {found}, not {tuple(value.shape)}. Export the asset again.")
    cloud.load_state_dict({name: tensors[name] for name in wanted})
    return cloud


def save_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], kind: str, header: dict[str, Any]) -> None:
    """A safetensors file whose header's entry ``kind`` is a JSON object; whole or not at all."""
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        save_file(tensors, str(temporary), metadata={kind: json.dumps(header)})


def load_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file and the header's entry ``kind``."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file. Check the spelling and the folder.")
    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(kind, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a safetensors file ({error}). Copy it again.") from error
    if not isinstance(header, dict):
        raise InputError(f"{path}: is a safetensors file without the entry {kind!r}: not one of a PAPR cloud.")
    return tensors, header


def _check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    for name, value in tensors.items():
        if name.split(".")[-1] == "reach":  # infinite where every pixel is rendered
            bad = bool(torch.isnan(value).any())
        else:
            bad = value.is_floating_point() and not bool(torch.isfinite(value).all())
        if bad:
            count = int((~torch.isfinite(value)).sum())
            raise InputError(
                f"{path}: tensor {name} has {count} NaN or infinite values: the training diverged. Train again with "
                "lower rates, or from the last good checkpoint."
            )


def write_points(path: str | os.PathLike[str], cloud: PaprCloud) -> None:
    """The points as a .ply in world coordinates: x y z, red green blue (uchar), influence; opens in any mesh viewer."""
    if Path(path).suffix.lower() != ".ply":
        raise InputError(f"{path}: points are written as .ply.")
    kinds = [(axis, "<f4") for axis in "xyz"] + [(name, "u1") for name in ("red", "green", "blue")]
    rows = np.zeros(len(cloud), [*kinds, ("influence", "<f4")])
    positions = cloud.world_positions.detach().cpu().numpy()
    colours = np.round(255 * cloud.colours().clip(0, 1)).astype(np.uint8)
    for k in range(3):
        rows["xyz"[k]] = positions[:, k]
        rows[("red", "green", "blue")[k]] = colours[:, k]
    rows["influence"] = cloud.influence.detach().cpu().numpy()
    names = {"<f4": "float", "u1": "uchar"}
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}"]
    lines += [f"property {names[kind]} {name}" for name, kind in [*kinds, ("influence", "<f4")]]
    with atomic_path(path) as temporary:
        temporary.write_bytes("\n".join([*lines, "end_header\n"]).encode("ascii") + rows.tobytes())
