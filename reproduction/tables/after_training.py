"""Tables of docs/results/after_training.md: calibrators fitted to the same networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import comb
from statistics import correlation, fmean, linear_regression, median

from reproduction.labels import MEASURES, METHODS, NETWORKS, PHASES, TRAINED, measure_name, method_name
from reproduction.markdown import MarkdownTable, best_in_bold, by_row, spread, table
from reproduction.measure import COMPARED
from reproduction.recipe_numbers import RecipeNumbers, Results, value_of
from reproduction.result_files import RunEvidence

ALL = (*TRAINED, NETWORKS)
_MEASURES = ("ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "nll")
# A calibrator fitted by a calibration error, the same fitted by NLL, and the measure that is compared.
_CRITERIA = (
    ("post", "ts-nll", "ece_ew"),
    ("ts-ada", "ts-nll", "ece_em"),
    ("fts", "fts-nll", "ece_em"),
    ("fts", "fts-nll", "nll"),
)


def common_phases(runs: Iterable[RunEvidence]) -> list[str]:
    """The phases that every run has."""
    having = [run.phases.keys() for run in runs]
    return [phase for phase in PHASES if all(phase in phases for phases in having)]


def mean_of(runs: Iterable[RunEvidence], phase: str, measure: str) -> float | None:
    """The mean of a measure over the runs that have it."""
    values = [value for run in runs if (value := value_of(run, measure, phase)) is not None]
    return fmean(values) if values else None


def _means(runs: Sequence[RunEvidence], phases: Sequence[str], measure: str) -> list[str]:
    """The mean of a measure after each calibrator, the lowest in bold."""
    return _bold([mean_of(runs, phase, measure) for phase in phases], MEASURES[measure][2])


def _bold(values: Sequence[float | None], digits: int) -> list[str]:
    return best_in_bold([[] if value is None else [value] for value in values], digits)


def _mean_ranks(runs: Iterable[RunEvidence], phases: Sequence[str], measure: str) -> list[float | None]:
    """The mean rank of each phase over the runs that have the measure of all; equal values share their rank."""
    rows = [[value_of(run, measure, phase) for phase in phases] for run in runs]
    complete = [[value for value in row if value is not None] for row in rows if None not in row]
    ranks = [[1 + sum(o < v for o in row) + (row.count(v) - 1) / 2 for v in row] for row in complete]
    return [fmean(column) for column in zip(*ranks, strict=True)]


@table("after_training.ranks")
def ranks(results: Results) -> MarkdownTable:
    """The mean rank of each calibrator over all runs."""
    runs = [run for name in TRAINED for run in results[name].all_runs]
    phases = common_phases(runs)
    columns = [_bold(_mean_ranks(runs, phases, measure), 1) for measure in _MEASURES]
    headings = ["calibrator", *(f"by {measure_name(measure)}" for measure in _MEASURES)]
    return MarkdownTable(headings, by_row([PHASES[phase] for phase in phases], columns))


@table("after_training.means", *ALL)
def means(numbers: RecipeNumbers) -> MarkdownTable:
    """Every measure after each calibrator, mean over losses and seeds."""
    runs = numbers.all_runs
    phases = common_phases(runs)
    columns = [_means(runs, phases, measure) for measure in _MEASURES]
    columns.append(_bold(_mean_ranks(runs, phases, "ece_ew"), 1))
    headings = ["calibrator", *(MEASURES[measure][0] for measure in _MEASURES), "rank by ECE"]
    return MarkdownTable(headings, by_row([PHASES[phase] for phase in phases], columns))


@table("after_training.focal_maps")
def focal_maps(results: Results) -> MarkdownTable:
    """ECE after the calibrators that need a fixed training gamma."""
    phases = ("pre", "ts-nll", "psi", "ts-fl", "ts-fl+psi")
    rows = []
    for numbers in (results[name] for name in TRAINED):
        runs = [run for run in numbers.all_runs if all(phase in run.phases for phase in phases)]
        rows.append([numbers.title, str(len(runs)), *_means(runs, phases, "ece_ew")])
    return MarkdownTable(["experiment", "runs", *(PHASES[phase] for phase in phases)], rows)


@dataclass(frozen=True)
class PairedDifference:
    """One calibrator minus another by one measure, in the units of tables.

    `lower` and `higher` count pairs of loss and experiment by the sign of their mean over seeds.
    """

    measure: str
    differences: list[float]
    surely_better: int
    surely_worse: int
    lower: int
    higher: int

    @property
    def mean(self) -> str:
        """The mean difference of runs."""
        return f"{fmean(self.differences):+.{4 if self.measure == 'nll' else 2}f}"

    @property
    def with_significance(self) -> str:
        """The mean difference, and how many runs are significantly worse / better."""
        return f"{self.mean} ({self.surely_worse} / {self.surely_better})"

    @property
    def better(self) -> int:
        """The number of runs in which the first calibrator is better."""
        return sum(each < 0 for each in self.differences)

    @property
    def p_value(self) -> str:
        """That of the sign test over pairs of loss and experiment."""
        value = sign_test(self.lower, self.lower + self.higher)
        return "< 0.001" if value < 0.001 else f"{value:.3f}"


def sign_test(fewer: int, trials: int) -> float:
    """The exact two-sided p-value of so few signs of one kind in so many trials, if both are as likely.

    >>> sign_test(0, 5), sign_test(2, 4), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    fewer = min(fewer, trials - fewer)
    return min(1.0, float(2 * sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials))


