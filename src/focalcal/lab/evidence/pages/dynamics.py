"""How calibration changes while networks train [mukhoti2020, Fig. 1-4 and 10; ghosh2022, Fig. 2, 5 and 34]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import StatisticsError, correlation, fmean
from typing import Any

from focalcal.core.figures import (
    BLACK,
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    PURPLE,
    SKY,
    VERMILION,
    legend,
    new_figure,
    percent,
    style,
)
from focalcal.lab.evidence.files import Evidence, RunEvidence
from focalcal.lab.evidence.pages.words import (
    LITTLE,
    LITTLE_20,
    TITLES,
    All,
    bullets,
    how_many,
    method_name,
    spread,
    table,
)

TITLE = "How calibration changes during training"

_RECIPES = (LITTLE, LITTLE_20)
# The losses that the papers plot together: gamma 0 to 3, those of confidence by bin, those of learned epochs.
_GAMMAS = ("ce", "fl-1", "fl-2", "fl-3")
_BINNED = ("ce", "fl-3", "flsd-53", "adafocal")
_LEARNED = ("ce", "flsd-53", "adafocal")
_GRADIENTS = (*_GAMMAS, "flsd-53", "adafocal")
# Series: what tables call them, what they are multiplied by, and the digits to show.
_SERIES = {
    "train_nll": ("train NLL", 1, 3),
    "test_nll": ("test NLL", 1, 3),
    "test_nll_correct": ("test NLL, correct rows", 1, 3),
    "test_nll_wrong": ("test NLL, wrong rows", 1, 3),
    "test_entropy_correct": ("entropy, correct rows", 1, 3),
    "test_entropy_wrong": ("entropy, wrong rows", 1, 3),
    "test_ece": ("test ECE, %", 100, 2),
    "weight_norm": ("weight norm", 1, 2),
    "feature_norm": ("feature norm", 1, 2),
    "gradient_norm": ("gradient norm", 1, 3),
    "train_top_share": ("train rows in the top bin, %", 100, 1),
}
_OVER_TRAINING = tuple(_SERIES)[:7]
# Colour, line and marker of each loss in all figures.
_LOOKS = {
    "ce": (VERMILION, "-", "o"),
    "fl-1": (SKY, "--", "s"),
    "fl-2": (BLUE, "-.", "^"),
    "fl-3": (PURPLE, ":", "D"),
    "flsd-53": (GREEN, (0, (6, 1.5)), "v"),
    "adafocal": (ORANGE, (0, (3, 1, 1, 1, 1, 1)), "P"),
}


def page(evidence: All) -> str:
    """The page: cross-entropy by epoch, then focal losses beside it, norms, bins, gammas and learned epochs."""
    there = _there(evidence)
    parts = [f"# {TITLE}", _summary(there), _left_out(there)]
    for section in _SECTIONS:
        told = {each.name: lines for each in there if (lines := list(section.tell(each)))}
        if told:
            parts += [f"## {section.heading}", section.source]
            parts += [part for name, lines in told.items() for part in (f"### {TITLES[name]}", *lines)]
            parts += list(_shown(section.drawings, there))
    parts += [_READING] if there else []
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def figures(evidence: All) -> dict[str, Any]:
    """The figures by file name: each topic for each recipe that has its series."""
    drawings = [drawing for section in _SECTIONS for drawing in section.drawings]
    there = _there(evidence)
    return {drawing.of(each): _draw(drawing, each) for drawing in drawings for each in there if drawing.has(each)}


# What there is.


def _there(evidence: All) -> list[Evidence]:
    """The recipes whose runs were monitored."""
    known = (evidence[name] for name in _RECIPES if name in evidence)
    return [each for each in known if any(_monitored(each, method) for method in each.methods)]


def _monitored(evidence: Evidence, method: str) -> list[RunEvidence]:
    return [run for run in evidence.of(method) if run.dynamics.get("epoch")]


def _present(evidence: Evidence, methods: Iterable[str]) -> list[str]:
    return [method for method in methods if _monitored(evidence, method)]


def _left_out(there: Sequence[Evidence]) -> str:
    """Recipes without records, and losses that are not in the others."""
    names = [each.name for each in there]
    lines = [f"Without records of training, and left out: {TITLES[name]}." for name in _RECIPES if name not in names]
    for each in there:
        missing = [method_name(method) for method in _GRADIENTS if not _monitored(each, method)]
        lines += [f"{TITLES[each.name]} has no records of {', '.join(missing)}."] if missing else []
    return " ".join(lines)


def _values(run: RunEvidence, name: str) -> dict[int, float]:
    """A series by the number of epochs that were trained; the monitor's first epoch is 0."""
    epochs, values = run.dynamics["epoch"], run.dynamics.get(name) or []
    found = zip(epochs, values, strict=False)
    return {epoch + 1: value for epoch, value in found if value is not None}


