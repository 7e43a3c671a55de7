"""The page about translation, on numbers made up here."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest

from reproduction.labels import TRANSLATION
from reproduction.pages import translation
from reproduction.result_files import Evidence, RunEvidence

pytest.importorskip("matplotlib")
METHODS = ("ce", "ls-0.1", "fl-1")
ECE = {"ce": 0.05, "ls-0.1": 0.03, "fl-1": 0.02}


def run(method: str, seed: int, bleus: tuple[float, ...] = (50.0, 52.0, 51.0)) -> RunEvidence:
    phases: Any = {
        "pre": {
            "ece_ew": [ECE[method] + 0.001 * seed, None, None],
            "nll": [1.3, None, None],
            "bleu": [52.0, None, None],
        },
        "post": {"ece_ew": [0.01, None, None], "nll": [1.2, None, None], "bleu": [51.0 + seed, None, None]},
    }
    curve = [
        {"temperature": temperature, "val_ece": abs(temperature - 1.5) / 10, "test_bleu": bleu + seed}
        for temperature, bleu in zip((0.5, 1.0, 1.5), bleus, strict=True)
    ]
    extra = {"curve": curve, "val_ece": {"0.7": 0.08, "1.2": 0.03, "9": 0.4}, "token_error": 0.3, "beams": 4}
    return RunEvidence(method, seed, 1.0, phases, {"post": {"temperature": 1.5}}, extra=extra)


def evidence(methods: tuple[str, ...] = METHODS, seeds: int = 2) -> Evidence:
    runs = [run(method, seed) for method in methods for seed in range(seeds)]
    return Evidence({"name": TRANSLATION, "methods": dict.fromkeys(METHODS)}, {}, 1, "made up", [10, 5, 5], runs)


def told(found: Evidence) -> str:
    return translation.page({TRANSLATION: found})


def cells(text: str, start: str) -> list[str]:
    (line, *_) = (line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_paper_s_table_is_beside_ours() -> None:
    text = told(evidence())
    ece, bleu = [5.0, 5.1], [51.0, 52.0]
    assert cells(text, "here | cross-entropy")[2:] == [
        f"{fmean(ece):.2f} ± {stdev(ece):.2f}",
        "1.00 ± 0.00",
        "1.50 ± 0.00",
        "52.00 ± 0.00",
        f"{fmean(bleu):.2f} ± {stdev(bleu):.2f}",
    ]
    assert cells(text, "WMT14 | FL-1")[2:] == ["1.69", "1.69", "1.0", "26.39", "26.39"]
    assert cells(text[text.index("## Tokens") :], "FL-1")[1:] == ["1.300 ± 0.000", "1.200 ± 0.000", "30.00 ± 0.00"]


def test_orders_are_compared_with_the_paper_s() -> None:
    found = evidence()
    text = told(found)
    assert (
        "ECE before scaling: FL-1 < LS-0.1 < cross-entropy; mukhoti2020 has FL-1 < LS-0.1 < cross-entropy, the same"
        in text
    )
    assert "The paper's order by ECE before scaling holds in all 2 seeds." in text
    assert "Scaling lowers the test ECE in all 6 runs." in text
    phases: Any = {**found.runs[0].phases, "pre": {"ece_ew": [0.005, None, None]}}
    text = told(replace(found, runs=[replace(found.runs[0], phases=phases), *found.runs[1:]]))
    assert "FL-1 < cross-entropy < LS-0.1; mukhoti2020 has FL-1 < LS-0.1 < cross-entropy, another order" in text
    assert "holds in 1 of 2 seeds" in text
    assert "Scaling lowers the test ECE in 5 of 6 runs." in text


def test_temperatures_of_the_lowest_ece_and_the_highest_bleu() -> None:
    found = evidence()
    text = told(replace(found, runs=[*found.runs[:-1], run("fl-1", 1, (50.0, 49.0, 53.0))]))
    section = text[text.index("## BLEU against") :]
    assert cells(section, "cross-entropy")[1:] == [
        "1.50 ± 0.00",
        "1.00 ± 0.00",
        "52.50 ± 0.71",
        "1.00 ± 0.00",
        "0.00 ± 0.00",
    ]
    assert cells(section, "FL-1")[4:] == ["0.50 ± 0.71", "2.00 ± 2.83"]
    assert "same point of the curve in 1 of 6 runs, and at neighbouring points in 5 of 6 runs." in section
    assert "below that of the lowest ECE in 5 of 6 runs, and above it in none of 6 runs." in section
    assert f"BLEU changes by {fmean([2, 2, 2, 2, 2, 4]):.2f} points on average" in section
    assert f"is {5 / 6:.2f} points below the best of its curve on average, 1.00 at most" in text


def test_missing_parts_are_left_out_and_named() -> None:
    found = evidence(methods=("ce",), seeds=1)
    bare = replace(found.runs[0], extra={}, fits={}, phases={})
    text = told(replace(found, runs=[bare]))
    assert "Not run here: LS-0.1, FL-1." in text
    assert "## BLEU against" not in text
    assert cells(text, "here | cross-entropy")[2:] == [""] * 5
    assert translation.figures({TRANSLATION: replace(found, runs=[bare])}) == {}
    assert translation.page({}) == "# Translation\n\nThere is no result file of toy translation yet.\n"
    assert "Not run here: LS-0.1, FL-1." in told(found)


def test_the_figure_has_every_seed_and_the_means() -> None:
    found = {TRANSLATION: evidence(methods=("ce",))}
    (name, figure), *others = translation.figures(found).items()
    assert not others
    assert f"images/{name}.svg" in translation.page(found)
    figure.draw_without_rendering()
    upper, lower = figure.axes
    assert [line.get_ydata().tolist() for line in upper.lines] == [
        [50, 52, 51],
        [51, 53, 52],
        [50.5, 52.5, 51.5],
        [52.5],
    ]
    mean, best = lower.lines[-2:]
    assert mean.get_xdata().tolist() == [0.5, 0.7, 1.0, 1.2, 1.5]
    assert mean.get_ydata().tolist() == pytest.approx([0.1, 0.08, 0.05, 0.03, 0.0])
    assert best.get_xdata().tolist() == [1.5]


def test_the_page_ends_with_one_newline_and_its_tables_are_narrow() -> None:
    text = told(evidence())
    assert text.endswith("none.\n")
    assert max(line.count("|") for line in text.splitlines()) <= 8
