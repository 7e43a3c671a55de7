"""`focalcal lab run` and `focalcal lab resume`: train, calibrate and measure by a recipe."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focalcal.cli.console import JsonOption, QuietOption, make_table, print_json, print_line, program, standard_output
from focalcal.errors import FocalCalError, InputError
from focalcal_lab.cli.list import lab_list
from focalcal_lab.cli.table import lab_table
from focalcal_lab.path_below import path_below

if TYPE_CHECKING:
    from rich.table import Table

    from focalcal_lab.data import DataSplits
    from focalcal_lab.recipe import Recipe
    from focalcal_lab.run_folder import TrainerOption
    from focalcal_lab.run_results import FinishedRun, RunResult, RunsResult

app = typer.Typer(
    help="Train with every loss on the papers' data and models, and compare with their tables.", no_args_is_help=True
)
app.command("list")(lab_list)
app.command("table")(lab_table)

# The measures of the summary, their headings, and what they are multiplied by.
_SHOWN = (
    ("error", "error, %", 100),
    ("ece_ew", "ECE, %", 100),
    ("ece_em", "AdaECE, %", 100),
    ("nll", "NLL", 1),
    ("bleu", "BLEU", 1),
)
DatasetOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="Your own data, as a torch Dataset or a function that gives one. It is imported and run, from this folder "
        "or where Python finds it.",
    ),
]
# Starts `python -m focalcal` without the current folder on the path, from which modules would be imported as if ours.
# (That is python's option -P, which 3.10 does not have.)
_START = (
    "import sys; sys.path = [each for each in sys.path if each]; "
    "import runpy; runpy.run_module('focalcal', run_name='__main__', alter_sys=True)"
)
# What every line on standard error begins with.
_NAME = "focalcal: "


@app.command("run")
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe of `focalcal lab list`, or a .yaml file of your own.")],
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "--loss", help="A method of the recipe, several times for several; 'all' for all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted from --seed.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of the data. Without it, public data sets are downloaded from Hugging Face."),
    ] = None,
    dataset: DatasetOption = None,
    out: Annotated[Path, typer.Option(help="Runs go to OUT/RECIPE/METHOD/seed-N.")] = Path("runs"),
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Another number of epochs; milestones move with it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Build the model, one batch, one step; write nothing.")] = False,
    report: Annotated[
        bool | None, typer.Option("--report/--no-report", help="Write OUT/RECIPE/report.html; usual for `own`.")
    ] = None,
    accelerator: Annotated[str, typer.Option(help="Lightning's: auto, cpu, gpu, mps, tpu.")] = "auto",
    devices: Annotated[str, typer.Option(help="Lightning's: a number, a list such as 0,1, or auto for all.")] = "1",
    strategy: Annotated[str, typer.Option(help="Lightning's: auto, ddp, fsdp, ...")] = "auto",
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    precision: Annotated[str | None, typer.Option(help="Lightning's, such as bf16-mixed; else the recipe's.")] = None,
    logger: Annotated[str | None, typer.Option(help="Also log with Lightning's csv or tensorboard logger.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; a resumed run keeps them.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process with its share of threads.")] = 1,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Also a checkpoint every N batches, for long epochs.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train, calibrate and measure by a recipe; everything is kept in a folder.

    The same command goes on where it was interrupted, and reads runs that are finished.

    \b
    Examples:
      focalcal lab run own --data FOLDER_OF_IMAGES --loss adafocal
      focalcal lab run own --dataset my_module:Pairs --loss adafocal
      focalcal lab run cpu/digits --method ce --method adafocal --seeds 3
      focalcal lab run cpu/digits --method all --seeds 3 --jobs 2
      focalcal lab run mukhoti2020/cifar10-resnet50 --method flsd-53 --seeds 5 --data DIR
      focalcal lab run ghosh2022/imagenet-resnet50 --method adafocal --data DIR --devices 8 --strategy ddp
    """
    from focalcal_lab.catalog import find_recipe

    chosen = find_recipe(recipe)
    from focalcal_lab.run import begin, check_trainer
    from focalcal_lab.run_folder import RunSettings
    from focalcal_lab.training_setup import prepare, shortened

    if epochs is not None:
        chosen = shortened(chosen, epochs)
    if data is not None and not data.exists():
        raise InputError(f"--data: {data} does not exist.")
    methods = _methods(chosen, method)
    if dry_run:
        _dry_run(chosen, methods, seed, data, dataset, as_json=as_json)
        return
    trainer: dict[TrainerOption, int | str] = {
        "accelerator": accelerator,
        "devices": int(devices) if devices.isdigit() else devices,
        "strategy": strategy,
        "num_nodes": nodes,
    }
    if precision is not None:
        trainer["precision"] = precision
    if logger is not None:
        trainer["logger"] = logger
    source = None if data is None else str(data.absolute())
    plans = [
        RunSettings(
            name, number, chosen.digest(name), source, threads or _share(jobs), checkpoint_every, trainer, dataset
        )
        for name in methods
        for number in range(seed, seed + seeds)
    ]
    check_trainer(trainer)  # what is wrong is said before anything is written
    # also where processes of their own load them: what is wrong is said now
    loaded = prepare(chosen, plans[0], dataset=dataset).data
    here = chosen.name.split("/")
    places = [begin(chosen, path_below(out, *here, plan.method, f"seed-{plan.seed}"), plan) for plan in plans]
    wants_report = report if report is not None else chosen.data.name == "own"
    page = path_below(out, *here, "report.html") if wants_report else None
    folders = [place.path for place in places]
    _carry_out(folders, page, data=loaded, dataset=dataset, jobs=jobs, as_json=as_json, quiet=quiet)