def _drop(evidence: Evidence) -> int | None:
    """After how many epochs the learning rate falls for the first time."""
    stones = _stones(evidence)
    return stones[0] if stones else None


def _stones(evidence: Evidence) -> list[int]:
    return list(evidence.recipe.get("training", {}).get("milestones", []))


def _moments(run: RunEvidence, name: str, drop: int) -> list[float | None]:
    """A series at the first record, the last one before the drop, the first one after it, and the last one."""
    values = _values(run, name)
    before = [value for done, value in values.items() if done <= drop]
    after = [value for done, value in values.items() if done > drop]
    found = ([*before, *after][:1], before[-1:], after[:1], after[-1:])
    return [each[0] if each else None for each in found]


def _rise(run: RunEvidence, name: str, drop: int) -> float | None:
    """How much a series changes from the first record after the drop to the last one."""
    after = [value for done, value in _values(run, name).items() if done > drop]
    return after[-1] - after[0] if len(after) > 1 else None


def _ends(run: RunEvidence, name: str) -> tuple[float, float] | None:
    """A series at the first and at the last record."""
    values = list(_values(run, name).values())
    return (values[0], values[-1]) if values else None


def _last(evidence: Evidence, method: str, name: str, place: int = -1) -> list[float]:
    """A series of every seed at the last record (or at the first, `place` 0), in the units of tables."""
    ends = (_ends(run, name) for run in _monitored(evidence, method))
    return [_SERIES[name][1] * each[place] for each in ends if each is not None]


def _with_ce(evidence: Evidence, method: str) -> list[tuple[RunEvidence, RunEvidence]]:
    """The runs of a method, each with the cross-entropy run of its seed."""
    plain = {run.seed: run for run in _monitored(evidence, "ce")}
    return [(plain[run.seed], run) for run in _monitored(evidence, method) if run.seed in plain]


# Words.


def _from_to(values: Sequence[tuple[float, float]], digits: int = 3) -> str:
    """Two numbers of every run, averaged: "0.812 to 0.935 on average"."""
    start, end = (fmean(column) for column in zip(*values, strict=True))
    return f"{start:.{digits}f} to {end:.{digits}f} on average"


def _order(means: dict[str, float]) -> str:
    """Methods by a number, the largest first.

    >>> _order({"ce": 1.0, "fl-1": 2.0})
    'FL-1 > cross-entropy'
    """
    return " > ".join(method_name(method) for method in sorted(means, key=lambda each: -means[each]))


# The page's first sentences.


def _summary(there: Sequence[Evidence]) -> str:
    if not there:
        return "There is no result file with records of training yet."
    sentences = [_overfitting([run for each in there for run in _with_drop(each, "ce")])]
    pairs = [pair for each in there for pair in _beside_ce(each, partial(_end, name="test_nll_wrong"))]
    if pairs:
        sentences.append(
            "At the end, the NLL of wrong test rows is lower with focal loss (gamma 1, 2, 3) than with cross-entropy "
            f"of the same seed in {_risen(pairs, -1)} ({_both(pairs)})."
        )
    return " ".join(sentence for sentence in sentences if sentence)


def _with_drop(evidence: Evidence, method: str) -> list[tuple[RunEvidence, int]]:
    """The runs of a method, each with the epoch of its first drop of the learning rate, if there is one."""
    drop = _drop(evidence)
    return [] if drop is None else [(run, drop) for run in _monitored(evidence, method)]


def _overfitting(runs: Sequence[tuple[RunEvidence, int]]) -> str:
    rises = [(_rise(run, "test_nll", drop), _rise(run, "train_nll", drop)) for run, drop in runs]
    known = [(test, train) for test, train in rises if test is not None and train is not None]
    if not known:
        return ""
    return (
        "After the first drop of the learning rate, the test NLL of cross-entropy rises in "
        f"{how_many([test > 0 for test, _ in known])}, and its train NLL falls in "
        f"{how_many([train < 0 for _, train in known])}."
    )


# Cross-entropy by epoch.


def _cross_entropy(evidence: Evidence) -> Iterator[str]:
    runs, drop = _monitored(evidence, "ce"), _drop(evidence)
    if not runs:
        return
    if drop is None:
        yield "The learning rate has no drop here, so nothing is compared before and after it."
        return
    yield table(
        ["cross-entropy", "first record", "last before the drop", "first after it", "last record", "rises after it"],
        (row for name in _OVER_TRAINING if (row := _moments_row(runs, name, drop))),
    )
    yield bullets(_cross_entropy_sentences(runs, drop))


def _moments_row(runs: Sequence[RunEvidence], name: str, drop: int) -> list[str]:
    heading, factor, digits = _SERIES[name]
    columns = zip(*(_moments(run, name, drop) for run in runs), strict=True)
    columns_there = [[factor * value for value in column if value is not None] for column in columns]
    if not any(columns_there):
        return []
    rises = [rise > 0 for run in runs if (rise := _rise(run, name, drop)) is not None]
    return [heading, *(spread(column, digits) for column in columns_there), how_many(rises) if rises else ""]


