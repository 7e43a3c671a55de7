"""Calibration measures from float32 logits, as a ratio to the time it takes to read the logits at all.

    python benchmarks/metrics.py            # prints ratios, writes benchmarks/results/metrics.json
    python benchmarks/metrics.py --quick    # a tenth of every size, writes nothing

The unit is `torch.logsumexp` and `max` over the same array, in the same rotation, in an ordinary process. `logsumexp`
makes a temporary as large as its input, and glibc maps a block beyond 32 MB anew at every call, so part of the unit is
page faults; how long it takes with all memory kept for reuse is printed beside it. Both arrays exceed the cache, so it
does not matter who read them before.

Peers, where installed: torchmetrics from logits; netcal and uncertainty-calibration from probabilities, with the
softmax outside the timing; relplot from pairs of confidence and correctness. uncertainty-calibration runs once,
outside the rotation. Its debiased error takes every class in turn unless told otherwise, which is hundreds of times
slower: that form, like ours, runs once on a tenth of the rows, its time taken times ten. Before anything is timed, our
values must agree with theirs. Then smooth ECE against relplot, a bootstrap as a multiple of one call, and the peak
memory of `evaluate`.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from harness import SHARE, best_times, give_back_memory, kept_memory, peak_memory, save, settle_allocator
from torch import Tensor

from focalcal import metrics

# rows, classes, turns
SIZES = [(50_000 // SHARE, 1000, 15), (1_000_000 // SHARE, 10, 15)]
UNIT = "logsumexp + max"
# Seconds as a multiple of the unit, by the number of classes.
GOALS = {
    "ece": {1000: 0.5, 10: 0.5},
    "ada_ece": {1000: 0.8, 10: 0.8},
    "ece_debiased": {1000: 0.5, 10: 0.5},
    "evaluate": {1000: 1.0, 10: 2.0},
}
PEER_GOAL = 1.0  # all measures, as a multiple of torchmetrics' one ECE

SMOOTH_ROWS = 100_000 // SHARE
SMOOTH_GOAL = 1.0  # of relplot's time
BOOTSTRAP = (10_000 // SHARE, 100)
BOOTSTRAP_GOAL = 100.0  # calls of `ece`
MEMORY_SIZES = [(50_000 // SHARE, 1000), (1_000_000 // SHARE, 10), (4_000_000 // SHARE, 10)]
MEMORY_GOAL = (64.0, 16)  # MiB, and bytes a row

PEERS = {
    "torchmetrics": "torchmetrics.functional.classification",
    "netcal": "netcal.metrics",
    "uncertainty-calibration": "calibration",
    "relplot": "relplot",
}
# How far a peer's value may be from ours.
# - torchmetrics sums in float32, one row after the other, and drifts as rows add up: it is held to its tolerance on the
#   first 10,000 rows, and what it gives for all of them is printed.
# - netcal cuts bins of equal mass at interpolated quantiles, which moves a row or two at each edge.
# - relplot searches the width in steps of 1/1024, and its mesh loses half of what lies within 1/1000 of an end: rows
#   above 0.998 are left out of this comparison, not of the timing.
TOLERANCE = {"torchmetrics": 1e-4, "netcal": 1e-4, "uncertainty-calibration": 1e-5, "relplot": 2e-3}
ROWS_AT_EDGES = 30
DRIFT_FREE = 10_000
CLASSWISE = "ece_debiased, classwise"

Run = Callable[[], Any]


def network_output(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Logits and labels as of a trained network: about 85 % accuracy, overconfident on the whole.

    One class of each row stands out, by normal log-odds. Labels come from the softmax of the logits over a temperature
    between 0.6 and 2 that goes up and down with the confidence. Were every gap positive, all ways to cut bins would
    give the same ECE, and agreement would show nothing.
    """
    generator, temperature, spread = torch.Generator().manual_seed(0), 1.5, 1.5
    logits = torch.randn(rows, classes, generator=generator).mul_(spread)
    winner = torch.randint(0, classes, (rows, 1), generator=generator)
    odds = 2.5 + 2 * torch.randn(rows, 1, generator=generator)
    others = float(np.log(classes - 1)) + (spread / temperature) ** 2 / 2  # logsumexp of the other classes
    logits.scatter_(1, winner, temperature * (others + odds))
    labels = torch.empty(rows, dtype=torch.int64)
    step = max(1, (1 << 20) // classes)
    for start in range(0, rows, step):  # the largest of logit minus log of an exponential variate is a draw of softmax
        part = logits[start : start + step]
        noise = torch.empty_like(part).exponential_(generator=generator).log_()
        wave = 1.3 + 0.7 * torch.sin(12 * torch.softmax(part, 1).amax(1, keepdim=True) + 1)
        labels[start : start + step] = (part / wave - noise).argmax(1)
    return logits, labels


def load_peers() -> dict[str, Any]:
    """The peers that are installed; the others as None."""
    found: dict[str, Any] = {}
    for name, module in PEERS.items():
        found[name] = None
        with suppress(ImportError):
            found[name] = importlib.import_module(module)
        if found[name] is None:
            print(f"{name}: not installed")
    return found


def peer_calls(peers: dict[str, Any], logits: Tensor, labels: Tensor) -> dict[tuple[str, str], Run]:
    """What the fast peers offer, by peer and measure."""
    classes, calls = logits.shape[1], {}
    if peers["torchmetrics"]:
        error = peers["torchmetrics"].multiclass_calibration_error
        calls["torchmetrics", "ece"] = lambda: error(logits, labels, num_classes=classes, n_bins=15, norm="l1")
    if peers["netcal"]:
        probs, classes_of_rows = torch.softmax(logits, 1).numpy(), labels.numpy()
        width, mass = peers["netcal"].ECE(15), peers["netcal"].ECE(15, equal_intervals=False)
        calls["netcal", "ece"] = lambda: width.measure(probs, classes_of_rows)
        calls["netcal", "ada_ece"] = lambda: mass.measure(probs, classes_of_rows)
    return calls


def slow_calls(peers: dict[str, Any], logits: Tensor, labels: Tensor) -> dict[tuple[str, str], Run]:
    """What uncertainty-calibration offers."""
    name = "uncertainty-calibration"
    if not peers[name]:
        return {}
    probs, classes = torch.softmax(logits, 1).numpy(), labels.numpy()
    error = peers[name].lower_bound_scaling_ce
    return {
        (name, "ece"): lambda: peers[name].get_ece(probs, classes, num_bins=15),
        (name, "ece_debiased"): lambda: error(probs, classes, num_bins=15, mode="top-label"),
        (name, CLASSWISE): lambda: error(probs, classes, num_bins=15, mode="marginal"),
    }


def once(run: Run) -> tuple[float, float]:
    """What a call gives, and its seconds."""
    start = time.perf_counter()
    value = float(run())
    return value, time.perf_counter() - start


def agree(peer: str, what: str, theirs: float, ours: float, slack: float = 0.0) -> None:
    """Stop if two libraries measure different things."""
    gap, allowed = abs(float(theirs) - float(ours)), TOLERANCE[peer] + slack
    assert gap <= allowed, f"{what}: ours {ours:.6f}, {peer} {theirs:.6f}, apart by {gap:.1e}, allowed {allowed:.1e}"
    print(f"  {what} {float(ours):.5f} agrees with {peer} to {gap:.0e} (allowed {allowed:.0e})")


def compare_measures(peers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for rows, classes, repeats in SIZES:
        logits, labels = network_output(rows, classes)
        size = f"{rows:,} x {classes:,}"
        print(f"\n{size}: accuracy {metrics.accuracy(logits, labels):.3f}")
        measures = {name: getattr(metrics, name) for name in ("ece", "ada_ece", "ece_debiased")}

        everything = metrics.evaluate(logits, labels)
        for name, measure in measures.items():
            assert abs(measure(logits, labels) - getattr(everything, name)) < 1e-9, f"evaluate has another {name}"
        fast = peer_calls(peers, logits, labels)
        for (peer, name), run in fast.items():
            if peer == "torchmetrics":
                few = logits[:DRIFT_FREE], labels[:DRIFT_FREE]
                agree(peer, name, peer_calls(peers, *few)[peer, name](), measures[name](*few))
                print(f"  {name} of all rows: ours {everything.ece:.5f}, {peer} {float(run()):.5f}")
                continue
            slack = ROWS_AT_EDGES / rows if (peer, name) == ("netcal", "ada_ece") else 0.0
            agree(peer, name, run(), getattr(everything, name), slack)

        tenth = logits[: rows // 10], labels[: rows // 10]
        ours, seconds_of_tenth = once(lambda tenth=tenth: metrics.ece_debiased(*tenth, target="classwise"))
        slow = {CLASSWISE: 10 * seconds_of_tenth}
        for (peer, name), run in slow_calls(peers, logits, labels).items():
            if name != CLASSWISE:
                theirs, slow[f"{peer}: {name}"] = once(run)
                agree(peer, name, theirs, getattr(everything, name))
        for (peer, name), run in slow_calls(peers, *tenth).items():
            if name == CLASSWISE:
                theirs, seconds_of_tenth = once(run)
                slow[f"{peer}: {name}"] = 10 * seconds_of_tenth
                agree(peer, name, theirs, ours)

        contestants: dict[str, Run] = {
            UNIT: lambda logits=logits: (torch.logsumexp(logits, 1), logits.max(1)),
            "ece": lambda logits=logits, labels=labels: metrics.ece(logits, labels),
            "ada_ece": lambda logits=logits, labels=labels: metrics.ada_ece(logits, labels),
            "ece_debiased": lambda logits=logits, labels=labels: metrics.ece_debiased(logits, labels),
            "evaluate, classwise=False": lambda logits=logits, labels=labels: metrics.evaluate(
                logits, labels, classwise=False
            ),
            "evaluate": lambda logits=logits, labels=labels: metrics.evaluate(logits, labels),
        }
        contestants |= {f"{peer}: {name}": run for (peer, name), run in fast.items()}
        settle_allocator()
        seconds = best_times(contestants, repeats=repeats, calls=1) | slow
        with kept_memory():
            kept = best_times({UNIT: contestants[UNIT]}, repeats=5, calls=1)[UNIT]
        unit = seconds[UNIT]
        ratios = {name: value / unit for name, value in seconds.items()}
        table[size] = {"seconds": seconds, "ratios": ratios, "unit with memory kept": kept}
        print(f"  {UNIT} takes {unit * 1e3:,.1f} ms ({kept * 1e3:,.1f} ms with all memory kept)")
        for name, ratio in ratios.items():
            note = "   (once)" if name in slow else ""
            note = "   (once, on a tenth of the rows, times ten)" if name.endswith(CLASSWISE) else note
            goal = GOALS.get(name, {}).get(classes)
            note = note if goal is None else f"   goal {goal:.1f}   {verdict(ratio, goal)}"
            print(f"  {name:38s} {ratio:8.2f} x the unit{note}")
        if "torchmetrics: ece" in seconds:
            ratio = seconds["evaluate"] / seconds["torchmetrics: ece"]
            print(f"  evaluate takes {ratio:.2f} of torchmetrics' ECE   goal {PEER_GOAL}   {verdict(ratio, PEER_GOAL)}")
    return table


def verdict(figure: float, goal: float) -> str:
    return "met" if figure <= goal else "MISSED"


def compare_smooth(peers: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Smooth ECE of unsorted pairs; `from_pairs` and its checks are in the timing."""
    table = {}
    rows = metrics.read(*network_output(SMOOTH_ROWS, 10), columns=("confidence", "correct"))
    correct = rows.columns["correct"]
    print(f"\nSmooth ECE, {SMOOTH_ROWS:,} pairs:")
    for dtype in ("float32", "float64"):
        confidence = rows.columns["confidence"].astype(dtype)

        def ours(confidence: Any = confidence, correct: Any = correct) -> float:
            return metrics.smooth_ece(metrics.from_pairs(confidence, correct))

        contestants: dict[str, Run] = {"smooth_ece": ours}
        if peers["relplot"]:
            theirs, outcome = peers["relplot"].smECE, correct.astype(dtype)
            below = confidence < 0.998
            agree(
                "relplot",
                "smooth_ece",
                theirs(confidence[below], outcome[below]),
                ours(confidence[below], correct[below]),
            )
            contestants["relplot: smooth_ece"] = lambda theirs=theirs, c=confidence, o=outcome: theirs(c, o)
        table[dtype] = seconds = best_times(contestants, repeats=15, calls=1)
        print(f"  {dtype}: ours takes {seconds['smooth_ece'] * 1e3:.1f} ms", end="")
        if peers["relplot"]:
            seconds["ratio"] = seconds["smooth_ece"] / seconds["relplot: smooth_ece"]
            print(f", {seconds['ratio']:.2f} of relplot   goal {SMOOTH_GOAL:.1f}   ", end="")
            print(verdict(seconds["ratio"], SMOOTH_GOAL), end="")
        print()
    return table


def compare_bootstrap() -> dict[str, float]:
    """1,000 resamples of ECE from logits, as a multiple of one call of `ece` on the same logits."""
    logits, labels = network_output(*BOOTSTRAP)
    contestants: dict[str, Run] = {"ece": lambda: metrics.ece(logits, labels)}
    for method in ("percentile", "bca"):
        contestants[method] = lambda method=method: metrics.bootstrap(
            "ece", logits, labels, num_resamples=1000, method=method
        )
        same = contestants[method]().value - metrics.ece(logits, labels)
        assert abs(same) < 1e-9, "bootstrap has another ece"
    seconds = best_times(contestants, repeats=7, calls=1)
    # One call is short: the best of many more turns, among them some with a warm cache, which is the harder unit.
    seconds["ece"] = min(seconds["ece"], best_times({"ece": contestants["ece"]}, repeats=50, calls=1)["ece"])
    print(f"\nBootstrap of ECE, {BOOTSTRAP[0]:,} x {BOOTSTRAP[1]}: one call takes {seconds['ece'] * 1e3:.2f} ms")
    for method in ("percentile", "bca"):
        ratio = seconds[f"{method} ratio"] = seconds[method] / seconds["ece"]
        print(f"  {method:10s} {ratio:6.1f} x one call   goal {BOOTSTRAP_GOAL:.0f}   {verdict(ratio, BOOTSTRAP_GOAL)}")
    return seconds


def evaluate_memory(rows: int, classes: int) -> float:
    """MiB that `evaluate` takes at its peak beyond its input, in a process of its own."""
    metrics.evaluate(*network_output(2000, classes))  # wakes up the libraries
    logits, labels = network_output(rows, classes)
    give_back_memory()
    before = peak_memory(reset=True)
    metrics.evaluate(logits, labels)
    return peak_memory() - before


def compare_memory() -> dict[str, dict[str, float]]:
    table = {}
    print("\nPeak memory of evaluate beyond its input:")
    for rows, classes in MEMORY_SIZES:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            used = pool.submit(evaluate_memory, rows, classes).result(timeout=300)
        goal = MEMORY_GOAL[0] + MEMORY_GOAL[1] * rows / 2**20
        table[f"{rows:,} x {classes:,}"] = {"MiB": used, "goal": goal, "input MiB": rows * (4 * classes + 8) / 2**20}
        print(f"  {rows:9,} x {classes:5,}   {used:6.1f} MiB   goal {goal:6.1f}   {verdict(used, goal)}")
    return table


def main() -> None:
    warnings.simplefilter("ignore")  # peers warn of their own dependencies
    memory = compare_memory()  # first: nothing else has warmed up or filled the machine
    peers = load_peers()
    warnings.simplefilter("ignore")  # some of them switch warnings on again
    measures, smooth, bootstrap = compare_measures(peers), compare_smooth(peers), compare_bootstrap()
    result = {
        "measures": measures,
        "goals": {
            **{name: {f"{rows:,} x {k:,}": goal[k] for rows, k, _ in SIZES} for name, goal in GOALS.items()},
            "evaluate / torchmetrics: ece": PEER_GOAL,
            "smooth_ece": SMOOTH_GOAL,
            "bootstrap": BOOTSTRAP_GOAL,
        },
        "smooth_ece": smooth,
        "bootstrap": bootstrap,
        "memory": memory,
        "peers": [name for name, module in peers.items() if module],
    }
    save("metrics", result)


if __name__ == "__main__":
    main()
