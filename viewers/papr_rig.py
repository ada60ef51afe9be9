"""A fitted PAPR asset in the viewer: its motion plays, and its joints can be turned by hand on top of it.

A turn is in the joint's own frame: with R_b the rotation that the motion gives the joint, it becomes R_b Q_b. The
written pose says the same about the parent's axes, as ``splatanim render --pose`` reads it: Q' = R_b Q_b R_b^T.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64

from rigpapr.fitted import FittedAsset
from splatanim.errors import InputError
from viewers.papr import PaprView

if TYPE_CHECKING:
    from splatanim.rig.skeleton import Skeleton


class FittedView(PaprView):
    """A :class:`rigpapr.fitted.FittedAsset`; joints are numbered as there."""

    clips: tuple[str, ...] = ()  # the one motion is on the timeline

    def __init__(self, asset: FittedAsset, name: str, up: str = "auto", object_size: float = 1.0) -> None:
        self.asset = asset
        self.skeleton: Skeleton = asset.skeleton()
        self._turns: dict[int, np.ndarray] = {}
        super().__init__(asset.cloud, name, up, object_size, frames=len(asset), fps=asset.fps)

    def joints(self) -> Float64[np.ndarray, "j 4 4"]:
        """The joints' frames at the present frame, turns in, in the viewer's coordinates."""
        return self._frames(self._rotations())

    def untwisted(self, joint: int) -> Float64[np.ndarray, "4 4"]:
        """A joint's frame without its own turn; those above it stay turned."""
        return self._frames(self._rotations(without=joint))[joint]

    def set_turn(self, joint: int, rotation: Float[np.ndarray, "3 3"]) -> None:
        """Turn a joint in its own frame by a rotation matrix. Raises InputError where it is none."""
        rotation = np.asarray(rotation, np.float64)
        if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-4) or np.linalg.det(rotation) < 0:
            raise InputError("A joint is turned by a rotation: a 3x3 matrix of determinant 1.")
        self._turns[joint] = rotation
        self._renew()

    def clear_turns(self) -> None:
        """Back to the fitted motion."""
        self._turns.clear()
        self._renew()

    def pose_json(self) -> dict[str, Any]:
        """The present pose for ``splatanim render --pose``: the frame, and every turn as a rotation vector [degrees]
        about the axes that the world has at rest, carried by the joint's parent."""
        from scipy.spatial.transform import Rotation

        joints = {}
        for joint, turn in sorted(self._turns.items()):
            base = self.asset.rotations[self.frame, joint].double().numpy()
            vector = np.degrees(Rotation.from_matrix(base @ turn @ base.T).as_rotvec())
            joints[self.asset.names[joint]] = {"turn": [round(float(v), 6) for v in vector]}
        return {"frame": self.frame, "joints": joints}

    def _renew(self) -> None:
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    def _rotations(self, without: int = -1) -> torch.Tensor:
        """(J, 3, 3) of the present frame, with all turns but one."""
        rotations = self.asset.rotations[self.frame].double().clone()
        for joint, turn in list(self._turns.items()):
            if joint != without:
                rotations[joint] = rotations[joint] @ torch.from_numpy(turn)
        return rotations

    def _maps(self, rotations: torch.Tensor) -> torch.Tensor:
        from rigpapr.binding import joint_transforms

        asset = self.asset
        shifts = asset.translations[self.frame].double()
        return joint_transforms(asset.parents.tolist(), asset.joints.double(), rotations, shifts)

    def _frames(self, rotations: torch.Tensor) -> np.ndarray:
        maps = self._maps(rotations).numpy()
        places = self.asset.joints.double().numpy()
        out = maps.copy()
        world = np.einsum("jrc,jc->jr", maps[:, :3, :3], places) + maps[:, :3, 3]
        out[:, :3, 3] = self.file_frame.to_sim(world)
        return out

    def _posed(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        maps = self._maps(self._rotations())
        positions, rotations = self.asset.posed_under(maps)
        return positions.detach(), rotations.detach()
