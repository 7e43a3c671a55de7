"""Ghosh et al. 2022: what its figures and tables show, looked for in the recorded results."""

from __future__ import annotations

from statistics import fmean

import numpy as np
from scipy.stats import spearmanr

from reproduction.claims.tools import (
    UNTESTABLE,
    Numbers,
    Outcome,
    chain,
    falls,
    judged,
    trend,
)
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, SST, listed, method_name

# The losses of Table 1 that were run everywhere.
TABLE_1 = ("ce", "brier", "mmce", "ls-0.05", "fl-3", "flsd-53", "adafocal")
FOUR = (LITTLE, LITTLE_20, NEWS, SST)


def _gaps(each: Numbers, method: str) -> list[float]:
    """Validation confidence less accuracy by bin, at the end."""
    confidence, accuracy = each.bins(method, "val_confidence"), each.bins(method, "val_accuracy")
    return [first - second for first, second in zip(confidence, accuracy, strict=True)]


@trend("ghosh2022.fig1", LITTLE)
def no_gamma_is_best_in_all_bins(found: Numbers) -> Outcome:
    """The gamma with the smallest gap in each validation bin."""
    names = list(found.gammas.values())
    gaps = {name: _gaps(found, name) for name in names}
    best = [min(names, key=lambda name: abs(gaps[name][place])) for place in range(len(gaps["ce"]))]
    counts = {name: best.count(name) for name in names if name in best}
    lowest = found.best(names, "ece_em")
    parts = listed([f"{method_name(name)} in {count}" for name, count in counts.items()])
    rows = found.evidence.sizes[1] // len(best)
    sentence = (
        f"{method_name(lowest)} has the lowest AdaECE of all gammas; of {len(best)} validation "
        f"bins, {parts} is best ({rows} rows a bin: much of it is noise)."
    )
    return judged([len(counts) > 1], sentence)


@trend("ghosh2022.fig1.flsd", LITTLE)
def flsd_53_is_not_best_in_every_bin(found: Numbers) -> Outcome:
    """In how many bins a fixed gamma has a smaller gap than FLSD-53."""
    ours, others = _gaps(found, "flsd-53"), [_gaps(found, name) for name in found.gammas.values()]
    beaten = sum(min(abs(gaps[place]) for gaps in others) < abs(ours[place]) for place in range(len(ours)))
    return judged(
        [beaten > 0], f"Some fixed gamma has a smaller gap than FLSD-53 in {beaten} of {len(ours)} validation bins."
    )


@trend("ghosh2022.sec4.correspondence", LITTLE)
def training_and_validation_confidence_move_together(found: Numbers) -> Outcome:
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
    sentence = (
        f"For gamma 0, 3, 5 the mean over bins of the training confidence is {chain(train)}, of "
        f"the validation confidence {chain(val)}; correlation over bins, records and seeds "
        f"{correlation:.2f}."
    )
    return judged([falls(train), falls(val), correlation > 0.9], sentence)


@trend("ghosh2022.sec4.independent", LITTLE, LITTLE_20)
def edges_of_training_and_validation_bins(*found: Numbers) -> Outcome:
    """How far the edges of equal-mass bins of training and validation rows lie apart at the end."""
    parts, held = [], []
    for each in found:
        apart = [
            fmean(abs(a - b) for a, b in zip(run.dynamics["edges"]["val"], run.dynamics["edges"]["train"], strict=True))
            for name in ("ce", "fl-3")
            for run in each.runs(name)
        ]
        errors = [100 * each.at("ce", name, "end") for name in ("train_error", "test_error")]
        parts.append(f"{each.title} {fmean(apart):.2f} (training and test error of cross-entropy {chain(errors, 1)} %)")
        held.append(fmean(apart) < 0.05)
    return judged(held, f"Mean distance of the edges for gamma 0 and 3: {'; '.join(parts)}.")


