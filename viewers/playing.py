"""What finished frames and running engines have in common: play, pause, speed, waiting for a change, and an end."""

from __future__ import annotations

import threading

import numpy as np

_SLOWEST, _FASTEST = 0.01, 100.0  # times the true speed


class Playing:
    """The controls of a :class:`viewers.moving.Moving` with a thread of its own; subclasses say what it does.

    ``version`` grows with every change of the picture. While nothing is to be done the thread sleeps on ``_changed``.
    """

    _thread: threading.Thread

    def __init__(self) -> None:
        self.version, self.playing, self.error = 0, False, ""
        self._speed = 1.0
        self._changed = threading.Condition()
        self._closed = False

    def _restart_clock(self) -> None:
        """What is due next is counted from now."""
        raise NotImplementedError

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        with self._changed:
            self._speed = float(np.clip(value, _SLOWEST, _FASTEST))
            self._restart_clock()
            self._changed.notify_all()

    def play(self) -> None:
        with self._changed:
            self.playing, self.error = True, ""
            self._restart_clock()
            self._changed.notify_all()

    def pause(self) -> None:
        with self._changed:
            self.playing = False
            self._changed.notify_all()

    def wait_changed(self, version: int, timeout: float) -> bool:
        """Sleep until the picture differs from that of ``version``, ``timeout`` seconds at most; whether it does."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != version or self._closed, timeout)
            return self.version != version

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed, self.playing = True, False
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)
