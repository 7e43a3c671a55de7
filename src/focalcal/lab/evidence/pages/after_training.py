"""Calibration after training: every calibrator after every loss, and what the papers say about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import comb
from statistics import correlation, fmean, linear_regression, median
from typing import Any

from focalcal.calibrators.search import GAMMAS, GRIDS, gammas_of
from focalcal.lab.evidence.files import Evidence, RunEvidence
from focalcal.lab.evidence.measure import COMPARED, PAIRED
from focalcal.lab.evidence.pages.words import (
    IMAGES,
    MEASURES,
    METHODS,
    NETWORKS,
    PHASES,
    SST,
    TEXT,
    TITLES,
    All,
    gamma_of,
    listed,
    method_name,
    over_seeds,
    spread,
    table,
    title_of,
)

TITLE = "Calibration after training"
# The measures of the first tables, and those of comparisons.
_SHOWN = ("ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "nll")
_TESTED = ("nll", "ece_ew", "ece_em", "ece_debias")
# What sentences call measures.
_NAMES = {"nll": "NLL", "ece_ew": "ECE", "ece_em": "AdaECE", "ece_debias": "debiased ECE", "ece_sweep_em": "sweep ECE"}
# Below this p-value a sign test tells two calibrators apart.
_LEVEL = 0.05
_ECE_FIGURE, _LINE_FIGURE = "after_training_ece", "after_training_line"


# --- numbers ---------------------------------------------------------------------------------------------------------


def _trained(evidence: All) -> list[Evidence]:
    return [evidence[name] for name in (*IMAGES, *TEXT) if name in evidence and evidence[name].runs]


def _all(evidence: All) -> list[Evidence]:
    """Tasks that were trained here, then the published networks."""
    networks = [evidence[NETWORKS]] if NETWORKS in evidence and evidence[NETWORKS].runs else []
    return [*_trained(evidence), *networks]


def _runs(found: Iterable[Evidence]) -> list[RunEvidence]:
    return [run for each in found for run in each.runs]


def _value(run: RunEvidence, phase: str, measure: str) -> float | None:
    """A measure of a phase of a run, in the units of tables."""
    value = (run.phases.get(phase, {}).get(measure) or [None])[0]
    return None if value is None else MEASURES[measure][1] * value


def _common(runs: Sequence[RunEvidence]) -> list[str]:
    """The phases that every run has."""
    return [phase for phase in PHASES if runs and all(phase in run.phases for run in runs)]


def _partial(runs: Sequence[RunEvidence]) -> list[str]:
    """The phases that only some runs have."""
    return [phase for phase in PHASES if any(phase in run.phases for run in runs) and phase not in _common(runs)]


def _mean(runs: Iterable[RunEvidence], phase: str, measure: str) -> float | None:
    values = [value for run in runs if (value := _value(run, phase, measure)) is not None]
    return fmean(values) if values else None


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value among all, 1 for the lowest; equal ones share theirs.

    >>> _ranks([3.0, 1.0, 3.0])
    [2.5, 1.0, 2.5]
    """
    return [1 + sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]


def _mean_ranks(runs: Iterable[RunEvidence], phases: Sequence[str], measure: str) -> dict[str, float]:
    """The mean rank of each phase over the runs that have the measure of all of them."""
    rows = [[_value(run, phase, measure) for phase in phases] for run in runs]
    ranks = [_ranks([value for value in row if value is not None]) for row in rows if None not in row]
    return {phase: fmean(each[place] for each in ranks) for place, phase in enumerate(phases)} if ranks else {}