@trend("ghosh2022.appC.true-top", LITTLE, LITTLE_20)
def true_and_top_confidence_become_equal(*found: Numbers) -> Outcome:
    """Mean confidence of training rows in the true and in the predicted class."""
    parts, held = [], []
    for each in found:
        gap = [each.at("ce", "train_confidence", when) - each.at("ce", "train_true", when) for when in ("start", "end")]
        error = 100 * each.at("ce", "train_error", "end")
        parts.append(f"{each.title}: {chain(gap, 3)} (training error {error:.1f} %)")
        held.append(gap[1] < gap[0] / 10)
    return judged(
        held, f"Top less true confidence of cross-entropy's training rows, start and end: {'; '.join(parts)}."
    )


@trend("ghosh2022.fig3c", LITTLE, LITTLE_20)
def calfocal_helps_but_less_than_flsd_53(*found: Numbers) -> Outcome:
    """ECE of cross-entropy, CalFocal and FLSD-53."""
    rows = [(each.title, [each.mean(name, "ece_ew") for name in ("ce", "calfocal", "flsd-53")]) for each in found]
    parts = [f"{title}: {chain(row)} %" for title, row in rows]
    held = [check for _, row in rows for check in (row[1] < row[0], row[2] < row[1])]
    return judged(held, f"ECE of cross-entropy, CalFocal (lambda 10), FLSD-53: {'; '.join(parts)}.")


@trend("ghosh2022.fig3d", LITTLE, LITTLE_20)
def training_confidence_pulls_validation_confidence(*found: Numbers) -> Outcome:
    """Bin 0: how far training and validation confidence are from the validation accuracy."""
    parts, held = [], []
    for each in found:
        gaps = {}
        for name in ("ce", "calfocal"):
            truth = each.bins(name, "val_accuracy")[0]
            gaps[name] = [abs(each.bins(name, which)[0] - truth) for which in ("train_true", "val_confidence")]
        parts.append(f"{each.title}: cross-entropy {chain(gaps['ce'])}, CalFocal {chain(gaps['calfocal'])}")
        held.append(gaps["calfocal"][1] < gaps["ce"][1])
    return judged(held, f"Distance from A_val in bin 0 of training and of validation confidence: {'; '.join(parts)}.")


@trend("ghosh2022.fig4", LITTLE, LITTLE_20)
def adafocal_keeps_ece_low_throughout(*found: Numbers) -> Outcome:
    """Test ECE over all records, and the error at the end."""
    parts, held = [], []
    for each in found:
        mean = [100 * fmean(each.series(name, "test_ece")) for name in ("ce", "flsd-53", "adafocal")]
        error = [each.mean(name, "error") for name in ("ce", "flsd-53", "adafocal")]
        parts.append(f"{each.title}: {chain(mean, 1)} % (error {chain(error, 1)} %)")
        held += [mean[2] < mean[0], mean[2] < mean[1]]
    return judged(held, f"Test ECE of cross-entropy, FLSD-53, AdaFocal, mean over the records: {'; '.join(parts)}.")


@trend("ghosh2022.sec6.flsd-vs-ce", LITTLE, LITTLE_20, MORE)
def flsd_53_is_better_calibrated_than_cross_entropy(*found: Numbers) -> Outcome:
    """ECE of both; ImageNet cannot be run here."""
    rows = [(each.title, each.mean("ce", "ece_ew"), each.mean("flsd-53", "ece_ew")) for each in found]
    parts = [f"{title}: {plain:.2f} and {focal:.2f} %" for title, plain, focal in rows]
    return judged(
        (focal < plain for _, plain, focal in rows),
        f"ECE of cross-entropy and FLSD-53 on CIFAR-10: {'; '.join(parts)}. ImageNet was not run.",
    )


