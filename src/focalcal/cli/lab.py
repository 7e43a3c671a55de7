"""`focalcal lab run` and `focalcal lab resume`: recipes become trained networks, predictions and numbers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from focalcal.cli.console import JsonOption, QuietOption, make_table, print_json, program, standard_output
from focalcal.cli.lab_list import lab_list
from focalcal.cli.lab_table import lab_table
from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.lab.recipe import Recipe
    from focalcal.lab.results import RunResult

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


@dataclass(frozen=True)
class LabMeasured:
    """One number of a run on its test split, in fractions; see `docs/lab.md`."""

    phase: str
    metric: str
    value: float
    temperature: float | None
    gamma_ev: float | None
    against: str


@dataclass(frozen=True)
class LabRun:
    """One finished run and its folder."""

    folder: str
    recipe: str
    method: str
    seed: int
    epochs: int
    data: str
    rows: list[LabMeasured]


@dataclass(frozen=True)
class LabRunResult:
    """The answer of `focalcal lab run` and `focalcal lab resume`."""

    runs: list[LabRun]
    report: str | None
    schema: Literal[1] = 1
    command: Literal["lab-run"] = "lab-run"


@dataclass(frozen=True)
class LabDryRunResult:
    """The answer of `focalcal lab run --dry-run`: the loss of the first batch of each method."""

    recipe: str
    parameters: int
    losses: dict[str, float]
    schema: Literal[1] = 1
    command: Literal["lab-dry-run"] = "lab-dry-run"


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
        Path | None, typer.Option(help="Where the data lie. Without it, public sets are asked of Hugging Face.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Runs go to OUT/RECIPE/METHOD/seed-N.")] = Path("runs"),
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Another number of epochs; milestones move with it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Build the model, one batch, one step; write nothing.")] = False,
    report: Annotated[
        bool | None, typer.Option("--report/--no-report", help="Write OUT/RECIPE/report.html; usual for `own`.")
    ] = None,
    accelerator: Annotated[str, typer.Option(help="Lightning's: auto, cpu, gpu, mps, tpu.")] = "auto",
    devices: Annotated[str, typer.Option(help="Lightning's: auto, a number, or a list such as 0,1.")] = "auto",
    strategy: Annotated[str, typer.Option(help="Lightning's: auto, ddp, fsdp, ...")] = "auto",
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    precision: Annotated[str | None, typer.Option(help="Lightning's, such as bf16-mixed; else the recipe's.")] = None,
    logger: Annotated[str | None, typer.Option(help="Also log with Lightning's csv or tensorboard logger.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; a resumed run keeps them.")] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Also a checkpoint every N batches, for long epochs.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train, calibrate and measure by a recipe; everything is kept in a folder and can be resumed.

    focalcal lab run cpu/digits --method adafocal

    focalcal lab run mukhoti2020/cifar10-resnet50 --method flsd-53 --seeds 5 --data DIR

    focalcal lab run own --data FOLDER_OF_IMAGES --loss adafocal
    """
    from focalcal.lab.catalog import find_recipe
    from focalcal.lab.folder import Settings
    from focalcal.lab.run import begin, shortened

    chosen = find_recipe(recipe)
    if epochs is not None:
        chosen = shortened(chosen, epochs)
    if data is not None and not data.exists():
        raise InputError(f"--data: {data} does not exist.")
    methods = _methods(chosen, method)
    if dry_run:
        _dry_run(chosen, methods, seed, data, as_json=as_json)
        return
    trainer: dict[str, Any] = {
        "accelerator": accelerator,
        "devices": int(devices) if devices.isdigit() else devices,
        "strategy": strategy,
        "num_nodes": nodes,
    }
    trainer |= {name: value for name, value in (("precision", precision), ("logger", logger)) if value is not None}
    source = None if data is None else str(data.absolute())
    places = [
        begin(
            chosen,
            out / chosen.name / name / f"seed-{number}",
            Settings(name, number, chosen.digest(), source, threads, checkpoint_every, trainer),
        )
        for name in methods
        for number in range(seed, seed + seeds)
    ]
    wants_report = report if report is not None else chosen.data.name == "own"
    page = out / chosen.name / "report.html" if wants_report else None
    _carry_out([place.path for place in places], page, as_json=as_json, quiet=quiet)


