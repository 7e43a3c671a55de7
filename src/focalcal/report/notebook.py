"""The report from Python: written to a file, and shown on the spot in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import final

from focalcal.core.checks import ArrayLike, require
from focalcal.core.score_kinds import Kind
from focalcal.files.prediction_table import PredictionTable
from focalcal.predictions.arrays import Predictions
from focalcal.report.build import TITLE, ModelInput, Progress, build_contents, default_methods
from focalcal.report.contents import Contents
from focalcal.report.hold_out import held_out_words, hold_out
from focalcal.report.html import plotly_script, write_report
from focalcal.select.methods import Methods, chosen_methods

__all__ = ["WrittenReport", "report"]

_HEIGHT = 700  # pixels of the frame in a notebook


@final
@dataclass(frozen=True, eq=False)
class WrittenReport:
    """A report that was written to a file. As the last line of a notebook's cell it shows the page itself.

    `path` is the file, `num_bytes` its size, and `contents` are the numbers and words in it. The notebook gets a copy
    of the page, so that it needs neither the file nor a network; that is several megabytes.

    >>> import tempfile, torch
    >>> from focalcal import report
    >>> logits = torch.randn(200, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = report(logits, logits.argmax(1), f"{folder}/report.html", methods=[])
    >>> written.path.name, len(written.contents.models)
    ('report.html', 1)
    """

    path: Path
    num_bytes: int
    contents: Contents = field(repr=False)

    @property
    def verdict(self) -> str:
        """What the report says about the model as it is."""
        return self.contents.models[0].verdict

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        page = self.path.read_text("utf-8") if self.path.exists() else f"<p>{escape(str(self.path))} is gone.</p>"
        look = f"width:100%;height:{_HEIGHT}px;border:1px solid #ccc"
        return f'<iframe title="{escape(self.contents.title)}" style="{look}" srcdoc="{escape(page)}"></iframe>'


def report(
    scores: ArrayLike,
    labels: ArrayLike,
    out: str | Path = "report.html",
    *,
    kind: Kind = "logits",
    fit: tuple[ArrayLike, ArrayLike] | None = None,
    holdout: float = 0.5,
    methods: Methods | None = None,
    sample_weight: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "model",
    title: str = TITLE,
    num_bins: int = 15,
    level: float = 0.95,
    num_resamples: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> WrittenReport:
    """Write the HTML report of a model's predictions, before and after calibration.

    It is what `focalcal report` writes: one file that needs no network. Needs plotly: `pip install 'focalcal[report]'`.

    Args:
        scores: (N, K), or (N,) of the positive class.
        labels: class numbers (N,).
        out: the file to write, whole or not at all.
        kind: what the scores are: logits, log_probs or probs.
        fit: scores and labels of other rows, to which calibrators are fitted; all of `scores` are measured then.
            Without it, a random share of the rows is measured and the rest fitted to.
        holdout: that share.
        methods: what is fitted: calibrators or their names, as in `select_calibrator`. None takes a temperature and a
            focal temperature; an empty list measures all rows and fits nothing.
        sample_weight: weights (N,) of the rows.
        class_names: names of the classes.
        name: what the page calls the model.
        title: the heading of the page.
        num_bins: bins of the measures and diagrams.
        level: of the intervals.
        num_resamples: of the bootstrap; None chooses by the number of rows.
        seed: of everything that is drawn at random.
        progress: is called as `progress(done, total, what)` before each step.

    >>> import tempfile, torch
    >>> logits = torch.randn(200, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(logits, logits.argmax(1), f"{folder}/r.html", methods=["temperature"], num_resamples=100).path.name
    'r.html'
    """
    plotly_script()  # refuses now where it is missing
    table = _table(name, scores, labels, kind, sample_weight, class_names)
    others = None if fit is None else _table("fit", *fit, kind, None, class_names)
    fits_nothing = methods is not None and not isinstance(methods, str) and not methods
    given = _divided(table, others, holdout, seed, fits_nothing)
    num_rows = 0 if given.fit is None else given.fit.num_rows
    if methods is None or fits_nothing:
        templates = {} if fits_nothing else default_methods(num_bins)
    else:
        templates = chosen_methods(methods, table.num_classes, num_rows)[0]
    contents = build_contents(
        [given],
        methods=templates,
        title=title,
        num_bins=num_bins,
        level=level,
        num_resamples=num_resamples,
        seed=seed,
        progress=progress,
    )
    return WrittenReport(Path(out), write_report(contents, out), contents)


def _table(
    name: str,
    scores: ArrayLike,
    labels: ArrayLike,
    kind: Kind,
    sample_weight: ArrayLike | None,
    class_names: Sequence[str] | None,
) -> PredictionTable:
    """The rows as a file would give them, with their shapes checked."""
    checked = Predictions(scores, labels, kind=kind, sample_weight=sample_weight)
    names = None if class_names is None else tuple(map(str, class_names))
    count, rule = checked.num_classes, f"must be {checked.num_classes}, one for each class"
    require(names is None or len(names) == count, "class_names", rule, 0 if names is None else len(names))
    table = PredictionTable(name, scores, kind, labels=labels, weights=sample_weight, class_names=names)  # type: ignore[arg-type]
    rule = "must have shape (N, K), or (N,) for two classes"
    require(table.scores.ndim <= 2, "scores", rule, table.scores.shape, "Make rows of the other dimensions.")
    return table


def _divided(
    table: PredictionTable, fit: PredictionTable | None, holdout: float, seed: int, fits_nothing: bool
) -> ModelInput:
    """The model with its rows divided into those of the fit and those that are measured."""
    if fits_nothing:
        return ModelInput(table.name, table, None, f"{table.num_rows:,} rows measured, nothing fitted to them")
    if fit is not None:
        words = f"fitted to {fit.num_rows:,} other rows, scored on {table.num_rows:,} rows"
        return ModelInput(table.name, table, fit, words)
    require(0 < holdout < 1, "holdout", "must lie between 0 and 1", holdout, "Half of the rows is 0.5.")
    fitted, scored = hold_out(table, holdout, seed)
    return ModelInput(table.name, scored, fitted, held_out_words(fitted, scored, holdout, seed))
