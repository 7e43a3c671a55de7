"""Temperature scaling against its peers, grid searches against the published formula, and the memory of a fit.

    python benchmarks/calibrators.py            # writes benchmarks/results/calibrators.json
    python benchmarks/calibrators.py --quick    # a tenth of every size, writes nothing

Temperature scaling by NLL: float32 logits whose right temperature is about 2.3. The exact one is the root of the NLL's
slope in float64; who comes within 0.1 % of it is right, and the fastest peer that is right is the one to beat. The unit
is `torch.softmax` over the same logits in the same rotation. Its output is as large as the logits, and glibc maps a
block beyond 32 MB anew at every call, so part of the unit is page faults; how long it takes with all memory kept for
reuse is printed beside it. Of rows with fewer than 16 classes, torch takes about 20 times as long for a value as of
longer ones, which makes the unit large at 10 classes: `torch.logsumexp`, which does not, is printed as well.

Peers, where installed, each with the input that it works best with, made outside the timing: scikit-learn, probmetrics
and the L-BFGS recipe from logits, netcal from probabilities in float64.

Grids: the time of a fit by the points of its grid, against the formula of the paper, written down as it stands. What it
gives at the point that we found must agree, and no sampled point may be better. Then the three searches side by side,
and the peak memory of three fits, each in a process of its own.
"""

from __future__ import annotations

import importlib
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import SHARE, best_times, give_back_memory, kept_memory, peak_memory, save, settle_allocator
from scipy.optimize import brentq
from torch import Tensor, nn

from focalcal.calibrators import Calibrator, FocalTemperatureScaling, TemperatureScaling
from metrics import network_output

