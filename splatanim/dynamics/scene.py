"""What a scene is: frozen dataclasses, the same for TOML files and for Python. Their docstrings are the reference.

Units and axes: metres, seconds, kilograms, degrees; world axes with ``up`` (y unless said otherwise). Rotations are
rotation vectors in degrees: (0, 90, 0) is a quarter turn about y. Places *on* an object (pins, drags, stiffness) are in
its file's own coordinates, unless ``space = "world"``; everything else is in the world. Each class checks itself and
raises :class:`SceneError`, which knows the key at fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from splatanim.dynamics.scene_parts import (
    Drag,
    Motion,
    Pin,
    Plane,
    SceneError,
    Stiffness,
    Vector,
    Wind,
    good_name,
    not_negative,
    one_of,
    positive,
)

__all__ = [
    "Drag",
    "Motion",
    "Output",
    "Pin",
    "Plane",
    "Scene",
    "SceneError",
    "SceneObject",
    "Scenery",
    "Stiffness",
    "View",
    "Wind",
]


@dataclass(frozen=True)
class Thing:
    """What objects and scenery have in common: a file or a shape, and where it is put.

    Args:
        name: What messages and exported files call it.
        file: Splats, a mesh or points; relative to the scene file.
        sample: A bundled sample instead of a file: jelly, octopus, plant or plush.
        shape: A simple shape instead of a file: box, ball or cylinder.
        proportions: Of a shape, along x, y and z before it is rotated.
        at: Where its anchor is put [m].
        anchor: base (the middle of its underside), centre, or origin (the file's own origin).
        rotate: Rotation vector [degrees], after its own up was turned to the scene's.
        size: Its longest side [m]; 1 unless size or scale is given.
        scale: Metres a unit of its file, instead of size.
        up: Which way is up in its file: auto, +y, -y, +z, -z, +x or -x.
        colour: Red, green and blue of a mesh, points or a shape, 0 to 1.
        friction: Coulomb friction against what it touches; the material's unless given.
    """

    name: str
    file: str = ""
    sample: str = ""
    shape: Literal["", "box", "ball", "cylinder"] = ""
    proportions: Vector = (1.0, 1.0, 1.0)
    at: Vector = (0.0, 0.0, 0.0)
    anchor: Literal["base", "centre", "origin"] = "base"
    rotate: Vector = (0.0, 0.0, 0.0)
    size: float | None = None
    scale: float | None = None
    up: Literal["auto", "+y", "-y", "+z", "-z", "+x", "-x"] = "auto"
    colour: Vector = (0.72, 0.66, 0.58)
    friction: float | None = None

    def __post_init__(self) -> None:
        good_name(self.name)
        one_of(self, "file", "sample", "shape")
        one_of(self, "size", "scale", least=0)
        positive(self, "size", "scale")
        not_negative(self, "friction")
        if not all(p > 0 for p in self.proportions):
            raise SceneError("proportions", f"proportions are {self.proportions}; all three must be positive.")
        if not all(0 <= c <= 1 for c in self.colour):
            raise SceneError("colour", f"colour is {self.colour}; red, green and blue lie between 0 and 1.")


@dataclass(frozen=True)
class SceneObject(Thing):
    """Something that moves by physics: elastic, or rigid.

    Args:
        material: A preset: jelly, slime, plush, cloth, flesh, foam, leaf, rubber, leather, wood or metal.
        young: Young's modulus [Pa] instead of the preset's.
        poisson: Poisson's ratio instead of the preset's.
        density: Density [kg/m^3] instead of the preset's.
        model: neohookean, corotated or linear, instead of the preset's.
        damping: Rayleigh damping [s], proportional to stiffness.
        drag: Rayleigh damping [1/s], proportional to mass.
        rigid: It does not deform (one affine handle, kept stiff).
        handles: Number of skinning handles.
        field: The skinning field: auto, eigenmodes, gaussians, neural or simplicits.
        velocity: At the start [m/s].
        spin: Angular velocity at the start [degrees/s, rotation vector], about its middle.
        weightless: Gravity does not pull it.
        labels: A .npy or .txt file of one integer a splat (vertex, point) of its file.
        pins: Parts that are held or moved along.
        drags: Parts that are pulled.
        stiffness: Parts that are stiffer or softer.
    """

    material: str = "foam"
    young: float | None = None
    poisson: float | None = None
    density: float | None = None
    model: Literal["neohookean", "corotated", "linear"] | None = None
    damping: float = 0.0
    drag: float = 0.0
    rigid: bool = False
    handles: int = 16
    field: Literal["auto", "eigenmodes", "gaussians", "neural", "simplicits"] = "auto"
    velocity: Vector = (0.0, 0.0, 0.0)
    spin: Vector = (0.0, 0.0, 0.0)
    weightless: bool = False
    labels: str = ""
    pins: tuple[Pin, ...] = ()
    drags: tuple[Drag, ...] = ()
    stiffness: tuple[Stiffness, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "young", "density")
        not_negative(self, "damping", "drag")
        if self.handles < 1:
            raise SceneError("handles", f"handles is {self.handles}; at least 1 is needed (16 is usual).")
        if self.rigid and self.pins:
            raise SceneError("pins", "a rigid object has no part to pin; make it scenery with a motion instead.")
        used = [part.label for part in self.pins] + [part.label for part in self.stiffness]
        if not self.labels and any(label is not None for label in used):
            raise SceneError("labels", "a label is used, but labels names no file.")


@dataclass(frozen=True)
class Scenery(Thing):
    """Something that is drawn and touched but not moved by physics: still, or along a prescribed motion.

    Args:
        motion: How it moves; still unless given.
        touch: Objects collide with it; otherwise it is only drawn.
    """

    motion: Motion = field(default_factory=Motion)
    touch: bool = True


@dataclass(frozen=True)
class View:
    """The camera.

    Args:
        path: orbit, fixed, or a nerfstudio camera_path.json or transforms.json in the world's coordinates.
        azimuth: Degrees from the front, where a fixed camera stands and an orbit is halfway.
        elevation: Degrees above the horizon.
        speed: Of an orbit [degrees/s].
        zoom: Larger brings it closer.
    """

    path: str = "orbit"
    azimuth: float = 25.0
    elevation: float = 15.0
    speed: float = 18.0
    zoom: float = 1.0

    def __post_init__(self) -> None:
        positive(self, "zoom")
        if not -89 <= self.elevation <= 89:
            raise SceneError("elevation", f"elevation is {self.elevation} degrees; it must lie between -89 and 89.")


@dataclass(frozen=True)
class Output:
    """What is written. Paths are relative to the scene file.

    Args:
        film: The .mp4, .webm or .mov, or a folder of PNGs (no suffix); an .mp4 beside the scene unless given.
        size: Of the picture in pixels, WIDTHxHEIGHT.
        background: Red, green and blue, 0 to 1.
        transparent: No background and no stage, only the objects; not in an .mp4.
        stage: Draw the planes with soft shadows.
        ply: A folder: for each object, a sequence NAME/frame_0000.ply in its own file's coordinates and order.
        npz: A folder: for each object, NAME.npz with handles and weights.
        report: A .json of what happened.
    """

    film: str = ""
    size: str = "640x640"
    background: Vector = (1.0, 1.0, 1.0)
    transparent: bool = False
    stage: bool = True
    ply: str = ""
    npz: str = ""
    report: str = ""


@dataclass(frozen=True)
class Scene:
    """A whole scene; in a file these keys stand at the top, before the first table.

    Args:
        objects: What physics moves.
        scenery: What is drawn and touched.
        planes: Floors, ramps, plates; none unless given.
        winds: Moving air.
        seconds: Length of the film.
        fps: Frames per second.
        up: Which way is up: +y, -y, +z, -z, +x or -x.
        gravity: Acceleration downwards [m/s^2].
        integrator: euler (implicit, first order) or bdf2 (second order, less damping).
        substeps: Implicit steps a frame; enough for 120 a second unless given.
        collide: Objects collide with one another and with scenery (planes are always touched).
        seed: Of everything random; the same seed gives the same film.
        camera: Where it is seen from.
        output: What is written.
    """

    objects: tuple[SceneObject, ...] = ()
    scenery: tuple[Scenery, ...] = ()
    planes: tuple[Plane, ...] = ()
    winds: tuple[Wind, ...] = ()
    seconds: float = 4.0
    fps: float = 30.0
    up: Literal["+y", "-y", "+z", "-z", "+x", "-x"] = "+y"
    gravity: float = 9.81
    integrator: Literal["euler", "bdf2"] = "euler"
    substeps: int | None = None
    collide: bool = True
    seed: int = 0
    camera: View = field(default_factory=View)
    output: Output = field(default_factory=Output)

    def __post_init__(self) -> None:
        positive(self, "seconds", "fps", "substeps")
        if not self.objects:
            raise SceneError("objects", "there is no object; add a table [[objects]] with a name and a file.")
        seen: set[str] = set()
        for kind in ("objects", "scenery"):
            for k, part in enumerate(getattr(self, kind)):
                if part.name in seen:
                    raise SceneError(f"{kind}.{k}.name", "the name is taken; every object and scenery needs its own.")
                seen.add(part.name)

    @property
    def frames(self) -> int:
        return max(1, round(self.seconds * self.fps))
