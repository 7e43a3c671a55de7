"""`focalcal evaluate`: the verdict, and every measure with what is known of its error."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli import options
from focalcal.cli.console import (
    JsonOption,
    QuietOption,
    plain_warnings,
    print_json,
    print_line,
    progress,
    quick_imports,
    standard_output,
)

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator
    from focalcal.cli.console import Advance
    from focalcal.cli.results import EvaluateResult
    from focalcal.cli.streams import StreamReader
    from focalcal.files import Columns
    from focalcal.report.verdict import MeasureSettings


@options.takes_columns
@plain_warnings()
def evaluate(
    files: options.Files,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", metavar="C", help="Show before and after this calibrator.")
    ] = None,
    by: options.By = None,
    num_bins: options.NumBins = 15,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    level: options.Level = 0.95,
    resamples: options.Resamples = None,
    seed: options.Seed = 0,
    split: options.Split = None,
    engine: options.ReadBy = options.Engine.auto,
    on_bad_shard: options.BadShards = options.OnBadShard.error,
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
      focalcal evaluate 'scores/*.parquet' --by language
    """
    with quick_imports():
        from focalcal.cli.calibrators import load
        from focalcal.cli.streams import StreamReader, engine_for
        from focalcal.report.verdict import MeasureSettings

    loaded = None if calibrator is None else load(calibrator)
    how = MeasureSettings(num_bins, level, resamples or 0, seed)
    chosen = engine_for(engine.value, files, by=by)
    with progress(quiet=quiet) as advance:
        if chosen == "memory":
            skipped: dict[str, str] | None = {} if on_bad_shard is options.OnBadShard.skip else None
            result, described = _in_memory(files, columns, split, calibrator, loaded, how, advance, skipped)
        else:
            reader = StreamReader(columns, chosen, on_bad_shard.value, advance)
            result, described = _streamed(files, reader, split, by, calibrator, loaded, how)
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print_line((result.after or result.before).verdict)
    else:
        _print(result, described)


def _in_memory(
    files: list[str],
    columns: Columns,
    split: str | None,
    path: str | None,
    calibrator: Calibrator | None,
    how: MeasureSettings,
    advance: Advance,
    skipped: dict[str, str] | None,
) -> tuple[EvaluateResult, str]:
    """Everything about rows that memory holds, and what they are in words."""
    from focalcal.cli import measure_tables, results
    from focalcal.cli.calibrators import require_classes
    from focalcal.cli.splits import only
    from focalcal.files import read_predictions
    from focalcal.metrics.intervals import usual_resamples

    used = only(read_predictions(files, columns, progress=advance, skipped=skipped), split)
    name = next(iter(used.splits()), None)
    if calibrator is not None and path is not None:
        require_classes(calibrator, path, used.num_classes, used.name)
    how = replace(how, num_resamples=how.num_resamples or usual_resamples(used.num_rows))
    before = measure_tables.assess_table(used, how, advance, "measuring")
    after, changes = None, []
    if calibrator is not None:
        after = measure_tables.assess_table(used, how, advance, "measuring after the calibrator", calibrator)
        changes = measure_tables.differences(before, after, how)
    result = results.EvaluateResult(
        files=files,
        split=name,
        kind=used.kind,
        num_rows=used.num_rows,
        num_classes=used.num_classes,
        weighted=used.weights is not None,
        **asdict(how),
        before=measure_tables.assessed(before),
        calibrator=path,
        after=None if after is None else measure_tables.assessed(after),
        differences=changes,
        skipped=skipped or {},
    )
    return result, measure_tables.describe(used, name)


def _streamed(
    files: list[str],
    reader: StreamReader,
    split: str | None,
    by: str | None,
    path: str | None,
    calibrator: Calibrator | None,
    how: MeasureSettings,
) -> tuple[EvaluateResult, str]:
    """The same from passes over a stream."""
    from focalcal.cli import measure_tables, results
    from focalcal.cli.calibrators import require_classes
    from focalcal.cli.streams import measure_files
    from focalcal.files.derived_streams import calibrated
    from focalcal.report.verdict import assess_evaluation

    stream = reader.open(files, split)
    if calibrator is not None and path is not None:
        require_classes(calibrator, path, stream.num_classes, stream.name)
    measured = measure_files(reader, stream, how, None if calibrator else by, split)
    evaluation, groups, after = measured.evaluation, measured.groups, None
    if calibrator is not None:
        rows = stream if measured.split == split else reader.open(files, measured.split)
        later = measure_files(reader, calibrated(rows, calibrator), how, by, measured.split)
        after, groups = measure_tables.assessed(assess_evaluation(later.evaluation, how.level)), later.groups
    result = results.EvaluateResult(
        files=files,
        split=measured.split,
        kind=evaluation.kind,
        num_rows=evaluation.n,
        num_classes=evaluation.num_classes,
        weighted=stream.reader.like.weights is not None,
        **asdict(replace(how, num_resamples=0)),
        before=measure_tables.assessed(assess_evaluation(evaluation, how.level)),
        calibrator=path,
        after=after,
        differences=[],
        engine=reader.engine,
        by=by,
        groups={name: measure_tables.assessed(assess_evaluation(each, how.level)) for name, each in groups.items()},
        skipped=stream.skipped,
    )
    said = [f"{result.num_rows:,} rows", f"{result.num_classes:,} classes", result.kind]
    said += [f"split {measured.split}"] if measured.split else []
    return result, f"{stream.name}: {', '.join(said)}, read as a stream"


def _print(result: EvaluateResult, described: str) -> None:
    from focalcal.cli import measure_tables

    console = standard_output()
    if result.after is None:
        measure_tables.print_verdict(console, result.before)
        console.print(f"\n{described}")
        measure_tables.print_table(console, measure_tables.measure_table(result.before, result.level))
        measure_tables.print_warnings(console, result.before.warnings)
    else:
        measure_tables.print_verdict(console, result.before, "before: ")
        measure_tables.print_verdict(console, result.after, "after:  ")
        console.print(f"\n{described}, calibrated by {result.calibrator}")
        measure_tables.print_change(console, result.before, result.after, result.differences, result.level)
    if result.groups:
        measure_tables.print_table(console, measure_tables.group_table(result.groups, result.by or ""))
    measure_tables.print_warnings(console, [f"left out: {reason}" for reason in result.skipped.values()])
    console.print("All measures and their definitions: --json", style="dim")
