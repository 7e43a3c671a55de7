"""Komisarenko and Kull 2024: what its table and figures show, looked for in the recorded results."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from focalcal.core.temperature import nearest_temperature
from reproduction.claims.tools import (
    UNTESTABLE,
    Numbers,
    Outcome,
    chain,
    counted,
    falls,
    judged,
    paired,
    trend,
)
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, SST, listed

FIVE = (LITTLE, LITTLE_20, MORE, NEWS, SST)


@trend("komisarenko2024.sec4.compensation", LITTLE, LITTLE_20, MORE)
def the_map_and_the_gap_cancel(*found: Numbers) -> Outcome:
    """Cross-entropy's temperature times that nearest to the map, beside the fitted one of focal loss."""
    parts, held = [], []
    for each in found:
        gap = each.temperature("ce", "ts-nll")
        gammas = [gamma for gamma in each.gammas if gamma > 0]
        predicted = [gap * nearest_temperature(gamma, 10) for gamma in gammas]
        fitted = [each.temperature(each.gammas[gamma], "ts-nll") for gamma in gammas]
        names = ", ".join(f"{gamma:g}" for gamma in gammas)
        parts.append(f"{each.title}, gamma {names}: predicted {chain(predicted)}, fitted {chain(fitted)}")
        held.append(max(abs(np.log(np.array(predicted) / fitted))) < np.log(1.25))
    return judged(held, f"T of cross-entropy by NLL times the temperature nearest to the map: {'; '.join(parts)}.")


@trend("komisarenko2024.train-underconfident", LITTLE, LITTLE_20)
def focal_training_is_underconfident_on_training_data(*found: Numbers) -> Outcome:
    """Training accuracy less training confidence at the end."""
    parts, held = [], []
    for each in found:
        gaps = [
            100 * (1 - each.at(name, "train_error", "end") - each.at(name, "train_confidence", "end"))
            for name in ("ce", "fl-1", "fl-2", "fl-3")
        ]
        parts.append(f"{each.title}: {chain(gaps, 1)}")
        held += [min(gaps[1:]) > 0, falls(gaps[::-1])]
    return judged(
        held, f"Training accuracy less confidence at the end, points, for gamma 0, 1, 2, 3: {'; '.join(parts)}."
    )


@trend("komisarenko2024.table1.ece", *FIVE)
def focal_temperature_scaling_lowers_ece(*found: Numbers) -> Outcome:
    """AdaECE after FTS against TS, both by AdaECE."""
    pairs = paired(found, "fts - ts-ada", "ece_em")
    better = [
        each.mean(name, "ece_em", "fts") < each.mean(name, "ece_em", "ts-ada")
        for each in found
        for name in each.evidence.methods
    ]
    rows = listed([f"{each.evidence.sizes[1]:,}" for each in found])
    sentence = (
        f"With FTS instead of TS the test AdaECE is {counted(pairs)}; averaged over seeds it is "
        f"lower for {sum(better)} of {len(better)} pairs of loss and experiment. The searches saw "
        f"{rows} validation rows, against thousands in the paper."
    )
    return judged(better, sentence)


@trend("komisarenko2024.table1.logloss", *FIVE)
def log_loss_stays_the_same(*found: Numbers) -> Outcome:
    """NLL after FTS against TS, both by AdaECE."""
    changes = [
        each.mean(name, "nll", "fts") - each.mean(name, "nll", "ts-ada")
        for each in found
        for name in each.evidence.methods
    ]
    sentence = (
        f"NLL changes by {fmean(changes):+.3f} on average, from {min(changes):+.3f} to "
        f"{max(changes):+.3f}, over {len(changes)} pairs of loss and experiment; by at most 0.02 "
        "in the paper."
    )
    return judged([abs(fmean(changes)) < 0.01, max(map(abs, changes)) <= 0.03], sentence)


@trend("komisarenko2024.table1.temperature", LITTLE, LITTLE_20, MORE)
def the_temperature_falls_with_gamma(*found: Numbers) -> Outcome:
    """Temperatures by NLL and by AdaECE for growing training gammas."""
    parts, held = [], []
    for each in found:
        rows = [[each.temperature(name, phase) for name in each.gammas.values()] for phase in ("ts-nll", "ts-ada")]
        parts.append(f"{each.title}: {chain(rows[0])} by NLL, {chain(rows[1])} by AdaECE")
        held += [falls(row) for row in rows]
    return judged(held, f"Temperature for growing gamma: {'; '.join(parts)}.")


