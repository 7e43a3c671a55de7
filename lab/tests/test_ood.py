"""Out-of-distribution detection against scikit-learn's ROC curves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn import metrics as sklearn_metrics

from focalcal.calibrators.optimal_temperature import optimal_temperature
from focalcal.errors import InputError
from focalcal_lab.out_of_distribution import draw_roc, ood_table, roc_curve
from tests.conftest import SHARED


def uncertainty(logits: np.ndarray, score: str) -> np.ndarray:
    """Higher means less like what is known."""
    log_probs = log_softmax(np.asarray(logits, dtype=np.float64), axis=1)
    if score == "entropy":
        return -(np.exp(log_probs) * log_probs).sum(1)
    return -log_probs.max(1)


def slow_auroc(known: np.ndarray, unknown: np.ndarray, score: str) -> float:
    labels = np.repeat([1, 0], [len(known), len(unknown)])
    ranks = -np.concatenate([uncertainty(known, score), uncertainty(unknown, score)])
    return float(sklearn_metrics.roc_auc_score(labels, ranks))


def slow_fpr95(known: np.ndarray, unknown: np.ndarray, score: str) -> float:
    """The least share of unknown inputs that pass at a threshold that at least 95 % of the known ones pass."""
    labels = np.repeat([1, 0], [len(known), len(unknown)])
    ranks = -np.concatenate([uncertainty(known, score), uncertainty(unknown, score)])
    false, true, _ = sklearn_metrics.roc_curve(labels, ranks, drop_intermediate=False)
    return float(false[true >= 0.95].min())


@pytest.fixture(scope="module")
def cifar() -> tuple[np.ndarray, np.ndarray, float]:
    known, unknown = (SHARED / "data" / "logits" / f"{name}_resnet20.npz" for name in ("cifar10", "ood_cifar100"))
    if not (known.exists() and unknown.exists()):
        pytest.skip("reference logits of CIFAR-10 and CIFAR-100 are not beside the project; this test compares them")
    with np.load(known) as mine, np.load(unknown) as other:
        temperature = optimal_temperature(torch.tensor(mine["val_logits"]), torch.tensor(mine["val_labels"]))
        return mine["test_logits"], other["logits"], float(temperature)


@pytest.fixture(scope="module")
def made() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(scale=4, size=(500, 5)), generator.normal(scale=2, size=(300, 5))


def test_rows_agree_with_sklearn_before_and_after_a_temperature(made):
    known, unknown = made
    rows = ood_table(known, {"one": unknown, "other": unknown[:50]}, temperature=1.7)
    assert len(rows) == 2 * 2 * 4
    for row in rows:
        divisor = 1.0 if row.phase == "pre" else 1.7
        others = unknown if row.against == "one" else unknown[:50]
        score = "max_prob" if row.metric.endswith("_confidence") else "entropy"
        slow = slow_auroc if row.metric.startswith("auroc") else slow_fpr95
        assert row.value == pytest.approx(slow(known / divisor, others / divisor, score), abs=1e-12)
        assert row.temperature == (None if row.phase == "pre" else 1.7)


def test_a_real_network_agrees_with_sklearn(cifar):
    known, unknown, temperature = cifar
    rows = {(row.phase, row.metric): row for row in ood_table(known, {"cifar100": unknown}, temperature)}
    assert temperature > 1
    for phase, divisor in (("pre", 1.0), ("post", temperature)):
        mine, other = known.astype(np.float64) / divisor, unknown.astype(np.float64) / divisor
        for score, suffix in (("entropy", ""), ("max_prob", "_confidence")):
            assert rows[phase, f"auroc{suffix}"].value == pytest.approx(slow_auroc(mine, other, score), abs=1e-6)
            assert rows[phase, f"fpr95{suffix}"].value == pytest.approx(slow_fpr95(mine, other, score), abs=2e-4)
    assert all(row.against == "cifar100" for row in rows.values())


def test_without_a_temperature_there_are_only_pre_rows(made):
    rows = ood_table(made[0], {"one": made[1]})
    assert {row.phase for row in rows} == {"pre"}
    assert [row.metric for row in rows] == ["auroc", "fpr95", "auroc_confidence", "fpr95_confidence"]


@pytest.mark.parametrize("score", ["entropy", "max_prob"])
@pytest.mark.parametrize("ties", [False, True])
def test_curve_runs_through_sklearns_points_and_has_no_point_to_spare(made, score, ties):
    known, unknown = (np.sort(np.round(each)) if ties else each for each in made)
    curve = roc_curve(known, unknown, score=score)
    labels = np.repeat([1, 0], [len(known), len(unknown)])
    ranks = -np.concatenate([uncertainty(each, score) for each in (known, unknown)])
    if ties:  # equal up to the last digit: how rows are summed is not the curve's business
        ranks = np.round(ranks, 10)
    false, true, _ = sklearn_metrics.roc_curve(labels, ranks, drop_intermediate=False)
    # Along false + true both only rise, so a curve is a function of the sum.
    path = curve.false_positive_rate + curve.true_positive_rate
    np.testing.assert_allclose(np.interp(false + true, path, curve.true_positive_rate), true, atol=1e-9)
    np.testing.assert_allclose(np.interp(path, false + true, true), curve.true_positive_rate, atol=1e-9)
    slopes = np.diff(curve.true_positive_rate) / np.diff(path)
    assert (np.abs(np.diff(slopes)) > 1e-9).all()
    assert len(path) < len(np.unique(ranks))
    assert sklearn_metrics.auc(curve.false_positive_rate, curve.true_positive_rate) == pytest.approx(curve.auroc)


def test_roc_figure_has_a_line_for_each_set_and_phase(made):
    ax = draw_roc(made[0], {"one": made[1], "other": made[1][:50]}, 2.0)
    texts = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert [text.split(":")[0] for text in texts] == ["one, pre", "other, pre", "one, post", "other, post"]
    first = roc_curve(made[0], made[1])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), first.true_positive_rate)
    assert texts[0].endswith(f"{first.auroc:.3f}")


@pytest.mark.parametrize(
    ("others", "temperature", "message"),
    [
        ({}, None, "ood_logits: must name at least one set"),
        ({"one": torch.zeros(3, 4)}, None, r"ood_logits\['one'\]: must have the classes"),
        ({"one": torch.zeros(3, 5)}, 0.0, "temperature: must be greater than 0"),
    ],
)
def test_wrong_arguments_are_refused(made, others, temperature, message):
    with pytest.raises(InputError, match=message):
        ood_table(made[0], others, temperature)
