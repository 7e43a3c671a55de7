"""`focalcal evaluate`: the verdict, and every measure with what is known of its error."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli import options
from focalcal.cli.checks import plain_warnings, quick_imports
from focalcal.cli.console import JsonOption, QuietOption, print_json, progress, standard_output

if TYPE_CHECKING:
    from focalcal.cli.results import EvaluateResult
    from focalcal.streams import Columns


@options.takes_columns
@plain_warnings()
def evaluate(
    files: options.Files,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", metavar="C", help="Show before and after this calibrator.")
    ] = None,
    num_bins: options.NumBins = 15,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    level: options.Level = 0.95,
    resamples: options.Resamples = None,
    seed: options.Seed = 0,
    split: options.Split = None,
    *,
    columns: Columns,
) -> None:
    """Say how well calibrated predictions are: a verdict in words, then the measures with intervals.

    Of a file with several splits the rows of split test are taken, unless --split names another one.

    \b
    Examples:
      focalcal evaluate test.npz
      focalcal evaluate test.parquet --calibrator calibrator.json
      focalcal evaluate scores.csv --scores score_ --kind logits --json
    """
    with quick_imports():
        from focalcal.cli import results, tables
        from focalcal.cli.methods import load, require_classes
        from focalcal.cli.splits import only
        from focalcal.metrics.uncertainty import usual_resamples
        from focalcal.streams import read_predictions

    loaded = None if calibrator is None else load(calibrator)
    with progress(quiet=quiet) as advance:
        table = read_predictions(files, columns, progress=advance)
        used = only(table, split)
        name = next(iter(used.splits()), None)
        if loaded is not None and calibrator is not None:
            require_classes(loaded, calibrator, used.num_classes, used.name)
        how = tables.How(num_bins, level, resamples or usual_resamples(used.num_rows), seed)
        before = tables.assess_table(used, how, advance, "measuring")
        after, changes = None, []
        if loaded is not None:
            after = tables.assess_table(used, how, advance, "measuring after the calibrator", loaded)
            changes = tables.differences(before, after, how)
    result = results.EvaluateResult(
        files=files,
        split=name,
        kind=used.kind,
        num_rows=used.num_rows,
        num_classes=used.num_classes,
        weighted=used.weights is not None,
        num_bins=num_bins,
        level=level,
        num_resamples=how.num_resamples,
        seed=seed,
        before=tables.assessed(before),
        calibrator=calibrator,
        after=None if after is None else tables.assessed(after),
        differences=changes,
    )
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print((result.after or result.before).verdict)
    else:
        _print(result, tables.describe(used, name))


def _print(result: EvaluateResult, described: str) -> None:
    from focalcal.cli import tables

    console = standard_output()
    if result.after is None:
        tables.print_verdict(console, result.before)
        console.print(f"\n{described}")
        tables.print_table(console, tables.measure_table(result.before, result.level))
        tables.print_warnings(console, result.before.warnings)
    else:
        tables.print_verdict(console, result.before, "before: ")
        tables.print_verdict(console, result.after, "after:  ")
        console.print(f"\n{described}, calibrated by {result.calibrator}")
        tables.print_change(console, result.before, result.after, result.differences, result.level)
    console.print("All measures and their definitions: --json", style="dim")
