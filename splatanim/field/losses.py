"""Training losses of neural skinning fields: the paper's (eq. 6-9), and distillation of the exact subspace.

All are functions of fields on a batch of points: weights W (b, n, m) and, where needed, gradients dW/dX (b, n, m, 3).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

REFERENCE_POINTS = 1000  # columns have unit length over this many points, whatever the batch's size


def normalise_columns(
    weights: Float[Tensor, "b n m"], gradients: Float[Tensor, "b n m 3"] | None = None
) -> tuple[Float[Tensor, "b n m"], Float[Tensor, "b n m 3"] | None]:
    """On-the-fly l2 normalisation: every column of W has mean square 1 / :data:`REFERENCE_POINTS` over the batch.

    That is unit length over 1000 points as in the paper, but without its dependence on the number of points.
    """
    factor = column_factor(weights)
    return weights * factor, None if gradients is None else gradients * factor[..., None]


def column_factor(weights: Float[Tensor, "b n m"]) -> Float[Tensor, "b 1 m"]:
    """What :func:`normalise_columns` multiplies every column with."""
    return (REFERENCE_POINTS * weights.pow(2).mean(dim=1, keepdim=True).clamp_min(1e-12)).rsqrt()


def orthogonality(weights: Float[Tensor, "b n m"]) -> Float[Tensor, ""]:
    """Eq. 9: sum over i != j of (W_i . W_j)^2, the columns taken as over :data:`REFERENCE_POINTS` points."""
    gram = weights.transpose(1, 2) @ weights * (REFERENCE_POINTS / weights.shape[1])
    off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    return off.pow(2).sum(dim=(1, 2)).mean()


def complementarity(
    points: Float[Tensor, "b n 3"], weights: Float[Tensor, "b n m"], bones: Float[Tensor, "b n j"]
) -> Float[Tensor, ""]:
    """Eq. 22: |J^T B|_F^2, over |J|_F^2 |B|_F^2, so that it depends on neither the number of points nor of bones.

    J has the columns w_b [X; 1] of a rig's weights and B those of the fields, W_i [X; 1] (eq. 20). Each stands for
    three columns, one an axis; of those full matrices the quotient is a third of this.
    """
    homogeneous = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)
    rig = (bones[..., :, None] * homogeneous[..., None, :]).flatten(2)
    fields = (weights[..., :, None] * homogeneous[..., None, :]).flatten(2)
    product = (rig.transpose(1, 2) @ fields).pow(2).sum(dim=(1, 2))
    size = rig.pow(2).sum(dim=(1, 2)) * fields.pow(2).sum(dim=(1, 2))
    return (product / size.clamp_min(1e-20)).mean()


def smoothness(gradients: Float[Tensor, "b n m 3"]) -> Float[Tensor, ""]:
    """Eq. 8: mean over points of sum_i |grad W_i|^2."""
    return gradients.pow(2).sum(dim=(2, 3)).mean()


def deformation_map(
    points: Float[Tensor, "b n 3"], weights: Float[Tensor, "b n m"], gradients: Float[Tensor, "b n m 3"]
) -> Float[Tensor, "b n k 3"]:
    """G (4m x 3 per point) with F = I + Z G: rows are the gradients of W_i X_a (a = 1..3) and of W_i, for every i."""
    homogeneous = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)
    slope = torch.eye(4, 3, dtype=points.dtype, device=points.device)
    g = gradients[..., None, :] * homogeneous[:, :, None, :, None] + weights[..., None, None] * slope
    return g.flatten(2, 3)


def expected_linear_energy(
    g: Float[Tensor, "b n k 3"], volumes: Float[Tensor, "b n"], mu: float, lam: float, deviation: float
) -> Float[Tensor, " b"]:
    """E over z ~ N(0, deviation^2 I) of the linear-elastic energy, in closed form.

    H = Z G has independent rows with covariance deviation^2 G^T G, so E |H|^2 = 3 s, E tr(H H) = s and E tr(H)^2 = s
    with s = deviation^2 |G|^2. With eps = (H + H^T) / 2, the energy density mu |eps|^2 + lambda/2 tr(eps)^2 has the
    mean (2 mu + lambda/2) s.
    """
    return (2.0 * mu + 0.5 * lam) * deviation**2 * (volumes * g.pow(2).sum(dim=(2, 3))).sum(dim=1)


def linear_energy(displacement_gradient: Float[Tensor, "*n 3 3"], mu: float, lam: float) -> Float[Tensor, "*n"]:
    """Density of linear elasticity, mu |eps|^2 + lambda/2 tr(eps)^2 with eps = sym(H)."""
    h = displacement_gradient
    strain = 0.5 * (h + h.transpose(-1, -2))
    trace = h.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return mu * strain.pow(2).sum(dim=(-2, -1)) + 0.5 * lam * trace**2


def neohookean_energy(displacement_gradient: Float[Tensor, "*n 3 3"], mu: float, lam: float) -> Float[Tensor, "*n"]:
    """Density of stable Neo-Hookean elasticity (Smith et al. 2018) of F = I + H, zero at rest.

    mu/2 (|F|^2 - 3) - mu (J - 1) + (lambda + mu)/2 (J - 1)^2, the model of the simulator; it linearises to
    :func:`linear_energy`.
    """
    h = displacement_gradient
    trace = h.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    f = h + torch.eye(3, dtype=h.dtype, device=h.device)
    jacobian = (f[..., 0, :] * torch.linalg.cross(f[..., 1, :], f[..., 2, :], dim=-1)).sum(dim=-1)
    stretch = h.pow(2).sum(dim=(-2, -1)) + 2.0 * trace
    return 0.5 * mu * stretch - mu * (jacobian - 1.0) + 0.5 * (lam + mu) * (jacobian - 1.0) ** 2


def expected_neohookean_energy(
    g: Float[Tensor, "b n k 3"], volumes: Float[Tensor, "b n"], mu: float, lam: float, deviation: float
) -> Float[Tensor, " b"]:
    """E over z ~ N(0, deviation^2 I) of the Neo-Hookean energy, in closed form too.

    The rows of H are independent with covariance C = deviation^2 G^T G. J = det(I + H) is the sum of the principal
    minors of H. Every minor is linear in each row that it has, so its mean is zero, as is that of the product of two
    different ones; the square of a k x k minor has the mean k! det of that block of C. Hence E J = 1 and
    E (J - 1)^2 = e_1 + 2 e_2 + 6 e_3, the elementary symmetric polynomials of the eigenvalues of C, and
    E |F|^2 = 3 + 3 e_1.
    """
    covariance = deviation**2 * (g.transpose(2, 3) @ g)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    minors = 0.5 * (trace**2 - covariance.pow(2).sum(dim=(-2, -1)))
    c = covariance
    determinant = (c[..., 0, :] * torch.linalg.cross(c[..., 1, :], c[..., 2, :], dim=-1)).sum(dim=-1)
    density = 1.5 * mu * trace + 0.5 * (lam + mu) * (trace + 2.0 * minors + 6.0 * determinant)
    return (volumes * density).sum(dim=1)


def sampled_neohookean_energy(
    g: Float[Tensor, "b n k 3"],
    volumes: Float[Tensor, "b n"],
    z: Float[Tensor, "s 3 k"],
    mu: float,
    lam: float,
) -> Float[Tensor, " b"]:
    """Mean over samples Z of the Neo-Hookean energy, as the paper estimates it."""
    h = torch.einsum("srk,bnkc->bsnrc", z, g)
    return (neohookean_energy(h, mu, lam) * volumes[:, None]).sum(dim=2).mean(dim=1)


def distillation(
    functions: Float[Tensor, "b n k"],
    modes: Float[Tensor, "b n c"],
    edges: Int[Tensor, "b e 2"],
    edge_weights: Float[Tensor, "b e"],
    *,
    mass: float = 0.2,
    ridge: float = 1e-4,
) -> Float[Tensor, ""]:
    """Energy of what the exact modes lose by projection on span[functions, 1], over the energy of the modes.

    The energy is the Dirichlet energy over edges between neighbouring voxels, plus ``mass`` times the mean square in
    units of the modes' mean eigenvalue. Without the latter this is what Rayleigh-Ritz on the functions loses, to first
    order: a subspace ratio minus 1. Invariant to any recombination of the functions, as the bound field is. The modes
    come from the geometry alone, so no labels are involved. Factorised in float64.
    """
    slopes, mode_slopes = _differences(functions, edges, edge_weights), _differences(modes, edges, edge_weights)
    level = mode_slopes.pow(2).sum(dim=1, keepdim=True).mean(dim=2, keepdim=True)  # summed over edges
    factor = (mass * level / functions.shape[1]).sqrt()
    rows = torch.cat([slopes, factor * (functions - functions.mean(dim=1, keepdim=True))], dim=1)
    target = torch.cat([mode_slopes, factor * (modes - modes.mean(dim=1, keepdim=True))], dim=1)
    rows = rows * (rows.pow(2).sum(dim=1, keepdim=True) + 1e-12).rsqrt()
    gram = (rows.transpose(1, 2) @ rows).double()
    gram = gram + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    moments = (rows.transpose(1, 2) @ target).double()
    solved = torch.cholesky_solve(moments, torch.linalg.cholesky(gram))
    total = target.double().pow(2).sum(dim=(1, 2))
    return (1.0 - (moments * solved).sum(dim=(1, 2)) / total).mean()


def _differences(
    functions: Float[Tensor, "b n k"], edges: Int[Tensor, "b e 2"], weights: Float[Tensor, "b e"]
) -> Float[Tensor, "b e k"]:
    batch = torch.arange(len(functions), device=functions.device)[:, None]
    return (functions[batch, edges[..., 1]] - functions[batch, edges[..., 0]]) * weights[..., None]


def conflict_free(gradients: Float[Tensor, "l p"]) -> Float[Tensor, " p"]:
    """One update direction from the gradients of several losses, by ConFIG (Liu et al. 2024).

    The direction lies in the span of the gradients and depends on their inner products alone, so it is found in
    coordinates of that span: the symmetric root of their Gram matrix stands for them. This is cheaper than least
    squares over all parameters, and repeatable to the last bit, which that is not.
    """
    from splatanim.errors import require

    operator: Any = require("conflictfree.grad_operator", extra="train")
    exact = gradients.double()
    values, vectors = torch.linalg.eigh(exact @ exact.T)
    size = values.clamp_min(0.0).sqrt()
    inverse = torch.where(size > 1e-9 * size[-1], 1.0 / size.clamp_min(1e-300), 0.0)
    root = vectors @ torch.diag(size) @ vectors.T
    small = operator.ConFIG_update(root, weight_model=_EqualWeights())
    return (small @ (vectors @ torch.diag(inverse) @ vectors.T) @ exact).to(gradients.dtype)


class _EqualWeights:
    """ConFIG's default, every loss counting alike, in the gradients' precision (its own is float32 always)."""

    def get_weights(self, gradients: Tensor, **_: object) -> Tensor:
        return torch.ones(len(gradients), dtype=gradients.dtype, device=gradients.device)
