"""Training: it learns, it repeats itself, it resumes, points come and go with their optimiser state."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from rigpapr.asset import load_tensors, save_tensors
from rigpapr.cloud import CloudConfig, PaprCloud
from rigpapr.dataset import View
from rigpapr.initialisation import start_cloud, visual_hull
from rigpapr.quality import held_out_quality
from rigpapr.raypool import RayPool
from rigpapr.refine import append, grow, prune, take
from rigpapr.train import (
    PRESETS,
    TrainConfig,
    Training,
    most_attention,
    read_checkpoint,
    start,
    train,
    write_checkpoint,
)
from splatanim.errors import InputError
from tests.rigpapr import scenes

WHITE = (1.0, 1.0, 1.0)
CONFIG = TrainConfig(
    cloud=CloudConfig(neighbours=8),
    points=400,
    first_points=400,
    steps=60,
    rays=512,
    views=4,
    band=4.0,
    warmup=10,
    sweeps=(),
)


def begin(config: TrainConfig = CONFIG) -> tuple[Training, list[View]]:
    views = scenes.views()
    points = visual_hull(views, config.first_points, resolution=48)
    return start(start_cloud(config.cloud, points, views, band=config.band, seed=0), config), views


def test_training_improves_views_it_has_not_seen() -> None:
    training, views = begin()
    kept, held = views[1:], views[:1]
    before = held_out_quality(training.cloud, held, WHITE)
    train(training, CONFIG, kept)
    after = held_out_quality(training.cloud, held, WHITE)
    assert after.psnr > before.psnr + 4
    assert training.step == 60 and training.curve and np.isfinite(training.curve[-1][2])


def test_the_papers_head_learns() -> None:
    cloud = CloudConfig(head="paper", neighbours=8, feature_size=16, width=32, key_layers=2, value_layers=3)
    config = dataclasses.replace(
        PRESETS["paper"], cloud=cloud, points=420, first_points=400, steps=60, rays=512, views=4
    )
    config = dataclasses.replace(
        config, rate_points=1e-2, rate_features=2e-2, rate_influence=2e-2, rate_head=5e-3, refine_every=20, grow=10
    )
    training, views = begin(config)
    before = held_out_quality(training.cloud, views[:2], WHITE)
    train(training, config, views)
    assert held_out_quality(training.cloud, views[:2], WHITE).psnr > before.psnr + 2
    assert 400 < len(training.cloud) <= 420


def test_the_same_seed_gives_the_same_cloud_and_resuming_goes_on_as_if_nothing_happened(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, steps=24, sweeps=(0.25, 0.75), unseen=0.3)
    whole, views = begin(config)
    train(whole, config, views)
    halfway, _ = begin(config)

    class Stop(Exception):
        pass

    def stop(training: Training, psnr: float) -> None:
        if training.step == 11:
            write_checkpoint(tmp_path / "c.safetensors", training, config)
            raise Stop

    with pytest.raises(Stop):
        train(halfway, config, views, on_step=stop)
    resumed = read_checkpoint(tmp_path / "c.safetensors", config)
    assert resumed.step == 11 and resumed.swept == 1
    train(resumed, config, views)
    assert len(resumed.cloud) == len(whole.cloud) < 400
    for name, value in whole.cloud.state_dict().items():
        torch.testing.assert_close(resumed.cloud.state_dict()[name], value, rtol=0, atol=0)


def test_a_training_by_time_ends_after_its_passes_over_the_pixels() -> None:
    config = dataclasses.replace(CONFIG, steps=0, seconds=1e6, passes=2.0, sweeps=())
    training, views = begin(config)
    pixels = len(RayPool(views, training.cloud, config.band, WHITE))
    train(training, config, views)
    assert training.step == int(np.ceil(2 * pixels / config.rays)) and 0.8 < training.progress < 1
    assert training.cloud.lamp is not None
    train(training, dataclasses.replace(CONFIG, steps=training.step + 1, light=False, borrow=0.0), views)
    assert training.cloud.lamp is None  # what was known of the light ends where points move again


def test_an_interrupt_leaves_a_checkpoint(tmp_path: Path) -> None:
    training, views = begin()

    def interrupt(training: Training, psnr: float) -> None:
        if training.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(training, CONFIG, views, checkpoint=tmp_path / "c.safetensors", on_step=interrupt)
    assert read_checkpoint(tmp_path / "c.safetensors", CONFIG).step == 3


def test_bad_checkpoints_are_refused(tmp_path: Path) -> None:
    training, _ = begin()
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, training, CONFIG)
    with pytest.raises(InputError, match="Resume with its preset"):
        read_checkpoint(path, PRESETS["paper"])
    tensors, header = load_tensors(path, "papr_training")
    save_tensors(path, tensors, "papr_training", {**header, "version": 99})
    with pytest.raises(InputError, match="is a checkpoint of version 99; update"):
        read_checkpoint(path, CONFIG)
    save_tensors(path, tensors, "papr_training", {**header, "step": None})
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        read_checkpoint(path, CONFIG)
    tensors["cloud.features"][3, 2] = torch.nan
    save_tensors(path, tensors, "papr_training", header)
    with pytest.raises(InputError, match=r"c.safetensors: tensor features has 1 NaN or infinite values"):
        read_checkpoint(path, CONFIG)


def test_a_diverging_training_stops_with_a_message() -> None:
    training, views = begin()
    with torch.no_grad():
        training.cloud.features[:, 4] = torch.nan
    with pytest.raises(InputError, match="Step 0: the loss is nan"):
        train(training, CONFIG, views)


def adam_state(training: Training, name: str) -> torch.Tensor:
    return training.optimiser.state[getattr(training.cloud, name)]["exp_avg"]


def test_points_come_and_go_with_their_optimiser_state() -> None:
    training, views = begin()
    train(training, dataclasses.replace(CONFIG, steps=3), views)
    positions, moments = training.cloud.positions.detach().clone(), adam_state(training, "features").clone()
    keep = torch.arange(400) % 3 != 0
    assert prune(training.cloud, training.optimiser, keep) == 134
    torch.testing.assert_close(training.cloud.positions.detach(), positions[keep])
    torch.testing.assert_close(adam_state(training, "features"), moments[keep])
    append(training.cloud, training.optimiser, torch.tensor([[0, 1, 2]]), torch.tensor([[0.5, 0.25, 0.25]]))
    mixed = positions[keep][0] * 0.5 + positions[keep][1] * 0.25 + positions[keep][2] * 0.25
    torch.testing.assert_close(training.cloud.positions[-1].detach(), mixed)
    assert len(training.cloud) == 267 and (adam_state(training, "features")[-1] == 0).all()
    train(training, dataclasses.replace(CONFIG, steps=6), views)  # the optimiser still drives the new parameters
    assert not torch.equal(training.cloud.positions[-1].detach(), mixed)


def test_growing_fills_the_sparse_part() -> None:
    rng = np.random.default_rng(0)
    dense, sparse = rng.uniform(0, 1, (300, 3)), rng.uniform(3, 9, (30, 3))
    cloud = PaprCloud(CloudConfig(), torch.from_numpy(np.concatenate([dense, sparse])).float())
    optimiser = start(cloud, CONFIG).optimiser
    assert grow(cloud, optimiser, 20, rng) == 20
    assert (cloud.positions[330:].detach().mean(1) > 2).float().mean() > 0.9


def test_pruning_never_leaves_fewer_points_than_neighbours() -> None:
    training, _ = begin()
    assert prune(training.cloud, training.optimiser, torch.zeros(400, dtype=torch.bool)) == 0
    take(training.cloud, training.optimiser, torch.arange(10))
    assert len(training.cloud) == 10


def test_points_inside_are_the_unseen_ones() -> None:
    training, views = begin()
    cloud = training.cloud
    inside = torch.zeros(1, 3)
    mixed = PaprCloud(
        cloud.config,
        torch.cat([cloud.positions.detach(), inside]),
        centre=cloud.centre.numpy(),
        scale=float(cloud.scale),
    )
    with torch.no_grad():
        mixed.influence += 3
    most = most_attention(mixed, views)
    assert most[400:].max() < 0.02 < most[:400].median()


def test_rays_come_from_near_the_subject() -> None:
    training, views = begin()
    near, everywhere = (RayPool(views, training.cloud, band, WHITE) for band in (2.0, float("inf")))
    assert len(near) < 0.7 * len(everywhere) == 0.7 * 8 * 1600
    batch = near.draw(np.random.default_rng(0), 101, 4)
    assert batch.origins.shape == (101, 3) and len(batch.parts) == 4
    np.testing.assert_allclose(np.linalg.norm(batch.directions, axis=1), 1, rtol=1e-6)
    outside = batch.rgba[:, 3] == 0
    assert outside.any() and (batch.rgba[outside, :3] == 1).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"steps": 0, "seconds": 0.0}, "give --steps or --seconds"),
        ({"rays": 0}, "rays is 0; it must be at least 1"),
        ({"dropout": 0.95}, r"dropout is 0.95; it must lie in \[0, 0.9\)"),
    ],
)
def test_impossible_settings_are_refused(change: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        dataclasses.replace(CONFIG, **change)
