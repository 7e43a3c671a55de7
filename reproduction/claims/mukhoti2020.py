"""Mukhoti et al. 2020: rules for what its figures and tables show."""

from __future__ import annotations

from statistics import fmean

from reproduction.claims.rules import (
    FIVE,
    FOUR,
    IMAGES,
    OVERFIT,
    Finding,
    by_recipe,
    chain,
    counted,
    falls,
    paired,
    rule,
)
from reproduction.labels import TRANSLATION, method_name
from reproduction.recipe_numbers import RecipeNumbers

FOCAL = ("fl-1", "fl-2", "fl-3")
GAMMAS = ("ce", *FOCAL)
# The losses of Tables 1 and 2, the paper's own last.
TABLE_1 = ("ce", "brier", "mmce", "ls-0.05", "flsd-53")


def _after_drop(each: RecipeNumbers, name: str, method: str = "ce") -> tuple[float, float]:
    """A series at the first record after the learning rate dropped, and at the last."""
    return each.at(method, name, "drop"), each.at(method, name, "end")


def _ends(each: RecipeNumbers, name: str, factor: float = 1) -> list[float]:
    """A series at the end for gamma 0, 1, 2, 3."""
    return [factor * each.at(method, name, "end") for method in GAMMAS]


def _rises(each: RecipeNumbers, name: str) -> list[float]:
    """How much a series changed since the drop, for gamma 0, 1, 2, 3."""
    return [end - start for start, end in (_after_drop(each, name, method) for method in GAMMAS)]


@by_recipe(
    "mukhoti2020.fig1", "Share of training rows in the top bin at the start, after the drop and at the end", *OVERFIT
)
def training_rows_move_to_the_top_bin(each: RecipeNumbers) -> Finding:
    """The share of training rows in the top one of 15 bins of confidence."""
    start, drop, end = (100 * each.at("ce", "train_top_share", when) for when in ("start", "drop", "end"))
    error = 100 * each.at("ce", "train_error", "end")
    return end > drop > start, f"{chain((start, drop, end), 1)} % (training error {error:.1f} % at the end)"


@by_recipe("mukhoti2020.sec3.nll-overfit", "Cross-entropy's NLL after the learning rate dropped", *OVERFIT)
def test_nll_rises_while_train_nll_falls(each: RecipeNumbers) -> Finding:
    """NLL from the first record after the drop to the last."""
    (low, high), (before, after) = _after_drop(each, "test_nll"), _after_drop(each, "train_nll")
    return high > low and after < before, f"test {low:.3f} to {high:.3f}, training {before:.3f} to {after:.3f}"


@by_recipe("mukhoti2020.sec3.wrong-only", "Cross-entropy's test NLL after the learning rate dropped", *OVERFIT)
def the_rise_comes_from_wrong_rows(each: RecipeNumbers) -> Finding:
    """NLL of correctly and wrongly classified test rows after the drop."""
    (low, high), (before, after) = _after_drop(each, "test_nll_correct"), _after_drop(each, "test_nll_wrong")
    return high < low and after > before, f"correct {low:.3f} to {high:.3f}, wrong {before:.2f} to {after:.2f}"


@by_recipe("mukhoti2020.sec3.ece-rises", "Cross-entropy's test ECE after the learning rate dropped", *OVERFIT)
def test_ece_rises_after_the_drop(each: RecipeNumbers) -> Finding:
    """Test ECE after the drop."""
    low, high = _after_drop(each, "test_ece")
    return high > low, f"{100 * low:.1f} % to {100 * high:.1f} %"


@by_recipe(
    "mukhoti2020.sec3.peakier",
    "Entropy of test rows, start to end",
    *OVERFIT,
    note="For ResNet-8 it jumps up once, when the learning rate drops, and falls before and after.",
)
def entropy_falls(each: RecipeNumbers) -> Finding:
    """Entropy of correct and wrong test rows from the first record to the last."""
    right, wrong = each.series("ce", "test_entropy_correct"), each.series("ce", "test_entropy_wrong")
    held = [series[-1] < series[each.drop] < series[0] for series in (right, wrong)]
    return held, f"correct {right[0]:.2f} to {right[-1]:.2f}, wrong {wrong[0]:.2f} to {wrong[-1]:.2f}"


