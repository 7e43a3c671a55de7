"""A program with every public name; mypy and pyright must find the types that it states."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import assert_type

import focalcal as fc
from focalcal.metrics import Comparison, GroupedEvaluation, Interval

Array = np.ndarray[Any, Any]


def losses(logits: Tensor, labels: Tensor, weight: Tensor) -> None:
    assert_type(fc.FocalLoss(), fc.FocalLoss)
    assert_type(fc.FocalLoss()(logits, labels), Tensor)
    assert_type(fc.FocalLoss("flsd-53", reduction="none")(logits, labels, 2.0), Tensor)
    assert_type(fc.AdaFocalLoss(num_bins=10)(logits, labels), Tensor)
    assert_type(fc.AdaFocalLoss().gamma, Tensor)
    assert_type(fc.CalFocalLoss()(logits, labels), Tensor)
    assert_type(fc.BrierLoss()(logits, labels), Tensor)
    assert_type(fc.LabelSmoothingLoss(0.05)(logits, labels), Tensor)
    assert_type(fc.MMCELoss()(logits, labels), Tensor)
    assert_type(fc.BinaryFocalLoss(2.0)(logits, labels), Tensor)
    assert_type(fc.LinearFocalLoss()(logits, weight, labels), Tensor)
    assert_type(fc.focal_loss(logits, labels, gamma=3.0), Tensor)
    assert_type(fc.brier_loss(logits, labels), Tensor)
    assert_type(fc.sigmoid_focal_loss(logits, labels), Tensor)
    assert_type(fc.StepGamma.lambert([0.2, 0.25]), fc.StepGamma)
    assert_type(fc.StepGamma([0.2], [5.0, 3.0])(logits), Tensor)
    assert_type(fc.StepGamma([0.2], [5.0, 3.0])(logits.numpy()), Array)
    assert_type(fc.ScheduledGamma([5.0, 3.0, 2.0])(logits), Tensor)


def theory(probs: Tensor, array: Array, labels: Tensor) -> None:
    assert_type(fc.focal_map(probs, 1.0), Tensor)
    assert_type(fc.focal_map(array, 1.0), Array)
    assert_type(fc.focal_map([0.8, 0.2], 1.0), Tensor)
    assert_type(fc.focal_map_inverse(array, 1.0), Array)
    assert_type(fc.focal_minimizer(0.8, gamma=2.0), Tensor)
    assert_type(fc.gradient_ratio(probs, 3.0), Tensor)
    assert_type(fc.gradient_ratio(array, 3.0), Array)
    assert_type(fc.proper_focal_loss(probs, labels, 1.0), Tensor)
    assert_type(fc.gamma_star(0.2), float)
    assert_type(fc.confidence_thresholds(3.0), tuple[float, float])
    assert_type(fc.nearest_temperature(1.0, num_classes=3), float)
    assert_type(fc.temperature_bounds(1.0), tuple[float, float])
    assert_type(fc.optimal_temperature(probs, labels), float)
    assert_type(fc.suggest_gamma(probs, labels), float)


def measures(logits: Tensor, labels: Tensor) -> None:
    evaluation = fc.evaluate(logits, labels)
    assert_type(evaluation, fc.Evaluation)
    assert_type(evaluation.ece, float)
    assert_type(evaluation.to_dict(), dict[str, Any])
    assert_type(fc.evaluate(logits, labels, by=["a", "b"]), GroupedEvaluation)
    assert_type(fc.evaluate(logits, labels, by=["a", "b"])["a"], fc.Evaluation)
    assert_type(fc.bootstrap("ece", logits, labels), Interval)
    assert_type(fc.compare(logits, logits, labels, metric="nll"), Comparison)
    assert_type(fc.metrics.ece(logits, labels).definition, str)
    as_number: float = fc.metrics.ece(logits, labels)
    modules: list[ModuleType] = [fc.calibrators, fc.losses, fc.metrics, fc.plots]
    print(as_number, modules)


def calibrators(logits: Tensor, labels: Tensor, array: Array) -> None:
    temperature = fc.TemperatureScaling("nll").fit(logits, labels)
    assert_type(temperature, fc.TemperatureScaling)
    assert_type(temperature.temperature_, float)
    assert_type(temperature.report_, fc.FitReport)
    assert_type(temperature(logits), Tensor)
    assert_type(temperature(array), Array)
    assert_type(temperature.predict_probs(logits), Tensor)
    assert_type(temperature.predict_probs(array), Array)
    assert_type(fc.FocalTemperatureScaling().fit(logits, labels).gamma_, float)
    assert_type(fc.FocalCalibration().fit(logits, labels), fc.FocalCalibration)
    assert_type(fc.EnsembleTemperatureScaling().fit(logits, labels).weights_, Tensor)
    assert_type(fc.SplineCalibration().fit(logits, labels), fc.SplineCalibration)
    assert_type(fc.VectorScaling().fit(logits, labels).weight_, Tensor)
    assert_type(fc.MatrixScaling().fit(logits, labels), fc.MatrixScaling)
    assert_type(fc.DirichletCalibration().fit(logits, labels), fc.DirichletCalibration)
    assert_type(fc.PlattScaling().fit(logits, labels).a_, float)
    assert_type(fc.BetaCalibration().fit(logits, labels).c_, float)
    assert_type(fc.HistogramBinning().fit(logits, labels).edges_, Tensor)
    assert_type(fc.IsotonicCalibration().fit(logits, labels), fc.IsotonicCalibration)
    assert_type(fc.BayesianBinning().fit(logits, labels), fc.BayesianBinning)
    assert_type(fc.Identity().fit(logits, labels), fc.Identity)
    assert_type(fc.Compose(fc.VectorScaling(), temperature).fit(logits, labels), fc.Compose)
    assert_type(fc.load_calibrator("calibrator.json"), fc.Calibrator)
    selection = fc.select_calibrator(logits, labels)
    assert_type(selection, fc.Selection)
    assert_type(selection.best, fc.Calibrator)


def networks(network: torch.nn.Module, logits: Tensor, labels: Tensor) -> None:
    batches = [(logits, labels)]
    assert_type(fc.collect(network, batches, read=lambda batch: batch), tuple[Tensor, Tensor])
    assert_type(fc.calibrate(network, batches, "temperature"), fc.CalibratedNetwork)
    assert_type(fc.calibrate(network, batches)(logits), Tensor)
    assert_type(fc.report(logits, labels), fc.WrittenReport)


def errors(error: fc.InputError) -> None:
    as_parent: fc.FocalCalError = error
    kinds: list[type[Exception]] = [fc.FileFormatError, fc.MissingExtraError, fc.NotFittedError, fc.InputWarning]
    print(as_parent, kinds)


if __name__ == "__main__":
    torch.manual_seed(0)
    losses(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), torch.randn(3, 3))
