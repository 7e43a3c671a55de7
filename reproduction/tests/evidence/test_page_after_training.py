"""The page about calibrators after training, on results made here."""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reproduction.labels import LITTLE, MORE, NETWORKS, NEWS, PHASES, SST, TITLES
from reproduction.measure import COMPARED, PAIRED
from reproduction.pages import after_training
from reproduction.pages.after_training.differences import permutation_test, sign_test
from reproduction.result_files import Evidence, RunEvidence

MEASURES = ("error", *PAIRED)
SIMPLE = ("pre", "post", "ts-nll", "ts-ada", "fts", "fts-line", "fts-nll", "ets", "spline")
GAMMAS_EV = (-0.5, 0.0, 1.0, 2.0)


def _run(task: str, method: str, seed: int) -> RunEvidence:
    """A run of numbers drawn from its own name; T = 2 - gamma / 10 + (1 + gamma) gamma_ev / 5 where gamma is fixed."""
    draw = random.Random(f"{task} {method} {seed}")
    gamma = {"ce": 0.0, "fl-1": 1.0, "fl-2.5": 2.5}.get(method)
    phases_of = [*SIMPLE, *(["psi"] if gamma else [])]
    phases: dict[str, dict[str, list[float | None]]] = {
        phase: {measure: [draw.uniform(0.01, 0.1), None, None] for measure in MEASURES} for phase in phases_of
    }
    pairs = {}
    for after, before in COMPARED:
        if after in phases and before in phases:
            pairs[f"{after} - {before}"] = {name: _difference(phases, after, before, name, draw) for name in PAIRED}
    fits = {"fts": {"gamma": draw.choice([0.0, 1.0, 1.0, 5.0]), "temperature": 2.0}}
    line = [] if gamma is None else [[ev, 2 - gamma / 10 + (1 + gamma) * ev / 5] for ev in GAMMAS_EV]
    return RunEvidence(method, seed, 1.0, phases, fits, pairs, extra={"best_temperatures": line} if line else {})


def _difference(phases: Any, after: str, before: str, name: str, draw: random.Random) -> list[float]:
    value = phases[after][name][0] - phases[before][name][0]
    return [value, value - draw.uniform(0, 0.03), value + draw.uniform(0, 0.03), 0.5]


def _task(name: str, methods: list[str], seeds: int, val: int) -> Evidence:
    runs = [_run(name, method, seed) for method in methods for seed in range(seeds)]
    return Evidence({"name": name, "methods": {method: {} for method in methods}}, {}, 1, "", [100, val, 100], runs)


@pytest.fixture(scope="module")
def found() -> dict[str, Evidence]:
    tasks = (
        _task(LITTLE, ["ce", "fl-1", "fl-2.5", "adafocal"], 3, 500),
        _task(MORE, ["ce", "fl-1", "adafocal"], 2, 2500),
        _task(SST, ["ce", "adafocal"], 2, 872),
        _task(NETWORKS, ["ResNet-20", "LeNet-5", "WRN-16-4"], 1, 5000),
    )
    return {each.name: each for each in tasks}


@pytest.fixture(scope="module")
def page(found: dict[str, Evidence]) -> str:
    return after_training.page(found)


def _trained(found: dict[str, Evidence]) -> list[Evidence]:
    return [found[name] for name in (LITTLE, MORE, SST)]


def _numbers(runs: list[RunEvidence], phase: str, measure: str) -> np.ndarray[Any, Any]:
    return np.array([run.phases[phase][measure][0] for run in runs], dtype=float)