def _sign_test(fewer: int, trials: int) -> float:
    """The exact two-sided p-value of so few signs of one kind in so many trials, if both are as likely.

    >>> _sign_test(0, 5), _sign_test(2, 4), _sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    fewer = min(fewer, trials - fewer)
    return min(1.0, float(2 * sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials))


@dataclass(frozen=True)
class _Compared:
    """One calibrator against another by one measure, over runs and over pairs of loss and task.

    `lower` and `higher` count pairs of loss and task by the sign of their mean over seeds.
    """

    differences: list[float]
    surely_better: int
    surely_worse: int
    lower: int
    higher: int

    @property
    def runs(self) -> int:
        return len(self.differences)

    @property
    def mean(self) -> float:
        return fmean(self.differences)

    @property
    def better(self) -> int:
        return sum(each < 0 for each in self.differences)

    @property
    def p_value(self) -> float:
        return _sign_test(self.lower, self.lower + self.higher)

    @property
    def word(self) -> str:
        """What the sign test says."""
        if self.p_value >= _LEVEL:
            return "not told apart"
        return "better" if self.lower > self.higher else "worse"


def _paired(run: RunEvidence, key: str, measure: str) -> tuple[float, float, float] | None:
    """The difference of a run and the ends of its interval, in the units of tables."""
    found: Sequence[float | None] = run.pairs.get(key, {}).get(measure, [])[:3]
    numbers = [MEASURES[measure][1] * each for each in found if each is not None]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _compare(found: Iterable[Evidence], after: str, before: str, measure: str) -> _Compared | None:
    groups = []
    for each in found:
        for method in each.methods:
            values = [_paired(run, f"{after} - {before}", measure) for run in each.of(method)]
            groups.append([value for value in values if value is not None])
    rows = [row for group in groups for row in group]
    means = [fmean(row[0] for row in group) for group in groups if group]
    if not rows:
        return None
    return _Compared(
        differences=[row[0] for row in rows],
        surely_better=sum(row[2] < 0 for row in rows),
        surely_worse=sum(row[1] > 0 for row in rows),
        lower=sum(mean < 0 for mean in means),
        higher=sum(mean > 0 for mean in means),
    )


def _relative(each: Evidence, method: str, after: str, before: str, measure: str) -> float | None:
    """By how many percent the mean over seeds is higher after one calibrator than after another."""
    both = [(_value(run, after, measure), _value(run, before, measure)) for run in each.of(method)]
    there = [(one, other) for one, other in both if one is not None and other is not None]
    base = sum(other for _, other in there)
    return 100 * (sum(one for one, _ in there) / base - 1) if base else None


def _relatives(found: Iterable[Evidence], after: str, before: str, measure: str) -> list[float]:
    """`_relative` of every pair of loss and task."""
    values = (_relative(each, method, after, before, measure) for each in found for method in each.methods)
    return [value for value in values if value is not None]


# --- words -----------------------------------------------------------------------------------------------------------


def _shown(value: float | None, measure: str, *, bold: bool = False) -> str:
    if value is None:
        return ""
    text = f"{value:.{MEASURES[measure][2]}f}"
    return f"**{text}**" if bold else text


def _change(value: float, measure: str) -> str:
    """A signed difference: percentage points for errors, nats with one digit more for NLL.

    >>> _change(-0.123, "ece_ew"), _change(0.00123, "nll")
    ('-0.12', '+0.0012')
    """
    return f"{value:+.{4 if measure == 'nll' else 2}f}"


def _with_unit(value: float, measure: str) -> str:
    return f"{_change(value, measure)} {'nats' if measure == 'nll' else 'points'}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _count(number: int, of: int, thing: str) -> str:
    """A number of things.

    >>> _count(1, 1, "run"), _count(2, 5, "run")
    ('1 of 1 run', '2 of 5 runs')
    """
    return f"{number:,} of {of:,} {thing}{'' if of == 1 else 's'}"


def _heading(title: str) -> str:
    return title[:1].upper() + title[1:]


def _lowest(values: Mapping[str, float]) -> str:
    return min(values, key=lambda name: values[name])


# --- the page --------------------------------------------------------------------------------------------------------


def page(evidence: All) -> str:
    """The page's Markdown."""
    if not _all(evidence):
        return f"# {TITLE}\n\nThere are no results.\n"
    parts = [
        f"# {TITLE}\n",
        _opening(evidence),
        _means_section(evidence),
        _training_gamma_section(evidence),
        _comparisons_section(evidence),
        _line_search_section(evidence),
        _focal_section(evidence),
        _rows_section(evidence),
        _criterion_section(evidence),
        _start_section(evidence),
        _temperatures_section(evidence),
        _reading(evidence),
    ]
    return "\n".join(part for part in parts if part)


def _opening(evidence: All) -> str:
    trained = _trained(evidence)
    runs = _runs(trained)
    pairs = sum(len(each.methods) for each in trained)
    networks = [each for each in _all(evidence) if each.name == NETWORKS]
    text = f"{len(runs)} runs, of {pairs} pairs of loss and task,"
    text += f" and {len(networks[0].runs)} published networks" if networks else ""
    text += " were calibrated on validation rows and measured on test rows.\n"
    text += _ranks_sentence(runs) + _focal_count(trained) + _line_verdict(trained, "ece_em", short=True)
    missing = [TITLES[name] for name in (*IMAGES, *TEXT, NETWORKS) if name not in evidence or not evidence[name].runs]
    return text + (f"Left out, because there are no results: {listed(missing)}.\n" if missing else "")


def _ranks_sentence(runs: Sequence[RunEvidence]) -> str:
    phases = _common(runs)
    best: dict[str, list[str]] = {}
    for measure in ("ece_ew", "ece_em", "nll"):
        if ranks := _mean_ranks(runs, phases, measure):
            best.setdefault(_lowest(ranks), []).append(f"{_NAMES[measure]} ({min(ranks.values()):.1f})")
    if not best:
        return ""
    parts = [f"by {listed(measures)} has {PHASES[phase]}" for phase, measures in best.items()]
    return f"Of {len(phases)} ways that every run has, the lowest mean rank {listed(parts)}.\n"


# (1) means and ranks


def _means_section(evidence: All) -> str:
    trained = _trained(evidence)
    text = "## After each calibrator\n" + _ranks_table(_runs(trained))
    if _ece_ratios(evidence):
        alt = "ECE after each calibrator, divided by that after TS by NLL, one dot a task"
        text += f"\n![{alt}](images/{_ECE_FIGURE}.svg)\n\n"
        text += (
            "Mean ECE over losses and seeds, divided by that of the same runs after TS by NLL; left of 1 is lower.\n"
        )
    return text + "".join(_means_table(each) for each in _all(evidence))


