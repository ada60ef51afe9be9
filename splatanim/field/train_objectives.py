"""The two objectives of training, each a function (model, batch, config, progress, rng) -> losses by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from splatanim.field import losses
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
    """Eq. 6: smoothness, expected potential energy (linear blended into Neo-Hookean), orthogonality."""
    handles = model.encode(batch.surface, batch.normals)
    weights, gradients = fields_and_gradients(model, handles, batch.points)
    if config.normalise:
        normal, slopes = losses.normalise_columns(weights, gradients)
        assert slopes is not None
        weights, gradients = normal, slopes
    g = losses.deformation_map(batch.points, weights, gradients)
    volumes = torch.full(batch.points.shape[:2], 1.0 / batch.points.shape[1])
    mu, lam = _LAME
    linear = losses.expected_linear_energy(g, volumes, mu, lam, config.deviation).mean()
    draws = rng.normal(scale=config.deviation, size=(config.samples, 3, g.shape[2])).astype(np.float32)
    nonlinear = losses.sampled_neohookean_energy(g, volumes, torch.from_numpy(draws), mu, lam).mean()
    terms = {
        "smooth": config.w_smooth * losses.smoothness(gradients),
        "potential": config.w_potential * ((1.0 - progress) * linear + progress * nonlinear),
        "orthogonal": config.w_orthogonal * losses.orthogonality(weights),
    }
    weight: dict[str, Any] = {
        "smooth": config.w_smooth, "potential": config.w_potential, "orthogonal": config.w_orthogonal
    }  # fmt: skip
    return {name: loss for name, loss in terms.items() if weight[name] > 0}


OBJECTIVES: dict[str, Callable[..., Terms]] = {"ritz": ritz_terms, "paper": paper_terms}
