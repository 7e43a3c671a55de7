"""`focalcal report`: one HTML file about one or more models, before and after calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli import options
from focalcal.cli.console import (
    Advance,
    JsonOption,
    QuietOption,
    plain_warnings,
    print_json,
    print_line,
    progress,
    quick_imports,
    standard_output,
)
from focalcal.cli.output_paths import require_output, require_place
from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator
    from focalcal.cli.results import ReportedModel, ReportResult
    from focalcal.cli.splits import DividedRows, SplitOptions
    from focalcal.files import Columns, PredictionTable
    from focalcal.report.contents import Contents, Model

# What a report fits unless told otherwise; `none` fits nothing.
_METHODS = "temperature,focal-temperature"
_NONE = "none"
_FORMATS = ("png", "svg", "pdf")


@options.takes_columns
@plain_warnings()
def report(
    files: options.Models,
    out: Annotated[
        str, typer.Option("--out", metavar="HTML", help="The file to write.", rich_help_panel=options.OUTPUT)
    ] = "report.html",
    title: Annotated[
        str, typer.Option("--title", help="The heading of the report.", rich_help_panel=options.OUTPUT)
    ] = "Calibration report",
    figures: Annotated[
        str | None,
        typer.Option(
            "--figures", metavar="DIR", help="Also write every figure into this folder.", rich_help_panel=options.OUTPUT
        ),
    ] = None,
    figure_format: Annotated[
        str,
        typer.Option(
            "--figure-format",
            metavar="A,B",
            help="Of the figures: png, svg, pdf, or several of them.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = "png",
    show: Annotated[
        bool, typer.Option("--open", help="Open the report in the browser.", rich_help_panel=options.OUTPUT)
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            metavar="A,B,...",
            help="Methods to fit, named as in focalcal calibrate --method; none measures all rows and fits nothing.",
            rich_help_panel=options.METHOD,
        ),
    ] = _METHODS,
    calibrator: Annotated[
        list[str] | None,
        typer.Option(
            "--calibrator",
            metavar="C",
            help="Also show this calibrator; can be given several times.",
            rich_help_panel=options.METHOD,
        ),
    ] = None,
    fit: Annotated[
        list[str] | None,
        typer.Option(
            "--fit",
            metavar="FILE",
            help="Rows to fit to; once for each FILE, in the same order.",
            rich_help_panel=options.SPLITS,
        ),
    ] = None,
    fit_split: options.FitSplit = None,
    score_split: options.ScoreSplit = None,
    holdout: options.Holdout = None,
    allow_same_data: options.AllowSameData = False,
    num_bins: options.NumBins = 15,
    level: options.Level = 0.95,
    resamples: options.Resamples = None,
    seed: options.Seed = 0,
    split: options.Split = None,
    *,
    columns: Columns,
) -> None:
    """Write one self-contained HTML report of one or more models; it needs no network and opens from disk.

    Without a split column, --fit or --holdout a random half of the rows is scored and the rest fitted to.

    \b
    Examples:
      focalcal report predictions.npz
      focalcal report resnet.npz vit.npz --fit-split val --score-split test --out models.html
      focalcal report test.npz --methods none --calibrator calibrator.json --figures figures
    """
    with quick_imports():
        from focalcal.cli.calibrators import load, methods_of
        from focalcal.cli.splits import SplitOptions
        from focalcal.drawing import require_matplotlib
        from focalcal.report.build import ModelInput, build_contents
        from focalcal.report.html import plotly_script, write_report

    templates = {} if methods.strip() == _NONE else methods_of(methods)
    ready = {path: load(path) for path in calibrator or []}
    formats = _formats(figure_format)
    fit_files = _fit_files(files, fit)
    require_output(out, "--out", inputs=[*files, *(fit or []), *ready])
    if figures is not None:
        require_place(figures, "--figures")
        if Path(figures).is_file():
            raise InputError(f"{figures}: is a file; --figures needs the name of a folder.")
        require_matplotlib()
    plotly_script()  # refuses now where it is missing
    asked = SplitOptions(split, fit_split, score_split, holdout, seed, allow_same_data)
    names = _names(files)
    with progress(quiet=quiet) as advance:
        divisions = [
            _division(file, other, columns, asked, bool(templates), advance)
            for file, other in zip(files, fit_files, strict=True)
        ]
        models = [
            ModelInput(
                name=name,
                score=rows.score or rows.fit,
                fit=rows.fit if templates else None,
                split=rows.words,
                same_data=rows.same_data,
                calibrators=_suited(ready, rows),
            )
            for name, rows in zip(names, divisions, strict=True)
        ]
        contents = build_contents(
            models,
            methods=templates,
            title=title,
            num_bins=num_bins,
            level=level,
            num_resamples=resamples,
            seed=seed,
            progress=advance,
        )
        num_bytes = write_report(contents, out)
        drawn = [] if figures is None else _draw(contents, figures, formats, advance)
    result = _result(contents, files, divisions, out, num_bytes, drawn)
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print_line(out)
    else:
        _print(result, divisions)
    if show:
        import webbrowser

        webbrowser.open(Path(out).absolute().as_uri())


def _formats(text: str) -> list[str]:
    given = [part.strip().lower().lstrip(".") for part in text.split(",") if part.strip()]
    wrong = [each for each in given if each not in _FORMATS]
    if wrong or not given:
        raise InputError(f"--figure-format: must be {', '.join(_FORMATS)} or several of them; got {text!r}.")
    return list(dict.fromkeys(given))


def _fit_files(files: Sequence[str], fit: Sequence[str] | None) -> list[str | None]:
    """The file to fit to of each model, if any."""
    if not fit:
        return [None for _ in files]
    if len(fit) != len(files):
        raise InputError(f"--fit: must be given once for each of the {len(files)} FILEs; got {len(fit)}.")
    return list(fit)


def _names(files: Sequence[str]) -> list[str]:
    """A short name for each model: that of its file, and as much of the path as tells them apart."""
    paths = [Path(file.rstrip("/")) for file in files]
    names = ["standard input" if str(path) == "-" else path.stem for path in paths]
    for depth in range(2, 1 + max(len(path.parts) for path in paths)):
        if len(set(names)) == len(names):
            break
        names = ["/".join(path.with_suffix("").parts[-depth:]) for path in paths]
    doubled = len(set(names)) < len(names)
    return [f"{name} ({place})" for place, name in enumerate(names, 1)] if doubled else names


def _division(
    file: str,
    fit_file: str | None,
    columns: Columns,
    asked: SplitOptions,
    fits: bool,
    advance: Advance,
) -> DividedRows:
    """The rows of a model: divided as asked, or by half where nothing was said."""
    from dataclasses import replace

    from focalcal.cli.splits import DividedRows, divide, only, same_files
    from focalcal.files import read_predictions

    table = read_predictions(file, columns, progress=advance)
    if not fits:
        rows = only(table, asked.score_split or asked.split)
        return DividedRows(rows, rows, f"{rows.num_rows:,} rows measured, nothing fitted to them")
    if fit_file is not None:
        fit_table = read_predictions(fit_file, columns, progress=advance)
        return divide(table, fit_table, asked, same_file=same_files([fit_file], [file]))
    told = asked.holdout is not None or asked.allow_same_data or _has_splits(table, asked)
    return divide(table, None, asked if told else replace(asked, holdout=0.5))


def _has_splits(table: PredictionTable, asked: SplitOptions) -> bool:
    named = asked.fit_split is not None or asked.score_split is not None
    return named or (asked.split is None and len(table.splits()) > 1)


def _suited(ready: dict[str, Calibrator], rows: DividedRows) -> dict[str, Calibrator]:
    """The given calibrators by the names of their files, unless they belong to other classes."""
    from focalcal.cli.calibrators import require_classes

    for path, calibrator in ready.items():
        require_classes(calibrator, path, rows.fit.num_classes, rows.fit.name)
    return dict(zip(_names(list(ready)), ready.values(), strict=True)) if ready else {}


def _draw(contents: Contents, folder: str, formats: Sequence[str], advance: Advance) -> list[str]:
    from focalcal.report.plots import save_figures

    advance(0, 1, "drawing figures")
    return [str(path) for path in save_figures(contents, folder, formats=tuple(formats))]


def _result(
    contents: Contents,
    files: Sequence[str],
    divisions: Sequence[DividedRows],
    out: str,
    num_bytes: int,
    figures: list[str],
) -> ReportResult:
    from focalcal.cli.results import ReportResult

    return ReportResult(
        title=contents.title,
        out=out,
        num_bytes=num_bytes,
        figures=figures,
        level=contents.level,
        num_bins=contents.num_bins,
        seed=contents.seed,
        models=[
            _reported(model, file, rows.num_shared)
            for model, file, rows in zip(contents.models, files, divisions, strict=True)
        ],
    )


def _reported(model: Model, file: str, num_shared: int) -> ReportedModel:
    from focalcal.cli.results import ReportedModel, ReportedVersion

    versions = [
        ReportedVersion(
            name=version.name,
            settings=version.settings,
            verdict=version.verdict,
            measures=version.numbers,
        )
        for version in model.versions
    ]
    return ReportedModel(
        name=model.name,
        file=file,
        num_rows=model.num_rows,
        num_fit_rows=model.num_fit_rows,
        num_classes=model.num_classes,
        split=model.split,
        same_data=model.same_data,
        num_shared=num_shared,
        verdict=model.verdict,
        versions=versions,
    )


def _print(result: ReportResult, divisions: Sequence[DividedRows]) -> None:
    from focalcal.cli.measure_tables import print_warnings

    console = standard_output()
    for model, rows in zip(result.models, divisions, strict=True):
        console.print(f"{model.name}: {model.verdict}", style="bold")
        for version in model.versions[1:]:
            settings = f" ({version.settings})" if version.settings else ""
            console.print(f"  {version.name}{settings}: {version.verdict}")
        console.print(f"  {model.split}", style="dim")
        print_warnings(console, [f"{model.name}: {each}" for each in rows.warnings])
    console.print(f"\nWritten: {result.out} ({result.num_bytes / 1e6:.1f} MB); open it in a browser.")
    if result.figures:
        folder = Path(result.figures[0]).parent
        console.print(f"Written: {len(result.figures)} figures in {folder}")