@app.command("resume")
def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or one with runs below it.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Go on with interrupted runs from their last checkpoints; the result is that of a run never interrupted.

    focalcal lab resume runs/cpu/digits/adafocal/seed-0

    focalcal lab resume runs
    """
    places = sorted(path.parent for path in folder.rglob("run.json"))
    if not places:
        raise InputError(f"{folder}: there is no run in it. focalcal lab run begins one.")
    _carry_out(places, None, as_json=as_json, quiet=quiet)


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


def _dry_run(recipe: Recipe, methods: list[str], seed: int, data: Path | None, *, as_json: bool) -> None:
    from focalcal.lab.run import dry_run, load_for, load_foreign, make_network

    folder = str(data) if data else None
    loaded = load_for(recipe, folder, seed)
    load_foreign(recipe, folder, seed)
    losses = {name: dry_run(recipe, name, seed=seed, data=loaded) for name in methods}
    parameters = sum(each.numel() for each in make_network(recipe, loaded).parameters())
    if as_json:
        from dataclasses import asdict

        print_json(asdict(LabDryRunResult(recipe.name, parameters, losses)))
        return
    console = standard_output()
    console.print(f"{recipe.name}: {loaded.about or loaded.name}; {recipe.model.name} with {parameters:,} parameters.")
    for name, loss in losses.items():
        console.print(f"  {name}: one step, loss {loss:.4g}")


def _carry_out(folders: list[Path], page: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Take every run to its end, then say what was found."""
    import sys

    from focalcal.lab.run import is_first, resume

    bar = sys.stderr.isatty() and not quiet
    results = []
    for number, folder in enumerate(folders, 1):
        if bar:
            print(f"run {number} of {len(folders)}: {folder}", file=sys.stderr)
        results.append(resume(folder, progress_bar=bar, say=lambda line: print(f"focalcal: {line}", file=sys.stderr)))
    if not is_first():
        return  # the first process speaks for all
    found = list(zip(folders, results, strict=True))
    written = _write_report(found, page) if page else None
    if as_json:
        from dataclasses import asdict

        print_json(asdict(LabRunResult([_plain(*each) for each in found], written)))
    elif quiet:
        for folder in folders:
            print(folder)
    else:
        _print(found, written)


def _write_report(found: list[tuple[Path, RunResult]], page: Path) -> str:
    """The first seed of every method, side by side."""
    from focalcal.lab.reports import write_runs_report

    first = {result.method: folder for folder, result in reversed(found)}
    write_runs_report(first, page)
    return str(page)


def _plain(folder: Path, result: RunResult) -> LabRun:
    from dataclasses import asdict

    rows = [LabMeasured(**asdict(row)) for row in result.rows]
    return LabRun(str(folder), result.recipe, result.method, result.seed, result.epochs, result.data, rows)


def _print(found: list[tuple[Path, RunResult]], report: str | None) -> None:
    console = standard_output()
    columns = [(name, heading, factor) for name, heading, factor in _SHOWN if any(_has(r, name) for _, r in found)]
    table = make_table("run", "phase", "T", *(heading for _, heading, _ in columns), title=found[0][1].recipe)
    for _, result in found:
        phases = dict.fromkeys(row.phase for row in result.rows if not row.against)
        for place, phase in enumerate(phases):
            cells = {row.metric: row for row in result.rows if row.phase == phase and not row.against}
            numbers = [f"{factor * cells[name].value:.3g}" if name in cells else "" for name, _, factor in columns]
            temperature = next((row.temperature for row in cells.values() if row.temperature), None)
            shown = "" if temperature is None else f"{temperature:.2f}"
            table.add_row(f"{result.method}, seed {result.seed}" if place == 0 else "", phase, shown, *numbers)
        table.add_section()
    console.print(table)
    console.print(found[0][1].data)
    for folder, result in found:
        for phase, why in result.extra.get("not_fitted", {}).items():
            console.print(f"{folder}: {phase} was not fitted. {why}")
    if report:
        console.print(f"Open {report} in a browser.")
    predictions = found[0][0] / "predictions.npz"
    if predictions.exists() and not report:
        page = found[0][0] / "report.html"
        line = shlex.join([program(), "report", str(predictions), "--out", str(page)])
        console.print("Next, try:")
        console.print(f"  {line}", soft_wrap=True)


def _has(result: RunResult, metric: str) -> bool:
    return any(row.metric == metric for row in result.rows)