def paired_difference(found: Iterable[RecipeNumbers], after: str, before: str, measure: str) -> PairedDifference | None:
    """One calibrator against another by one measure; None where no run has both."""
    pair = f"{after} - {before}"
    groups = [numbers.pairs(pair, measure, [method]) for numbers in found for method in numbers.methods]
    rows = [row for group in groups for row in group]
    if not rows:
        return None
    signs = [fmean(row[0] for row in group) for group in groups if group]
    return PairedDifference(
        measure=measure,
        differences=[MEASURES[measure][1] * row[0] for row in rows],
        surely_better=sum(row[2] < 0 for row in rows),
        surely_worse=sum(row[1] > 0 for row in rows),
        lower=sum(mean < 0 for mean in signs),
        higher=sum(mean > 0 for mean in signs),
    )


def _pairs(results: Results, measure: str) -> MarkdownTable:
    """Two calibrators at a time, by one measure, over all runs."""
    rows = []
    for after, before in COMPARED:
        found = paired_difference([results[name] for name in TRAINED], after, before, measure)
        assert found is not None
        counts = (len(found.differences), found.better, found.surely_better, found.surely_worse)
        rows.append([f"{PHASES[after]} vs {PHASES[before]}", found.mean, *map(str, counts), found.p_value])
    unit = "nats" if measure == "nll" else "points"
    headings = ["calibrators", f"mean, {unit}", "runs", "better", "sign. better", "sign. worse", "sign test p"]
    return MarkdownTable(headings, rows)


for _name, _measure in {"nll": "nll", "ece": "ece_ew", "ada_ece": "ece_em"}.items():
    table(f"after_training.pairs.{_name}")(partial(_pairs, measure=_measure))


@table("after_training.pairs.published", NETWORKS)
def pairs_of_networks(numbers: RecipeNumbers) -> MarkdownTable:
    """Two calibrators at a time after the published networks."""
    measures = ("nll", "ece_ew", "ece_em", "ece_debias")
    rows = []
    for after, before in COMPARED:
        found = [each for name in measures if (each := paired_difference([numbers], after, before, name)) is not None]
        cells = [f"{each.mean} ({each.better} of {len(each.differences)})" for each in found]
        if cells:
            rows.append([f"{PHASES[after]} vs {PHASES[before]}", *cells])
    return MarkdownTable(["calibrators", *map(measure_name, measures)], rows)


def _by_experiment(results: Results, names: Iterable[str], after: str, before: str) -> dict[str, list[str]]:
    """AdaECE, ECE and NLL of one calibrator minus another, by experiment."""
    found: dict[str, list[str]] = {}
    for name in names:
        each = [paired_difference([results[name]], after, before, measure) for measure in ("ece_em", "ece_ew", "nll")]
        found[name] = [one.with_significance for one in each if one is not None]
    return found


@table("after_training.line")
def line_search(results: Results) -> MarkdownTable:
    """FTS searched along a line minus FTS on the full grid."""
    found = _by_experiment(results, ALL, "fts-line", "fts")
    rows = [[results[name].title, str(len(results[name].all_runs)), *cells] for name, cells in found.items()]
    return MarkdownTable(["experiment", "runs", "AdaECE, points", "ECE, points", "NLL, nats"], rows)


@table("after_training.fitted")
def fitted(results: Results) -> MarkdownTable:
    """The gammas and temperatures that the two searches found: median and range over runs."""
    rows = []
    for numbers in (results[name] for name in ALL):
        columns = [
            [run.fits[phase][name] for run in numbers.all_runs]
            for phase in ("fts", "fts-line")
            for name in ("gamma", "temperature")
        ]
        rows.append([numbers.title, *(f"{median(v):.2f} ({min(v):.2f} to {max(v):.2f})" for v in columns)])
    return MarkdownTable(["experiment", "gamma, grid", "T, grid", "gamma, line", "T, line"], rows)


def relative(numbers: RecipeNumbers, method: str, after: str, before: str, measure: str) -> float:
    """By how many percent the mean over seeds is higher after one calibrator than after another."""
    return 100 * (sum(numbers.values(method, measure, after)) / sum(numbers.values(method, measure, before)) - 1)


@table("after_training.focal")
def focal_by_loss(results: Results) -> MarkdownTable:
    """The change of AdaECE from TS to FTS, both fitted by AdaECE, in percent."""
    found = [results[name] for name in TRAINED]
    order = list(METHODS)
    methods = sorted(
        {m: None for one in found for m in one.methods}, key=lambda m: order.index(m) if m in order else 99
    )
    rows = []
    for method in methods:
        changes = [relative(one, method, "fts", "ts-ada", "ece_em") if method in one.methods else None for one in found]
        cells = ["" if each is None else f"**{each:+.1f}**" if each < 0 else f"{each:+.1f}" for each in changes]
        rows.append([method_name(method), *cells])
    return MarkdownTable(["loss", *(one.title for one in found)], rows)


