# ruff: noqa: B018
"""What a user gets wrong; type checkers must object to the marked lines, and to no others.

`make types` reports a mark that hides no error; tests/typing/test_typing.py lets pyright see through the marks.
"""

from __future__ import annotations

import numpy as np
import torch

import focalcal as fc

logits, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)

fc.FocalLoss()(logits)  # type: ignore[call-arg]
fc.FocalLoss(reduction="average")  # type: ignore[arg-type]
fc.FocalLoss(size_average=True)  # type: ignore[call-arg]
fc.focal_loss(logits, labels)  # type: ignore[call-arg]
fc.LinearFocalLoss()(logits, labels)  # type: ignore[call-arg]
fc.AdaFocalLoss()(logits, labels).upper()  # type: ignore[attr-defined]
fc.evaluate(logits, labels).ecee  # type: ignore[attr-defined]
fc.evaluate(logits, labels, kind="softmax")  # type: ignore[call-overload]
fc.evaluate(logits, labels, by=["a", "a", "b", "b"]).ece  # type: ignore[attr-defined]
fc.TemperatureScaling().fit(logits, labels).gama_.bit_length  # allowed: a module has attributes of any name
fc.TemperatureScaling().fit(logits, labels).temperature_.shape  # type: ignore[attr-defined]
fc.TemperatureScaling().fit(logits, labels).predict_probs(np.zeros((4, 3))).cpu()  # type: ignore[attr-defined]
fc.focal_map(np.array([0.8, 0.2]), 1.0).detach()  # type: ignore[attr-defined]
fc.gamma_star("0.2")  # type: ignore[arg-type]
fc.bootstrap("ece", logits, labels).median  # type: ignore[attr-defined]
fc.metrics.ece(logits, labels, bins=15)  # type: ignore[call-arg]