@trend("ghosh2022.fig5.cifar", LITTLE, LITTLE_20)
def gammas_are_large_in_low_bins(*found: Numbers) -> Outcome:
    """AdaFocal's gammas at the end, in the lowest, the middle and the highest bin."""
    parts, held = [], []
    for each in found:
        last = each.bins("adafocal", "gamma")
        parts.append(f"{each.title}: {chain([last[0], last[len(last) // 2], last[-1]], 1)}")
        held.append(fmean(last[:5]) > fmean(last[-5:]))
    return judged(held, f"AdaFocal's gamma at the end in the lowest, middle and highest bin: {'; '.join(parts)}.")


@trend("ghosh2022.switch.underconfident", LITTLE, LITTLE_20, NEWS, SST)
def underconfident_bins_switch_to_inverse_focal_loss(*found: Numbers) -> Outcome:
    """How many of AdaFocal's bins had a negative gamma at any record."""
    parts, held = [], []
    for each in found:
        gammas = [
            gamma for run in each.runs("adafocal") for record in run.dynamics["bins"]["gamma"] for gamma in record
        ]
        parts.append(f"{each.title} {100 * fmean(gamma < 0 for gamma in gammas):.0f} %")
        held.append(min(gammas) < 0)
    return judged(held, f"Share of bins and records with inverse focal loss: {', '.join(parts)}.")


def _lowest(found: tuple[Numbers, ...], measure: str, phase: str) -> Outcome:
    best = {each.title: each.best([name for name in TABLE_1 if each.has(name)], measure, phase) for each in found}
    ours = [
        (
            f"{each.title}: {method_name(best[each.title])} "
            f"{each.mean(best[each.title], measure, phase):.2f}, AdaFocal "
            f"{each.mean('adafocal', measure, phase):.2f} %"
        )
        for each in found
    ]
    won = [method == "adafocal" for method in best.values()]
    return judged(won, f"AdaFocal is lowest in {sum(won)} of {len(won)} experiments ({'; '.join(ours)}).")


@trend("ghosh2022.table1.pre", *FOUR)
def adafocal_has_the_lowest_ada_ece(*found: Numbers) -> Outcome:
    """AdaECE before scaling."""
    return _lowest(found, "ece_em", "pre")


@trend("ghosh2022.table1.post", *FOUR)
def adafocal_has_the_lowest_ada_ece_after_scaling(*found: Numbers) -> Outcome:
    """AdaECE after scaling."""
    return _lowest(found, "ece_em", "post")


@trend("ghosh2022.table1.temperature", LITTLE, LITTLE_20, MORE, NEWS, SST)
def adafocal_needs_no_temperature(*found: Numbers) -> Outcome:
    """AdaFocal's temperatures."""
    values = [each.temperature("adafocal") for each in found]
    sentence = (
        f"Temperatures of AdaFocal with the lowest validation ECE: {chain(values)} "
        f"({listed([each.title for each in found])})."
    )
    return judged((0.85 <= value <= 1.15 for value in values), sentence)


@trend("ghosh2022.table2", LITTLE, LITTLE_20, MORE, NEWS, SST)
def adafocal_is_as_accurate(*found: Numbers) -> Outcome:
    """Error of AdaFocal against cross-entropy's."""
    more = [each.mean("adafocal", "error") - each.mean("ce", "error") for each in found]
    parts = [f"{each.title} {value:+.2f}" for each, value in zip(found, more, strict=True)]
    return judged(
        (value < 1 for value in more), f"Error of AdaFocal less that of cross-entropy, points: {', '.join(parts)}."
    )


@trend("ghosh2022.table3", *FOUR)
def after_ets_adafocal_is_lowest(*found: Numbers) -> Outcome:
    """ECE after ensemble temperature scaling."""
    return _lowest(found, "ece_ew", "ets")


@trend("ghosh2022.table4", *FOUR)
def after_splines_adafocal_is_lowest(*found: Numbers) -> Outcome:
    """ECE after spline calibration."""
    return _lowest(found, "ece_ew", "spline")


