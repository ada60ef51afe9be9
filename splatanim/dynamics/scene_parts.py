"""The parts of a scene that objects and worlds are furnished with: motions, pins, drags, planes, winds.

See :mod:`splatanim.dynamics.scene` for units and axes. Each class checks itself and raises :class:`SceneError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from splatanim.errors import InputError

Vector = tuple[float, float, float]
Box = tuple[float, float, float, float, float, float]
Sphere = tuple[float, float, float, float]
Space = Literal["file", "world"]


class SceneError(InputError):
    """A value of a scene that cannot be.

    ``key`` is the field at fault (dotted, such as ``objects.0.pins.1.box``), so that a reader of files can name its
    line; ``message`` says what is wrong.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if "." in key else message)
        self.key = key
        self.message = message


def positive(owner: object, *keys: str) -> None:
    """Raise for a key of ``owner`` that is given but not positive."""
    for key in keys:
        value = getattr(owner, key)
        if value is not None and not 0 < value < 1e9:
            raise SceneError(key, f"{key} is {value}; it must be positive.")


def not_negative(owner: object, *keys: str) -> None:
    """Raise for a key of ``owner`` that is given and negative."""
    for key in keys:
        value = getattr(owner, key)
        if value is not None and not 0 <= value < 1e9:
            raise SceneError(key, f"{key} is {value}; it must not be negative.")


def one_of(owner: object, *keys: str, least: int = 1) -> None:
    """Raise unless exactly one of several keys is given (at most one with ``least`` 0)."""
    given = [key for key in keys if getattr(owner, key) not in (None, "")]
    if len(given) > 1:
        raise SceneError(given[1], f"{' and '.join(given)} are both given; one of them is needed.")
    if len(given) < least:
        raise SceneError("", f"one of {', '.join(keys)} is needed.")


def good_name(name: str) -> None:
    """Raise for a name that cannot be part of a file's."""
    if not name or not all(c.isalnum() or c in "_-" for c in name):
        raise SceneError("name", f"name is {name!r}; letters, digits, - and _ are possible (files are named after it).")


@dataclass(frozen=True)
class Motion:
    """How something moves that is moved: keyframes, a sinusoidal sway and a steady spin, added up.

    Args:
        times: Times of the keyframes [s], increasing.
        move: Displacement at each of the times [m], along the world's axes.
        turn: Rotation vector at each of the times [degrees].
        ease: Between keyframes: smooth (slow at each key) or linear.
        sway: Amplitude of a sinusoidal displacement [m].
        rock: Amplitude of a sinusoidal rotation [degrees, rotation vector].
        frequency: Of sway and rock [Hz]; both grow over the first period and fade over the last.
        spin: Steady rotation [degrees/s, rotation vector].
        centre: What turns turn about [m, world]; the middle of what moves unless given.
        start: When sway, rock and spin begin [s].
        stop: When they end [s].
    """

    times: tuple[float, ...] = ()
    move: tuple[Vector, ...] = ()
    turn: tuple[Vector, ...] = ()
    ease: Literal["smooth", "linear"] = "smooth"
    sway: Vector = (0.0, 0.0, 0.0)
    rock: Vector = (0.0, 0.0, 0.0)
    frequency: float = 1.0
    spin: Vector = (0.0, 0.0, 0.0)
    centre: Vector | None = None
    start: float = 0.0
    stop: float = math.inf

    def __post_init__(self) -> None:
        positive(self, "frequency")
        for a, b in zip(self.times, self.times[1:]):
            if not a < b:
                raise SceneError("times", f"times {a:g} and {b:g} are out of order; keyframes must increase in time.")
        for key in ("move", "turn"):
            keys = getattr(self, key)
            if keys and len(keys) != len(self.times):
                raise SceneError(key, f"{key} has {len(keys)} keyframes, but there are {len(self.times)} times.")
        if not self.start < self.stop:
            raise SceneError("stop", f"stop {self.stop:g} s must come after start {self.start:g} s.")


