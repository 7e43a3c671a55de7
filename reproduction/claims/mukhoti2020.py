"""Mukhoti et al. 2020: what its figures and tables show, looked for in the recorded results."""

from __future__ import annotations

from statistics import fmean

from reproduction.claims.tools import (
    ELSEWHERE,
    NOT,
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
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, SST, TRANSLATION, listed, method_name

FOCAL = ("fl-1", "fl-2", "fl-3")
# The losses of Tables 1 and 2, ours last.
TABLE_1 = ("ce", "brier", "mmce", "ls-0.05", "flsd-53")


@trend("mukhoti2020.fig1", LITTLE, LITTLE_20)
def training_rows_move_to_the_top_bin(*found: Numbers) -> Outcome:
    """The share of training rows in the top one of 15 bins of confidence."""
    parts, held = [], []
    for each in found:
        share = [100 * each.at("ce", "train_top_share", when) for when in ("start", "drop", "end")]
        error = 100 * each.at("ce", "train_error", "end")
        parts.append(f"{each.title}: {chain(share, 1)} % (training error {error:.1f} % at the end)")
        held.append(share[2] > share[1] > share[0])
    return judged(
        held, f"Share of training rows in the top bin at the start, after the drop and at the end: {'; '.join(parts)}."
    )


def _after_drop(found: tuple[Numbers, ...], name: str, method: str = "ce") -> list[tuple[Numbers, float, float]]:
    return [(each, each.at(method, name, "drop"), each.at(method, name, "end")) for each in found]


@trend("mukhoti2020.sec3.nll-overfit", LITTLE, LITTLE_20)
def test_nll_rises_while_train_nll_falls(*found: Numbers) -> Outcome:
    """NLL from the first record after the drop of the learning rate to the last."""
    test, train = _after_drop(found, "test_nll"), _after_drop(found, "train_nll")
    parts = [
        f"{each.title}: test {low:.3f} to {high:.3f}, training {before:.3f} to {after:.3f}"
        for (each, low, high), (_, before, after) in zip(test, train, strict=True)
    ]
    held = [high > low and after < before for (_, low, high), (_, before, after) in zip(test, train, strict=True)]
    return judged(held, f"Cross-entropy's NLL after the learning rate dropped: {'; '.join(parts)}.")


@trend("mukhoti2020.sec3.wrong-only", LITTLE, LITTLE_20)
def the_rise_comes_from_wrong_rows(*found: Numbers) -> Outcome:
    """NLL of correctly and wrongly classified test rows after the drop."""
    right, wrong = _after_drop(found, "test_nll_correct"), _after_drop(found, "test_nll_wrong")
    parts = [
        f"{each.title}: correct {low:.3f} to {high:.3f}, wrong {before:.2f} to {after:.2f}"
        for (each, low, high), (_, before, after) in zip(right, wrong, strict=True)
    ]
    held = [high < low and after > before for (_, low, high), (_, before, after) in zip(right, wrong, strict=True)]
    return judged(held, f"Cross-entropy's test NLL after the learning rate dropped: {'; '.join(parts)}.")


@trend("mukhoti2020.sec3.ece-rises", LITTLE, LITTLE_20)
def test_ece_rises_after_the_drop(*found: Numbers) -> Outcome:
    """Test ECE after the drop."""
    values = _after_drop(found, "test_ece")
    parts = [f"{each.title}: {100 * low:.1f} % to {100 * high:.1f} %" for each, low, high in values]
    return judged((high > low for _, low, high in values), f"Cross-entropy's test ECE: {'; '.join(parts)}.")


@trend("mukhoti2020.sec3.peakier", LITTLE, LITTLE_20)
def entropy_falls(*found: Numbers) -> Outcome:
    """Entropy of correct and wrong test rows from the first record to the last."""
    parts, held = [], []
    for each in found:
        right, wrong = each.series("ce", "test_entropy_correct"), each.series("ce", "test_entropy_wrong")
        parts.append(
            f"{each.title}: correct {right[0]:.2f} to {right[-1]:.2f}, wrong {wrong[0]:.2f} to {wrong[-1]:.2f}"
        )
        held += [right[-1] < right[each.drop] < right[0], wrong[-1] < wrong[each.drop] < wrong[0]]
    note = (
        "It jumps up once, when the learning rate drops and the network becomes less noisy, and falls before and after."
    )
    jumped = any(
        each.series("ce", "test_entropy_wrong")[each.drop] > each.series("ce", "test_entropy_wrong")[each.drop - 1]
        for each in found
    )
    return judged(held, f"Entropy of test rows, start to end: {'; '.join(parts)}.{' ' + note if jumped else ''}")


@trend("mukhoti2020.appA.onehot", LITTLE, LITTLE_20)
def focal_loss_keeps_training_confidence_lower(*found: Numbers) -> Outcome:
    """Mean training confidence at the end."""
    rows = [[100 * each.at(name, "train_confidence", "end") for name in ("ce", *FOCAL)] for each in found]
    parts = [f"{each.title}: {chain(row, 1)} %" for each, row in zip(found, rows, strict=True)]
    return judged(map(falls, rows), f"Training confidence at the end for gamma 0, 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.fig3a", LITTLE, LITTLE_20)
def test_nll_of_focal_loss_stays_low(*found: Numbers) -> Outcome:
    """Test NLL at the end, and its rise since the drop."""
    parts, held = [], []
    for each in found:
        rise = [each.at(name, "test_nll", "end") - each.at(name, "test_nll", "drop") for name in ("ce", *FOCAL)]
        ends = [each.at(name, "test_nll", "end") for name in ("ce", *FOCAL)]
        parts.append(f"{each.title}: {chain(ends)} (changed by {chain(rise)} since the drop)")
        held.append(max(ends[1:]) < ends[0] and max(rise[1:]) < rise[0])
    return judged(held, f"Test NLL at the end for gamma 0, 1, 2, 3: {'; '.join(parts)}.")


def _order(found: tuple[Numbers, ...], name: str, digits: int = 2, factor: float = 1) -> list[tuple[str, list[float]]]:
    return [(each.title, [factor * each.at(method, name, "end") for method in ("ce", *FOCAL)]) for each in found]


@trend("mukhoti2020.fig3b", LITTLE, LITTLE_20)
def nll_of_correct_rows_is_higher(*found: Numbers) -> Outcome:
    """NLL of correctly classified test rows, and at how many records focal loss has more of it."""
    rows = _order(found, "test_nll_correct")
    shares = [
        fmean(
            focal > plain
            for name in FOCAL
            for focal, plain in zip(
                each.series(name, "test_nll_correct"), each.series("ce", "test_nll_correct"), strict=True
            )
        )
        for each in found
    ]
    parts = [
        f"{title}: {chain(row)} (above cross-entropy at {100 * share:.0f} % of the records)"
        for (title, row), share in zip(rows, shares, strict=True)
    ]
    held = [min(row[1:]) > row[0] for _, row in rows]
    return judged(held, f"NLL of correct test rows at the end for gamma 0, 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.fig3c", LITTLE, LITTLE_20)
def nll_of_wrong_rows_rises_less(*found: Numbers) -> Outcome:
    """The rise of the NLL of wrong test rows after the drop."""
    parts, held = [], []
    for each in found:
        rise = [
            each.at(name, "test_nll_wrong", "end") - each.at(name, "test_nll_wrong", "drop") for name in ("ce", *FOCAL)
        ]
        parts.append(f"{each.title}: {chain(rise)}")
        held.append(max(rise[1:]) < rise[0])
    return judged(held, f"Rise of the NLL of wrong test rows after the drop for gamma 0, 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.fig3d", LITTLE, LITTLE_20)
def entropy_of_wrong_rows_is_higher(*found: Numbers) -> Outcome:
    """Entropy of wrong test rows at the end."""
    rows = _order(found, "test_entropy_wrong")
    parts = [f"{title}: {chain(row)}" for title, row in rows]
    return judged(
        (min(row[1:]) > row[0] for _, row in rows),
        f"Entropy of wrong test rows at the end for gamma 0, 1, 2, 3: {'; '.join(parts)}.",
    )


@trend("mukhoti2020.fig3e", LITTLE, LITTLE_20)
def weight_norms_change_their_order(*found: Numbers) -> Outcome:
    """Norm of the last layer's weights at the first record and at the end."""
    parts, held = [], []
    for each in found:
        start, end = ([each.at(name, "weight_norm", when) for name in ("ce", *FOCAL)] for when in ("start", "end"))
        parts.append(f"{each.title}: {chain(start)} at the first record, {chain(end)} at the end")
        held += [min(start[1:]) > start[0], falls(end)]
    return judged(held, f"Weight norm for gamma 0, 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.appG", LITTLE, LITTLE_20)
def feature_norms_fall_with_gamma(*found: Numbers) -> Outcome:
    """Norm of what goes into the last layer, at the end and at all records."""
    rows = _order(found, "feature_norm")
    parts, held = [], [falls(row) for _, row in rows]
    for each, (title, row) in zip(found, rows, strict=True):
        series = [each.series(name, "feature_norm") for name in ("ce", *FOCAL)]
        share = fmean(falls(values) for values in zip(*series, strict=True))
        parts.append(f"{title}: {chain(row)} (in this order at {100 * share:.0f} % of the records)")
    return judged(held, f"Feature norm of test rows at the end for gamma 0, 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.fig4bcd", LITTLE, LITTLE_20)
def gradients_are_smaller_late(*found: Numbers) -> Outcome:
    """Mean norm of the last layer's gradient per training row."""
    parts, held = [], []
    for each in found:
        start, end = (
            [each.at(name, "gradient_norm", when) for name in ("ce", "fl-1", "fl-3")] for when in ("start", "end")
        )
        parts.append(f"{each.title}: {chain(start)} at the first record, {chain(end, 3)} at the end")
        held.append(max(end[1:]) < end[0])
    return judged(held, f"Mean gradient norm for gamma 0, 1, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.sec4.early-faster", LITTLE, LITTLE_20)
def confidence_grows_faster_at_first(*found: Numbers) -> Outcome:
    """Training confidence at the first record."""
    rows = [(each, [100 * each.at(name, "train_confidence", "start") for name in ("ce", *FOCAL)]) for each in found]
    epochs = {each.evidence.runs[0].dynamics["epoch"][0] + 1 for each, _ in rows}
    parts = [f"{each.title}: {chain(row, 1)} %" for each, row in rows]
    note = f"The first record is after {listed([str(epoch) for epoch in sorted(epochs)])} epochs."
    return judged(
        (row[1] > row[0] for _, row in rows), f"Training confidence for gamma 0, 1, 2, 3: {'; '.join(parts)}. {note}"
    )


@trend("mukhoti2020.sec4.gamma-order", LITTLE, LITTLE_20, MORE)
def ece_falls_from_gamma_1_to_3(*found: Numbers) -> Outcome:
    """ECE of gamma 1, 2, 3."""
    rows = [(each.title, [each.mean(name, "ece_ew") for name in FOCAL]) for each in found]
    parts = [f"{title}: {chain(row)} %" for title, row in rows]
    return judged((falls(row) for _, row in rows), f"ECE for gamma 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.appE.fixed", LITTLE, LITTLE_20, MORE)
def gamma_3_is_best_of_1_2_3(*found: Numbers) -> Outcome:
    """The best of the fixed gammas by ECE."""
    best = [(each.title, each.best(FOCAL, "ece_ew"), each.best(FOCAL, "ece_ew", "post")) for each in found]
    parts = [
        f"{title}: {method_name(before)} before, {method_name(after)} after scaling" for title, before, after in best
    ]
    return judged((before == "fl-3" for _, before, _ in best), f"Lowest ECE of gamma 1, 2, 3: {'; '.join(parts)}.")


@trend("mukhoti2020.ts.grid", LITTLE, LITTLE_20, MORE, NEWS, SST)
def temperatures_by_ece_give_lower_ece(*found: Numbers) -> Outcome:
    """Test ECE after a temperature by validation ECE against one by NLL."""
    pairs = paired(found, "post - ts-nll", "ece_ew")
    mean = 100 * fmean(each[0] for each in pairs)
    sentence = (
        f"With T by ECE instead of NLL the test ECE is {counted(pairs)}; on average it changes by {mean:+.2f} points."
    )
    better = [fmean(each[0] for each in paired([one], "post - ts-nll", "ece_ew")) < 0 for one in found]
    return judged(better, f"{sentence} It is lower on average in {sum(better)} of {len(better)} experiments.")


def _lowest(found: tuple[Numbers, ...], measure: str, ours: str, among: tuple[str, ...]) -> Outcome:
    before = {each.title: each.best(among, measure) for each in found}
    after = {each.title: each.best(among, measure, "post") for each in found}
    parts = [f"{title}: {method_name(before[title])} before, {method_name(after[title])} after" for title in before]
    won = [sum(method == ours for method in each.values()) for each in (before, after)]
    sentence = (
        f"{method_name(ours)} is lowest in {won[0]} of {len(before)} experiments before and in "
        f"{won[1]} after scaling ({'; '.join(parts)})."
    )
    return judged([method == ours for each in (before, after) for method in each.values()], sentence)


@trend("mukhoti2020.table1", LITTLE, LITTLE_20, NEWS, SST)
def flsd_53_has_the_lowest_ece(*found: Numbers) -> Outcome:
    """The lowest ECE of Table 1's losses."""
    return _lowest(found, "ece_ew", "flsd-53", TABLE_1)


@trend("mukhoti2020.table2", LITTLE, LITTLE_20, NEWS, SST)
def flsd_53_has_the_lowest_ada_ece(*found: Numbers) -> Outcome:
    """The lowest AdaECE of Table 2's losses."""
    return _lowest(found, "ece_em", "flsd-53", TABLE_1)


@trend("mukhoti2020.sec5.temperatures", LITTLE, LITTLE_20, MORE, NEWS, SST)
def flsd_53_needs_no_temperature(*found: Numbers) -> Outcome:
    """Temperatures by validation ECE."""
    focal = {each.title: each.temperature("flsd-53") for each in found}
    plain = {each.title: each.temperature("ce") for each in found}
    near = [0.85 <= value <= 1.15 for value in focal.values()]
    high = [value >= 1.5 for value in plain.values()]
    sentence = (
        f"FLSD-53: {chain(list(focal.values()), 1)} (within 0.1 of 1, as rounded, in {sum(near)} of {len(near)}); "
        f"cross-entropy: {chain(list(plain.values()), 1)}; in the order {listed(list(focal))}."
    )
    return judged([*near, *high], f"Temperatures with the lowest validation ECE. {sentence}")


@trend("mukhoti2020.sec5.confident", LITTLE, LITTLE_20, NEWS, SST)
def brier_and_smoothing_need_no_temperature(*found: Numbers) -> Outcome:
    """Temperatures of Brier loss and label smoothing."""
    values = {name: [each.temperature(name) for each in found] for name in ("brier", "ls-0.05")}
    parts = [f"{method_name(name)} {chain(row, 1)}" for name, row in values.items()]
    held = [0.8 <= value <= 1.2 for row in values.values() for value in row]
    return judged(
        held,
        f"Temperatures with the lowest validation ECE: {'; '.join(parts)} ({listed([each.title for each in found])}).",
    )


@trend("mukhoti2020.table3", TRANSLATION)
def focal_loss_translates_with_the_lowest_ece(found: Numbers) -> Outcome:
    """Token-level ECE before scaling, and BLEU."""
    names = ("ce", "ls-0.1", "fl-1")
    ece = [found.mean(name, "ece_ew") for name in names]
    bleu = [found.mean(name, "bleu") for name in names]
    scale = [found.temperature(name) for name in names]
    sentence = f"Cross-entropy, LS-0.1, FL-1: ECE {chain(ece)} % (T {chain(scale, 1)}), BLEU {chain(bleu, 1)}."
    return judged([ece[2] < ece[1], ece[2] < ece[0], ece[1] < ece[0], bleu[2] >= bleu[0] - 0.2], sentence)


@trend("mukhoti2020.fig5", TRANSLATION)
def bleu_is_highest_where_ece_is_low(found: Numbers) -> Outcome:
    """The temperatures of the highest BLEU and of the lowest validation ECE."""
    parts, held = [], []
    for name in ("ce", "ls-0.1", "fl-1"):
        curves = [run.extra["curve"] for run in found.runs(name)]
        best = fmean(max(curve, key=lambda at: at["test_bleu"])["temperature"] for curve in curves)
        least = fmean(min(curve, key=lambda at: at["val_ece"])["temperature"] for curve in curves)
        lost = fmean(
            max(at["test_bleu"] for at in curve) - min(curve, key=lambda at: at["val_ece"])["test_bleu"]
            for curve in curves
        )
        parts.append(f"{method_name(name)}: BLEU at T {best:.2f}, ECE at T {least:.2f} (BLEU lost there: {lost:.2f})")
        held.append(lost < 0.3)
    return judged(held, f"Best temperatures, mean over seeds: {'; '.join(parts)}.")


@trend("mukhoti2020.table4", LITTLE, LITTLE_20, MORE, NEWS, SST)
def focal_loss_is_as_accurate(*found: Numbers) -> Outcome:
    """Error of FLSD-53 against cross-entropy's."""
    more = [each.mean("flsd-53", "error") - each.mean("ce", "error") for each in found]
    parts = [f"{each.title} {value:+.2f}" for each, value in zip(found, more, strict=True)]
    return judged(
        (value < 1 for value in more), f"Error of FLSD-53 less that of cross-entropy, points: {', '.join(parts)}."
    )


def _nll(found: tuple[Numbers, ...], phase: str) -> Outcome:
    rows = [(each.title, each.mean("ce", "nll", phase), each.mean("flsd-53", "nll", phase)) for each in found]
    parts = [f"{title}: {plain:.3f} and {focal:.3f}" for title, plain, focal in rows]
    return judged((focal < plain for _, plain, focal in rows), f"NLL of cross-entropy and FLSD-53: {'; '.join(parts)}.")


@trend("mukhoti2020.table9", LITTLE, LITTLE_20, MORE, NEWS, SST)
def flsd_53_has_lower_nll(*found: Numbers) -> Outcome:
    """NLL before scaling."""
    return _nll(found, "pre")


@trend("mukhoti2020.table10", LITTLE, LITTLE_20, MORE, NEWS, SST)
def flsd_53_has_lower_nll_after_scaling(*found: Numbers) -> Outcome:
    """NLL after a temperature by NLL."""
    return _nll(found, "ts-nll")


def _sure(found: tuple[Numbers, ...], phase: str) -> list[tuple[str, list[float]]]:
    return [
        (each.title, [each.mean(name, "s99_fraction", phase) for name in ("ce", "mmce", "flsd-53")]) for each in found
    ]


@trend("mukhoti2020.s99.pre", LITTLE, LITTLE_20)
def fewer_rows_are_sure(*found: Numbers) -> Outcome:
    """The share of test rows with confidence of 0.99 and more."""
    rows = _sure(found, "pre")
    parts = [f"{title}: {chain(row, 1)} %" for title, row in rows]
    return judged((row[2] < min(row[:2]) for _, row in rows), f"Cross-entropy, MMCE, FLSD-53: {'; '.join(parts)}.")


@trend("mukhoti2020.s99.post", LITTLE, LITTLE_20)
def more_rows_are_sure_after_scaling(*found: Numbers) -> Outcome:
    """The same after scaling."""
    rows = _sure(found, "post")
    parts = [f"{title}: {chain(row, 1)} %" for title, row in rows]
    return judged(
        (row[2] > max(row[:2]) for _, row in rows), f"Cross-entropy, MMCE, FLSD-53 after scaling: {'; '.join(parts)}."
    )


@trend("mukhoti2020.s99.temperature", LITTLE, LITTLE_20)
def their_temperatures_differ(*found: Numbers) -> Outcome:
    """The temperatures behind it."""
    rows = [(each.title, [each.temperature(name) for name in ("ce", "mmce", "flsd-53")]) for each in found]
    parts = [f"{title}: {chain(row, 1)}" for title, row in rows]
    return judged((row[2] < min(row[:2]) for _, row in rows), f"T of cross-entropy, MMCE, FLSD-53: {'; '.join(parts)}.")


_TABLE = "The numbers belong to the paper's own networks and data; `focalcal lab list` has their recipes."
UNTESTABLE |= {
    "mukhoti2020.ls.alpha": "Only alpha 0.05 was run here.",
    "mukhoti2020.sec5.ece-adaece": _TABLE,
    "mukhoti2020.table5": _TABLE,
    "mukhoti2020.table6": _TABLE,
    "mukhoti2020.table7": _TABLE,
    "mukhoti2020.top5": "It needs 100 classes; `mukhoti2020/cifar100-resnet50` is the recipe.",
    "mukhoti2020.table11": f"The maximum over 15 bins, some of a few rows, is mostly noise here. {_TABLE}",
    "mukhoti2020.table12": f"The maximum over 15 bins, some of a few rows, is mostly noise here. {_TABLE}",
    "mukhoti2020.fig9": "It is about eight images and one network.",
    "mukhoti2020.ood": "The table is not in this version of the paper.",
}
_TOY = "docs/toy_problems.md and its tests"
ELSEWHERE |= {
    "mukhoti2020.appB.norms": ("shown elsewhere", f"Weight norm 1.05 with cross-entropy and 0.58 with FL-1: {_TOY}."),
    "mukhoti2020.appB.boundary": ("shown elsewhere", f"The same direction to 0.05 degrees: {_TOY}."),
    "mukhoti2020.appB.confidence": (
        NOT,
        (
            "With a tenth of the labels flipped, 39 % of cross-entropy's mistakes are over 90 % "
            f"sure, not almost all: {_TOY}."
        ),
    ),
}
