"""Widgets bound to actions, with whatever goes wrong told to the browser that asked for it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from splatanim.errors import InputError, OutputError

if TYPE_CHECKING:
    import viser

Action = Callable[[], Any]
_SHOWN_SECONDS = 12.0


class Panel(Protocol):
    """A part of the control panel."""

    def refresh(self) -> None:
        """Called some times a second while something changes: bring the widgets up to date."""

    def client_left(self, client: int) -> None:
        """A browser has gone: let go of what it held."""


def attempt(action: Action, client: viser.ClientHandle | None) -> Any:
    """Run an action; errors become a notification in the browser (and, where they are ours, a traceback on stderr)."""
    try:
        return action()
    except (InputError, OutputError) as error:
        notify(client, "Not done", str(error), "red")
    except Exception as error:  # a viewer that many look at goes on
        traceback.print_exc(file=sys.stderr)
        notify(client, "Not done", f"{type(error).__name__}: {error}", "red")
    return None


def notify(client: viser.ClientHandle | None, title: str, text: str, colour: Literal["red", "green"] = "green") -> None:
    """A notification in one browser; without one, a line on stderr."""
    if client is None:
        print(f"splatanim view: {title}: {text}", file=sys.stderr)
        return
    client.add_notification(title, text, auto_close_seconds=_SHOWN_SECONDS, color=colour)


def on_change(widget: Any, action: Action) -> None:
    """Call ``action`` when a browser changes the widget, in the order of the changes; it must be quick.

    Changes that the program makes itself are left out.
    """

    @widget.on_update
    async def _(event: viser.GuiEvent) -> None:
        if event.client is not None:
            attempt(action, event.client)


def on_click(button: Any, action: Callable[[viser.ClientHandle | None], Any]) -> None:
    """Call ``action`` with the browser that pressed the button, in a thread of its own: it may take its time."""

    @button.on_click
    def _(event: viser.GuiEvent) -> None:
        attempt(lambda: action(event.client), event.client)


def put(widget: Any, value: Any) -> None:
    """Set a widget's value where it differs: nothing is sent where nothing changes."""
    if widget.value != value:
        widget.value = value
