"""Komisarenko and Kull 2024: rules for what its table and figures show."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from focalcal.core.temperature import nearest_temperature
from reproduction.claims.rules import FIVE, IMAGES, OVERFIT, Finding, by_recipe, chain, counted, falls, paired, rule
from reproduction.labels import NETWORKS, listed
from reproduction.recipe_numbers import RecipeNumbers

GAMMAS = ("ce", "fl-1", "fl-2", "fl-3")


@by_recipe(
    "komisarenko2024.sec4.compensation",
    "T of cross-entropy by NLL times the temperature nearest to the map, and the fitted T",
    *IMAGES,
)
def the_map_and_the_gap_cancel(each: RecipeNumbers) -> Finding:
    """Cross-entropy's temperature times that nearest to the map, beside the fitted one of focal loss."""
    gammas = [gamma for gamma in each.gammas if gamma > 0]
    predicted = [each.temperature("ce", "ts-nll") * nearest_temperature(gamma, 10) for gamma in gammas]
    fitted = [each.temperature(each.gammas[gamma], "ts-nll") for gamma in gammas]
    names = ", ".join(f"{gamma:g}" for gamma in gammas)
    close = bool(max(abs(np.log(np.array(predicted) / fitted))) < np.log(1.25))
    return close, f"gamma {names}: predicted {chain(predicted)}, fitted {chain(fitted)}"


@by_recipe(
    "komisarenko2024.train-underconfident",
    "Training accuracy less confidence at the end, points, for gamma 0, 1, 2, 3",
    *OVERFIT,
)
def focal_training_is_underconfident_on_training_data(each: RecipeNumbers) -> Finding:
    """Training accuracy less training confidence at the end."""
    ends = [(each.at(name, "train_error", "end"), each.at(name, "train_confidence", "end")) for name in GAMMAS]
    gaps = [100 * (1 - error - confidence) for error, confidence in ends]
    return [min(gaps[1:]) > 0, falls(gaps[::-1])], chain(gaps, 1)


def _differences(found: tuple[RecipeNumbers, ...], measure: str, after: str, before: str) -> list[float]:
    """The mean over seeds after one calibrator less that after another, for every pair of loss and experiment."""
    return [each.mean(m, measure, after) - each.mean(m, measure, before) for each in found for m in each.methods]


@rule("komisarenko2024.table1.ece", *FIVE)
def focal_temperature_scaling_lowers_ece(*found: RecipeNumbers) -> Finding:
    """AdaECE after FTS against TS, both by AdaECE."""
    better = [change < 0 for change in _differences(found, "ece_em", "fts", "ts-ada")]
    rows = listed([f"{each.sizes[1]:,}" for each in found])
    return better, (
        f"With FTS instead of TS the test AdaECE is {counted(paired(found, 'fts - ts-ada', 'ece_em'))}; averaged over "
        f"seeds it is lower for {sum(better)} of {len(better)} pairs of loss and experiment. The searches saw {rows} "
        "validation rows, against thousands in the paper."
    )


@rule("komisarenko2024.table1.logloss", *FIVE)
def log_loss_stays_the_same(*found: RecipeNumbers) -> Finding:
    """NLL after FTS against TS, both by AdaECE."""
    changes = _differences(found, "nll", "fts", "ts-ada")
    return [abs(fmean(changes)) < 0.01, max(map(abs, changes)) <= 0.03], (
        f"NLL changes by {fmean(changes):+.3f} on average, from {min(changes):+.3f} to {max(changes):+.3f}, over "
        f"{len(changes)} pairs of loss and experiment; by at most 0.02 in the paper."
    )


@by_recipe("komisarenko2024.table1.temperature", "Temperature for growing gamma", *IMAGES)
def the_temperature_falls_with_gamma(each: RecipeNumbers) -> Finding:
    """Temperatures by NLL and by AdaECE for growing training gammas."""
    rows = [[each.temperature(name, phase) for name in each.gammas.values()] for phase in ("ts-nll", "ts-ada")]
    return [falls(row) for row in rows], f"{chain(rows[0])} by NLL, {chain(rows[1])} by AdaECE"


