"""What ``splatanim convert`` does to splats between reading and writing: crop, move, clean, thin."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatanim.data import Splats
from splatanim.errors import InputError


def placement_of(transform: str | None, scale: float, rotate: str, translate: str) -> np.ndarray:
    """--transform, --scale, --rotate and --translate as one matrix (4, 4)."""
    from scipy.spatial.transform import Rotation

    if not (np.isfinite(scale) and scale > 0):
        raise InputError(f"--scale {scale}: a positive number is needed.")
    turn = Rotation.from_euler("xyz", numbers(rotate, 3, "--rotate"), degrees=True).as_matrix()
    move = np.eye(4)
    move[:3, :3] = scale * turn
    move[:3, 3] = numbers(translate, 3, "--translate")
    return move if transform is None else move @ _matrix(transform)


def _matrix(text: str) -> np.ndarray:
    path = Path(text)
    if path.suffix and path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
    words = text.replace(",", " ").split()
    values = numbers(",".join(words), 16 if len(words) == 16 else 12, "--transform")
    matrix = np.eye(4)
    matrix[: len(values) // 4] = values.reshape(-1, 4)
    if len(values) == 16 and not np.allclose(matrix[3], [0, 0, 0, 1]):
        raise InputError("--transform: the last row must be 0 0 0 1. Give the matrix row by row.")
    if not abs(np.linalg.det(matrix[:3, :3])) > 1e-12:
        raise InputError("--transform: the matrix flattens space (its determinant is 0).")
    return matrix


def numbers(text: str, count: int, option: str) -> np.ndarray:
    """``1,2,3`` -> an array of ``count`` finite numbers; :class:`InputError` names the option."""
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.empty(0)
    if len(values) != count or not np.isfinite(values).all():
        raise InputError(f"{option} {text!r}: {count} numbers with commas between them are needed.")
    return values


def cropped(splats: Splats, box: str | None) -> Splats:
    """The splats whose centres lie in a box ``x0,y0,z0,x1,y1,z1`` of file coordinates."""
    if box is None:
        return splats
    corners = numbers(box, 6, "--crop").reshape(2, 3)
    centres = splats.means.astype(np.float64) + splats.offset
    inside = ((centres >= corners.min(axis=0)) & (centres <= corners.max(axis=0))).all(axis=1)
    if not inside.any():
        raise InputError(f"--crop {box}: no splat has its centre in this box; they fill {box_of(centres)}.")
    return splats.select(inside)


def thinned(splats: Splats, count: int | None) -> Splats:
    """The ``count`` splats that cover most (opacity times the area of the two longer axes), in their order."""
    if count is None or count >= len(splats):
        return splats
    area = np.sort(splats.log_scales, axis=1)[:, 1:].sum(axis=1)
    cover = splats.opacities * np.exp(area - area.max())
    return splats.select(np.sort(np.argsort(-cover, kind="stable")[:count]))


def moved_splats(splats: Splats, matrix: np.ndarray) -> Splats:
    """Splats under an affine map of file coordinates; the offset goes along, so that no digits are lost."""
    from splatanim.transforms import transform

    if np.allclose(matrix, np.eye(4), atol=0.0):
        return splats
    linear = np.concatenate([matrix[:3, :3], np.zeros((3, 1))], axis=1)
    moved = transform(splats, linear)
    shift = matrix[:3, :3] @ np.asarray(splats.offset) + matrix[:3, 3]
    if np.abs(shift).max() < 100.0 * max(float(np.ptp(moved.means, axis=0).max()), 1e-9):
        return moved.replace(means=(moved.means.astype(np.float64) + shift).astype(np.float32), offset=(0.0, 0.0, 0.0))
    return moved.replace(offset=tuple(shift.tolist()))


def without_floaters(splats: Splats) -> tuple[Splats, str]:
    """The splats of the object alone (:func:`splatanim.inspect.floater_mask`), and what was left out, in words."""
    from splatanim.inspect import floater_mask

    floaters = floater_mask(splats)
    return (splats.select(~floaters) if floaters.any() else splats), f"{floaters.sum()} floaters were left out."


def capped_needles(splats: Splats) -> tuple[Splats, str]:
    """Needles shortened until they are none (:func:`splatanim.inspect.needle_mask`), and how many, in words.

    A needle keeps its two shorter axes; its longest becomes the larger of the two limits that make it a needle: a
    share of the object's size, and a multiple of its breadth.
    """
    from splatanim.inspect import NEEDLE_ASPECT, NEEDLE_LENGTH, needle_mask, robust_bounds

    low, high = robust_bounds(splats)
    size = float((high - low).max())
    needles = np.flatnonzero(needle_mask(splats, size))
    log_scales = splats.log_scales.copy()
    rows = log_scales[needles]
    longest, breadth = rows.argmax(axis=1), np.sort(rows, axis=1)[:, 1]
    limit = np.maximum(np.log(NEEDLE_LENGTH * max(size, 1e-30)), breadth + np.log(NEEDLE_ASPECT))
    log_scales[needles, longest] = limit - 1e-6
    return splats.replace(log_scales=log_scales), f"{len(needles)} needles were shortened."


def box_of(points: np.ndarray) -> str:
    low, high = points.min(axis=0), points.max(axis=0)
    return f"{' '.join(f'{v:.3g}' for v in low)} to {' '.join(f'{v:.3g}' for v in high)}"


def turned_axis(up: str, matrix: np.ndarray) -> str:
    """The axis that the up direction lies nearest to afterwards."""
    from splatanim.inspect import up_vector

    direction = matrix[:3, :3] @ np.asarray(up_vector(up))
    axis = int(np.argmax(np.abs(direction)))
    return f"{'+' if direction[axis] > 0 else '-'}{'xyz'[axis]}"
