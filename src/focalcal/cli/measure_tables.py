"""Tables of measured numbers on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from focalcal.cli.console import Advance, make_table
from focalcal.cli.results import AssessmentResult, MeasureDifference
from focalcal.metrics.table import MEASURES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from focalcal.calibrators import Calibrator
    from focalcal.files import PredictionTable
    from focalcal.report.verdict import Assessment, MeasureSettings


_OF_GROUPS = ("accuracy", "mean_confidence", "gap", "ece", "ada_ece", "nll", "classwise_ece")
_STYLES = {"calibrated": "bold green"}


def assess_table(
    table: PredictionTable, how: MeasureSettings, advance: Advance, what: str, calibrator: Calibrator | None = None
) -> Assessment:
    """The assessment of a table's rows, as they are or calibrated; `advance` shows how far it is."""
    from focalcal.report.verdict import assess

    if calibrator is not None:
        from focalcal.report.measure_version import calibrated

        table = calibrated(table, calibrator)
    assert table.labels is not None
    return assess(
        table.scores,
        table.labels,
        kind=table.kind,
        sample_weight=table.weights,
        **asdict(how),
        progress=lambda done, total: advance(done, total, what),
    )


def assessed(assessment: Assessment) -> AssessmentResult:
    """An assessment as a result holds it."""
    warnings = list(assessment.evaluation.warnings)
    return AssessmentResult(assessment.verdict, assessment.direction, assessment.measures(), warnings)


def differences(before: Assessment, after: Assessment, how: MeasureSettings) -> list[MeasureDifference]:
    """The paired differences of the main measures, after minus before."""
    from focalcal.metrics import compare

    certainty = {"level": how.level, "num_resamples": how.num_resamples, "seed": how.seed}
    found = []
    assert after.rows is not None
    assert before.rows is not None
    for name, settings in (("nll", {}), ("ece", {"num_bins": how.num_bins})):
        pair = compare(after.rows, before.rows, metric=name, **certainty, **settings)  # type: ignore[arg-type]
        found.append(MeasureDifference(name, pair.difference, pair.low, pair.high, pair.p_value))
    return found


def print_table(console: Console, table: RichTable, dispensable: Sequence[int] = ()) -> None:
    """A table; on a terminal too narrow for it, columns that it can do without are left out, and that is said."""
    columns, left_out = list(table.columns), []
    endless = console.options.update(max_width=10_000)
    for place in dispensable if console.is_terminal else ():
        if console.measure(table, options=endless).maximum <= console.width:
            break
        table.columns.remove(columns[place])
        left_out.append(str(columns[place].header))
    console.print(table)
    if left_out:
        console.print(f"Left out, as the terminal is narrow: {', '.join(left_out)}.", style="dim")


def measure_table(result: AssessmentResult, level: float) -> RichTable:
    """The measures, their intervals and what they are."""
    table = make_table("measure", "value", f"{percent(level)} interval", "what it is")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for name, label in _shown([result]):
        measure = result.measures[name]
        table.add_row(label, number(name, measure.value), interval(name, measure.low, measure.high), measure.definition)
    return table


def group_table(groups: Mapping[str, AssessmentResult], by: str) -> RichTable:
    """A row for each group of rows."""
    table = make_table(by, *(MEASURES[name].label for name in _OF_GROUPS))
    for group, result in groups.items():
        table.add_row(group, *(number(name, result.measures[name].value) for name in _OF_GROUPS))
    return table


def print_change(
    console: Console,
    before: AssessmentResult,
    after: AssessmentResult,
    changes: Sequence[MeasureDifference],
    level: float,
    title: str | None = None,
) -> None:
    """The measures before and after, what is known of the difference, and the warnings of both."""
    ends = f"{percent(level)} interval"
    table = make_table("measure", "before", ends, "after", ends, title=title)
    for name, label in _shown([before, after]):
        cells = []
        for measure in (before.measures[name], after.measures[name]):
            cells += [number(name, measure.value), interval(name, measure.low, measure.high)]
        table.add_row(label, *cells)
    print_table(console, table, dispensable=(2, 4))
    for each in changes:
        change = f"{number(each.measure, each.difference, '+')} {interval(each.measure, each.low, each.high, '+')}"
        p_value = "" if each.p_value is None else f", p = {each.p_value:.2g}"
        console.print(f"{MEASURES[each.measure].label}, after minus before on the same rows: {change.strip()}{p_value}")
    print_warnings(console, change_warnings(before, after))


def print_verdict(console: Console, result: AssessmentResult, prefix: str = "") -> None:
    """Print the verdict in words."""
    console.print(f"{prefix}{result.verdict}", style=_STYLES.get(result.direction, "bold yellow"))


def print_warnings(console: Console, warnings: Iterable[str]) -> None:
    """Print warnings, one per line."""
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow")


def change_warnings(before: AssessmentResult, after: AssessmentResult) -> list[str]:
    """The warnings of both; what is true of one only says of which."""
    both = [each for each in before.warnings if each in after.warnings]
    apart = (("before", before), ("after", after))
    return both + [f"{when}: {each}" for when, result in apart for each in result.warnings if each not in both]


def describe(table: PredictionTable, split: str | None = None) -> str:
    """Where rows came from and how many there are."""
    said = [f"{table.num_rows:,} rows", f"{table.num_classes:,} classes", table.kind]
    said += ["weighted"] if table.weights is not None else []
    said += [f"split {split}"] if split else []
    return f"{table.name}: {', '.join(said)}"


def number(name: str, value: float | None, sign: str = "") -> str:
    """A measured value: shares in percent, all else with four decimals.

    >>> number("ece", 0.0843), number("nll", 0.5), number("mce", None)
    ('8.43 %', '0.5000', '-')
    """
    if value is None or value != value:
        return "-"
    if MEASURES[name].unit == "%":
        return f"{100 * value:{sign}.2f} %"
    return f"{value:{sign}.4f}"


def percent(share: float) -> str:
    """A share in percent, with no more digits than it has.

    >>> percent(0.95), percent(0.995)
    ('95 %', '99.5 %')
    """
    return f"{100 * share:g} %"


def interval(name: str, low: float | None, high: float | None, sign: str = "") -> str:
    """The ends of an interval, in the unit of its value; nothing where there is none."""
    if low is None or high is None or low != low or high != high:
        return ""
    scale, digits = (100, 2) if MEASURES[name].unit == "%" else (1, 4)
    return f"[{scale * low:{sign}.{digits}f}, {scale * high:{sign}.{digits}f}]"


def _shown(results: Sequence[AssessmentResult]) -> list[tuple[str, str]]:
    """The names and labels of the measures that short tables show and that some result has."""
    there = {name for each in results for name, measure in each.measures.items() if measure.value is not None}
    shown = sorted((measure.place, name) for name, measure in MEASURES.items() if measure.place is not None)
    return [(name, MEASURES[name].label) for _, name in shown if name in there]
