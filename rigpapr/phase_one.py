"""Phase 1 of the fit: every frame's pose, one after the other (RigPAPR 3.4).

As published, Adam descends on the frame's loss from the pose of the frame before (``chain``) or from a given motion.
``direct`` does better in less time: the coarse tracker goes on from the poses found so far, direct alignment
(:mod:`rigpapr.direct`) takes its pose to where the cloud's picture is nearest to the frame, and where that stays
farther off than it was in the frames before, other poses of single limbs are tried (:mod:`rigpapr.coarse_limbs`). At
the end all frames are aligned together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rigpapr.cloud import OBJECT_SIZE
from rigpapr.coarse_kinematics import JointPose, log_rotations
from rigpapr.coarse_limbs import LimbSearch
from rigpapr.coarse_tracker import Tracker
from rigpapr.direct import Aligner
from rigpapr.losses import rotation_loss
from rigpapr.two_phase import Fit, Report
from rigpapr.two_phase_batch import near_subject
from rigpapr.two_phase_terms import cosine, depth_loss, picture_loss
from rigpapr.two_phase_trust import accepted, depth_hold, depths
from splatanim.rig.differentiable import rotation_vectors_to_rotations

_NOISE = 1e-3  # gradients below count as noise
_SHIFT_RATE = 0.05  # of the turns' rate: shares of the object's size for radians
_LOST = 1.12  # times the least error of the frames before from where a limb counts as lost
_BEFORE = 3  # frames
_TOGETHER = 6  # rounds of aligning all frames at once


def phase_one(
    fit: Fit,
    tracker: Tracker | None = None,
    *,
    on_frame: Report | None = None,
    save: Callable[[Fit], None] | None = None,
) -> None:
    """Frame after frame; what is done already (a resumed fit) is kept.

    ``tracker`` gives ``direct`` fits every frame's start; without one they start from the fit's own motion.
    """
    if fit.config.direct:
        _by_alignment(fit, tracker, on_frame, save)
    else:
        _by_descent(fit, on_frame, save)


def _by_alignment(
    fit: Fit, tracker: Tracker | None, on_frame: Report | None, save: Callable[[Fit], None] | None
) -> None:
    if fit.settled:
        return
    aligner = Aligner(fit)
    search = LimbSearch(tracker, aligner) if tracker is not None else None
    poses = [pose_of(fit, k) for k in range(fit.frames_done)]
    last = range(max(0, len(poses) - _BEFORE), len(poses))
    errors = [aligner.error(aligner.draw(poses[k])[1], k) for k in last]
    for frame in range(fit.frames_done, len(fit.clip)):
        given = pose_of(fit, frame) if tracker is None else tracker.follow(frame, poses)
        pose, error = aligner.aligned(frame, given)
        if search is not None and error > _LOST * min(errors[-_BEFORE:]):
            pose, error = search.better(frame, pose, error, poses)
        _keep(fit, frame, pose)
        poses.append(pose_of(fit, frame))  # as a resumed fit reads it
        errors.append(error)
        fit.frames_done = frame + 1
        if save is not None:
            save(fit)
        if on_frame is not None:
            on_frame(frame, len(fit.clip) - 1, error)
    for frame, pose in enumerate(aligner.settled(poses, _TOGETHER)):
        _keep(fit, frame, pose)
    fit.settled = True
    if save is not None:
        save(fit)


def pose_of(fit: Fit, frame: int) -> JointPose:
    """A frame's turns and shifts as found so far, in double precision."""
    turns = rotation_vectors_to_rotations(fit.vectors[frame].double())
    return JointPose(turns.numpy(), fit.shifts[frame].double().numpy())


def _keep(fit: Fit, frame: int, pose: JointPose) -> None:
    fit.vectors[frame] = torch.from_numpy(log_rotations(pose.rotations)).float()
    fit.shifts[frame] = torch.from_numpy(pose.translations).float()


def _by_descent(fit: Fit, on_frame: Report | None, save: Callable[[Fit], None] | None) -> None:
    for frame in range(fit.frames_done, len(fit.clip)):
        start = frame - 1 if fit.config.chain else frame
        vectors = fit.vectors[start].clone().requires_grad_(True)
        shifts = fit.shifts[start].clone().requires_grad_(True)
        loss = _fit_frame(fit, frame, vectors, shifts)
        found = (vectors.detach(), shifts.detach())
        if not fit.config.chain:
            found, loss = accepted(fit, frame, (fit.vectors[frame], fit.shifts[frame]), found)
        fit.vectors[frame], fit.shifts[frame] = found
        fit.frames_done = frame + 1
        if save is not None:
            save(fit)
        if on_frame is not None:
            on_frame(frame, len(fit.clip) - 1, loss)


def _fit_frame(fit: Fit, frame: int, vectors: Tensor, shifts: Tensor) -> float:
    """Adam on one frame's turns and shifts, in place; the last loss."""
    c = fit.config
    rng = np.random.default_rng((c.seed, 1, frame))
    rates = (c.rate_one[0], _SHIFT_RATE * OBJECT_SIZE / fit.unit * c.rate_one[0])
    groups = [{"params": [vectors], "lr": rates[0]}, {"params": [shifts], "lr": rates[1]}]
    # Of a joint that nothing sees the gradient is noise, which Adam without eps would turn into steps of full size.
    optimiser = torch.optim.Adam(groups, eps=1e-8 if c.chain else _NOISE)
    first, first_shifts = vectors.detach().clone(), shifts.detach().clone()
    pool: np.ndarray | None = None
    held: Tensor | None = None
    value = 0.0
    for step in range(c.steps_one):
        share = cosine(c.rate_one[0], c.rate_one[1], step / max(c.steps_one - 1, 1)) / c.rate_one[0]
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * share
        posed = fit.posed(vectors, shifts, fit.logits)
        if pool is None or step % 10 == 0:
            pool = near_subject(fit.clip, frame, posed[0].detach().numpy().astype(np.float64), c.reach)
        loss = picture_loss(fit, frame, posed, pool, rng)
        depth_weight = c.one.depth * (1 if c.chain else c.depth_share)
        loss = loss + depth_weight * depth_loss(fit, frame, posed[0], rng)
        if c.chain:  # held to rest, as in the paper; a tracked limb may well be far from there
            loss = loss + c.one.rotation * rotation_loss(vectors, fit.alpha)
        else:
            held = depths(fit, posed[0]).detach() if held is None else held
            loss = loss + c.hold * rotation_loss(vectors - first, fit.alpha)
            loss = loss + c.anchor * ((fit.unit * (shifts - first_shifts)) ** 2).sum()
            loss = loss + c.anchor * depth_hold(fit, posed[0], held)
        optimiser.zero_grad()
        loss.backward()
        _masked(vectors, fit.turning)
        _masked(shifts, fit.shifting)
        optimiser.step()
        value = float(loss.detach())
    return value


def _masked(parameter: Tensor, mask: Tensor) -> None:
    """No gradient where nothing may move."""
    assert parameter.grad is not None
    parameter.grad *= mask