def _cross_entropy_sentences(runs: Sequence[RunEvidence], drop: int) -> Iterator[str]:
    pairs = [(run, drop) for run in runs]
    test, train = (_after(pairs, name) for name in ("test_nll", "train_nll"))
    if test and train:
        yield (
            f"From the first record after the drop to the last one, test NLL rises in {_risen(test)} "
            f"({_from_to(test)}) and train NLL falls in {_risen(train, -1)} ({_from_to(train)})."
        )
    if only := _in_wrong_only(pairs):
        yield only
    if both := _ece_with_nll(pairs):
        yield both
    for rows in ("correct", "wrong"):
        ends = [each for run in runs if (each := _ends(run, f"test_entropy_{rows}"))]
        if ends:
            yield (
                f"The entropy of {rows} test rows is lower at the last record than at the first in "
                f"{_risen(ends, -1)} ({_from_to(ends)}), and lower at every record than at the one before in "
                f"{how_many([_falls_throughout(run, f'test_entropy_{rows}') for run in runs])}."
            )


def _after(runs: Sequence[tuple[RunEvidence, int]], name: str) -> list[tuple[float, float]]:
    """A series at the first record after the drop and at the last one, of every run that has two."""
    moments = (_moments(run, name, drop)[2:] for run, drop in runs if _rise(run, name, drop) is not None)
    return [(start, end) for start, end in moments if start is not None and end is not None]


def _risen(pairs: Sequence[tuple[float, float]], sign: int = 1) -> str:
    return how_many([sign * (end - start) > 0 for start, end in pairs])


def _in_wrong_only(runs: Sequence[tuple[RunEvidence, int]]) -> str:
    names = ("test_nll_wrong", "test_nll_correct")
    found = [[_rise(run, name, drop) for name in names] for run, drop in runs]
    known = [(wrong, right) for wrong, right in found if wrong is not None and right is not None]
    if not known:
        return ""
    wrong, right = (_after(runs, name) for name in names)
    return (
        f"NLL rises on wrong test rows ({_from_to(wrong)}) and not on correct ones ({_from_to(right)}) in "
        f"{how_many([rise > 0 >= other for rise, other in known])}."
    )


def _ece_with_nll(runs: Sequence[tuple[RunEvidence, int]]) -> str:
    found = [(_rise(run, "test_ece", drop), _rise(run, "test_nll", drop)) for run, drop in runs]
    known = [(ece, nll) for ece, nll in found if ece is not None and nll is not None]
    if not known:
        return ""
    shares = [(100 * start, 100 * end) for start, end in _after(runs, "test_ece")]
    return (
        f"Test ECE rises in {how_many([ece > 0 for ece, _ in known])} ({_from_to(shares, 2)}, in percent), and "
        f"together with test NLL in {how_many([ece > 0 and nll > 0 for ece, nll in known])}."
    )


def _falls_throughout(run: RunEvidence, name: str) -> bool:
    values = list(_values(run, name).values())
    return all(after < before for before, after in pairwise(values))


# Focal loss beside cross-entropy.


def _focal(evidence: Evidence) -> Iterator[str]:
    methods = _present(evidence, _GAMMAS)
    if not methods:
        return
    yield table(
        ["loss", "test NLL", "its rise", "wrong rows", "its rise", "correct rows", "entropy, wrong"],
        (_focal_row(evidence, method) for method in methods),
    )
    sentences = list(_focal_sentences(evidence))
    if sentences:
        yield bullets(sentences)


def _focal_row(evidence: Evidence, method: str) -> list[str]:
    columns = (
        _last(evidence, method, "test_nll"),
        _rises(evidence, method, "test_nll"),
        _last(evidence, method, "test_nll_wrong"),
        _rises(evidence, method, "test_nll_wrong"),
        _last(evidence, method, "test_nll_correct"),
        _last(evidence, method, "test_entropy_wrong"),
    )
    return [method_name(method), *(spread(column, 3) for column in columns)]


def _rises(evidence: Evidence, method: str, name: str) -> list[float]:
    rises = (_rise(run, name, drop) for run, drop in _with_drop(evidence, method))
    return [rise for rise in rises if rise is not None]


def _focal_sentences(evidence: Evidence) -> Iterator[str]:
    """What the paper says of focal loss against cross-entropy of the same seed."""
    claims = (
        ("test_nll_wrong", "NLL of wrong rows", "lower", -1),
        ("test_entropy_wrong", "Entropy of wrong rows", "higher", 1),
        ("test_nll_correct", "NLL of correct rows", "higher", 1),
    )
    for name, heading, word, sign in claims:
        if pairs := _beside_ce(evidence, partial(_end, name=name)):
            yield f"{heading} at the end, focal loss: {word} in {_risen(pairs, sign)} ({_both(pairs)})."
    drop = _drop(evidence)
    if drop is not None and (pairs := _beside_ce(evidence, partial(_rise, name="test_nll_wrong", drop=drop))):
        yield f"Rise of the NLL of wrong rows after the drop, focal loss: less in {_risen(pairs, -1)} ({_both(pairs)})."


