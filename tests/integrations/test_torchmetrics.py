"""Streaming measures as metrics of torchmetrics itself: what its users do with a metric, and where values differ.

Collections, merging, copies, saved states and processes are in tests/metrics/test_streaming*.py.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import focalcal as fc
from focalcal.metrics import streaming

torchmetrics = pytest.importorskip("torchmetrics")
NORMS = {"l1": "ece", "l2": "rms_ce", "max": "mce"}


def draw(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(500, 5, generator=generator)
    labels = (logits - torch.empty(500, 5).exponential_(generator=generator).log()).argmax(1)
    return scale * logits, labels


def theirs(norm: str, num_classes: int) -> torchmetrics.Metric:
    return torchmetrics.classification.MulticlassCalibrationError(num_classes=num_classes, n_bins=15, norm=norm)


@pytest.mark.parametrize("norm", NORMS)
def test_errors_agree_where_no_confidence_rounds_to_one(norm):
    logits, labels = draw()
    assert_close(
        streaming.EqualWidth(NORMS[norm])(logits, labels), theirs(norm, 5)(logits, labels).double(), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("norm", NORMS)
def test_a_confidence_of_one_shares_the_last_bin_here_and_has_its_own_there(norm):
    probs, labels = torch.tensor([[0.05, 0.95], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 1, 0])
    found = streaming.EqualWidth(NORMS[norm], kind="probs")(probs, labels)
    one_bin = (2.95 - 2) / 3  # confidence 2.95 / 3, accuracy 2 / 3
    assert float(found) == pytest.approx(one_bin, abs=1e-6)
    # A bin of one row with the gap 0.05, and one of two rows with the gap 0.5.
    two_bins = {"l1": (0.05 + 2 * 0.5) / 3, "l2": ((0.05**2 + 2 * 0.5**2) / 3) ** 0.5, "max": 0.5}
    assert float(theirs(norm, 2)(probs, labels)) == pytest.approx(two_bins[norm], abs=1e-6)


def test_logits_within_zero_and_one_are_still_logits():
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.rand(200, 5, generator=generator), torch.arange(200) % 5
    found = streaming.EqualWidth("ece")(logits, labels)
    assert_close(found, streaming.EqualWidth("ece", kind="probs")(logits.softmax(1), labels), atol=1e-6, rtol=0)
    assert abs(found - theirs("l1", 5)(logits, labels)) > 0.05  # they were taken for probabilities


def test_a_metric_can_be_drawn():
    pytest.importorskip("matplotlib").use("agg")
    logits, labels = draw()
    metric = streaming.EqualWidth("ece")
    values = [metric(logits[rows], labels[rows]) for rows in torch.arange(500).split(100)]
    _, axes = metric.plot(values)
    (line,) = axes.get_lines()
    assert line.get_ydata().tolist() == pytest.approx([float(value) for value in values])
    _, axes = metric.plot()
    assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx([float(metric.compute())])
    _, axes = streaming.Scores("nll", "accuracy").plot({"nll": torch.tensor(1.0), "accuracy": torch.tensor(0.5)}, axes)
    assert {text.get_text() for text in axes.get_legend().get_texts()} >= {"nll", "accuracy"}
    import matplotlib.pyplot as plt

    plt.close("all")


def test_a_cloned_collection_has_its_own_names_and_rows():
    logits, labels = draw()
    metrics = torchmetrics.MetricCollection({"ece": streaming.EqualWidth("ece"), "mass": streaming.Ranked("ada_ece")})
    train, val = metrics.clone(prefix="train_"), metrics.clone(prefix="val_")
    train.update(logits[:300], labels[:300])
    val.update(logits[300:], labels[300:])
    found = {**train.compute(), **val.compute()}
    assert {name: float(value) for name, value in found.items()} == {
        "train_ece": pytest.approx(float(fc.metrics.ece(logits[:300], labels[:300])), abs=1e-12),
        "train_mass": pytest.approx(float(fc.metrics.ada_ece(logits[:300], labels[:300])), abs=1e-12),
        "val_ece": pytest.approx(float(fc.metrics.ece(logits[300:], labels[300:])), abs=1e-12),
        "val_mass": pytest.approx(float(fc.metrics.ada_ece(logits[300:], labels[300:])), abs=1e-12),
    }


@pytest.mark.filterwarnings("ignore:The default value for `maximize`:FutureWarning")  # TorchMetrics 1.6 tells everyone
def test_a_tracker_keeps_the_best_epoch():
    logits, labels = draw()
    tracker = torchmetrics.wrappers.MetricTracker(streaming.EqualWidth("ece"), maximize=False)
    for temperature in (0.3, 1.0, 3.0):
        tracker.increment()
        tracker.update(logits / temperature, labels)
    best, epoch = tracker.best_metric(return_step=True)
    assert epoch == 1
    assert best == pytest.approx(float(fc.metrics.ece(logits, labels)))