@app.command("resume")
def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or one with runs below it.")],
    dataset: DatasetOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")] = 1,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Go on with interrupted runs from their last checkpoints; the result is that of a run never interrupted.

    Runs that were begun with --dataset want it again, since a folder may come from someone else.

    \b
    Examples:
      focalcal lab resume runs/cpu/digits/adafocal/seed-0
      focalcal lab resume runs
    """
    places = sorted(path.parent for path in folder.rglob("run.json"))
    if not places:
        raise InputError(f"{folder}: there is no run in it. focalcal lab run begins one.")
    from focalcal_lab.run import check_dataset
    from focalcal_lab.run_folder import RunFolder

    for place in places:  # what is missing is said before hours of training
        check_dataset(RunFolder(place), dataset)
    _carry_out(places, None, dataset=dataset, jobs=jobs, as_json=as_json, quiet=quiet)


def _methods(recipe: Recipe, wanted: list[str] | None) -> list[str]:
    known = list(recipe.methods)
    if not wanted and len(known) == 1:
        return known
    if not wanted:
        raise InputError(f"--method: {recipe.name} has {', '.join(known)}. Choose, or take all with --method all.")
    if wanted == ["all"]:
        return known
    for name in wanted:
        if name not in known:
            raise InputError(f"--method: {recipe.name} has {', '.join(known)}; got {name!r}.")
    return list(dict.fromkeys(wanted))


def _dry_run(
    recipe: Recipe, methods: list[str], seed: int, data: Path | None, dataset: str | None, *, as_json: bool
) -> None:
    from focalcal_lab.run import dry_run
    from focalcal_lab.run_results import DryRunResult
    from focalcal_lab.training_setup import load_for, load_foreign, make_network

    folder = str(data) if data else None
    loaded = load_for(recipe, folder, seed, dataset)
    load_foreign(recipe, folder, seed)
    losses = {name: dry_run(recipe, name, seed=seed, data=loaded) for name in methods}
    parameters = sum(each.numel() for each in make_network(recipe, loaded).parameters())
    found = DryRunResult(recipe.name, loaded.about or loaded.name, recipe.model.name, parameters, losses)
    if as_json:
        print_json(asdict(found))
        return
    console = standard_output()
    console.print(f"{found.recipe}: {found.data}; {found.model} with {found.parameters:,} parameters.")
    for name, loss in found.losses.items():
        console.print(f"  {name}: one step, loss {loss:.4g}")


def _share(jobs: int) -> int | None:
    """The threads of each of several runs at a time; None for torch's own number."""
    return max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else None


def _carry_out(
    folders: list[Path],
    page: Path | None,
    *,
    data: DataSplits | None = None,
    dataset: str | None = None,
    jobs: int = 1,
    as_json: bool,
    quiet: bool,
) -> None:
    """Finish every run and print the results; `data` are those of the first run."""
    from focalcal_lab.run import is_first, resume
    from focalcal_lab.run_results import FinishedRun, RunsResult

    bar = sys.stderr.isatty() and not quiet
    if jobs > 1:
        _side_by_side(folders, jobs, quiet, dataset)  # what follows reads what they found
    results = []
    for number, folder in enumerate(folders, 1):
        if bar:
            print_line(f"run {number} of {len(folders)}: {folder}", error=True)
        mine = data if number == 1 else None
        try:
            results.append(resume(folder, data=mine, dataset=dataset, progress_bar=bar, say=_say))
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            again = [*program(), "lab", "resume", str(folder), *_named(dataset)]
            _say(f"interrupted. Go on with: {shlex.join(again)}")
            raise
    if not is_first():
        return  # the first process speaks for all
    runs = [FinishedRun(str(folder), result) for folder, result in zip(folders, results, strict=True)]
    found = RunsResult(runs, _write_report(runs, page) if page else None)
    if as_json:
        print_json(asdict(found))
    elif quiet:
        for folder in folders:
            print_line(str(folder))
    else:
        _print(found)