def _end(run: RunEvidence, name: str) -> float | None:
    ends = _ends(run, name)
    return None if ends is None else ends[1]


def _beside_ce(evidence: Evidence, value: Callable[[RunEvidence], float | None]) -> list[tuple[float, float]]:
    """A number of cross-entropy and of focal loss with the same seed, of every focal run that has both."""
    runs = (pair for method in _GAMMAS[1:] for pair in _with_ce(evidence, method))
    found = ((value(plain), value(run)) for plain, run in runs)
    return [(plain, focal) for plain, focal in found if plain is not None and focal is not None]


def _both(pairs: Sequence[tuple[float, float]], digits: int = 3) -> str:
    plain, focal = (fmean(column) for column in zip(*pairs, strict=True))
    return f"{focal:.{digits}f} against {plain:.{digits}f} on average"


# Norms.


def _norms(evidence: Evidence) -> Iterator[str]:
    methods = _present(evidence, _GRADIENTS)
    if not methods:
        return
    yield table(
        [
            "loss",
            "weights, first",
            "weights, last",
            "features, first",
            "features, last",
            "gradient, last",
            "top bin, %",
        ],
        (_norm_row(evidence, method) for method in methods),
    )
    sentences = [*_order_sentences(evidence, "weight_norm"), *_order_sentences(evidence, "feature_norm")]
    sentences += _top_sentences(evidence)
    if sentences:
        yield bullets(sentences)


def _norm_row(evidence: Evidence, method: str) -> list[str]:
    both = [(name, place) for name in ("weight_norm", "feature_norm") for place in (0, -1)]
    columns = [*both, ("gradient_norm", -1), ("train_top_share", -1)]
    found = (spread(_last(evidence, method, name, place), _SERIES[name][2]) for name, place in columns)
    return [method_name(method), *found]


def _order_sentences(evidence: Evidence, name: str) -> Iterator[str]:
    """The order of losses by a norm at both ends, and how many seeds have the paper's."""
    told = []
    for place, words in ((0, "at the first record"), (-1, "at the last one")):
        found = {method: fmean(values) for method in _GAMMAS if (values := _last(evidence, method, name, place))}
        seeds = [order == list(_GAMMAS) for order in _orders(evidence, name, place)]
        if len(found) > 1:
            told.append(
                f"{_order(found)} {words}" + (f" (the paper's order in {how_many(seeds, 'seeds')})" if seeds else "")
            )
    if told:
        yield f"{_SERIES[name][0].capitalize()} by the mean: {', '.join(told)}."
    if pairs := _beside_ce(evidence, lambda run: ends[0] if (ends := _ends(run, name)) else None):
        yield (
            f"{_SERIES[name][0].capitalize()} at the first record, focal loss: above cross-entropy of the same seed in "
            f"{_risen(pairs)} ({_both(pairs, 2)})."
        )


def _orders(evidence: Evidence, name: str, place: int) -> list[list[str]]:
    """The losses by a norm, the largest first, of every seed that has all of them."""
    by_seed: dict[int, dict[str, float]] = {}
    for method in _GAMMAS:
        for run in _monitored(evidence, method):
            if ends := _ends(run, name):
                by_seed.setdefault(run.seed, {})[method] = ends[place]
    complete = (found for _, found in sorted(by_seed.items()) if len(found) == len(_GAMMAS))
    return [sorted(found, key=lambda each: -found[each]) for found in complete]


def _top_sentences(evidence: Evidence) -> Iterator[str]:
    shares = {method: fmean(values) for method in _GRADIENTS if (values := _last(evidence, method, "train_top_share"))}
    if shares:
        told = ", ".join(f"{method_name(method)} {share:.1f} %" for method, share in shares.items())
        yield f"Training rows in the bin of the largest confidences at the last record, on average: {told}."


# Training and validation confidence by bin.


def _bins(evidence: Evidence) -> Iterator[str]:
    methods = [method for method in _present(evidence, _BINNED) if any(map(_binned, _monitored(evidence, method)))]
    if not methods:
        return
    yield table(
        ["loss", "correlation", "within bins", "validation - training, points", "empty bins"],
        (_bins_row(_monitored(evidence, method), method) for method in methods),
    )
    if sentence := _same_direction(evidence):
        yield bullets([sentence])


