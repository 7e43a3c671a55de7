"""`focalcal apply`: calibrate a file of predictions of any size, in its own format or another one."""

from __future__ import annotations

from dataclasses import asdict
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
from focalcal.cli.output_paths import require_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from focalcal.calibrators import Calibrator
    from focalcal.core.checks import Array
    from focalcal.core.score_kinds import Kind


@plain_warnings()
def apply(
    calibrator: Annotated[str, typer.Argument(metavar="C", help="A calibrator that focalcal calibrate wrote.")],
    files: options.Files,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="Where the calibrated predictions go: a file of the format of FILE, or of another, for which FILE is "
            "read whole and columns of your own are not kept; a directory for shards.",
        ),
    ],
    to: Annotated[options.OutputKind, typer.Option("--to", help="What is written.")] = options.OutputKind.probs,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    kind: options.Kind = None,
    scores: options.Scores = None,
    labels: options.Labels = None,
    classes: options.Classes = None,
    positive: options.Positive = None,
) -> None:
    """Apply a calibrator to predictions and write them anew, a batch at a time: memory does not grow with the file.

    Labels are not needed; they and everything else in the file are kept.

    \b
    Examples:
      focalcal apply calibrator.json new.npz --out new-calibrated.npz
      focalcal apply calibrator.json new.csv --out new-calibrated.parquet
      focalcal apply calibrator.json 'shards/*.parquet' --out calibrated/ --to log_probs
    """
    with quick_imports():
        from focalcal.calibrators.table import short_name
        from focalcal.cli import results
        from focalcal.cli.calibrators import load, parameters
        from focalcal.files import rewrite_predictions

    loaded = load(calibrator)
    if out != "-":
        require_place(out, "--out")
    calibrate = _calibrate(loaded, calibrator, files[0], to.value)
    columns = options.columns(kind, scores, labels, classes=classes, positive=positive)
    with progress(quiet=quiet) as advance:
        path = files[0] if len(files) == 1 else files
        rows = rewrite_predictions(path, out, calibrate, columns, to=to.value, progress=advance)
    result = results.ApplyResult(
        files=files,
        calibrator=calibrator,
        method=short_name(loaded),
        parameters=parameters(loaded),
        to=to.value,
        num_rows=rows,
        out=out,
    )
    if out == "-":
        return  # standard output is the file
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print_line(out)
    else:
        said = f"{result.method}{f' ({result.parameters})' if result.parameters else ''}"
        standard_output().print(f"Written: {out}: {rows:,} rows as {to.value}, calibrated by {said}")


def _calibrate(loaded: Calibrator, path: str, file: str, to: str) -> Callable[[Array, Kind], Array]:
    """The function that makes calibrated scores of a batch, in the batch's shape."""
    from focalcal.cli.calibrators import require_classes
    from focalcal.core.checks import from_numpy
    from focalcal.core.score_kinds import log_probabilities, probabilities
    from focalcal.files import PredictionTable
    from focalcal.report.measure_version import calibrated

    def calibrate(scores: Array, kind: Kind) -> Array:
        batch = PredictionTable(file, scores, kind)
        require_classes(loaded, path, batch.num_classes, file)
        new = calibrated(batch, loaded)
        converted = probabilities if to == "probs" else log_probabilities
        rows = converted(from_numpy(new.scores), new.kind).numpy()
        return rows[:, 1] if scores.ndim == 1 else rows

    return calibrate
