"""What every measure refuses, with the argument's name in the message, and what it warns of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from focalcal import metrics as m
from focalcal.errors import InputError, InputWarning
from focalcal.metrics import evaluation, read_scores
from tests.metrics.test_measures import DATA, MEASURES, distinct, softmax

N, K = 60, 4
LOGITS, LABELS = DATA["distinct"].scores, DATA["distinct"].labels
PROBS = softmax(LOGITS)
# Each measure hands its arguments to the same checks, as the first test says: a few of them stand for all.
REPRESENTATIVES = ("ece", "classwise_ece", "evaluate")
every_measure = pytest.mark.parametrize("call", [MEASURES[name] for name in REPRESENTATIVES], ids=REPRESENTATIVES)


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


def refused(argument, call, *given, also="", **options):
    """The call raises an InputError whose message begins with the argument's name."""
    with pytest.raises(InputError) as caught:
        call(*given, **options)
    message = str(caught.value)
    assert message.startswith(argument), message
    assert also in message


class Handed(Exception):
    """What a measure gave to `Predictions`, which checks it."""


def test_every_measure_hands_its_arguments_to_the_same_checks(monkeypatch):
    def handed(*given, **options):
        raise Handed(given, options)

    for module in (read_scores, evaluation):
        monkeypatch.setattr(module, "Predictions", handed)
    weight = np.ones(N)
    for name, call in MEASURES.items():
        with pytest.raises(Handed) as caught:
            call(LOGITS, LABELS, kind="probs", sample_weight=weight, ignore_index=-7, class_axis=-1, class_names="abcd")
        (scores, labels), options = caught.value.args
        assert scores is LOGITS, name
        assert labels is LABELS, name
        assert options.pop("sample_weight") is weight, name
        assert options == {"kind": "probs", "ignore_index": -7, "class_axis": -1, "class_names": "abcd"}, name


@pytest.mark.parametrize("label", [K, K + 7, -1, -100])
@every_measure
def test_labels_outside_the_classes_are_refused(call, label):
    refused("labels", call, LOGITS, changed(LABELS, 5, label), also=str(label))


@every_measure
def test_labels_outside_the_classes_are_refused_beside_ignored_ones(call):
    labels = changed(changed(LABELS, 5, -100), 6, K)
    refused("labels", call, LOGITS, labels, ignore_index=-100)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@every_measure
