"""Figures of mukhoti2020: what is drawn is what is recorded, or what the paper's formulas give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from focalcal_lab.problems import linear_problem
from reproduction.figures.recorded import linear

from .drawn import figure

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


def read(name):
    return json.loads((ROOT / "figures/recorded" / name).read_text())


def run_of(name, method):
    (run,) = (run for run in read(name)["runs"] if run["method"] == method)
    return run


def ys(line):
    return np.asarray(line.get_ydata(), dtype=float)


def test_bars_of_figure_1_are_the_recorded_bins():
    run = run_of("every-epoch.json", "ce")
    axes = figure("mukhoti2020-fig1").axes
    above, below = axes[:4], axes[4:]
    for upper, lower, epoch in zip(above, below, (2, 10, 20, 30), strict=True):
        bins = run["extra"]["train_bins"][run["dynamics"]["epoch"].index(epoch - 1)]
        count, accuracy = np.array(bins["count"]), np.array(bins["accuracy"])
        assert len(count) == 25
        assert [bar.get_height() for bar in upper.patches] == accuracy[count > 0].tolist()
        shares = [bar.get_height() for bar in lower.patches]
        np.testing.assert_allclose(shares, count / 4499, atol=1e-12)
        assert upper.get_title() == f"epoch {epoch}\n{(count * accuracy).sum() / count.sum():.1%} right"


def test_training_samples_of_figure_1_move_into_the_last_bin():
    last = [ax.patches[-1].get_height() for ax in figure("mukhoti2020-fig1").axes[4:]]
    assert last == sorted(last)
    assert last[0] < 0.1
    assert round(last[-1], 2) == 0.6  # what the caption says


def test_lines_of_figure_2_are_the_recorded_series():
    run = run_of("every-epoch.json", "ce")
    train, test, shares = figure("mukhoti2020-fig2").axes
    names = ("nll", "nll_correct", "nll_wrong", "entropy_correct", "entropy_wrong")
    for place, name in enumerate(names):
        assert ys(train.lines[place]).tolist() == run["extra"]["train"][name]
        assert ys(test.lines[place]).tolist() == run["dynamics"][f"test_{name}"]
    for line, name in zip(shares.lines[:3], ("train_error", "test_error", "test_ece"), strict=True):
        assert ys(line).tolist() == run["dynamics"][name]
        assert line.get_xdata().tolist() == list(range(1, 31))


def test_runs_that_were_watched_more_often_are_the_same_runs():
    """The monitor changes nothing: same recipe, seed and machine give the same numbers at the records of both."""
    often, seldom = (run_of(f"{name}.json", "ce")["dynamics"] for name in ("every-epoch", "every-third-epoch"))
    assert seldom["epoch"] == list(range(2, 30, 3))
    for name in ("train_nll", "test_nll_wrong", "test_error", "weight_norm"):
        assert [often[name][epoch] for epoch in seldom["epoch"]] == seldom[name]


def test_lines_of_figure_3_are_means_over_seeds():
    results = json.loads((ROOT / "results/cifar10-s-resnet8.json").read_text())["runs"]
    axes = figure("mukhoti2020-fig3").axes
    names = ("test_nll", "test_nll_correct", "test_nll_wrong", "test_entropy_wrong", "weight_norm")
    for ax, name in zip(axes, names, strict=False):
        for line, method in zip(ax.lines, ("ce", "fl-1", "fl-2", "fl-3"), strict=False):
            seeds = [run["dynamics"][name] for run in results if run["method"] == method]
            assert len(seeds) == 3
            np.testing.assert_allclose(ys(line), np.mean(seeds, axis=0), rtol=1e-12)


def test_figure_4a_is_the_ratio_of_the_gradients():
    ratio = figure("mukhoti2020-fig4").axes[0]
    curves = [line for line in ratio.lines if len(line.get_xdata()) > 1]
    for line, gamma in zip(curves, (0, 1, 2, 3, 5, 7), strict=True):
        p, step = np.asarray(line.get_xdata())[20:-20], 1e-6

        def loss(p, gamma=gamma):
            return -((1 - p) ** gamma) * np.log(p)

        slope = (loss(p + step) - loss(p - step)) / (2 * step)
        np.testing.assert_allclose(ys(line)[20:-20], slope * -p, atol=1e-6)  # that of cross-entropy is -1/p


def test_dots_of_figure_4a_are_where_g_is_1():
    dots = [line.get_xdata()[0] for line in figure("mukhoti2020-fig4").axes[0].lines if len(line.get_xdata()) == 1]
    gammas = np.array([1, 2, 3, 5, 7])
    p = np.array(dots)
    np.testing.assert_allclose((1 - p) ** gammas - gammas * p * (1 - p) ** (gammas - 1) * np.log(p), 1, rtol=1e-9)


def test_histograms_of_figure_4_are_the_recorded_counts():
    axes = figure("mukhoti2020-fig4").axes[1:4]
    runs = [run_of("every-third-epoch.json", method) for method in ("ce", "fl-1", "fl-2", "fl-3")]
    for ax, epoch in zip(axes, (3, 15, 30), strict=True):
        for stairs, run in zip(ax.patches, runs, strict=True):
            counts = run["extra"]["gradient"][run["dynamics"]["epoch"].index(epoch - 1)]
            assert sum(counts) == 4499
            values, edges, _ = stairs.get_data()
            np.testing.assert_allclose(values, (np.array(counts[1:-1:2]) + counts[2:-1:2]) / 4499)
            np.testing.assert_allclose(edges, 10 ** np.linspace(-8, 4, 61), rtol=1e-4)
    late = [np.array(run["extra"]["gradient"][-1]) for run in runs]
    assert all(late[0][:61].sum() < focal[:61].sum() for focal in late[1:])  # below 0.01: what the caption says


def test_means_of_figure_4_are_over_seeds():
    results = json.loads((ROOT / "results/cifar10-s-resnet8.json").read_text())["runs"]
    means = []
    for line, method in zip(figure("mukhoti2020-fig4").axes[4].lines, ("ce", "fl-1", "fl-2", "fl-3"), strict=False):
        seeds = [run["dynamics"]["gradient_norm"] for run in results if run["method"] == method]
        np.testing.assert_allclose(ys(line), np.mean(seeds, axis=0), rtol=1e-12)
        means.append(np.mean(seeds, axis=0))
    assert (np.diff(means, axis=0) < 0).all()  # what the caption says


def test_figure_5_has_the_recorded_curves():
    results = json.loads((ROOT / "results/toy-translation.json").read_text())["runs"]
    bleu = figure("mukhoti2020-fig5").axes[0]
    seeds = [[point["test_bleu"] for point in run["extra"]["curve"]] for run in results]
    lines = [ys(line).tolist() for line in bleu.lines]
    assert all(seed in lines for seed in seeds)


@pytest.mark.parametrize("place", range(6))
def test_figure_6_minimises_the_expected_loss(place):
    gamma = (0, 1, 2, 3, 5, 7)[place]
    line = figure("mukhoti2020-fig6").axes[0].lines[place]
    for q, p in list(zip(line.get_xdata(), ys(line), strict=True))[20:-20:20]:

        def risk(x, q=q):
            return -((1 - x) ** gamma) * q * np.log(x) - x**gamma * (1 - q) * np.log1p(-x)  # Eq. 5

        best = minimize_scalar(risk, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-10}).x
        assert p == pytest.approx(best, abs=2e-6)


def test_figures_7_and_8_show_the_recorded_problem():
    recorded = read("linear.json")
    logits, weights = figure("mukhoti2020-fig7").axes
    for place, run in enumerate(recorded["runs"]):
        assert ys(logits.lines[2 * place]).tolist() == run["logit_norms"]
        assert ys(weights.lines[2 * place]).tolist() == run["weight_norms"]
        assert ys(weights.lines[2 * place + 1]).tolist() == [run["limit"]["weight_norm"]] * 2
    histogram, *regions = figure("mukhoti2020-fig8").axes
    heights = np.reshape([bar.get_height() for bar in histogram.patches], (2, 20))
    for found, run in zip(heights, recorded["runs"], strict=True):
        assert found.tolist() == np.histogram(run["mistakes"], np.linspace(0.5, 1, 21))[0].tolist()
    assert [ax.get_title() for ax in regions] == [
        f"{name}: |w| = {run['weight_norms'][-1]:.2f}"
        for name, run in zip(("CE", "FL-1"), recorded["runs"], strict=True)
    ]
    assert all(sum(len(line.get_xdata()) for line in ax.lines) == 250 for ax in regions)


def test_the_recorded_problem_is_the_solved_one():
    solved, kept = linear_problem(), linear()
    for one, other in zip(solved.runs, kept.runs, strict=True):
        np.testing.assert_allclose(other.weight_norms, one.weight_norms, rtol=1e-5)
        np.testing.assert_allclose(other.mistakes, one.mistakes, rtol=1e-5)
        assert other.limit.weight_norm == pytest.approx(one.limit.weight_norm, rel=1e-5)
    np.testing.assert_allclose(kept.test.inputs, solved.test.inputs, atol=6e-5)
    assert kept.test.labels.tolist() == solved.test.labels.tolist()


def test_shading_of_figure_8_is_that_of_the_probability():
    """Bands end where the probability of class 1 is a tenth, two tenths, and so on."""
    recorded = read("linear.json")["runs"]
    for ax, run in zip(figure("mukhoti2020-fig8").axes[1:], recorded, strict=True):
        bands = ax.collections[0]
        assert len(bands.get_paths()) == 10
        w = np.array(run["weights"])
        points = bands.get_paths()[6].vertices  # from 0.6 to 0.7, which reaches the edges of the plane
        probability = 1 / (1 + np.exp(-(points @ w)))
        assert 0.6 - 1e-6 <= probability.min() < 0.601
        assert 0.699 < probability.max() <= 0.7 + 1e-6


def test_lines_of_figure_10_are_means_over_seeds():
    results = json.loads((ROOT / "results/cifar10-s-resnet8.json").read_text())["runs"]
    for line, method in zip(figure("mukhoti2020-fig10").axes[0].lines, ("ce", "fl-1", "fl-2", "fl-3"), strict=False):
        seeds = [run["dynamics"]["feature_norm"] for run in results if run["method"] == method]
        np.testing.assert_allclose(ys(line), np.mean(seeds, axis=0), rtol=1e-12)
