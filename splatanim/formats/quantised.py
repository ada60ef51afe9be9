"""Pieces that several compressed formats share."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32, Int


def smallest_three(three: Float[np.ndarray, "n 3"], largest: Int[np.ndarray, " n"]) -> Float32[np.ndarray, "n 4"]:
    """Quaternions from all components but the largest, which is what makes them unit length, and positive.

    ``three`` are the others in order, ``largest`` the index of the missing one.
    """
    missing = np.sqrt(np.maximum(1.0 - np.square(three, dtype=np.float64).sum(axis=1), 0.0))
    # Column k of the result comes from column k of (missing, three) after the largest moved to its place.
    source = np.array([[0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 0, 3], [1, 2, 3, 0]])[largest]
    return np.take_along_axis(np.concatenate([missing[:, None], three], axis=1), source, axis=1).astype(np.float32)


def three_of(quaternions: Float[np.ndarray, "n 4"]) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, " n"]]:
    """The inverse: unit quaternions as their three smaller components (of the sign that makes the largest positive)
    and the index of the largest."""
    largest = np.abs(quaternions).argmax(axis=1)
    rows = np.arange(len(quaternions))
    signed = quaternions * np.where(quaternions[rows, largest] < 0, -1, 1)[:, None].astype(quaternions.dtype)
    others = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])[largest]
    return np.take_along_axis(signed, others, axis=1), largest
