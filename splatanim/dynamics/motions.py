"""The ready-made motions of ``splatanim animate``: what is held, what pushes, where the object starts.

A capture shows its object at rest, so where it is pinned its own weight is taken as balanced already: only ``drop`` and
``ramp`` (and anything hung up by ``--pin top``) add gravity. All lengths follow the object's size, all times the clip.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.newton import Term
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.regions import Region, hold_still, rotation_about, translation
from splatanim.dynamics.terms import Drag, gaussian_kernel, gravity, poke
from splatanim.errors import InputError

GRAVITY = 9.81  # m/s^2
_PIN_SHARE = 0.08  # of the height, how much of the object a pinned end holds
PIN_WIDTH = 0.1  # of the size, over which the hold fades out; slender parts bend 1-7 % more than with twice that
Vector = Float64[np.ndarray, " 3"]


@dataclass(frozen=True)
class Body:
    """The object as a director sees it: its corners [m], and unit vectors ``up``, ``side`` and ``front``.

    ``held`` is where it is grown onto something that stands still: the part of a capture that was selected to move.
    """

    low: Vector
    high: Vector
    up: Vector
    side: Vector
    front: Vector
    seconds: float
    held: tuple[Region, ...] = ()

    @property
    def size(self) -> float:
        return float((self.high - self.low).max())

    @property
    def centre(self) -> Vector:
        return 0.5 * (self.low + self.high)

    def reach(self, direction: Vector) -> float:
        """Half the box's extent along a direction."""
        return float(np.abs(direction) @ (0.5 * (self.high - self.low)))

    @property
    def height(self) -> float:
        return 2.0 * self.reach(self.up)

    def at(self, up: float, side: float = 0.0, front: float = 0.0) -> Vector:
        """A point of the box: -1 is the bottom (left, back), 1 the top (right, front)."""
        point = self.centre + up * self.reach(self.up) * self.up
        return point + side * self.reach(self.side) * self.side + front * self.reach(self.front) * self.front


@dataclass(frozen=True)
class Direction:
    """A motion, set up for one object. ``terms`` are built once the reduced model exists.

    ``planes`` are touched; ``scenery`` is what a picture shows: the same, or a floor where nothing is touched.
    """

    regions: tuple[Region, ...] = ()
    planes: tuple[Plane, ...] = ()
    terms: tuple[Callable[[ReducedModel], Term], ...] = ()
    displacement: Float64[np.ndarray, "3 4"] = field(default_factory=lambda: np.zeros((3, 4)))
    scenery: tuple[Plane, ...] = ()

    def build(self, model: ReducedModel) -> list[Term]:
        contacts = [PlaneContact(model, plane, model.material.friction, GRAVITY) for plane in self.planes]
        return [*(make(model) for make in self.terms), *contacts]


def body_of(low: Vector, high: Vector, up: Vector, seconds: float, held: tuple[Region, ...] = ()) -> Body:
    """A body whose ``front`` is the side that cameras see first, and ``side`` that view's right."""
    from splatanim.render.camera import view_direction

    up = np.asarray(up, np.float64) / np.linalg.norm(up)
    front = -view_direction(up, 0.0, 0.0)
    return Body(np.asarray(low, float), np.asarray(high, float), up, np.cross(up, front), front, seconds, held)


def pin_region(pin: str, body: Body, motion=hold_still) -> tuple[Region, ...]:
    """The region of ``none``, ``bottom``, ``top`` or a box "x0,y0,z0,x1,y1,z1" in simulator units."""
    if pin == "none":
        return ()
    width = PIN_WIDTH * body.size
    if pin in ("bottom", "top"):
        axis = int(np.argmax(np.abs(body.up)))
        if abs(abs(body.up[axis]) - 1.0) > 1e-6:
            raise InputError(f"--pin {pin} needs an up axis along x, y or z; give a box instead.")
        end = body.up if pin == "top" else -body.up
        low, high = np.full(3, -np.inf), np.full(3, np.inf)
        edge = float(body.centre[axis] + end[axis] * (body.reach(body.up) - _PIN_SHARE * body.height))
        (low if end[axis] > 0 else high)[axis] = edge
    else:
        low, high = _parse_box(pin)
    return (Region(tuple(low.tolist()), tuple(high.tolist()), width, motion),)


