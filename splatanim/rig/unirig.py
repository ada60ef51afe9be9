"""Rigs of UniRig: an .npz with ``joints`` (j, 3), ``parents`` (None at the root), ``names``, ``vertices``, ``faces``
and ``skin`` (v, j).

Its ``parents`` is a pickled list of objects. Unpickling a stranger's file can run anything, so only what NumPy's own
arrays of plain values need is let through here; nothing in the file is executed.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.errors import InputError
from splatanim.formats.base import first_bytes
from splatanim.rig.model import RiggedModel
from splatanim.rig.rignet import model_of_arrays
from splatanim.rig.skeleton import skeleton_from_positions

_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
}


class _PlainUnpickler(pickle.Unpickler):
    """Arrays of numbers, strings and None; anything else is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def read_unirig(path: str | os.PathLike[str]) -> RiggedModel:
    """A rigged model from UniRig's ``raw_data.npz`` or ``predict_skin.npz``.

    Raises :class:`InputError` for files that are no such archive, lack a part, or hold objects beyond plain values.
    """
    path = Path(path)
    arrays = _arrays(path)
    missing = [key for key in ("joints", "parents", "vertices", "skin") if arrays.get(key) is None]
    if missing:
        raise InputError(f"{path}: has no {', '.join(missing)}. Give the .npz that UniRig writes after skinning.")
    joints = np.asarray(arrays["joints"], np.float64)
    count = len(joints)
    parents = [-1 if p is None or int(p) < 0 else int(p) for p in np.ravel(arrays["parents"])]
    listed = arrays.get("names")
    names = [f"joint{k}" for k in range(count)] if listed is None else [str(name) for name in np.ravel(listed)]
    skin, vertices = np.asarray(arrays["skin"], np.float64), np.asarray(arrays["vertices"], np.float64)
    if joints.shape != (count, 3) or vertices.shape != (len(vertices), 3) or skin.shape != (len(vertices), count):
        raise InputError(
            f"{path}: joints {joints.shape}, vertices {vertices.shape} and skin {skin.shape} do not fit together."
        )
    faces = arrays.get("faces")
    try:
        skeleton = skeleton_from_positions(names, np.array(parents), joints)
        none = np.empty((0, 3), np.int64)
        return model_of_arrays(vertices, none if faces is None else np.asarray(faces), skeleton, skin, str(path))
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def _arrays(path: Path) -> dict[str, Any]:
    """All arrays of the archive; None for those that hold None."""
    if first_bytes(path, 2) != b"PK":
        raise InputError(f"{path}: is no .npz archive. Give the .npz that UniRig writes.")
    try:
        with zipfile.ZipFile(path) as archive:
            return {n.removesuffix(".npy"): _array(archive.read(n)) for n in archive.namelist() if n.endswith(".npy")}
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: holds objects that are not read, as they could run programs ({error}). "
            "Save its arrays anew as plain numbers and strings."
        ) from error
    except (
        zipfile.BadZipFile,
        ValueError,
        EOFError,
        OSError,
        KeyError,
        IndexError,
        AttributeError,
        TypeError,
    ) as error:
        raise InputError(
            f"{path}: is damaged ({type(error).__name__}: {error}). Write or download it again."
        ) from error


def _array(data: bytes) -> Any:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _, _, kind = read(stream)
    if not kind.hasobject:
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
    value = _PlainUnpickler(stream).load()
    return value.item() if isinstance(value, np.ndarray) and value.shape == () else value
