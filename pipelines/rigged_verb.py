"""``splatanim animate`` with a rig: from the verb's options to those of the rig-driven film."""

from __future__ import annotations

import dataclasses

from pipelines.animate import AnimateConfig
from pipelines.progress import Progress
from pipelines.rigged import RiggedConfig, animate_rigged
from splatanim.errors import InputError

_PHYSICS_ONLY = ("motion", "pin", "select", "handles", "field")
_ELASTIC_ONLY = ("material", "young", "poisson", "density", "object_size", "functions", "leak")


def animate_with_rig(config: AnimateConfig, progress: Progress) -> str:
    """Animate by a rig's clip; returns what to print.

    Raises :class:`InputError` where options of the physics without a rig are given, or a rig's are missing.
    """
    return str(animate_rigged(rigged_config(config), progress))


def rigged_config(config: AnimateConfig) -> RiggedConfig:
    """The same wishes as a :class:`RiggedConfig`. What the command line does not name has a film's own default."""
    if config.scene is None:
        raise InputError("A rig moves something: name the splats or the mesh before --rig.")
    if config.is_scene:
        raise InputError(f"{config.scene}: scene files and rigs do not go together. Name one capture or mesh.")
    _refuse(config, _PHYSICS_ONLY, "a rig says how things move; leave it out")
    if not config.elastic:
        _refuse(config, _ELASTIC_ONLY, "it goes with --elastic, which adds the elastic motion")
    if config.map is not None and config.retarget is None:
        raise InputError("--map names joints for --retarget; give the motion too.")
    taken = {f.name for f in dataclasses.fields(RiggedConfig)} & {f.name for f in dataclasses.fields(AnimateConfig)}
    values = {name: getattr(config, name) for name in taken - {"scene", "output", "camera", "seconds"}}
    for name in ("camera", "seconds"):
        if name in config.given:
            values[name] = getattr(config, name)
    return RiggedConfig(scene=config.scene, output=config.output or config.scene.with_suffix(".mp4"), **values)


def _refuse(config: AnimateConfig, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in config.given and hasattr(config, name):
            raise InputError(f"--{name.replace('_', '-')} does not fit here: {why}.")
