"""`focalcal calibrate`: fit a calibrator, show what it does on rows that it was not fitted to, and write it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli import options
from focalcal.cli.checks import plain_warnings, quick_imports, require_output
from focalcal.cli.console import JsonOption, QuietOption, print_json, program, progress, standard_output
from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator
    from focalcal.cli.methods import Wish
    from focalcal.cli.results import Assessed, CalibrateResult, Difference
    from focalcal.cli.splits import Division
    from focalcal.streams import Columns

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
            help="identity, temperature, focal, focal-temperature, ensemble-temperature (ets), spline, vector, matrix, "
            "dirichlet, platt, beta, histogram, isotonic or bbq.",
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
        from focalcal.cli import results, tables
        from focalcal.cli.methods import Wish, parameters
        from focalcal.cli.splits import Asked, divide, same_files
        from focalcal.metrics.uncertainty import usual_resamples
        from focalcal.streams import read_predictions

    score_files, fit_files = files or [], fit or []
    if not (score_files or fit_files):
        raise InputError("FILE: name the predictions to fit to. See focalcal calibrate --help.")
    wish = Wish.of(method)
    wish = replace(wish, criterion=criterion or wish.criterion, search=search.value if search else wish.search)
    calibrator = wish.make(gamma=gamma, loss_gamma=loss_gamma)
    place = _place(out, wish)
    for each, option in ((place, "--out"), (onnx, "--onnx")):
        if each is not None:
            require_output(each, option, inputs=[*score_files, *fit_files])
    asked = Asked(split, fit_split, score_split, holdout, seed, allow_same_data)
    before: Assessed | None = None
    after: Assessed | None = None
    changes: list[Difference] = []
    with progress(quiet=quiet) as advance:
        table = read_predictions(score_files, columns, progress=advance) if score_files else None
        fit_table = read_predictions(fit_files, columns, progress=advance) if fit_files else None
        rows = divide(table, fit_table, asked, same_file=same_files(fit_files, score_files))
        measured = rows.score or rows.fit
        how = tables.How(num_bins, level, resamples or usual_resamples(measured.num_rows), seed)
        advance(0, 1, f"fitting {wish}")
        _fit(calibrator, rows)
        if rows.score is not None:
            raw = tables.assess_table(rows.score, how, advance, "measuring before")
            calibrated = tables.assess_table(rows.score, how, advance, "measuring after", calibrator)
            changes = tables.differences(raw, calibrated, how)
            before, after = tables.assessed(raw), tables.assessed(calibrated)
        advance(1, 1, "writing")
        if onnx is not None:
            calibrator.to_onnx(onnx)  # first, because it may fail
        calibrator.save(place)
    report = calibrator.report_
    result = results.CalibrateResult(
        files=score_files,
        fit_files=fit_files or score_files,
        split=rows.words,
        same_data=rows.same_data,
        num_shared=rows.num_shared,
        num_classes=rows.fit.num_classes,
        num_score_rows=0 if rows.score is None else rows.score.num_rows,
        fit=results.Fit(str(wish), calibrator.settings(), parameters(calibrator), **report.to_dict()),
        num_bins=num_bins,
        level=level,
        num_resamples=how.num_resamples,
        seed=seed,
        before=before,
        after=after,
        differences=changes,
        out=place,
        onnx=onnx,
        apply_command=_apply_command(place, score_files or fit_files, columns),
    )
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print(result.out)
    else:
        _print(result, rows, calibrator)


def _place(out: str | None, wish: Wish) -> str:
    """Where the calibrator goes; refused now if its suffix does not suit the method."""
    if out is None:
        return f"calibrator{wish.suffix}"
    other = ({".json", ".safetensors"} - {wish.suffix}).pop()
    if Path(out).suffix.lower() == other:
        holds = "arrays" if wish.suffix == ".safetensors" else "a few numbers"
        fix = f"Name it {Path(out).with_suffix(wish.suffix).name}."
        raise InputError(f"{out}: {wish.name} has {holds} and is saved as {wish.suffix}. {fix}")
    return out


def _fit(calibrator: Calibrator, rows: Division) -> None:
    table = rows.fit
    assert table.labels is not None
    try:
        calibrator.fit(table.scores, table.labels, kind=table.kind, sample_weight=table.weights)
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
    return shlex.join([*words, "--out", _calibrated_name(files)])


def _calibrated_name(files: list[str]) -> str:
    first = Path(files[0])
    shards = len(files) > 1 or first.is_dir() or any(sign in files[0] for sign in "*?[")
    if shards:
        return "calibrated"
    return str(first.with_name(f"{first.stem}-calibrated{first.suffix}"))


def _print(result: CalibrateResult, rows: Division, calibrator: Calibrator) -> None:
    from focalcal.cli import tables
    from focalcal.report.versions import fit_warnings

    console = standard_output()
    if result.before is not None and result.after is not None:
        said = f", {_ON_THE_FIT}" if result.same_data else ""
        tables.print_verdict(console, result.before, f"before{said}: ")
        tables.print_verdict(console, result.after, f"after{said}:  ")
        console.print()
    for line in _fit_words(result):
        console.print(line)
    tables.print_warnings(console, [*rows.warnings, *fit_warnings(calibrator)])
    if result.before is not None and result.after is not None:
        title = f"Measured {_ON_THE_FIT}" if result.same_data else "Measured on rows outside the fit"
        tables.print_change(console, result.before, result.after, result.differences, result.level, title)
    console.print(f"Written: {result.out}" + (f" and {result.onnx}" if result.onnx else ""), soft_wrap=True)
    console.print(f"Apply it: {result.apply_command}", soft_wrap=True)


def _fit_words(result: CalibrateResult) -> list[str]:
    """What was fitted and what happened in the fit."""
    fit = result.fit
    lines = [f"{fit.method}: {fit.parameters}" if fit.parameters else fit.method, f"{_sentence(result.split)}."]
    if not fit.kept_identity:
        lines.append(f"On the rows of the fit {fit.criterion} went from {fit.before:.4f} to {fit.after:.4f}.")
    return lines


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
