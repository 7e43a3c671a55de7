"""`evaluate`: every field is the measure of that name, and an evaluation survives JSON, tables and odd data."""

from __future__ import annotations

import io
import json
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from focalcal.errors import InputError
from focalcal.metrics.table import MEASURES, MeasureValues
from focalcal.predictions import arrays as predictions

RNG = np.random.default_rng(0)
LOGITS = 3 * RNG.normal(size=(2000, 7))
LABELS = (LOGITS / 1.5 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
SAME_MEASURE = {
    "accuracy": m.accuracy,
    "error": m.error,
    "nll": m.nll,
    "brier": m.brier,
    "brier_calibration": lambda *a, **k: m.brier_decomposition(*a, **k).calibration,
    "brier_refinement": lambda *a, **k: m.brier_decomposition(*a, **k).refinement,
    "mean_confidence": m.mean_confidence,
    "entropy": lambda *a, **k: m.entropy(*a, **k).overall,
    "entropy_correct": lambda *a, **k: m.entropy(*a, **k).correct,
    "entropy_wrong": lambda *a, **k: m.entropy(*a, **k).wrong,
    "ece": m.ece,
    "rms_ce": lambda *a, **k: m.ece(*a, norm="l2", **k),
    "mce": m.mce,
    "ada_ece": m.ada_ece,
    "classwise_ece": m.classwise_ece,
    "ece_debiased": m.ece_debiased,
    "ece_debiased_l1": lambda *a, **k: m.ece_debiased(*a, norm="l1", **k),
    "ece_sweep": m.ece_sweep,
    "ece_sweep_equal_width": lambda *a, **k: m.ece_sweep(*a, edges="equal_width", **k),
    "smooth_ece": m.smooth_ece,
    "ks_error": m.ks_error,
    "mmce": m.mmce,
    "top_5_accuracy": m.top_k_accuracy,
    "s99": lambda *a, **k: m.s99(*a, **k).share,
    "s99_accuracy": lambda *a, **k: m.s99(*a, **k).accuracy,
    "aurc": m.aurc,
    "auroc_correctness": m.auroc_correctness,
}


def numbers(evaluation):
    return set(evaluation.values)


def test_every_number_is_checked_below():
    assert numbers(fc.evaluate(LOGITS, LABELS)) == set(SAME_MEASURE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SAME_MEASURE)
def test_every_field_is_the_measure_of_that_name(name, weighted):
    reading = {"sample_weight": RNG.random(len(LABELS))} if weighted else {}
    evaluation = fc.evaluate(LOGITS, LABELS, **reading)
    measured = SAME_MEASURE[name](LOGITS, LABELS, **reading)
    assert getattr(evaluation, name) == pytest.approx(measured, abs=1e-12)
    assert evaluation.definitions[name] == measured.definition


def test_chunks_leave_no_seam(monkeypatch):
    whole = fc.evaluate(LOGITS, LABELS)
    monkeypatch.setitem(predictions._CHUNK, "cpu", 50)
    pieces = fc.evaluate(LOGITS, LABELS)
    assert pieces.n == whole.n
    assert torch.equal(pieces.bins.count, whole.bins.count)
    for name in SAME_MEASURE:
        assert getattr(pieces, name) == pytest.approx(getattr(whole, name), abs=1e-12)


def test_an_evaluation_survives_json_and_pickle_and_knows_its_equals():
    evaluation = fc.evaluate(LOGITS, LABELS)
    assert fc.Evaluation.from_json(evaluation.to_json()) == evaluation
    assert fc.Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation
    assert pickle.loads(pickle.dumps(evaluation)) == evaluation
    assert fc.evaluate(LOGITS[1:], LABELS[1:]) != evaluation
    assert evaluation.to_dict()["schema"] == 1


def test_json_of_another_schema_is_refused():
    plain = fc.evaluate(LOGITS, LABELS).to_dict() | {"schema": 99}
    with pytest.raises(fc.InputError, match=r"schema 1; got 99\. It was written by another version"):
        fc.Evaluation.from_dict(plain)


def test_an_infinite_nll_is_said_and_survives_json():
    evaluation = fc.evaluate(np.array([[1.0, 0.0], [0.5, 0.5]]), [1, 0], kind="probs")
    assert evaluation.nll == float("inf")
    assert "Some label has probability 0: nll is infinite." in evaluation.warnings
    assert "Infinity" not in evaluation.to_json()
    assert fc.Evaluation.from_json(evaluation.to_json()) == evaluation


def test_tables_show_every_number_and_every_warning():
    from rich.console import Console

    evaluation = fc.evaluate(LOGITS[:100], LABELS[:100])
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(evaluation)
    for text in (str(evaluation), evaluation._repr_html_(), console.export_text()):
        assert all(name in text for name in SAME_MEASURE)
        assert f"{evaluation.ece:.4f}" in text
        assert "fewer than 50 rows" in text


def test_warnings_name_what_cannot_be_trusted():
    few = fc.evaluate(LOGITS[:10], np.zeros(10, dtype=int))
    assert any("only 10 rows" in warning for warning in few.warnings)
    assert any("6 of 7 classes do not occur in the labels: 1, 2, 3, 4, 5, ..." in warning for warning in few.warnings)
    many = fc.evaluate(np.tile(LOGITS, (60, 1)), np.tile(LABELS, 60))
    assert many.warnings == ()
    for rows, warned in ((49, 1), (50, 0)):  # fewer than 50 rows in a bin are few
        scores = np.tile([[2.0, 0.0], [0.0, 2.0]], (25, 1))[:rows]
        said = fc.evaluate(scores, scores.argmax(1), num_bins=1).warnings
        assert sum("Bins of equal mass hold fewer than 50" in warning for warning in said) == warned


def test_undefined_numbers_are_none():
    evaluation = fc.evaluate([[2.0, 0.0], [3.0, 0.0]], [0, 0], classwise=False)
    assert evaluation.entropy_wrong is None
    assert evaluation.auroc_correctness is None
    assert evaluation.top_5_accuracy is None
    assert evaluation.classwise_ece is None
    assert fc.Evaluation.from_json(evaluation.to_json()) == evaluation


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_read_as_it_is(dtype):
    logits = torch.tensor(LOGITS).to(dtype)
    assert fc.evaluate(logits, LABELS).nll == pytest.approx(fc.evaluate(logits.double(), LABELS).nll, abs=1e-6)


def test_read_only_and_transposed_arrays_are_fine():
    frozen = LOGITS.copy()
    frozen.flags.writeable = False
    columns = np.asfortranarray(LOGITS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fc.evaluate(frozen, LABELS) == fc.evaluate(LOGITS, LABELS) == fc.evaluate(columns, LABELS)


def test_memory_mapped_scores_are_not_copied_as_a_whole(tmp_path):
    path = tmp_path / "logits.npy"
    np.save(path, LOGITS)
    mapped = np.load(path, mmap_mode="r")
    assert fc.evaluate(mapped, LABELS) == fc.evaluate(LOGITS, LABELS)
    assert np.shares_memory(predictions.Predictions(mapped, LABELS, kind="logits")._scores, mapped)


def test_a_measured_number_is_a_float_that_keeps_its_definition():
    value = m.ece(LOGITS, LABELS)
    assert isinstance(value, float)
    assert json.loads(json.dumps({"ece": value}))["ece"] == value
    assert pickle.loads(pickle.dumps(value)).definition == value.definition


def test_the_diagram_shows_the_bins_that_ece_reads(tmp_path):
    evaluation = fc.evaluate(LOGITS, LABELS)
    ax = evaluation.plot()
    bars = [patch for patch in ax.patches if patch.get_fill()]
    held = evaluation.bins.count > 0
    assert [bar.get_height() for bar in bars] == evaluation.bins.accuracy[held].tolist()
    assert f"ECE {evaluation.ece:.1%}" in ax.get_title()
    ax.figure.savefig(tmp_path / "diagram.png")
    assert evaluation.plot(ax=ax) is ax


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(fc.MissingExtraError, match=r"focalcal\[plots\]"):
        fc.evaluate(LOGITS, LABELS).plot()


# ---------------------------------------------------------------------------------------------- the table of measures


def test_the_typed_names_of_an_evaluation_are_those_of_the_table():
    assert list(MeasureValues.__annotations__) == [name for name, each in MEASURES.items() if each.in_evaluate]
    assert list(fc.evaluate(LOGITS, LABELS).values) == list(MeasureValues.__annotations__)


def test_every_entry_says_what_a_reader_needs():
    for name, measure in MEASURES.items():
        assert measure.name == name
        assert measure.label
        assert measure.reads
        # A share or a difference of shares is read in percent; NLL, Brier score and areas are not.
        assert measure.unit == ("" if name.startswith(("nll", "brier", "entropy", "au", "mmce")) else "%"), name
    places = [measure.place for measure in MEASURES.values() if measure.place is not None]
    assert sorted(places) == list(range(1, len(places) + 1))


def test_noise_raises_distances_and_nothing_else():
    raised = {name for name, measure in MEASURES.items() if measure.raised_by_noise}
    assert raised == {
        "brier_calibration",
        "ece",
        "rms_ce",
        "mce",
        "ada_ece",
        "classwise_ece",
        "ece_sweep",
        "ece_sweep_equal_width",
        "smooth_ece",
        "ks_error",
        "mmce",
    }


@pytest.fixture
def own_measure():
    """A measure of one's own: the mean squared confidence, by a column that no other measure adds up."""
    squared = m.RowMean("squared", ("confidence",), lambda rows: rows["confidence"].astype(float) ** 2)
    yield m.register_measure("squared_confidence", lambda rows: rows.mean(squared), unit="", means=(squared,))
    del MEASURES["squared_confidence"]


def test_a_measure_of_ones_own_is_evaluated_bootstrapped_and_written(own_measure):
    expected = float((torch.softmax(torch.tensor(LOGITS), 1).amax(1) ** 2).mean())
    evaluation = fc.evaluate(LOGITS, LABELS)
    assert evaluation["squared_confidence"] == evaluation.squared_confidence == pytest.approx(expected)
    assert evaluation.definitions["squared_confidence"] == own_measure.label == "squared confidence"
    assert evaluation.to_dict()["squared_confidence"] == evaluation.squared_confidence
    assert m.Evaluation.from_json(evaluation.to_json()) == evaluation
    assert "squared_confidence" in str(evaluation)
    assert "squared_confidence" in repr(evaluation)
    assert "squared_confidence" in dir(evaluation)
    interval = fc.bootstrap("squared_confidence", LOGITS, LABELS, num_resamples=100)
    assert interval.low < interval.value < interval.high
    assert interval.value == pytest.approx(expected)
    assert interval.method == "bca"
    grouped = fc.evaluate(LOGITS, LABELS, by=LABELS)
    assert grouped.overall["squared_confidence"] == pytest.approx(expected)
    streamed = m.streaming.Everything(num_classes=LOGITS.shape[1])
    streamed.update(LOGITS, LABELS)
    assert float(streamed.compute()["squared_confidence"]) == pytest.approx(expected)


def test_a_name_that_is_taken_or_no_name_is_refused(own_measure):
    for name in ("ece", "squared_confidence", "bins", "n", "two words", ""):
        with pytest.raises(InputError, match="name: must"):
            m.register_measure(name, m.ece)
    with pytest.raises(InputError, match="function: must be a function of rows"):
        m.register_measure("mine", "ece")
    with pytest.raises(InputError, match="name: must be one of accuracy, "):
        fc.evaluate(LOGITS, LABELS)["eec"]
    with pytest.raises(AttributeError, match="no 'eec'; it has accuracy, "):
        fc.evaluate(LOGITS, LABELS).eec  # noqa: B018
