"""The page about training, on series made up here."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from reproduction.labels import LITTLE, LITTLE_20
from reproduction.pages import dynamics
from reproduction.result_files import Evidence, RunEvidence

pytest.importorskip("matplotlib")
EPOCHS = [2, 5, 8, 11]  # 3, 6, 9 and 12 epochs trained; the learning rate falls after 6
METHODS = ("ce", "fl-1", "fl-2", "fl-3", "flsd-53", "adafocal")
SCALE = {"ce": 1.0, "fl-1": 0.9, "fl-2": 0.8, "fl-3": 0.7, "flsd-53": 0.6, "adafocal": 0.5}


def series(method: str, seed: int) -> dict[str, Any]:
    """Numbers that differ by loss and seed: test NLL falls with the drop and rises after it."""
    factor = SCALE[method] * (1 + 0.01 * seed)
    shapes = {
        "train_nll": [2.0, 1.0, 0.5, 0.1],
        "test_nll": [2.0, 1.5, 1.0, 1.2],
        "test_nll_correct": [1.0, 0.5, 0.4, 0.3],
        "test_nll_wrong": [2.0, 3.0, 2.5, 3.5],
        "test_entropy_correct": [1.5, 1.0, 0.8, 0.6],
        "test_entropy_wrong": [1.6, 1.7, 1.2, 1.0],
        "test_ece": [0.02, 0.10, 0.08, 0.15],
        "weight_norm": [2.0, 4.0, 6.0, 8.0],
        "feature_norm": [1.0, 2.0, 3.0, 4.0],
        "gradient_norm": [3.0, 2.0, 1.0, 0.5],
        "train_top_share": [0.0, 0.1, 0.5, 0.9],
    }
    found: dict[str, Any] = {name: [factor * value for value in values] for name, values in shapes.items()}
    found["epoch"] = EPOCHS
    found["bins"] = {
        "val_confidence": [
            [0.2, 0.4, 0.6],
            [0.3, 0.5, 0.7],
            [0.4, 0.6, 0.8],
            [0.5 * factor, 0.7 * factor, 0.9 * factor],
        ],
        "val_accuracy": [[0.2, 0.4, 0.6]] * 4,
        "train_true": [
            [0.0, 0.41, 0.6],
            [0.28, 0.52, 0.71],
            [0.41, 0.57, 0.83],
            [0.5 * factor, 0.6 * factor, 0.9 * factor],
        ],
    }
    if method == "adafocal":
        found["bins"]["gamma"] = [[1.0, 1.0, 1.0], [2.0, 1.5, 1.0], [3.0, 1.0, 0.5], [4.0 + seed, 1.0, -0.5]]
    found["learned"] = {"since": [0, 3, None], "rows": [5, 4, 1], "mean_max_logit": [10.0 * factor, 6.0, 3.0]}
    return found


def evidence(name: str = LITTLE, methods: tuple[str, ...] = METHODS, seeds: int = 2) -> Evidence:
    runs = [RunEvidence(m, seed, 1.0, {}, dynamics=series(m, seed)) for m in methods for seed in range(seeds)]
    recipe = {"name": name, "methods": dict.fromkeys(METHODS), "training": {"milestones": [6, 10]}}
    return Evidence(recipe, {}, 1, "made up", [10, 5, 5], runs)


def changed(found: Evidence, method: str, seed: int, **values: Any) -> Evidence:
    """The same with other series of one run."""
    runs = [
        replace(run, dynamics={**run.dynamics, **values}) if (run.method, run.seed) == (method, seed) else run
        for run in found.runs
    ]
    return replace(found, runs=runs)


def told(found: Evidence) -> str:
    return dynamics.page({found.name: found})


def cells(text: str, start: str) -> list[str]:
    """The cells of the first row that starts so."""
    (line, *_) = (line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_has_both_sides_of_the_drop() -> None:
    row = cells(told(evidence()), "test NLL")
    expected = [[value * factor for factor in (1.0, 1.01)] for value in (2.0, 1.5, 1.0, 1.2)]
    assert row[1:5] == [f"{fmean(values):.3f} ± {stdev(values):.3f}" for values in expected]
    assert row[5] == "all 2 runs"


def test_epochs_are_counted_from_one() -> None:
    found = evidence(seeds=1)
    found = replace(found, recipe={**found.recipe, "training": {"milestones": [5]}})
    assert cells(told(found), "test NLL")[1:5] == ["2.000", "2.000", "1.500", "1.200"]  # 3 epochs, then 6


def test_rises_after_the_drop_are_counted_run_by_run() -> None:
    found = changed(evidence(), "ce", 1, test_nll=[2.0, 1.5, 1.4, 1.3], test_nll_correct=[1.0, 0.5, 0.1, 0.2])
    text = told(found)
    assert f"test NLL rises in 1 of 2 runs ({(1.0 + 1.4) / 2:.3f} to {(1.2 + 1.3) / 2:.3f} on average)" in text
    assert "train NLL falls in all 2 runs" in text
    assert "NLL rises on wrong test rows" in text
    assert f"not on correct ones ({(0.4 + 0.1) / 2:.3f} to {(0.3 + 0.2) / 2:.3f} on average) in 1 of 2 runs." in text
    assert (
        "Test ECE rises in all 2 runs (8.04 to 15.07 on average, in percent), and together with test NLL in 1 of 2"
        in text
    )


def test_entropy_falls_at_the_ends_or_throughout() -> None:
    text = told(evidence())
    assert "The entropy of correct test rows is lower at the last record than at the first in all 2 runs" in text
    correct, wrong = (line for line in text.splitlines() if line.startswith("- The entropy of"))
    assert correct.endswith("the one before in all 2 runs.")
    assert wrong.endswith("the one before in none of 2 runs.")


def test_focal_runs_are_compared_with_cross_entropy_of_their_seed() -> None:
    text = told(changed(evidence(), "fl-1", 0, test_nll_wrong=[2.0, 3.0, 2.5, 9.0]))
    plain = [3.5, 3.535] * 3
    focal = [9.0, 3.535 * 0.9, 3.5 * 0.8, 3.535 * 0.8, 3.5 * 0.7, 3.535 * 0.7]
    lower = sum(new < old for new, old in zip(focal, plain, strict=True))
    assert (
        f"NLL of wrong rows at the end, focal loss: lower in {lower} of 6 runs "
        f"({fmean(focal):.3f} against {fmean(plain):.3f} on average)." in text
    )
    assert "Entropy of wrong rows at the end, focal loss: higher in none of 6 runs" in text


def test_orders_of_norms_and_of_the_paper() -> None:
    text = told(changed(evidence(), "fl-3", 1, weight_norm=[9.0, 1.0, 1.0, 99.0]))
    assert "Weight norm by the mean: FL-3 > cross-entropy > FL-1 > FL-2 at the first record" in text
    assert "at the last one (the paper's order in 1 of 2 seeds)" in text
    assert "Feature norm by the mean: cross-entropy > FL-1 > FL-2 > FL-3 at the first record (the paper's" in text
    assert "Weight norm at the first record, focal loss: above cross-entropy of the same seed in 1 of 6 runs" in text
    assert f"cross-entropy {fmean([90, 90.9]):.1f} %" in text


def test_correlations_leave_empty_bins_out() -> None:
    text = told(evidence(seeds=1))
    bins = series("ce", 0)["bins"]
    train, val = (np.array(bins[name]) for name in ("train_true", "val_confidence"))
    kept = train > 0
    overall = np.corrcoef(train[kept], val[kept])[0, 1]
    centred = [
        np.where(kept, each - np.nanmean(np.where(kept, each, np.nan), 0), np.nan)[kept] for each in (train, val)
    ]
    within = np.corrcoef(*centred)[0, 1]
    section = text[text.index("## Training and validation") :]
    gap = 100 * (val - train)[kept].mean()
    assert cells(section, "cross-entropy")[1:] == [f"{overall:.2f}", f"{within:.2f}", f"{gap:.1f}", "1"]
    assert "both fall in all 3 bins, and change in the same direction in all 3 bins." in section


def test_confidences_that_part_are_counted() -> None:
    bins = series("fl-3", 0)["bins"]
    apart = {**bins, "train_true": [*bins["train_true"][:3], [0.99, 0.1, 0.1]]}
    text = told(changed(evidence(seeds=1), "fl-3", 0, bins=apart))
    assert "both fall in 2 of 3 bins, and change in the same direction in 2 of 3 bins." in text


def test_gammas_and_learned_epochs() -> None:
    text = told(evidence())
    assert (
        "Gammas at the last record lie between -0.50 and 5.00; below 0, which is inverse focal loss, in 2 of 6" in text
    )
    assert "Gamma of the first bin is above that of the last in all 2 runs." in text
    section = text[text.index("## Largest logits") :]
    assert cells(section, "loss")[1:3] == ["epoch 1 to 3", "epoch from 4"]
    firsts = [10.0 * 0.5, 10.0 * 0.5 * 1.01]
    gaps = [first - 6.0 for first in firsts]
    shares = [gap / first for gap, first in zip(gaps, firsts, strict=True)]
    assert cells(section, "AdaFocal")[3:] == [f"{fmean(v):.2f} ± {stdev(v):.2f}" for v in (gaps, shares)]
    assert "on average: cross-entropy > FLSD-53 > AdaFocal." in section


def test_the_first_sentences_count_over_all_recipes() -> None:
    text = dynamics.page({LITTLE: evidence(), LITTLE_20: evidence(LITTLE_20, seeds=1)})
    assert text.splitlines()[2].startswith(
        "After the first drop of the learning rate, the test NLL of cross-entropy rises in all 3 runs, and its train "
        "NLL falls in all 3 runs. At the end, the NLL of wrong test rows is lower with focal loss (gamma 1, 2, 3) than "
        "with cross-entropy of the same seed in all 9 runs"
    )
    assert "Without records" not in text


def test_missing_parts_are_left_out_and_named() -> None:
    text = told(evidence(methods=("ce", "fl-3"), seeds=1))
    assert "left out: ResNet-20 on CIFAR10-s." in text
    assert "has no records of FL-1, FL-2, FLSD-53, AdaFocal." in text
    assert "## Gammas" not in text
    assert "dynamics_gamma" not in text
    assert dynamics.page({}).startswith(f"# {dynamics.TITLE}\n\nThere is no result file")
    assert dynamics.figures({}) == {}


def test_runs_with_gaps_in_their_records_do_not_stop_the_page() -> None:
    found = evidence(seeds=1)
    bare = replace(found.runs[0], dynamics={"epoch": EPOCHS, "test_nll": [None, 1.0, None, 2.0], "bins": {}})
    found = replace(found, runs=[bare, *found.runs[1:]])
    without_drop = replace(found, recipe={**found.recipe, "training": {}})
    assert cells(told(found), "test NLL")[1:5] == ["1.000", "1.000", "2.000", "2.000"]
    assert "The learning rate has no drop here" in told(without_drop)
    assert set(dynamics.figures({LITTLE: replace(without_drop, runs=[bare])})) == {
        "dynamics_cross_entropy_cifar10-s-resnet8",
        "dynamics_focal_cifar10-s-resnet8",
    }


def test_every_figure_is_shown_and_draws() -> None:
    found = {LITTLE: evidence(seeds=1)}
    text, drawn = dynamics.page(found), dynamics.figures(found)
    assert {f"images/{name}.svg" for name in drawn} == {part.partition(")")[0] for part in text.split("](")[1:]}
    assert len(drawn) == 6
    drawn["dynamics_gamma_cifar10-s-resnet8"].draw_without_rendering()
    upper, lower = drawn["dynamics_gamma_cifar10-s-resnet8"].axes
    first = lower.lines[0].get_xydata().tolist()
    assert first == [[3, 1.0], [6, 2.0], [9, 3.0], [12, 4.0]]
    assert upper.lines[0].get_ydata().tolist() == pytest.approx([0.0, 0.1, 0.2, 0.05])


def test_the_page_ends_with_one_newline_and_its_tables_are_narrow() -> None:
    text = told(evidence())
    assert text.startswith(f"# {dynamics.TITLE}\n")
    assert text.endswith("factor.\n")
    assert max(line.count("|") for line in text.splitlines()) <= 8