def _ranks_table(runs: Sequence[RunEvidence]) -> str:
    phases = _common(runs)
    ranks = {measure: found for measure in _SHOWN if (found := _mean_ranks(runs, phases, measure))}
    if not ranks:
        return ""
    rows = [[PHASES[phase], *(_rank_cell(each[phase], each.values()) for each in ranks.values())] for phase in phases]
    lead = f"\nMean rank over all {len(runs)} runs among the ways that every run has; 1 is best.\n\n"
    return lead + table(["calibrator", *(f"by {_NAMES[measure]}" for measure in ranks)], rows)


def _rank_cell(rank: float, among: Iterable[float]) -> str:
    """A mean rank, in bold where none shown is lower.

    >>> _rank_cell(1.52, [1.48, 1.52, 3.0])
    '**1.5**'
    """
    return f"**{rank:.1f}**" if round(rank, 1) == min(round(each, 1) for each in among) else f"{rank:.1f}"


def _means_table(each: Evidence) -> str:
    phases = _common(each.runs)
    ranks = _mean_ranks(each.runs, phases, "ece_ew")
    columns = [[_mean(each.runs, phase, measure) for phase in phases] for measure in _SHOWN]
    cells = [_means_column(column, measure) for column, measure in zip(columns, _SHOWN, strict=True)]
    cells.append([_rank_cell(ranks[phase], ranks.values()) if ranks else "" for phase in phases])
    rows = ([PHASES[phase], *row] for phase, row in zip(phases, zip(*cells, strict=True), strict=True))
    what = "networks" if each.name == NETWORKS else f"runs of {len(each.methods)} losses"
    counted = f"{len(each.runs)} {what}; {each.sizes[1]:,} validation rows"
    head = f"\n### {_heading(title_of(each))}\n\nMeans over {counted}.\n\n"
    return head + table(["calibrator", *(MEASURES[measure][0] for measure in _SHOWN), "rank by ECE"], rows)


def _means_column(values: Sequence[float | None], measure: str) -> list[str]:
    rounded = [None if value is None else round(value, MEASURES[measure][2]) for value in values]
    least = min((value for value in rounded if value is not None), default=None)
    return [_shown(value, measure, bold=value is not None and value == least) for value in rounded]


def _training_gamma_section(evidence: All) -> str:
    rows = []
    phases = _partial(_runs(_trained(evidence)))
    columns = [*(phase for phase in ("pre", "ts-nll") if phase not in phases), *phases]
    for each in _trained(evidence):
        runs = [run for run in each.runs if all(phase in run.phases for phase in columns)]
        cells = _means_column([_mean(runs, phase, "ece_ew") for phase in columns], "ece_ew")
        if runs:
            rows.append([title_of(each), f"{len(runs)}", *cells])
    if not phases or not rows:
        return ""
    lead = "Mean ECE in percent over the runs that have all of these; most need a fixed training gamma.\n"
    shown = table(["task", "runs", *(PHASES[phase] for phase in columns)], rows)
    return f"## Calibrators that only some runs have\n\n{lead}\n{shown}"


# (2) paired comparisons


def _comparisons_section(evidence: All) -> str:
    trained = _trained(evidence)
    tables = [text for measure in _TESTED if (text := _comparison_table(trained, measure))]
    networks = _networks_comparison(evidence)
    if not tables and not networks:
        return ""
    lead = (
        "The first calibrator minus the second on the same test rows of the same run; negative is better.\n"
        "A difference is significant where its 95 % bootstrap interval does not hold 0.\n"
        "The sign test is exact, over the means of pairs of loss and task.\n"
    )
    return f"## Two calibrators at a time\n\n{lead}" + "".join(tables) + networks


def _comparison_table(found: Sequence[Evidence], measure: str) -> str:
    rows = []
    for after, before in COMPARED:
        compared = _compare(found, after, before, measure)
        if compared is not None:
            counts = (compared.runs, compared.better, compared.surely_better, compared.surely_worse)
            numbers = [_change(compared.mean, measure), *map(str, counts), _p(compared.p_value)]
            rows.append([f"{PHASES[after]} vs {PHASES[before]}", *numbers])
    if not rows:
        return ""
    unit = "nats" if measure == "nll" else "points"
    headings = ["calibrators", f"mean, {unit}", "runs", "better", "sign. better", "sign. worse", "sign test p"]
    return f"\n### By {_NAMES[measure]}\n\n" + table(headings, rows)


def _networks_comparison(evidence: All) -> str:
    found = [each for each in _all(evidence) if each.name == NETWORKS]
    rows = []
    for after, before in COMPARED:
        compared = [_compare(found, after, before, measure) for measure in _TESTED]
        cells = [
            "" if one is None else f"{_change(one.mean, measure)} ({one.better} of {one.runs})"
            for one, measure in zip(compared, _TESTED, strict=True)
        ]
        if any(cells):
            rows.append([f"{PHASES[after]} vs {PHASES[before]}", *cells])
    if not rows:
        return ""
    lead = "\n### Published networks\n\nThe mean difference, and in how many networks it is better.\n\n"
    return lead + table(["calibrators", *(_NAMES[measure] for measure in _TESTED)], rows)


# (3) the search along a line


