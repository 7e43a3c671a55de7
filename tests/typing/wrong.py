# ruff: noqa: B018
"""What a user gets wrong; mypy and pyright must object to the marked lines, and to no others."""

from __future__ import annotations

import numpy as np
import torch

import focalcal as fc

logits, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)

fc.FocalLoss()(logits)  # wrong
fc.FocalLoss(reduction="average")  # wrong
fc.FocalLoss(size_average=True)  # wrong
fc.focal_loss(logits, labels)  # wrong
fc.LinearFocalLoss()(logits, labels)  # wrong
fc.AdaFocalLoss()(logits, labels).upper()  # wrong
fc.evaluate(logits, labels).ecee  # wrong
fc.evaluate(logits, labels, kind="softmax")  # wrong
fc.evaluate(logits, labels, by=["a", "a", "b", "b"]).ece  # wrong
fc.TemperatureScaling().fit(logits, labels).gama_.bit_length  # allowed: a module has attributes of any name
fc.TemperatureScaling().fit(logits, labels).temperature_.shape  # wrong
fc.TemperatureScaling().fit(logits, labels).predict_probs(np.zeros((4, 3))).cpu()  # wrong
fc.focal_map(np.array([0.8, 0.2]), 1.0).detach()  # wrong
fc.gamma_star("0.2")  # wrong
fc.bootstrap("ece", logits, labels).median  # wrong
fc.metrics.ece(logits, labels, bins=15)  # wrong
