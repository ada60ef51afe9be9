"""Something that moves without any physics behind it: what the viewer's parts are tested against."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.data import Frame, Material
from splatanim.dynamics.materials import preset
from viewers.moving import Cloud, Readout


@dataclass(frozen=True)
class FakePick:
    body: int
    row: int
    point: np.ndarray
    depth: float


@dataclass
class FakeBody:
    name: str
    material: Material
    size: float = 1.0
    rigid: bool = False


@dataclass
class FakeRecording:
    frames: int
    calls: list[Any] = field(default_factory=list)

    def film(self, path: Path, camera: Any, *, size: Any = None) -> None:
        self.calls.append(("film", Path(path), camera))
        Path(path).write_bytes(b"film")

    def plys(self, folder: Path) -> None:
        Path(folder).mkdir()
        self.calls.append(("plys", Path(folder)))


class FakeSimulation:
    """A bar of splats along x, y up. A grabbed end goes where it is pulled; the rest stays. Keeps a log of calls."""

    up = np.array([0.0, 1.0, 0.0])
    low, high = np.array([-0.5, -0.1, -0.1]), np.array([0.5, 0.1, 0.1])
    file_frame = Frame((1.0, 2.0, 3.0), 0.5, (0.0, 1.0, 0.0))
    names = ("bar",)

    def __init__(self, count: int = 600, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.rest = rng.uniform(self.low, self.high, (count, 3)).astype(np.float32)
        self.moved = self.rest.copy()
        self.rgbs = np.where(self.rest[:, :1] > 0, [[0.9, 0.1, 0.1]], [[0.1, 0.2, 0.9]]).astype(np.float32)
        self.opacities = np.full(count, 0.95, np.float32)
        self.covariance = np.tile(np.eye(3, dtype=np.float32) * 0.03**2, (count, 1, 1))
        self.bodies = [FakeBody("bar", preset("jelly"))]
        self.version, self.playing, self.speed, self.error = 1, False, 1.0, ""
        self.log: list[Any] = []
        self.held: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.fixed: dict[int, np.ndarray] = {}
        self.time, self.posed, self.closed = 0.0, 0, False
        self.keys = 0
        self.has_floor = True
        self.changed = threading.Condition()

    def touch(self) -> None:
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def clouds(self) -> tuple[Cloud, ...]:
        self.posed += 1
        return (Cloud(self.moved, self.covariance, self.rgbs, self.opacities),)

    def readout(self) -> Readout:
        return Readout(self.time, 1.5, 3, True, 60.0, 0.25, 0.5)

    def play(self) -> None:
        self.playing = True
        self.touch()

    def pause(self) -> None:
        self.playing = False
        self.touch()

    def step(self) -> None:
        self.time += 1 / 60
        self.touch()

    def reset(self) -> None:
        self.time, self.moved = 0.0, self.rest.copy()
        self.fixed.clear()
        self.touch()

    def close(self) -> None:
        self.closed = True
        self.touch()

    def wait_changed(self, version: int, timeout: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.version != version or self.closed, timeout)

    def pick(self, origin: np.ndarray, direction: np.ndarray) -> FakePick | None:
        d = direction / np.linalg.norm(direction)
        along = (self.moved - origin) @ d
        apart = np.linalg.norm(self.moved - origin - along[:, None] * d, axis=1)
        near = np.flatnonzero((apart < 0.05) & (along > 0))
        if not len(near):
            return None
        row = int(near[np.argmin(along[near])])
        return FakePick(0, row, self.moved[row].astype(np.float64), float(along[row]))

    def grab(self, pick: FakePick, radius: float) -> int:
        self.keys += 1
        weight = np.exp(-0.5 * (np.linalg.norm(self.rest - self.rest[pick.row], axis=1) / radius) ** 2)
        self.held[self.keys] = (weight, np.asarray(pick.point))
        self.log.append(("grab", self.keys, radius))
        return self.keys

    def move(self, grab: int, target: np.ndarray) -> None:
        weight, start = self.held[grab]
        self.moved = (self.rest + weight[:, None] * (target - start)).astype(np.float32)
        self.log.append(("move", grab, np.array(target)))
        self.touch()

    def release(self, grab: int) -> None:
        self.held.pop(grab)
        self.log.append(("release", grab))

    def grabs(self) -> dict[int, np.ndarray]:
        return {key: start for key, (_, start) in self.held.items()}

    def pin(self, pick: FakePick, radius: float) -> int:
        self.keys += 1
        self.fixed[self.keys] = np.asarray(pick.point)
        self.log.append(("pin", self.keys))
        return self.keys

    def unpin(self, key: int) -> None:
        self.fixed.pop(key)
        self.log.append(("unpin", key))

    def pins(self) -> dict[int, np.ndarray]:
        return dict(self.fixed)

    def set_gravity(self, vector: np.ndarray) -> None:
        self.log.append(("gravity", np.asarray(vector)))

    def set_floor(self, height: float, tilt: tuple[float, float]) -> None:
        self.log.append(("floor", height, tilt))

    def floor(self) -> tuple[np.ndarray, np.ndarray] | None:
        return (np.array([0.0, -0.1, 0.0]), np.array([0.0, 1.0, 0.0])) if self.has_floor else None

    def set_wind(self, vector: np.ndarray) -> None:
        self.log.append(("wind", np.asarray(vector)))

    def set_material(self, body: int, preset: str | None = None, **numbers: float) -> None:
        from splatanim.dynamics.materials import preset as named

        if preset is not None:
            self.bodies[body].material = named(preset)
        self.bodies[body].material = replace(self.bodies[body].material, **numbers)
        self.log.append(("material", body, preset, numbers))

    def drop(self, what: str, at: np.ndarray) -> int:
        self.bodies.append(FakeBody(what, preset("foam")))
        self.log.append(("drop", what, np.asarray(at)))
        return len(self.bodies) - 1

    def weights(self, body: int) -> np.ndarray:
        return np.stack([self.rest[:, 0], np.ones(len(self.rest))], axis=1)

    def cubature(self, body: int) -> np.ndarray:
        return self.moved[::20].astype(np.float64)

    def contact_points(self, body: int) -> np.ndarray:
        return self.moved[::10].astype(np.float64)

    def start_recording(self) -> None:
        self.log.append(("record",))

    def stop_recording(self) -> FakeRecording:
        return FakeRecording(5)


class FakeSkeleton:
    names = ("root", "tip")
    parents = np.array([-1, 0])


class FakeRig(FakeSimulation):
    """Two joints along x; the second carries half a turn about y from its rest."""

    touchable = False
    skeleton = FakeSkeleton()
    clips, clip, clip_time, clip_duration, elastic = ("Walk",), None, 0.0, 1.5, False

    def joints(self) -> np.ndarray:
        joints = np.tile(np.eye(4), (2, 1, 1))
        joints[1] = self.untwisted(1)
        return joints

    def untwisted(self, joint: int) -> np.ndarray:
        transform = np.eye(4)
        if joint == 1:
            transform[:3, :3] = np.diag([-1.0, 1.0, -1.0])
            transform[0, 3] = 0.4
        return transform

    def set_turn(self, joint: int, rotation: np.ndarray) -> None:
        self.log.append(("turn", joint, np.asarray(rotation)))

    def clear_turns(self) -> None:
        self.log.append(("clear",))

    def play_clip(self, name: str | None) -> None:
        self.clip = name

    def pose_json(self) -> dict[str, Any]:
        return {"joints": list(self.skeleton.names)}
