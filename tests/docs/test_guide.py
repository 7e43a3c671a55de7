"""The numbers of docs/guide.md are those of the result files: each sentence with a number is made here once more.

A function below returns a piece of the guide, written from the recorded results. The piece must stand on the page, and
no number may stand on the page outside of these pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from reproduction.result_files import Evidence, RunEvidence, recorded

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide.md"

LITTLE, LITTLE_20, MORE = "cpu/cifar10-s-resnet8", "cpu/cifar10-s-resnet20", "cpu/cifar10-resnet8"
NEWS, SST, NETWORKS = "cpu/20newsgroups-gp-cnn", "cpu/sst-binary-tree-lstm", "cpu/cifar10h-networks"
TRAINED = (LITTLE, LITTLE_20, MORE, NEWS, SST)
CALIBRATIONS = ("pre", "post", "ts-nll", "ts-ada", "fts", "fts-line", "fts-nll", "ets", "spline")

PIECES: list[Callable[[], str]] = []


def piece(function: Callable[[], str]) -> Callable[[], str]:
    """A piece of the guide."""
    PIECES.append(function)
    return function


# ---------------------------------------------------------------------- reading the results


@cache
def everything() -> dict[str, Evidence]:
    """Read once: the files are large."""
    return recorded()


def of(task: str) -> Evidence:
    return everything()[task]


def runs(tasks: Sequence[str] = TRAINED) -> list[RunEvidence]:
    return [run for task in tasks for run in of(task).runs]


def value(run: RunEvidence, phase: str, measure: str) -> float:
    found = run.phases[phase][measure][0]
    assert found is not None
    return found


def mean(task: str, method: str, phase: str, measure: str) -> float:
    """Over seeds; errors in percent."""
    found = fmean(value(run, phase, measure) for run in of(task).of(method))
    return found if measure == "nll" else 100 * found


def ada_ece(task: str, method: str, phase: str = "pre") -> str:
    return f"{mean(task, method, phase, 'ece_em'):.1f}"


def temperature(task: str, method: str) -> float:
    return fmean(run.fits["ts-nll"]["temperature"] for run in of(task).of(method))


def over_runs(task: str, phase: str) -> str:
    """AdaECE in percent, the mean over all runs of a task."""
    return f"{100 * fmean(value(run, phase, 'ece_em') for run in of(task).runs):.1f}"


def over_pairs(phase: str) -> float:
    """AdaECE in percent, the mean over seeds and then over pairs of task and loss."""
    return fmean(mean(task, method, phase, "ece_em") for task in TRAINED for method in of(task).methods)


def ranks(measure: str) -> dict[str, float]:
    """The mean rank of each calibration over all runs of trained networks; 1 is the best."""
    return mean_ranks([{phase: value(run, phase, measure) for phase in CALIBRATIONS} for run in runs()])


def significant(pair: str, measure: str) -> tuple[int, int]:
    """In how many runs the first of two calibrations is significantly better, and worse."""
    found = [run.pairs[pair][measure] for run in runs()]
    return sum(high < 0 for _, _, high, _ in found), sum(low > 0 for _, low, _, _ in found)


def post_hoc_ranks(measure: str) -> dict[str, float]:
    """As docs/results/post_hoc.md has them: over published networks, of the methods that all of them have."""
    measured = json.loads((ROOT / "benchmarks/results/post_hoc.json").read_text())["measured"]
    methods = [each for each in next(iter(measured.values())) if all(each in model for model in measured.values())]
    return mean_ranks([{each: model[each][measure]["value"] for each in methods} for model in measured.values()])


def mean_ranks(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean rank of each name over rows of values, the least first; equal values share the mean of their places."""

    def rank(row: dict[str, float], name: str) -> float:
        below, ties = (
            sum(relation(other) for other in row.values()) for relation in (row[name].__gt__, row[name].__eq__)
        )
        return below + (ties + 1) / 2

    return {name: fmean(rank(row, name) for row in rows) for name in rows[0]}


