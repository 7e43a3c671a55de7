"""Arrays and tensors of unusual kinds are converted where that loses nothing, and refused with a way out elsewhere."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.errors import InputError
from focalcal.files import PredictionStream, PredictionTable, read_predictions, write_predictions
from focalcal.metrics import streaming
from focalcal.metrics.truncated import TopK

RNG = np.random.default_rng(0)
LOGITS = 3 * RNG.normal(size=(60, 4))
LABELS = (LOGITS / 1.7 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
WEIGHTS = RNG.random(60)
PROBS = torch.softmax(torch.from_numpy(LOGITS), 1).numpy()


def _streaming(logits, labels, weights):
    metric = streaming.Scores("nll")
    metric.update(logits, labels, weights)
    return float(metric.compute())


# What takes scores, labels and weights, each giving a number.
ENTRIES = {
    "evaluate": lambda x, y, w: fc.evaluate(x, y, sample_weight=w).nll,
    "metric": lambda x, y, w: float(fc.metrics.ece(x, y, sample_weight=w)),
    "fit": lambda x, y, w: fc.TemperatureScaling().fit(x, y, sample_weight=w).temperature_,
    "batches": lambda x, y, w: fc.TemperatureScaling().fit(lambda: [(x, y, w)]).temperature_,
    "stream": lambda x, y, w: fc.evaluate(PredictionStream([(x, y, w)])).nll,
    "named": lambda x, y, w: fc.evaluate(PredictionStream([{"logits": x, "label": y, "weight": w}])).nll,
    "streaming": _streaming,
}
# What takes scores, or probabilities, alone.
SCORES = {
    "predict": lambda x: float(np.asarray(fc.FocalCalibration(1.0).predict_probs(x)).max()),
    "ood": lambda x: float(fc.metrics.ood_auroc(x, LOGITS + 1)),
}
PROBABILITIES = {
    "map": lambda p: float(np.asarray(fc.focal_map(p, 1.0)).max()),
    "pairs": lambda p: float(fc.metrics.ece(fc.metrics.from_pairs(p[:, 0], (LABELS == 0).astype(int)))),
}
CONVERTED = {
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "long double": lambda a: a.astype(np.longdouble) if a.dtype.kind == "f" else a.astype(">i2"),
    "masked nowhere": np.ma.masked_array,
    "big-endian, strided": lambda a: np.repeat(a, 2, 0).astype(a.dtype.newbyteorder(">"))[::2],
}


@pytest.mark.parametrize("convert", CONVERTED.values(), ids=CONVERTED)
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_other_byte_orders_and_long_doubles_are_converted(entry, convert):
    expected = entry(LOGITS, LABELS, WEIGHTS)
    assert entry(*map(convert, (LOGITS, LABELS, WEIGHTS))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("convert", CONVERTED.values(), ids=CONVERTED)
def test_scores_alone_are_converted_too(convert):
    for functions, given in ((SCORES, LOGITS), (PROBABILITIES, PROBS)):
        for name, function in functions.items():
            assert function(convert(given)) == pytest.approx(function(given), rel=1e-12), name


def masked(array):
    """The array with its first value masked."""
    return np.ma.masked_array(array, np.arange(array.size).reshape(array.shape) == 0)


REFUSED = {
    "masked": (masked, r"has masked values.*\.filled"),
    "sparse": (lambda a: torch.as_tensor(a).to_sparse(), r"must be dense; got a sparse tensor.*\.to_dense"),
    "mkldnn": (lambda a: torch.as_tensor(a).float().to_mkldnn(), r"must be dense.*\.to_dense"),
    "nested": (lambda a: torch.nested.nested_tensor([torch.as_tensor(a)]), r"must be dense; got a nested tensor"),
}


@pytest.mark.filterwarnings("ignore:.*(nested|Sparse)")
@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["scores", "labels", "weights"])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_masked_and_sparse_ones_are_refused_with_a_way_out(entry, place, change, message):
    given = [LOGITS, LABELS, WEIGHTS]
    given[place] = change(given[place])
    with pytest.raises(InputError, match=rf"^\w+: .*{message}"):
        entry(*given)


@pytest.mark.parametrize("kind", ["masked", "sparse"])
def test_scores_alone_are_refused_too(kind):
    change, message = REFUSED[kind]
    for functions, given in ((SCORES, LOGITS), (PROBABILITIES, PROBS)):
        for function in functions.values():
            if not (kind == "sparse" and function is PROBABILITIES["pairs"]):  # which are sliced before
                with pytest.raises(InputError, match=message):
                    function(change(given))


@pytest.mark.parametrize("loss", [fc.FocalLoss(2.0), fc.AdaFocalLoss(), fc.BrierLoss(), fc.LabelSmoothingLoss()])
def test_losses_refuse_sparse_tensors(loss):
    logits, labels = torch.from_numpy(LOGITS), torch.from_numpy(LABELS)
    with pytest.raises(InputError, match="logits: must be dense"):
        loss(logits.to_sparse(), labels)
    with pytest.raises(InputError, match="labels: must be dense"):
        loss(logits, labels.to_sparse())


def test_lists_of_the_most_likely_classes():
    expected = TopK(np.array([[0, 1]]), np.log([[0.7, 0.2]]), np.array([0]), num_classes=3)
    found = TopK(
        np.array([[0, 1]], ">i4"), np.log([[0.7, 0.2]]).astype(np.longdouble), np.array([0], ">i8"), num_classes=3
    )
    assert torch.equal(found.log_probs, expected.log_probs)
    assert torch.equal(found.classes.long(), expected.classes.long())
    with pytest.raises(InputError, match="classes: has masked values"):
        TopK(masked(np.array([[0, 1]])), np.log([[0.7, 0.2]]), np.array([0]), num_classes=3)


@pytest.mark.parametrize(
    ("labels", "weights", "argument"),
    [
        ([object()] * 60, WEIGHTS, "labels"),
        (["cat"] * 60, WEIGHTS, "labels"),
        (np.zeros(60, [("a", "f4")]), WEIGHTS, "labels"),
        (LABELS, ["much"] * 60, "sample_weight"),
        (LABELS, WEIGHTS.astype(complex), "sample_weight"),
    ],
)
def test_what_is_no_number_is_named(labels, weights, argument):
    with pytest.raises(InputError, match=rf"^{argument}: must (be|all be|name) "):
        fc.evaluate(LOGITS, labels, sample_weight=weights)


def test_weights_of_half_precision_tensors_count():
    weights = torch.from_numpy(WEIGHTS).bfloat16()
    expected = fc.evaluate(LOGITS, LABELS, sample_weight=weights.double()).nll
    assert fc.evaluate(LOGITS, LABELS, sample_weight=weights).nll == expected


@pytest.mark.parametrize("scores", [LOGITS.astype(int), LOGITS.astype(object)])
def test_a_stream_of_scores_that_are_no_floats_is_refused(scores):
    with pytest.raises(InputError, match="batches: scores must be floating point"):
        fc.evaluate(PredictionStream([(scores, LABELS)]))


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2", np.longdouble])
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_files_of_numpy_in_any_precision_and_byte_order(tmp_path, suffix, dtype):
    scores = LOGITS.astype(dtype)
    if suffix == "npz":
        np.savez(tmp_path / "a.npz", logits=scores, labels=LABELS.astype(">i4"), weights=WEIGHTS.astype(np.longdouble))
        files = tmp_path / "a.npz"
    else:
        np.save(tmp_path / "logits.npy", scores)
        np.save(tmp_path / "labels.npy", LABELS.astype(">i4"))
        files = [tmp_path / "logits.npy", tmp_path / "labels.npy"]
    native = scores.astype(np.float64 if scores.dtype.itemsize > 4 else np.float32)
    table = read_predictions(files)
    assert np.array_equal(table.scores, native)
    assert (
        fc.evaluate(PredictionStream(files)).accuracy
        == fc.evaluate(native, LABELS, sample_weight=WEIGHTS if suffix == "npz" else None).accuracy
    )


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "parquet", "safetensors"])
def test_tables_of_any_precision_and_byte_order_are_written(tmp_path, suffix):
    pytest.importorskip("pyarrow")
    for scores in (LOGITS.astype(">f8"), LOGITS.astype(np.longdouble)):
        table = PredictionTable("t", scores, "logits", LABELS.astype(">i8"), WEIGHTS.astype(np.longdouble))
        write_predictions(table, tmp_path / f"logits.{suffix}")
        read = read_predictions(tmp_path / f"logits.{suffix}", need_labels=False)
        assert np.array_equal(read.scores, LOGITS)
    with pytest.raises(InputError, match="t: scores: has masked values"):
        write_predictions(PredictionTable("t", masked(LOGITS), "logits"), io.BytesIO())
