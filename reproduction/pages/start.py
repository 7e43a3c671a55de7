"""The first page: what to choose, how the experiments are run again, and where everything is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from reproduction.claims import findings
from reproduction.labels import (
    IMAGES,
    LITTLE,
    LITTLE_20,
    MORE,
    NETWORKS,
    NEWS,
    PHASES,
    SST,
    TEXT,
    TITLES,
    TRANSLATION,
    All,
    method_name,
    minutes,
    over_seeds,
    seeds_of,
    table,
)
from reproduction.pages import (
    after_training,
    claims,
    dynamics,
    human,
    images,
    out_of_distribution,
    suggest_gamma,
    text,
    translation,
)
from reproduction.result_files import Evidence, file_name

TITLE = "Results"
_PAGES = {
    "images.md": images.TITLE,
    "text.md": text.TITLE,
    "translation.md": translation.TITLE,
    "after_training.md": after_training.TITLE,
    "out_of_distribution.md": out_of_distribution.TITLE,
    "human.md": human.TITLE,
    "suggest_gamma.md": suggest_gamma.TITLE,
    "dynamics.md": dynamics.TITLE,
    "claims.md": claims.TITLE,
    "post_hoc.md": "Post-hoc calibration of published networks, every method",
}
# The losses that all experiments of the decision have.
_LOSSES = ("ce", "brier", "mmce", "ls-0.05", "fl-3", "flsd-53", "adafocal")
_CALIBRATORS = ("pre", "post", "ts-nll", "ts-ada", "fts", "fts-line", "fts-nll", "ets", "spline")
_FOUR = (LITTLE, LITTLE_20, NEWS, SST)
_OPENING = """\
What the losses and calibrators of the four papers do for real networks that two cores can train: images (CIFAR-10, a
fifth and nine tenths of the 25,000 training images of our copy), text (20 Newsgroups, SST) and a generated translation
task. These networks are small and were trained for minutes; they show directions, not the papers' numbers. The pages
were written by `python -m reproduction.pages docs/results` from the result files below, sentence by sentence.
"""


def page(evidence: All) -> str:
    """The whole page."""
    parts = [
        f"# {TITLE}\n",
        _OPENING,
        "## What to choose\n",
        _choices(evidence),
        _losses(evidence),
        _calibrators(evidence),
    ]
    parts += ["## Experiments\n", _experiments(evidence), "## Pages\n", _pages(evidence)]
    return "\n".join(part for part in parts if part)


def _choices(evidence: All) -> str:
    lines = [_retrain, _why, _after, _focal, _both, _unknown]
    sentences = [line(evidence) for line in lines]
    return "".join(f"- {sentence}\n" for sentence in sentences if sentence)


def _ranks(candidates: Sequence[str], rows: Iterable[Sequence[float]]) -> dict[str, float]:
    """The mean rank of each candidate over rows of their values, the lowest value first.

    >>> _ranks(["a", "b"], [[1.0, 2.0], [3.0, 1.0], [0.0, 4.0]])["a"]
    1.3333333333333333
    """
    places = [[1 + sum(other < value for other in row) for value in row] for row in rows]
    return {name: fmean(column) for name, column in zip(candidates, zip(*places, strict=True), strict=True)}


def _mean(each: Evidence, method: str, phase: str, measure: str) -> float:
    return fmean(over_seeds(each, method, phase, measure))


def _recorded(evidence: All, names: Iterable[str], methods: Sequence[str] = ()) -> list[Evidence]:
    return [evidence[name] for name in names if name in evidence and set(methods) <= set(evidence[name].methods)]


def _retrain(evidence: All) -> str:
    found = _recorded(evidence, _FOUR, _LOSSES)
    if not found:
        return ""
    ranks = _ranks(_LOSSES, ([_mean(each, name, "pre", "ece_em") for name in _LOSSES] for each in found))
    first, second = sorted(ranks, key=ranks.__getitem__)[:2]
    gain = [(_mean(each, "ce", "pre", "ece_em"), _mean(each, first, "pre", "ece_em")) for each in found]
    cost = [_mean(each, first, "pre", "error") - _mean(each, "ce", "pre", "error") for each in found]
    numbers = ", ".join(f"{before:.1f} to {after:.1f}" for before, after in gain)
    return (
        f"**You can train again, and want no calibrator:** {method_name(first)} has the best mean rank by AdaECE "
        f"({ranks[first]:.1f} of {len(_LOSSES)} losses; next {method_name(second)}, "
        f"{ranks[second]:.1f}). Against cross-entropy, "
        f"AdaECE goes from {numbers} % ({', '.join(TITLES[each.name] for each in found)}); "
        f"the error changes by {', '.join(f'{each:+.1f}' for each in cost)} points."
    )


def _why(evidence: All) -> str:
    """Whether focal loss helps depends on how sure cross-entropy is: its temperature says."""
    found = _recorded(evidence, (*IMAGES, *TEXT), ("ce", "fl-3"))
    if not found:
        return ""
    needed = {each.name: [_temperature(each, method) for method in ("ce", "fl-3")] for each in found}
    numbers = "; ".join(
        f"{TITLES[each.name]} {needed[each.name][0]:.2f} and {needed[each.name][1]:.2f}, AdaECE "
        f"{_mean(each, 'ce', 'pre', 'ece_em'):.1f} and {_mean(each, 'fl-3', 'pre', 'ece_em'):.1f} %"
        for each in found
    )
    helped = {each.name: _mean(each, "fl-3", "pre", "ece_em") < _mean(each, "ce", "pre", "ece_em") for each in found}
    sure = [needed[name][0] for name, better in helped.items() if better]
    modest = [needed[name][0] for name, better in helped.items() if not better]
    rule = ""
    if sure and modest and min(sure) > max(modest):
        rule = (
            f" FL-3 is the better one wherever cross-entropy needs {min(sure):.2f} or more, and the worse one wherever "
            f"it needs {max(modest):.2f} or less: fit a temperature to a cross-entropy network before you choose, or "
            "let `suggest_gamma` do it ([how well that works](suggest_gamma.md))."
        )
    return (
        "**Why that depends on your network:** focal loss takes confidence away whether or not there is too much of "
        f"it. The temperatures that cross-entropy and FL-3 need afterwards (above 1: too sure): {numbers}.{rule}"
    )


def _temperature(each: Evidence, method: str) -> float:
    return fmean(run.fits["ts-nll"]["temperature"] for run in each.of(method))


def _after(evidence: All) -> str:
    found = _recorded(evidence, (*IMAGES, *TEXT))
    if not found:
        return ""
    cases = [(each, method) for each in found for method in each.methods]
    by = {
        measure: _ranks(_CALIBRATORS, ([_mean(*case, phase, measure) for phase in _CALIBRATORS] for case in cases))
        for measure in ("ece_em", "nll")
    }
    best = {measure: min(ranks, key=ranks.__getitem__) for measure, ranks in by.items()}
    shown = {measure: f"{PHASES[best[measure]]} ({by[measure][best[measure]]:.1f})" for measure in by}
    plain = fmean(_mean(each, method, "ts-nll", "ece_em") for each, method in cases)
    before = fmean(_mean(each, method, "pre", "ece_em") for each, method in cases)
    return (
        f"**You have a trained network and some validation rows:** of {len(_CALIBRATORS)} "
        "ways, the best mean rank over "
        f"{len(cases)} pairs of loss and experiment by AdaECE has {shown['ece_em']}, by NLL "
        f"{shown['nll']}. One temperature "
        f"by NLL already takes the mean AdaECE from {before:.1f} to {plain:.1f} %. Searches "
        "with more freedom need more "
        "validation rows: see [after training](after_training.md)."
    )


def _focal(evidence: All) -> str:
    found = _recorded(evidence, (LITTLE, LITTLE_20, MORE))
    cases = [(each, method) for each in found for method in each.methods if method.startswith("fl-")]
    if not cases:
        return ""
    means = {
        phase: fmean(_mean(each, method, phase, "ece_ew") for each, method in cases)
        for phase in ("pre", "psi", "ts-nll")
    }
    better = sum(_mean(each, method, "psi", "ece_ew") < _mean(each, method, "pre", "ece_ew") for each, method in cases)
    return (
        f"**You trained with focal loss:** fit a temperature (mean ECE {means['ts-nll']:.1f} "
        f"%, as trained {means['pre']:.1f} %). "
        "The map Psi^gamma, which recovers the posterior of a network that reached the "
        f"minimum, gives {means['psi']:.1f} % and helps "
        f"in {better} of {len(cases)} cases; look at the validation split before you use it."
    )


def _both(evidence: All) -> str:
    found = _recorded(evidence, _FOUR, _LOSSES)
    if not found:
        return ""
    parts = []
    for each in found:
        value, method, phase = min(
            (_mean(each, method, phase, "ece_em"), method, phase) for method in _LOSSES for phase in _CALIBRATORS
        )
        parts.append(f"{TITLES[each.name]} {method_name(method)} with {PHASES[phase]}, {value:.2f} %")
    return f"**You can do both:** the lowest AdaECE of all pairs is {'; '.join(parts)}."


def _unknown(evidence: All) -> str:
    found = [each for each in _recorded(evidence, IMAGES, ("ce",)) if any(run.foreign for run in each.runs)]
    if not found:
        return ""
    shared = [method for method in found[0].methods if all(method in each.methods for each in found)]

    def auroc(each: Evidence, method: str) -> float:
        values = [phases["pre"]["auroc"] for run in each.of(method) for phases in run.foreign.values()]
        return 100 * fmean(values)

    means = {method: fmean(auroc(each, method) for each in found) for method in shared}
    best = max(means, key=means.__getitem__)
    return (
        "**You want to notice unknown inputs:** the mean AUROC by entropy is "
        f"{means['ce']:.1f} % with cross-entropy and "
        f"{means[best]:.1f} % with {method_name(best)}, the best of {len(shared)} losses; calibration is no detector "
        "([out of distribution](out_of_distribution.md))."
    )


def _losses(evidence: All) -> str:
    """AdaECE and error of every loss, side by side."""
    found = _recorded(evidence, _FOUR, _LOSSES)
    if not found:
        return ""
    rows = [
        [
            method_name(method),
            *(
                f"{_mean(each, method, 'pre', 'ece_em'):.1f} / {_mean(each, method, 'ts-nll', 'ece_em'):.1f}"
                for each in found
            ),
        ]
        for method in _LOSSES
    ]
    caption = "AdaECE in percent as trained / after temperature scaling by NLL, mean over seeds:\n\n"
    return caption + table(["loss", *(TITLES[each.name] for each in found)], rows)


def _calibrators(evidence: All) -> str:
    """AdaECE after every calibrator, mean over losses."""
    found = _recorded(evidence, (*IMAGES, *TEXT))
    if not found:
        return ""
    rows = [
        [
            PHASES[phase],
            *(f"{fmean(_mean(each, method, phase, 'ece_em') for method in each.methods):.1f}" for each in found),
        ]
        for phase in _CALIBRATORS
    ]
    sizes = [f"{TITLES[each.name]} ({each.sizes[1]:,} rows)" for each in found]
    caption = "AdaECE in percent after each calibrator, mean over losses and seeds (validation rows in brackets):\n\n"
    return caption + table(["calibrator", *sizes], rows)


def _experiments(evidence: All) -> str:
    rows = []
    for each in evidence.values():
        if each.name == NETWORKS:
            continue
        data = "" if each.name == TRANSLATION else " --data DIR"  # that corpus is made, not read
        command = f"`focalcal lab run {each.name} --method all --seeds {seeds_of(each)} --jobs 2{data}`"
        sizes = "/".join(f"{size:,}" for size in each.sizes)
        link = f"[{TITLES.get(each.name, each.name)}](../../reproduction/results/{file_name(each.name)})"
        rows.append([link, command, sizes, f"{len(each.methods)} x {seeds_of(each)}", f"{minutes(each) / 2:.0f}"])
    text = table(["experiment", "command", "train/val/test", "methods x seeds", "minutes on two cores"], rows, words=2)
    end = (
        "\nThe minutes are those of all runs, each on one thread, two at a time, as they were recorded, many of them "
        "beside other work; a quiet machine needs less. An "
        "interrupted command goes on when it is given again. Then `focalcal lab collect runs/RECIPE --human "
        "cifar10h.npz --out FILE` makes the result file (about ten seconds a run), and `python -m "
        "reproduction.published_networks DATA FILE` that of the published networks.\n"
    )
    return text + end


def _pages(evidence: All) -> str:
    counts = Counter(each.verdict for each in findings(evidence))
    said = ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in ("seen here", "seen in part", "not seen") if counts[verdict]
    )
    lines = [f"- [{title}]({file})" for file, title in _PAGES.items()]
    return (
        "\n".join(lines)
        + f"\n\nOf the papers' claims about trained networks: {said}; the others cannot be tested here.\n"
    )


def figures(evidence: All) -> dict[str, Any]:
    """None."""
    return {}
