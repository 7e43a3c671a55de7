"""Ghosh et al. 2022: rules for what its figures and tables show."""

from __future__ import annotations

from statistics import fmean

import numpy as np
from scipy.stats import spearmanr

from reproduction.claims.rules import FIVE, FOUR, IMAGES, OVERFIT, Finding, by_recipe, chain, falls, rule
from reproduction.labels import LITTLE, NEWS, SST, listed, method_name
from reproduction.recipe_numbers import RecipeNumbers

# The losses of Table 1 that were run everywhere.
TABLE_1 = ("ce", "brier", "mmce", "ls-0.05", "fl-3", "flsd-53", "adafocal")
UPDATES = ("adafocal", "adafocal-10")


def _gaps(each: RecipeNumbers, method: str) -> list[float]:
    """Validation confidence less accuracy by bin, at the end."""
    pairs = zip(each.bins(method, "val_confidence"), each.bins(method, "val_accuracy"), strict=True)
    return [confidence - accuracy for confidence, accuracy in pairs]


@rule("ghosh2022.fig1", LITTLE)
def no_gamma_is_best_in_all_bins(found: RecipeNumbers) -> Finding:
    """The gamma with the smallest gap in each validation bin."""
    names = list(found.gammas.values())
    gaps = {name: _gaps(found, name) for name in names}
    best = [min(names, key=lambda name: abs(gaps[name][place])) for place in range(len(gaps["ce"]))]
    counts = {name: best.count(name) for name in names if name in best}
    lowest = method_name(found.best(names, "ece_em"))
    return len(counts) > 1, (
        f"{lowest} has the lowest AdaECE of all gammas; of {len(best)} validation bins, "
        f"{listed([f'{method_name(name)} in {count}' for name, count in counts.items()])} is best "
        f"({found.sizes[1] // len(best)} rows a bin: much of it is noise)."
    )


@rule("ghosh2022.fig1.flsd", LITTLE)
def flsd_53_is_not_best_in_every_bin(found: RecipeNumbers) -> Finding:
    """In how many bins a fixed gamma has a smaller gap than FLSD-53."""
    ours, others = _gaps(found, "flsd-53"), [_gaps(found, name) for name in found.gammas.values()]
    beaten = sum(min(abs(gaps[place]) for gaps in others) < abs(ours[place]) for place in range(len(ours)))
    return beaten > 0, f"Some fixed gamma has a smaller gap than FLSD-53 in {beaten} of {len(ours)} validation bins."


@rule("ghosh2022.sec4.correspondence", LITTLE)
def training_and_validation_confidence_move_together(found: RecipeNumbers) -> Finding:
    """Means over the bins at the end for gamma 0, 3, 5, and the correlation over bins and records."""
    names = ("ce", "fl-3", "fl-5")
    train, val = ([fmean(found.bins(name, which)) for name in names] for which in ("train_true", "val_confidence"))
    pairs = [
        (first, second)
        for name in names
        for run in found.runs(name)
        for one, other in zip(run.dynamics["bins"]["train_true"], run.dynamics["bins"]["val_confidence"], strict=True)
        for first, second in zip(one, other, strict=True)
        if first
    ]
    correlation = float(np.corrcoef(np.array(pairs).T)[0, 1])
    return [falls(train), falls(val), correlation > 0.9], (
        f"For gamma 0, 3, 5 the mean over bins of the training confidence is {chain(train)}, of the validation "
        f"confidence {chain(val)}; correlation over bins, records and seeds {correlation:.2f}."
    )


@by_recipe(
    "ghosh2022.sec4.independent",
    "Mean distance of the edges of training and validation bins for gamma 0 and 3",
    *OVERFIT,
)
def edges_of_training_and_validation_bins(each: RecipeNumbers) -> Finding:
    """How far the edges of equal-mass bins of training and validation rows lie apart at the end."""
    edges = [run.dynamics["edges"] for name in ("ce", "fl-3") for run in each.runs(name)]
    apart = fmean(fmean(abs(a - b) for a, b in zip(both["val"], both["train"], strict=True)) for both in edges)
    errors = [100 * each.at("ce", name, "end") for name in ("train_error", "test_error")]
    return apart < 0.05, f"{apart:.2f} (training and test error of cross-entropy {chain(errors, 1)} %)"


