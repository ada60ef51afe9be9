"""Skeletons in torch: forward kinematics and skinning, batched over any leading dimensions, differentiable in
rotations, translations, scales, joint positions, points and weights.

Two ways to pose. By a file's local transforms: :func:`local_matrices`, :func:`forward_kinematics`, then
``G @ inverse_bind``. Or by turns about the joints of a bind pose, for fitting (no local axes are needed):
:func:`transforms_about_joints`, with

    G_b = G_parent [R_b | c_b - c_parent],    T_b = G_b Trans(-c_b),

R_b in the parent's turned axes, c_b the bind positions; at R = I every T_b is the identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import roma
import torch
from jaxtyping import Float
from torch import Tensor

from splatanim.rig.skeleton import Skeleton


def joint_levels(parents: Sequence[int]) -> list[list[int]]:
    """Joint indices by depth, roots first."""
    levels = [[j for j, p in enumerate(parents) if p < 0]]
    while levels[-1]:
        above = set(levels[-1])
        levels.append([j for j, p in enumerate(parents) if p in above])
    return levels[:-1]


def local_matrices(
    translations: Float[Tensor, "*b j 3"], rotations: Float[Tensor, "*b j 3 3"], scales: Float[Tensor, "*b j 3"] | None
) -> Float[Tensor, "*b j 4 4"]:
    """T R S of every joint; ``scales`` None means 1."""
    linear = rotations if scales is None else rotations * scales[..., None, :]
    return _affine(linear, translations)


def _affine(linear: Tensor, shift: Tensor) -> Tensor:
    top = torch.cat([linear, shift[..., None]], dim=-1)
    last = torch.zeros_like(top[..., :1, :])
    last[..., 3] = 1.0
    return torch.cat([top, last], dim=-2)


def quaternions_to_rotations(q: Float[Tensor, "*b 4"]) -> Float[Tensor, "*b 3 3"]:
    """Rotation matrices of wxyz quaternions, which need not be unit."""
    q = torch.nn.functional.normalize(q, dim=-1)
    return roma.unitquat_to_rotmat(torch.roll(q, -1, dims=-1))


def rotation_vectors_to_rotations(v: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Rotation matrices of axis-angle vectors [rad]; smooth at zero."""
    return roma.rotvec_to_rotmat(v)


def forward_kinematics(parents: Sequence[int], local: Float[Tensor, "*b j 4 4"]) -> Float[Tensor, "*b j 4 4"]:
    """Global transforms G_j = G_parent L_j, level by level (prefixes are part of ``local``: P_j L_j)."""
    levels = joint_levels(parents)
    done = [local[..., levels[0], :, :]]
    for above, level in itertools.pairwise(levels):
        where = {joint: k for k, joint in enumerate(above)}
        parent = done[-1][..., [where[parents[j]] for j in level], :, :]
        done.append(parent @ local[..., level, :, :])
    order = [j for level in levels for j in level]
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(done, dim=-3)[..., back, :, :]


def skeleton_transforms(
    skeleton: Skeleton,
    translations: Float[Tensor, "*b j 3"],
    rotations: Float[Tensor, "*b j 3 3"],
    scales: Float[Tensor, "*b j 3"] | None = None,
) -> Float[Tensor, "*b j 4 4"]:
    """Skinning transforms G_j B_j of a skeleton whose joints have these local transforms."""
    like = {"dtype": translations.dtype, "device": translations.device}
    prefix = torch.as_tensor(skeleton.prefix, **like)  # type: ignore[arg-type]
    inverse = torch.as_tensor(skeleton.inverse_bind, **like)  # type: ignore[arg-type]
    local = prefix @ local_matrices(translations, rotations, scales)
    return forward_kinematics(skeleton.parents.tolist(), local) @ inverse


def transforms_about_joints(
    parents: Sequence[int],
    positions: Float[Tensor, "j 3"],
    rotations: Float[Tensor, "*b j 3 3"],
    root_translation: Float[Tensor, "*b 3"] | None = None,
) -> Float[Tensor, "*b j 4 4"]:
    """T_b of turns about the joints' bind positions; ``root_translation`` is added to everything."""
    up = torch.as_tensor([max(p, 0) for p in parents], device=positions.device)
    root = torch.as_tensor([p < 0 for p in parents], device=positions.device)
    bone = torch.where(root[:, None], positions, positions - positions[up])
    moved = forward_kinematics(parents, _affine(rotations, bone.expand(rotations.shape[:-1])))
    shift = moved[..., :3, 3] - (moved[..., :3, :3] @ positions[..., None])[..., 0]
    if root_translation is not None:
        shift = shift + root_translation[..., None, :]
    return _affine(moved[..., :3, :3], shift)


def linear_blend(
    points: Float[Tensor, "n 3"], weights: Float[Tensor, "n j"], transforms: Float[Tensor, "*b j 4 4"]
) -> Float[Tensor, "*b n 3"]:
    """Linear blend skinning: sum_j w_j T_j [x; 1]."""
    maps = blended_maps(weights, transforms)
    return torch.einsum("...nab,nb->...na", maps[..., :3], points) + maps[..., 3]


def blended_maps(weights: Float[Tensor, "n j"], transforms: Float[Tensor, "*b j 4 4"]) -> Float[Tensor, "*b n 3 4"]:
    """The blended affine maps sum_j w_j T_j, rows 0 to 2: what covariances follow."""
    flat = transforms[..., :3, :].flatten(-2)
    return torch.matmul(weights, flat).unflatten(-1, (3, 4))


def dual_quaternion_blend(
    points: Float[Tensor, "n 3"], weights: Float[Tensor, "n j"], transforms: Float[Tensor, "*b j 4 4"]
) -> Float[Tensor, "*b n 3"]:
    """Dual quaternion skinning with linearly blended stretches, as in :mod:`splatanim.rig.skinning`.

    Differentiable as long as no transform is singular.
    """
    linear = transforms[..., :3, :3]
    rotations = roma.special_procrustes(linear)
    stretches = rotations.transpose(-1, -2) @ linear
    real = roma.rotmat_to_unitquat(rotations)  # xyzw
    shift = torch.nn.functional.pad(transforms[..., :3, 3], (0, 1))
    dual = 0.5 * roma.quat_product(shift, real)
    pivot = real[..., weights.argmax(dim=-1), :]
    sign = torch.where(torch.einsum("...jd,...nd->...nj", real, pivot) < 0, -1.0, 1.0)
    signed = weights * sign.to(weights.dtype)
    q, d = signed @ real, signed @ dual
    length = torch.linalg.norm(q, dim=-1, keepdim=True)
    q, d = q / length, d / length
    stretch = torch.matmul(weights, stretches.flatten(-2)).unflatten(-1, (3, 3))
    stretched = torch.einsum("...nab,nb->...na", stretch, points)
    moved = torch.einsum("...nab,...nb->...na", roma.unitquat_to_rotmat(q), stretched)
    return moved + 2.0 * roma.quat_product(d, roma.quat_conjugation(q))[..., :3]