def _binned(run: RunEvidence) -> list[tuple[int, int, float, float]]:
    """Epochs trained, bin, training confidence of the true class and validation confidence, where both are there.

    The monitor gives 0 to bins without training rows; they are left out.
    """
    bins, epochs = run.dynamics.get("bins") or {}, run.dynamics["epoch"]
    found = []
    for epoch, train, val in zip(epochs, bins.get("train_true") or [], bins.get("val_confidence") or [], strict=False):
        for place, (left, right) in enumerate(zip(train or [], val or [], strict=False)):
            if left and right is not None:
                found.append((epoch + 1, place, left, right))
    return found


def _bins_row(runs: Sequence[RunEvidence], method: str) -> list[str]:
    found = [points for run in runs if (points := _binned(run))]
    overall = [each for points in found if (each := _correlation([point[2:] for point in points])) is not None]
    within = [each for points in found if (each := _correlation(_without_bins(points))) is not None]
    gaps = [100 * fmean(right - left for _, _, left, right in points) for points in found]
    return [method_name(method), spread(overall), spread(within), spread(gaps, 1), str(sum(map(_empty, runs)))]


def _empty(run: RunEvidence) -> int:
    """Bins without training rows, over all records."""
    kept = (run.dynamics.get("bins") or {}).get("train_true") or []
    return sum(value == 0 for record in kept for value in record or [])


def _correlation(points: Sequence[tuple[float, float]]) -> float | None:
    try:
        return correlation(*zip(*points, strict=True)) if len(points) > 1 else None
    except StatisticsError:  # all alike
        return None


def _without_bins(points: Sequence[tuple[int, int, float, float]]) -> list[tuple[float, float]]:
    """Confidences without the mean of their bin: what is left is the change over epochs."""
    means = {}
    for place in {point[1] for point in points}:
        members = [point[2:] for point in points if point[1] == place]
        means[place] = tuple(fmean(column) for column in zip(*members, strict=True))
    return [(left - means[place][0], right - means[place][1]) for _, place, left, right in points]


def _same_direction(evidence: Evidence) -> str:
    """Whether both confidences fall when gamma goes from 0 to 3 [ghosh2022, Sec. 4]."""
    falls = []
    for plain, run in _with_ce(evidence, "fl-3"):
        before, after = _last_bins(plain), _last_bins(run)
        falls += [(before[place], after[place]) for place in before if place in after]
    if not falls:
        return ""
    both = [after[0] < before[0] and after[1] < before[1] for before, after in falls]
    same = [(after[0] < before[0]) == (after[1] < before[1]) for before, after in falls]
    return (
        "From cross-entropy to FL-3 of the same seed, at the last record: training and validation confidence both "
        f"fall in {how_many(both, 'bins')}, and change in the same direction in {how_many(same, 'bins')}."
    )


def _last_bins(run: RunEvidence) -> dict[int, tuple[float, float]]:
    points = _binned(run)
    last = max((point[0] for point in points), default=0)
    return {place: (left, right) for done, place, left, right in points if done == last}


# Gammas of AdaFocal.


def _gammas(evidence: Evidence) -> Iterator[str]:
    runs = [(run, values[-1]) for run in _monitored(evidence, "adafocal") if (values := _gamma_records(run))]
    if not runs:
        return
    number = min(len(values) for _, values in runs)
    shown = _some_bins(number)
    yield table(
        ["AdaFocal, last record", *(f"bin {place}" for place in shown)],
        [["gamma", *(spread([values[place] for _, values in runs]) for place in shown)]],
    )
    everything = [value for _, values in runs for value in values]
    yield bullets(
        [
            f"Gammas at the last record lie between {min(everything):.2f} and {max(everything):.2f}; below 0, which is "
            f"inverse focal loss, in {how_many([value < 0 for value in everything], 'bins')}.",
            f"Gamma of the first bin is above that of the last in {how_many([vs[0] > vs[-1] for _, vs in runs])}.",
        ]
    )


def _gamma_records(run: RunEvidence) -> list[list[float]]:
    """The gammas of every record that has one in each bin."""
    kept = (run.dynamics.get("bins") or {}).get("gamma") or []
    return [values for values in kept if values and len(values) > 1 and None not in values]


# Where the bins lie that are shown, as shares of all bins.
_SHARES = (0, 0.25, 0.5, 0.75, 1)


def _some_bins(number: int) -> list[int]:
    """The first, the last, the middle bin, and those between.

    >>> _some_bins(15), _some_bins(2)
    ([0, 4, 7, 10, 14], [0, 1])
    """
    return sorted({round((number - 1) * share) for share in _SHARES})


# Largest logits by learned epoch.


def _learned(evidence: Evidence) -> Iterator[str]:
    groups = {method: found for method in _present(evidence, _LEARNED) if (found := _groups(evidence, method))}
    starts = sorted({start for found in groups.values() for start in found})
    if len(starts) < 2:
        return
    yield table(
        ["loss", *(f"epoch {name}" for name in _spans(starts)), "spread", "spread / first"],
        (_learned_row(evidence, method, starts) for method in groups),
    )
    spreads = {method: fmean(gaps) for method in groups if (gaps := _spreads(evidence, method))}
    shares = {method: fmean(gaps) for method in groups if (gaps := _spreads(evidence, method, relative=True))}
    if len(spreads) > 1:
        yield bullets(
            [
                f"Spread between the first and the last group, on average: {_order(spreads)}.",
                f"The same as a share of the first group's mean: {_order(shares)}.",
            ]
        )


