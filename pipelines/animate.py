"""``splatanim animate`` of one capture: from a splat file to a moving picture, one stage after the other.

Scene files of several objects go through :mod:`pipelines.scene_run`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, Suppress, UseAppendAction, arg

from pipelines.progress import Progress
from splatanim.binding import Handles
from splatanim.data import Cubature, Frame, Material, Splats
from splatanim.dynamics.motions import Direction
from splatanim.dynamics.simulate import Settings, Trajectory
from splatanim.errors import InputError
from splatanim.formats.base import ReadResult
from splatanim.inspect import Inspection
from splatanim.metrics import SkinningMetrics

if TYPE_CHECKING:
    from pipelines.scene_select import Part

LONGEST_STEP = 1.0 / 120.0  # s; frames further apart are cut into substeps
SAMPLE = "jelly"
Look = Callable[[int, np.ndarray], None]  # what is shown a frame (H, W, 3) and its number
FILMS = (".mp4", ".webm", ".mov", "")  # the last is a folder of PNGs


@dataclass(frozen=True)
class AnimateConfig:
    """Animate a 3D Gaussian splat capture with elastic physics and write an MP4.

    Args:
        scene: The .ply to animate, or a scene.toml of several objects; without one, the bundled sample.
        output: The .mp4, .webm or .mov to write, or a folder of PNGs (no suffix); by default an .mp4 beside the
            scene, under its name.
        motion: What happens to it: drop, poke, sway, squash, twist, drag or ramp.
        material: auto (foam; jelly for the bundled sample) or a preset: jelly, slime, plush, cloth, flesh, foam,
            leaf, rubber, leather, wood or metal.
        young: Young's modulus [Pa] instead of the preset's.
        poisson: Poisson's ratio instead of the preset's.
        density: Density [kg/m^3] instead of the preset's.
        object_size: The object's longest side in metres; it sets how fast things fall and how far they sag.
        seconds: Length of the film.
        fps: Frames per second.
        size: Size of the picture in pixels, WIDTHxHEIGHT.
        camera: orbit, fixed, a nerfstudio camera_path.json or transforms.json, or a COLMAP model's folder.
        background: Red, green and blue of the background, 0 to 1; or transparent, with a .webm, .mov or PNG output.
        stage: Draw the ground and other planes with soft shadows.
        up: Which way is up: auto, +y, -y, +z, -z, +x or -x.
        pin: What is held: auto (the motion's own choice), none, bottom, top, or a box x0,y0,z0,x1,y1,z1 in the
            file's coordinates.
        select: Only a part moves, held where it meets the rest: box:x0,y0,z0,x1,y1,z1 or sphere:x,y,z,r in the
            file's coordinates, or labels:FILE, a .npy or .txt of one integer a splat (not 0 moves; labels:FILE:3 takes
            label 3).
        handles: Number of skinning handles.
        field: The skinning field: auto (eigenmodes, as long as they measure up on this object; half a second),
            eigenmodes (the softest there is), gaussians (learning-free, smooth), neural (a trained network and
            Gaussians) or simplicits (trained on the object, minutes).
        export: ply:DIR (splat:, spz:, glb:) for a splat sequence frame_0000.ply ..., npz:FILE for one file of all
            frames; repeatable.
        report: Write what happened as JSON.
        seed: Seed of everything random; the same seed gives the same film.
        backend: Rasteriser: auto, cpu or cuda.
        rig: A rig to follow (.glb, .gltf, UniRig .npz, RigNet .txt with --rig-mesh) instead of a motion; a .glb scene
            is its own rig.
        clip: The rig's clip to play, such as Walk.
        retarget: Motion of another skeleton (.bvh or .glb) for the rig.
        map: A .toml of joint names for --retarget.
        rig_mesh: The mesh that a .txt rig numbers.
        weights: How the rig's weights are carried to splats: nearest or heat.
        skinning: linear, or dual (dual quaternions).
        elastic: Add the elastic motion that the rig cannot make.
        functions: With --elastic, how many elastic functions the flesh has.
        leak: With --elastic, how much of the mass the bones do not carry directly, 0 to 1.
        scene_schema: Print every key of scene files and stop.
    """

    scene: Positional[Path | None] = None
    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    motion: str = "drop"
    material: str = "auto"
    young: float | None = None
    poisson: float | None = None
    density: float | None = None
    object_size: float = 1.0
    seconds: float = 4.0
    fps: float = 30.0
    size: str = "640x640"
    camera: str = "orbit"
    background: str = "1,1,1"
    stage: bool = True
    up: str = "auto"
    pin: str = "auto"
    select: str | None = None
    handles: int = 16
    field: Literal["auto", "eigenmodes", "gaussians", "neural", "simplicits"] = "auto"
    export: UseAppendAction[tuple[str, ...]] = ()
    report: Path | None = None
    seed: int = 0
    backend: Literal["auto", "cpu", "cuda"] = "auto"
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
    scene_schema: bool = False
    given: Suppress[frozenset[str]] = frozenset()

    @property
    def frames(self) -> int:
        return max(1, round(self.seconds * self.fps))

    @property
    def is_scene(self) -> bool:
        """Whether it is a scene file that is animated, not one capture."""
        return self.scene is not None and self.scene.suffix.lower() == ".toml"

    @property
    def is_rigged(self) -> bool:
        """Whether a rig moves it."""
        from splatanim.formats.gltf_splats import holds_gaussians

        if any((self.rig, self.clip, self.retarget, self.map, self.elastic)):
            return True
        if self.scene is None or self.scene.suffix.lower() not in (".glb", ".gltf"):
            return False
        return not (self.scene.is_file() and holds_gaussians(self.scene))


def with_given(config: AnimateConfig, arguments: Sequence[str]) -> AnimateConfig:
    """The options that a command line names, beside their values: they win over what a scene file says."""
    names = {a.lstrip("-").split("=")[0].replace("-", "_") for a in arguments if a.startswith("-")}
    short = {"o": "output", "no_stage": "stage"}
    known = {f.name for f in dataclasses.fields(AnimateConfig)} - {"scene", "scene_schema", "given"}
    return dataclasses.replace(config, given=frozenset(short.get(name, name) for name in names) & known)


@dataclass
class Timings:
    """Wall seconds of each stage, in the report's order."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("load", "sample", "field", "simulate", "pose", "render", "encode"), 0.0)
    )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start


