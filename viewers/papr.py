"""PAPR assets in the viewer: their points in colour, at rest or in the motion fitted to them, and rendered stills."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from splatanim.data import Frame
from splatanim.render.camera import Camera
from viewers.camera_path import to_file
from viewers.moving import Cloud
from viewers.player import Player

if TYPE_CHECKING:
    import torch

    from rigpapr.cloud import PaprCloud

_INSIDE = (0.005, 0.995)  # the share of points, per axis, that the view is framed on


@dataclass(frozen=True)
class PointSet:
    """Coloured points in the viewer's coordinates; ``size`` is their width [m]."""

    positions: Float32[np.ndarray, "n 3"]
    rgbs: Float32[np.ndarray, "n 3"]
    size: float


def open_papr(path: Path, up: str = "auto", object_size: float = 1.0) -> PaprView:
    """The view of an asset: one that is fitted to a rig plays its motion and can be posed. See :class:`PaprView`."""
    from rigpapr.asset import read_asset
    from rigpapr.fitted import is_fitted, read_fitted

    name = path.name.split(".")[0]
    if is_fitted(path):
        from viewers.papr_rig import FittedView

        return FittedView(read_fitted(path), name, up, object_size)
    return PaprView(read_asset(path), name, up, object_size)


class PaprView(Player):
    """A cloud of neural points; :meth:`still` is the network's picture of it.

    The longest side is ``object_size`` metres in the viewer. ``up`` is +y unless given: assets do not say.
    """

    def __init__(
        self,
        cloud: PaprCloud,
        name: str,
        up: str = "auto",
        object_size: float = 1.0,
        *,
        frames: int = 1,
        fps: float = 24.0,
    ) -> None:
        from splatanim.inspect import up_vector

        self.cloud, self.names = cloud, (name,)
        points = self.cloud.world_positions.detach().cpu().numpy().astype(np.float64)
        low, high = np.quantile(points, _INSIDE, axis=0)
        x, y, z = (float(v) for v in 0.5 * (low + high))
        vertical = (0.0, 1.0, 0.0) if up == "auto" else up_vector(up)
        longest = float((high - low).max())
        self.file_frame = Frame((x, y, z), object_size / longest if longest > 0 else 1.0, vertical)
        self.up = np.asarray(vertical, np.float64)
        self.low, self.high = self.file_frame.to_sim(low[None])[0], self.file_frame.to_sim(high[None])[0]
        self._rgbs = np.clip(self.cloud.colours(), 0.0, 1.0).astype(np.float32)
        self._size = 0.6 * _spacing(points) * self.file_frame.scale
        super().__init__(frames, fps)

    def clouds(self) -> tuple[Cloud, ...]:
        """No splats: the points are in :meth:`points`."""
        return ()

    def points(self) -> PointSet:
        """The points at the present frame."""
        positions = self._posed()[0]
        world = self.cloud.world_positions if positions is None else positions
        moved = self.file_frame.to_sim(world.detach().cpu().numpy())
        return PointSet(moved.astype(np.float32), self._rgbs, self._size)

    def still(self, camera: Camera) -> Float32[np.ndarray, "h w 3"]:
        """What the network shows to a camera of the viewer's coordinates, at the present frame, over white."""
        from rigpapr.renderer import render

        positions, rotations = self._posed()
        return render(self.cloud, to_file(camera, self.file_frame), positions=positions, rotations=rotations).rgb

    def _posed(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """World positions and rotations of the points at the present frame; None where they stand as captured."""
        return None, None


def _spacing(points: np.ndarray) -> float:
    """The median distance between neighbours."""
    from scipy.spatial import cKDTree

    if len(points) < 2:
        return 0.01
    distance, _ = cKDTree(points).query(points, 2)
    return float(np.median(distance[:, 1]))
