"""What the lines of some figures show, against formulas written out here and against the recorded files."""

from __future__ import annotations

import json
import math
from importlib import resources
from statistics import fmean

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from reproduction.figures import charoenphakdee2021, komisarenko2024, record_digits
from reproduction.figures.recorded import lab_results, trained_here
from reproduction.labels import LITTLE, MORE

from .drawn import figure

pytestmark = pytest.mark.slow
approx = pytest.approx


def phi(v: float, gamma: float) -> float:
    """Eq. 10 of charoenphakdee2021 with 40 digits."""
    with mpmath.workdps(40):
        v = mpmath.mpf(v)
        return float((1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * mpmath.log(v))


def psi(row, gamma):
    """Eqs. 12 and 13 of charoenphakdee2021."""
    h = np.array([float(v) / phi(float(v), gamma) for v in row])
    return h / h.sum()


def long_lines(ax, least=20):
    """The curves of some axes, without frames and marks."""
    return [each for each in ax.lines if len(each.get_xdata()) >= least]


def test_the_curves_of_phi_are_those_of_mpmath():
    ax = figure("charoenphakdee2021-fig1").axes[0]
    curves = long_lines(ax)
    assert len(curves) == 5
    for gamma, curve in zip((0.5, 1, 2, 3, 5), curves, strict=True):
        x, y = curve.get_xdata(), curve.get_ydata()
        assert [y[place] for place in (40, 200, 360)] == approx([phi(x[place], gamma) for place in (40, 200, 360)])


def test_the_bands_of_phi_end_where_gamma_3_turns_and_crosses_1():
    ax = figure("charoenphakdee2021-fig1").axes[0]
    ends = sorted({patch.get_x() for patch in ax.patches})
    top = minimize_scalar(lambda v: -phi(v, 3), bounds=(1e-6, 0.5), method="bounded", options={"xatol": 1e-9}).x
    assert ends == approx([0, top, float(mpmath.findroot(lambda v: phi(v, 3) - 1, (0.2, 0.3)))], abs=1e-6)


def test_minimisers_of_two_classes_have_the_least_risk():
    ax = figure("charoenphakdee2021-fig2").axes[0]
    for gamma, curve in zip((0.5, 1, 3, 5), long_lines(ax), strict=True):
        eta, q = curve.get_xdata()[60], curve.get_ydata()[60]
        found = minimize_scalar(
            lambda p, eta=eta, gamma=gamma: (
                -eta * (1 - p) ** gamma * math.log(p) - (1 - eta) * p**gamma * math.log(1 - p)
            ),
            bounds=(1e-6, 1 - 1e-6),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert q == approx(found.x, abs=1e-6)


def test_minimisers_of_1000_classes_map_to_their_posteriors():
    _, middle, right = figure("charoenphakdee2021-fig2").axes
    for gamma, curve, gap in zip((0.5, 1, 3, 5), long_lines(middle), long_lines(right), strict=True):
        eta, q = curve.get_xdata()[50], curve.get_ydata()[50]
        weights = np.array([1, 999])
        h = np.array([q / phi(q, gamma), (1 - q) / 999 / phi((1 - q) / 999, gamma)])
        assert eta == approx(h[0] / (weights @ h), abs=1e-9)
        assert gap.get_ydata()[50] == approx(q - eta, abs=1e-12)
        # Overconfident at some low probability, underconfident from one half on (the last point is one-hot).
        assert gap.get_ydata().max() > 0.005
        assert (gap.get_ydata()[101:-1] < 0).all()


def test_outputs_on_the_line_are_the_recorded_ones_and_their_images():
    numbers = trained_here()["line"]["networks"]
    assert set(numbers) == {"0", "1", "5"}
    raw = np.array(numbers["5"]["probs"][20])
    assert charoenphakdee2021.outputs(5.0, "raw")[20].numpy() == approx(raw, abs=2e-5)
    raw = raw / raw.sum()
    assert charoenphakdee2021.outputs(5.0, "focal-map")[20].numpy() == approx(psi(raw, 5), abs=1e-9)
    scaled = raw ** (1 / numbers["5"]["steps"]["temperature"]["temperature"])
    assert charoenphakdee2021.outputs(5.0, "temperature")[20].numpy() == approx(scaled / scaled.sum(), abs=1e-9)


def test_the_recorded_line_is_that_of_the_toy_problem():
    """The numbers of docs/toy_problems.md: what the networks of the paper's Sec. 5.2 gave."""
    steps = trained_here()["line"]["networks"]["5"]["steps"]
    assert [round(steps[step]["kl"], 4) for step in ("raw", "temperature", "focal-map")] == [0.0897, 0.0162, 0.0001]
    assert {round(each["error"], 4) for each in steps.values()} == {0.3519}
    assert (
        len(charoenphakdee2021.grid())
        == len(trained_here()["line"]["networks"]["0"]["probs"])
        == 240 // record_digits.EVERY + 1
    )


def test_what_is_recorded_of_digits_agrees_with_itself():
    runs = trained_here()["digits"]
    trainings = {"standard", "ts-fl", "ls"}
    assert {(run["training"], run["gamma"], run["seed"]) for run in runs} == {
        (training, gamma, seed)
        for training in trainings
        for gamma in record_digits.GAMMAS
        for seed in record_digits.SEEDS
    }
    for run in runs:
        for step in ("raw", "psi"):
            count, confidence, accuracy = (np.array(run[step][name]) for name in ("count", "confidence", "accuracy"))
            assert count.sum() == 897
            assert run[step]["ece"] == approx((count * np.abs(confidence - accuracy)).sum() / 897, abs=1e-4)
            assert run["error"] == approx(1 - (count * accuracy).sum() / 897, abs=1e-4)
        if run["gamma"] == 0:
            assert run["raw"] == run["psi"]


def test_recording_measures_what_it_says():
    """Two rows at 0.8, one of them right, in one bin; the focal map of gamma 2 takes both to 0.941."""
    scores = torch.log(torch.tensor([[0.8, 0.2], [0.8, 0.2]], dtype=torch.float64))
    found = record_digits._measured(scores, torch.tensor([0, 1]), 2.0)
    assert found["error"] == 0.5
    assert (found["raw"]["count"], found["raw"]["accuracy"]) == ([2], [0.5])
    assert found["raw"]["ece"] == approx(0.3)
    assert found["psi"]["ece"] == approx(psi([0.8, 0.2], 2)[0] - 0.5)


def test_reliability_diagrams_show_bins_of_at_least_five():
    ax = figure("charoenphakdee2021-fig4").axes[2]  # standard, gamma 3
    run = next(
        run for run in trained_here()["digits"] if (run["training"], run["gamma"], run["seed"]) == ("standard", 3, 0)
    )
    raw = ax.lines[1]
    kept = [place for place, count in enumerate(run["raw"]["count"]) if count >= 5]
    assert 0 < len(kept) < len(run["raw"]["count"])
    assert list(raw.get_ydata()) == [run["raw"]["accuracy"][place] for place in kept]


def test_ece_by_gamma_is_that_of_the_result_files():
    found = _raw_file("cifar10-resnet8.json")
    for number, phases in ((5, ("pre", "psi")), (6, ("ts-fl", "ts-fl+psi"))):
        ax = figure(f"charoenphakdee2021-fig{number}").axes[0]
        means = [each for each in ax.lines if each.get_linestyle() in ("-", "--")]
        for phase, curve in zip(phases, means, strict=True):
            wanted = [100 * fmean(run["phases"][phase]["ece_ew"][0] for run in found if run["method"] == "fl-2")]
            assert curve.get_ydata()[2] == approx(wanted[0])


def _raw_file(name):
    return json.loads((resources.files("reproduction") / "results" / name).read_text())["runs"]


def test_the_logit_of_the_binary_map_is_that_of_mpmath():
    for gamma, s in ((0.5, 0.3), (3.0, 2.0), (4.0, 15.0)):
        with mpmath.workdps(50):
            q = 1 / (1 + mpmath.exp(-mpmath.mpf(s)))
            one, other = (
                v / ((1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * mpmath.log(v)) for v in (q, 1 - q)
            )
            wanted = float(mpmath.log(one / other))
        assert float(komisarenko2024.focal_logit(torch.tensor([s], dtype=torch.float64), gamma)) == approx(
            wanted, rel=1e-12
        )


def test_searched_bounds_of_gamma_4_are_those_of_the_ledger():
    assert komisarenko2024.searched_bounds(4.0) == approx((0.20327, 0.21784), abs=1e-5)


def test_binary_maps_and_losses_are_the_printed_formulas():
    left, right = figure("komisarenko2024-fig1").axes
    curves = long_lines(right)
    for gamma, curve in zip((-0.5, 0.5, 1.0, 3.0, 7.0), curves, strict=True):
        q = curve.get_xdata()[140]
        ratio = ((1 - q) - gamma * q * math.log(q)) / (q - gamma * (1 - q) * math.log(1 - q))  # Prop. 2
        assert curve.get_ydata()[140] == approx(1 / (1 + ((1 - q) / q) ** gamma * ratio), rel=1e-9)
    cross_entropy, half, proper_half, _, _ = long_lines(left)
    q = half.get_xdata()[100]
    assert cross_entropy.get_ydata()[100] == approx(-math.log(q))
    assert half.get_ydata()[100] == approx(-((1 - q) ** 0.5) * math.log(q))
    # The proper part at the image of q is the focal loss at q.
    image = psi([q, 1 - q], 0.5)[0]
    assert np.interp(image, proper_half.get_xdata(), proper_half.get_ydata()) == approx(half.get_ydata()[100], rel=1e-3)


def test_the_line_of_fig2_and_its_temperatures_are_those_of_the_ledger():
    left, middle, right = figure("komisarenko2024-fig2").axes
    fitted = long_lines(left)[1]
    slope, start = np.polyfit(fitted.get_xdata(), fitted.get_ydata(), 1)
    assert (slope, start) == approx((0.948, 0.834), abs=1e-3)
    assert [text.get_text() for text in middle.get_legend().get_texts()] == ["γ = 0.5\nT = 0.731", "γ = 3\nT = 0.276"]
    # 1.21 thousandths is the most that any gamma leaves
    assert max(np.abs(curve.get_ydata()).max() for curve in long_lines(right)) == approx(1.2, abs=0.02)


def test_risks_of_fig4_are_lowest_at_the_truth():
    points = torch.tensor(
        [komisarenko2024.TRUTH, (0.5, 0.35, 0.15), (0.6, 0.25, 0.15), (0.55, 0.25, 0.2)], dtype=torch.float64
    )
    for name, loss in komisarenko2024.risks().items():
        values = komisarenko2024._risk(loss, points)
        assert int(values.argmin()) == 0, name
    brier, cross_entropy = (
        komisarenko2024._risk(komisarenko2024.risks()[name], points)[1] for name in ("Brier score", "cross-entropy")
    )
    truth, q = np.array(komisarenko2024.TRUTH), np.array([0.5, 0.35, 0.15])
    assert float(brier) == approx(truth @ ((q - np.eye(3)) ** 2).sum(1))
    assert float(cross_entropy) == approx(-truth @ np.log(q))


def test_arrows_end_where_the_maps_go():
    made = figure("komisarenko2024-fig5")
    arrows = made.axes[0].collections[0]
    points = komisarenko2024.simplex(16, least=1)
    place = 17
    end = psi(points[place].numpy(), 1.0)
    x, y = arrows.get_offsets()[place]
    assert (x + arrows.U[place], y + arrows.V[place]) == approx((end[1] + end[2] / 2, math.sqrt(3) / 2 * end[2]))
    titles = [ax.get_title() for ax in made.axes]
    assert [title.rpartition("= ")[2] for title in titles] == ["1", "3", "0.658", "0.356"]


def test_the_largest_difference_of_three_classes_is_that_of_the_ledger():
    left, right = figure("komisarenko2024-fig6").axes
    fitted, largest = long_lines(left)[1], long_lines(right)[0]
    assert np.polyfit(fitted.get_xdata(), fitted.get_ydata(), 1) == approx([0.648, 0.881], abs=1e-3)
    assert np.interp(9, largest.get_xdata(), largest.get_ydata()) == approx(0.0771, abs=2e-4)


@pytest.mark.parametrize(
    ("pair", "height", "place"),
    [((0.5, 0.8), 0.0220, (0.445, 0.4425, 0.1125)), ((2.0, 0.46), 0.0500, (0.4175, 0.415, 0.1675))],
)
def test_the_crosses_of_fig7_are_where_the_ledger_has_them(pair, height, place):
    found = komisarenko2024.worst(komisarenko2024.simplex(400), *pair)
    assert len(found) == 6
    assert all(sorted(row.tolist(), reverse=True) == approx(place) for row in found)
    assert komisarenko2024.difference(found, *pair).numpy() == approx(height, abs=1e-4)


def test_points_of_the_simplex():
    assert komisarenko2024.simplex(2).tolist() == [
        [0, 0, 1],
        [0, 0.5, 0.5],
        [0, 1, 0],
        [0.5, 0, 0.5],
        [0.5, 0.5, 0],
        [1, 0, 0],
    ]
    assert komisarenko2024.simplex(4, least=1).tolist() == [[0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]


def test_best_temperatures_are_those_of_the_result_files():
    left, right = figure("komisarenko2024-fig8").axes
    assert [line.gamma for line in komisarenko2024.shown(lab_results()[LITTLE])] == [1, 2, 3, 5, 7]
    assert [line.gamma for line in komisarenko2024.shown(lab_results()[MORE])] == [1, 2, 3]
    marks = [each for each in left.lines if each.get_marker() == "D"]  # gamma 3
    runs = [run for run in _raw_file("cifar10-s-resnet8.json") if run["method"] == "fl-3"]
    seeds = ([best for _, best in run["extra"]["best_temperatures"]] for run in runs)
    wanted = [fmean(values) for values in zip(*seeds, strict=True)]
    assert list(marks[0].get_ydata()) == approx(wanted)
    assert len([each for each in right.lines if each.get_marker() != "None"]) == 3
