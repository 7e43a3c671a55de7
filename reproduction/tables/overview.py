"""Tables of docs/results/README.md: the main numbers of all experiments side by side."""

from __future__ import annotations

from statistics import fmean

from reproduction.labels import LITTLE, LITTLE_20, NETWORKS, NEWS, PHASES, SST, TRAINED, TRANSLATION, method_name
from reproduction.markdown import MarkdownTable, table
from reproduction.recipe_numbers import Results
from reproduction.result_files import file_name

# The experiments that have all of these losses.
_FOUR = (LITTLE, LITTLE_20, NEWS, SST)
_LOSSES = ("ce", "brier", "mmce", "ls-0.05", "fl-3", "flsd-53", "adafocal")
_CALIBRATORS = ("pre", "post", "ts-nll", "ts-ada", "fts", "fts-line", "fts-nll", "ets", "spline")


@table("overview.losses")
def losses(results: Results) -> MarkdownTable:
    """AdaECE of every loss as trained and after temperature scaling by NLL."""
    found = [results[name] for name in _FOUR]
    rows = [
        [
            method_name(method),
            *(f"{one.mean(method, 'ece_em'):.1f} / {one.mean(method, 'ece_em', 'ts-nll'):.1f}" for one in found),
        ]
        for method in _LOSSES
    ]
    return MarkdownTable(["loss", *(one.title for one in found)], rows)


@table("overview.temperatures")
def temperatures(results: Results) -> MarkdownTable:
    """The temperatures that cross-entropy and FL-3 need, and their AdaECE as trained."""
    rows = []
    for numbers in (results[name] for name in TRAINED):
        plain, focal = (f"{numbers.temperature(method, 'ts-nll'):.2f}" for method in ("ce", "fl-3"))
        errors = [f"{numbers.mean(method, 'ece_em'):.1f}" for method in ("ce", "fl-3")]
        rows.append([numbers.title, plain, focal, *errors])
    headings = ["experiment", "T of cross-entropy", "T of FL-3", "AdaECE of cross-entropy, %", "AdaECE of FL-3, %"]
    return MarkdownTable(headings, rows)


@table("overview.calibrators")
def calibrators(results: Results) -> MarkdownTable:
    """AdaECE after every calibrator, mean over losses."""
    found = [results[name] for name in TRAINED]
    rows = [
        [PHASES[phase], *(f"{fmean(one.means('ece_em', phase).values()):.1f}" for one in found)]
        for phase in _CALIBRATORS
    ]
    return MarkdownTable(["calibrator", *(f"{one.title} ({one.sizes[1]:,} rows)" for one in found)], rows)


@table("overview.experiments")
def experiments(results: Results) -> MarkdownTable:
    """How each experiment was run, and how long it took."""
    rows = []
    for name, numbers in results.items():
        if name == NETWORKS:
            continue
        seeds = min(len(numbers.runs(method)) for method in numbers.methods)
        data = "" if name == TRANSLATION else " --data DIR"  # that corpus is generated
        command = f"`focalcal lab run {name} --method all --seeds {seeds} --jobs 2{data}`"
        sizes = "/".join(f"{size:,}" for size in numbers.sizes)
        minutes = sum(run.seconds for run in numbers.all_runs) / 60 / 2
        link = f"[{numbers.title}](../../reproduction/results/{file_name(name)})"
        rows.append([link, command, sizes, f"{len(numbers.methods)} x {seeds}", f"{minutes:.0f}"])
    headings = ["experiment", "command", "train/val/test", "methods x seeds", "minutes on two cores"]
    return MarkdownTable(headings, rows, words=2)