OURS, UNIT, OTHER_UNIT = "focalcal", "softmax", "logsumexp"
SIZES = [(5_000 // SHARE, 100), (25_000 // SHARE**2, 1000), (1_000_000 // SHARE**2, 10)]
# Logits are normal with this deviation, labels come from their softmax at this temperature.
SPREAD, TEMPERATURE = 8.0, 2.3
RIGHT = 1e-3  # relative error of a temperature
PEER_GOALS = {100: 15.0, 1000: 50.0, 10: 30.0}  # times faster than the fastest right peer, by the number of classes
UNIT_GOAL = 1.5  # softmax passes; for the sizes after the first, where a pass outweighs the calls around it
# Who takes longer than the first, in seconds, takes fewer turns; longer than the second, one.
FEW_TURNS, ONE_TURN = 3.0, 30.0

PREDICTIONS = Path(__file__).resolve().parents[2] / "shared" / "data" / "predictions" / "cifar100_wideresnet16_4.npz"
GRID_SIZE = (5_000 // SHARE, 100)
NUM_BINS = 15
SAMPLED = 20  # points at which the formula is computed
AGREE = 1e-6
# Times faster than the formula, per point.
GRID_GOALS = {'TemperatureScaling("ada_ece")': 20.0, 'FocalTemperatureScaling("ada_ece", "full")': 60.0}
LINE_GOAL = 1.0  # of the time of the full grid
FULL_GOAL = 1.6  # seconds for all of the paper's grid

MEMORY_SIZE = (1_000_000 // SHARE**3, 100)
MEMORY_GOAL = 1.3  # of the input, itself included
MEMORY_FITS: dict[str, Callable[[], Calibrator]] = {
    'TemperatureScaling("nll")': lambda: TemperatureScaling("nll"),
    'TemperatureScaling("ada_ece"), 5 temperatures': lambda: TemperatureScaling("ada_ece", grid=[1.0, 1.5, 2, 2.5, 3]),
    'FocalTemperatureScaling("nll", "continuous")': lambda: FocalTemperatureScaling("nll", "continuous"),
}
MEMORY_SECONDS = 3600  # then something is wrong

PEERS = {"scikit-learn": "sklearn.calibration", "probmetrics": "probmetrics.calibrators", "netcal": "netcal.scaling"}

Run = Callable[[], Any]
Point = tuple[float, float]  # (gamma, T)


def tempered_output(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Normal logits, too sharp by a factor of `TEMPERATURE`, and labels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator).mul_(SPREAD)
    labels = torch.empty(rows, dtype=torch.int64)
    step = max(1, (1 << 20) // classes)
    for start in range(0, rows, step):  # the largest of logit minus log of an exponential variate is a draw of softmax
        part = logits[start : start + step]
        noise = torch.empty_like(part).exponential_(generator=generator).log_()
        labels[start : start + step] = (part / TEMPERATURE - noise).argmax(1)
    return logits, labels


def grid_output() -> tuple[str, Tensor, Tensor]:
    """Predictions of a real network as log-probabilities, where the file is beside the project; else drawn ones."""
    rows, classes = GRID_SIZE
    if not PREDICTIONS.exists():
        return "synthetic logits", *network_output(rows, classes)
    with np.load(PREDICTIONS) as file:
        probs, labels = file["probs"][:rows], file["labels"][:rows]
    log_probs = torch.log(torch.from_numpy(probs).clamp(min=torch.finfo(torch.float32).tiny))
    return "a WideResNet-16-4 on CIFAR-100", log_probs, torch.from_numpy(labels.astype(np.int64))


# ---------------------------------------------------------------------- temperature scaling by NLL


def load_peers() -> dict[str, Any]:
    """The peers that can be imported; for the others the reason why not."""
    found = {name: load(module) for name, module in PEERS.items()}
    if not hasattr(found["scikit-learn"], "_TemperatureScaling"):
        found["scikit-learn"] = "no temperature scaling before version 1.8"
    return found


def load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        return str(error)


def peer_fits(peers: dict[str, Any], logits: Tensor, labels: Tensor) -> dict[str, Run]:
    """What the peers offer, as functions that fit and give the temperature."""
    fits: dict[str, Run] = {}
    scores, classes = logits.numpy(), labels.numpy()
    if not isinstance(peers["scikit-learn"], str):
        # What CalibratedClassifierCV(method="temperature") fits inside. The class around it would add a classifier that
        # passes logits through and a cross-validation, which is time spent on something else.
        sklearn = peers["scikit-learn"]._TemperatureScaling
        fits["scikit-learn"] = lambda: 1 / float(sklearn().fit(scores, classes).beta_)
    if not isinstance(peers["probmetrics"], str):
        given = importlib.import_module("probmetrics.distributions").CategoricalLogits(logits)
        scaling = peers["probmetrics"].TemperatureScalingCalibrator
        newton = peers["probmetrics"].TorchcalTemperatureScalingCalibrator
        for opt in ("bisection", "lbfgs", "lbfgs_line_search"):
            fits[f"probmetrics, {opt}"] = lambda opt=opt: 1 / scaling(opt=opt).fit_torch(given, labels).invtemp_
        fits["probmetrics, Newton (torchcal)"] = lambda: newton().fit_torch(given, labels).temp_
    if not isinstance(peers["netcal"], str):
        # In float32 it returns its start: it takes slopes from differences of 1e-8. Its temperature multiplies logits.
        netcal, probs = peers["netcal"].TemperatureScaling, torch.softmax(logits.double(), 1).numpy()
        fits["netcal"] = lambda: 1 / float(netcal().fit(probs, classes).temperature[0])
    fits["L-BFGS as published"] = lambda: lbfgs_temperature(logits, labels)
    return fits


def lbfgs_temperature(logits: Tensor, labels: Tensor) -> float:
    """The recipe published with guo2017 and copied since: 50 steps of L-BFGS at rate 0.01 from T = 1.5."""
    temperature = nn.Parameter(torch.tensor(1.5))
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def loss() -> Tensor:
        optimizer.zero_grad()
        nll = nn.functional.cross_entropy(logits / temperature, labels)
        nll.backward()
        return nll

    optimizer.step(loss)
    return float(temperature)


def exact_temperature(logits: Tensor, labels: Tensor) -> float:
    """The root of the NLL's slope in 1/T, all in float64."""
    step = max(1, (1 << 20) // logits.shape[1])
    parts = list(zip(logits.split(step), labels.unsqueeze(1).split(step), strict=True))

    def slope(log_inverse: float) -> float:
        total = 0.0
        for part, label in parts:
            x = part.double()
            total += float((torch.softmax(math.exp(log_inverse) * x, 1) * x).sum() - x.gather(1, label).sum())
        return total

    return math.exp(-brentq(slope, -math.log(100), -math.log(0.01), xtol=1e-13))


def take_turns(contestants: dict[str, Run]) -> tuple[dict[str, float], dict[str, Any], list[str]]:
    """Best seconds of each, what each gives, and who ran once only; ours takes part in every rotation."""
    seconds, values = {}, {}
    for name, run in contestants.items():
        start = time.perf_counter()
        values[name] = run()
        seconds[name] = time.perf_counter() - start
    fast = [name for name, first in seconds.items() if first <= FEW_TURNS]
    slow = [name for name, first in seconds.items() if FEW_TURNS < first <= ONE_TURN]
    for names, repeats in ((fast, 11), (slow, 2)):
        chosen = {name: contestants[name] for name in dict.fromkeys([OURS, UNIT, *names])}
        for name, best in best_times(chosen, repeats=repeats, calls=1).items():
            seconds[name] = min(seconds[name], best)
    return seconds, values, [name for name, first in seconds.items() if first > ONE_TURN]


def compare_temperatures(peers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for rows, classes in SIZES:
        logits, labels = tempered_output(rows, classes)
        exact, size = exact_temperature(logits, labels), f"{rows:,} x {classes:,}"
        contestants: dict[str, Run] = {
            UNIT: lambda logits=logits: torch.softmax(logits, 1),
            OTHER_UNIT: lambda logits=logits: torch.logsumexp(logits, 1),
            OURS: lambda logits=logits, labels=labels: TemperatureScaling("nll").fit(logits, labels).temperature_,
        }
        contestants |= peer_fits(peers, logits, labels)
        settle_allocator()
        seconds, values, once = take_turns(contestants)
        with kept_memory():
            kept = best_times({UNIT: contestants[UNIT]}, repeats=5, calls=1)[UNIT]
        unit, other = seconds.pop(UNIT), seconds.pop(OTHER_UNIT)
        fits = {
            name: {
                "seconds": best,
                "ratio": best / seconds[OURS],
                "temperature": values[name],
                "error": abs(values[name] / exact - 1),
                "once": name in once,
            }
            for name, best in seconds.items()
        }
        assert fits[OURS]["error"] < RIGHT, f"{size}: ours {values[OURS]}, exact {exact}"
        right = [name for name in fits if name != OURS and fits[name]["error"] < RIGHT]
        table[size] = {
            "exact": exact,
            "fits": fits,
            "fastest right peer": min(right, key=lambda name: seconds[name], default=None),
            "unit": unit,
            "unit with memory kept": kept,
            "passes": seconds[OURS] / unit,
            "other unit": other,
            "other passes": seconds[OURS] / other,
        }
        print_temperatures(size, table[size], classes)
    return table


def print_temperatures(size: str, figures: dict[str, Any], classes: int) -> None:
    kept = figures["unit with memory kept"]
    print(f"\nTemperature scaling, {size}: the right temperature is {figures['exact']:.6f}")
    print(f"  {UNIT} takes {figures['unit'] * 1e3:,.2f} ms ({kept * 1e3:,.2f} ms with all memory kept)")
    for name, fit in figures["fits"].items():
        note = ("right" if fit["error"] < RIGHT else "WRONG") + ("   (once)" if fit["once"] else "")
        print(f"  {name:32s} {fit['seconds'] * 1e3:10,.1f} ms {fit['ratio']:8.1f} x ours   ", end="")
        print(f"T = {fit['temperature']:.6f}   off by {fit['error']:.0e}   {note}")
    print(f"  ours takes {figures['passes']:.2f} of {UNIT}, {figures['other passes']:.2f} of {OTHER_UNIT}", end="")
    print("" if classes == 100 else f"   goal {UNIT_GOAL} of {UNIT}   {verdict(figures['passes'], UNIT_GOAL)}")
    if peer := figures["fastest right peer"]:
        faster, goal = figures["fits"][peer]["ratio"], PEER_GOALS[classes]
        print(f"  {faster:.1f} times as fast as {peer}   goal {goal:.0f}   {verdict(goal, faster)}")


def verdict(figure: float, goal: float) -> str:
    return "met" if figure <= goal else "MISSED"


# ---------------------------------------------------------------------- grids


def direct_probs(logits: Tensor, gamma: float, temperature: float) -> Tensor:
    """Focal temperature scaling as the paper writes it [komisarenko2024, Sec. 4.2], in the precision of the logits."""
    q = torch.softmax(logits / temperature, 1)
    if gamma == 0:
        return q
    q = q.clamp(1e-12, 1 - 1e-12)
    phi = (1 - q) ** gamma - gamma * (1 - q) ** (gamma - 1) * q * torch.log(q)
    p = q / phi
    return p / p.sum(1, keepdim=True)


def direct_ada_ece(logits: Tensor, labels: Tensor, gamma: float, temperature: float) -> float:
    """ECE with bins of equal mass, by sorting; the row of rank i is in bin floor(15 i / N)."""
    top, predicted = direct_probs(logits, gamma, temperature).max(1)
    confidence, correct = top.numpy(), (predicted == labels).numpy()
    # np.array_split would make the first bins the larger ones, which is a slightly different measure.
    cuts = -(-len(labels) * np.arange(1, NUM_BINS) // NUM_BINS)
    bins = np.split(np.argsort(confidence), cuts)
    return float(sum(abs(confidence[rows].sum() - correct[rows].sum()) for rows in bins) / len(labels))


def direct_nll(logits: Tensor, labels: Tensor, gamma: float, temperature: float) -> float:
    p = direct_probs(logits, gamma, temperature)
    return float(-torch.log(p.gather(1, labels.unsqueeze(1))).mean())


def point_of(fitted: Calibrator) -> Point:
    """Gamma, which is 0 for temperature scaling, and the temperature."""
    return getattr(fitted, "gamma_", 0.0), fitted.temperature_


def sample_points(gammas: list[float], temperatures: list[float], found: Point) -> list[Point]:
    """Some points of a grid, half of them with temperatures near the found one, where a better one would be."""
    points = [(gamma, temperature) for gamma in gammas for temperature in temperatures]
    points.remove(found)
    near = [point for point in points if abs(point[1] / found[1] - 1) < 0.3]
    generator = np.random.default_rng(0)
    picked = [near[i] for i in generator.permutation(len(near))[: SAMPLED // 2]]
    return picked + [points[i] for i in generator.permutation(len(points))[: SAMPLED - len(picked)]]


def compare_grids() -> dict[str, Any]:
    source, logits, labels = grid_output()
    wide = logits.double()
    searches: dict[str, tuple[Callable[[], Calibrator], list[float], list[float]]] = {
        'TemperatureScaling("ada_ece")': (
            lambda: TemperatureScaling("ada_ece"),
            [0.0],
            [i / 10 for i in range(1, 101)],
        ),
        'FocalTemperatureScaling("ada_ece", "full")': (
            lambda: FocalTemperatureScaling("ada_ece", "full"),
            [-0.5, -0.25, 0.0, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0],
            [i / 100 for i in range(1, 501)],
        ),
    }
    print(f"\nGrids, {len(logits):,} x {logits.shape[1]}, {source}:")
    table: dict[str, Any] = {}
    for name, (make, gammas, temperatures) in searches.items():
        fitted = make().fit(logits, labels)
        report, found = fitted.report_, point_of(fitted)
        assert report.iterations == len(gammas) * len(temperatures), "the fit has another grid"
        sample = sample_points(gammas, temperatures, found)
        gap = abs(direct_ada_ece(wide, labels, *found) - report.after)
        assert gap <= AGREE, f"{name}: at {found} ours is {report.after}, off by {gap:.1e}"
        best = min(direct_ada_ece(wide, labels, *point) for point in sample)
        assert best >= report.after - AGREE, f"{name}: found {report.after}, but there is {best}"

        def direct(sample: list[Point] = sample) -> None:
            for point in sample:
                direct_ada_ece(wide, labels, *point)

        seconds = best_times(
            {"fit": lambda make=make: make().fit(logits, labels), "direct": direct}, repeats=7, calls=1
        )
        ours, theirs = seconds["fit"] / report.iterations, seconds["direct"] / len(sample)
        table[name] = {
            "points": report.iterations,
            "seconds": seconds["fit"],
            "per point": ours,
            "formula, per point": theirs,
            "ratio": theirs / ours,
            "gamma": found[0],
            "temperature": found[1],
            "ada_ece": report.after,
            "off by": gap,
        }
        print(f"  {name}: {report.iterations} points in {seconds['fit']:.3f} s, {ours * 1e6:,.0f} us each;", end=" ")
        print(f"the formula takes {theirs * 1e6:,.0f} us, {theirs / ours:.1f} x", end="   ")
        print(f"goal {GRID_GOALS[name]:.0f}   {verdict(GRID_GOALS[name], theirs / ours)}")
        print(f"    {point_text(*found)}: ada_ece {report.after:.6f}, agrees to {gap:.0e}; best sampled {best:.6f}")
    return {"source": source, "searches": table}


def point_text(gamma: float, temperature: float) -> str:
    return f"gamma {gamma:.4g}, T {temperature:.4g}"


def compare_searches() -> dict[str, dict[str, Any]]:
    """The searches of focal temperature scaling side by side, with temperature scaling on the same grid for scale."""
    _, logits, labels = grid_output()
    wide = logits.double()
    direct = {"nll": direct_nll, "ada_ece": direct_ada_ece}
    makers: dict[tuple[str, str], Callable[[], Calibrator]] = {}
    for criterion, searches in (("nll", ("full", "line", "continuous")), ("ada_ece", ("full", "line"))):
        makers[criterion, "gamma = 0"] = lambda c=criterion: TemperatureScaling(c, grid="komisarenko2024")
        for search in searches:
            makers[criterion, search] = lambda c=criterion, s=search: FocalTemperatureScaling(c, s)
    runs = {", ".join(key): lambda make=make: make().fit(logits, labels) for key, make in makers.items()}
    seconds = best_times(runs, repeats=3, calls=1)
    print("\nSearches:")
    table: dict[str, dict[str, Any]] = {}
    for (criterion, search), make in makers.items():
        fitted, name = make().fit(logits, labels), f"{criterion}, {search}"
        value, (gamma, temperature) = fitted.report_.after, point_of(fitted)
        gap = abs(direct[criterion](wide, labels, gamma, temperature) - value)
        assert gap <= AGREE, f"{name}: ours is {value}, off by {gap:.1e}"
        plain = table.get(f"{criterion}, gamma = 0", {"value": value})["value"]
        assert value <= plain + 1e-9, f"{name} ends at {value}, above temperature scaling with {plain}"
        table[name] = {"seconds": seconds[name], "gamma": gamma, "temperature": temperature, "value": value}
        print(f"  {name:20s} {seconds[name]:7.3f} s   {point_text(gamma, temperature):26s} {value:.8f}")
    ratio = seconds["ada_ece, line"] / seconds["ada_ece, full"]
    print(f"  the line takes {ratio:.2f} of the full grid by ada_ece   goal {LINE_GOAL}   {verdict(ratio, LINE_GOAL)}")
    return table


# ---------------------------------------------------------------------- memory


def fit_memory(name: str, rows: int, classes: int) -> tuple[float, float]:
    """MiB that a fit takes at its peak beyond its input, and its seconds, in a process of its own."""
    make = MEMORY_FITS[name]
    make().fit(*tempered_output(2000, classes))  # wakes up the libraries
    logits, labels = tempered_output(rows, classes)
    give_back_memory()
    before, start = peak_memory(reset=True), time.perf_counter()
    make().fit(logits, labels)
    return peak_memory() - before, time.perf_counter() - start


def compare_memory() -> dict[str, dict[str, float]]:
    table = {}
    rows, classes = MEMORY_SIZE
    size = rows * (4 * classes + 8) / 2**20
    print(f"\nPeak memory of a fit, {rows:,} x {classes}, {size:.0f} MiB:")
    for name in MEMORY_FITS:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            used, seconds = pool.submit(fit_memory, name, rows, classes).result(timeout=MEMORY_SECONDS)
        factor = 1 + used / size
        table[name] = {"MiB": used, "input MiB": size, "factor": factor, "seconds": seconds}
        print(f"  {name:46s} {used:6.1f} MiB beyond it, {factor:.2f} of the input in all   ({seconds:.1f} s)")
    return table


def main() -> None:
    warnings.simplefilter("ignore")  # peers warn of their own dependencies
    memory = compare_memory()  # first: nothing else has warmed up or filled the machine
    peers = load_peers()
    warnings.simplefilter("ignore")  # some of them switch warnings on again
    versions = {name: version(name) for name, module in peers.items() if not isinstance(module, str)}
    temperatures, grids, searches = compare_temperatures(peers), compare_grids(), compare_searches()
    result = {
        "temperature": temperatures,
        "grids": grids,
        "searches": searches,
        "memory": memory,
        "goals": {
            "fastest right peer / ours": {f"{rows:,} x {k:,}": PEER_GOALS[k] for rows, k in SIZES},
            "passes": UNIT_GOAL,
            "formula / ours": GRID_GOALS,
            "line / full": LINE_GOAL,
            "full grid, seconds": FULL_GOAL,
            "memory / input": MEMORY_GOAL,
            "right": RIGHT,
        },
        "peers": versions,
    }
    save("calibrators", result)


if __name__ == "__main__":
    main()
