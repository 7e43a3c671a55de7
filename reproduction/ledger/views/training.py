"""Views of what happens in training: AdaFocal's and CalFocal's gammas, bins, label smoothing, calibrators."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

import focalcal as fc
from focalcal.core.binning import bin_predictions
from focalcal.losses.adafocal import next_gamma
from focalcal_lab.papers.exact.mukhoti2020 import predictions
from reproduction.ledger.bias import SPREAD, SURE, ece_bias
from reproduction.ledger.braille import plot
from reproduction.ledger.views.view import View

_EDGES: tuple[Literal["equal_width", "equal_mass"], ...] = ("equal_width", "equal_mass")


def adafocal() -> list[View]:
    """The gamma of a bin whose confidence stays above, below, or comes to its accuracy."""
    gaps = {
        "stays 0.2 too sure": [0.2] * 20,
        "stays 0.2 unsure": [-0.2] * 20,
        "gap halves": [0.4 / 2**k for k in range(20)],
    }
    shown = (1, 2, 5, 10, 15, 20)
    rows = []
    for name, series in gaps.items():
        gamma, path = torch.ones(1, dtype=torch.float64), [1.0]
        for gap in series:
            gamma = next_gamma(gamma, torch.tensor([gap]), lam=1.0, switch_at=0.2, bounds=(-2.0, 20.0))
            path.append(float(gamma))
        rows.append((name, *(f"{path[update]:.3f}" for update in shown)))
    heads = ("C − A of the bin", *(f"after {update}" for update in shown))
    return [View("AdaFocal's γ by update, from γ = 1 (λ 1, S_th 0.2, bounds −2 and 20)", heads, tuple(rows))]


def calfocal() -> list[View]:
    """CalFocal's gammas, and its loss for a bin with accuracy 0.8."""
    rows = [(f"{gap:+.2f}", *(f"{math.exp(lam * gap):.4f}" for lam in (1, 10, 100))) for gap in (-0.05, 0, 0.02, 0.05)]
    curves = {
        f"{mark}: λ = {lam:g}": partial(_calfocal_loss, lam=lam)
        for mark, lam in (("a", 1.0), ("b", 10.0), ("c", 100.0))
    }
    title = "Loss against p in a bin with accuracy 0.8"
    return [
        View("CalFocal's γ = exp(λ (C − A))", ("C − A", "λ = 1", "λ = 10", "λ = 100"), tuple(rows), words=0),
        View(title, plot=plot(curves, (0.3, 0.999), (0, 1.2), height=10)),
    ]


def _calfocal_loss(p: Any, lam: float) -> Any:
    return -((1 - p) ** np.exp(np.minimum(lam * (p - 0.8), 50.0))) * np.log(p)


def bins() -> list[View]:
    """Bins of the same 607 predictions by equal width and by equal mass."""
    confidence, correct = predictions(607)
    found = []
    for edges in _EDGES:
        made = bin_predictions(torch.tensor(confidence), torch.tensor(correct), edges=edges)
        rows = [
            (str(place + 1), f"{count:.0f}", f"{100 * gap:+.1f} %" if count else "")
            for place, (count, gap) in enumerate(zip(made.count.tolist(), made.gap.tolist(), strict=True))
        ]
        ece = float((made.count * made.gap.abs()).sum() / made.count.sum())
        title = f"{edges.replace('_', ' ')}: ECE {100 * ece:.2f} %, MCE {100 * float(made.gap.abs().max()):.2f} %"
        found.append((title, rows))
    both = [(*one, *two[1:]) for one, two in zip(found[0][1], found[1][1], strict=True)]
    heads = ("bin", "rows", "C − A", "rows", "C − A")
    return [View(f"607 made predictions. Left, {found[0][0]}; right, {found[1][0]}", heads, tuple(both), words=0)]


def bias() -> list[View]:
    """The bias of ECE with both kinds of bins."""
    rows = []
    for name, shape in (("close to 1", SURE), ("spread out", SPREAD)):
        for num_rows in (200, 1000):
            values = [ece_bias(shape, edges, num_rows=num_rows, draws=100) for edges in _EDGES]
            rows.append((name, str(num_rows), *(f"{100 * value:.2f} %" for value in values)))
    heads = ("confidences", "rows", "equal width", "equal mass")
    return [View("Mean ECE of calibrated predictions, 100 draws (the true error is 0)", heads, tuple(rows))]


def smoothing() -> list[View]:
    """The targets of label smoothing."""
    rows = [
        (f"{alpha:g}", str(classes), f"{1 - alpha:.3f}", f"{alpha / (classes - 1):.5f}")
        for alpha in (0.05, 0.1)
        for classes in (2, 10, 100)
    ]
    return [View("Smoothed targets", ("α", "K", "true class", "each other class"), tuple(rows), words=0)]


def weights() -> list[View]:
    """The loss of separating weights as they grow."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    separating = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    labels = (features @ separating.T).argmax(1)
    rows = []
    for factor in (1.0, 10.0, 100.0, 1000.0):
        scaled = factor * separating
        loss = float(fc.focal_loss(features @ scaled.T, labels, gamma=0.0))
        rows.append((f"{float(scaled.norm()):.1f}", f"{loss:.3g}"))
    return [View("Cross-entropy of separable rows by the norm of the weights", ("‖W‖", "loss"), tuple(rows), words=0)]


def scaled() -> list[View]:
    """Focal temperature scaling and temperature scaling of made logits that a focal loss of gamma 2 would give."""
    rng = np.random.default_rng(0)
    posterior = torch.tensor(rng.dirichlet([0.6] * 5, 4000))
    labels = torch.tensor([rng.choice(5, p=row) for row in posterior.numpy()])
    logits = fc.focal_minimizer(posterior, 2.0).log()
    rows = []
    for name, calibrator in (
        ("as trained", fc.Identity()),
        ("temperature scaling", fc.TemperatureScaling("nll")),
        ("focal temperature scaling", fc.FocalTemperatureScaling("nll")),
        ("Ψ with γ = 2", fc.FocalCalibration(2.0)),
    ):
        probs = calibrator.fit(logits, labels).predict_probs(logits)
        away = float((probs - posterior).abs().max())
        kept = bool((probs.argmax(1) == logits.argmax(1)).all())
        nll = float(-probs[torch.arange(4000), labels].log().mean())
        rows.append((name, f"{nll:.4f}", f"{away:.4f}", "yes" if kept else "no"))
    heads = ("4,000 made rows, 5 classes, γ = 2", "NLL", "largest |probs − posterior|", "argmax kept")
    return [View("From the minimiser of the focal risk back to the posterior", heads, tuple(rows))]
