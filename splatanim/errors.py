"""Errors that a user can act on."""

from __future__ import annotations

import importlib
from types import ModuleType


class InputError(ValueError):
    """Bad input. The message names what is wrong, where, the likely cause and the next step.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """


class OutputError(OSError):
    """An output could not be written. The message names the path and the next step."""


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or raise an :class:`InputError` that names the extra which brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} is needed for this but cannot be imported ({error}). "
            f'Install it with: pip install "splatanim[{extra}]"'
        ) from error
