"""What moved splats look like from one camera: one colour each, in place of harmonics that would have to turn along.

A splat that turns by R shows in direction d what it showed at rest in R^T d. Where a frame is seen by one camera only,
turning that direction costs a tenth of turning all harmonics, and what is drawn holds 3 numbers a splat, not 48.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32

from splatanim.rotations import SH_C0, sh_basis


def seen_colours(
    sh: Float32[np.ndarray, "n k 3"],
    gradients: Float[np.ndarray, "n 3 3"],
    means: Float[np.ndarray, "n 3"],
    eye: Float[np.ndarray, " 3"],
) -> Float32[np.ndarray, "n 1 3"]:
    """Constant harmonics that show from ``eye`` what ``sh``, turned by the polar rotations of ``gradients``, would.

    ``means`` are the splats' places now, in the coordinates of ``eye``.
    """
    from splatanim.render._colours import turned_colours

    if sh.shape[1] == 1:
        return sh
    out = np.empty((len(sh), 1, 3), np.float32)
    hard = np.zeros(len(sh), bool)
    gradients = np.ascontiguousarray(gradients, np.float64)
    means = np.ascontiguousarray(means, np.float64)
    eye = np.asarray(eye, np.float64)
    turned_colours(gradients, means, np.ascontiguousarray(sh), eye, out, hard)
    if hard.any():  # squashed flat, or not finite
        out[hard] = _reference(sh[hard], gradients[hard], means[hard], eye)
    return out


def _reference(sh: np.ndarray, gradients: np.ndarray, means: np.ndarray, eye: np.ndarray) -> np.ndarray:
    """As :func:`seen_colours`, by SVD in NumPy; the nearest rotation is one even where F turns space over."""
    from splatanim.rig.affine import polar_rotations

    finite = np.isfinite(gradients).all(axis=(1, 2))
    turns = polar_rotations(np.where(finite[:, None, None], gradients, np.eye(3)))
    away = means - eye
    local = np.einsum("nrc,nr->nc", turns, away / np.linalg.norm(away, axis=1, keepdims=True))
    basis = sh_basis(local, round(sh.shape[1] ** 0.5) - 1)
    return np.einsum("nk,nkc->nc", basis, sh)[:, None].astype(np.float32) / np.float32(SH_C0)