@by_recipe(
    "ghosh2022.appC.true-top", "Top less true confidence of cross-entropy's training rows, start and end", *OVERFIT
)
def true_and_top_confidence_become_equal(each: RecipeNumbers) -> Finding:
    """Mean confidence of training rows in the true and in the predicted class."""
    gap = [each.at("ce", "train_confidence", when) - each.at("ce", "train_true", when) for when in ("start", "end")]
    return gap[1] < gap[0] / 10, f"{chain(gap, 3)} (training error {100 * each.at('ce', 'train_error', 'end'):.1f} %)"


@by_recipe("ghosh2022.fig3c", "ECE of cross-entropy, CalFocal (lambda 10), FLSD-53", *OVERFIT)
def calfocal_helps_but_less_than_flsd_53(each: RecipeNumbers) -> Finding:
    """ECE of cross-entropy, CalFocal and FLSD-53."""
    row = [each.mean(name, "ece_ew") for name in ("ce", "calfocal", "flsd-53")]
    return [row[1] < row[0], row[2] < row[1]], f"{chain(row)} %"


@by_recipe("ghosh2022.fig3d", "Distance from A_val in bin 0 of training and of validation confidence", *OVERFIT)
def training_confidence_pulls_validation_confidence(each: RecipeNumbers) -> Finding:
    """Bin 0: how far training and validation confidence are from the validation accuracy."""
    gaps = {}
    for name in ("ce", "calfocal"):
        truth = each.bins(name, "val_accuracy")[0]
        gaps[name] = [abs(each.bins(name, which)[0] - truth) for which in ("train_true", "val_confidence")]
    return gaps["calfocal"][1] < gaps["ce"][1], f"cross-entropy {chain(gaps['ce'])}, CalFocal {chain(gaps['calfocal'])}"


@by_recipe("ghosh2022.fig4", "Test ECE of cross-entropy, FLSD-53, AdaFocal, mean over the records", *OVERFIT)
def adafocal_keeps_ece_low_throughout(each: RecipeNumbers) -> Finding:
    """Test ECE over all records, and the error at the end."""
    names = ("ce", "flsd-53", "adafocal")
    mean = [100 * fmean(each.series(name, "test_ece")) for name in names]
    error = [each.mean(name, "error") for name in names]
    return [mean[2] < mean[0], mean[2] < mean[1]], f"{chain(mean, 1)} % (error {chain(error, 1)} %)"


@by_recipe(
    "ghosh2022.sec6.flsd-vs-ce", "ECE of cross-entropy and FLSD-53 on CIFAR-10", *IMAGES, note="ImageNet was not run."
)
def flsd_53_is_better_calibrated_than_cross_entropy(each: RecipeNumbers) -> Finding:
    """ECE of both."""
    plain, focal = each.mean("ce", "ece_ew"), each.mean("flsd-53", "ece_ew")
    return focal < plain, f"{plain:.2f} and {focal:.2f} %"