@dataclass(frozen=True)
class Subject:
    """A loaded capture, ready to be bound: floaters out, in Morton order, with its place in the simulator.

    ``order`` are the rows of ``everything`` (all splats that were read, in the file's order) that are kept; where
    :func:`prepare` was told not to keep all, ``everything`` is ``splats``.
    """

    splats: Splats
    order: np.ndarray
    inspection: Inspection
    frame: Frame
    everything: Splats


@dataclass(frozen=True)
class Result:
    """What an animation was: everything that the summary and the report say."""

    output: Path
    subject: Subject
    cubature: Cubature
    handles: Handles
    field_choice: str
    material: Material
    metrics: SkinningMetrics
    trajectory: Trajectory
    timings: dict[str, float]
    notes: tuple[str, ...]
    config: AnimateConfig


def animate(config: AnimateConfig, progress: Progress | None = None, *, look: Look | None = None) -> Result:
    """Run the whole job; ``look(k, picture)`` is shown every frame of the film as it is written.

    Raises :class:`InputError` or ``OutputError`` with a message for the user.
    """
    from pipelines.film import film
    from pipelines.film_posing import bind_capture
    from pipelines.moving import direct_subject, elasticity_of, inside_of, simulated
    from splatanim.dynamics.reduced import reduce
    from splatanim.field.subspace import bind
    from splatanim.metrics import skinning_metrics

    progress = progress or Progress()
    timings = Timings()
    check(config)
    output = output_path(config)
    with timings.stage("load"), progress.spinner("reading the capture"):
        whole = config.select is not None
        subject = prepare(read(config), config.up, config.object_size, config.scene or SAMPLE, keep_all=whole)
    with timings.stage("sample"), progress.spinner("finding the inside"):
        cubature, part = inside_of(config, subject)
    material = chosen_material(config)
    direction = direct_subject(config, subject, cubature, part)
    with timings.stage("field"), progress.spinner("binding the skinning field"):
        chosen, why = bind(config.field, cubature.domain, config.handles, seed=config.seed)
        handles = Handles(chosen, direction.regions)
        metrics = skinning_metrics(handles.field.weights(cubature.domain.centres))
        model = reduce(cubature, handles, material)
        moving = subject.splats if part is None else subject.splats.select(part.rows)
        bound = bind_capture(moving, subject.frame, handles, unit=config.object_size)
    settings = Settings(config.frames, config.fps, max(1, int(np.ceil(1.0 / (config.fps * LONGEST_STEP) - 1e-9))))
    with timings.stage("simulate"), progress.bar("simulating", config.frames - 1) as tick:
        elastic, stiffened = elasticity_of(config, model, np.asarray(subject.frame.up))
        trajectory = simulated(model, direction, settings, part, elastic, tick)
    story = Story(trajectory, direction, cubature, handles, part)
    notes = film(config, output, subject, bound, story, timings, progress, look)
    notes = [*stiffened, *([] if part is None else [part.note]), *notes]
    return Result(
        output, subject, cubature, handles, why, material, metrics, trajectory, timings.seconds, tuple(notes), config
    )


