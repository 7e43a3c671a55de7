"""Views of the papers' theory: g, gamma*, schedules, thresholds, the focal map, its inverse, temperatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import focalcal as fc
from focalcal.losses.gamma import named_policy
from focalcal_lab.papers.exact.komisarenko2024 import focal_logit
from reproduction.ledger.braille import plot
from reproduction.ledger.views.view import View

GAMMAS = (1.0, 3.0, 5.0, 7.0)


def gradient_ratio() -> list[View]:
    """How much focal loss scales the gradient of cross-entropy."""
    curves = _by_gamma(fc.gradient_ratio)
    return [View("g(p, γ) against p", plot=plot(curves, (0, 1), (0, 1.6))), _threshold_table()]


def gamma_star() -> list[View]:
    """The gamma from which on no gradient from p0 on exceeds that of cross-entropy."""
    rows = []
    for p0 in (0.1, 0.2, 0.25, 0.3, float(np.exp(-1)), 0.45):
        star = fc.gamma_star(p0)
        rows.append((f"{p0:.4g}", f"{star:.4f}", f"{float(fc.gradient_ratio(p0, star)):.5f}"))
    curve = plot({"*: γ*(p₀)": np.vectorize(fc.gamma_star)}, (0.05, 0.49), (0, 20), height=8)
    return [View("γ* by Lambert's W", ("p₀", "γ*(p₀)", "g(p₀, γ*)"), tuple(rows), words=0), View("γ*(p₀)", plot=curve)]


def schedule() -> list[View]:
    """Which gamma a sample gets, and what it does to its gradient."""
    rows = []
    for p in (0.05, 0.15, 0.19, 0.2, 0.25, 0.3, 0.5, 0.9):
        gammas = [_policy(name, p) for name in ("flsd-53", "flsd-532")]
        ratio = float(fc.gradient_ratio(p, gammas[0]))
        rows.append((f"{p:g}", *(f"{gamma:g}" for gamma in gammas), f"{ratio:.4f}"))
    return [View("Schedules by p_y", ("p_y", "FLSD-53", "FLSD-532", "g(p_y, γ) of FLSD-53"), tuple(rows), words=0)]


def epochs() -> list[View]:
    """Which gamma an epoch gets."""
    rows = []
    for epoch in (0, 99, 100, 249, 250, 349):
        gammas = []
        for name in ("flsc-532", "flsc-531"):
            loss = fc.FocalLoss(name)
            loss.set_epoch(epoch)
            at_half = float(loss(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])))
            gammas.append(f"{-np.log2(at_half / np.log(2)):.0f}")
        rows.append((str(epoch), *gammas))
    return [View("γ read off the loss at p = 1/2", ("epoch", "FLSc-532", "FLSc-531"), tuple(rows), words=0)]


def thresholds() -> list[View]:
    """Where the minimiser is over- and under-confident."""
    return [_threshold_table(), gradient_ratio()[0]]


def _threshold_table() -> View:
    rows = [
        (f"{gamma:g}", *(f"{value:.5f}" for value in fc.confidence_thresholds(gamma)))
        for gamma in (0.5, 1.0, 2.0, 3.0, 5.0, 7.0)
    ]
    return View("g peaks at τ_oc and is 1 again at τ_uc = p₀", ("γ", "τ_oc", "τ_uc"), tuple(rows), words=0)


def focal_map() -> list[View]:
    """What the focal map makes of probabilities."""
    curves = _by_gamma(lambda q, gamma: fc.focal_map(q, gamma, binary=True))
    rows = []
    for probs in ((0.55, 0.3, 0.15), (0.46, 0.45, 0.09), (0.9, 0.07, 0.03)):
        rows += [(_row(probs), f"{gamma:g}", _row(_mapped(fc.focal_map, probs, gamma))) for gamma in (1.0, 3.0)]
    for classes, top in ((10, 0.12), (1000, 0.2)):
        mapped = _mapped(fc.focal_map, (top, *[(1 - top) / (classes - 1)] * (classes - 1)), 1.0)
        rows.append((f"{top:g}, {classes - 1} equal", "1", f"{mapped[0]:.4f}, …"))
    table = View("The map on three classes and more", ("probabilities q", "γ", "Ψ(q)"), tuple(rows), words=1)
    return [View("Two classes: Ψ(q) against q", plot=plot(curves, (0, 1), (0, 1))), table]


def minimizer() -> list[View]:
    """What the least focal risk predicts."""
    curves = _by_gamma(lambda q, gamma: fc.focal_minimizer(q, gamma, binary=True))
    gammas, etas = (0.5, 1.0, 2.0, 3.0, 5.0), np.array([0.6, 0.7, 0.8, 0.9, 0.99])
    columns = [fc.focal_minimizer(etas, gamma, binary=True).tolist() for gamma in gammas]
    rows = [(f"{eta:g}", *(f"{p:.4f}" for p in row)) for eta, *row in zip(etas, *columns, strict=True)]
    heads = ("η", *(f"γ = {gamma:g}" for gamma in gammas))
    return [
        View("Two classes: the minimiser p* against the posterior η", plot=plot(curves, (0, 1), (0, 1))),
        View("The minimiser p*", heads, tuple(rows), words=0),
    ]


def overconfidence() -> list[View]:
    """Many classes: the minimiser's largest entry against the posterior's."""
    rows = []
    for classes in (4, 10, 1000):
        for top in (0.15, 0.3, 0.6) if classes > 4 else (0.3, 0.6):
            rest = (1 - top) / (classes - 1)
            best = [_mapped(fc.focal_map, (top, *[rest] * (classes - 1)), gamma)[0] for gamma in (0.5, 1.0, 3.0)]
            rows.append((str(classes), f"{top:g}", *(f"{eta:.4f}{' over' if eta < top else ''}" for eta in best)))
    heads = ("K", "max q*", "max η, γ = 0.5", "γ = 1", "γ = 3")
    title = "One class at max q*, the others equal: the posterior behind it (over: q* is over-confident)"
    return [View(title, heads, tuple(rows), words=0), _threshold_table()]


def bounds() -> list[View]:
    """Between which temperatures the binary focal map lies."""
    rows = []
    for gamma in (0.5, 1.0, 2.0, 3.0, 4.0, 7.0):
        low, high = fc.temperature_bounds(gamma)
        implied = [_implied(gamma, s) for s in (0.01, 5.0, 20.0)]
        rows.append((f"{gamma:g}", f"{low:.4f}", *(f"{value:.4f}" for value in implied[::-1]), f"{high:.4f}"))
    heads = ("γ", "bound", "T at s = 20", "s = 5", "s = 0.01", "bound")
    return [View("The temperature that the binary map is like, by logit s", heads, tuple(rows), words=0)]


def _implied(gamma: float, logit: float) -> float:
    """The temperature with which the binary map agrees at one logit."""
    return logit / float(focal_logit(np.array([logit]), gamma)[0])


def temperatures() -> list[View]:
    """The temperature nearest to the focal map, by the number of classes."""
    lines = {2: (0.95, 0.85), 3: (0.64, 0.91), 4: (0.47, 0.85)}
    rows = []
    for gamma in (0.5, 1.0, 2.0, 3.0, 5.0):
        found = {classes: fc.nearest_temperature(gamma, classes) for classes in lines}
        printed = (1 / (slope * gamma + start) for slope, start in lines.values())
        rows.append((f"{gamma:g}", *(f"{found[k]:.4f} ({line:.4f})" for k, line in zip(lines, printed, strict=True))))
    heads = ("γ", *(f"K = {classes}" for classes in lines))
    return [View("Nearest temperatures, and in brackets those of the printed lines", heads, tuple(rows), words=0)]


def losses() -> list[View]:
    """Cross-entropy, focal loss and inverse focal loss of a probability."""
    rows = []
    for p in (0.05, 0.2, 0.5, 0.8, 0.95, 0.99):
        values = (-np.log(p), *(-((1 - p) ** gamma) * np.log(p) for gamma in (1, 3, 5)), -((1 + p) ** 2) * np.log(p))
        rows.append((f"{p:g}", *(f"{value:.4f}" for value in values)))
    heads = ("p", "CE", "FL-1", "FL-3", "FL-5", "inverse, |γ| = 2")
    curves = {
        f"{gamma:g}: γ = {gamma:g}": _at(lambda p, gamma: -((1 - p) ** gamma) * np.log(p), gamma)
        for gamma in (0.0, 1.0, 3.0)
    }
    return [View("Losses", heads, tuple(rows), words=0), View("Loss against p", plot=plot(curves, (0.01, 1), (0, 2.5)))]


def bounded() -> list[View]:
    """Focal loss, divergence and entropy of some pairs."""
    rows = []
    for target, predicted in (((1.0, 0.0), (0.7, 0.3)), ((0.8, 0.2), (0.6, 0.4)), ((0.8, 0.2), (0.95, 0.05))):
        for gamma in (0.5, 1.0, 3.0):
            q, p = np.array(target), np.array(predicted)
            focal = float(-((1 - p) ** gamma * q * np.log(p)).sum())
            kl = float(sum(a * np.log(a / b) for a, b in zip(q, p, strict=True) if a > 0))
            own = float(-(p * np.log(p)).sum())
            rows.append(
                (f"{_row(target)} | {_row(predicted)}", f"{gamma:g}", f"{focal:.4f}", f"{kl - gamma * own:.4f}")
            )
    return [View("Focal loss and its bound", ("q | p", "γ", "L_f", "KL(q‖p) − γ H[p]"), tuple(rows))]


def _by_gamma(function: Callable[[Any, float], Any]) -> dict[str, Callable[[Any], Any]]:
    return {f"{gamma:g}: γ = {gamma:g}": _at(function, gamma) for gamma in GAMMAS}


def _at(function: Callable[[Any, float], Any], gamma: float) -> Callable[[Any], Any]:
    return lambda x: function(x, gamma)


def _mapped(function: Callable[..., torch.Tensor], probs: Sequence[float], gamma: float) -> list[float]:
    found: list[float] = function(torch.tensor(probs, dtype=torch.float64), gamma).tolist()
    return found


def _row(probs: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in probs) + ")"


def _policy(name: str, p: float) -> float:
    return float(named_policy(name)(torch.tensor([p], dtype=torch.float64))[0])