# ---------------------------------------------------------------------- the pieces


@piece
def scale() -> str:
    return f"{len(runs())} networks on five tasks"


@piece
def temperatures_where_focal_loss_helps() -> str:
    helped = {task: mean(task, "fl-3", "pre", "ece_em") < mean(task, "ce", "pre", "ece_em") for task in TRAINED}
    sure = min(temperature(task, "ce") for task in TRAINED if helped[task])
    modest = max(temperature(task, "ce") for task in TRAINED if not helped[task])
    assert sure > modest
    return f"wherever cross-entropy needs {sure:.2f} or more, and made it worse wherever it needs {modest:.2f} or less"


@piece
def five_tasks() -> str:
    cells = [
        f"| {name} | {temperature(task, 'ce'):.2f} | {ada_ece(task, 'ce')} | {ada_ece(task, 'fl-3')} "
        f"| {ada_ece(task, 'flsd-53')} | {ada_ece(task, 'adafocal')} |"
        for task, name in (
            (LITTLE, "ResNet-8, few images"),
            (LITTLE_20, "ResNet-20, few images"),
            (NEWS, "GP-CNN, 20 Newsgroups"),
            (SST, "Tree-LSTM, SST"),
            (MORE, "ResNet-8, more images"),
        )
    ]
    return "\n".join(cells)


@piece
def cost_of_flsd() -> str:
    costs = [mean(task, "flsd-53", "pre", "error") - mean(task, "ce", "pre", "error") for task in TRAINED]
    return f"The error rose by {min(costs):.1f} to {max(costs):.1f} points with FLSD-53"


@piece
def updates_of_adafocal() -> str:
    numbers = [mean(task, method, "pre", "ece_ew") for task in (NEWS, SST) for method in ("adafocal", "adafocal-10")]
    return "from {:.1f} to {:.1f} % and from {:.1f} to {:.1f} %".format(*numbers)


@piece
def suggested_gamma() -> str:
    suggested = fmean(run.extra["suggested_gamma"] for run in of(LITTLE).of("ce"))
    half = fmean(run.extra["suggested_gamma"] for run in of(MORE).of("ce"))
    gammas = {0.0: "ce", 1.0: "fl-1", 2.0: "fl-2", 3.0: "fl-3", 3.5: "fl-3.5", 5.0: "fl-5", 7.0: "fl-7"}
    errors = {gamma: mean(LITTLE, method, "pre", "ece_ew") for gamma, method in gammas.items()}
    nearest = min(gammas, key=lambda gamma: abs(gamma - suggested))
    share = (errors[0.0] - errors[nearest]) / (errors[0.0] - min(errors.values()))
    return (
        f"suggested {suggested:.1f} where the best of seven gammas was {min(errors, key=errors.__getitem__):.0f}, "
        f"and gained {100 * share:.0f} % of what that one gains; "
        f"where cross-entropy was best as it was, it suggested {half:.1f}"
    )


@piece
def losses_after_a_temperature() -> str:
    methods = ("ce", "brier", "mmce", "ls-0.05", "fl-3", "flsd-53", "adafocal")

    def span(phase: str) -> str:
        found = [mean(LITTLE_20, method, phase, "ece_em") for method in methods]
        return f"{min(found):.1f} to {max(found):.1f} %"

    return f"between seven losses AdaECE is {span('pre')} as trained and {span('ts-nll')} after it"


@piece
def best_pairs() -> str:
    found = [
        min((mean(task, method, "ts-nll", "ece_em"), method) for method in of(task).methods)[1]
        for task in (LITTLE, LITTLE_20, NEWS, SST)
    ]
    assert found == ["brier", "ce", "brier", "brier"]
    return "the lowest AdaECE belongs to Brier on three of four tasks and to cross-entropy on the other"


