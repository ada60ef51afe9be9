"""The two objectives of training, each a function (model, batch, config, progress, rng) -> losses by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from splatanim.field import losses
from splatanim.field.decoder import orthonormaliser
from splatanim.field.neural_gaussians import farthest, nearest_distance, times_affine, warped_gaussians
from splatanim.field.neural_model import FieldModel
from splatanim.field.train_batch import Batch

if TYPE_CHECKING:
    from splatanim.field.train import TrainConfig

Terms = dict[str, Tensor]
_LAME = (1.0, 1.5)  # mu and lambda over mu, that is a Poisson ratio of 0.3; the modulus scales the loss only


def fields_and_gradients(
    model: FieldModel, handles: Float[Tensor, "b k d"], points: Float[Tensor, "b n 3"]
) -> tuple[Float[Tensor, "b n m"], Float[Tensor, "b n m 3"]]:
    """Phi and dPhi/dX by forward-mode differentiation; both can be differentiated again by the parameters."""

    def along(tangent: Tensor) -> Any:
        return torch.func.jvp(lambda x: model.fields(handles, x), (points,), (tangent,))

    directions = torch.eye(3, dtype=points.dtype)[:, None, None].expand(3, *points.shape)
    values, slopes = torch.func.vmap(along)(directions)
    return values[0], slopes.movedim(0, -1)


def ritz_terms(
    model: FieldModel, batch: Batch, config: TrainConfig, progress: float, rng: np.random.Generator
) -> Terms:
    """Distillation of the exact subspace into learned fields and warped Gaussians together."""
    decoder = model.decoder
    centres = farthest(batch.points, config.centres)
    rows = torch.arange(len(centres))[:, None]
    handles = model.encode(batch.surface, batch.normals)
    hidden = decoder.features(handles, batch.points)  # float32: differences between neighbours lose digits
    functions = decoder.out(hidden)
    if model.config.affine:
        functions = times_affine(functions, batch.points)
    if decoder.warp is not None:
        at = batch.points[rows, centres]
        embedding = decoder.warp(hidden)
        unit = nearest_distance(batch.points[:, ::4], at)
        log_width = decoder.log_widths(hidden[rows, centres])
        gaussians = warped_gaussians(batch.points, embedding, at, embedding[rows, centres], log_width, unit)
        functions = torch.cat([functions, gaussians], dim=-1)
    return {"distillation": losses.distillation(functions, batch.modes, batch.edges, batch.edge_weights)}


def paper_terms(
    model: FieldModel, batch: Batch, config: TrainConfig, progress: float, rng: np.random.Generator
) -> Terms:
    """Eq. 6: smoothness, expected potential energy (linear blended into Neo-Hookean), orthogonality; eq. 23 with
    ``w_complementary`` > 0, on shapes with rigs.

    Norms and products of columns are taken over all points of the batch, for which values are enough; the energies
    over the first ``config.points`` of them. With a network whose ``metric`` is set the energies are those of the
    orthonormalised fields, so that they depend on the span alone and never gain from fields that grow alike.
    """
    handles = model.encode(batch.surface, batch.normals)
    points, more = batch.points[:, : config.points], batch.points[:, config.points :]
    weights, gradients = fields_and_gradients(model, handles, points)
    every = torch.cat([weights, model.fields(handles, more)], dim=1) if more.shape[1] else weights
    if config.normalise:
        weights, gradients, every = _normalised(weights, gradients, every, metric=model.config.metric)
    terms = {
        "smooth": (config.w_smooth, lambda: losses.smoothness(gradients)),
        "potential": (config.w_potential, lambda: _potential(points, weights, gradients, config, progress, rng)),
        "orthogonal": (config.w_orthogonal, lambda: losses.orthogonality(every)),
        "complementary": (
            config.w_complementary,
            lambda: losses.complementarity(batch.points, every, batch.bones),
        ),
    }
    return {name: weight * loss() for name, (weight, loss) in terms.items() if weight > 0}


def _normalised(weights: Tensor, gradients: Tensor, every: Tensor, *, metric: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and gradients normalised by what ``every`` shows, and ``every`` with normalised columns."""
    columns, _ = losses.normalise_columns(every)
    if not metric:
        factor = losses.column_factor(every)
        return weights * factor, gradients * factor[..., None], columns
    mixing = orthonormaliser(every) * losses.REFERENCE_POINTS**-0.5
    return weights @ mixing, torch.einsum("bnmc,bmk->bnkc", gradients, mixing), columns


def _potential(
    points: Tensor, weights: Tensor, gradients: Tensor, config: TrainConfig, progress: float, rng: np.random.Generator
) -> Tensor:
    """Expected energy over z, in closed form, or its Neo-Hookean part sampled (``config.samples`` > 0)."""
    g = losses.deformation_map(points, weights, gradients)
    volumes = torch.full(points.shape[:2], 1.0 / points.shape[1])
    mu, lam = _LAME
    linear = losses.expected_linear_energy(g, volumes, mu, lam, config.deviation).mean()
    if config.samples:
        draws = rng.normal(scale=config.deviation, size=(config.samples, 3, g.shape[2])).astype(np.float32)
        nonlinear = losses.sampled_neohookean_energy(g, volumes, torch.from_numpy(draws), mu, lam).mean()
    else:
        nonlinear = losses.expected_neohookean_energy(g, volumes, mu, lam, config.deviation).mean()
    return (1.0 - progress) * linear + progress * nonlinear


OBJECTIVES: dict[str, Callable[..., Terms]] = {"ritz": ritz_terms, "paper": paper_terms}
