"""The page about other sets, on numbers made up here."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest

from reproduction.labels import LITTLE, MORE
from reproduction.pages import out_of_distribution as ood
from reproduction.result_files import Evidence, RunEvidence

pytest.importorskip("matplotlib")
METHODS = ("ce", "fl-3", "flsd-53", "adafocal")
AUROC = {"ce": 0.70, "fl-3": 0.60, "flsd-53": 0.62, "adafocal": 0.61}


def measured(auroc: float, change: float = 0.01) -> dict[str, Any]:
    pre = {"auroc": auroc, "fpr95": 1 - auroc, "auroc_confidence": auroc - 0.02, "fpr95_confidence": 0.9}
    return {"pre": pre, "post": {**pre, "auroc": auroc + change, "fpr95": 0.9}}


def run(method: str, seed: int) -> RunEvidence:
    auroc = AUROC[method] + 0.01 * seed
    foreign = {"cifar100": measured(auroc), "mnist": measured(auroc - 0.15)}
    return RunEvidence(method, seed, 1.0, {"pre": {"error": [0.2 + 0.1 * seed, None, None]}}, foreign=foreign)


def evidence(name: str = LITTLE, methods: tuple[str, ...] = METHODS, seeds: int = 2) -> Evidence:
    runs = [run(method, seed) for method in methods for seed in range(seeds)]
    return Evidence({"name": name, "methods": dict.fromkeys(METHODS)}, {}, 1, "made up", [10, 5, 5], runs)


def cells(text: str, start: str) -> list[str]:
    (line, *_) = (line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_tables_have_both_phases_of_each_set() -> None:
    text = ood.page({LITTLE: evidence()})
    values = [[60.0, 61.0], [61.0, 62.0], [45.0, 46.0], [46.0, 47.0]]
    assert cells(text, "FL-3")[1:] == [f"{fmean(v):.1f} ± {stdev(v):.1f}" for v in values]
    assert cells(text, "cross-entropy")[1] == "**70.5** ± 0.7"
    assert cells(text[text.index("FPR95 by") :], "cross-entropy")[1] == "**29.5** ± 0.7"
    assert "those here have 20.0 to 30.0 %" in text


def test_the_best_loss_of_each_set_and_whether_it_is_apart() -> None:
    text = ood.page({LITTLE: evidence()})
    assert cells(text, "ResNet-8 on CIFAR10-s")[1:] == [
        "CIFAR-100",
        "cross-entropy, 70.5 ± 0.7",
        "FLSD-53, 62.5 ± 0.7",
        "FL-3, 60.5 ± 0.7",
    ]
    assert "In none of 2 rows, the highest mean is ahead of the second by less" in text


def test_changes_by_scaling_are_counted_against_the_paper() -> None:
    found = evidence()
    moved = replace(found.runs[2], foreign={**found.runs[2].foreign, "mnist": measured(0.5, -0.03)})
    text = ood.page({LITTLE: replace(found, runs=[*found.runs[:2], moved, *found.runs[3:]])})
    assert "by more than 2.4 points, the most in ghosh2022 Table 8, in 1 of 16 cases" in text
    assert "the largest change is -3.00 points (FL-3, MNIST, ResNet-8 on CIFAR10-s, seed 0)" in text
    assert "raises AUROC in 15 of 16 cases" in text
    assert f"changes it by {(15 * 1 + 3) / 16:.2f} points on average, 3.00 at most" in text


def test_adafocal_is_compared_by_recipe_set_and_seed() -> None:
    text = ood.page({LITTLE: evidence(), MORE: evidence(MORE, seeds=1)})
    assert "AdaFocal has a higher AUROC than FL-3 of the same seed in all 6 cases" in text
    assert "AdaFocal has a higher AUROC than FLSD-53 of the same seed in none of 6 cases" in text
    assert "AdaFocal beats both, as in all four rows of ghosh2022 Table 8, in none of 6 cases." in text


def test_entropy_against_confidence_and_chance() -> None:
    text = ood.page({LITTLE: evidence()})
    assert "Entropy has a higher AUROC than the largest probability in all 16 cases (+2.00 points on average)." in text
    assert "AUROC is below 50 %, worse than chance, in 6 of 16 cases (6 on MNIST)." in text
    assert "CIFAR-100 63.8 % (60.0 to 71.0), MNIST 48.8 % (45.0 to 56.0)" in text


def test_missing_parts_are_left_out_and_named() -> None:
    found = evidence(methods=("ce", "adafocal"), seeds=1)
    bare = {"cifar100": {"pre": {"auroc": 0.6}}}
    text = ood.page({LITTLE: replace(found, runs=[replace(each, foreign=bare) for each in found.runs])})
    assert "left out: ResNet-20 on CIFAR10-s; ResNet-8 on half of CIFAR-10." in text
    assert "Not measured here: FL-3, FLSD-53." in text
    assert "MNIST" not in text
    assert "AdaFocal beats" not in text
    assert "Temperature scaling changes" not in text
    assert ood.page({}).startswith(f"# {ood.TITLE}\n\nThere is no result file")
    assert ood.figures({}) == {}


def test_the_figure_has_a_mark_for_every_seed() -> None:
    found = {LITTLE: evidence(), MORE: evidence(MORE, methods=("ce",), seeds=1)}
    (name, figure), *others = ood.figures(found).items()
    assert not others
    assert f"images/{name}.svg" in ood.page(found)
    figure.draw_without_rendering()
    first, _ = figure.axes
    little, more = first.lines[1:]  # after chance
    assert sorted(little.get_xdata()) == pytest.approx([0.60, 0.61, 0.61, 0.62, 0.62, 0.63, 0.70, 0.71])
    assert more.get_xdata().tolist() == [0.7]
    assert [label.get_text() for label in first.get_yticklabels()] == ["cross-entropy", "FL-3", "FLSD-53", "AdaFocal"]


def test_the_page_ends_with_one_newline_and_its_tables_are_narrow() -> None:
    text = ood.page({LITTLE: evidence()})
    assert text.endswith("column.\n")
    assert max(line.count("|") for line in text.splitlines()) <= 8
