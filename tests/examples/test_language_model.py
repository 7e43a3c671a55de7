"""The language model example: text from its grammar, better probabilities after calibration, and less memory."""

from __future__ import annotations

import sys

import pytest
import torch

import focalcal as fc
from tests.examples.test_examples import load

pytestmark = pytest.mark.slow

pytest.importorskip("accelerate", reason="Trainer needs accelerate")


def test_the_text_is_the_same_every_time_and_all_of_it_is_used():
    example = load("language_model")
    text = example.make_text(seed=0, sentences=50)
    assert text == example.make_text(seed=0, sentences=50) != example.make_text(seed=1, sentences=50)
    blocks = example.make_blocks(text)
    assert len(blocks) == (len(text) - 1) // 64
    assert bytes(torch.cat([block["input_ids"] for block in blocks]).tolist()).decode() == text[: 64 * len(blocks)]


def test_streamed_logits_are_measured_and_calibrated_as_all_at_once():
    example = load("language_model")
    model, blocks = example.make_model(), example.make_blocks(example.make_text(seed=3, sentences=60))
    with torch.no_grad():  # an untrained network with opinions
        model.lm_head.weight.mul_(30)
    parts = list(example.batches(model, blocks))
    assert len(parts) > 2
    logits, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    tokens = torch.stack([block["input_ids"] for block in blocks])
    with torch.no_grad():
        own_loss = model(input_ids=tokens, labels=tokens).loss  # transformers shifts the labels itself
    assert float(fc.metrics.nll(logits, labels)) == pytest.approx(float(own_loss), rel=1e-5)
    fitted = fc.TemperatureScaling().fit(lambda: example.batches(model, blocks))
    assert fitted.temperature_ == pytest.approx(fc.TemperatureScaling().fit(logits, labels).temperature_, rel=1e-6)
    found = example.measure(example.batches(model, blocks), fitted)
    expected = fc.evaluate(fitted(logits), labels, kind="log_probs")
    assert (found.n, found.ece, found.nll) == pytest.approx((63 * len(blocks), expected.ece, expected.nll))


@pytest.mark.slow
def test_a_temperature_mends_what_focal_loss_leaves_too_doubtful(capsys):
    before, after = load("language_model").main(steps=60)
    assert before.n == after.n > 10_000
    assert before.accuracy == after.accuracy > 0.5
    assert before.mean_confidence < before.accuracy - 0.05
    assert after.ece < before.ece / 2
    assert after.nll < before.nll
    assert "temperature 0." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_step_through_the_output_layer_takes_a_fraction_of_the_memory(capsys):
    figures = load("language_model").compare(20_000)
    (_, whole), (_, chunked) = figures["FocalLoss, all logits"], figures["LinearFocalLoss"]
    logits = 64 * 64 * 20_000 * 4 / 2**20
    assert whole > 2 * logits  # the logits and their gradient
    assert chunked < logits / 2
    assert "vocabulary padded to 20,000" in capsys.readouterr().out