@dataclass(frozen=True)
class Story:
    """What was simulated: everything that the film needs beside the splats. ``part`` is None where all moves."""

    trajectory: Trajectory
    direction: Direction
    cubature: Cubature
    handles: Handles
    part: Part | None


def check(config: AnimateConfig) -> None:
    """Whatever can be wrong with the options is said before the work, not after it."""
    from pipelines.cameras import parse_colour, parse_size
    from pipelines.film import TRANSPARENT, parse_exports
    from pipelines.scene_select import parse_selection

    if config.is_scene:
        raise InputError(f"{config.scene}: is a scene file; give it to animate_scene_file (pipelines.scene_run).")
    parse_exports(config.export)
    if config.select is not None:
        parse_selection(config.select)
    parse_size(config.size)
    if config.background != TRANSPARENT:
        parse_colour(config.background)
    for option, value in (("--seconds", config.seconds), ("--fps", config.fps)):
        if not 0 < value < 1e6:
            raise InputError(f"{option} {value:g}: a positive number is needed, such as 4 s at 30 frames a second.")
    output = output_path(config)
    if output.suffix.lower() not in FILMS:
        raise InputError(
            f"--output {output}: a film is .mp4, .webm or .mov, or a folder of PNGs (a name without suffix); "
            "for splats or handles use --export."
        )
    if config.background == TRANSPARENT and output.suffix.lower() == ".mp4":
        raise InputError(f"--background transparent: an .mp4 holds no alpha. Write {output.with_suffix('.webm')}.")
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}. Make it first.")


def output_path(config: AnimateConfig) -> Path:
    if config.output is not None:
        return config.output
    return config.scene.with_suffix(".mp4") if config.scene else Path(f"{SAMPLE}.mp4")


def read(config: AnimateConfig) -> ReadResult:
    """The scene's file, or the bundled sample."""
    from splatanim.formats import read_splats
    from splatanim.samples import make_sample

    if config.scene is not None:
        return read_splats(config.scene)
    splats = make_sample(SAMPLE, seed=config.seed)
    return ReadResult(splats, "sample", len(splats), up="-y")


def prepare(result: ReadResult, up: str, object_size: float, file: Path | str, *, keep_all: bool = True) -> Subject:
    """Inspect a capture, set its floaters aside and place it in the simulator; ``keep_all``: remember all it held."""
    from splatanim.inspect import analyse, floater_mask, up_vector
    from splatanim.render.order import morton_order

    if not object_size > 0:
        raise InputError(f"--object-size {object_size} must be positive (metres).")
    floaters = floater_mask(result.splats)
    inspection = analyse(result, file=str(file), up=None if up == "auto" else up, floaters=floaters)
    kept = np.flatnonzero(~floaters)
    order = kept[morton_order(result.splats.means[kept])]
    splats = result.splats.select(order)
    low, high = np.asarray(inspection.bounds) - splats.offset
    longest = inspection.size
    if not longest > 0:
        raise InputError(f"{file}: all splats lie at one point; there is no object to animate.")
    centre = 0.5 * (low + high)
    frame = Frame(tuple(centre.tolist()), object_size / longest, up_vector(inspection.up))
    return Subject(splats, order, inspection, frame, result.splats if keep_all else splats)


def chosen_material(config: AnimateConfig) -> Material:
    """The preset, with whatever the user overrides."""
    from splatanim.dynamics.materials import preset

    changes = {key: getattr(config, key) for key in ("young", "poisson", "density") if getattr(config, key) is not None}
    automatic = "foam" if config.scene else "jelly"
    return dataclasses.replace(preset(automatic if config.material == "auto" else config.material), **changes)
