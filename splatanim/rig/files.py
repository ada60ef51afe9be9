"""Files of rigs and of motion: which reader for which suffix."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from splatanim.errors import InputError
from splatanim.rig.animation import Animation
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Skeleton

RIG_SUFFIXES = (".glb", ".gltf", ".txt", ".npz")
MOTION_SUFFIXES = (".bvh", ".glb", ".gltf")


def read_rig(path: str | os.PathLike[str], mesh: str | os.PathLike[str] | None = None) -> RiggedModel:
    """A rig: glTF (.glb, .gltf), RigNet or Puppeteer text (.txt, with the mesh it numbers), UniRig (.npz).

    Raises :class:`InputError` for other suffixes, and for a .txt without its mesh.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".glb", ".gltf"):
        from splatanim.rig.gltf import read_gltf

        return read_gltf(path)
    if suffix == ".npz":
        from splatanim.rig.unirig import read_unirig

        return read_unirig(path)
    if suffix == ".txt":
        from splatanim.data import Mesh
        from splatanim.rig.mesh_files import read_mesh
        from splatanim.rig.rignet import read_obj, read_rignet

        if mesh is None:
            raise InputError(
                f"{path}: a rig text numbers the vertices of a mesh kept elsewhere. Name the mesh too (--rig-mesh)."
            )
        if Path(mesh).suffix.lower() == ".obj":
            return read_rignet(path, read_obj(mesh))
        surface = read_mesh(mesh)
        return read_rignet(path, Mesh(surface.vertices, surface.faces))
    raise InputError(f"{path}: {suffix or 'no suffix'} is no rig known here. Readable: {', '.join(RIG_SUFFIXES)}.")


@dataclass(frozen=True)
class Motion:
    """Clips and the skeleton that they were made for."""

    skeleton: Skeleton
    clips: dict[str, Animation]


def read_motion(path: str | os.PathLike[str]) -> Motion:
    """Clips to play on another rig: a .bvh (one clip, named as the file), or all clips of a glTF.

    Raises :class:`InputError` for other suffixes and files without a clip.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".bvh":
        from splatanim.rig.bvh import read_bvh

        motion = read_bvh(path)
        return Motion(motion.skeleton, {path.stem: motion.animation(path.stem)})
    if suffix in (".glb", ".gltf"):
        from splatanim.rig.gltf import read_gltf

        model = read_gltf(path)
        if not model.animations:
            raise InputError(f"{path}: holds no clip of motion. Export it with its animations.")
        return Motion(model.skeleton, model.animations)
    raise InputError(
        f"{path}: {suffix or 'no suffix'} is no motion known here. Readable: {', '.join(MOTION_SUFFIXES)}."
    )