@dataclass(frozen=True)
class Pin:
    """A part of an object that is held still or moved along (a Dirichlet condition, faded out smoothly).

    Args:
        box: Corners x0,y0,z0,x1,y1,z1 of a box.
        sphere: Centre and radius x,y,z,r of a sphere.
        end: bottom or top: that end of the object as it stands.
        label: The splats of this label in the object's ``labels`` file.
        space: Coordinates of box and sphere: file or world (as placed, in metres).
        width: Over what distance the hold fades out [m]; a tenth of the object's size unless given.
        motion: How the held part moves; still unless given.
    """

    box: Box | None = None
    sphere: Sphere | None = None
    end: Literal["bottom", "top"] | None = None
    label: int | None = None
    space: Space = "file"
    width: float | None = None
    motion: Motion = Motion()

    def __post_init__(self) -> None:
        one_of(self, "box", "sphere", "end", "label")
        positive(self, "width")


@dataclass(frozen=True)
class Drag:
    """A part of an object that is pulled along a path by springs, and let go.

    Args:
        point: The middle of what is grabbed.
        space: Coordinates of the point: file or world (as placed, in metres).
        radius: Standard deviation of the grip's Gaussian kernel [m]; 0.15 of the object's size unless given.
        motion: Where the grabbed part is taken, relative to where it starts.
        until: When it is let go [s].
        stiffness: Of the springs [1/s^2, times mass]; firm for the material unless given.
    """

    point: Vector
    space: Space = "file"
    radius: float | None = None
    motion: Motion = Motion()
    until: float = math.inf
    stiffness: float | None = None

    def __post_init__(self) -> None:
        positive(self, "radius", "stiffness")


@dataclass(frozen=True)
class Stiffness:
    """A part of an object that is stiffer or softer than the rest.

    Args:
        box: Corners x0,y0,z0,x1,y1,z1 of a box.
        sphere: Centre and radius x,y,z,r of a sphere.
        label: The splats of this label in the object's ``labels`` file.
        factor: What Young's modulus is multiplied by.
        space: Coordinates of box and sphere: file or world (as placed, in metres).
    """

    box: Box | None = None
    sphere: Sphere | None = None
    label: int | None = None
    factor: float = 10.0
    space: Space = "file"

    def __post_init__(self) -> None:
        one_of(self, "box", "sphere", "label")
        positive(self, "factor")


@dataclass(frozen=True)
class Plane:
    """A floor, ramp or plate: a half-space, or a rectangle; still, moving or tilting.

    Args:
        name: What messages call it.
        at: Its middle [m].
        tilt: Rotation vector [degrees] away from lying flat, facing up.
        size: Both side lengths [m] of a rectangle; endless unless given.
        friction: Coulomb friction; each object's own unless given.
        motion: How it moves; still unless given.
        glass: Drawn faintly and from both sides.
    """

    name: str = "floor"
    at: Vector = (0.0, 0.0, 0.0)
    tilt: Vector = (0.0, 0.0, 0.0)
    size: tuple[float, float] | None = None
    friction: float | None = None
    motion: Motion = Motion()
    glass: bool = False

    def __post_init__(self) -> None:
        not_negative(self, "friction")
        if self.size is not None and not all(0 < side < 1e9 for side in self.size):
            raise SceneError("size", f"size is {self.size}; both sides must be positive.")


@dataclass(frozen=True)
class Wind:
    """Moving air, which drags on every surface point by 1/2 rho C A |u| u, u the air's velocity past it.

    Args:
        kind: uniform, vortex (a whirl about an axis) or turbulence (seeded, swirling, free of sources).
        velocity: Of a uniform wind [m/s]; turbulence adds it as its mean.
        gusts: Relative strength of a uniform wind's gusts, 0 to 1.
        speed: Fastest speed of a vortex, root mean square speed of turbulence [m/s].
        at: A point on the vortex's axis [m].
        axis: Direction of the vortex's axis.
        length: Radius of the vortex's fastest ring, size of the turbulence's eddies [m].
        period: How long gusts and eddies last [s].
        drag: Drag coefficient C.
        air: Density rho of the air [kg/m^3].
    """

    kind: Literal["uniform", "vortex", "turbulence"] = "uniform"
    velocity: Vector = (0.0, 0.0, 0.0)
    gusts: float = 0.0
    speed: float = 0.0
    at: Vector = (0.0, 0.0, 0.0)
    axis: Vector = (0.0, 1.0, 0.0)
    length: float = 0.5
    period: float = 1.0
    drag: float = 1.0
    air: float = 1.2

    def __post_init__(self) -> None:
        positive(self, "length", "period", "air")
        not_negative(self, "speed", "drag", "gusts")
        if self.kind == "vortex" and not any(self.axis):
            raise SceneError("axis", "axis is zero; a vortex needs a direction.")
