"""Telling images of other sets from test images by the network's uncertainty [ghosh2022, Sec. 6, App. K, Table 8]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from focalcal.drawing import COLUMN, GREY, PALETTE, legend, new_figure, percent, rows_of_names, style
from reproduction.labels import IMAGES, TITLES, All, bullets, how_many, method_name, spread, table
from reproduction.result_files import Evidence, RunEvidence

TITLE = "Out-of-distribution detection"

# What pages call the sets, and what they are.
_SETS = {"cifar100": "CIFAR-100", "mnist": "MNIST", "cifar10-noise": "noise"}
_ABOUT = {
    "cifar100": "CIFAR-100 has the test images of 100 other classes",
    "mnist": "MNIST has digits, in 32 by 32 pixels and three equal channels",
    "cifar10-noise": "noise has CIFAR-10 test images with the Gaussian noise of CIFAR-10-C at level 5",
}
_PHASES = {"pre": "", "post": ", TS"}
# The largest change of an AUROC by temperature scaling in ghosh2022 Table 8, in points: cross-entropy, ResNet-110.
_LARGEST_PUBLISHED = 2.4
_RIVALS = ("fl-3", "flsd-53")
# The tables of each recipe: measure, words, and which mean is the best.
_TABLES = (
    ("auroc", "AUROC by entropy, in percent, higher is better:", max),
    ("fpr95", "FPR95 by entropy, in percent, lower is better:", min),
)
_STEM = "out_of_distribution_auroc"


@dataclass(frozen=True)
class _Case:
    """One run against one set, in percent: AUROC by entropy before scaling, after it, and by confidence before it."""

    recipe: str
    name: str
    run: RunEvidence
    pre: float
    post: float | None
    confidence: float | None


def page(evidence: All) -> str:
    """The page: the best loss of each set, what scaling changes, AdaFocal against focal losses, and all tables."""
    there = _there(evidence)
    cases = [case for each in there for case in _cases(each)]
    parts = [f"# {TITLE}", _summary(cases), _left_out(there)]
    if cases:
        parts += [*_best(there), "## What the numbers say", bullets(_sentences(cases))]
        parts += [part for each in there for part in _tables(each)]
        parts += [_image(there), _reading(cases)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def figures(evidence: All) -> dict[str, Any]:
    """The figure by file name: AUROC of every seed by loss and set."""
    there = _there(evidence)
    return {_STEM: _draw(there)} if there else {}


# What there is.


def _there(evidence: All) -> list[Evidence]:
    known = (evidence[name] for name in IMAGES if name in evidence)
    return [each for each in known if any(True for _ in _cases(each))]


def _left_out(there: Sequence[Evidence]) -> str:
    missing = [TITLES[name] for name in IMAGES if name not in {each.name for each in there}]
    return f"Without results here, and left out: {'; '.join(missing)}." if missing else ""


def _value(run: RunEvidence, name: str, phase: str, metric: str) -> float | None:
    """A number of a run against a set, in percent."""
    found = run.foreign.get(name, {}).get(phase, {}).get(metric)
    return None if found is None else 100 * found


def _sets(there: Sequence[Evidence]) -> list[str]:
    found = dict.fromkeys(name for each in there for run in each.runs for name in run.foreign)
    return [*(name for name in _SETS if name in found), *(name for name in found if name not in _SETS)]


def _cases(evidence: Evidence) -> Iterator[_Case]:
    for run in evidence.runs:
        for name in run.foreign:
            pre = _value(run, name, "pre", "auroc")
            if pre is not None:
                others = (_value(run, name, "post", "auroc"), _value(run, name, "pre", "auroc_confidence"))
                yield _Case(evidence.name, name, run, pre, *others)


def _over_seeds(evidence: Evidence, method: str, name: str, phase: str, metric: str) -> list[float]:
    found = (_value(run, name, phase, metric) for run in evidence.of(method))
    return [value for value in found if value is not None]


# Sentences.


def _shown(name: str) -> str:
    return _SETS.get(name, name)


def _summary(cases: Sequence[_Case]) -> str:
    """How well it works at all, and how much scaling matters."""
    if not cases:
        return "There is no result file with other sets yet."
    ranges = []
    for name in dict.fromkeys(case.name for case in cases):
        values = [case.pre for case in cases if case.name == name]
        ranges.append(f"{_shown(name)} {fmean(values):.1f} % ({min(values):.1f} to {max(values):.1f})")
    found = (
        f"AUROC by softmax entropy, on average over all runs and from the lowest to the highest: {', '.join(ranges)}."
    )
    moved = [abs(case.post - case.pre) for case in cases if case.post is not None]
    if not moved:
        return found
    return f"{found} Temperature scaling changes it by {fmean(moved):.2f} points on average, {max(moved):.2f} at most."


def _sentences(cases: Sequence[_Case]) -> Iterator[str]:
    yield from _scaling(cases)
    yield from _adafocal(cases)
    yield from _scores(cases)
    below = [case.pre < 50 for case in cases]
    where = _where_below(cases) if any(below) else ""
    yield f"AUROC is below 50 %, worse than chance, in {how_many(below, 'cases')}{where}."


def _scaling(cases: Sequence[_Case]) -> Iterator[str]:
    """Whether scaling changes more than in the paper."""
    known = [(case, case.post - case.pre) for case in cases if case.post is not None]
    if not known:
        return
    case, most = max(known, key=lambda each: abs(each[1]))
    yield (
        f"Temperature scaling changes AUROC by more than {_LARGEST_PUBLISHED} points, the most in ghosh2022 Table 8, "
        f"in {how_many([abs(change) > _LARGEST_PUBLISHED for _, change in known], 'cases')}; the largest change is "
        f"{most:+.2f} points "
        f"({method_name(case.run.method)}, {_shown(case.name)}, {TITLES[case.recipe]}, seed {case.run.seed}). It "
        f"raises AUROC in {how_many([change > 0 for _, change in known], 'cases')}."
    )


def _adafocal(cases: Sequence[_Case]) -> Iterator[str]:
    """AdaFocal against focal losses of the same recipe, set and seed, all before scaling."""
    by_method = {method: _of_method(cases, method) for method in ("adafocal", *_RIVALS)}
    mine = by_method["adafocal"]
    for rival in _RIVALS:
        pairs = [(value, by_method[rival][key]) for key, value in mine.items() if key in by_method[rival]]
        if pairs:
            own, other = (fmean(column) for column in zip(*pairs, strict=True))
            yield (
                f"AdaFocal has a higher AUROC than {method_name(rival)} of the same seed in "
                f"{how_many([first > second for first, second in pairs], 'cases')} "
                f"({own:.1f} against {other:.1f} % on average)."
            )
    rivals = [by_method[rival] for rival in _RIVALS]
    both = [value > max(each[key] for each in rivals) for key, value in mine.items() if all(key in r for r in rivals)]
    if both:
        yield f"AdaFocal beats both, as in all four rows of ghosh2022 Table 8, in {how_many(both, 'cases')}."


def _of_method(cases: Sequence[_Case], method: str) -> dict[tuple[str, str, int], float]:
    return {(case.recipe, case.name, case.run.seed): case.pre for case in cases if case.run.method == method}


def _scores(cases: Sequence[_Case]) -> Iterator[str]:
    known = [(case.pre, case.confidence) for case in cases if case.confidence is not None]
    if known:
        gain = fmean(entropy - confidence for entropy, confidence in known)
        yield (
            f"Entropy has a higher AUROC than the largest probability in {how_many([a > b for a, b in known], 'cases')}"
            f" ({gain:+.2f} points on average)."
        )


def _where_below(cases: Sequence[_Case]) -> str:
    sets = dict.fromkeys(case.name for case in cases if case.pre < 50)
    each = (f"{sum(case.pre < 50 for case in cases if case.name == name)} on {_shown(name)}" for name in sets)
    return f" ({', '.join(each)})"


# Tables.


def _best(there: Sequence[Evidence]) -> Iterator[str]:
    """The losses with the highest and the lowest mean AUROC before scaling, and whether the first are apart."""
    rows, close = [], []
    for each in there:
        for name in _sets([each]):
            values = {method: _over_seeds(each, method, name, "pre", "auroc") for method in each.methods}
            ranked = sorted((m for m in values if values[m]), key=lambda method: -fmean(values[method]))
            if len(ranked) > 1:
                first, second, last = ranked[0], ranked[1], ranked[-1]
                told = (f"{method_name(method)}, {spread(values[method], 1)}" for method in (first, second, last))
                rows.append([TITLES[each.name], _shown(name), *told])
                close += _is_close(values[first], values[second])
    if rows:
        yield "## The best loss of each set"
        yield table(["trained on", "set", "highest AUROC, %", "second", "lowest"], rows, words=2)
    if close:
        yield (
            f"In {how_many(close, 'rows')}, the highest mean is ahead of the second by less than the larger of their "
            "standard deviations over seeds."
        )


def _is_close(first: Sequence[float], second: Sequence[float]) -> list[bool]:
    """Whether two means differ by less than the seeds do, if there are several."""
    if min(len(first), len(second)) < 2:
        return []
    return [fmean(first) - fmean(second) < max(stdev(first), stdev(second))]


def _tables(evidence: Evidence) -> Iterator[str]:
    title = TITLES[evidence.name]
    yield f"## {title[:1].upper()}{title[1:]}"
    for metric, words, best in _TABLES:
        columns = [(name, phase) for name in _sets([evidence]) for phase in _PHASES]
        values = [[_over_seeds(evidence, method, *column, metric) for method in evidence.methods] for column in columns]
        cells = [_column(each, best) for each in values]
        rows = [[method_name(method), *row] for method, *row in zip(evidence.methods, *cells, strict=True)]
        yield words
        kept = [row for row in rows if any(row[1:])]
        yield table(["loss", *(f"{_shown(name)}{_PHASES[phase]}" for name, phase in columns)], kept)
    missing = [method_name(method) for method in evidence.recipe["methods"] if not _has(evidence, method)]
    if missing:
        yield f"Not measured here: {', '.join(missing)}."


def _has(evidence: Evidence, method: str) -> bool:
    return any(run.foreign for run in evidence.of(method))


def _column(values: Sequence[Sequence[float]], best: Any) -> list[str]:
    """A column of a table, the best mean in bold."""
    means = [round(fmean(each), 1) for each in values if each]
    return [spread(each, 1, bold=bool(each) and round(fmean(each), 1) == best(means)) for each in values]


# The figure.


def _image(there: Sequence[Evidence]) -> str:
    sets = ", ".join(map(_shown, _sets(there)))
    return (
        "## Every seed\n\n"
        f"![AUROC by entropy before temperature scaling of every loss and seed against {sets}](images/{_STEM}.svg)\n\n"
        "AUROC before scaling, one mark a seed; ghosh2022 Fig. 6 and Table 8 have such numbers of larger networks. The "
        "grey line is chance."
    )


def _draw(there: Sequence[Evidence]) -> Any:
    """A panel for each set, a row for each loss, a mark for each seed."""
    sets = _sets(there)
    methods = list(dict.fromkeys(method for each in there for method in each.methods if _has(each, method)))
    figure = new_figure(COLUMN, 1.1 + 0.2 * len(methods))
    axes = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for ax, name in zip(axes, sets, strict=True):
        ax.axvline(0.5, color=GREY, linewidth=0.7, zorder=0)
        for place, each in enumerate(there):
            handle = _marks(ax, each, methods, name, place - (len(there) - 1) / 2)
            handles.setdefault(TITLES[each.name], handle)
        rows_of_names(ax, [method_name(method) for method in methods])
        percent(ax.xaxis, 3)
        style(ax, title=_shown(name), xlabel="AUROC")
        ax.grid(axis="y", color=GREY, alpha=0.2, linewidth=0.5)
    legend(axes[0], list(handles.values()), list(handles), under=True, columns=2)
    return figure


def _marks(ax: Any, evidence: Evidence, methods: Sequence[str], name: str, shift: float) -> Any:
    colour, marker = PALETTE[IMAGES.index(evidence.name)], "o^s"[IMAGES.index(evidence.name)]
    points = [
        (value / 100, row + 0.26 * shift)
        for row, method in enumerate(methods)
        for value in _over_seeds(evidence, method, name, "pre", "auroc")
    ]
    look = {"linestyle": "none", "marker": marker, "markersize": 2.8, "markeredgewidth": 0.6}
    (handle,) = ax.plot(*zip(*points, strict=True), color=colour, markerfacecolor="none", **look) if points else (None,)
    return handle


# How to read it.


def _reading(cases: Sequence[_Case]) -> str:
    names = dict.fromkeys(case.name for case in cases)
    about = "; ".join(_ABOUT[name] for name in names if name in _ABOUT)
    return f"""## How to read this page

A network trained on CIFAR-10 sees test images and images of another set, and the entropy of its softmax says how
unsure it is. AUROC is the chance that an image of the other set gets a higher entropy than a test image; 50 % is
guessing. FPR95 is the share of the other set that passes when 95 % of the test images do. Nothing is fitted to the
other sets. The sets: {about}. ghosh2022 has SVHN and CIFAR-10-C instead, and networks with an error of about 4 to
5.5 %{_errors(cases)}.

TS is temperature scaling by ECE on the validation split, as in ghosh2022 Table 8. It keeps the order of logits within
an image, but not the order of entropies between images. Numbers are means over seeds ± their standard deviation. A case
is one run against one set. Bold is the best mean of a column."""


def _errors(cases: Sequence[_Case]) -> str:
    found = [case.run.phases.get("pre", {}).get("error", [None])[0] for case in cases]
    errors = [100 * error for error in found if error is not None]
    return f"; those here have {min(errors):.1f} to {max(errors):.1f} %" if errors else ""
