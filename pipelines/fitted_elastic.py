"""Elastic motion on top of a fitted rig: the complementary dynamics of rigged splats, on a PAPR cloud.

A PAPR cloud has no covariances, so its inside is found from small round splats at its points, and what the renderer
gets is where every point is and the linear part of its map: x = sum_b w_b T_b X + N(X) y, with its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatanim.data import Splats
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.rigged import Actor
    from pipelines.rigged_elastic import Elastic
    from pipelines.still import RenderConfig
    from rigpapr.fitted import FittedAsset
    from rigpapr.posing import PosedMotion


@dataclass(frozen=True)
class ElasticCloud:
    """A simulated motion of an asset; ``elastic`` has one row of coordinates a frame."""

    asset: FittedAsset
    motion: PosedMotion
    elastic: Elastic

    def posed(self, frame: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Points and the linear parts of their maps, (N, 3) and (N, 3, 3)."""
        positions, linear = self.asset.posed_under(self.motion.maps[frame])
        moved, slope = (torch.from_numpy(part) for part in self.elastic.bound.motion(self.elastic.coordinates[frame]))
        return positions + moved.to(positions.dtype), linear + slope.to(linear.dtype)

    def figures(self) -> tuple[dict[str, Any], list[str]]:
        """What happened, as numbers and as lines to print."""
        from pipelines.rigged_elastic import figures, in_words

        found = figures(self.elastic)
        return found, [in_words(found), *self.elastic.notes]


def simulate_cloud(config: RenderConfig, asset: FittedAsset, motion: PosedMotion) -> ElasticCloud:
    """The elastic motion of every frame, after a run-up where the clip goes round.

    Raises InputError for a motion of one frame, and options out of range.
    """
    from pipelines.fitted_motions import up_of
    from pipelines.rigged import RiggedConfig
    from pipelines.rigged_elastic import check_elastic, simulate_actor

    if len(motion) < 2:
        raise InputError("--elastic needs a motion: one pose shakes nothing. Leave out --pose, or give a clip.")
    options = RiggedConfig(
        config.scene,
        fps=motion.fps,
        elastic=True,
        material=config.material,
        object_size=config.object_size,
        functions=config.functions,
        leak=config.leak,
    )
    check_elastic(options)
    clip = asset.clip_of(motion.maps, motion.fps, motion.name)
    return ElasticCloud(
        asset, motion, simulate_actor(options, actor_of(asset, up_of(config, asset)), clip, len(motion))
    )


def actor_of(asset: FittedAsset, up: tuple[float, float, float]) -> Actor:
    """The cloud as an actor of rig-driven films: a small round splat at every point, on the fitted skeleton."""
    from pipelines.rigged import Actor
    from rigpapr.cloud import median_spacing
    from splatanim.rig.skinning import RiggedSplats

    model = asset.model({})
    n = len(model.vertices)
    sigma = 0.5 * median_spacing(asset.cloud.world_positions.detach())
    splats = Splats(
        model.vertices.astype(np.float32),
        np.tile(np.array([1, 0, 0, 0], np.float32), (n, 1)),
        np.full((n, 3), np.log(sigma), np.float32),
        np.full(n, 4.0, np.float32),
        np.zeros((n, 1, 3), np.float32),
    )
    return Actor(RiggedSplats(splats, model.skin), model, up, (), np.arange(n))