@by_recipe("komisarenko2024.table1.gamma-trend", "After TS by AdaECE, gamma 0, 1, 2, 3", *IMAGES)
def larger_gammas_are_better_calibrated_and_less_accurate(each: RecipeNumbers) -> Finding:
    """AdaECE after TS, and error, of gamma 0, 1, 2, 3."""
    ece, error = [each.mean(m, "ece_em", "ts-ada") for m in GAMMAS], [each.mean(m, "error") for m in GAMMAS]
    return [ece[3] < ece[0], error[3] > error[0]], f"AdaECE {chain(ece)} %, error {chain(error, 1)} %"


def _relative(found: tuple[RecipeNumbers, ...], measure: str, after: str, before: str) -> list[float]:
    """The relative change of a measure between two calibrators, by loss and experiment, in percent."""
    pairs = [(each.mean(m, measure, after), each.mean(m, measure, before)) for each in found for m in each.methods]
    return [100 * (one / other - 1) for one, other in pairs]


@rule("komisarenko2024.ece-criterion", *FIVE)
def choosing_by_ece_lowers_ece(*found: RecipeNumbers) -> Finding:
    """Test AdaECE of FTS chosen by AdaECE against FTS chosen by NLL."""
    changes = _relative(found, "ece_em", "fts", "fts-nll")
    better = sum(change < 0 for change in changes)
    return [fmean(changes) < 0, better > len(changes) / 2], (
        f"FTS chosen by AdaECE instead of NLL changes the test AdaECE by {fmean(changes):+.0f} % on average and "
        f"lowers it for {better} of {len(changes)} pairs of loss and experiment; by about -20 % in the paper."
    )


@rule("komisarenko2024.logloss-criterion", *FIVE)
def choosing_by_log_loss_lowers_log_loss(*found: RecipeNumbers) -> Finding:
    """Test NLL of FTS by NLL against TS by NLL."""
    changes = _relative(found, "nll", "fts-nll", "ts-nll")
    return [fmean(changes) < 0, fmean(change < 0 for change in changes) > 0.5], (
        f"FTS by NLL changes the test NLL by {fmean(changes):+.2f} % on average; it is "
        f"{counted(paired(found, 'fts-nll - ts-nll', 'nll'))}. About -1 % in the paper."
    )


@by_recipe(
    "komisarenko2024.fig8",
    "R^2 of the line of best T by AdaECE against gamma_ev from 0 to 4, by training gamma",
    *IMAGES,
)
def the_best_temperature_is_linear_in_gamma(each: RecipeNumbers) -> Finding:
    """R^2 of a line through the best temperatures, mean over seeds."""
    fits = []
    for name in each.gammas.values():
        points = np.mean([run.extra["best_temperatures"] for run in each.runs(name)], axis=0)
        fits.append(float(np.corrcoef(points[points[:, 0] >= 0].T)[0, 1] ** 2))
    return min(fits) > 0.95, chain(fits)


@by_recipe("komisarenko2024.log-t-range", "Cross-entropy's temperature by NLL", *FIVE)
def temperatures_of_cross_entropy(each: RecipeNumbers) -> Finding:
    """Cross-entropy's temperature by NLL."""
    value = each.temperature("ce", "ts-nll")
    return 1.5 <= value <= 3, f"{value:.2f}"


@rule("komisarenko2024.search-3m", *FIVE, NETWORKS)
def a_line_is_as_good_as_the_grid(*found: RecipeNumbers) -> Finding:
    """AdaECE after the search along a line against that after the full grid."""
    means = [100 * fmean(pair[0] for pair in each.pairs("fts-line - fts", "ece_em")) for each in found]
    parts = [f"{each.title} {mean:+.2f}" for each, mean in zip(found, means, strict=True)]
    return [mean <= 0 for mean in means], (
        "With the line's 3m trials instead of the full grid AdaECE is "
        f"{counted(paired(found, 'fts-line - fts', 'ece_em'))}; by experiment, points: {', '.join(parts)}."
    )
