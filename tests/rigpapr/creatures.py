"""A made-up creature of capsules with a known rig: a trunk with an arm of two bones, and pictures of it."""

from __future__ import annotations

import numpy as np

from rigpapr.binding import FitRig
from rigpapr.coarse_kinematics import JointPose, exp_rotations, rest_pose, skinned, transforms
from rigpapr.coarse_view import Surface, draw, see
from rigpapr.supervision import Clip
from splatanim.render.camera import Camera, look_at
from splatanim.rig.weights import sparse_weights

JOINTS = np.array([[-0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [0.0, 0.3, 0.0]])
PARENTS = (-1, 0, 1, 1)
ENDS = np.array([[0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [0.8, 0.0, 0.0], [0.0, 0.7, 0.0]])


def creature(count: int = 12_000, seed: int = 0) -> tuple[FitRig, Surface]:
    """Four capsules with a seeded pattern; weights fade over at the joints."""
    rng = np.random.default_rng(seed)
    part = rng.integers(0, 4, count)
    along = rng.uniform(0, 1, count)
    axis = ENDS[part] - JOINTS[part]
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    around = np.cross(axis, rng.normal(size=(count, 3)))
    normals = around / np.linalg.norm(around, axis=1, keepdims=True)
    points = JOINTS[part] + along[:, None] * (ENDS[part] - JOINTS[part]) + 0.1 * normals
    middle = (JOINTS + ENDS) / 2
    closeness = np.exp(-((points[:, None] - middle[None]) ** 2).sum(axis=2) / 0.03)
    weights = closeness / closeness.sum(axis=1, keepdims=True)
    waves = np.sin(points @ rng.normal(size=(3, 12)) * 14)
    colours = 128 + 90 * np.tanh(waves @ rng.normal(size=(12, 3)) / 2)
    rig = FitRig(
        ("root", "middle", "arm", "top"),
        PARENTS,
        JOINTS,
        np.zeros(4, bool),
        np.zeros(4, bool),
        points,
        sparse_weights(weights, 4),
    )
    return rig, Surface(points, normals, colours, rig.skin(points))


def camera(size: int = 128) -> Camera:
    return look_at((0.6, 0.5, 2.6), (0.1, 0.2, 0.0), (0, 1, 0), width=size, height=size, fov_y_degrees=36)


def motion(frames: int, speed: float = 0.09) -> list[JointPose]:
    """The arm turns one way, the top the other, the root a little."""
    poses = [rest_pose(4)]
    rate = np.array([[0, 0, 0.2], [0.0, 0.1, 0.1], [0.3, 0.2, 1.0], [0.1, 0.0, -1.0]]) * speed
    for frame in range(1, frames):
        poses.append(JointPose(exp_rotations(rate * frame), np.zeros((4, 3))))
    return poses


def film(rig: FitRig, surface: Surface, poses: list[JointPose], shot: Camera) -> tuple[Clip, np.ndarray]:
    """Pictures over white, masks, and true depth with a scale of its own in every frame."""
    rgb, masks, depth = [], [], []
    for k, pose in enumerate(poses):
        points, _ = skinned(surface.points, surface.skin, transforms(rig, pose))
        seen = see(shot, points, surface.size)
        picture, mask = draw(surface, shot, seen)
        rgb.append(np.where(mask[..., None], picture, np.uint8(255)))
        masks.append(mask)
        depth.append(np.where(np.isfinite(seen.nearest), seen.nearest, 0.0) * (0.4 + 0.05 * k))
    return Clip(np.stack(rgb), np.stack(masks), shot, 24.0), np.stack(depth).astype(np.float32)