def _line_verdict(found: Sequence[Evidence], measure: str, *, short: bool = False) -> str:
    """Whether the line is as good as the grid by one measure."""
    line = _compare(found, "fts-line", "fts", measure)
    if line is None:
        return ""
    than = "not told apart from" if line.word == "not told apart" else f"{line.word} than"
    text = (
        f"By test {_NAMES[measure]}, FTS along a line is {than} FTS on the full grid: {_with_unit(line.mean, measure)}"
        f" on average, sign test p {_equals(line.p_value)}"
    )
    rest = (
        f" (lower in {line.lower} and higher in {line.higher} pairs of loss and task); significantly worse in"
        f" {line.surely_worse} and better in {line.surely_better} of {line.runs} runs"
    )
    return f"{text}.\n" if short else f"{text}{rest}.\n"


def _equals(p_value: float) -> str:
    return _p(p_value) if p_value < 0.001 else f"= {_p(p_value)}"


def _line_search_section(evidence: All) -> str:
    measures = ("ece_em", "ece_ew", "nll")
    verdict = "".join(_line_verdict(_trained(evidence), measure) for measure in measures)
    rows = []
    for each in _all(evidence):
        compared = [_compare([each], "fts-line", "fts", measure) for measure in measures]
        if any(compared):
            cells = [_sure_cell(one, measure) for one, measure in zip(compared, measures, strict=True)]
            rows.append([title_of(each), f"{max(one.runs for one in compared if one)}", *cells])
    if not rows:
        return ""
    lead = (
        "komisarenko2024 (Sec. 5.2) proposes to search m temperatures at two gammas and m points along the line"
        f" through the two best: 3m points instead of {len(gammas_of(GAMMAS))}m here. It leaves open what that costs.\n"
    )
    shown = table(["task", "runs", "AdaECE, points", "ECE, points", "NLL, nats"], rows)
    return (
        f"## Is a line as good as the full grid?\n\n{lead}{verdict}\n"
        "Line minus grid; in brackets the runs in which it is significantly worse / better.\n\n"
        f"{shown}{_fitted_table(evidence)}"
    )


def _sure_cell(found: _Compared | None, measure: str) -> str:
    return "" if found is None else f"{_change(found.mean, measure)} ({found.surely_worse} / {found.surely_better})"


_SEARCHES = ("fts", "fts-line")


def _fits(each: Evidence, phase: str, name: str) -> list[float]:
    found = (run.fits.get(phase, {}).get(name) for run in each.runs)
    return [value for value in found if value is not None]


def _fitted_table(evidence: All) -> str:
    wanted = [(phase, name) for phase in _SEARCHES for name in ("gamma", "temperature")]
    rows = []
    for each in _all(evidence):
        columns = [_fits(each, phase, name) for phase, name in wanted]
        if any(columns):
            rows.append([title_of(each), *map(_range, columns)])
    if not rows:
        return ""
    headings = ["task", "gamma, grid", "T, grid", "gamma, line", "T, line"]
    lead = "\nWhat the two searches found: median over runs, least and greatest in brackets.\n"
    return f"{lead}{_ends_sentence(evidence)}\n" + table(headings, rows)


def _range(values: Sequence[float]) -> str:
    """The median of some numbers, and where they lie.

    >>> _range([3.0, 1.0, 2.5])
    '2.50 (1.00 to 3.00)'
    """
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else ""


def _ends_sentence(evidence: All) -> str:
    """How often the gammas are at an end, where a wider search might have found another, or 0, which is TS."""
    gammas = {phase: [value for each in _all(evidence) for value in _fits(each, phase, "gamma")] for phase in _SEARCHES}
    text = ""
    for phase, values in gammas.items():
        if values:
            at_end = sum(value <= min(GAMMAS) or value >= max(GAMMAS) for value in values)
            text += (
                f"{PHASES[phase]}: gamma is at an end of its range ({min(GAMMAS):g} or {max(GAMMAS):g}) in {at_end}"
                f" and 0, which is TS, in {_count(values.count(0), len(values), 'run')}.\n"
            )
    return text


# (4) focal temperature scaling against temperature scaling


def _focal_count(found: Sequence[Evidence]) -> str:
    changes = _relatives(found, "fts", "ts-ada", "ece_em")
    if not changes:
        return ""
    lower = sum(change < 0 for change in changes)
    return (
        f"FTS has a lower test AdaECE than TS, both fitted by AdaECE, in {_count(lower, len(changes), 'pair')} of loss"
        " and task (komisarenko2024, Table 1: 18 of 18).\n"
    )


def _focal_section(evidence: All) -> str:
    trained = _trained(evidence)
    count = _focal_count(trained)
    if not count:
        return ""
    changes = _relatives(trained, "fts", "ts-ada", "ece_em")
    text = "## FTS against TS, loss by loss\n\n"
    text += f"{count}On average AdaECE changes by {fmean(changes):+.1f} % (Table 1: -24.5 %).\n"
    text += _beside(trained, "fts", "ts-ada", "ece_ew") + _beside(trained, "fts", "ts-ada", "nll")
    text += 'The paper: "log-loss being approximately the same".\n'
    if by_nll := _relatives(trained, "fts-nll", "ts-nll", "nll"):
        text += (
            f"Fitted by NLL, FTS changes the NLL of TS by {fmean(by_nll):+.2f} % on average and lowers it in"
            f" {_count(sum(each < 0 for each in by_nll), len(by_nll), 'pair')}; the paper speaks of about 1 %.\n"
        )
    text += _two_classes_sentence(evidence)
    lead = "\nChange of test AdaECE from TS to FTS, both fitted by AdaECE, in percent; bold where FTS is lower.\n\n"
    return text + lead + _by_loss(trained, lambda each, method: _relative(each, method, "fts", "ts-ada", "ece_em"))


