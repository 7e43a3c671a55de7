from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest
import torch

from focalcal import metrics
from focalcal.core.focal_map import focal_log_probs
from focalcal.core.score_kinds import logits_of
from focalcal.errors import InputError
from focalcal.files.prediction_table import PredictionTable
from focalcal.report.explorer import (
    BUDGET,
    MAX_ROWS,
    RANGES,
    WIDTH,
    decode,
    explorer_of,
    form_of,
    measures,
    measures_of,
    sample_of,
)
from tests.report.cases import sharp_table

POINTS = [(gamma, t) for gamma in (-0.9, -0.5, 0.0, 0.37, 1.0, 5.0) for t in (0.2, 0.6, 1.0, 1.7, 5.0)]
EXTREMES = [(gamma, t) for gamma in (-0.95, 0.0, 10.0) for t in (0.01, 0.1, 10.0, 1000.0)]


def library(table: PredictionTable, gamma: float, temperature: float) -> dict[str, float]:
    """The measures of the family at a point, from all classes of all rows."""
    scores = torch.from_numpy(table.scores)
    if table.scores.ndim == 1:
        scores = torch.stack([torch.zeros_like(scores), scores], 1)
    logits = logits_of(scores, table.kind).double()
    log_probs = focal_log_probs(logits / temperature, torch.tensor(gamma, dtype=torch.float64))
    rows = metrics.read(log_probs, table.labels, kind="log_probs", sample_weight=table.weights)
    bins = min(15, table.num_rows)
    measured = metrics.ece(rows), metrics.ada_ece(rows, num_bins=bins), metrics.nll(rows)
    return dict(zip(("ece", "ada_ece", "nll"), map(float, measured), strict=True))


def many_classes(num_classes: int, spread: float, n: int = 400) -> PredictionTable:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(n, num_classes)) * spread
    labels = generator.integers(0, num_classes, n)
    logits[np.arange(n), labels] += spread * generator.normal(3, 1.5, n)
    return PredictionTable("many", logits.astype(np.float32), "logits", labels=labels)


@pytest.mark.parametrize(("gamma", "temperature"), POINTS + EXTREMES)
def test_full_rows_give_what_the_library_measures(gamma: float, temperature: float) -> None:
    table = sharp_table()
    assert measures(explorer_of(table), gamma, temperature) == pytest.approx(
        library(table, gamma, temperature), rel=1e-6, abs=1e-6
    )


@pytest.mark.parametrize(("num_classes", "spread"), [(150, 0.4), (1000, 2.0), (150, 5.0)])
def test_reduced_rows_give_what_all_classes_give_to_3e_4(num_classes: int, spread: float) -> None:
    table = many_classes(num_classes, spread)
    explorer = explorer_of(table, budget=80_000)  # no room for 400 rows of all classes
    assert (explorer.width, explorer.groups, explorer.num_rows) == (WIDTH, 2 * RANGES, 400)
    sample = decode(explorer)
    for gamma, temperature in POINTS[::2]:
        here = measures_of(sample, *sample.at(temperature).columns(gamma), 15)
        there = library(table, gamma, temperature)
        assert here["nll"] == pytest.approx(there["nll"], rel=3e-4)
        assert here["ada_ece"] == pytest.approx(there["ada_ece"], abs=3e-4)
        # A row that crosses an edge moves the ECE by up to 2 / 400 on its own.
        assert here["ece"] == pytest.approx(there["ece"], abs=3e-4 + 2 / 400)


@pytest.mark.parametrize("model", ["lenet-5-cifar-100", "wideresnet-16-4-cifar-100"])
def test_reduced_rows_of_real_networks_are_right_to_1e_5(golden_predictions, model: str) -> None:
    probs, labels = golden_predictions(model)
    table = PredictionTable(model, probs[:1000], "probs", labels=labels[:1000])
    sample = sample_of(table, width=WIDTH, ranges=RANGES)
    for gamma, temperature in POINTS:
        here = measures_of(sample, *sample.at(temperature).columns(gamma), 15)
        assert here == pytest.approx(library(table, gamma, temperature), rel=1e-5, abs=1e-5)


def test_reduced_rows_keep_every_class_the_label_and_falling_logits() -> None:
    table = many_classes(300, 2.0)
    sample = decode(explorer_of(table))
    logits = torch.from_numpy(table.scores).double()
    top = logits.amax(1)
    assert (sample.tail_counts.sum(1) == 300 - WIDTH).all()
    assert (sample.scores.diff(dim=1) <= 0).all()
    assert (sample.scores[:, 0] == 0).all()
    assert torch.equal(sample.correct, logits.argmax(1) == torch.from_numpy(table.labels))
    kept = sample.scores.gather(1, sample.label.unsqueeze(1)).squeeze(1)
    of_label = logits.gather(1, torch.from_numpy(table.labels).unsqueeze(1)).squeeze(1) - top
    torch.testing.assert_close(kept, of_label, rtol=1e-6, atol=1e-6)
    assert (sample.label == WIDTH - 1).any()  # labels that are not among the largest


