"""Progress on the terminal: bars and spinners on stderr, nothing at all where it is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Progress:
    """Shows what is going on. ``enabled`` None means: only on a terminal."""

    def __init__(self, enabled: bool | None = False) -> None:
        self.enabled = sys.stderr.isatty() if enabled is None else enabled

    @contextmanager
    def spinner(self, text: str) -> Iterator[None]:
        if not self.enabled:
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(text):
            yield

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar with an estimate of the time left; call what it yields once per finished item."""
        if not self.enabled or total < 1:
            yield lambda: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(text, total=total)
            yield lambda: bars.advance(task)
