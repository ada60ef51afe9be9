"""The two-phase fit of a rig's motion to a video through the frozen PAPR renderer (RigPAPR 3.4, D.5).

Phase 1 (:mod:`rigpapr.phase_one`) takes frame after frame: turns of the joints and the root's translation. Phase 2
adds a temporal correction of the turns and refines the weights, over all frames together, while depth and tracks fade
out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from rigpapr.binding import FitRig, joint_transforms, weight_logits
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_kinematics import log_rotations
from rigpapr.coarse_tracker import RigMotion
from rigpapr.fitted import FittedAsset, deform
from rigpapr.losses import (
    PHASE_ONE,
    PHASE_TWO,
    LossWeights,
    arap_loss,
    correction_losses,
    descendant_weights,
    neighbour_edges,
    rotation_loss,
    track_loss,
    weight_smoothness,
    weight_sparsity,
)
from rigpapr.supervision import Clip
from rigpapr.supervision_tracks import Tracks
from rigpapr.two_phase_batch import DepthReference, near_subject, project_torch, reference_depth
from rigpapr.two_phase_net import CorrectionNet, keep_moments, restore_moments
from rigpapr.two_phase_terms import cosine, depth_loss, picture_loss
from rigpapr.two_phase_trust import depth_hold, depths, keep_what_helps
from splatanim.errors import InputError
from splatanim.rig.differentiable import rotation_vectors_to_rotations

Report = Callable[[int, int, float], None]  # done, total, loss


@dataclass(frozen=True)
class TwoPhaseConfig:
    """Steps and rates. ``cpu``: a coarse start is refined by few steps; ``paper``: the published schedule.

    ``patches`` of ``side`` pixels a step; ``samples`` points for depth; ``chain``: phase 1 starts each frame from the
    one before instead of from the given motion; ``direct``: by direct alignment instead of Adam. ``one_scale``: depth
    maps have one scale over the clip up to what the closed form of delta-depth takes up, as in the paper; else each map
    has its own. Where a motion is given, ``anchor`` weighs squared shifts and ways along the line of sight from it
    [cloud units], ``hold`` turns from it (:mod:`rigpapr.two_phase_trust`), and ``depth_share`` is left of delta-depth:
    the given motion has made use of it.
    Phase 2 then holds distances of neighbours to those that phase 1 found, not to rest: bending at joints changes them
    (edges from limb to limb most), and the published weight of that term would undo the motion.
    """

    steps_one: int = 80
    rate_one: tuple[float, float] = (1e-2, 2e-4)
    steps_two: int = 1200
    rate_correction: float = 1e-3
    rate_weights: float = 1e-2
    last_rate: float = 1e-5
    patches: int = 8
    side: int = 14
    samples: int = 4096
    reach: int = 4
    chain: bool = False
    direct: bool = False
    one_scale: bool = False
    anchor: float = 1.0
    hold: float = 0.1
    depth_share: float = 0.25
    one: LossWeights = PHASE_ONE
    two: LossWeights = PHASE_TWO
    seed: int = 0


PRESETS = {
    "cpu": TwoPhaseConfig(direct=True),
    "paper": TwoPhaseConfig(
        steps_one=2000,
        rate_one=(5e-3, 1e-4),
        steps_two=30_000,
        rate_correction=3e-4,
        patches=4,
        side=40,
        reach=8,
        chain=True,
        one_scale=True,
    ),
}


@dataclass
class Fit:
    """A fit under way: what it works on, and what it has found. ``vectors`` (T, J, 3), ``shifts`` (T, J, 3)."""

    cloud: PaprCloud
    rig: FitRig
    clip: Clip
    depth: Float32[np.ndarray, "t h w"] | None
    tracks: Tracks | None
    config: TwoPhaseConfig
    vectors: Tensor
    shifts: Tensor
    logits: Tensor
    moments: Tensor
    frames_done: int = 1
    settled: bool = False  # all frames have been aligned together
    net: CorrectionNet = field(init=False)
    steps_done: int = 0
    adam: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(self.config.seed)
        self.net = CorrectionNet(len(self.clip), len(self.rig))
        self.bound = self.logits.detach().clone()  # the weights before phase 2, also of a fit that is resumed
        self.cloud.requires_grad_(False)
        self.points = self.cloud.world_positions.detach()
        self.joints = torch.from_numpy(self.rig.joints).float()
        self.alpha = descendant_weights(self.rig.descendants())
        self.unit = float(self.cloud.scale)
        self.reference: DepthReference | None = None
        if self.depth is not None:
            self.reference = reference_depth(self.cloud, self.clip.camera, self.depth[0], self.clip.masks[0])
        self.turning = torch.from_numpy(~self.rig.still).float()[:, None]
        free = self.rig.loose.copy()
        free[0] = True
        self.shifting = torch.from_numpy(free).float()[:, None]

    def posed(self, vectors: Tensor, shifts: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """World positions and rotations of the points for one frame's turns and shifts."""
        turns = rotation_vectors_to_rotations(vectors)
        maps = joint_transforms(self.rig.parents, self.joints, turns, shifts)
        return deform(self.points, torch.softmax(logits, dim=1), maps, self.moments)

    def result(self) -> FittedAsset:
        """What has been found so far, corrections included."""
        with torch.no_grad():
            turns = rotation_vectors_to_rotations(self.vectors + self.net() * self.turning)
        return FittedAsset(
            self.cloud,
            self.rig.names,
            torch.tensor(self.rig.parents),
            self.joints,
            torch.from_numpy(self.rig.loose),
            self.logits.detach(),
            turns,
            self.shifts.detach(),
            self.clip.fps,
            moments=self.moments,
        )


