"""The tables of docs/results/speed.md, made from the JSON files of benchmarks/results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SCRIPTS = ("losses", "metrics", "calibrators", "streams", "cli", "training")
# These give tables of their own; a file of theirs may be missing.
MORE_SCRIPTS = ("selection", "scaling", "instructions")
# A ratio this close to 1 is a tie: turns of the same code differ by as much.
TIE = 0.05


@dataclass(frozen=True)
class Ratio:
    """One thing that was timed: our seconds as a multiple of another's, or of a limit."""

    script: str
    what: str
    against: str
    size: str
    ours: float
    theirs: float
    asked: float | None = None
    peer: bool = True  # a limit, such as reading the data at all, is not a peer: nobody is slower than it by choice

    @property
    def value(self) -> float:
        return self.ours / self.theirs

    @property
    def missed(self) -> bool:
        return self.asked is not None and self.value > self.asked

    @property
    def slower(self) -> bool:
        return self.peer and self.value > 1 + TIE


def read(results: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What every script found."""
    found = {name: json.loads((results / f"{name}.json").read_text()) for name in SCRIPTS}
    paths = {name: results / f"{name}.json" for name in MORE_SCRIPTS}
    return found | {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def goal(goals: dict[str, Any], name: str, size: str) -> float | None:
    """What was asked of something: of all sizes alike, or of each by its name."""
    asked = goals.get(name)
    return asked.get(size) if isinstance(asked, dict) else asked


def ratios(found: dict[str, dict[str, Any]]) -> list[Ratio]:
    """Every ratio to a peer or a limit."""
    makers = (of_losses, of_metrics, of_calibrators, of_streams, of_cli, of_lab)
    return [ratio for name, make in zip(SCRIPTS, makers, strict=True) for ratio in make(found[name])]


def of_losses(found: dict[str, Any]) -> Iterator[Ratio]:
    """Against torch's cross-entropy, and against other ways to write a focal loss."""
    pairs = [
        ("focal", "cross-entropy"),
        ("flsd-53", "cross-entropy"),
        ("adafocal", "cross-entropy"),
        ("adafocal", "focal"),
        ("focal", "naive autograd focal"),
        ("flsd-53", "flsd-53, loop over samples"),
    ]
    for size, seconds in found["seconds per step"].items():
        for ours, theirs in pairs:
            asked = found["goals"].get(f"{ours} / {theirs}", {}).get(size)
            yield Ratio("losses", ours, theirs, thousands(size), seconds[ours], seconds[theirs], asked)
    for name, ours, theirs in (("segmentation", "focal", "cross-entropy"), ("update", "update", "softmax")):
        if name in found:
            row, asked = found[name], found["goals"][name]
            what = "focal, images" if name == "segmentation" else "update of AdaFocal's gammas"
            size, peer = thousands(row["size"]), name == "segmentation"
            yield Ratio("losses", what, theirs, size, row["seconds"][ours], row["seconds"][theirs], asked, peer)
    linear = found["linear"]
    seconds = linear["chunked seconds"], linear["unchunked seconds"]
    asked = found["goals"]["linear"]["time ratio"]
    yield Ratio("losses", "LinearFocalLoss", "focal on all logits", thousands(found["layer"]), *seconds, asked)


def of_metrics(found: dict[str, Any]) -> Iterator[Ratio]:
    """Against reading the logits at all, and against every peer that has the measure."""
    for size, row in found["measures"].items():
        seconds, unit = row["seconds"], row["seconds"]["logsumexp + max"]
        for name in ("ece", "ada_ece", "ece_debiased", "evaluate, classwise=False", "evaluate"):
            limit = goal(found["goals"], name, size)
            yield Ratio("metrics", name, "logsumexp + max", size, seconds[name], unit, limit, peer=False)
        for peer in (name for name in seconds if ": " in name):
            name = peer.split(": ", 1)[1]
            yield Ratio("metrics", name, peer.split(": ")[0], size, seconds[name], seconds[peer])
        if "torchmetrics: ece" in seconds:
            ours, theirs = seconds["evaluate"], seconds["torchmetrics: ece"]
            asked = found["goals"].get("evaluate / torchmetrics: ece")
            yield Ratio("metrics", "evaluate, all measures", "torchmetrics, ece alone", size, ours, theirs, asked)
    for dtype, row in found["smooth_ece"].items():
        if "relplot: smooth_ece" in row:
            seconds = row["smooth_ece"], row["relplot: smooth_ece"]
            yield Ratio("metrics", "smooth_ece", "relplot", f"pairs, {dtype}", *seconds, found["goals"]["smooth_ece"])
    for method in ("percentile", "bca"):
        row, asked = found["bootstrap"], found["goals"]["bootstrap"]
        what = f"bootstrap, {method}, 1,000 resamples"
        yield Ratio("metrics", what, "one ece", "10,000 x 100", row[method], row["ece"], asked, peer=False)


def of_calibrators(found: dict[str, Any]) -> Iterator[Ratio]:
    """Against every peer, right or not, the limits, and the formula of the paper."""
    goals = found["goals"]
    for place, (size, row) in enumerate(found["temperature"].items()):
        ours = row["fits"]["focalcal"]["seconds"]
        for name, fit in row["fits"].items():
            if name != "focalcal":
                fastest = name == row["fastest right peer"]
                asked = goal(goals, "fastest right peer / ours", size) if fastest else None
                asked = 1 / asked if asked else None
                note = "" if fit["error"] < goals["right"] else f", T off by {fit['error']:.1%}"
                yield Ratio("calibrators", "TemperatureScaling", name + note, size, ours, fit["seconds"], asked)
        asked = goals["passes"] if place else None
        yield Ratio("calibrators", "TemperatureScaling", "one softmax", size, ours, row["unit"], asked, peer=False)
        yield Ratio("calibrators", "TemperatureScaling", "one logsumexp", size, ours, row["other unit"], peer=False)
    for name, row in found["grids"]["searches"].items():
        asked = 1 / (goal(goals, "formula / ours", name) or math.inf)
        size = f"{row['points']:,} points"
        yield Ratio("calibrators", f"`{name}`", "the formula", size, row["per point"], row["formula, per point"], asked)


def of_streams(found: dict[str, Any]) -> Iterator[Ratio]:
    """A pass over the rows against pyarrow reading them."""
    for rows, row in found["sizes"].items():
        for what in ("evaluate", "calibrate"):
            ours = row[what]["seconds"] / row[what]["passes"]
            asked = 1 / (goal(found["goals"], "speed", what) or math.inf)
            name = f"{what}, one pass"
            read_alone = row["pyarrow"]["seconds"]
            yield Ratio(
                "streams", name, "pyarrow, reading alone", f"{int(rows):,} x 100", ours, read_alone, asked, False
            )


def of_cli(found: dict[str, Any]) -> Iterator[Ratio]:
    """Against importing torch."""
    seconds, unit = found["seconds"], found["seconds"]["import torch"]
    for name, asked in found["goals"].items():
        yield Ratio("cli", f"`{name}`", "`import torch`", "a process", seconds[name], unit, asked / unit, peer=False)


def of_lab(found: dict[str, Any]) -> Iterator[Ratio]:
    """Training steps against cross-entropy's."""
    seconds = found["seconds"]
    for name in ("AdaFocal", "FLSD-53", "MMCE"):
        asked = found["goals"]["step"] if name == "AdaFocal" else None
        yield Ratio(
            "training", f"step with {name}", "cross-entropy", "ResNet-8", seconds[name], seconds["cross-entropy"], asked
        )
    asked = found["goals"]["update_ms"] / 8
    yield Ratio(
        "training",
        "update of AdaFocal's gammas",
        "8 ms in ghosh2022, on a GPU",
        "5,000 x 100",
        seconds["update"],
        8e-3,
        asked,
    )


# ---------------------------------------------------------------------- tables


def thousands(size: str) -> str:
    """2048 x 32000 as 2,048 x 32,000."""
    return " x ".join(f"{int(part):,}" for part in size.split(" x "))


def number(value: float) -> str:
    """Two digits that matter, or three from 10 on."""
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if value >= 0.1
        else f"{value:.3f}"
    )