@by_recipe("mukhoti2020.appA.onehot", "Training confidence at the end for gamma 0, 1, 2, 3", *OVERFIT)
def focal_loss_keeps_training_confidence_lower(each: RecipeNumbers) -> Finding:
    """Mean training confidence at the end."""
    row = _ends(each, "train_confidence", 100)
    return falls(row), f"{chain(row, 1)} %"


@by_recipe("mukhoti2020.fig3a", "Test NLL at the end for gamma 0, 1, 2, 3", *OVERFIT)
def test_nll_of_focal_loss_stays_low(each: RecipeNumbers) -> Finding:
    """Test NLL at the end, and its rise since the drop."""
    rise, ends = _rises(each, "test_nll"), _ends(each, "test_nll")
    held = max(ends[1:]) < ends[0] and max(rise[1:]) < rise[0]
    return held, f"{chain(ends)} (changed by {chain(rise)} since the drop)"


@by_recipe("mukhoti2020.fig3b", "NLL of correct test rows at the end for gamma 0, 1, 2, 3", *OVERFIT)
def nll_of_correct_rows_is_higher(each: RecipeNumbers) -> Finding:
    """NLL of correctly classified test rows, and at how many records focal loss has more of it."""
    row, plain = _ends(each, "test_nll_correct"), each.series("ce", "test_nll_correct")
    share = fmean(a > b for name in FOCAL for a, b in zip(each.series(name, "test_nll_correct"), plain, strict=True))
    return min(row[1:]) > row[0], f"{chain(row)} (above cross-entropy at {100 * share:.0f} % of the records)"


@by_recipe("mukhoti2020.fig3c", "Rise of the NLL of wrong test rows after the drop for gamma 0, 1, 2, 3", *OVERFIT)
def nll_of_wrong_rows_rises_less(each: RecipeNumbers) -> Finding:
    """The rise of the NLL of wrong test rows after the drop."""
    rise = _rises(each, "test_nll_wrong")
    return max(rise[1:]) < rise[0], chain(rise)


@by_recipe("mukhoti2020.fig3d", "Entropy of wrong test rows at the end for gamma 0, 1, 2, 3", *OVERFIT)
def entropy_of_wrong_rows_is_higher(each: RecipeNumbers) -> Finding:
    """Entropy of wrong test rows at the end."""
    row = _ends(each, "test_entropy_wrong")
    return min(row[1:]) > row[0], chain(row)


@by_recipe("mukhoti2020.fig3e", "Weight norm for gamma 0, 1, 2, 3", *OVERFIT)
def weight_norms_change_their_order(each: RecipeNumbers) -> Finding:
    """Norm of the last layer's weights at the first record and at the end."""
    start, end = [each.at(name, "weight_norm", "start") for name in GAMMAS], _ends(each, "weight_norm")
    return [min(start[1:]) > start[0], falls(end)], f"{chain(start)} at the first record, {chain(end)} at the end"


@by_recipe("mukhoti2020.appG", "Feature norm of test rows at the end for gamma 0, 1, 2, 3", *OVERFIT)
def feature_norms_fall_with_gamma(each: RecipeNumbers) -> Finding:
    """Norm of what goes into the last layer, at the end and at all records."""
    row, series = _ends(each, "feature_norm"), [each.series(name, "feature_norm") for name in GAMMAS]
    share = fmean(falls(values) for values in zip(*series, strict=True))
    return falls(row), f"{chain(row)} (in this order at {100 * share:.0f} % of the records)"


@by_recipe("mukhoti2020.fig4bcd", "Mean gradient norm for gamma 0, 1, 3", *OVERFIT)
def gradients_are_smaller_late(each: RecipeNumbers) -> Finding:
    """Mean norm of the last layer's gradient per training row."""
    names = ("ce", "fl-1", "fl-3")
    start, end = ([each.at(name, "gradient_norm", when) for name in names] for when in ("start", "end"))
    return max(end[1:]) < end[0], f"{chain(start)} at the first record, {chain(end, 3)} at the end"


