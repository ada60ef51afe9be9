"""Training of the paper's objective on the metric layer, and recipes of several stages."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.progress import Progress
from pipelines.train_fields import TrainFieldsConfig, train_fields
from splatanim.errors import InputError
from splatanim.field.decoder import orthonormaliser
from splatanim.field.neural_model import SHIPPED, SHIPPED_PAPER, load_model, seeded_model
from splatanim.field.train import load_checkpoint, start, train
from splatanim.field.train_batch import draw_batch, usable
from splatanim.field.train_objectives import paper_terms
from splatanim.field.train_recipes import RECIPES, Recipe, Stage, follow
from tests.field.test_train import PAPER, QUICK, TINY, _box, _shapes, coarse, one_thread  # noqa: F401  (fixtures)

SHORT = Recipe(
    TINY,
    (
        Stage(dataclasses.replace(QUICK, steps=4, stop=3), "ends before its schedule"),
        Stage(dataclasses.replace(QUICK, steps=2, seed=1), "goes on from there"),
    ),
    generated=0,
)


def test_a_recipe_runs_its_stages_one_after_the_other(tmp_path: Path) -> None:
    files = [tmp_path / "1.pt", tmp_path / "2.pt"]
    whole, records = follow(SHORT, _shapes(), files)
    assert [record["steps"] for record in records] == [3, 2]
    assert records[0]["note"] == "ends before its schedule" and records[1]["training"]["seed"] == 1
    first = load_checkpoint(files[0], TINY, SHORT.stages[0].training)
    by_hand = start(TINY, SHORT.stages[1].training)
    by_hand.model.load_state_dict(first.model.state_dict())
    train(by_hand, SHORT.stages[1].training, _shapes())
    again, _ = follow(SHORT, _shapes(), files, resume=files[0])  # the first stage is complete, the second is repeated
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, by_hand.model.state_dict()[key]) and torch.equal(value, again.model.state_dict()[key])
    resumed, records = follow(SHORT, _shapes(), files, resume=files[1])
    assert resumed.step == 2 and [record["steps"] for record in records] == [3, 2]
    train(start(TINY, QUICK), QUICK, _shapes(), checkpoint=tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"other\.pt: this checkpoint is of no stage of the recipe"):
        follow(SHORT, _shapes(), files, resume=tmp_path / "other.pt")
    with pytest.raises(InputError, match="not a checkpoint of train-fields"):
        follow(SHORT, _shapes(), files, resume=tmp_path / "none.pt")


def test_the_shipped_recipe_is_what_the_shipped_weights_record() -> None:
    kept = json.loads(SHIPPED.with_suffix(".json").read_text())
    recipe = RECIPES["shipped"]
    assert dataclasses.asdict(recipe.model) | kept["model"] == dataclasses.asdict(recipe.model)
    assert recipe.generated == kept["data"]["generated"] and len(recipe.stages) == len(kept["stages"])
    for stage, made in zip(recipe.stages, kept["stages"]):
        assert (stage.training.stop or stage.training.steps) == made["steps"] and stage.note == made["note"]
        for key in ("objective", "batch", "points", "surface", "rate", "last_rate", "weight_decay", "seed", "centres"):
            assert getattr(stage.training, key) == made["training"][key], key


@pytest.mark.usefixtures("coarse")
def test_the_pipeline_follows_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "shipped", SHORT)
    _box(tmp_path / "good.ply")
    output = tmp_path / "out" / "w.safetensors"
    text = train_fields(TrainFieldsConfig(tmp_path, output, recipe="shipped"), Progress(False))
    record = json.loads(output.with_suffix(".json").read_text())
    assert f"wrote {output}" in text and record["recipe"] == "shipped" and len(record["stages"]) == 2
    assert load_model(output).config == TINY
    with pytest.raises(InputError, match="--recipe shipped fixes how to train; leave out --objective, --steps"):
        train_fields(TrainFieldsConfig(tmp_path, output, recipe="shipped", objective="paper", steps=3), Progress(False))


def test_the_metric_layer_makes_fields_orthonormal_and_trains_on_their_span() -> None:
    """Exact over the points it is fixed on, nearest to the fields, with energies that recombination leaves alone."""
    generator = torch.Generator().manual_seed(3)
    fields = torch.randn(2, 200, 5, dtype=torch.float64, generator=generator)
    fields[..., 4] = fields[..., 3] + 1e-3 * fields[..., 4]  # nearly the same
    mixed = fields @ orthonormaliser(fields, ridge=1e-12)
    eye = torch.eye(5, dtype=torch.float64).expand(2, 5, 5)
    torch.testing.assert_close(mixed.transpose(1, 2) @ mixed / 200, eye, atol=1e-5, rtol=0)
    u, _, v = torch.linalg.svd(fields / fields.pow(2).mean(dim=1, keepdim=True).sqrt(), full_matrices=False)
    torch.testing.assert_close(mixed, 200**0.5 * u @ v, atol=1e-2, rtol=0)  # the polar factor
    model = seeded_model(dataclasses.replace(PAPER, metric=True), 0)
    config = dataclasses.replace(QUICK, objective="paper", gram=160)
    batch = draw_batch(usable(_shapes()), np.random.default_rng(0), batch=2, points=160, surface=48, anchors=8)
    before = paper_terms(model, batch, config, 0.0, np.random.default_rng(0))
    with torch.no_grad():
        model.decoder.out = torch.nn.Linear(16, 4).requires_grad_(False)
        first = paper_terms(model, batch, config, 0.0, np.random.default_rng(0))
        # a rotation of the fields: the same span, and the sums of squares over an orthonormal basis of it
        turn = torch.linalg.qr(torch.randn(4, 4, generator=generator))[0]
        model.decoder.out.weight.copy_(turn @ model.decoder.out.weight)
        model.decoder.out.bias.copy_(turn @ model.decoder.out.bias)
        turned = paper_terms(model, batch, config, 0.0, np.random.default_rng(0))
    torch.testing.assert_close(first["smooth"], turned["smooth"], rtol=2e-2, atol=0)
    torch.testing.assert_close(first["potential"], turned["potential"], rtol=2e-2, atol=0)
    assert all(float(loss.detach()) > 0 for loss in before.values())


def test_a_sampled_energy_agrees_with_the_expected_one() -> None:
    model = seeded_model(PAPER, 0)
    batch = draw_batch(usable(_shapes()), np.random.default_rng(0), batch=1, points=40, surface=48, anchors=8)
    exact = dataclasses.replace(QUICK, objective="paper", points=40, gram=40)
    sampled = dataclasses.replace(exact, samples=4000)
    rng = np.random.default_rng(0)
    a, b = (paper_terms(model, batch, c, 1.0, rng)["potential"] for c in (exact, sampled))
    assert abs(float(b / a) - 1) < 0.1


def test_a_stop_beyond_the_steps_is_named() -> None:
    with pytest.raises(InputError, match=r"stop is 9; it must lie between 1 and steps \(6\)"):
        dataclasses.replace(QUICK, stop=9)


def test_shipped_weights_fit_the_package_and_say_where_they_come_from() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.parent.iterdir()) < 8 * 2**20
    record = json.loads(SHIPPED_PAPER.with_suffix(".json").read_text())
    assert load_model(SHIPPED_PAPER).config.metric and record["training"]["objective"] == "paper"
    named = {row["licence"] for row in record["data"]["licences"] if row.get("files")}
    assert {"CC-BY-3.0", "CC-BY-4.0"} <= named and "/" not in "".join(str(v) for v in record["options"].values())
