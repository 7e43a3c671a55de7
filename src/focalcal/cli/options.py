"""The options that commands share, each with its help text in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focalcal.cli.console import quick_imports
from focalcal.files.table import known_suffixes

if TYPE_CHECKING:
    from focalcal.files import Columns

_INPUT = "What the files hold"
_CERTAINTY = "Intervals"
SPLITS = "Which rows to fit, and which to score"
OUTPUT = "What is written"
METHOD = "What is fitted"


class ScoreKind(str, Enum):
    """What scores are."""

    logits = "logits"
    log_probs = "log_probs"
    probs = "probs"
    log_scores = "log_scores"


class OutputKind(str, Enum):
    """What calibrated scores are written as."""

    probs = "probs"
    log_probs = "log_probs"


class Search(str, Enum):
    """How the two values of focal temperature scaling are searched for."""

    full = "full"
    line = "line"
    continuous = "continuous"


class Engine(str, Enum):
    """How rows are read."""

    auto = "auto"
    memory = "memory"
    stream = "stream"
    ray = "ray"


class OnBadShard(str, Enum):
    """What becomes of a shard that cannot be read."""

    error = "raise"
    skip = "skip"


_FILES = (
    f"Predictions: {known_suffixes()} (text also as .gz or .zst); a directory, a quoted glob or an "
    "address (s3://...) of shards; - for standard input."
)
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help=f"{_FILES} Several files are joined.")]
OptionalFiles = Annotated[
    list[str] | None, typer.Argument(metavar="FILE...", help=f"{_FILES} Several files are joined.")
]
Models = Annotated[
    list[str], typer.Argument(metavar="FILE...", help=f"{_FILES} Each is a model of its own, shown side by side.")
]

Kind = Annotated[
    ScoreKind | None,
    typer.Option(
        "--kind",
        help="What the scores are, if their name does not say it; log_scores are logits.",
        rich_help_panel=_INPUT,
    ),
]
Scores = Annotated[
    str | None,
    typer.Option(
        "--scores",
        metavar="KEY",
        help="Key, column or column prefix of the scores; or the columns themselves, as cat,dog,horse.",
        rich_help_panel=_INPUT,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="KEY",
        help="Key or column of the labels; beside an .npy the labels' file.",
        rich_help_panel=_INPUT,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="KEY", help="Key or column of row weights.", rich_help_panel=_INPUT),
]
SplitKey = Annotated[
    str | None,
    typer.Option(
        "--split-key", metavar="KEY", help="Key or column that names each row's split.", rich_help_panel=_INPUT
    ),
]
ClassNames = Annotated[
    str | None,
    typer.Option("--class-names", metavar="KEY", help="Key of the names of the classes.", rich_help_panel=_INPUT),
]
Classes = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="NAMES",
        help="Names of the classes in the order of the scores, as cat,dog,horse; for labels that are text.",
        rich_help_panel=_INPUT,
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(
        "--positive",
        metavar="NAME",
        help="The class that binary scores belong to, for labels that are text.",
        rich_help_panel=_INPUT,
    ),
]
IgnoreIndex = Annotated[
    int | None,
    typer.Option(
        "--ignore-index",
        metavar="LABEL",
        help="Leave out the rows with this label, such as -100.",
        rich_help_panel=_INPUT,
    ),
]
Split = Annotated[
    str | None,
    typer.Option("--split", metavar="NAME", help="Use only the rows of this split.", rich_help_panel=_INPUT),
]

ReadBy = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="How rows are read: all in memory, with intervals by the bootstrap; as a stream, in bounded memory and "
        "without most intervals; or as a stream on a Ray cluster. auto takes a stream from 256 MB of files on.",
        rich_help_panel=_INPUT,
    ),
]
BadShards = Annotated[
    OnBadShard,
    typer.Option(
        "--on-bad-shard",
        help="What becomes of one of several shards that cannot be read: an error, or it is left out and listed.",
        rich_help_panel=_INPUT,
    ),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="COLUMN", help="Measure every group of rows that this column names, too."),
]

Level = Annotated[
    float,
    typer.Option("--level", help="How often an interval covers the truth.", rich_help_panel=_CERTAINTY),
]
Resamples = Annotated[
    int | None,
    typer.Option(
        "--resamples",
        min=100,
        help="Bootstrap resamples of an interval; 1,000, down to 200 where there are many rows.",
        show_default=False,
        rich_help_panel=_CERTAINTY,
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, help="Seed of everything that is drawn.", rich_help_panel=_CERTAINTY),
]
NumBins = Annotated[int, typer.Option("--num-bins", min=1, help="Bins of ECE and AdaECE.")]

FitSplit = Annotated[
    str | None,
    typer.Option(
        "--fit-split",
        metavar="NAME",
        help="Split to fit to; val (or validation, valid, dev) where there is one.",
        show_default=False,
        rich_help_panel=SPLITS,
    ),
]
ScoreSplit = Annotated[
    str | None,
    typer.Option(
        "--score-split",
        metavar="NAME",
        help="Split to score; test where there is one.",
        show_default=False,
        rich_help_panel=SPLITS,
    ),
]
Holdout = Annotated[
    float | None,
    typer.Option(
        "--holdout",
        metavar="SHARE",
        help="Draw this share of the rows, every class alike, and score it; fit to the rest.",
        rich_help_panel=SPLITS,
    ),
]
AllowSameData = Annotated[
    bool,
    typer.Option(
        "--allow-same-data",
        help="Score the rows of the fit themselves. The result says so; it looks better than it is.",
        rich_help_panel=SPLITS,
    ),
]


def columns(
    kind: Kind = None,
    scores: Scores = None,
    labels: Labels = None,
    weights: Weights = None,
    split_key: SplitKey = None,
    class_names: ClassNames = None,
    classes: Classes = None,
    positive: Positive = None,
    ignore_index: IgnoreIndex = None,
) -> Columns:
    """The names under which the files hold their parts, as the reader takes them."""
    with quick_imports():
        from focalcal.core.score_kinds import plain_kind
        from focalcal.files import Columns

    return Columns(
        scores=scores,
        labels=labels,
        weights=weights,
        split=split_key,
        class_names=class_names,
        kind=None if kind is None else plain_kind(kind.value),
        classes=None if classes is None else tuple(each.strip() for each in classes.split(",")),
        positive=positive,
        ignore_index=ignore_index,
    )


def takes_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `columns`; it gets what they make as its argument `columns`."""
    own, names = _parameters(command), _parameters(columns)
    del own["columns"]

    @functools.wraps(command)
    def with_columns(**arguments: Any) -> None:
        parts = {name: arguments.pop(name) for name in names}
        command(columns=columns(**parts), **arguments)

    shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (own | names).values()]
    with_columns.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    with_columns.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    del with_columns.__wrapped__
    return with_columns


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function with the types that their annotations mean; `columns` is no option and has none."""
    known = inspect.unwrap(function).__globals__
    return {
        name: parameter if name == "columns" else parameter.replace(annotation=eval(parameter.annotation, known))
        for name, parameter in inspect.signature(function).parameters.items()
    }
