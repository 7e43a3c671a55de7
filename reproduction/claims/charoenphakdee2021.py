"""Charoenphakdee et al. 2021: rules for what its figures show."""

from __future__ import annotations

from statistics import fmean

from reproduction.claims.rules import FIVE, IMAGES, Finding, by_recipe, chain, counted, falls, paired, rule
from reproduction.labels import method_name
from reproduction.recipe_numbers import RecipeNumbers

FOCAL = ("fl-1", "fl-2", "fl-3")


@rule("charoenphakdee2021.tsfl.raw", *IMAGES)
def scaling_by_the_focal_loss_raises_ece(*found: RecipeNumbers) -> Finding:
    """ECE after TS_FL against that of the unscaled network."""
    pairs = paired(found, "ts-fl - pre", "ece_ew", FOCAL)
    share = fmean(pair[0] > 0 for pair in pairs)
    return [share > 0.5, share == 1], f"After TS_FL the ECE of FL-1, FL-2, FL-3 is {counted(pairs)}."


@rule("charoenphakdee2021.tsfl.psi", *IMAGES)
def the_map_after_it_lowers_ece(*found: RecipeNumbers) -> Finding:
    """ECE after TS_FL and Psi^gamma against that of the unscaled network."""
    pairs = paired(found, "ts-fl+psi - pre", "ece_ew", FOCAL)
    share = fmean(pair[0] < 0 for pair in pairs)
    return [share > 0.5, share == 1], f"After TS_FL and Psi^gamma the ECE of FL-1, FL-2, FL-3 is {counted(pairs)}."


@rule("charoenphakdee2021.fig4.psi", *IMAGES)
def the_map_lowers_ece_in_most_settings(*found: RecipeNumbers) -> Finding:
    """Psi^gamma alone, and after TS_FL."""
    alone, after = paired(found, "psi - pre", "ece_ew", FOCAL), []
    for each in found:
        for name in FOCAL:
            scaled, mapped = (each.values(name, "ece_ew", phase) for phase in ("ts-fl", "ts-fl+psi"))
            after += [second < first for first, second in zip(scaled, mapped, strict=True)]
    held = [sum(pair[0] < 0 for pair in alone) > len(alone) / 2, sum(after) > len(after) / 2]
    return held, (
        f"With Psi^gamma the ECE is {counted(alone)}; after TS_FL it is lower in {sum(after)} of {len(after)} runs."
    )


def _change(each: RecipeNumbers) -> float:
    """The mean change of ECE by Psi^gamma over gamma 1, 2, 3, in points."""
    return 100 * fmean(pair[0] for pair in each.pairs("psi - pre", "ece_ew", FOCAL))


_CHANGE = "ECE after Psi^gamma less ECE before, points, mean over gamma 1, 2, 3"


@by_recipe("charoenphakdee2021.sec6.2.worse", _CHANGE, *IMAGES, note="SVHN was not run.")
def the_map_raises_ece_on_cifar(each: RecipeNumbers) -> Finding:
    """The change of ECE by Psi^gamma on CIFAR-10."""
    return _change(each) > 0, f"{_change(each):+.1f}"


@rule("charoenphakdee2021.sec6.2.size", *IMAGES)
def the_map_helps_less_with_little_data_and_large_networks(
    little: RecipeNumbers, larger: RecipeNumbers, more: RecipeNumbers
) -> Finding:
    """The change of ECE by Psi^gamma with more data and with a larger network."""
    values = [_change(each) for each in (more, little, larger)]
    parts = [f"{each.title}: {value:+.1f}" for each, value in zip((more, little, larger), values, strict=True)]
    return [values[0] < values[1], values[1] < values[2]], f"{_CHANGE}: {'; '.join(parts)}."


@rule("charoenphakdee2021.sec6.2.best-gamma", *IMAGES)
def the_best_gamma_grows_as_data_shrink(little: RecipeNumbers, larger: RecipeNumbers, more: RecipeNumbers) -> Finding:
    """The gamma of the lowest raw ECE, of those that all three have."""
    order = (more, little, larger)
    shared = [gamma for gamma in little.gammas if gamma in larger.gammas and gamma in more.gammas]
    best = [min(shared, key=lambda gamma: each.mean(each.gammas[gamma], "ece_ew")) for each in order]
    wide = min(little.gammas, key=lambda gamma: little.mean(little.gammas[gamma], "ece_ew"))
    parts = [f"{each.title}: {gamma:g}" for each, gamma in zip(order, best, strict=True)]
    return [best[0] < best[1] or best[0] < wide, best[1] <= best[2]], (
        f"Gamma of {chain(shared, 0)} with the lowest ECE: {'; '.join(parts)}. Of gammas up to {max(little.gammas):g}, "
        f"{little.title} has {wide:g}."
    )


@by_recipe("charoenphakdee2021.fig6", "ECE after TS_FL for gamma 1, 2, 3, and after Psi^gamma", *IMAGES)
def larger_gammas_are_worse_after_scaling_until_the_map(each: RecipeNumbers) -> Finding:
    """ECE after TS_FL by gamma, before and after Psi^gamma."""
    raw, mapped = ([each.mean(name, "ece_ew", phase) for name in FOCAL] for phase in ("ts-fl", "ts-fl+psi"))
    return [falls(raw[::-1]), max(mapped) < max(raw)], f"{chain(raw, 1)} %, then {chain(mapped, 1)} %"


@rule("charoenphakdee2021.sec6.3.not-always", *FIVE)
def focal_loss_is_not_always_better(*found: RecipeNumbers) -> Finding:
    """Whether cross-entropy has a lower ECE than some focal loss."""
    worse = [
        f"{each.title} ({method_name(name)} {each.mean(name, 'ece_ew'):.1f} against {each.mean('ce', 'ece_ew'):.1f} %)"
        for each in found
        for name in ("fl-3", "flsd-53")
        if each.mean(name, "ece_ew") > each.mean("ce", "ece_ew")
    ]
    return bool(worse), f"FL-3 or FLSD-53 has a higher ECE than cross-entropy on: {'; '.join(worse) or 'none'}."


@by_recipe(
    "charoenphakdee2021.sec6.3.cancel", "Cross-entropy's temperature by NLL, and the gamma of the lowest ECE", *IMAGES
)
def some_positive_gamma_is_best(each: RecipeNumbers) -> Finding:
    """Over-confidence of cross-entropy, and the gamma of the lowest ECE."""
    best = min(each.gammas, key=lambda gamma: each.mean(each.gammas[gamma], "ece_ew"))
    temperature = each.temperature("ce", "ts-nll")
    return (best > 0) == (temperature > 1.1), f"T {temperature:.2f}, gamma {best:g}"