def test_equal_rows_are_tied_whatever_their_label() -> None:
    logits = np.full((5, 200), -3.0)
    logits[:, 0], logits[:, 1:60] = 4.0, 1.0
    table = PredictionTable("steps", logits, "logits", labels=np.array([0, 1, 0, 60, 199]))
    for gamma, temperature in POINTS:
        assert measures(explorer_of(table), gamma, temperature) == pytest.approx(
            library(table, gamma, temperature), rel=1e-6, abs=1e-7
        )


@pytest.mark.parametrize(("gamma", "temperature"), EXTREMES)
@pytest.mark.parametrize("num_classes", [2, 4, 200])
def test_measures_are_finite_however_far_logits_lie_apart(num_classes: int, gamma: float, temperature: float) -> None:
    logits = np.random.default_rng(0).normal(size=(40, num_classes)) * 1e4
    table = PredictionTable("far", logits, "logits", labels=np.arange(40) % num_classes)
    assert all(np.isfinite(value) for value in measures(explorer_of(table), gamma, temperature).values())


def test_probabilities_of_zero_take_the_floor_of_the_calibrators() -> None:
    probs = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=np.float32)
    table = PredictionTable("zeros", probs, "probs", labels=np.array([1, 2, 2]))
    found = measures(explorer_of(table), 0.0, 1.0)
    assert found["nll"] == pytest.approx(library(table, 0.0, 1.0)["nll"], rel=1e-6)
    assert found["nll"] > 50


@pytest.mark.parametrize("kind", ["whole", "fractional"])
def test_weights_count_as_in_the_library(kind: str) -> None:
    generator = np.random.default_rng(1)
    weights = generator.integers(0, 4, 600) if kind == "whole" else generator.uniform(0, 2, 600)
    table = sharp_table(weights=weights.astype(float))
    for gamma, temperature in POINTS:
        assert measures(explorer_of(table), gamma, temperature) == pytest.approx(
            library(table, gamma, temperature), rel=1e-5, abs=1e-6
        )


def test_binary_scores_are_those_of_the_positive_class() -> None:
    one = sharp_table(num_classes=2)
    column = replace(one, scores=one.scores[:, 1] - one.scores[:, 0])
    assert measures(explorer_of(column), 0.5, 1.5) == pytest.approx(library(column, 0.5, 1.5), abs=1e-6)
    assert measures(explorer_of(column), 0.5, 1.5) == pytest.approx(measures(explorer_of(one), 0.5, 1.5), abs=1e-6)


@pytest.mark.parametrize("edge", [6, 7, 9, 12, 14])
def test_a_confidence_on_an_edge_is_not_above_it(edge: int) -> None:
    """Wrong rows on an edge and right ones above it would cancel if rounding carried the former over."""
    top = np.repeat([edge / 15, (edge + 0.5) / 15], 50)
    probs = np.stack([top, (1 - top) * 0.55, (1 - top) * 0.45], 1)
    table = PredictionTable("edges", np.log(probs), "logits", labels=np.repeat([1, 0], 50))
    expected = metrics.ece(probs, table.labels, kind="probs")
    assert measures(explorer_of(table), 0.0, 1.0)["ece"] == pytest.approx(float(expected), abs=1e-6)


def test_sample_is_seeded_documented_and_within_its_budget() -> None:
    table = sharp_table(9000, 10)
    one, same, other = (explorer_of(table, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert one.scores != other.scores
    assert (one.num_rows, one.out_of, one.seed) == (MAX_ROWS, 9000, 0)
    small = explorer_of(table, budget=50_000)
    size = sum(len(base64.b64decode(part)) for part in (small.scores, small.label, small.correct))
    assert 49_000 < size <= 50_000


def test_all_rows_are_taken_if_there_is_room() -> None:
    table = sharp_table(500)
    assert decode(explorer_of(table)).num_rows == 500


def test_rows_of_weight_zero_are_never_drawn() -> None:
    table = sharp_table(1000, weights=np.tile([0.0, 1.0], 500))
    sample = decode(explorer_of(table, budget=400 * 19))
    assert sample.num_rows == 400
    assert sample.weights is not None
    assert (sample.weights == 1).all()


def test_form_depends_on_the_number_of_classes_and_on_the_room() -> None:
    assert form_of(100, 1000, BUDGET) == (100, 0)
    assert form_of(100, 10_000, BUDGET) == (WIDTH, RANGES)
    assert form_of(100, 10_000, 4 * BUDGET) == (100, 0)
    assert form_of(10, 10_000, 1000) == (10, 0)


@pytest.mark.parametrize(("gamma", "temperature"), [(-1.0, 1.0), (0.0, 0.0), (float("nan"), 1.0), (0.0, -1.0)])
def test_points_outside_the_family_are_refused(gamma: float, temperature: float) -> None:
    with pytest.raises(InputError, match="must be"):
        measures(explorer_of(sharp_table(20)), gamma, temperature)
