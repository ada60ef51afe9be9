"""A rig live: its clips play, its joints are turned by hand on top of them, and the flesh answers elastically."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64

from pipelines.rigged import Actor
from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.rig.affine import matrix_quaternions
from splatanim.rig.skeleton import Pose, Skeleton, forward_kinematics
from splatanim.rig.skinning import blend_maps
from splatanim.rotations import quaternions_to_matrices
from viewers.live_thread import LiveThread
from viewers.moving import Cloud, Readout
from viewers.playback import covariances, flat_colours, placed
from viewers.recording import Recorder, Recording
from viewers.rig_state import RigBody, RigState, Turns, pose_file
from viewers.rigged_flesh import Flesh

if TYPE_CHECKING:
    from pipelines.animate import AnimateConfig
    from pipelines.rigged import RiggedConfig
    from splatanim.rig.animation import Animation

_STEP = 1.0 / 60.0  # s
_FOLLOW = 0.06  # s in which a joint has gone most of the way to where its gizmo is: flesh is not shaken by jumps
_COUNT = 30_000  # splats that a mesh becomes: half of a film's, as they are sent over and over


class RigSimulation(LiveThread):
    """A :class:`viewers.moving.Moving` of one rigged capture or mesh. Joints are numbered as in ``skeleton``.

    Turns are in each joint's own frame, on top of the clip (or the rest pose): its local rotation becomes R Q.
    """

    touchable = False

    def __init__(self, actor: Actor, config: RiggedConfig, clips: dict[str, Animation]) -> None:
        super().__init__()
        self._actor, self._config, self._clips = actor, config, clips
        self.skeleton: Skeleton = actor.model.skeleton
        splats = actor.rigged.splats
        low, high = np.quantile(splats.means.astype(np.float64), [0.001, 0.999], axis=0)
        x, y, z = (float(v) for v in 0.5 * (low + high))
        scale = config.object_size / float((high - low).max())
        self._frame_of_means = Frame((x, y, z), scale, actor.up)
        a, b, c = (float(v) for v in np.array([x, y, z]) + splats.offset)
        self.file_frame = Frame((a, b, c), scale, actor.up)
        self.up = np.asarray(actor.up, np.float64)
        self.low, self.high = (self._frame_of_means.to_sim(v[None])[0] for v in (low, high))
        self.names = (config.scene.stem,)
        self.bodies = (RigBody(config.scene.stem, config.object_size),)
        self.clips: tuple[str, ...] = tuple(clips)
        spread = quaternions_to_matrices(splats.quaternions) * (scale * splats.scales.astype(np.float64))[:, None]
        self._rest, self._rgbs, self._opacities = covariances(spread), flat_colours(splats), splats.opacities
        self.clip: str | None = None
        self._clip_time, self._time = 0.0, 0.0
        self._turns = Turns()
        self._flesh: Flesh | None = None
        self._elastic = False
        self._recorder: Recorder | None = None
        self._pose = self._posed()
        self._state = self._moment(self._pose)
        self._readout = Readout(0.0, 0.0, 0, True, 0.0, 0.0, 0.0)
        self._drawn: tuple[int, tuple[Cloud, ...]] | None = None
        self._thread.start()

    @classmethod
    def open(cls, path: Path | str | None, config: AnimateConfig) -> RigSimulation:
        """The rig of a config as ``animate`` reads it. Raises InputError as it does."""
        from pipelines.rigged import choose_clip, load_actor
        from pipelines.rigged_verb import rigged_config

        rigged = rigged_config(dataclasses.replace(config, scene=None if path is None else Path(path)))
        actor = load_actor(dataclasses.replace(rigged, count=_COUNT))
        clips = dict(actor.model.animations)
        first = None
        if rigged.retarget is not None or rigged.clip:
            chosen, _ = choose_clip(rigged, actor)
            first = chosen.name
            clips[first] = chosen
        made = cls(actor, rigged, clips)
        if clips:
            made.play_clip(first or next(iter(clips)))
        if config.elastic:
            made.elastic = True
        return made

    # What is shown

    def clouds(self) -> tuple[Cloud, ...]:
        """The splats in the newest state."""
        from viewers._posing import pushed

        version, state = self.version, self._state
        if self._drawn is not None and self._drawn[0] == version:
            return self._drawn[1]
        rigged = self._actor.rigged
        means, linear = blend_maps(rigged.splats.means, rigged.skin, rigged.local(state.transforms), rigged.method)
        if state.y is not None and self._flesh is not None:
            self._flesh.add(means, linear, state.y)
        spread = np.empty((len(means), 3, 3), np.float32)
        pushed(self._rest, linear, spread)
        moved = self._frame_of_means.to_sim(means).astype(np.float32)
        self._drawn = (version, (Cloud(moved, spread, self._rgbs, self._opacities),))
        return self._drawn[1]

    def splats(self) -> Splats:
        """The newest state with its harmonics, in the viewer's coordinates."""
        return self._splats(self._state)

    def readout(self) -> Readout:
        return dataclasses.replace(self._readout, error=self.error)

    def floor(self) -> tuple[np.ndarray, np.ndarray]:
        """Below the lowest point of the first pose; it is seen, not felt."""
        bottom = float(np.minimum(self.low * self.up, self.high * self.up).sum())
        middle = 0.5 * (self.low + self.high)
        return middle + (bottom - middle @ self.up) * self.up, self.up

    def joints(self) -> Float64[np.ndarray, "j 4 4"]:
        """The joints' frames now, in the viewer's coordinates."""
        return self._in_viewer(self._state.joints)

    def untwisted(self, joint: int) -> Float64[np.ndarray, "4 4"]:
        """A joint's frame without its own turn."""
        return self._in_viewer(forward_kinematics(self.skeleton, self._posed(without=joint)))[joint]

    def weights(self, body: int) -> Float64[np.ndarray, "n j"]:
        """The joints' weights at the splats."""
        return np.asarray(self._actor.rigged.skin.dense(), np.float64)

    def cubature(self, body: int) -> Float64[np.ndarray, "q 3"]:
        """Where elastic energy is summed up; none while the flesh is rigid."""
        flesh, state = self._flesh, self._state
        return np.empty((0, 3)) if flesh is None or state.y is None else flesh.points(state.y)

    def contact_points(self, body: int) -> Float64[np.ndarray, "s 3"]:
        """A rig touches nothing."""
        return np.empty((0, 3))

    # Posing

    @property
    def elastic(self) -> bool:
        """Whether the flesh answers."""
        return self._elastic

    @elastic.setter
    def elastic(self, value: bool) -> None:
        self._elastic = bool(value)
        self._do(self._renew_flesh, wait=False)

    @property
    def clip_duration(self) -> float:
        clip = self._clip()
        return 0.0 if clip is None else clip.duration

    @property
    def clip_time(self) -> float:
        return self._clip_time

    @clip_time.setter
    def clip_time(self, value: float) -> None:
        def seek() -> None:
            self._clip_time = float(np.mod(value, self.clip_duration)) if self.clip_duration > 0 else 0.0
            self._jump()

        self._do(seek, wait=False)

    def play_clip(self, name: str | None) -> None:
        """Play a clip from its start, or none. Raises InputError for one that is not there."""
        if name is not None and name not in self._clips:
            raise InputError(f"There is no clip {name!r}. Clips: {', '.join(self._clips) or 'none'}.")

        def change() -> None:
            self.clip, self._clip_time = name, 0.0
            self._jump()

        self._do(change, wait=False)

    def set_turn(self, joint: int, rotation: Float[np.ndarray, "3 3"]) -> None:
        """Turn a joint in its own frame. Raises InputError where it is no rotation matrix."""
        rotation = np.asarray(rotation, np.float64)
        if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) or np.linalg.det(rotation) < 0:
            raise InputError("A joint is turned by a rotation: a 3x3 matrix of determinant 1.")

        def turn() -> None:
            self._turns.wanted[joint] = matrix_quaternions(rotation[None])[0]
            if not self.playing:
                self._turns.arrive()
                self._jump()

        self._do(turn, wait=False)

    def set_root_shift(self, vector: Float[np.ndarray, " 3"]) -> None:
        """Carry all of it by a vector of the viewer's world [m], on top of the clip."""
        shift = np.asarray(vector, np.float64) / self.file_frame.scale
        if shift.shape != (3,) or not np.isfinite(shift).all():
            raise InputError("The root is shifted by three numbers.")

        def carry() -> None:
            self._turns.shift_wanted = shift
            if not self.playing:
                self._turns.arrive()
                self._jump()

        self._do(carry, wait=False)

    def clear_turns(self) -> None:
        """Back to the clip alone, where it plays."""

        def clear() -> None:
            self._turns.clear()
            self._jump()

        self._do(clear, wait=False)

    def pose_json(self) -> dict[str, Any]:
        """The present pose as :func:`viewers.rig_state.pose_file` has it."""
        return pose_file(self.skeleton, self._pose)

    def reset(self) -> None:
        """The clip from its start, without turns."""

        def restart() -> None:
            self.error, self._time, self._clip_time = "", 0.0, 0.0
            self._turns.clear()
            self._jump()

        self._do(restart)

    def start_recording(self) -> None:
        """Keep the state of every frame from here on."""
        recorder = Recorder(self._config.fps, self._time)

        def begin() -> None:
            recorder.note(self._time, self._state, self.floor())
            self._recorder = recorder

        self._do(begin)

    def stop_recording(self) -> Recording:
        """What was recorded since :meth:`start_recording`."""
        recorder, self._recorder = self._recorder or Recorder(self._config.fps, 0.0), None
        size, backend = self._config.object_size, self._config.backend
        return Recording(recorder, self._splats, self.file_frame, size, self._actor.order, backend)

    # The thread

    def _clip(self) -> Animation | None:
        return None if self.clip is None else self._clips[self.clip]

    def _posed(self, without: int = -1, later: float = 0.0) -> Pose:
        """The local pose: the clip's (``later`` seconds on), with all turns but one."""
        from pipelines.rigged_elastic import clip_time

        clip = self._clip()
        pose = self.skeleton.rest if clip is None else clip.sample(clip_time(clip, self._clip_time + later))
        return self._turns.on(pose, self.skeleton, without)

    def _moment(self, pose: Pose) -> RigState:
        joints = forward_kinematics(self.skeleton, pose)
        y = self._flesh.y.copy() if self._flesh is not None and self._elastic else None
        return RigState(self._time, joints @ self.skeleton.inverse_bind, joints, y)

    def _in_viewer(self, joints: np.ndarray) -> np.ndarray:
        out = joints.copy()
        out[:, :3, 3] = self.file_frame.to_sim(joints[:, :3, 3])
        return out

    def _splats(self, state: RigState) -> Splats:
        from splatanim.rig.skinning import pose_splats

        if state.y is None or self._flesh is None:
            moved = pose_splats(self._actor.rigged, state.transforms)
        else:
            moved = self._flesh.splats(state.transforms, state.y)
        return placed(moved, self._frame_of_means)

    def _resting(self) -> bool:
        turning = self._turns.moving(self._config.object_size / self.file_frame.scale)
        alive = self._flesh is not None and self._elastic and not self._flesh.still
        return self.clip is None and not turning and not alive

    def _span(self) -> float:
        return _STEP

    def _renew_flesh(self) -> None:
        """The flesh begins at rest in the present pose; it is made when it is first wanted."""
        if self._elastic:
            if self._flesh is None:
                self._flesh = Flesh(self._actor, self._config, self._clip(), self._clips)
            self._flesh.restart(self._pose)

    def _jump(self) -> None:
        """A new pose at once: the flesh starts from rest in it."""
        self._pose = self._posed()
        if self._elastic:
            self._renew_flesh()

    def _advance(self) -> None:
        start = time.perf_counter()
        self._turns.follow(1.0 - float(np.exp(-_STEP / _FOLLOW)))
        before, after = self._pose, self._posed(later=_STEP)
        iterations, converged, kinetic, elastic = 0, True, 0.0, 0.0
        if self._flesh is not None and self._elastic:
            iterations, converged = self._flesh.step(before, after)
            kinetic, elastic = self._flesh.energies()
        if self.clip_duration > 0:
            self._clip_time = float(np.mod(self._clip_time + _STEP, self.clip_duration))
        self._time += _STEP
        self._pose = after
        self._clock.took(time.perf_counter() - start)
        spent = 1e3 * self._clock.seconds
        self._readout = Readout(self._time, spent, iterations, converged, self._clock.rate, kinetic, elastic)

    def _publish(self) -> None:
        state = self._moment(self._pose)

        def show() -> None:
            self._state = state
            self._readout = dataclasses.replace(self._readout, time=self._time)

        self._show(show)
        if self._recorder is not None:
            self._recorder.note(self._time, state, self.floor())
