"""The loss to start from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from reproduction.labels import PHASES, All, listed, method_name, table, title_of
from reproduction.pages.after_training.numbers import common_phases, mean_of, trained
from reproduction.pages.losses import lowest_of, mean_by_method
from reproduction.result_files import Evidence


def start_section(evidence: All) -> str:
    """The best loss of every calibrator, and the best calibrator of every loss."""
    found = [each for each in trained(evidence) if len(each.methods) > 1]
    best = {each.name: _best_starts(each) for each in found}
    phases = [phase for phase in PHASES if any(phase in starts for starts in best.values())]
    if not phases:
        return ""
    rows = [[PHASES[phase], *(_start_cell(best[each.name].get(phase)) for each in found)] for phase in phases]
    return (
        f"## The loss to start from\n\n{_adafocal_sentence(found, best)}{_best_calibrators_sentence(found)}\n"
        "The loss with the lowest mean ECE over seeds after each calibrator, in percent.\n\n"
        f"{table(['calibrator', *map(title_of, found)], rows)}"
    )


def _best_starts(each: Evidence) -> dict[str, tuple[str, float]]:
    """By phase that every run has, the loss with the lowest mean ECE, and that."""
    means = {phase: mean_by_method(each, phase, "ece_ew") for phase in common_phases(each.runs)}
    return {phase: (lowest_of(values), min(values.values())) for phase, values in means.items() if values}


def _start_cell(best: tuple[str, float] | None) -> str:
    return "" if best is None else f"{method_name(best[0])} ({best[1]:.2f})"


def _adafocal_sentence(found: Sequence[Evidence], best: Mapping[str, Mapping[str, tuple[str, float]]]) -> str:
    cases = [
        (start, share)
        for each in found
        if (share := sum(map(_is_adafocal, each.methods)) / len(each.methods))
        for phase, (start, _) in best[each.name].items()
        if phase != "pre"
    ]
    if not cases:
        return ""
    starts = [start for start, _ in cases]
    counted = Counter(map(method_name, starts)).most_common(3)
    others = listed([f"{name} ({number})" for name, number in counted])
    return (
        "ghosh2022 (Sec. 6) finds that the lowest ECE nearly always starts from the AdaFocal model.\n"
        f"Here it does in {sum(map(_is_adafocal, starts))} of {len(starts)} pairs of task and calibrator; a loss drawn"
        f" at random would in {100 * fmean(share for _, share in cases):.0f} %.\n"
        f"Most often it starts from {others}.\n"
    )


def _is_adafocal(method: str) -> bool:
    return method.startswith("adafocal")


def _best_calibrators_sentence(found: Sequence[Evidence]) -> str:
    best: list[str] = []
    for each in found:
        phases = common_phases(each.runs)
        for method in each.methods:
            means = {phase: mean_of(each.of(method), phase, "ece_ew") for phase in phases}
            known = {phase: mean for phase, mean in means.items() if mean is not None}
            best += [lowest_of(known)] if known else []
    counted = Counter(best).most_common()
    if not counted:
        return ""
    if len(counted) == 1:
        return f"{PHASES[counted[0][0]]} has the lowest ECE after every loss.\n"
    named = listed([f"{PHASES[phase]} in {number}" for phase, number in counted])
    return f"No calibrator is best everywhere: of {len(best)} pairs of loss and task, ECE is lowest after {named}.\n"
