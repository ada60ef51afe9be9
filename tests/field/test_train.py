"""Training: data from hostile folders, the schedule, resuming bit for bit, several processes, and the pipeline."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from pipelines.progress import Progress
from pipelines.train_fields import TrainFieldsConfig, resolve, train_fields
from splatanim.errors import InputError
from splatanim.field import dataset
from splatanim.field.neural_model import ModelConfig, copy_matching, load_model, save_model, seeded_model
from splatanim.field.train import TrainConfig, Training, load_checkpoint, rate_at, start, train
from splatanim.field.train_batch import draw_batch, random_turn, usable
from splatanim.field.train_objectives import fields_and_gradients
from splatanim.field.train_occupancy import occupied, pretrain

TINY = ModelConfig(width=16, latents=8, layers=1, heads=2, fields=6, depth=1, surface_points=64, warp=3)
PAPER = dataclasses.replace(TINY, fields=4, warp=0, affine=False, oni=True)
QUICK = TrainConfig(steps=6, batch=2, points=96, surface=48, centres=8, samples=4)


@functools.cache
def _shapes() -> tuple[dataset.Shape, ...]:
    """Coarse shapes with few voxels, so that their modes are quick."""
    from splatanim.field.dataset_shapes import occupancy

    grids = [occupancy(np.random.default_rng([5, number]), 20) for number in range(3)]
    return tuple(dataset.preprocess(dataset.domain_of(grid), f"s{i}", "train") for i, grid in enumerate(grids))


def _box(path: Path, extents: tuple[float, float, float] = (1.0, 0.5, 0.4)) -> None:
    trimesh.creation.box(extents).export(path)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small lose more by handing work between threads than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "GRID", 16)
    monkeypatch.setattr(dataset, "_SPACING", 2.2 / 16)


def _hostile(folder: Path) -> None:
    _box(folder / "good.ply")
    (folder / "junk.ply").write_bytes(b"ply\nnothing of the sort")
    (folder / "empty.obj").write_text("")
    (folder / "flat.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    (folder / "nan.obj").write_text("v nan 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\n")
    # three walls that meet in a corner enclose nothing
    (folder / "open.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\nf 1 3 4\n")


def test_unusable_meshes_are_counted_by_reason(tmp_path: Path, coarse: None) -> None:
    _hostile(tmp_path)
    data = dataset.load_dataset(tmp_path, tmp_path / "cache")
    assert [shape.name for shape in data.shapes] == ["good.ply"]
    assert sum(data.skipped.values()) == 5
    text = data.summary()
    assert text.startswith("1 shapes for training, 0 for validation, 5 skipped (")
    for reason in ("without volume", "with NaN or infinite vertices", "whose surface is open", "cannot be"):
        assert reason in text
    again = dataset.load_dataset(tmp_path, tmp_path / "cache")
    assert again.skipped == data.skipped
    np.testing.assert_array_equal(again.shapes[0].modes, data.shapes[0].modes)
    np.testing.assert_array_equal(again.shapes[0].domain.cells, data.shapes[0].domain.cells)


def test_folders_without_usable_meshes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        dataset.load_dataset(tmp_path / "nowhere", tmp_path / "cache")
    with pytest.raises(InputError, match=r"no usable mesh for training \(0 shapes for training, 0 for validation\)"):
        dataset.load_dataset(tmp_path, tmp_path / "cache")
    (tmp_path / "index.csv").write_text("file,split\ngone.ply,train\n")
    with pytest.raises(InputError, match=r"1 skipped \(1 named in index.csv but missing\)"):
        dataset.load_dataset(tmp_path, tmp_path / "cache")
    (tmp_path / "index.csv").write_text("name\ngone.ply\n")
    with pytest.raises(InputError, match="has no column `file`"):
        dataset.load_dataset(tmp_path, tmp_path / "cache")


def test_a_damaged_cache_file_is_named(tmp_path: Path, coarse: None) -> None:
    _box(tmp_path / "good.ply")
    dataset.load_dataset(tmp_path, tmp_path / "cache")
    stored = next((tmp_path / "cache").glob("good-*.npz"))
    stored.write_bytes(b"")
    with pytest.raises(InputError, match="cache file is damaged"):
        dataset.load_dataset(tmp_path, tmp_path / "cache")


def test_a_filled_box_is_a_box(coarse: None, tmp_path: Path) -> None:
    _box(tmp_path / "box.ply", (1.0, 0.5, 0.5))
    domain = dataset.fill(dataset.read_mesh(tmp_path / "box.ply"))
    size = domain.cells.max(axis=0) + 1
    assert len(domain.cells) == size.prod() and abs(size[0] / size[1] - 2) < 0.3
    np.testing.assert_allclose(np.abs(domain.centres).max() + domain.spacing / 2, 1.0)


def test_batches_are_turned_boxes_with_their_modes() -> None:
    shapes, rng = usable(_shapes()), np.random.default_rng(0)
    batch = draw_batch(shapes, rng, batch=2, points=64, surface=40, anchors=8)
    assert batch.points.shape == (2, 64, 3) and batch.surface.shape == (2, 40, 3) and batch.modes.shape == (2, 64, 20)
    assert float(batch.points.abs().max()) < 1.1
    assert batch.edge_weights.gt(0).sum(dim=1).min() > 20
    rows = torch.arange(2)[:, None]
    ends = batch.points[rows[..., None], batch.edges]
    length = (ends[:, :, 1] - ends[:, :, 0]).norm(dim=-1)
    used = batch.edge_weights > 0
    torch.testing.assert_close(length[used] * batch.edge_weights[used], torch.ones(int(used.sum())), atol=1e-4, rtol=0)


def test_turns_are_orthogonal() -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        turn = random_turn(rng)
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)


def test_gradients_of_fields_match_finite_differences() -> None:
    model = seeded_model(PAPER, 0).double()
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(2, 5, 3, dtype=torch.float64, generator=generator)
    handles = torch.randn(2, 4, 16, dtype=torch.float64, generator=generator)
    values, slopes = fields_and_gradients(model, handles, points)
    h = 1e-6
    for axis in range(3):
        step = h * torch.eye(3, dtype=torch.float64)[axis]
        numeric = (model.fields(handles, points + step) - model.fields(handles, points - step)) / (2 * h)
        torch.testing.assert_close(slopes[..., axis], numeric, atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(values, model.fields(handles, points))
    slopes.sum().backward()
    assert model.decoder.ask.weight.grad.abs().max() > 0


@pytest.mark.parametrize("objective", ["ritz", "paper"])
def test_training_lowers_the_loss(objective: str) -> None:
    if objective == "paper":
        pytest.importorskip("conflictfree")
    config = dataclasses.replace(QUICK, objective=objective, steps=90, rate=3e-3)
    training = train(start(PAPER if objective == "paper" else TINY, config), config, _shapes(), every=10)
    first, last = training.curve[0][2], training.curve[-1][2]
    key = "orthogonal" if objective == "paper" else "distillation"
    assert last[key] < first[key] and all(np.isfinite(list(last.values())))


@pytest.mark.parametrize("objective", ["ritz", "paper"])
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path: Path, objective: str) -> None:
    if objective == "paper":
        pytest.importorskip("conflictfree")
    size = PAPER if objective == "paper" else TINY
    config = dataclasses.replace(QUICK, objective=objective)
    whole = train(start(size, config), config, _shapes())

    class Stop(Exception):
        pass

    def stop(training: Training) -> None:
        if training.step == 3:
            raise Stop

    half = start(size, config)
    with pytest.raises(Stop):
        train(half, config, _shapes(), on_step=stop)
    from splatanim.field.train import save_checkpoint

    save_checkpoint(half, config, tmp_path / "half.pt")
    resumed = train(load_checkpoint(tmp_path / "half.pt", size, config), config, _shapes())
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[key]), key


def test_foreign_checkpoints_are_named(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    with pytest.raises(InputError, match=r"c\.pt: no such checkpoint"):
        load_checkpoint(path, TINY, QUICK)
    path.write_bytes(b"zip? no")
    with pytest.raises(InputError, match="not a checkpoint of train-fields"):
        load_checkpoint(path, TINY, QUICK)
    config = dataclasses.replace(QUICK, steps=1)
    train(start(TINY, config), config, _shapes(), checkpoint=path)
    with pytest.raises(InputError, match=r"of another config.*fields is 6 there and 9 here"):
        load_checkpoint(path, dataclasses.replace(TINY, fields=9), QUICK)
    with pytest.raises(InputError, match="objective is ritz there and paper here"):
        load_checkpoint(path, TINY, dataclasses.replace(QUICK, objective="paper"))


def test_the_rate_warms_up_and_falls() -> None:
    config = TrainConfig(objective="paper", steps=1000, rate=5e-4, last_rate=5e-5)
    assert rate_at(0.005, config) == pytest.approx(2.5e-4)
    assert rate_at(0.01, config) == pytest.approx(5e-4)
    assert rate_at(1.0, config) == pytest.approx(5e-5)


def test_impossible_trainings_are_named() -> None:
    with pytest.raises(InputError, match="give --steps or --seconds"):
        TrainConfig(steps=0, seconds=0)
    with pytest.raises(InputError, match="batch is 0; it must be at least 1"):
        TrainConfig(batch=0)
    with pytest.raises(InputError, match="None of the 0 shapes can be trained on"):
        train(start(TINY, QUICK), QUICK, [])


def test_occupancy_pretraining_learns_inside_from_outside() -> None:
    shape = _shapes()[0]
    assert occupied(shape, shape.domain.centres).all() and not occupied(shape, np.full((3, 3), 1.5)).any()
    losses = pretrain(seeded_model(TINY, 0), _shapes(), steps=40, batch=2, points=128, rate=3e-3)
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])


def test_the_pipeline_writes_weights_that_load(tmp_path: Path, coarse: None) -> None:
    _box(tmp_path / "good.ply")
    output = tmp_path / "out" / "w.safetensors"
    config = TrainFieldsConfig(tmp_path, output, steps=2, generated=0, batch=1, points=32)
    text = train_fields(config, Progress(False))
    assert text.startswith("1 shapes for training") and "2 steps in" in text and f"wrote {output}" in text
    record = json.loads(output.with_suffix(".json").read_text())
    assert record["training"]["points"] == 32 and record["steps"] == 2 and record["options"]["preset"] == "small"
    assert load_model(output).config == resolve(config)[0]
    more = dataclasses.replace(config, steps=3, resume=output.with_suffix(".checkpoint.pt"))
    assert "3 steps in" in train_fields(more, Progress(False))


def test_half_precision_halves_the_file_and_loads(tmp_path: Path) -> None:
    model = seeded_model(TINY, 1)
    for half in (False, True):
        save_model(model, tmp_path / f"{half}.safetensors", {}, half=half)
    size = {half: (tmp_path / f"{half}.safetensors").stat().st_size for half in (False, True)}
    assert size[True] < 0.7 * size[False]
    loaded = load_model(tmp_path / "True.safetensors")
    assert loaded.encoder.tokens.dtype == torch.float32
    torch.testing.assert_close(loaded.encoder.tokens, model.encoder.tokens.detach(), rtol=1e-3, atol=1e-4)


def test_training_can_start_from_other_weights(tmp_path: Path) -> None:
    model = seeded_model(PAPER, 1)
    other = seeded_model(TINY, 2)
    save_model(other, tmp_path / "w.safetensors", {})
    assert copy_matching(model, tmp_path / "w.safetensors") > 20
    assert torch.equal(model.encoder.tokens, other.encoder.tokens)
    wide = seeded_model(dataclasses.replace(TINY, width=24, latents=9), 0)
    with pytest.raises(InputError, match="no tensor of its encoder fits"):
        copy_matching(wide, tmp_path / "w.safetensors")


def test_options_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Name the output NAME\.safetensors"):
        train_fields(TrainFieldsConfig(tmp_path, Path("w.pt")), Progress(False))
    with pytest.raises(InputError, match="Add --preset paper"):
        train_fields(TrainFieldsConfig(tmp_path, encoder=Path("m.ckpt")), Progress(False))
    with pytest.raises(InputError, match="--generated is -1"):
        train_fields(TrainFieldsConfig(tmp_path, generated=-1), Progress(False))


def test_presets_resolve_to_the_papers_numbers(tmp_path: Path) -> None:
    model, settings = resolve(TrainFieldsConfig(tmp_path, preset="paper", objective="paper"))
    assert (model.latents, model.width, model.layers, model.fields) == (256, 768, 8, 16)
    assert (settings.points, settings.samples, settings.surface) == (1000, 0, 4096)  # 0: the exact expectation
    assert model.metric and model.oni
    assert (settings.rate, settings.last_rate, settings.deviation) == (5e-4, 5e-5, 0.2)


@pytest.mark.slow
def test_two_processes_end_with_the_same_weights(tmp_path: Path) -> None:
    """Each process sees other batches; averaged gradients keep the weights equal."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import sys, hashlib, dataclasses, torch\n"
        "from torch import distributed\n"
        "from tests.field.test_train import TINY, QUICK, _shapes\n"
        "from splatanim.field.train import start, train\n"
        "rank = int(sys.argv[2])\n"
        "store = 'file://' + sys.argv[1] + 'store'\n"  # a free port could be taken by the time it is used
        "distributed.init_process_group('gloo', init_method=store, rank=rank, world_size=2)\n"
        "config = dataclasses.replace(QUICK, seed=rank)\n"  # other seeds: weights are taken from process 0
        "training = train(start(TINY, config), config, _shapes())\n"
        "flat = torch.cat([p.detach().flatten() for p in training.model.parameters()])\n"
        "open(sys.argv[1] + str(rank), 'w').write(hashlib.sha256(flat.numpy().tobytes()).hexdigest())\n"
        "distributed.barrier()\n"  # one that leaves first would cut the other's connection in mid-talk
        "distributed.destroy_process_group()\n"
    )
    workers = []
    for rank in range(2):
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        arguments = [sys.executable, str(script), str(tmp_path / "hash"), str(rank)]
        workers.append(subprocess.Popen(arguments, env=environment))
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    assert (tmp_path / "hash0").read_text() == (tmp_path / "hash1").read_text()
