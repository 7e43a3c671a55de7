"""Train the small networks of Figs. 3, 4 and 6, and write their numbers to a file.

`python -m reproduction.figures.record_digits` takes about four minutes on one core. Training differs a little
from machine to machine; what is drawn is what was recorded last, so that a figure is the same everywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focalcal import noisy_digits
from focalcal.atomic import write_atomically
from focalcal.calibrators import FocalCalibration, TemperatureScaling
from focalcal.core.binning import bin_predictions
from focalcal.losses import FocalLoss
from focalcal.metrics import ece
from focalcal.noisy_digits import DigitsSplit
from focalcal_lab.problems import OneDimensionalProblem, one_dimensional_problem
from reproduction.result_files import shortened

RECORDED = Path(__file__).parent / "recorded" / "charoenphakdee2021.json"

# One curve of Fig. 3 is drawn through every sixth point of the problem's grid, 0.2 apart.
EVERY = 6
GAMMAS, SEEDS = (0, 1, 2, 3), range(3)
# The paper's number of bins, and its label smoothing: one tenth goes to all classes alike.
NUM_BINS, SMOOTHING = 10, 0.1
NUM_CLASSES = 10


def line_numbers(problem: OneDimensionalProblem) -> dict[str, Any]:
    """The networks of the one-dimensional problem: what they say, and how near each step comes to the posterior."""
    networks: dict[str, Any] = {}
    for one in problem.measured:
        network = networks.setdefault(f"{one.gamma:g}", {"steps": {}})
        if one.step == "raw":
            network["probs"] = one.probs[::EVERY].tolist()
        network["steps"][one.step] = {
            "error": one.error,
            "kl": one.kl,
            "ece": one.ece,
            "temperature": one.temperature,
        }
    return {"seed": problem.seed, "train_size": problem.train_size, "epochs": problem.epochs, "networks": networks}


def digits_numbers() -> list[dict[str, Any]]:
    """Networks on noisy digits, one for each training, gamma and seed, with TS_FL as a training of its own."""
    runs = []
    for seed in SEEDS:
        train, val, test = noisy_digits.load(seed)
        smooth = SMOOTHING / NUM_CLASSES + (1 - SMOOTHING) * torch.nn.functional.one_hot(train.labels, NUM_CLASSES)
        for gamma in GAMMAS:
            plain = _trained(gamma, train, val, test, seed)
            scaling = TemperatureScaling("focal", gamma=gamma).fit(plain[0], val.labels)
            smoothed = _trained(gamma, DigitsSplit(train.images, smooth), val, test, seed)
            for name, scores in (("standard", plain[1]), ("ts-fl", scaling(plain[1])), ("ls", smoothed[1])):
                runs.append({"training": name, "gamma": gamma, "seed": seed, **_measured(scores, test.labels, gamma)})
    return runs


def _trained(gamma: float, train: DigitsSplit, val: DigitsSplit, test: DigitsSplit, seed: int) -> Any:
    """The logits of validation and test images after training."""
    *_, network = noisy_digits.train(FocalLoss(gamma), train, val, seed=seed)
    return noisy_digits.predict(network, val), noisy_digits.predict(network, test)


def _measured(scores: Tensor, labels: Tensor, gamma: float) -> dict[str, Any]:
    """The error, and ECE and bins of the scores as they are ("raw") and after the focal map ("psi")."""
    found: dict[str, Any] = {"error": float((scores.argmax(1) != labels).double().mean())}
    for step, given in (("raw", scores), ("psi", FocalCalibration(gamma)(scores))):
        probs = torch.softmax(given.double(), 1)
        bins = bin_predictions(probs.amax(1), (probs.argmax(1) == labels).double(), num_bins=NUM_BINS)
        held = bins.count > 0
        found[step] = {
            "ece": float(ece(probs, labels, kind="probs", num_bins=NUM_BINS)),
            "count": bins.count[held].int().tolist(),
            "confidence": bins.confidence[held].tolist(),
            "accuracy": bins.accuracy[held].tolist(),
        }
    return found


def main() -> None:
    """Train everything and write the file."""
    torch.set_num_threads(1)
    line = shortened(line_numbers(one_dimensional_problem()))
    lines = ",\n".join(json.dumps(shortened(run)) for run in digits_numbers())
    write_atomically(RECORDED, f'{{"line": {json.dumps(line)},\n"digits": [\n{lines}\n]}}\n'.encode())


if __name__ == "__main__":
    main()