@piece
def one_temperature() -> str:
    return f"from {over_pairs('pre'):.1f} to {over_pairs('ts-nll'):.1f} %"


@piece
def criterion_of_a_temperature() -> str:
    better, worse = significant("post - ts-nll", "nll")
    return f"raises the test NLL significantly in {worse} of {len(runs())} runs and lowers it in {better}"


@piece
def focal_temperature_by_nll() -> str:
    found = ranks("ece_em")
    assert min(found, key=found.__getitem__) == "fts-nll"
    return (
        f"mean rank {found['fts-nll']:.1f} of nine ways, a plain temperature {found['ts-nll']:.1f}, "
        f"the raw network {found['pre']:.1f}"
    )


@piece
def focal_temperature_needs_rows() -> str:
    return (
        f"with {of(MORE).sizes[1]:,} validation rows the paper's grid reaches {over_runs(MORE, 'fts')} % "
        f"where a temperature reaches {over_runs(MORE, 'ts-nll')} %, "
        f"with {of(LITTLE).sizes[1]} rows {over_runs(LITTLE, 'fts')} % against {over_runs(LITTLE, 'ts-nll')} %"
    )


@piece
def spline_needs_rows() -> str:
    return f"({ranks('ece_em')['spline']:.1f} of nine)"


@piece
def vector_scaling() -> str:
    found = post_hoc_ranks("nll")
    assert min(found, key=found.__getitem__) == "VectorScaling"
    return f"mean rank {found['VectorScaling']:.1f} of {len(found)} by NLL"


@piece
def isotonic() -> str:
    found = post_hoc_ranks("nll")
    assert max(found, key=found.__getitem__) == "IsotonicCalibration"
    return f"the last of {len(found)} by NLL (mean rank {found['IsotonicCalibration']:.1f})"


@piece
def psi() -> str:
    found = [run.pairs["psi - pre"]["ece_ew"] for run in runs((LITTLE, LITTLE_20, MORE)) if "psi - pre" in run.pairs]
    better, worse = sum(high < 0 for _, _, high, _ in found), sum(low > 0 for _, low, _, _ in found)
    return f"lowers ECE significantly in {better} and raises it in {worse} of {len(found)} runs on images"


@piece
def ece_and_ada_ece() -> str:
    apart = fmean(abs(value(run, "pre", "ece_ew") - value(run, "pre", "ece_em")) for run in runs())
    return f"{100 * apart:.2f} points apart on average"


@piece
def people() -> str:
    found = [run.human for run in runs((LITTLE, LITTLE_20, MORE, NETWORKS)) if run.human]
    lower = sum(each["ts-nll"]["kl"] < each["pre"]["kl"] for each in found)
    return f"in {lower} of {len(found)} runs"


@piece
def out_of_distribution() -> str:
    cases = [case for run in runs() for case in run.foreign.values()]
    change = fmean(abs(case["post"]["auroc"] - case["pre"]["auroc"]) for case in cases)
    return f"changes the AUROC of detection by {100 * change:.1f} points on average"


# ---------------------------------------------------------------------- the tests


def spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text)


# Names with a number in them, which are no results.
NAMES = r"FLSD-53|FL-3|ResNet-\d+|20 Newsgroups|ghosh2022"


def without_names(text: str) -> str:
    for pattern in (r"(?s)```.*?```", r"`[^`]*`", r"\]\([^)]*\)", r"<!--.*?-->", NAMES):
        text = re.sub(pattern, " ", text)
    return text


@pytest.mark.parametrize("make", PIECES, ids=lambda make: make.__name__)
def test_a_piece_of_the_guide_is_what_the_results_say(make):
    assert spaced(make()) in spaced(GUIDE.read_text())


def test_every_number_of_the_guide_comes_from_the_results():
    text = spaced(GUIDE.read_text())
    for make in PIECES:
        text = text.replace(spaced(make()), " ")
    assert not re.findall(r"\S*\d\S*", without_names(text))
