"""The thread of a live engine: it empties a queue of actions between two steps, keeps time, and sleeps while idle."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from splatanim.errors import InputError
from splatanim.threads import one_blas_thread
from viewers.playing import Playing

_BEHIND = 0.25  # s: an engine that is later than that does not try to catch up
_PATIENCE = 30.0  # s that an action may wait for a step to end
_MEASURED = 0.1  # s between measurements of the energies


class LiveThread(Playing):
    """The controls of an engine; subclasses say what a step is.

    All changes go through :meth:`_do`, so that no lock is held while a step is computed and nothing changes during one.
    What goes wrong in the thread stops the playing and stands in ``error``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = Clock()
        self._queue: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # What subclasses provide

    def _advance(self) -> None:
        """Compute a step."""
        raise NotImplementedError

    def _publish(self) -> None:
        """Make the newest state what is drawn: :meth:`_show` it."""
        raise NotImplementedError

    def _resting(self) -> bool:
        """Whether steps would change nothing."""
        return False

    def _span(self) -> float:
        """The seconds of a step."""
        raise NotImplementedError

    # Controls

    def _restart_clock(self) -> None:
        self._clock.restart()

    def step(self) -> None:
        """One step; pauses."""
        self.pause()
        self._do(self._advance)

    # The thread

    def _do(self, action: Callable[[], None], wait: bool = True) -> None:
        """Have the thread run an action between two steps; wait until it has, or go on at once."""
        done = threading.Event()
        with self._changed:
            if self._closed:
                return
            self._queue.append((action, done))
            self._changed.notify_all()
        if wait:
            done.wait(_PATIENCE)

    def _show(self, set_state: Callable[[], None]) -> None:
        """Replace the state that is drawn, and wake who draws."""
        with self._changed:
            set_state()
            self.version += 1
            self._changed.notify_all()

    def _run(self) -> None:
        with one_blas_thread():
            while not self._closed:
                try:
                    self._turn()
                except Exception as error:  # shown in the readout; the viewer goes on
                    self._stop(error)

    def _turn(self) -> None:
        """Wait for something to do, and do it: what is queued, then a step if one is due."""
        with self._changed:
            while not self._closed and not self._queue:
                stepping = self.playing and not self._resting()
                wait = self._clock.until_due() if stepping else None
                if wait is not None and wait <= 0:
                    break
                self._changed.wait(wait)
            actions = list(self._queue)
            self._queue.clear()
        if actions:
            self._carry_out(actions)
        if self.playing and not self._closed and not self._resting() and self._clock.until_due() <= 0:
            self._clock.tick(self._span() / self._speed)
            self._advance()
            self._publish()

    def _carry_out(self, actions: list[tuple[Callable[[], None], threading.Event]]) -> None:
        """Every action, then the new state; whoever waits goes on when the error, if there was one, can be read."""
        try:
            for action, _ in actions:
                try:
                    action()
                except Exception as error:
                    self._stop(error)
            self._publish()
        except Exception as error:
            self._stop(error)
        finally:
            for _, done in actions:
                done.set()

    def _stop(self, error: Exception) -> None:
        """Pause, and say why."""
        if not isinstance(error, InputError):
            traceback.print_exception(error, file=sys.stderr)
        with self._changed:
            self.error = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            self.playing = False
            self.version += 1
            self._changed.notify_all()


class Clock:
    """When the next step is due, what steps cost (``seconds``, smoothed) and how many come a second (``rate``)."""

    def __init__(self) -> None:
        self.seconds, self.rate = 0.0, 0.0
        self._due, self._measured = 0.0, 0.0
        self._recent: deque[float] = deque(maxlen=60)

    def restart(self) -> None:
        """The next step is due now."""
        self._due = time.monotonic()
        self._recent.clear()

    def until_due(self) -> float:
        """Seconds until the next step is due; negative where it is late."""
        return self._due - time.monotonic()

    def tick(self, span: float) -> None:
        """A step begins that stands for ``span`` seconds of wall time."""
        now = time.monotonic()
        self._due = max(self._due + span, now - _BEHIND)
        self._recent.append(now)
        if len(self._recent) > 1:
            self.rate = (len(self._recent) - 1) / max(now - self._recent[0], 1e-9)

    def took(self, seconds: float) -> None:
        """A step has taken so long."""
        self.seconds = seconds if self.seconds == 0 else 0.9 * self.seconds + 0.1 * seconds

    def measure_due(self) -> bool:
        """Whether something that need not be measured at every step should be now."""
        now = time.monotonic()
        due = now - self._measured >= _MEASURED
        if due:
            self._measured = now
        return due
