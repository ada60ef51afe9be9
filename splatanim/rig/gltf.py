"""glTF 2.0 files as rigged models, and back.

Reading keeps the file's world coordinates: vertices come in the bind pose as the scene places it, with the transforms
of all nodes above. A mesh without a skeleton comes as a model of one joint that never moves.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from splatanim.errors import InputError
from splatanim.rig.gltf_animation import read_animations
from splatanim.rig.gltf_export import write_glb
from splatanim.rig.gltf_file import open_gltf
from splatanim.rig.gltf_mesh import read_surfaces
from splatanim.rig.gltf_nodes import read_armature
from splatanim.rig.model import RiggedModel

__all__ = ["read_gltf", "write_glb"]


def read_gltf(path: str | os.PathLike[str]) -> RiggedModel:
    """Read a .glb or .gltf with everything that its default scene shows.

    Raises :class:`InputError` where the file is missing, cut off, contradicts itself or needs what is not read here.
    A file of clips alone gives a model without vertices, for :meth:`RiggedModel.with_clips_of`.
    """
    file = open_gltf(Path(path))
    try:
        armature = read_armature(file)
        surfaces = read_surfaces(file, armature)
        notes = list(surfaces.notes)
        animations = read_animations(file, armature, notes)
        return RiggedModel(
            np.ascontiguousarray(surfaces.vertices),
            surfaces.faces,
            armature.skeleton,
            surfaces.skin,
            surfaces.normals,
            surfaces.appearance,
            animations,
            tuple(notes),
        )
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    except (TypeError, AttributeError, KeyError, np.linalg.LinAlgError) as error:
        # JSON of other types than the format has: every look-up would need its own check to say more.
        raise file.broken(f"its content does not follow the format ({type(error).__name__}: {error})") from error
