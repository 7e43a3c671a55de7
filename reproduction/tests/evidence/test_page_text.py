"""The page about text says what its result files say about losses and about AdaFocal's updates."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from reproduction.labels import NEWS, SST, TITLES
from reproduction.pages import text
from reproduction.result_files import Evidence, RunEvidence

MEASURES = ("error", "nll", "ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "s99_fraction")
RARE, OFTEN = "adafocal", "adafocal-10"


def run(method: str, seed: int, along: list[float | None], kept: float | None = None) -> RunEvidence:
    """A run with these test ECEs after epochs 1, 2 and so on; that of the network kept is the last one."""
    last = kept if kept is not None else along[-1]
    measured: dict[str, list[float | None]] = {name: [last, None, None] for name in MEASURES}
    series = {"epoch": list(range(len(along))), "test_ece": along} if along else {}
    return RunEvidence(method, seed, 30.0, {"pre": measured, "ts-nll": measured}, dynamics=series)


def evidence(name: str, runs: list[RunEvidence], **training: Any) -> Evidence:
    methods = {each.method: {"loss": each.method} for each in runs}
    methods |= {OFTEN: {"loss": "adafocal", "every": 10}} if OFTEN in methods else {}
    recipe = {"name": name, "methods": methods, "training": {"epochs": 3, "batch_size": 4, **training}}
    return Evidence(recipe, {}, 1, "", [101, 20, 50], runs)


def news() -> Evidence:
    """Frequent updates are better at two of three epochs and at the end, but there in one of two seeds only."""
    runs = [run("ce", seed, [0.10, 0.20, 0.30]) for seed in range(2)]
    runs += [run(RARE, 0, [0.02, 0.08, 0.06]), run(RARE, 1, [0.04, 0.10, 0.06])]
    runs += [run(OFTEN, 0, [0.05, 0.02, 0.01]), run(OFTEN, 1, [0.05, 0.04, 0.06])]
    return evidence(NEWS, runs)


def line(page: str, *parts: str) -> str:
    """The one line of a page that has all parts in it."""
    found = [each for each in page.splitlines() if all(part in each for part in parts)]
    assert len(found) == 1, (parts, found)
    return found[0]


def test_frequent_and_rare_updates_are_compared_at_the_end() -> None:
    page = text.page({NEWS: news()})
    assert "in 1 of 1 recipes (3.50 instead of 6.00 %)" in line(page, "ends with a lower ECE")
    # 101 rows in batches of 4 are 26 batches, in which an update every 10 happens twice
    said = line(page, f"- {TITLES[NEWS]}, at the end:")
    assert "2 updates an epoch of 26 batches instead of 1, 6 instead of 3 in all" in said
    assert "ECE 3.50 % instead of 6.00 %, lower in 1 of 2 seeds." in said


def test_frequent_and_rare_updates_are_compared_along_the_epochs() -> None:
    said = line(text.page({NEWS: news()}), f"- {TITLES[NEWS]}, along the epochs:")
    assert "lower with frequent updates at 2 of 3 epochs" in said  # means of 5, 3, 3.5 % against 3, 9, 6 %
    assert "at most 5.00 % (epoch 1) with frequent updates, and 9.00 % (epoch 2) with one an epoch" in said


def test_table_has_the_last_the_mean_and_the_worst_epoch_over_seeds() -> None:
    page = text.page({NEWS: news()})
    # by seed: last 6 and 6, means 16 / 3 and 20 / 3, worst 8 and 10
    assert f"| {TITLES[NEWS]} | AdaFocal | 6.00 ± 0.00 | 6.00 ± 0.00 | 6.00 ± 0.94 | 9.00 ± 1.41 |" in page
    assert f"| {TITLES[NEWS]} | cross-entropy | 30.00 ± 0.00 | 30.00 ± 0.00 | 20.00 ± 0.00 | 30.00 ± 0.00 |" in page


def test_names_with_a_comma_lose_it_in_sentences() -> None:
    page = text.page({NEWS: news()})
    assert "- AdaFocal every 10 batches has the lowest ECE as trained, 3.50 %" in page
    assert "\n| AdaFocal, every 10 batches | **3.50** ± 3.54 |" in page


def test_series_of_a_recipe_that_keeps_its_best_epoch_carry_a_warning() -> None:
    runs = [run(RARE, 0, [0.1, 0.2], kept=0.1), run(OFTEN, 0, [0.1, 0.1])]
    page = text.page({NEWS: news(), SST: evidence(SST, runs, select="best")})
    assert line(page, "`select: best`").startswith(f"- {TITLES[SST]}: the recipe keeps the epoch of the lowest")
    assert "of which that of the lowest validation error is measured" in line(page, f"Recipe `{SST}`")
    assert "of which the last is measured" in line(page, f"Recipe `{NEWS}`")
    assert f"| {TITLES[SST]} | AdaFocal | 10.00 | 20.00 | 15.00 | 20.00 |" in page


def test_what_is_missing_is_left_out_and_said() -> None:
    assert text.page({}).endswith(f"no results of `{NEWS}` and `{SST}`: left out.\n")
    assert text.figures({}) == {}
    without = text.page({NEWS: evidence(NEWS, news().runs[:4])})
    assert "AdaFocal was not run in both ways, and is not compared." in without
    assert "ends with a lower ECE" not in without
    unseen = {NEWS: evidence(NEWS, [run(RARE, 0, [], kept=0.05), run(OFTEN, 0, [], kept=0.04)])}
    assert "No run has a series by epoch: the figure is left out." in text.page(unseen)
    assert "ECE 4.00 % instead of 5.00 %" in text.page(unseen)
    assert text.figures(unseen) == {}
    other = {NEWS: evidence(NEWS, [run("brier", 0, [0.1])])}
    assert "how often AdaFocal updates is left out" in text.page(other)


def test_epochs_that_were_not_recorded_are_skipped() -> None:
    gap = evidence(NEWS, [run(RARE, 0, [None, 0.08, 0.06]), run(OFTEN, 0, [0.05, None, 0.01])])
    assert "at 1 of 1 epochs" in line(text.page({NEWS: gap}), ", along the epochs:")


def test_pages_begin_with_the_title_and_show_the_figures_that_are_drawn() -> None:
    for there in ({}, {NEWS: news()}, {NEWS: evidence(NEWS, [run("brier", 0, [0.1])])}):
        page = text.page(there)
        assert page.startswith(f"# {text.TITLE}\n\n")
        assert page.endswith("\n")
        assert "\n\n\n" not in page
        assert set(re.findall(r"\(images/(\w+)\.svg\)", page)) == set(text.figures(there))


def test_figure_has_a_panel_a_recipe_and_counts_epochs_from_one() -> None:
    figure = text.figures({NEWS: news(), SST: evidence(SST, news().runs)})["text_epochs"]
    figure.draw_without_rendering()
    assert [ax.get_title() for ax in figure.axes] == [TITLES[NEWS], TITLES[SST]]
    lines = figure.axes[0].lines
    assert [list(each.get_xdata()) for each in lines] == [[1, 2, 3]] * 3
    assert list(lines[1].get_ydata()) == pytest.approx([0.03, 0.09, 0.06])
    names = [each.get_text() for each in figure.legends[0].get_texts()]
    assert names == ["cross-entropy", "AdaFocal", "AdaFocal, every 10 batches"]
