"""What every public call accepts as scores and labels, and that it refuses everything else with an InputError."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from focalcal.errors import InputError, InputWarning
from focalcal.files import PredictionStream

CLASSES = ("cat", "cow", "dog")
N = 60
generator = np.random.default_rng(0)
LOGITS = generator.normal(size=(N, 3)) * 2
LABELS = np.where(generator.random(N) < 0.6, LOGITS.argmax(1), generator.integers(0, 3, N))
LABELS[:3] = (0, 1, 2)
NAMES = np.array(CLASSES)[LABELS]
SHUFFLED = generator.permutation(N)


def polars_or_skip():
    return pytest.importorskip("polars")


FRAMES = {
    "pandas": lambda: pd.DataFrame(LOGITS, columns=list(CLASSES), index=SHUFFLED),
    "pandas, text index": lambda: pd.DataFrame(LOGITS, columns=list(CLASSES), index=[f"row {k}" for k in range(N)]),
    "pandas, nullable": lambda: pd.DataFrame(LOGITS, columns=list(CLASSES)).convert_dtypes(),
    "pandas, pyarrow": lambda: pd.DataFrame(LOGITS, columns=list(CLASSES)).astype("double[pyarrow]"),
    "pyarrow": lambda: pa.table({name: LOGITS[:, k] for k, name in enumerate(CLASSES)}),
    "record batch": lambda: pa.record_batch({name: LOGITS[:, k] for k, name in enumerate(CLASSES)}),
    "polars": lambda: polars_or_skip().DataFrame({name: LOGITS[:, k] for k, name in enumerate(CLASSES)}),
}
UNNAMED = {
    "list of rows": lambda: LOGITS.tolist(),
    "list of arrays": lambda: list(LOGITS),
    "list of tensors": lambda: list(torch.from_numpy(LOGITS)),
    "objects": lambda: LOGITS.astype(object),
    "decimals": lambda: np.array([[decimal.Decimal(repr(x)) for x in row] for row in LOGITS.tolist()]),
    "column of lists": lambda: pd.Series(LOGITS.tolist(), index=SHUFFLED),
    "arrow lists": lambda: pa.array(LOGITS.tolist()),
    "frame of numbers": lambda: pd.DataFrame(LOGITS, index=SHUFFLED),
    "polars arrays": lambda: polars_or_skip().Series(LOGITS.tolist()),
}
TEXT = {
    "array": lambda: NAMES,
    "objects": lambda: NAMES.astype(object),
    "bytes": lambda: NAMES.astype(bytes),
    "list": lambda: NAMES.tolist(),
    "pandas": lambda: pd.Series(NAMES, index=SHUFFLED),
    "category": lambda: pd.Series(NAMES).astype("category"),
    "categorical": lambda: pd.Categorical(NAMES),
    "frame of one column": lambda: pd.DataFrame({"label": NAMES}),
    "arrow": lambda: pa.array(NAMES.tolist()),
    "dictionary": lambda: pa.array(NAMES.tolist()).dictionary_encode(),
    "polars": lambda: polars_or_skip().Series(NAMES.tolist()),
    "polars category": lambda: polars_or_skip().Series(NAMES.tolist(), dtype=polars_or_skip().Categorical),
}
NUMBERS = {
    "int8": lambda: LABELS.astype(np.int8),
    "unsigned": lambda: LABELS.astype(np.uint64),
    "floats": lambda: LABELS.astype(np.float32),
    "float tensor": lambda: torch.from_numpy(LABELS).double(),
    "list of floats": lambda: LABELS.astype(float).tolist(),
    "objects": lambda: LABELS.astype(object),
    "pandas": lambda: pd.Series(LABELS, index=SHUFFLED),
    "nullable": lambda: pd.Series(LABELS, dtype="Int64"),
    "category": lambda: pd.Series(LABELS).astype("category"),
    "arrow": lambda: pa.chunked_array([LABELS[:7], LABELS[7:]]),
    "digits": lambda: LABELS.astype(str),
    "polars": lambda: polars_or_skip().Series(LABELS),
}
EXPECTED = fc.evaluate(LOGITS, LABELS)


def same(found: fc.Evaluation, expected: fc.Evaluation = EXPECTED) -> bool:
    return found.values == pytest.approx(expected.values, nan_ok=True)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_data_frame_is_read_by_position_and_its_columns_name_the_classes(kind):
    frame = FRAMES[kind]()
    found = fc.evaluate(frame, LABELS)
    assert same(found)
    assert found.class_names == CLASSES
    assert m.nll(frame, NAMES) == pytest.approx(EXPECTED.nll)
    calibrator = fc.TemperatureScaling().fit(frame, NAMES)
    assert calibrator.temperature_ == pytest.approx(fc.TemperatureScaling().fit(LOGITS, LABELS).temperature_)
    assert calibrator.class_names == CLASSES
    probs = calibrator.predict_probs(frame)
    assert isinstance(probs, np.ndarray)
    assert probs == pytest.approx(calibrator.predict_probs(LOGITS))


@pytest.mark.parametrize("kind", UNNAMED)
def test_scores_in_other_containers_are_the_same_scores(kind):
    found = fc.evaluate(UNNAMED[kind](), LABELS)
    assert same(found)
    assert found.class_names is None


@pytest.mark.parametrize("kind", TEXT)
def test_text_labels_of_an_array_are_its_classes_in_the_order_of_the_alphabet(kind):
    found = fc.evaluate(LOGITS, TEXT[kind]())
    assert same(found)
    assert found.class_names == CLASSES
    assert "0 cat, 1 cow, 2 dog" in str(found)
    assert "0 cat, 1 cow, 2 dog" in found._repr_html_()
    assert fc.Evaluation.from_json(found.to_json()) == found


@pytest.mark.parametrize("kind", NUMBERS)
def test_class_numbers_of_any_type_are_class_numbers(kind):
    found = fc.evaluate(LOGITS, NUMBERS[kind]())
    assert same(found)
    assert found.class_names is None


def test_text_labels_are_looked_up_among_columns_in_any_order_and_with_prefixes():
    order = [2, 0, 1]
    frame = pd.DataFrame(LOGITS[:, order], columns=[f"logit_{CLASSES[k]}" for k in order])
    found = fc.evaluate(frame, NAMES)
    assert found.nll == pytest.approx(EXPECTED.nll)
    assert found.class_names == ("dog", "cat", "cow")


def test_numbered_columns_are_looked_up_by_their_numbers():
    frame = pd.DataFrame(LOGITS, columns=[1, 2, 3])
    assert fc.evaluate(frame, LABELS + 1).nll == pytest.approx(EXPECTED.nll)
    assert fc.evaluate(frame, LABELS + 1.0).nll == pytest.approx(EXPECTED.nll)
    labels = np.where(np.arange(N) == 5, -100, LABELS + 1)
    assert fc.evaluate(frame, labels, ignore_index=-100).n == N - 1
    with pytest.raises(
        InputError, match=r"labels: every label must be one of the columns of the scores, 1, 2, 3; got '0'"
    ):
        fc.evaluate(frame, LABELS)


def test_booleans_are_the_classes_0_and_1():
    margin, truth = LOGITS[:, 0], LABELS > 0
    expected = m.ece(margin, truth.astype(int), target="positive")
    for labels in (truth, truth.tolist(), pd.Series(truth), pd.Series(truth, dtype="boolean"), pa.array(truth)):
        assert m.ece(margin, labels, target="positive") == expected
    frame = pd.DataFrame(LOGITS[:, :2], columns=[True, False])
    assert m.accuracy(frame, LABELS == 0) == m.accuracy(LOGITS[:, :2], (LABELS != 0).astype(int))
    with pytest.raises(InputError, match=r"labels: must be numbers or names of 3 classes; got booleans"):
        fc.evaluate(LOGITS, truth)


def test_class_names_say_what_labels_alone_cannot():
    few = np.isin(LABELS, (0, 1))
    with pytest.raises(
        InputError, match=r"labels: must name all 3 classes.*got 2 names \(cat, cow\)\. Give class_names"
    ):
        fc.evaluate(LOGITS[few], NAMES[few])
    found = fc.evaluate(LOGITS[few], NAMES[few], class_names=CLASSES)
    assert found.nll == pytest.approx(fc.evaluate(LOGITS[few], LABELS[few]).nll)
    assert found.class_names == CLASSES
    assert "1 of 3 classes do not occur in the labels: dog." in found.warnings
    renamed = dict(zip(CLASSES, ("low", "mid", "high"), strict=True))
    ordered = pd.Categorical([renamed[name] for name in NAMES], categories=["low", "mid", "high"], ordered=True)
    with pytest.raises(InputError, match=r"labels: their categories are in the order low, mid, high"):
        fc.evaluate(LOGITS, ordered)
    assert same(fc.evaluate(LOGITS, ordered, class_names=["low", "mid", "high"]))


def test_a_calibrator_keeps_the_names_of_its_classes_in_files_and_checkpoints(tmp_path):
    calibrator = fc.VectorScaling().fit(LOGITS, NAMES)
    calibrator.save(tmp_path / "vector.safetensors")
    assert fc.load_calibrator(tmp_path / "vector.safetensors").class_names == CLASSES
    again = fc.VectorScaling()
    again.load_state_dict(calibrator.state_dict())
    assert again.class_names == CLASSES
    frame = pd.DataFrame(LOGITS, columns=["dog", "cat", "cow"])
    with pytest.raises(InputError, match=r"logits: the columns must be those of the fit, cat, cow, dog, in this order"):
        again.predict_probs(frame)
    assert fc.TemperatureScaling().fit(LOGITS, LABELS).class_names is None
    assert fc.select_calibrator(LOGITS, NAMES, methods=["temperature"], nested=False).best.class_names == CLASSES


def test_weights_and_groups_may_be_columns_too():
    weight, group = generator.random(N), np.where(np.arange(N) < 20, "a", "b")
    expected = fc.evaluate(LOGITS, LABELS, sample_weight=weight, by=group)
    columns = pd.Series(weight, index=SHUFFLED), pd.Series(group, index=SHUFFLED).astype("category")
    found = fc.evaluate(LOGITS, LABELS, sample_weight=columns[0], by=columns[1])
    assert {name: each.nll for name, each in found.items()} == {name: each.nll for name, each in expected.items()}
    assert m.nll(LOGITS, LABELS, sample_weight=pa.array(weight)) == m.nll(LOGITS, LABELS, sample_weight=weight)


# ------------------------------------------------------------------------------------------------ three and more axes


IMAGES = generator.normal(size=(4, 3, 5, 6))  # (N, K, H, W)
TRUTH = generator.integers(0, 3, (4, 5, 6))
TOKENS, WORDS = np.moveaxis(IMAGES[:, :, :, 0], 1, -1), TRUTH[:, :, 0]  # (B, T, K)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_the_axis_of_the_classes_is_1_unless_it_is_given(convert):
    rows, labels = np.moveaxis(IMAGES, 1, -1).reshape(-1, 3), TRUTH.reshape(-1)
    images, last = convert(IMAGES), convert(np.moveaxis(IMAGES, 1, -1).copy())
    expected = fc.evaluate(rows, labels)
    assert same(fc.evaluate(images, TRUTH), expected)
    assert same(fc.evaluate(last, TRUTH, class_axis=-1), expected)
    assert same(fc.evaluate(last, TRUTH, class_axis=3), expected)
    assert m.nll(last, TRUTH, class_axis=-1) == pytest.approx(m.nll(images, TRUTH))
    assert fc.bootstrap("nll", last, TRUTH, class_axis=-1) == fc.bootstrap("nll", images, TRUTH)
    assert fc.compare(last, last / 2, TRUTH, class_axis=-1) == fc.compare(images, images / 2, TRUTH)
    fitted = fc.TemperatureScaling().fit(last, TRUTH, class_axis=-1)
    assert fitted.temperature_ == pytest.approx(fc.TemperatureScaling().fit(rows, labels).temperature_)
    probs = fitted.predict_probs(last, class_axis=-1)
    assert tuple(probs.shape) == tuple(last.shape)
    assert type(probs) is type(last)
    assert np.asarray(probs).reshape(-1, 3) == pytest.approx(np.asarray(fitted.predict_probs(rows)))
    one, other = (
        fc.select_calibrator(scores, TRUTH, methods=["temperature"], nested=False, num_folds=2, class_axis=axis)
        for scores, axis in ((images, 1), (last, -1))
    )
    assert [row.score for row in one.table] == pytest.approx([row.score for row in other.table])


def test_labels_that_fit_another_axis_are_refused_with_that_axis():
    for call in (fc.evaluate, m.nll, fc.TemperatureScaling().fit, fc.select_calibrator):
        with pytest.raises(InputError) as caught:
            call(TOKENS, WORDS)
        said = str(caught.value)
        assert said.startswith("labels: must have shape (4, 3); got (4, 5). The classes are read along axis 1 of ")
        assert said.endswith("(4, 5, 3). If they are along axis -1, pass class_axis=-1; else transpose the labels.")
    with pytest.raises(InputError, match=r"pass class_axis=1; else transpose"):
        fc.evaluate(IMAGES, TRUTH, class_axis=-1)
    with pytest.raises(InputError, match=r"They have a value for every class: take their argmax"):
        fc.evaluate(LOGITS, (LOGITS > 0).astype(int))
    for axis in (0, 4, -4, None, "last", 1.0, True):
        with pytest.raises(InputError, match=r"^class_axis: must"):
            fc.evaluate(IMAGES, TRUTH, class_axis=axis)


def test_streams_read_the_axis_from_the_labels_or_as_it_is_given():
    expected = fc.evaluate(np.moveaxis(IMAGES, 1, -1).reshape(-1, 3), TRUTH.reshape(-1))
    halves = [(IMAGES[:2], TRUTH[:2]), (IMAGES[2:], TRUTH[2:])]
    last = [(np.moveaxis(scores, 1, -1), labels) for scores, labels in halves]
    for batches, axis in ((halves, None), (halves, 1), (last, None), (last, -1)):
        assert same(fc.evaluate(PredictionStream(batches, class_axis=axis)), expected)
    square = TOKENS[:, :3], WORDS[:, :3]  # three words and three classes
    with pytest.raises(InputError, match=r"leave open which axis.*class_axis=-1 for \(batch, time, classes\)"):
        fc.evaluate(PredictionStream([square]))
    found = fc.evaluate(PredictionStream([square], class_axis=-1))
    assert found.nll == pytest.approx(m.nll(square[0].reshape(-1, 3), square[1].reshape(-1)))
    with pytest.raises(
        InputError, match=r"must have shape \(4, 3\) or \(4, 5\).*Transpose the scores, or pass class_axis"
    ):
        fc.evaluate(PredictionStream([(np.moveaxis(TOKENS, 2, 1), WORDS.T)]))
    fitted = fc.TemperatureScaling().fit(lambda: last, class_axis=-1)
    assert fitted.temperature_ == pytest.approx(fc.TemperatureScaling().fit(IMAGES, TRUTH).temperature_)
    streaming = pytest.importorskip("focalcal.metrics.streaming")
    metric = streaming.Scores("nll", class_axis=-1)
    for scores, labels in last:
        metric.update(scores, labels)
    assert float(metric.compute()) == pytest.approx(expected.nll)


def test_ignored_labels_are_left_out_of_fits_selections_and_streams():
    ignored = np.arange(N) % 7 == 3
    labels = np.where(ignored, -100, LABELS)
    rest = LOGITS[~ignored], LABELS[~ignored]
    expected = fc.TemperatureScaling().fit(*rest)
    fitted = fc.TemperatureScaling().fit(LOGITS, labels, ignore_index=-100)
    assert fitted.temperature_ == pytest.approx(expected.temperature_)
    assert fitted.report_.num_rows == len(rest[0])
    batches = fc.TemperatureScaling().fit(
        lambda: [(LOGITS[:30], labels[:30]), (LOGITS[30:], labels[30:])], ignore_index=-100
    )
    assert batches.temperature_ == pytest.approx(expected.temperature_)
    stream = PredictionStream([(LOGITS, labels)], ignore_index=-100)
    assert same(fc.evaluate(stream), fc.evaluate(*rest))
    options = {"methods": ["temperature"], "nested": False, "num_folds": 2}
    assert fc.select_calibrator(LOGITS, labels, ignore_index=-100, **options).num_rows == len(rest[0])
    images = np.where(generator.random(TRUTH.shape) < 0.2, 255, TRUTH)
    count = int((images != 255).sum())
    assert fc.select_calibrator(IMAGES, images, ignore_index=255, **options).num_rows == count


# --------------------------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("digits", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounded_probabilities_are_divided_by_their_sums_with_a_warning(digits, dtype):
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    rounded = probs.round(digits)
    assert (abs(rounded.sum(1) - 1) > 1e-5).any()
    expected = fc.evaluate(rounded / rounded.sum(1, keepdims=True), LABELS, kind="probs")
    with pytest.warns(InputWarning, match=f"scores: the probabilities were rounded to {digits} digits") as caught:
        found = fc.evaluate(rounded.astype(dtype), LABELS, kind="probs")
    assert len(caught) == 1
    assert found.nll == pytest.approx(expected.nll, rel=1e-5)
    with pytest.warns(InputWarning, match="logits: the probabilities were rounded"):
        probs = fc.TemperatureScaling().fit(rounded, LABELS, kind="probs").predict_probs(LOGITS)
    assert probs.sum(1) == pytest.approx(1)


def test_sums_that_no_rounding_explains_are_refused_without_a_word_of_logits():
    for scores in ([[0.9, 0.3]], [[0.33, 0.33, 0.3]], [[0.7, 0.2]], [[0.123, 0.8]], np.full((1, 200), 0.01)):
        with pytest.raises(InputError, match="each row must sum to 1") as caught:
            m.nll(scores, [0], kind="probs")
        assert "logits" not in str(caught.value)
    with pytest.raises(InputError, match=r'lie in \[0, 1\].*pass kind="logits"'):
        m.nll([[1.5, -0.5]], [0], kind="probs")


# ----------------------------------------------------------------------------------------------------- odd arguments


DATES = np.array(["2024-01-01"] * N, dtype="datetime64[D]")
ODD_SCORES = {
    "none": None,
    "text": "scores.npz",
    "number": 3.0,
    "dictionary": {"cat": [0.5], "dog": [0.5]},
    "set": {0.5, 0.25},
    "generator": (row for row in LOGITS),
    "ragged": [[1.0, 2.0], [3.0]],
    "list of text": [["a", "b"]] * N,
    "mixed": [[1.0, None]] * N,
    "empty list": [],
    "lists of nothing": [[]],
    "digits": LOGITS.astype(str),
    "objects": np.array([[object(), 1.0]] * N),
    "ragged objects": np.array([[1.0, 2.0], [3.0]], dtype=object),
    "complex": LOGITS * 1j,
    "whole numbers": LOGITS.astype(int),
    "dates": np.stack([DATES] * 3, 1),
    "huge": [[10**400, 1]] * N,
    "masked": np.ma.masked_array(LOGITS, LOGITS > 0),
    "sparse": torch.from_numpy(LOGITS).to_sparse(),
    "empty frame": pd.DataFrame(),
    "frame without rows": pd.DataFrame({"a": [], "b": []}),
    "frame with text": pd.DataFrame({"a": ["x"] * N, "b": [0.5] * N}),
    "frame with dates": pd.DataFrame({"a": DATES, "b": [0.5] * N}),
    "frame with gaps": pd.DataFrame({"a": [None] + [0.5] * (N - 1), "b": [0.5] * N}),
    "doubled columns": pd.DataFrame(LOGITS, columns=["a", "a", "b"]),
    "groups of a frame": pd.DataFrame({"a": [0.5], "b": [0.5]}).groupby("a"),
    "arrow struct": pa.array([{"a": 1.0}] * N),
    "ragged arrow": pa.array([[1.0], [1.0, 2.0]]),
    "arrow scalar": pa.scalar(1.0),
    "class": dict,
    "bytes": b"1234",
}
ODD_LABELS = {
    "none": None,
    "text": "cat",
    "number": 1,
    "dictionary": {0: 1},
    "generator": (label for label in LABELS),
    "ragged": [[0], [1, 2]],
    "mixed": [0, "cat"] * (N // 2),
    "missing": [0, None] * (N // 2),
    "missing names": ["cat", None] * (N // 2),
    "NaN": np.where(np.arange(N) == 3, np.nan, LABELS),
    "infinite": np.where(np.arange(N) == 3, np.inf, LABELS),
    "halves": LABELS + 0.5,
    "complex": LABELS * 1j,
    "dates": DATES,
    "days": [datetime.date(2024, 1, 1)] * N,
    "pandas dates": pd.Series(DATES.astype("datetime64[ns]")),
    "gaps": pd.Series([None, 1] * (N // 2), dtype="Int64"),
    "gaps in text": pd.Series([None, "cat"] * (N // 2)),
    "gaps in categories": pd.Categorical([None, "cat"] * (N // 2)),
    "too short": LABELS[:-1],
    "too long": np.concatenate([LABELS, LABELS]),
    "no rows": [],
    "one-hot": np.eye(3)[LABELS],
    "out of range": LABELS + 5,
    "huge": [10**30] * N,
    "bytes that are no text": np.array([b"\xff\xfe"] * N),
    "objects": [object()] * N,
    "other names": np.array(["a", "b", "c", "d"])[generator.integers(0, 4, N)],
    "empty frame": pd.DataFrame(),
    "two columns": pd.DataFrame({"a": LABELS, "b": LABELS}),
    "arrow struct": pa.array([{"a": 1}] * N),
    "sparse": torch.from_numpy(LABELS).to_sparse(),
}
CALLS = {
    "evaluate": fc.evaluate,
    "evaluate by groups": lambda scores, labels, **how: fc.evaluate(scores, labels, by=["a"] * N, **how),
    "ece": m.ece,
    "nll": m.nll,
    "classwise_ece": m.classwise_ece,
    "bootstrap": lambda scores, labels, **how: fc.bootstrap("accuracy", scores, labels, **how),
    "compare": lambda scores, labels, **how: fc.compare(scores, LOGITS, labels, **how),
    "fit": lambda scores, labels, **how: fc.TemperatureScaling().fit(scores, labels, **how),
    "fit of every class": lambda scores, labels, **how: fc.VectorScaling().fit(scores, labels, **how),
    "select": lambda scores, labels, **how: fc.select_calibrator(scores, labels, methods=["temperature"], **how),
    "consistency_bars": m.consistency_bars,
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def refused_or_done(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        with contextlib.suppress(InputError):
            call(*arguments, **options)


@pytest.mark.parametrize("kind", ODD_SCORES)
@every_call
def test_odd_scores_are_refused_with_an_input_error(call, kind):
    with pytest.raises(InputError):
        call(ODD_SCORES[kind], LABELS)


@pytest.mark.parametrize("kind", ODD_LABELS)
@every_call
def test_odd_labels_are_refused_with_an_input_error(call, kind):
    with pytest.raises(InputError):
        call(LOGITS, ODD_LABELS[kind])


@pytest.mark.parametrize("kind", [each for each in ODD_SCORES if each != "none"])
def test_odd_scores_to_predict_are_refused_with_an_input_error(kind):
    fitted = fc.TemperatureScaling().fit(LOGITS, LABELS)
    refused_or_done(fitted.predict_probs, ODD_SCORES[kind])
    with pytest.raises(InputError):
        fitted.predict_probs(None)


ODD = (
    None,
    "x",
    "",
    -1,
    0,
    1.5,
    float("nan"),
    True,
    [],
    [1, 2],
    {},
    {"a": 1},
    np.zeros(3),
    np.zeros(0),
    torch.zeros(2),
)
OPTIONS = {
    "evaluate": (
        fc.evaluate,
        ("kind", "num_bins", "sample_weight", "ignore_index", "class_axis", "class_names", "by", "engine"),
    ),
    "ece": (m.ece, ("kind", "num_bins", "norm", "edges", "target", "sample_weight", "ignore_index", "class_names")),
    "ece_debiased": (m.ece_debiased, ("num_bins", "norm", "edges")),
    "ece_sweep": (m.ece_sweep, ("norm", "edges")),
    "brier_decomposition": (m.brier_decomposition, ("num_bins", "edges")),
    "reliability": (m.reliability, ("num_bins", "edges")),
    "smooth_ece": (m.smooth_ece, ("sigma",)),
    "mmce": (m.mmce, ("width",)),
    "top_k_accuracy": (m.top_k_accuracy, ("k",)),
    "s99": (m.s99, ("threshold",)),
    "auroc_correctness": (m.auroc_correctness, ("by",)),
    "consistency_bars": (m.consistency_bars, ("num_bins", "edges", "level", "num_resamples", "seed", "kind", "target")),
    "bootstrap": (CALLS["bootstrap"], ("num_resamples", "level", "method", "seed", "kind", "target", "ignore_index")),
    "compare": (CALLS["compare"], ("metric", "num_resamples", "level", "method", "seed", "sample_weight")),
    "fit": (CALLS["fit"], ("kind", "sample_weight", "ignore_index", "class_axis", "class_names", "engine")),
    "select": (fc.select_calibrator, ("kind", "methods", "criterion", "num_folds", "num_repeats", "level", "seed")),
}


@pytest.mark.parametrize(
    ("name", "option"), [(name, each) for name, (_, options) in OPTIONS.items() for each in options]
)
def test_odd_options_are_refused_with_an_input_error_or_mean_something(name, option):
    call = OPTIONS[name][0]
    more = {"methods": ["temperature"], "nested": False} if name == "select" and option != "methods" else {}
    for odd in ODD:
        if (name, option, odd is None) == ("select", "methods", True):
            continue  # all methods, which takes a while
        refused_or_done(call, LOGITS, LABELS, **{option: odd}, **more)
