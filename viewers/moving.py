"""What a viewer shows: clouds of splats that move, a readout, and the controls that everything has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, Float32

from splatanim.data import Frame


@dataclass(frozen=True)
class Cloud:
    """What is drawn of one thing, in the viewer's coordinates: metres in the simulator's frame."""

    means: Float32[np.ndarray, "n 3"]
    covariances: Float32[np.ndarray, "n 3 3"]
    rgbs: Float32[np.ndarray, "n 3"]
    opacities: Float32[np.ndarray, " n"]


@dataclass(frozen=True)
class Readout:
    """Numbers of the running motion: ``time`` [s] in it, cost and iterations of the last step, energies [J] of all;
    ``error`` is what stopped it, "" while all is well."""

    time: float
    ms_per_step: float
    newton: int
    converged: bool
    steps_per_second: float
    kinetic: float
    elastic: float
    error: str = ""


class Moving(Protocol):
    """Whatever the viewer shows. ``version`` grows whenever the picture changed; all methods are thread-safe."""

    up: Float[np.ndarray, " 3"]
    low: Float[np.ndarray, " 3"]
    high: Float[np.ndarray, " 3"]
    file_frame: Frame
    version: int
    playing: bool
    speed: float
    error: str

    @property
    def names(self) -> tuple[str, ...]: ...

    def clouds(self) -> tuple[Cloud, ...]: ...

    def readout(self) -> Readout: ...

    def play(self) -> None: ...

    def pause(self) -> None: ...

    def step(self) -> None: ...

    def reset(self) -> None: ...

    def wait_changed(self, version: int, timeout: float) -> bool: ...

    def close(self) -> None: ...