def _hold(body: Body, pin: str | None, usual: str, motion=hold_still) -> tuple[Region, ...]:
    """What is held: where the body is grown on, and the pin; without a pin, a body that is free is held as usual."""
    if body.held and pin is None:
        return body.held
    return (*body.held, *pin_region(pin or usual, body, motion))


def _parse_box(text: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        numbers = np.array([float(part) for part in text.removeprefix("box:").split(",")])
    except ValueError:
        numbers = np.zeros(0)
    if len(numbers) != 6:
        raise InputError(f"--pin {text!r} is none of none, bottom, top or a box of six numbers x0,y0,z0,x1,y1,z1.")
    return np.minimum(numbers[:3], numbers[3:]), np.maximum(numbers[:3], numbers[3:])


def _needs_freedom(body: Body, motion: str) -> None:
    if body.held:
        raise InputError(
            f"--motion {motion} moves what an object stands on, but a selection is held by the rest, which stands "
            "still. Use poke, drag, twist, squash or drop."
        )


def floor(body: Body, below: float = 0.0) -> Plane:
    """The ground: a half-space that the object's lowest point touches, or ``below`` it [m]."""
    return Plane(body.at(-1.0) - below * body.up, body.up, body.side)


def _weight(body: Body) -> Callable[[ReducedModel], Term]:
    return lambda model: gravity(model, -GRAVITY * body.up)


def _drop(body: Body, pin: str | None) -> Direction:
    """Let fall from half its size onto the floor; with a pin, let go where it hangs or stands."""
    if body.held:
        return Direction(_hold(body, pin, "none"), (), (_weight(body),))
    if pin not in (None, "none"):
        below = 0.0 if pin == "bottom" else 1.2 * body.size  # room for what hangs
        return Direction(pin_region(pin or "none", body), (floor(body, below),), (_weight(body),))
    lift = translation(0.5 * body.size * body.up)
    return Direction((), (floor(body),), (_weight(body),), displacement=lift)


def _ramp(body: Body, pin: str | None) -> Direction:
    """Put down on a slope above the floor, to slide, roll or stick as its friction says."""
    _needs_freedom(body, "ramp")
    angle = np.radians(30.0)
    turn = rotation_about(np.cross(body.up, body.side), angle, body.at(-1.0))
    along = body.side + turn[:, :3] @ body.side
    normal = body.up + turn[:, :3] @ body.up
    foot, half = body.at(-1.0), 1.5 * body.size
    slope = Plane(foot + 0.75 * half * along, normal, along, (half, 0.6 * half))  # the body starts near its upper end
    ground = Plane(foot + 1.7 * half * (along @ body.up) * body.up, body.up, body.side)
    return Direction(pin_region(pin or "none", body), (slope, ground), (_weight(body),), displacement=turn)


def _poke(body: Body, pin: str | None) -> Direction:
    """A push from the side, high up, with the foot held; again from the front at half time."""
    radius = 0.2 * body.size
    speed = 1.2 * body.size  # m/s that the push would give the whole body

    def push(spot: Vector, toward: Vector, start: float) -> Callable[[ReducedModel], Term]:
        return lambda model: poke(model, spot, radius, model.mass * speed * toward, start, 0.12)

    pushes = (
        push(body.at(0.6, -1.0), body.side, 0.1),
        push(body.at(0.6, 0.0, 1.0), -body.front, 0.1 + 0.5 * body.seconds),
    )
    return Direction(_hold(body, pin, "bottom"), (), pushes)


def _sway(body: Body, pin: str | None) -> Direction:
    """The held end shakes from side to side and then stops."""
    _needs_freedom(body, "sway")
    stop = 0.6 * body.seconds

    def shake(time: float) -> np.ndarray:
        fade = np.clip(1.0 - time / stop, 0.0, 1.0)
        return translation(0.12 * body.size * np.sin(2 * np.pi * 1.5 * time) * fade * (2.0 - fade) * body.side)

    return Direction(_hold(body, pin, "bottom", shake))


def _squash(body: Body, pin: str | None) -> Direction:
    """A plate presses from above to two thirds of the height, then snaps away."""
    press, hold = 0.3 * body.seconds, 0.4 * body.seconds
    clear = 0.02 * body.size

    def depth(time: float) -> np.ndarray:
        if time < press:
            return -(0.36 * body.height + clear) * _ease(time / press) * body.up
        away = max(0.0, time - hold)
        return (8.0 * body.size * away - (0.36 * body.height + clear)) * body.up

    plate = Plane(body.at(1.0) + clear * body.up, -body.up, body.side, shift=depth)
    planes = (plate,) if body.held else (floor(body), plate)
    # Under a third of compression a sharp hold makes soft bodies give way beside it, from under the plate.
    held = _hold(body, pin, "bottom")
    soft = tuple(dataclasses.replace(region, width=2.0 * region.width) for region in held[len(body.held) :])
    return Direction((*held[: len(body.held)], *soft), planes)


def _twist(body: Body, pin: str | None) -> Direction:
    """The upper end is wound up by a third of a turn and let go."""
    wind, hold = 0.35 * body.seconds, 0.42 * body.seconds

    def wound(time: float) -> np.ndarray | None:
        angle = np.radians(110.0) * _ease(min(time / wind, 1.0))
        return rotation_about(body.up, angle, body.centre) if time < hold else None

    def spring(model: ReducedModel) -> Term:
        height = (model.rest - body.centre) @ body.up / body.reach(body.up)
        kernel = np.clip((height - 0.4) / 0.4, 0.0, 1.0)
        return Drag(model, kernel, grip(model), wound)

    return Direction(_hold(body, pin, "bottom"), (), (spring,))


def _drag(body: Body, pin: str | None) -> Direction:
    """The top is grabbed, drawn in a circle and out to the side, and let go."""
    hold = 0.6 * body.seconds

    def path(time: float) -> np.ndarray | None:
        if time >= hold:
            return None
        phase = time / hold
        radius = 0.28 * body.size * _ease(min(2.0 * phase, 1.0))
        angle = 2.0 * np.pi * phase
        return translation(radius * (np.cos(angle) * body.side + np.sin(angle) * body.front))

    def spring(model: ReducedModel) -> Term:
        top = body.at(0.85)
        nearest = model.rest[np.argmin(np.linalg.norm(model.rest - top, axis=1))]
        return Drag(model, gaussian_kernel(model.rest, nearest, 0.15 * body.size), grip(model), path)

    return Direction(_hold(body, pin, "bottom"), (), (spring,))


def grip(model: ReducedModel) -> float:
    """Spring stiffness [1/s^2] of a firm grip: well above what the object's own elasticity answers with."""
    sound = model.material.young / model.material.density
    return 40.0 * sound / model.size**2 + 400.0


def _ease(t: float) -> float:
    return t * t * (3.0 - 2.0 * t)


MOTIONS: dict[str, Callable[[Body, str | None], Direction]] = {
    "drop": _drop,
    "poke": _poke,
    "sway": _sway,
    "squash": _squash,
    "twist": _twist,
    "drag": _drag,
    "ramp": _ramp,
}


def direct(motion: str, body: Body, pin: str | None = None) -> Direction:
    """Set a motion up for an object. ``pin`` None leaves the motion's own choice of what is held."""
    if motion not in MOTIONS:
        near = difflib.get_close_matches(motion, MOTIONS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InputError(f"There is no motion {motion!r}.{hint} There are: {', '.join(MOTIONS)}.")
    direction = MOTIONS[motion](body, pin)
    return dataclasses.replace(direction, scenery=direction.planes or (floor(body),))