@table("after_training.rows")
def validation_rows(results: Results) -> MarkdownTable:
    """FTS minus TS, both by AdaECE, by the number of validation rows."""
    names = sorted(ALL, key=lambda name: results[name].sizes[1])
    rows = []
    for name, cells in _by_experiment(results, names, "fts", "ts-ada").items():
        numbers = results[name]
        by_nll = fmean(relative(numbers, method, "fts-nll", "ts-nll", "nll") for method in numbers.methods)
        rows.append([numbers.title, f"{numbers.sizes[1]:,}", *cells, f"{by_nll:+.2f}"])
    headings = ["experiment", "validation rows", "AdaECE, points", "ECE, points", "NLL, nats", "both by NLL: NLL, %"]
    return MarkdownTable(headings, rows)


@table("after_training.criteria")
def criteria(results: Results) -> MarkdownTable:
    """The change of a measure when a calibrator is fitted by a calibration error instead of NLL."""
    rows: list[list[str]] = []
    every: dict[tuple[str, str, str], list[float]] = {wanted: [] for wanted in _CRITERIA}
    for name in ALL:
        numbers, cells = results[name], []
        for wanted in _CRITERIA:
            changes = [relative(numbers, method, *wanted) for method in numbers.methods]
            cells.append(_share(changes))
            every[wanted] += changes if name != NETWORKS else []
        rows.append([numbers.title, f"{numbers.sizes[1]:,}", *cells])
    rows.append(["all that were trained here", "", *map(_share, every.values())])
    names = {"fts": "FTS by AdaECE"}
    headings = [f"{names.get(after, PHASES[after])}: {measure_name(measure)}" for after, _, measure in _CRITERIA]
    return MarkdownTable(["experiment", "validation rows", *headings], rows)


def _share(changes: Sequence[float]) -> str:
    """The mean of some changes, and how many are below 0.

    >>> _share([-2.0, 1.0])
    '-0.5 (1 of 2)'
    """
    return f"{fmean(changes):+.1f} ({sum(each < 0 for each in changes)} of {len(changes)})"


@table("after_training.starts")
def starts(results: Results) -> MarkdownTable:
    """The loss with the lowest ECE after each calibrator."""
    found = [results[name] for name in TRAINED]
    rows = []
    for phase in common_phases(run for one in found for run in one.all_runs):
        means = [one.means("ece_ew", phase) for one in found]
        best = [min(each, key=each.__getitem__) for each in means]
        cells = [f"{method_name(name)} ({each[name]:.2f})" for name, each in zip(best, means, strict=True)]
        rows.append([PHASES[phase], *cells])
    return MarkdownTable(["calibrator", *(one.title for one in found)], rows)


@table("after_training.wins")
def wins(results: Results) -> MarkdownTable:
    """How often each calibrator has the lowest mean ECE of all, over pairs of loss and experiment."""
    found = [results[name] for name in TRAINED]
    phases = common_phases(run for one in found for run in one.all_runs)
    pairs = [(one, method) for one in found for method in one.methods]
    counts = Counter(min(phases, key=lambda phase: one.mean(method, "ece_ew", phase)) for one, method in pairs)
    return MarkdownTable(
        ["calibrator", "lowest ECE"], [[PHASES[p], f"{n} of {len(pairs)}"] for p, n in counts.most_common()]
    )


@dataclass(frozen=True)
class TemperatureLine:
    """The best temperatures of runs with one training gamma against gamma_ev, and a line for each seed."""

    gamma: float
    points: dict[float, list[float]]
    slopes: list[float]
    intercepts: list[float]
    r_squared: list[float]


def temperature_lines(numbers: RecipeNumbers) -> list[TemperatureLine]:
    """The lines of a recipe by training gamma."""
    found = []
    for gamma, method in numbers.gammas.items():
        series = [run.extra["best_temperatures"] for run in numbers.runs(method)]
        fits = [linear_regression(*zip(*points, strict=True)) for points in series]
        r_squared = [correlation(*zip(*points, strict=True)) ** 2 for points in series]
        points = {each[0][0]: [t for _, t in each] for each in zip(*series, strict=True)}
        slopes, intercepts = [fit.slope for fit in fits], [fit.intercept for fit in fits]
        found.append(TemperatureLine(gamma, points, slopes, intercepts, r_squared))
    return found


@table("after_training.temperatures")
def best_temperatures(results: Results) -> MarkdownTable:
    """Lines of the best temperature against gamma_ev."""
    rows = [
        [
            results[name].title,
            f"{line.gamma:g}",
            *map(spread, (line.points[0.0], line.slopes, line.intercepts)),
            spread(line.r_squared, 3),
        ]
        for name in TRAINED
        for line in temperature_lines(results[name])
    ]
    return MarkdownTable(["experiment", "training gamma", "T at 0", "slope", "intercept", "R²"], rows)
