"""The page about people's answers, on numbers made up here."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest

from reproduction.labels import LITTLE, NETWORKS
from reproduction.pages import human
from reproduction.result_files import Evidence, RunEvidence

pytest.importorskip("matplotlib")
KL = {"pre": 1.0, "ts-nll": 0.8, "fts": 0.9, "ets": 0.7, "spline": 1.1}
ECE = {"pre": 0.2, "ts-nll": 0.05, "fts": 0.04, "ets": 0.06, "spline": 0.1}
NLL = {"pre": 1.5, "ts-nll": 1.2, "fts": 1.6, "ets": 1.1, "spline": 1.4}


def run(method: str, seed: int, factor: float = 1.0) -> RunEvidence:
    kls = {**KL, "psi": 0.6} if method.startswith("fl-") else KL
    found = {
        phase: {"kl": factor * kl, "ece": ECE.get(phase, 0.3), "gap": 0.3 if phase == "pre" else 0.35, "agreement": 0.6}
        for phase, kl in kls.items()
    }
    phases: Any = {phase: {"nll": [nll, None, None]} for phase, nll in NLL.items()}
    return RunEvidence(method, seed, 1.0, phases, human=found)


def evidence(name: str = LITTLE, methods: tuple[str, ...] = ("ce", "fl-1"), seeds: int = 2) -> Evidence:
    runs = [run(method, seed, 1 + 0.1 * seed) for method in methods for seed in range(seeds)]
    return Evidence({"name": name, "methods": dict.fromkeys(methods)}, {}, 1, "made up", [10, 5, 5], runs)


def cells(text: str, start: str) -> list[str]:
    (line, *_) = (line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_tables_mark_the_closest_calibrator_of_a_row() -> None:
    text = human.page({LITTLE: evidence()})
    section = text[text.index("## ResNet-8 on CIFAR10-s") :]
    row = cells(section, "FL-1")
    expected = {phase: [kl, 1.1 * kl] for phase, kl in {**KL, "psi": 0.6}.items()}
    assert row[1:-1] == [f"{fmean(v):.3f} ± {stdev(v):.3f}" for v in list(expected.values())[:-1]]
    assert row[-1] == f"**{fmean(expected['psi']):.3f}** ± {stdev(expected['psi']):.3f}"
    assert cells(section, "cross-entropy")[-1] == ""
    assert cells(section[section.index("ECE to people, %:") :], "cross-entropy")[3] == "**4.00** ± 0.00"
    assert "mean KL is lowest" not in text  # both are equal


def test_calibrators_are_counted_over_runs() -> None:
    text = human.page({LITTLE: evidence(), NETWORKS: evidence(NETWORKS, ("LeNet-5",), 1)})
    trained, published = text[text.index("## Networks trained") :], text[text.index("## Published networks") :]
    assert cells(trained, "ETS") == ["ETS", "4", "4", f"{-0.3 * 1.05:+.3f}", "2", "4", "0"]
    assert cells(trained, "spline")[2] == "0"
    assert cells(trained, "Psi^gamma")[1:5] == ["2", "2", f"{-0.4 * 1.05:+.3f}", "2"]
    assert cells(published, "ETS")[4] == "1"
    assert "Psi^gamma" not in published[: published.index("## What")]
    assert "Most often closest: ETS, in 3 of 5 runs." in text


def test_labels_and_people_need_not_agree() -> None:
    text = human.page({LITTLE: evidence()})
    assert "TS by NLL: NLL of the test labels falls in all 4 runs; of those, KL to people falls in all 4 runs." in text
    assert "spline: NLL of the test labels falls in all 4 runs; of those, KL to people falls in none of 4 runs." in text
    assert "FTS, full grid: NLL of the test labels falls in none of 4 runs." in text
    assert "people's answers in all 4 runs (1.050 to 0.840 nats on average)" in text
    assert "falls with TS by NLL in none of 4 runs (30.0 to 35.0 points on average)" in text
    assert "The predicted class has 60.0 % of people's answers" in text


def test_missing_parts_are_left_out_and_named() -> None:
    found = evidence(methods=("ce",), seeds=2)
    lost: Any = {"pre": {"kl": 1.0, "ece": 0.1}, "spline": {"kl": None, "ece": 0.1}}
    found = replace(found, runs=[replace(found.runs[0], human=lost), replace(found.runs[1], human={}, phases={})])
    text = human.page({LITTLE: found})
    assert "left out: ResNet-20 on CIFAR10-s; ResNet-8 on half of CIFAR-10; published CIFAR-10 networks." in text
    assert "Runs without a finite KL, which tables leave out: spline in 1." in text
    assert "Not measured here: TS by NLL, FTS, full grid, ETS, Psi^gamma." in text
    assert "images/" not in text
    assert human.figures({LITTLE: found}) == {}
    assert "There is no result file" in human.page({})


def test_the_lowest_and_the_highest_divergence_are_named() -> None:
    found = evidence(seeds=1)
    text = human.page({LITTLE: replace(found, runs=[found.runs[0], run("fl-1", 0, 1.5)])})
    assert "As trained, mean KL is lowest with cross-entropy (1.000) and highest with FL-1 (1.500)." in text
    assert "After TS by NLL, mean KL is lowest with cross-entropy (0.800) and highest with FL-1 (1.200)." in text


def test_the_figure_has_both_phases_of_every_seed() -> None:
    found = {LITTLE: evidence(), NETWORKS: evidence(NETWORKS, ("LeNet-5",), 1)}
    (name, figure), *others = human.figures(found).items()
    assert not others
    assert f"images/{name}.svg" in human.page(found)
    figure.draw_without_rendering()
    upper, lower = figure.axes
    assert upper.lines[-2].get_xdata().tolist() == pytest.approx([1.0, 1.1, 1.0, 1.1])
    assert lower.lines[-1].get_xdata().tolist() == [0.8]
    assert [label.get_text() for label in lower.get_yticklabels()] == ["LeNet-5"]


def test_the_page_ends_with_one_newline_and_its_tables_are_narrow() -> None:
    text = human.page({LITTLE: evidence()})
    assert text.startswith(f"# {human.TITLE}\n")
    assert text.endswith("with.\n")
    assert max(line.count("|") for line in text.splitlines()) <= 8
