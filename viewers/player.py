"""The clock of everything that is played back: frames at a rate, with play, pause, step, reset and speed."""

from __future__ import annotations

import threading
import time

import numpy as np

from splatanim.data import Frame
from splatanim.errors import InputError
from viewers.moving import Cloud, Readout
from viewers.playing import Playing


class Player(Playing):
    """A :class:`viewers.moving.Moving` of finished frames, which loops; subclasses say what a frame looks like.

    ``frame`` (settable, also from other threads) is what is shown; ``version`` grows with every change of it. While
    paused its thread sleeps on a condition.
    """

    names: tuple[str, ...]
    up: np.ndarray
    low: np.ndarray
    high: np.ndarray
    file_frame: Frame
    touchable = False

    def __init__(self, frames: int, fps: float) -> None:
        if not (np.isfinite(fps) and fps > 0):
            raise InputError(f"--fps {fps:g}: frames a second must be a positive number.")
        self.frames, self.fps = frames, fps
        super().__init__()
        self._frame = 0
        self._origin = (0.0, 0)  # clock and frame when it last started or was set
        self._thread = threading.Thread(target=self._run, name="playback", daemon=True)
        self._thread.start()

    def clouds(self) -> tuple[Cloud, ...]:
        """What is drawn at the present frame."""
        raise NotImplementedError

    def readout(self) -> Readout:
        """The time in the motion; nothing is solved, so that the rest is zero."""
        rate = self.fps * self.speed if self.playing else 0.0
        return Readout(self.frame / self.fps, 0.0, 0, True, rate, 0.0, 0.0)

    @property
    def frame(self) -> int:
        return self._frame

    @frame.setter
    def frame(self, value: int) -> None:
        with self._changed:
            self._show(int(value) % self.frames)
            self._restart_clock()

    def _restart_clock(self) -> None:
        self._origin = (time.monotonic(), self._frame)

    def play(self) -> None:
        if self.frames > 1:
            super().play()

    def step(self) -> None:
        """The next frame; pauses."""
        self.pause()
        self.frame = self._frame + 1

    def reset(self) -> None:
        """Back to the first frame, still playing if it was."""
        self.frame = 0

    def _show(self, frame: int) -> None:
        if frame != self._frame:
            self._frame = frame
            self.version += 1
            self._changed.notify_all()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                if not self.playing:
                    self._changed.wait()
                    continue
                start, first = self._origin
                rate = self.fps * self._speed
                passed = int((time.monotonic() - start) * rate + 1e-6)
                self._show((first + passed) % self.frames)
                due = start + (passed + 1) / rate
                self._changed.wait(max(1e-3, due - time.monotonic()))
