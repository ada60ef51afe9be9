"""Pictures of a fit under way: the video's frame, the fit, and the fit from the side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from pipelines.fit_rig_films import picture, ring
from rigpapr.binding import FitRig, weight_logits
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_kinematics import JointPose
from rigpapr.fitted import FittedAsset
from rigpapr.supervision import Clip
from splatanim.render.video import write_png

_EVERY = 20.0  # s between two pictures


@dataclass
class Preview:
    """Writes a picture at most every ``every`` seconds: numbered ones into ``folder``, else ``latest`` anew."""

    clip: Clip
    latest: Path
    folder: Path | None = None
    every: float = _EVERY
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=-float("inf"), init=False)

    def __post_init__(self) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def show(self, label: str, frame: int, asset: Callable[[], FittedAsset]) -> Path | None:
        """The picture's path, or None where the last one is too recent. ``asset`` is asked only when it is drawn."""
        if self.clock() - self._last < self.every:
            return None
        found = asset()
        side = ring(found, self.clip.camera, 4, elevation=15.0)[1]
        drawn = [self.clip.picture(frame), picture(found, frame, self.clip.camera), picture(found, frame, side)]
        path = self.latest if self.folder is None else self.folder / f"{label}.png"
        write_png(path, np.concatenate([image.clip(0, 1) for image in drawn], axis=1).astype(np.float32))
        self._last = self.clock()
        return path

    def sketch(self, cloud: PaprCloud, rig: FitRig) -> Callable[[int, JointPose], FittedAsset]:
        """A function from a frame and its pose to an asset that has this pose there and rest elsewhere."""
        count, joints = len(self.clip), len(rig)
        skin = rig.skin(cloud.world_positions.detach().double().numpy())
        logits, moments = weight_logits(skin.weights), torch.from_numpy(skin.moments).float()

        def at(frame: int, pose: JointPose) -> FittedAsset:
            turns, shifts = torch.eye(3).repeat(count, joints, 1, 1), torch.zeros(count, joints, 3)
            turns[frame] = torch.from_numpy(pose.rotations).float()
            shifts[frame] = torch.from_numpy(pose.translations).float()
            places, loose = torch.from_numpy(rig.joints).float(), torch.from_numpy(rig.loose)
            parents, fps = torch.tensor(rig.parents), self.clip.fps
            return FittedAsset(cloud, rig.names, parents, places, loose, logits, turns, shifts, fps, moments=moments)

        return at

    def close(self) -> None:
        """Remove the single picture: the films say more."""
        if self.folder is None:
            self.latest.unlink(missing_ok=True)
