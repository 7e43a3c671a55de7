"""Calibration measures of four real networks against published code and against the definitions.

Our numbers equal the definitions. Where published code gives another number, a test here says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from focalcal import metrics as m
from focalcal.core.binning import interpolated_edges
from tests.golden.definitions import binned, cut, debiased
from tests.golden.test_losses import MODELS

pytestmark = pytest.mark.slow

PARTS = ["full"]


def measure(function: Callable, rows: int | None = None, field: str | None = None, **options) -> Callable:
    def call(logits, labels):
        result = function(logits[:rows], labels[:rows], **options)
        return float(getattr(result, field) if field else result)

    return call


MEASURES = {
    "ece_equal_width_15": measure(m.ece),
    "ece_equal_width_10": measure(m.ece, num_bins=10),
    "mce_equal_width_15": measure(m.mce),
    "rms_calibration_error_15": measure(m.ece, norm="l2"),
    "adaptive_ece_15": measure(m.ada_ece),
    "classwise_ece_15": measure(m.classwise_ece),
    "debiased_l2_top_label_15": measure(m.ece_debiased),
    "debiased_l2_equal_width_top_label_15": measure(m.ece_debiased, edges="equal_width"),
    "debiased_l1_top_label_15": measure(m.ece_debiased, norm="l1"),
    "debiased_l2_marginal_15": measure(m.ece_debiased, target="classwise"),
    "debiased_l1_marginal_15": measure(m.ece_debiased, norm="l1", target="classwise"),
    "plugin_l2_top_label_15": measure(m.ece, norm="l2", edges="array_split"),
    "plugin_l2_marginal_15": measure(m.classwise_ece, norm="l2", edges="array_split"),
    "plugin_l1_marginal_equal_mass_15": measure(m.classwise_ece, edges="array_split"),
    "ece_sweep_equal_width_l1": measure(m.ece_sweep, edges="equal_width"),
    "ece_sweep_equal_width_l2": measure(m.ece_sweep, edges="equal_width", norm="l2"),
    "ece_sweep_equal_mass_l1": measure(m.ece_sweep, edges="equal_mass"),
    "ece_sweep_equal_mass_l2": measure(m.ece_sweep, edges="equal_mass", norm="l2"),
    "smooth_ece": measure(m.smooth_ece),
    "smooth_ece_sigma_0.05": measure(m.smooth_ece, sigma=0.05),
    "ks_error_top_label": measure(m.ks_error),
    "mmce_first_256": measure(m.mmce, rows=256),
    "mmce_weighted_first_256": measure(m.mmce, rows=256, weighted=True),
    "brier": measure(m.brier),
    "nll": measure(m.nll),
    "accuracy": measure(m.accuracy),
    "top5_accuracy": measure(m.top_k_accuracy, k=5),
    "mean_confidence": measure(m.mean_confidence),
    "mean_entropy": measure(m.entropy, field="overall"),
    "auroc_correct_by_confidence": measure(m.auroc_correctness),
    "auroc_correct_by_entropy": measure(m.auroc_correctness, by="entropy"),
}
# The file's smooth ECE solves its equation with a quadrature that is up to 1.5e-11 off, seen by integrating between the
# zeros in closed form.
TOLERANCE = dict.fromkeys(MEASURES, 1e-12) | {"smooth_ece": 5e-11}
# A fifth of the confidences of wideresnet-16-4-cifar-10 are 1 in float32. These measures depend on their order, so the
# definition there is that of the rounded confidences, by the loops of the other tests and by scikit-learn.
FLOAT32_TIES = {
    "debiased_l2_top_label_15": lambda rows: debiased(cut(rows, "array_split", 15), "l2"),
    "debiased_l1_top_label_15": lambda rows: debiased(cut(rows, "array_split", 15), "l1"),
    "plugin_l2_top_label_15": lambda rows: binned(cut(rows, "array_split", 15), "l2"),
    "auroc_correct_by_confidence": lambda rows: roc_auc_score([k for _, k in rows], [c for c, _ in rows]),
}
TABLES = {"bin_table_equal_width_15", "adaptive_bin_table_15", "num_confidence_exactly_one"}

every_model = pytest.mark.parametrize("model", MODELS)
every_part = pytest.mark.parametrize("part", PARTS)


@pytest.fixture(scope="module")
def entries(golden):
    """The entries of a metric, for a model and a part of its rows."""
    models = golden("metrics.json")["models"]
    return lambda model, part, name: models[model][part][name]


@pytest.fixture(scope="module")
def rows_of(golden_predictions):
    """Logits (float64) and labels of a model and a part of its rows."""

    @functools.cache
    def read(model, _part):
        probs, labels = golden_predictions(model)
        return np.log(probs), labels

    return read


@pytest.fixture(scope="module")
def measured(rows_of):
    """Our value of a metric, for a model and a part of its rows."""
    return functools.cache(lambda model, part, name: MEASURES[name](*rows_of(model, part)))


def confidence_and_correct(logits, labels):
    probs = torch.softmax(torch.tensor(logits), 1)
    confidence, predicted = probs.max(1)
    return confidence, predicted == torch.tensor(labels)


def definition(entry):
    """Our own float64 code has no reference beside it, so its value is the definition."""
    return entry.get("definition_value", entry["value"])


# --------------------------------------------------------------------------------------------------- the definitions


@pytest.mark.parametrize("name", MEASURES)
@every_part
@every_model
def test_measure_equals_the_definition(model, part, name, entries, measured):
    ours = measured(model, part, name)
    assert ours == pytest.approx(definition(entries(model, part, name)[0]), rel=0, abs=TOLERANCE[name])


@pytest.mark.parametrize("name", MEASURES)
@every_part
@every_model
def test_measure_of_float32_logits_equals_the_definition_to_six_digits(model, part, name, entries, rows_of):
    logits, labels = rows_of(model, part)
    if model == "wideresnet-16-4-cifar-10" and name in FLOAT32_TIES:
        confidence, correct = confidence_and_correct(logits, labels)
        rounded = list(zip(confidence.float().double().tolist(), correct.double().tolist(), strict=True))
        expected = FLOAT32_TIES[name](rounded)
    else:
        expected = definition(entries(model, part, name)[0])
    ours = MEASURES[name](logits.astype(np.float32), labels)
    assert ours == pytest.approx(expected, rel=0, abs=1e-6)


@every_part
@every_model
def test_the_equal_width_table_equals_the_definition(model, part, entries, rows_of):
    (entry,) = entries(model, part, "bin_table_equal_width_15")
    bins = m.reliability(*rows_of(model, part))
    for field in ("count", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(bins, field), entry["value"][field], rtol=0, atol=1e-12, err_msg=field)


@every_part
@every_model
def test_the_equal_mass_table_equals_the_definition(model, part, entries, rows_of):
    (entry,) = entries(model, part, "adaptive_bin_table_15")
    bins = m.reliability(*rows_of(model, part), edges="equal_mass")
    for field in ("count", "confidence", "accuracy"):
        np.testing.assert_allclose(
            getattr(bins, field), entry["definition_value"][field], rtol=0, atol=1e-12, err_msg=field
        )


@every_part
@every_model
def test_rows_of_confidence_one_are_counted_in_both_precisions(model, part, entries, rows_of):
    logits, labels = rows_of(model, part)
    for entry in entries(model, part, "num_confidence_exactly_one"):
        probs = torch.softmax(torch.tensor(logits), 1).to(getattr(torch, entry["args"]["dtype"]))
        sure = m.s99(probs, labels, kind="probs", threshold=1.0)
        assert round(sure.share * len(labels)) == entry["value"]


@every_part
@every_model
def test_three_ways_to_cut_equal_mass_bins_equal_their_definitions(model, part, entries, rows_of):
    variants = entries(model, part, "adaptive_ece_15")[0]["definition_variants"]
    schemes = {
        "rank_floor": "equal_mass",
        "array_split": "array_split",
        "interpolated_edges_first_bin_closed": "interpolated",
    }
    assert set(variants) == set(schemes)
    for name, scheme in schemes.items():
        ours = m.ece(*rows_of(model, part), edges=scheme)
        assert ours == pytest.approx(variants[name], rel=0, abs=1e-12), name


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("scheme", ["equal_width", "equal_mass"])
@every_part
@every_model
def test_the_sweep_stops_at_the_number_of_bins_of_the_definition(model, part, scheme, norm, entries, rows_of):
    (entry,) = entries(model, part, f"ece_sweep_{scheme}_{norm}")
    bins = m.reliability(*rows_of(model, part), edges=f"{scheme}_sweep")
    assert len(bins.count) == entry["definition_num_bins"]
    # The reference counts up to the highest bin that holds a row.
    assert int(torch.as_tensor(bins.count).nonzero().max()) + 1 == entry["num_bins_found"]


@every_model
def test_no_metric_of_the_reference_file_is_left_out(model, golden):
    parts = golden("metrics.json")["models"][model]
    assert set(parts) == set(PARTS)
    for part in PARTS:
        assert set(parts[part]) == set(MEASURES) | TABLES
    assert set(golden("metrics.json")["models"]) == set(MODELS)


# --------------------------------------------------------------------------------------------- the published code

# How far published code may be from our number where only its rounding differs: float32 sums and edges. A reference
# with a quirk (None) is compared in a test of its own below. All others agree to 1e-12.
DIFFERS = {
    "torrvision/focal_calibration Metrics/metrics.py ECELoss": 2e-7,
    "torrvision/focal_calibration Metrics/metrics.py ClasswiseECELoss": 5e-9,
    "torchmetrics functional.classification.multiclass_calibration_error": 1e-5,
    "dholzmueller/probmetrics metrics.CalibrationError(15, l1)": 1e-5,
    "dholzmueller/probmetrics metrics.CalibrationError(15, l2)": 1e-5,
    "dholzmueller/probmetrics metrics.CalibrationError(15, max)": 1e-6,
    "dholzmueller/probmetrics metrics.Accuracy": 5e-8,
}
QUIRKS = {
    ("torchmetrics", "rms_calibration_error_15"),
    ("torrvision/focal_calibration", "adaptive_ece_15"),
    ("3mcloud/adafocal", "adaptive_ece_15"),
    ("netcal", "adaptive_ece_15"),
    ("torrvision/focal_calibration", "mmce_first_256"),
    ("torrvision/focal_calibration", "mmce_weighted_first_256"),
    ("apple/ml-calibration", "smooth_ece"),
    ("apple/ml-calibration", "smooth_ece_sigma_0.05"),
    ("dholzmueller/probmetrics", "smooth_ece"),
    ("p-lambda/verified_calibration", "debiased_l1_top_label_15"),
    ("p-lambda/verified_calibration", "debiased_l1_marginal_15"),
    ("p-lambda/verified_calibration", "debiased_l2_marginal_15"),
    ("p-lambda/verified_calibration", "plugin_l2_marginal_15"),
    ("p-lambda/verified_calibration", "plugin_l1_marginal_equal_mass_15"),
}


def has_a_quirk(entry, name):
    return any(entry["source"].startswith(source) and name == metric for source, metric in QUIRKS)


@pytest.mark.parametrize("name", MEASURES)
@every_part
@every_model
def test_published_code_without_a_quirk_gives_our_number(model, part, name, entries, rows_of, measured):
    plain = [entry for entry in entries(model, part, name) if not has_a_quirk(entry, name)]
    ours = measured(model, part, name)
    for entry in plain:
        expected = ours
        if entry.get("note") == "definition here is array_split":
            expected = float(m.ece(*rows_of(model, part), edges="array_split"))
        allowed = DIFFERS.get(entry["source"], 1e-12)
        assert entry["value"] == pytest.approx(expected, rel=0, abs=allowed), entry["source"]


@every_part
@every_model
def test_every_difference_from_published_code_is_the_one_on_record(model, part, entries, measured):
    """What the file gives as value minus definition is what is between the published number and ours."""
    for name in MEASURES:
        ours = measured(model, part, name)
        for entry in entries(model, part, name):
            if "difference" in entry and entry.get("note") != "definition here is array_split":
                recorded = entry["difference"]
                assert entry["value"] - ours == pytest.approx(recorded, rel=0, abs=TOLERANCE[name]), (
                    name,
                    entry["source"],
                )


@every_part
@every_model
def test_torchmetrics_l2_has_a_bin_of_its_own_for_confidence_one_in_float32(model, part, entries, rows_of):
    entry = entries(model, part, "rms_calibration_error_15")[0]
    confidence, correct = confidence_and_correct(*rows_of(model, part))
    rows = m.from_pairs(confidence.float().double(), correct)
    just_below_one = 1 - 2.0**-26  # float32 has no number between it and 1
    edges = torch.tensor([*(k / 15 for k in range(15)), just_below_one, 1.0], dtype=torch.float64)
    sixteen_bins = m.ece(rows, norm="l2", edges=edges)
    assert sixteen_bins == pytest.approx(entry["explained_value"], rel=0, abs=1e-12)
    assert entry["value"] == pytest.approx(entry["explained_value"], rel=0, abs=1e-5)  # float32 running sums
    ours = m.ece(*rows_of(model, part), norm="l2")
    if (model, part) == ("wideresnet-16-4-cifar-10", "full"):
        assert entry["value"] - ours == pytest.approx(0.0023, abs=1e-4)
        assert entry["value"] - ours == pytest.approx(sixteen_bins - ours, abs=1e-5)


@every_part
@every_model
def test_released_adaptive_ece_drops_the_least_confident_row(model, part, entries, rows_of):
    """Its bins are open below and the first edge is the smallest confidence, so that row is in no bin."""
    double, single, adafocal = entries(model, part, "adaptive_ece_15")[:3]
    confidence, correct = confidence_and_correct(*rows_of(model, part))
    counted = confidence > confidence.min()
    assert int(counted.sum()) == double["rows_counted"] == len(confidence) - 1
    edges = torch.from_numpy(interpolated_edges(confidence.sort().values.numpy().take, len(confidence), 15))
    others = m.ece(m.from_pairs(confidence[counted], correct[counted]), edges=edges)
    dropped = others * double["rows_counted"] / len(confidence)
    assert dropped == pytest.approx(double["explained_value"], rel=0, abs=1e-12)
    for entry in (double, single, adafocal):
        assert entry["value"] == pytest.approx(entry["explained_value"], rel=0, abs=1e-7)  # float32 sums
        assert entry["rows_counted"] < len(confidence)
    bins = m.reliability(*rows_of(model, part), edges="equal_mass")
    assert int(bins.count.sum()) == len(confidence)
    assert bool((bins.count > 0).all())


@every_part
@every_model
def test_the_released_adaptive_table_has_fewer_rows_than_ours(model, part, entries, rows_of):
    (entry,) = entries(model, part, "adaptive_bin_table_15")
    n = len(rows_of(model, part)[1])
    released = round(sum(entry["value"]["prop_in_bin"]) * n)
    assert released == entries(model, part, "adaptive_ece_15")[2]["rows_counted"] < n
    assert int(m.reliability(*rows_of(model, part), edges="equal_mass").count.sum()) == n
    empty = sum(share == 0 for share in entry["value"]["prop_in_bin"])
    assert empty == entries(model, part, "adaptive_ece_15")[2]["empty_bins"]


@every_part
@every_model
def test_netcal_adaptive_ece_moves_rows_to_the_quantiles(model, part, entries, rows_of):
    """Its edges are quantiles and its bins closed below, so rows at an edge change bins."""
    entry = entries(model, part, "adaptive_ece_15")[3]
    ours = m.ada_ece(*rows_of(model, part))
    assert entry["value"] == pytest.approx(ours, rel=0, abs=6e-5)
    confidence, correct = confidence_and_correct(*rows_of(model, part))
    inner = np.quantile(confidence.numpy(), np.arange(1, 15) / 15)
    edges = torch.tensor([0.0, *np.nextafter(inner, 0), 1.0])  # closed below: the edge just under each quantile
    again = m.ece(m.from_pairs(confidence, correct), edges=edges)
    assert entry["value"] == pytest.approx(again, rel=0, abs=1e-12)


@every_part
@every_model
def test_released_mmce_is_our_square(model, part, entries, measured):
    released, netcal = entries(model, part, "mmce_first_256")
    ours = measured(model, part, "mmce_first_256")
    assert released["value"] == pytest.approx(ours**2, rel=0, abs=1e-15)
    assert released["explained_value"] == pytest.approx(ours**2, rel=0, abs=1e-15)
    assert netcal["value"] == pytest.approx(ours, rel=0, abs=1e-12)


@every_part
@every_model
def test_released_weighted_mmce_divides_by_the_number_of_pairs_twice(model, part, entries, rows_of):
    (entry,) = entries(model, part, "mmce_weighted_first_256")
    logits, labels = rows_of(model, part)
    ours = m.mmce(logits[:256], labels[:256], weighted=True)
    assert entry["definition_squared"] == pytest.approx(ours**2, rel=0, abs=1e-12)
    confidence, correct = (values.numpy() for values in confidence_and_correct(logits[:256], labels[:256]))
    right, wrong = int(correct.sum()), int((~correct).sum())
    assert right == entry["num_correct"]
    kernel = np.exp(-np.abs(confidence[:, None] - confidence) / 0.4)
    sure, doubtful = np.where(correct, 1 - confidence, 0), np.where(correct, 0, confidence)
    twice = [
        sure @ kernel @ sure / right**2 / (right**2 + 1e-5),
        doubtful @ kernel @ doubtful / wrong**2 / (wrong**2 + 1e-5),
        -2 * (sure @ kernel @ doubtful) / (right * wrong) / (right * wrong + 1e-5),
    ]
    assert np.sqrt(sum(twice) + 1e-10) == pytest.approx(entry["explained_value"], rel=1e-9)
    assert entry["value"] == pytest.approx(entry["explained_value"], rel=0, abs=1e-8)
    assert ours > 10 * entry["value"]


@pytest.mark.parametrize("name", ["smooth_ece", "smooth_ece_sigma_0.05"])
@every_part
@every_model
def test_relplot_loses_half_the_weight_of_rows_at_the_ends(model, part, name, entries, rows_of, measured):
    entry, *copies = entries(model, part, name)
    ours = measured(model, part, name)
    assert entry["value"] == pytest.approx(entry["explained_value"], rel=0, abs=1e-15)
    for copy in copies:  # probmetrics calls relplot
        assert copy["value"] == pytest.approx(entry["value"], rel=0, abs=1e-7)
    confidence, _ = confidence_and_correct(*rows_of(model, part))
    near_one = float((confidence > 0.999).double().mean())
    if near_one > 0.5:
        assert entry["value"] - ours > 0.02
    elif near_one < 0.01:
        assert abs(entry["value"] - ours) < 3e-4  # mesh and bandwidth search only
    if name == "smooth_ece":
        assert ours == pytest.approx(entry["definition_bandwidth"], rel=0, abs=TOLERANCE[name])


@pytest.mark.parametrize("name", ["debiased_l1_top_label_15", "debiased_l1_marginal_15"])
@every_part
@every_model
def test_the_released_debiased_l1_error_is_a_random_draw_of_ours(model, part, name, entries, measured):
    """It averages 1,000 draws; ours is their mean in closed form."""
    (entry,) = entries(model, part, name)
    ours = measured(model, part, name)
    assert 0 < abs(entry["value"] - ours) < 3e-4


@pytest.mark.parametrize(
    "name", ["debiased_l2_marginal_15", "plugin_l2_marginal_15", "plugin_l1_marginal_equal_mass_15"]
)
@every_part
@every_model
def test_released_marginal_errors_keep_ties_on_one_side_of_a_bin_edge(model, part, name, entries, measured):
    ours = measured(model, part, name)
    for entry in entries(model, part, name):
        assert entry["value"] == pytest.approx(ours, rel=0, abs=6e-9)


@every_part
@every_model
def test_marginal_debiased_l2_floors_each_class_as_the_released_code_does(model, part, entries, rows_of):
    entry = entries(model, part, "debiased_l2_marginal_15")[0]
    logits, labels = rows_of(model, part)
    ours = m.ece_debiased(logits, labels, target="classwise")
    per_class = [m.ece_debiased(logits, labels, target=k) for k in range(logits.shape[1])]
    assert ours == pytest.approx(np.sqrt(np.mean(np.square(per_class))), rel=0, abs=1e-12)
    assert entry["definition_unclipped"] <= ours + 1e-12