def _row(page: str, heading: str, first: str) -> list[str]:
    """The cells of the row of a table below a heading that begins with some words."""
    section = page.split(f"{heading}\n", 1)[1]
    line = next(line for line in section.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_tables_have_means_over_runs_with_the_lowest_in_bold(found: dict[str, Evidence], page: str) -> None:
    runs = found[LITTLE].runs
    means = {phase: 100 * _numbers(runs, phase, "ece_ew").mean() for phase in SIMPLE}
    for phase, mean in means.items():
        cell = f"**{mean:.2f}**" if mean == min(means.values()) else f"{mean:.2f}"
        assert _row(page, f"### {TITLES[LITTLE]}", PHASES[phase])[1] == cell
    nll = _numbers(runs, "ets", "nll").mean()
    assert _row(page, f"### {TITLES[LITTLE]}", "ETS")[5].strip("*") == f"{nll:.3f}"


def test_ranks_are_among_the_calibrators_that_every_run_has(found: dict[str, Evidence], page: str) -> None:
    runs = [run for each in _trained(found) for run in each.runs]
    ranks = stats.rankdata([[run.phases[phase]["ece_em"][0] for phase in SIMPLE] for run in runs], axis=1).mean(0)
    for phase, rank in zip(SIMPLE, ranks, strict=True):
        assert _row(page, "## After each calibrator", PHASES[phase])[2].strip("*") == f"{rank:.1f}"
    best = SIMPLE[int(ranks.argmin())]
    assert f"AdaECE ({ranks.min():.1f}) has {PHASES[best]}" in page
    assert "Psi^gamma" not in page.split("## Calibrators that only some", 1)[0]


def test_calibrators_of_some_runs_are_shown_beside_the_others_of_the_same_runs(
    found: dict[str, Evidence], page: str
) -> None:
    runs = [run for run in found[LITTLE].runs if run.method in ("fl-1", "fl-2.5")]
    row = _row(page, "## Calibrators that only some runs have", TITLES[LITTLE])
    expected = [100 * _numbers(runs, phase, "ece_ew").mean() for phase in ("pre", "ts-nll", "psi")]
    assert row[1] == "6"
    assert [cell.strip("*") for cell in row[2:]] == [f"{value:.2f}" for value in expected]


@pytest.mark.parametrize(("measure", "name", "factor"), [("nll", "NLL", 1), ("ece_debias", "debiased ECE", 100)])
def test_comparisons_count_runs_and_test_pairs_of_loss_and_task(
    found: dict[str, Evidence], page: str, measure: str, name: str, factor: int
) -> None:
    groups = [
        [run.pairs["fts - ts-ada"][measure] for run in each.of(m)] for each in _trained(found) for m in each.methods
    ]
    rows = np.array(list(itertools.chain(*groups)))
    lower = sum(np.mean([row[0] for row in group]) < 0 for group in groups)
    mean = factor * rows[:, 0].mean()
    assert _row(page, f"### By {name}", "FTS, full grid vs TS by AdaECE")[1:] == [
        f"{mean:+.4f}" if measure == "nll" else f"{mean:+.2f}",
        f"{len(rows)}",
        f"{(rows[:, 0] < 0).sum()}",
        f"{(rows[:, 2] < 0).sum()}",
        f"{(rows[:, 1] > 0).sum()}",
        f"{stats.binomtest(lower, len(groups)).pvalue:.3f}",
    ]


@pytest.mark.parametrize(("fewer", "trials"), [(0, 9), (3, 9), (5, 10), (8, 9)])
def test_the_sign_test_is_exact(fewer: int, trials: int) -> None:
    assert sign_test(fewer, trials) == pytest.approx(stats.binomtest(fewer, trials).pvalue)


def _with_line(found: dict[str, Evidence], shift: float) -> dict[str, Evidence]:
    """The line's differences to the grid, all of them this one, with an interval beside 0."""
    row = [shift, shift - 0.001, shift + 0.001, 0.01]
    same = dict.fromkeys(PAIRED, row)
    tasks = {}
    for name, each in found.items():
        runs = [replace(run, pairs={**run.pairs, "fts-line - fts": same}) for run in each.runs]
        tasks[name] = replace(each, runs=runs)
    return tasks


@pytest.mark.parametrize(("shift", "words"), [(0.02, "worse than"), (-0.02, "better than")])
def test_the_verdict_about_the_line_follows_the_numbers(found: dict[str, Evidence], shift: float, words: str) -> None:
    page = after_training.page(_with_line(found, shift))
    runs = sum(len(each.runs) for each in _trained(found))
    worse, better = (runs, 0) if shift > 0 else (0, runs)
    assert f"By test AdaECE, FTS along a line is {words} FTS on the full grid: {100 * shift:+.2f} points" in page
    assert f"significantly worse in {worse} and better in {better} of {runs} runs" in page
    assert f"| {TITLES[NETWORKS]} | 3 | {100 * shift:+.2f} ({'3 / 0' if shift > 0 else '0 / 3'}) |" in page


def test_differences_of_both_signs_are_not_told_apart(found: dict[str, Evidence]) -> None:
    tasks = _with_line(found, 0.02)
    tasks[MORE] = _with_line(found, -0.02)[MORE]  # 3 pairs of loss and task against 6, p 0.508
    assert "By test NLL, FTS along a line is not told apart from FTS on the full grid" in after_training.page(tasks)


def test_fitted_gammas_at_an_end_and_at_0_are_counted(found: dict[str, Evidence], page: str) -> None:
    gammas = [run.fits["fts"]["gamma"] for each in found.values() for run in each.runs]
    assert len({gammas.count(0.0), gammas.count(1.0), gammas.count(5.0)}) == 3
    expected = f"in {gammas.count(5.0)} and 0, which is TS, in {gammas.count(0.0)} of {len(gammas)} runs"
    assert f"FTS, full grid: gamma is at an end of its range (-0.5 or 5) {expected}" in page


def _change(each: Evidence, method: str, after: str, before: str, measure: str) -> float:
    runs = each.of(method)
    return float(100 * (_numbers(runs, after, measure).mean() / _numbers(runs, before, measure).mean() - 1))


def test_focal_temperature_scaling_is_compared_loss_by_loss(found: dict[str, Evidence], page: str) -> None:
    changes = [_change(each, m, "fts", "ts-ada", "ece_em") for each in _trained(found) for m in each.methods]
    lower = sum(change < 0 for change in changes)
    assert f"FTS has a lower test AdaECE than TS, both fitted by AdaECE, in {lower} of {len(changes)} pairs" in page
    assert f"On average AdaECE changes by {np.mean(changes):+.1f} %" in page
    one = _change(found[MORE], "fl-1", "fts", "ts-ada", "ece_em")
    row = _row(page, "## FTS against TS, loss by loss", "FL-1")
    assert row[2] == (f"**{one:+.1f}**" if one < 0 else f"{one:+.1f}")
    assert row[3] == ""  # SST was not trained with it
    by_nll = [_change(each, m, "fts-nll", "ts-nll", "nll") for each in _trained(found) for m in each.methods]
    assert f"FTS changes the NLL of TS by {np.mean(by_nll):+.2f} % on average" in page


def test_the_criterion_is_judged_on_test_rows(found: dict[str, Evidence], page: str) -> None:
    changes = [_change(each, m, "post", "ts-nll", "ece_ew") for each in _trained(found) for m in each.methods]
    lower = sum(change < 0 for change in changes)
    assert f"TS by ECE instead of TS by NLL changes test ECE by {np.mean(changes):+.1f} % on average" in page
    assert f"lowers it in {lower} of {len(changes)} pairs of loss and task (mukhoti2020" in page


def test_the_number_of_validation_rows_is_set_against_the_change(found: dict[str, Evidence], page: str) -> None:
    points = [
        (each.sizes[1], np.mean([run.pairs["fts - ts-ada"]["ece_em"][0] for run in each.runs]))
        for each in found.values()
    ]
    sizes, changes = zip(*points, strict=True)
    rho = stats.spearmanr(sizes, changes).statistic
    assert f"The rank correlation of rows and change over 4 tasks is {rho:+.2f} (p = " in page
    assert f"{100 * changes[0]:+.2f} points with 500 rows" in page
    few = after_training.page({name: found[name] for name in (LITTLE, MORE)})
    assert "There are too few numbers of rows to speak of a trend." in few


def test_the_trend_is_tested_over_all_orders() -> None:
    ones, others = [1.5, 1.5, 3.0, 4.0, 5.0], [2.0, 1.0, 3.0, 5.0, 4.0]
    rhos = [abs(np.corrcoef(ones, order)[0, 1]) for order in itertools.permutations(others)]
    expected = np.mean(np.array(rhos) >= rhos[0] - 1e-9)
    assert permutation_test(ones, others) == pytest.approx(expected)


def test_the_best_loss_to_start_from_is_named_and_counted(found: dict[str, Evidence], page: str) -> None:
    starts = []
    for each in _trained(found):
        for phase in SIMPLE:
            means = {method: _numbers(each.of(method), phase, "ece_ew").mean() for method in each.methods}
            starts.append((each.name, phase, min(means, key=lambda method: means[method]), 100 * min(means.values())))
    of_adafocal = sum(method == "adafocal" for _, phase, method, _ in starts if phase != "pre")
    assert f"Here it does in {of_adafocal} of {3 * (len(SIMPLE) - 1)} pairs of task and calibrator" in page
    chance = np.mean([1 / 4, 1 / 3, 1 / 2])
    assert f"a loss drawn at random would in {100 * chance:.0f} %" in page
    method, value = next((m, v) for name, phase, m, v in starts if (name, phase) == (MORE, "spline"))
    names = {"ce": "cross-entropy", "fl-1": "FL-1", "adafocal": "AdaFocal"}
    assert _row(page, "## The loss to start from", "spline")[2] == f"{names[method]} ({value:.2f})"


def test_lines_of_best_temperatures_are_fitted_and_compared(page: str) -> None:
    section = page.split("## Best temperature and gamma", 1)[1]
    assert "R² of a line is above 0.95 in 15 of 15 runs, 1.000 in the median" in section
    wanted = f"| {TITLES[LITTLE]} | 2.5 | 1.75 ± 0.00 | 0.70 ± 0.00 | 1.75 ± 0.00 | 1.000 ± 0.000 |"
    assert wanted in section
    assert f"falls in 2 of 2 ({TITLES[LITTLE]}) and 1 of 1 ({TITLES[MORE]})" in section


def test_temperatures_at_an_end_of_the_search_are_told(found: dict[str, Evidence]) -> None:
    runs = [replace(run, extra={"best_temperatures": [[0.0, 2.0], [1.0, 10.0]]}) for run in found[SST].of("ce")]
    page = after_training.page({SST: replace(found[SST], runs=runs)})
    assert "2 of 4 temperatures are at an end of the search, 0.1 or 10." in page


def test_intervals_without_their_value_are_told(found: dict[str, Evidence], page: str) -> None:
    assert "outside its own interval" not in page
    row = {measure: [0.01, 0.02, 0.03, 0.01] for measure in PAIRED}
    runs = [replace(run, pairs={"fts - ts-ada": row}) for run in found[SST].runs]
    assert "in 16 of 16 differences of ECEs the measured value is outside" in after_training.page(
        {SST: replace(found[SST], runs=runs)}
    )


def test_missing_parts_are_left_out_and_named(found: dict[str, Evidence]) -> None:
    assert after_training.page({}) == f"# {after_training.TITLE}\n\nThere are no results.\n"
    assert after_training.figures({}) == {}
    bare = [replace(run, phases={"pre": run.phases["pre"]}, pairs={}, fits={}, extra={}) for run in found[SST].runs]
    page = after_training.page({SST: replace(found[SST], runs=bare)})
    assert TITLES[NEWS] in page.split("Left out, because there are no results: ", 1)[1].splitlines()[0]
    for heading in (
        "Two calibrators",
        "Is a line",
        "FTS against TS",
        "Validation rows",
        "By ECE or",
        "Best temperature",
    ):
        assert f"## {heading}" not in page
    assert after_training.figures({SST: replace(found[SST], runs=bare)}) == {}
    assert "0 runs" in after_training.page({NETWORKS: found[NETWORKS]})


def test_figures_are_those_of_the_page_and_draw(found: dict[str, Evidence], page: str) -> None:
    made = after_training.figures(found)
    assert set(made) == {"after_training_ece", "after_training_line"}
    for name, figure in made.items():
        assert f"](images/{name}.svg)" in page
        figure.savefig(io.BytesIO(), format="svg")
    ax = made["after_training_ece"].axes[0]
    runs = found[LITTLE].runs
    ratio = _numbers(runs, "post", "ece_ew").mean() / _numbers(runs, "ts-nll", "ece_ew").mean()
    assert ax.lines[1].get_xdata()[1] == pytest.approx(ratio)  # after the line at 1: the first task, its second row
    assert page.endswith(".\n")
    assert not page.endswith("\n\n")
