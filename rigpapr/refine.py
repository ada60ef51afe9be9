"""Points taken out and added during training, the optimiser's memory kept for all that stay.

The paper's rules: points whose influence is not positive go; new ones are convex mixes of three neighbours, placed
where the distances to the ten nearest points vary most, for that is where the cloud has holes.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rigpapr.cloud import PaprCloud

_PER_POINT = ("positions", "features", "influence")
_NEIGHBOURS = 10


def take(cloud: PaprCloud, optimiser: torch.optim.Optimizer, rows: Tensor) -> None:
    """Keep the points in ``rows`` (indices, in their order), with their optimiser state."""
    for name in _PER_POINT:
        _swap(cloud, optimiser, name, lambda value: value[rows])


def append(cloud: PaprCloud, optimiser: torch.optim.Optimizer, sources: Tensor, mix: Float[Tensor, "m k"]) -> None:
    """Add points that mix those in ``sources`` (m, k) with the convex weights ``mix``; their moments start at zero."""
    for name in _PER_POINT:
        value = getattr(cloud, name).detach()
        weight = mix.reshape(*mix.shape, *[1] * (value.ndim - 1)).to(value)
        fresh = (weight * value[sources]).sum(1)

        def extend(old: Tensor, fresh: Tensor = fresh) -> Tensor:
            return torch.cat([old, fresh])

        def extend_state(old: Tensor, fresh: Tensor = fresh) -> Tensor:
            return torch.cat([old, torch.zeros_like(fresh)])

        _swap(cloud, optimiser, name, extend, extend_state)


def _swap(cloud: PaprCloud, optimiser: torch.optim.Optimizer, name: str, change, change_state=None) -> None:
    """Replace a parameter by ``change(parameter)`` in cloud and optimiser, its moments by ``change_state``."""
    old = getattr(cloud, name)
    new = nn.Parameter(change(old.detach()).contiguous(), requires_grad=old.requires_grad)
    setattr(cloud, name, new)
    for group in optimiser.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    state = optimiser.state.pop(old, None)
    if state is not None:
        change_state = change_state or change
        optimiser.state[new] = {
            key: change_state(value).contiguous() if torch.is_tensor(value) and value.shape == old.shape else value
            for key, value in state.items()
        }


def prune(cloud: PaprCloud, optimiser: torch.optim.Optimizer, keep: Bool[Tensor, " n"]) -> int:
    """Take out the points where ``keep`` is False, but never the last ``neighbours``; returns how many went."""
    rows = torch.nonzero(keep)[:, 0]
    if len(rows) == len(cloud) or len(rows) < min(len(cloud), cloud.config.neighbours):
        return 0
    gone = len(cloud) - len(rows)
    take(cloud, optimiser, rows)
    return gone


def grow(cloud: PaprCloud, optimiser: torch.optim.Optimizer, count: int, rng: np.random.Generator) -> int:
    """Add ``count`` points where the distances to the ten nearest neighbours have the largest deviation."""
    from scipy.spatial import cKDTree

    points = cloud.positions.detach().cpu().numpy().astype(np.float64)
    if count < 1 or len(points) < 4:
        return 0
    distances, near = cKDTree(points).query(points, min(_NEIGHBOURS + 1, len(points)))
    uneven = np.argsort(-distances[:, 1:].std(axis=1), kind="stable")
    chosen = uneven[np.arange(count) % len(uneven)]
    mix = torch.from_numpy(rng.dirichlet(np.ones(3), count))
    append(cloud, optimiser, torch.from_numpy(near[chosen, 1:4]), mix)
    return count