def _side_by_side(folders: list[Path], jobs: int, quiet: bool, dataset: str | None = None) -> None:
    """Take runs to their ends in processes of their own, some at a time; the first failure stops what is not begun."""
    from focalcal_lab.run_folder import RunFolder

    left = [folder for folder in folders if not RunFolder(folder).finished]
    processes = _Processes()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_in_process, folder, dataset, processes): folder for folder in left}
        try:
            for number, done in enumerate(as_completed(waiting), 1):
                if error := done.result():
                    raise FocalCalError(error)
                if not quiet:
                    seconds = RunFolder(waiting[done]).seconds
                    _say(f"{number} of {len(left)} runs: {waiting[done]} in {seconds:.0f} s")
        except KeyboardInterrupt:  # the key has reached all processes
            _say("interrupted. The same command goes on.")
            raise
        except SystemExit:  # SIGTERM, which may be for this process alone
            processes.stop()
            _say("interrupted. The same command goes on.")
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Processes:
    """Processes that are started from several threads, and ended together."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self._stopped, self._lock = False, threading.Lock()

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """What a process said and ended with; after `stop`, no process is started any more."""
        variables = {**os.environ, "PYTHONSAFEPATH": "1"}  # for the processes that Lightning starts
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with self._lock:
            if self._stopped:
                return subprocess.CompletedProcess(command, 1, "", "")
            process = subprocess.Popen(command, errors="replace", env=variables, **pipes)
            self._running.append(process)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def stop(self) -> None:
        """Have every process clean up and end; one that was told already, with the whole group, has a second for it."""
        with self._lock:
            self._stopped = True
        deadline = time.monotonic() + 1
        for process in self._running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.terminate()  # which does nothing to one that has ended


def _in_process(folder: Path, dataset: str | None, processes: _Processes) -> str:
    """Take one run to its end in a process of its own, saying what it says; returns what went wrong, if anything."""
    command = [sys.executable, "-c", _START, "lab", "resume", str(folder), "--quiet", *_named(dataset)]
    done = processes.run(command)
    said = done.stderr.strip().splitlines()
    if done.returncode != 0:
        return said[-1].removeprefix(_NAME) if said else f"{folder}: ended with code {done.returncode}."
    for line in said:
        if line.startswith(_NAME):  # and no warnings of libraries
            _say(line.removeprefix(_NAME))
    return ""


def _named(dataset: str | None) -> list[str]:
    return [] if dataset is None else ["--dataset", dataset]


def _say(line: str) -> None:
    print_line(f"{_NAME}{line}", error=True)


def _write_report(runs: list[FinishedRun], page: Path) -> str:
    """The first seed of every method, side by side."""
    from focalcal_lab.run_report import write_runs_report

    first = {run.result.method: Path(run.folder) for run in reversed(runs)}
    write_runs_report(dict(reversed(first.items())), page)
    return str(page)


def _print(found: RunsResult) -> None:
    console = standard_output()
    results = [run.result for run in found.runs]
    console.print(_table(results))
    console.print(results[0].data)
    for run in found.runs:
        for phase, why in run.result.extra.get("not_fitted", {}).items():
            console.print(f"{run.folder}: {phase} was not fitted. {why}")
    predictions = Path(found.runs[0].folder) / "predictions.npz"
    if found.report:
        console.print(f"Open {found.report} in a browser.")
    elif predictions.exists():
        page = predictions.with_name("report.html")
        line = shlex.join([*program(), "report", str(predictions), "--out", str(page)])
        console.print("Next, try:")
        console.print(f"  {line}", soft_wrap=True)


def _table(results: list[RunResult]) -> Table:
    """A row for every run and phase."""
    columns = [(name, heading, factor) for name, heading, factor in _SHOWN if any(_has(each, name) for each in results)]
    title = ", ".join(dict.fromkeys(each.recipe for each in results))
    table = make_table("run", "phase", "T", *(heading for _, heading, _ in columns), title=title)
    for result in results:
        rows = [row for row in result.rows if not row.against]
        for place, phase in enumerate(dict.fromkeys(row.phase for row in rows)):
            cells = {row.metric: row for row in rows if row.phase == phase}
            numbers = [f"{factor * cells[name].value:.3g}" if name in cells else "" for name, _, factor in columns]
            temperature = next((row.temperature for row in cells.values() if row.temperature), None)
            shown = "" if temperature is None else f"{temperature:.2f}"
            table.add_row(f"{result.method}, seed {result.seed}" if place == 0 else "", phase, shown, *numbers)
        table.add_section()
    return table


def _has(result: RunResult, metric: str) -> bool:
    return any(row.metric == metric for row in result.rows)