def _groups(evidence: Evidence, method: str) -> dict[int, list[float]]:
    """The mean largest logits of every seed by the epoch at which a group of learned rows begins."""
    found: dict[int, list[float]] = {}
    for run in _monitored(evidence, method):
        for start, value in _run_groups(run).items():
            found.setdefault(start, []).append(value)
    return found


def _run_groups(run: RunEvidence) -> dict[int, float]:
    learned = run.dynamics.get("learned") or {}
    pairs = zip(learned.get("since", []), learned.get("mean_max_logit", []), strict=False)
    return {start: value for start, value in pairs if start is not None and value is not None}


def _spans(starts: Sequence[int]) -> list[str]:
    """Groups by their epochs, counted from 1.

    >>> _spans([0, 3, 7])
    ['1 to 3', '4 to 7', 'from 8']
    """
    ends = [f"{start + 1} to {end}" for start, end in pairwise(starts)]
    return [*ends, f"from {starts[-1] + 1}"]


def _spreads(evidence: Evidence, method: str, *, relative: bool = False) -> list[float]:
    """Of every seed, the mean of the first group above that of the last, or its share of the former."""
    found = []
    for run in _monitored(evidence, method):
        groups = _run_groups(run)
        if len(groups) > 1:
            first, last = groups[min(groups)], groups[max(groups)]
            found.append((first - last) / (first if relative else 1))
    return found


def _learned_row(evidence: Evidence, method: str, starts: Sequence[int]) -> list[str]:
    groups = _groups(evidence, method)
    gaps = (_spreads(evidence, method), _spreads(evidence, method, relative=True))
    return [method_name(method), *(spread(groups.get(start, [])) for start in starts), *map(spread, gaps)]


# Figures.


@dataclass(frozen=True)
class _Line:
    """A line of a panel: a number of a loss's runs by epochs trained, its name and its colour, line and marker."""

    method: str
    values: Callable[[RunEvidence], dict[int, float]]
    name: str
    look: tuple[Any, ...]

    def over_seeds(self, evidence: Evidence) -> dict[int, list[float]]:
        """The number of every seed by epochs trained."""
        found: dict[int, list[float]] = {}
        for run in _monitored(evidence, self.method):
            for done, value in self.values(run).items():
                found.setdefault(done, []).append(value)
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Drawing:
    """A figure of a recipe: panels from top to bottom by the labels of their vertical axes, and its words."""

    stem: str
    panels: dict[str, list[_Line]]
    alt: str
    caption: str
    columns: int = 2

    def of(self, evidence: Evidence) -> str:
        """Its file name for a recipe."""
        return f"dynamics_{self.stem}_{evidence.name.rpartition('/')[2]}"

    def has(self, evidence: Evidence) -> bool:
        """Whether there is something to draw."""
        return any(line.over_seeds(evidence) for lines in self.panels.values() for line in lines)


def _series(method: str, name: str, words: str, look: tuple[Any, ...]) -> _Line:
    return _Line(method, partial(_values, name=name), words, look)


def _by_loss(methods: Iterable[str], name: str) -> list[_Line]:
    return [_series(method, name, method_name(method), _LOOKS[method]) for method in methods]


def _by_outcome(method: str, looks: dict[str, tuple[str, tuple[Any, ...]]]) -> list[_Line]:
    return [_series(method, name, words, look) for name, (words, look) in looks.items()]


def _bin_values(run: RunEvidence, name: str, share: float) -> dict[int, float]:
    """A number of the bin at a share of all bins; those without training rows have none."""
    kept = (run.dynamics.get("bins") or {}).get(name) or []
    found = {
        epoch + 1: values[round((len(values) - 1) * share)]
        for epoch, values in zip(run.dynamics["epoch"], kept, strict=False)
        if values and len(values) > 1
    }
    empty = (None, 0) if name == "train_true" else (None,)
    return {done: value for done, value in found.items() if value not in empty}


def _gap_values(run: RunEvidence, share: float) -> dict[int, float]:
    """Validation confidence minus accuracy of the bin at a share of all bins."""
    confidence, accuracy = (_bin_values(run, name, share) for name in ("val_confidence", "val_accuracy"))
    return {done: value - accuracy[done] for done, value in confidence.items() if done in accuracy}