def times(seconds: float) -> str:
    """Seconds in a unit that suits."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def verdict(ratio: Ratio) -> str:
    return "" if ratio.asked is None else "missed" if ratio.missed else "met"


def table(rows: list[Ratio]) -> list[str]:
    lines = [
        "| what | size | against | ours | theirs | ours / theirs | asked, at most | |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        asked = "" if row.asked is None else number(row.asked)
        cells = [
            row.what,
            row.size,
            row.against,
            times(row.ours),
            times(row.theirs),
            number(row.value),
            asked,
            verdict(row),
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("  |", " |"))
    return lines


def slower(rows: list[Ratio]) -> list[str]:
    """Where somebody else is faster."""
    lines = ["| what | size | against | ours / theirs |", "|---|---|---|---:|"]
    return lines + [f"| {row.what} | {row.size} | {row.against} | {number(row.value)} |" for row in rows if row.slower]


def missed(rows: list[Ratio]) -> list[str]:
    """Where we asked more of ourselves than we reached."""
    lines = ["| what | size | against | ours / theirs | asked, at most |", "|---|---|---|---:|---:|"]
    return lines + [
        f"| {row.what} | {row.size} | {row.against} | {number(row.value)} | {number(row.asked)} |"
        for row in rows
        if row.missed and row.asked is not None
    ]


def memory(found: dict[str, dict[str, Any]]) -> list[str]:
    """Peaks of resident memory, beyond what the input takes."""
    lines = ["| what | size | beyond the input, MiB | asked, at most | |", "|---|---|---:|---:|---|"]

    def add(what: str, size: str, used: float, most: float) -> None:
        lines.append(f"| {what} | {size} | {used:.0f} | {most:.0f} | {'met' if used <= most else 'missed'} |")

    linear, most = found["losses"]["linear"], found["losses"]["goals"]["linear"]["memory ratio"]
    size = thousands(found["losses"]["layer"])
    add("LinearFocalLoss", size, linear["chunked MiB"], most * linear["unchunked MiB"])
    for size, row in found["metrics"]["memory"].items():
        add("evaluate", size, row["MiB"], row["goal"])
    for what, row in found["calibrators"]["memory"].items():
        most = (found["calibrators"]["goals"]["memory / input"] - 1) * row["input MiB"]
        add(f"`{what}`", "1,000,000 x 100", row["MiB"], most)
    for rows, row in found["streams"]["sizes"].items():
        for what in ("evaluate", "calibrate"):
            add(f"{what} of a stream", f"{int(rows):,} x 100", row[what]["growth"], found["streams"]["goals"]["growth"])
    return lines


def temperatures(found: dict[str, Any]) -> list[str]:
    """What each library finds, against the root of the NLL's slope in float64."""
    sizes = list(found["temperature"])
    lines = [f"| | {' | '.join(sizes)} |", "|---|" + "---:|" * len(sizes)]
    for name in found["temperature"][sizes[0]]["fits"]:
        errors = [found["temperature"][size]["fits"][name]["error"] for size in sizes]
        lines.append(f"| {name} | {' | '.join(f'{error:.0e}' for error in errors)} |")
    return lines