@by_recipe("mukhoti2020.sec4.early-faster", "Training confidence at the first record for gamma 0, 1, 2, 3", *OVERFIT)
def confidence_grows_faster_at_first(each: RecipeNumbers) -> Finding:
    """Training confidence at the first record."""
    row = [100 * each.at(name, "train_confidence", "start") for name in GAMMAS]
    return row[1] > row[0], f"{chain(row, 1)} % (after epoch {each.all_runs[0].dynamics['epoch'][0] + 1})"


@by_recipe("mukhoti2020.sec4.gamma-order", "ECE for gamma 1, 2, 3", *IMAGES)
def ece_falls_from_gamma_1_to_3(each: RecipeNumbers) -> Finding:
    """ECE of gamma 1, 2, 3."""
    row = [each.mean(name, "ece_ew") for name in FOCAL]
    return falls(row), f"{chain(row)} %"


@by_recipe("mukhoti2020.appE.fixed", "Lowest ECE of gamma 1, 2, 3", *IMAGES)
def gamma_3_is_best_of_1_2_3(each: RecipeNumbers) -> Finding:
    """The best of the fixed gammas by ECE."""
    before, after = each.best(FOCAL, "ece_ew"), each.best(FOCAL, "ece_ew", "post")
    return before == "fl-3", f"{method_name(before)} before, {method_name(after)} after scaling"


@rule("mukhoti2020.ts.grid", *FIVE)
def temperatures_by_ece_give_lower_ece(*found: RecipeNumbers) -> Finding:
    """Test ECE after a temperature by validation ECE against one by NLL."""
    means = [fmean(pair[0] for pair in paired([each], "post - ts-nll", "ece_ew")) for each in found]
    pairs = paired(found, "post - ts-nll", "ece_ew")
    mean = 100 * fmean(pair[0] for pair in pairs)
    return [value < 0 for value in means], (
        f"With T by ECE instead of NLL the test ECE is {counted(pairs)}; on average it changes by {mean:+.2f} points. "
        f"It is lower on average in {sum(value < 0 for value in means)} of {len(means)} experiments."
    )


def _lowest(found: tuple[RecipeNumbers, ...], measure: str) -> Finding:
    """Whether FLSD-53 has the lowest mean of the losses of Table 1, before and after scaling."""
    best = {phase: [each.best(TABLE_1, measure, phase) for each in found] for phase in ("pre", "post")}
    won = {phase: [method == "flsd-53" for method in methods] for phase, methods in best.items()}
    rows = zip((each.title for each in found), best["pre"], best["post"], strict=True)
    parts = [f"{title}: {method_name(before)} before, {method_name(after)} after" for title, before, after in rows]
    return [*won["pre"], *won["post"]], (
        f"FLSD-53 is lowest in {sum(won['pre'])} of {len(found)} experiments before and in {sum(won['post'])} after "
        f"scaling ({'; '.join(parts)})."
    )


@rule("mukhoti2020.table1", *FOUR)
def flsd_53_has_the_lowest_ece(*found: RecipeNumbers) -> Finding:
    """The lowest ECE of Table 1's losses."""
    return _lowest(found, "ece_ew")


@rule("mukhoti2020.table2", *FOUR)
def flsd_53_has_the_lowest_ada_ece(*found: RecipeNumbers) -> Finding:
    """The lowest AdaECE of Table 2's losses."""
    return _lowest(found, "ece_em")


@by_recipe("mukhoti2020.sec5.temperatures", "Temperatures by validation ECE of FLSD-53 and of cross-entropy", *FIVE)
def flsd_53_needs_no_temperature(each: RecipeNumbers) -> Finding:
    """Within 0.1 of 1 for FLSD-53, as rounded, and large for cross-entropy."""
    focal, plain = each.temperature("flsd-53"), each.temperature("ce")
    return [0.85 <= focal <= 1.15, plain >= 1.5], f"{focal:.1f} and {plain:.1f}"


@by_recipe("mukhoti2020.sec5.confident", "Temperatures by validation ECE of Brier and LS-0.05", *FOUR)
def brier_and_smoothing_need_no_temperature(each: RecipeNumbers) -> Finding:
    """Temperatures of Brier loss and label smoothing."""
    values = [each.temperature(name) for name in ("brier", "ls-0.05")]
    return [0.8 <= value <= 1.2 for value in values], f"{values[0]:.1f} and {values[1]:.1f}"


