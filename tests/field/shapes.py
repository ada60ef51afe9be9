"""Domains that fields are tested on."""

from __future__ import annotations

import numpy as np

from splatanim.data import Domain
from tests.helpers import box_cubature

BLOCK = (8, 6, 5)


def two_blocks(gap: int, *, bridge: bool = False, spacing: float = 0.05) -> Domain:
    """Two equal blocks ``gap`` voxels apart along x, left one first; ``bridge`` joins them by a row one voxel wide."""
    block = box_cubature(BLOCK, spacing).domain
    cells = [block.cells, block.cells + np.array([BLOCK[0] + gap, 0, 0])]
    if bridge:
        low = block.cells.min(axis=0)
        cells.append(low + np.array([[BLOCK[0] + k, 2, 2] for k in range(gap)]))
    return Domain(np.concatenate(cells), block.origin, block.spacing)


def comb(teeth: int = 4, height: int = 10) -> Domain:
    """Teeth 3 voxels thick and one voxel apart on a common back."""
    filled = np.zeros((4 * teeth - 1, height, 4), bool)
    filled[:, :3] = True
    for tooth in range(teeth):
        filled[4 * tooth : 4 * tooth + 3] = True
    return Domain(np.argwhere(filled), np.zeros(3), 0.04)
