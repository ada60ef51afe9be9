"""The options of ``splatanim view``. What they do lives in :mod:`viewers.verb`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from pipelines.animate import AnimateConfig


@dataclass(frozen=True)
class ViewConfig:
    """Watch it move in the browser, touch it, pose it, and keep what happens.

    Args:
        scene: A capture (.ply ...), a scene.toml, a sample's name (jelly, octopus, plant, plush), a PAPR asset
            (*.papr.safetensors), a folder of frames (frame_0000.ply ...) or a 4D file (.npz of animate --export);
            without one, the bundled jelly.
        host: The address to listen on: 127.0.0.1 is this machine alone, 0.0.0.0 everybody who can reach it.
        port: The port to listen on; 0 takes any that is free.
        window: Open a window on this machine instead, with handle weights, cubature points and bones (Polyscope).
        record: Record from the first step on; film and splats are written when the viewer stops.
        output: The folder for recordings, stills, camera paths and poses; made when something is first written.
        cameras: A transforms.json or camera_path.json whose cameras are shown.
        drop: A further capture that can be dropped in beside the samples; repeatable.
        paused: Do not start at once.
        rate: Pictures a second that are sent at most; for a folder of frames also its frames a second.
        material: auto, or a preset of ``animate``; sliders change it later.
        young: Young's modulus [Pa] instead of the preset's.
        poisson: Poisson's ratio instead of the preset's.
        density: Density [kg/m^3] instead of the preset's.
        object_size: The object's longest side in metres.
        up: Which way is up: auto, +y, -y, +z, -z, +x or -x.
        handles: Number of skinning handles.
        field: The skinning field, as of ``animate``.
        rig: A rig to pose and play: .glb, .gltf, UniRig .npz, RigNet .txt with --rig-mesh; a .glb scene is its own.
        clip: The rig's clip to begin with.
        retarget: Motion of another skeleton (.bvh or .glb) for the rig.
        map: A .toml of joint names for --retarget.
        rig_mesh: The mesh that a .txt rig numbers.
        weights: How the rig's weights are carried to splats: nearest or heat.
        skinning: linear, or dual (dual quaternions).
        elastic: Begin with the elastic motion that the rig cannot make.
        functions: With --elastic, how many elastic functions the flesh has.
        leak: With --elastic, how much of the mass the bones do not carry directly, 0 to 1.
        seed: Seed of everything random.
        backend: Rasteriser of stills and films: auto, cpu or cuda.
    """

    scene: Positional[Path | None] = None
    host: str = "127.0.0.1"
    port: int = 8080
    window: bool = False
    record: bool = False
    output: Annotated[Path, arg(aliases=["-o"])] = Path("view")
    cameras: Path | None = None
    drop: UseAppendAction[tuple[Path, ...]] = ()
    paused: bool = False
    rate: float = 30.0
    material: str = "auto"
    young: float | None = None
    poisson: float | None = None
    density: float | None = None
    object_size: float = 1.0
    up: str = "auto"
    handles: int = 16
    field: Literal["auto", "eigenmodes", "gaussians", "neural", "simplicits"] = "auto"
    rig: Path | None = None
    clip: str = ""
    retarget: Path | None = None
    map: Path | None = None
    rig_mesh: Path | None = None
    weights: Literal["nearest", "heat"] = "nearest"
    skinning: Literal["linear", "dual"] = "linear"
    elastic: bool = False
    functions: int = 48
    leak: float = 1.0
    seed: int = 0
    backend: Literal["auto", "cpu", "cuda"] = "auto"

    def animate_config(self) -> AnimateConfig:
        """The same options for what ``animate`` builds: the simulation and the rig are made by its code."""
        shared = (
            "material", "young", "poisson", "density", "object_size", "up", "handles", "field", "rig", "clip",
            "retarget", "map", "rig_mesh", "weights", "skinning", "elastic", "functions", "leak", "seed", "backend",
        )  # fmt: skip
        return AnimateConfig(scene=self.scene, fps=self.rate, **{name: getattr(self, name) for name in shared})


@dataclass(frozen=True)
class BenchViewConfig:
    """Measure the viewer: updates a second without and with a browser, start, and what idling costs.

    Args:
        scene: The capture to measure with; without one, the bundled jelly.
        seconds: How long each thing is measured.
        rate: Updates a second that are asked for.
        browser: The Chromium to measure with (software WebGL, headless); none leaves those rows out.
    """

    scene: Positional[Path | None] = None
    seconds: float = 10.0
    rate: float = 30.0
    browser: str = "/usr/bin/chromium"
