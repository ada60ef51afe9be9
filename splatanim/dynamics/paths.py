"""Prescribed motions as functions of time: keyframes, oscillation and spin of a rigid frame."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.scene_parts import Motion


def path_of(motion: Motion, centre: Float64[np.ndarray, " 3"]) -> Callable[[float], np.ndarray]:
    """t [s] -> the affine displacement Z (3, 4) of a motion: x = R (X - c) + c + m, with c its centre or ``centre``.

    R = R_turn R_rock R_spin: the keyframes' rotation is applied last. Rotation vectors are interpolated by component,
    so that whole turns about one axis are possible.
    """
    from scipy.spatial.transform import Rotation

    about = np.asarray(centre if motion.centre is None else motion.centre, np.float64)

    def displacement(time: float) -> np.ndarray:
        move, turn = _keyframed(motion, time)
        wave = _wave(motion, time)
        spun = np.asarray(motion.spin) * (np.clip(time, motion.start, motion.stop) - motion.start)
        linear = np.eye(3)
        for vector in (turn, wave * np.asarray(motion.rock), spun):
            if np.any(vector):
                linear = linear @ Rotation.from_rotvec(np.radians(vector)).as_matrix()
        linear = linear - np.eye(3)
        shift = move + wave * np.asarray(motion.sway) - linear @ about
        return np.concatenate([linear, shift[:, None]], axis=1)

    return displacement


def _keyframed(motion: Motion, time: float) -> tuple[np.ndarray, np.ndarray]:
    """Displacement [m] and rotation vector [degrees] at a time; constant before the first and after the last key."""
    if not motion.times:
        return np.zeros(3), np.zeros(3)
    k = int(np.clip(np.searchsorted(motion.times, time, side="right") - 1, 0, max(len(motion.times) - 2, 0)))
    last = min(k + 1, len(motion.times) - 1)
    span = motion.times[last] - motion.times[k]
    t = float(np.clip((time - motion.times[k]) / span, 0.0, 1.0)) if span > 0 else 1.0
    if motion.ease == "smooth":
        t = t * t * (3.0 - 2.0 * t)
    out = []
    for keys in (motion.move, motion.turn):
        frames = np.asarray(keys, np.float64) if keys else np.zeros((len(motion.times), 3))
        out.append((1.0 - t) * frames[k] + t * frames[last])
    return out[0], out[1]


def _wave(motion: Motion, time: float) -> float:
    """sin(2 pi f t) from ``start`` to ``stop``, grown over the first and faded over the last period."""
    since, left = time - motion.start, motion.stop - time
    if since <= 0 or left <= 0:
        return 0.0
    grown, faded = min(since * motion.frequency, 1.0), min(left * motion.frequency, 1.0)
    return float(np.sin(2.0 * np.pi * motion.frequency * since)) * grown * faded
