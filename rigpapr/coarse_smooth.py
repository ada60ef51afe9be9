"""All frames of a clip together: what each frame measures, and that nothing moves in jerks.

Every frame has its own normal equations (H_t, g_t) about its pose. With x_i(t) the places of sample points and J_i(t)
their derivatives, the steps d_t minimise

    sum_t ( d_t^T H_t d_t / 2 - g_t^T d_t ) + sum_t v / (2 n a^2) sum_i | x_i(t-1) - 2 x_i(t) + x_i(t+1) |^2

to first order: a block-banded system over the clip. Errors of depth maps differ from frame to frame, and a hidden limb
shows before and after, so both average out; what a frame sees well stays, since its H_t is large there.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from rigpapr.coarse_kinematics import JointPose, jacobian, skinned, transforms
from rigpapr.coarse_terms import Problem
from splatanim.errors import InputError

_SAMPLE = 250
_KERNEL = ((-1, 1.0), (0, -2.0), (1, 1.0))


def smoothed(
    problem: Problem,
    poses: list[JointPose],
    systems: list[tuple[Float64[np.ndarray, "p p"], Float64[np.ndarray, " p"]]],
) -> list[JointPose]:
    """One Gauss-Newton step of all poses but the first, which is at rest. ``systems``: (H, g) of frames 1, 2, ..."""
    from scipy.linalg import solveh_banded

    active, frames = np.flatnonzero(problem.active), len(poses)
    count = len(active)
    total = (frames - 1) * count
    band = np.zeros((min(3 * count, total), total))  # lower: band[i - j, j]
    right = np.zeros(total)
    for frame, (matrix, pull) in enumerate(systems, 1):
        at = (frame - 1) * count
        block = matrix[np.ix_(active, active)].copy()
        block[np.diag_indices(count)] += problem.config.damping * np.diag(block) + 1.0
        _add_block(band, block, at, at)
        right[at : at + count] += pull[active]
    _add_accelerations(problem, poses, active, band, right)
    try:
        steps = solveh_banded(band, right, lower=True, overwrite_ab=True, overwrite_b=True).reshape(-1, count)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise InputError(
            f"coarse tracker: the clip's equations cannot be solved ({error}). Check depth maps and masks."
        ) from error
    out = [poses[0]]
    for pose, step in zip(poses[1:], steps, strict=True):
        full = np.zeros(len(problem.active))
        full[active] = step
        out.append(pose.stepped(full))
    return out


def _add_accelerations(
    problem: Problem, poses: list[JointPose], active: np.ndarray, band: np.ndarray, right: np.ndarray
) -> None:
    """Second differences of sample points, one vote a joint."""
    c, count = problem.config, len(active)
    rows = problem.pick(np.arange(len(problem.surface.points)), _SAMPLE)
    points, skin = problem.surface.points[rows], problem.surface.skin[rows]
    places, slopes = [], []
    for pose in poses:
        maps = transforms(problem.rig, pose)
        places.append(skinned(points, skin, maps)[0].ravel())
        slope = jacobian(problem.rig, problem.below, points, skin, maps)
        slopes.append(slope.reshape(len(rows) * 3, -1)[:, active])
    weight = len(problem.rig) / (len(rows) * (c.jerk * problem.size) ** 2)
    for frame in range(1, len(poses) - 1):
        terms = [(frame + by, share) for by, share in _KERNEL]
        off = sum(share * places[k] for k, share in terms)
        moving = [(k, share) for k, share in terms if k > 0]
        for k, share in moving:
            at = (k - 1) * count
            right[at : at + count] -= weight * share * (slopes[k].T @ off)
            for other, more in moving:
                if other <= k:
                    block = (weight * share * more) * (slopes[k].T @ slopes[other])
                    _add_block(band, block, at, (other - 1) * count)


def _add_block(band: np.ndarray, block: np.ndarray, row: int, column: int) -> None:
    """Add a block at (row, column) of the lower triangle to the banded storage."""
    count = len(block)
    i, j = np.indices((count, count))
    apart = row + i - column - j
    taken = apart >= 0
    np.add.at(band, (apart[taken], (column + j)[taken]), block[taken])