def test_scores_that_are_not_finite_are_refused(call, value):
    refused("scores", call, changed(LOGITS, (7, 2), value), LABELS)
    refused("scores", call, changed(LOGITS, (N - 1, 0), value).astype(np.float32), LABELS)
    refused("scores", call, changed(LOGITS[:, 0], 7, value), LABELS % 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@every_measure
def test_probabilities_and_their_logs_that_are_not_finite_are_refused(call, value):
    refused("scores", call, changed(PROBS, (7, 2), value), LABELS, kind="probs")
    refused("scores", call, changed(np.log(PROBS), (7, 2), value), LABELS, kind="log_probs")


@every_measure
def test_probabilities_that_do_not_sum_to_one_are_refused_by_row(call):
    refused("scores", call, changed(PROBS, 7, PROBS[7] * 0.9), LABELS, kind="probs", also="row 7")
    refused(
        "scores", call, changed(np.log(PROBS), 11, np.log(PROBS[11]) - 0.1), LABELS, kind="log_probs", also="row 11"
    )


@every_measure
def test_probabilities_outside_zero_and_one_are_refused_by_row(call):
    refused("scores", call, changed(PROBS, 9, [1.2, -0.2, 0.0, 0.0]), LABELS, kind="probs", also="row 9")
    refused("scores", call, changed(PROBS, 9, [1.2, 0.0, 0.0, 0.0]), LABELS, kind="probs", also="in [0, 1]; row 9")
    refused("scores", call, changed(PROBS[:, 0], 9, 1.2), LABELS % 2, kind="probs")


@every_measure
def test_bad_weights_are_refused(call):
    ones = np.ones(N)
    refused("sample_weight", call, LOGITS, LABELS, sample_weight=changed(ones, 3, -0.5))
    refused("sample_weight", call, LOGITS, LABELS, sample_weight=changed(ones, 3, np.nan))
    refused("sample_weight", call, LOGITS, LABELS, sample_weight=changed(ones, 3, np.inf))
    refused("sample_weight", call, LOGITS, LABELS, sample_weight=ones[:-1])
    refused("sample_weight", call, LOGITS, LABELS, sample_weight=0 * ones)


@every_measure
def test_mismatched_lengths_are_refused(call):
    refused("labels", call, LOGITS, LABELS[:-1])
    refused("labels", call, LOGITS[:-1], LABELS)
    refused("labels", call, LOGITS, LABELS[:, None])
    refused("labels", call, LOGITS.reshape(10, 6, 4).swapaxes(1, 2), LABELS)


@every_measure
def test_zero_rows_are_refused(call):
    refused("scores", call, LOGITS[:0], LABELS[:0])
    refused("scores", call, LOGITS[:0, 0], LABELS[:0])


@every_measure
def test_nothing_but_ignored_labels_is_refused(call):
    refused("labels", call, LOGITS, np.full(N, -100), ignore_index=-100)


@every_measure
def test_labels_that_are_not_class_numbers_are_refused(call):
    refused("labels", call, LOGITS, LABELS + 0.5)
    refused("labels", call, LOGITS, torch.tensor(LABELS) + 0.5)
    refused("labels", call, LOGITS, [float(label) + 0.25 for label in LABELS])


@every_measure
def test_one_column_of_scores_is_refused(call):
    refused("scores", call, LOGITS[:, :1], 0 * LABELS)


@every_measure
def test_scores_that_are_not_numbers_are_refused(call):
    refused("scores", call, [["a", "b"]], [0])
    refused("scores", call, np.arange(8).reshape(4, 2), [0, 1, 0, 1])


@pytest.mark.parametrize("kind", ["logit", "probabilities", None])
@every_measure
def test_an_unknown_kind_is_refused(call, kind):
    refused("kind", call, LOGITS, LABELS, kind=kind)


WITH_BINS = {
    "ece": m.ece,
    "ada_ece": m.ada_ece,
    "mce": m.mce,
    "classwise_ece": m.classwise_ece,
    "ece_debiased": m.ece_debiased,
    "brier_decomposition": m.brier_decomposition,
    "reliability": m.reliability,
    "evaluate": m.evaluate,
}


@pytest.mark.parametrize("num_bins", [0, -3])
@pytest.mark.parametrize("name", WITH_BINS)
def test_less_than_one_bin_is_refused(name, num_bins):
    refused("num_bins", WITH_BINS[name], LOGITS, LABELS, num_bins=num_bins, also=str(num_bins))


@pytest.mark.parametrize("scheme", ["equal_mass", "array_split"])
@pytest.mark.parametrize("name", ["ece", "mce", "classwise_ece", "ece_debiased", "brier_decomposition", "reliability"])
def test_more_equal_mass_bins_than_rows_are_refused(name, scheme):
    WITH_BINS[name](LOGITS, LABELS, num_bins=N, edges=scheme)
    refused("num_bins", WITH_BINS[name], LOGITS, LABELS, num_bins=N + 1, edges=scheme, also=str(N))


def test_more_equal_mass_bins_than_rows_are_refused_by_default_too():
    refused("num_bins", m.ada_ece, LOGITS[:14], LABELS[:14], also="14")
    refused("num_bins", m.ece_debiased, LOGITS[:14], LABELS[:14], also="14")
    assert m.ece(LOGITS[:14], LABELS[:14]) >= 0  # equal width needs no minimum


WITH_TARGET = {
    "ece": m.ece,
    "ada_ece": m.ada_ece,
    "mce": m.mce,
    "ece_debiased": m.ece_debiased,
    "ece_sweep": m.ece_sweep,
    "smooth_ece": m.smooth_ece,
    "ks_error": m.ks_error,
    "mmce": m.mmce,
    "brier_decomposition": m.brier_decomposition,
    "reliability": m.reliability,
}


@pytest.mark.parametrize("target", ["top", "Positive", K, -1, 1.5, None])
@pytest.mark.parametrize("name", WITH_TARGET)
def test_an_unknown_target_is_refused(name, target):
    refused("target", WITH_TARGET[name], LOGITS, LABELS, target=target)


@pytest.mark.parametrize("name", WITH_TARGET)
def test_the_positive_class_of_three_is_refused(name):
    three = distinct(classes=3)
    refused("target", WITH_TARGET[name], three.scores, three.labels, target="positive", also="3")


@pytest.mark.parametrize("name", ["ece", "ada_ece", "classwise_ece", "ece_debiased"])
def test_an_unknown_norm_is_refused(name):
    refused("norm", WITH_BINS[name], LOGITS, LABELS, norm="l3")


def test_norms_without_a_meaning_are_refused():
    refused("norm", m.ece_debiased, LOGITS, LABELS, norm="max")
    refused("norm", m.ece_sweep, LOGITS, LABELS, norm="l3")


@pytest.mark.parametrize("name", ["ece", "mce", "classwise_ece", "ece_debiased", "brier_decomposition", "reliability"])
def test_unknown_edges_are_refused(name):
    refused("edges", WITH_BINS[name], LOGITS, LABELS, edges="quantile")


def test_other_options_out_of_range_are_refused():
    for num_bins in (0, 2.5):
        refused("num_bins", m.evaluate, LOGITS, LABELS, num_bins=num_bins)
    refused("edges", m.ece_sweep, LOGITS, LABELS, edges="quantile")
    refused("k", m.top_k_accuracy, LOGITS, LABELS, k=0)
    refused("by", m.auroc_correctness, LOGITS, LABELS, by="margin")
    refused("threshold", m.s99, LOGITS, LABELS, threshold=1.5)
    for sigma in (0.0, -1.0, np.nan):
        refused("sigma", m.smooth_ece, LOGITS, LABELS, sigma=sigma)


@pytest.mark.parametrize("measure", [m.ood_auroc, m.fpr95])
def test_bad_outlier_scores_are_refused(measure):
    bad = changed(LOGITS, (7, 2), np.nan)
    refused("in_scores", measure, bad, LOGITS)
    refused("out_scores", measure, LOGITS, bad)
    refused("in_scores", measure, LOGITS[:0], LOGITS)
    refused("out_scores", measure, LOGITS, LOGITS[:0])
    refused("in_scores", measure, changed(PROBS, 7, PROBS[7] * 0.9), PROBS, kind="probs", also="row 7")
    refused("score", measure, LOGITS, LOGITS, score="odds")
    refused("kind", measure, LOGITS, LOGITS, kind="odds")
    # The energy is the logsumexp of the logits, which probabilities no longer have.
    refused("kind", measure, PROBS, PROBS, kind="probs", score="energy")


def test_a_bad_posterior_is_refused():
    refused("posterior", m.kl_to_posterior, LOGITS, changed(PROBS, 7, PROBS[7] * 0.9), also="row 7")
    refused("posterior", m.kl_to_posterior, LOGITS, changed(PROBS, (7, 1), np.nan))
    refused("posterior", m.kl_to_posterior, LOGITS, PROBS[:-1])
    refused("posterior", m.kl_to_posterior, LOGITS, LABELS)
    refused("scores", m.kl_to_posterior, changed(LOGITS, (7, 1), np.nan), PROBS)
    refused("scores", m.kl_to_posterior, LOGITS[:0], PROBS[:0])


def test_bad_pairs_are_refused():
    refused("confidence", m.from_pairs, [0.5, 1.2], [0, 1])
    refused("confidence", m.from_pairs, [0.5, np.nan], [0, 1])
    refused("confidence", m.from_pairs, [], [])
    refused("correct", m.from_pairs, [0.5, 0.7], [0, 1, 1])
    refused("correct", m.from_pairs, [0.5, 0.7], [0, 2])
    refused("sample_weight", m.from_pairs, [0.5, 0.7], [0, 1], sample_weight=[1.0, -1.0])


def test_the_bad_row_is_counted_from_the_start_of_the_whole_input():
    """However the input is cut into blocks."""
    generator = np.random.default_rng(0)
    probs = softmax(generator.standard_normal((50_000, 10)))
    labels = generator.integers(0, 10, 50_000)
    refused("scores", m.ece, changed(probs, 43_210, probs[43_210] * 0.9), labels, kind="probs", also="43210")
    refused("scores", m.nll, changed(np.log(probs), (43_210, 3), np.nan), labels, also="43210")
    refused("labels", m.ece, np.log(probs), changed(labels, 43_210, 10), also="43210")


# ------------------------------------------------------------------------------------------------------- the warning


def warned(call, *given, **options):
    """The warnings of one call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*given, **options)
    return [warning for warning in caught if issubclass(warning.category, Warning)]


ONCE = {"ece": m.ece, "ada_ece": m.ada_ece, "nll": m.nll, "brier": m.brier, "evaluate": m.evaluate}


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_probabilities_passed_as_logits_give_one_warning_that_names_kind(name, dtype):
    (warning,) = warned(ONCE[name], PROBS.astype(dtype), LABELS)
    assert issubclass(warning.category, InputWarning)
    assert "kind" in str(warning.message)


@pytest.mark.parametrize("name", ONCE)
def test_each_call_warns_anew_and_a_large_input_warns_once(name):
    for _ in range(2):
        assert len(warned(ONCE[name], PROBS, LABELS)) == 1
    generator = np.random.default_rng(0)
    probs = softmax(generator.standard_normal((100_000, 10))).astype(np.float32)
    assert len(warned(ONCE[name], probs, generator.integers(0, 10, 100_000))) == 1


@pytest.mark.parametrize("name", ONCE)
def test_real_logits_and_probabilities_named_as_such_give_no_warning(name):
    assert warned(ONCE[name], LOGITS, LABELS) == []
    assert warned(ONCE[name], LOGITS.astype(np.float32), LABELS) == []
    assert warned(ONCE[name], PROBS, LABELS, kind="probs") == []
    assert warned(ONCE[name], np.log(PROBS), LABELS, kind="log_probs") == []
    assert warned(ONCE[name], np.log(PROBS), LABELS) == []
    within_zero_and_one = np.random.default_rng(0).uniform(0, 1, LOGITS.shape)  # small logits: the rows sum to no 1
    assert warned(ONCE[name], within_zero_and_one, LABELS) == []
    within_zero_and_one[:, 0] = 1 - within_zero_and_one[:, 1:].sum(1)  # the rows sum to 1, with negative entries
    assert warned(ONCE[name], within_zero_and_one, LABELS) == []


@pytest.mark.parametrize(
    "name", ["accuracy", "error", "mean_confidence", "entropy", "s99", "aurc", "auroc_correctness"]
)
@pytest.mark.parametrize("target", [1, "classwise"])
def test_rows_of_one_class_are_not_taken_for_predictions(name, target):
    """Of class 1 against the rest, "correct" means that the label is 1: its mean is no accuracy."""
    rows = m.read([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]], [0, 1], target=target)
    with pytest.raises(InputError, match="must be rows of the predicted class"):
        getattr(m, name)(rows)