def _two_classes_sentence(evidence: All) -> str:
    """With two classes the map is nearly a temperature, so that FTS should add nothing."""
    two, more = ([each for each in _trained(evidence) if (each.name == SST) is wanted] for wanted in (True, False))
    changes = [_relatives(found, "fts", "ts-ada", "ece_em") for found in (two, more)]
    if not all(changes):
        return ""
    return (
        f"With two classes ({title_of(two[0])}), where the focal map is nearly a temperature (Sec. 6), AdaECE changes"
        f" by {fmean(changes[0]):+.1f} %, elsewhere by {fmean(changes[1]):+.1f} %.\n"
    )


def _beside(found: Sequence[Evidence], after: str, before: str, measure: str) -> str:
    compared = _compare(found, after, before, measure)
    if compared is None:
        return ""
    return (
        f"{_NAMES[measure]} changes by {_with_unit(compared.mean, measure)} and is lower in"
        f" {_count(compared.lower, compared.lower + compared.higher, 'pair')}; significantly better in"
        f" {compared.surely_better} and worse in {compared.surely_worse} of {compared.runs} runs.\n"
    )


def _by_loss(found: Sequence[Evidence], value: Callable[[Evidence, str], float | None]) -> str:
    """A table of a change in percent, a row for each loss and a column for each task."""
    rows = []
    for method in _methods(found):
        values = [value(each, method) if method in each.methods else None for each in found]
        cells = ["" if one is None else f"**{one:+.1f}**" if one < 0 else f"{one:+.1f}" for one in values]
        rows.append([method_name(method), *cells])
    return table(["loss", *map(title_of, found)], rows)


def _methods(found: Iterable[Evidence]) -> list[str]:
    there = list(dict.fromkeys(method for each in found for method in each.methods))
    order = list(METHODS)
    return sorted(there, key=lambda method: order.index(method) if method in order else len(order))


# how many rows a search needs


def _rows_section(evidence: All) -> str:
    rows, points, measures = [], [], ("ece_em", "ece_ew", "nll")
    for each in sorted(_all(evidence), key=lambda each: each.sizes[1]):
        compared = [_compare([each], "fts", "ts-ada", measure) for measure in measures]
        if (first := compared[0]) is None:
            continue
        points.append((each.sizes[1], first.mean))
        by_nll = _relatives([each], "fts-nll", "ts-nll", "nll")
        cells = [_sure_cell(one, measure) for one, measure in zip(compared, measures, strict=True)]
        rows.append([title_of(each), f"{each.sizes[1]:,}", *cells, f"{fmean(by_nll):+.2f}" if by_nll else ""])
    if not rows:
        return ""
    headings = ["task", "validation rows", "AdaECE, points", "ECE, points", "NLL, nats", "both by NLL: NLL, %"]
    lead = (
        "\nFTS minus TS, both by AdaECE; in brackets the runs in which FTS is significantly worse / better.\n"
        "In the last column both are fitted by NLL instead.\n"
    )
    return f"## Validation rows\n\n{_rows_sentence(points)}{lead}\n{table(headings, rows)}"


def _rows_sentence(points: Sequence[tuple[int, float]]) -> str:
    """How the gain of the larger search goes with the number of rows, if there are enough sizes to say."""
    sizes = sorted({size for size, _ in points})
    text = "A search over two numbers can overfit where rows are few. From TS to FTS, AdaECE changes by "
    means = [fmean(value for size, value in points if size == wanted) for wanted in sizes]
    text += listed([f"{mean:+.2f} points with {size:,} rows" for size, mean in zip(sizes, means, strict=True)]) + ".\n"
    if len(sizes) < 3 or len(set(means)) < 2:
        return text + "There are too few numbers of rows to speak of a trend.\n"
    ranks = [_ranks(list(each)) for each in zip(*points, strict=True)]
    found, p_value = correlation(*ranks), _permutation_test(*ranks)
    trend = "no clear trend" if p_value >= _LEVEL else "lower with more rows" if found < 0 else "higher with more rows"
    return (
        f"{text}The rank correlation of rows and change over {len(points)} tasks is {found:+.2f}"
        f" (p {_equals(p_value)}): {trend}.\nThe tasks differ in more than this number.\n"
    )


def _permutation_test(ones: Sequence[float], others: Sequence[float]) -> float:
    """The share of all orders of a few ranks with a correlation at least as strong.

    >>> round(_permutation_test([1, 2, 3, 4], [4, 3, 2, 1]), 3)  # 2 of 24 orders
    0.083
    """
    found = abs(correlation(ones, others))
    strong = [abs(correlation(ones, order)) >= found - 1e-9 for order in permutations(others)]
    return sum(strong) / len(strong)


# (5) the criterion

