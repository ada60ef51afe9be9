"""Training against rigs: the loss of eq. 22 by brute force, shapes with bones, and what ``--complementary`` refuses."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.progress import Progress
from pipelines.train_fields import TrainFieldsConfig, resolve, train_fields
from splatanim.errors import InputError
from splatanim.field import dataset
from splatanim.field.dataset_rigged import MOST_BONES, invented_rig, rigged_dataset, rigged_shape, with_bones
from splatanim.field.dataset_shapes import occupancy
from splatanim.field.losses import complementarity
from splatanim.field.neural_model import ModelConfig
from splatanim.field.train import TrainConfig, start, train
from splatanim.field.train_batch import draw_batch
from tests.helpers import data_file

TINY = ModelConfig(
    width=16, latents=8, layers=1, heads=2, fields=4, depth=1, surface_points=64, warp=0, affine=False, oni=True
)
QUICK = TrainConfig("paper", steps=80, batch=1, points=64, gram=256, surface=48, rate=1e-2, config=False)


@functools.cache
def _shape() -> dataset.Shape:
    return dataset.preprocess(dataset.domain_of(occupancy(np.random.default_rng([5, 0]), 20)), "s", "train")


def test_the_loss_against_full_matrices() -> None:
    """J and B written out with their three copies (eq. 20), float64."""
    rng = np.random.default_rng(0)
    points, fields, bones = rng.normal(size=(2, 30, 3)), rng.normal(size=(2, 30, 4)), rng.random((2, 30, 3))
    expected = []
    for x, w, b in zip(points, fields, bones, strict=True):
        one = np.concatenate([x, np.ones((30, 1))], axis=1)
        full = [np.kron(np.eye(3), np.concatenate([c[:, None] * one for c in m.T], axis=1)) for m in (b, w)]
        sizes = [np.linalg.norm(m) for m in full]
        # Axes do not mix: the product has three copies of one block, and either matrix has three copies of its own.
        expected.append(3 * (np.linalg.norm(full[0].T @ full[1]) / (sizes[0] * sizes[1])) ** 2)
    inputs = [torch.from_numpy(a) for a in (points, fields, bones)]
    assert float(complementarity(*inputs)) == pytest.approx(np.mean(expected), rel=1e-12)
    # Fields that have no product with the rig, and those of the rig itself.
    one = torch.cat([inputs[0], torch.ones_like(inputs[0][..., :1])], dim=-1)
    rig = (inputs[2][..., None] * one[..., None, :]).flatten(2)
    plain = torch.linalg.qr(rig, mode="complete").Q[..., rig.shape[-1] :]
    assert float(complementarity(torch.zeros_like(inputs[0]), plain, inputs[2])) < 0.2
    assert float(complementarity(*inputs[:1], inputs[2], inputs[2])) > float(complementarity(*inputs))


def test_bones_follow_their_points_into_batches() -> None:
    shape = invented_rig(_shape(), 3)
    assert shape.bones is not None and shape.bones.shape[1] <= 20
    np.testing.assert_allclose(shape.bones.sum(axis=1), 1.0, atol=0.05)
    batch = draw_batch([shape], np.random.default_rng(1), batch=1, points=64, surface=32, anchors=8, blocks=False)
    assert batch.bones.shape == (1, 64, shape.bones.shape[1])
    known = {tuple(row) for row in shape.bones.tolist()}
    assert all(tuple(row) in known for row in batch.bones[0].tolist())
    bare = draw_batch([_shape()], np.random.default_rng(1), batch=1, points=64, surface=32, anchors=8)
    assert bare.bones.shape == (1, 64, 0)
    many = with_bones(_shape(), np.random.default_rng(2).random((len(_shape().rows), 40)))
    assert many.bones is not None and many.bones.shape[1] == MOST_BONES


def test_training_lowers_the_product() -> None:
    config = dataclasses.replace(QUICK, w_complementary=3000.0, w_potential=0.0)
    curve = train(start(TINY, config), config, [invented_rig(_shape(), 3)], every=10).curve
    assert curve[-1][2]["complementary"] < 0.8 * curve[0][2]["complementary"]


def test_a_rigged_model_becomes_a_shape() -> None:
    shape = rigged_shape(data_file("rigged/snake.glb"), "train")
    assert shape.bones is not None and 10 <= shape.bones.shape[1] <= 15
    assert len(shape.bones) == len(shape.points)
    np.testing.assert_allclose(shape.bones.sum(axis=1), 1.0, atol=0.1)


def test_what_does_not_fit(tmp_path: Path) -> None:
    config = TrainFieldsConfig(tmp_path, tmp_path / "w.safetensors", complementary=True)
    with pytest.raises(InputError, match="Add --objective paper"):
        train_fields(config, Progress(False))
    with pytest.raises(InputError, match="it goes with --complementary"):
        train_fields(dataclasses.replace(config, complementary=False, held_out="fox"), Progress(False))
    with pytest.raises(InputError, match="no usable rigged model for training"):
        rigged_dataset(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        rigged_dataset(tmp_path / "gone")
    settings = resolve(dataclasses.replace(config, objective="paper"))[1]
    assert settings.w_complementary > 0
    with pytest.raises(InputError, match="None of the shapes has a rig"):
        train(start(TINY, settings), dataclasses.replace(settings, steps=1), [_shape()])
