"""Motion of one skeleton on another: what every bone turns away from its rest, seen from the world.

For a pair of joints s -> t with world rotations S(k) of the source in frame k, S_0 at its rest, T_0 of the target in
its bind pose, and A the turn from the source's world to the target's,

    T(k) = A S(k) S_0^-1 A^-1  D  T_0,

where D aligns the rest poses: the smallest turn that takes the target's bone direction at rest to the source's (a
T-pose and an A-pose then move alike). Joints without a partner keep their place relative to their parents. The root
travels as the source's does, in the ratio of the two leg lengths; its height is such that the lowest joint is as far
from the floor as the source's lowest is, in the same ratio, whatever limb that is: feet stay down on other proportions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

from splatanim.errors import InputError
from splatanim.rig.affine import matrix_quaternions, polar_rotations, shortest_turn
from splatanim.rig.animation import Animation, animation_from_poses
from splatanim.rig.skeleton import Pose, Skeleton, bind_pose, forward_kinematics


def retarget(
    animation: Animation,
    source: Skeleton,
    target: Skeleton,
    name_map: Mapping[str, str],
    *,
    fps: float = 30.0,
    up: tuple[float, float, float] = (0.0, 1.0, 0.0),
) -> Animation:
    """The clip on the target's skeleton, with a key for every joint at ``fps``.

    ``name_map`` takes source names to target names (:func:`splatanim.rig.names.match_names`); ``up`` is the up axis of
    both. Raises :class:`InputError` for names that do not exist and maps that are empty.
    """
    pairs = _pairs(source, target, name_map)
    frames = max(2, round(animation.duration * fps) + 1)
    times = np.linspace(animation.start, animation.end, frames)
    moved = forward_kinematics(source, animation.sample(times))
    vertical = np.asarray(up, np.float64) / np.linalg.norm(up)
    facing = _facing(source, target, pairs, vertical)
    turns = facing @ polar_rotations(moved[..., :3, :3]) @ np.swapaxes(source.bind_rotations, -1, -2) @ facing.T
    aligned = {t: _alignment(source, target, pairs, facing, t) for t in pairs}
    rest = bind_pose(target)
    local = _local_rotations(target, turns, pairs, aligned)
    translations = np.repeat(rest.translations[None], frames, axis=0)
    root = _root_pair(source, target, pairs)
    _travel(translations, moved, (source, target), root, (facing, vertical), local, pairs)
    scales = np.repeat(rest.scales[None], frames, axis=0)
    pose = Pose(translations, matrix_quaternions(local), scales)
    return animation_from_poses(animation.name, target.rest, times - animation.start, pose)


def _pairs(source: Skeleton, target: Skeleton, name_map: Mapping[str, str]) -> dict[int, int]:
    """Target joint -> source joint."""
    pairs = {target.index(t): source.index(s) for s, t in name_map.items()}
    if not pairs:
        raise InputError(
            f"retarget: no joint of the motion ({', '.join(source.names[:6])} ...) has a partner in the rig "
            f'({", ".join(target.names[:6])} ...). Write a map: [joints] with lines "SourceName" = "TargetName".'
        )
    return pairs


def _root_pair(source: Skeleton, target: Skeleton, pairs: Mapping[int, int]) -> int:
    """The mapped target joint that stands nearest to the root."""
    return next(int(j) for j in target.order if int(j) in pairs)


def _facing(source: Skeleton, target: Skeleton, pairs: Mapping[int, int], up: np.ndarray) -> np.ndarray:
    """The turn about the up axis from where the source faces to where the target does, by its left and right limbs.

    The identity where fewer than two limbs tell.
    """
    from scipy.spatial.transform import Rotation

    from splatanim.rig.names import side_of

    across = np.zeros((2, 3))
    for t, s in pairs.items():
        side = side_of(target.names[t])
        if side:
            across += side * np.stack([source.joint_positions[s], target.joint_positions[t]])
    across -= (across @ up)[:, None] * up
    size = np.linalg.norm(across, axis=1)
    if size.min() < 1e-9:
        return np.eye(3)
    a, b = across / size[:, None]
    return Rotation.from_rotvec(np.arctan2(np.cross(a, b) @ up, a @ b) * up).as_matrix()


def _alignment(
    source: Skeleton, target: Skeleton, pairs: Mapping[int, int], facing: np.ndarray, joint: int
) -> Float64[np.ndarray, "3 3"]:
    """D of a target joint: from its bone's direction to the source's; the identity at ends and forks of the map."""
    below = [c for c in pairs if _nearest_mapped(target, pairs, c) == joint]
    if len(below) != 1:
        return np.eye(3)
    ours = target.joint_positions[below[0]] - target.joint_positions[joint]
    theirs = source.joint_positions[pairs[below[0]]] - source.joint_positions[pairs[joint]]
    reach = 1e-3 * float(np.ptp(target.joint_positions, axis=0).max())
    if np.linalg.norm(ours) < reach:
        return np.eye(3)
    return shortest_turn(ours, facing @ theirs)


def _nearest_mapped(skeleton: Skeleton, pairs: Mapping[int, int], joint: int) -> int:
    at = int(skeleton.parents[joint])
    while at >= 0 and at not in pairs:
        at = int(skeleton.parents[at])
    return at


def _local_rotations(
    target: Skeleton, turns: np.ndarray, pairs: Mapping[int, int], aligned: Mapping[int, np.ndarray]
) -> np.ndarray:
    """(t, j, 3, 3) rotations of T R S: each joint's world rotation, brought into its parent's frame."""
    frames = len(turns)
    bind = target.bind_rotations
    still = polar_rotations(target.prefix[:, :3, :3])
    world = np.empty((frames, len(target), 3, 3))
    local = np.empty_like(world)
    for j in target.order:
        parent = int(target.parents[j])
        above = np.broadcast_to(np.eye(3), (frames, 3, 3)) if parent < 0 else world[:, parent]
        frame = above @ still[j]
        if int(j) in pairs:
            world[:, j] = turns[:, pairs[int(j)]] @ aligned[int(j)] @ bind[j]
        else:
            at_rest = bind[j] if parent < 0 else bind[parent].T @ bind[j]
            world[:, j] = above @ at_rest
        local[:, j] = np.swapaxes(frame, -1, -2) @ world[:, j]
    return local


def _travel(
    translations: np.ndarray,
    moved: np.ndarray,
    skeletons: tuple[Skeleton, Skeleton],
    root: int,
    world: tuple[np.ndarray, np.ndarray],
    local: np.ndarray,
    pairs: Mapping[int, int],
) -> None:
    """Move the root joint (in place): across from where it rests, and up and down from the floor."""
    source, target = skeletons
    facing, up = world
    origin = _lead(moved, source)
    ours, theirs = target.joint_positions @ up, source.joint_positions @ up
    height = float(target.joint_positions[root] @ up - ours.min())
    leg = float(source.joint_positions[origin] @ up - theirs.min())
    ratio = height / leg if min(height, leg) > 1e-9 else np.ptp(ours) / max(float(np.ptp(theirs)), 1e-9)
    path = moved[:, origin, :3, 3]
    across = path - path[:1]
    across = ratio * (across - (across @ up)[:, None] * up) @ facing.T
    wanted = target.joint_positions[root] + across
    back = np.linalg.inv(_above(target, root, translations, local))

    def put() -> None:
        translations[:, root] = np.einsum("tab,tb->ta", back[:, :3, :3], wanted) + back[:, :3, 3]

    put()
    scales = np.repeat(bind_pose(target).scales[None], len(translations), axis=0)
    reached = forward_kinematics(target, Pose(translations, matrix_quaternions(local), scales))[..., :3, 3] @ up
    limbs, partners = list(pairs), list(pairs.values())
    lowest = (moved[:, :, :3, 3][:, partners] @ up).min(axis=1)
    clearance = ours[limbs].min() + ratio * (lowest - lowest.min())
    wanted += (clearance - reached[:, limbs].min(axis=1))[:, None] * up
    put()


def _lead(moved: np.ndarray, source: Skeleton) -> int:
    """The source joint whose path is followed: its root, or the first joint below that really moves."""
    root = int(source.order[0])
    travelled = np.ptp(moved[:, :, :3, 3], axis=0).max(axis=1)
    while travelled[root] < 1e-9 and len(source.children(root)) == 1:
        root = int(source.children(root)[0])
    return root


def _above(target: Skeleton, joint: int, translations: np.ndarray, local: np.ndarray) -> np.ndarray:
    """(t, 4, 4) everything above the joint's own T R S, over time."""
    chain: list[int] = []
    at = int(target.parents[joint])
    while at >= 0:
        chain.append(at)
        at = int(target.parents[at])
    total = np.tile(np.eye(4), (len(translations), 1, 1))
    scales = bind_pose(target).scales
    for j in chain[::-1]:
        step = np.tile(np.eye(4), (len(translations), 1, 1))
        step[:, :3, :3] = local[:, j] * scales[j]
        step[:, :3, 3] = translations[:, j]
        total = total @ target.prefix[j] @ step
    return total @ target.prefix[joint]