# Calibrator chosen by an error, the same by NLL, and the measure that should gain.
_CRITERIA = (
    ("post", "ts-nll", "ece_ew", "TS by ECE: ECE"),
    ("ts-ada", "ts-nll", "ece_em", "TS by AdaECE: AdaECE"),
    ("fts", "fts-nll", "ece_em", "FTS by AdaECE: AdaECE"),
    ("fts", "fts-nll", "nll", "FTS by AdaECE: NLL"),
)


def _criterion_section(evidence: All) -> str:
    trained = _trained(evidence)
    rows = []
    for each in _all(evidence):
        changes = [_relatives([each], *wanted[:3]) for wanted in _CRITERIA]
        if any(changes):
            rows.append([title_of(each), f"{each.sizes[1]:,}", *map(_share_cell, changes)])
    if not rows:
        return ""
    text = "## By ECE or by NLL\n\n"
    for (after, before, measure, _), source in zip(_CRITERIA, _CRITERION_CLAIMS, strict=True):
        if found := _relatives(trained, after, before, measure):
            lower = _count(sum(each < 0 for each in found), len(found), "pair")
            text += (
                f"{_full(after)} instead of {_full(before)} changes test {_NAMES[measure]} by {fmean(found):+.1f} % on"
                f" average and lowers it in {lower} of loss and task ({source}).\n"
            )
    lead = "\nChange against the same calibrator by NLL, in percent; in brackets the losses with a lower mean.\n\n"
    return text + lead + table(["task", "validation rows", *(wanted[3] for wanted in _CRITERIA)], rows)


_CRITERION_CLAIMS = (
    "mukhoti2020, Sec. 5.1: the grid by ECE gives stronger baselines",
    "the same with bins of equal mass",
    "komisarenko2024, Sec. 5.2: about -20 %",
    "komisarenko2024, Sec. 5.2: choosing by log-loss improves log-loss by around 1 %",
)


def _full(phase: str) -> str:
    """What sentences call a phase, with its criterion."""
    return "FTS by AdaECE" if phase == "fts" else PHASES[phase]


def _share_cell(changes: Sequence[float]) -> str:
    """The mean of some changes, and how many are below 0.

    >>> _share_cell([-2.0, 1.0])
    '-0.5 (1 of 2)'
    """
    return f"{fmean(changes):+.1f} ({sum(each < 0 for each in changes)} of {len(changes)})" if changes else ""


# (6) the starting loss


def _start_section(evidence: All) -> str:
    found = [each for each in _trained(evidence) if len(each.methods) > 1]
    best = {each.name: _best_starts(each) for each in found}
    phases = [phase for phase in PHASES if any(phase in starts for starts in best.values())]
    if not phases:
        return ""
    rows = [[PHASES[phase], *(_start_cell(best[each.name].get(phase)) for each in found)] for phase in phases]
    head = table(["calibrator", *map(title_of, found)], rows)
    return (
        f"## The loss to start from\n\n{_adafocal_sentence(found, best)}{_best_calibrators_sentence(found)}\n"
        f"The loss with the lowest mean ECE over seeds after each calibrator, in percent.\n\n{head}"
    )


def _method_means(each: Evidence, phase: str) -> dict[str, float]:
    values = {method: over_seeds(each, method, phase, "ece_ew") for method in each.methods}
    return {method: fmean(found) for method, found in values.items() if found}


def _best_starts(each: Evidence) -> dict[str, tuple[str, float]]:
    """By phase that every run has, the loss with the lowest mean ECE, and that."""
    means = {phase: _method_means(each, phase) for phase in _common(each.runs)}
    return {phase: (_lowest(values), min(values.values())) for phase, values in means.items() if values}


def _start_cell(best: tuple[str, float] | None) -> str:
    return "" if best is None else f"{method_name(best[0])} ({best[1]:.2f})"


def _adafocal_sentence(found: Sequence[Evidence], best: Mapping[str, Mapping[str, tuple[str, float]]]) -> str:
    with_it = [each for each in found if any(method.startswith("adafocal") for method in each.methods)]
    starts = [start[0] for each in with_it for phase, start in best[each.name].items() if phase != "pre"]
    if not starts:
        return ""
    ahead = sum(start.startswith("adafocal") for start in starts)
    chance = fmean(_share(each) for each in with_it for phase in best[each.name] if phase != "pre")
    counted = Counter(map(method_name, starts)).most_common(3)
    others = listed([f"{name} ({number})" for name, number in counted])
    return (
        "ghosh2022 (Sec. 6) finds that the lowest ECE nearly always starts from the AdaFocal model.\n"
        f"Here it does in {ahead} of {len(starts)} pairs of task and calibrator; a loss drawn at random would in"
        f" {100 * chance:.0f} %.\n"
        f"Most often it starts from {others}.\n"
    )


def _share(each: Evidence) -> float:
    return sum(method.startswith("adafocal") for method in each.methods) / len(each.methods)


