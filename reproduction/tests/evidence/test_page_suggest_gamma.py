"""The page about the gamma that cross-entropy suggests, on results made here."""

from __future__ import annotations

import io
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest

from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, TITLES
from reproduction.pages import suggest_gamma
from reproduction.result_files import Evidence, RunEvidence

# ECE of three seeds, in percent, lowest at gamma 3; and what the seeds of cross-entropy suggest.
ECES = {
    "ce": [17.0, 16.0, 18.0],
    "fl-1": [12.0, 12.5, 11.5],
    "fl-2.2": [6.0, 6.4, 5.9],
    "fl-3": [4.0, 4.1, 3.8],
    "fl-5": [9.0, 9.5, 8.5],
    "flsd-53": [1.0, 1.0, 1.0],  # has no fixed gamma, and so no place in the sweep
}
SUGGESTED = [2.3, 2.5, 2.4]
TEMPERATURES = {"ce": 1.9, "fl-1": 1.6, "fl-2.2": 1.2, "fl-3": 1.05, "fl-5": 0.8, "flsd-53": 1.0}


def _run(method: str, seed: int, ece: float) -> RunEvidence:
    values = {"error": 0.4 - ece / 1000, "nll": 1 + ece / 100, "ece_ew": ece / 100, "ece_em": ece / 80}
    extra = {"suggested_gamma": SUGGESTED[seed]} if method == "ce" else {}
    fits = {"ts-nll": {"temperature": TEMPERATURES[method]}}
    phases: dict[str, dict[str, list[float | None]]] = {
        "pre": {name: [each, None, None] for name, each in values.items()}
    }
    return RunEvidence(method, seed, 1.0, phases, fits, extra=extra)


def _task(name: str, eces: dict[str, list[float]]) -> Evidence:
    runs = [_run(method, seed, ece) for method, values in eces.items() for seed, ece in enumerate(values)]
    return Evidence({"name": name, "methods": {method: {} for method in eces}}, {}, 1, "", [100, 500, 100], runs)


@pytest.fixture
def task() -> Evidence:
    return _task(LITTLE, ECES)


def test_the_suggestion_is_placed_in_the_sweep(task: Evidence) -> None:
    page = suggest_gamma.page({LITTLE: task})
    noise = max(stdev(ECES["fl-2.2"]), stdev(ECES["fl-3"]))
    behind = fmean(ECES["fl-2.2"]) - fmean(ECES["fl-3"])
    share = 100 * (17 - fmean(ECES["fl-2.2"])) / (17 - fmean(ECES["fl-3"]))
    assert (
        f"{TITLES[LITTLE]}: cross-entropy runs suggest gamma 2.40 (2.30 to 2.50); the nearest trained gamma, 2.2"
        " (0.20 away), has an ECE of 6.10 %, rank 2 of 5.\n"
        f"The lowest ECE, 3.97 %, is at a larger gamma, 3 (0.60 away): {behind:.2f} points lower, more than the"
        f" standard deviation over seeds ({noise:.2f}).\n"
        f"Cross-entropy itself has 17.00 %: the suggestion gains {share:.0f} % of what the best gamma gains.\n"
    ) in page
    between = np.interp(2.4, [2.2, 3.0], [fmean(ECES["fl-2.2"]), fmean(ECES["fl-3"])])
    assert f"| ECE | 3 | 3.97 | 6.10 | 2 of 5 | {behind:.2f} | {between:.2f} |" in page
    assert f"| NLL | 3 | 1.040 | 1.061 | 2 of 5 | 0.021 | {1 + between / 100:.3f} |" in page
    assert (
        "| error | 0 | 38.30 | 39.39 | 4 of 5 | 1.09 |" in page
    )  # made to fall with ECE: another measure, another best


def test_the_sweep_has_every_fixed_gamma_in_order(task: Evidence) -> None:
    page = suggest_gamma.page({LITTLE: task})
    rows = [line for line in page.splitlines() if line.endswith(("1.90 ± 0.00 |", "1.20 ± 0.00 |", "0.80 ± 0.00 |"))]
    assert [row.split(" | ")[0] for row in rows] == ["| cross-entropy", "| FL-2.2", "| FL-5"]
    assert "| FL-3 | **3.97** ± 0.15 |" in page
    assert "FLSD" not in page
    assert "at gamma 2.2, the nearest to the suggestion, T by NLL is 1.20; it is closest to 1 at gamma 3 (1.05)" in page


def test_seeds_are_shown_one_by_one(task: Evidence) -> None:
    page = suggest_gamma.page({LITTLE: task})
    assert "in 3 of 3 the gamma nearest to the suggestion has a lower ECE than cross-entropy" in page
    assert "| 1 | 1.90 | 2.50 | 2.2 | 6.40 | 3 | 4.10 |" in page


@pytest.mark.parametrize(
    ("eces", "words"),
    [
        ([3.0, 3.1, 2.9], "No other gamma of the sweep (0, 1, 2.2, 3, 5) has a lower ECE.\n"),
        ([4.0, 4.4, 3.9], "points lower, within the standard deviation over seeds"),
        ([19.0, 18.0, 20.0], "the suggestion does not lower ECE.\n"),
    ],
)
def test_words_follow_the_numbers(eces: list[float], words: str) -> None:
    assert words in suggest_gamma.page({LITTLE: _task(LITTLE, {**ECES, "fl-2.2": eces})})


def test_a_suggestion_outside_the_sweep_is_not_interpolated(task: Evidence) -> None:
    few = {method: ECES[method] for method in ("ce", "fl-1", "fl-2.2")}
    page = suggest_gamma.page({LITTLE: task, MORE: _task(MORE, few)})
    assert f"{TITLES[MORE]}: suggested 2.4, lowest ECE at 2.2 of 0, 1, 2.2." in page
    assert "2.40, falls: outside the sweep" in page
    assert "| ECE | 2.2 | 6.10 | 6.10 | 1 of 3 | 0.00 |  |" in page


def test_missing_parts_are_left_out_and_named(task: Evidence) -> None:
    none = "There is no sweep of training gammas with a suggestion to compare.\n"
    assert none in suggest_gamma.page({})
    assert suggest_gamma.figures({}) == {}
    assert none in suggest_gamma.page({NEWS: _task(NEWS, ECES)})
    silent = replace(task, runs=[replace(run, extra={}, fits={}) for run in task.runs])
    page = suggest_gamma.page({LITTLE: task, LITTLE_20: silent})
    assert page.endswith(
        f"Left out, for want of 3 trained gammas or of a suggestion: {TITLES[LITTLE_20]}; {TITLES[MORE]}.\n"
    )
    bare = replace(task, runs=[replace(run, fits={}) for run in task.runs if run.method != "fl-3"])
    page = suggest_gamma.page({LITTLE: bare})
    assert "FL-3" not in page
    assert "T by NLL is" not in page


def test_the_figure_shows_means_and_suggestions(task: Evidence) -> None:
    made = suggest_gamma.figures({LITTLE: task, LITTLE_20: _task(LITTLE_20, ECES), MORE: _task(MORE, ECES)})
    (figure,) = made.values()
    assert f"](images/{next(iter(made))}.svg)" in suggest_gamma.page({LITTLE: task})
    figure.savefig(io.BytesIO(), format="svg")
    curve = next(line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert list(curve.get_xdata()) == [0, 1, 2.2, 3, 5]
    assert list(curve.get_ydata()) == pytest.approx([fmean(ECES[name]) for name in list(ECES)[:5]])
    marks = next(line for line in figure.axes[0].lines if line.get_marker() == "v")
    assert list(marks.get_xdata()) == SUGGESTED