@rule("mukhoti2020.table3", TRANSLATION)
def focal_loss_translates_with_the_lowest_ece(found: RecipeNumbers) -> Finding:
    """Token-level ECE before scaling, and BLEU."""
    names = ("ce", "ls-0.1", "fl-1")
    ece, bleu = ([found.mean(name, measure) for name in names] for measure in ("ece_ew", "bleu"))
    scale = [found.temperature(name) for name in names]
    held = [ece[2] < ece[1], ece[2] < ece[0], ece[1] < ece[0], bleu[2] >= bleu[0] - 0.2]
    return held, f"Cross-entropy, LS-0.1, FL-1: ECE {chain(ece)} % (T {chain(scale, 1)}), BLEU {chain(bleu, 1)}."


@rule("mukhoti2020.fig5", TRANSLATION)
def bleu_is_highest_where_ece_is_low(found: RecipeNumbers) -> Finding:
    """The temperatures of the highest BLEU and of the lowest validation ECE."""
    parts, held = [], []
    for name in ("ce", "ls-0.1", "fl-1"):
        curves = [run.extra["curve"] for run in found.runs(name)]
        highest = [max(curve, key=lambda at: at["test_bleu"]) for curve in curves]
        lowest = [min(curve, key=lambda at: at["val_ece"]) for curve in curves]
        best, least = (fmean(at["temperature"] for at in ends) for ends in (highest, lowest))
        lost = fmean(a["test_bleu"] - b["test_bleu"] for a, b in zip(highest, lowest, strict=True))
        parts.append(f"{method_name(name)}: BLEU at T {best:.2f}, ECE at T {least:.2f} (BLEU lost there: {lost:.2f})")
        held.append(lost < 0.3)
    return held, f"Best temperatures, mean over seeds: {'; '.join(parts)}."


@by_recipe("mukhoti2020.table4", "Error of FLSD-53 less that of cross-entropy, points", *FIVE)
def focal_loss_is_as_accurate(each: RecipeNumbers) -> Finding:
    """Error of FLSD-53 against cross-entropy's."""
    more = each.mean("flsd-53", "error") - each.mean("ce", "error")
    return more < 1, f"{more:+.2f}"


def _nll(each: RecipeNumbers, phase: str) -> Finding:
    plain, focal = (each.mean(name, "nll", phase) for name in ("ce", "flsd-53"))
    return focal < plain, f"{plain:.3f} and {focal:.3f}"


@by_recipe("mukhoti2020.table9", "NLL of cross-entropy and FLSD-53", *FIVE)
def flsd_53_has_lower_nll(each: RecipeNumbers) -> Finding:
    """NLL before scaling."""
    return _nll(each, "pre")


@by_recipe("mukhoti2020.table10", "NLL of cross-entropy and FLSD-53 after scaling by NLL", *FIVE)
def flsd_53_has_lower_nll_after_scaling(each: RecipeNumbers) -> Finding:
    """NLL after a temperature by NLL."""
    return _nll(each, "ts-nll")


def _sure(each: RecipeNumbers, phase: str) -> list[float]:
    return [each.mean(name, "s99_fraction", phase) for name in ("ce", "mmce", "flsd-53")]


_SURE = "Share of test rows with a confidence of 0.99 or more, cross-entropy, MMCE and FLSD-53"


@by_recipe("mukhoti2020.s99.pre", _SURE, *OVERFIT)
def fewer_rows_are_sure(each: RecipeNumbers) -> Finding:
    """The share of very confident test rows as trained."""
    row = _sure(each, "pre")
    return row[2] < min(row[:2]), f"{chain(row, 1)} %"


@by_recipe("mukhoti2020.s99.post", f"{_SURE}, after scaling", *OVERFIT)
def more_rows_are_sure_after_scaling(each: RecipeNumbers) -> Finding:
    """The share of very confident test rows after scaling."""
    row = _sure(each, "post")
    return row[2] > max(row[:2]), f"{chain(row, 1)} %"


@by_recipe("mukhoti2020.s99.temperature", "T of cross-entropy, MMCE and FLSD-53", *OVERFIT)
def their_temperatures_differ(each: RecipeNumbers) -> Finding:
    """The temperatures behind it."""
    row = [each.temperature(name) for name in ("ce", "mmce", "flsd-53")]
    return row[2] < min(row[:2]), chain(row, 1)