def _best_calibrators_sentence(found: Sequence[Evidence]) -> str:
    best: list[str] = []
    for each in found:
        phases = _common(each.runs)
        for method in each.methods:
            means = {phase: _mean(each.of(method), phase, "ece_ew") for phase in phases}
            known = {phase: mean for phase, mean in means.items() if mean is not None}
            best += [_lowest(known)] if known else []
    counted = Counter(best).most_common()
    if not counted:
        return ""
    if len(counted) == 1:
        return f"{PHASES[counted[0][0]]} has the lowest ECE after every loss.\n"
    named = listed([f"{PHASES[phase]} in {number}" for phase, number in counted])
    return f"No calibrator is best everywhere: of {len(best)} pairs of loss and task, ECE is lowest after {named}.\n"


# (7) best temperatures


@dataclass(frozen=True)
class _Line:
    """The best temperatures of runs with one training gamma, and a line for each seed.

    `points` has gamma_ev and the temperatures of all seeds; `at_zero` those of gamma_ev 0, which is no map.
    """

    gamma: float
    points: list[tuple[float, list[float]]]
    at_zero: list[float]
    slopes: list[float]
    intercepts: list[float]
    r_squared: list[float]


def _lines(each: Evidence) -> list[_Line]:
    gammas = {method: gamma for method in each.methods if (gamma := gamma_of(method)) is not None}
    found = (_line(gammas[method], each.of(method)) for method in sorted(gammas, key=lambda method: gammas[method]))
    return [line for line in found if line is not None]


def _line(gamma: float, runs: Sequence[RunEvidence]) -> _Line | None:
    series = [points for run in runs if len(points := run.extra.get("best_temperatures") or []) > 1]
    if not series:
        return None
    fits = [linear_regression(*zip(*points, strict=True)) for points in series]
    by_gamma: dict[float, list[float]] = {}
    for gamma_ev, temperature in (point for points in series for point in points):
        by_gamma.setdefault(gamma_ev, []).append(temperature)
    varied = [points for points in series if len({value for _, value in points}) > 1]  # R^2 needs some variation
    r_squared = [correlation(*zip(*points, strict=True)) ** 2 for points in varied]
    slopes, intercepts = [fit.slope for fit in fits], [fit.intercept for fit in fits]
    return _Line(gamma, sorted(by_gamma.items()), by_gamma.get(0.0, []), slopes, intercepts, r_squared)


def _temperatures_section(evidence: All) -> str:
    lines = {each.name: found for each in _trained(evidence) if (found := _lines(each))}
    if not lines:
        return ""
    text = f"## Best temperature and gamma (komisarenko2024, Fig. 8)\n\n{_linear_sentence(lines)}"
    text += _falling_sentence(lines)
    rows = [[TITLES.get(name, name), *_line_cells(line)] for name, found in lines.items() for line in found]
    headings = ["task", "training gamma", "T at 0", "slope", "intercept", "R²"]
    lead = "\nT at 0 is the best temperature without a map. Lines of T against gamma_ev are fitted to each seed.\n"
    text += f"{lead}\n{table(headings, rows)}"
    shown = _most_gammas(evidence)
    alt = f"Best temperature against gamma_ev for each training gamma, {title_of(shown)}" if shown else ""
    caption = "Means over seeds with their range, and the mean of the lines fitted to each seed.\n"
    return text + (f"\n![{alt}](images/{_LINE_FIGURE}.svg)\n\n{caption}" if shown else "")


def _line_cells(line: _Line) -> list[str]:
    numbers = [spread(each) for each in (line.at_zero, line.slopes, line.intercepts)]
    return [f"{line.gamma:g}", *numbers, spread(line.r_squared, 3)]


def _linear_sentence(lines: Mapping[str, Sequence[_Line]]) -> str:
    found = [value for each in lines.values() for line in each for value in line.r_squared]
    best = [value for each in lines.values() for line in each for _, values in line.points for value in values]
    if not found:
        return ""
    above = sum(value > 0.95 for value in found)
    text = (
        "For each gamma_ev the temperature T with the lowest validation AdaECE was searched.\n"
        "The paper finds it close to linear in gamma_ev; here R² of a line is above 0.95 in"
        f" {_count(above, len(found), 'run')}, {median(found):.3f} in the median and {min(found):.3f} at least.\n"
    )
    ends = min(GRIDS["mukhoti2020"]), max(GRIDS["mukhoti2020"])
    if cut := sum(value <= ends[0] or value >= ends[1] for value in best):
        text += f"{_count(cut, len(best), 'temperature')} are at an end of the search, {ends[0]:g} or {ends[1]:g}.\n"
    return text


def _falling_sentence(lines: Mapping[str, Sequence[_Line]]) -> str:
    """Whether the best temperature without a map falls as the training gamma grows [komisarenko2024, Table 1]."""
    parts = []
    for name, found in lines.items():
        values = [fmean(line.at_zero) for line in found if line.at_zero]
        steps = [later < earlier for earlier, later in pairwise(values)]
        if steps:
            parts.append(f"{sum(steps)} of {len(steps)} ({TITLES.get(name, name)})")
    if not parts:
        return ""
    return f"From one training gamma to the next, T at gamma_ev = 0 falls in {listed(parts)}; Table 1: it falls.\n"


def _most_gammas(evidence: All) -> Evidence | None:
    """The task with the most training gammas."""
    found = [each for each in _trained(evidence) if _lines(each)]
    return max(found, key=lambda each: len(_lines(each)), default=None)


