"""Splats as a rigged point cloud, the form in which they go into a .glb: centres, colours, opacities, weights."""

from __future__ import annotations

import numpy as np

from splatanim.data import Splats
from splatanim.rig.animation import Animation
from splatanim.rig.appearance import Appearance, decode_srgb
from splatanim.rig.model import RiggedModel
from splatanim.rig.skeleton import Skeleton, skeleton_from_positions
from splatanim.rig.weights import SkinWeights
from splatanim.rotations import SH_C0


def points_of_splats(
    splats: Splats,
    skeleton: Skeleton | None = None,
    skin: SkinWeights | None = None,
    animations: dict[str, Animation] | None = None,
) -> RiggedModel:
    """Centres in file coordinates with the constant part of the colour, linear as glTF wants it, and opacity as alpha.

    Without a skeleton everything hangs on one joint that never moves.
    """
    n = len(splats)
    if skeleton is None or skin is None:
        skeleton = skeleton_from_positions(("still",), np.array([-1]), np.zeros((1, 3)))
        skin = SkinWeights(np.zeros((n, 1), np.int32), np.ones((n, 1)), 1)
        animations = {}
    display = np.clip(0.5 + SH_C0 * splats.sh[:, 0].astype(np.float64), 0.0, 1.0)
    colours = np.concatenate([decode_srgb(display), splats.opacities[:, None].astype(np.float64)], axis=1)
    return RiggedModel(
        splats.means.astype(np.float64) + splats.offset,
        np.empty((0, 3), np.int64),
        skeleton,
        skin,
        appearance=Appearance(colours=colours),
        animations=animations or {},
    )
