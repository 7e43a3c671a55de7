"""`focalcal calibrate`: fit a calibrator, show what it does on rows that it was not fitted to, and write it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.calibrators.table import calibrator_names
from focalcal.cli import options
from focalcal.cli.console import (
    JsonOption,
    QuietOption,
    plain_warnings,
    print_json,
    print_line,
    program,
    progress,
    quick_imports,
    standard_output,
)
from focalcal.cli.output_paths import require_output
from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator
    from focalcal.cli.console import Advance
    from focalcal.cli.fit_results import CalibrateResult
    from focalcal.cli.results import AssessmentResult, MeasureDifference
    from focalcal.cli.splits import DividedRows, SplitOptions
    from focalcal.cli.streams import StreamReader
    from focalcal.files import Columns
    from focalcal.report.verdict import MeasureSettings

_ON_THE_FIT = "on the rows of the fit"


@options.takes_columns
@plain_warnings()
def calibrate(
    files: options.OptionalFiles = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    fit: Annotated[
        list[str] | None,
        typer.Option(
            "--fit", metavar="FILE", help="Rows to fit to; FILE... are scored.", rich_help_panel=options.SPLITS
        ),
    ] = None,
    fit_split: options.FitSplit = None,
    score_split: options.ScoreSplit = None,
    holdout: options.Holdout = None,
    allow_same_data: options.AllowSameData = False,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="NAME",
            help=f"One of {', '.join(calibrator_names())}.",
            rich_help_panel=options.METHOD,
        ),
    ] = "temperature",
    criterion: Annotated[
        str | None,
        typer.Option(
            "--criterion",
            metavar="NAME",
            help="What the fit makes small: nll, brier, focal, ece, ada_ece or smooth_ece. Each method has its own "
            "default: nll for temperature and focal, ada_ece for focal-temperature, brier for ensemble-temperature.",
            show_default=False,
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    search: Annotated[
        options.Search | None,
        typer.Option(
            "--search",
            help="How focal-temperature is searched: every point of a grid, along a line, or by Newton's method.",
            show_default=False,
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(
            "--gamma",
            help="For method focal: the gamma of training; then nothing is fitted.",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    loss_gamma: Annotated[
        float | None,
        typer.Option("--loss-gamma", help="The gamma of criterion focal.", rich_help_panel=options.METHOD),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="C",
            help="Where the calibrator goes: calibrator.json, or calibrator.safetensors for methods with arrays.",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    onnx: Annotated[
        str | None,
        typer.Option("--onnx", metavar="PATH", help="Also write an ONNX model.", rich_help_panel=options.OUTPUT),
    ] = None,
    num_bins: options.NumBins = 15,
    level: options.Level = 0.95,
    resamples: options.Resamples = None,
    seed: options.Seed = 0,
    split: options.Split = None,
    engine: options.ReadBy = options.Engine.auto,
    on_bad_shard: options.BadShards = options.OnBadShard.error,
    *,
    columns: Columns,
) -> None:
    """Fit a calibrator, show before and after on rows that it was not fitted to, and write it.

    Say which rows are fitted to: a file of their own (--fit), a split column, or a random share (--holdout).

    \b
    Examples:
      focalcal calibrate --fit val.npz test.npz
      focalcal calibrate predictions.parquet --fit-split val --score-split test
      focalcal calibrate logits.npz --holdout 0.5 --method focal-temperature --criterion ada_ece
    """
    with quick_imports():
        from focalcal.calibrators.table import calibrator_label
        from focalcal.cli.calibrators import parameters
        from focalcal.cli.fit_results import CalibrateResult, FitResult
        from focalcal.cli.splits import SplitOptions
        from focalcal.cli.streams import StreamReader, engine_for
        from focalcal.report.verdict import MeasureSettings

    score_files, fit_files = files or [], fit or []
    if not (score_files or fit_files):
        raise InputError("FILE: name the predictions to fit to. See focalcal calibrate --help.")
    calibrator = _make(method, criterion, search.value if search else None, gamma, loss_gamma)
    label, place = calibrator_label(calibrator), _place(out, calibrator)
    for each, option in ((place, "--out"), (onnx, "--onnx")):
        if each is not None:
            require_output(each, option, inputs=[*score_files, *fit_files])
    asked = SplitOptions(split, fit_split, score_split, holdout, seed, allow_same_data)
    how = MeasureSettings(num_bins, level, resamples or 0, seed)
    chosen = engine_for(engine.value, [*score_files, *fit_files])
    with progress(quiet=quiet) as advance:
        if chosen == "memory":
            skipped: dict[str, str] | None = {} if on_bad_shard is options.OnBadShard.skip else None
            found = _in_memory(calibrator, label, score_files, fit_files, columns, asked, how, advance, skipped)
        else:
            reader = StreamReader(columns, chosen, on_bad_shard.value, advance)
            found = _streamed(calibrator, score_files, fit_files, reader, asked, how)
        advance(1, 1, "writing")
        if onnx is not None:
            calibrator.to_onnx(onnx)  # first, because it may fail
        calibrator.save(place)
    assert calibrator.num_classes_ is not None
    result = CalibrateResult(
        files=score_files,
        fit_files=fit_files or score_files,
        split=found.words,
        same_data=found.same_data,
        num_shared=found.num_shared,
        num_classes=calibrator.num_classes_,
        num_score_rows=found.num_score_rows,
        fit=FitResult(
            **calibrator.report_.to_dict(),
            method=label,
            settings=calibrator.settings(),
            parameters=parameters(calibrator),
        ),
        **asdict(found.how),
        before=found.before,
        after=found.after,
        differences=found.differences,
        out=place,
        onnx=onnx,
        apply_command=_apply_command(place, score_files or fit_files, columns),
        engine=chosen,
        skipped=found.skipped,
    )
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print_line(result.out)
    else:
        _print(result, found.warnings, calibrator)


@dataclass(frozen=True)
class _CalibrationRun:
    """What a fit and its measuring have led to, and how the rows were chosen in words."""

    how: MeasureSettings
    words: str
    same_data: bool
    num_shared: int
    num_score_rows: int
    before: AssessmentResult | None
    after: AssessmentResult | None
    differences: list[MeasureDifference]
    warnings: list[str]
    skipped: dict[str, str]


def _in_memory(
    calibrator: Calibrator,
    method: str,
    score_files: list[str],
    fit_files: list[str],
    columns: Columns,
    asked: SplitOptions,
    how: MeasureSettings,
    advance: Advance,
    skipped: dict[str, str] | None,
) -> _CalibrationRun:
    """Fit and measure rows that memory holds."""
    from focalcal.cli import measure_tables
    from focalcal.cli.splits import divide, same_files
    from focalcal.files import read_predictions
    from focalcal.metrics.intervals import usual_resamples

    table, fit_table = (
        read_predictions(files, columns, progress=advance, skipped=skipped) if files else None
        for files in (score_files, fit_files)
    )
    rows = divide(table, fit_table, asked, same_file=same_files(fit_files, score_files))
    how = replace(how, num_resamples=how.num_resamples or usual_resamples((rows.score or rows.fit).num_rows))
    advance(0, 1, f"fitting {method}")
    _fit(calibrator, rows, advance)
    before: AssessmentResult | None = None
    after: AssessmentResult | None = None
    changes: list[MeasureDifference] = []
    if rows.score is not None:
        raw = measure_tables.assess_table(rows.score, how, advance, "measuring before")
        calibrated = measure_tables.assess_table(rows.score, how, advance, "measuring after", calibrator)
        changes = measure_tables.differences(raw, calibrated, how)
        before, after = measure_tables.assessed(raw), measure_tables.assessed(calibrated)
    scored = 0 if rows.score is None else rows.score.num_rows
    left_out = skipped or {}
    warnings = [*rows.warnings, *(f"left out: {reason}" for reason in left_out.values())]
    return _CalibrationRun(
        how, rows.words, rows.same_data, rows.num_shared, scored, before, after, changes, warnings, left_out
    )


def _streamed(
    calibrator: Calibrator,
    score_files: list[str],
    fit_files: list[str],
    reader: StreamReader,
    asked: SplitOptions,
    how: MeasureSettings,
) -> _CalibrationRun:
    """Fit and measure rows in passes over streams."""
    from focalcal.cli.splits import same_data_warning, same_files
    from focalcal.cli.streams import divide_streams
    from focalcal.files.derived_streams import calibrated

    if same_files(fit_files, score_files) and not (asked.allow_same_data or asked.fit_split):
        raise InputError(f"--fit: {fit_files[0]} is scored as well. Score other rows, or add --allow-same-data.")
    rows = divide_streams(reader, score_files, fit_files, asked)
    calibrator.fit(reader.on(rows.fit), progress=reader.advance)
    before, after, scored = None, None, 0
    if rows.score is not None:
        before, evaluation = reader.measure(rows.score, how)
        after, _ = reader.measure(calibrated(rows.score, calibrator), how)
        scored = evaluation.n
    warnings = [same_data_warning()] if rows.same_data else []
    warnings += [f"left out: {reason}" for reason in rows.skipped.values()]
    how = replace(how, num_resamples=0)
    return _CalibrationRun(how, rows.words, rows.same_data, 0, scored, before, after, [], warnings, rows.skipped)


def _make(
    method: str, criterion: str | None, search: str | None, gamma: float | None, loss_gamma: float | None
) -> Calibrator:
    """The calibrator, not fitted yet; an option that is not one of this method's is refused."""
    from focalcal.calibrators.table import find_calibrator, make_calibrator

    given = {"criterion": criterion, "search": search, "gamma": gamma, "loss_gamma": loss_gamma}
    options = {name: value for name, value in given.items() if value is not None}
    if find_calibrator(method.partition(":")[0]).name == "temperature":  # whose argument gamma is that of the loss
        if "gamma" in options:
            raise InputError("--gamma: is not an option of method temperature. Leave it out, or use --loss-gamma.")
        if "loss_gamma" in options:
            options["gamma"] = options.pop("loss_gamma")
    return make_calibrator(method, **options)


