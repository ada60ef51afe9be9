"""Clips: keyframes of joints' local transforms, sampled as glTF 2.0 says (section 3.11 and appendix C).

Before the first key a channel holds its first value, after the last one its last. ``LINEAR`` rotations go the short
way round on the sphere; a ``CUBICSPLINE`` value has an in-tangent and an out-tangent beside it, in units a second:

    p(t) = (2 s^3 - 3 s^2 + 1) v_k + d (s^3 - 2 s^2 + s) out_k + (-2 s^3 + 3 s^2) v_k+1 + d (s^3 - s^2) in_k+1

with d = t_k+1 - t_k and s = (t - t_k) / d; rotations are normalised afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError
from splatanim.rig.affine import slerp
from splatanim.rig.skeleton import Pose

Path = Literal["translation", "rotation", "scale"]
Interpolation = Literal["LINEAR", "STEP", "CUBICSPLINE"]

WIDTH: dict[str, int] = {"translation": 3, "rotation": 4, "scale": 3}


@dataclass(frozen=True)
class Channel:
    """One property of one joint over time.

    ``times`` (k,) in seconds, rising; ``values`` (k, d), or (k, 3, d) for CUBICSPLINE: in-tangent, value, out-tangent.
    Rotations are wxyz.
    """

    joint: int
    path: Path
    times: Float64[np.ndarray, " k"]
    values: Float64[np.ndarray, "v *d"]
    interpolation: Interpolation = "LINEAR"

    def __post_init__(self) -> None:
        wanted = (3, WIDTH[self.path]) if self.interpolation == "CUBICSPLINE" else (WIDTH[self.path],)
        if self.values.shape[1:] != wanted:
            raise InputError(f"Animation: {self.path} keys have shape {self.values.shape[1:]}; {wanted} is needed.")
        if not len(self.times) or len(self.times) != len(self.values):
            raise InputError(f"Animation: {len(self.times)} times for {len(self.values)} keys of {self.path}.")
        if not np.isfinite(self.times).all() or (np.diff(self.times) < 0).any():
            raise InputError(f"Animation: the times of a {self.path} channel do not rise. Export the clip again.")
        if not np.isfinite(self.values).all():
            raise InputError(f"Animation: a {self.path} channel has keys that are NaN or infinite.")

    def sample(self, times: Float64[np.ndarray, " t"]) -> Float64[np.ndarray, "t d"]:
        """Values at the given times [s]."""
        keys = self.values[:, 1] if self.interpolation == "CUBICSPLINE" else self.values
        if self.path == "rotation" and self.interpolation != "CUBICSPLINE":
            keys = keys / np.maximum(np.linalg.norm(keys, axis=-1, keepdims=True), 1e-30)
        k = np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, len(self.times) - 1)
        if self.interpolation == "STEP" or len(self.times) == 1:
            return _unit(keys[k]) if self.path == "rotation" else keys[k]
        k = np.minimum(k, len(self.times) - 2)
        gap = (self.times[k + 1] - self.times[k])[:, None]
        s = np.clip((times[:, None] - self.times[k][:, None]) / np.where(gap > 0, gap, 1.0), 0.0, 1.0)
        if self.interpolation == "LINEAR":
            if self.path == "rotation":
                return slerp(keys[k], keys[k + 1], s)
            return (1.0 - s) * keys[k] + s * keys[k + 1]
        before, after = self.values[k, 2], self.values[k + 1, 0]
        out = (2 * s**3 - 3 * s**2 + 1) * keys[k] + gap * (s**3 - 2 * s**2 + s) * before
        out = out + (3 * s**2 - 2 * s**3) * keys[k + 1] + gap * (s**3 - s**2) * after
        return _unit(out) if self.path == "rotation" else out


def _unit(q: np.ndarray) -> np.ndarray:
    return q / np.maximum(np.linalg.norm(q, axis=-1, keepdims=True), 1e-30)


@dataclass(frozen=True)
class Animation:
    """A clip on a skeleton's joints; what no channel moves stays as in ``rest``."""

    name: str
    rest: Pose
    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        for channel in self.channels:
            if not 0 <= channel.joint < len(self.rest.rotations):
                raise InputError(
                    f"Animation {self.name!r}: a channel moves joint {channel.joint} of {len(self.rest.rotations)}."
                )

    @property
    def start(self) -> float:
        """The first key [s]."""
        return min((float(c.times[0]) for c in self.channels), default=0.0)

    @property
    def end(self) -> float:
        """The last key [s]."""
        return max((float(c.times[-1]) for c in self.channels), default=0.0)

    @property
    def duration(self) -> float:
        return self.end - self.start

    def sample(self, times: float | Float64[np.ndarray, " t"]) -> Pose:
        """The pose at a time [s], or the poses (t, j, ...) at an array of times."""
        if np.ndim(times) == 0:
            return self.sample(np.array([float(times)]))[0]
        times = np.asarray(times, np.float64)
        parts = {
            "translation": self._still(self.rest.translations, len(times)),
            "rotation": self._still(self.rest.rotations, len(times)),
            "scale": self._still(self.rest.scales, len(times)),
        }
        for channel in self.channels:
            parts[channel.path][:, channel.joint] = channel.sample(times)
        return Pose(parts["translation"], parts["rotation"], parts["scale"])

    @staticmethod
    def _still(values: np.ndarray, count: int) -> np.ndarray:
        return np.repeat(values[None], count, axis=0)


def animation_from_poses(name: str, rest: Pose, times: Float64[np.ndarray, " t"], poses: Pose) -> Animation:
    """A clip with a key for every joint at every time; properties that never leave the rest pose get no channel."""
    channels = []
    paths: tuple[tuple[Path, np.ndarray, np.ndarray], ...] = (
        ("translation", poses.translations, rest.translations),
        ("rotation", poses.rotations, rest.rotations),
        ("scale", poses.scales, rest.scales),
    )
    for path, moved, still in paths:
        reach = 1e-9 * max(1.0, float(np.abs(still).max()))
        for joint in np.flatnonzero((np.abs(moved - still) > reach).any(axis=(0, 2))):
            values = _continuous(moved[:, joint]) if path == "rotation" else moved[:, joint].copy()
            channels.append(Channel(int(joint), path, np.asarray(times, np.float64), values))
    return Animation(name, rest, tuple(channels))


def _continuous(q: np.ndarray) -> np.ndarray:
    """Quaternions of either sign, each on the side of the one before."""
    flips = np.where((q[1:] * q[:-1]).sum(axis=1) < 0, -1.0, 1.0)
    return q * np.concatenate([[1.0], np.cumprod(flips)])[:, None]
