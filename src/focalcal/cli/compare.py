"""`focalcal compare`: calibrators ranked by cross-validation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli import options
from focalcal.cli.console import (
    JsonOption,
    QuietOption,
    make_table,
    plain_warnings,
    print_json,
    print_line,
    progress,
    quick_imports,
    standard_output,
)
from focalcal.cli.output_paths import require_output

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from focalcal.cli.fit_results import CompareResult
    from focalcal.files import Columns


@options.takes_columns
@plain_warnings()
def compare(
    files: options.Files,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="A,B,...",
            help="Methods as in focalcal calibrate --method, each with its criterion if you like "
            "(temperature:ada_ece). All that suit the data unless given.",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    criterion: Annotated[
        str,
        typer.Option("--criterion", metavar="NAME", help="What methods are ranked by.", rich_help_panel=options.METHOD),
    ] = "nll",
    folds: Annotated[
        int,
        typer.Option(
            "--folds", min=2, help="Parts of the rows, each scored by fits without it.", rich_help_panel=options.METHOD
        ),
    ] = 5,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Times the folds are dealt out.", rich_help_panel=options.METHOD)
    ] = 1,
    nested: Annotated[
        bool,
        typer.Option(
            "--nested/--no-nested",
            help="Also score the choice itself, without the rows that it is scored on.",
            rich_help_panel=options.METHOD,
        ),
    ] = True,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="C",
            help="Write the winner, fitted to all rows; its suffix becomes .safetensors where it has arrays.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    level: options.Level = 0.95,
    seed: options.Seed = 0,
    split: options.Split = None,
    *,
    columns: Columns,
) -> None:
    """Rank calibrators by cross-validation, with intervals and tests, and say which one to take, if any.

    Of a file with several splits the rows of split val are taken, unless --split names another one.

    \b
    Examples:
      focalcal compare val.npz
      focalcal compare val.npz --methods temperature,focal-temperature,spline --criterion ada_ece --out best.json
    """
    with quick_imports():
        from focalcal.cli.calibrators import methods_of, parameters, right_suffix
        from focalcal.cli.fit_results import CompareResult
        from focalcal.cli.splits import FIT_SPLITS, only
        from focalcal.files import read_predictions
        from focalcal.select import select_calibrator

    asked = None if methods is None else methods_of(methods)
    if out is not None:
        require_output(out, "--out", inputs=files)
    with progress(quiet=quiet) as advance:
        table = only(read_predictions(files, columns, progress=advance), split, FIT_SPLITS)
        assert table.labels is not None
        selection = select_calibrator(
            table.scores,
            table.labels,
            kind=table.kind,
            methods=asked,
            criterion=criterion,
            num_folds=folds,
            num_repeats=repeats,
            nested=nested,
            sample_weight=table.weights,
            level=level,
            seed=seed,
            progress=advance,
        )
    place = None if out is None else right_suffix(out, selection.winner)
    if place is not None:
        selection.winner.save(place)
    result = CompareResult(
        files=files,
        split=next(iter(table.splits()), None),
        num_rows=selection.num_rows,
        num_classes=selection.num_classes,
        criterion=criterion,
        definition=selection.definition,
        level=level,
        num_folds=folds,
        num_repeats=repeats,
        seed=seed,
        verdict=selection.verdict,
        winner=selection.winner_name,
        parameters=parameters(selection.winner),
        table=selection.table,
        nested=selection.nested,
        chosen=selection.chosen,
        left_out=selection.left_out,
        out=place,
    )
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print_line(result.winner)
    else:
        _print(result)


def _print(result: CompareResult) -> None:
    from focalcal.cli.measure_tables import print_table

    console = standard_output()
    console.print(result.verdict, style="bold")
    repeated = f", {result.num_repeats} times" if result.num_repeats > 1 else ""
    split = f", split {result.split}" if result.split else ""
    size = f"{result.num_rows:,} rows, {result.num_classes:,} classes{split}"
    console.print(f"\n{', '.join(result.files)}: {size}; {result.num_folds} folds{repeated}; {result.definition}")
    print_table(console, _table(result), dispensable=(6, 2, 5, 4))
    if result.nested is not None:
        total = sum(result.chosen.values())
        picks = ", ".join(f"{name} ({count} of {total})" for name, count in result.chosen.items())
        console.print(f"{result.nested.name}: what taking the best one is worth on new rows; it took {picks}.")
    for row in result.table:
        if row.error is not None:
            console.print(f"warning: {row.name}: {row.failures} fits failed: {row.error}", style="yellow")
    for name, reason in result.left_out.items():
        console.print(f"left out: {name}: {reason}", style="dim")
    if result.out is None:
        console.print("Keep the winner, fitted to all these rows: --out FILE", style="dim")
    else:
        console.print(f"Written: {result.out}" + (f" ({result.parameters})" if result.parameters else ""))


def _table(result: CompareResult) -> RichTable:
    from focalcal.cli.measure_tables import percent

    ends = f"{percent(result.level)} interval"
    table = make_table("method", result.criterion, ends, "against identity", ends, "p, corrected", "fit, s")
    scored = [row for row in result.table if row.score is not None]
    for place, row in enumerate([*scored, *([result.nested] if result.nested else [])]):
        if place == len(scored):
            table.add_section()
        table.add_row(*row.cells(), style="bold" if row.name == result.winner else None)
    return table