def start_fit(
    cloud: PaprCloud,
    rig: FitRig,
    clip: Clip,
    *,
    motion: RigMotion | None,
    depth: Float32[np.ndarray, "t h w"] | None = None,
    tracks: Tracks | None = None,
    config: TwoPhaseConfig | None = None,
) -> Fit:
    """A fit from a coarse motion, or from rest. Raises InputError where motion and clip differ in length."""
    if motion is not None and len(motion) != len(clip):
        raise InputError(f"two-phase fit: the motion has {len(motion)} frames, the clip {len(clip)}.")
    t, j = len(clip), len(rig)
    vectors, shifts = torch.zeros(t, j, 3), torch.zeros(t, j, 3)
    if motion is not None:
        flat = log_rotations(motion.rotations.reshape(-1, 3, 3)).reshape(t, j, 3)
        vectors, shifts = torch.from_numpy(flat).float(), torch.from_numpy(motion.translations).float()
    skin = rig.skin(cloud.world_positions.detach().cpu().numpy().astype(np.float64))
    logits, moments = weight_logits(skin.weights), torch.from_numpy(skin.moments).float()
    return Fit(cloud, rig, clip, depth, tracks, config or TwoPhaseConfig(), vectors, shifts, logits, moments)


def phase_two(
    fit: Fit,
    *,
    on_step: Report | None = None,
    save: Callable[[Fit], None] | None = None,
    save_every: int = 200,
    take_back: bool = True,
) -> None:
    """Temporal corrections and weights over all frames; resumes where ``fit.steps_done`` says.

    In the ``cpu`` preset what made the pictures worse is taken back at the end, unless ``take_back`` is off."""
    c, weights = fit.config, fit.config.two
    edges = neighbour_edges(fit.cloud.positions.detach().numpy())
    fit.logits = fit.logits.detach().clone().requires_grad_(True)
    groups = [
        {"params": list(fit.net.parameters()), "lr": c.rate_correction},
        {"params": [fit.logits], "lr": c.rate_weights},
    ]
    optimiser = torch.optim.Adam(groups)
    restore_moments(fit, optimiser)
    for step in range(fit.steps_done, c.steps_two):
        rng = np.random.default_rng((c.seed, 2, step))
        done = step / max(c.steps_two - 1, 1)
        for group, rate in zip(optimiser.param_groups, (c.rate_correction, c.rate_weights), strict=True):
            group["lr"] = cosine(rate, c.last_rate, done)
        loss = _step_loss(fit, weights, edges, (1 - done) if weights.decay else 1.0, rng)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        fit.steps_done = step + 1
        if save is not None and fit.steps_done % save_every == 0:
            keep_moments(fit, optimiser)
            save(fit)
        if on_step is not None:
            on_step(step + 1, c.steps_two, float(loss.detach()))
    fit.logits = fit.logits.detach()
    if take_back and not c.chain:
        keep_what_helps(fit, fit.bound)


def _step_loss(fit: Fit, w: LossWeights, edges: Tensor, fade: float, rng) -> Tensor:
    """All terms of phase 2 at one frame drawn at random."""
    frame = int(rng.integers(1, len(fit.clip)))
    corrections = fit.net() * fit.turning
    vectors = fit.vectors[frame] + corrections[frame]
    with torch.no_grad():
        before = fit.posed(fit.vectors[frame], fit.shifts[frame], fit.bound)[0]
        held = depths(fit, before)
    posed = fit.posed(vectors, fit.shifts[frame], fit.logits)
    pool = near_subject(fit.clip, frame, posed[0].detach().numpy().astype(np.float64), fit.config.reach)
    loss = picture_loss(fit, frame, posed, pool, rng)
    if w.depth * fade > 0:
        share = 1 if fit.config.chain else fit.config.depth_share
        loss = loss + w.depth * share * fade * depth_loss(fit, frame, posed[0], rng)
    loss = loss + w.rotation * rotation_loss(vectors if fit.config.chain else corrections[frame], fit.alpha)
    if fit.tracks is not None and w.track * fade > 0:
        rows = torch.from_numpy(fit.tracks.rows)
        pixels, _ = project_torch(fit.clip.camera, posed[0][rows])
        tracked, seen = torch.from_numpy(fit.tracks.pixels[frame]), torch.from_numpy(fit.tracks.seen[frame])
        loss = loss + w.track * fade * track_loss(pixels, tracked, seen)
    weights = torch.softmax(fit.logits, dim=1)
    shape = fit.points if fit.config.chain else before
    loss = loss + w.arap * arap_loss(fit.unit * posed[0], fit.unit * shape, edges)
    loss = loss + fit.config.anchor * depth_hold(fit, posed[0], held)
    size, change = correction_losses(corrections)
    loss = loss + w.correction * size + w.correction_smooth * change
    return loss + w.weight_smooth * weight_smoothness(weights, edges) + w.weight_sparse * weight_sparsity(weights)
