"""Seeded sample objects as splats, made by procedure: something to animate before the first capture is at hand.

They follow the conventions of real captures: y points down, the front looks along minus z, the longest side is 1,
and the object stands on its base at y = 0.
"""

from __future__ import annotations

import difflib
import importlib

from splatanim.data import Splats
from splatanim.errors import InputError

_NAMES = ("jelly", "octopus", "plant", "plush")


def sample_names() -> tuple[str, ...]:
    """Names that :func:`make_sample` knows."""
    return _NAMES


def make_sample(name: str, *, seed: int = 0) -> Splats:
    """A sample object of 20,000 to 60,000 splats. The same seed gives the same splats, bit by bit; others vary it.

    ``jelly``: a moulded fruit jelly; ``octopus``: a cuddly octopus; ``plant``: a potted plant; ``plush``: a teddy bear.

    Raises :class:`InputError` for an unknown name.
    """
    if name not in _NAMES:
        close = difflib.get_close_matches(name.lower(), _NAMES, 1, 0.4)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise InputError(f"There is no sample named {name!r}.{hint} Samples: {', '.join(_NAMES)}.")
    return importlib.import_module(f"splatanim.samples.{name}").make(seed)