def _place(out: str | None, calibrator: Calibrator) -> str:
    """Where the calibrator goes; refused now if its suffix does not suit the method."""
    from focalcal.calibrators.table import short_name
    from focalcal.cli.calibrators import file_suffix, right_suffix

    suffix = file_suffix(calibrator)
    if out is None:
        return f"calibrator{suffix}"
    right = right_suffix(out, calibrator)
    if Path(right).suffix.lower() != Path(out).suffix.lower():
        holds = "arrays" if suffix == ".safetensors" else "a few numbers"
        fix = f"Name it {Path(right).name}."
        raise InputError(f"{out}: {short_name(calibrator)} has {holds} and is saved as {suffix}. {fix}")
    return out


def _fit(calibrator: Calibrator, rows: DividedRows, advance: Advance) -> None:
    table = rows.fit
    assert table.labels is not None
    try:
        calibrator.fit(table.scores, table.labels, kind=table.kind, sample_weight=table.weights, progress=advance)
    except InputError as error:  # it names an argument, which says nothing to who gave a file
        raise InputError(f"{table.name}: {str(error).removeprefix('logits: ')}") from error


def _apply_command(calibrator: str, files: list[str], columns: Columns) -> str:
    """The command that applies the calibrator to the files at hand; it works as it stands."""
    if "-" in files:
        return shlex.join([*program(), "apply", calibrator, "FILE", "--out", "OUT"])
    if len(files) == 2 and all(file.endswith(".npy") for file in files):
        files = files[:1]  # the other one has the labels
    words = [*program(), "apply", calibrator, *files]
    words += ["--scores", columns.scores] if columns.scores else []
    words += ["--kind", columns.kind] if columns.kind else []
    words += ["--classes", ",".join(columns.classes)] if columns.classes else []
    words += ["--positive", columns.positive] if columns.positive else []
    return shlex.join([*words, "--out", _calibrated_name(files)])