def full_grid(found: dict[str, Any]) -> list[str]:
    """The one goal in seconds."""
    seconds, most = list(found["grids"]["searches"].values())[-1]["seconds"], found["goals"]["full grid, seconds"]
    lines = ["| what | seconds | asked, at most |", "|---|---:|---:|"]
    return [*lines, f"| the full grid of komisarenko2024 | {seconds:.2f} | {most} |"]


def throughput(found: dict[str, Any]) -> list[str]:
    lines = ["| classes | evaluate | a pass of temperature |", "|---:|---:|---:|"]
    for classes, row in found["cores"].items():
        lines.append(f"| {int(classes):,} | {row['evaluate'] / 1e6:.0f} | {row['temperature'] / 1e6:.0f} |")
    return lines


def linearity(found: dict[str, Any]) -> list[str]:
    """How much the time per row varies with the number of rows."""
    lines = ["| command | time per row varies by | asked, at most |", "|---|---:|---:|"]
    for what in ("evaluate", "calibrate"):
        each = [row[what]["seconds"] / int(rows) for rows, row in found["sizes"].items()]
        lines.append(f"| {what} | {max(each) / min(each) - 1:.0%} | {found['goals']['linear']:.0%} |")
    return lines


NOT_YET = ["Not measured yet."]


def selection(found: dict[str, Any] | None) -> list[str]:
    """`select_calibrator` with all methods, now and before the kernels."""
    if found is None:
        return NOT_YET
    lines = ["| size | now | before | times as fast | asked, at least | |", "|---|---:|---:|---:|---:|---|"]
    for size, row in found["sizes"].items():
        faster = row["before"] / row["now"]
        cells = [size, times(row["now"]), times(row["before"]), number(faster), number(found["goal"])]
        lines.append(f"| {' | '.join(cells)} | {'met' if faster >= found['goal'] else 'missed'} |")
    return lines


