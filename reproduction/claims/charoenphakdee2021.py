"""Charoenphakdee et al. 2021: what its figures show, looked for in the recorded results."""

from __future__ import annotations

from statistics import fmean

from reproduction.claims.tools import (
    ELSEWHERE,
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
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, SST, method_name

FOCAL = ("fl-1", "fl-2", "fl-3")


@trend("charoenphakdee2021.tsfl.raw", LITTLE, LITTLE_20, MORE)
def scaling_by_the_focal_loss_raises_ece(*found: Numbers) -> Outcome:
    """ECE after TS_FL against that of the unscaled network."""
    pairs = paired(found, "ts-fl - pre", "ece_ew", FOCAL)
    better = sum(each[0] > 0 for each in pairs) / len(pairs)
    return judged([better > 0.5, better == 1], f"After TS_FL the ECE of FL-1, FL-2, FL-3 is {counted(pairs)}.")


@trend("charoenphakdee2021.tsfl.psi", LITTLE, LITTLE_20, MORE)
def the_map_after_it_lowers_ece(*found: Numbers) -> Outcome:
    """ECE after TS_FL and Psi^gamma against that of the unscaled network."""
    pairs = paired(found, "ts-fl+psi - pre", "ece_ew", FOCAL)
    better = sum(each[0] < 0 for each in pairs) / len(pairs)
    return judged(
        [better > 0.5, better == 1], f"After TS_FL and Psi^gamma the ECE of FL-1, FL-2, FL-3 is {counted(pairs)}."
    )


@trend("charoenphakdee2021.fig4.psi", LITTLE, LITTLE_20, MORE)
def the_map_lowers_ece_in_most_settings(*found: Numbers) -> Outcome:
    """Psi^gamma alone, and after TS_FL."""
    alone, after = paired(found, "psi - pre", "ece_ew", FOCAL), []
    for each in found:
        for name in FOCAL:
            scaled, mapped = (each.each(name, "ece_ew", phase) for phase in ("ts-fl", "ts-fl+psi"))
            after += [second < first for first, second in zip(scaled, mapped, strict=True)]
    held = [sum(each[0] < 0 for each in alone) > len(alone) / 2, sum(after) > len(after) / 2]
    return judged(
        held,
        f"With Psi^gamma the ECE is {counted(alone)}; after TS_FL it is lower in {sum(after)} of {len(after)} runs.",
    )


def _change(each: Numbers, methods: tuple[str, ...] = FOCAL) -> float:
    """The mean change of ECE by Psi^gamma, in points."""
    return 100 * fmean(pair[0] for pair in paired([each], "psi - pre", "ece_ew", methods))


@trend("charoenphakdee2021.sec6.2.worse", LITTLE, LITTLE_20, MORE)
def the_map_raises_ece_on_cifar(*found: Numbers) -> Outcome:
    """The change of ECE by Psi^gamma on CIFAR-10."""
    parts = [f"{each.title} {_change(each):+.1f}" for each in found]
    return judged(
        (_change(each) > 0 for each in found),
        f"ECE after Psi^gamma less ECE before, points, mean over gamma 1, 2, 3: {', '.join(parts)}. SVHN was not run.",
    )


@trend("charoenphakdee2021.sec6.2.size", LITTLE, LITTLE_20, MORE)
def the_map_helps_less_with_little_data_and_large_networks(little: Numbers, larger: Numbers, more: Numbers) -> Outcome:
    """The change of ECE by Psi^gamma with more data and with a larger network."""
    values = {each.title: _change(each) for each in (more, little, larger)}
    parts = [f"{title} {value:+.1f}" for title, value in values.items()]
    held = [_change(more) < _change(little), _change(little) < _change(larger)]
    return judged(held, f"ECE after Psi^gamma less ECE before, points: {', '.join(parts)}.")


@trend("charoenphakdee2021.sec6.2.best-gamma", LITTLE, LITTLE_20, MORE)
def the_best_gamma_grows_as_data_shrink(little: Numbers, larger: Numbers, more: Numbers) -> Outcome:
    """The gamma of the lowest raw ECE, of those that all three have."""
    shared = [gamma for gamma in little.gammas if gamma in larger.gammas and gamma in more.gammas]
    best = {
        each.title: min(shared, key=lambda gamma: each.mean(each.gammas[gamma], "ece_ew"))
        for each in (more, little, larger)
    }
    wide = min(little.gammas, key=lambda gamma: little.mean(little.gammas[gamma], "ece_ew"))
    parts = [f"{title} {gamma:g}" for title, gamma in best.items()]
    held = [best[more.title] < best[little.title] or best[more.title] < wide, best[little.title] <= best[larger.title]]
    return judged(
        held,
        (
            f"Gamma of {chain(shared, 0)} with the lowest ECE: {', '.join(parts)}; with gammas up "
            f"to {max(little.gammas):g}, {little.title} {wide:g}."
        ),
    )


@trend("charoenphakdee2021.fig6", LITTLE, LITTLE_20, MORE)
def larger_gammas_are_worse_after_scaling_until_the_map(*found: Numbers) -> Outcome:
    """ECE after TS_FL by gamma, before and after Psi^gamma."""
    parts, held = [], []
    for each in found:
        raw, mapped = ([each.mean(name, "ece_ew", phase) for name in FOCAL] for phase in ("ts-fl", "ts-fl+psi"))
        parts.append(f"{each.title}: {chain(raw, 1)} %, then {chain(mapped, 1)} %")
        held += [falls(raw[::-1]), max(mapped) < max(raw)]
    return judged(held, f"ECE after TS_FL for gamma 1, 2, 3, and after Psi^gamma: {'; '.join(parts)}.")


@trend("charoenphakdee2021.sec6.3.not-always", LITTLE, LITTLE_20, MORE, NEWS, SST)
def focal_loss_is_not_always_better(*found: Numbers) -> Outcome:
    """Whether cross-entropy has a lower ECE than some focal loss."""
    worse = [
        f"{each.title} ({method_name(name)} {each.mean(name, 'ece_ew'):.1f} against {each.mean('ce', 'ece_ew'):.1f} %)"
        for each in found
        for name in ("fl-3", "flsd-53")
        if each.mean(name, "ece_ew") > each.mean("ce", "ece_ew")
    ]
    return judged(
        [bool(worse)],
        f"FL-3 or FLSD-53 has a higher ECE than cross-entropy on {'; '.join(worse)}."
        if worse
        else "FL-3 and FLSD-53 have a lower ECE than cross-entropy in all experiments.",
    )


@trend("charoenphakdee2021.sec6.3.cancel", LITTLE, LITTLE_20, MORE)
def some_positive_gamma_is_best(*found: Numbers) -> Outcome:
    """Over-confidence of cross-entropy, and the gamma of the lowest ECE."""
    parts, held = [], []
    for each in found:
        best = min(each.gammas, key=lambda gamma: each.mean(each.gammas[gamma], "ece_ew"))
        gap = each.temperature("ce", "ts-nll")
        parts.append(f"{each.title}: T {gap:.2f}, gamma {best:g}")
        held.append((best > 0) == (gap > 1.1))
    return judged(held, f"Cross-entropy's temperature by NLL, and the gamma of the lowest ECE: {'; '.join(parts)}.")


UNTESTABLE |= {
    "charoenphakdee2021.fig4.ls": (
        "Focal loss with label smoothing was not run here; `charoenphakdee2021/cifar10-resnet20` has it."
    ),
    "charoenphakdee2021.fig4.underconfident": "It is about SVHN and label smoothing, which were not run here.",
}
_TOY = "docs/toy_problems.md and its tests"
ELSEWHERE |= {
    "charoenphakdee2021.fig3.err": ("shown elsewhere", f"On the one-dimensional problem: {_TOY}."),
    "charoenphakdee2021.fig3.uc": ("shown elsewhere", f"On the one-dimensional problem: {_TOY}."),
    "charoenphakdee2021.fig3.ts": ("shown elsewhere", f"On the one-dimensional problem: {_TOY}."),
    "charoenphakdee2021.fig3.psi": ("shown elsewhere", f"On the one-dimensional problem: {_TOY}."),
}