def _calibrated_name(files: list[str]) -> str:
    from focalcal.files.table import suffix_of

    first = Path(files[0])
    shards = len(files) > 1 or first.is_dir() or any(sign in files[0] for sign in "*?[")
    if shards:
        return "calibrated"
    end = len(first.name) - len(suffix_of(first))
    return str(first.with_name(f"{first.name[:end]}-calibrated{first.name[end:]}"))


def _print(result: CalibrateResult, warnings: list[str], calibrator: Calibrator) -> None:
    from focalcal.cli import measure_tables
    from focalcal.report.measure_version import fit_warnings

    console = standard_output()
    if result.before is not None and result.after is not None:
        said = f", {_ON_THE_FIT}" if result.same_data else ""
        measure_tables.print_verdict(console, result.before, f"before{said}: ")
        measure_tables.print_verdict(console, result.after, f"after{said}:  ")
        console.print()
    for line in _fit_words(result):
        console.print(line)
    measure_tables.print_warnings(console, [*warnings, *fit_warnings(calibrator)])
    if result.before is not None and result.after is not None:
        title = f"Measured {_ON_THE_FIT}" if result.same_data else "Measured on rows outside the fit"
        measure_tables.print_change(console, result.before, result.after, result.differences, result.level, title)
    console.print(f"Written: {result.out}" + (f" and {result.onnx}" if result.onnx else ""), soft_wrap=True)
    console.print(f"Apply it: {result.apply_command}", soft_wrap=True)


def _fit_words(result: CalibrateResult) -> list[str]:
    """What was fitted and what happened in the fit."""
    fit = result.fit
    lines = [f"{fit.method}: {fit.parameters}" if fit.parameters else fit.method, f"{_sentence(result.split)}."]
    if fit.passes:
        lines.append(f"The rows of the fit were read {'once' if fit.passes == 1 else f'{fit.passes} times'}.")
    if not fit.kept_identity:
        lines.append(f"On the rows of the fit {fit.criterion} went from {fit.before:.4f} to {fit.after:.4f}.")
    return lines


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