@trend("ghosh2022.posthoc", *FOUR)
def the_lowest_ece_starts_from_adafocal(*found: Numbers) -> Outcome:
    """The best pair of loss and calibrator in each experiment."""
    parts, ours, calibrators = [], [], []
    for each in found:
        choices = [
            (each.mean(name, "ece_em", phase), name, phase)
            for name in TABLE_1
            if each.has(name)
            for phase in ("pre", "post", "ets", "spline")
        ]
        value, name, phase = min(choices)
        parts.append(f"{each.title}: {method_name(name)}, {phase}, {value:.2f} %")
        ours.append(name == "adafocal")
        calibrators.append(phase)
    sentence = f"Lowest AdaECE of all losses with nothing, TS, ETS or splines: {'; '.join(parts)}."
    return judged([len(set(calibrators)) > 1, *ours], sentence)


def _ranking(found: tuple[Numbers, ...], measure: str) -> Outcome:
    parts, held = [], []
    for each in found:
        names = [name for name in TABLE_1 if each.has(name)]
        correlation = float(
            spearmanr(*([each.mean(name, which) for name in names] for which in ("ece_em", measure)))[0]
        )
        best = each.best(names, measure)
        parts.append(f"{each.title}: {correlation:.2f}, lowest {method_name(best)}")
        held += [correlation > 0.9, best == "adafocal"]
    return judged(held, f"Rank correlation with AdaECE over losses: {'; '.join(parts)}.")


@trend("ghosh2022.table5", *FOUR)
def debiased_ece_ranks_alike(*found: Numbers) -> Outcome:
    """The ranking of losses by debiased ECE."""
    return _ranking(found, "ece_debias")


@trend("ghosh2022.table6", *FOUR)
def sweep_ece_ranks_alike(*found: Numbers) -> Outcome:
    """The ranking of losses by the sweep ECE."""
    return _ranking(found, "ece_sweep_em")


@trend("ghosh2022.frequency", NEWS, SST)
def frequent_updates_keep_it_calibrated(*found: Numbers) -> Outcome:
    """The largest test ECE at any record."""
    rows = [
        (
            each.title,
            [
                100 * fmean(max(run.dynamics["test_ece"]) for run in each.runs(name))
                for name in ("adafocal", "adafocal-10")
            ],
        )
        for each in found
    ]
    parts = [f"{title}: {chain(row, 1)} %" for title, row in rows]
    return judged(
        (row[1] < row[0] for _, row in rows),
        f"Largest test ECE at any epoch with updates per epoch and every 10 batches: {'; '.join(parts)}.",
    )


@trend("ghosh2022.frequency.few", NEWS, SST)
def with_few_epochs_frequent_updates_end_lower(*found: Numbers) -> Outcome:
    """ECE at the end."""
    rows = [(each.title, [each.mean(name, "ece_ew") for name in ("adafocal", "adafocal-10")]) for each in found]
    parts = [f"{title}: {chain(row)} %" for title, row in rows]
    epochs = listed([str(each.evidence.recipe["training"]["epochs"]) for each in found])
    return judged(
        (row[1] < row[0] for _, row in rows),
        f"ECE at the end with updates per epoch and every 10 batches, after {epochs} epochs: {'; '.join(parts)}.",
    )


def _auroc(each: Numbers, method: str, foreign: str, phase: str = "pre") -> float:
    return 100 * fmean(run.foreign[foreign][phase]["auroc"] for run in each.runs(method))


@trend("ghosh2022.ood.focal", LITTLE, LITTLE_20)
def adafocal_detects_unknown_inputs_better_than_focal_loss(*found: Numbers) -> Outcome:
    """AUROC by entropy of AdaFocal, FL-3 and FLSD-53."""
    parts, held = [], []
    for each in found:
        for foreign in each.runs("ce")[0].foreign:
            row = [_auroc(each, name, foreign) for name in ("adafocal", "fl-3", "flsd-53")]
            parts.append(f"{each.title}, {foreign}: {chain(row, 1)}")
            held.append(row[0] > max(row[1:]))
    return judged(held, f"AUROC of AdaFocal, FL-3, FLSD-53, %: {'; '.join(parts)}.")


