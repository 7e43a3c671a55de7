"""What is measured: sums that equal the measures of all logits at once, BLEU, and the files of a conclusion."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.errors import InputError
from focalcal_lab.data import load_data
from focalcal_lab.models import make_model
from focalcal_lab.recipe import Recipe
from focalcal_lab.run_results import RunResult, read_result, write_result
from focalcal_lab.translation.measurement import (
    TemperedTokens,
    conclude_translation,
    corpus_bleu,
    measure_tokens,
    translate,
)

GRID = tuple(i / 10 for i in range(1, 101))


def rows(num_rows=700, num_classes=40, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(num_rows, num_classes, generator=generator, dtype=dtype)
    right = logits.argmax(1)
    guess = torch.randint(num_classes, (num_rows,), generator=generator)
    labels = torch.where(torch.rand(num_rows, generator=generator) < 0.6, right, guess)
    labels[::7] = -100
    return logits, labels


def make_recipe(**measurement):
    return Recipe(
        name="t",
        about="t",
        task="translation",
        data={"name": "toy-translation"},
        model={"name": "transformer"},
        methods={"ce": {"loss": "ce"}},
        training={"epochs": 1, "batch_size": 8, "eval_batch_size": 16, "optimizer": {"name": "adam", "lr": 1e-3}},
        measurement=measurement,
    )


@pytest.fixture(scope="module")
def trained():
    """A small corpus and a network that has just begun to learn it, and is too sure."""
    data = load_data("toy-translation", num_train=300, num_val=60, num_test=40)
    torch.manual_seed(0)
    network = make_model("transformer", data.num_classes, data.facts, layers=1, width=32, heads=2, inner=64, dropout=0)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for step in range(60):
        inputs, labels = data.train.batch(np.random.default_rng(step).integers(300, size=32).tolist())
        optimizer.zero_grad()
        fc.focal_loss(network(inputs), labels, gamma=0.0).backward()
        optimizer.step()
    with torch.no_grad():  # logits 1.6 times as large: far too sure, so that there is a temperature to find
        for parameter in network.model.model.decoder.layers[-1].final_layer_norm.parameters():
            parameter *= 1.6
    return network, data


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_the_sums_equal_the_measures_of_all_rows_at_every_temperature(dtype):
    logits, labels = rows(dtype=dtype)
    tokens = TemperedTokens(GRID)
    for some, wanted in zip(logits.split(37), labels.split(37), strict=True):
        tokens.update(some, wanted)
    kept = labels != -100
    assert tokens.num_tokens == int(kept.sum())
    assert tokens.error == pytest.approx(fc.metrics.error(logits[kept], labels[kept]))
    for temperature in GRID:
        tempered = logits[kept].double() / temperature
        assert tokens.nll(temperature) == pytest.approx(fc.metrics.nll(tempered, labels[kept]), rel=1e-6)
        assert tokens.ece(temperature) == pytest.approx(fc.metrics.ece(tempered, labels[kept]), abs=1e-6)


def test_sums_merge_whatever_the_parts():
    logits, labels = rows()
    whole, one, two = (TemperedTokens((0.5, 1.0, 2.0), num_bins=10) for _ in range(3))
    whole.update(logits, labels)
    one.update(logits[:100], labels[:100])
    two.update(logits[100:], labels[100:])
    merged = one.merge(two)
    torch.testing.assert_close(merged.bin_sums, whole.bin_sums)
    torch.testing.assert_close(merged.nll_sums, whole.nll_sums)
    with pytest.raises(InputError, match="same temperatures"):
        whole.merge(TemperedTokens((1.0,), num_bins=10))


def test_extreme_logits_and_ignored_batches_do_no_harm():
    tokens = TemperedTokens((0.1, 1.0))
    tokens.update(torch.randn(5, 3), torch.full((5,), -100))
    with pytest.raises(InputError, match="taken in before"):
        tokens.nll(1.0)
    tokens.update(torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]]), torch.tensor([0, 2]))
    assert tokens.ece(0.1) == pytest.approx((0 + 1 / 3) / 2, abs=1e-6)
    assert tokens.nll(1.0) == pytest.approx(np.log(3) / 2)
    with pytest.raises(InputError, match="given at the start"):
        tokens.ece(3.0)


def test_the_best_temperature_is_that_of_temperature_scaling():
    logits, labels = rows(2000)
    tokens = TemperedTokens(GRID)
    tokens.update(logits, labels)
    kept = labels != -100
    scaling = fc.TemperatureScaling("ece").fit(logits[kept], labels[kept])
    assert tokens.best_temperature(GRID) == scaling.temperature_ != 1.0
    assert tokens.ece(scaling.temperature_) == pytest.approx(scaling.report_.after, abs=1e-6)


def test_of_equally_good_temperatures_the_one_nearest_to_1_wins():
    tokens = TemperedTokens(GRID)
    tokens.update(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]))  # a temperature changes nothing
    assert tokens.best_temperature(GRID) == 1.0


@pytest.mark.parametrize("temperatures", [(), (0.0,), (float("inf"),)])
def test_temperatures_that_are_none_are_refused(temperatures):
    with pytest.raises(InputError, match="temperatures"):
        TemperedTokens(temperatures)


def test_tokens_of_a_split_are_those_of_one_large_batch(trained):
    network, data = trained
    network.eval()
    tokens = measure_tokens(network, data.val, (1.0, 1.7), batch_size=7)
    inputs, labels = data.val.batch(range(60))
    with torch.no_grad():
        logits = network(inputs)[labels != -100]
    labels = labels[labels != -100]
    assert tokens.num_tokens == len(labels) == sum(len(data.val.targets[i]) + 1 for i in range(60))
    assert tokens.ece(1.7) == pytest.approx(fc.metrics.ece(logits / 1.7, labels), abs=1e-5)
    assert tokens.nll(1.0) == pytest.approx(fc.metrics.nll(logits, labels), rel=1e-5)


def test_bleu_by_hand():
    # One of five unigrams and two of four bigrams are missed: 4/5, 2/4, 1/3 and 1/4 (smoothed from 0 of 2).
    score, signature = corpus_bleu(["a b c x e"], ["a b c d e"])
    assert score == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * (1 / 2) / 2) ** 0.25)
    assert "version" in signature
    assert corpus_bleu(["a b c d e"], ["a b c d e"])[0] == 100.0
    assert corpus_bleu(["a b c d"], ["a b c d e"])[0] == pytest.approx(100 * np.exp(1 - 5 / 4))


@pytest.mark.slow
def test_translations_are_in_the_order_of_the_split(trained):
    network, data = trained
    network.eval()
    together, alone = (
        translate(network, data.test, data.facts["decode"], temperature=1.0, beams=2, batch_size=size)
        for size in (40, 3)
    )
    same = np.mean([a == b for a, b in zip(together.hypotheses, alone.hypotheses, strict=True)])
    assert same > 0.95  # sums in another order may tip a tie
    copied = corpus_bleu(together.hypotheses, [target for _, target in data.test.texts])
    assert together.bleu == copied[0]
    assert together.bleu > corpus_bleu(together.hypotheses[::-1], [target for _, target in data.test.texts])[0]


@pytest.mark.slow
def test_the_conclusion_has_rows_a_curve_and_files(trained, tmp_path):
    network, data = trained
    network.train()
    steps = []
    recipe = make_recipe(temperatures=[0.5, 2.0], beams=2)
    found, extra = conclude_translation(network, data, recipe, tmp_path / "run", "cpu", lambda *s: steps.append(s))
    assert network.training
    network.eval()
    best = extra["temperature"]
    assert best > 1.2
    assert [(row.phase, row.metric, row.temperature) for row in found] == [
        *(("pre", metric, None) for metric in ("ece_ew", "nll", "bleu")),
        *(("post", metric, best) for metric in ("ece_ew", "nll", "bleu")),
    ]
    test = measure_tokens(network, data.test, (1.0, best))
    val = measure_tokens(network, data.val, GRID)
    bleu = {t: translate(network, data.test, data.facts["decode"], temperature=t, beams=2).bleu for t in (1.0, best)}
    numbers = [row.value for row in found]
    expected = [test.ece(1.0), test.nll(1.0), bleu[1.0], test.ece(best), test.nll(best), bleu[best]]
    assert numbers == pytest.approx(expected, abs=0.5 if numbers[2] != expected[2] else 1e-5)
    assert best == val.best_temperature(GRID)
    assert [point["temperature"] for point in extra["curve"]] == sorted({0.5, 1.0, 2.0, best})
    for point in extra["curve"]:
        assert point["val_ece"] == pytest.approx(val.ece(point["temperature"]), abs=1e-5)
    assert {what for _, _, what in steps} >= {"val tokens", "test tokens", "translating at temperature 0.5"}
    result = RunResult("t", "ce", 0, 1, "d", data.about, 300, 60, 40, found, extra)
    write_result(result, tmp_path / "result.json")
    assert read_result(tmp_path / "result.json") == result


@pytest.mark.slow
def test_what_a_conclusion_writes_can_be_read(trained, tmp_path):
    network, data = trained
    _, extra = conclude_translation(network, data, make_recipe(beams=2), tmp_path, "cpu")
    best = extra["temperature"]
    document = json.loads((tmp_path / "translations.json").read_text(encoding="utf-8"))
    assert document["sources"] == [source for source, _ in data.test.texts]
    assert [each["temperature"] for each in document["translations"]] == [1.0, best]
    for each, point in zip(document["translations"], extra["curve"], strict=True):
        assert corpus_bleu(each["hypotheses"], document["references"])[0] == each["bleu"] == point["test_bleu"]
    scaling = fc.load_calibrator(tmp_path / "calibrators" / "temperature.json")
    assert (scaling.temperature_, scaling.num_classes_, scaling.report_.num_rows) == (
        best,
        630,
        extra["num_tokens"]["val"],
    )
    logits = torch.randn(3, 630)
    torch.testing.assert_close(scaling(logits), torch.log_softmax(logits / best, 1))
    inputs, labels = data.val.batch(range(60))
    kept = labels != -100
    with torch.no_grad():
        fitted = fc.TemperatureScaling("ece").fit(network.eval()(inputs)[kept], labels[kept])
    assert fitted.temperature_ == best
    assert fitted.settings() == scaling.settings() | {"grid": None}
    assert fitted.report_.after == pytest.approx(scaling.report_.after, abs=1e-5)


@pytest.mark.slow
def test_a_recipe_names_phase_and_grid(trained, tmp_path):
    network, data = trained
    given = {"phase": "ts", "method": "temperature", "criterion": "ece", "options": {"grid": [0.9, 1.1]}}
    found, extra = conclude_translation(network, data, make_recipe(calibrators=[given], beams=1), tmp_path, "cpu")
    assert {row.phase for row in found} == {"pre", "ts"}
    assert extra["temperature"] in (0.9, 1.1)
    assert fc.load_calibrator(tmp_path / "calibrators" / "temperature.json").grid == [0.9, 1.1]


@pytest.mark.parametrize(
    "wrong", [{"method": "vector"}, {"method": "temperature", "criterion": "nll"}, {"options": {"refine": True}}]
)
def test_calibrators_that_translation_has_not_are_refused(trained, tmp_path, wrong):
    network, data = trained
    recipe = make_recipe(calibrators=[{"phase": "post", "method": "temperature", "criterion": "ece", **wrong}])
    with pytest.raises(InputError, match="translation"):
        conclude_translation(network, data, recipe, tmp_path, "cpu")


def test_other_networks_and_data_are_refused(trained, tmp_path):
    network, data = trained
    with pytest.raises(InputError, match="needs the model transformer"):
        conclude_translation(torch.nn.Linear(2, 2), data, make_recipe(), tmp_path, "cpu")
    images = type(data)("cifar10", [], [], [], 10)
    with pytest.raises(InputError, match="sentence pairs"):
        conclude_translation(network, images, make_recipe(), tmp_path, "cpu")
