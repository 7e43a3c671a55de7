"""Small tables that illustrate the papers' claims, computed when `focalcal claims show` asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch

import focalcal as fc
from focalcal.core.binning import bin_predictions
from focalcal.losses.adafocal import next_gamma
from focalcal.losses.gamma import named_policy
from focalcal_lab.papers import ClaimTable
from focalcal_lab.papers.exact.komisarenko2024 import focal_logit
from focalcal_lab.papers.exact.mukhoti2020 import predictions

_EDGES: tuple[Literal["equal_width", "equal_mass"], ...] = ("equal_width", "equal_mass")


def claim_tables(claim: str) -> list[ClaimTable]:
    """The tables that illustrate a claim; none where there is nothing to compute.

    >>> [table.title for table in claim_tables("mukhoti2020.g.threshold")]
    ['g peaks at τ_oc and is 1 again at τ_uc = p₀']
    """
    paper, _, name = claim.partition(".")
    found = [make for make, papers in _CLAIMS.items() if name in papers.get(paper, "").split()]
    return [make() for make in found]


def gradient_ratio() -> ClaimTable:
    """Where the gradient ratio of focal loss peaks, and where it falls below 1."""
    rows = [
        [f"{gamma:g}", *(f"{value:.5f}" for value in fc.confidence_thresholds(gamma))]
        for gamma in (0.5, 1.0, 2.0, 3.0, 5.0, 7.0)
    ]
    return ClaimTable("g peaks at τ_oc and is 1 again at τ_uc = p₀", ["γ", "τ_oc", "τ_uc"], rows)


def gamma_star() -> ClaimTable:
    """The gamma from which on no gradient from p0 on exceeds that of cross-entropy."""
    rows = []
    for p0 in (0.1, 0.2, 0.25, 0.3, float(np.exp(-1)), 0.45):
        star = fc.gamma_star(p0)
        rows.append([f"{p0:.4g}", f"{star:.4f}", f"{float(fc.gradient_ratio(p0, star)):.5f}"])
    return ClaimTable("γ* by Lambert's W", ["p₀", "γ*(p₀)", "g(p₀, γ*)"], rows)


def schedule() -> ClaimTable:
    """Which gamma a sample gets, and what it does to its gradient."""
    rows = []
    for p in (0.05, 0.15, 0.19, 0.2, 0.25, 0.3, 0.5, 0.9):
        gammas = [
            float(named_policy(name)(torch.tensor([p], dtype=torch.float64))[0]) for name in ("flsd-53", "flsd-532")
        ]
        ratio = float(fc.gradient_ratio(p, gammas[0]))
        rows.append([f"{p:g}", *(f"{gamma:g}" for gamma in gammas), f"{ratio:.4f}"])
    return ClaimTable("Schedules by p_y", ["p_y", "FLSD-53", "FLSD-532", "g(p_y, γ) of FLSD-53"], rows)


def epochs() -> ClaimTable:
    """Which gamma an epoch gets."""
    rows = []
    for epoch in (0, 99, 100, 249, 250, 349):
        gammas = []
        for name in ("flsc-532", "flsc-531"):
            loss = fc.FocalLoss(name)
            loss.set_epoch(epoch)
            at_half = float(loss(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])))
            gammas.append(f"{-np.log2(at_half / np.log(2)):.0f}")
        rows.append([str(epoch), *gammas])
    return ClaimTable("γ read off the loss at p = 1/2", ["epoch", "FLSc-532", "FLSc-531"], rows)


def focal_map() -> ClaimTable:
    """What the focal map makes of probabilities."""
    rows = []
    for probs in ((0.55, 0.3, 0.15), (0.46, 0.45, 0.09), (0.9, 0.07, 0.03)):
        rows += [[_row(probs), f"{gamma:g}", _row(_mapped(probs, gamma))] for gamma in (1.0, 3.0)]
    for classes, top in ((10, 0.12), (1000, 0.2)):
        rows.append([f"{top:g}, {classes - 1} equal", "1", f"{_mapped(_one_above(top, classes), 1.0)[0]:.4f}, …"])
    return ClaimTable("The map on three classes and more", ["probabilities q", "γ", "Ψ(q)"], rows)


def minimizer() -> ClaimTable:
    """What the least focal risk predicts for two classes."""
    gammas, etas = (0.5, 1.0, 2.0, 3.0, 5.0), np.array([0.6, 0.7, 0.8, 0.9, 0.99])
    columns = [fc.focal_minimizer(etas, gamma, binary=True).tolist() for gamma in gammas]
    rows = [[f"{eta:g}", *(f"{p:.4f}" for p in row)] for eta, *row in zip(etas, *columns, strict=True)]
    return ClaimTable("The minimiser p*", ["η", *(f"γ = {gamma:g}" for gamma in gammas)], rows)


def overconfidence() -> ClaimTable:
    """Many classes: the minimiser's largest entry against the posterior's."""
    rows = []
    for classes in (4, 10, 1000):
        for top in (0.15, 0.3, 0.6) if classes > 4 else (0.3, 0.6):
            best = [_mapped(_one_above(top, classes), gamma)[0] for gamma in (0.5, 1.0, 3.0)]
            rows.append([str(classes), f"{top:g}", *(f"{eta:.4f}{' over' if eta < top else ''}" for eta in best)])
    title = "One class at max q*, the others equal: the posterior behind it (over: q* is over-confident)"
    return ClaimTable(title, ["K", "max q*", "max η, γ = 0.5", "γ = 1", "γ = 3"], rows)


def bounds() -> ClaimTable:
    """Between which temperatures the binary focal map lies."""
    rows = []
    for gamma in (0.5, 1.0, 2.0, 3.0, 4.0, 7.0):
        low, high = fc.temperature_bounds(gamma)
        implied = [s / float(focal_logit(np.array([s]), gamma)[0]) for s in (20.0, 5.0, 0.01)]
        rows.append([f"{gamma:g}", *(f"{value:.4f}" for value in (low, *implied, high))])
    heads = ["γ", "bound", "T at s = 20", "s = 5", "s = 0.01", "bound"]
    return ClaimTable("The temperature that the binary map is like, by logit s", heads, rows)


def temperatures() -> ClaimTable:
    """The temperature nearest to the focal map, by the number of classes."""
    lines = {2: (0.95, 0.85), 3: (0.64, 0.91), 4: (0.47, 0.85)}
    rows = []
    for gamma in (0.5, 1.0, 2.0, 3.0, 5.0):
        found = {classes: fc.nearest_temperature(gamma, classes) for classes in lines}
        printed = (1 / (slope * gamma + start) for slope, start in lines.values())
        rows.append([f"{gamma:g}", *(f"{found[k]:.4f} ({line:.4f})" for k, line in zip(lines, printed, strict=True))])
    title = "Nearest temperatures, and in brackets those of the printed lines"
    return ClaimTable(title, ["γ", *(f"K = {classes}" for classes in lines)], rows)


def losses() -> ClaimTable:
    """Cross-entropy, focal loss and inverse focal loss of a probability."""
    rows = []
    for p in (0.05, 0.2, 0.5, 0.8, 0.95, 0.99):
        values = (*(-((1 - p) ** gamma) * np.log(p) for gamma in (0, 1, 3, 5)), -((1 + p) ** 2) * np.log(p))
        rows.append([f"{p:g}", *(f"{value:.4f}" for value in values)])
    return ClaimTable("Losses", ["p", "CE", "FL-1", "FL-3", "FL-5", "inverse, |γ| = 2"], rows)


def bounded() -> ClaimTable:
    """Focal loss, divergence and entropy of some pairs."""
    rows = []
    for target, predicted in (((1.0, 0.0), (0.7, 0.3)), ((0.8, 0.2), (0.6, 0.4)), ((0.8, 0.2), (0.95, 0.05))):
        for gamma in (0.5, 1.0, 3.0):
            q, p = np.array(target), np.array(predicted)
            focal = float(-((1 - p) ** gamma * q * np.log(p)).sum())
            kl = float(sum(a * np.log(a / b) for a, b in zip(q, p, strict=True) if a > 0))
            bound = kl + gamma * float((p * np.log(p)).sum())
            rows.append([f"{_row(target)} | {_row(predicted)}", f"{gamma:g}", f"{focal:.4f}", f"{bound:.4f}"])
    return ClaimTable("Focal loss and its bound", ["q | p", "γ", "L_f", "KL(q‖p) − γ H[p]"], rows)


def adafocal() -> ClaimTable:
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
        rows.append([name, *(f"{path[update]:.3f}" for update in shown)])
    title = "AdaFocal's γ by update, from γ = 1 (λ 1, S_th 0.2, bounds −2 and 20)"
    return ClaimTable(title, ["C − A of the bin", *(f"after {update}" for update in shown)], rows)


def calfocal() -> ClaimTable:
    """CalFocal's gammas by the gap of a bin."""
    rows = [[f"{gap:+.2f}", *(f"{math.exp(lam * gap):.4f}" for lam in (1, 10, 100))] for gap in (-0.05, 0, 0.02, 0.05)]
    return ClaimTable("CalFocal's γ = exp(λ (C − A))", ["C − A", "λ = 1", "λ = 10", "λ = 100"], rows)