_READING = """\
## How to read this

TS is temperature scaling, FTS focal temperature scaling (a temperature, then the focal map Psi), ETS ensemble
temperature scaling; the full grid and the line of FTS are searched by AdaECE.
ECE and AdaECE have 15 bins; debiased ECE takes off what noise adds; sweep ECE chooses the number of bins.
NLL is in nats. No calibrator saw the test rows.
TS by ECE or AdaECE searches T in steps of 0.1 (mukhoti2020), FTS in steps of 0.01 (komisarenko2024): a part of their
difference may come from that.
Intervals are about other test rows for the same network, not about other seeds.
Losses of one task share their rows, so the sign test takes for independent what is not quite.
"""


def _reading(evidence: All) -> str:
    outside, of = _outside(_runs(_all(evidence)))
    if not outside:
        return _READING
    return (
        f"{_READING}Resampling adds noise, which raises a small ECE more than a large one: in"
        f" {_count(outside, of, 'difference')} of ECEs the measured value is outside its own interval.\n"
    )


def _outside(runs: Iterable[RunEvidence]) -> tuple[int, int]:
    """How many paired differences of calibration errors lie outside their own interval, and of how many."""
    measures = [measure for measure in PAIRED if measure.startswith("ece")]
    rows = [_paired(run, key, measure) for run in runs for key in run.pairs for measure in measures]
    there = [row for row in rows if row is not None]
    return sum(not low <= value <= high for value, low, high in there), len(there)


# --- figures ---------------------------------------------------------------------------------------------------------


def figures(evidence: All) -> dict[str, Any]:
    """The page's figures by file name."""
    made = {}
    if _ece_ratios(evidence):
        made[_ECE_FIGURE] = _ece_figure(evidence)
    if shown := _most_gammas(evidence):
        made[_LINE_FIGURE] = _line_figure(shown)
    return made


def _ece_ratios(evidence: All) -> dict[str, dict[str, float]]:
    """By phase and task, mean ECE divided by that of the same runs after TS by NLL."""
    found: dict[str, dict[str, float]] = {}
    for phase in PHASES:
        for each in _all(evidence):
            runs = [run for run in each.runs if _value(run, phase, "ece_ew") and _value(run, "ts-nll", "ece_ew")]
            mean, base = _mean(runs, phase, "ece_ew"), _mean(runs, "ts-nll", "ece_ew")
            if mean and base and phase != "ts-nll":
                found.setdefault(phase, {})[each.name] = mean / base
    return found


_MARKERS = "osD^vP"


def _ece_figure(evidence: All) -> Any:
    from focalcal.core import figures as look

    ratios = _ece_ratios(evidence)
    tasks = [each.name for each in _all(evidence)]
    figure = look.new_figure(look.COLUMN, 0.7 + 0.24 * len(ratios) + 0.15 * len(tasks))
    ax = figure.subplots()
    ax.set_xscale("log")
    ax.axvline(1, color=look.GREY, linewidth=0.8, linestyle="--")
    handles = []
    for place, name in enumerate(tasks):
        points = [(values[name], row) for row, values in enumerate(ratios.values()) if name in values]
        style = {"color": look.PALETTE[place % len(look.PALETTE)], "marker": _MARKERS[place % len(_MARKERS)]}
        apart = 0.13 * (place - (len(tasks) - 1) / 2)  # dots of one row do not hide each other
        (handle,) = ax.plot(
            [x for x, _ in points], [y + apart for _, y in points], linestyle="", markersize=3.2, **style
        )
        handles.append(handle)
    look.rows_of_names(ax, [PHASES[phase] for phase in ratios])
    look.logarithmic(ax.xaxis)
    ax.grid(axis="x", color=look.GRID)
    look.style(ax, xlabel="ECE / ECE after TS by NLL", side="center")
    look.legend(ax, handles, [TITLES.get(name, name) for name in tasks], under=True, columns=1)
    return figure


def _line_figure(each: Evidence) -> Any:
    from focalcal.core import figures as look

    figure = look.new_figure(look.COLUMN, 3.2)
    ax = figure.subplots()
    colours = (look.BLACK, *look.PALETTE)
    handles = []
    lines = _lines(each)
    for place, line in enumerate(lines):
        colour, marker = colours[place % len(colours)], "osD^vPX*"[place % 8]
        slope, intercept = fmean(line.slopes), fmean(line.intercepts)
        ends = [line.points[0][0], line.points[-1][0]]
        ax.plot(ends, [intercept + slope * x for x in ends], color=colour, linewidth=0.9)
        gammas, values = zip(*line.points, strict=True)
        ax.vlines(gammas, [min(each) for each in values], [max(each) for each in values], color=colour, linewidth=0.5)
        (handle,) = ax.plot(gammas, list(map(fmean, values)), color=colour, marker=marker, linestyle="", markersize=3.5)
        handles.append(handle)
    ax.grid(color=look.GRID)
    look.style(ax, title=title_of(each), xlabel="gamma_ev of the focal map", ylabel="best temperature T")
    names = ["cross-entropy" if line.gamma == 0 else f"FL-{line.gamma:g}" for line in lines]
    look.legend(ax, handles, names, under=True, columns=4)
    return figure