def scaling(found: dict[str, Any] | None) -> list[str]:
    """Seconds against rows and classes, and the slope of their logarithm."""
    if found is None:
        return NOT_YET
    lines = ["| size | evaluate | per value | TemperatureScaling | per value |", "|---|---:|---:|---:|---:|"]
    for series in found["series"].values():
        for row in series["points"]:
            cells = [f"{row['rows']:,} x {row['classes']:,}"]
            for job in ("evaluate", "temperature"):
                cells += [times(row[job]), f"{1e9 * row[job] / (row['rows'] * row['classes']):.2f} ns"]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| time grows with | to the power of, evaluate | TemperatureScaling |", "|---|---:|---:|"]
    for name, series in found["series"].items():
        slopes = series["slopes"]
        lines.append(f"| {name} | {slopes['evaluate']:.2f} | {slopes['temperature']:.2f} |")
    return lines


def instructions(found: dict[str, Any] | None) -> list[str]:
    """Instructions of each kernel, counted by valgrind."""
    if found is None:
        return NOT_YET
    return [
        "| kernel | size | instructions | per value |",
        "|---|---|---:|---:|",
        *(
            f"| {row['kernel']} | {row['size']} | {row['instructions']:,} | {number(row['per value'])} |"
            for row in found["kernels"].values()
        ),
    ]


def dates(found: dict[str, dict[str, Any]]) -> list[str]:
    """When and with what each script ran."""
    lines = ["| script | date | Python | torch | threads | peers |", "|---|---|---|---|---:|---|"]
    for name, row in found.items():
        place = row["environment"]
        date = place["date"] + (", by its commit" if place.get("date_from") == "commit" else "")
        known = place.get("peers") or (row["peers"] if isinstance(row.get("peers"), dict) else {})
        peers = ", ".join(f"{peer} {version}" for peer, version in known.items())
        unnamed = [peer for peer in row.get("peers", []) if peer not in known]
        peers = ", ".join(filter(None, [peers, *(f"{peer} (version not recorded)" for peer in unnamed)])) or "none"
        lines.append(f"| {name} | {date} | {place['python']} | {place['torch']} | {place['threads']} | {peers} |")
    return lines


def blocks(found: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The tables of the page by the names of their marks."""
    rows = ratios(found)
    return {
        "slower": slower(rows),
        "missed": missed(rows),
        **{script: table([row for row in rows if row.script == script]) for script in SCRIPTS},
        "full grid": full_grid(found["calibrators"]),
        "temperatures": temperatures(found["calibrators"]),
        "linearity": linearity(found["streams"]),
        "throughput": throughput(found["streams"]),
        "memory": memory(found),
        "selection": selection(found.get("selection")),
        "scaling": scaling(found.get("scaling")),
        "instructions": instructions(found.get("instructions")),
        "dates": dates(found),
    }