def bins() -> ClaimTable:
    """Bins of the same 607 predictions by equal width and by equal mass."""
    confidence, correct = predictions(607)
    titles, columns = [], []
    for edges in _EDGES:
        made = bin_predictions(torch.tensor(confidence), torch.tensor(correct), edges=edges)
        count, gap = made.count.tolist(), made.gap.tolist()
        columns += [
            [f"{n:.0f}" for n in count],
            [f"{100 * g:+.1f} %" if n else "" for n, g in zip(count, gap, strict=True)],
        ]
        ece = float((made.count * made.gap.abs()).sum() / made.count.sum())
        largest = float(made.gap.abs().max())
        titles.append(f"{edges.replace('_', ' ')}: ECE {100 * ece:.2f} %, MCE {100 * largest:.2f} %")
    rows = [[str(place), *cells] for place, cells in enumerate(zip(*columns, strict=True), 1)]
    heads = ["bin", "rows", "C − A", "rows", "C − A"]
    return ClaimTable(f"607 made predictions. Left, {titles[0]}; right, {titles[1]}", heads, rows)


def smoothing() -> ClaimTable:
    """The targets of label smoothing."""
    rows = [
        [f"{alpha:g}", str(classes), f"{1 - alpha:.3f}", f"{alpha / (classes - 1):.5f}"]
        for alpha in (0.05, 0.1)
        for classes in (2, 10, 100)
    ]
    return ClaimTable("Smoothed targets", ["α", "K", "true class", "each other class"], rows)


