"""Figures of ghosh2022: what is drawn is what is recorded, or what the paper's formulas give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from .drawn import figure

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def little():
    return results("cifar10-s-resnet8")


def results(name):
    return json.loads((ROOT / f"results/{name}.json").read_text())["runs"]


def over_seeds(runs, method, *names):
    """The mean over seeds of a series, or of one by bin."""
    found = []
    for run in runs:
        if run["method"] == method:
            values = run["dynamics"]
            for name in names:
                values = values[name]
            found.append(values)
    return np.mean(np.array(found, dtype=float), axis=0)


def ys(line):
    return np.asarray(line.get_ydata(), dtype=float)


def test_lines_of_figure_1_are_ece_and_gaps(little):
    overall, *panels = figure("ghosh2022-fig1").axes
    for place, method in enumerate(("ce", "fl-3", "fl-3.5", "fl-5", "flsd-53")):
        runs = [run["dynamics"]["bins"] for run in little if run["method"] == method]
        gaps = np.array([np.array(run["val_confidence"]) - np.array(run["val_accuracy"]) for run in runs])
        np.testing.assert_allclose(ys(overall.lines[place]), np.abs(gaps).mean((0, 2)), rtol=1e-9)
        for ax, where in zip(panels, (0, 7, 14), strict=True):
            np.testing.assert_allclose(ys(ax.lines[place]), gaps.mean(0)[:, where], atol=1e-12)


def test_no_gamma_of_figure_1_is_best_in_all_bins(little):
    """What the caption says of the last record."""
    last = {}
    for method in ("ce", "fl-3", "fl-3.5", "fl-5"):
        confidence, accuracy = (
            over_seeds(little, method, "bins", f"val_{name}") for name in ("confidence", "accuracy")
        )
        last[method] = (confidence - accuracy)[-1][[0, 7, 14]]
    assert (last["ce"] > 0).all()
    assert (np.sign(last["fl-5"]) == [1, -1, -1]).all()
    best = [min(last, key=lambda method, place=place: abs(last[method][place])) for place in range(3)]
    assert len(set(best)) > 1


def test_lines_of_figure_2_are_training_and_validation_confidences(little):
    for ax, where in zip(figure("ghosh2022-fig2").axes, (0, 7, 14), strict=True):
        curves = [line for line in ax.lines if len(line.get_xdata()) == 10]
        assert len(curves) == 6
        for place, method in enumerate(("ce", "fl-3", "fl-5")):
            for line, name in zip(curves[2 * place :], ("train_true", "val_confidence"), strict=False):
                np.testing.assert_allclose(ys(line), over_seeds(little, method, "bins", name)[:, where], atol=1e-12)


def test_figure_3a_has_the_papers_losses():
    ax = figure("ghosh2022-fig3").axes[0]
    p = np.asarray(ax.lines[0].get_xdata())
    expected = {
        "CE": -np.log(p),
        "FL-3": -((1 - p) ** 3) * np.log(p),
        "FL-5": -((1 - p) ** 5) * np.log(p),
        "InvFL-1": -(1 + p) * np.log(p),  # Eq. 1
        "InvFL-2": -((1 + p) ** 2) * np.log(p),
        "CF-10": -((1 - p) ** np.exp(10 * (p - 0.8))) * np.log(p),  # Eq. 2
        "CF-100": -((1 - p) ** np.exp(100 * (p - 0.8))) * np.log(p),
    }
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(expected)
    for line, values in zip(ax.lines, expected.values(), strict=False):
        np.testing.assert_allclose(ys(line), values, atol=1e-10)


def test_other_panels_of_figure_3_are_the_recorded_series(little):
    _, error, ece, lowest = figure("ghosh2022-fig3").axes
    for ax, name in ((error, "test_error"), (ece, "test_ada_ece")):
        curves = [line for line in ax.lines if len(line.get_xdata()) == 10]
        for line, method in zip(curves, ("ce", "flsd-53", "calfocal"), strict=True):
            np.testing.assert_allclose(ys(line), over_seeds(little, method, name), rtol=1e-12)
    curves = [line for line in lowest.lines if len(line.get_xdata()) == 10]
    names = ("train_true", "val_confidence", "val_accuracy")
    wanted = [(method, name) for method in ("ce", "calfocal") for name in names]
    for line, (method, name) in zip(curves, wanted, strict=True):
        np.testing.assert_allclose(ys(line), over_seeds(little, method, "bins", name)[:, 0], atol=1e-12)


def test_lines_of_figure_4_are_means_over_seeds():
    axes = figure("ghosh2022-fig4").axes
    recipes = ("cifar10-s-resnet8", "cifar10-s-resnet20", "cifar10-resnet8", "20newsgroups-gp-cnn")
    for column, recipe in enumerate(recipes):
        runs = results(recipe)
        for ax, name in ((axes[column], "test_error"), (axes[4 + column], "test_ada_ece")):
            for line, method in zip(ax.lines, ("ce", "flsd-53", "adafocal"), strict=False):
                np.testing.assert_allclose(ys(line), over_seeds(runs, method, name), rtol=1e-12)


def test_lines_of_figure_5_are_gaps_and_gammas():
    upper, lower = figure("ghosh2022-fig5").subfigs
    for part, recipe in ((upper, "cifar10-s-resnet8"), (lower, "20newsgroups-gp-cnn")):
        runs = results(recipe)
        for column, where in enumerate((0, 7, 14)):
            above, below = part.axes[column], part.axes[3 + column]
            for line, method in zip(above.lines, ("ce", "flsd-53", "adafocal"), strict=False):
                gap = over_seeds(runs, method, "bins", "val_confidence") - over_seeds(
                    runs, method, "bins", "val_accuracy"
                )
                np.testing.assert_allclose(ys(line), gap[:, where], atol=1e-12)
            gammas = over_seeds(runs, "adafocal", "bins", "gamma")
            np.testing.assert_allclose(ys(below.lines[0]), gammas[:, where], rtol=1e-12)
            assert gammas.min() > 0  # what the caption says


def test_curves_of_figure_6_are_the_recorded_ones_and_have_their_areas():
    runs = json.loads((ROOT / "figures/recorded/every-third-epoch.json").read_text())["runs"]
    roc = {run["method"]: run["extra"]["roc"] for run in runs}
    shown = [(method, phase) for method in ("ce", "flsd-53", "adafocal") for phase in ("pre", "post")]
    for ax, name in zip(figure("ghosh2022-fig6").axes[:3], ("mnist", "cifar10-noise", "cifar100"), strict=True):
        for line, (method, phase) in zip(ax.lines, shown, strict=False):
            curve, x, y = roc[method][name][phase], np.asarray(line.get_xdata()), ys(line)
            assert y.tolist() == curve["passed"]
            area = ((y[1:] + y[:-1]) / 2 * np.diff(x)).sum()
            assert area == pytest.approx(curve["auroc"], abs=2e-3)


def test_marks_of_figure_6_are_the_areas_of_the_labs_runs(little):
    for ax, name in zip(figure("ghosh2022-fig6").axes[3:], ("mnist", "cifar10-noise", "cifar100"), strict=True):
        wanted = [(method, phase) for method in ("ce", "flsd-53", "adafocal") for phase in ("pre", "post")]
        for line, (method, phase) in zip(ax.lines, wanted, strict=False):
            areas = [run["foreign"][name][phase]["auroc"] for run in little if run["method"] == method]
            assert list(line.get_xdata()) == areas
            assert len(areas) == 3
            assert ax.get_xlim()[0] < min(areas) <= max(areas) < ax.get_xlim()[1]


def test_lines_of_figure_14_and_16_are_means_over_seeds():
    news = results("20newsgroups-gp-cnn")
    for ax, where in zip(figure("ghosh2022-fig14").axes, (0, 7, 14), strict=True):
        for line, name in zip(ax.lines, ("train_true", "val_confidence"), strict=False):
            wanted = over_seeds(news, "ce", "bins", name)[:, where]
            np.testing.assert_allclose(ys(line), wanted, atol=1e-12)
    methods = ("ce", "flsd-53", "adafocal", "adafocal-10")
    for ax, name in zip(figure("ghosh2022-fig16").axes, ("test_error", "test_ada_ece"), strict=True):
        for line, method in zip(ax.lines, methods, strict=True):
            np.testing.assert_allclose(ys(line), over_seeds(news, method, name), rtol=1e-12)
