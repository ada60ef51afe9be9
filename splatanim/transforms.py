"""Maps of splats: the exact push-forward under local affine maps (eq. 27, 28), and posing by handles.

A Gaussian under x -> A x + t is again a Gaussian, mean A mu + t and covariance A Sigma A^T; here the covariance is
factored back into a rotation with determinant +1 and principal scales, and the harmonics turn with the polar rotation
of A, so that a rotated splat looks from everywhere as the rotated original did (the paper leaves them at rest).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from splatanim.binding import Handles
from splatanim.data import Frame, Splats
from splatanim.rotations import sh_tables

_CHUNK = 16384


def push_forward(splats: Splats, gradients: Float[np.ndarray, "n 3 3"], means: Float[np.ndarray, "n 3"]) -> Splats:
    """Splats moved to ``means`` (file units) under local linear maps A (N, 3, 3): Sigma' = A Sigma A^T exactly.

    Opacities and extras are kept; harmonics are rotated by the polar rotation of A.
    """
    from splatanim._pushforward import push_forward_kernel

    quaternions = np.empty((len(splats), 4), np.float32)
    log_scales = np.empty((len(splats), 3), np.float32)
    sh = np.array(splats.sh, np.float32)
    push_forward_kernel(
        np.ascontiguousarray(gradients, np.float64),
        splats.quaternions,
        splats.log_scales,
        sh,
        sh_tables(),
        quaternions,
        log_scales,
    )
    return splats.replace(means=np.asarray(means, np.float32), quaternions=quaternions, log_scales=log_scales, sh=sh)


def transform(splats: Splats, matrix: Float[np.ndarray, "3 4"]) -> Splats:
    """Splats under one affine map [A | t] of file coordinates (of ``means``; ``offset`` is kept)."""
    matrix = np.asarray(matrix, np.float64)
    means = splats.means @ matrix[:, :3].T + matrix[:, 3]
    return push_forward(splats, np.broadcast_to(matrix[:, :3], (len(splats), 3, 3)), means)


@dataclass(frozen=True)
class BoundSplats:
    """Splats with the weights of every handle at their rest centres: all that posing needs.

    ``rest`` are the centres in simulator units; ``weights`` (N, h) and ``slopes`` (N, h, 3) the handles' weights and
    their gradients. ``weight_gradients`` says which Jacobian pushes covariances forward: True is the full deformation
    gradient F, what the map does to a small Gaussian; False is eq. 27 to the letter, which freezes each weight over
    its splat, so that splats do not follow the stretch and bend which the varying weights themselves cause.
    ``parents`` (N,) is None while every row is a splat of the capture; after :mod:`splatanim.splitting` it says which
    splat of the capture each row is a piece of.
    """

    splats: Splats
    frame: Frame
    rest: Float32[np.ndarray, "n 3"]
    weights: Float32[np.ndarray, "n h"]
    slopes: Float32[np.ndarray, "n h 3"]
    weight_gradients: bool = True
    parents: Int64[np.ndarray, " n"] | None = None


def bind_splats(splats: Splats, frame: Frame, handles: Handles, *, weight_gradients: bool = True) -> BoundSplats:
    """Evaluate the handles at the splats' rest centres, once."""
    n = len(splats)
    rest = np.empty((n, 3), np.float32)
    weights = np.empty((n, len(handles)), np.float32)
    slopes = np.empty((n, len(handles), 3), np.float32)
    for start in range(0, n, _CHUNK):
        rows = slice(start, start + _CHUNK)
        rest[rows] = frame.to_sim(splats.means[rows])
        weights[rows], slopes[rows] = handles.evaluate(rest[rows])
    return BoundSplats(splats, frame, rest, weights, slopes, weight_gradients)


def deform(
    bound: BoundSplats, handles: Float[np.ndarray, "h 3 4"]
) -> tuple[Float64[np.ndarray, "n 3"], Float64[np.ndarray, "n 3 3"]]:
    """Posed centres in file units, and the deformation gradients there, for affine displacements Z of the handles."""
    from splatanim._pushforward import deform_kernel

    n = len(bound.rest)
    means, gradients = np.empty((n, 3)), np.empty((n, 3, 3))
    z = np.ascontiguousarray(handles, np.float64)
    deform_kernel(
        bound.rest, bound.weights, bound.slopes, z, bound.frame.scale, bound.weight_gradients, means, gradients
    )
    means += np.asarray(bound.frame.centre)
    return means, gradients


def pose(bound: BoundSplats, handles: Float[np.ndarray, "h 3 4"]) -> Splats:
    """The splats under affine displacements Z of the handles (eq. 27, 28): one frame."""
    means, gradients = deform(bound, handles)
    return push_forward(bound.splats, gradients, means)


def merge(*parts: Splats) -> Splats:
    """Several sets of splats as one; harmonics are padded to the highest degree, extras kept where all have them."""
    coefficients = max(part.sh.shape[1] for part in parts)
    offset = np.asarray(parts[0].offset)
    padded = [np.pad(p.sh, ((0, 0), (0, coefficients - p.sh.shape[1]), (0, 0))) for p in parts]
    shared = set.intersection(*(set(p.extras) for p in parts))
    return Splats(
        np.concatenate([(p.means + (np.asarray(p.offset) - offset)).astype(np.float32) for p in parts]),
        np.concatenate([p.quaternions for p in parts]),
        np.concatenate([p.log_scales for p in parts]),
        np.concatenate([p.raw_opacities for p in parts]),
        np.concatenate(padded),
        parts[0].offset,
        {name: np.concatenate([p.extras[name] for p in parts]) for name in sorted(shared)},
    )