def weights() -> ClaimTable:
    """The loss of separating weights as they grow."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    separating = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    labels = (features @ separating.T).argmax(1)
    rows = []
    for factor in (1.0, 10.0, 100.0, 1000.0):
        scaled = factor * separating
        loss = float(fc.focal_loss(features @ scaled.T, labels, gamma=0.0))
        rows.append([f"{float(scaled.norm()):.1f}", f"{loss:.3g}"])
    return ClaimTable("Cross-entropy of separable rows by the norm of the weights", ["‖W‖", "loss"], rows)


def scaling() -> ClaimTable:
    """Calibrators fitted to made logits that a focal loss of gamma 2 would give."""
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
        rows.append([name, f"{nll:.4f}", f"{away:.4f}", "yes" if kept else "no"])
    heads = ["4,000 made rows, 5 classes, γ = 2", "NLL", "largest |probs − posterior|", "argmax kept"]
    return ClaimTable("From the minimiser of the focal risk back to the posterior", heads, rows)


def line() -> ClaimTable:
    """The limits of the one-dimensional problem, by integrals."""
    from focalcal_lab.data.synthetic import one_dimensional
    from focalcal_lab.problems import one_dimensional_limits

    mixture = one_dimensional(train_size=1, val_size=1, test_size=1).facts["mixture"]
    steps = {"raw": "as trained", "temperature": "TS by NLL", "focal-map": "Ψ"}
    rows = [
        [
            f"FL-{each.gamma:g}" if each.gamma else "CE",
            steps[each.step],
            "" if each.temperature is None else f"{each.temperature:.3f}",
            f"{100 * each.error:.2f} %",
            f"{each.kl:.4f}",
            f"{100 * each.ece:.2f} %",
        ]
        for each in one_dimensional_limits(mixture, [0.0, 1.0, 5.0])
    ]
    heads = ["loss", "outputs", "T", "error", "KL to the posterior", "ECE"]
    return ClaimTable("Three classes on a line: what training tends to", heads, rows)


def _mapped(probs: Sequence[float], gamma: float) -> list[float]:
    found: list[float] = fc.focal_map(torch.tensor(probs, dtype=torch.float64), gamma).tolist()
    return found


def _one_above(top: float, classes: int) -> tuple[float, ...]:
    """One class at `top`, the others equal."""
    return (top, *[(1 - top) / (classes - 1)] * (classes - 1))


def _row(probs: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in probs) + ")"


# The claims that each table illustrates, by paper.
_CLAIMS: dict[Callable[[], ClaimTable], dict[str, str]] = {
    gradient_ratio: {
        "mukhoti2020": "prop1 prop1.norm g.limits eq8 eq10 g.threshold g.p0-gamma1 g.steeper sec4.gamma7",
        "ghosh2022": "fn2.gradient",
        "charoenphakdee2021": "eq10 thm8.1 fig1",
    },
    gamma_star: {"mukhoti2020": "prop2 prop2.equality prop2.w0 prop2.minimum"},
    schedule: {"mukhoti2020": "schedule.values schedule.region flsd53.rule flsd532.rule"},
    epochs: {"mukhoti2020": "flsc.rule"},
    overconfidence: {
        "charoenphakdee2021": "thm8.2 thm8.3 thm8.ambiguous cor9 fn2 sec4.large-k fig2b",
        "komisarenko2024": "prop5 prop5.lemma",
    },
    minimizer: {
        "mukhoti2020": "fn1.improper fig6",
        "charoenphakdee2021": "thm3 thm3.order thm5 prop6 cor10 fig2a",
        "komisarenko2024": "ex062 ex062.range",
    },
    focal_map: {
        "charoenphakdee2021": "thm11 thm11.onehot prop12 psi.unique",
        "komisarenko2024": (
            "prop2 prop2.gradients prop2.negative prop2.proper-part prop4 prop4.same-map fig4 sharpening"
        ),
    },
    bounds: {"komisarenko2024": "prop3 prop3.tight bounds.gamma4 bounds.gamma4-numeric"},
    temperatures: {
        "komisarenko2024": (
            "fit2 fit2.error fig2.temperatures fig5.temperatures fit3 fit3.error fit3.below-one fig7 fit4 "
            "binary-vs-multiclass"
        )
    },
    losses: {"charoenphakdee2021": "eq5", "komisarenko2024": "prop1 prop1.quadratic", "ghosh2022": "eq1 eq5"},
    bounded: {"mukhoti2020": "ce-above-kl eq4 appA.stronger"},
    bins: {"mukhoti2020": "eq1 eq2 eq3", "ghosh2022": "ts.grid"},
    weights: {"mukhoti2020": "sec3.weights-infinite"},
    smoothing: {"mukhoti2020": "ls.rule"},
    adafocal: {
        "ghosh2022": (
            "eq4 eq4.fixpoint alg1.init alg1.lookup alg1.rebin alg1.focal-step alg1.inverse-step hyper.lambda "
            "hyper.gamma-max hyper.switch hyper.bins hyper.frequency hyper.gamma0 frequency.counts"
        )
    },
    calfocal: {"ghosh2022": "eq2 fig3a eq3 calfocal.limit1 calfocal.limit2"},
    scaling: {"komisarenko2024": "fts.def fts.grid table1.accuracy", "charoenphakdee2021": "sec6.3.ts"},
    line: {"charoenphakdee2021": "fig3.data fig3.err fig3.uc fig3.ts fig3.psi"},
}