def _correspondence(share: float) -> list[_Line]:
    """Training confidence, drawn through, and validation confidence, dashed."""
    lines = []
    for method in _BINNED:
        colour, _, marker = _LOOKS[method]
        for name, line, words in (("train_true", "-", "training"), ("val_confidence", "--", "validation")):
            values = partial(_bin_values, name=name, share=share)
            lines.append(_Line(method, values, f"{method_name(method)}, {words}", (colour, line, marker)))
    return lines


def _by_bin(values: Callable[..., dict[int, float]]) -> list[_Line]:
    looks = zip(PALETTE, ("-", "--", "-.", ":", (0, (6, 1.5))), "os^Dv", strict=False)
    names = ("first bin", "bin at a quarter", "middle bin", "bin at three quarters", "last bin")
    made = zip(_SHARES, names, looks, strict=True)
    return [_Line("adafocal", partial(values, share=share), name, look) for share, name, look in made]


def _draw(drawing: _Drawing, evidence: Evidence) -> Any:
    """Means over seeds, with a band from the lowest to the highest seed."""
    figure = new_figure(COLUMN, 0.75 + 1.1 * len(drawing.panels) + 0.15 * _legend_rows(drawing))
    axes = figure.subplots(len(drawing.panels), sharex=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for ax, (label, lines) in zip(axes, drawing.panels.items(), strict=True):
        for line in lines:
            if found := line.over_seeds(evidence):
                handles.setdefault(line.name, _draw_line(ax, found, line.look))
        for stone in _stones(evidence):
            ax.axvline(stone, color=GREY, linewidth=0.7, linestyle=(0, (1, 1.5)), zorder=0)
        if label.startswith(("ECE", "confidence", "gap")):
            percent(ax.yaxis, 4)
        if label.startswith("gap"):
            ax.axhline(0, color=GREY, linewidth=0.7, zorder=0)
        title, xlabel = TITLES[evidence.name] if ax is axes[0] else "", "epochs trained" if ax is axes[-1] else ""
        style(ax, title=title, xlabel=xlabel, ylabel=label)
    figure.align_ylabels(axes)
    legend(axes[-1], list(handles.values()), list(handles), under=True, columns=drawing.columns)
    return figure


def _legend_rows(drawing: _Drawing) -> int:
    names = {line.name for lines in drawing.panels.values() for line in lines}
    return -(-len(names) // drawing.columns)


def _draw_line(ax: Any, found: dict[int, list[float]], look: tuple[Any, ...]) -> Any:
    colour, line, marker = look
    low, high = ([end(values) for values in found.values()] for end in (min, max))
    ax.fill_between(list(found), low, high, color=colour, alpha=0.15, linewidth=0)
    means = [fmean(values) for values in found.values()]
    (handle,) = ax.plot(list(found), means, color=colour, linestyle=line, linewidth=1.1, marker=marker, markersize=2.6)
    return handle


def _shown(drawings: Iterable[_Drawing], there: Sequence[Evidence]) -> Iterator[str]:
    """The images of a topic, those of the recipes beside each other, and what they show."""
    for drawing in drawings:
        images = [
            f"![{drawing.alt}: {TITLES[each.name]}](images/{drawing.of(each)}.svg)"
            for each in there
            if drawing.has(each)
        ]
        if images:
            yield "\n".join(images)
            yield f"{drawing.caption} {_MARKS}"


_MARKS = (
    "Lines are means over seeds, bands reach from the lowest to the highest seed, dotted lines mark drops of the "
    "learning rate."
)

_OVERFITTING = _Drawing(
    "cross_entropy",
    {
        "NLL": _by_outcome(
            "ce", {"train_nll": ("train NLL", (BLUE, "--", "s")), "test_nll": ("test NLL", (VERMILION, "-", "o"))}
        ),
        "test NLL": _by_outcome(
            "ce",
            {
                "test_nll_correct": ("correct test rows", (GREEN, "-.", "^")),
                "test_nll_wrong": ("wrong test rows", (PURPLE, ":", "D")),
            },
        ),
        "ECE": _by_outcome("ce", {"test_ece": ("test ECE", (BLACK, "-", "v"))}),
    },
    "Train and test NLL, test NLL of correct and wrong rows, and test ECE of cross-entropy by epoch",
    "Cross-entropy by epoch, after mukhoti2020 Fig. 2.",
)
_FOCAL = _Drawing(
    "focal",
    {
        "test NLL": _by_loss(_GAMMAS, "test_nll"),
        "NLL, wrong": _by_loss(_GAMMAS, "test_nll_wrong"),
        "entropy, wrong": _by_loss(_GAMMAS, "test_entropy_wrong"),
    },
    "Test NLL, NLL of wrong test rows and entropy of wrong test rows by epoch for cross-entropy and focal losses",
    "Cross-entropy and focal loss with gamma 1, 2, 3 by epoch, after mukhoti2020 Fig. 3(a), (c) and (d).",
)
_NORMS = _Drawing(
    "norms",
    {"weight norm": _by_loss(_GAMMAS, "weight_norm"), "feature norm": _by_loss(_GAMMAS, "feature_norm")},
    "Norm of the last layer's weights and of its inputs by epoch for cross-entropy and focal losses",
    "Norms of the last layer's weights and of its inputs, after mukhoti2020 Fig. 3(e) and Fig. 10.",
)
_GRADIENT = _Drawing(
    "gradient",
    {"gradient norm": _by_loss(_GRADIENTS, "gradient_norm")},
    "Mean norm of the last layer's gradient of one training sample by epoch for each loss",
    "The mean norm over training samples of the last layer's gradient, whose histograms are in mukhoti2020 Fig. 4.",
)
_CONFIDENCE = _Drawing(
    "confidence",
    {
        f"confidence,\n{words} bin": _correspondence(share)
        for share, words in ((0, "first"), (0.5, "middle"), (1, "last"))
    },
    "Training confidence of the true class and validation confidence in the first, middle and last validation bin by "
    "epoch",
    "Training confidence of the true class and validation confidence by bin, after ghosh2022 Fig. 2.",
)
_GAMMA = _Drawing(
    "gamma",
    {"gap": _by_bin(_gap_values), "gamma": _by_bin(partial(_bin_values, name="gamma"))},
    "Validation confidence minus accuracy, and gamma, of five validation bins by epoch with AdaFocal",
    "AdaFocal: validation confidence minus accuracy, and the gamma that each epoch began with, after ghosh2022 Fig. 5.",
)


@dataclass(frozen=True)
class _Section:
    """A topic: its heading, where the papers have it, what is told of each recipe, and its figures."""

    heading: str
    source: str
    tell: Callable[[Evidence], Iterator[str]]
    drawings: tuple[_Drawing, ...] = ()


_SECTIONS = (
    _Section(
        "Cross-entropy by epoch",
        "mukhoti2020 Fig. 2: after the first drop of the learning rate, test NLL and ECE rise while train NLL falls, "
        "the rise comes from wrong rows only, and entropy falls throughout.",
        _cross_entropy,
        (_OVERFITTING,),
    ),
    _Section(
        "Focal loss beside cross-entropy",
        "mukhoti2020 Fig. 3(a) to (d): with focal loss the NLL of wrong rows rises less, and entropy of wrong rows "
        'and NLL of correct rows are higher. All columns are of the test split at the last record; "its rise" is the '
        "change of the column before it since the first record after the drop. Below the table, runs of focal loss "
        "(gamma 1, 2, 3) are compared with the cross-entropy run of the same seed.",
        _focal,
        (_FOCAL,),
    ),
    _Section(
        "Norms of weights, features and gradients",
        "mukhoti2020 Fig. 3(e) and 10: weight norms of focal losses start above that of cross-entropy and end in the "
        "order cross-entropy > FL-1 > FL-2 > FL-3, which feature norms have throughout. Fig. 1: all training rows "
        "move into the bin of the largest confidences.",
        _norms,
        (_NORMS, _GRADIENT),
    ),
    _Section(
        "Training and validation confidence by bin",
        "ghosh2022 Fig. 2: in a validation bin, the training confidence of the true class and the validation "
        "confidence move together. The correlation is over all bins and records of a run; within bins, the mean of "
        "each bin is taken off first.",
        _bins,
        (_CONFIDENCE,),
    ),
    _Section(
        "Gammas of AdaFocal",
        "ghosh2022 Fig. 5(a): on CIFAR-10, gamma settles near 1 in high bins and near 20 in low bins, and stays "
        "above 0.",
        _gammas,
        (_GAMMA,),
    ),
    _Section(
        "Largest logits by learned epoch",
        "ghosh2022 App. M, Fig. 34: with AdaFocal, training rows learned early and late differ more in their largest "
        "logit than with cross-entropy or FLSD-53. A group are the rows that are right since an epoch in its span; "
        "the numbers are means of the largest logit at the end, and the spread is the first group's minus the last "
        "one's.",
        _learned,
    ),
)

_READING = """## How to read this page

Numbers are means over seeds ± their standard deviation; NLL and entropy are in nats, ECE has 15 bins of equal width.
A record is made every few epochs. Training numbers are running means over the steps of the recorded epoch, while the
network changes and with batch statistics; test numbers are of the network at the epoch's end. So train and test NLL
are not of the same weights.

"After the drop" compares the first record after it with the last one, and not with a record before it, because the
smaller learning rate by itself moves every number at once. Bins are of equal mass on the validation split, counted
from 0. Training rows are put between the edges of the validation bins, so both confidences of a bin lie between the
same edges, and a correlation over bins is high by construction; that within bins says more, but the edges move with
the validation confidence too. Bins without training rows are left out. Feature norms are those of test rows; the
paper has training rows. The top bin is one of 15; the paper's Fig. 1 has 25. Gradients are of each loss itself: a
loss that is smaller by a factor has smaller gradients by the same factor.
"""
