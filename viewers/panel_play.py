"""The panel that everything has: play, pause, step, reset, speed, the readout, and the timeline of what is played."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from viewers.controls import on_change, on_click, put
from viewers.moving import Moving, Readout
from viewers.player import Player

if TYPE_CHECKING:
    import viser

    from viewers.stage import Stage

SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")


class PlayPanel:
    """Buttons, the readout, and for finished frames a timeline."""

    def __init__(self, gui: viser.GuiApi, moving: Moving, stage: Stage) -> None:
        self._moving, self._stage = moving, stage
        self._count, self._since = 0, time.monotonic()
        self._rate = 0.0
        self.toggle = gui.add_button("Play", hint="Start or stop the motion")
        on_click(self.toggle, lambda _client: self._toggle())
        self.buttons = gui.add_button_group("", ("Step", "Reset"))
        on_click(self.buttons, lambda _client: self._press())
        self.speed = gui.add_dropdown("Speed", SPEEDS, initial_value="1", hint="Times the true speed")
        on_change(self.speed, self._set_speed)
        self.timeline: Any = None
        if isinstance(moving, Player) and moving.frames > 1:
            self.timeline = gui.add_slider("Frame", 0, moving.frames - 1, 1, moving.frame)
            on_change(self.timeline, self._scrub)
        self.readout = gui.add_markdown("")
        self.refresh()

    def refresh(self) -> None:
        playing = self._moving.playing
        _assign(self.toggle, "label", "Pause" if playing else "Play")
        if self.timeline is not None:
            put(self.timeline, self._moving.frame)  # type: ignore[attr-defined]
        now, drawn = time.monotonic(), self._stage.drawn
        if now - self._since >= 0.9:
            self._rate = (drawn - self._count) / (now - self._since)
            self._count, self._since = drawn, now
        solved = not isinstance(self._moving, Player)
        text = readout_text(self._moving.readout(), self._rate if playing else 0.0, self._moving.error, solved)
        _assign(self.readout, "content", text)

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _toggle(self) -> None:
        if self._moving.playing:
            self._moving.pause()
        else:
            self._moving.play()
        self.refresh()

    def _press(self) -> None:
        if self.buttons.value == "Step":
            self._moving.step()
        else:
            self._moving.reset()
        self.refresh()

    def _set_speed(self) -> None:
        self._moving.speed = float(self.speed.value)

    def _scrub(self) -> None:
        self._moving.pause()
        self._moving.frame = int(self.timeline.value)  # type: ignore[attr-defined]


def readout_text(readout: Readout, drawn: float, error: str, solved: bool) -> str:
    """The numbers under the buttons, as markdown."""
    rows = [f"time **{readout.time:.2f} s**", f"drawn **{drawn:.0f}** a second"]
    if solved:
        rows += [
            f"step **{readout.ms_per_step:.1f} ms**, **{readout.steps_per_second:.0f}** a second",
            f"Newton **{readout.newton}** iterations{'' if readout.converged else ', not converged'}",
            f"energy **{readout.kinetic:.3g} J** kinetic, **{readout.elastic:.3g} J** elastic",
        ]
    if error:
        rows.append(f"**stopped:** {error}")
    return "  \n".join(rows)


def _assign(handle: Any, name: str, value: str) -> None:
    """Set only what differs: nothing is sent where nothing changes."""
    if getattr(handle, name) != value:
        setattr(handle, name, value)
