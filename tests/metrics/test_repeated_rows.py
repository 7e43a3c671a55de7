"""Whole-number weights mean repeated rows, for every measure of the table, however few rows there are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import focalcal as fc
from focalcal import metrics
from focalcal.files import Columns, PredictionStream
from focalcal.metrics.table import MEASURES
from focalcal.report.verdict import assess


@st.composite
def weighted(draw):
    """Probabilities k/100 of a few rows, of which many are tied, with labels and whole-number weights, 0 included."""
    rows, classes = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    probs = generator.multinomial(100, generator.dirichlet(np.ones(classes)), rows) / 100
    weight = np.array(draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)))
    weight[0] = max(weight[0], 1)
    return probs, generator.integers(0, classes, rows), weight


def repeated(probs, labels, weight):
    return np.repeat(probs, weight, axis=0), np.repeat(labels, weight)


def same(found, expected):
    """Equal up to the rounding of sums, which are taken in another order."""
    return (found is None or np.isnan(found)) == (expected is None or np.isnan(expected)) and (
        found is None or found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
    )


def differing(found, expected) -> list[str]:
    names = [name for name, value in expected.values.items() if not same(found[name], value)]
    names += [name for name in ("definitions", "warnings") if getattr(found, name) != getattr(expected, name)]
    for name in ("bins", "equal_mass_bins"):
        one, other = getattr(found, name), getattr(expected, name)
        fields = ("count", "mass", "confidence", "accuracy")
        names += [f"{name}.{f}" for f in fields if not np.allclose(getattr(one, f), getattr(other, f), atol=1e-9)]
    return names


@settings(max_examples=40)
@given(weighted())
def test_evaluate(rows):
    *data, weight = rows
    expected = fc.evaluate(*repeated(*rows), kind="probs")
    assert differing(fc.evaluate(*data, kind="probs", sample_weight=weight), expected) == []


@settings(max_examples=20)
@given(weighted(), st.integers(1, 5), st.sampled_from([256 << 20, 0]))
def test_streams(rows, size, memory):
    parts = [tuple(column[start : start + size] for column in rows) for start in range(0, len(rows[1]), size)]
    found = fc.evaluate(PredictionStream(parts, Columns(kind="probs"), memory=memory))
    copies = PredictionStream([repeated(*rows)], Columns(kind="probs"), memory=memory)
    same_rows = [name for name in differing(found, fc.evaluate(copies)) if name != "warnings"]  # these tell the rows
    assert same_rows == []


@settings(max_examples=15)
@given(weighted())
def test_measures_of_the_table(rows):
    *data, weight = rows
    for name, measure in MEASURES.items():
        if measure.least_classes > data[0].shape[1] or name == "top_k_accuracy":
            continue
        target = "classwise" if measure.reads == ("classes",) else "top_label"
        found = measure.of(metrics.read(*data, kind="probs", target=target, sample_weight=weight))
        expected = measure.of(metrics.read(*repeated(*rows), kind="probs", target=target))
        assert same(found, expected), name


def test_a_verdict_has_intervals_for_the_same_bins():
    probs, labels, weight = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]), [0, 1, 1], [40, 1, 2]
    found = assess(probs, labels, kind="probs", sample_weight=weight, num_resamples=100)
    assert found.intervals["ada_ece"].value == pytest.approx(found.evaluation.ada_ece, abs=1e-12)


def test_a_resample_may_have_fewer_rows_than_bins():
    rows = metrics.read([[0.9, 0.1], [0.4, 0.6]], [0, 1], kind="probs", sample_weight=[40, 1])
    debiased = metrics.bootstrap(MEASURES["ece_debiased"], rows, num_resamples=100)
    assert debiased.value == pytest.approx(metrics.ece_debiased(rows, num_bins=15), abs=1e-12)