@trend("komisarenko2024.table1.gamma-trend", LITTLE, LITTLE_20, MORE)
def larger_gammas_are_better_calibrated_and_less_accurate(*found: Numbers) -> Outcome:
    """AdaECE after TS, and error, of gamma 0, 1, 2, 3."""
    parts, held = [], []
    for each in found:
        ece = [each.mean(name, "ece_em", "ts-ada") for name in ("ce", "fl-1", "fl-2", "fl-3")]
        error = [each.mean(name, "error") for name in ("ce", "fl-1", "fl-2", "fl-3")]
        parts.append(f"{each.title}: AdaECE {chain(ece)} %, error {chain(error, 1)} %")
        held += [ece[3] < ece[0], error[3] > error[0]]
    return judged(held, f"After TS by AdaECE, gamma 0, 1, 2, 3: {'; '.join(parts)}.")


def _relative(found: tuple[Numbers, ...], measure: str, after: str, before: str) -> list[float]:
    """The relative change of a measure between two phases, by loss and experiment, in percent."""
    return [
        100 * (each.mean(name, measure, after) / each.mean(name, measure, before) - 1)
        for each in found
        for name in each.evidence.methods
    ]


@trend("komisarenko2024.ece-criterion", *FIVE)
def choosing_by_ece_lowers_ece(*found: Numbers) -> Outcome:
    """Test AdaECE of FTS chosen by AdaECE against FTS chosen by NLL."""
    changes = _relative(found, "ece_em", "fts", "fts-nll")
    better = sum(change < 0 for change in changes)
    sentence = (
        f"FTS chosen by AdaECE instead of NLL changes the test AdaECE by {fmean(changes):+.0f} % "
        f"on average, and lowers it for {better} of {len(changes)} pairs of loss and experiment; "
        "by about -20 % in the paper."
    )
    return judged([fmean(changes) < 0, better > len(changes) / 2], sentence)


@trend("komisarenko2024.logloss-criterion", *FIVE)
def choosing_by_log_loss_lowers_log_loss(*found: Numbers) -> Outcome:
    """Test NLL of FTS by NLL against TS by NLL."""
    changes = _relative(found, "nll", "fts-nll", "ts-nll")
    pairs = paired(found, "fts-nll - ts-nll", "nll")
    sentence = (
        f"FTS by NLL changes the test NLL by {fmean(changes):+.2f} % on average; it is "
        f"{counted(pairs)}. About -1 % in the paper."
    )
    return judged([fmean(changes) < 0, fmean(change < 0 for change in changes) > 0.5], sentence)


@trend("komisarenko2024.fig8", LITTLE, LITTLE_20, MORE)
def the_best_temperature_is_linear_in_gamma(*found: Numbers) -> Outcome:
    """R^2 of a line through the best temperatures, mean over seeds."""
    parts, held = [], []
    for each in found:
        fits = []
        for name in each.gammas.values():
            points = np.mean([run.extra["best_temperatures"] for run in each.runs(name)], axis=0)
            points = points[points[:, 0] >= 0]
            fits.append(float(np.corrcoef(points.T)[0, 1] ** 2))
        parts.append(f"{each.title}: {chain(fits)}")
        held.append(min(fits) > 0.95)
    return judged(
        held,
        f"R^2 of the line of best T by AdaECE against gamma_ev from 0 to 4, by training gamma: {'; '.join(parts)}.",
    )


@trend("komisarenko2024.log-t-range", *FIVE)
def temperatures_of_cross_entropy(*found: Numbers) -> Outcome:
    """Cross-entropy's temperature by NLL."""
    values = [each.temperature("ce", "ts-nll") for each in found]
    parts = [f"{each.title} {value:.2f}" for each, value in zip(found, values, strict=True)]
    return judged((1.5 <= value <= 3 for value in values), f"Cross-entropy's temperature by NLL: {', '.join(parts)}.")


_TABLE = "The numbers belong to the paper's own networks and data; `focalcal lab list` has their recipes."
UNTESTABLE |= {
    "komisarenko2024.table1": _TABLE,
    "komisarenko2024.table1.adafocal": _TABLE,
    "komisarenko2024.table1.flsd-sign": _TABLE,
}
