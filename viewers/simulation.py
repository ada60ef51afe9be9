"""A live simulation of elastic bodies: what it shows, how it is touched, and what it records."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from splatanim.data import Frame
from splatanim.errors import InputError
from viewers.live_body import BodyPainter, LiveBody
from viewers.live_pin import pin_of
from viewers.live_thread import LiveThread
from viewers.live_world import LiveWorld, hold_of
from viewers.moving import Cloud, Readout
from viewers.picking import Pick
from viewers.picking import pick as pick_splat
from viewers.recording import Recorder, Recording, bodies_at

if TYPE_CHECKING:
    from pipelines.animate import AnimateConfig
    from splatanim.data import Splats

_DROPPED = 0.5  # of the first body's size


class Simulation(LiveThread):
    """A :class:`viewers.moving.Moving` of elastic bodies; what can be done to them is for the viewer's panels."""

    touchable = True

    def __init__(self, world: LiveWorld, file_frame: Frame, config: AnimateConfig) -> None:
        from viewers.live_open import scenery_clouds

        super().__init__()
        self._world, self.file_frame, self._config = world, file_frame, config
        self.up = np.asarray(world.up, np.float64)
        self.low, self.high = world.bounds()
        self._painters = [BodyPainter(body) for body in world.bodies]
        self._scenery = scenery_clouds(world.props)
        self._keys = itertools.count(1)
        self._recorder: Recorder | None = None
        self._drawn: tuple[int, tuple[Cloud, ...]] | None = None
        self._state: tuple[float, list[np.ndarray]] = (0.0, [])
        self._readout = Readout(0.0, 0.0, 0, True, 0.0, 0.0, 0.0)
        self._publish()
        self._thread.start()

    @classmethod
    def open(cls, path: Path | str | None, config: AnimateConfig) -> Simulation:
        """A capture, a mesh, a sample by its name, or a scene.toml. Raises InputError as ``animate`` does."""
        from viewers.live_open import open_world

        world, frame = open_world(path, config)
        return cls(world, frame, config)

    # What is shown

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(body.name for body in self._world.bodies)

    @property
    def bodies(self) -> tuple[LiveBody, ...]:
        return tuple(self._world.bodies)

    def clouds(self) -> tuple[Cloud, ...]:
        """The splats of all bodies, then those of the scenery, in the newest state."""
        version, (now, handles) = self.version, self._state
        drawn = self._drawn
        if drawn is not None and drawn[0] == version:
            return drawn[1]
        painters = self._painters[: len(handles)]
        clouds = [painter.cloud(z) for painter, z in zip(painters, handles, strict=True)]
        clouds += [prop(now) for prop in self._scenery]
        self._drawn = (version, tuple(clouds))
        return tuple(clouds)

    def splats(self) -> Splats:
        """All of it with its harmonics: what stills are drawn from."""
        from viewers.recording import posed

        now, handles = self._state
        return posed([body.bound for body in self.bodies], handles, self._world.props, now)

    def readout(self) -> Readout:
        return dataclasses.replace(self._readout, error=self.error)

    def floor(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Point and normal of the floor now."""
        floor = self._world.floor
        return None if floor is None else floor.at(self._state[0])

    def weights(self, body: int) -> Float64[np.ndarray, "n h"]:
        """The handles' weights at a body's splats."""
        return np.asarray(self._world.bodies[body].bound.weights, np.float64)

    def cubature(self, body: int) -> Float64[np.ndarray, "q 3"]:
        """A body's cubature points as they are now."""
        live = self._world.bodies[body]
        return live.model.positions(*live.split(live.history))

    def contact_points(self, body: int) -> Float64[np.ndarray, "s 3"]:
        """A body's contact points as they are now."""
        live = self._world.bodies[body]
        return live.model.contact_positions(*live.split(live.history))

    # Controls

    def play(self) -> None:
        """Step on, also what had come to rest."""
        self._world.wake()
        super().play()

    def reset(self) -> None:
        """Everything as it began; holds are let go."""

        def restart() -> None:
            self.error = ""
            self._world.restart()
            self._clock.restart()

        self._do(restart)

    # Touch

    def pick(self, origin: np.ndarray, direction: np.ndarray) -> Pick | None:
        """The splat that a ray meets, on a body."""
        return pick_splat(self.clouds()[: len(self._state[1])], origin, direction)

    def grab(self, pick: Pick, radius: float) -> int:
        """Hold a region by a Gaussian-weighted spring, where it is until it is moved; returns its number."""

        def take(key: int, rest: np.ndarray) -> None:
            self._world.holds[key] = hold_of(self._world, pick.body, rest, radius)

        return self._take(pick, radius, take)

    def move(self, grab: int, target: np.ndarray) -> None:
        """Pull a grabbed region's centre towards a point of the world."""

        def pull() -> None:
            hold = self._world.holds.get(grab)
            if hold is not None:
                hold.target = np.asarray(target, np.float64)
                self._world.wake()

        self._do(pull, wait=False)

    def release(self, grab: int) -> None:
        """Let a region go."""

        self._let_go(self._world.holds, grab)

    def pin(self, pick: Pick, radius: float) -> int:
        """Keep the splats within a radius where they are; returns the pin's number."""

        def take(key: int, rest: np.ndarray) -> None:
            self._world.pins[key] = pin_of(self._world.bodies, pick.body, rest, radius)

        return self._take(pick, radius, take)

    def unpin(self, key: int) -> None:
        """Let a pinned region go."""
        self._let_go(self._world.pins, key)

    def grabs(self) -> dict[int, np.ndarray]:
        """Where the centres of grabbed regions are."""
        return self._places(self._world.holds)

    def pins(self) -> dict[int, np.ndarray]:
        """Where the centres of pinned regions are."""
        return self._places(self._world.pins)

    def set_gravity(self, vector: np.ndarray) -> None:
        """Gravity's acceleration [m/s^2]."""
        self._set(gravity=np.asarray(vector, np.float64))

    def set_wind(self, vector: np.ndarray) -> None:
        """The air's velocity [m/s]."""
        self._set(wind=np.asarray(vector, np.float64))

    def set_floor(self, height: float, tilt: tuple[float, float]) -> None:
        """Send the floor to a height [m] against where it began, and two tilts [degrees]; it goes at a bounded speed.

        Raises InputError where there is none.
        """
        floor = self._world.floor
        if floor is None:
            raise InputError("This scene has no floor.")

        def go() -> None:
            floor.go(self._world.time, height, tilt)
            self._world.wake()

        self._do(go, wait=False)

    def set_material(
        self,
        body: int,
        preset: str | None = None,
        young: float | None = None,
        poisson: float | None = None,
        density: float | None = None,
    ) -> None:
        """Another material for a body from the next step on, wholly or in numbers. Raises InputError for what cannot
        be."""
        from splatanim.dynamics.materials import preset as named

        live = self._world.bodies[body]
        if live.rigid:
            raise InputError(f"{live.name} is rigid: it has no elasticity to change.")
        changes = {"young": young, "poisson": poisson, "density": density}
        given: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
        base = live.material if preset is None else named(preset)
        material = dataclasses.replace(base, **given)

        def change() -> None:
            live.set_material(material)
            if preset is not None:  # a named material is meant as it is
                live.stiffness = None
            self._world.renew()

        self._do(change, wait=False)

    def drop(self, what: str | Path, at: np.ndarray) -> int:
        """Let a further capture (or sample, by its name) fall from a place; returns its index among the bodies."""
        from viewers.live_open import dropped_body

        if self._closed:
            raise InputError(f"{what} cannot be dropped in: the simulation is closed.")
        size = _DROPPED * self._world.bodies[0].size
        body = dropped_body(what, size, np.asarray(at, np.float64), self.up, self.names, self._config)
        painter = BodyPainter(body)

        places: list[int] = []

        def add() -> None:
            places.append(len(self._world.bodies))
            self._painters.append(painter)
            self._world.bodies.append(body)
            self._world.renew()

        self._do(add)
        if not places:
            raise InputError(f"{body.name} could not be dropped in: the simulation is busy with a step. Try again.")
        return places[0]

    # Recording

    def start_recording(self) -> None:
        """Keep the state of every frame from here on."""
        recorder = Recorder(self._config.fps, self._world.time)

        def begin() -> None:
            recorder.note(self._world.time, self._state, self.floor())
            self._recorder = recorder

        self._do(begin)

    def stop_recording(self) -> Recording:
        """What was recorded since :meth:`start_recording`."""
        taken, self._recorder = self._recorder or Recorder(self._config.fps, 0.0), None
        bodies, props = self.bodies, self._world.props
        bound, last = [body.bound for body in bodies], self._state[1]
        single = len(bodies) == 1 and not props

        def splats(state: tuple[float, list[np.ndarray]]) -> Splats:
            return bodies_at(state, bound, last, props)

        order = bodies[0].thing.source.rows if single else None
        size = max(body.size for body in bodies)
        return Recording(taken, splats, self.file_frame, size, order, self._config.backend)

    # The thread

    def _take(self, pick: Pick, radius: float, take: Callable[[int, np.ndarray], None]) -> int:
        """Have ``take`` called between two steps, with a new number and the picked point at rest; the number."""
        key = next(self._keys)
        if not radius > 0:
            raise InputError(f"A region's radius is {radius:g} m; it must be positive.")

        def do() -> None:
            take(key, np.asarray(self._world.bodies[pick.body].bound.rest[pick.row], np.float64))
            self._world.renew()

        self._do(do)
        return key

    def _let_go(self, held: dict[int, Any], key: int) -> None:
        def do() -> None:
            if held.pop(key, None) is not None:
                self._world.renew()

        self._do(do, wait=False)

    def _places(self, held: dict[int, Any]) -> dict[int, np.ndarray]:
        handles = self._state[1]
        return {key: h.place(handles[h.body]) for key, h in list(held.items()) if h.body < len(handles)}

    def _set(self, **values: np.ndarray) -> None:
        def change() -> None:
            for name, value in values.items():
                setattr(self._world, name, value)
            self._world.renew()

        self._do(change, wait=False)

    def _resting(self) -> bool:
        return self._world.resting

    def _span(self) -> float:
        return self._world.h

    def _advance(self) -> None:
        start = time.perf_counter()
        report = self._world.step()
        self._clock.took(time.perf_counter() - start)
        if not self._world.finite():
            raise InputError("the motion is no longer finite; reset, and take a stiffer material or pull less hard.")
        now = self._clock
        kinetic, elastic = self._readout.kinetic, self._readout.elastic
        if now.measure_due():
            kinetic, elastic = self._world.energies()
        self._readout = Readout(
            self._world.time, 1e3 * now.seconds, report.iterations, report.converged, now.rate, kinetic, elastic
        )

    def _publish(self) -> None:
        """Make the newest state what is drawn."""
        world = self._world
        handles = [body.handles(body.history) for body in world.bodies]

        def show() -> None:
            self._state = (world.time, handles)
            if self._readout.time != world.time:
                self._readout = dataclasses.replace(self._readout, time=world.time)

        self._show(show)
        if self._recorder is not None:
            self._recorder.note(world.time, self._state, self.floor())