@trend("ghosh2022.ood.ts", LITTLE, LITTLE_20, MORE)
def temperature_scaling_does_little_for_detection(*found: Numbers) -> Outcome:
    """The largest change of AUROC by temperature scaling."""
    moved = [
        (
            abs(_auroc(each, name, foreign, "post") - _auroc(each, name, foreign)),
            f"{method_name(name)}, {foreign}, {each.title}",
        )
        for each in found
        for name in each.evidence.methods
        for foreign in each.runs(name)[0].foreign
    ]
    value, where = max(moved)
    typical = fmean(each for each, _ in moved)
    return judged(
        [value <= 2.4],
        (
            f"Scaling moves AUROC by {typical:.1f} points on average and by {value:.1f} at most "
            f"({where}); 2.4 at most in the paper."
        ),
    )


@trend("ghosh2022.appM", LITTLE, LITTLE_20)
def rows_learned_early_have_larger_logits(*found: Numbers) -> Outcome:
    """Mean largest logit of rows learned first, relative to those learned last."""
    parts, held = [], []
    for each in found:
        spread = []
        for name in ("ce", "flsd-53", "adafocal"):
            runs = [
                [value for value in run.dynamics["learned"]["mean_max_logit"][:-1] if value is not None]
                for run in each.runs(name)
            ]
            spread.append(fmean(values[0] / values[-1] for values in runs))
        parts.append(f"{each.title}: {chain(spread)}")
        held.append(spread[2] > max(spread[:2]))
    return judged(
        held,
        (
            "Largest logit of rows learned first over those learned last, for cross-entropy, "
            f"FLSD-53, AdaFocal: {'; '.join(parts)}."
        ),
    )


@trend("ghosh2022.appM.ts", LITTLE, LITTLE_20, MORE)
def scaled_cross_entropy_is_not_better(*found: Numbers) -> Outcome:
    """ECE after temperature scaling by NLL."""
    rows = [
        (each, each.mean("ce", "ece_ew", "ts-nll"), each.best(["fl-1", "fl-2", "fl-3", "flsd-53"], "ece_ew", "ts-nll"))
        for each in found
    ]
    parts = [
        f"{each.title}: {plain:.2f} against {each.mean(best, 'ece_ew', 'ts-nll'):.2f} % of {method_name(best)}"
        for each, plain, best in rows
    ]
    return judged(
        (plain >= each.mean(best, "ece_ew", "ts-nll") for each, plain, best in rows),
        f"ECE after scaling, cross-entropy against the best focal loss: {'; '.join(parts)}.",
    )


_NOT_RUN = "Not run here: it needs AdaFocal with other settings, which the loss has."
_TABLE = "The numbers belong to the paper's own networks and data; `focalcal lab list` has their recipes."
UNTESTABLE |= {
    "ghosh2022.appP": "Only the first case was run in the experiments; `calfocal-sample` of cpu/digits is the second.",
    "ghosh2022.hyper.gamma-min": _NOT_RUN,
    "ghosh2022.bins.best": _NOT_RUN,
    "ghosh2022.fig5.imagenet": "It needs ImageNet: `ghosh2022/imagenet-resnet50`.",
    "ghosh2022.switch.early": "It needs ImageNet: `ghosh2022/imagenet-resnet50`.",
    "ghosh2022.table7": _TABLE,
    "ghosh2022.appF.bias": "It is about the estimators and not about trained networks; a simulation decides it.",
    "ghosh2022.ood.unreproduced": _TABLE,
    "ghosh2022.appN.20": _NOT_RUN,
    "ghosh2022.appN.50": _NOT_RUN,
    "ghosh2022.appN.inf": _NOT_RUN,
    "ghosh2022.fig18-22": _TABLE,
}