@by_recipe("ghosh2022.fig5.cifar", "AdaFocal's gamma at the end in the lowest, middle and highest bin", *OVERFIT)
def gammas_are_large_in_low_bins(each: RecipeNumbers) -> Finding:
    """AdaFocal's gammas at the end."""
    last = each.bins("adafocal", "gamma")
    return fmean(last[:5]) > fmean(last[-5:]), chain([last[0], last[len(last) // 2], last[-1]], 1)


@by_recipe("ghosh2022.switch.underconfident", "Share of bins and records with inverse focal loss", *FOUR)
def underconfident_bins_switch_to_inverse_focal_loss(each: RecipeNumbers) -> Finding:
    """How many of AdaFocal's bins had a negative gamma at any record."""
    gammas = [gamma for run in each.runs("adafocal") for record in run.dynamics["bins"]["gamma"] for gamma in record]
    return min(gammas) < 0, f"{100 * fmean(gamma < 0 for gamma in gammas):.0f} %"


def _lowest(found: tuple[RecipeNumbers, ...], measure: str, phase: str) -> Finding:
    """Whether AdaFocal has the lowest mean of the losses of Table 1."""
    best = [each.best(TABLE_1, measure, phase) for each in found]
    parts = [
        f"{each.title}: {method_name(name)} {each.mean(name, measure, phase):.2f}, "
        f"AdaFocal {each.mean('adafocal', measure, phase):.2f} %"
        for each, name in zip(found, best, strict=True)
    ]
    won = [name == "adafocal" for name in best]
    return won, f"AdaFocal is lowest in {sum(won)} of {len(won)} experiments ({'; '.join(parts)})."


@rule("ghosh2022.table1.pre", *FOUR)
def adafocal_has_the_lowest_ada_ece(*found: RecipeNumbers) -> Finding:
    """AdaECE before scaling."""
    return _lowest(found, "ece_em", "pre")


@rule("ghosh2022.table1.post", *FOUR)
def adafocal_has_the_lowest_ada_ece_after_scaling(*found: RecipeNumbers) -> Finding:
    """AdaECE after scaling."""
    return _lowest(found, "ece_em", "post")


@by_recipe("ghosh2022.table1.temperature", "Temperature of AdaFocal by validation ECE", *FIVE)
def adafocal_needs_no_temperature(each: RecipeNumbers) -> Finding:
    """AdaFocal's temperatures."""
    value = each.temperature("adafocal")
    return 0.85 <= value <= 1.15, f"{value:.2f}"


@by_recipe("ghosh2022.table2", "Error of AdaFocal less that of cross-entropy, points", *FIVE)
def adafocal_is_as_accurate(each: RecipeNumbers) -> Finding:
    """Error of AdaFocal against cross-entropy's."""
    more = each.mean("adafocal", "error") - each.mean("ce", "error")
    return more < 1, f"{more:+.2f}"


@rule("ghosh2022.table3", *FOUR)
def after_ets_adafocal_is_lowest(*found: RecipeNumbers) -> Finding:
    """ECE after ensemble temperature scaling."""
    return _lowest(found, "ece_ew", "ets")


@rule("ghosh2022.table4", *FOUR)
def after_splines_adafocal_is_lowest(*found: RecipeNumbers) -> Finding:
    """ECE after spline calibration."""
    return _lowest(found, "ece_ew", "spline")


@rule("ghosh2022.posthoc", *FOUR)
def the_lowest_ece_starts_from_adafocal(*found: RecipeNumbers) -> Finding:
    """The best pair of loss and calibrator in each experiment."""
    phases = {"pre": "nothing", "post": "TS", "ets": "ETS", "spline": "splines"}
    best = [
        min((each.mean(name, "ece_em", phase), name, phase) for name in TABLE_1 for phase in phases) for each in found
    ]
    parts = [
        f"{each.title}: {method_name(name)} with {phases[phase]}, {value:.2f} %"
        for each, (value, name, phase) in zip(found, best, strict=True)
    ]
    several = len({phase for _, _, phase in best}) > 1
    return [several, *(name == "adafocal" for _, name, _ in best)], (
        f"Lowest AdaECE of all losses with nothing, TS, ETS or splines: {'; '.join(parts)}."
    )


def _ranking(each: RecipeNumbers, measure: str) -> Finding:
    """Whether a measure ranks the losses as AdaECE does, AdaFocal first."""
    values = ([each.mean(name, which) for name in TABLE_1] for which in ("ece_em", measure))
    correlation, best = float(spearmanr(*values)[0]), each.best(TABLE_1, measure)
    return [correlation > 0.9, best == "adafocal"], f"{correlation:.2f}, lowest {method_name(best)}"


@by_recipe("ghosh2022.table5", "Rank correlation of debiased ECE with AdaECE over losses", *FOUR)
def debiased_ece_ranks_alike(each: RecipeNumbers) -> Finding:
    """The ranking of losses by debiased ECE."""
    return _ranking(each, "ece_debias")


@by_recipe("ghosh2022.table6", "Rank correlation of sweep ECE with AdaECE over losses", *FOUR)
def sweep_ece_ranks_alike(each: RecipeNumbers) -> Finding:
    """The ranking of losses by the sweep ECE."""
    return _ranking(each, "ece_sweep_em")


@by_recipe(
    "ghosh2022.frequency", "Largest test ECE at any epoch with updates once per epoch and every 10 batches", NEWS, SST
)
def frequent_updates_keep_it_calibrated(each: RecipeNumbers) -> Finding:
    """The largest test ECE at any record."""
    row = [100 * fmean(max(run.dynamics["test_ece"]) for run in each.runs(name)) for name in UPDATES]
    return row[1] < row[0], f"{chain(row, 1)} %"


@by_recipe("ghosh2022.frequency.few", "ECE at the end with updates once per epoch and every 10 batches", NEWS, SST)
def with_few_epochs_frequent_updates_end_lower(each: RecipeNumbers) -> Finding:
    """ECE at the end."""
    row = [each.mean(name, "ece_ew") for name in UPDATES]
    return row[1] < row[0], f"{chain(row)} % after {each.evidence.recipe['training']['epochs']} epochs"


def _auroc(each: RecipeNumbers, method: str, foreign: str, phase: str = "pre") -> float:
    return 100 * fmean(run.foreign[foreign][phase]["auroc"] for run in each.runs(method))


@by_recipe("ghosh2022.ood.focal", "AUROC of AdaFocal, FL-3, FLSD-53, %", *OVERFIT)
def adafocal_detects_unknown_inputs_better_than_focal_loss(each: RecipeNumbers) -> Finding:
    """AUROC by entropy of AdaFocal, FL-3 and FLSD-53."""
    rows = {
        foreign: [_auroc(each, name, foreign) for name in ("adafocal", "fl-3", "flsd-53")]
        for foreign in each.runs("ce")[0].foreign
    }
    parts = [f"{foreign} {chain(row, 1)}" for foreign, row in rows.items()]
    return [row[0] > max(row[1:]) for row in rows.values()], " / ".join(parts)


@rule("ghosh2022.ood.ts", *IMAGES)
def temperature_scaling_does_little_for_detection(*found: RecipeNumbers) -> Finding:
    """The largest change of AUROC by temperature scaling."""
    moved = [
        (
            abs(_auroc(each, name, foreign, "post") - _auroc(each, name, foreign)),
            f"{method_name(name)}, {foreign}, {each.title}",
        )
        for each in found
        for name in each.methods
        for foreign in each.runs(name)[0].foreign
    ]
    (value, where), mean = max(moved), fmean(change for change, _ in moved)
    return value <= 2.4, (
        f"Scaling moves AUROC by {mean:.1f} points on average and by {value:.1f} at most ({where}); 2.4 at most in the "
        "paper."
    )


@by_recipe(
    "ghosh2022.appM",
    "Largest logit of rows learned first over those learned last, for cross-entropy, FLSD-53, AdaFocal",
    *OVERFIT,
)
def rows_learned_early_have_larger_logits(each: RecipeNumbers) -> Finding:
    """Mean largest logit of rows learned first, relative to those learned last."""
    ratios = []
    for name in ("ce", "flsd-53", "adafocal"):
        logits = [run.dynamics["learned"]["mean_max_logit"][:-1] for run in each.runs(name)]
        known = [[value for value in row if value is not None] for row in logits]
        ratios.append(fmean(row[0] / row[-1] for row in known))
    return ratios[2] > max(ratios[:2]), chain(ratios)


@by_recipe("ghosh2022.appM.ts", "ECE after scaling by NLL, cross-entropy against the best focal loss", *IMAGES)
def scaled_cross_entropy_is_not_better(each: RecipeNumbers) -> Finding:
    """ECE after temperature scaling by NLL."""
    best = each.best(["fl-1", "fl-2", "fl-3", "flsd-53"], "ece_ew", "ts-nll")
    plain, focal = (each.mean(name, "ece_ew", "ts-nll") for name in ("ce", best))
    return plain >= focal, f"{plain:.2f} against {focal:.2f} % of {method_name(best)}"
